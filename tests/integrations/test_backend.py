"""`onnx.backend`: ONNX's own runner of tests, over some of its nodes."""

from __future__ import annotations

import unittest

import numpy as np
import pytest
from onnx import helper
from onnx.backend.test import BackendTest
from onnx_model import parse, without_pools

from bucketize.errors import ArgumentError
from bucketize.integrations import backend

NODES = (
    *("add", "relu", "softmax_axis_0", "gemm_all_attributes", "conv_with_strides_padding"),
    "layer_normalization_2d_axis0",
)


@pytest.mark.filterwarnings("ignore")  # of the cases that ONNX makes
def test_onnx_runs_its_tests_by_it() -> None:
    """Each of some; the others are `-m benchmarks conformance`."""
    with without_pools():
        its = BackendTest(backend, __name__)
    for name in NODES:
        its.include(f"^test_{name}_cpu$")
    result = unittest.TestResult()
    its.test_suite.run(result)
    assert not result.failures
    assert not result.errors
    assert result.testsRun - len(result.skipped) == len(NODES)


def test_models_are_prepared_once() -> None:
    model = parse("(float[N] x) => (y, z) { y = Relu(x) z = Neg(x) }")
    prepared = backend.prepare(model)
    for count in (1, 3):
        x = np.linspace(-1, 1, count, dtype=np.float32)
        results = prepared.run([x])
        np.testing.assert_array_equal(results.y, np.maximum(x, 0))
        np.testing.assert_array_equal(prepared.run({"x": x}).z, -x)
    (y, _) = backend.run_model(model, [x])
    np.testing.assert_array_equal(y, results.y)


def test_a_node_by_itself() -> None:
    node = helper.make_node("Sub", ["a", "b"], ["c"])
    (c,) = backend.run_node(node, [np.array([3.0]), np.array([1.0])], opset_version=14)
    assert c == 2


def test_there_is_one_device() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA:1")
    with pytest.raises(ArgumentError, match="device: expected 'CPU', got 'CUDA:1'"):
        backend.prepare(parse("(float[N] x) => (y) { y = Relu(x) }"), "CUDA:1")
