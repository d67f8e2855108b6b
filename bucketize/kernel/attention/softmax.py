"""Weights: a row of scores, masked and scaled, as exponentials and the inverse of their sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from llvmlite import ir

from bucketize.kernel.emit.math import exp
from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import FLOAT_BYTES, Size, Values
from bucketize.kernel.gemm.epilogue import Epilogue

Each: TypeAlias = Callable[[Size, "ir.Value | None"], ir.Value]
"""A vector at an index, where a mask is on."""
Step: TypeAlias = Callable[[ir.Value, ir.Value], ir.Value]

CHAINS = 4  # of maxima or sums, each waiting for itself alone


@dataclass(frozen=True)
class Weights:
    """The code of a row: what its scores go through before their softmax."""

    epilogue: Epilogue
    clean: bool
    """Whether no numbers count as 0."""
    in_order: bool
    """Whether its sum has one order."""

    def write(
        self, w: Writer, row: ir.Value, keys: ir.Value, inverse: ir.Value, *operands: ir.Value
    ) -> None:
        """Scores become e**(score - the greatest); what is behind the last key becomes 0."""
        masked = partial(self._masked, w, row, operands)
        top = _chained(w, keys, masked, w.number(-math.inf), partial(_greater, w))
        whole = w.mul(w.ceildiv(keys, w.lanes), w.lanes)

        def exponential(i: Size, _: ir.Value | None) -> ir.Value:
            at = w.item(row, i)
            value = exp(w, w.builder.fsub(w.load(at), top))
            w.store(value, at)
            return value

        summed = _in_order if self.in_order else _chained
        total = summed(w, whole, exponential, w.number(0), w.builder.fadd)
        none = w.builder.fcmp_ordered("==", total, w.number(0))  # there are no keys
        if self.clean:
            lost = w.builder.fcmp_unordered("uno", total, total)
            w.when(_first(w, lost), lambda: clear(w, row, 0, whole))
            none = w.builder.or_(none, lost)
        factor = w.builder.select(none, w.number(0), w.builder.fdiv(w.number(1), total))
        w.builder.store(_first(w, factor), inverse, align=FLOAT_BYTES)

    def _masked(
        self, w: Writer, row: ir.Value, operands: Sequence[ir.Value], i: Size, mask: ir.Value | None
    ) -> ir.Value:
        """A vector of scores through the epilogue."""
        at = w.item(row, i)
        kinds = self.epilogue.operands

        def operand(n: int) -> ir.Value:
            return kinds[n].load(w, operands[n], i, mask)

        value = self.epilogue.write(w, w.load(at), operand)
        if mask is not None:
            value = w.builder.select(mask, value, w.number(-math.inf))
        w.store(value, at)
        return value


def clear(w: Writer, row: ir.Value, first: Size, last: Size) -> None:
    """Weights of a row become 0."""
    w.loop(first, last, lambda i, _: w.store(w.number(0), w.item(row, i)), step=w.lanes)


def _first(w: Writer, x: ir.Value) -> ir.Value:
    return w.builder.extract_element(x, w.word(0))


def _greater(w: Writer, x: ir.Value, y: ir.Value) -> ir.Value:
    """The greater one, y where x is NaN: a row that has one becomes NaN by its sum."""
    return w.builder.select(w.builder.fcmp_ordered(">", x, y), x, y)


def _in_order(w: Writer, count: ir.Value, each: Each, start: ir.Value, step: Step) -> ir.Value:
    """A fold of whole vectors, one after the other: more of zeros change nothing."""
    (one,) = w.loop(0, count, lambda i, v: [step(each(i, None), v[0])], [start], step=w.lanes)
    return w.folded(one, step)


def _chained(w: Writer, count: ir.Value, each: Each, start: ir.Value, step: Step) -> ir.Value:
    """What `step` makes of `each` vector of so many elements, in all lanes."""
    whole = w.mul(w.div(count, w.lanes), w.lanes)
    many = w.mul(w.div(count, CHAINS * w.lanes), CHAINS * w.lanes)

    def chains(i: ir.Value, chained: Values) -> Values:
        return [step(each(w.add(i, u * w.lanes), None), old) for u, old in enumerate(chained)]

    chained = w.loop(0, many, chains, [start] * CHAINS, step=CHAINS * w.lanes)
    one = chained[0]
    for other in chained[1:]:
        one = step(other, one)
    (one,) = w.loop(many, whole, lambda i, v: [step(each(i, None), v[0])], [one], step=w.lanes)

    def last(i: ir.Value, v: Values) -> Values:
        return [step(each(i, w.mask(w.sub(count, i))), v[0])]

    (one,) = w.loop(whole, count, last, [one], step=w.lanes)
    return w.folded(one, step)
