"""Converters of attention as onnxruntime joins it: to the standard's, with masks to be added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.convert.shape import extent, iota, reshaped
from bucketize.onnx.node import MICROSOFT, Node, Unsupported, converts, cut, standard, standard_all
from bucketize.ops import shape as s
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.fill import arange
from bucketize.ops.index import gather
from bucketize.types import AnyDim, Dim

Product: TypeAlias = Callable[[int, int], Atom]
"""The product of the input by the columns of the weights from one to another."""

HIDDEN = -10000.0  # what is added to the score of a key that a mask hides, unless a node says


@converts("Attention", domain=MICROSOFT)
def _attention(n: Node) -> tuple[Atom | None, ...]:
    """Q, K and V are one product of the input."""
    refuse(n, "do_rotary", "past_present_share_buffer", "rotary_embedding_dim")
    sizes = n.attr("qkv_hidden_sizes", ())

    def product(begin: int, end: int) -> Atom:
        return standard(n, "MatMul", n[0], columns(n, n[1], begin, end))

    parts = projected(n, product, n[1], n.optional(2), sizes)
    return of_past(n, parts, mask=n.optional(3), past=n.optional(4), bias=n.optional(5))


def projected(
    n: Node, product: Product, weights: Atom, bias: Atom | None, sizes: Sequence[int]
) -> list[Atom]:
    """Q, K and V, whose columns lie beside each other; alike many unless their counts are given."""
    whole = weights.type.shape[-1]
    if not sizes:
        if not isinstance(whole, int) or whole % 3:
            raise Unsupported(f"weights of {weights.type} for Q, K and V of one size")
        sizes = (whole // 3,) * 3
    ends = np.cumsum((0, *sizes)).tolist()
    if len(sizes) != 3 or ends[-1] != whole:
        raise Unsupported(f"Q, K and V of {sizes} columns, and weights of {weights.type}")
    parts = []
    for begin, end in pairwise(ends):
        y = product(begin, end)
        parts.append(y if bias is None else n.emit(e.add, y, columns(n, bias, begin, end)))
    return parts


def columns(n: Node, x: Atom, begin: int, end: int) -> Atom:
    """A part of the last axis, of a constant at once."""
    if isinstance(x, Const):
        return Const(np.ascontiguousarray(x.value[..., begin:end]))
    return cut(n, x, len(x.type.shape) - 1, begin, end)


def of_past(
    n: Node, parts: Sequence[Atom], *, mask: Atom | None, past: Atom | None, bias: Atom | None
) -> tuple[Atom | None, ...]:
    """Attention, and its keys and values as one tensor, as those of the past are."""
    halves = (Const(np.array(i)) for i in range(2))
    pasts = [None if past is None else n.emit(gather, past, i, axis=0) for i in halves]
    y, *present = _attended(n, parts, mask, bias, pasts)
    if n.outputs == 1:
        return (y,)
    if present[0].type.shape[-1] != present[1].type.shape[-1]:
        raise Unsupported(f"keys and values of {parts[1].type} and {parts[2].type} as one result")
    apart = (standard(n, "Unsqueeze", x, Const(np.array([0]))) for x in present)
    return y, n.emit(s.concat, *apart, axis=0)


@converts("MultiHeadAttention", domain=MICROSOFT)
def _multi_head(n: Node) -> tuple[Atom | None, ...]:
    """Q, K and V are there, and perhaps a bias for each; K and V may have heads as an axis."""
    for i, what in ((8, "past_sequence_length"), (9, "cache_indirection")):
        if n.optional(i) is not None:
            raise Unsupported(f"{what} is given, for a buffer that is shared")
    if n.optional(1) is None or n.optional(2) is None or len(n[1].type.shape) > 4:
        raise Unsupported("Q, K and V are packed in one tensor")
    parts = _biased(n, [n[i] for i in range(3)])
    past = [n.optional(6), n.optional(7)]
    apart = len(n[1].type.shape) == 4
    if apart:
        parts[0] = _apart(n, parts[0], n.attrs["num_heads"])
    y, *present = _attended(n, parts, n.optional(4), n.optional(5), past)
    return (_joined(n, y) if apart else y, *present)


def _biased(n: Node, parts: Sequence[Atom]) -> list[Atom]:
    """Q, K and V and the part of the bias of each, but those with heads as an axis."""
    bias, begin = n.optional(3), 0
    if bias is None:
        return [*parts]
    biased: list[Atom] = []
    for x in parts:
        end = begin + x.type.shape[-1]
        if not isinstance(end, int):
            raise Unsupported(f"a bias for {x.type}")
        apart = len(x.type.shape) == 4
        biased.append(x if apart else n.emit(e.add, x, columns(n, bias, begin, end)))
        begin = end
    return biased


def refuse(n: Node, *names: str) -> None:
    """Raise Unsupported for attributes that ask for what is not read."""
    for name in names:
        if value := n.attr(name, 0):
            raise Unsupported(f"{name} is {value}")


@converts("RotaryEmbedding", domain=MICROSOFT)
def _rotary(n: Node) -> Atom:
    """Positions come before the caches; one of them is that of the first row."""
    refuse(n, "is_packed_batching")
    if (scale := n.attr("scale", 1.0)) != 1:
        raise Unsupported(f"scale is {scale}")
    x, at, heads = n[0], n[1], n.attr("num_heads", 0)
    if at.type.shape == (1,):
        at = n.emit(e.add, at, iota(n, extent(n, x, len(x.type.shape) - 2)))
        at = n.emit(s.unsqueeze, at, axes=(0,))
    attrs = {name: n.attr(name, 0) for name in ("interleaved", "rotary_embedding_dim")}
    if not heads and len(x.type.shape) == 3:
        heads = _heads(x.type.shape[-1], n[2].type.shape[-1])
    return standard(n, "RotaryEmbedding", x, n[2], n[3], at, num_heads=heads, **attrs)


def _heads(width: Dim, angles: Dim) -> int:
    """How many heads of two elements for each angle there are."""
    if not isinstance(width, int) or not isinstance(angles, int) or width % (2 * angles):
        raise Unsupported(f"num_heads is left out, for {width} elements and {angles} angles")
    return width // (2 * angles)


# --- on the standard's ---------------------------------------------------------------------------


def _attended(
    n: Node,
    parts: Sequence[Atom],
    mask: Atom | None,
    bias: Atom | None,
    past: Sequence[Atom | None],
) -> list[Atom]:
    """Attention, and keys and values where a node has them: by the standard's converter."""
    heads = n.attr("num_heads")
    length = parts[1].type.shape[1 if len(parts[1].type.shape) == 3 else 2]
    if past[0] is not None:
        length = length + past[0].type.shape[2]
    added, hidden = bias, n.like(parts[0], n.attr("mask_filter_value", HIDDEN))
    if mask is not None:
        added = _hiding(n, mask, parts[0].type.shape[0], length, hidden)
        added = added if bias is None else n.emit(e.add, added, bias)
    attrs = {"q_num_heads": heads, "kv_num_heads": heads, "scale": n.attr("scale")}
    attrs["is_causal"] = n.attr("unidirectional", 0)
    rows = parts[0].type.shape[-2]
    if attrs["is_causal"] and past[0] is None and rows != length:
        raise Unsupported(f"in order, {rows} rows beside {length} keys")
    operands = *parts, added, *past
    results = standard_all(n, "Attention", 3 if n.outputs > 1 else 1, *operands, **attrs)
    return [x for x in results if x is not None]


