"""Rules of packing, of products and of the softmax between them: attention by rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bucketize.ir import Binding
from bucketize.op import Array
from bucketize.ops import mask_segments
from bucketize.ragged.fact import BETWEEN, LOW, Fact, Form, Place, axis_of, is_zero
from bucketize.ragged.fold import local
from bucketize.ragged.packer import Packer


def multiplied(p: Packer, b: Binding) -> None:
    """Products with what all rows share, of tokens with tokens, and of weights with tokens."""
    x, y = b.args
    p.check_kept(b, [-1, -2])
    forms = p.form(x), p.form(y)
    summed = [-1 in p.axes.tokens(x.type.shape), -2 in p.axes.tokens(y.type.shape)]
    of_rows = -1 in p.axes.rows(x.type.shape), -2 in p.axes.rows(y.type.shape)
    if any(of_rows):
        p.refuse(b, f"it sums over rows: {x.type} by {y.type}")
    if any(summed):
        _weighted(p, b, summed)
        return
    _check_batches(p, b)
    args = [
        p.refit(b, a, b.out.type) if f is Form.ROW else p.atom(a)
        for a, f in zip(b.args, forms, strict=True)
    ]
    p.put(b, p.emit(b, args))


def _weighted(p: Packer, b: Binding, summed: Sequence[bool]) -> None:
    weights, x = b.args
    fact = p.fact(weights)
    if not all(summed) or p.form(weights) is not Form.PAIR or p.form(x) is not Form.TOKEN:
        p.refuse(b, f"it sums over tokens: {weights.type} by {x.type}")
    if not is_zero(fact.at.get(BETWEEN)):
        p.refuse(b, "weights between tokens of two rows are not 0: no softmax made them")
    if p.mask is not None and not is_zero(fact.at.get(-1)):
        p.refuse(b, f"{p.mask.name!r} does not make the weights of hidden tokens 0")
    _check_batches(p, b)
    p.put(b, p.emit(b, [p.atom(weights), p.atom(x)]))


def _check_batches(p: Packer, b: Binding) -> None:
    """Rows of both arguments are the same ones: they are along the same axis."""
    axes = {k for a in b.args for k in p.axes.rows(a.type.shape)}
    if len(axes) > 1:
        p.refuse(b, "rows of its arguments are along two axes")


def softened(p: Packer, b: Binding) -> None:
    """A softmax over features, or over the tokens of a row."""
    (x,) = b.args
    axis = axis_of(b)
    if axis not in p.axes.tokens(x.type.shape):
        local(p, b)
        return
    hidden = p.fact(x).at.get(axis)
    if p.mask is not None and (hidden is None or not hidden <= LOW):
        p.refuse(b, f"{p.mask.name!r} does not hide tokens from it: a sum over all of a row")
    if p.axes.tokens(x.type.shape) != [-1, -2] or axis != -1:
        p.refuse(b, f"it is over the tokens of {x.type}, not over the keys of queries")
    scores = p.out.emit(mask_segments, p.atom(x), p.ends, value=float("-inf"))
    zero = np.zeros((), x.type.dtype)
    at: dict[Place, Array] = {BETWEEN: zero}
    if hidden is not None:
        at[axis] = zero
    p.put(b, p.emit(b, [scores]), Fact(None, at))
