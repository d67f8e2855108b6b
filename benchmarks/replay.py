"""Model, defaults and search against recorded grids, without a clock: `tuning_logs/*.csv`.

What is judged was not learnt from: the model is fitted to one half and judged on the other, the
forest of a search has not seen the product that is searched.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, pairwise
from statistics import geometric_mean
from typing import TypedDict

import numpy as np

from benchmarks.algorithm import chosen, chosen_by_wide
from benchmarks.calibrate import (
    counted,
    detoured,
    expected,
    fitted,
    fitted_detour,
    fitted_steps,
    fitted_sweep,
    measured,
    swept,
)
from benchmarks.excess import Excess
from benchmarks.figure import EXACT, Figure
from benchmarks.grids import GRIDS, LEVELS, LOGS
from bucketize.kernel.depthwise.cost import DepthwiseCost
from bucketize.kernel.gemm.cost import best, cold_bytes
from bucketize.kernel.loops.cost import Steps, seconds_each, taken
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.winograd.cost import WinogradCost
from bucketize.log.log import rows
from bucketize.log.trial import schedule_json
from bucketize.machine.host import host
from bucketize.machine.speed import Speed
from bucketize.machine.target import Target
from bucketize.tune.observation import C, Observation, observations
from bucketize.tune.residual import Forest
from bucketize.tune.samples import Record, reference
from bucketize.tune.search import Search, Space
from bucketize.tune.surrogate import Neighbour
from bucketize.tune.task import tasks_of

HERE = host().processor  # a model of cost asks nothing of it
ZEN4 = Speed(
    ghz=3.69,
    fma=0.993,
    loads=0.934,
    latency=4.0,
    exp=12.8,
    root=10.0,
    l2=31.5,
    l3=26.4,
    l3_share=0.152,
    memory=13.0,
    prefetch=0.72,
)
ZEN5 = Speed(
    ghz=4.07,
    fma=2.0,
    loads=2.0,
    latency=3.64,
    exp=6.5,
    root=9.0,
    l2=55.0,
    l3=30.0,
    l3_share=0.152,
    memory=11.0,
    prefetch=1.1,
)
"""Not measured by probes, which are younger than its grids: clock and latency are as the grids have
them, the rest as others have measured."""
TARGETS = {
    "emeraldrapids": Target("emeraldrapids", 16, 32, 48 << 10, 2 << 20, 300 << 20, HERE),
    "znver4": Target("znver4", 16, 32, 32 << 10, 1 << 20, 32 << 20, HERE, speed=ZEN4, family="AMD"),
    "znver5": Target("znver5", 16, 32, 48 << 10, 1 << 20, 32 << 20, HERE, speed=ZEN5, family="AMD"),
}
"""The processors that recorded."""
FOLDS = 6
APART = 1.1  # times as long; nearer ones may be noise
TRIALS = (1, 2, 5, 10, 20, 50)
BUCKETS = ((1, 1), (2, 3), (4, 7), (8, 15), (16, 31), (32, 63), (64, 127), (128, 256))
WIDE = (1, 16, 256)
"""Rows at which a schedule for all of 1..256 is judged."""


def main() -> None:
    """Print what model, defaults and search come to."""
    for processor, target in TARGETS.items():
        print(f"{processor}, {target.lanes} lanes")
        judge([r for r in judged() if r.host == processor], target)


def judged() -> list[Record]:
    """The products recorded, without those that their template is no default for."""
    return [r for r in reference() if not (r.product.image and max(r.product.batch) > 1)]


def judge(records: Sequence[Record], target: Target) -> None:
    """Print what is said of one processor."""
    print(f"{len(records)} products, {sum(len(r.schedules) for r in records)} schedules")
    print(f"model, median error on the other half: {100 * model_error(records, target):.1f} %")
    processor = records[0].host
    error = sweep_error(observed("convolution", processor, DepthwiseCost), target)
    print(f"that of depthwise convolutions, each by the others: {100 * error:.1f} %")
    error = detour_error(observed("filters", processor, WinogradCost), target)
    print(f"that of minimal filtering, on the other half: {100 * error:.1f} %")
    error = steps_error(observed("rest", processor, Steps), target)
    print(f"that of loop source, on the other half: {100 * error:.1f} %")
    names = ", ".join(
        f"{grid} {100 * share:.1f} %" for grid, share in in_order(processor, target).items()
    )
    print(f"pairs of implementations a tenth and more apart, in order: {names}")
    print(f"default at its own size, above the best: {default_excess(records, target)}")
    print(f"default of all sizes, above the best: {default_excess(records, target, wide)}")
    print(f"narrow default by the wide one's: {narrow_by_wide(records, target)}")
    print(f"algorithm of 3 x 3 convolutions by default, above the best: {chosen(target)}")
    print(f"the narrow default of them by the wide one's: {chosen_by_wide(target)}")
    print("search: above the best after so many trials, from the default of all sizes")
    print(f"{'':12}" + "".join(f"{n:>8}" for n in TRIALS))
    for name, options in SEARCHES.items():
        means = searched(records, target, **options)
        print(f"{name:12}" + "".join(f"{100 * (m - 1):>7.1f}%" for m in means))
    print(
        "transfer: trials until within 1 %, within 3 %, until none is worth it; above the best then"
    )
    for title, believes, cuts in TRANSFERS:
        for heard, counts in transferred(records, target, believes, cuts).items():
            shown = "".join(f"{n:>8.1f}" for n in counts[:3])
            print(f"{title:44}{heard:18}{shown}{100 * counts[3]:>7.1f}%")


# --- the model, and defaults ---------------------------------------------------------------------


def model_error(records: Sequence[Record], target: Target) -> float:
    """The median over all schedules of the error by a model fitted to the other half."""
    errors: list[float] = []
    for half in (0, 1):
        constants = fitted(records[half::2], target)
        for record in records[1 - half :: 2]:
            errors += np.abs(expected(record, constants, target) - measured(record)).tolist()
    return float(np.median(np.exp(errors)) - 1)


@cache
def observed(grid: str, processor: str, kind: type[C]) -> list[Observation[C]]:
    """The kernels of a recorded grid whose cost is of this kind."""
    module, sizes = {**GRIDS, **LEVELS}[grid]()
    trials = rows(LOGS / f"{processor}-{grid}.csv")
    return observations(tasks_of(module, sizes, fixed=True), trials, kind)


def sweep_error(observed: Sequence[Observation[DepthwiseCost]], target: Target) -> float:
    """The median error of each depthwise convolution by a model fitted to the others."""
    errors: list[float] = []
    for i, one in enumerate(observed):
        constants = fitted_sweep([*observed[:i], *observed[i + 1 :]], target)
        errors += np.abs(swept(one, target, constants) - one.logs).tolist()
    return float(np.median(np.exp(errors)) - 1)


def detour_error(observed: Sequence[Observation[WinogradCost]], target: Target) -> float:
    """The median error of minimal filtering by a model fitted to the other half."""
    errors: list[float] = []
    for half in (0, 1):
        constants = fitted_detour({target: observed[half::2]})
        for one in observed[1 - half :: 2]:
            errors += np.abs(detoured(one, target, constants) - one.logs).tolist()
    return float(np.median(np.exp(errors)) - 1)


def steps_error(observed: Sequence[Observation[Steps]], target: Target) -> float:
    """The median error of loop source by a model fitted to the other half."""
    errors: list[float] = []
    for half in (0, 1):
        each = fitted_steps(observed[half::2], target)
        counts, logs = counted(observed[1 - half :: 2], target)
        errors += np.abs(np.log(taken(counts, seconds_each(each, target.speed))) - logs).tolist()
    return float(np.median(np.exp(errors)) - 1)


def in_order(processor: str, target: Target) -> dict[str, float]:
    """By grid the share of pairs of a kernel's implementations whose order is as recorded.

    Of those that differ by more than `APART`, templates among themselves included.
    """
    shares = {}
    for grid in (*GRIDS, "filters"):
        kernels: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for one in observed(grid, processor, object):
            (row,) = one.cost.seconds(one.schedules, one.points, target, one.cold_bytes)
            place = one.workload, one.label.rpartition(" ")[2]
            kernels[place] += zip(np.log(row).tolist(), one.logs.tolist(), strict=True)
        signs = [
            (a[0] - b[0]) * (a[1] - b[1]) > 0
            for each in kernels.values()
            for a, b in combinations(each, 2)
            if abs(a[1] - b[1]) > math.log(APART)
        ]
        shares[grid] = sum(signs) / len(signs)
    return shares


def narrow(record: Record, target: Target) -> str:
    """The default for just the size of a record."""
    return schedule_json(best(replace(record.product, cold_bytes=cold_bytes(target)), target))


def wide(record: Record, target: Target) -> str:
    """The default for all sizes, where the rows are a batch; an image has one."""
    if record.product.image or not record.product.packed:
        return narrow(record, target)
    product = replace(record.product, rows=WIDE, batch=(1,), cold_bytes=cold_bytes(target))
    return schedule_json(best(product, target))


def bucketed(record: Record, target: Target) -> str:
    """The default of the bucket that holds the size of a record."""
    (rows,) = record.product.rows
    low, high = next((b for b in BUCKETS if b[0] <= rows <= b[1]), (rows, rows))
    judged = (low, round(math.sqrt(low * high)), high)
    product = replace(record.product, rows=judged, batch=(1,), cold_bytes=cold_bytes(target))
    return schedule_json(best(product, target))


def default_excess(
    records: Sequence[Record], target: Target, default: Callable[[Record, Target], str] = narrow
) -> Excess:
    """How much slower defaults are than the best recorded."""
    found = []
    for record in records:
        logs = _logs(record)
        found.append(math.exp(logs[default(record, target)] - min(logs.values())))
    return Excess(tuple(found))


def narrow_by_wide(records: Sequence[Record], target: Target) -> Excess:
    """How much slower the default of a bucket is than that of all sizes, at the same size."""
    found = []
    for record in records:
        if record.product.packed and not record.product.image:
            logs = _logs(record)
            found.append(math.exp(logs[bucketed(record, target)] - logs[wide(record, target)]))
    return Excess(tuple(found))


def _logs(record: Record) -> dict[str, float]:
    return dict(zip(map(schedule_json, record.schedules), record.logs, strict=True))


# --- the search ----------------------------------------------------------------------------------


class Options(TypedDict):
    """How a search goes."""

    strategy: str
    believes: bool
    seeds: int


SEARCHES: dict[str, Options] = {
    "model": {"strategy": "skopt", "believes": True, "seeds": 1},
    "skopt": {"strategy": "skopt", "believes": False, "seeds": 2},
    "random": {"strategy": "random", "believes": False, "seeds": 8},
}


def searched(
    records: Sequence[Record], target: Target, *, strategy: str, believes: bool, seeds: int
) -> list[float]:
    """The geometric mean of what is found after `TRIALS`, by the best recorded."""
    courses = []
    for fold in range(FOLDS):
        mine = records[fold::FOLDS]
        others = [r for i, r in enumerate(records) if i % FOLDS != fold]
        forest = Forest(others, target) if believes else None
        courses += [
            _course(record, target, forest, strategy, seed)
            for record in mine
            for seed in range(seeds)
        ]
    return [math.exp(np.mean([course[n - 1] for course in courses])) for n in TRIALS]


def _course(
    record: Record, target: Target, forest: Forest | None, strategy: str, seed: int
) -> list[float]:
    """After each trial the logarithm of the best so far, by that of the best recorded."""
    points = [Implementation("product", schedule) for schedule in record.schedules]
    costs = dict(zip((p.key for p in points), record.logs, strict=True))
    start = wide(record, target)
    default = next(p for p in points if schedule_json(p.schedule) == start)
    believed = None
    if forest is not None:
        (logs,) = forest.expected([record.product], record.schedules)
        believed = (logs - logs[points.index(default)]).tolist()
    search = Search(Space(points, default, believed), strategy, seed)
    search.tell(default, 1.0)  # the first trial of all strategies
    course = [costs[default.key] - min(record.logs)]
    while len(course) < TRIALS[-1] and (asked := search.ask(1)):
        cost = costs[asked[0].implementation.key]
        search.tell(asked[0].implementation, math.exp(cost - costs[default.key]))
        course.append(min([cost - min(record.logs), *course[-1:]]))
    return course + course[-1:] * (TRIALS[-1] - len(course))


# --- transfer ------------------------------------------------------------------------------------

UNTIL = 0.01
NEAR = (0.01, 0.03)
ONE = tuple((rows,) for rows in (1, 2, 3, 5, 8, 13, 17, 32, 64, 100, 256))
THREE = ((1, 2, 3), (5, 8, 13), (17, 32, 64), (64, 100, 256))
"""The rows at which buckets are judged, one beside the other."""
Cuts = tuple[tuple[int, ...], ...]
TRANSFERS: tuple[tuple[str, bool, Cuts], ...] = (
    ("logs of other products, judged at one size", True, ONE),
    ("logs of other products, at three sizes", True, THREE),
    ("no logs, judged at one size", False, ONE),
    ("no logs, at three sizes", False, THREE),
)


@dataclass(frozen=True)
class Bucket:
    """A product judged at some numbers of rows: log latencies by the default's, a point each."""

    space: Space
    believed: tuple[list[float], ...]
    """At each number of rows."""
    taken: tuple[list[float], ...]
    rows: tuple[int, ...]

    @property
    def logs(self) -> list[float]:
        """The mean over all rows."""
        return [sum(logs) / len(logs) for logs in zip(*self.taken, strict=True)]


