"""One patch of a convolution by minimal filtering: where it is, and from its pixels to V.

A patch is the pixels that high x wide pixels of the result are made from. V and M hold its
elements, as many as it has pixels, each element of all patches of a block together.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import FLOAT_BYTES, POINTER, WORD, WORD_BYTES, Size, Values
from bucketize.kernel.gemm.epilogue import Epilogue
from bucketize.kernel.gemm.form import TileForm
from bucketize.kernel.gemm.store import Words, block_names
from bucketize.kernel.winograd import matrices as minimal
from bucketize.kernel.winograd.matrices import Axis

Pair: TypeAlias = tuple[int, int]
Axes: TypeAlias = tuple[Axis, Axis]

PLACE = ("row", "lines", "pixels", "source", "y", "x")
"""Where a patch is: its first row of the result, the lines and pixels that it has there, and its
first pixel: its address, line and column of the image, which may be a pad's."""
PLACE_BYTES = len(PLACE) * WORD_BYTES
DIMS = (
    *("groups", "channels", "depth", "columns", "panels"),
    *("low", "tall", "across", "down", "width", "height"),
    *("pixel", "line", "image", "down_to", "right_to", "top", "left", "c_step"),
    *("v_row", "v_step", "m_step", "places"),
)


@dataclass(frozen=True)
class WinogradForm:
    """What the code of a kernel depends on; everything else is left to run time."""

    lanes: int
    high: int
    wide: int
    """Lines and columns of the result that a patch gives: m, or 1 where the filter has one tap."""
    taps: Pair
    strides: Pair
    """Taps and strides of the filter, along lines and columns."""
    rows: int
    """Patches of the tallest tile of a product."""
    least: int
    """Patches of the lowest tile that the balanced cut of a block can ask for."""
    vectors: int
    """Vectors of a panel."""
    inputs: int
    x: int
    w: int
    """The places of image and weights among the inputs."""
    in_order: bool
    """Whether sums over channels have one order, however many patches a tile has."""
    near: bool
    """Whether weights that come next are asked for into the first cache, not the second."""
    epilogue: Epilogue

    @property
    def axes(self) -> Axes:
        """Axes of lines and columns."""
        each = zip((self.high, self.wide), self.taps, self.strides, strict=True)
        y, x = (Axis(*axis) for axis in each)
        return y, x

    @property
    def reach(self) -> Pair:
        """Lines and columns of a patch."""
        y, x = self.axes
        return y.reach, x.reach

    @property
    def sizes(self) -> Pair:
        """Elements of a patch along lines and columns."""
        y, x = self.axes
        return y.size, x.size

    @property
    def elements(self) -> int:
        """Products that stand for the convolution, each of a sum over channels and phases."""
        return math.prod(self.sizes)

    @property
    def products(self) -> int:
        """Products of single phases."""
        return math.prod(axis.products for axis in self.axes)

    @property
    def phases(self) -> int:
        """Phases of a patch."""
        return math.prod(axis.phases for axis in self.axes)

    @property
    def width(self) -> int:
        """Channels out of a panel."""
        return self.lanes * self.vectors

    @property
    def block_names(self) -> tuple[str, ...]:
        """The words of the kernel's argument block."""
        operands = (f"e{i}_step" for i in range(len(self.epilogue.operands)))
        return block_names(self.inputs, (*DIMS, *operands))

    @property
    def frame_names(self) -> tuple[str, ...]:
        """The words that tell a patch its place in one panel."""
        operands = (f"e{i}" for i in range(len(self.epilogue.operands)))
        return ("products", "taps", "columns", *PLACE[1:], "c", *operands)

    @property
    def product(self) -> TileForm:
        """The product of the tiles of M: weights in panels, and nothing done to the sums."""
        return TileForm(
            self.rows,
            self.width,
            lanes=self.lanes,
            least=self.least,
            packed=True,
            in_order=self.in_order,
            near=self.near,
            passes=False,
        )


def place_of(w: Writer, places: ir.Value, patch: Size) -> Words:
    """Where a patch of the block is, from the table of them."""
    return Words(w, w.item(places, patch, PLACE_BYTES), PLACE)


