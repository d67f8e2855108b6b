"""The decisions of a dispatched function as a table of numbers."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, MutableSequence
from dataclasses import dataclass
from typing import TypeAlias

from bucketize.ir import IF, TESTS, Atom, Binding, Function
from bucketize.ops.dim import dim_less
from bucketize.transform.dead_code import used_atoms
from bucketize.types import Dim, Symbol

Nodes: TypeAlias = MutableSequence[int]
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
    table = _Table()
    root = table.fork(test, fork)
    return Tree(tuple(table.symbols), table.nodes, tuple(table.leaves)) if root == 0 else None


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
