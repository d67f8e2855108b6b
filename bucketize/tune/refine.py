"""What trials say of the speed of the machine that they were made on, beside what probes measured.

Models of cost are fitted by the speed: each of its figures moves where kernels insist, and all of
it stays as it was unless kernels that the fit has not seen are predicted better, and none of their
choices gets worse on the average.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bucketize.errors import KernelError, warn
from bucketize.log.trial import Trial
from bucketize.machine.calibration import write
from bucketize.machine.host import calibration_of, host
from bucketize.machine.speed import Floats, Speed
from bucketize.machine.target import Target
from bucketize.tune.observation import Observation, observations
from bucketize.tune.task import Task

NAMES = [f.name for f in fields(Speed)]

SHORT_S = 5e-6  # below, the clock tells as much as the kernel
MOST = 60  # kernels that are learnt from: the time that it takes
WORKLOADS = 4  # at least: fewer say nothing of others
FOLDS = 3
PRIOR = 0.1  # of the logarithm of a figure: how sure a probe is
NOISE = 0.15  # of that of a kernel's seconds: how sure a model of cost is
BOUND = 2.0  # the factor that a figure moves by at most
GAIN = 0.25  # of the error at kernels not seen, to take off: less may be the models' own fault
HINDERED = 0.93  # of the multiply-adds in a second that probes found: a quiet core does no fewer
EVALUATIONS = 8
DIGITS = 3


@dataclass(frozen=True, eq=False)
class TaughtKernel:
    """A workload at one size, and what it took under the schedules of all templates tried."""

    workload: str
    sides: Sequence[Observation[Any]]

    @property
    def logs(self) -> Floats:
        """Logarithms of the seconds, template by template."""
        return np.concatenate([side.logs for side in self.sides])

    def expected(self, target: Target) -> Floats:
        """Logarithms of the seconds by the models of cost."""
        parts = [
            side.cost.seconds(side.schedules, side.points, target, side.cold_bytes)[0]
            for side in self.sides
        ]
        return np.asarray(np.log(np.concatenate(parts)), float)


@dataclass(frozen=True)
class Judgement:
    """How good models are at some kernels, with the speed of a target."""

    regrets: tuple[float, ...]
    """For each kernel, the logarithm of the time of what they choose by the best."""
    errors: tuple[float, ...]
    """For each kernel, the mean error of the logarithm of the seconds."""

    @classmethod
    def of(cls, kernels: Iterable[TaughtKernel], target: Target) -> Judgement:
        """The judgement on kernels, best on some that the speed was not fitted to."""
        pairs = [(kernel.logs, kernel.expected(target)) for kernel in kernels]
        return cls(
            tuple(float(logs[np.argmin(expected)] - logs.min()) for logs, expected in pairs),
            tuple(float(np.abs(expected - logs).mean()) for logs, expected in pairs),
        )

    def __add__(self, other: Judgement) -> Judgement:
        return Judgement(self.regrets + other.regrets, self.errors + other.errors)

    def is_better_than(self, other: Judgement) -> bool:
        """Whether the error is clearly less, and choices are no worse."""
        error, before = np.mean(self.errors), np.mean(other.errors)
        return bool(error < before * (1 - GAIN) and np.mean(self.regrets) <= np.mean(other.regrets))


def kernels_of(tasks: Iterable[Task], trials: Iterable[Trial]) -> list[TaughtKernel]:
    """The kernels of some tasks that trials on one thread tell of, each once."""
    sides: dict[tuple[str, str, int], dict[str, Observation[Any]]] = defaultdict(dict)
    for side in observations(tasks, trials):
        template, _, place = side.label.partition(" ")
        if min(side.seconds) > SHORT_S:
            sides[side.workload, place, side.cold_bytes].setdefault(template, side)
    return [TaughtKernel(key[0], list(mine.values())) for key, mine in sides.items()]


def refined(target: Target, kernels: Sequence[TaughtKernel], measured: Speed) -> Speed:
    """The speed of a machine as kernels have it, near to what it is taken for.

    Args:
        target: the machine with the speed that is gone by.
        kernels: what was timed there.
        measured: the speed by probes, of which no figure moves by more than `BOUND`.

    Returns:
        The target's own speed where kernels of other workloads are not predicted better by what
        would be learnt, or by that a core multiplies slower than it did for the probes: trials were
        made beside other work then.

    """
    count = min(len(kernels), MOST)
    some = [kernels[i * len(kernels) // count] for i in range(count)]
    workloads = list(dict.fromkeys(kernel.workload for kernel in some))
    if len(workloads) < WORKLOADS:
        return target.speed
    before, after = Judgement.of(some, target), Judgement((), ())
    for fold in range(FOLDS):
        mine = set(workloads[fold::FOLDS])
        learnt = _fitted(target, [k for k in some if k.workload not in mine], measured)
        after += Judgement.of([k for k in some if k.workload in mine], _with(target, learnt))
    if not after.is_better_than(before):
        return target.speed
    speed = _fitted(target, some, measured)
    is_better = Judgement.of(some, _with(target, speed)).is_better_than(before)
    is_hindered = speed.ghz * speed.fma < HINDERED * measured.ghz * measured.fma
    return speed if is_better and not is_hindered else target.speed


def _with(target: Target, speed: Speed) -> Target:
    return replace(target, speed=speed)


def _fitted(target: Target, kernels: Sequence[TaughtKernel], measured: Speed) -> Speed:
    """The speed for which models are nearest to some kernels, each counting the same."""
    from scipy.optimize import least_squares

    first = np.log([getattr(target.speed, name) for name in NAMES])
    middle = np.log([getattr(measured, name) for name in NAMES])
    low, high = middle - np.log(BOUND), middle + np.log(BOUND)
    first = np.clip(first, low + 1e-3, high - 1e-3)

    def speed(logs: Floats) -> Speed:
        values = (float(f"{value:.{DIGITS + 3}g}") for value in np.exp(logs))
        return Speed(**dict(zip(NAMES, values, strict=True)))

    taken = [(kernel, kernel.logs) for kernel in kernels]

    def residuals(logs: Floats) -> Floats:
        its = _with(target, speed(logs))
        errors = [(k.expected(its) - logs) / (NOISE * np.sqrt(len(logs))) for k, logs in taken]
        return np.concatenate([*errors, (logs - first) / PRIOR])

    fit = least_squares(
        residuals, first, loss="soft_l1", diff_step=1e-3, max_nfev=EVALUATIONS, bounds=(low, high)
    )
    return Speed(**{n: float(f"{v:.{DIGITS}g}") for n, v in zip(NAMES, np.exp(fit.x), strict=True)})


def teach(tasks: Iterable[Task], trials: Iterable[Trial]) -> None:
    """Keep what trials say of this machine, if they say anything: a line on stderr tells it.

    Rows of a machine that was measured as another speed do not count; nothing is kept of a machine
    that was not measured. A warning tells where it cannot be kept.
    """
    target = host()
    its_own = calibration_of(target)
    if its_own is None:
        return
    mine = [trial for trial in trials if trial.speed == str(its_own.alone)]
    kernels = kernels_of(tasks, mine)
    speed = refined(target, kernels, its_own.alone)
    if speed == target.speed:
        return
    try:
        write(replace(its_own, refined=speed))
    except KernelError as e:
        warn(f"what trials say of this machine is lost: {e}")
        return
    host.cache_clear()
    print(
        f"{len(kernels)} kernels refine what was measured of this machine: "
        f"`bucketize calibrate --show`",
        file=sys.stderr,
    )
