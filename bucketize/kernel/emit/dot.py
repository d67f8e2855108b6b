"""Instructions that multiply short numbers and add several products to a sum of 32 bits."""

from __future__ import annotations

from llvmlite import ir

from bucketize.kernel.emit.vector import BFLOAT, Writer, vector_type
from bucketize.kernel.emit.writer import BYTE
from bucketize.machine.present import ARM, system_of

DOT, PAIR = 4, 2
"""How many bytes of each factor a lane has, and how many bfloat16."""


def dot_bytes(
    w: Writer, total: ir.Value, x: ir.Value, y: ir.Value, *, signed: bool = False
) -> ir.Value:
    """The sums and four products each, of bytes of `x`, which may be `signed`, and signed ones."""
    name = f"llvm.x86.avx512.vpdpbusd.{32 * w.lanes}"
    if not _is_arm(w):
        return w.builder.call(w.declare(name, total.type, [total.type] * 3), [total, x, y])
    dot = "sdot" if signed else "usdot"
    name = f"llvm.aarch64.neon.{dot}.v{w.lanes}i32.v{DOT * w.lanes}i8"
    return _call(w, name, vector_type(BYTE, DOT * w.lanes), total, x, y)


def dot_bfloat16(w: Writer, total: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """The sums and two products each, of pairs of bfloat16 that are loaded as floats.

    `x` may be one pair in every lane, which Arm wants last, to take it from where it lies.
    """
    pairs = vector_type(BFLOAT, PAIR * w.lanes)
    if _is_arm(w):
        name = f"llvm.aarch64.neon.bfdot.v{w.lanes}f32.v{PAIR * w.lanes}bf16"
        return _call(w, name, pairs, total, y, x)
    return _call(w, f"llvm.x86.avx512bf16.dpbf16ps.{32 * w.lanes}", pairs, total, x, y)


def as_bfloat16(w: Writer, value: ir.Value) -> ir.Value:
    """Floats as the nearest bfloat16, where the processor has them."""
    return w.builder.fptrunc(value, vector_type(BFLOAT, w.lanes))


def _is_arm(w: Writer) -> bool:
    return system_of(w.module.triple)[0] == ARM


def _call(w: Writer, name: str, kind: ir.Type, total: ir.Value, *factors: ir.Value) -> ir.Value:
    """An instruction over sums and factors as it has them."""
    dot = w.declare(name, total.type, [total.type, kind, kind])
    return w.builder.call(dot, [total, *(w.builder.bitcast(x, kind) for x in factors)])
