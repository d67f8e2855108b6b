"""Matrix products and convolutions as loops: any dtype, any layout, sizes around every block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from kernel_call import C, M, N, check, loop_template, run, workload

import bucketize
from bucketize import ops
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Const, Function, Module, Var
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.workload import Workload
from bucketize.machine.host import host
from bucketize.op import Array
from bucketize.types import ANY, Dim, Symbol, TensorType, tensor

pytestmark = pytest.mark.usefixtures("few_registers")

FLOATS = ["float64", "float16", "float32"]
DTYPES = [*FLOATS, "int64", "int32", "int8", "uint8"]
K = Symbol("K", 0)


def drawn(dtype: str, *shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return np.asarray(rng.integers(0, 100, shape, dtype))


# --- matmul --------------------------------------------------------------------------------------

EXTENTS = [(1, 1, 1), (1, 9, 300), (3, 0, 5), (4, 4, 256), (5, 64, 1), (33, 67, 257), (70, 130, 31)]


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_of_any_dtype_and_size(dtype: str) -> None:
    load = workload(ops.matmul, tensor(dtype, N, K), tensor(dtype, K, M))
    for n, k, m in EXTENTS:
        args = [drawn(dtype, n, k), drawn(dtype, k, m, seed=1)]
        check(load, args, {"N": n, "K": k, "M": m})


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("left", "right"),
    [((5,), (5,)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1, 3), (4, 1)), ((), (2, 3))],
    ids=str,
)
@pytest.mark.parametrize("hidden", [False, True])
def test_stacks_broadcast(left: Sequence[int], right: Sequence[int], hidden: bool) -> None:
    """Whether the types tell that an axis is repeated, or only the sizes do."""
    x, y = ([ANY] * len(s) if hidden else list(s) for s in (left, right))
    load = workload(ops.matmul, tensor("float64", *x, N, K), tensor("float64", *y, K, M))
    args = [drawn("float64", *left, 5, 7), drawn("float64", *right, 7, 9, seed=1)]
    check(load, args, {"N": 5, "K": 7, "M": 9})


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_matrices_without_rows_columns_or_members(empty: int) -> None:
    sizes = [0 if i == empty else 3 for i in range(3)]
    load = workload(ops.matmul, *[tensor("float64", ANY, ANY, ANY)] * 2)
    b, n, m = sizes
    check(load, [np.zeros((b, n, 4)), np.zeros((b, 4, m))], {})


def test_a_matrix_may_be_one_known_number() -> None:
    x = Var("x", tensor("float64", N, 1))
    body = Builder()
    out = body.emit(ops.matmul, x, Const(np.full((1, 1), 2.5)))
    load = Workload(body.function("", [x], [out]), (False,))
    check(load, [drawn("float64", 9, 1)], {"N": 9})


def test_halves_are_summed_as_floats() -> None:
    load = workload(ops.matmul, tensor("float16", N, K), tensor("float16", K, M))
    x, y = np.full((2, 4096), 0.5, np.float16), np.full((4096, 3), 0.5, np.float16)
    template = loop_template(load)
    assert template is not None
    like = np.empty((2, 3), np.float16)
    (got,) = run(template, load, {}, [x, y], {"N": 2, "K": 4096, "M": 3}, [like], 1)
    assert (got == 1024).all()


def test_truth_values_have_no_product() -> None:
    assert loop_template(workload(ops.matmul, tensor(bool, N, K), tensor(bool, K, M))) is None


def test_vector_code_comes_first() -> None:
    float32 = workload(ops.matmul, tensor("float32", N, C), tensor("float32", C, M))
    assert candidates(float32)[0].name == "matmul"
    float64 = workload(ops.matmul, tensor("float64", N, C), tensor("float64", C, M))
    assert candidates(float64)[0].name == "matmul_loops"


def able(*types: TensorType, constant: bool) -> list[str]:
    load = workload(ops.matmul, *types)
    return [t.name for t in candidates(Workload(load.body, (False, constant)))]


@pytest.mark.parametrize("rows", [1, 4, N])
def test_a_matrix_that_vector_code_packs_is_read_by_no_loop(rows: Dim) -> None:
    """The models of the two were fitted apart, and took the loops for the faster of few rows."""
    x, y = tensor("float32", rows, 4096), tensor("float32", 4096, 4096)
    assert able(x, y, constant=True) == ["matmul"]
    assert able(x, y, constant=False) == ["matmul", "matmul_loops"]


def test_what_it_does_not_pack_is() -> None:
    x = tensor("float32", 3, 4, 5)
    assert able(x, tensor("float32", 3, 5, 6), constant=True) == ["matmul", "matmul_loops"]
    assert able(tensor("int32", 4, 5), tensor("int32", 5, 6), constant=True) == ["matmul_loops"]


# --- conv2d --------------------------------------------------------------------------------------

WINDOWS: list[tuple[dict[str, Any], tuple[int, ...], tuple[int, ...]]] = [
    ({}, (2, 9, 7, 5), (4, 5, 1, 1)),
    ({"pads": (1, 1, 1, 1)}, (1, 6, 40, 3), (37, 3, 3, 3)),
    ({"pads": (0, 4, 2, 3), "strides": (2, 3)}, (2, 11, 10, 2), (3, 2, 3, 5)),
    ({"dilations": (3, 2), "strides": (1, 2), "pads": (3, 1, 2, 4)}, (1, 9, 8, 2), (2, 2, 2, 3)),
    ({"groups": 3, "pads": (1, 2, 0, 1)}, (2, 5, 6, 6), (9, 2, 2, 3)),
    ({"groups": 6, "pads": (1, 1, 1, 1), "strides": (2, 2)}, (1, 8, 9, 6), (6, 1, 3, 3)),
    ({"groups": 300, "pads": (2, 1, 0, 1), "strides": (1, 2)}, (2, 3, 5, 300), (300, 1, 3, 2)),
    ({"pads": (0, 9, 0, 9)}, (1, 3, 2, 1), (1, 1, 1, 3)),  # pads wider than the image
    ({}, (1, 2, 300, 70), (300, 70, 2, 1)),  # more than a block of everything
]


def images(dtype: str, layout: str, shape: Sequence[int]) -> Array:
    x = drawn(dtype, *shape)
    return x if layout == "NHWC" else np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def conv(dtype: str, x: Sequence[Dim], w: Sequence[Dim], **attrs: Any) -> Workload:
    return workload(ops.conv2d, tensor(dtype, *x), tensor(dtype, *w), **attrs)


LAYOUTS = [
    *(("float64", layout) for layout in ("NHWC", "NCHW")),
    *(("float16", "NHWC"), ("float32", "NCHW"), ("int32", "NHWC")),
]
"""Both of one dtype, and each dtype: what numbers are summed as is nothing to the layout."""


@pytest.mark.sweep
@pytest.mark.parametrize(("dtype", "layout"), LAYOUTS)
@pytest.mark.parametrize("case", WINDOWS, ids=lambda c: str(c[0]))
def test_convolutions(case: Any, dtype: str, layout: str) -> None:
    attrs, image, window = case
    x, w = images(dtype, layout, image), drawn(dtype, *window, seed=1)
    load = conv(dtype, [ANY] * 4, window, layout=layout, **attrs)
    check(load, [x, w], {})
    check(Workload(load.body, (False, True)), [x, w], {})
    check(conv(dtype, [ANY] * 4, [ANY] * 4, layout=layout, **attrs), [x, w], {})


@pytest.mark.sweep
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("case", [c for c in WINDOWS if "pads" in c[0]], ids=lambda c: str(c[0]))
def test_pads_times_what_is_not_finite(case: Any, layout: str) -> None:
    """0 times infinity is NaN, of the pads of an image, too."""
    attrs, image, window = case
    x, w = images("float64", layout, image), drawn("float64", *window, seed=1)
    w[0, 0, 0, 0], w[-1, -1, -1, -1] = np.inf, np.nan
    load = conv("float64", [ANY] * 4, window, layout=layout, **attrs)
    check(load, [x, w], {})
    check(Workload(load.body, (False, True)), [x, w], {})


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_no_images_give_none(layout: str) -> None:
    x, w = images("float64", layout, (0, 5, 5, 2)), drawn("float64", 3, 2, 2, 2)
    check(conv("float64", [ANY] * 4, (3, 2, 2, 2), layout=layout), [x, w], {})


def test_pads_may_be_dims() -> None:
    load = conv("float64", (1, 3, N, 4), (2, 3, 3, 2), pads=(N, 0, 1, 0))
    check(load, [drawn("float64", 1, 3, 5, 4), drawn("float64", 2, 3, 3, 2)], {"N": 5})


def test_whether_each_channel_has_its_weights_is_the_source_s_affair() -> None:
    """A launch, which may know more than the types did, is the same."""
    shapes = ((1, 9, 9, 6), (6, 1, 3, 3), (1, 7, 7, 6))
    loads = [conv("float64", [ANY] * 4, (o, 1, 3, 3), layout="NHWC", groups=6) for o in (6, N)]
    template = TEMPLATES["conv2d_loops"]
    sources = [template.source(load, {}, host()) for load in loads]
    assert ["depthwise" in text for text in sources] == [True, False]
    launches = [template.launch(load, {}, shapes, host()) for load in loads]
    assert launches[0] == launches[1]


def test_known_weights_of_nhwc_are_packed_once() -> None:
    template = TEMPLATES["conv2d_loops"]
    load = conv("float64", (N, 9, 9, 4), (6, 2, 3, 3), layout="NHWC", groups=2)
    known = Workload(load.body, (False, True))
    keys = [template.pack_key(known, {}, i) for i in (0, 1)]
    assert keys == ["", "channels out last in 2 groups"]
    packed = template.pack(known, {}, 1, drawn("float64", 6, 2, 3, 3))
    assert packed is not None
    assert packed.shape == (2, 3, 3, 2, 3)
    shapes = ((1, 9, 9, 4), (6, 2, 3, 3), (1, 7, 7, 6))
    assert template.launch(known, {}, shapes, host()).workspace == 0
    assert template.launch(load, {}, shapes, host()).workspace == 6 * 2 * 9 * 8
    assert template.pack_key(load, {}, 1) == ""


# --- networks ------------------------------------------------------------------------------------


def mlp(dtype: str) -> Function:
    x = Var("x", tensor(dtype, N, 24))
    b = Builder()
    h = b.emit(ops.matmul, x, Const(drawn(dtype, 24, 40, seed=1)))
    h = b.emit(ops.relu, b.emit(ops.add, h, Const(drawn(dtype, 40, seed=2))))
    h = b.emit(ops.matmul, h, Const(drawn(dtype, 40, 7, seed=3)))
    return b.function("main", [x], [b.emit(ops.softmax, h, axis=1)])


def convnet(dtype: str) -> Function:
    """The second window comes at run time."""
    x, w = Var("x", tensor(dtype, N, 3, 12, M)), Var("w", tensor(dtype, 4, 8, 3, 3))
    b = Builder()
    first = Const(drawn(dtype, 8, 3, 3, 3, seed=1))
    h = b.emit(ops.conv2d, x, first, pads=(1, 1, 1, 1), strides=(2, 2))
    h = b.emit(ops.relu, b.emit(ops.add, h, Const(drawn(dtype, 8, 1, 1, seed=2))))
    h = b.emit(ops.conv2d, h, w, pads=(1, 0, 1, 2))
    return b.function("main", [x, w], [b.emit(ops.reduce_mean, h, axes=(2, 3))])


@pytest.mark.sweep
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("net", [mlp, convnet])
def test_networks_run_without_the_host(net: Any, dtype: str, threads: int) -> None:
    exe = bucketize.compile(Module({"main": net(dtype)}), threads=threads)
    for n in (1, 2, 5):
        shapes = [(n, 24)] if net is mlp else [(n, 3, 12, 7 + n), (4, 8, 3, 3)]
        args = [drawn(dtype, *s, seed=n) for s in shapes]
        (got,), (want,) = exe.run(*args), evaluate_module(exe.module, *args)
        assert got.dtype == want.dtype
        close = 2e-3 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(got, want, rtol=0, atol=close * np.abs(want).max())
    assert exe.counts.host == {}
