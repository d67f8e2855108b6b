"""How much processor time the control groups of a process leave it: the limit of a container."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

PROCESS = Path("/proc/self")


@cache
def quota() -> float | None:
    """How many processors' time this process may take, read once; None: there is no limit.

    A limit holds for all groups below its own, so the least on the way up counts. A folder that is
    not mounted here, as of what a container lies in, is passed by.
    """
    limits = [limit for folder in _folders() if (limit := _limit(folder)) is not None]
    return min(limits, default=None)


def _folders() -> Iterator[Path]:
    """The folders of the groups of this process that may have a limit, and of those above them."""
    groups = dict(_groups())
    for version, root, mounted in _mounts():
        group = groups.get(version)
        if group is None:
            continue
        inside = PurePosixPath("/")
        if group.is_relative_to(root) and ".." not in group.parts:
            inside = "/" / group.relative_to(root)
        for place in (inside, *inside.parents):
            yield mounted / place.relative_to("/")


def _groups() -> Iterator[tuple[int, PurePosixPath]]:
    """By version of the hierarchy, the group that this process is in."""
    for line in _lines(PROCESS / "cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            yield 2, PurePosixPath(path)
        elif "cpu" in controllers.split(","):
            yield 1, PurePosixPath(path)


def _mounts() -> Iterator[tuple[int, PurePosixPath, Path]]:
    """The hierarchies that are mounted: version, the group that the folder shows, the folder."""
    for line in _lines(PROCESS / "mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mounted = before.split(" ")[3:5]
        if kind == "cgroup2":
            yield 2, PurePosixPath(root), Path(mounted)
        elif kind == "cgroup" and "cpu" in options.split(","):
            yield 1, PurePosixPath(root), Path(mounted)


def _limit(folder: Path) -> float | None:
    """The limit of one group: `max 100000` or `-1` are none."""
    words = _lines(folder / "cpu.max") or [
        f"{taken} {period}"
        for taken in _lines(folder / "cpu.cfs_quota_us")
        for period in _lines(folder / "cpu.cfs_period_us")
    ]
    for line in words:
        taken, period = line.split()
        if taken not in ("max", "-1"):
            return int(taken) / int(period)
    return None


def _lines(path: Path) -> list[str]:
    """The lines of a file; none where the system has no such file."""
    try:
        return path.read_text(errors="surrogateescape").splitlines()  # paths are bytes
    except OSError:
        return []
