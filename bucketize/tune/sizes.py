"""Where schedules are judged: the sizes of each bucket at which kernels are timed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from bucketize.errors import ShapeError, TuneError, TypeRelError, unknown_name
from bucketize.ir import Clone, specialise
from bucketize.lower.cost import Weighted
from bucketize.program.program import Routine
from bucketize.traffic.value import Traffic
from bucketize.types import Interval, Sizes, Symbol

SizesMet: TypeAlias = Sequence[Sizes | tuple[Sizes, float]]  # of weight 1 where none is given

CHOICES = ("middle", "bounds")
WHOLE = Clone({})  # what a function is that is no clone: one for all sizes
QUANTILES = 3  # of the requests of a clone
OPEN_TOP = 32  # an unbounded bucket is judged as if it ended at this, or at twice its begin


def judged_at(
    leaves: Sequence[tuple[Routine, Clone]], sizes: str | SizesMet
) -> Mapping[str, Weighted]:
    """By the name of each routine the sizes where it is judged, once each.

    Raises:
        TuneError: no bucket holds any of the sizes, they lack a symbol, or are of a clone that is
            not legal.

    """
    judged: Mapping[str, Weighted]
    if isinstance(sizes, str):
        buckets = [clone.bucket for _, clone in leaves if clone is not WHOLE]
        judged = {r.name: _representatives(r, clone, sizes, buckets) for r, clone in leaves}
    else:
        judged = _shared_out(leaves, sizes)
    return {routine.name: _once_each(routine, judged[routine.name]) for routine, _ in leaves}


def of_traffic(
    leaves: Sequence[tuple[Routine, Clone]],
    traffic: Traffic,
    seconds: Callable[[str, Sizes], float],
) -> Mapping[str, Weighted]:
    """By the name of each routine sizes that stand for its requests, weighed by their seconds.

    Args:
        leaves: routines that do the work.
        traffic: of all symbols.
        seconds: what a routine takes at sizes: requests of long calls count more.

    Raises:
        TuneError: no bucket holds any of the requests, or they lack a symbol, or are of a clone
            that is not legal.

    """
    traffic = traffic.without_times()
    sizes = (dict(zip(traffic.symbols, row, strict=True)) for row in traffic.sizes.tolist())
    met = zip(sizes, map(float, traffic.requests), strict=True)
    served = _shared_out(leaves, list(met))
    judged = {
        routine.name: _once_each(routine, _quantiles(served[routine.name])) for routine, _ in leaves
    }
    return {name: [(s, n * seconds(name, s)) for s, n in each] for name, each in judged.items()}


def _quantiles(requests: Weighted) -> Weighted:
    """A few sizes in place of many: each stands for as many requests."""
    if len(requests) <= QUANTILES:
        return requests
    ordered = sorted(requests, key=lambda request: math.prod(request[0].values()))
    reached = np.cumsum([weight for _, weight in ordered])
    shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
    places = np.searchsorted(reached, shares * reached[-1])
    return [(ordered[k][0], float(reached[-1]) / QUANTILES) for k in places]


def _representatives(
    routine: Routine, clone: Clone, choice: str, buckets: Sequence[Mapping[str, Interval]]
) -> Weighted:
    """The sizes of a clone; those of a fallback are in none of the buckets, and may be none."""
    if choice not in CHOICES:
        raise unknown_name("choice of sizes", choice, CHOICES)
    symbols, others = _symbols(routine), buckets if clone is WHOLE else ()
    low = {s.name: _low(s) for s in symbols}
    top = {s.name: _top(s, (b[s.name][1] for b in others if s.name in b)) for s in symbols}
    middle = {s.name: s.rounded(math.sqrt(_low(s) * _top(s))) for s in symbols}
    middle |= clone.opt or {}
    asked = (low, middle, top) if choice == "bounds" else (middle, top)
    legal = (
        (sizes, 1.0)
        for sizes in asked
        if not any(_is_in(b, sizes) for b in others) and not _fault(routine, sizes)
    )
    return list(itertools.islice(legal, None if choice == "bounds" else 1))


def _is_in(bucket: Mapping[str, Interval], sizes: Sizes) -> bool:
    """Whether a bucket holds sizes; one of other symbols does not."""
    return all(
        n in sizes and lo <= sizes[n] and (hi is None or sizes[n] < hi)
        for n, (lo, hi) in bucket.items()
    )


def _once_each(routine: Routine, judged: Weighted) -> Weighted:
    """Sizes that are the same to a routine as one, of their weights together."""
    names = [s.name for s in _symbols(routine)]
    points: dict[tuple[int, ...], tuple[Sizes, float]] = {}
    for sizes, weight in judged:
        key = tuple(sizes[name] for name in names)
        first, so_far = points.get(key, (sizes, 0.0))
        points[key] = first, so_far + weight
    return list(points.values())


def _fault(routine: Routine, sizes: Sizes) -> str:
    """Why a workload has no result at these sizes, as far as they tell its shapes; else empty."""
    bodies = {call.workload.hash: call.workload.body for call in routine.calls()}
    try:
        for body in bodies.values():
            specialise(body, sizes)
    except (TypeRelError, ShapeError) as e:
        return e.message
    return routine.refusal


def _symbols(routine: Routine) -> list[Symbol]:
    """Symbols of its inputs, with the bounds of its bucket."""
    return list({s.name: s for p in routine.params for s in p.type.symbols()}.values())


def _low(symbol: Symbol) -> int:
    return max(symbol.lo, symbol.step)  # nothing is to be timed at 0


def _top(symbol: Symbol, ends: Iterable[int | None] = ()) -> int:
    """Its bound; where it has none, a size beyond the ends of buckets."""
    if symbol.hi is not None:
        return symbol.hi
    beyond = max((end or 0 for end in ends), default=0)
    return symbol.least(max(2 * symbol.lo, 2 * beyond, OPEN_TOP))


def _shared_out(leaves: Sequence[tuple[Routine, Clone]], met: SizesMet) -> Mapping[str, Weighted]:
    """Each of the sizes given to the first clone that serves it; the fallback takes the rest."""
    given: dict[str, list[tuple[Sizes, float]]] = {routine.name: [] for routine, _ in leaves}
    in_order = sorted(leaves, key=lambda leaf: leaf[1] is WHOLE)
    for entry in met:
        sizes, weight = entry if isinstance(entry, tuple) else (entry, 1.0)
        if not 0 < weight < math.inf:
            raise TuneError(f"the weight of {sizes} is {weight}, expected a number above 0")
        server, clone = next((leaf for leaf in in_order if _serves(*leaf, sizes)), (None, WHOLE))
        if server is not None:
            is_rest = clone is WHOLE and len(leaves) > 1  # where sizes of no clone come
            if fault := _fault(server, sizes) if is_rest else server.refusal:
                raise TuneError(f"the model is not legal at {dict(sizes)}: {fault}")
            given[server.name].append((sizes, weight))
    if not any(given.values()):
        raise TuneError(f"no bucket of {', '.join(given)} holds any of the sizes {list(met)}")
    return given


def _serves(routine: Routine, clone: Clone, sizes: Sizes) -> bool:
    own = _symbols(routine)
    ranges = {s.name: (s.lo, s.hi) for s in own}
    for name, (lo, hi) in clone.bucket.items():
        ranges[name] = lo, None if hi is None else hi - 1
    lacking = sorted(ranges.keys() - sizes.keys())
    if lacking:
        raise TuneError(f"the sizes {dict(sizes)} lack {', '.join(lacking)} of {routine.name}")
    whole = clone.origin.symbols().values() if clone.origin else own
    return all(sizes[s.name] % s.step == 0 for s in whole if s.name in ranges) and all(
        lo <= sizes[n] and (hi is None or sizes[n] <= hi) for n, (lo, hi) in ranges.items()
    )
