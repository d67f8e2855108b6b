"""The loops around the tiles of matrix products and convolutions, over a part of the output.

The output is cut into panels of columns and balanced tiles of rows (7 rows are 4 + 3). The
parallel axis counts (batch entry, panel, tile), the last one fastest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.module import form_source
from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import FLOAT_BYTES, WORD, WORD_BYTES, Size, Values
from bucketize.kernel.gemm.epilogue import Epilogue
from bucketize.kernel.gemm.form import TileForm
from bucketize.kernel.gemm.level import offsets
from bucketize.kernel.gemm.microkernel import multiply_add
from bucketize.kernel.gemm.store import Words, put_ahead, put_rows
from bucketize.kernel.gemm.tiles import Tiles

CHUNK = 16
"""Tiles of rows that one pass over a block of the depth covers: their sums, 16 x 6 rows x 64
columns x 4 bytes = 24 KiB, stay in a first-level cache of 32 KiB beside what streams through."""

Bases: TypeAlias = dict[str, ir.Value]


def kept_bytes(form: TileForm) -> int:
    """Bytes of the sums of a chunk's tiles, with which a workspace begins."""
    return CHUNK * form.mr * form.width * FLOAT_BYTES


def source(form: TileForm) -> str:
    """The text of the kernel of this form."""
    return form_source(__name__, form)


def emit(w: Writer, block: ir.Value, /, *, epilogue: tuple[Any, Any], **form: Any) -> None:
    """Write the body of a kernel of this form."""
    _ProductLoops(
        w, block, TileForm(lanes=w.lanes, epilogue=Epilogue.of_plain(*epilogue), **form)
    ).write()


