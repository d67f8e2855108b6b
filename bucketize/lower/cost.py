"""The price of a function's kernels at the sizes that count: measured, or as the model has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bucketize.errors import TypeRelError
from bucketize.ir import Atom, Const, Function, all_bindings
from bucketize.kernel.cost import CostModel, model_of, seconds_over
from bucketize.kernel.gemm.cost import cold_bytes
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.select import Select
from bucketize.kernel.template import Template
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.typical import SHARES, Box, TypicalPoints, cuts, least_size, points, slices
from bucketize.kernel.workload import Workload
from bucketize.machine.speed import Floats
from bucketize.machine.target import Target
from bucketize.op import Movement
from bucketize.types import ANY, Dim, Sizes, evaluate, symbols

LESS = 0.9  # of the time: models of different templates are off by as much
WIDE = 8  # times the elements of a result, from the least to the most, that one kernel should do
STEP = math.sqrt(2)  # times as many are in the next slice of a range
SLICES = 24
AT_ONCE = 16  # boxes, whose slices are judged together: so columns stay in a cache
GAIN = 0.15  # of the time of a slice, or of several together, that a further kernel takes off

Weighted: TypeAlias = Sequence[tuple[Sizes, float]]
Seconds: TypeAlias = Callable[[Workload, Sizes], float]
"""What a workload takes at sizes, known or expected."""


@dataclass(frozen=True)
class Predicted:
    """What the models expect of workloads on their defaults."""

    target: Target
    cold_bytes: int
    threads: int
    _selects: dict[str, Select] = field(default_factory=dict)
    _models: dict[Hashable, CostModel | None] = field(default_factory=dict)

    @classmethod
    def of(cls, fn: Function, target: Target, threads: int) -> Predicted:
        """What is expected of a function's workloads, whose weights all pass through the caches."""
        read = read_bytes([fn])
        return cls(weighed(target, read), read, threads)

    def __call__(self, workload: Workload, sizes: Sizes) -> float:
        """Seconds; none where the sizes do not tell its shapes, or its template has no model."""
        model = self._model(workload, sizes) if is_known(workload, sizes) else None
        if model is None:
            return 0.0
        return model.seconds(sizes, self.target, self.cold_bytes, self.threads)

    def _model(self, workload: Workload, sizes: Sizes) -> CostModel | None:
        if workload.key not in self._selects:
            able = candidates(workload, self.target)
            self._selects[workload.key] = default_of(workload, able, self.target)
        default = self._selects[workload.key].at(evaluate(workload.size, sizes))
        key = workload.key, default.key
        if key not in self._models:
            is_modelled = TEMPLATES[default.template].cost is not None
            self._models[key] = model_of(workload, default) if is_modelled else None
        return self._models[key]


def weighed(target: Target, weight_bytes: int) -> Target:
    """The target, told of a program's weights if they are more than defaults take for granted."""
    more = weight_bytes > cold_bytes(target)
    return replace(target, weight_bytes=weight_bytes) if more else target


def read_bytes(functions: Iterable[Function]) -> int:
    """Bytes of the constants that functions read, those that several do counted once.

    A table of which a part is read, as of embeddings, is none of them.
    """
    bindings = (b for fn in functions for b in all_bindings(fn))
    return distinct_bytes(a for b in bindings for a in b.args[b.op.movement is Movement.PART :])


def distinct_bytes(atoms: Iterable[Atom]) -> int:
    """Bytes of those that are constants, each counted once."""
    return sum({id(a.value): a.value.nbytes for a in atoms if isinstance(a, Const)}.values())


def default_of(workload: Workload, able: Sequence[Template], target: Target) -> Select:
    """What runs where nothing is known, within the workload's own bounds."""
    (default,) = selects_of(workload, able, target, ((),))
    return default


def selects_of(
    workload: Workload, able: Sequence[Template], target: Target, boxes: tuple[Box, ...]
) -> list[Select]:
    """What runs in each box of symbols where nothing is known.

    It is what `defaults_of` says, or where a box is wide several implementations.
    """
    usual = defaults_of(workload, able, target, boxes)
    selects = [Select((one,)) for one in usual]
    wide: dict[str, list[tuple[int, tuple[Box, ...]]]] = {}
    for place, count in enumerate(_slices(workload, able, boxes)):
        if count > 1:
            with suppress(TypeRelError):  # some sizes have no value, as in `defaults_of`
                cut = slices(workload, boxes[place], count)
                wide.setdefault(usual[place].template, []).append((place, cut))
    for name, each in wide.items():
        for some in (each[k : k + AT_ONCE] for k in range(0, len(each), AT_ONCE)):
            ways = [(usual[place], cut) for place, cut in some]
            chosen = _selects(workload, _reaching(name, workload, able), target, ways)
            for (place, _), select in zip(some, chosen, strict=True):
                selects[place] = select
    return selects


