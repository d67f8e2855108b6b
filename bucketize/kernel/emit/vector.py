"""Vector code: a small writer of LLVM IR.

Integers (`Size`) fold while they are Python's; pointers are opaque and move by bytes; floats are
float32 vectors of any width, where width 1 is a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias

from llvmlite import ir

Size: TypeAlias = int | ir.Value
Values: TypeAlias = list[ir.Value]


class BFloatType(ir.Type):  # type: ignore[misc]  # llvmlite is untyped
    """A bfloat16, which llvmlite does not know."""

    intrinsic_name = "bf16"

    def __str__(self) -> str:
        """As LLVM calls it."""
        return "bfloat"


BIT, BYTE, SHORT, INT, WORD = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
FLOAT, BFLOAT = ir.FloatType(), BFloatType()
POINTER, VOID = ir.PointerType(), ir.VoidType()
FLOAT_BYTES, WORD_BYTES = 4, 8


@cache
def vector_type(element: ir.Type, width: int) -> ir.Type:
    """`width` elements; one is a scalar."""
    return ir.VectorType(element, width) if width > 1 else element


def width_of(value: ir.Value) -> int:
    """The number of elements of a vector, 1 for a scalar."""
    return value.type.count if isinstance(value.type, ir.VectorType) else 1


def constant(element: ir.Type, value: float, width: int) -> ir.Constant:
    """The same number in every element."""
    if width == 1:
        return ir.Constant(element, value)
    return ir.Constant(vector_type(element, width), [ir.Constant(element, value)] * width)


@cache
def places(order: tuple[int, ...]) -> ir.Constant:
    """The elements that a shuffle takes."""
    return ir.Constant(ir.VectorType(INT, len(order)), list(order))


class Writer:
    """Writes LLVM IR at the end of `builder`; `lanes` is the width of its loads."""

    def __init__(self, builder: ir.IRBuilder, lanes: int = 1) -> None:
        self.builder = builder
        self.lanes = lanes

    @property
    def module(self) -> ir.Module:
        """The module that the function is in."""
        return self.builder.module

    def define(
        self, suffix: str, parameters: Sequence[ir.Type], body: Callable[..., None]
    ) -> ir.Function:
        """A new function, private to this module and never inlined: `body(writer, *arguments)`."""
        name = f"{self.builder.function.name}.{suffix}"
        function = ir.Function(self.module, ir.FunctionType(VOID, parameters), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        inner = Writer(ir.IRBuilder(function.append_basic_block()), self.lanes)
        body(inner, *function.args)
        inner.builder.ret_void()
        return function

    def call(self, function: ir.Function, arguments: Sequence[Size]) -> None:
        """A call of a function of this module."""
        self.builder.call(function, [self.word(a) for a in arguments])

    # --- integers and addresses ---------------------------------------------------------------

    def word(self, x: Size) -> ir.Value:
        """`x` as a value."""
        return ir.Constant(WORD, x) if isinstance(x, int) else x

    def add(self, x: Size, y: Size) -> Size:
        """The sum."""
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        if 0 in (x, y):
            return y if x == 0 else x
        return self.builder.add(self.word(x), self.word(y), flags=["nsw"])

    def sub(self, x: Size, y: Size) -> Size:
        """The difference x - y."""
        if isinstance(y, int):
            return self.add(x, -y)
        return self.builder.sub(self.word(x), self.word(y), flags=["nsw"])

    def mul(self, x: Size, y: Size) -> Size:
        """The product."""
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        if 0 in (x, y):
            return 0
        if 1 in (x, y):
            return y if x == 1 else x
        return self.builder.mul(self.word(x), self.word(y), flags=["nsw"])

    def div(self, x: Size, y: Size) -> Size:
        """The quotient x // y of numbers that are not negative."""
        if isinstance(x, int) and isinstance(y, int):
            return x // y
        return x if y == 1 else self.builder.udiv(self.word(x), self.word(y))

    def ceildiv(self, x: Size, y: Size) -> Size:
        """The quotient x / y rounded up, of numbers that are not negative."""
        return self.div(self.sub(self.add(x, y), 1), y)

    def least(self, x: Size, y: Size) -> Size:
        """The smaller of two integers."""
        return self._pick("<", x, y)

    def greatest(self, x: Size, y: Size) -> Size:
        """The greater of two integers."""
        return self._pick(">", x, y)

    def _pick(self, relation: str, x: Size, y: Size) -> Size:
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y) if relation == "<" else max(x, y)
        a, b = self.word(x), self.word(y)
        return self.builder.select(self.builder.icmp_signed(relation, a, b), a, b)

    def compare(self, x: Size, relation: str, y: Size) -> ir.Value:
        """Whether the signed integers x and y stand in this relation."""
        return self.builder.icmp_signed(relation, self.word(x), self.word(y))

    def pointer(self, address: ir.Value) -> ir.Value:
        """The address as a pointer."""
        return self.builder.inttoptr(address, POINTER)

    def at(self, pointer: ir.Value, offset: Size) -> ir.Value:
        """The pointer moved by `offset` bytes."""
        if isinstance(offset, int) and offset == 0:
            return pointer
        return self.builder.gep(pointer, [self.word(offset)], inbounds=True, source_etype=BYTE)

    def beyond(self, pointer: ir.Value, offset: Size) -> ir.Value:
        """The same, maybe to where there is nothing to be read."""
        return self.builder.gep(pointer, [self.word(offset)], source_etype=BYTE)

    def item(self, pointer: ir.Value, index: Size, size: int = FLOAT_BYTES) -> ir.Value:
        """The pointer to element `index` of an array of elements of `size` bytes."""
        return self.at(pointer, self.mul(index, size))

    def load_word(self, table: ir.Value, index: Size) -> ir.Value:
        """Element `index` of an array of 64-bit integers."""
        return self.builder.load(self.item(table, index, WORD_BYTES), typ=WORD, align=8)

    def load_pointer(self, table: ir.Value, index: Size) -> ir.Value:
        """Element `index` of an array of addresses, as a pointer."""
        return self.builder.load(self.item(table, index, WORD_BYTES), typ=POINTER, align=8)

    def store_pointer(self, value: ir.Value, table: ir.Value, index: Size) -> None:
        """Put a pointer or an address into element `index` of an array of addresses."""
        self.builder.store(value, self.item(table, index, WORD_BYTES), align=8)

    def scratch(self, bytes_: int) -> ir.Value:
        """Memory on the stack, for as long as the function runs."""
        with self.builder.goto_entry_block():
            memory = self.builder.alloca(ir.ArrayType(BYTE, bytes_))
            memory.align = 64
            return self.pointer(self.builder.ptrtoint(memory, WORD))  # llvmlite types it else

    # --- floats --------------------------------------------------------------------------------

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
        fn = self.declare(f"llvm.masked.load.{_suffix(kind)}.p0", kind, arguments)
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
        """As `load`, of bytes that are 0 or 1: whether they are 1."""
        kind = vector_type(BYTE, self.lanes)
        none = constant(BYTE, 0, self.lanes)
        return self.builder.icmp_unsigned("!=", self._loaded(pointer, kind, mask, 1, none), none)

    def splat_truth(self, pointer: ir.Value) -> ir.Value:
        """Whether one byte from memory is 1, in every element."""
        byte = self.builder.load(pointer, typ=BYTE, align=1)
        return self.splat(self.builder.icmp_unsigned("!=", byte, ir.Constant(BYTE, 0)), self.lanes)

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
        fn = self.declare(f"llvm.masked.store.{_suffix(value.type)}.p0", VOID, arguments)
        self.builder.call(fn, [value, pointer, ir.Constant(INT, size), mask])

    def prefetch(self, pointer: ir.Value, locality: int) -> None:
        """Ask for the cache line to be brought into the first level, 3, or the second, 2."""
        fn = self.declare("llvm.prefetch.p0", VOID, [POINTER, INT, INT, INT])
        read, level, data = (ir.Constant(INT, n) for n in (0, locality, 1))
        self.builder.call(fn, [pointer, read, level, data])

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
        blank = ir.Constant(vector_type(scalar.type, width), ir.Undefined)
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

    def intrinsic(self, name: str, *values: ir.Value) -> ir.Value:
        """An LLVM intrinsic whose operands and result have one type: `sqrt`, `floor`, ..."""
        kind = values[0].type
        fn = self.declare(f"llvm.{name}.{_suffix(kind)}", kind, [kind] * len(values))
        return self.builder.call(fn, values)

    def maximum(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The greater one; a NaN in either wins."""
        return self._select(">", x, y)

    def minimum(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The smaller one; a NaN in either wins."""
        return self._select("<", x, y)

    def _select(self, relation: str, x: ir.Value, y: ir.Value) -> ir.Value:
        if isinstance(y, ir.Constant):
            x, y = y, x
        b = self.builder
        # The ordered comparison is false for NaN, so y is taken: one instruction on x86.
        picked = b.select(b.fcmp_ordered(relation, x, y), x, y)
        if isinstance(x, ir.Constant):
            return picked
        return b.select(b.fcmp_unordered("uno", x, x), x, picked)

    def clamp(self, x: ir.Value, low: float, high: float) -> ir.Value:
        """`x` kept in [low, high]; NaN stays."""
        width = width_of(x)
        return self.maximum(self.minimum(x, self.number(high, width)), self.number(low, width))

    def declare(self, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
        declared = self.module.globals.get(name)
        return declared or ir.Function(self.module, ir.FunctionType(result, arguments), name)

    # --- control -------------------------------------------------------------------------------

    def loop(
        self,
        start: Size,
        stop: Size,
        body: Callable[[ir.Value, Values], Values | None],
        carried: Sequence[ir.Value] = (),
        step: Size = 1,
        *,
        below_zero: bool = False,
    ) -> Values:
        """`for i in range(start, stop, step): carried = body(i, carried)`; gives the last ones.

        It may begin `below_zero` if it says so.
        """
        b, first, last = self.builder, self.word(start), self.word(stop)
        before, inside, after = b.block, b.append_basic_block("loop"), b.append_basic_block("done")
        b.cbranch(b.icmp_signed("<", first, last), inside, after)
        b.position_at_end(inside)
        index = b.phi(WORD)
        index.add_incoming(first, before)
        turned = [self.phi((v, before)) for v in carried]
        new = body(index, list(turned)) or []
        flags = ["nsw"] if below_zero else ["nsw", "nuw"]
        following, end = b.add(index, self.word(step), flags=flags), b.block
        index.add_incoming(following, end)
        for phi, value in zip(turned, new, strict=True):
            phi.add_incoming(value, end)
        b.cbranch(b.icmp_signed("<", following, last), inside, after)
        b.position_at_end(after)
        return [self.phi((v, before), (n, end)) for v, n in zip(carried, new, strict=True)]

    def phi(self, *incoming: tuple[ir.Value, ir.Block]) -> ir.Value:
        """The value that belongs to the block control came from."""
        phi = self.builder.phi(incoming[0][0].type)
        for value, block in incoming:
            phi.add_incoming(value, block)
        return phi

    def when(
        self,
        condition: ir.Value,
        body: Callable[[], None],
        orelse: Callable[[], None] | None = None,
    ) -> None:
        """`if condition: body() else: orelse()`."""
        if orelse is None:
            with self.builder.if_then(condition):
                body()
            return
        with self.builder.if_else(condition) as (then, otherwise):
            with then:
                body()
            with otherwise:
                orelse()

    @contextmanager
    def cases(self, value: ir.Value) -> Iterator[Callable[[int], Any]]:
        """`switch (value)`: `with w.cases(v) as case: with case(1): ...`; no case, nothing done."""
        b = self.builder
        end = b.append_basic_block("end")
        switch = b.switch(value, end)

        @contextmanager
        def case(key: int) -> Iterator[None]:
            block = b.append_basic_block(f"case{key}")
            switch.add_case(ir.Constant(WORD, key), block)
            b.position_at_end(block)
            yield
            b.branch(end)

        yield case
        b.position_at_end(end)


def _suffix(kind: ir.Type) -> str:
    """`v16f32`, `i8`, `f64`: how the name of an intrinsic tells its type."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_suffix(kind.element)}"
    if isinstance(kind, ir.IntType):
        return str(kind)
    return str(kind.intrinsic_name)
