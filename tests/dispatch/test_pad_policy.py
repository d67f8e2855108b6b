"""Which small models the policy "pad" takes, and what it says of those that it does not."""

from __future__ import annotations

import re

import numpy as np
import pytest
from agreement import agree
from onnx_model import draw, parse

import bucketize
from bucketize.errors import PaddingError
from bucketize.interpret import evaluate_module
from bucketize.ir import Module
from bucketize.verify import verify
from dispatchers import log_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

BOUNDS = {"B": (1, 3), "N": (1, 9), "M": (1, 9), "H": (2, 9), "W": (2, 9)}
ROWS = "(float[N, 4] x) => (y) <int64[1] a = {0}> "
LAST = "(float[B, N] x) => (y) <int64[1] a = {1}> "
IMAGE = "(float[B, 2, H, W] x) => (y) "
SCALED = "(float[B, 2, H, W] x, float[2] s, float[2] b) => (y) "
QKV = "float[B, N, 8] q, float[B, N, 8] k, float[B, N, 8] v"
SCORES = "t = Transpose<perm = [0, 2, 1]>(k) s = MatMul(q, t)"
OVER = "p = Softmax<axis = 2>(z) y = MatMul(p, v)"
CHANNELS = "float[2] s, float[2] b, float[2] m, float[2] v"
WINDOW = "kernel_shape = [3, 3], pads = [1, 1, 1, 1]"

PADS = {
    "mean": ROWS + "{ y = ReduceMean(x, a) }",
    "mean of all": ROWS + "{ y = ReduceMean<keepdims = 0>(x) }",
    "mean of float64": "(double[N, 4] x) => (y) <int64[1] a = {0}> { y = ReduceMean(x, a) }",
    "mean over a mask": "(float[N, 4] x, float[N, 1] m) => (y) <int64[1] a = {0}> "
    "{ p = Mul(x, m) s = ReduceSum(p, a) c = ReduceSum(m, a) y = Div(s, c) }",
    "mean by the shape": "(float[B, N, 4] x) => (y) <int64[1] a = {1}, int64 o = {1}> "
    "{ s = ReduceSum<keepdims = 0>(x, a) h = Shape(x) n = Gather(h, o) f = Cast<to = 1>(n) "
    "y = Div(s, f) }",
    "the shape": "(float[B, N, 4] x) => (y) { y = Shape(x) }",
    "sum": ROWS + "{ y = ReduceSum(x, a) }",
    "product": ROWS + "{ y = ReduceProd(x, a) }",
    "greatest": ROWS + "{ y = ReduceMax(x, a) }",
    "where it is": ROWS + "{ y = ArgMax<axis = 0>(x) }",
    "L1": ROWS + "{ y = ReduceL1(x, a) }",
    "L2": ROWS + "{ y = ReduceL2(x, a) }",
    "sum of squares": ROWS + "{ y = ReduceSumSquare(x, a) }",
    "logarithm of exponentials": ROWS + "{ y = ReduceLogSumExp(x, a) }",
    "LpNormalization": LAST + "{ y = LpNormalization<axis = 1, p = 2>(x) }",
    "variance": LAST + "{ m = ReduceMean(x, a) d = Sub(x, m) q = Mul(d, d) y = ReduceMean(q, a) }",
    "layer norm of other axes": "(float[N, 4] x, float[4] s) => (y) "
    "{ y = LayerNormalization<axis = 1>(x, s) }",
    "layer norm": "(float[B, N] x, float[N] s, float[N] b) => (y) "
    "{ y = LayerNormalization<axis = 1>(x, s, b) }",
    "layer norm of two axes": "(float[B, N, M] x, float[M] s) => (y) "
    "{ y = LayerNormalization<axis = 1>(x, s) }",
    "root mean square norm": LAST
    + "{ q = Mul(x, x) v = ReduceMean(q, a) s = Sqrt(v) y = Div(x, s) }",
    "instance norm": SCALED + "{ y = InstanceNormalization(x, s, b) }",
    "batch norm": f"(float[B, 2, H, W] x, {CHANNELS}) => (y) "
    "{ y = BatchNormalization(x, s, b, m, v) }",
    "global average": IMAGE + "{ y = GlobalAveragePool(x) }",
    "global maximum": IMAGE + "{ y = GlobalMaxPool(x) }",
    "average of windows": IMAGE + "{ y = AveragePool<kernel_shape = [2, 2]>(x) }",
    "greatest of windows": IMAGE + f"{{ y = MaxPool<{WINDOW}, strides = [2, 2]>(x) }}",
    "convolutions": "(float[B, 2, H, W] x, float[2, 2, 3, 3] w, float[2] b) => (y) "
    f"{{ h = Conv<{WINDOW}>(x, w, b) y = Conv<{WINDOW}, strides = [2, 2]>(h, w) }}",
    "transposed convolution": "(float[B, 1, H, W] x) => (y) "
    "<float[1, 1, 3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> "
    "{ y = ConvTranspose<strides = [2, 2]>(x, w) }",
    "a network's head": "(float[B, 2, H, W] x, float[2, 2, 3, 3] w, float[2, 5] d) => (y) "
    f"{{ h = Conv<{WINDOW}>(x, w) r = Relu(h) g = GlobalAveragePool(r) f = Flatten(g) "
    "y = MatMul(f, d) }",
    "softmax": "(float[B, N] x) => (y) { y = Softmax<axis = 1>(x) }",
    "attention": f"({QKV}) => (y) {{ {SCORES} z = Neg(s) {OVER} }}",
    "attention behind a mask": f"({QKV}, float[B, 1, N] m) => (y) "
    f"{{ {SCORES} z = Add(s, m) {OVER} }}",
    "sums up to each": "(float[N, 4] x) => (y) <int64 a = {0}> { y = CumSum(x, a) }",
    "sums from each on": "(float[N, 4] x) => (y) <int64 a = {0}> { y = CumSum<reverse = 1>(x, a) }",
    "the greatest ones": "(float[N, 4] x) => (y, i) <int64[1] k = {1}> "
    "{ y, i = TopK<axis = 0>(x, k) }",
}

