"""Keys that a mask hides: the last one that a row may see. `softmax` adds the mask to scores.

So an order of time, padding, and whatever else hides the last keys of a block of rows spares the
kernel their scores and their part in the sum; nothing has to be proven of how the mask was made.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import Size
from bucketize.kernel.gemm.epilogue import Epilogue
from bucketize.ops import add, where

HIDDEN = -1e30
"""What is this low beside a score that is not weighs nothing: e**(what lies between) is 0."""


@dataclass(frozen=True)
class Hiding:
    """The operand of an epilogue that hides scores."""

    operand: int
    truth: bool | None
    """What stands for a key that is seen, if the operand holds truths; else it is added."""

    def last(self, w: Writer, row: ir.Value, keys: Size) -> ir.Value:
        """A row's keys up to the last vector with one that is seen; 0 if none is."""
        b = w.builder
        whole = w.word(w.mul(w.ceildiv(keys, w.lanes), w.lanes))
        before = b.block
        head, body, done = map(b.append_basic_block, ("look", "vector", "looked"))
        b.branch(head)
        b.position_at_end(head)
        end = w.phi((whole, before))
        b.cbranch(w.compare(end, ">", 0), body, done)
        b.position_at_end(body)
        first = w.sub(end, w.lanes)
        is_seen = w.any_lane(self._seen(w, row, first, w.mask(w.sub(keys, first))))
        end.add_incoming(w.word(first), b.block)
        b.cbranch(is_seen, done, head)
        b.position_at_end(done)
        return end

    def _seen(self, w: Writer, row: ir.Value, i: Size, mask: ir.Value) -> ir.Value:
        """Which keys of a vector are seen; no number hides nothing."""
        if self.truth is None:
            value = w.load(w.item(row, i), mask)
            return w.builder.and_(w.builder.fcmp_unordered(">", value, w.number(HIDDEN)), mask)
        truths = w.load_truths(w.at(row, i), mask)
        return w.builder.and_(truths if self.truth else w.builder.not_(truths), mask)


def hiding_of(epilogue: Epilogue) -> Hiding | None:
    """The operand that the last step of an epilogue hides scores by, if it may."""
    if not epilogue.steps:
        return None
    scalar, refs, _ = epilogue.steps[-1]
    count = len(epilogue.operands)
    before = 0 if len(epilogue.steps) == 1 else count + len(epilogue.steps) - 1
    values = [r if isinstance(r, int) else None for r in refs]
    operands = [r - 1 for r in values if r is not None and 0 < r <= count]
    if len(operands) != 1 or before not in values or not epilogue.operands[operands[0]].columns:
        return None
    if scalar == add.scalar:
        return Hiding(operands[0], None)
    lows = [r for r in refs if isinstance(r, float) and r <= HIDDEN]
    chosen = scalar == where.scalar and values[0] == operands[0] + 1
    return Hiding(operands[0], values[1] == before) if chosen and lows else None
