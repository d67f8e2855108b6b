"""Buckets that types refute: no clones of them, and none of the limit is spent on them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_model import parse

import bucketize
from bucketize.errors import BucketizeWarning, DispatchError, TypeRelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Module, tree_lines
from bucketize.text import parse as read
from bucketize.text import show
from dispatchers import exact_dispatcher, log_dispatcher, per_symbol

PRODUCT = (
    "(float[B, S, 2] x, float[C, 2, K] y, float[D, K] b) => (z) "
    "{ p = MatMul(x, y) q = Add(p, b) z = Relu(q) }"
)
JOINED = "(float[N] x, float[M] y, float[K] z) => (w) { c = Concat<axis = 0>(x, y) w = Mul(c, z) }"
POOLED = "(float[1, 1, H, 4] x) => (y) { y = MaxPool<kernel_shape = [3, 1]>(x) }"


def imported(graph: str, hi: int = 4) -> Module:
    model = parse(graph)
    symbols = bucketize.from_onnx(model).main.symbols()
    return bucketize.from_onnx(model, bounds=dict.fromkeys(symbols, (1, hi)))


@pytest.mark.parametrize(("graph", "shapes"), [(PRODUCT, "BSCKD"), (JOINED, "NMK")])
def test_a_bucket_is_a_clone_where_a_size_of_it_is_legal(graph: str, shapes: str) -> None:
    """By trying all: as exact buckets they are the sizes."""
    mod = imported(graph, 3)
    made = bucketize.dispatch(mod, exact_dispatcher)
    legal = set()
    for sizes in np.ndindex(*[3] * len(shapes)):
        at = {name: n + 1 for name, n in zip(shapes, sizes, strict=True)}
        arrays = [
            np.ones([d if isinstance(d, int) else at[str(d)] for d in p.type.shape], np.float32)
            for p in mod.main.params
        ]
        try:
            wanted = evaluate_module(mod, *arrays)
        except TypeRelError:
            with pytest.raises(TypeRelError, match=r"^no size of .* is legal: extents differ: "):
                evaluate_module(made, *arrays)
            continue
        np.testing.assert_array_equal(evaluate_module(made, *arrays)[0], wanted[0])
        legal.add(tuple(at.items()))
    buckets = {tuple((n, lo) for n, (lo, _) in c.bucket.items()) for c in made.clones.values()}
    assert {frozenset(b) for b in buckets} == {frozenset(b) for b in legal}


def test_what_refuses_compiled_says_why_and_no_warning_is_given() -> None:
    mod = bucketize.dispatch(imported(POOLED), log_dispatcher)
    assert list(mod.clones) == ["main[H=2..4]"]
    assert "error: no size of H=1 is legal: H - 3 must be at least 0" in [
        *map(str.strip, tree_lines(mod.main))
    ]
    assert show(read(show(mod))) == show(mod)
    exe = bucketize.compile(mod)
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    np.testing.assert_array_equal(exe.run(x)[0], evaluate_module(mod, x)[0])
    with pytest.raises(TypeRelError, match=r"^no size of H=1 is legal: H - 3 must be at least 0"):
        exe.run(x[:, :, :1])


def test_the_limit_counts_what_is_legal() -> None:
    mod = imported(PRODUCT, 9)
    count = len(bucketize.dispatch(mod, log_dispatcher).clones)
    assert len(bucketize.dispatch(mod, log_dispatcher, limit=count).clones) == count < 4**5
    said = r"1,024 buckets of .*, left whole: .*; \d+ of the others are left out, as no size in"
    with pytest.warns(BucketizeWarning, match=said):
        fewer = bucketize.dispatch(mod, log_dispatcher, limit=count - 1)
    assert len(fewer.clones) < count


def test_buckets_without_a_legal_size_are_refused() -> None:
    only = per_symbol({"H": lambda _: {"x": {2: [(1, 2), (2, 3)]}}})
    with pytest.raises(DispatchError, match="the model is legal in none of the buckets of main"):
        bucketize.dispatch(imported(POOLED, 2), only)


def test_leaves_that_only_tell_why_are_bounded_too() -> None:
    """Of 40 x 40 extents that have to be equal 40 are legal, but each of 1,600 is a leaf."""
    graph = "(float[N, 2] x, float[M, 2] y) => (z) { z = Concat<axis = 1>(x, y) }"
    mod = imported(graph, 40)
    assert len(bucketize.dispatch(mod, exact_dispatcher, limit=400).clones) == 40
    with pytest.warns(
        BucketizeWarning, match="1,600 buckets of N, M; the limit is 399, left whole"
    ):
        bucketize.dispatch(mod, exact_dispatcher, limit=399)