class Data:
    """Finds patches of the list, and transforms them to those of the block."""

    def __init__(
        self, w: Writer, form: WinogradForm, block: Words, places: ir.Value, v: ir.Value
    ) -> None:
        self.w, self.form, self.block, self.places, self.v = w, form, block, places, v
        self.image = block.pointer(f"in{form.x}")
        self.d = {name: block.word(name) for name in DIMS}
        whole = [POINTER, POINTER, WORD, WORD, POINTER, WORD]
        self.inner = w.define("inner", whole, self._inner)
        self.edge = w.define("edge", [POINTER, POINTER, POINTER, WORD, WORD, WORD], self._edge)

    def patch(self, patch: ir.Value, index: Size) -> None:
        """Patch `index` of the list, which is this one of the block."""
        w, d, form = self.w, self.d, self.form
        line = w.div(index, d["across"])
        x = w.mul(w.sub(index, w.mul(line, d["across"])), form.wide)
        image = w.div(line, d["down"])
        y = w.mul(w.sub(line, w.mul(image, d["down"])), form.high)
        row = w.add(w.mul(w.add(w.mul(image, d["height"]), y), d["width"]), x)
        lines = w.least(w.sub(d["height"], y), form.high)
        pixels = w.least(w.sub(d["width"], x), form.wide)
        (down, across), pads = form.strides, (d["top"], d["left"])
        y, x = (
            w.word(w.sub(w.mul(n, step), pad))
            for n, step, pad in zip((y, x), (down, across), pads, strict=True)
        )
        source = self.image
        for number, step in ((image, "image"), (y, "line"), (x, "pixel")):
            source = w.beyond(source, w.mul(number, d[step]))
        place = place_of(w, self.places, patch)
        for name, value in zip(PLACE, (row, lines, pixels, source, y, x), strict=True):
            place.put(name, value)
        self.transform(source, w.at(self.v, w.mul(patch, d["v_row"])), y, x)

    def transform(self, source: ir.Value, target: ir.Value, y: ir.Value, x: ir.Value) -> None:
        """Read whole vectors of patches inside of the image in place, the others by way of a copy.

        They begin at line y and pixel x of the image.
        """
        w, d, b, (high, wide) = self.w, self.d, self.w.builder, self.form.reach
        within = [w.compare(n, ">=", 0) for n in (y, x)]
        within += [w.compare(w.add(y, high), "<=", d["down_to"])]
        within += [w.compare(w.add(x, wide), "<=", d["right_to"])]
        inside = functools.reduce(b.and_, within)
        count = b.select(inside, w.word(w.div(d["channels"], w.lanes)), w.word(0))
        w.call(self.inner, [self.block.memory, source, d["line"], d["pixel"], target, count])
        rest = w.compare(w.mul(count, w.lanes), "<", d["channels"])
        arguments = [self.block.memory, source, target, y, x, count]
        w.when(rest, lambda: w.call(self.edge, arguments))

    def _inner(self, w: Writer, *arguments: ir.Value) -> None:
        """Transform vectors of channels of a patch whose lines and pixels lie as told."""
        memory, source, line, pixel, target, count = arguments
        form, (high, wide), (y, x) = self.form, self.form.reach, self.form.axes
        block = Words(w, memory, form.block_names)
        step, phase_step = block.word("v_step"), w.mul(block.word("channels"), FLOAT_BYTES)

        def vector(v: ir.Value, _: Values) -> None:
            here, there = (w.item(p, w.mul(v, w.lanes)) for p in (source, target))
            columns = []
            for j in range(wide):
                top = w.at(here, w.mul(pixel, j))
                values = [w.load(w.at(top, w.mul(line, i))) for i in range(high)]
                columns.append(minimal.transformed(w, y, values))
            for i, phase, *_ in y.places:
                first = w.at(there, w.mul(step, i * x.size))
                transformed = minimal.transformed(w, x, [c[phase][i] for c in columns])
                for j, p, phases in x.places:  # those that an element has lie without gaps
                    to = w.at(first, w.mul(phase_step, phase * phases + p))
                    w.store(transformed[p][j], w.at(to, w.mul(step, j)))

        w.loop(0, count, vector)

    def _edge(self, w: Writer, *arguments: ir.Value) -> None:
        """The vectors of channels from the first one on, zeros outside of image and channels."""
        memory, source, target, y, x, first = arguments
        form, block = self.form, Words(w, memory, self.form.block_names)
        channels, line, pixel = (block.word(name) for name in ("channels", "line", "pixel"))
        size = math.prod(form.reach) * w.lanes
        copy = w.scratch(size * FLOAT_BYTES)
        w.loop(0, size, lambda i, _: w.store(w.number(0), w.item(copy, i)), step=w.lanes)
        steps = form.reach[1] * w.lanes * FLOAT_BYTES, w.lanes * FLOAT_BYTES
        ends = (block.word(name) for name in ("down_to", "right_to"))
        (top, bottom), (left, right) = (
            (w.greatest(w.sub(0, n), 0), w.least(w.sub(end, n), reach))
            for n, end, reach in zip((y, x), ends, form.reach, strict=True)
        )

        def vector(v: ir.Value, _: Values) -> None:
            channel = w.mul(v, w.lanes)
            here = w.beyond(source, w.mul(channel, FLOAT_BYTES))
            mask = w.mask(w.sub(channels, channel))

            def row(i: ir.Value, _: Values) -> None:
                begin, to = w.beyond(here, w.mul(i, line)), w.at(copy, w.mul(i, steps[0]))

                def one(j: ir.Value, _: Values) -> None:
                    pixels = w.load(w.beyond(begin, w.mul(j, pixel)), mask)
                    w.store(pixels, w.at(to, w.mul(j, steps[1])))

                w.loop(left, right, one)

            w.loop(top, bottom, row)
            w.call(self.inner, [memory, copy, *steps, w.item(target, channel), 1])

        w.loop(first, w.ceildiv(channels, w.lanes), vector)
