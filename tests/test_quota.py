"""How many cores a process may use: its affinity mask and the quotas of its control groups."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bucketize import quota as module
from bucketize import zoo
from bucketize.call import MEMORY
from bucketize.errors import CompileError
from bucketize.integrations.session import InferenceSession
from bucketize.machine.target import cores
from bucketize.quota import memory, quota, spare_memory
from bucketize.runtime.thread_pool import check_threads

V1 = """31 23 0:28 / {0}/cpuset rw - cgroup cgroup rw,cpuset
32 31 0:29 {1} {0}/cpu rw,relatime - cgroup cgroup rw,cpuacct,cpu"""
V2 = "41 31 0:38 {1} {0} rw,relatime shared:9 - cgroup2 cgroup2 rw"


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    quota.cache_clear()
    yield
    quota.cache_clear()


class System:
    """Files as Linux shows them: what is mounted, in which groups a process is, their limits."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mounted, self.process = folder / "mounted", folder / "proc"
        self.process.mkdir()
        monkeypatch.setattr(module, "PROCESS", self.process)

    def of(self, mounts: str, groups: str, limits: Mapping[str, str], root: str = "/") -> None:
        (self.process / "mountinfo").write_text(mounts.format(self.mounted, root) + "\n")
        (self.process / "cgroup").write_text(groups + "\n")
        for name, text in limits.items():
            path = self.mounted / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path, monkeypatch)


def of_v1(folder: str, taken: int, period: int = 100_000) -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": str(taken), f"{folder}/cpu.cfs_period_us": str(period)}


OTHERS = "9:name=systemd:/\n3:cpuset:/tight\n"


@pytest.mark.parametrize(
    ("mounts", "groups", "limits", "root", "expected"),
    [
        (V2, "0::/", {"cpu.max": "150000 100000"}, "/", 1.5),  # a container with a name space
        (V2, "0::/", {"cpu.max": "max 100000"}, "/", None),
        (V2, "0::/", {}, "/", None),  # the root of a machine has no such file
        (V2, "0::/pods/a", {"pods/cpu.max": "50000 25000", "pods/a/cpu.max": "max 1"}, "/", 2.0),
        (V2, "0::/a", {"cpu.max": "3 1", "a/cpu.max": "400 100"}, "/", 3.0),  # the group's is more
        (V2, "0::/docker/1", {"cpu.max": "5 2"}, "/docker/1", 2.5),  # the mount is of the group
        (V2, "0::/else", {"cpu.max": "5 2", "else/cpu.max": "1 1"}, "/docker/1", 2.5),
        (V2, "0::/../b", {"cpu.max": "5 2"}, "/", 2.5),  # outside of the name space
        (V1, OTHERS + "2:cpu,cpuacct:/a", of_v1("cpu/a", 250_000), "/", 2.5),
        (V1, OTHERS + "2:cpu,cpuacct:/a", of_v1("cpu/a", -1) | of_v1("cpu", 50_000), "/", 0.5),
        (V1, OTHERS + "2:cpu,cpuacct:/a", of_v1("cpu/a", -1), "/", None),
        (V1, OTHERS + "2:cpu,cpuacct:/d/1", of_v1("cpu", 10, 10), "/d/1", 1.0),
        (V1, OTHERS + "2:cpuacct:/a", of_v1("cpu/a", 250_000), "/", None),  # in no group of cpu
        (V1 + "\n" + V2, OTHERS + "2:cpu:/a\n0::/", of_v1("cpu/a", 30, 10), "/", 3.0),  # both
    ],
)
def test_the_least_limit_on_the_way_up_counts(
    system: System,
    mounts: str,
    groups: str,
    limits: Mapping[str, str],
    root: str,
    expected: float | None,
) -> None:
    system.of(mounts, groups, limits, root)
    assert quota() == expected


V1_MEMORY = "33 31 0:29 {1} {0}/memory rw - cgroup cgroup rw,memory"
NO_LIMIT = 9223372036854771712


@pytest.mark.parametrize(
    ("mounts", "groups", "limits", "expected"),
    [
        (V2, "0::/", {"memory.max": "4096", "memory.current": "96"}, (4096, 4000)),
        (V2, "0::/", {"memory.max": "max", "memory.current": "96"}, None),
        (V2, "0::/", {}, None),
        (
            V2,
            "0::/pods/a",
            {"pods/memory.max": "900", "pods/memory.current": "800"}
            | {"pods/a/memory.max": "1000", "pods/a/memory.current": "20"},
            (900, 100),
        ),
        (
            V1_MEMORY,
            OTHERS + "2:memory:/a",
            {"memory/a/memory.limit_in_bytes": "77", "memory/a/memory.usage_in_bytes": "7"},
            (77, 70),
        ),
        (
            V1_MEMORY,
            OTHERS + "2:cpu:/a",  # in no group of memory
            {"memory/a/memory.limit_in_bytes": "77", "memory/a/memory.usage_in_bytes": "7"},
            None,
        ),
    ],
)
def test_memory_is_that_of_the_container_where_it_is_less(
    system: System,
    mounts: str,
    groups: str,
    limits: Mapping[str, str],
    expected: tuple[int, int] | None,
) -> None:
    system.of(mounts, groups, limits)
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert (memory(), spare_memory()) == (expected or (whole, None))


def test_a_limit_beyond_the_machine_is_none(system: System) -> None:
    limits = {"memory/memory.limit_in_bytes": str(NO_LIMIT), "memory/memory.usage_in_bytes": "7"}
    system.of(V1_MEMORY, "2:memory:/", limits)
    assert memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_results_are_held_against_it() -> None:
    assert memory() == MEMORY


def test_a_mount_whose_name_is_no_text_is_passed_by(system: System) -> None:
    system.of(V2, "0::/", {"cpu.max": "150000 100000"})
    mounts = system.process / "mountinfo"
    other = b"50 1 0:40 / /media/caf\xe9 rw - vfat /dev/sdb rw\n"
    mounts.write_bytes(other + mounts.read_bytes())
    assert quota() == 1.5


def test_a_system_without_such_files_has_no_limit(system: System) -> None:
    assert quota() is None
    assert cores() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("limit", "expected"), [("50000", 1), ("100000", 1), ("250000", 2), ("300000", 3), ("max", 4)]
)
def test_a_quota_is_rounded_down_and_one_core_is_left(
    system: System, monkeypatch: pytest.MonkeyPatch, limit: str, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 4, 6})
    system.of(V2, "0::/", {"cpu.max": f"{limit} 100000"})
    assert cores() == expected


def test_the_mask_counts_where_it_is_less(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    system.of(V2, "0::/", {"cpu.max": "800000 100000"})
    assert cores() == 1


def test_threads_are_by_default_and_at_most_what_the_quota_allows(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    system.of(V2, "0::/", {"cpu.max": "190000 100000"})
    with pytest.raises(CompileError, match="threads: expected 1 to 1, got 2"):
        check_threads(2)
    model = zoo.build("mlp").SerializeToString()
    assert InferenceSession(model).executable.program.threads == 1


@pytest.mark.skipif(shutil.which("taskset") is None, reason="there is no taskset")
def test_a_process_on_one_core_has_one_thread() -> None:
    core = min(os.sched_getaffinity(0))
    text = """
from bucketize.kernel.build import Building
from bucketize.machine.target import cores
from bucketize.measure.runner import MOST_THREADS
print(cores(), MOST_THREADS, Building()._most)
"""
    command = ["taskset", "-c", str(core), sys.executable, "-P", "-c", text]
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "1", "0"]
