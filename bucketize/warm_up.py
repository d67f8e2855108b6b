"""Warming up: clones are linked and run once, on zeros, before a request needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from bucketize.errors import ArgumentError, BucketizeError, ShapeError, TypeRelError, warn
from bucketize.ir import Var
from bucketize.op import Value
from bucketize.program.program import Program, Routine
from bucketize.traffic.value import Traffic, check_traffic
from bucketize.types import OptionalType, SequenceType, Symbol, Type, evaluate

MOST_TIMES = 512  # of the least size: no window of a usual model is wider


def in_order(program: Program, traffic: Traffic | None, seconds: float) -> list[str]:
    """The clones, those first that are asked for most: by requests times their sizes, multiplied.

    Without a traffic they come in the order of the program; `main`, where there are none. Raises
    ArgumentError for what is no traffic, or no number of seconds.
    """
    if traffic is not None:
        check_traffic(traffic)
    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise ArgumentError(f"seconds: expected a number from 0, got {seconds!r}")
    clones = program.clones
    names = [n for n in program.routines if n != "main"] or ["main"]
    if traffic is not None:
        load = {n: traffic.load(clones[n].bucket) for n in names if n in clones}
        names.sort(key=lambda name: -load.get(name, 0.0))
    return names


def warm(routine: Routine, run: Callable[[Routine, Sequence[Value]], object]) -> None:
    """Run a routine once, at its smallest legal sizes; one that is not legal is passed by."""
    if routine.refusal:
        return
    refused: BucketizeError | None = None
    for sizes in rising_sizes(routine.params):
        try:
            run(routine, [_zero(p.type, sizes) for p in routine.params])
        except (TypeRelError, ShapeError) as e:
            refused = refused or e
        else:
            return
    fault = f"{routine.name} stays cold: it runs at none of the sizes tried; at the least"
    warn(f"{fault}: {refused}")


def rising_sizes(params: Iterable[Var]) -> Iterator[dict[str, int]]:
    """The least sizes of the symbols but 0, and multiples: a window may want more than the least.

    They double up to `MOST_TIMES`, none beyond its bound.
    """
    symbols = {s.name: s for p in params for s in p.type.symbols()}
    before, times = None, 1
    while times <= MOST_TIMES:
        sizes = {name: _times(symbol, times) for name, symbol in symbols.items()}
        if sizes == before:
            return
        yield sizes
        before, times = sizes, 2 * times


def _times(symbol: Symbol, times: int) -> int:
    size = times * max(symbol.lo, symbol.step)
    return size if symbol.hi is None else min(size, symbol.hi)


def _zero(type_: Type, sizes: Mapping[str, int]) -> Value:
    """Zeros, of rank 0 if nobody knows it; no elements, nothing."""
    if isinstance(type_, SequenceType):
        return []
    if isinstance(type_, OptionalType):
        return None
    return np.zeros([evaluate(d, sizes) for d in type_.axes], type_.dtype)
