"""What a report is about: an executable, the sizes at which it is looked at, what else is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bucketize.dispatch.bucket import Bucket, held
from bucketize.errors import NoBucketError, ShapeError, TypeRelError
from bucketize.executable import Executable
from bucketize.inspect.predict import Prediction, predictions
from bucketize.ir.relation import broken
from bucketize.kernel.typical import between
from bucketize.partition.partition import requests_of
from bucketize.program.instruction import RunSegment
from bucketize.program.path import way
from bucketize.program.program import Program
from bucketize.traffic.value import Traffic
from bucketize.types import Sizes, Symbol
from bucketize.warm_up import in_order, rising_sizes

CLONES = 256
"""The most clones, those that are asked for most, of which the report tells what they take."""
SIZES = 33
"""Sizes of a symbol at which the models are asked."""
REFUSALS = (NoBucketError, ShapeError, TypeRelError)


@dataclass(frozen=True, eq=False)
class ReportSubject:
    """An executable, and what was given with it."""

    executable: Executable
    name: str
    traffic: Traffic | None = None
    given: Sequence[Mapping[str, int]] = field(default_factory=tuple)
    """Sizes that were asked for; none: one is chosen."""

    @property
    def program(self) -> Program:
        """What was decided."""
        return self.executable.program

    @cached_property
    def symbols(self) -> dict[str, Symbol]:
        """The symbols of the inputs."""
        params = self.program.routines.params("main")
        return {s.name: s for p in params for s in p.type.symbols()}

    @cached_property
    def requests(self) -> Traffic | None:
        """The traffic by the symbols of the inputs alone: what is held to a size is none.

        Errors are those of `requests_of`.
        """
        if self.traffic is None or not self.symbols:
            return None
        its = requests_of(self.program.routines["main"].fn, self.traffic)
        names = tuple(self.symbols)
        columns = [its.symbols.index(name) for name in names]
        return Traffic(names, its.sizes[:, columns], its.requests)

    @cached_property
    def clones(self) -> list[str]:
        """The functions that serve sizes, those first that are asked for most, or `main`."""
        return in_order(self.program, self.requests, 0.0)[:CLONES]

    @cached_property
    def ends(self) -> dict[str, tuple[int, int]]:
        """From where to where sizes of each symbol are looked at: bounds, or sizes that come."""
        return {name: self._ends(symbol) for name, symbol in self.symbols.items()}

    def _ends(self, symbol: Symbol) -> tuple[int, int]:
        given = [sizes[symbol.name] for sizes in self.given]
        low = max(symbol.lo, symbol.step)
        if symbol.hi is not None:
            return low, symbol.hi
        if self.requests is not None:
            given += self.requests.sizes[:, self.requests.symbols.index(symbol.name)].tolist()
        high = max([between(low, None, 1.0), *given])
        return low, symbol.rounded(high)

    @cached_property
    def points(self) -> list[Sizes]:
        """The sizes at which it is run: those that were given, else one."""
        return [dict(sizes) for sizes in self.given] or [self._usual]

    @cached_property
    def _usual(self) -> Sizes:
        """The size that comes most, else that in the middle, or the nearest to it that is legal."""
        middle = {name: self._between(name, 0.5) for name in self.symbols}
        for sizes in (*self._frequent(None), middle):
            if self.predicted([sizes]):
                return sizes
        params = self.program.routines.params("main")
        others = nearest(rising_sizes(params), middle)
        return next((sizes for sizes in others if self.predicted([sizes])), middle)

    def _between(self, name: str, share: float) -> int:
        """The size so far from one end of a symbol to the other."""
        return self.symbols[name].rounded(between(*self.ends[name], share))

    def _frequent(self, clone: str | None) -> Iterator[Sizes]:
        """The size of most requests, of all or of a clone's; nothing if there is no traffic."""
        traffic = self.requests
        if traffic is None:
            return
        inside = np.ones(len(traffic.requests), bool)
        for name, (low, high) in self._bucket(clone).items():
            column = traffic.sizes[:, traffic.symbols.index(name)]
            inside &= (low <= column) & (column < (np.inf if high is None else high))
        if inside.any():
            row = int(np.where(inside, traffic.requests, 0).argmax())
            yield dict(zip(traffic.symbols, traffic.sizes[row].tolist(), strict=True))

    def _bucket(self, clone: str | None) -> Bucket:
        """The bucket of a clone; none of what is no clone."""
        its = self.program.clones.get(clone or "")
        return {} if its is None else dict(its.bucket)

    def inside(self, clone: str) -> Iterator[Sizes]:
        """Sizes of a clone: that of most requests, the middle of its bucket, those around it."""
        params = self.program.routines.params(clone)
        own = {s.name: s for p in params for s in p.type.symbols()}
        own = {name: own.get(name, symbol) for name, symbol in self.symbols.items()}
        fixed = held(self._bucket(clone), self.symbols)
        yield from self._frequent(clone)
        middle = {name: s.rounded(between(s.lo, s.hi, 0.5)) for name, s in own.items()} | fixed
        yield middle
        yield from ({**sizes, **fixed} for sizes in nearest(rising_sizes(params), middle))

    def predicted(self, points: Sequence[Sizes]) -> list[tuple[Sizes, Prediction]]:
        """What calls are expected to take; sizes that are refused are left out."""
        points = [sizes for sizes in points if self._is_legal(sizes)]
        with suppress(*REFUSALS):  # kernels are asked once for all, if none is
            return list(zip(points, predictions(self.program, points), strict=True))
        pairs = []
        for sizes in points:
            with suppress(*REFUSALS):
                pairs.append((sizes, predictions(self.program, [sizes])[0]))
        return pairs

    def _is_legal(self, sizes: Sizes) -> bool:
        """Whether what the types leave to run time holds at these sizes."""
        with suppress(*REFUSALS):
            steps = [(step.instruction, step.sizes) for step in way(self.program, "main", sizes)]
            return not any(
                broken(each.segment.relations, at)
                for each, at in steps
                if isinstance(each, RunSegment) and at.keys() >= {*each.segment.symbols}
            )
        return False

    def grid(self, name: str, base: Sizes, count: int = SIZES) -> list[Sizes]:
        """Sizes that differ by one symbol, geometrically between its ends."""
        steps = sorted({self._between(name, k / (count - 1)) for k in range(count)})
        return [{**base, name: size} for size in steps]


def nearest(every: Iterable[Sizes], to: Sizes) -> list[Sizes]:
    """Sizes, those first whose ratios to others are least."""

    def distance(sizes: Sizes) -> float:
        return sum(abs(math.log((n + 1) / (to[name] + 1))) for name, n in sizes.items())

    return sorted(every, key=distance)
