"""Models written as ONNX text, and what onnxruntime makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser
from onnx.backend.test.case import base
from onnx.reference.ops import op_pool_common

from bucketize import zoo
from bucketize.interpret import evaluate_module
from bucketize.onnx import from_onnx
from bucketize.types import evaluate
from bucketize.verify import verify
from bucketize.zoo import bert

ERRORS_ONLY = 3


def parse(graph: str, opset: int = 17) -> onnx.ModelProto:
    """`(float[N] x) => (y) { y = Relu(x) }` as a model."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> g {graph}')


def shallow(name: str) -> onnx.ModelProto:
    """A model of the zoo; of bert-base two layers, all of which are alike."""
    if name == "bert-base":
        return bert.encoder(name, 0, layers=2, hidden=768, heads=12)
    return zoo.build(name)


@contextmanager
def without_pools() -> Iterator[None]:
    """ONNX's own cases are made without what its pools come to: loops over tuples, of seconds.

    And without the source text of each, which its documentation shows.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op_pool_common, "pool", unpooled)
        patch.setattr(base, "process_snippet", lambda _, name, __: (name, ""))
        yield


def unpooled(padded: Any, shape: Any, kernel: Any, strides: Any, extents: Any, *_, **__) -> Any:
    return np.zeros((*shape[:2], *extents), padded.dtype)


def draw(rng: np.random.Generator, param, sizes):
    shape = tuple(evaluate(d, sizes) for d in param.type.shape)
    dtype = param.type.dtype
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 3, shape).astype(dtype)


def run_ort(model, inputs):
    return ort_session(model).run(None, inputs)


def ort_session(model: onnx.ModelProto | bytes):
    """Of one thread: others would spin between runs."""
    written = model if isinstance(model, bytes) else model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = ERRORS_ONLY, 1
    return onnxruntime.InferenceSession(written, options)


def agree(model, *all_sizes, bounds=None, **given):
    """The module of `model`, once it computes what onnxruntime does, at sizes of its symbols."""
    module = from_onnx(model, bounds=bounds)
    verify(module)
    symbols = list(module.main.symbols())
    for sizes in all_sizes or (
        {s: 3 + i for i, s in enumerate(symbols)},
        dict.fromkeys(symbols, 5),
    ):
        rng = np.random.default_rng(1)
        inputs = {p.name: draw(rng, p, sizes) for p in module.main.params} | given
        for want, got in zip(
            run_ort(model, inputs), evaluate_module(module, **inputs), strict=True
        ):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return module
