"""What the laws cannot say of operators: messages, and how much types and padding rules know."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bucketize import ops
from bucketize.errors import TypeRelError, UnknownNameError
from bucketize.ir import Atom, Builder, Const, Var
from bucketize.op import FREE, UNSAFE, Fill, Op, Padding, get
from bucketize.types import ANY, Dim, Symbol, TensorType, evaluate, tensor

B, S, H, W, M, N = (Symbol(n, 1) for n in "BSHWMN")
Z = Symbol("Z", lo=0)
NEAR = "min(max(-N + S, -10), 9)"  # what no axis of 9 tells apart from S - N


def f32(*dims: Dim) -> TensorType:
    return tensor("float32", *dims)


def i64(*dims: Dim) -> TensorType:
    return tensor("int64", *dims)


def known(*elements: Dim) -> TensorType:
    return TensorType(np.dtype(np.int64), (len(elements),), elements)


def scalar(element: Dim) -> TensorType:
    return TensorType(np.dtype(np.int64), (), (element,))


def infer_all(op: Op, *types: TensorType, **attrs: Any) -> tuple[TensorType, ...]:
    return op.infer(*types, **op.complete(attrs))


def infer(op: Op, *types: TensorType, **attrs: Any) -> TensorType:
    (out,) = infer_all(op, *types, **attrs)
    return out


def shape(op: Op, *types: TensorType, **attrs: Any) -> str:
    return str(list(map(str, infer(op, *types, **attrs).shape))).replace("'", "")


# --- messages ------------------------------------------------------------------------------------

F, G = f32(2, 3), i64(2, 3)
IMAGE = f32(1, 4, 5, 6)
PART = {"axis": 1, "part": 1}
ONES: dict[str, Any] = {"value": 1, "dtype": "int64"}
TOP = {"axis": 0, "largest": True, "sorted": True}


def cut(begin: Dim, end: Dim, stride: Dim = 1, axis: int = 0) -> dict[str, Any]:
    return {"begin": (begin,), "end": (end,), "strides": (stride,), "axes": (axis,)}


FAULTS: list[tuple[str, Callable[[], object]]] = [
    ("extents differ: 3 and 4", lambda: infer(ops.add, F, f32(4))),
    ("dtypes differ: float32 and int64", lambda: infer(ops.add, F, G)),
    ("dtypes differ: float32 and int64", lambda: infer(ops.less, F, G)),
    ("expected floats, got int64", lambda: infer(ops.div, G, G)),
    ("expected integers, got float32", lambda: infer(ops.trunc_div, F, F)),
    ("expected bools, got float32", lambda: infer(ops.logical_not, F)),
    ("expected bools, got int64", lambda: infer(ops.where, G, F, F)),
    ("extents differ: 3 and 2", lambda: infer(ops.matmul, F, F)),
    ("matrices or stacks of them, got ranks 1, 2", lambda: infer(ops.matmul, f32(3), F)),
    ("axis 2 is out of range for rank 2", lambda: infer(ops.reduce_sum, F, axes=(2,))),
    ("axis -1 is out of range for rank 2", lambda: infer(ops.softmax, F, axis=-1)),
    ("axis 2 is out of range for rank 2", lambda: infer(ops.argmax, F, axis=2)),
    ("rank 2 is scaled over the 1 last axes", lambda: infer(ops.layer_norm, F, F, F, axis=1)),
    ("[2, 3] has 6 elements, not 8 as [4, 2]", lambda: infer(ops.reshape, F, newshape=(4, 2))),
    ("[B, 4] has 4*B elements", lambda: infer(ops.reshape, f32(B, 4), newshape=(B, 3))),
    ("axes (0, 0) do not permute rank 2", lambda: infer(ops.transpose, F, axes=(0, 0))),
    ("extents differ: 3 and 1", lambda: infer(ops.squeeze, F, axes=(1,))),
    ("axis 2 is out of range for rank 2", lambda: infer(ops.squeeze, F, axes=(2,))),
    ("axis 3 is out of range for rank 3", lambda: infer(ops.unsqueeze, F, axes=(3,))),
    ("concat along axis 0 of ranks 1, 2", lambda: infer(ops.concat, F, f32(3), axis=0)),
    ("concat along axis 2 of ranks 2", lambda: infer(ops.concat, F, F, axis=2)),
    ("extents differ: 2 and 5", lambda: infer(ops.concat, F, f32(5, 3), axis=1)),
    ("in length: 1, 1, 1, 0", lambda: infer(ops.strided_slice, F, **{**cut(0, 1), "axes": ()})),
    ("axis 2 is out of range for rank 2", lambda: infer(ops.strided_slice, F, **cut(0, 1, 1, 2))),
    ("a step of 0 from 0 to 1", lambda: infer(ops.strided_slice, F, **cut(0, 1, 0))),
    ("pads for 1 axes, of rank 2", lambda: infer(ops.pad, F, pads=((0, 0),))),
    ("no mode 'empty' of pads; known: constant", lambda: infer(ops.pad, F, mode="empty", pads=())),
    ("axes (1, 1) name one of them twice", lambda: infer(ops.reduce_sum, F, axes=(1, 1))),
    ("axes (0, 0) name one of them twice", lambda: infer(ops.unsqueeze, F, axes=(0, 0))),
    ("batch_dims is 2, indices have rank 2", lambda: infer(ops.gather_nd, F, G, batch_dims=2)),
    ("no dtype 'half a float'", lambda: infer(ops.cast, F, dtype="half a float")),
    ("repeats for 1 axes, of rank 2", lambda: infer(ops.tile, F, repeats=(2,))),
    ("a step of 0 from 0 to 5", lambda: infer(ops.arange, stop=5, step=0)),
    ("more than one -1 in [-1, -1]", lambda: infer(ops.dyn_reshape, F, known(-1, -1))),
    ("the 0 at 2 copies no axis of [2, 3]", lambda: infer(ops.dyn_reshape, F, known(2, 3, 0))),
    ("6 elements in rows of 4", lambda: infer(ops.dyn_reshape, F, known(4, -1))),
    ("expected a vector, got int64[2, 3]", lambda: infer(ops.dyn_reshape, F, G)),
    ("int64[65] tells of 65 axes; the most is 64", lambda: infer(ops.dyn_full, i64(65), **ONES)),
    ("3 pads for 2 axes", lambda: infer(ops.dyn_pad, F, known(0, 0, 0), known(0, 1))),
    ("axis -3 is out of range for rank 2", lambda: infer(ops.dyn_squeeze, F, known(-3))),
    ("3 axes of rank 2", lambda: infer(ops.dyn_reduce_sum, F, i64(3))),
    ("(1, 1) name one of them twice", lambda: infer(ops.dyn_reduce_max, IMAGE, known(1, ANY, -3))),
    ("axes (1, 1) name one of them twice", lambda: infer(ops.dyn_unsqueeze, F, known(1, -3))),
    ("axis is a vector of one number, got [0, 1]", lambda: infer(ops.dyn_cumsum, F, known(0, 1))),
    ("axis 1 of [2, 3] in parts of [2, 2]", lambda: infer(ops.dyn_split, F, known(2, 2), **PART)),
    ("a negative extent in [4, -1]", lambda: infer(ops.dyn_split, F, known(4, -1), **PART)),
    ("part 1 of 1", lambda: infer(ops.dyn_split, F, known(3), **PART)),
    (
        "differ in length: 2, 1, 1, 1",
        lambda: infer(ops.dyn_strided_slice, F, *map(i64, (2, 1, 1, 1))),
    ),
    (
        "boxes and scores of rank 3 and scalars, got ranks 2, 2, 0, 0, 1",
        lambda: infer(ops.non_max_suppression, F, F, i64(), f32(), f32(1)),
    ),
    ("axis 2 is out of range for rank 2", lambda: infer_all(ops.unique, F, axis=2)),
    ("indices are integers, got float32", lambda: infer(ops.gather, F, F, axis=0)),
    ("axis 2 is out of range for rank 2", lambda: infer(ops.gather, F, G, axis=2)),
    ("ranks differ: 2 and 1", lambda: infer(ops.gather_elements, F, i64(2), axis=0)),
    ("3 indices after 0 axes, of rank 2", lambda: infer(ops.gather_nd, F, G)),
    ("rows of 1 index at least, got 0", lambda: infer(ops.gather_nd, F, i64(2, 0))),
    ("axis 0 has 3 indices", lambda: infer(ops.gather_elements, F, i64(3, 3), axis=1)),
    ("axis 1 has B + 4 indices", lambda: infer(ops.gather_elements, F, i64(2, B + 4), axis=0)),
    ("updates have rank 1, the places 2", lambda: infer(ops.scatter_nd, F, i64(4, 1), f32(4))),
    ("dtypes differ: float32 and int64", lambda: infer(ops.scatter_nd, F, i64(2, 1), G)),
    ("ranks differ: 2, 2 and 1", lambda: infer(ops.scatter_elements, F, G, f32(2), axis=0)),
    ("a mask is bool, got int64", lambda: infer(ops.compress, F, i64(2), axis=0)),
    ("a mask has rank 1, got 2", lambda: infer(ops.compress, F, tensor("bool", 2, 3), axis=0)),
    ("expected 0 <= k <= 3 along axis 1, got 4", lambda: infer_all(ops.topk, F, k=4, axis=1)),
    (
        "expected 0 <= k <= 3 along axis 1, got -1",
        lambda: infer_all(ops.dyn_topk, F, known(-1), axis=1),
    ),
    (
        "k is a vector of one number, got [1, 2]",
        lambda: infer_all(ops.dyn_topk, F, known(1, 2), axis=1),
    ),
    ("expected 0 <= k <= 3 along axis 0, got 4", lambda: ops.topk.run(np.ones(3), k=4, **TOP)),
    ("images of rank 4, got rank 2", lambda: infer(ops.conv2d, F, IMAGE)),
    ("extents differ: 4 and 3", lambda: infer(ops.conv2d, IMAGE, f32(8, 3, 1, 1))),
    ("5 output channels in 2 groups", lambda: infer(ops.conv2d, IMAGE, f32(5, 2, 1, 1), groups=2)),
    (
        "a window of 3 (dilated by 3) over 5+0+0",
        lambda: infer(ops.conv2d, IMAGE, f32(8, 4, 3, 3), dilations=(3, 1)),
    ),
    (
        "no layout 'CHWN'; known: NCHW, NHWC",
        lambda: infer(ops.conv2d, IMAGE, f32(8, 4, 1, 1), layout="CHWN"),
    ),
    (
        "no precision 'high'; known: default, exact",
        lambda: infer(ops.conv2d, IMAGE, f32(8, 4, 1, 1), precision="high"),
    ),
    (
        "conv2d_integer takes bytes, int8 or uint8, got float32",
        lambda: infer(ops.conv2d_integer, IMAGE, f32(8, 4, 1, 1)),
    ),
    (
        "zero must be a number of int8, got 128",
        lambda: infer(
            ops.conv2d_integer, tensor("int8", 1, 4, 5, 5), tensor("int8", 8, 4, 1, 1), zero=128
        ),
    ),
    ("pooling takes images of rank 4", lambda: infer(ops.max_pool2d, F, kernel=(1, 1))),
    ("4 output channels in 0 groups", lambda: infer(ops.conv2d, IMAGE, f32(4, 4, 1, 1), groups=0)),
    ("1 output channels in -1 groups", lambda: infer(ops.conv2d, IMAGE, IMAGE, groups=-1)),
    ("0 output channels in 1 groups", lambda: infer(ops.conv2d, IMAGE, f32(0, 4, 1, 1))),
    ("kernel must be 2 numbers from 1 up", lambda: infer(ops.conv2d, IMAGE, f32(8, 4, 0, 1))),
]


@pytest.mark.parametrize(("message", "infer_wrongly"), FAULTS, ids=[f[0] for f in FAULTS])
def test_types_that_do_not_fit_are_named(message: str, infer_wrongly: Callable[[], object]) -> None:
    with pytest.raises(TypeRelError, match=re.escape(message)):
        infer_wrongly()


GEOMETRY = [
    ({"strides": (0, 1)}, "strides must be 2 numbers from 1 up, got (0, 1)"),
    ({"strides": (1,)}, "strides must be 2 numbers from 1 up, got (1,)"),
    ({"strides": 2}, "strides must be 2 numbers from 1 up, got 2"),
    ({"strides": (1.5, 1)}, "strides must be 2 numbers from 1 up, got (1.5, 1)"),
    ({"dilations": (1, -1)}, "dilations must be 2 numbers from 1 up, got (1, -1)"),
    ({"dilations": (1, 1, 1)}, "dilations must be 2 numbers from 1 up, got (1, 1, 1)"),
    ({"pads": (0, 0, -1, 0)}, "pads must be 4 numbers from 0 up, got (0, 0, -1, 0)"),
    ({"pads": (1, 1)}, "pads must be 4 numbers from 0 up, got (1, 1)"),
]


@pytest.mark.parametrize(("attrs", "message"), GEOMETRY, ids=[g[1] for g in GEOMETRY])
def test_windows_that_cannot_slide_are_refused(attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeRelError, match=re.escape(message)):
        infer(ops.conv2d, IMAGE, f32(8, 4, 1, 1), **attrs)
    for pool in (ops.max_pool2d, ops.avg_pool2d):
        with pytest.raises(TypeRelError, match=re.escape(message)):
            infer(pool, IMAGE, kernel=(1, 1), **attrs)


@pytest.mark.parametrize("kernel", [(0, 1), (1, -1), (1,), (1, 1, 1), 2])
def test_windows_without_extent_are_refused(kernel: Any) -> None:
    for pool in (ops.max_pool2d, ops.avg_pool2d):
        with pytest.raises(TypeRelError, match="kernel must be 2 numbers from 1 up, got"):
            infer(pool, IMAGE, kernel=kernel)


def test_attributes_and_operators_are_known_by_name() -> None:
    with pytest.raises(
        UnknownNameError, match=r"no attribute of softmax named 'axes'; known: axis"
    ):
        ops.softmax.complete({"axes": (1,)})
    with pytest.raises(TypeRelError, match="softmax needs the attribute axis"):
        ops.softmax.complete({})
    with pytest.raises(UnknownNameError, match=r"no operator named 'sofmax'; known: .*softmax"):
        get("sofmax")
    assert get("softmax") is ops.softmax


# --- how much the types know ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "target", "want"),
    [
        ((B, S, 768), (0, 0, 12, 64), "[B, S, 12, 64]"),
        ((B, S, 768), (0, -1, 12, 64), "[B, S, 12, 64]"),
        ((B, S, 768), (B, S, 12, -1), "[B, S, 12, 64]"),
        ((B, S + 1, 768), (B, S + 1, 12, -1), "[B, S + 1, 12, 64]"),
        ((B, 12, S, 64), (B * 12, S, 64), "[12*B, S, 64]"),
        ((ANY, 768), (0, -1, 64), "[?, 12, 64]"),
        ((ANY, S), (-1, S), "[?, S]"),
        ((B, S), (-1,), "[B*S]"),
        ((B, 6), (B, ANY, 3), "[B, ?, 3]"),
        ((Z, 6), (Z, 2, 3), "[Z, 2, 3]"),
        ((4, 6), (Z, 24), "[?, 24]"),  # if Z is 0 it means 4
        ((4, 6), (S - 3, 24), "[?, 24]"),  # and -1 means 1
        ((Z, 12, S, 64), (Z * 12, S, 64), "[12*Z, S, 64]"),  # Z is 0, and so is what it copies
        ((Z, 12, S, 64), (-1, S, 64), "[12*Z, S, 64]"),
        ((Z * S, 6), (Z, S, 2, -1), "[Z, S, 2, 3]"),
    ],
)
def test_what_reshape_knows(x: tuple[Dim, ...], target: tuple[Dim, ...], want: str) -> None:
    assert shape(ops.dyn_reshape, f32(*x), known(*target)) == want


def test_zero_is_an_extent_if_it_is_allowed() -> None:
    empty = f32(0, 3)
    assert shape(ops.dyn_reshape, empty, known(3, 0), allow_zero=True) == "[3, 0]"


@pytest.mark.parametrize(
    ("size", "begin", "end", "step", "want"),
    [
        (N, 0, 1, 1, "1"),
        (N, 1, 2**63 - 1, 1, "N - 1"),
        (N, 0, 2**31 - 1, 1, "N"),
        (N, 0, -1, 1, "N - 1"),
        (N, -1, 2**63 - 1, 1, "1"),
        (N, -1, -(2**63), -1, "N"),
        (Z, -1, -(2**63), -1, "Z"),
        (Z, 0, 1, 1, "min(1, Z)"),
        (N, 0, 2**63 - 1, 2, "(N + 1)//2"),
        (N, 0, N, 1, "N"),
        (512, 0, Symbol("S", 1, 512), 1, "S"),
        (512, 0, S, 1, "min(S, 512)"),
        (N, 0, ANY, 1, "?"),
        (9, S - N, 9, 1, f"-min(max({NEAR} - 9*min(max({NEAR}, -1), 0), 0), 9) + 9"),
        (ANY, 0, 1, 1, "?"),
        (10, -3, 2**63 - 1, 1, "3"),
        (10, 7, 3, 1, "0"),
    ],
)
def test_what_slice_knows(size: Dim, begin: Dim, end: Dim, step: int, want: str) -> None:
    attrs = {"begin": (begin,), "end": (end,), "strides": (step,), "axes": (0,)}
    assert shape(ops.strided_slice, f32(size), **attrs) == f"[{want}]"
    operands = (known(begin), known(end), known(step), known(0))
    assert shape(ops.dyn_strided_slice, f32(size), *operands) == f"[{want}]"


@pytest.mark.parametrize(
    ("start", "stop", "step", "want"),
    [
        (0, N, 1, "N"),
        (1, N, 1, "N - 1"),
        (0, N + 1, 2, "N//2 + 1"),
        (N, 0, -1, "N"),
        (N, N, 1, "0"),
        (0, ANY, 1, "?"),
        (0, N, ANY, "?"),
    ],
)
def test_what_arange_knows(start: Dim, stop: Dim, step: Dim, want: str) -> None:
    assert shape(ops.dyn_arange, scalar(start), scalar(stop), scalar(step)) == f"[{want}]"


def test_what_windows_know() -> None:
    image, weight = f32(N, 3, H, W), f32(64, 3, 7, 7)
    attrs: dict[str, Any] = {"strides": (2, 2), "pads": (3, 3, 3, 3)}
    same = f32(N, H, W, 3)
    assert shape(ops.conv2d, image, weight, **attrs) == "[N, 64, (H - 1)//2 + 1, (W - 1)//2 + 1]"
    assert (
        shape(ops.conv2d, same, weight, **attrs, layout="NHWC")
        == "[N, (H - 1)//2 + 1, (W - 1)//2 + 1, 64]"
    )
    three = f32(64, 3, 3, 3)
    assert shape(ops.conv2d, image, three, pads=(1, 1, 1, 1)) == "[N, 64, H, W]"
    assert shape(ops.max_pool2d, image, kernel=(2, 2), strides=(2, 2)) == "[N, 3, H//2, W//2]"


def test_gather_and_concat_follow_dims() -> None:
    x = f32(B, S, 768)
    extents = infer(ops.shape_of, x)
    assert extents.value == (B, S, 768)
    first = infer(ops.gather, extents, scalar(0), axis=0)
    assert (first.shape, first.value) == ((), (B,))
    vector = infer(ops.unsqueeze, first, axes=(0,))
    joined = infer(ops.concat, vector, known(-1), known(12, 64), axis=0)
    assert joined.value == (B, -1, 12, 64)
    assert infer(ops.gather, known(3, N), known(-1), axis=0).value == (N,)
    assert infer(ops.gather, known(3, N), known(S), axis=0).value is None


def emit(b: Builder, op: Op, *args: Atom, **attrs: Any) -> Var:
    return b.emit(op, *args, **attrs)


def test_the_expand_that_exporters_write_is_followed() -> None:
    """torch's `expand`: -1 in the target means the extent of the tensor."""
    b, x = Builder(), Var("x", f32(B, 1, S))
    target = emit(b, ops.concat, emit(b, ops.shape_of, x), Const(np.array([-1])), axis=0)
    target = emit(b, ops.strided_slice, target, begin=(1,), end=(4,), strides=(1,), axes=(0,))
    ones = emit(b, ops.dyn_full, emit(b, ops.shape_of, target), value=1, dtype="int64")
    minus = emit(b, ops.mul, ones, Const(np.array([-1])))
    chosen = emit(b, ops.where, emit(b, ops.equal, target, minus), ones, target)
    assert chosen.type.value == (1, S, 1)
    assert emit(b, ops.dyn_broadcast_to, x, chosen).type.shape[1] == S


