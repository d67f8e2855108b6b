"""The proof that rows of a batch keep apart: requests of equal shapes may share a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from bucketize.errors import RaggedError
from bucketize.ir import STRUCTURAL, Binding, Function, mentioned
from bucketize.op import FREE, Movement, Op
from bucketize.ops import (
    avg_pool2d,
    avg_pool3d,
    broadcast_to,
    concat,
    conv2d,
    conv3d,
    conv_transpose,
    gather,
    matmul,
    max_pool2d,
    max_pool3d,
    pad,
    reshape,
    resize,
    strided_slice,
    transpose,
)
from bucketize.ragged.fact import Axes, axis_of
from bucketize.ragged.fold import LOCAL
from bucketize.ragged.packer import SIZING
from bucketize.transform.simplify import simplify
from bucketize.types import Symbol

NONE = Symbol("")  # there are no tokens
WINDOWS = (
    *(conv2d, conv3d, conv_transpose, avg_pool2d, avg_pool3d, max_pool2d, max_pool3d),
    *(pad, resize),
)
"""Each image by itself, where the batch comes first."""


def batch_of(fn: Function) -> Symbol:
    """The symbol of rows that a function computes each by itself.

    Raises:
        RaggedError: there is none, or an op brings rows together, or nobody has proved that it
            does not; the notes name the nodes.

    """
    fn = simplify(fn)
    batch = _first(fn)
    axes = Axes(batch, NONE)
    for b in fn.body:
        if fault := _fault(b, axes):
            error = RaggedError(f"{b.op.name}: {fault}")
            if b.origin:
                error.add_note(f"from {', '.join(b.origin)}")
            raise error
    return batch


def _first(fn: Function) -> Symbol:
    """The symbol of the first axis of all inputs that have it, and of all results."""
    values = [*fn.params, *fn.results]
    if not all(v.type.is_tensor for v in values):
        raise RaggedError("an input or result is no tensor of known rank")
    firsts = {r.type.shape[0] if r.type.shape else None for r in fn.results}
    batch = firsts.pop() if len(firsts) == 1 else None
    if not isinstance(batch, Symbol):
        raise RaggedError("results have no symbol in common that counts rows")
    if batch.step > 1:
        raise RaggedError(f"rows come by {batch.step}: {batch} is {batch.range}")
    for value in values:
        inside = [k for k, dim in enumerate(value.type.shape) if batch in mentioned(dim)]
        if inside not in ([], [0]):
            raise RaggedError(f"{value.type} has {batch} elsewhere than at first")
    return batch


def _fault(b: Binding, axes: Axes) -> str:
    """Why an op may bring rows together; empty if it does not."""
    values = [*b.args, *b.outs]
    if b.op in STRUCTURAL or not all(v.type.is_tensor for v in values):
        return "nobody has proved that it keeps rows apart"
    for value in values:
        if fault := axes.fault(value.type):
            return fault
    sizing = {*SIZING.get(b.op, ()), *(("newshape",) if b.op is reshape else ())}
    counting = [n for n, v in b.attrs.items() if axes.batch in mentioned(v) and n not in sizing]
    if counting:
        return f"it computes with the number of rows ({counting[0]})"
    places = [axes.rows(a.type.shape) for a in b.args]
    if not any(places) and (b.op in SIZING or not any(axes.rows(o.type.shape) for o in b.outs)):
        return ""
    return "" if _keeps_apart(b, axes, places) else "it brings rows together, or may"


def _keeps_apart(b: Binding, axes: Axes, places: Places) -> bool:
    if b.op.movement is Movement.VIEW:
        x, out = b.args[0].type.shape, b.out.type.shape
        return axes.strides(x) == axes.strides(out)
    rule = _aligned if b.op.scalar is not None else RULES.get(b.op)
    return rule is not None and rule(b, axes, places)


def _aligned(b: Binding, axes: Axes, places: Places) -> bool:
    return all(set(p) <= set(axes.rows(b.out.type.shape)) for p in places)


def _local(b: Binding, _: Axes, places: Places) -> bool:
    rank = len(b.args[0].type.shape)
    touched = {a - rank if a >= 0 else a for a in LOCAL[b.op](b)}
    return touched.isdisjoint(places[0]) and not any(places[1:])


def _windows(b: Binding, axes: Axes, places: Places) -> bool:
    shapes = [a.type.shape for a in b.args]
    first = [-len(shapes[0])]
    free = b.op.padding(0, 0, *shapes, **b.attrs) is FREE
    if b.op is pad and b.attrs["pads"][0] != (0, 0):  # rows may be moved
        return False
    return free and places[0] == first == axes.rows(b.out.type.shape) and not any(places[1:])


def _multiplied(_: Binding, __: Axes, places: Places) -> bool:
    is_summed = -1 in places[0] or -2 in places[1]
    return not is_summed and len({k for p in places for k in p}) == 1


def _joined(b: Binding, axes: Axes, places: Places) -> bool:
    rows = axes.rows(b.out.type.shape)
    return all(p == rows for p in places) and axis_of(b) not in rows


def _cut(b: Binding, _: Axes, places: Places) -> bool:
    rank = len(b.args[0].type.shape)
    return {a - rank for a in b.attrs["axes"]}.isdisjoint(places[0])


def _picked(b: Binding, _: Axes, places: Places) -> bool:
    return axis_of(b) not in places[0] and not all(places)


Places: TypeAlias = Sequence[Sequence[int]]
"""The axes of each argument that count rows."""
RULES: Mapping[Op, Callable[[Binding, Axes, Places], bool]] = {
    **dict.fromkeys(LOCAL, _local),
    **dict.fromkeys(WINDOWS, _windows),
    broadcast_to: _aligned,
    matmul: _multiplied,
    transpose: lambda *_: True,
    concat: _joined,
    strided_slice: _cut,
    gather: _picked,
}
"""Whether an op keeps rows apart; elementwise ops and views have a rule each."""
