"""An image: a program that is linked. Kernels have addresses, constants are packed, once for all.

Where kernels and constants come from is the supply's affair: a compiler and its cache, or a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from bucketize.kernel.object import Kernel
from bucketize.link.ffi import function_at
from bucketize.link.plan import Plan
from bucketize.op import Array
from bucketize.program.instruction import KernelCall, Segment
from bucketize.program.lazy import Lazy
from bucketize.program.program import Program

CORE = ("fill", "walk", "strip", "rounds", "share")
"""The kernels that images have beside their own; the last is of those for several threads."""


def core(threads: int) -> tuple[str, ...]:
    """Native functions of an image for so many threads."""
    return CORE if threads > 1 else CORE[:-1]


class Supply(Protocol):
    """What an image is linked from."""

    def core(self, name: str) -> Kernel:
        """One of `CORE`."""

    def plan(self, segment: Segment) -> Plan:
        """The plan of a segment."""

    def kernel(self, name: str) -> Kernel:
        """A kernel of the program."""

    def constant(self, value: Array, call: KernelCall | None, argument: int) -> Array:
        """A constant as the kernel of `call` wants its argument, or in its own layout."""

    def constants(self, segment: Segment) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The constants of a segment, in the order of its plan's, and those that are results."""

    def kernels(self) -> dict[str, Kernel]:
        """The kernels that were asked for so far, by name."""

    def constant_bytes(self) -> int:
        """Bytes of the constants that were asked for so far."""


@dataclass(frozen=True, eq=False)
class Linked:
    """What the contexts of an image share of a segment."""

    plan: Plan
    kernels: Array
    """Addresses, in the order of the calls; behind them those of groups."""
    constants: tuple[Array, ...]
    """In the order of the plan's."""
    held: tuple[Array, ...]
    """The constants that are results."""
    results: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    """The registers of each result's shape, and its dtype."""

    def __repr__(self) -> str:
        return f"<linked {self.plan!r}>"

    @cached_property
    def copies(self) -> bool:
        """Whether a result is something that no kernel writes."""
        return any(r.source != "own" for r in self.plan.results)


class Image:
    """A program and what its segments are linked to, each when it is first run."""

    def __init__(self, program: Program, supply: Supply) -> None:
        self.program, self.supply = program, supply
        fill, self.walk_address, self.strip, rounds, *share = (
            supply.core(name).address for name in core(program.threads)
        )
        self.fill, self.walk = function_at(fill), function_at(self.walk_address)
        self.rounds = function_at(rounds)
        self.share = function_at(share[0] if share else 0)
        self._linked = Lazy(partial(_linked, supply, self.strip))

    def __repr__(self) -> str:
        return f"<image of {self.program!r}, {len(self._linked.made())} segments linked>"

    def is_linked(self, segment: Segment) -> bool:
        """Whether it was linked already."""
        return segment in self._linked.made()

    def linked(self, segment: Segment) -> Linked:
        """The segment's kernels and constants."""
        return self._linked[segment]


def _linked(supply: Supply, strip: int, segment: Segment) -> Linked:
    """No method: an image that reaches itself would keep its weights until a collection."""
    plan = supply.plan(segment)
    kernels = [supply.kernel(name).address for name in plan.kernels]
    kernels += [strip] * len(plan.groups)
    constants, of_results = supply.constants(segment)
    _, types = segment.types
    results = tuple(
        (result.shape, type_.dtype) for result, type_ in zip(plan.results, types, strict=True)
    )
    return Linked(plan, np.array(kernels, np.int64), constants, of_results, results)
