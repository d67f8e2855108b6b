"""Axes that are squeezed if their extent is 1, beside onnxruntime: decided by what takes them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_model import parse, run_ort

import bucketize
from bucketize.errors import ShapeError
from bucketize.ir import IF, all_bindings
from bucketize.onnx import from_onnx, front
from bucketize.verify import verify

MODEL = """(float[N, L, 3] x, float[3, 4] w) => (y) {{
  {values}
  shape = Shape (x)
  extent = Gather (shape, {asked})
  flag = Equal (extent, {compared})
  s = If (flag) <
    then_branch = t () => (a) {{ {then} }},
    else_branch = e () => (b) {{ {orelse} }}
  >
  {rest}
}}"""
USUAL = {
    "values": "zero = Constant <value = int64[1] {0}> () one = Constant <value = int64[1] {1}> () "
    "two = Constant <value = int64[1] {2}> () last = Constant <value = int64[1] {-2}> ()",
    "asked": "one",
    "compared": "one",
    "then": "a = Squeeze (x, one)",
    "orelse": "b = Identity (x)",
    "rest": "y = Gemm (s, w)",
}
ANY_RANK = "y = Relu (s)"
AS_IT_IS = "flat = Transpose <perm = [0, 2, 1]> (s) y = Relu (flat)"


def model(**parts: str):
    return parse(MODEL.format_map(USUAL | parts))


def inputs(n: int, length: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n + length)
    return {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in (("x", (n, length, 3)), ("w", (3, 4)))
    }


def branches(module: bucketize.Module) -> int:
    return sum(b.op is IF for b in all_bindings(module.main))


def check(proto, module: bucketize.Module, *lengths: int) -> None:
    exe = bucketize.compile(verify(module))
    for length in lengths:
        arrays = inputs(5, length)
        (want,), (got,) = run_ort(proto, arrays), exe.run(**{n: arrays[n] for n in exe.inputs})
        np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("then", ["a = Squeeze (x, one)", "a = Squeeze (x, last)"])
def test_what_takes_but_the_squeezed_decides(then):
    proto = model(then=then)
    module = from_onnx(proto)
    assert not branches(module)
    assert module.main.results[0].type.is_tensor
    check(proto, module, 1)
    with pytest.raises(ShapeError, match="input 'x', axis 1: expected 1, got 2"):
        bucketize.compile(module).run(*inputs(5, 2).values())


AGAIN = """
  g = {first}
  shape2 = Shape (g)
  extent2 = Gather (shape2, zero)
  flag2 = Equal (extent2, one)
  s2 = If (flag2) <
    then_branch = t2 () => (a2) {{ a2 = Squeeze (g, zero) }},
    else_branch = e2 () => (b2) {{ b2 = Identity (g) }}
  >
  y = {then}"""


def test_a_squeeze_behind_another():
    """What takes the first decides it, and the second may still be either."""
    proto = model(rest=AGAIN.format(first="Gemm (s, w)", then="Relu (s2)"))
    module = from_onnx(proto)
    assert branches(module) == 1
    check(proto, module, 1)


def test_two_ways_to_be_legal():
    """One of two is squeezed, and nothing says which."""
    proto = model(rest=AGAIN.format(first="Relu (s)", then="Gemm (s2, w)"))
    module = from_onnx(proto)
    assert branches(module) == 2
    check(proto, module, 1)


@pytest.mark.parametrize(
    ("parts", "lengths"),
    [
        pytest.param({"rest": ANY_RANK}, (1, 2), id="both are taken"),
        pytest.param({"rest": AS_IT_IS}, (2, 3), id="the other one is taken"),
        pytest.param({"compared": "two"}, (), id="compared with another"),
        pytest.param({"asked": "zero", "rest": ANY_RANK}, (2,), id="another extent"),
        pytest.param({"then": "r = Relu (x) a = Squeeze (r, one)"}, (1,), id="more is done"),
        pytest.param({"orelse": "b = Relu (x)", "rest": ANY_RANK}, (1, 2), id="else is done"),
    ],
)
def test_what_stays_open(parts, lengths):
    proto = model(**parts)
    module = from_onnx(proto)
    assert branches(module)
    check(proto, module, *lengths)


def test_an_unknown_extent_is_not_another() -> None:
    """Of what only a run tells nobody knows that it is what the condition asks for."""
    graph = """(float[N, L, 3] x, bool[L] keep, float[K] z, float[3, 4] w) => (y) {
      one = Constant <value = int64[1] {1}> ()
      some = Compress <axis = 1> (x, keep)
      places = NonZero (z)
      shape = Shape (places)
      extent = Gather (shape, one)
      flag = Equal (extent, one)
      s = If (flag) <
        then_branch = t () => (a) { a = Squeeze (some, one) },
        else_branch = e () => (b) { b = Identity (some) }
      >
      y = Gemm (s, w)
    }"""
    assert branches(from_onnx(parse(graph)))


def test_what_is_known_is_not_asked(monkeypatch):
    """Nor more often than so many squeezes."""
    proto = model()
    assert not branches(from_onnx(proto, bounds={"L": (1, 1)}))
    monkeypatch.setattr(front, "MOST_TRIED", 0)
    assert branches(from_onnx(proto))


def test_what_no_choice_makes_legal_is_refused_as_it_was():
    proto = model(rest="z = Gemm (s, w) y = Conv (z, w)")
    with pytest.raises(bucketize.errors.BucketizeError) as refused:
        from_onnx(proto)
    assert "Conv" in str(refused.value) or "Conv" in "".join(refused.value.__notes__)
