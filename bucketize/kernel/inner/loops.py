"""Vector code for convolutions of few channels out: each number of the result an inner product.

Where channels out are fewer than lanes, vectors of them are mostly empty. So lanes lie along the
window here, a line of which is one stretch of an image whose channels are last; what they come to
is added up at the end, for several sums at once. The parallel axis is the lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import BIT, FLOAT_BYTES, POINTER, Size, Values
from bucketize.kernel.gemm.epilogue import Epilogue, Operand
from bucketize.kernel.gemm.store import Words
from bucketize.kernel.inner.form import DIMS, InnerForm

At: TypeAlias = dict[str, ir.Value]
"""Places, by array."""
Functions: TypeAlias = tuple[ir.Function, ...]

UNROLLED = 4  # vectors of a stretch that are written out; more are looped over


def emit(w: Writer, block: ir.Value, /, *, epilogue: tuple[Any, Any], **form: Any) -> None:
    """Write the body of a kernel of this form."""
    ending = Epilogue.of_plain(*epilogue)
    _Windows(w, block, InnerForm(lanes=w.lanes, epilogue=ending, **form)).write()


def steps_of(form: InnerForm, block: Words) -> dict[str, Size]:
    """Bytes from one pixel of a line of the result to the next, in each array."""
    steps: dict[str, Size] = {a: block.word(f"{a}_step") for a in form.stepping}
    return steps | {"x": block.w.mul(steps["x"], form.strides[1]), "w": 0}


class _Windows:
    """The loops around tiles."""

    def __init__(self, w: Writer, block: ir.Value, form: InnerForm) -> None:
        self.w, self.form, self.memory = w, form, block
        self.block = Words(w, block, form.block_names)
        self.frame = Words.new(w, form.frame_names)
        self.d = {name: self.block.word(name) for name in DIMS}
        self.pixel, self.steps = self.block.word("x_step"), steps_of(form, self.block)
        words = {"x": f"in{form.x}", "w": f"in{form.w}", "c": "out"}
        words |= {f"e{i}": f"in{o.place}" for i, o in enumerate(form.epilogue.operands)}
        self.bases = {array: self.block.pointer(word) for array, word in words.items()}
        self.tiles = {size: self.functions(size) for size in form.sizes}
        self.cut = self.functions(1, cut=True) if form.has_rim else ()
        self.apart = self.lie_apart()

    def functions(self, size: int, *, cut: bool = False) -> Functions:
        """The function of tiles of a size; and another for pixels apart, if they may lie so."""

        def function(apart: bool) -> ir.Function:
            def body(w: Writer, block: ir.Value, frame: ir.Value) -> None:
                _Tile(w, self.form, block, frame, size, cut=cut, apart=apart).write()

            name = f"{'apart_' if apart else ''}{'cut' if cut else 'tile'}{size}"
            return self.w.define(name, [POINTER, POINTER], body)

        return tuple(function(apart) for apart in (False, True)[: 1 + bool(self.form.neighbours)])

    def lie_apart(self) -> ir.Value:
        """Whether pixels of an array that may lie apart do."""
        w, apart = self.w, ir.Constant(BIT, 0)
        for array, bytes_ in self.form.neighbours.items():
            differs = w.compare(self.block.word(f"{array}_step"), "!=", bytes_)
            apart = w.builder.or_(apart, differs)
        return apart

    def write(self) -> None:
        begin, end, inner = self.block.word("begin"), self.block.word("end"), self.inner()
        self.w.loop(begin, end, lambda i, _: self.line(i, *inner))

    def inner(self) -> tuple[Size, Size]:
        """The first pixel of a line whose window begins in the image's, and behind the last."""
        w, d, form = self.w, self.d, self.form
        if not form.has_rim:
            return 0, d["across"]
        stride, left = form.strides[1], form.pads[1]
        room = w.add(w.sub(d["right"], form.kernel[1]), left + stride)
        low = w.least(-(-left // stride), d["across"])
        high = w.least(w.div(w.greatest(room, 0), stride), d["across"])
        return low, w.greatest(high, low)

    def line(self, line: ir.Value, low: Size, high: Size) -> None:
        """The tiles of a line of the result."""
        w, d, form = self.w, self.d, self.form
        image = w.div(line, d["height"])
        row = w.mul(w.sub(line, w.mul(image, d["height"])), form.strides[0])
        row = w.sub(row, form.pads[0])
        first, rows = self.seen(row)
        top = w.mul(w.add(row, w.mul(first, form.dilation)), d["line"])
        seen = w.sub(w.add(w.mul(image, d["image"]), top), w.mul(self.pixel, form.pads[1]))
        place = w.mul(line, d["across"])
        at = {a: w.at(p, w.mul(place, self.steps[a])) for a, p in self.bases.items()}
        at["x"] = w.beyond(self.bases["x"], seen)
        at["w"] = w.at(self.bases["w"], w.mul(first, form.row * FLOAT_BYTES))
        self.frame.put("rows", rows)
        self.rim(at, 0, low)
        self.run(at, low, high)
        self.rim(at, high, d["across"])

    def seen(self, row: Size) -> tuple[Size, Size]:
        """The first line of a window that is in the image, and how many there are."""
        w, form = self.w, self.form
        above = w.greatest(w.sub(0, row), 0)
        first = w.least(w.ceildiv(above, form.dilation), form.kernel[0])
        below = w.greatest(w.sub(self.d["down"], row), 0)
        last = w.least(w.ceildiv(below, form.dilation), form.kernel[0])
        return first, w.greatest(w.sub(last, first), 0)

    def call(self, functions: Functions, at: At, pixel: Size, count: Size) -> None:
        """Compute so many tiles from a pixel on, one after the other."""
        w, (together, *apart) = self.w, functions
        for array, pointer in at.items():
            self.frame.put(array, self.w.beyond(pointer, self.w.mul(pixel, self.steps[array])))
        self.frame.put("count", count)
        memory = [self.memory, self.frame.memory]
        if not apart:
            w.call(together, memory)
            return
        w.when(self.apart, lambda: w.call(apart[0], memory), lambda: w.call(together, memory))

    def run(self, at: At, low: Size, high: Size) -> None:
        """Tiles from a pixel to another: as many of the widest as there are, then narrower ones."""
        w, (widest, *others) = self.w, self.form.sizes
        count = w.div(w.sub(high, low), widest)
        self.call(self.tiles[widest], at, low, count)
        here = w.add(low, w.mul(count, widest))
        for size in others:
            fits = w.builder.zext(w.compare(w.add(here, size), "<=", high), w.word(0).type)
            self.call(self.tiles[size], at, here, fits)
            here = w.add(here, w.mul(fits, size))

    def rim(self, at: At, low: Size, high: Size) -> None:
        """Pixels whose windows leave the line, one by one: they see some columns of a window."""
        if not self.cut:
            return
        cut, w, form = self.cut, self.w, self.form

        def pixel(i: ir.Value, _: Values) -> None:
            column = w.sub(w.mul(i, form.strides[1]), form.pads[1])
            first = w.least(w.greatest(w.sub(0, column), 0), form.kernel[1])
            last = w.least(w.greatest(w.sub(self.d["right"], column), 0), form.kernel[1])
            self.frame.put("columns", w.greatest(w.sub(last, first), 0))
            weights = w.at(at["w"], w.mul(first, form.channels * FLOAT_BYTES))
            image = w.beyond(at["x"], w.mul(first, self.pixel))
            self.call(cut, at | {"x": image, "w": weights}, i, 1)

        w.loop(low, high, pixel)


class _Tile:
    """The body of a function of `count` tiles of one size, one after the other."""

    def __init__(
        self,
        w: Writer,
        form: InnerForm,
        block: ir.Value,
        frame: ir.Value,
        size: int,
        *,
        cut: bool,
        apart: bool,
    ) -> None:
        self.w, self.form, self.size, self.cut, self.apart = w, form, size, cut, apart
        words, self.frame = Words(w, block, form.block_names), Words(w, frame, form.frame_names)
        self.line, self.steps = words.word("line"), steps_of(form, words)
        self.pixel = words.word("x_step")
        self.columns: Size = self.frame.word("columns") if cut else form.kernel[1]

    @property
    def is_part(self) -> bool:
        """Whether more weights lie behind those of a stretch, not zeros."""
        return self.cut or self.apart

    @property
    def is_flat(self) -> bool:
        """Whether the pixels of a tile are stored together."""
        return self.form.is_flat and not self.apart

    def write(self) -> None:
        w, arrays = self.w, self.form.arrays
        turns = [w.mul(self.steps[a], self.size) for a in arrays]

        def tile(_: ir.Value, at: Values) -> Values:
            self.tile(dict(zip(arrays, at, strict=True)))
            return [w.beyond(p, turn) for p, turn in zip(at, turns, strict=True)]

        w.loop(0, self.frame.word("count"), tile, [self.frame.pointer(a) for a in arrays])

    def tile(self, at: At) -> None:
        w, outs = self.w, self.form.outs
        down, row_bytes = w.mul(self.line, self.form.dilation), self.form.row * FLOAT_BYTES

        def row(i: Size, sums: Values) -> Values:
            x, weights = w.beyond(at["x"], w.mul(i, down)), w.at(at["w"], w.mul(i, row_bytes))
            return self.pixels(x, weights, sums) if self.apart else self.row(x, weights, sums)

        none: Values = [w.number(0)] * (self.size * outs)
        sums = w.loop(0, self.frame.word("rows"), row, none)
        if self.is_flat:
            self.store(at, 0, sums)
            return
        for p in range(self.size):
            self.store(at, p, sums[p * outs : (p + 1) * outs])

    # --- sums -----------------------------------------------------------------------------------

    def pixels(self, x: ir.Value, weights: ir.Value, sums: Values) -> Values:
        """The sums with a line of the window added, whose pixels lie apart."""
        w, form = self.w, self.form

        def pixel(j: Size, sums: Values) -> Values:
            there = w.at(x, w.mul(j, self.pixel))
            taps = w.at(weights, w.mul(j, form.channels * FLOAT_BYTES))
            return self.stretch(there, taps, form.channels, sums)

        return w.loop(0, self.columns, pixel, sums)

    def row(self, x: ir.Value, weights: ir.Value, sums: Values) -> Values:
        """The sums with a line of the window added, which is one stretch."""
        return self.stretch(x, weights, self.w.mul(self.columns, self.form.channels), sums)

    def stretch(self, x: ir.Value, weights: ir.Value, numbers: Size, sums: Values) -> Values:
        """The sums with some numbers added that lie one behind the other."""
        w = self.w
        whole = w.mul(w.div(numbers, w.lanes), w.lanes)

        def vector(i: Size, sums: Values) -> Values:
            return self.step(x, weights, i, sums, None)

        if isinstance(whole, int) and whole <= UNROLLED * w.lanes:
            for i in range(0, whole, w.lanes):
                sums = vector(i, sums)
        else:
            sums = w.loop(0, whole, vector, sums, step=w.lanes)
        left = w.sub(numbers, whole)
        return sums if left == 0 else self.step(x, weights, whole, sums, w.mask(left))

    def step(
        self, x: ir.Value, weights: ir.Value, i: Size, sums: Values, mask: ir.Value | None
    ) -> Values:
        """The sums with a vector of the window added, of each pixel and channel out."""
        w, form, new = self.w, self.form, list(sums)
        here, taps = w.item(x, i), w.item(weights, i)
        seen = [w.load(w.at(here, w.mul(self.steps["x"], p)), mask) for p in range(self.size)]
        for o in range(form.outs):
            tap = w.load(w.item(taps, o * form.plane), mask if self.is_part else None)
            for p, value in enumerate(seen):
                new[p * form.outs + o] = w.fma(value, tap, new[p * form.outs + o])
        return new

    # --- the result -----------------------------------------------------------------------------

    def store(self, at: At, p: int, sums: Values) -> None:
        """Add up each of the sums of pixel `p`, or of all that lie behind it, and store them."""
        w = self.w
        there = {a: w.at(place, w.mul(self.steps[a], p)) for a, place in at.items()}
        for first in range(0, len(sums), w.lanes):
            self.store_some(there, first, sums[first : first + w.lanes])

    def store_some(self, at: At, first: int, sums: Values) -> None:
        w, form = self.w, self.form
        mask = w.mask(len(sums)) if len(sums) < w.lanes else None

        def operand(i: int) -> ir.Value:
            kind, place = form.epilogue.operands[i], at[f"e{i}"]
            if self.is_flat and kind.kind in ("column", "row"):
                return self.spread(kind, place, range(first, first + len(sums)))
            return kind.load(w, place, first, mask)

        done = form.epilogue.write(w, added(w, sums), operand)
        w.store(done, w.item(at["c"], first), mask)

    def spread(self, kind: Operand, at: ir.Value, numbers: range) -> ir.Value:
        """What of an operand belongs to some numbers of a tile, which lie pixel by pixel."""
        outs, first = self.form.outs, numbers[0] // self.form.outs
        if kind.columns:
            return picked(self.w, at, [n % outs for n in numbers])
        return picked(self.w, self.w.item(at, first), [n // outs - first for n in numbers])


def added(w: Writer, vectors: Sequence[ir.Value]) -> ir.Value:
    """The sums of the elements of each vector, at most as many as lanes: one vector of them.

    Neighbours fold into one, each into a half, until each has one lane.
    """
    left, group = list(vectors), w.lanes
    while group > 1:
        half = group // 2
        low = [base + i for base in range(0, 2 * w.lanes, group) for i in range(half)]
        high = [i + half for i in low]
        pairs = [(left[i], left[min(i + 1, len(left) - 1)]) for i in range(0, len(left), 2)]
        left = [w.builder.fadd(w.shuffle(a, b, low), w.shuffle(a, b, high)) for a, b in pairs]
        group = half
    return left[0]


def picked(w: Writer, pointer: ir.Value, order: Sequence[int]) -> ir.Value:
    """A vector of the numbers in memory that `order` counts; none behind the last is read."""
    few, whole = max(order) + 1, [*order, *[order[-1]] * (w.lanes - len(order))]
    result: ir.Value = w.number(0)
    for first in range(0, few, w.lanes):
        mask = w.mask(few - first) if few - first < w.lanes else None
        loaded, here = w.load(w.item(pointer, first), mask), range(first, first + w.lanes)
        places = [w.lanes + n - first if n in here else lane for lane, n in enumerate(whole)]
        result = w.shuffle(result, loaded, places)
    return result
