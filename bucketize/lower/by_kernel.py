"""What only a run tells of how an op works, found out by kernels: they make extents of it.

Extents are read as sizes before what needs them, so that all of it is native; numbers that are not
legal lead to a branch that is none. Each rule gives None where it knows no way: numpy computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.ir import IF, Atom, Binding, Builder, Const, Function, illegal
from bucketize.op import Array, Op
from bucketize.ops import (
    abs_,
    add,
    cast,
    ceil,
    concat,
    cumprod,
    cumsum,
    div,
    dyn_arange,
    dyn_cumprod,
    dyn_cumsum,
    dyn_nonzero_rows,
    dyn_reduce_max,
    dyn_reduce_mean,
    dyn_reduce_min,
    dyn_reduce_prod,
    dyn_reduce_sum,
    dyn_reshape,
    dyn_split,
    dyn_squeeze,
    dyn_strided_slice,
    dyn_unsqueeze,
    dyn_view,
    equal,
    gather,
    less,
    logical_and,
    logical_not,
    logical_or,
    maximum_,
    minimum_,
    mul,
    not_equal,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    reshape,
    row_order,
    scatter_elements,
    shape_of,
    sign,
    squeeze,
    strided_slice,
    sub,
    transpose,
    trunc_div,
    unique,
    where,
)

FAR = 1 << 62
"""No two numbers of a range lie as far apart, and no step of a slice need be as long."""
Operand: TypeAlias = Atom | Array | int
Rows: TypeAlias = Sequence[Sequence[Sequence[int]]]
"""For each place of an axis: for each extent, which of a shape it is the product of."""


@dataclass(frozen=True)
class Emit:
    """Binds ops, of arguments that may be numbers."""

    out: Builder

    def __call__(self, op: Op, *args: Operand, **attrs: Any) -> Atom:
        (result,) = self.all(op, *args, **attrs)
        return result

    def all(self, op: Op, *args: Operand, **attrs: Any) -> tuple[Atom, ...]:
        """Each result."""
        return self.out.emit_all(op, *map(_atom, args), **attrs)


Rule: TypeAlias = Callable[[Emit, Binding], Atom | tuple[Atom, ...] | None]


def by_kernels(b: Binding) -> Function | None:
    """A function that does what a binding does, of the same variables; None if there is none."""
    rule = RULES.get(b.op) if b.is_ranked else None
    if rule is None:
        return None
    out = Builder(origin=b.origin)
    results = rule(Emit(out), b)
    if results is None:
        return None
    return out.function("", (), results if isinstance(results, tuple) else (results,))


def _atom(operand: Operand) -> Atom:
    return Const(np.asarray(operand)) if isinstance(operand, int | np.ndarray) else operand


def _checked(emit: Emit, value: Atom, why: str, *holds: Atom) -> Atom:
    """`value` where all of `holds` do; elsewhere it is an error."""
    for truth in holds:
        then = Function("then", (), (), (value,))
        value = emit(IF, truth, then=then, orelse=illegal(then, TypeRelError(why)))
    return value


def _numbers(emit: Emit, operand: Atom) -> Atom | None:
    """The elements of a vector of known length, of 64 bits."""
    type_ = operand.type
    if type_.dtype.kind != "i" or len(type_.shape) != 1 or not isinstance(type_.shape[0], int):
        return None
    return emit(cast, operand, dtype="int64")


def _all(emit: Emit, truths: Atom) -> Atom:
    """Whether each element of a vector is true."""
    return emit(equal, emit(reduce_min, emit(cast, truths, dtype="int64"), axes=(0,)), 1)


def _rank(b: Binding) -> int:
    return len(b.args[0].type.shape)


def _length(vector: Atom) -> int:
    (length,) = vector.type.shape
    assert isinstance(length, int)
    return length


# --- along an axis -------------------------------------------------------------------------------


def _axis(emit: Emit, b: Binding) -> Atom | None:
    """The only axis that an operand holds."""
    type_ = b.args[1].type
    if type_.dtype.kind != "i" or type_.shape not in ((), (1,)) or not _rank(b):
        return None
    return emit(reshape, emit(cast, b.args[1], dtype="int64"), newshape=())


def _under(emit: Emit, x: Atom, of: Atom, axis: Atom, rows: Rows) -> Atom:
    """`x` under the extents that `rows` says for the axis, by those of `of`."""
    rank = len(of.type.shape)  # where there is an extent of 1 behind those of the shape
    table = np.array([[[*p, *[rank] * (rank - len(p))] for p in row] for row in rows], np.int64)
    shape = emit(concat, emit(shape_of, of), np.ones(1, np.int64), axis=0)
    factors = emit(gather, shape, emit(gather, table, axis, axis=0), axis=0)
    return emit(dyn_view, x, emit(reduce_prod, factors, axes=(1,)))


def _along(emit: Emit, b: Binding, axis: Atom) -> Atom:
    """What has the axis as the second of three: those before and behind are one each."""
    axes = range(_rank(b))
    rows = [(axes[:a], (a,), axes[a + 1 :]) for a in axes]
    return _under(emit, b.args[0], b.args[0], axis, rows)


def _running(static: Op, emit: Emit, b: Binding) -> Atom | None:
    axis = _axis(emit, b)
    if axis is None:
        return None
    result = emit(static, _along(emit, b, axis), axis=1, **b.attrs)
    return emit(dyn_view, result, emit(shape_of, b.args[0]))


def _without(static: Op, emit: Emit, b: Binding) -> Atom | None:
    """A reduction, or what squeezes."""
    axis, axes = _axis(emit, b), range(_rank(b))
    if axis is None or len(axes) < 2:
        return None
    kept = [()] if b.attrs.get("keepdims") else []
    rows = [[*((i,) for i in axes[:a]), *kept, *((i,) for i in axes[a + 1 :])] for a in axes]
    return _under(emit, emit(static, _along(emit, b, axis), axes=(1,)), b.args[0], axis, rows)


def _unsqueeze(emit: Emit, b: Binding) -> Atom | None:
    axis, axes = _axis(emit, b), range(_rank(b))
    if axis is None:
        return None
    rows = [[*((i,) for i in axes[:a]), (), *((i,) for i in axes[a:])] for a in (*axes, len(axes))]
    return _under(emit, b.args[0], b.args[0], axis, rows)


# --- another shape -------------------------------------------------------------------------------


def _reshape(emit: Emit, b: Binding) -> Atom | None:
    """What 0 and -1 stand for is found in vectors as long as the longer of both shapes."""
    to, rank = _numbers(emit, b.args[1]), _rank(b)
    if to is None:
        return None
    count, width = _length(to), max(_length(to), rank)
    to = _padded(emit, to, width)
    have = _padded(emit, emit(shape_of, b.args[0]), width)
    copies = _atom(np.zeros(width, np.bool_)) if b.attrs["allow_zero"] else emit(equal, to, 0)
    left = emit(equal, to, -1)
    beyond = emit(logical_and, copies, np.arange(width) >= rank)
    wrong = emit(
        add, emit(cast, left, dtype="int64"), emit(mul, emit(cast, beyond, dtype="int64"), 2)
    )
    why = f"in {b.op.name}: more than one -1, or a 0 that copies no axis of {b.args[0].type}"
    to = _checked(emit, to, why, emit(less, emit(reduce_sum, wrong, axes=(0,)), 2))
    rest = emit(reduce_prod, emit(where, emit(logical_or, copies, left), 1, to), axes=(0,))
    elements = emit(reduce_prod, emit(where, copies, 1, have), axes=(0,))
    each = emit(trunc_div, elements, emit(maximum_, rest, 1))
    fits = emit(logical_and, emit(less, 0, rest), emit(equal, emit(mul, each, rest), elements))
    each = emit(where, fits, each, -1)
    new = emit(where, left, each, emit(where, copies, have, to))
    return emit(dyn_view, b.args[0], _cut(emit, new, 0, count))


def _padded(emit: Emit, x: Atom, width: int) -> Atom:
    """A vector with ones behind it."""
    return emit(concat, x, np.ones(width - _length(x), np.int64), axis=0)


def _cut(emit: Emit, x: Atom, begin: int, end: int) -> Atom:
    return emit(strided_slice, x, begin=(begin,), end=(end,), strides=(1,), axes=(0,))


# --- parts ---------------------------------------------------------------------------------------


def _split(emit: Emit, b: Binding) -> Atom | None:
    x, sizes, axis = b.args[0], _numbers(emit, b.args[1]), b.attrs["axis"]
    if sizes is None:
        return None
    size = emit(gather, emit(shape_of, x), axis, axis=0)
    within = [emit(less, -1, sizes), emit(less, sizes, emit(add, size, 1))]
    whole = emit(equal, emit(reduce_sum, sizes, axes=(0,)), size)
    why = f"in {b.op.name}: parts that do not add up to axis {axis} of {x.type}"
    sizes = _checked(emit, sizes, why, *(_all(emit, w) for w in within), whole)
    begin, end = (
        emit(reduce_sum, _cut(emit, sizes, 0, k), axes=(0,), keepdims=True)
        for k in (b.attrs["part"], b.attrs["part"] + 1)
    )
    return emit(dyn_strided_slice, x, begin, end, np.array([1]), np.array([axis]))


def _slice(emit: Emit, b: Binding) -> Atom | None:
    """What steps and axes of a run cut is gathered along each axis that may be one of those."""
    x, vectors = b.args[0], [v for a in b.args[1:] if (v := _numbers(emit, a)) is not None]
    if len(vectors) < 4 or not _rank(b) or len({v.type.shape for v in vectors}) > 1:
        return None
    begin, end, steps, axes = vectors
    rank, shape = _rank(b), emit(shape_of, x)
    named = [a % rank for a in b.args[4].type.value or () if isinstance(a, int)]
    size = emit(gather, shape, axes, axis=0)

    def of_all(others: Operand, mine: Operand, reduction: str = "none") -> Atom:
        return emit(scatter_elements, others, axes, mine, axis=0, reduction=reduction)

    once = emit(less, of_all(np.zeros(rank, np.int64), np.ones(_length(axes), np.int64), "add"), 2)
    moves = emit(not_equal, steps, 0)
    why = f"in {b.op.name}: a step of 0, or an axis that is named twice"
    steps = _checked(
        emit, _between(emit, steps, -FAR, FAR), why, *(_all(emit, t) for t in (once, moves))
    )
    rises = emit(less, 0, steps)
    most = emit(where, rises, size, emit(sub, size, 1))
    begin = _between(emit, _from_front(emit, begin, size), 0, most)
    end = _between(emit, _from_front(emit, end, size), emit(where, rises, 0, -1), most)
    counts = of_all(shape, _count(emit, emit(sub, end, begin), steps))
    begins, steps = of_all(np.zeros(rank, np.int64), begin), of_all(np.ones(rank, np.int64), steps)
    for axis in named if len(named) == _length(axes) else range(rank):
        first, step, n = (emit(gather, v, axis, axis=0) for v in (begins, steps, counts))
        x = emit(gather, x, _steps(emit, first, n, step), axis=axis)
    return x


def _between(emit: Emit, x: Atom, least: Operand, most: Operand) -> Atom:
    return emit(minimum_, emit(maximum_, x, least), most)


def _from_front(emit: Emit, index: Atom, size: Atom) -> Atom:
    """An index that below 0 counts from the end."""
    return emit(where, emit(less, index, 0), emit(add, index, size), index)


def _count(emit: Emit, way: Atom, step: Atom) -> Atom:
    """How many steps it takes, none of them 0; no way is longer than `FAR`."""
    long, each = emit(mul, way, emit(sign, step)), emit(abs_, step)
    count = emit(trunc_div, emit(sub, emit(add, long, each), 1), emit(maximum_, each, 1))
    return emit(maximum_, count, 0)


def _steps(emit: Emit, start: Atom, count: Atom, step: Atom) -> Atom:
    """`count` numbers from `start` on, `step` apart, of its dtype."""
    places = emit(cast, emit(dyn_arange, 0, count, 1), dtype=start.type.dtype.name)
    return emit(add, start, emit(mul, places, step))


def _arange(emit: Emit, b: Binding) -> Atom | None:
    dtype = b.args[0].type.dtype
    if dtype in ("float32", "float64"):
        count, holds = _float_count(emit, *b.args)
    elif dtype.kind == "i":
        count, holds = _whole_count(emit, *(emit(cast, a, dtype="int64") for a in b.args))
    else:
        return None
    why = f"in {b.op.name}: no number of steps leads from start to stop, or too many"
    return _steps(emit, b.args[0], _checked(emit, count, why, *holds), b.args[2])


def _float_count(emit: Emit, start: Atom, stop: Atom, step: Atom) -> tuple[Atom, list[Atom]]:
    """How many numbers there are, and what must hold for that: NaN is below nothing."""
    steps = emit(ceil, emit(div, emit(sub, stop, start), step))
    most, least = (np.asarray(n, steps.type.dtype) for n in (FAR, -np.inf))
    holds = [emit(less, steps, most), emit(less, least, steps)]
    count = emit(maximum_, steps, np.zeros((), steps.type.dtype))
    return emit(cast, count, dtype="int64"), holds


def _whole_count(emit: Emit, start: Atom, stop: Atom, step: Atom) -> tuple[Atom, list[Atom]]:
    """How many whole numbers a range has: a difference that is near is true if it has its sign."""
    way = emit(sub, stop, start)
    there = emit(where, emit(less, 0, step), emit(less, start, stop), emit(less, stop, start))
    near = emit(logical_and, emit(less, -FAR, way), emit(less, way, FAR))
    true = emit(equal, emit(less, start, stop), emit(less, 0, way))
    fits = emit(logical_or, emit(logical_not, there), emit(logical_and, near, true))
    count = _count(emit, way, _between(emit, step, -FAR, FAR))
    return emit(where, there, count, 0), [emit(not_equal, step, 0), fits]


# --- what differs --------------------------------------------------------------------------------


def _unique(emit: Emit, b: Binding) -> tuple[Atom, ...]:
    """Rows in order lead to the first of each that is equal, in the order of size."""
    x, axis = b.args[0], b.attrs["axis"]
    order, starts = _ordered(emit, x, axis)
    size = emit(gather, emit(shape_of, x), np.array([axis]), axis=0)
    count = emit(reduce_sum, starts, axes=(0,))
    begins = emit(squeeze, emit(dyn_nonzero_rows, starts, count), axes=(1,))
    ends = emit(concat, _cut(emit, begins, 1, FAR), size, axis=0)
    which = emit(sub, emit(cumsum, starts, axis=0), 1)
    first, counts = emit(gather, order, begins, axis=0), emit(sub, ends, begins)
    if not b.attrs["sorted"]:
        by_place, _ = _ordered(emit, first, 0)
        rank, _ = _ordered(emit, by_place, 0)
        first, counts = (emit(gather, a, by_place, axis=0) for a in (first, counts))
        which = emit(gather, rank, which, axis=0)
    which = emit(scatter_elements, order, order, which, axis=0)
    return emit(gather, x, first, axis=axis), first, which, counts


def _ordered(emit: Emit, x: Atom, axis: int) -> tuple[Atom, Atom]:
    """The order of what lies along an axis, and which of it differs from what comes before."""
    axes = range(len(x.type.shape))
    rows = emit(transpose, x, axes=(axis, *(a for a in axes if a != axis)))
    order, starts = emit.all(row_order, rows)
    return order, starts


OF_ONE_AXIS: Mapping[Op, Rule] = {
    dyn_reduce_sum: partial(_without, reduce_sum),
    dyn_reduce_prod: partial(_without, reduce_prod),
    dyn_reduce_mean: partial(_without, reduce_mean),
    dyn_reduce_max: partial(_without, reduce_max),
    dyn_reduce_min: partial(_without, reduce_min),
    dyn_squeeze: partial(_without, squeeze),
    dyn_unsqueeze: _unsqueeze,
}
"""Ops that may be told several axes, of which numpy computes by more than one."""
RULES: Mapping[Op, Rule] = {
    **OF_ONE_AXIS,
    dyn_cumsum: partial(_running, cumsum),
    dyn_cumprod: partial(_running, cumprod),
    dyn_reshape: _reshape,
    dyn_split: _split,
    dyn_strided_slice: _slice,
    dyn_arange: _arange,
    unique: _unique,
}
"""By op: what is emitted in its place."""
