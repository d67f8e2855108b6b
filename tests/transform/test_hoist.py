"""What no round changes leaves the loop, if it cannot fail."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_model import parse

from bucketize.errors import ShapeError, TypeRelError
from bucketize.interpret import evaluate_module
from bucketize.ir import LOOP
from bucketize.onnx import from_onnx
from bucketize.transform.simplify import simplify
from bucketize.verify import verify

LOOP_OF = """(int64 n, float[N, 3] x, float[M, 3] w, int64 k) => (float[N, 3] y) {{
  go = Constant<value = bool {{1}}>()
  y = Loop(n, go, x)<body = b (int64 i, bool c, float[N, 3] a) => (bool c2, float[N, 3] p) {{
    c2 = Identity(c)
    {nodes}
  }}>
}}"""
CASES = {
    "shared": ("t = Transpose(w) u = Tanh(t) m = MatMul(u, w) v = MatMul(a, m) p = Neg(v)",
               ["transpose", "tanh", "matmul"], ["matmul", "neg"]),
    "nested": ("u = Tanh(x) v = If(c)<then_branch = t () => (d) { d = Add(a, u) }, else_branch = "
               "f () => (e) { e = Neg(u) }> p = Mul(v, u)", ["tanh"], ["add", "mul"]),
    "may_fail": ("r = Gather(w, k) q = Neg(r) p = Add(a, q)", [], ["gather", "neg", "add"]),
    "relies": ("s = Add(x, w) p = Add(a, s)", [], ["add", "add"]),
    "own": ("f = Cast<to = 1>(i) p = Add(a, f)", [], ["cast", "add"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_leaves(name):
    nodes, before, inside = CASES[name]
    module = from_onnx(parse(LOOP_OF.format(nodes=nodes)))
    simple = verify(module.replace(simplify(module.main)))
    body = simple.main.body
    (at,) = [i for i, b in enumerate(body) if b.op is LOOP]
    assert [b.op.name for b in body[:at]] == before
    assert [b.op.name for b in body[at].attrs["body"].body] == inside
    rng = np.random.default_rng(0)
    for n in (0, 1, 3):
        x, w = (rng.standard_normal((4, 3)).astype(np.float32) for _ in range(2))
        inputs = {"n": np.array(n), "x": x, "w": w, "k": np.array(1)}
        for got, want in zip(
            evaluate_module(simple, **inputs), evaluate_module(module, **inputs), strict=True
        ):
            np.testing.assert_array_equal(got, want)


def test_a_loop_of_no_round_fails_at_nothing():
    for name, fault in (
        ("may_fail", {"k": np.array(9)}),
        ("relies", {"w": np.zeros((2, 3), "f4")}),
    ):
        module = from_onnx(parse(LOOP_OF.format(nodes=CASES[name][0])))
        simple = module.replace(simplify(module.main))
        ones = {"x": np.ones((4, 3), "f4"), "w": np.ones((4, 3), "f4"), "k": np.array(0)}
        (y,) = evaluate_module(simple, n=np.array(0), **{**ones, **fault})
        np.testing.assert_array_equal(y, ones["x"])
        with pytest.raises((ShapeError, TypeRelError)):
            evaluate_module(simple, n=np.array(1), **{**ones, **fault})
