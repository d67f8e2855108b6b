"""The register tile that matrix products and convolutions are made of.

A tile keeps `height` rows x `vectors` vectors of the output in registers and runs over the whole
reduction: taps (the positions of a convolution's window, one for a product) x depth. Its rows may
lie anywhere: each has an address of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.dot import dot_bfloat16
from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import BIT, FLOAT_BYTES, WORD, Size, Values
from bucketize.kernel.gemm.form import TileForm
from bucketize.kernel.gemm.schedule import HIGH
from bucketize.kernel.gemm.store import Store, Words
from bucketize.machine.target import LINE
from bucketize.ops.rounding import FORMATS

Turn: TypeAlias = Callable[[ir.Value, Values], Values]
Splats: TypeAlias = list[Callable[[], ir.Value]]
"""What writes an element of each row of A in every lane."""
Fetch: TypeAlias = Callable[[ir.Value, ir.Value, int], None]
"""Asks for memory in a turn of so many steps, given the first, and where its B is."""

UNROLL = 4
"""Steps of the reduction in a turn of its loop. On eleven products with 16 lanes one step took 1 to
16 % longer, two from 2 % less to 9 % longer."""
STREAM = 4096  # bytes that a tile which is alone fetches ahead: the processor stops at a page's end
FIRST, SECOND = 3, 2  # the level of the caches that a prefetch brings a line to, as LLVM counts
CHAINS = 8
"""Sums that a tile keeps going at least, each of which waits for itself alone: an addition takes
four cycles, two begin in each. A low tile has several for each element, joined at its end."""


def multiply_add(w: Writer, form: TileForm, x: ir.Value, y: ir.Value, total: ir.Value) -> ir.Value:
    """The sums with a product, or those of a pair, added."""
    return dot_bfloat16(w, total, x, y) if form.pairs else w.fma(x, y, total)


class RegisterTile:
    """The body of one tile function, void(block, frame)."""

    def __init__(
        self, w: Writer, form: TileForm, finish: ir.Function, height: int, *arguments: ir.Value
    ) -> None:
        self.w, self.form, self.finish, self.height = w, form, finish, height
        self.arguments = block, frame = arguments
        self.block = Words(w, block, self.form.block_names)
        self.frame = Words(w, frame, self.form.frame_names)
        self.cells = [(m, v) for m in range(height) for v in range(self.form.vectors)]
        self.panel_step: Size = self.block.word("panel_step") if form.panels > 1 else 0

    def write(self) -> None:
        """The tile, and as many below it as there are in its run."""

        def tile(*_: object) -> None:
            self.compute()
            self.advance()

        if self.form.image:
            tile()
        else:
            self.w.loop(0, self.frame.word("run"), tile)

    def advance(self) -> None:
        """Tell the tile below its place; where its rows lie in an image, it is told by others."""
        w, form, frame, height = self.w, self.form, self.frame, self.height
        for m in range(0 if form.image else height):
            frame.move(f"row{m}", w.mul(frame.word("row_step"), height))
        frame.move("c", w.mul(self.block.word("c_step"), height))
        for i, operand in enumerate(form.epilogue.operands):
            if operand.rows:
                frame.move(f"e{i}", w.mul(self.block.word(f"e{i}_step"), height))
        if form.passes:
            frame.move("partial", form.mr * form.width * FLOAT_BYTES)
        if form.packed:
            frame.move("ahead", w.mul(frame.word("lines"), LINE))

    def rows(self) -> Values:
        """Where A is read for each row."""
        w, frame, form = self.w, self.frame, self.form
        rows = [frame.pointer(f"row{m}") for m in range(self.height)]
        move, skip = w.beyond if form.padded else w.at, frame.word("skip") if form.image else 0
        return [move(row, skip) for row in rows]

    def compute(self) -> None:
        """The sums of the passes before, and of this one; after the last they are stored."""
        if not self.form.passes:
            self.store(self.joined(self.reduce(self.zeros() * self.chains)))
            return
        w, partial = self.w, self.frame.pointer("partial")
        first = w.compare(self.frame.word("first"), "!=", 0)
        started = [*self.partial_sums(first, partial)]
        started += [w.number(0)] * (len(self.cells) * (self.chains - 1))
        sums = self.joined(self.reduce(started))
        last = w.compare(self.frame.word("last"), "!=", 0)
        w.when(last, lambda: self.store(sums), lambda: self.spill(sums, partial))

    def partial_sums(self, first: ir.Value, partial: ir.Value) -> Values:
        """The sums of the passes before, if this is not the first one."""
        kept = (self.cell(partial, m, v) for m, v in self.cells)
        return self.either(first, self.zeros, lambda: [self.w.load(k) for k in kept])

    def zeros(self) -> Values:
        """What the sums of all elements begin with."""
        return [self.w.number(0)] * len(self.cells)

    def either(
        self, condition: ir.Value, these: Callable[[], Values], others: Callable[[], Values]
    ) -> Values:
        """Values of the one branch where the condition holds, else of the other."""
        b, both, ends = self.w.builder, [], []
        with b.if_else(condition) as branches:
            for branch, values in zip(branches, (these, others), strict=True):
                with branch:
                    both.append(values())
                    ends.append(b.block)
        return [self.w.phi(*zip(pair, ends, strict=True)) for pair in zip(*both, strict=True)]

    def cell(self, memory: ir.Value, m: int, v: int) -> ir.Value:
        return self.w.item(memory, m * self.form.width + v * self.w.lanes)

    def spill(self, sums: Values, memory: ir.Value) -> None:
        for (m, v), value in zip(self.cells, sums, strict=True):
            self.w.store(value, self.cell(memory, m, v))

    def store(self, sums: Values) -> None:
        """Store whole tiles at once; a cut one, or a long epilogue, goes through memory."""
        w, form = self.w, self.form
        sums = self.scaled(sums) if form.head else sums

        def through_memory() -> None:
            memory = w.scratch(self.height * form.width * FLOAT_BYTES)
            self.spill(sums, memory)
            w.call(self.finish, [*self.arguments, memory, form.width, 0, self.height])

        def at_once() -> None:
            store = Store(w, form, *self.arguments)
            for (m, v), value in zip(self.cells, sums, strict=True):
                store.value(value, m, v * w.lanes, None)

        if form.epilogue.is_long:
            through_memory()
        else:
            whole = w.compare(self.frame.word("columns"), ">=", form.width)
            w.when(whole, at_once, through_memory)

    def scaled(self, sums: Values) -> Values:
        """The sums of int8 by their columns' steps."""
        w, head = self.w, self.frame.pointer("head")
        steps = [w.load(at) for at in self.across(head, FLOAT_BYTES)]
        return [w.builder.fmul(s, steps[v]) for (_, v), s in zip(self.cells, sums, strict=True)]

    def reduce(self, sums: Values) -> Values:
        """The sums with the whole reduction, or one pass of it, added."""
        w, padded = self.w, self.form.padded
        move = w.beyond if padded else w.at
        b = self.frame.pointer("b")
        if not self.form.image:
            return self.along_depth(self.frame.word("units"), self.rows(), b, sums)
        step, inner_step = self.block.word("tap_step"), self.block.word("inner_tap_step")
        of_tile = self.frame if padded else self.block  # at the rim lines are not in one piece
        count, depth = of_tile.word("inner_taps"), of_tile.word("depth")

        def tap(n: ir.Value, carried: Values) -> Values:
            i, j, *sums = carried
            offset, done = w.add(w.mul(i, step), w.mul(j, inner_step)), w.mul(n, depth)
            there = [move(r, offset) for r in self.rows()]  # read anew, or LLVM spills them
            at = w.item(b, w.mul(done, self.form.width))
            if padded:
                blind, *there = self.seen(i, j, there)
                sums = self.either(
                    blind, lambda: sums, lambda: self.along_depth(depth, there, at, sums, done)
                )
            else:
                sums = self.along_depth(depth, there, at, sums, done)
            behind = w.word(w.add(j, 1))
            wrap = w.compare(behind, "==", count)
            i = w.add(i, w.builder.zext(wrap, WORD))
            return [w.word(i), w.builder.select(wrap, w.word(0), behind), *sums]

        taps = w.mul(self.frame.word("units"), count)
        return w.loop(0, taps, tap, [w.word(0), w.word(0), *sums])[2:]

    def seen(self, i: ir.Value, j: ir.Value, there: Values) -> Values:
        """Whether tap j of line i adds nothing; where it reads for each row, a pad from zeros.

        Pads alone do where B is finite: 0 x inf is NaN. A number before the first is a great one to
        an unsigned comparison.
        """
        w, b, names = self.w, self.w.builder, ("down", "right", "dilation_y", "dilation_x")

        def at_rim() -> Values:
            down, right, *steps = map(self.block.word, names)
            y = w.word(w.mul(w.add(self.frame.word("line"), i), steps[0]))
            x, zeros = w.word(w.mul(j, steps[1])), self.frame.pointer("zeros")
            inside, places = [], []
            for m, pixel in enumerate(there):
                row, column = b.add(self.frame.word(f"y{m}"), y), b.add(self.frame.word(f"x{m}"), x)
                both = (b.icmp_unsigned("<", n, end) for n, end in ((row, down), (column, right)))
                inside.append(functools.reduce(b.and_, both))
                places.append(b.select(inside[-1], pixel, zeros))
            finite = w.compare(self.frame.word("finite"), "!=", 0)
            return [b.and_(finite, b.not_(functools.reduce(b.or_, inside))), *places]

        whole = w.compare(self.frame.word("inside"), "!=", 0)
        return self.either(whole, lambda: [ir.Constant(BIT, 0), *there], at_rim)

    def along_depth(
        self, depth: ir.Value, rows: Values, b: ir.Value, sums: Values, done: Size = 0
    ) -> Values:
        """The sums with `depth` steps added, of a reduction of which `done` steps went before."""
        if not self.form.packed or self.form.panels > 1:
            return self.turns(depth, rows, b, sums, lambda *_: None)

        def shared() -> Values:
            return self.shared_turns(depth, rows, b, sums, done)

        def stream() -> Values:
            return self.turns(depth, rows, b, sums, lambda _, at, n: self.fetch_stream(at, n))

        if not self.form.streams or self.height > HIGH:  # higher ones are not alone
            return shared()
        alone = self.w.compare(self.frame.word("alone"), "!=", 0)
        return self.either(alone, stream, shared)

    def shared_turns(
        self, depth: ir.Value, rows: Values, b: ir.Value, sums: Values, done: Size
    ) -> Values:
        """The sums with `depth` steps added; the tile fetches its share of what comes next."""

        def fetch(k: ir.Value, _: ir.Value, steps: int) -> None:
            self.fetch_ahead(self.w.add(done, k), steps)

        return self.turns(depth, rows, b, sums, fetch)

    def turns(
        self, depth: ir.Value, rows: Values, b: ir.Value, sums: Values, fetch: Fetch
    ) -> Values:
        """The sums with `depth` steps added, in a loop that fetches something in each turn."""
        w = self.w
        b_step: Size = self.form.b_step
        if not self.form.packed:
            b_step = self.frame.word("b_step")

        def turn(steps: int, *, fetches: bool) -> Turn:
            def body(k: ir.Value, sums: Values) -> Values:
                here, at = [w.item(r, k) for r in rows], w.at(b, w.mul(k, b_step))
                if fetches:
                    fetch(k, at, steps)
                chains = self.apart(sums)
                for u in range(steps):
                    chain = u % len(chains)
                    splats: Splats = [partial(w.load_splat, w.item(r, u)) for r in here]
                    chains[chain] = self.step(splats, w.at(at, w.mul(b_step, u)), chains[chain])
                return [s for chain in chains for s in chain]

            return body

        steps = self.unroll
        whole = w.mul(w.div(depth, steps), steps)
        sums = w.loop(0, whole, turn(steps, fetches=True), sums, step=steps)
        return w.loop(whole, depth, turn(1, fetches=False), sums) if steps > 1 else sums

    @property
    def unroll(self) -> int:
        """Steps of the reduction in a turn: fewer where sums would leave the registers.

        LLVM reads the B of a turn early. With 16 lanes 14 x 2 vectors, B in its own place, took
        1.37 times as long in turns of four. Of several panels a step is long by itself.
        """
        sums = len(self.cells)
        if sums >= 28:
            return 1
        if self.form.panels > 1:
            return 2
        return 2 if sums >= 24 and not self.form.packed else UNROLL

    @property
    def chains(self) -> int:
        """How many sums of an element a turn keeps apart."""
        if self.form.in_order or self.form.panels > 1:
            return 1
        return min(max(CHAINS // len(self.cells), 1), self.unroll)

    def apart(self, sums: Values) -> list[Values]:
        """The sums of all elements, chain by chain."""
        count = len(self.cells)
        return [sums[i : i + count] for i in range(0, len(sums), count)]

    def joined(self, sums: Values) -> Values:
        """One sum of each element."""
        total, *others = self.apart(sums)
        for chain in others:
            total = [self.w.builder.fadd(a, b) for a, b in zip(total, chain, strict=True)]
        return total

    def fetch_ahead(self, k: Size, steps: int) -> None:
        """Ask for lines of the part of B that comes next, as many in a turn as it has steps.

        They are asked for at the begin of the tile's reduction, until it has had its share.
        """
        unasked = self.w.compare(k, "<", self.frame.word("lines"))
        self.w.when(unasked, lambda: self.fetch_share(k, steps))

    def fetch_share(self, k: Size, steps: int) -> None:
        """Ask for lines of that part, from line `k` on."""
        at = self.w.at(self.frame.pointer("ahead"), self.w.mul(k, LINE))
        for line in range(steps):
            self.w.prefetch(self.w.at(at, line * LINE), FIRST if self.form.near else SECOND)

    def fetch_stream(self, b: ir.Value, steps: int) -> None:
        """Ask for what the tile itself, which is alone, is about to read from `b` on."""
        for line in range(0, steps * self.form.b_step, LINE):
            self.w.prefetch(self.w.beyond(b, STREAM + line), FIRST)

    def step(self, splats: Splats, b: ir.Value, sums: Values) -> Values:
        """One step of the reduction: an outer product."""
        if self.form.panels > 1:
            return self.wide_step([splat_of() for splat_of in splats], b, sums)
        w, form, vectors = self.w, self.form, self.row_of(b)
        new: Values = []  # one row after the other, so that one splat is alive at a time
        for m, splat_of in enumerate(splats):
            splat = splat_of()
            mine = sums[m * len(vectors) : (m + 1) * len(vectors)]
            new += [multiply_add(w, form, splat, v, s) for v, s in zip(vectors, mine, strict=True)]
        return new

    def wide_step(self, splats: Values, b: ir.Value, sums: Values) -> Values:
        """A step of few rows, so that one vector of B is alive at a time.

        With all of them alive, 2 and 3 rows took 1.2 to 1.5 times as long with 16 registers.
        """
        w, form, count = self.w, self.form, self.form.vectors
        columns = [
            [multiply_add(w, form, x, y, s) for x, s in zip(splats, sums[v::count], strict=True)]
            for v, y in enumerate(self.vectors_of(b))
        ]
        return [column[m] for m in range(self.height) for column in columns]

    def row_of(self, b: ir.Value) -> Values:
        """The vectors of a step of B."""
        return [*self.vectors_of(b)]

    def vectors_of(self, b: ir.Value) -> Iterator[ir.Value]:
        """The vectors of a step of B, each loaded when it is asked for."""
        w, weights = self.w, self.form.weights
        load = {"float32": w.load, "bfloat16": w.load_bfloat16, "int8": w.load_int8}[weights]
        yield from map(load, self.across(b, FORMATS[weights].dtype.itemsize))

    def across(self, row: ir.Value, size: int) -> Iterator[ir.Value]:
        """Where the vectors lie of a row of all panels, given where it begins in the first."""
        w, form = self.w, self.form
        for p in range(form.panels):
            panel = w.at(row, w.mul(self.panel_step, p)) if p else row
            yield from (w.item(panel, c, size) for c in range(0, form.nr, w.lanes))
