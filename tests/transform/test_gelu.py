"""Five ops that are gelu become one, in whichever order exporters multiply; others stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bucketize.interpret import run_function
from bucketize.ir import Function
from bucketize.text import parse_function
from bucketize.transform.fold_gelu import fold_gelu
from bucketize.transform.simplify import simplify

ROOT, HALF, ONE = "float32(1.41421354)", "float32(0.5)", "float32(1.0)"
LAST = {
    "torch": f"%a = mul(%x, %s)\n%r = mul(%a, {HALF})",
    "half first": f"%h = mul({HALF}, %x)\n%r = mul(%h, %s)",
    "half of the sum": "%h = div(%s, float32(2.0))\n%r = mul(%h, %x)",
}
OTHERS = {
    "of another input": f"%a = mul(%y, %s)\n%r = mul(%a, {HALF})",
    "without the half": "%r = mul(%x, %s)",
    "a sum in its place": f"%a = add(%x, %s)\n%r = mul(%a, {HALF})",
    "twice the sum": f"%a = mul(%s, %s)\n%r = mul(%a, {HALF})",
}


def function(
    last: str,
    root: str = f"div(%x, {ROOT})",
    one: str = ONE,
    dtype: str = "float32",
    results: Sequence[str] = ("r",),
    shape: str = "[N, 3]",
) -> Function:
    """What ends in `last`, a product of x and `s`, 1 + erf(x / sqrt(2))."""
    types = ", ".join([f"{dtype}{shape}"] * len(results))
    head = f"def @main(%x: {dtype}{shape}, %y: {dtype}{shape}) -> {types} {{"
    end = f"return {', '.join(f'%{name}' for name in results)}"
    lines = [f"%z = {root}", "%e = erf(%z)", f"%s = add(%e, {one})", last]
    body = "\n".join(lines).replace("float32", dtype)
    return parse_function("\n".join([head, body, end, "}"]))


def names(fn: Function) -> list[str]:
    return [b.op.name for b in fn.body]


def same(fn: Function, new: Function) -> None:
    x, y = np.random.default_rng(0).normal(0, 3, (2, 50, 3)).astype(np.float32)
    for got, want in zip(run_function(new, [x, y]), run_function(fn, [x, y]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("last", LAST.values(), ids=LAST)
@pytest.mark.parametrize("root", [f"div(%x, {ROOT})", "mul(%x, float32(0.70710677))"])
def test_five_ops_are_one(last: str, root: str) -> None:
    fn = function(last, root)
    assert names(simplify(fn)) == ["gelu"]
    same(fn, simplify(fn))


def test_the_sum_may_be_written_the_other_way_round() -> None:
    fn = function(f"%t = add({ONE}, %e)\n%a = mul(%x, %t)\n%r = mul(%a, {HALF})")
    assert names(simplify(fn)) == ["gelu"]


@pytest.mark.parametrize("last", OTHERS.values(), ids=OTHERS)
def test_what_is_something_else_stays(last: str) -> None:
    fn = function(last)
    assert fold_gelu(fn) is fn


@pytest.mark.parametrize(
    ("root", "one"),
    [(f"mul(%x, {ROOT})", ONE), ("div(%x, float32(1.414))", ONE), (f"div(%x, {ROOT})", HALF)],
)
def test_with_other_numbers_it_stays(root: str, one: str) -> None:
    fn = function(LAST["torch"], root, one)
    assert fold_gelu(fn) is fn


def test_of_halves_it_stays() -> None:
    fn = function(LAST["torch"], dtype="float16")
    assert fold_gelu(fn) is fn


def test_who_reads_one_of_the_five_still_does() -> None:
    fn = function(LAST["torch"], results=("r", "e"))
    assert names(simplify(fn)) == ["div", "erf", "gelu"]
    same(fn, simplify(fn))


def test_half_of_it_is_half_of_one() -> None:
    fn = function(f"{LAST['torch'].replace('%r', '%b')}\n%r = mul(%b, {HALF})")
    assert names(simplify(fn)) == ["gelu", "mul"]
    same(fn, simplify(fn))


def test_it_is_named_by_all_its_nodes() -> None:
    fn = function(LAST["torch"])
    named = replace(fn, body=tuple(replace(b, origin=(b.op.name,)) for b in fn.body))
    (one,) = simplify(named).body
    assert one.origin == ("div", "erf", "add", "mul")


def test_of_a_rank_that_nobody_knows_it_stays() -> None:
    fn = function(LAST["torch"], shape="[...]")
    assert all(not b.is_ranked for b in fn.body)
    assert fold_gelu(fn) is fn
