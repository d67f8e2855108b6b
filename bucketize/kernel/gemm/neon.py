"""The register tile of 64-bit Arm: sums of products with an element of a vector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llvmlite import ir

from bucketize.kernel.emit.dot import PAIR
from bucketize.kernel.emit.vector import BFLOAT, FLOAT, Writer, vector_type
from bucketize.kernel.emit.writer import FLOAT_BYTES, POINTER, Size, Values
from bucketize.kernel.gemm.microkernel import Fetch, RegisterTile, Splats, Turn
from bucketize.ops.rounding import PLAIN

LANES = 4
"""Lanes of a register, and of the vectors of a tile."""
UNROLL = 8
"""Steps of the reduction in a turn of its loop."""
HALF = 2
"""Pairs of bfloat16 that are loaded of A at once: LLVM multiplies by one of a whole register only
after a copy of it."""
AT_ONCE = (2, 3, 4)
"""Vectors that one instruction loads."""


class NeonTile(RegisterTile):
    """A tile whose loop has little but multiply-adds.

    Elements of a row of A are loaded by vectors, the row of B of a step in one instruction that
    moves the pointer on. Turns that fetch are a loop of their own: beside a branch, LLVM does not
    keep sums and what one instruction loads, registers in sequence, apart without copies.
    """

    @property
    def unroll(self) -> int:
        """Steps of the reduction in a turn."""
        return UNROLL

    def zeros(self) -> Values:
        """Zeros for sums, made where wanted: LLVM makes constants before it knows whether."""
        zeros = super().zeros()
        return together(self.w, [], zeros)[1] if len(zeros) > 1 else zeros

    def shared_turns(
        self, depth: ir.Value, rows: Values, b: ir.Value, sums: Values, done: Size
    ) -> Values:
        """Turns with a part of its share first, then those that fetch nothing."""
        w = self.w
        asked = w.greatest(w.sub(self.frame.word("lines"), done), 0)

        def fetch(k: ir.Value, _: ir.Value, steps: int) -> None:
            self.fetch_share(w.add(done, k), steps)

        return self.turns(depth, rows, b, sums, fetch, asked)

    def turns(
        self,
        depth: ir.Value,
        rows: Values,
        b: ir.Value,
        sums: Values,
        fetch: Fetch,
        asked: Size | None = None,
    ) -> Values:
        """The sums, with fetches in the turns of the first `asked` steps alone, or in all."""
        w, steps = self.w, self.unroll
        whole = w.mul(w.div(depth, steps), steps)
        fetched = whole
        if asked is not None:
            fetched = w.least(whole, w.mul(w.ceildiv(asked, steps), steps))
        state = [b, *rows, *sums]
        state = w.loop(0, fetched, self.turn(steps, fetch), state, step=steps)
        # those that fetch nothing count up to 0, for which no comparison is needed
        up = partial(w.loop, stop=0, below_zero=True)
        if asked is not None:
            state = up(w.sub(fetched, whole), body=self.turn(steps), carried=state, step=steps)
        return up(w.sub(whole, depth), body=self.turn(1), carried=state)[1 + len(rows) :]

    def turn(self, steps: int, fetch: Fetch | None = None) -> Turn:
        """A turn of so many steps: of where B and the rows of A are, and sums."""
        w = self.w
        b_step: Size = self.form.b_step if self.form.packed else self.frame.word("b_step")
        width = min(steps, HALF if self.form.pairs else LANES)  # of what is loaded of A at once

        def body(k: ir.Value, state: Values) -> Values:
            (at, *rows), chains = state[: 1 + self.height], self.apart(state[1 + self.height :])
            if fetch is not None:
                fetch(k, at, steps)
            for u in range(steps):
                moved = [w.beyond(at, b_step)]
                if u % width == 0:
                    splats = self.splats(rows, width)
                    moved += [w.beyond(r, width * FLOAT_BYTES) for r in rows]
                chain = u % len(chains)
                sums = self.step(splats(u % width), at, chains[chain])
                (at, *new), chains[chain] = together(w, moved, sums)
                rows = new or rows
            return [at, *rows, *(s for chain in chains for s in chain)]

        return body

    def splats(self, rows: Values, width: int) -> Callable[[int], Splats]:
        """What writes an element of each row of A in every lane, of `width` that are loaded."""
        w = self.w
        if width == 1:
            return lambda _: [partial(w.load_splat, r) for r in rows]
        element, size = (BFLOAT, PAIR) if self.form.pairs else (FLOAT, 1)
        kind = vector_type(element, width * size)
        loaded = [w.builder.load(r, typ=kind, align=FLOAT_BYTES) for r in rows]
        order = [[*range(u * size, (u + 1) * size)] * LANES for u in range(width)]
        return lambda u: [partial(w.shuffle, x, x, order[u]) for x in loaded]

    def row_of(self, b: ir.Value) -> Values:
        """The vectors of a step of B, by one instruction where there is one."""
        w, n = self.w, self.form.vectors
        if self.form.weights != PLAIN or n not in AT_ONCE:
            return super().row_of(b)
        kind = ir.LiteralStructType([vector_type(FLOAT, LANES)] * n)
        load = w.declare(f"llvm.aarch64.neon.ld1x{n}.v{LANES}f32.p0", kind, [POINTER])
        loaded = w.builder.call(load, [b])
        return [w.builder.extract_value(loaded, v) for v in range(n)]


def together(w: Writer, addresses: Values, vectors: Values) -> tuple[Values, Values]:
    """Values of which LLVM forgets where they come from: what needs one has to wait.

    So vectors that are loaded for one step are gone before those of the next come, and an address
    moves by the load itself. Else LLVM loads more than there are registers for, and counts parts
    that addresses have in common.
    """
    values = [*addresses, *vectors]
    kinds = [v.type for v in values]
    outputs = ["=r"] * len(addresses) + ["=w"] * len(vectors)
    constraints = ",".join([*outputs, *map(str, range(len(values)))])
    kind = ir.FunctionType(ir.LiteralStructType(kinds), kinds)
    both = w.builder.asm(kind, "", constraints, values, side_effect=False)
    same = [w.builder.extract_value(both, i) for i in range(len(values))]
    return same[: len(addresses)], same[len(addresses) :]
