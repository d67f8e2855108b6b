"""Converters of weights of few bits: numbers of 2, 4 or 8 bits, and a scale for each block of them.

They become floats when a model is read: products with them are exact, and take what floats take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketize.ir import Atom, Const
from bucketize.onnx.contrib.fused import total_of
from bucketize.onnx.convert.shape import reshaped
from bucketize.onnx.node import MICROSOFT, Node, Unsupported, cast, converts, cut, standard
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.elementwise.bits import bitwise_and, right_shift
from bucketize.ops.shape import concat, tile, unsqueeze
from bucketize.types import Dim
from bucketize.types.number import kind_of

BITS = (2, 4, 8)
BYTE = 8


@converts("MatMulNBits", domain=MICROSOFT)
def _matmul_bits(n: Node) -> Atom:
    """`a @ w.T`, for w of [N, K] in blocks along K."""
    rows, depth, bits = n.attr("N"), n.attr("K"), n.attr("bits", 4)
    block = n.attr("block_size")
    n.attr("accuracy_level")  # how far the other factor may be rounded: it is not
    if bits not in BITS or n.attr("weight_prepacked", 0) or n.optional(4) is not None:
        raise Unsupported(f"{bits} bits, packed weights or g_idx; known: bits of {BITS}")
    packed, scales = _known(n, 1), _known(n, 2)
    zeros = None if n.optional(3) is None else _known(n, 3)
    blocks = -(-depth // block)
    numbers = _unpacked(packed.reshape(rows, blocks, -1), bits).reshape(rows, blocks, block)
    steps = scales.reshape(rows, blocks, 1).astype(np.float32)
    moved = numbers - _zeros(zeros, rows, blocks, bits)
    weights = (moved * steps).reshape(rows, -1)[:, :depth]
    matrix = np.ascontiguousarray(weights.T).astype(n[0].type.dtype)
    y = standard(n, "MatMul", n[0], Const(matrix))
    return total_of(n, y, n.optional(5))


def _zeros(zeros: NDArray[Any] | None, rows: int, blocks: int, bits: int) -> NDArray[np.float32]:
    """The zero point of each block, [rows, blocks, 1]: numbers, packed ones, or the middle."""
    if zeros is None:
        return np.full((rows, blocks, 1), 1 << (bits - 1), np.float32)
    if kind_of(zeros.dtype) == "u":
        zeros = _unpacked(zeros.reshape(rows, -1), bits)[:, :blocks]
    return zeros.reshape(rows, blocks, 1).astype(np.float32)


def _unpacked(packed: NDArray[np.uint8], bits: int) -> NDArray[np.float32]:
    """The numbers that bytes hold along their last axis, the low bits of each first."""
    shifts = np.arange(0, BYTE, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1).astype(np.float32)


def _known(n: Node, i: int) -> NDArray[Any]:
    """A constant operand."""
    x = n[i]
    if not isinstance(x, Const):
        raise Unsupported(f"input {i}, {x.type}, is known only at run time")
    return x.value


@converts("GatherBlockQuantized", domain=MICROSOFT)
def _gather_blocks(n: Node) -> Atom:
    """Rows of a table in blocks along its last axis: gathered as they are, then made floats."""
    bits, block, table = n.attr("bits", 4), n.attr("block_size", 128), n[0].type
    axes = n.front((n.attr("gather_axis", 0), n.attr("quantize_axis", 1)))
    if bits not in BITS or axes != (0, len(table.shape) - 1) or axes[1] == 0:
        raise Unsupported(f"rows along {axes} of {bits} bits in {table}, expected the last axis")
    packed = table.dtype == np.uint8
    bits = bits if packed else BYTE
    rows, steps = (standard(n, "Gather", n[i], n[1]) for i in (0, 2))
    zeros = n.optional(3) and standard(n, "Gather", n[3], n[1])
    middle: Atom = n.like(steps, 1 << (bits - 1) if packed else 0)
    count = table.shape[-1] * (BYTE // bits)
    if zeros is not None:
        middle = _each(n, _floats(n, zeros, bits, steps.type.shape[-1]), block, count)
    moved = n.emit(e.sub, _floats(n, rows, bits, count), middle)
    return n.emit(e.mul, moved, _each(n, steps, block, count))


def _each(n: Node, x: Atom, block: int, count: Dim) -> Atom:
    """What blocks have as each of their numbers has it, of which the last block may have fewer."""
    axis = len(x.type.shape)
    behind = n.emit(unsqueeze, x, axes=(axis,))
    whole = (*x.type.shape[:-1], x.type.shape[-1] * block)
    each = reshaped(n, n.emit(tile, behind, repeats=(*(1,) * axis, block)), whole)
    return each if whole[-1] == count else cut(n, each, axis - 1, 0, count)


def _floats(n: Node, x: Atom, bits: int, count: Dim) -> Atom:
    """`count` numbers along the last axis as floats, of bytes that hold them, or as they are."""
    if bits < BYTE:
        mask, rank = n.like(x, (1 << bits) - 1), len(x.type.shape)
        shifted = (n.emit(right_shift, x, n.like(x, by)) for by in range(0, BYTE, bits))
        apart = (n.emit(bitwise_and, y, mask) for y in shifted)
        pairs = n.emit(concat, *(n.emit(unsqueeze, y, axes=(rank,)) for y in apart), axis=rank)
        wide = x.type.shape[-1] * (BYTE // bits)
        x = reshaped(n, pairs, (*x.type.shape[:-1], wide))
        x = x if wide == count else cut(n, x, rank - 1, 0, count)
    return cast(n, x, n[2].type.dtype.name)
