"""What only a run can tell: operators that stayed dynamic, and where an unknown extent begins."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from bucketize.errors import BucketizeError
from bucketize.ir import CALL, IF, LOOP, Atom, Binding, Const, Function, all_bindings, specialise
from bucketize.ops.elementwise.arithmetic import cast
from bucketize.ops.rules import text
from bucketize.transform.dynamic_to_static import is_known
from bucketize.transform.simplify import simplify
from bucketize.types import ANY, AnyDim, Symbol, Type, UnrankedType, symbols, terms_of

FLOATS = 1 << 20
"""A size up to which arithmetic in float32 is followed, if it divides by small numbers only."""
Makers: TypeAlias = dict[Atom, Binding]
"""By what they make."""
Reason: TypeAlias = tuple[str, str]
"""An operand, and what of it only a run can tell."""


class Stayed(NamedTuple):
    """An operator that `simplify` left dynamic, and the operand that only a run can tell."""

    op: str
    node: str
    """The nodes of the model that it comes from."""
    operand: str
    reason: str
    extents: str
    """The axes of its results that are `?` by that; none if a run tells something else."""

    def __str__(self) -> str:
        place = f" (node {self.node})" if self.node else ""
        unknown = f"; unknown: {self.extents}" if self.extents else ""
        return f"{self.op}{place}: {self.operand}: {self.reason}{unknown}"


def stayed_dynamic(fn: Function) -> Iterator[Stayed]:
    """What stayed dynamic in a simplified function, and every place where an extent becomes `?`.

    That is inputs without names, `dyn` operators, those that count values, branches that differ,
    loops, and calls. Everything else that is `?` follows from these by its operands.
    """
    makers: Makers = {out: b for b in all_bindings(fn) for out in b.outs}
    for p in fn.params:
        if unknown := _unknown([p.type]):
            shown = "the axis has neither name nor size" if p.type.axes else "no shape is declared"
            yield Stayed("input", "", p.name, shown, unknown)
    for b in all_bindings(fn):
        for operand, reason, unknown in _stayed(b, makers):
            yield Stayed(b.op.name, "+".join(b.origin), operand, reason, unknown)


def _stayed(b: Binding, makers: Makers) -> Iterator[tuple[str, str, str]]:
    """The operands by which `b` stays dynamic, why, and what is unknown by each."""
    unknown = _unknown([o.type for o in b.outs])
    names = list(inspect.signature(b.op.compute).parameters)
    if b.op.results == 0:  # its attributes say of which types they are
        yield "all", "their ranks, or what they hold, decide how it is converted", unknown
    elif b.op.static is not None:
        for operand, reason in _reasons(b, names, makers):
            yield operand, reason, unknown
    elif b.op.shape_from_values is not None:
        yield names[: len(b.args)][-1], "how many of its elements hold decides", unknown  # a mask
    elif b.op in (IF, LOOP, CALL):
        yield from _around(b, unknown)
    elif unknown and not any(_unknown([a.type]) for a in b.args):
        shown = ", ".join(str(a.type) for a in b.args)
        yield "all", f"what is known of {shown or 'its attributes'} does not tell", unknown


def _around(b: Binding, unknown: str) -> Iterator[tuple[str, str, str]]:
    """What is known of the results of blocks less than of what is inside."""
    if b.op is IF:
        yield from _joined(b)
    elif b.op is LOOP:
        yield from _looped(b)
    elif unknown:
        yield "callee", f"what @{b.attrs['callee']} returns is known no better", unknown


def _unknown(types: Sequence[Type]) -> str:
    """What is `?`: `axis 0 of float32[?]`, `the rank of float32[...]`."""
    return ", ".join(part for t in types for part in _unknown_of(t))


def _unknown_of(type_: Type) -> Iterator[str]:
    if isinstance(type_, UnrankedType):
        yield f"the rank of {type_}"
    yield from (f"axis {i} of {type_}" for i, d in enumerate(type_.axes) if isinstance(d, AnyDim))


def _joined(b: Binding) -> Iterator[tuple[str, str, str]]:
    """The results of an `if` that are known less than those of its branches."""
    branches = b.attrs["then"].results, b.attrs["orelse"].results
    for out, one, other in zip(b.outs, *branches, strict=True):
        kinds = dict.fromkeys(str(r.type) for r in (one, other))
        if (unknown := _unknown([out.type])) and len(kinds) > 1:
            yield "condition", f"its branches give {' and '.join(kinds)}", unknown


def _looped(b: Binding) -> Iterator[tuple[str, str, str]]:
    """What a loop carries that changes its extents, and the rows that it stacks."""
    carried = b.args[2:]
    for out, first in zip(b.outs, carried, strict=False):
        if (unknown := _unknown([out.type])) and unknown != _unknown([first.type]):
            yield "carried", f"begins as {first.type} and changes from round to round", unknown
    rows = [o.type for o in b.outs[len(carried) :]]
    if unknown := _unknown(rows):
        yield "trips", "how many rounds there are, and what each makes", unknown


def _reasons(b: Binding, names: list[str], makers: Makers) -> Iterator[Reason]:
    unknown = [i for i in sorted(b.op.reads) if not is_known(b.args[i].type.value)]
    for i in unknown:
        yield names[i], _why(b.args[i], makers)
    if not unknown:
        yield names[0], f"it is {b.args[0].type}"


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


def bounds_that_help(fn: Function) -> Iterator[tuple[Symbol, int]]:
    """Symbols without an upper bound, each as bounded, by which fewer operators stay dynamic.

    The bounds that are tried are those that the model cuts an extent at, as a table of positions
    does, and one up to which floats hold an extent that it computes with; beside each how many
    operators of a simplified function it makes static.
    """
    before = len(list(stayed_dynamic(fn)))
    if not before:
        return
    for symbol, most in _cuts(fn).items():
        bounded = replace(symbol, hi=most)
        try:
            after = list(stayed_dynamic(simplify(specialise(fn, {symbol.name: bounded}))))
        except BucketizeError:
            continue  # no size within is legal
        if len(after) < before:
            yield bounded, before - len(after)


def _cuts(fn: Function) -> dict[Symbol, int]:
    """By symbol without an upper bound the least size that an extent is cut at: `min(S, 512)`.

    Or else `FLOATS`, where it is computed with as a float.
    """
    types = [o.type for b in all_bindings(fn) for o in b.outs if o.type.is_tensor]
    dims = dict.fromkeys(d for t in types for d in (*t.axes, *(t.value or ())))
    cuts: dict[Symbol, int] = {}
    for each in dict.fromkeys(t for d in dims for t in terms_of(d) if t.fn == "min"):
        match sorted(each.args, key=lambda d: isinstance(d, int)):
            case [Symbol(hi=None) as symbol, int(most)] if most > symbol.lo:
                cuts[symbol] = min(most, cuts.get(symbol, most))
    return dict.fromkeys(_open_floats(fn), FLOATS) | cuts


def _open_floats(fn: Function) -> Iterator[Symbol]:
    """Symbols without an upper bound that become floats, which do not hold every size."""
    for b in all_bindings(fn):
        if b.op is cast and b.out.type.dtype.kind == "f" and b.is_ranked:
            yield from (s for d in b.args[0].type.value or () for s in symbols(d) if s.hi is None)
