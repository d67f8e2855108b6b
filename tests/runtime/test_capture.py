"""Captured calls: calls that come again with their shapes, beside the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_model import parse

import bucketize
from bucketize.errors import ShapeError
from bucketize.interpret import evaluate_module
from bucketize.onnx import from_onnx
from bucketize.runtime.capture import CapturedCall

GRAPH = """({inputs}) => ({results}) {{
  s = Shape(x) zero = Constant<value = int64 {{0}}>() n = Gather(s, zero)
  go = Constant<value = bool {{1}}>()
  {before}
  {made} = Loop(n, go, {carried})<body = b (int64 i, bool c, float[N] a) => (bool c2, {outs}) {{
    c2 = Identity(c) w = Gather(x, i) {nodes} }}>
  {after}
}}"""
USUAL: dict[str, str] = {
    "inputs": "float[T, N] x, float[N] z",
    "results": "float[N] y, float[T, N] r",
    "before": "",
    "made": "y, r",
    "carried": "z",
    "outs": "float[N] p, float[N] q",
    "nodes": "t = Add(a, w) p = Tanh(t) q = Neg(p)",
    "after": "",
}
CASES: dict[str, dict[str, str]] = {
    "usual": {},
    "what is carried is a row": {"outs": "float[N] p, float[N] p", "nodes": "p = Add(a, w)"},
    "around": {"before": "u = Relu(z)", "carried": "u", "made": "y, k", "after": "r = Softmax(k)"},
    "seen otherwise": {
        "results": "float[N] y, float[1, T, N] r, float[T, N] k",
        "made": "y, k",
        "after": "axes = Constant<value = int64[1] {0}>() r = Unsqueeze(k, axes)",
    },
    "one after the other": {
        "made": "e, f",
        "after": """y, r = Loop(n, go, e)<body = d (int64 j, bool h, float[N] v)
          => (bool h2, float[N] l, float[N] l) {
            h2 = Identity(h) m = Gather(f, j) l = Mul(v, m) }>""",
    },
    "inputs and sizes": {
        "results": "float[N] y, float[T, N] x2, int64[2] s2, float[N] y2",
        "after": "x2 = Identity(x) s2 = Identity(s) y2 = Identity(y)",
    },
}
SHAPES = [(3, 5), (3, 5), (3, 5), (1, 4), (1, 4), (3, 5), (3, 5), (2, 33), (2, 33), (2, 33)]


def module_of(**given: str) -> Any:
    return from_onnx(parse(GRAPH.format(**USUAL | given)))


def inputs_of(t: int, n: int, seed: int, dtype: str = "float32") -> dict[str, np.ndarray]:
    r = np.random.default_rng(seed)
    made = {"x": 8 * r.standard_normal((t, n)), "z": r.standard_normal(n)}
    return {k: v.astype(dtype) for k, v in made.items()}


def captured(exe: Any) -> CapturedCall | None:
    (context,) = exe._serving.idle
    found: CapturedCall | None = context._seen[exe.program.routines["main"]].captured
    return found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_call_that_comes_again_gives_what_the_first_would(name: str, threads: int) -> None:
    module = module_of(**CASES[name])
    exe = bucketize.compile(module, threads=threads)
    given: list[tuple[list[Any], list[np.ndarray]]] = []
    before: object = None
    for seed, (t, n) in enumerate(SHAPES):
        inputs = inputs_of(t, n, seed)
        kept = {k: v.copy() for k, v in inputs.items()}
        got = exe.run(**inputs)
        assert (captured(exe) is not None) == ((t, n) == before)
        before = t, n
        want = evaluate_module(module, **inputs)
        for a, b in zip(got, want, strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        given.append((got, want))
        for k, v in inputs.items():
            np.testing.assert_array_equal(v, kept[k])
            assert not any(np.shares_memory(v, a) for a in got)
    for got, want in given:  # no later call writes to what it does not own
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
            a[...] = 0
    for a, b in zip(exe.run(**inputs), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


AFTER = {
    "a loop": CASES["one after the other"],
    "a segment": {"made": "e, r", "after": "y = Neg(e)"},
    "nothing": {},
}


@pytest.mark.parametrize("dtype", ["double", "float16", "int8"])
@pytest.mark.parametrize("name", AFTER)
def test_what_a_loop_leaves_is_found_whatever_its_elements_take(name: str, dtype: str) -> None:
    """After an even number of rounds what is carried last is not where its buffer begins."""
    given = USUAL | {"nodes": "p = Add(a, w) q = Neg(p)"} | AFTER[name]
    module = from_onnx(parse(GRAPH.format(**given).replace("float[", f"{dtype}[")))
    exe = bucketize.compile(module)
    for rounds in (4, 2, 3):
        for seed in range(3):
            inputs = inputs_of(rounds, 9, seed, module.main.params[0].type.dtype.name)
            wanted = evaluate_module(module, **inputs)
            for got, want in zip(exe.run(**inputs), wanted, strict=True):
                np.testing.assert_array_equal(got, want)
        assert captured(exe) is not None


def test_inputs_that_are_not_contiguous() -> None:
    module = module_of()
    exe = bucketize.compile(module)
    x, z = inputs_of(6, 10, 0).values()
    for _ in range(3):
        got = exe.run(x[::2, ::-1], z[::-1])
        for a, b in zip(got, evaluate_module(module, x=x[::2, ::-1], z=z[::-1]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert captured(exe) is not None


def test_a_bad_index_is_reported_each_time() -> None:
    nodes = """k = Constant<value = int64 {2}>() j = Mod(i, k) g = Gather(z, j)
    t = Add(a, w) p = Mul(t, g) q = Neg(p)"""
    exe = bucketize.compile(module_of(nodes=nodes))
    for n in (1, 1, 1):
        with pytest.raises(ShapeError, match="in gather: index 1 is out of range for extent 1"):
            exe.run(**inputs_of(3, n, 0))
    for _ in range(3):
        assert len(exe.run(**inputs_of(3, 2, 0))) == 2


def test_rounds_that_a_value_tells_are_counted_each_time() -> None:
    graph = """(int64 n, float[N] z) => (float[N] y) {
      go = Constant<value = bool {1}>() u = Relu(z)
      y = Loop(n, go, u)<body = b (int64 i, bool c, float[N] a) => (bool c2, float[N] p) {
        c2 = Identity(c) p = Add(a, a) }>
    }"""
    exe = bucketize.compile(from_onnx(parse(graph)))
    for rounds in (3, 2, 2, 0, 5):
        (y,) = exe.run(np.array(rounds), np.ones(4, np.float32))
        np.testing.assert_array_equal(y, np.full(4, 2.0**rounds, np.float32))
    assert captured(exe) is None


def test_a_profile_still_times_each_kernel() -> None:
    exe = bucketize.compile(module_of())
    inputs = inputs_of(3, 5, 0)
    for _ in range(3):
        exe.run(**inputs)
    frame = exe.profile(**inputs, repetitions=3)
    assert len(frame) > 3  # rounds one by one
