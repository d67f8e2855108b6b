"""The converter of decoders' attention, whose heads share keys and values, behind a cache."""

from __future__ import annotations

from functools import partial, reduce
from itertools import pairwise

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.contrib.attention import columns, refuse
from bucketize.onnx.node import MICROSOFT, Node, Unsupported, cast, converts, standard, standard_all
from bucketize.ops import shape as s
from bucketize.ops.dim import from_dims
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.fill import arange, full
from bucketize.ops.index import gather
from bucketize.types import Dim


@converts("GroupQueryAttention", domain=MICROSOFT)
def _grouped(n: Node) -> tuple[Atom | None, ...]:
    """Heads that share keys and values, in order, behind a cache that each call makes longer.

    A run refuses other caches: those that a call fills, and those of texts of unequal lengths.
    """
    refuse(n, "qk_output", "sliding_window_cache", "kv_cache_bit_width")
    if n.attr("smooth_softmax", -1) > 0 or any(n.optional(i) for i in (9, *range(11, 17))):
        raise Unsupported("position_ids, sinks, norms, or what a cache of bytes needs is given")
    for name in ("k_quant_type", "v_quant_type"):
        n.choice(name, "NONE")
    heads, keys = n.attr("num_heads"), n.attr("kv_num_heads")
    parts, past = _three(n, heads, keys), [n.optional(3), n.optional(4)]
    before: Dim = 0 if past[0] is None else past[0].type.shape[2]
    rows = parts[0].type.shape[1]
    none = _checked(n, before, rows)
    if n.attr("do_rotary", 0):
        first = n.emit(e.add, none, n.emit(from_dims, dims=(before,), scalar=True))
        at = n.emit(e.add, n.emit(s.unsqueeze, first, axes=(1,)), n.emit(arange, stop=rows))
        turn = partial(standard, n, "RotaryEmbedding", interleaved=n.attr("rotary_interleaved", 0))
        parts[0] = turn(parts[0], n[7], n[8], at, num_heads=heads)
        parts[1] = turn(parts[1], n[7], n[8], at, num_heads=keys)
    masks = [n.optional(10), _shown(n, none, before + rows)]
    if (window := n.attr("local_window_size", -1)) > 0:
        masks.append(_near(n, before, rows, window))
    mask = reduce(partial(n.emit, e.add), (x for x in masks if x is not None))
    attrs = {"q_num_heads": heads, "kv_num_heads": keys, "is_causal": n.attr("causal", 1)}
    attrs |= {"scale": n.attr("scale") or None, "softcap": n.attr("softcap", 0.0)}
    return standard_all(n, "Attention", 3, *parts, mask, *past, **attrs)


def _shown(n: Node, none: Atom, length: Dim) -> Atom:
    """A mask that hides nothing, of the zeros of `_checked`, which a run then cannot leave out."""
    dtype = n[0].type.dtype.name
    zeros = n.emit(full, shape=(length,), value=0.0, dtype=dtype)
    return n.emit(e.add, n.emit(s.unsqueeze, cast(n, none, dtype), axes=(1, 2, 3)), zeros)


def _three(n: Node, heads: int, keys: int) -> list[Atom]:
    """Q, K and V: as they are, or the columns of one tensor."""
    if n.optional(1) is not None and n.optional(2) is not None:
        return [n[i] for i in range(3)]
    width = n[0].type.shape[-1]
    if not isinstance(width, int) or width % (heads + 2 * keys):
        raise Unsupported(f"{n[0].type} for Q, K and V of {heads} and {keys} heads")
    size = width // (heads + 2 * keys)
    ends = np.cumsum((0, heads * size, keys * size, keys * size)).tolist()
    return [columns(n, n[0], *part) for part in pairwise(ends)]


def _checked(n: Node, before: Dim, rows: Dim) -> Atom:
    """Zeros, [B]; a run has an error where the rows of a text are not behind the whole cache.

    In a first call, without a cache, texts may be shorter than their rows.
    """
    last, total = (n.emit(e.cast, n[i], dtype="int64") for i in (5, 6))
    length, count = (n.emit(from_dims, dims=(d,), scalar=True) for d in (before, rows))
    seen = n.emit(e.sub, n.emit(e.add, last, Const(np.array(1))), count)
    seen = n.emit(e.maximum_, seen, Const(np.array(0)))
    whole = n.emit(e.add, length, count)
    fits = n.emit(e.logical_and, n.emit(e.equal, seen, length), n.emit(e.equal, total, whole))
    beyond = n.emit(e.cast, n.emit(e.logical_not, fits), dtype="int64")
    return n.emit(gather, Const(np.zeros(1, np.int64)), beyond, axis=0)


def _near(n: Node, before: Dim, rows: Dim, window: int) -> Atom:
    """What is added to scores: -inf for keys that are further back than a window."""
    row = n.emit(s.unsqueeze, n.emit(arange, start=before, stop=before + rows), axes=(1,))
    first = n.emit(e.sub, row, Const(np.array(window - 1)))
    near = n.emit(e.less_equal, first, n.emit(arange, stop=before + rows))
    return n.emit(e.where, near, n.like(n[0], 0), n.like(n[0], -np.inf))
