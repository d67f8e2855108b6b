"""Relations between extents that types leave to run time, of a straight-line function."""

from __future__ import annotations

from collections.abc import Iterator

from bucketize.ir.build import infer, refine
from bucketize.ir.core import Binding, Function
from bucketize.ir.structure import FUSED, STRUCTURAL
from bucketize.types import Assumption, assumptions, extremes


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
