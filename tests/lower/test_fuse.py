"""Which ops one kernel computes."""

from __future__ import annotations

import numpy as np
import pytest

import bucketize
from bucketize.interpret import evaluate_module
from bucketize.lower.fuse import fuse
from bucketize.text import parse

WEIGHTS = {"matmul": (3, 3), "conv2d": (3, 3, 1, 1)}


@pytest.mark.parametrize("op", WEIGHTS)
@pytest.mark.parametrize("behind", ["mul(%0, const[0])", "add(const[0], %0)"])
def test_a_matrix_that_is_packed_is_read_by_the_product_alone(op: str, behind: str) -> None:
    shape = WEIGHTS[op]
    weights = np.arange(9, dtype=np.float32).reshape(shape)
    dims = ", ".join(map(str, shape))
    text = f"def @main(%x: float32[{dims}]) {{ %0 = {op}(%x, const[0]) %1 = {behind} return %1 }}"
    module = parse(text, [weights])
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (got,), (want,) = bucketize.compile(module).run(x), evaluate_module(module, x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_what_is_apart_joins_no_group_but_may_begin_one() -> None:
    text = "def @main(%x: float32[N, 8]) { %0 = relu(%x) %1 = softmax(%0, axis=1) return %1 }"
    fn = parse(text).main
    for apart, ops in ((set[int](), ["fused"]), ({0}, ["fused"]), ({1}, ["relu", "softmax"])):
        assert [b.op.name for b in fuse(fn, apart).body] == ops
