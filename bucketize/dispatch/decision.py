"""The decisions of a dispatched function, one after the other, and the leaves below them."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bucketize.ir import CALL, IF, Atom, Binding, Function, left_out
from bucketize.ops.dim import dim_less, dims_within
from bucketize.transform.dead_code import used_atoms
from bucketize.types import Dim, Symbol

TESTS = frozenset((dim_less, dims_within))  # what decides by sizes alone


@dataclass(frozen=True, slots=True)
class Side:
    """What follows, deeper by one, is for sizes where the test holds, or where it does not."""

    depth: int
    test: Binding
    holds: bool


@dataclass(frozen=True, slots=True)
class Leaf:
    """A block that decides nothing by sizes: it calls a clone, or refuses."""

    depth: int
    block: Function

    @property
    def callees(self) -> list[str]:
        """The functions that the leaf calls: one, if dispatch made it."""
        return [b.attrs["callee"] for b in self.block.body if b.op is CALL]


@dataclass(frozen=True, slots=True)
class Gap:
    """Leaves in the middle of a great tree that are left out."""

    depth: int
    leaves: int


Step: TypeAlias = Side | Leaf | Gap


def decisions(fn: Function, *, abridged: bool = False) -> Iterator[Step]:
    """The tree in the order of its text: each test's side where it holds, then the other.

    Abridged, a tree of more than 10,000 leaves shows the first and last of them.
    """
    return _walk(fn, 0, left_out(fn) if abridged else {})


def _walk(block: Function, depth: int, gaps: Mapping[Function, int]) -> Iterator[Step]:
    if block in gaps:
        yield Gap(depth, gaps[block])
        return
    tests = {b.out: b for b in block.body if b.op in TESTS}
    forks = [b for b in block.body if b.op is IF and b.args[0] in tests]
    for fork in forks:
        for holds, inner in ((True, fork.attrs["then"]), (False, fork.attrs["orelse"])):
            yield Side(depth, tests[fork.args[0]], holds)  # type: ignore[index]
            yield from _walk(inner, depth + 1, gaps)
    if not forks:
        yield Leaf(depth, block)


# --- as a table ----------------------------------------------------------------------------------

Nodes: TypeAlias = "array[int]"
"""Four numbers a node, the root first: a symbol, a bound, and what follows where the symbol's size
is below the bound, and where it is not: where another node begins, or ~i for leaf i."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of tests as a table of nodes, and the blocks at its leaves."""

    symbols: tuple[str, ...]
    nodes: Nodes
    leaves: tuple[Function, ...]


def tree_of(test: Binding, fork: Binding) -> Tree | None:
    """The tree below an `if` on a test, if symbols alone decide and nobody else reads the tests."""
    found = _Table()
    root = found.fork(test, fork)
    return Tree(tuple(found.symbols), found.nodes, tuple(found.leaves)) if root == 0 else None


class _Table:
    def __init__(self) -> None:
        self.symbols: dict[str, int] = {}
        self.nodes: Nodes = array("q")
        self.leaves: list[Function] = []
        self.tests: set[Atom] = set()

    def fork(self, test: Binding, fork: Binding) -> int | None:
        """Where the first node of a test begins; None if the tree is not such a table."""
        self.tests.update(test.outs)
        asked = list(_questions(test))
        if any(name is None for name, _, _ in asked):
            return None
        at = len(self.nodes)
        self.nodes.extend([0] * (4 * len(asked)))
        then, orelse = self.block(fork.attrs["then"]), self.block(fork.attrs["orelse"])
        if then is None or orelse is None:
            return None
        for i, (name, bound, below) in zip(itertools.count(at, 4), asked, strict=False):
            yes = i + 4 if i + 4 < at + 4 * len(asked) else then
            sides = (yes, orelse) if below else (orelse, yes)
            symbol = self.symbols.setdefault(str(name), len(self.symbols))
            self.nodes[i : i + 4] = array("q", (symbol, bound, *sides))
        return at

    def block(self, block: Function) -> int | None:
        """The index of what a block comes to."""
        if len(block.body) == 2 and block.body[0].op in TESTS and block.body[1].op is IF:
            test, fork = block.body
            if fork.args == test.outs and block.results == fork.outs:
                return self.fork(test, fork)
        if any(not self.tests.isdisjoint(used_atoms(b)) for b in block.body):
            return None
        if not self.tests.isdisjoint(block.results):
            return None
        self.leaves.append(block)
        return ~(len(self.leaves) - 1)


def _questions(test: Binding) -> Iterator[tuple[str | None, int, bool]]:
    """(symbol, bound, below): a test holds where each size is below its bound, or is not."""
    if test.op is dim_less:
        yield _name(test.attrs["dim"]), test.attrs["than"], True
        return
    for dim, (lo, hi) in zip(test.attrs["dims"], test.attrs["box"], strict=True):
        yield _name(dim), lo, False
        if hi is not None:
            yield _name(dim), hi, True


def _name(dim: Dim) -> str | None:
    return dim.name if isinstance(dim, Symbol) else None
