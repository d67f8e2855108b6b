"""A small writer of LLVM IR: integers, addresses and control. `emit.vector` has floats as well.

Integers (`Size`) fold while they are Python's; pointers are opaque and move by bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias

from llvmlite import ir

Size: TypeAlias = int | ir.Value
Values: TypeAlias = list[ir.Value]

BIT, BYTE, SHORT, INT, WORD = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
POINTER, VOID = ir.PointerType(), ir.VoidType()
FLOAT_BYTES, WORD_BYTES = 4, 8


@cache
def integer(x: int) -> ir.Constant:
    """`x` as a value: a kernel has few of them, thousands of times."""
    return ir.Constant(WORD, x)


class WordWriter:
    """Writes LLVM IR at the end of `builder`; loads of vectors are `lanes` wide."""

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
        inner = type(self)(ir.IRBuilder(function.append_basic_block()), self.lanes)
        body(inner, *function.args)
        inner.builder.ret_void()
        return function

    def call(self, function: ir.Function, arguments: Sequence[Size]) -> None:
        """A call of a function of this module."""
        self.builder.call(function, [self.word(a) for a in arguments])

    # --- integers and addresses ---------------------------------------------------------------

    def word(self, x: Size) -> ir.Value:
        """`x` as a value."""
        return integer(x) if isinstance(x, int) else x

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
        """The pointer moved by `offset` bytes, maybe to where there is nothing to be read."""
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

    def prefetch(self, pointer: ir.Value, locality: int) -> None:
        """Ask for the cache line to be brought into the first level, 3, or the second, 2."""
        fn = self.declare("llvm.prefetch.p0", VOID, [POINTER, INT, INT, INT])
        read, level, data = (ir.Constant(INT, n) for n in (0, locality, 1))
        self.builder.call(fn, [pointer, read, level, data])

    def intrinsic(self, name: str, *values: ir.Value) -> ir.Value:
        """An LLVM intrinsic whose operands and result have one type: `sqrt`, `floor`, ..."""
        kind = values[0].type
        fn = self.declare(f"llvm.{name}.{type_suffix(kind)}", kind, [kind] * len(values))
        return self.builder.call(fn, values)

    def declare(self, name: str, result: ir.Type, arguments: list[ir.Type]) -> ir.Function:
        """A function from elsewhere, by its name in this module."""
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


def type_suffix(kind: ir.Type) -> str:
    """`v16f32`, `i8`, `f64`: how the name of an intrinsic tells its type."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{type_suffix(kind.element)}"
    if isinstance(kind, ir.IntType):
        return str(kind)
    return str(kind.intrinsic_name)
