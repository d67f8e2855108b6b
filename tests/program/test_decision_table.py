"""Trees of decisions as tables: they lead where the trees do, and what is none is not made one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from test_dispatch import callee, module, profile

from bucketize import ops
from bucketize.dispatch.tree import dispatch
from bucketize.ir import IF, Builder, Const, Function, Leaf, Var, decisions, tree_lines
from bucketize.ops.dim import dim_less, dims_within
from bucketize.program.decision_table import Tree, tree_of
from bucketize.types import Profile, Symbol, tensor
from dispatchers import exact_dispatcher


def table_of(fn: Function) -> Tree | None:
    """The table of a function that ends in a decision."""
    return tree_of(*fn.body[-2:])


def leaf_of(tree: Tree, **sizes: int) -> Function:
    """The leaf that a walk through the table comes to."""
    at = 0
    while at >= 0:
        symbol, bound, below, above = tree.nodes[at : at + 4]
        at = below if sizes[tree.symbols[symbol]] < bound else above
    return tree.leaves[~at]


def test_a_table_leads_where_the_tree_does() -> None:
    cuts = {0: [(1, 2), (2, 5), (5, 6)], 1: [(2, 3), (3, 9)]}
    mod = dispatch(module(Symbol("N", 1, 8), Symbol("M", 1, 9)), lambda shapes: {"data": cuts})
    tree = table_of(mod.main)
    assert tree is not None
    assert sorted(tree.symbols) == ["M", "N"]
    for n, m in itertools.product(range(1, 9), range(1, 10)):
        assert Leaf(0, leaf_of(tree, N=n, M=m)).callees == [callee(mod, n, m)]
    assert len(tree.leaves) == sum(isinstance(s, Leaf) for s in decisions(mod.main))


def test_a_table_of_profiles_leads_to_the_first_that_covers() -> None:
    answer = [profile(2, 3, 4), profile(3, 3, 9), profile(1, 8, 8)]
    mod = dispatch(module(Symbol("N", 1, 64), 3), lambda shapes: answer)
    tree = table_of(mod.main)
    assert tree is not None
    found = [Leaf(0, leaf_of(tree, N=n)).callees[0] for n in range(1, 11)]
    first, second, third = list(mod.clones)
    fallback = "main[fallback]"
    assert found == [third, first, first, first, *[second] * 5, fallback]


def test_a_tree_as_text() -> None:
    mod = dispatch(
        module(Symbol("N", 1, 8), 3), lambda shapes: {"data": {0: [(2, 4), (4, 9)]}}, fallback=False
    )
    assert list(tree_lines(mod.main)) == [
        "if N < 2:",
        "  error: no bucket",
        "else:",
        "  if N < 4:",
        "    main[N=2..3]",
        "  else:",
        "    main[N=4..8]",
    ]


def test_a_chain_of_profiles_as_text() -> None:
    answer = [profile(2, 3, 4, "few"), profile(8, 8, 8, "eight")]
    mod = dispatch(module(Symbol("N", 1, 64), 3), lambda shapes: answer)
    assert list(tree_lines(mod.main)) == [
        "if 2 <= N < 5:",
        "  main[few:N=2..4]",
        "else:",
        "  if 8 <= N < 9:",
        "    main[eight:N=8]",
        "  else:",
        "    main[fallback]",
    ]


def test_a_box_of_two_symbols_as_text() -> None:
    box = Profile({"data": (2, 3)}, {"data": (2, 3)}, {"data": (4, 8)}, "box")
    mod = dispatch(module(Symbol("N", 1, 9), Symbol("M", 1, 9)), lambda shapes: [box])
    assert next(tree_lines(mod.main)) == "if 2 <= N < 5 and 3 <= M < 9:"


def test_a_great_tree_as_text_is_abridged_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketize.ir.tree.MOST", 8)
    mod = dispatch(module(Symbol("N", 1, 16), 3), exact_dispatcher)
    clones = [f"main[N={n}]" for n in range(1, 17)]
    assert [line.strip() for line in tree_lines(mod.main) if "main" in line] == clones
    abridged = [line.strip() for line in tree_lines(mod.main, abridged=True)]
    assert [line for line in abridged if "main" in line] == [*clones[:3], *clones[-3:]]
    assert any("leaves left out" in line for line in abridged)


def fork(test: Var, then: Function, orelse: Function, out: Builder) -> tuple[Var, ...]:
    return out.emit_all(IF, test, then=then, orelse=orelse)


def leaf(*results: Any) -> Function:
    return Builder().function("", (), results)


def test_a_box_without_an_end_asks_for_its_beginning_alone() -> None:
    n, m = Symbol("N"), Symbol("M")
    x = Var("x", tensor("float32", n, m))
    b = Builder()
    inside = b.emit(dims_within, dims=(n, m), box=((2, None), (3, 5)))
    yes, no = leaf(x), leaf(x)
    tree = table_of(b.function("main", [x], fork(inside, yes, no, b)))
    assert tree is not None
    assert len(tree.nodes) == 3 * 4
    for sizes in itertools.product(range(1, 9), range(1, 7)):
        want = yes if sizes[0] >= 2 and 3 <= sizes[1] < 5 else no
        assert leaf_of(tree, N=sizes[0], M=sizes[1]) is want


def reads_the_test(b: Builder, x: Var, test: Var) -> Function:
    inner = Builder()
    return inner.function("", (), [inner.emit(ops.where, test, x, x)])


def asks_of_an_expression(b: Builder, x: Var, test: Var) -> Function:
    inner = Builder()
    other = inner.emit(dim_less, dim=x.type.shape[0] * 2, than=4)
    return inner.function("", (), fork(other, leaf(x), leaf(x), inner))


def gives_the_test(b: Builder, x: Var, test: Var) -> Function:
    return leaf(test)


@pytest.mark.parametrize("block", [reads_the_test, asks_of_an_expression, gives_the_test])
@pytest.mark.parametrize("side", ["then", "orelse"])
def test_trees_that_are_no_tables(block: Any, side: str) -> None:
    x = Var("x", tensor("float32", Symbol("N")))
    b = Builder()
    test = b.emit(dim_less, dim=Symbol("N"), than=7)
    inner = block(b, x, test)
    plain = leaf(Const(np.asarray(True))) if block is gives_the_test else leaf(x)
    blocks = {"then": plain, "orelse": plain, side: inner}
    fn = b.function("main", [x], fork(test, blocks["then"], blocks["orelse"], b))
    assert table_of(fn) is None


def asks_and_does_more(x: Var, outer: Var) -> Function:
    inner = Builder()
    test = inner.emit(dim_less, dim=Symbol("N"), than=3)
    (y,) = fork(test, leaf(x), leaf(x), inner)
    return inner.function("", (), [inner.emit(ops.relu, y)])


def asks_and_gives_something_else(x: Var, outer: Var) -> Function:
    inner = Builder()
    test = inner.emit(dim_less, dim=Symbol("N"), than=3)
    fork(test, leaf(x), leaf(x), inner)
    return inner.function("", (), [x])


def decides_by_a_value(x: Var, outer: Var) -> Function:
    inner = Builder()
    inner.emit(dim_less, dim=Symbol("N"), than=3)
    return inner.function("", (), fork(outer, leaf(x), leaf(x), inner))


@pytest.mark.parametrize(
    "make", [asks_and_does_more, asks_and_gives_something_else, decides_by_a_value]
)
def test_blocks_that_do_more_than_decide_are_leaves(make: Any) -> None:
    x, flag = Var("x", tensor("float32", Symbol("N"))), Var("flag", tensor("bool"))
    b = Builder()
    test = b.emit(dim_less, dim=Symbol("N"), than=7)
    inner, other = make(x, flag), leaf(x)
    tree = table_of(b.function("main", [x, flag], fork(test, inner, other, b)))
    assert tree is not None
    assert tree.leaves == (inner, other)
    assert tree.symbols == ("N",)