REFUSED = {
    "mean of integers": (
        "(int64[N, 4] x) => (y) <int64[1] a = {0}> { y = ReduceMean(x, a) }",
        "padding N to 3: reduce_mean leaks padding: axis 0 of argument 0, int64[N, 4] (extent N)",
    ),
    "mean of float16": (
        "(float16[N, 4] x) => (y) <int64[1] a = {0}> { y = ReduceMean(x, a) }",
        "padding N to 3: reduce_mean leaks padding: axis 0 of argument 0, float16[N, 4] (extent N)",
    ),
    "averages of windows at the rim": (
        IMAGE + f"{{ y = AveragePool<{WINDOW}>(x) }}",
        "padding H to 3, W to 3: avg_pool2d leaks padding: axis 2 of argument 0, "
        "float32[B, 2, H, W] (extent H)",
    ),
    "one behind the other": (
        "(float[N, 4] x, float[M, 4] z) => (y) { y = Concat<axis = 0>(x, z) }",
        "padding N to 3: concat leaks padding: axis 0 of argument 0, float32[N, 4] (extent N)",
    ),
    "two axes as one": (
        IMAGE + "{ y = Flatten(x) }",
        "padding H to 3, W to 3: reshape leaks padding: axis 2 of argument 0, "
        "float32[B, 2, H, W] (extent H)",
    ),
    "as often as there are rows": (
        "(float[N, 4] x) => (y) <int64[1] o = {0}, int64[1] l = {1}> "
        "{ s = Shape(x) n = Gather(s, o) r = Concat<axis = 0>(l, n) y = Tile(x, r) }",
        "padding N to 3: tile computes with a padded extent (repeats=(1, N))",
    ),
    "the last row": (
        "(float[N, 4] x) => (y) <int64 o = {0}, int64 l = {1}> "
        "{ s = Shape(x) n = Gather(s, o) i = Sub(n, l) y = Gather(x, i) }",
        "padding N to 3: gather leaks padding: axis 0 of argument 0, float32[N, 4] (extent N)",
    ),
    "weights that may not be finite": (
        "(float[B, 1, H, W] x, float[1, 1, 3, 3] w) => (y) "
        "{ y = ConvTranspose<strides = [2, 2]>(x, w) }",
        "padding H to 3, W to 3: conv_transpose leaks padding: argument 1, "
        "float32[1, 1, 3, 3], is not known to be finite",
    ),
    "weights that are not finite": (
        "(float[B, 1, H, W] x) => (y) <float[1] z = {0}, float[1, 1, 3, 3] n = "
        "{1, 2, 3, 4, 5, 6, 7, 8, 9}> { w = Div(n, z) y = ConvTranspose<strides = [2, 2]>(x, w) }",
        "padding H to 3, W to 3: conv_transpose leaks padding: argument 1, "
        "float32[1, 1, 3, 3], is not known to be finite",
    ),
    "what is there": (
        "(float[N, 4] x) => (y) { u = Unique<axis = 0>(x) y = Neg(u) }",
        "padding N to 3: unique leaks padding: axis 0 of argument 0, float32[N, 4] (extent N)",
    ),
}


def imported(graph: str) -> Module:
    """The module, with its symbols bounded."""
    model = parse(graph, 18)
    symbols = bucketize.from_onnx(model).main.symbols()
    return bucketize.from_onnx(model, bounds={n: BOUNDS[n] for n in symbols})


@pytest.mark.sweep
@pytest.mark.parametrize("name", PADS)
def test_a_model_that_may_be_padded(name: str) -> None:
    module = imported(PADS[name])
    padded = verify(bucketize.dispatch(module, log_dispatcher, policy="pad"))
    exe = bucketize.compile(padded, lazy=True)
    rng = np.random.default_rng(0)
    symbols = module.main.symbols()
    corners = [{n: s.lo for n, s in symbols.items()}, {n: s.hi or 0 for n, s in symbols.items()}]
    drawn = [{n: int(rng.integers(*BOUNDS[n])) for n in symbols} for _ in range(4)]
    for sizes in corners + drawn:
        inputs = [draw(rng, p, sizes) + 1 for p in module.main.params]
        want = evaluate_module(module, *inputs)
        agree(evaluate_module(padded, *inputs), want, 1e-5)
        agree(exe.run(*inputs), want, 1e-4)
    assert all(p.type.is_static for p in padded.functions[next(iter(padded.clones))].params)


def test_shapes_are_told_as_they_were() -> None:
    module = imported(PADS["the shape"])
    padded = bucketize.dispatch(module, log_dispatcher, policy="pad")
    for shape in ((1, 9, 4), (3, 5, 4)):
        (told,) = evaluate_module(padded, np.zeros(shape, np.float32))
        assert told.tolist() == [*shape]


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_may_not_be_padded_says_where(name: str) -> None:
    graph, message = REFUSED[name]
    with pytest.raises(PaddingError, match=f"^{re.escape(message)}"):
        bucketize.dispatch(imported(graph), log_dispatcher, policy="pad")
