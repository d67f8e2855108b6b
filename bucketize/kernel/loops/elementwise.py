"""Elementwise groups: one loop nest over the result, the whole group computed at each element.

Axes on which every operand either runs along or stands still are collapsed into one. Whether an
operand runs along is read off the types; where they leave it open, as `?` does, its stride is a
dim. The innermost loop then reads elements in order, or one element throughout.

The last axis has a loop of its own all the same, so that operands may lie in rows that are apart.
Where none does, a launch says that there is one row of all the elements.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from bucketize.ir import Atom, Const
from bucketize.kernel.emit.expression import DTYPES, loop_text, operations, stored_text
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import (
    GRAIN,
    Source,
    joined,
    literal,
    loop_template,
    spread,
    strides_of,
)
from bucketize.kernel.template import Launch, Rows, Shapes, by_lines
from bucketize.kernel.workload import Workload
from bucketize.types import AnyDim, Dim, Shape, bounds, product
from bucketize.types.number import HALVES

RUNS, STANDS, OPEN = "runs", "stands", "open"
Axis = tuple[str, ...]  # what each operand does along an axis of the result
Group = tuple[list[int], Axis]  # axes that are one, and what each operand does along it


def _accepts(workload: Workload) -> bool:
    """Groups of elementwise ops; one that a text brings may hold what its result does not need."""
    if any(b.op.scalar is None for b in workload.body.body):
        return False
    atoms = [*workload.body.params, *(a for b in workload.body.body for a in (*b.args, *b.outs))]
    numbers = all(a.value.size == 1 for a in atoms if isinstance(a, Const))
    computable = all(a.type.dtype in DTYPES for a in atoms)
    rank = len(workload.result.shape)
    return numbers and computable and all(len(p.type.shape) <= rank for p in workload.body.params)


def axes_of(shapes: Sequence[Shape], out: Shape) -> list[Axis]:
    """What each operand does along each axis of `out`."""
    rank = len(out)
    full = [(1,) * (rank - len(s)) + s for s in shapes]
    axes = zip(*full, strict=True) if full else [()] * rank
    return [_axis(dims, whole) for dims, whole in zip(axes, out, strict=True)]


def _axis(dims: tuple[Dim, ...], out: Dim) -> Axis:
    return tuple(_along(dim, [*dims[:k], *dims[k + 1 :]], out) for k, dim in enumerate(dims))


def _along(dim: Dim, others: Sequence[Dim], out: Dim) -> str:
    if dim == 1:
        return STANDS
    whole = not isinstance(dim, AnyDim) and dim == out
    alone = all(d == 1 for d in others)
    return RUNS if whole or alone or bounds(dim)[0] > 1 else OPEN


def collapsed(axes: Sequence[Axis]) -> list[Group]:
    """Neighbouring axes on which all operands do the same, as one; axes of extent 1 left out."""
    kept = [a for a, axis in enumerate(axes) if set(axis) != {STANDS}]
    runs = joined(kept, lambda a, b: axes[a] == axes[b] and OPEN not in axes[a])
    return [(members, axes[members[0]]) for members in runs]


def _groups(workload: Workload) -> list[Group]:
    """The axes of the loops: those that are one, and the last one by itself."""
    return _grouped(tuple(p.type.shape for p in workload.body.params), workload.result.shape)


@lru_cache(maxsize=64)  # a cost asks at each point
def _grouped(shapes: tuple[Shape, ...], out: Shape) -> list[Group]:
    groups = collapsed(axes_of(shapes, out))
    inner = _inner(groups)
    if not inner:
        return groups or [([], (STANDS,) * len(shapes))]
    does = groups[-1][1]
    return [*groups[:-1], (inner[:-1], does), (inner[-1:], does)]


def _inner(groups: Sequence[Group]) -> list[int]:
    """The axes of the innermost group, if they are more than one."""
    return groups[-1][0] if groups and len(groups[-1][0]) > 1 else []


def _source(workload: Workload) -> str:
    params, out = workload.body.params, workload.result
    rank, operands = len(out.shape), range(len(params))
    groups = _groups(workload)
    s = Source()
    for g, (members, _) in enumerate(groups):
        s(f"n{g} = {' * '.join(f'e{a}' for a in members) or '1'}")
    places = {f"p{k}": ["0", *_strides(k, groups)] for k in operands}
    with s.pieces([f"n{g}" for g in range(len(groups))], places=places):
        s(*(f"v{k} = x{k}[p{k}]" for k in operands if groups[-1][1][k] == STANDS))
        with s.loops(t="m"):
            s(*(line for k in operands for line in _load(k, groups[-1])))
            s(*_computed(workload), f"y[i + t] = {_text(workload, workload.body.results[0])}")
    pointers = [f"y = pointer(block[0], {stored_text(out.dtype)})"]
    for k, p in enumerate(params):
        pointers.append(f"x{k} = pointer(block[{k + 1}], {stored_text(p.type.dtype)})")
    strides = [f"s{k}_{a}" for k in operands for a in range(rank)]
    names = [*(f"e{a}" for a in range(rank)), *strides]
    title = f"elementwise: {', '.join(b.op.name for b in workload.body.body)}"
    return s.kernel(title, pointers, len(params) + 2, names)


def _strides(k: int, groups: Sequence[Group]) -> list[str]:
    """Strides of operand k along the axes of the loops."""
    *outer, (members, does) = groups
    inner = {STANDS: "0", RUNS: "1", OPEN: f"s{k}_{members[-1]}" if members else "0"}[does[k]]
    return [*("0" if along[k] == STANDS else f"s{k}_{m[-1]}" for m, along in outer), inner]


def _load(k: int, inner: Group) -> Iterator[str]:
    members, does = inner
    if does[k] != STANDS:
        yield f"v{k} = x{k}[p{k} + {'t' if does[k] == RUNS else f't * s{k}_{members[-1]}'}]"


def _names(workload: Workload) -> dict[Atom, str]:
    params: dict[Atom, str] = {p: f"v{k}" for k, p in enumerate(workload.body.params)}
    return params | {b.out: f"t{i}" for i, b in enumerate(workload.body.body)}


def _text(workload: Workload, atom: Atom) -> str:
    return literal(atom.value) if isinstance(atom, Const) else _names(workload)[atom]


def _computed(workload: Workload) -> Iterator[str]:
    for i, b in enumerate(workload.body.body):
        assert b.op.scalar is not None
        operands = [_text(workload, a) for a in b.args]
        dtypes = [a.type.dtype for a in b.args]
        text = loop_text(b.op.scalar, operands, dtypes, b.out.type.dtype, b.attrs)
        if b.out.type.dtype in HALVES and b.out != workload.body.results[0]:  # a store rounds
            text = f"rounded({text}, {b.out.type.dtype.name})"
        yield f"t{i} = {text}"


def run_time_strides(shape: Shape, out: Shape) -> tuple[Dim, ...]:
    """The strides of a dense array read along the axes of `out`: 0 where it is repeated."""
    return spread(shape, out, strides_of(shape))


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    *ins, out = shapes
    strides = itertools.chain.from_iterable(run_time_strides(x, out) for x in ins)
    lines = by_lines(out, product(out[2:]))
    apart = any(isinstance(x, Rows) for x in ins)
    extents = out if apart else _as_one_row(workload, out)
    return Launch((*extents, *strides), product(out), GRAIN, lines=lines)


def _as_one_row(workload: Workload, out: Shape) -> Shape:
    """The extents of the result, where the axes of the innermost group are one."""
    types = workload.body.params
    inner = _inner(collapsed(axes_of([p.type.shape for p in types], workload.result.shape)))
    if not inner:
        return out
    one = dict.fromkeys(inner[:-1], 1) | {inner[-1]: product(out[a] for a in inner)}
    return tuple(one.get(a, d) for a, d in enumerate(out))


def _counts(workload: Workload, at: LoopCounts) -> Counts:
    groups = _groups(workload)
    every: Counter[str] = Counter()
    for b in workload.body.body:
        every.update(operations(b.op.scalar or ""))
    counts = {kind: n * at.extent for kind, n in every.items()}
    return counts | {"row": math.prod(at.dims[a] for members, _ in groups[:-1] for a in members)}


def _pitched(workload: Workload) -> frozenset[int]:
    """Operands that run along the last axis, where the loop over it is one by itself."""
    params, out = workload.body.params, workload.result
    groups = _groups(workload)
    if len(groups) < 2 or groups[-1][0] != [len(out.shape) - 1]:
        return frozenset()
    return frozenset(
        k
        for k, does in enumerate(groups[-1][1])
        if does == RUNS and len(params[k].type.shape) == len(out.shape)
    )


ELEMENTWISE = loop_template("elementwise", _accepts, _source, _launch, _counts, pitched=_pitched)
