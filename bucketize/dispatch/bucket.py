"""Buckets: one interval per dispatched symbol, their names, and what makes a list of them legal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from numbers import Integral
from operator import index
from typing import Any, TypeAlias

from bucketize.errors import DispatchError, unknown_name
from bucketize.ir import Clone, Function, Var
from bucketize.types import MOST_EXTENT, Dim, Interval, Symbol, show_interval

Bucket: TypeAlias = dict[str, Interval]  # symbol name -> half-open interval


def show_bucket(bucket: Mapping[str, Interval]) -> str:
    """The form of the logs: `N=1;H=32..63`."""
    return ";".join(f"{n}={show_interval(i)}" for n, i in bucket.items())


def clone_name(function: str, clone: Clone) -> str:
    """`main[N=1,H=32..63]`, both ends inclusive; nothing behind the dots is unbounded.

    A named profile's clone is `main[big:N=1..8]`. Names are for people: nothing reads a bucket
    back from one.
    """
    parts = ",".join(f"{n}={show_interval(i)}" for n, i in clone.bucket.items())
    return f"{function}[{clone.label and clone.label + ':'}{parts}]"


def fallback_name(function: str) -> str:
    """The name of what serves the sizes that no bucket covers: the dynamic original."""
    return f"{function}[fallback]"


def clip(interval: Interval, symbol: Symbol) -> Interval | None:
    """The part of `interval` within the symbol's bounds, or None; it begins at a size of it."""
    lo, hi = interval
    lo, hi = symbol.least(max(lo, symbol.lo)), None if hi is None else symbol.least(hi)
    if symbol.hi is not None:
        hi = symbol.hi + 1 if hi is None else min(hi, symbol.hi + 1)
    if max(lo, hi or 0) > MOST_EXTENT:
        shown = show_interval((lo, hi))
        raise DispatchError(f"{symbol.name}: {shown}, but sizes end below 2**62; None is no end")
    return None if hi is not None and lo >= hi else (lo, hi)


def narrowed(symbol: Symbol, interval: Interval) -> Dim:
    """The symbol under the bucket's bounds; an integer when the bucket has one size."""
    lo, hi = interval
    return symbol.within(lo, None if hi is None else hi - 1)


def held(bucket: Mapping[str, Interval], own: Mapping[str, Symbol]) -> dict[str, int]:
    """The symbols of which a bucket holds one size."""
    dims = {n: narrowed(own.get(n, Symbol(n)), interval) for n, interval in bucket.items()}
    return {n: dim for n, dim in dims.items() if isinstance(dim, int)}


def check_intervals(intervals: Any, where: str) -> list[Interval]:
    """The intervals, if they are ordered and touch without gap or overlap."""
    if not isinstance(intervals, Sequence) or not intervals:
        raise DispatchError(f"{where}: expected a list of intervals (lo, hi), got {intervals!r}")
    shown = f"{where}: intervals {_show_all(intervals)}"
    for interval in intervals:
        _check_interval(interval, shown)
    for (_, end), (start, _) in pairwise(intervals):
        if end is None:
            raise DispatchError(f"{shown}: the unbounded interval is not the last")
        if start < end:
            kind = "overlap" if start > intervals[0][0] else "are out of order"
            raise DispatchError(f"{shown} {kind}: one ends at {end}, the next begins at {start}")
        if start > end:
            raise DispatchError(f"{shown} leave a gap: sizes {end} to {start - 1} are in none")
    return [(index(lo), None if hi is None else index(hi)) for lo, hi in intervals]


def _show_all(intervals: Iterable[Any]) -> str:
    """The text of intervals as they were given: half-open pairs."""
    return ", ".join(map(repr, intervals))


def _check_interval(interval: Any, shown: str) -> None:
    pair = isinstance(interval, Sequence) and len(interval) == 2
    if not pair or not _is_size(interval[0]) or not (interval[1] is None or _is_size(interval[1])):
        raise DispatchError(f"{shown}: {interval!r} is no pair of integers (lo, hi)")
    lo, hi = interval
    if lo < 0:
        raise DispatchError(f"{shown}: {(lo, hi)} begins below 0")
    if hi is not None and hi <= lo:
        kind = "is empty" if hi == lo else "is reversed"
        raise DispatchError(f"{shown}: {(lo, hi)} {kind}")


def _is_size(value: object) -> bool:
    """Whether it is an integer: of numpy's, too, from quantiles, say."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def intervals_by_symbol(fn: Function, answer: Mapping[Any, Any]) -> dict[Symbol, list[Interval]]:
    """What a dispatcher said of axes, as one clipped list per symbol, in order of the symbols."""
    answers: dict[Symbol, tuple[str, list[Interval]]] = {}
    for name, axes in answer.items():
        param = _param(fn, name)
        if not isinstance(axes, Mapping):
            raise DispatchError(f"input {name!r}: expected axis -> intervals, got {axes!r}")
        for axis, intervals in axes.items():
            symbol = _symbol(param, axis)
            where = f"input {name!r}, axis {axis} ({symbol})"
            checked = check_intervals(intervals, where)
            before = answers.setdefault(symbol, (where, checked))
            if before[1] != checked:
                a, b = _show_all(before[1]), _show_all(checked)
                raise DispatchError(f"{before[0]} has intervals {a}, but {where} has {b}")
    order = [s for s in fn.symbols().values() if s in answers]
    return {s: _clipped(s, *answers[s]) for s in order}


def _clipped(symbol: Symbol, where: str, intervals: list[Interval]) -> list[Interval]:
    kept = [c for i in intervals if (c := clip(i, symbol)) is not None]
    if not kept:
        shown = _show_all(intervals)
        raise DispatchError(f"{where}: intervals {shown} are all out of its bounds {symbol.range}")
    return kept


def _param(fn: Function, name: Any) -> Var:
    for param in fn.params:
        if param.name == name:
            return param
    raise unknown_name("input", name, [p.name for p in fn.params])


def _symbol(param: Var, axis: Any) -> Symbol:
    shape = param.type.axes
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        raise DispatchError(f"input {param.name!r} is {param.type}: it has no axis {axis!r}")
    dim = shape[axis]
    if not isinstance(dim, Symbol):
        raise DispatchError(f"input {param.name!r}, axis {axis} is {dim}: not dynamic")
    return dim
