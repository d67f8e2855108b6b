"""Windows over one to three axes: against onnxruntime, in the interpreter and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_model import agree, draw, parse

import bucketize
from bucketize.interpret import evaluate_module
from bucketize.lower.pipeline import lower
from bucketize.onnx import from_onnx

SMALL = {"N": 1, "C": 3, "D": 5, "H": 6, "W": 7}
LARGE = {"N": 2, "C": 8, "D": 8, "H": 9, "W": 5}
VOLUME = "(float[N, C, D, H, W] x) => (y) "
WINDOW = "kernel_shape = [3, 2, 3], strides = [2, 1, 2]"
ROUND = "pads = [1, 0, 1, 1, 1, 1]"


def numbers(*shape: int, name: str = "w") -> str:
    """The text of a constant."""
    drawn = np.random.default_rng(len(shape)).standard_normal(shape).round(3)
    return f"float[{', '.join(map(str, shape))}] {name} = {{{', '.join(map(str, drawn.ravel()))}}}"


CASES = {
    "max": f"{VOLUME} {{ y = MaxPool<{WINDOW}, {ROUND}>(x) }}",
    "max_ceil": f"{VOLUME} {{ y = MaxPool<{WINDOW}, {ROUND}, ceil_mode = 1>(x) }}",
    "max_dilated": f"{VOLUME} "
    "{ y = MaxPool<kernel_shape = [2, 2, 2], dilations = [2, 1, 3]>(x) }",
    "mean": f"{VOLUME} {{ y = AveragePool<{WINDOW}, {ROUND}>(x) }}",
    "mean_of_pads": f"{VOLUME} {{ y = AveragePool<{WINDOW}, {ROUND}, count_include_pad = 1>(x) }}",
    "mean_same": "(float[N, C, D, H, W] x) => (y) { y = AveragePool<kernel_shape = [3, 2, 3], "
    'strides = [2, 2, 1], auto_pad = "SAME_LOWER">(x) }',
    "mean_same_2d": "(float[N, C, H, W] x) => (y) { y = AveragePool<kernel_shape = [3, 3], "
    'strides = [2, 2], auto_pad = "SAME_UPPER">(x) }',
    "conv": "(float[N, 4, D, H, W] x, float[6, 2, 3, 3, 2] w, float[6] b) => (y) "
    "{ z = Conv<group = 2, pads = [1, 1, 0, 1, 2, 1]>(x, w, b) y = Relu(z) }",
    "conv_by_constants": f"(float[N, 3, D, H, W] x) => (y) <{numbers(8, 3, 3, 3, 3)}> "
    "{ y = Conv<strides = [2, 1, 2], pads = [2, 0, 1, 0, 1, 1], dilations = [2, 1, 1]>(x, w) }",
    "conv_of_one_plane": f"(float[N, 3, D, H, W] x) => (y) <{numbers(8, 3, 1, 3, 3)}> "
    "{ y = Conv<strides = [2, 1, 1]>(x, w) }",
    "conv_same": f"(float[N, 3, D, H, W] x) => (y) <{numbers(8, 3, 2, 3, 3)}> "
    '{ y = Conv<strides = [2, 2, 2], auto_pad = "SAME_UPPER">(x, w) }',
    "conv_by_any_window": "(float[N, 2, H, W] x, float[3, 2, J, K] w) => (y) "
    "{ y = Conv<strides = [2, 1], pads = [1, 0, 0, 1]>(x, w) }",
    "conv_by_any_volume": "(float[N, 2, D, H, W] x, float[3, 2, I, J, K] w) => (y) "
    "{ y = Conv<pads = [1, 0, 0, 1, 1, 1]>(x, w) }",
    "conv_same_by_any": "(float[N, 2, H, W] x, float[3, 2, J, K] w) => (y) "
    '{ y = Conv<auto_pad = "SAME_UPPER">(x, w) }',
    "conv_by_told": "(float[N, 2, H, W] x, float[3, 2, J, J] w) => (y) "
    "{ y = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w) }",
}
FITTING = {"I": 2, "J": 3, "K": 4}


@pytest.mark.parametrize("case", CASES)
def test_windows_are_those_of_onnxruntime(case: str) -> None:
    agrees(parse(CASES[case]))


def agrees(model) -> None:
    """The interpreter and the executable compute what onnxruntime does."""
    sizes = [s | FITTING for s in (SMALL, LARGE)]
    module = agree(model, *sizes)
    executable = bucketize.compile(module)
    for each in sizes:
        rng = np.random.default_rng(1)
        inputs = {p.name: draw(rng, p, each) for p in module.main.params}
        wanted = evaluate_module(module, **inputs)
        for want, got in zip(wanted, executable.run(**inputs), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_volumes_stay_folded_between_their_kernels() -> None:
    weights = "".join(numbers(8, c, 3, 3, 3, name=n) + ", " for n, c in (("v", 3), ("u", 8)))
    module = from_onnx(
        parse(
            f"(float[N, 3, D, H, W] x) => (y) <{weights} float[8] b = {{1, 2, 3, 4, 5, 6, 7, 8}}> "
            "{ z = Conv<pads = [1, 1, 1, 1, 1, 1]>(x, v, b) a = Relu(z) "
            "c = Conv<pads = [1, 1, 1, 1, 1, 1]>(a, u, b) d = Add(c, a) e = Relu(d) "
            "y = MaxPool<kernel_shape = [2, 2, 2], strides = [2, 2, 2]>(e) }"
        )
    )
    body = lower(module.main).body
    assert [b.op.name for b in body].count("transpose") == 2
    groups = [[m.op.name for m in b.attrs["body"].body] for b in body if b.op.name == "fused"]
    assert groups == [["conv2d", "add", "relu"], ["conv2d", "add", "add", "relu"]]
