"""The decision tree of a dispatched function, as nested conditions."""

from __future__ import annotations

from collections.abc import Iterator

from bucketize.ir import CALL, IF, NO_BUCKET, Atom, Binding, Function
from bucketize.ops.dim import dim_less
from bucketize.types import Dim, Interval


def tree_lines(block: Function) -> Iterator[str]:
    """The tree below a block: `if N < 2:`, and the clones at its leaves."""
    for binding in block.body:
        if binding.op is IF:
            yield f"if {condition(block, binding.args[0])}:"
            yield from ("  " + line for line in tree_lines(binding.attrs["then"]))
            yield "else:"
            yield from ("  " + line for line in tree_lines(binding.attrs["orelse"]))
        elif binding.op is CALL:
            yield binding.attrs["callee"]
        elif binding.op is NO_BUCKET:
            yield "error: no bucket"


def condition(block: Function, atom: Atom) -> str:
    """What the branch that hangs on `atom` asks of the sizes."""
    (asked,) = (b for b in block.body if atom in b.outs)
    if asked.op is dim_less:
        return f"{asked.attrs['dim']} < {asked.attrs['than']}"
    return inside(asked)


def inside(asked: Binding) -> str:
    """The condition of a box of sizes."""
    pairs = zip(asked.attrs["dims"], asked.attrs["box"], strict=True)
    return " and ".join(between(dim, interval) for dim, interval in pairs)


def between(dim: Dim, interval: Interval) -> str:
    """The condition of one interval."""
    lo, hi = interval
    return f"{lo} <= {dim}" if hi is None else f"{lo} <= {dim} < {hi}"