def _slices(workload: Workload, able: Sequence[Template], boxes: tuple[Box, ...]) -> list[int]:
    """Into how many slices each box is cut; by less than two there is nothing to choose."""
    if able[0].cost is None or not is_shaped(workload):
        return [1] * len(boxes)
    extents = points(workload, boxes).extents(workload.size).reshape(len(boxes), len(SHARES))
    times = [most / least for least, *_, most in extents.tolist()]
    return [min(SLICES, round(math.log(t, STEP))) if t >= WIDE else 1 for t in times]


def _reaching(usual: str, workload: Workload, able: Sequence[Template]) -> list[Template]:
    """The templates that reach what the usual one does: tensors lie where all of them can."""
    reach = TEMPLATES[usual].pitched(workload)
    return [t for t in able if reach <= t.pitched(workload)]


def _selects(
    workload: Workload,
    able: Sequence[Template],
    target: Target,
    ways: Sequence[tuple[Implementation, tuple[Box, ...]]],
) -> list[Select]:
    """What runs in slices of several boxes, each with the implementation that is usual there.

    Where one of the slices' points has no elements that is all.
    """
    boxes = tuple(box for _, cut in ways for box in cut)
    try:
        best = defaults_of(workload, able, target, boxes)
        each = list({i.key: i for i in (*(usual for usual, _ in ways), *best)}.values())
        within = points(workload, boxes)
        kept = _with_elements(workload, within)
        logs = _mean_logs(workload, each, within, kept, target)
    except TypeRelError:
        if len(ways) == 1:
            return [Select((usual,)) for usual, _ in ways]
        return [select for way in ways for select in _selects(workload, able, target, [way])]
    logs[[i.template == able[0].name for i in each]] += math.log(LESS)
    rows, filled = {i.key: row for row, i in enumerate(each)}, _filled(kept, len(boxes))
    selects, end = [], 0
    for usual, cut in ways:
        here = slice(end, end := end + len(cut))
        own = {i.key: i for i in (usual, *best[here])} if all(filled[here] == len(SHARES)) else {}
        its = logs[[rows[key] for key in own], here]
        selects.append(_select(workload, list(own.values()), cut, its) if own else Select((usual,)))
    return selects


def _select(
    workload: Workload, each: Sequence[Implementation], boxes: tuple[Box, ...], logs: Floats
) -> Select:
    """The implementations of slices: another one than that of the slice before only by a gain."""
    way = _cheapest(logs)
    starts = [k for k in range(1, len(way)) if way[k] != way[k - 1]]
    least = tuple(least_size(workload, boxes[k]) for k in starts)
    return Select((each[way[0]], *(each[way[k]] for k in starts)), least)


def _cheapest(logs: Floats) -> list[int]:
    """For each column a row: the least sum, where each change of the row costs `GAIN`."""
    total, before = logs[:, 0], []
    for column in logs.T[1:]:
        changed = int(np.argmin(total))
        stays = total <= total[changed] + GAIN
        before.append(np.where(stays, np.arange(len(total)), changed))
        total = np.minimum(total, total[changed] + GAIN) + column
    way = [int(np.argmin(total))]
    for rows in reversed(before):
        way.append(int(rows[way[-1]]))
    return way[::-1]


def expected(
    workload: Workload,
    implementations: Sequence[Implementation],
    box: Box,
    target: Target,
    count: int,
) -> Floats:
    """Seconds of implementations in slices of a box: a row for each, in so many columns.

    They are 0 where sizes have no elements; `TypeRelError` where something has no value.
    """
    within = points(workload, cuts(workload, box, count))
    kept = _with_elements(workload, within)
    logs = _mean_logs(workload, implementations, within, kept, target)
    return np.where(_filled(kept, count) > 0, np.exp(logs), 0.0)


