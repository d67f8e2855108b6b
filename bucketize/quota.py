"""What the control groups of a process leave it, the limits of a container: processors, memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

PROCESS = Path("/proc/self")
MEMORY = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
"""By version, where a group's limit stands, and what is used of it."""


@cache
def quota() -> float | None:
    """How many processors' time this process may take, read once; None: there is no limit.

    A limit holds for all groups below its own, so the least on the way up counts. A folder that is
    not mounted here, as of what a container lies in, is passed by.
    """
    limits = [limit for folder in _folders("cpu") if (limit := _limit(folder)) is not None]
    return min(limits, default=None)


def memory() -> int:
    """Bytes that this process may have: those of the machine, or of a group that has less."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([whole, *(most for most, _ in _memory())])


def spare_memory() -> int | None:
    """Bytes that are left to its groups; None: there is no limit."""
    return min((most - used for most, used in _memory()), default=None)


def _memory() -> Iterator[tuple[int, int]]:
    """Limit and use of each group that has a limit."""
    for folder in _folders("memory"):
        for names in MEMORY:
            for most, used in zip(*(_lines(folder / name) for name in names), strict=False):
                if most != "max":
                    yield int(most), int(used)


def _folders(controller: str) -> Iterator[Path]:
    """The folders of the groups of this process that may have a limit, and of those above them."""
    groups = dict(_groups(controller))
    for version, root, mounted in _mounts(controller):
        group = groups.get(version)
        if group is None:
            continue
        inside = PurePosixPath("/")
        if group.is_relative_to(root) and ".." not in group.parts:
            inside = "/" / group.relative_to(root)
        for place in (inside, *inside.parents):
            yield mounted / place.relative_to("/")


def _groups(controller: str) -> Iterator[tuple[int, PurePosixPath]]:
    """By version of the hierarchy, the group that this process is in."""
    for line in _lines(PROCESS / "cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            yield 2, PurePosixPath(path)
        elif controller in controllers.split(","):
            yield 1, PurePosixPath(path)


def _mounts(controller: str) -> Iterator[tuple[int, PurePosixPath, Path]]:
    """The hierarchies that are mounted: version, the group that the folder shows, the folder."""
    for line in _lines(PROCESS / "mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mounted = before.split(" ")[3:5]
        if kind == "cgroup2":
            yield 2, PurePosixPath(root), Path(mounted)
        elif kind == "cgroup" and controller in options.split(","):
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
