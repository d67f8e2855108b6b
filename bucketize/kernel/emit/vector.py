"""Vector code: floats beside what `emit.writer` writes.

Floats are float32 vectors of any width, where width 1 is a scalar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite import ir

from bucketize.kernel.emit.writer import (
    BYTE,
    FLOAT_BYTES,
    INT,
    POINTER,
    SHORT,
    VOID,
    Size,
    WordWriter,
    type_suffix,
)


class BFloatType(ir.Type):  # type: ignore[misc]  # llvmlite is untyped
    """A bfloat16, which llvmlite does not know."""

    intrinsic_name = "bf16"

    def __str__(self) -> str:
        """The name that LLVM has for it."""
        return "bfloat"


FLOAT, BFLOAT = ir.FloatType(), BFloatType()


@cache
def vector_type(element: ir.Type, width: int) -> ir.Type:
    """`width` elements; one is a scalar."""
    return ir.VectorType(element, width) if width > 1 else element


def width_of(value: ir.Value) -> int:
    """The number of elements of a vector, 1 for a scalar."""
    return value.type.count if isinstance(value.type, ir.VectorType) else 1


class Splat(ir.Constant):  # type: ignore[misc]
    """One constant in every element of a vector, written once: most of a text was these."""

    def _get_reference(self) -> str:
        return f"splat ({self.constant[0]})"


def constant(element: ir.Type, value: Any, width: int) -> ir.Constant:
    """A number in every element, or what is undefined."""
    one = ir.Constant(element, value)
    return one if width == 1 else Splat(vector_type(element, width), [one] * width)


def is_nan(number: ir.Constant) -> bool:
    """Whether a constant, or the first element of a vector, is no number."""
    element = number.constant
    return is_nan(element[0]) if isinstance(element, list | tuple) else math.isnan(element)


@cache
def places(order: tuple[int, ...]) -> ir.Constant:
    """The elements that a shuffle takes."""
    kind = ir.Constant if any(order) else Splat
    return kind(vector_type(INT, len(order)), list(order))


class Writer(WordWriter):
    """Writes floats, too; `lanes` is the width of its loads."""

    def number(self, value: float, width: int | None = None) -> ir.Constant:
        """A float32 in every element."""
        return constant(FLOAT, float(value), width or self.lanes)

    def load(self, pointer: ir.Value, mask: ir.Value | None = None) -> ir.Value:
        """A vector from memory; where the mask is off, 0 and no access."""
        kind = vector_type(FLOAT, self.lanes)
        return self._loaded(pointer, kind, mask, FLOAT_BYTES, self.number(0))

    def _loaded(
        self, pointer: ir.Value, kind: ir.Type, mask: ir.Value | None, align: int, none: ir.Constant
    ) -> ir.Value:
        if mask is None:
            return self.builder.load(pointer, typ=kind, align=align)
        arguments = [POINTER, INT, mask.type, kind]
        fn = self.declare(f"llvm.masked.load.{type_suffix(kind)}.p0", kind, arguments)
        return self.builder.call(fn, [pointer, ir.Constant(INT, align), mask, none])

    def load_bfloat16(self, pointer: ir.Value) -> ir.Value:
        """A vector of bfloat16 from memory."""
        kind = vector_type(SHORT, self.lanes)
        bits = self.widened(self.builder.load(pointer, typ=kind, align=2), INT, signed=False)
        shifted = self.builder.shl(bits, constant(INT, 16, self.lanes))
        return self.builder.bitcast(shifted, vector_type(FLOAT, self.lanes))

    def load_int8(self, pointer: ir.Value) -> ir.Value:
        """A vector of signed bytes from memory, as floats."""
        kind = vector_type(BYTE, self.lanes)
        whole = self.widened(self.builder.load(pointer, typ=kind, align=1), INT, signed=True)
        return self.builder.sitofp(whole, vector_type(FLOAT, self.lanes))

    def widened(self, x: ir.Value, element: ir.Type, *, signed: bool) -> ir.Value:
        """Integers as wider ones."""
        kind = vector_type(element, width_of(x))
        return self.builder.sext(x, kind) if signed else self.builder.zext(x, kind)

    def load_splat(self, pointer: ir.Value) -> ir.Value:
        """One float32 from memory, in every element."""
        return self.splat(self.builder.load(pointer, typ=FLOAT, align=FLOAT_BYTES), self.lanes)

    def load_truths(self, pointer: ir.Value, mask: ir.Value | None = None) -> ir.Value:
        """Whether bytes in memory, each 0 or 1, are 1; where the mask is off, no access."""
        kind = vector_type(BYTE, self.lanes)
        none = constant(BYTE, 0, self.lanes)
        return self.builder.icmp_unsigned("!=", self._loaded(pointer, kind, mask, 1, none), none)

    def store(
        self,
        value: ir.Value,
        pointer: ir.Value,
        mask: ir.Value | None = None,
        size: int = FLOAT_BYTES,
    ) -> None:
        """A vector of elements of `size` bytes to memory; where the mask is off, no access."""
        if mask is None:
            self.builder.store(value, pointer, align=size)
            return
        arguments = [value.type, POINTER, INT, mask.type]
        fn = self.declare(f"llvm.masked.store.{type_suffix(value.type)}.p0", VOID, arguments)
        self.builder.call(fn, [value, pointer, ir.Constant(INT, size), mask])

    def mask(self, count: Size) -> ir.Value:
        """The first `count` of at least two lanes on; any count is fine."""
        inside = self.least(self.greatest(count, 0), self.lanes)
        limit = self.builder.trunc(self.word(inside), INT)
        lane = places(tuple(range(self.lanes)))
        return self.builder.icmp_signed("<", lane, self.splat(limit, self.lanes))

    def any_lane(self, mask: ir.Value) -> ir.Value:
        """Whether one of at least two lanes is on."""
        bits = ir.IntType(self.lanes)
        return self.builder.icmp_unsigned(
            "!=", self.builder.bitcast(mask, bits), ir.Constant(bits, 0)
        )

    def splat(self, scalar: ir.Value, width: int) -> ir.Value:
        """A scalar in every element."""
        if width == 1:
            return scalar
        blank = constant(scalar.type, ir.Undefined, width)
        first = self.builder.insert_element(blank, scalar, ir.Constant(INT, 0))
        return self.builder.shuffle_vector(first, blank, places((0,) * width))

    def shuffle(self, x: ir.Value, y: ir.Value, order: Sequence[int]) -> ir.Value:
        """The elements of `x`, then of `y`, that `order` counts."""
        return self.builder.shuffle_vector(x, y, places(tuple(order)))

    def folded(self, x: ir.Value, step: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
        """What `step`, which may take them in any order, makes of all elements: in each of them."""
        width = width_of(x)
        apart = width // 2
        while apart:
            x = step(x, self.shuffle(x, x, [lane ^ apart for lane in range(width)]))
            apart //= 2
        return x

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """The sum x * y + z, fused where the target can."""
        return self.intrinsic("fmuladd", x, y, z)

    def maximum(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The greater one; a NaN in either wins."""
        return self._select(">", x, y)

    def minimum(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The smaller one; a NaN in either wins."""
        return self._select("<", x, y)

    def _select(self, relation: str, x: ir.Value, y: ir.Value) -> ir.Value:
        if isinstance(y, ir.Constant):
            x, y = y, x
        if isinstance(x, ir.Constant) and is_nan(x):
            return x
        b = self.builder
        # The ordered comparison is false for NaN, so y is taken: one instruction on x86.
        picked = b.select(b.fcmp_ordered(relation, x, y), x, y)
        if isinstance(x, ir.Constant):
            return picked
        return b.select(b.fcmp_unordered("uno", x, x), x, picked)