@dataclass(frozen=True)
class Course:
    """A search: the default, what was tried, in order, and how much until none was worth a trial.

    The default is timed beside the others, and is no trial.
    """

    bucket: Bucket
    tried: list[int]
    enough: int

    def until(self, near: float) -> int:
        """Trials until something is so near to the best."""
        logs = self.bucket.logs
        good = (k for k, i in enumerate(self.tried) if logs[i] <= min(logs) + math.log1p(near))
        return next(good)

    @property
    def excess(self) -> float:
        """By how much the best is slower than the best of all when it is enough."""
        logs = self.bucket.logs
        return math.expm1(min(logs[i] for i in self.known) - min(logs))

    @property
    def known(self) -> list[int]:
        """What was timed until it was enough."""
        return self.tried[: 1 + self.enough]

    def told(self, other: Bucket) -> list[Neighbour]:
        """What it is to the search of another bucket."""
        here = math.log(geometric_mean(other.rows))
        index = other.space.index
        points = [index[self.bucket.space.points[i].key] for i in self.known]
        told = []
        sides = zip(self.bucket.rows, self.bucket.taken, self.bucket.believed, strict=True)
        for count, took, believed in sides:
            beyond = {at: took[i] - believed[i] for at, i in zip(points, self.known, strict=True)}
            told.append(Neighbour(math.log(count) - here, beyond))
        return [neighbour for neighbour in told if neighbour.beyond]


