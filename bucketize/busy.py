"""What else a machine does while something is timed: on a busy one times are too long, and vary."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from bucketize.errors import BusyWarning, warn
from bucketize.timing import TICK_S

OTHERS = 0.1  # of all processors: what other processes may take before a machine is busy
LEAST_S = 0.5  # that is watched: the system counts in steps of 10 ms on each processor
LEAST_ROUNDS = 10  # of which two groups can be told
APART, EXPLAINED, FEWEST = 1.15, 0.87, 0.3
"""Two groups: medians so far apart, so much of the variance between them, so many in the lesser
one. Of normal samples a third of the variance is within halves; a few stray rounds are no group."""
PROC = Path("/proc")


@dataclass(frozen=True)
class Counters:
    """What the system has counted so far."""

    at_s: float
    load: float
    """The load of the machine, from `machine_load`."""
    machine_s: float
    """Processor seconds of all processes, and those that went to other virtual machines."""
    ours_s: float
    """Processor seconds of this process and its descendants."""


def machine_load() -> float:
    """How many processes ran or waited to, on the average of the last minute; ours included."""
    return os.getloadavg()[0]


def reading() -> Counters | None:
    """What the system has counted; None where it does not tell."""
    try:
        _, *cells = (PROC / "stat").read_text().split("\n", 1)[0].split()
        user, nice, system, _, _, irq, softirq, steal = map(int, cells[:8])
        ours, load = _family_ticks(os.getpid()), machine_load()
    except (OSError, ValueError):
        return None
    ticks_s = os.sysconf("SC_CLK_TCK")
    used = user + nice + system + irq + softirq + steal
    return Counters(time.monotonic(), load, used / ticks_s, ours / ticks_s)


def _family_ticks(root: int) -> int:
    """What a process and its descendants have used, those included that they have waited for."""
    parents, ticks = {root: 0}, {}
    for path in PROC.glob("[0-9]*/stat"):
        try:
            cells = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(cells[1]), sum(map(int, cells[11:15]))
    return sum(used for pid, used in ticks.items() if _descends(pid, root, parents))


def _descends(pid: int, root: int, parents: Mapping[int, int]) -> bool:
    while pid != root and pid in parents:
        pid = parents[pid]
    return pid == root


@dataclass(frozen=True)
class Machine:
    """What a machine did beside what was timed."""

    others: float | None = None
    """Processors that other processes took, on the average; None where the system does not tell."""
    load: float | None = None
    """The load of the machine at the last `Counters`."""
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    groups: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By name of what was timed, the medians in seconds of two groups that its rounds fall into."""

    @property
    def is_busy(self) -> bool:
        """Whether others were at work, as far as the system tells."""
        return self.others is not None and self.others > OTHERS * self.cores

    @property
    def doubts(self) -> list[str]:
        """What makes the times doubtful."""
        doubts = []
        if self.is_busy:
            taken = f"{self.others:.1f} of {self.cores} processors (load average {self.load:.1f})"
            doubts.append(f"the machine is busy: other processes take {taken}")
        for name, medians in list(self.groups.items())[:1]:
            low, high = (f"{1e3 * s:.3g}" for s in medians)
            doubts.append(f"the rounds of {name} fall into two groups, around {low} and {high} ms")
            doubts += [f"so do those of {more} more"] if (more := len(self.groups) - 1) else []
        return doubts

    def warn(self) -> None:
        """Make a `BusyWarning` of the doubts, if there are any."""
        if self.doubts:
            doubts = "; ".join(self.doubts)
            advice = "times may be too long, and others the next time"
            warn(f"{doubts}: {advice}", BusyWarning)


def busiest(machines: Iterable[Machine]) -> Machine:
    """The one that did most for others, with what all of them have to say of rounds."""
    every = list(machines)
    most = max(every, key=lambda m: m.others or 0.0, default=Machine())
    groups = {name: medians for m in every for name, medians in m.groups.items()}
    return replace(most, groups=groups)


class Watch:
    """The machine for as long as the context lasts; where that is too short, a bit longer."""

    def __enter__(self) -> Self:
        self.begin = reading()
        self.machine = Machine()
        """The machine's activity under the watch, known in the end."""
        self.groups: dict[str, tuple[float, float]] = {}
        return self

    def rounds(self, times: Mapping[str, Sequence[float]]) -> None:
        """Look for groups in the seconds that were measured, by name."""
        by_name = {name: groups_of(seconds) for name, seconds in times.items()}
        self.groups |= {name: groups for name, groups in by_name.items() if groups}

    def __exit__(self, *raised: object) -> None:
        self.machine = self._machine()

    def _machine(self) -> Machine:
        if self.begin is None or (end := reading()) is None:
            return Machine(groups=self.groups)
        if (lacking := LEAST_S - (end.at_s - self.begin.at_s)) > 0:
            time.sleep(lacking)
            end = reading() or end
        return Machine(_others(self.begin, end), end.load, groups=self.groups)


def _others(begin: Counters, end: Counters) -> float | None:
    """The processors that others took; None where the system does not count."""
    used = end.machine_s - begin.machine_s
    if used <= 0:
        return None
    return max(used - (end.ours_s - begin.ours_s), 0.0) / (end.at_s - begin.at_s)


@contextmanager
def watched() -> Iterator[Watch]:
    """A watch, with a warning at its end where one is due."""
    with Watch() as watch:
        yield watch
    watch.machine.warn()


def groups_of(seconds: Sequence[float]) -> tuple[float, float] | None:
    """The medians of the two groups that some rounds fall into; None of rounds of one kind.

    The cut is where least of the variance of the logarithms is left within the groups (N. Otsu, "A
    threshold selection method from gray-level histograms", 1979).
    """
    if len(seconds) < LEAST_ROUNDS:
        return None
    ordered = np.sort(seconds)
    logs = np.log(np.maximum(ordered, TICK_S))
    cuts, below = np.arange(1, len(logs)), logs.cumsum()[:-1]
    shares = cuts / len(logs)
    apart = (logs.sum() - below) / cuts[::-1] - below / cuts
    between = shares * (1 - shares) * apart**2
    cut = int(cuts[between.argmax()])
    low, high = (float(np.median(part)) for part in (ordered[:cut], ordered[cut:]))
    lesser = min(cut, len(logs) - cut) / len(logs)
    if lesser < FEWEST or high <= APART * low or between.max() < EXPLAINED * logs.var():
        return None
    return low, high
