"""Pads by what is inside: of inner axes, beside convolutions, along one axis."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from onnx_model import draw, parse, run_ort

import bucketize
from bucketize import ops
from bucketize.interpret import evaluate_module, run_function
from bucketize.ir import Builder, Function, Module, Var
from bucketize.lower.pipeline import lower
from bucketize.onnx import from_onnx
from bucketize.types import Symbol, tensor
from bucketize.verify import verify

N, M, C = Symbol("N"), Symbol("M", 4), Symbol("C")
MODES = ("reflect", "edge", "wrap", "symmetric")
PADS = {
    "the last axis": ((0, 0), (0, 0), (2, 3)),
    "rows": ((0, 0), (2, 1), (0, 0)),
    "planes": ((1, 2), (0, 0), (0, 0)),
    "all": ((1, 1), (2, 0), (0, 3)),
    "cut and filled": ((0, 0), (-1, 2), (0, 0)),
    "cut": ((0, 0), (-1, -2), (0, 0)),
    "nothing": ((0, 0), (0, 0), (0, 0)),
}


def padded(pads: tuple[tuple[int, int], ...], mode: str, dtype: str) -> Function:
    x, b = Var("x", tensor(dtype, N, M, C)), Builder()
    return b.function("main", [x], [b.emit(ops.pad, x, pads=pads, mode=mode)])


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(PADS))
@pytest.mark.parametrize("mode", MODES)
def test_what_is_inside_is_copied_and_the_rest_is_of_it(name: str, mode: str) -> None:
    for dtype in ("float32", "int8"):
        module = Module({"main": padded(PADS[name], mode, dtype)})
        exe = bucketize.compile(module)
        assert exe.counts.host == {}
        for shape in ((3, 4, 4), (3, 5, 40), (4, 9, 5)):
            x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
            (got,), (want,) = exe.run(x), evaluate_module(module, x)
            np.testing.assert_array_equal(got, want)


IMAGES = """(float[N, 3, H, W] x) => (y)
<float[8, 3, 3, 3] a, float[8, 8, 3, 3] b, float[8, 8, 1, 1] c,
 int64[8] pads = {0, 0, 2, 1, 0, 0, 1, 1}>
{
  p = Conv(x, a)
  q = Pad<mode = "reflect">(p, pads)
  r = Conv(q, b)
  s = Relu(r)
  t = Pad(s, pads)
  y = Conv(t, c)
}"""
LINES = """(float[N, 3, W] x) => (y)
<float[8, 3, 3] a, float[8, 8, 3] b, float[8, 8, 1] c, int64[6] pads = {0, 0, 2, 0, 0, 1},
 int64[1] from = {1}, int64[1] to = {-1}, int64[1] axis = {2}>
{
  p = Conv(x, a)
  q = Pad<mode = "reflect">(p, pads)
  r = Conv(q, b)
  s = Slice(r, from, to, axis)
  t = MaxPool<kernel_shape = [2], strides = [2]>(s)
  u = AveragePool<kernel_shape = [3]>(t)
  v = Pad(u, pads)
  w = Relu(v)
  y = Conv(w, c)
}"""


@pytest.mark.parametrize("graph", [IMAGES, LINES], ids=["images", "lines"])
def test_pads_and_slices_between_convolutions_stay_in_one_layout(graph: str) -> None:
    """Only what comes in and what goes out is turned."""
    model, rng = parse(graph), np.random.default_rng(0)
    for name, shape in {"a": (8, 3, 3, 3), "b": (8, 8, 3, 3), "c": (8, 8, 1, 1)}.items():
        array = rng.standard_normal(shape if graph is IMAGES else shape[:-1]).astype(np.float32)
        array = array[:, :, :1] if name == "c" else array
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    module = from_onnx(model, bounds={d: (14, None) for d in "HW" if f" {d}" in graph})
    lowered = lower(module.main)
    verify(Module({"main": lowered}))
    assert [b.op.name for b in lowered.body].count("transpose") == 2
    exe = bucketize.compile(module)
    assert exe.counts.host == {}
    for n, h, w in ((1, 14, 14), (2, 15, 21)):
        x = draw(rng, module.main.params[0], {"N": n, "H": h, "W": w})
        want = run_ort(model, {"x": x})
        for got in (exe.run(x), run_function(lowered, [x]), evaluate_module(module, x)):
            np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-4)


PHASES = """(float[N, 3, W] x) => (y) <float[3, 6, 5] u, float[6] bias, float[4, 6, 3] w,
 int64[6] pads = {0, 0, 2, 0, 0, 0}, int64[1] from = {0}, int64[1] to = {-2}, int64[1] axis = {2}>
{
  p = ConvTranspose<strides = [2]>(x, u, bias)
  q = Slice(p, from, to, axis)
  r = Elu(q)
  s = Pad<mode = "reflect">(r, pads)
  y = Conv(s, w)
}"""


def test_a_transposed_convolution_along_one_axis_goes_on_in_its_layout() -> None:
    model, rng = parse(PHASES), np.random.default_rng(0)
    for name, shape in {"u": (3, 6, 5), "bias": (6,), "w": (4, 6, 3)}.items():
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    module = from_onnx(model, bounds={"W": (3, None)})
    moved = [b for b in lower(module.main).body if b.op is ops.transpose]
    assert [len(b.attrs["axes"]) for b in moved] == [4, 7, 4]  # in, the phases, out
    exe = bucketize.compile(module)
    assert exe.counts.host == {}
    for n, w in ((1, 3), (2, 20)):
        x = draw(rng, module.main.params[0], {"N": n, "W": w})
        want = run_ort(model, {"x": x})
        for got in (exe.run(x), evaluate_module(module, x)):
            np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-4)
