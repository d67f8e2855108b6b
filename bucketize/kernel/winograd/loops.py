"""Convolutions by minimal filtering: the loops over the patches of an image.

The patches of all images make one list, which is cut into balanced blocks. For each block its
patches are transformed, V[element][patch][channel in]; then for each panel of channels out every
element is a product with its part of the weights, M[element][patch][channel out], and M is
transformed to the result. Panels are those of all groups. The parallel axis counts (block, panel),
the last one fastest; two parts that share a block both transform its patches.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import FLOAT_BYTES, WORD, Size, Values
from bucketize.kernel.gemm.epilogue import Epilogue
from bucketize.kernel.gemm.schedule import tallest
from bucketize.kernel.gemm.store import Words, put_ahead, put_rows
from bucketize.kernel.gemm.tiles import Tiles
from bucketize.kernel.winograd.input import DIMS, Axes, Data, Pair, WinogradForm
from bucketize.kernel.winograd.output import Results
from bucketize.machine.target import LINE, Target

Dims: TypeAlias = dict[str, ir.Value]


SHARE_L2 = 0.5
"""The share of the second cache that V and M of a block may fill."""
LEAST, LEAST_WIDE, WIDE = 24, 49, 256
"""Patches that a block has at least, so that the weights are read few times; and where they are of
so many channels."""
SET = 1024
"""Bytes: rows so far apart share few sets of a first cache."""


def tile_rows(width: int, target: Target) -> int:
    """Patches of a tile, by the channels of a panel: as many as there are registers for."""
    return tallest(target)[width // target.lanes]


def most_patches(channels: int, width: int, axes: Axes, target: Target) -> int:
    """Patches of a block: as many as their V and M of a panel may fill, in whole tiles."""
    v, m = math.prod(a.products for a in axes) * channels, math.prod(a.size for a in axes) * width
    of_patch = (v + m) * FLOAT_BYTES
    patches, rows = int(SHARE_L2 * target.l2) // of_patch, tile_rows(width, target)
    least = LEAST_WIDE if channels >= WIDE else LEAST
    return max(patches // rows, -(-least // rows)) * rows


def row_bytes(channels: int) -> int:
    """Bytes of a patch in V, with so many channels of all phases: whole vectors of any width."""
    bytes_ = -(-channels * FLOAT_BYTES // LINE) * LINE
    return bytes_ + LINE if bytes_ % SET == 0 else bytes_


def emit(w: Writer, block: ir.Value, /, *, epilogue: tuple[Any, Any], **form: Any) -> None:
    """Write the body of a kernel of this form."""
    _Blocks(
        w, block, WinogradForm(lanes=w.lanes, epilogue=Epilogue.of_plain(*epilogue), **form)
    ).write()


class _Blocks:
    """The loops over blocks and panels."""

    def __init__(self, w: Writer, memory: ir.Value, form: WinogradForm) -> None:
        self.w, self.form = w, form
        self.block = Words(w, memory, form.block_names)
        self.d = {name: self.block.word(name) for name in DIMS}
        places = self.block.pointer("workspace")
        v = w.at(places, self.d["places"])
        m = w.at(v, w.mul(self.d["v_step"], form.elements))
        self.data = Data(w, form, self.block, places, v)
        self.products = _Products(w, form, self.d, v, m)
        self.results = Results(w, form, self.block, places, m)

    def write(self) -> None:
        w, d = self.w, self.d
        panels = w.mul(d["groups"], d["panels"])
        begin, end = self.block.word("begin"), self.block.word("end")

        def block(o: ir.Value, _: Values) -> None:
            first = w.add(w.mul(o, d["low"]), w.least(o, d["tall"]))
            taller = w.builder.zext(w.compare(o, "<", d["tall"]), WORD)
            count = w.word(w.add(d["low"], taller))
            w.loop(0, count, lambda t, _: self.data.patch(t, w.add(first, t)))
            lo = w.greatest(w.sub(begin, w.mul(o, panels)), 0)
            hi = w.least(w.sub(end, w.mul(o, panels)), panels)
            w.loop(lo, hi, lambda p, _: self.panel(p, count))

        w.loop(w.div(begin, panels), w.ceildiv(end, panels), block)

    def panel(self, panel: ir.Value, count: ir.Value) -> None:
        """One of the panels of all groups, for so many patches.

        Behind all transformed weights are the weights themselves.
        """
        w, d, products = self.w, self.d, self.form.products
        group = w.div(panel, d["panels"])
        weights = self.block.pointer(f"in{self.form.w}")
        size = w.mul(d["depth"], self.form.width)
        behind = w.mul(w.mul(w.mul(d["groups"], d["panels"]), products), size)
        taps = w.add(behind, w.mul(panel, w.mul(size, math.prod(self.form.taps))))
        mine = w.item(weights, w.mul(panel, w.mul(size, products)))
        self.products.write(group, mine, count)
        own = w.sub(panel, w.mul(group, d["panels"]))
        self.results.write(group, own, w.item(weights, taps), count)


class _Products:
    """The products of the elements of a block with a panel of weights, in register tiles."""

    def __init__(self, w: Writer, form: WinogradForm, d: Dims, v: ir.Value, m: ir.Value) -> None:
        self.w, self.form, self.d, self.v, self.m = w, form, d, v, m
        product = form.product
        self.tiles = Tiles(w, product)
        self.block = Words.new(w, product.block_names)
        self.frame = Words.new(w, product.frame_names)
        self.block.put("c_step", form.width * FLOAT_BYTES)
        self.frame.put("columns", form.width)

    def write(self, group: ir.Value, weights: ir.Value, count: ir.Value) -> None:
        """M of one panel of a group."""
        w, d, form = self.w, self.d, self.form
        channels, (y, x) = w.item(self.v, w.mul(group, d["depth"])), form.axes
        for (lines, down), (columns, across) in itertools.product(y.parts, x.parts):
            units, first = w.mul(d["depth"], down * across), lines.start * x.size + columns.start
            self.frame.put("units", units)
            weights = self.part(
                first, (len(lines), len(columns)), units, (channels, weights, count)
            )

    def part(self, first: int, extents: Pair, units: Size, given: tuple[ir.Value, ...]) -> ir.Value:
        """Elements from the first one on, so many lines and columns, which have as many phases.

        It gives where the weights of others begin.
        """
        w, d, form = self.w, self.d, self.form
        (high, wide), (channels, weights, count) = extents, given

        def element(i: ir.Value, at: Values) -> Values:
            over = w.mul(w.div(i, wide), form.sizes[1] - wide)
            e = w.add(w.add(i, over), first)
            v, m = w.at(channels, w.mul(e, d["v_step"])), w.at(self.m, w.mul(e, d["m_step"]))
            self.element(v, at[0], units, m, count)
            return [w.item(at[0], w.mul(units, form.width))]

        return w.loop(0, high * wide, element, [weights])[0]

    def element(
        self, v: ir.Value, weights: ir.Value, units: Size, m: ir.Value, count: ir.Value
    ) -> None:
        """One of the products, so many units deep: its patches in balanced tiles."""
        w, form, frame = self.w, self.form, self.frame
        tiles = w.ceildiv(count, form.rows)
        low = w.div(count, tiles)
        tall = w.sub(count, w.mul(low, tiles))
        frame.put("b", weights)
        frame.put("c", m)
        put_rows(w, frame, v, self.d["v_row"], form.rows)
        put_ahead(w, frame, weights, w.mul(units, form.width * FLOAT_BYTES), tiles)
        self.tiles.column(w, self.block.memory, frame, (0, tiles, low, tall))
