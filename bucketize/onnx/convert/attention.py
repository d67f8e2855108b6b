"""The converter of attention: to the ops that exporters write in its place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from onnx import helper

from bucketize.ir import Atom
from bucketize.onnx.convert.shape import reshaped
from bucketize.onnx.node import Node, Unread, Unsupported, converts
from bucketize.ops import shape as s
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.fill import arange
from bucketize.ops.linalg import matmul
from bucketize.ops.reduce import softmax
from bucketize.types import AnyDim, Dim

Groups: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class _Heads:
    """How many heads Q has, how many K and V, and whether they are an axis of their own."""

    queries: int
    keys: int
    apart: bool

    @property
    def groups(self) -> Groups:
        """The heads of Q as axes: where several share one of K and V, each such group is one."""
        shared = self.queries // self.keys
        return (self.queries,) if shared == 1 else (self.keys, shared)

    @property
    def key_groups(self) -> Groups:
        """The axes of K and V that stand beside them."""
        return (self.keys,) if len(self.groups) == 1 else (self.keys, 1)


@converts("Attention")
def _attention(n: Node) -> tuple[Atom, ...]:
    """softmax(scale Q K^T, capped and masked) V, and the keys and values, those of the past before.

    Rows of weights that are no numbers become 0 where a mask may hide a row whole.
    """
    n.attr("qk_matmul_output_mode")  # of the fourth output, which is not supported
    heads = _heads(n)
    pairs = [_held(n, n[i], n.optional(i + 3), heads) for i in (1, 2)]
    key, value = (_laid(n, x, apart, heads.key_groups) for x, apart in pairs)
    query = _laid(n, n[0], heads.apart, heads.groups)
    product = _product(n, query, key, _scale(n, query.type.shape[-1]))
    scores = _masked(n, _capped(n, product), heads)
    y = n.emit(matmul, _weights(n, scores), value)
    present = (_laid(n, x, apart, (heads.keys,)) for x, apart in pairs)
    return (_joined(n, y, heads), *(present if n.outputs > 1 else ()))


def _heads(n: Node) -> _Heads:
    """The numbers of heads: attributes, or the extents of an axis."""
    queries, keys = n.attr("q_num_heads"), n.attr("kv_num_heads")
    ranks = {len(n[i].type.shape) for i in range(3)}
    if ranks == {4}:
        queries, keys = (n[i].type.shape[1] for i in (0, 1))
    elif ranks != {3}:
        raise Unsupported(f"Q, K and V of ranks {sorted(ranks)}, expected 3 or 4 of all")
    if queries is None or keys is None:
        raise Unsupported("q_num_heads or kv_num_heads is left out")
    if not isinstance(queries, int) or not isinstance(keys, int):
        raise Unread(f"{queries} heads of Q and {keys} of K, expected known numbers")
    if min(queries, keys) < 1 or queries % keys:
        raise Unsupported(f"{queries} heads of Q cannot share {keys} of K")
    return _Heads(queries, keys, ranks == {4})


def _held(n: Node, x: Atom, past: Atom | None, heads: _Heads) -> tuple[Atom, bool]:
    """Keys or values, those of the past before them; and whether heads are an axis of theirs."""
    if past is None:
        return x, heads.apart
    new = _laid(n, x, heads.apart, (heads.keys,))
    return n.emit(s.concat, past, new, axis=2), True


def _laid(n: Node, x: Atom, apart: bool, groups: Groups) -> Atom:
    """`x` as [batch, *groups, length, elements]; its heads are `apart`, or side by side."""
    if apart:
        batch, _, length, elements = x.type.shape
        one = len(groups) == 1
        return x if one else reshaped(n, x, (batch, *groups, length, elements))
    batch, length, width = x.type.shape
    beside = reshaped(n, x, (batch, length, *groups, width // math.prod(groups)))
    behind = 2 + len(groups)
    return n.emit(s.transpose, beside, axes=(0, *range(2, behind), 1, behind))


def _joined(n: Node, y: Atom, heads: _Heads) -> Atom:
    """The inverse of `_laid`, of results."""
    batch, *groups, length, elements = y.type.shape
    if heads.apart:
        one = len(groups) == 1
        return y if one else reshaped(n, y, (batch, heads.queries, length, elements))
    behind = 1 + len(groups)
    beside = n.emit(s.transpose, y, axes=(0, behind, *range(1, behind), behind + 1))
    return reshaped(n, beside, (batch, length, heads.queries * elements))


def _product(n: Node, query: Atom, key: Atom, scale: float) -> Atom:
    """The product of Q and K^T, times `scale`.

    Of float16 the factors are scaled, as the standard has it: their product is finite where Q K^T
    is not.
    """
    rank, before = len(query.type.shape), query.type.dtype == np.float16 and scale > 0
    if before:
        root = n.like(query, math.sqrt(scale))
        query, key = (n.emit(e.mul, x, root) for x in (query, key))
    turned = n.emit(s.transpose, key, axes=(*range(rank - 2), rank - 1, rank - 2))
    product = n.emit(matmul, query, turned)
    return product if before else n.emit(e.mul, product, n.like(product, scale))


def _scale(n: Node, elements: Dim) -> float:
    scale: float | None = n.attr("scale")
    if scale is not None:
        return scale
    if not isinstance(elements, int):
        raise Unread(f"no scale is given, and heads have {elements} elements")
    return 1 / math.sqrt(elements)


def _capped(n: Node, scores: Atom) -> Atom:
    cap = n.attr("softcap", 0.0)
    if cap == 0:
        return scores
    ratio = n.emit(e.div, scores, n.like(scores, cap))
    return n.emit(e.mul, n.emit(e.tanh, ratio), n.like(scores, cap))


def _masked(n: Node, scores: Atom, heads: _Heads) -> Atom:
    """The scores with -inf where a mask, the end of the keys, or the order of time hides them."""
    mask, lengths = n.optional(3), n.optional(6)
    if mask is not None:
        mask = _as_long(n, _grouped(n, mask, heads), scores)
        truths = mask.type.dtype == bool
        scores = _hidden(n, mask, scores) if truths else n.emit(e.add, scores, mask)
    column = n.emit(arange, stop=_extent(scores, -1))
    rank = len(scores.type.shape)
    if lengths is not None:
        lengths = n.emit(s.unsqueeze, lengths, axes=tuple(range(1, rank)))
        scores = _hidden(n, n.emit(e.less, column, lengths), scores)
    if n.attr("is_causal", 0):
        scores = _hidden(n, n.emit(e.less_equal, column, _last(n, scores, lengths)), scores)
    return scores


def _last(n: Node, scores: Atom, lengths: Atom | None) -> Atom:
    """The last key that each row may see."""
    rows, past = _extent(scores, -2), n.optional(4)
    before = 0 if past is None else past.type.shape[2]
    start = before if lengths is None else -rows
    row = n.emit(s.unsqueeze, n.emit(arange, start=start, stop=start + rows), axes=(1,))
    return row if lengths is None else n.emit(e.add, lengths, row)


def _hidden(n: Node, seen: Atom, scores: Atom) -> Atom:
    return n.emit(e.where, seen, scores, n.like(scores, -math.inf))


def _extent(x: Atom, axis: int) -> Dim:
    dim = x.type.shape[axis]
    if isinstance(dim, AnyDim):
        raise Unread(f"the extents of the scores, {x.type}, are not known")
    return dim


def _grouped(n: Node, mask: Atom, heads: _Heads) -> Atom:
    """A mask with the axes that the heads of Q have."""
    shape = mask.type.shape
    if not shape:
        raise Unsupported(f"a mask of {mask.type}, which must have rank 1 or more")
    if len(heads.groups) == 1 or len(shape) < 3:
        return mask
    *batch, count, rows, columns = shape
    if count == 1:
        return n.emit(s.unsqueeze, mask, axes=(len(batch),))
    if count != heads.queries:
        raise Unsupported(f"a mask of {count} heads beside {heads.queries} of Q")
    return reshaped(n, mask, (*batch, *heads.groups, rows, columns))


def _as_long(n: Node, mask: Atom, scores: Atom) -> Atom:
    """A mask that hides the keys that it does not reach, as far as its length is known."""
    *batch, length = mask.type.shape
    missing = _extent(scores, -1) - length
    if not isinstance(length, int) or missing == 0:
        return mask
    hidden = 0 if mask.type.dtype == bool else -math.inf
    return n.emit(s.pad, mask, pads=(*((0, 0) for _ in batch), (0, missing)), value=hidden)


def _weights(n: Node, scores: Atom) -> Atom:
    """The softmax of scores, in the precision that is asked for."""
    code, dtype = n.attr("softmax_precision"), scores.type.dtype
    precision = dtype if code is None else helper.tensor_dtype_to_np_dtype(code)
    scores = scores if precision == dtype else n.emit(e.cast, scores, dtype=precision.name)
    weights = n.emit(softmax, scores, axis=len(scores.type.shape) - 1)
    if n.optional(3) is not None or n.optional(6) is not None:
        weights = n.emit(e.where, n.emit(e.isnan, weights), n.like(weights, 0), weights)
    return weights if precision == dtype else n.emit(e.cast, weights, dtype=dtype.name)
