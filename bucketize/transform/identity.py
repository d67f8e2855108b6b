"""Ops that give back what they take: exporters write them where some size would need them.

A pad by nothing, a slice of all, a reshape to the shape that is there would each be a copy, and
stand between ops that one kernel computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bucketize.ir import Atom, Binding, Builder, Function, infer, rewrite
from bucketize.op import Op
from bucketize.ops import broadcast_to, concat, pad, reshape, strided_slice, tile, transpose
from bucketize.ops.rules import same
from bucketize.types import assumptions


def drop_identities(fn: Function) -> Function:
    """`fn` without ops that are known to give back their argument, at all sizes."""
    return rewrite(fn, _argument)


def _argument(_out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
    rule = RULES.get(b.op)
    if rule is None or not b.is_ranked or not rule(b):
        return None
    with assumptions() as relied:  # which nobody else would check
        infer(b.op, [a.type for a in args], b.attrs)
    return None if relied else args[0]


def _keeps_shape(b: Binding) -> bool:
    old, new = b.args[0].type.shape, b.out.type.shape
    return len(old) == len(new) and all(map(same, old, new))


RULES: Mapping[Op, Callable[[Binding], bool]] = {
    reshape: _keeps_shape,
    broadcast_to: _keeps_shape,
    tile: _keeps_shape,
    strided_slice: lambda b: all(s == 1 for s in b.attrs["strides"]) and _keeps_shape(b),
    pad: lambda b: all(p == (0, 0) for p in b.attrs["pads"]),
    transpose: lambda b: list(b.attrs["axes"]) == sorted(b.attrs["axes"]),
    concat: lambda b: len(b.args) == 1,
}
