"""Elementwise groups: one loop nest over the result, the whole group computed at each element.

Axes on which every operand either runs along or stands still are collapsed into one. Whether an
operand runs along is read off the types; where they leave it open, as `?` does, its stride is a
dim. The innermost loop then reads elements in order, or one element throughout.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from bucketize.ir import Atom, Const
from bucketize.kernel.expression import dtype_text, loop_text
from bucketize.kernel.loop import (
    DTYPES,
    GRAIN,
    Source,
    literal,
    loop_template,
    strides_of,
)
from bucketize.kernel.template import Launch, Shapes, Workload
from bucketize.types import AnyDim, Dim, Shape, bounds

RUNS, STANDS, OPEN = "runs", "stands", "open"
Axis = tuple[str, ...]  # what each operand does along an axis of the result


def _accepts(workload: Workload) -> bool:
    atoms = [*workload.body.params, *(a for b in workload.body.body for a in (*b.args, b.out))]
    numbers = all(a.value.size == 1 for a in atoms if isinstance(a, Const))
    known = all(a.type.dtype.char in DTYPES for a in atoms)
    return numbers and known and all(b.op.scalar is not None for b in workload.body.body)


def axes_of(shapes: Sequence[Shape], out: Shape) -> list[Axis]:
    """What each operand does along each axis of `out`."""
    rank = len(out)
    full = [(1,) * (rank - len(s)) + s for s in shapes]
    return [tuple(_along(dims, k) for k in range(len(dims))) for dims in zip(*full, strict=True)]


def _along(dims: tuple[Dim, ...], k: int) -> str:
    dim, others = dims[k], dims[:k] + dims[k + 1 :]
    if dim == 1:
        return STANDS
    known = not isinstance(dim, AnyDim)
    alone = all(d == 1 or (known and d == dim) for d in others)
    return RUNS if alone or bounds(dim)[0] > 1 else OPEN


def collapsed(axes: Sequence[Axis]) -> list[tuple[list[int], Axis]]:
    """Neighbouring axes on which all operands do the same, as one; axes of extent 1 left out."""
    kept = [a for a, axis in enumerate(axes) if set(axis) != {STANDS}]
    groups: list[tuple[list[int], Axis]] = []
    for a in kept:
        if groups and groups[-1][1] == axes[a] and OPEN not in axes[a]:
            groups[-1][0].append(a)
        else:
            groups.append(([a], axes[a]))
    return groups


def _source(workload: Workload) -> str:
    params, out = workload.body.params, workload.result
    rank = len(out.shape)
    groups = collapsed(axes_of([p.type.shape for p in params], out.shape))
    s = Source()
    *outer, (_, along) = groups or [([], (STANDS,) * len(params))]
    extents = [" * ".join(f"e{a}" for a in members) or "1" for members, _ in groups] or ["1"]
    s(*(f"n{g} = {text}" for g, text in enumerate(extents)))
    with s.pieces([f"n{g}" for g in range(len(extents))]):
        for k, does in enumerate(along):
            s(f"p{k} = {' + '.join(_offset(k, does, outer, groups))}")
            if does == STANDS:
                s(f"v{k} = x{k}[p{k}]")
        with s.loops(t="m"):
            for k, does in enumerate(along):
                if does != STANDS:
                    step = "t" if does == RUNS else f"t * s{k}_{groups[-1][0][-1]}"
                    s(f"v{k} = x{k}[p{k} + {step}]")
            s(*_computed(workload), f"y[i + t] = {_text(workload, workload.body.results[0])}")
    pointers = [f"y = pointer(block[0], {dtype_text(out.dtype)})"]
    for k, p in enumerate(params):
        pointers.append(f"x{k} = pointer(block[{k + 1}], {dtype_text(p.type.dtype)})")
    strides = [f"s{k}_{a}" for k in range(len(params)) for a in range(rank)]
    names = [*(f"e{a}" for a in range(rank)), *strides]
    title = f"elementwise: {', '.join(b.op.name for b in workload.body.body)}"
    return s.kernel(title, pointers, len(params) + 2, names)


def _offset(
    k: int,
    does: str,
    outer: Sequence[tuple[list[int], Axis]],
    groups: Sequence[tuple[list[int], Axis]],
) -> Iterator[str]:
    for g, (members, along) in enumerate(outer):
        if along[k] != STANDS:
            yield f"c{g} * s{k}_{members[-1]}"
    if does == STANDS:
        yield "0"
    else:
        yield "j" if does == RUNS else f"j * s{k}_{groups[-1][0][-1]}"


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
        yield f"t{i} = {text}"


def run_time_strides(shape: tuple[int, ...], out: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array read along the axes of `out`: 0 where it is repeated."""
    missing = len(out) - len(shape)
    aligned = zip(shape, out[missing:], strides_of(shape), strict=True)
    return (0,) * missing + tuple(0 if d == 1 != o else s for d, o, s in aligned)


def _launch(_workload: Workload, shapes: Shapes) -> Launch:
    *ins, out = shapes
    strides = itertools.chain.from_iterable(run_time_strides(x, out) for x in ins)
    return Launch((*out, *strides), math.prod(out), GRAIN)


ELEMENTWISE = loop_template("elementwise", _accepts, _source, _launch)
