"""The loops of a product of bytes: sums of 32 bits in registers, a few bytes of a row at a time.

Where the processor multiplies four pairs of bytes and adds them up in one instruction, a group is
four: B with a sign, A without one unless the form says so. Elsewhere it is two, of 16 bits each. A
block of rows is laid out as its groups want it first, unless they are read where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from bucketize.kernel.emit.dot import DOT, dot_bytes
from bucketize.kernel.emit.vector import FLOAT, Writer, constant, vector_type
from bucketize.kernel.emit.writer import BYTE, INT, POINTER, SHORT, WORD, Size, Values
from bucketize.kernel.gemm.store import Words

ARGUMENTS = ("out", "in0", "in1", "workspace")
SIZES = ("begin", "end", "rows", "depth", "columns", "panels", "low", "tall")
GROUP = 4  # bytes of a group as it is laid out: four bytes, or two numbers of 16 bits
FLIP = -0x80  # the highest bit of a byte
PIECES = (16, 4)  # bytes that are laid out at a time, where there are fewer than a vector has


def emit(w: Writer, block: ir.Value, /, **form: Any) -> None:
    """Write the body of a kernel.

    The form: `unit` bytes in a group, `rows` and `vectors` of a tile, whether `x` and `y` have
    `signs`, whether rows are read where they lie, in `place`, and whether fours of A are `signed`.
    """
    PanelLoops(w, block, **form).write()


class PanelLoops:
    """Blocks of rows by panels. How a row is laid out is for others to say differently."""

    sizes: tuple[str, ...] = ()
    """The words of the argument block besides `SIZES`."""

    def __init__(  # noqa: PLR0913  the form by name
        self,
        w: Writer,
        block: ir.Value,
        *,
        unit: int,
        rows: int,
        vectors: int,
        signs: tuple[int, int],
        place: bool,
        signed: bool = False,
    ) -> None:
        self.w, self.unit, self.vectors, self.place = w, unit, vectors, place
        self.x_signed, self.y_signed = signs
        self.signed = signed
        names = (*SIZES, *self.sizes)
        self.block = Words(w, block, (*ARGUMENTS, *names))
        self.d = {name: self.block.word(name) for name in names}
        self.width = vectors * w.lanes
        self.groups = w.ceildiv(self.d["depth"], unit)
        self.row_step = self.d["depth"] if place else w.mul(self.groups, GROUP)
        self.most = rows
        self.tiles = {
            m: w.define(f"tile{m}", [POINTER, WORD, POINTER, POINTER, WORD, WORD, WORD], body)
            for m, body in ((m, self._tile(m)) for m in range(1, rows + 1))
        }

    def write(self) -> None:
        """Blocks of rows, each beside its panels."""
        w, d = self.w, self.d
        begin, end, panels = d["begin"], d["end"], d["panels"]
        b, c = (self.block.pointer(n) for n in ("in1", "out"))
        panel_bytes = w.mul(w.add(w.mul(self.groups, self.unit), GROUP), self.width)

        def rows(o: ir.Value, _: Values) -> None:
            first = w.add(w.mul(o, d["low"]), w.least(o, d["tall"]))
            height = w.add(d["low"], w.builder.zext(w.compare(o, "<", d["tall"]), WORD))
            groups = self.rows_of(first, height)
            lo = w.greatest(w.sub(begin, w.mul(o, panels)), 0)
            hi = w.least(w.sub(end, w.mul(o, panels)), panels)

            def panel(p: ir.Value, _: Values) -> None:
                there = w.at(b, w.mul(p, panel_bytes))
                column = w.mul(p, self.width)
                left = w.sub(d["columns"], column)

                def tile(at: Size, m: ir.Value) -> None:
                    place = w.add(w.mul(w.add(first, at), d["columns"]), column)
                    mine = w.at(groups, w.mul(at, self.row_step))
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
                    sizes = self.groups, self.d["columns"], left
                    self.w.call(function, [a, self.row_step, b, c, *sizes])

    # --- rows in groups -------------------------------------------------------------------------

    def rows_of(self, first: Size, height: Size) -> ir.Value:
        """Where rows lie as groups want them; what fills up the last group meets zeros of B."""
        w, a = self.w, self.block.pointer("in0")
        if self.place:
            return w.at(a, w.mul(first, self.row_step))
        space = self.block.pointer("workspace")

        def row(r: ir.Value, _: Values) -> None:
            self.lay_out(a, w.add(first, r), w.at(space, w.mul(r, self.row_step)))

        w.loop(0, height, row)
        return space

    def lay_out(self, a: ir.Value, row: Size, to: ir.Value) -> None:
        """The groups of a row."""
        depth = self.d["depth"]
        self.copy(self.w.at(a, self.w.mul(row, depth)), to, depth)

    def copy(self, read: ir.Value, to: ir.Value, count: Size) -> None:
        """Copy so many bytes, in the form that groups have them in."""

        def value(at: Size, width: int) -> ir.Value:
            kind = vector_type(BYTE, width)
            bytes_ = self.w.builder.load(self.w.at(read, at), typ=kind, align=1)
            if self.unit == DOT:
                flip = constant(BYTE, FLIP, width)
                flips = self.x_signed != self.signed
                return self.w.builder.xor(bytes_, flip) if flips else bytes_
            return self.w.widened(bytes_, SHORT, signed=bool(self.x_signed))

        self.put(to, count, value)

    def put(self, to: ir.Value, count: Size, value: Callable[[Size, int], ir.Value]) -> None:
        """Put `value(at, width)` of each piece of so many bytes; the last one ends with them."""
        w, size = self.w, GROUP // self.unit
        widths = tuple(dict.fromkeys((w.lanes * GROUP, *PIECES)))

        def one(at: Size, width: int) -> None:
            w.builder.store(value(at, width), w.item(to, at, size), align=1)

        def pieces(width: int) -> None:
            last = w.sub(count, width)
            w.loop(0, last, lambda at, _: one(at, width), step=width)
            one(last, width)

        def least(at: int) -> None:
            if at == len(widths):
                w.loop(0, count, lambda i, _: one(i, 1))
                return
            enough = w.compare(count, ">=", widths[at])
            w.when(enough, lambda: pieces(widths[at]), lambda: least(at + 1))

        least(0)

    # --- tiles ----------------------------------------------------------------------------------

    def _tile(self, rows: int) -> Any:
        """A function: void(a, step, b, c, groups, columns, left); B begins with what sums do."""

        def body(w: Writer, *arguments: ir.Value) -> None:
            a, step, b, c, groups, columns, left = arguments
            begun = [self.vector(w, b, v, INT) for v in range(self.vectors)]
            first = w.at(b, self.width * GROUP)
            beside = [w.at(a, w.mul(step, r)) for r in range(rows)]

            def group(g: ir.Value, sums: Values) -> Values:
                here = w.at(first, w.mul(g, self.width * self.unit))
                factors = [self.factor(w, here, v) for v in range(self.vectors)]
                out = []
                for r in range(rows):
                    at = w.item(beside[r], g)
                    word = w.splat(w.builder.load(at, typ=INT, align=1), w.lanes)
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
        return w.widened(bytes_, SHORT, signed=bool(self.y_signed))

    def step(self, w: Writer, total: ir.Value, word: ir.Value, factor: ir.Value) -> ir.Value:
        """The sums and the products of a group of one row and those of some columns."""
        if self.unit == DOT:
            return dot_bytes(w, total, word, factor, signed=self.signed)
        b, count = w.builder, w.lanes * self.unit
        wide = vector_type(INT, count)
        pair = b.bitcast(word, vector_type(SHORT, count))
        products = b.mul(b.sext(pair, wide), b.sext(factor, wide))
        even, odd = (w.shuffle(products, products, range(i, count, 2)) for i in range(2))
        return b.add(total, b.add(even, odd))


def _store(w: Writer, value: ir.Value, at: ir.Value, left: Size) -> None:
    """Store the elements for which there are columns left."""
    w.when(
        w.compare(left, ">=", w.lanes),
        lambda: w.store(value, at),
        lambda: w.store(value, at, w.mask(left)),
    )
