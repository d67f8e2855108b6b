"""What clones are expected to take over sizes: the kernels that each would run, by their models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bucketize.ir import Module
from bucketize.kernel.cost import seconds_over
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.select import Select
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.typical import Box
from bucketize.kernel.workload import Workload
from bucketize.lower.cost import is_known, selects_of
from bucketize.machine.speed import Floats
from bucketize.machine.target import Target
from bucketize.partition.evidence import Evidence
from bucketize.program.configuration import defaults
from bucketize.program.decide import decide
from bucketize.program.instruction import RunSegment
from bucketize.program.program import Routine
from bucketize.types import Assumption, Points, Sizes, evaluate


@dataclass(frozen=True, eq=False)
class Expectation:
    """What clones of boxes take at points, a row for each box, and what their kernels are."""

    seconds: Floats
    """Seconds of one call at each point by the clone of each box."""
    least: Floats
    """At each point, by the best of all the kernels that any box would choose."""
    kernels: Sequence[frozenset[int]]
    """The kernels of each box, by their place in `every`."""
    every: Sequence[tuple[Workload, Implementation]]


def expectation(
    calls: Mapping[Workload, int],
    boxes: Sequence[Box],
    points: Sequence[Sizes],
    weights: Floats,
    *,
    target: Target,
    threads: int,
    evidence: Evidence | None = None,
) -> Expectation:
    """What the clones of boxes are expected to take, at all points.

    They run their defaults; where trials of a log tell of a workload, in their place the
    implementation that is best for the points in the box, as tuning would find it. The graph is
    that of the original, also where a box has a single size. What has no model, or what a run alone
    tells the sizes of, counts nothing.

    Args:
        calls: of each workload, as `workloads` has them.
        boxes: of all symbols that are to be cut.
        points: sizes of all symbols of the module.
        weights: of a second at each point.
        target: where the clones run.
        threads: that share each kernel.
        evidence: what a log tells of kernels.

    """
    at = Points(points)
    seconds, least = np.zeros((len(boxes), len(points))), np.zeros(len(points))
    kernels: list[set[int]] = [set() for _ in boxes]
    places: dict[object, int] = {}
    every: list[tuple[Workload, Implementation]] = []
    inside = None if evidence is None else held(boxes, points)
    for workload, times in calls.items():
        selects = selects_of(workload, candidates(workload, target), target, tuple(boxes))
        each = list({i.key: i for s in selects for i in s.implementations}.values())
        if any(TEMPLATES[i.template].cost is None for i in each):
            continue
        sizes = at.values(workload.size).astype(float)
        tried = [] if evidence is None else evidence.implementations(workload)
        each = list({i.key: i for i in (*each, *tried)}.values())
        taken = times * seconds_over(workload, each, at, target, threads)
        if evidence is not None and inside is not None and tried:
            taken = evidence.corrected(workload, each, sizes, taken)
            selects = [
                _tuned(select, each, taken * (weights * mine)[:, None], sizes)
                for select, mine in zip(selects, inside, strict=True)
            ]
        least += taken.min(axis=1)
        distinct = {str(s): s for s in selects}
        columns = {text: _by(s, each, taken, sizes) for text, s in distinct.items()}
        seconds += np.array([columns[str(s)] for s in selects])
        for mine, select in zip(kernels, selects, strict=True):
            for i in select.implementations:
                place = places.setdefault((workload.key, i.key), len(every))
                if place == len(every):
                    every.append((workload, i))
                mine.add(place)
    return Expectation(seconds, least, [frozenset(k) for k in kernels], every)


def packed_bytes(
    calls: Mapping[Workload, int], kernels: Iterable[tuple[Workload, Implementation]]
) -> int:
    """What the weights of kernels take, each in every layout that one of them reads."""
    sizes: dict[tuple[str, int, str], int] = {}
    for workload, one in kernels:
        template = TEMPLATES[one.template]
        for place, param in enumerate(workload.body.params):
            key = workload.key, place, template.pack_key(workload, one.schedule, place)
            if workload.constant[place] and key not in sizes:
                value = np.zeros([evaluate(d, {}) for d in param.type.shape], param.type.dtype)
                packed = template.pack(workload, one.schedule, place, value)
                whole = value.nbytes if packed is None else packed.nbytes
                sizes[key] = calls[workload] * whole
    return sum(sizes.values())


def held(boxes: Sequence[Box], points: Sequence[Sizes]) -> NDArray[np.bool_]:
    """Whether each box holds each point."""
    inside = np.ones((len(boxes), len(points)), bool)
    for k, symbol in enumerate(boxes[0]):
        sizes = np.array([point[symbol.name] for point in points], float)
        lows, highs = (
            np.array([ends[k] for ends in each], float)[:, None]
            for each in (
                [[s.lo for s in box] for box in boxes],
                [[math.inf if s.hi is None else s.hi for s in box] for box in boxes],
            )
        )
        inside &= (lows <= sizes) & (sizes <= highs)
    return inside


def _tuned(
    select: Select, each: Sequence[Implementation], weighed: Floats, sizes: Floats
) -> Select:
    """The select with the best implementation for what each of its own serves, if anything."""
    for part, mine in enumerate(_parts(select, sizes).T):
        total = weighed[mine].sum(axis=0)
        if total.any():
            select = select.replaced(part, each[int(total.argmin())])
    return select


def _parts(select: Select, sizes: Floats) -> NDArray[np.bool_]:
    """Whether each of a select's implementations serves each size."""
    chosen = np.searchsorted(np.array(select.thresholds, float), sizes, side="right")
    parts: NDArray[np.bool_] = chosen[:, None] == np.arange(len(select.implementations))
    return parts


def routine_of(module: Module, function: str, target: Target, threads: int) -> Routine:
    """A function as it is decided where nothing is known of it."""
    program = decide(module, defaults, target=target, threads=threads, executor="auto")
    return program.decide(function)


def workloads(routine: Routine, target: Target) -> dict[Workload, int]:
    """The workloads of a function that have kernels, and how often each is called.

    Those whose shapes only a run can tell are left out.
    """
    calls = [call.workload for segment in routine.segments() for call in segment.every]
    symbols = dict.fromkeys(routine.fn.symbols(), 1)
    times: dict[Workload, int] = {}
    for workload in calls:
        if is_known(workload, symbols) and candidates(workload, target):
            times[workload] = times.get(workload, 0) + 1
    return times


def relations_of(routine: Routine) -> list[Assumption]:
    """What has to hold of the sizes of each call of a function; of branches nothing."""
    own = routine.fn.symbols().keys()
    steps = [i.segment for i in routine.code.instructions if isinstance(i, RunSegment)]
    return [r for segment in steps if own >= {*segment.symbols} for r in segment.relations]


def _by(select: Select, each: Sequence[Implementation], taken: Floats, sizes: Floats) -> Floats:
    """What a select takes at each point, where the columns of `taken` are of implementations."""
    keys = [i.key for i in each]
    places = np.array([keys.index(i.key) for i in select.implementations])
    chosen = np.searchsorted(np.array(select.thresholds, float), sizes, side="right")
    by: Floats = taken[np.arange(len(taken)), places[chosen]]
    return by