def transferred(
    records: Sequence[Record], target: Target, believes: bool, cuts: Cuts
) -> dict[str, tuple[float, ...]]:
    """Means over all buckets, alone and after each bucket beside them."""
    found: dict[str, list[tuple[float, ...]]] = {"alone": [], "after a neighbour": []}
    dense = [r for r in records if r.product.packed and not r.product.image]
    for kin, cold in dict.fromkeys((r.product.kin, r.product.cold_bytes) for r in dense):
        others = [r for r in records if r.product.kin != kin]
        forest = Forest(others, target) if believes else None
        mine = (r for r in dense if (r.product.kin, r.product.cold_bytes) == (kin, cold))
        by_rows = {r.product.rows[0]: r for r in mine}
        if not all(by_rows.keys() >= set(cut) for cut in cuts):
            continue
        buckets = [_bucket([by_rows[m] for m in cut], target, forest) for cut in cuts]
        alone = [_searched(bucket, []) for bucket in buckets]
        found["alone"] += [_counts(course) for course in alone]
        for first, second in [*pairwise(alone), *pairwise(alone[::-1])]:
            bucket = second.bucket
            found["after a neighbour"].append(_counts(_searched(bucket, first.told(bucket))))
    return {name: tuple(np.mean(counts, axis=0).tolist()) for name, counts in found.items()}


