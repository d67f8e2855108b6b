"""Boxes that overlap no better one: the kernel beside onnxruntime and the interpreter."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from onnx_model import parse, run_ort

import bucketize
from bucketize import ops
from bucketize.errors import TypeRelError
from bucketize.executable import Executable
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Const, Module, Var, infer
from bucketize.lower.upper_bound import bound_rows
from bucketize.onnx import from_onnx
from bucketize.op import Array
from bucketize.types import Symbol, TensorType, tensor

HEAD = "(float[B, N, 4] b, float[B, C, N] s, int64[1] k, float[1] o, float[1] l)"
ALL = 2**62
N = Symbol("N", 0)


@cache
def model(center: bool) -> tuple[Any, Module, Executable]:
    """As ONNX, imported and compiled; any extent may be 0."""
    flag = f"<center_point_box = {int(center)}>"
    onnx_model = parse(f"{HEAD} => (y) {{ y = NonMaxSuppression{flag}(b, s, k, o, l) }}")
    module = from_onnx(onnx_model, bounds=dict.fromkeys("BCN", (0, None)))
    return onnx_model, module, bucketize.compile(module)


def drawn(kind: str, images: int, classes: int, n: int) -> tuple[Array, Array]:
    """Boxes about as large as their distance, and scores."""
    rng = np.random.default_rng(n + classes)
    boxes = rng.uniform(0, 10, (images, n, 4))
    boxes[..., 2:] = boxes[..., :2] + rng.normal(0, 2, (images, n, 2))
    scores = rng.normal(size=(images, classes, n))
    if kind == "ties":
        boxes, scores = np.round(boxes), np.round(scores)
    elif kind == "far":  # as exporters lay boxes of classes apart: in columns of their own
        boxes += 100 * rng.integers(0, 20, (images, n, 1))
    elif kind == "wide":
        boxes[:, ::7, 1::2] = -1000, 1000
    elif kind == "points":
        boxes[..., 2:] = boxes[..., :2]
    elif kind == "negative":  # half of the widths and heights, if that is what these are
        boxes[..., 2:] -= boxes[..., :2]
    elif kind == "nan scores":
        scores[..., ::3] = np.nan
    return boxes.astype(np.float32), scores.astype(np.float32)


def operands(most: int, overlap: float, least: float) -> dict[str, Array]:
    lone = {"o": overlap, "l": least}
    return {"k": np.array([most])} | {k: np.array([v], np.float32) for k, v in lone.items()}


SIZES = [(1, 1, 0), (0, 2, 5), (2, 0, 5), (1, 1, 1), (2, 3, 17), (1, 2, 300), (1, 1, 1500)]


@pytest.mark.sweep
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kind", ["any", "ties", "far", "wide", "points", "negative", "nan scores"])
def test_boxes_are_those_of_onnxruntime(kind: str, center: bool) -> None:
    onnx_model, module, exe = model(center)
    for size in SIZES:
        boxes, scores = drawn(kind, *size)
        for most, overlap, least in ((0, 0.5, 0.0), (3, 0.3, -1.0), (ALL, 0.0, 0.2), (9, 1.0, -9)):
            inputs = {"b": boxes, "s": scores, **operands(most, overlap, least)}
            (got,) = exe.run(**inputs)
            np.testing.assert_array_equal(got, evaluate_module(module, **inputs)[0])
            if all(size):
                (want,) = run_ort(onnx_model, inputs)
                np.testing.assert_array_equal(got, want)
            assert got.dtype == np.int64


ODD = {
    "nan": (np.nan, 0.0),
    "infinite": (np.inf, -np.inf),
    "overflow": (3e38, -3e38),
    "least": (1e-45, 0.0),
}


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("name", ODD)
def test_boxes_that_are_no_boxes_are_those_of_the_interpreter(name: str, center: bool) -> None:
    """Where a corner is no number, or none is far from another."""
    _, module, exe = model(center)
    boxes, scores = drawn("any", 2, 2, 80)
    rng = np.random.default_rng(1)
    for value in ODD[name]:
        boxes[rng.random(boxes.shape) < 0.1] = value
    for all_of_them in (False, True):
        odd = np.full_like(boxes, ODD[name][0]) if all_of_them else boxes
        for overlap in (-0.5, 0.3, np.nan):
            inputs = {"b": odd, "s": scores, **operands(ALL, overlap, -9.0)}
            with np.errstate(all="ignore"):
                (want,) = evaluate_module(module, **inputs)
            np.testing.assert_array_equal(exe.run(**inputs)[0], want)


def test_known_limits_bound_the_room() -> None:
    boxes, scores = Var("b", tensor("float32", 2, N, 4)), Var("s", tensor("float32", 2, 3, N))
    for most, rows in ((4, "6*min(N, 4)"), (-1, "0")):
        out = Builder()
        limits = [Const(np.array(v)) for v in (most, np.float32(0.5), np.float32(0))]
        y = out.emit(ops.non_max_suppression, boxes, scores, *limits)
        lowered = bound_rows(out.function("main", (boxes, scores), [y]))
        kept, cut = lowered.body
        assert (kept.op, cut.op) == (ops.kept_boxes, ops.dyn_first_rows)
        assert str(kept.outs[0].type) == f"int64[{rows}, 3]"
        assert bound_rows(lowered) is lowered


def test_boxes_of_other_dtypes_are_computed_on_the_host() -> None:
    out = Builder()
    boxes, scores = Var("b", tensor("float64", 1, N, 4)), Var("s", tensor("float64", 1, 1, N))
    limits = [Const(np.array(v)) for v in (9, 0.3, -9.0)]
    y = out.emit(ops.non_max_suppression, boxes, scores, *limits)
    module = Module({"main": out.function("main", (boxes, scores), [y])})
    inputs = [x.astype(np.float64) for x in drawn("any", 1, 1, 40)]
    got, want = bucketize.compile(module).run(*inputs), evaluate_module(module, *inputs)
    np.testing.assert_array_equal(got[0], want[0])


def test_rows_are_no_fewer_than_none() -> None:
    x = tensor("float32", N, 4)
    count = TensorType(np.dtype(np.int64), (), (-1,))
    for op, types, attrs in (
        (ops.nonzero_rows, [x], {"count": -1}),
        (ops.dyn_nonzero_rows, [x, count], {}),
        (ops.dyn_first_rows, [x, count], {}),
    ):
        with pytest.raises(TypeRelError, match="expected at least 0 rows, got -1"):
            infer(op, types, attrs)
