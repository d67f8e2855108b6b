"""From M of a patch to its pixels of the result, with the epilogue."""

from __future__ import annotations

import functools
from collections.abc import Callable

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import FLOAT_BYTES, POINTER, Size, Values
from bucketize.kernel.gemm.store import Store, Words, finisher
from bucketize.kernel.winograd import matrices as minimal
from bucketize.kernel.winograd.direct import Direct, must_be_direct, witness
from bucketize.kernel.winograd.input import WinogradForm, place_of


class Results:
    """Transforms M to pixels of the result, with the epilogue."""

    def __init__(
        self, w: Writer, form: WinogradForm, block: Words, places: ir.Value, m: ir.Value
    ) -> None:
        self.w, self.form, self.block, self.places, self.m = w, form, block, places, m
        self.frame = Words.new(w, form.frame_names)
        self.finish = finisher(w, form, "cut")
        self.direct = Direct(w, form, self.finish)
        self.function = w.define("results", [POINTER, POINTER], self._patch)

    def write(self, group: ir.Value, panel: Size, taps: ir.Value, count: ir.Value) -> None:
        """One panel of a group's channels out, of all patches of the block; `taps`: its weights."""
        w, frame, first = self.w, self.frame, self.w.mul(panel, self.form.width)
        columns, channels = self.block.word("columns"), w.mul(group, self.block.word("depth"))
        frame.put("columns", w.sub(columns, first))
        frame.put("taps", taps)
        arrays = self.arrays(w.add(w.mul(group, columns), first))

        def patch(t: ir.Value, _: Values) -> None:
            place = place_of(w, self.places, t)
            row = place.word("row")
            for name, (pointer, step) in arrays.items():
                frame.put(name, w.at(pointer, w.mul(row, step)))
            for name in ("lines", "pixels", "y", "x"):
                frame.put(name, place.word(name))
            source = w.beyond(place.pointer("source"), w.mul(channels, FLOAT_BYTES))
            frame.put("source", source)
            frame.put("products", w.item(self.m, w.mul(t, self.form.width)))
            w.call(self.function, [self.block.memory, frame.memory])

        w.loop(0, count, patch)

    def arrays(self, column: Size) -> dict[str, tuple[ir.Value, Size]]:
        """Where a column of the result and the operands begins, and bytes from row to row."""
        w, block = self.w, self.block
        arrays: dict[str, tuple[ir.Value, Size]] = {
            "c": (w.item(block.pointer("out"), column), block.word("c_step"))
        }
        for i, operand in enumerate(self.form.epilogue.operands):
            at = block.pointer(f"in{operand.place}")
            step = block.word(f"e{i}_step") if operand.rows else 0
            arrays[f"e{i}"] = w.item(at, column) if operand.columns else at, step
        return arrays

    def _patch(self, w: Writer, memory: ir.Value, place: ir.Value) -> None:
        """A patch in one panel: stored at once, or by way of memory where it is cut."""
        form, frame = self.form, Words(w, place, self.form.frame_names)
        across = Words(w, memory, form.block_names).word("width")
        lines, pixels = frame.word("lines"), frame.word("pixels")
        sums = w.scratch(form.high * form.wide * form.width * FLOAT_BYTES)
        cut = w.builder.or_(
            w.compare(pixels, "<", form.wide), w.compare(frame.word("columns"), "<", form.width)
        )
        store = Store(w, form, memory, place)

        def line(i: int, column: ir.Value, values: Values) -> None:
            def through_memory() -> None:
                for j, value in enumerate(values):
                    row = w.add(w.mul(i, form.wide), j)
                    w.store(value, w.item(sums, w.add(w.mul(row, form.width), column)))

            def at_once() -> None:
                for j, value in enumerate(values):
                    store.value(value, w.add(w.mul(i, across), j), column, None)

            if form.epilogue.is_long:
                through_memory()
            else:
                w.when(cut, through_memory, at_once)

        def finish(i: ir.Value, _: Values) -> None:
            mine = w.item(sums, w.mul(i, form.wide * form.width))
            w.call(self.finish, [memory, place, mine, form.width, w.mul(i, across), pixels])

        seen = self.lines(w, memory, frame, line)
        kept = lines if form.epilogue.is_long else w.builder.select(cut, lines, w.word(0))
        w.loop(0, kept, finish)
        w.when(must_be_direct(w, seen), lambda: w.call(self.direct.function, [memory, place]))

    def lines(
        self,
        w: Writer,
        memory: ir.Value,
        frame: Words,
        line: Callable[[int, ir.Value, Values], None],
    ) -> ir.Value:
        """The lines of a patch, vector after vector: `line(which, column, its pixels)`.

        It gives their `witness`.
        """
        form, (high, wide) = self.form, self.form.sizes
        step = Words(w, memory, form.block_names).word("m_step")
        products, count = frame.pointer("products"), frame.word("lines")

        def vector(column: ir.Value, seen: Values) -> Values:
            here, halves, total = w.item(products, column), [], seen[0]
            for j in range(wide):
                top = w.at(here, w.mul(step, j))
                values = [w.load(w.at(top, w.mul(step, i * wide))) for i in range(high)]
                halves.append(minimal.results(w, form.high, values))
            for i in range(form.high):
                pixels = minimal.results(w, form.wide, [half[i] for half in halves])
                inside = w.compare(i, "<", count)
                total = w.builder.select(inside, w.builder.fadd(total, witness(w, pixels)), total)
                w.when(inside, functools.partial(line, i, column, pixels))
            return [total]

        return w.loop(0, form.width, vector, [w.number(0)], step=w.lanes)[0]
