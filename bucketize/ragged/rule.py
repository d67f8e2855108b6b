"""Rules of packing, by op: elementwise ops, views, shapes, and the table of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bucketize.ir import Atom, Binding, Const
from bucketize.op import Array, Op
from bucketize.ops import (
    add,
    arange,
    argmax,
    argmin,
    broadcast_to,
    cast,
    concat,
    cumsum,
    from_dims,
    full,
    gather,
    gather_elements,
    gather_nd,
    layer_norm,
    log_softmax,
    matmul,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    reshape,
    softmax,
    squeeze,
    strided_slice,
    transpose,
    unsqueeze,
)
from bucketize.ragged.fact import (
    BETWEEN,
    COUNT_BYTES,
    OF_ROW,
    Fact,
    Form,
    Index,
    Place,
    axis_of,
    before_the_end,
    evaluated,
    indexed,
    is_always,
    moved,
    neutral,
    places,
)
from bucketize.ragged.fold import local, reduced, running
from bucketize.ragged.packer import Packer, PackingRule
from bucketize.ragged.pick import gathered, gathered_along, gathered_at, shown, sliced
from bucketize.ragged.product import multiplied, softened
from bucketize.types import Type


def elementwise(p: Packer, b: Binding) -> None:
    """Any op that makes each element of those at its place."""
    p.check_kept(b)
    index = indexed(b, [p.fact(a) for a in b.args])
    if lost := p.lost(b):
        if not index:
            p.check_lost(b)
        p.bar(b, lost, index)
        return
    type_, fact = b.out.type, replace(_known(p, b), index=index)
    if fact.seen is not None:
        p.put(b, p.everywhere(fact.seen.astype(type_.dtype), type_, p.result(b)), fact)
        return
    kept = neutral(b.op, [p.fact(a) for a in b.args])
    if kept is not None and _same(b.args[kept].type, type_):
        p.put(b, p.atom(b.args[kept]), fact)
        return
    p.put(b, p.emit(b, [p.refit(b, a, type_) for a in b.args]), fact)


def _known(p: Packer, b: Binding) -> Fact:
    """What is known of the result of an elementwise op."""
    facts, type_ = [p.fact(a) for a in b.args], b.out.type
    where_ = list(places(p.axes, type_))
    if is_always(b, facts):
        true = np.ones((), bool)
        return Fact(true, dict.fromkeys(where_, true))
    if (axis := before_the_end(b, facts, p.axes)) is not None:
        return Fact(np.ones((), bool), {axis: np.zeros((), bool)})
    seen = evaluated(b.op, b.attrs, [f.seen for f in facts])
    numbers = {k: evaluated(b.op, b.attrs, [_number(p, a, k) for a in b.args]) for k in where_}
    wide = type_.dtype.kind in "iu" and type_.dtype.itemsize >= COUNT_BYTES
    counts = b.op is cast and facts[0].counts and wide
    return Fact(seen, {k: n for k, n in numbers.items() if n is not None}, counts=counts)


def _number(p: Packer, atom: Atom, place: Place) -> Array | None:
    """What an argument holds at a place of the result."""
    fact, shape = p.fact(atom), atom.type.shape
    if place == BETWEEN:
        return fact.at.get(place) if p.form(atom) is Form.PAIR else fact.seen
    return fact.at.get(place) if place in p.axes.tokens(shape) else fact.seen


def _same(one: Type, other: Type) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape


def view(p: Packer, b: Binding) -> None:
    """A view of the elements in another shape, in which rows and tokens lie as they did."""
    old, new = b.args[0].type.shape, b.out.type.shape
    if p.axes.strides(old) != p.axes.strides(new):
        p.refuse(b, f"{shown(old)} as {shown(new)} takes rows or tokens apart")
    (x,) = b.args
    axes = dict(zip(p.axes.tokens(old), p.axes.tokens(new), strict=True))
    new_shape = p.shape(b.out.type, p.form(x))
    p.put(b, p.out.emit(reshape, p.atom(x), newshape=new_shape), moved(p.fact(x), axes))


def transposed(p: Packer, b: Binding) -> None:
    """Axes in another order."""
    (x,), rank = b.args, len(b.out.type.shape)
    axes = {old - rank: new - rank for new, old in enumerate(b.attrs["axes"])}
    p.put(b, p.emit(b, [p.atom(x)]), moved(p.fact(x), axes))


def spread(p: Packer, b: Binding) -> None:
    """An argument as often as a shape has it."""
    p.check_kept(b)
    (x,) = b.args
    fact, form = p.fact(x), p.axes.form(b.out.type)
    at = {k: n for k in places(p.axes, b.out.type) if (n := _number(p, x, k)) is not None}
    new = Fact(fact.seen, at, index=fact.index, barred=fact.barred)
    if fact.barred:
        p.bar(b, fact.barred, fact.index)
    elif fact.seen is not None:
        p.put(b, p.everywhere(fact.seen, b.out.type, p.result(b)), new)
    elif p.form(x) is form and _same(x.type, b.out.type):
        p.put(b, p.atom(x), new)
    else:
        p.put(b, p.emit(b, [p.refit(b, x, b.out.type)]), new)


def filled(p: Packer, b: Binding) -> None:
    """One number throughout."""
    number = np.asarray(b.attrs["value"]).astype(b.out.type.dtype)
    at = dict.fromkeys(places(p.axes, b.out.type), number)
    p.put(b, p.everywhere(number, b.out.type, p.result(b)), Fact(number, at))


def extents(p: Packer, b: Binding) -> None:
    """Extents as numbers: nothing may compute with them, but much that did is gone by now."""
    p.bar(b, f"the extent {', '.join(map(str, b.attrs['dims']))}")


def counting(p: Packer, b: Binding) -> None:
    """The places of tokens in their rows, or of rows in their batch."""
    start, step, dtype = (b.attrs[n] for n in ("start", "step", "dtype"))
    (dim,) = b.out.type.shape
    if (start, step, dim) == (0, 1, p.axes.batch):
        p.bar(b, "which row is which", (OF_ROW,))
        return
    if dim != p.axes.sequence or step != 1 or not isinstance(start, int):
        p.refuse(b, f"it counts {dim}, not the tokens of a row")
    position: Atom = p.position
    if start:
        position = p.out.emit(add, position, Const(np.asarray(start)))
    index = (Index(0, 1, start),)
    atom = position if dtype == "int64" else p.out.emit(cast, position, dtype=dtype)
    p.put(b, atom, Fact(index=index if b.out.type.dtype.kind == "i" else ()))


def joined(p: Packer, b: Binding) -> None:
    """Arguments one behind the other, along an axis that counts neither rows nor tokens."""
    p.check_kept(b)
    shape = b.out.type.shape
    axis = axis_of(b)
    if axis in (*p.axes.rows(shape), *p.axes.tokens(shape)):
        p.refuse(b, "it puts rows or tokens behind each other")
    if lost := p.lost(b):
        index = tuple(i for a in b.args for i in p.fact(a).index)
        if axis != -1 or len(index) != shape[-1]:
            p.check_lost(b)
        p.bar(b, lost, index)
        return
    p.put(b, p.emit(b, [p.refit(b, a, b.out.type) for a in b.args]))


RULES: Mapping[Op, PackingRule] = {
    **dict.fromkeys((argmax, argmin, layer_norm, log_softmax), PackingRule(local)),
    **dict.fromkeys(
        (reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod), PackingRule(reduced)
    ),
    **{op: PackingRule(view, takes_lost=True) for op in (reshape, squeeze, unsqueeze)},
    transpose: PackingRule(transposed, takes_lost=True),
    broadcast_to: PackingRule(spread, takes_lost=True),
    full: PackingRule(filled),
    from_dims: PackingRule(extents),
    arange: PackingRule(counting),
    strided_slice: PackingRule(sliced),
    gather: PackingRule(gathered, takes_lost=True),
    gather_elements: PackingRule(gathered_along),
    gather_nd: PackingRule(gathered_at, takes_lost=True),
    matmul: PackingRule(multiplied),
    softmax: PackingRule(softened),
    cumsum: PackingRule(running),
    concat: PackingRule(joined, takes_lost=True),
}
"""By op; elementwise ops have one in common."""
EACH = PackingRule(elementwise, takes_lost=True)


def rule_of(b: Binding) -> PackingRule | None:
    """What is done with an op; None, nobody has proved anything of it."""
    return EACH if b.op.scalar is not None else RULES.get(b.op)
