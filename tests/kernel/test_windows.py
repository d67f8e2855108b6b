"""Windows over one to three axes: against onnxruntime, in the interpreter and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_model import agree, draw, parse

import bucketize
from bucketize import ops
from bucketize.errors import TypeRelError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Module, Var
from bucketize.lower.pipeline import lower
from bucketize.onnx import from_onnx
from bucketize.op import Op
from bucketize.ops.sample import Sample, samples
from bucketize.types import Dim, Symbol, TensorType

pytestmark = pytest.mark.usefixtures("few_registers")

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
    "conv_along_depth": f"(float[N, 4, D, H, W] x) => (y) <{numbers(8, 2, 3, 1, 1)}> "
    "{ y = Conv<group = 2, strides = [2, 1, 1], pads = [1, 0, 0, 1, 0, 0]>(x, w) }",
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
    # transposed
    "spread": "(float[N, 3, H, W] x, float[3, 4, 2, 2] w, float[4] b) => (y) "
    "{ z = ConvTranspose<strides = [2, 2]>(x, w, b) y = Relu(z) }",
    "spread_by_constants": f"(float[N, 3, H, W] x) => (y) <{numbers(3, 4, 4, 4)}, "
    "float[4] b = {1, 2, 3, 4}> "
    "{ z = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w, b) y = Relu(z) }",
    "spread_unevenly": f"(float[N, 3, H, W] x) => (y) <{numbers(3, 4, 3, 2)}> "
    "{ y = ConvTranspose<strides = [2, 3], pads = [0, 1, 2, 0], output_padding = [1, 2]>(x, w) }",
    "spread_far": f"(float[N, 3, H, W] x) => (y) <{numbers(3, 4, 5, 3)}> "
    "{ y = ConvTranspose<strides = [2, 1], pads = [4, 2, 3, 3], dilations = [1, 2]>(x, w) }",
    "spread_in_groups": f"(float[N, 4, H, W] x) => (y) <{numbers(4, 3, 3, 2)}, "
    "float[6] b = {1, 2, 3, 4, 5, 6}> { z = ConvTranspose<group = 2, strides = [3, 2], "
    "dilations = [2, 3], pads = [1, 0, 0, 1]>(x, w, b) y = Sigmoid(z) }",
    "spread_to_extents": f"(float[N, 3, 4, 5] x) => (y) <{numbers(3, 4, 3, 3)}> "
    "{ y = ConvTranspose<strides = [3, 2], output_shape = [10, 8]>(x, w) }",
    "spread_same": f"(float[N, 3, H, W] x) => (y) <{numbers(3, 4, 4, 3)}> "
    '{ y = ConvTranspose<strides = [2, 2], auto_pad = "SAME_UPPER">(x, w) }',
    "spread_same_lower": f"(float[N, 3, H, W] x) => (y) <{numbers(3, 4, 4, 3)}> "
    '{ y = ConvTranspose<strides = [3, 2], auto_pad = "SAME_LOWER">(x, w) }',
    "spread_valid": f"(float[N, 3, H, W] x) => (y) <{numbers(3, 4, 4, 3)}> "
    '{ y = ConvTranspose<strides = [2, 2], auto_pad = "VALID">(x, w) }',
    "spread_lines": f"(float[N, 3, W] x) => (y) <{numbers(3, 4, 5)}, float[4] b = {{1, 2, 3, 4}}> "
    "{ z = ConvTranspose<strides = [3], pads = [1, 1], output_padding = [1]>(x, w, b) "
    "y = Relu(z) }",
    "spread_volumes": f"(float[N, 3, D, H, W] x) => (y) <{numbers(3, 4, 3, 2, 2)}, "
    "float[4] b = {1, 2, 3, 4}> "
    "{ z = ConvTranspose<strides = [2, 2, 1], pads = [1, 0, 0, 1, 0, 1]>(x, w, b) y = Relu(z) }",
    "spread_and_added": f"(float[N, 3, H, W] x, float[N, 4, J, K] z) => (y) <{numbers(3, 4, 2, 2)}"
    ", float[1] f = {2}> { a = ConvTranspose<strides = [2, 2]>(x, w) b = Mul(a, f) c = Relu(b) "
    "d = ConvTranspose<strides = [2, 2]>(x, w) e = Add(c, d) y = Mul(a, e) }",
    "spread_by_any": "(float[N, 3, H, W] x, float[3, 2, J, K] w) => (y) "
    "{ y = ConvTranspose<strides = [2, 1], pads = [1, 0, 0, 1]>(x, w) }",
    # pools by a norm, and what is undone
    "lp": "(float[N, C, H, W] x) => (y) "
    "{ y = LpPool<kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1], p = 3>(x) }",
    "lp_2": "(float[N, C, W] x) => (y) { y = LpPool<kernel_shape = [3], pads = [1, 1]>(x) }",
    "lp_1_ceil": "(float[N, C, D, H, W] x) => (y) "
    "{ y = LpPool<kernel_shape = [2, 2, 2], p = 1, strides = [1, 2, 2]>(x) }",
    "lp_same": "(float[N, C, H, W] x) => (y) "
    '{ y = LpPool<kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER">(x) }',
    "global_lp": "(float[N, C, H, W] x) => (y, z) "
    "{ y = GlobalLpPool(x) z = GlobalLpPool<p = 3>(x) }",
    "unpool": "(float[N, C, 6, 8] x) => (y) { z, i = MaxPool<kernel_shape = [2, 2], "
    "strides = [2, 2]>(x) y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(z, i) }",
    "places_of_volumes": "(float[N, C, D, H, W] x) => (y, i) { y, i = MaxPool<kernel_shape = "
    "[2, 3, 2], strides = [2, 1, 2], pads = [0, 1, 1, 1, 1, 0], storage_order = 1>(x) }",
    "columns": "(float[N, 12, 20] x) => (y) <int64[2] s = {5, 6}, int64[2] k = {2, 3}> "
    "{ y = Col2Im<pads = [0, 1, 0, 0]>(x, s, k) }",
    "columns_apart": "(float[N, 12, 4] x) => (y) <int64[2] s = {5, 6}, int64[2] k = {2, 3}> "
    "{ y = Col2Im<pads = [1, 0, 0, 0], strides = [2, 1], dilations = [2, 2]>(x, s, k) }",
    "deformed": f"(float[N, 3, 6, 7] x, float[N, 12, 5, 5] o) => (y) <{numbers(4, 3, 2, 3)}, "
    "float[4] b = {1, 2, 3, 4}> { y = DeformConv(x, w, o, b) }",
    "deformed_in_groups": f"(float[N, 4, 6, 7] x, float[N, 16, 3, 7] o, float[N, 8, 3, 7] m) "
    f"=> (y) <{numbers(6, 2, 2, 2)}> {{ y = DeformConv<group = 2, offset_group = 2, "
    "strides = [2, 1], pads = [1, 1, 0, 1], dilations = [1, 2]>(x, w, o, , m) }",
}
FITTING = {"I": 2, "J": 3, "K": 4}


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES)
def test_windows_are_those_of_onnxruntime(case: str) -> None:
    agrees(parse(CASES[case], opset=21))


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


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 1, 1, 1, 1)])
def test_an_image_that_a_constant_makes_larger_is_put_together_before(
    shape: tuple[int, ...],
) -> None:
    """It has more channels than its parts, or more axes."""
    module = from_onnx(
        parse(
            f"(float[N, 3, H, W] x) => (y) <{numbers(3, 1, 2, 2)}, {numbers(*shape, name='s')}> "
            "{ a = ConvTranspose<strides = [2, 2]>(x, w) y = Mul(a, s) }"
        )
    )
    x = np.random.default_rng(0).random((2, 3, 4, 5), np.float32)
    (want,) = evaluate_module(module, x=x)
    (got,) = evaluate_module(Module({"main": lower(module.main)}), x=x)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_columns_and_images_of_run_time_extents() -> None:
    model = parse(
        "(float[N, 12, L] x, int64[2] s, int64[2] k, float[N, C, 4, 6] z, int64[4] o) => (y, u) "
        "{ y = Col2Im(x, s, k) p, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(z) "
        "u = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(p, i, o) }",
        opset=22,
    )
    module = from_onnx(model)
    executable = bucketize.compile(module)
    rng = np.random.default_rng(0)
    image = rng.standard_normal((2, 3, 4, 6)).astype(np.float32)
    for size, window, more in (((4, 5), (2, 3), 0), ((5, 3), (4, 3), 2)):
        count = (size[0] - window[0] + 1) * (size[1] - window[1] + 1)
        given = {
            "x": rng.standard_normal((2, 12, count)).astype(np.float32),
            "s": np.array(size),
            "k": np.array(window),
            "z": image,
            "o": np.array([2, 3, 4 + more, 6]),
        }
        want = ReferenceEvaluator(model).run(None, given)
        for run in (
            lambda g=given: evaluate_module(module, **g),
            lambda g=given: executable.run(**g),
        ):
            for w, got in zip(want, run(), strict=True):
                np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-5)


LOWERED = (ops.conv3d, ops.max_pool3d, ops.avg_pool3d, ops.conv_transpose, ops.deform_conv2d)


@pytest.mark.sweep
@pytest.mark.parametrize("case", [s for op in LOWERED for s in samples(op)], ids=str)
def test_executables_do_what_the_op_means(case: Sample) -> None:
    """Of any sizes, of nothing, too."""
    names: dict[str, Any] = {n: Symbol(n, lo=0) for n in case.names}
    out = Builder()
    params = [Var(f"x{i}", TensorType(a.dtype, a.shape(names))) for i, a in enumerate(case.args)]
    params += [Var(f"of{n}", TensorType(np.dtype(bool), (s,))) for n, s in names.items()]
    y = out.emit(case.op, *params[: len(case.args)], **case.attrs(names))
    module = Module({"main": out.function("main", params, [y])})
    executable, rng = bucketize.compile(module), np.random.default_rng(3)
    for drawn in (*({n: int(rng.integers(1, 7)) for n in names} for _ in range(3)), EMPTY):
        sizes = {n: drawn.get(n, 2) for n in names}
        inputs = [*case.draw(rng, sizes), *(np.zeros(sizes[n], bool) for n in names)]
        (want,), (got,) = evaluate_module(module, *inputs), executable.run(*inputs)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


EMPTY = {"N": 0}


# --- padding -------------------------------------------------------------------------------------


def test_images_are_spread_in_clones_that_pad() -> None:
    """A buffer of a U-Net's last half: what is padded is cut off, and nothing of it is seen."""
    weights = numbers(3, 4, 4, 4)
    module = from_onnx(
        parse(
            f"(float[N, 3, H, 6] x) => (y) <{weights}> "
            "{ a = Relu(x) z = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1]>(a, w) "
            "y = Relu(z) }"
        )
    )
    buckets = {"x": {2: [(1, 5), (5, 9)]}}
    padding = bucketize.dispatch(module, lambda _: buckets, policy="pad")
    executable = bucketize.compile(padding)
    for height in (1, 4, 7):
        x = np.random.default_rng(height).standard_normal((2, 3, height, 6)).astype(np.float32)
        (want,) = evaluate_module(module, x=x)
        np.testing.assert_allclose(executable.run(x=x)[0], want, rtol=1e-4, atol=1e-4)


