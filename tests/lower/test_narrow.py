"""Products of bfloat16 from ONNX: in pairs where a processor multiplies them, else as before."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import bucketize
from bucketize import from_onnx, ops
from bucketize.interpret import run_function
from bucketize.ir import Function
from bucketize.lower.pipeline import lower
from bucketize.machine.named import named
from bucketize.op import Array

BFLOAT16 = np.dtype("bfloat16")
ABLE, UNABLE = named("neoverse-v1"), named("neoverse-n1")


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(BFLOAT16)


def weights(*shape: int) -> onnx.TensorProto:
    raw = drawn(*shape, seed=1).tobytes()
    return helper.make_tensor("w", TensorProto.BFLOAT16, shape, raw, raw=True)


def model(op: str, x: list[Any], w: tuple[int, ...], **attrs: Any) -> onnx.ModelProto:
    """A node of an image or of rows `x` and known weights."""
    node = helper.make_node(op, ["x", "w"], ["y"], **attrs)
    made = helper.make_tensor_value_info(
        "y", TensorProto.BFLOAT16, [f"y{i}" for i in range(len(x))]
    )
    given = helper.make_tensor_value_info("x", TensorProto.BFLOAT16, x)
    graph = helper.make_graph([node], "net", [given], [made], [weights(*w)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


CASES = {
    "even": (model("MatMul", ["N", 6], (6, 5)), (3, 6)),
    "odd": (model("MatMul", ["N", 7, 9], (9, 5)), (2, 7, 9)),
    "one": (model("MatMul", ["N", 1], (1, 1)), (4, 1)),
    "gemm": (model("Gemm", ["N", 65], (33, 65), transB=1), (5, 65)),
    "image": (model("Conv", ["N", 3, 9, 8], (5, 3, 3, 3), pads=[1, 2, 0, 1]), (2, 3, 9, 8)),
    "strided": (model("Conv", ["N", 4, 9, 8], (5, 4, 3, 3), strides=[2, 2]), (2, 4, 9, 8)),
    "line": (model("Conv", ["N", 5, 9], (4, 5, 3)), (2, 5, 9)),
    "groups": (model("Conv", ["N", 6, 5, 5], (4, 3, 3, 3), group=2), (1, 6, 5, 5)),
    "depthwise": (model("Conv", ["N", 6, 5, 5], (6, 1, 3, 3), group=6), (1, 6, 5, 5)),
}
EACH = pytest.mark.parametrize("case", CASES)


def products(fn: Function) -> list[str]:
    """The dtypes of what products and convolutions take."""
    inside = [b.attrs["body"].body if "body" in b.attrs else (b,) for b in fn.body]
    every = [b for some in inside for b in some]
    return [b.args[0].type.dtype.name for b in every if b.op in (ops.matmul, ops.conv2d)]


def loaded(case: str) -> Function:
    return from_onnx(CASES[case][0], bounds={"N": (1, 8)}).main


@pytest.mark.sweep
@EACH
def test_a_model_is_what_the_reference_says(case: str) -> None:
    """On this machine, whatever it has."""
    net, shape = CASES[case]
    x = drawn(*shape)
    (want,) = ReferenceEvaluator(net).run(None, {"x": x})
    (got,) = bucketize.compile(from_onnx(net, bounds={"N": (1, 8)})).run(x=x)
    scale = np.abs(want.astype(np.float32)).max()
    off = np.abs(got.astype(np.float32) - want.astype(np.float32)).max()
    assert off <= 2**-6 * scale


@EACH
def test_where_pairs_are_multiplied_a_model_means_the_same(case: str) -> None:
    fn, x = loaded(case), drawn(*CASES[case][1])
    narrowed = lower(fn, target=ABLE)
    assert products(narrowed) == ["bfloat16"]
    (got,), (want,) = run_function(narrowed, [x]), run_function(fn, [x])
    want, got = want.astype(np.float32), got.astype(np.float32)
    assert np.abs(got - want).max() <= 2**-6 * np.abs(want).max()


@EACH
def test_elsewhere_nothing_changes(case: str) -> None:
    fn = loaded(case)
    assert products(lower(fn, target=UNABLE)) == products(lower(fn))
    assert "pad" not in [b.op.name for b in lower(fn, target=UNABLE).body] or case == "image"


def test_products_of_what_is_not_known_are_floats() -> None:
    net = CASES["even"][0]
    (w,) = net.graph.initializer
    free = onnx.ModelProto.FromString(net.SerializeToString())
    del free.graph.initializer[:]
    free.graph.input.append(helper.make_tensor_value_info("w", w.data_type, w.dims))
    assert products(lower(from_onnx(free, bounds={"N": (1, 8)}).main, target=ABLE)) == ["float32"]


def test_weights_that_are_asked_for_in_bfloat16_meet_rows_of_floats() -> None:
    """Those of x are not rounded."""
    rows = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])
    w = onnx.numpy_helper.from_array(drawn(6, 5).astype(np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    net = helper.make_model(
        helper.make_graph([node], "net", [rows], [made], [w]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    fn = from_onnx(net, bounds={"N": (1, 8)}, weights="bfloat16").main
    assert products(lower(fn, target=ABLE)) == ["float32"]