@pytest.mark.parametrize(
    ("op", "elements", "want"),
    [
        (ops.trunc_div, (-7, 2), -3),
        (ops.trunc_div, (N, 2), N // 2),
        (ops.trunc_div, (N, -1), ANY),
        (ops.mod, (-7, 3), 2),
        (ops.mod, (N * 4, 4), 0),
        (ops.mod, (N - 5, 2), ANY),
        (ops.abs_, (N - 5,), ANY),
        (ops.abs_, (-5,), 5),
        (ops.minimum_, (N, 0), 0),
        (ops.equal, (N, N), 1),
        (ops.equal, (N, -1), 0),
        (ops.equal, (N, 3), ANY),
        (ops.equal, (ANY, ANY), ANY),
        (ops.not_equal, (N, 0), 1),
        (ops.less, (0, N), 1),
        (ops.less_equal, (N, 0), 0),
        (ops.greater, (N, 1), ANY),
        (ops.greater_equal, (N, 1), 1),
    ],
)
def test_arithmetic_on_dims_claims_only_what_is_certain(
    op: Op, elements: tuple[Dim, ...], want: Dim
) -> None:
    assert infer(op, *map(scalar, elements)).value == (want,)


@pytest.mark.parametrize("dim", [N - 5, 5 - N, (N - 1) // 4 - 7, N * -3, N - N // 2 * 3])
def test_a_quotient_of_what_may_be_negative_is_cut_towards_zero(dim: Dim) -> None:
    """As torch writes the extents of strided convolutions, over images that may be too small."""
    (found,) = infer(ops.trunc_div, scalar(dim), scalar(8)).value or ()
    for size in range(1, 70):
        over = evaluate(dim, {"N": size})
        assert evaluate(found, {"N": size}) == int(over / 8)


def test_reductions_of_dims() -> None:
    assert infer(ops.reduce_prod, known(B, S, 64), axes=(0,)).value == (B * S * 64,)
    assert infer(ops.reduce_sum, known(B, S), axes=(0,)).value == (B + S,)
    assert infer(ops.reduce_min, known(N, 0), axes=(0,)).value == (0,)
    wide = infer(ops.full, shape=(2, 2), value=3, dtype="int64")
    assert infer(ops.reduce_max, wide, axes=(0,)).value is None


def test_dynamic_ops_stay_dynamic_while_an_extent_is_unknown() -> None:
    x = f32(ANY, 6)
    assert ops.dyn_reshape.static is not None
    assert ops.dyn_reshape.static(x, known(-1, 3), allow_zero=False) is None
    twin = ops.dyn_reshape.static(x, known(2, 3), allow_zero=False)
    assert twin == (ops.reshape, {"newshape": (2, 3)})


# --- padding -------------------------------------------------------------------------------------


def rule(op: Op, arg: int, axis: int, /, *shapes: tuple[Dim, ...], **attrs: Any) -> Padding:
    return op.padding(arg, axis, *shapes, **op.complete(attrs))


@pytest.mark.parametrize(
    ("got", "want"),
    [
        (rule(ops.add, 0, 1, (B, S, 4), (1, S, 4)), FREE),
        (rule(ops.add, 0, 1, (B, S, 4), (4,)), FREE),
        (rule(ops.add, 0, 1, (B, S, 4), (1, N, 4)), UNSAFE),
        (rule(ops.add, 0, 0, (ANY,), (ANY,)), UNSAFE),
        (rule(ops.matmul, 0, 1, (B, S, 4), (4, 8)), FREE),
        (rule(ops.matmul, 0, 3, (B, 12, S, S), (B, 12, S, 64)), Fill(0)),
        (rule(ops.matmul, 1, 2, (B, 12, S, S), (B, 12, S, 64)), Fill(0)),
        (rule(ops.matmul, 1, 3, (B, 12, S, 64), (B, 12, 64, S)), FREE),
        (rule(ops.matmul, 0, 0, (B, S, 4), (N, 4, 8)), UNSAFE),
        (rule(ops.matmul, 0, 1, (M, N), (S, 4)), UNSAFE),
        (rule(ops.softmax, 0, 3, (B, 12, S, S), axis=3), Fill(-math.inf)),
        (rule(ops.softmax, 0, 2, (B, 12, S, S), axis=3), FREE),
        (rule(ops.layer_norm, 0, 1, (B, S, 768), (768,), (768,), axis=2), FREE),
        (rule(ops.reduce_mean, 0, 2, (N, 3, H, W), axes=(2, 3)), UNSAFE),
        (rule(ops.reduce_mean, 0, 0, (N, 3, H, W), axes=(2, 3)), FREE),
        (rule(ops.reshape, 0, 1, (B, S, 768), newshape=(B, S, 12, 64)), FREE),
        (rule(ops.reshape, 0, 0, (B, S, 768), newshape=(B * S, 768)), FREE),
        (rule(ops.reshape, 0, 1, (B, S, 768), newshape=(B * S, 768)), UNSAFE),
        (rule(ops.reshape, 0, 1, (1, S, 768), newshape=(S, 768)), FREE),
        (rule(ops.reshape, 0, 0, (B, S), newshape=(S, B)), UNSAFE),
        (rule(ops.transpose, 0, 1, (B, S, 12, 64), axes=(0, 2, 1, 3)), FREE),
        (rule(ops.concat, 1, 1, (B, 1), (B, S), axis=1), FREE),
        (rule(ops.concat, 0, 1, (B, S), (B, 1), axis=1), UNSAFE),
        (rule(ops.gather, 0, 1, (N, B, 4), (S,), axis=0), FREE),
        (rule(ops.gather, 1, 1, (30522, 768), (B, S), axis=0), Fill(0)),
        (rule(ops.gather, 0, 0, (N, 4), (S,), axis=0), UNSAFE),
        (rule(ops.gather_nd, 1, 1, (3, 4), (S, N)), UNSAFE),
        (rule(ops.gather_nd, 0, 1, (3, S), (N, 1)), FREE),
        (rule(ops.gather_elements, 1, 1, (N, 5), (M, S), axis=0), UNSAFE),
        (rule(ops.squeeze, 0, 1, (B, S), axes=(1,)), UNSAFE),
        (rule(ops.concat, 0, 0, (B, S), (N, S), axis=1), UNSAFE),
        (rule(ops.strided_slice, 0, 1, (B, S), **cut(0, 1, 1, 1)), FREE),
        (rule(ops.strided_slice, 0, 1, (B, S), **cut(0, -1, 1, 1)), FREE),
        (rule(ops.strided_slice, 0, 1, (B, S), **cut(-1, 9, 1, 1)), UNSAFE),
        (rule(ops.strided_slice, 0, 1, (B, S), **cut(S - 1, S, 1, 1)), UNSAFE),
        (rule(ops.broadcast_to, 0, 0, (B, 1), shape=(B, S)), FREE),
        (rule(ops.broadcast_to, 0, 0, (N, 1), shape=(B, S)), UNSAFE),
        (rule(ops.conv2d, 0, 2, (N, 3, H, W), (8, 3, 3, 3), pads=(1, 1, 1, 1)), Fill(0)),
        (rule(ops.conv2d, 0, 2, (N, 3, H, W), (8, 3, 1, 1)), FREE),
        (rule(ops.conv2d, 0, 0, (N, 3, H, W), (8, 3, 1, 1)), FREE),
        (
            rule(ops.max_pool2d, 0, 3, (N, 3, H, W), kernel=(3, 3), pads=(1, 1, 1, 1)),
            Fill(-math.inf),
        ),
        (rule(ops.avg_pool2d, 0, 3, (N, 3, H, W), kernel=(2, 2), strides=(2, 2)), FREE),
        (rule(ops.avg_pool2d, 0, 3, (N, 3, H, W), kernel=(3, 3), pads=(1, 1, 1, 1)), UNSAFE),
        (rule(ops.pad, 0, 0, (N, 3), pads=((1, 0), (0, 0))), FREE),
        (rule(ops.pad, 0, 0, (N, 3), pads=((0, 1), (0, 0)), value=7.0), Fill(7.0)),
        (rule(ops.argmax, 0, 1, (N, S), axis=1), Fill(-math.inf)),
        (rule(ops.cumsum, 0, 0, (N,), axis=0), FREE),
        (rule(ops.topk, 0, 1, (N, S), k=3, axis=1, largest=True), Fill(-math.inf)),
        (rule(ops.nonzero, 0, 0, (N,)), Fill(0)),
        (rule(ops.shape_of, 0, 0, (N,)), UNSAFE),
        (rule(ops.tile, 0, 0, (N, 2), repeats=(1, 2)), FREE),
    ],
)
def test_padding_is_as_free_as_it_can_be(got: Padding, want: Padding) -> None:
    assert got == want


def test_a_value_is_not_followed_through_symbolic_attributes() -> None:
    three = TensorType(np.dtype(np.int64), (3,), (1, 2, 3))
    (wide,) = ops.broadcast_to.infer(three, shape=(Symbol("N"),))
    assert wide == TensorType(np.dtype(np.int64), (3,))
    none = TensorType(np.dtype(np.int64), (0,), ())
    assert ops.tile.infer(none, repeats=(Symbol("N"),))[0].shape == (0,)


def test_no_elements_are_no_elements_in_any_shape() -> None:
    assert ops.reshape.shape((20, 0), newshape=(0,)) == (0,)
    with pytest.raises(TypeRelError, match="has 20 elements, not 0"):
        ops.reshape.shape((20,), newshape=(0,))


def test_what_is_certain_to_be_out_of_range_is_refused() -> None:
    pair = TensorType(np.dtype(np.int64), (2,), (N, M))
    assert ops.gather.infer(pair, known(-2, 1), axis=0)[0].value == (N, M)
    with pytest.raises(TypeRelError, match="index 2 is out of range for extent 2"):
        ops.gather.infer(pair, known(0, 2), axis=0)
    with pytest.raises(TypeRelError, match="cut more than there is of"):
        ops.pad.infer(f32(2), pads=((-3, 0),))
    with pytest.raises(TypeRelError, match="cut more than there is of"):
        ops.pad.compute(np.zeros(2, np.float32), pads=((-2, -1),))