class _ProductLoops:
    def __init__(self, w: Writer, block: ir.Value, form: TileForm) -> None:
        self.w, self.form, self.memory = w, form, block
        self.block = Words(w, block, form.block_names)
        self.frame = Words(w, w.scratch(len(form.frame_names) * WORD_BYTES), form.frame_names)
        self.d = {name: self.block.word(name) for name in form.dims}
        self.tiles = Tiles(w, form)

    def write(self) -> None:
        w, d = self.w, self.d
        tiles, panels = d["tiles"], d["panels"]
        begin, end = self.block.word("begin"), self.block.word("end")
        if self.form.padded:
            self.put_zeros()

        def outer(o: ir.Value, _: Values) -> None:
            lo = w.greatest(w.sub(begin, w.mul(o, tiles)), 0)
            hi = w.least(w.sub(end, w.mul(o, tiles)), tiles)
            entry = w.div(o, panels)
            self.panel(self.bases(entry), w.sub(o, w.mul(entry, panels)), lo, hi)

        first, last = w.div(begin, tiles), w.ceildiv(end, tiles)
        if self.form.abreast:
            self.in_groups(first, last, outer)
        else:
            w.loop(first, last, outer)

    def in_groups(self, first: Size, last: Size, outer: Callable[[ir.Value, Values], None]) -> None:
        """Panels first..last in groups, as far as there are whole ones, and those that are left."""
        w, group, count = self.w, self.d["group"], self.w.sub(last, first)
        whole = w.div(count, group)
        spared = w.mul(whole, w.sub(group, 1))  # panels that another one's tiles cover

        def unit(k: ir.Value, _: Values) -> None:
            inside = w.compare(k, "<", whole)
            kind = w.builder.select(inside, w.word(self.tiles.wide), w.word(self.tiles.single))
            of_group = w.compare(group, ">", 1)
            self.frame.put("kind", w.builder.select(of_group, kind, w.word(0)))
            place = w.builder.select(inside, w.word(w.mul(k, group)), w.word(w.add(k, spared)))
            outer(w.word(w.add(first, place)), [])

        w.loop(0, w.sub(count, spared), unit)

    def put_zeros(self) -> None:
        """Tell tiles where the channels of a pad are read."""
        w = self.w
        zeros = w.at(self.block.pointer("workspace"), kept_bytes(self.form))
        words = w.ceildiv(self.d["channels"], WORD_BYTES // FLOAT_BYTES)
        w.loop(0, words, lambda i, _: w.store_pointer(w.word(0), zeros, i))
        self.frame.put("zeros", zeros)

    # --- where a batch entry's arrays begin -----------------------------------------------------

    def bases(self, entry: Size) -> Bases:
        """The arrays at one entry of the batch."""
        w = self.w
        arrays = {"a": f"in{self.form.a}", "b": f"in{self.form.b}", "c": "out"}
        arrays |= {f"e{i}": f"in{o.place}" for i, o in enumerate(self.form.epilogue.operands)}
        rows = w.item(self.memory, len(self.form.block_names), WORD_BYTES)
        moved = offsets(w, rows, self.d["levels"], len(arrays), entry)
        pairs = zip(arrays.items(), moved, strict=True)
        return {name: w.at(self.block.pointer(word), o) for (name, word), o in pairs}

    # --- rows -----------------------------------------------------------------------------------

    def first_row(self, tile: Size) -> Size:
        """The row where a tile begins: `tall` tiles have one row more than `low`."""
        return self.w.add(self.w.mul(tile, self.d["low"]), self.w.least(tile, self.d["tall"]))

    def height_of(self, tile: ir.Value) -> ir.Value:
        w = self.w
        taller = w.builder.zext(w.compare(tile, "<", self.d["tall"]), WORD)
        return w.word(w.add(self.d["low"], taller))

    def cursor(self, a: ir.Value, row: Size) -> Values:
        """Where an image is read for a row: the pixel's address, x and y."""
        w, d = self.w, self.d
        line = w.div(row, d["width"])
        x = w.sub(row, w.mul(line, d["width"]))
        image = w.div(line, d["height"])
        y = w.sub(line, w.mul(image, d["height"]))
        steps = ((image, "image_step"), (y, "line_step"), (x, "a_step"))
        a = w.beyond(a, w.sub(0, d["before"])) if self.form.padded else a
        for index, step in steps:
            a = self.move(a, w.mul(index, d[step]))
        return [a, w.word(x), w.word(y)]

    def move(self, pointer: ir.Value, offset: Size) -> ir.Value:
        """The pointer to a window moved; where there are pads it may be outside of the image."""
        return (self.w.beyond if self.form.padded else self.w.at)(pointer, offset)

    def advance(self, cursor: Values) -> Values:
        """The cursor of the next row."""
        w, d, b = self.w, self.d, self.w.builder
        address, x, y = cursor
        address, x = self.move(address, d["a_step"]), w.word(w.add(x, 1))
        wrap = w.compare(x, "==", d["width"])
        line_jump = w.sub(d["line_step"], w.mul(d["width"], d["a_step"]))
        address = self.move(address, b.select(wrap, w.word(line_jump), w.word(0)))
        x, y = b.select(wrap, w.word(0), x), w.word(w.add(y, b.zext(wrap, WORD)))
        wrap = w.compare(y, "==", d["height"])
        image_jump = w.sub(d["image_step"], w.mul(d["height"], d["line_step"]))
        address = self.move(address, b.select(wrap, w.word(image_jump), w.word(0)))
        return [address, x, b.select(wrap, w.word(0), y)]

    def put_rows(self, cursor: Values, height: ir.Value) -> Values:
        """Tell a tile of an image the addresses of its rows; the cursor behind them."""
        w, padded = self.w, self.form.padded
        table = self.table("row")

        def row(m: ir.Value, carried: Values) -> Values:
            cursor = carried[: len(carried) - padded]
            w.store_pointer(cursor[0], table, m)
            inside = [w.builder.and_(carried[-1], self.put_window(m, cursor))] if padded else []
            return [*self.advance(cursor), *inside]

        if not padded:
            return w.loop(0, height, row, cursor)
        *cursor, inside = w.loop(0, height, row, [*cursor, w.word(1)])
        self.put_taps(inside)
        return cursor

    def table(self, name: str) -> ir.Value:
        """The words of the frame that hold something for each row."""
        return self.w.item(self.frame.memory, self.frame.places[f"{name}0"], WORD_BYTES)

    def put_window(self, m: ir.Value, cursor: Values) -> ir.Value:
        """Tell the tile which line and column a row's window begins at; 1 if it sees no pads."""
        w, d, seen = self.w, self.d, []
        for name, at, before, extent in (("y", 2, "top", "down"), ("x", 1, "left", "right")):
            first = w.sub(w.mul(cursor[at], d[f"stride_{name}"]), d[before])
            w.store_pointer(w.word(first), self.table(name), m)
            end = w.sub(d[extent], d[f"reach_{name}"])
            seen += [w.compare(first, ">=", 0), w.compare(first, "<=", end)]
        return w.builder.zext(functools.reduce(w.builder.and_, seen), WORD)

    def put_taps(self, inside: ir.Value) -> None:
        """Tell the tile in which pieces its windows lie: each tap is one, where some are pads."""
        w, d = self.w, self.d
        self.frame.put("inside", inside)
        whole = w.compare(inside, "!=", 0)
        for name, piece in (("inner_taps", "across"), ("depth", "channels")):
            self.frame.put(name, w.builder.select(whole, d[name], d[piece]))

    # --- tiles ----------------------------------------------------------------------------------

    def put_place(self, bases: Bases, row: Size, panel: Size) -> None:
        """Tell the tile where its outputs and operands are."""
        w, d = self.w, self.d
        column = w.mul(panel, self.form.width * FLOAT_BYTES)
        c = w.at(bases["c"], w.mul(row, d["c_step"]))
        self.frame.put("c", w.at(c, w.mul(panel, self.form.width * self.form.epilogue.size)))
        for i, operand in enumerate(self.form.epilogue.operands):
            at = bases[f"e{i}"]
            at = w.at(at, w.mul(row, d[f"e{i}_step"])) if operand.rows else at
            self.frame.put(f"e{i}", w.at(at, column) if operand.columns else at)

    def put_panel(self, bases: Bases, panel: Size) -> tuple[ir.Value, Size]:
        """Tell the tile its panel of B and the columns that are left; the panel and its step."""
        w, d, width = self.w, self.d, self.form.width
        columns = w.word(w.sub(d["columns"], w.mul(panel, width)))
        self.frame.put("columns", columns)
        b, step = w.at(bases["b"], w.mul(panel, d["panel_step"])), self.form.b_step
        if self.form.packed:
            if self.form.head:
                self.frame.put("head", b)
            return w.at(b, self.form.head), step
        self.frame.put("b", b)
        self.frame.put("b_step", d["b_step"])
        cut = w.compare(columns, "<", width)
        copied = w.builder.or_(cut, w.compare(d["copied"], "!=", 0))
        w.when(copied, lambda: self.copy_panel(b, columns))
        return self.frame.pointer("b"), self.frame.word("b_step")

    def copy_panel(self, b: ir.Value, columns: ir.Value) -> None:
        """The panel laid out as a packed one in the workspace, zeros where it is cut."""
        w, form = self.w, self.form
        copy = w.at(self.block.pointer("workspace"), kept_bytes(form))
        starts = [v * w.lanes for v in range(form.vectors)]
        masks = [w.mask(w.sub(columns, s)) for s in starts]

        def row(k: ir.Value, _: Values) -> None:
            source = w.at(b, w.mul(k, self.d["b_step"]))
            target = w.item(copy, w.mul(k, form.width))
            for start, mask in zip(starts, masks, strict=True):
                w.store(w.load(w.item(source, start), mask), w.item(target, start))

        w.loop(0, self.d["depth"], row)
        self.frame.put("b", copy)
        self.frame.put("b_step", form.width * FLOAT_BYTES)

    def panel(self, bases: Bases, panel: Size, lo: Size, hi: Size) -> None:
        """Tiles lo..hi of a panel, or of several from it on, in passes over their depth."""
        b, step = self.put_panel(bases, panel)
        w, units, size = self.w, self.d[self.form.unit], self.d["pass_units"]
        if self.form.image:
            step = w.mul(self.d["inner_taps"], self.d["tap_bytes"])

        def chunk(first: ir.Value, _: Values) -> None:
            last = w.least(w.add(first, CHUNK), hi)

            def part(u: ir.Value, _: Values) -> None:
                left = w.word(w.sub(units, u))
                self.frame.put("b", w.at(b, w.mul(u, step)))
                self.frame.put("units", w.least(left, size))
                if self.form.image:
                    self.frame.put("skip", w.mul(u, self.d["tap_step"]))
                if self.form.padded:
                    self.frame.put("line", u)
                    self.put_finite(w.mul(step, w.least(left, size)))
                self.frame.put("first", w.builder.zext(w.compare(u, "==", 0), WORD))
                self.frame.put("last", w.builder.zext(w.compare(left, "<=", size), WORD))
                begins = bases if self.form.image else bases | {"a": w.item(bases["a"], u)}
                self.column_of_tiles(begins, panel, first, last, w.mul(step, w.least(left, size)))

            w.loop(0, w.greatest(units, 1), part, step=size)  # one, even of no depth

        w.loop(lo, hi, chunk, step=CHUNK)

    def put_finite(self, bytes_: Size) -> None:
        """Tell tiles whether this part of B is finite, where windows are dilated."""
        w, d, form = self.w, self.d, self.form
        self.frame.put("finite", w.word(0))
        if not form.packed:
            return
        b, builder, zero = self.frame.pointer("b"), w.builder, w.number(0)

        def line(i: ir.Value, sums: Values) -> Values:
            there = [w.item(w.at(b, i), v * w.lanes) for v in range(form.vectors)]
            pairs = zip(there, sums, strict=True)
            return [multiply_add(w, form, w.load(p), zero, s) for p, s in pairs]

        def look() -> None:
            sums = w.loop(0, bytes_, line, [zero] * form.vectors, step=form.b_step)
            total = functools.reduce(builder.fadd, sums)
            lost = w.any_lane(builder.fcmp_unordered("uno", total, total))
            self.frame.put("finite", builder.zext(builder.not_(lost), WORD))

        dilated = (w.compare(d[f"dilation_{axis}"], ">", 1) for axis in "yx")
        w.when(functools.reduce(builder.or_, dilated), look)

    def column_of_tiles(self, bases: Bases, panel: Size, lo: Size, hi: Size, bytes_: Size) -> None:
        """Tiles lo..hi over a part of B of so many bytes."""
        w, d, form, frame = self.w, self.d, self.form, self.frame
        row = self.first_row(lo)
        self.put_place(bases, row, panel)
        frame.put("partial", self.block.pointer("workspace"))
        if form.packed:
            alone = put_ahead(w, frame, frame.pointer("b"), bytes_, w.sub(hi, lo))
            if form.streams:  # the processor fetches ahead, too, but not beyond a page's end
                frame.put("alone", w.builder.zext(alone, WORD))
        if form.image:
            self.windows(self.cursor(bases["a"], row), lo, hi)
        else:
            put_rows(w, frame, w.at(bases["a"], w.mul(row, d["a_step"])), d["a_step"], form.mr)
            self.tiles.column(w, self.memory, frame, (lo, hi, d["low"], d["tall"]))

    def windows(self, cursor: Values, lo: Size, hi: Size) -> None:
        """Tiles lo..hi of pixels, whose rows lie where the image has them."""

        def tile(i: ir.Value, cursor: Values) -> Values:
            height = self.height_of(i)
            cursor = self.put_rows(cursor, height)
            self.tiles.call(self.w, height, self.memory, self.frame.memory)
            return cursor

        self.w.loop(lo, hi, tile, cursor)