def _hiding(n: Node, mask: Atom, batch: Dim, length: Dim, hidden: Const) -> Atom:
    """What is added to scores: 0 for keys that a mask shows, `hidden` for others.

    A mask has a number above 0 for each key to be seen, for all rows or for each; or it tells where
    keys end, or, behind all ends, where they begin.
    """
    shape = mask.type.shape
    if len(shape) == 1:
        seen = _between(n, mask, batch, length)
    elif len(shape) in (2, 3):
        seen = n.emit(e.greater, _of_length(n, mask, length), n.like(mask, 0))
    else:
        raise Unsupported(f"a mask of {mask.type}")
    axes = (1,) if len(shape) == 3 else (1, 2)
    return n.emit(e.where, n.emit(s.unsqueeze, seen, axes=axes), n.like(hidden, 0), hidden)


def _of_length(n: Node, mask: Atom, length: Dim) -> Atom:
    """A mask of so many keys, which a run checks where types do not tell."""
    *before, own = mask.type.shape
    fits = own == length or isinstance(own, AnyDim) or isinstance(length, AnyDim)
    return mask if fits else n.emit(s.reshape, mask, newshape=(*before, length))


def _between(n: Node, mask: Atom, batch: Dim, length: Dim) -> Atom:
    """Which keys are before the end of their text, and not before its beginning: [B, T]."""
    (count,) = mask.type.shape
    if isinstance(length, AnyDim) or isinstance(batch, AnyDim) or isinstance(count, AnyDim):
        raise Unsupported(f"lengths of {mask.type} beside {length} keys of {batch} texts")
    place = n.emit(arange, stop=length)
    rows = n.emit(s.unsqueeze, mask, axes=(1,))
    if count == batch:
        return n.emit(e.less, place, n.emit(e.cast, rows, dtype="int64"))
    if count != 2 * batch:
        raise Unsupported(f"{mask.type} of lengths for {batch} texts")
    ends, begins = (
        n.emit(e.cast, cut(n, rows, 0, *part), dtype="int64")
        for part in ((0, batch), (batch, count))
    )
    inside = n.emit(e.less, place, ends)
    return n.emit(e.where, n.emit(e.less, place, begins), Const(np.array(False)), inside)


def _apart(n: Node, x: Atom, heads: int) -> Atom:
    """[B, S, heads * size] as [B, heads, S, size]."""
    batch, length, width = x.type.shape
    beside = reshaped(n, x, (batch, length, heads, width // heads))
    return n.emit(s.transpose, beside, axes=(0, 2, 1, 3))


def _joined(n: Node, y: Atom) -> Atom:
    """[B, heads, S, size] as [B, S, heads * size]."""
    batch, heads, length, size = y.type.shape
    return reshaped(n, n.emit(s.transpose, y, axes=(0, 2, 1, 3)), (batch, length, heads * size))
