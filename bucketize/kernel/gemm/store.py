"""How values leave a kernel: the words that tell their places, the epilogue, and the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from llvmlite import ir

from bucketize.kernel.emit.dot import as_bfloat16
from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import POINTER, WORD, WORD_BYTES, Size, Values
from bucketize.kernel.gemm.epilogue import Epilogue
from bucketize.machine.target import LINE
from bucketize.ops.rounding import PLAIN


def block_names(inputs: int, dims: Iterable[str]) -> tuple[str, ...]:
    """The words of the argument block of a kernel with so many inputs and these dims."""
    return ("out", *(f"in{i}" for i in range(inputs)), "workspace", "begin", "end", *dims)


class Words:
    """Named 64-bit words in memory."""

    def __init__(self, w: Writer, memory: ir.Value, names: Sequence[str]) -> None:
        self.w, self.memory = w, memory
        self.places = {name: i for i, name in enumerate(names)}

    @classmethod
    def new(cls, w: Writer, names: Sequence[str]) -> Words:
        """Words on the stack."""
        return cls(w, w.scratch(len(names) * WORD_BYTES), names)

    def word(self, name: str) -> ir.Value:
        return self.w.load_word(self.memory, self.places[name])

    def pointer(self, name: str) -> ir.Value:
        return self.w.load_pointer(self.memory, self.places[name])

    def put(self, name: str, value: Size) -> None:
        self.w.store_pointer(self.w.word(value), self.memory, self.places[name])

    def move(self, name: str, bytes_: Size) -> None:
        """Move a pointer on."""
        self.put(name, self.w.add(self.word(name), bytes_))


def put_rows(w: Writer, frame: Words, a: ir.Value, step: Size, count: int) -> None:
    """Tell the first of some tiles the addresses of its rows of A, which lie evenly.

    Each is a word, though one would do: of those that follow from one another LLVM makes some anew
    in each turn of a tile's loop.
    """
    for m in range(count):
        frame.put(f"row{m}", a)
        a = w.beyond(a, step)
    frame.put("row_step", step)


def put_ahead(w: Writer, frame: Words, b: ir.Value, bytes_: Size, tiles: Size) -> ir.Value:
    """Tell the first of some tiles which part of what follows their part of B it is to fetch.

    The tiles share what comes next. One that is alone, which is given, reads B as a stream.
    """
    lines = w.ceildiv(w.ceildiv(bytes_, LINE), tiles)
    alone = w.compare(tiles, "==", 1)
    frame.put("ahead", w.at(b, bytes_))
    frame.put("lines", w.builder.select(alone, w.word(0), w.word(lines)))
    return alone


class StoreForm(Protocol):
    """The form of a kernel that stores through `Store`: its blocks and frames hold what it reads.

    In the block `c_step` and each operand's `e{i}_step`, the bytes from one row to the next; in the
    frame `c` and each `e{i}`, where row 0 begins, and for `finish` the `columns` that are left.
    """

    @property
    def width(self) -> int: ...
    @property
    def epilogue(self) -> Epilogue: ...
    @property
    def block_names(self) -> tuple[str, ...]: ...
    @property
    def frame_names(self) -> tuple[str, ...]: ...


def finisher(w: Writer, form: StoreForm, suffix: str = "finish") -> ir.Function:
    """A function of sums that lie in memory: void(block, frame, sums, width, first, height).

    It does the epilogue of `height` rows of `width` of them, and stores them from row `first` on,
    as many columns as there are.
    """

    def body(w: Writer, *arguments: ir.Value) -> None:
        block, frame, sums, width, first, height = arguments
        store = Store(w, form, block, frame)
        columns = w.least(store.frame.word("columns"), width)
        whole = w.mul(w.div(columns, w.lanes), w.lanes)
        mask = w.mask(w.sub(columns, whole))

        def one(row: ir.Value, column: Size, mask: ir.Value | None) -> None:
            at = w.item(sums, w.add(w.mul(row, width), column))
            store.value(w.load(at), w.add(first, row), column, mask)

        def rows(row: ir.Value, _: Values) -> None:
            w.loop(0, whole, lambda column, _: one(row, column, None), step=w.lanes)
            w.when(w.compare(whole, "<", columns), lambda: one(row, whole, mask))

        def whole_rows(row: ir.Value, _: Values) -> None:
            for column in range(0, form.width, w.lanes):  # one waits, another is computed
                one(row, column, None)

        def each(write: Callable[[ir.Value, Values], None]) -> None:
            w.loop(0, height, write)

        if form.epilogue.is_long:  # of others whole tiles do not come here
            is_whole = w.compare(columns, "==", form.width)
            w.when(is_whole, lambda: each(whole_rows), lambda: each(rows))
        else:
            each(rows)

    return w.define(suffix, [POINTER, POINTER, POINTER, WORD, WORD, WORD], body)


class Store:
    """Where the values of a tile go, and the operands that join them on the way."""

    def __init__(self, w: Writer, form: StoreForm, block: ir.Value, frame: ir.Value) -> None:
        self.w, self.form = w, form
        self.block = Words(w, block, form.block_names)
        self.frame = Words(w, frame, form.frame_names)
        self.c, self.c_step = self.frame.pointer("c"), self.block.word("c_step")
        self.operands = [self.frame.pointer(f"e{i}") for i in range(len(form.epilogue.operands))]
        self.steps = [self.block.word(f"e{i}_step") for i in range(len(form.epilogue.operands))]

    def value(self, value: ir.Value, row: Size, column: Size, mask: ir.Value | None) -> None:
        """Epilogue and store of one vector."""
        w = self.w

        def operand(i: int) -> ir.Value:
            kind, at = epilogue.operands[i], self.operands[i]
            at = w.at(at, w.mul(row, self.steps[i])) if kind.rows else at
            return kind.load(w, at, column, mask)

        epilogue = self.form.epilogue
        done = epilogue.write(w, value, operand)
        at = w.item(w.at(self.c, w.mul(row, self.c_step)), column, epilogue.size)
        w.store(as_bfloat16(w, done) if epilogue.result != PLAIN else done, at, mask, epilogue.size)
