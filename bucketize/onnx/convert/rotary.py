"""The converter of rotary embeddings: to the ops that exporters write in its place."""

from __future__ import annotations

from bucketize.ir import Atom
from bucketize.onnx.convert.shape import reshaped
from bucketize.onnx.node import Node, Unread, Unsupported, converts, cut
from bucketize.ops import shape as s
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.index import gather


@converts("RotaryEmbedding")
def _rotary(n: Node) -> Atom:
    """Pairs of elements turned by angles: those of both halves, or neighbours."""
    x, interleaved = _apart(n), bool(n.attr("interleaved", 0))
    size = x.type.shape[-1]
    if not isinstance(size, int):
        raise Unread(f"heads of {size} elements, expected a known number")
    count = n.attr("rotary_embedding_dim", 0) or size
    if count % 2 or count > size:
        raise Unsupported(f"{count} of {size} elements are to be turned")
    cos, sin = (_factor(n, i, len(n[0].type.shape)) for i in (1, 2))
    part = x if count == size else cut(n, x, 3, 0, count)
    y = (_neighbours if interleaved else _halves)(n, part, cos, sin)
    if count < size:
        y = n.emit(s.concat, y, cut(n, x, 3, count, size), axis=3)
    return y if len(n[0].type.shape) == 4 else reshaped(n, y, n[0].type.shape)


def _apart(n: Node) -> Atom:
    """Heads as an axis: [N, heads, S, size], or [N, S, heads, size] where they lay side by side."""
    heads, shape = n.attr("num_heads", 0), n[0].type.shape
    if len(shape) == 4:
        return n[0]
    if len(shape) != 3:
        raise Unsupported(f"x of rank {len(shape)}, expected 3 or 4")
    if heads < 1:
        raise Unsupported(f"num_heads is {heads}")
    return reshaped(n, n[0], (*shape[:2], heads, shape[2] // heads))


def _factor(n: Node, i: int, rank: int) -> Atom:
    """A cache of cosines or sines, at the positions if there are any, beside heads."""
    at = n.optional(3)
    rows = n[i] if at is None else n.emit(gather, n[i], at, axis=0)
    return n.emit(s.unsqueeze, rows, axes=(1 if rank == 4 else 2,))


def _halves(n: Node, x: Atom, cos: Atom, sin: Atom) -> Atom:
    size = int(x.type.shape[-1])  # type: ignore[arg-type]
    low, high = cut(n, x, 3, 0, size // 2), n.emit(e.neg, cut(n, x, 3, size // 2, size))
    cos, sin = (n.emit(s.concat, f, f, axis=3) for f in (cos, sin))
    exchanged = n.emit(s.concat, high, low, axis=3)
    return n.emit(e.add, n.emit(e.mul, x, cos), n.emit(e.mul, exchanged, sin))


def _neighbours(n: Node, x: Atom, cos: Atom, sin: Atom) -> Atom:
    size = int(x.type.shape[-1])  # type: ignore[arg-type]
    even, odd = (cut(n, x, 3, first, size, 2) for first in (0, 1))
    real = n.emit(e.sub, n.emit(e.mul, even, cos), n.emit(e.mul, odd, sin))
    other = n.emit(e.add, n.emit(e.mul, even, sin), n.emit(e.mul, odd, cos))
    pair = (n.emit(s.unsqueeze, y, axes=(4,)) for y in (real, other))
    return reshaped(n, n.emit(s.concat, *pair, axis=4), x.type.shape)
