"""Vector code for the steps of a row: pass after pass over it, while it lies in the first cache.

A pass ends where a number is needed that all of the row has a part in. Cheap values are computed
again in each pass that needs them; one that takes long waits where the result will be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir

from bucketize.kernel.emit import expression
from bucketize.kernel.emit.module import kernel_source
from bucketize.kernel.emit.vector import FLOAT, Writer, constant
from bucketize.kernel.emit.writer import BYTE, FLOAT_BYTES, Size, Values
from bucketize.kernel.gemm.epilogue import TRUTHS
from bucketize.kernel.gemm.store import Words, block_names
from bucketize.kernel.rows.pattern import (
    COUNT,
    CYCLE,
    FOLDS,
    MAX,
    MIN,
    SAME,
    SQUARES,
    SUM,
    TOP,
    Ref,
    RowArgument,
    RowGroup,
    RowStep,
)
from bucketize.machine.target import Target

Each: TypeAlias = Callable[[Size, "ir.Value | None", Values], Values]
"""A vector at an index, where a mask is on: what is carried on from there."""

CHAINS = 4  # of folds, each waiting for itself alone
START = {SUM: 0.0, SQUARES: 0.0, MAX: -math.inf, TOP: -math.inf, MIN: math.inf}


def dim_names(arguments: int) -> tuple[str, ...]:
    """The elements of a row; of each argument the bytes between its rows, and how many it has."""
    return ("n", *(f"{name}{i}" for i in range(arguments) for name in ("step", "period")))


def source(rows: RowGroup, target: Target) -> str:
    """The text of the kernel of a group."""
    arguments, steps = (tuple(map(tuple, each)) for each in (rows.arguments, rows.steps))
    form = {"lanes": target.lanes, "arguments": arguments, "steps": steps}
    return kernel_source(__name__, form | ({"chains": 1} if target.in_order else {}))


def emit(
    w: Writer, block: ir.Value, /, *, arguments: Any, steps: Any, chains: int = CHAINS
) -> None:
    """Write the body of a kernel of these steps.

    In one chain an element joins the same sum however long the row is: zeros behind it change
    nothing.
    """
    rows = RowGroup(tuple(RowArgument(*a) for a in arguments), tuple(RowStep(*s) for s in steps))
    _RowLoops(w, block, rows, chains).write()


class _RowLoops:
    """The loops over the rows, and the passes over each."""

    def __init__(self, w: Writer, block: ir.Value, rows: RowGroup, chains: int) -> None:
        self.w, self.rows, self.chains = w, rows, chains
        count = len(rows.arguments)
        self.block = Words(w, block, block_names(count, dim_names(count)))
        self.n = self.block.word("n")
        self.count = w.builder.sitofp(self.n, FLOAT)
        self.levels, self.kept = rows.levels(), rows.kept()
        self.is_kept = False
        self.numbers: dict[int, ir.Value] = {COUNT: self.count}
        self.places: list[ir.Value] = []
        inputs = range(count)
        self.result = self.block.pointer("out")  # read once: a store might be to the block
        self.bases = [self.block.pointer(f"in{n}") for n in inputs]
        self.steps = [self.block.word(f"step{n}") for n in inputs]
        self.periods = [self.block.word(f"period{n}") for n in inputs]
        self.whole = w.mul(w.div(self.n, w.lanes), w.lanes)
        self.many = w.mul(w.div(self.n, chains * w.lanes), chains * w.lanes)
        self.last = w.mask(w.sub(self.n, self.whole))

    def write(self) -> None:
        """Row after row."""
        begin, end = self.block.word("begin"), self.block.word("end")
        self.w.loop(begin, end, lambda i, _: self.row(i))

    def row(self, i: ir.Value) -> None:
        """The passes over one row; between them, what is one number a row."""
        w = self.w
        self.places = [self.place(i, n, a) for n, a in enumerate(self.rows.arguments)]
        for ref, argument in enumerate(self.rows.arguments):
            if not argument.columns:
                self.numbers[ref] = self.loaded(ref, argument)
        self.between(0)
        wide = self.rows.is_wide(self.rows.result)
        size = w.mul(self.n, FLOAT_BYTES) if wide else FLOAT_BYTES
        self.out = w.at(self.result, w.mul(i, size))
        self.is_kept = False
        for level, roots in enumerate(self.rows.passes(), 1):
            if roots == [self.rows.result] and wide:
                self.over(self.stored)
            else:
                self.fold(roots)
                self.between(level)
            self.is_kept |= self.kept in self.rows.needed(roots)
        if not wide:
            w.builder.store(self.numbers[self.rows.result], self.out, align=FLOAT_BYTES)

    def place(self, i: ir.Value, n: int, argument: RowArgument) -> ir.Value:
        """Where an argument of row i begins."""
        w = self.w
        if argument.rows == SAME:
            return self.bases[n]
        row = w.builder.urem(i, self.periods[n]) if argument.rows == CYCLE else i
        return w.at(self.bases[n], w.mul(row, self.steps[n]))

    def loaded(self, ref: int, argument: RowArgument) -> ir.Value:
        """An argument that is one number."""
        b, at = self.w.builder, self.places[ref]
        if argument.held == TRUTHS:
            return b.icmp_unsigned("!=", b.load(at, typ=BYTE, align=1), ir.Constant(BYTE, 0))
        return b.load(at, typ=FLOAT, align=FLOAT_BYTES)

    def between(self, level: int) -> None:
        """The numbers that can be told after so many passes."""
        first = len(self.rows.arguments)
        for ref, step in enumerate(self.rows.steps, first):
            if self.levels[ref] == level and not step.wide and step.how not in FOLDS:
                args = [self.number(r) for r in step.refs]
                self.numbers[ref] = expression.write(step.how, self.w, args, dict(step.attrs), 1)

    def number(self, ref: Ref) -> ir.Value:
        return constant(FLOAT, ref, 1) if isinstance(ref, float) else self.numbers[ref]

    # --- one pass ----------------------------------------------------------------------------

    def fold(self, roots: Sequence[int]) -> None:
        """The numbers that a row becomes in a pass."""
        w, steps = self.w, [self.rows.steps[r - len(self.rows.arguments)] for r in roots]

        def each(i: Size, mask: ir.Value | None, old: Values) -> Values:
            seen: dict[int, ir.Value] = {}
            new = []
            for step, before in zip(steps, old, strict=True):
                value = self.vector(step.refs[0], i, mask, seen)
                if mask is not None:
                    value = w.builder.select(mask, value, w.number(START[step.how]))
                squares = step.how == SQUARES
                new.append(
                    w.fma(value, value, before) if squares else _joined(w, step.how, value, before)
                )
            return new

        starts: Values = [w.number(START[step.how]) for step in steps]
        chains = self.over(each, starts)
        for k, (ref, step) in enumerate(zip(roots, steps, strict=True)):
            one, *others = chains[k :: len(steps)]
            for other in others:
                one = _joined(w, step.how, other, one)
            whole = w.folded(one, lambda x, y, how=step.how: _joined(w, how, x, y))  # type: ignore[misc]
            self.numbers[ref] = w.builder.extract_element(whole, w.word(0))

    def stored(self, i: Size, mask: ir.Value | None, _: Values) -> Values:
        """A vector of the result."""
        self.w.store(self.vector(self.rows.result, i, mask, {}), self.w.item(self.out, i), mask)
        return []

    def over(self, each: Each, starts: Sequence[ir.Value] = ()) -> Values:
        """A pass over a row: what is carried, once for each chain."""
        w, size = self.w, len(starts)

        def chains(i: ir.Value, old: Values) -> Values:
            parts = [old[u * size : (u + 1) * size] for u in range(self.chains)]
            return [v for u, p in enumerate(parts) for v in each(w.add(i, u * w.lanes), None, p)]

        chained = w.loop(0, self.many, chains, [*starts] * self.chains, step=self.chains * w.lanes)
        one, rest = chained[:size], chained[size:]
        one = w.loop(self.many, self.whole, lambda i, v: each(i, None, v), one, step=w.lanes)
        one = w.loop(self.whole, self.n, lambda i, v: each(i, self.last, v), one, step=w.lanes)
        return [*one, *rest]

    def vector(
        self, ref: Ref, i: Size, mask: ir.Value | None, seen: dict[int, ir.Value]
    ) -> ir.Value:
        """A vector of a value; `seen` has those at this index that were made before."""
        w = self.w
        if isinstance(ref, float):
            return w.number(ref)
        if not self.rows.is_wide(ref):
            return w.splat(self.numbers[ref], w.lanes)
        if ref not in seen:
            seen[ref] = self.made(ref, i, mask, seen)
        return seen[ref]

    def made(self, ref: int, i: Size, mask: ir.Value | None, seen: dict[int, ir.Value]) -> ir.Value:
        w, step = self.w, self.rows.step(ref)
        if step is None:
            truths = self.rows.arguments[ref].held == TRUTHS
            at = self.places[ref]
            return w.load_truths(w.at(at, i), mask) if truths else w.load(w.item(at, i), mask)
        if ref == self.kept and self.is_kept:
            return w.load(w.item(self.out, i), mask)
        args = [self.vector(r, i, mask, seen) for r in step.refs]
        value = expression.write(step.how, w, args, dict(step.attrs), w.lanes)
        if ref == self.kept:
            w.store(value, w.item(self.out, i), mask)
        return value


def _joined(w: Writer, how: str, x: ir.Value, y: ir.Value) -> ir.Value:
    """Two vectors as one."""
    if how in (SUM, SQUARES):
        return w.builder.fadd(x, y)
    if how == TOP:  # the second where the first is NaN, which shows in the sum
        return w.builder.select(w.builder.fcmp_ordered(">", x, y), x, y)
    return w.maximum(x, y) if how == MAX else w.minimum(x, y)