# --- errors --------------------------------------------------------------------------------------


def f32(*shape: Dim) -> TensorType:
    return TensorType(np.dtype(np.float32), shape)


TOLD = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
SPREAD = TOLD | {"output_padding": (0, 0)}
IMAGE, WEIGHTS = f32(1, 2, 4, 4), f32(2, 3, 2, 2)
WRONG = {
    "conv3d takes images of rank 5, got rank 4": lambda: infer(ops.conv3d, IMAGE, WEIGHTS),
    "pooling takes images of rank 5, got rank 4": lambda: infer(
        ops.max_pool3d, IMAGE, kernel=(1, 1, 1)
    ),
    "strides must be 3 numbers from 1 up": lambda: infer(
        ops.avg_pool3d, f32(1, 2, 3, 3, 3), kernel=(1, 1, 1), strides=(1, 1)
    ),
    "windows over 2 or 3 axes, got 1": lambda: infer(
        ops.conv_transpose, f32(1, 2, 4), f32(2, 3, 2), **SPREAD
    ),
    "conv_transpose takes images of rank 4, got rank 5": lambda: infer(
        ops.conv_transpose, f32(1, 2, 4, 4, 4), WEIGHTS, **SPREAD
    ),
    "2 channels in 3 groups": lambda: infer(ops.conv_transpose, IMAGE, WEIGHTS, **SPREAD, groups=3),
    "pads 4 and 2 of a result of 5 elements": lambda: infer(
        ops.conv_transpose, IMAGE, WEIGHTS, **SPREAD | {"pads": (4, 0, 2, 0)}
    ),
    "output_padding must be 2 numbers from 0 up": lambda: infer(
        ops.conv_transpose, IMAGE, WEIGHTS, **SPREAD | {"output_padding": (0, -1)}
    ),
    "extents differ: 2 and 3": lambda: infer(ops.conv_transpose, IMAGE, f32(3, 3, 2, 2), **SPREAD),
    "columns of rank 3, got rank 4": lambda: infer(
        ops.col2im, IMAGE, image=(2, 2), kernel=(1, 1), **TOLD
    ),
    "a window over 1 axes of an image of 2": lambda: infer(
        ops.col2im, f32(1, 2, 4), image=(2, 2), kernel=(1,), **TOLD
    ),
    "extents differ: 5 and 4": lambda: infer(
        ops.col2im, f32(1, 2, 5), image=(2, 2), kernel=(1, 1), **TOLD
    ),
    "deform_conv2d takes images of rank 4, got rank 3": lambda: infer(
        ops.deform_conv2d, f32(1, 2, 4), WEIGHTS, IMAGE, IMAGE
    ),
    "extents differ: 7 and 8": lambda: infer(
        ops.deform_conv2d, IMAGE, f32(3, 2, 2, 2), f32(1, 7, 3, 3), f32(1, 4, 3, 3)
    ),
}


