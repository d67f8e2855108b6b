"""Rules of packing, of ops that bring elements together along an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bucketize.ir import Atom, Binding
from bucketize.op import Op
from bucketize.ops import (
    argmax,
    argmin,
    cast,
    cumsum,
    div,
    gather,
    layer_norm,
    log_softmax,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    reshape,
    segment_max,
    segment_sum,
    softmax,
    sub,
)
from bucketize.ragged.fact import COUNT_BYTES, LOW, Fact, Form, are_neighbours, axis_of, is_zero
from bucketize.ragged.packer import Packer


def local(p: Packer, b: Binding) -> None:
    """What brings together elements along axes that count neither rows nor tokens."""
    shape = b.args[0].type.shape
    touched = [a - len(shape) if a >= 0 else a for a in LOCAL[b.op](b)]
    ours = {*p.axes.rows(shape), *p.axes.tokens(shape)}
    if ours.intersection(touched) or any(p.form(a) is not Form.SHARED for a in b.args[1:]):
        p.refuse(b, f"it brings together rows or tokens of {b.args[0].type}")
    p.put(b, p.emit(b, [p.atom(a) for a in b.args]))


def reduced(p: Packer, b: Binding) -> None:
    """Sums, means and maxima over the tokens of a row, and what `local` takes."""
    (x,) = b.args
    shape, rank = x.type.shape, len(x.type.shape)
    axes = [a - rank if a >= 0 else a for a in b.attrs["axes"]]
    if not set(p.axes.tokens(shape)).intersection(axes):
        local(p, b)
        return
    if len(axes) > 1 or p.form(x) is not Form.TOKEN or b.op not in OVER_TOKENS:
        p.refuse(b, f"it brings together the tokens of {x.type}")
    (axis,) = axes
    rows = p.axes.rows(shape)
    if axis in rows:
        p.refuse(b, f"it brings together rows or tokens of {x.type}")
    if not rows or not are_neighbours(shape, rows[0] + rank, axis + rank):
        p.refuse(b, f"of {x.type} rows and tokens are not neighbours")
    _check_hidden(p, b, axis)
    each = p.out.emit(OVER_TOKENS[b.op], p.atom(x), p.ends, axis=axis + rank)
    new: Atom = p.out.emit(reshape, each, newshape=p.shape(b.out.type))
    p.put(b, _mean(p, b, new) if b.op is reduce_mean else new, Fact(counts=_counts(p, b)))


def _counts(p: Packer, b: Binding) -> bool:
    """Whether a sum over tokens, of which hidden ones add nothing, is of ones."""
    seen = p.fact(b.args[0]).seen
    wide = b.out.type.dtype.itemsize >= COUNT_BYTES
    return b.op is reduce_sum and seen is not None and bool(seen == 1) and wide


def _check_hidden(p: Packer, b: Binding, axis: int) -> None:
    """Refuse an op that hidden tokens change the result of."""
    if p.mask is None:
        return
    hidden = p.fact(b.args[0]).at.get(axis)
    if b.op is reduce_sum and not is_zero(hidden):
        p.refuse(b, f"it sums hidden tokens, too: {p.mask.name!r} makes none of them 0")
    if b.op is reduce_mean:
        p.refuse(b, f"it counts hidden tokens, too, whatever {p.mask.name!r} makes of them")
    if b.op is reduce_max and (hidden is None or not hidden <= LOW):
        p.refuse(b, f"it sees hidden tokens, too: {p.mask.name!r} makes none of them low")


def _mean(p: Packer, b: Binding, total: Atom) -> Atom:
    """A sum by the number of a row's tokens."""
    lengths = p.out.emit(sub, p.ends, p.begins())
    counts = p.out.emit(cast, lengths, dtype=b.out.type.dtype.name)
    shape = b.out.type.shape
    (at,) = p.axes.rows(shape)
    aligned = tuple(p.rows if k == at else 1 for k in range(-len(shape), 0))
    return p.out.emit(div, total, p.out.emit(reshape, counts, newshape=aligned))


def running(p: Packer, b: Binding) -> None:
    """Sums up to each token of a row: of what came before it, what came before the row is taken."""
    (x,) = b.args
    rank = len(x.type.shape)
    axis = axis_of(b)
    if axis not in p.axes.tokens(x.type.shape):
        local(p, b)
        return
    if axis in p.axes.rows(x.type.shape):
        p.refuse(b, f"it brings together rows or tokens of {x.type}")
    if b.attrs["reverse"] or p.form(x) is not Form.TOKEN:
        p.refuse(b, "it sums from the last token on")
    if x.type.dtype.kind not in "iu":
        p.refuse(b, f"sums of {x.type.dtype} that go on over rows are not exact")
    total = p.emit(b, [p.atom(x)])
    before = total if b.attrs["exclusive"] else p.out.emit(sub, total, p.atom(x))
    first = p.out.emit(gather, before, p.begins(), axis=axis + rank)
    p.put(b, p.out.emit(sub, total, p.out.emit(gather, first, p.owner, axis=axis + rank)))


LOCAL: Mapping[Op, Callable[[Binding], Sequence[int]]] = {
    **dict.fromkeys((softmax, log_softmax, cumsum, argmax, argmin), lambda b: [b.attrs["axis"]]),
    **dict.fromkeys(
        (reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod), lambda b: b.attrs["axes"]
    ),
    layer_norm: lambda b: range(b.attrs["axis"], len(b.args[0].type.shape)),
}
"""The axes along which an op brings elements together."""

OVER_TOKENS: Mapping[Op, Op] = {
    reduce_sum: segment_sum,
    reduce_mean: segment_sum,
    reduce_max: segment_max,
}
"""What is over all tokens of a row, and what it is over segments."""
