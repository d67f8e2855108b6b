"""Relations between extents that types leave to run time, of a straight-line function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping

from bucketize.errors import TypeRelError
from bucketize.ir.build import infer, refine
from bucketize.ir.core import Binding, Function
from bucketize.ir.structure import FUSED, STRUCTURAL
from bucketize.types import Assumption, assumptions, evaluate, extremes


def relations(fn: Function) -> list[Assumption]:
    """What is checked of the function's sizes when it is run."""
    return [*relied_on(fn), *extents(fn)]


def relied_on(fn: Function) -> Iterator[Assumption]:
    """What the types of a straight-line function rely on and cannot prove."""
    for b in _flat(fn):
        if b.op not in STRUCTURAL:
            with assumptions() as assumed:
                infer(b.op, [a.type for a in b.args], b.attrs)
            yield from assumed


def _flat(fn: Function) -> Iterator[Binding]:
    for b in fn.body:
        yield b
        if b.op is FUSED:  # typed by its arguments, whose extents have names by now
            yield from refine(b.attrs["body"], [a.type for a in b.args]).body


def extents(fn: Function) -> Iterator[Assumption]:
    """Extents that bounds do not keep from being negative."""
    dims = dict.fromkeys(d for b in fn.body for o in b.outs for d in o.type.axes)
    yield from ((">=", d, 0) for d in dims if extremes(d)[0] < 0)


HOLDS: Mapping[str, tuple[Callable[[int, int], bool], str]] = {
    "==": (operator.eq, "{} and {} must be equal"),
    "broadcast": (lambda a, b: b in (a, 1), "{} and {} must be equal, or the latter 1"),
    ">=": (operator.ge, "{} must be at least {}"),
}


def broken(relations: Iterable[Assumption], sizes: Mapping[str, int]) -> str:
    """The first relation that does not hold at these sizes, by its dims."""
    for relation, a, b in relations:
        holds, wanted = HOLDS[relation]
        try:
            got = evaluate(a, sizes), evaluate(b, sizes)
        except TypeRelError as e:  # a dim that is itself of extents that must be equal
            return f"{wanted.format(a, b)}, but {e}"
        if not holds(*got):
            return f"{wanted.format(a, b)}, got {got[0]} and {got[1]}"
    return ""
