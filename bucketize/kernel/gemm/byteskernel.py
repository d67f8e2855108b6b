"""The loops of a product of bytes: sums of 32 bits in registers, a few bytes of a row at a time.

Where the processor multiplies four pairs of bytes and adds them up in one instruction, a group is
four: A without a sign, B with one. Elsewhere it is two, of 16 bits each. A block of rows is laid
out in groups first, so that a group of a row is one word for all lanes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from bucketize.kernel.emit.vector import (
    BYTE,
    FLOAT,
    INT,
    POINTER,
    SHORT,
    WORD,
    Size,
    Values,
    Writer,
    vector_type,
)
from bucketize.kernel.gemm.macrokernel import kernel_source
from bucketize.kernel.gemm.store import Words

ARGUMENTS = ("out", "in0", "in1", "workspace")
SIZES = ("begin", "end", "rows", "depth", "columns", "panels", "block")
NAMES = (*ARGUMENTS, *SIZES)
DOT = 4  # bytes that one instruction multiplies and adds up
GROUP = 4  # bytes of a group as it is laid out: four bytes, or two numbers of 16 bits
FLIP = -0x7F7F7F80  # 0x80808080: the highest bit of each byte


def source(lanes: int, **form: Any) -> str:
    """The text of the kernel of a form: see `emit`."""
    return kernel_source("byteskernel", {"lanes": lanes, **form})


def emit(w: Writer, block: ir.Value, /, **form: Any) -> None:
    """Write the body of a kernel.

    The form: `unit` bytes in a group, `rows` and `vectors` of a tile, and whether `x` and `y` have
    `signs`.
    """
    _Loops(w, Words(w, block, NAMES), **form).write()


class _Loops:
    def __init__(
        self, w: Writer, words: Words, *, unit: int, rows: int, vectors: int, signs: tuple[int, int]
    ) -> None:
        self.w, self.unit, self.vectors = w, unit, vectors
        self.x_signed, self.y_signed = signs
        self.block = words
        self.d = {name: words.word(name) for name in SIZES}
        self.width = vectors * w.lanes
        self.groups = w.ceildiv(self.d["depth"], unit)
        self.most = rows
        self.tiles = {
            m: w.define(f"tile{m}", [POINTER, POINTER, POINTER, WORD, WORD, WORD], self._tile(m))
            for m in range(1, rows + 1)
        }

    def write(self) -> None:
        """Blocks of rows, each beside its panels."""
        w, d = self.w, self.d
        begin, end, panels = d["begin"], d["end"], d["panels"]
        a, b, c, held = (self.block.pointer(n) for n in ("in0", "in1", "out", "workspace"))
        panel_bytes = w.mul(w.add(w.mul(self.groups, self.unit), GROUP), self.width)

        def rows(o: ir.Value, _: Values) -> None:
            first = w.mul(o, d["block"])
            height = w.least(d["block"], w.sub(d["rows"], first))
            self.each_tile(height, lambda at, m: self.lay_out(a, w.add(first, at), at, m, held))
            lo = w.greatest(w.sub(begin, w.mul(o, panels)), 0)
            hi = w.least(w.sub(end, w.mul(o, panels)), panels)

            def panel(p: ir.Value, _: Values) -> None:
                there = w.at(b, w.mul(p, panel_bytes))
                column = w.mul(p, self.width)
                left = w.sub(d["columns"], column)

                def tile(at: Size, m: ir.Value) -> None:
                    place = w.add(w.mul(w.add(first, at), d["columns"]), column)
                    mine = w.at(held, w.mul(w.mul(at, self.groups), GROUP))
                    self.call(m, mine, there, w.item(c, place), left)

                self.each_tile(height, tile)

            w.loop(lo, hi, panel)

        w.loop(w.div(begin, panels), w.ceildiv(end, panels), rows)

    def each_tile(self, height: Size, body: Any) -> None:
        """`body(first row, rows)` of balanced tiles: 7 rows are 4 + 3."""
        w = self.w
        count = w.ceildiv(height, self.most)
        low = w.div(height, count)
        tall = w.sub(height, w.mul(low, count))

        def tile(t: ir.Value, _: Values) -> None:
            taller = w.builder.zext(w.compare(t, "<", tall), WORD)
            body(w.add(w.mul(t, low), w.least(t, tall)), w.word(w.add(low, taller)))

        w.loop(0, count, tile)

    def call(self, m: ir.Value, a: ir.Value, b: ir.Value, c: ir.Value, left: Size) -> None:
        """The tile of so many rows."""
        with self.w.cases(m) as case:
            for rows, function in self.tiles.items():
                with case(rows):
                    self.w.call(function, [a, b, c, self.groups, self.d["columns"], left])

    # --- rows in groups -------------------------------------------------------------------------

    def lay_out(self, a: ir.Value, row: Size, at: Size, m: ir.Value, held: ir.Value) -> None:
        """The groups of `m` rows from `row` on, those of one place beside each other."""
        w, depth = self.w, self.d["depth"]
        begin = w.at(a, w.mul(row, depth))
        place = w.at(held, w.mul(w.mul(at, self.groups), GROUP))
        whole = w.div(depth, self.unit)

        def row_of(r: ir.Value, _: Values) -> None:
            read, written = w.at(begin, w.mul(r, depth)), w.item(place, r)

            def group(g: ir.Value, _: Values) -> None:
                value = self.word_of(w.at(read, w.mul(g, self.unit)))
                w.builder.store(value, w.item(written, w.mul(g, m)), align=4)

            w.loop(0, whole, group)
            rest = w.compare(whole, "<", self.groups)
            w.when(rest, lambda: self.last(read, w.item(written, w.mul(whole, m)), whole))

        w.loop(0, m, row_of)

    def word_of(self, place: ir.Value) -> ir.Value:
        """A whole group as a word."""
        b = self.w.builder
        if self.unit == DOT:
            word = b.load(place, typ=INT, align=1)
            return b.xor(word, ir.Constant(INT, FLIP)) if self.x_signed else word
        pair = b.load(place, typ=vector_type(BYTE, 2), align=1)
        return b.bitcast(self.widened(pair, vector_type(SHORT, 2), self.x_signed), INT)

    def last(self, read: ir.Value, place: ir.Value, group: Size) -> None:
        """A group that the row does not fill; it meets zeros of B."""
        w, b = self.w, self.w.builder
        b.store(ir.Constant(INT, 0), place, align=4)
        size = GROUP // self.unit

        def one(k: ir.Value, _: Values) -> None:
            byte = b.load(w.at(read, k), typ=BYTE, align=1)
            at = w.item(place, w.sub(k, w.mul(group, self.unit)), size)
            if self.unit == DOT:
                flipped = b.xor(byte, ir.Constant(BYTE, -0x80)) if self.x_signed else byte
                b.store(flipped, at, align=1)
            else:
                b.store(self.widened(byte, SHORT, self.x_signed), at, align=2)

        w.loop(w.mul(group, self.unit), self.d["depth"], one)

    def widened(self, x: ir.Value, kind: ir.Type, signed: int) -> ir.Value:
        b = self.w.builder
        return b.sext(x, kind) if signed else b.zext(x, kind)

    # --- tiles ----------------------------------------------------------------------------------

    def _tile(self, rows: int) -> Any:
        """A function: void(a, b, c, groups, columns, left); B begins with what sums begin with."""

        def body(w: Writer, *arguments: ir.Value) -> None:
            a, b, c, groups, columns, left = arguments
            begun = [self.vector(w, b, v, INT) for v in range(self.vectors)]
            first = w.at(b, self.width * GROUP)

            def group(g: ir.Value, sums: Values) -> Values:
                here = w.at(first, w.mul(g, self.width * self.unit))
                factors = [self.factor(w, here, v) for v in range(self.vectors)]
                out = []
                for r in range(rows):
                    at = w.item(a, w.add(w.mul(g, rows), r))
                    word = w.splat(w.builder.load(at, typ=INT, align=4), w.lanes)
                    row = sums[r * self.vectors : (r + 1) * self.vectors]
                    out += [self.step(w, s, word, f) for s, f in zip(row, factors, strict=True)]
                return out

            sums = w.loop(0, groups, group, begun * rows)
            for r in range(rows):
                for v in range(self.vectors):
                    at = w.item(w.item(c, w.mul(columns, r)), v * w.lanes)
                    value = w.builder.bitcast(
                        sums[r * self.vectors + v], vector_type(FLOAT, w.lanes)
                    )
                    _store(w, value, at, w.sub(left, v * w.lanes))

        return body

    def vector(self, w: Writer, place: ir.Value, v: int, kind: ir.Type) -> ir.Value:
        at = w.at(place, v * w.lanes * GROUP)
        return w.builder.load(at, typ=vector_type(kind, w.lanes), align=4)

    def factor(self, w: Writer, place: ir.Value, v: int) -> ir.Value:
        """A group of each of some columns."""
        if self.unit == DOT:
            return self.vector(w, place, v, INT)
        at, count = w.at(place, v * w.lanes * self.unit), w.lanes * self.unit
        bytes_ = w.builder.load(at, typ=vector_type(BYTE, count), align=1)
        kind = vector_type(SHORT, count)
        return w.builder.sext(bytes_, kind) if self.y_signed else w.builder.zext(bytes_, kind)

    def step(self, w: Writer, total: ir.Value, word: ir.Value, factor: ir.Value) -> ir.Value:
        """The sums and the products of a group of one row and those of some columns."""
        if self.unit == DOT:
            name = f"llvm.x86.avx512.vpdpbusd.{32 * w.lanes}"
            kind = total.type
            return w.builder.call(w.declare(name, kind, [kind] * 3), [total, word, factor])
        b, count = w.builder, w.lanes * self.unit
        wide = vector_type(INT, count)
        pair = b.bitcast(word, vector_type(SHORT, count))
        products = b.mul(b.sext(pair, wide), b.sext(factor, wide))
        even, odd = (w.shuffle(products, products, range(i, count, 2)) for i in range(2))
        return b.add(total, b.add(even, odd))


def _store(w: Writer, value: ir.Value, at: ir.Value, left: Size) -> None:
    """As many of the elements as there are columns left."""
    w.when(
        w.compare(left, ">=", w.lanes),
        lambda: w.store(value, at),
        lambda: w.store(value, at, w.mask(left)),
    )
