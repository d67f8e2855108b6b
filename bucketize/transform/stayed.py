"""Why operators stayed dynamic: what could not be known before a run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from bucketize.ir import Atom, Binding, Const, Function, all_bindings
from bucketize.ops.rules import text
from bucketize.types import ANY, AnyDim

Makers: TypeAlias = dict[Atom, Binding]
"""By what they make."""


class Stayed(NamedTuple):
    """An operator that `simplify` left dynamic, and the operand that only a run can tell."""

    op: str
    node: str
    """The nodes of the model that it comes from."""
    operand: str
    reason: str

    def __str__(self) -> str:
        place = f" (node {self.node})" if self.node else ""
        return f"{self.op}{place}: {self.operand}: {self.reason}"


def stayed_dynamic(fn: Function) -> Iterator[Stayed]:
    """What stayed dynamic in a simplified function: `dyn` ops, and those that count values."""
    makers: Makers = {out: b for b in all_bindings(fn) for out in b.outs}
    for b in all_bindings(fn):
        node, names = "+".join(b.origin), list(inspect.signature(b.op.compute).parameters)
        if b.op.static is not None:
            for operand, reason in _reasons(b, names, makers):
                yield Stayed(b.op.name, node, operand, reason)
        elif b.op.shape_from_values is not None:
            counted = names[: len(b.args)][-1]  # a mask comes last
            yield Stayed(b.op.name, node, counted, "how many of its elements hold decides")


def _reasons(b: Binding, names: list[str], makers: Makers) -> Iterator[tuple[str, str]]:
    unknown = [i for i in sorted(b.op.reads) if not _is_known(b.args[i])]
    for i in unknown:
        yield names[i], _why(b.args[i], makers)
    if not unknown:
        types = ", ".join(str(o.type) for o in b.outs)
        yield names[0], f"an extent of the result stays unknown: {types}"


def _is_known(atom: Atom) -> bool:
    value = atom.type.value
    return value is not None and not any(isinstance(d, AnyDim) for d in value)


def _why(atom: Atom, makers: Makers) -> str:
    if isinstance(atom, Const):
        return f"{atom.type} is not followed as dims"
    maker = makers.get(atom)
    if maker is None:
        return f"input {atom.name!r} of the model, {atom.type}"
    by = f"{maker.op.name} (node {'+'.join(maker.origin)})" if maker.origin else maker.op.name
    value = atom.type.value or (ANY,)
    if all(isinstance(d, AnyDim) for d in value):
        return f"made by {by}, whose elements are not followed as dims"
    return f"made by {by}, known as {text(value)}"
