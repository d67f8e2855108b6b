"""Which buckets the types refute, before there is a clone for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from bucketize.dispatch.bucket import Bucket, narrowed
from bucketize.errors import BucketizeError, TypeRelError
from bucketize.ir import Function, specialise
from bucketize.ir.relation import relations
from bucketize.types import (
    Assumption,
    Dim,
    Expr,
    Interval,
    broadcast,
    extremes,
    meet,
    substitute,
    symbols,
)

Chosen: TypeAlias = tuple[tuple[str, Interval], ...]


class Legality:
    """What the types of a function say of buckets; each group of symbols is asked about once."""

    def __init__(self, fn: Function | None) -> None:
        """`fn` is the function; of none nothing is said."""
        self._own = {} if fn is None else fn.symbols()
        self._groups: dict[tuple[str, ...], list[Assumption]] = {}
        self._known: dict[tuple[tuple[str, ...], Chosen], str] = {}
        for relation in dict.fromkeys([] if fn is None else _relations(fn)):
            names = {s.name for dim in relation[1:] for s in symbols(dim)}
            self._groups.setdefault(tuple(sorted(names)), []).append(relation)

    def fault(self, bucket: Mapping[str, Interval], name: str) -> str:
        """Why no size of a bucket is legal, by what `name` has a part in; empty if one may be."""
        for names in self._groups:
            if name in names:
                chosen = tuple([(n, bucket[n]) for n in names if n in bucket])
                if (names, chosen) not in self._known:
                    self._known[names, chosen] = self._fault(names, dict(chosen))
                if fault := self._known[names, chosen]:
                    return fault
        return ""

    def _fault(self, names: tuple[str, ...], bucket: Bucket) -> str:
        dims = {n: narrowed(self._own[n], interval) for n, interval in bucket.items()}
        for kind, *both in self._groups[names]:
            try:
                a, b = (substitute(dim, dims) for dim in both)
                if kind == ">=":
                    if extremes(a - b)[1] < 0:
                        return f"{both[0]} must be at least {both[1]}"
                else:
                    (meet if kind == "==" else broadcast)(a, b)
            except TypeRelError as e:
                return e.message
        return ""

    def buckets(
        self, intervals: Sequence[tuple[str, Sequence[Interval]]], bucket: Bucket | None = None
    ) -> Iterator[Bucket]:
        """The buckets of an interval for each symbol that are not refuted, within one."""
        if not intervals:
            yield bucket or {}
            return
        (name, each), *rest = intervals
        for interval in each:
            inner = {**(bucket or {}), name: interval}
            if not self.fault(inner, name):
                yield from self.buckets(rest, inner)


def _relations(fn: Function) -> Iterator[Assumption]:
    """What types rely on, and the dims that are themselves of extents that have to fit."""
    yield from relations(fn)
    dims = (d for b in fn.body for o in b.outs for d in o.type.axes if isinstance(d, Expr))
    yield from ((">=", d, 0) for d in dims)


def legal(fn: Function, dims: Mapping[str, Dim], name: str) -> Function:
    """The clone of a function at these dims, or an error that tells how to leave it out."""
    try:
        return specialise(fn, dims, name)
    except BucketizeError as e:
        e.add_note(
            f"in {name}: bounds may leave out its sizes, bounds={{...}} or --dim SYMBOL=LO..HI"
        )
        raise