def _counts(course: Course) -> tuple[float, ...]:
    return *(course.until(near) for near in NEAR), course.enough, course.excess


def _bucket(records: Sequence[Record], target: Target, forest: Forest | None) -> Bucket:
    points = [Implementation("matmul", schedule) for schedule in records[0].schedules]
    start = next(
        i for i, p in enumerate(points) if schedule_json(p.schedule) == wide(records[0], target)
    )
    taken, believed = [], []
    for record in records:
        logs = _logs(record)
        at = [logs[schedule_json(p.schedule)] for p in points]
        taken.append([log - at[start] for log in at])
        known = np.zeros(len(points))
        if forest is not None:
            (known,) = forest.expected([record.product], [p.schedule for p in points])
        believed.append((known - known[start]).tolist())
    mean = np.mean(believed, axis=0).tolist() if forest is not None else None
    rows = tuple(record.product.rows[0] for record in records)
    return Bucket(Space(points, points[start], mean), tuple(believed), tuple(taken), rows)


def _searched(bucket: Bucket, neighbours: Sequence[Neighbour]) -> Course:
    """Search until none is worth a trial, and on until the best is near."""
    search, logs = Search(bucket.space, neighbours=neighbours), bucket.logs
    search.tell(bucket.space.default, 1.0)
    near, enough = min(logs) + math.log1p(NEAR[0]), None
    while True:
        if enough is None and search.gain() < UNTIL:
            enough = len(search.tried) - 1
        if enough is not None and min(logs[i] for i in search.tried) <= near:
            break
        (proposal,) = search.ask()
        i = bucket.space.index[proposal.implementation.key]
        search.tell(proposal.implementation, math.exp(logs[i]))
    return Course(bucket, list(search.tried), enough)


def quick() -> list[Figure]:
    """Defaults of each recorded processor, above the best."""
    found = []
    for processor, target in TARGETS.items():
        records = [r for r in judged() if r.host == processor]
        told = {"defaults": default_excess(records, target), "algorithms": chosen(target)}
        for what, excess in told.items():
            name = f"{processor}, {what} above the best"
            found.append(Figure.of(name, EXACT, [round(excess.mean, 4)]))
    return found


if __name__ == "__main__":
    main()