def defaults_of(
    workload: Workload, able: Sequence[Template], target: Target, boxes: tuple[Box, ...]
) -> list[Implementation]:
    """What runs in each box of symbols where nothing is known: the first template, on its default.

    Or another one, if it is expected to take less at the box's typical points.
    """
    first, *others = able
    within = points(workload, boxes)
    usual = _defaults(first, workload, within, target)
    others = [t for t in others if t.cost is not None]
    is_choice = others and first.cost is not None and is_shaped(workload)
    kept = _with_elements(workload, within) if is_choice else []
    if not kept:
        return usual
    try:
        each = [usual, *(_defaults(t, workload, within, target) for t in others)]
        distinct = {i.key: i for one in each for i in one}
        logs = _mean_logs(workload, list(distinct.values()), within, kept, target)
    except TypeRelError:  # shapes have a value there, and something that they lead to has none
        if len(boxes) == 1:
            return usual
        return [d for box in boxes for d in defaults_of(workload, able, target, (box,))]
    rows = {key: row for row, key in enumerate(distinct)}
    taken = logs[[[rows[i.key] for i in one] for one in each], np.arange(len(boxes))]
    taken[0] += math.log(LESS)
    return [each[i][box] for box, i in enumerate(np.argmin(taken, axis=0))]


def _defaults(
    template: Template, workload: Workload, points: TypicalPoints, target: Target
) -> list[Implementation]:
    schedules = template.defaults(workload, points, target)
    each = {id(s): Implementation(template.name, s) for s in schedules}  # most boxes share one
    return [each[id(s)] for s in schedules]


def _mean_logs(
    workload: Workload,
    implementations: Sequence[Implementation],
    points: TypicalPoints,
    kept: Sequence[int],
    target: Target,
) -> Floats:
    """The mean logarithm of seconds at the points kept: a row for each, a column for each box.

    It is 0 in a box of which no point is kept.
    """
    if not kept:
        return np.zeros((len(implementations), len(points.boxes)))
    logs = np.log(seconds_over(workload, implementations, points.at(kept), target))
    boxes, count = np.array(kept, int) // len(SHARES), len(points.boxes)
    total = np.array([np.bincount(boxes, one, count) for one in logs.T])
    return total / np.maximum(_filled(kept, count), 1)


def _filled(kept: Sequence[int], boxes: int) -> NDArray[np.int_]:
    """How many of the points kept each box has."""
    return np.bincount(np.array(kept, int) // len(SHARES), minlength=boxes)


def _with_elements(workload: Workload, points: TypicalPoints) -> list[int]:
    """The points where sizes tell shapes and none is empty.

    No model need be legal there: a table of positions ends where the bounds of a length do not.
    """
    able = np.ones(len(points), bool)
    for dim in _dims(workload):
        able &= (points.values_or(dim, lambda _: 0) > 0).astype(bool)
    places: list[int] = np.flatnonzero(able).tolist()
    return places


def is_known(workload: Workload, sizes: Sizes) -> bool:
    """Whether the sizes tell the shapes of a workload."""
    dims = _dims(workload)
    return ANY not in dims and all(s.name in sizes for d in dims for s in symbols(d))


def is_legal(workload: Workload, sizes: Sizes) -> bool:
    """Whether all extents of a workload have a value, none below 0, at sizes that tell them."""
    try:
        return all(evaluate(dim, sizes) >= 0 for dim in _dims(workload))
    except TypeRelError:
        return False


def is_shaped(workload: Workload) -> bool:
    """Whether its shapes are known before a run."""
    return ANY not in _dims(workload)


def _dims(workload: Workload) -> list[Dim]:
    """The extents of what a workload reads and of what it makes."""
    return [d for a in (*workload.body.params, *workload.body.results) for d in a.type.shape]


class Prices:
    """What kernels take by what the whole of a usual function takes, each size by its weight."""

    def __init__(self, usual: Iterable[Workload], sizes: Weighted, seconds: Seconds) -> None:
        """`usual` are the kernels whose price together is 1."""
        self._seconds = seconds
        self._known: dict[str, list[float]] = {}
        self._sizes = [size for size, _ in sizes]
        self._shares = [1.0] * len(sizes)
        each = zip(*map(self._each, usual), strict=True)
        whole = [sum(column) for column in each] or [1.0] * len(sizes)
        total = sum(weight for _, weight in sizes)
        self._shares = [w / total / (s or 1.0) for (_, w), s in zip(sizes, whole, strict=True)]

    def _each(self, workload: Workload) -> list[float]:
        """Seconds at each of the sizes; what has no kernel counts nothing."""
        if workload.key not in self._known:
            able = bool(candidates(workload))
            self._known[workload.key] = [
                self._seconds(workload, size) if able else 0.0 for size in self._sizes
            ]
        return self._known[workload.key]

    def of(self, workload: Workload) -> float:
        """What a kernel takes."""
        return sum(a * b for a, b in zip(self._shares, self._each(workload), strict=True))