def infer(op: Op, *types: TensorType, **attrs: object) -> None:
    op.infer(*types, **op.complete(attrs))


@pytest.mark.parametrize("message", WRONG)
def test_what_types_say_of_windows(message: str) -> None:
    with pytest.raises(TypeRelError, match=message):
        WRONG[message]()


UNREAD = {
    r"ConvTranspose: output_shape is \(0, 4\), the image is": "(float[N, 2, 4, 4] x, "
    "float[2, 3, 2, 2] w) => (y) { y = ConvTranspose<output_shape = [0, 4]>(x, w) }",
    "LpPool: p is 0": "(float[N, 2, 4] x) => (y) { y = LpPool<kernel_shape = [2], p = 0>(x) }",
    "DeformConv: a window over 1 axes, expected 2": "(float[N, 2, 4] x, float[3, 2, 2] w, "
    "float[N, 4, 3] o) => (y) { y = DeformConv(x, w, o) }",
    r"Conv: kernel_shape is \(3, 3\), the weights are": "(float[N, 2, H, W] x, "
    "float[3, 2, J, 2] w) => (y) { y = Conv<kernel_shape = [3, 3]>(x, w) }",
}


@pytest.mark.parametrize("message", UNREAD)
def test_why_windows_are_not_read(message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        from_onnx(parse(UNREAD[message], opset=22))
