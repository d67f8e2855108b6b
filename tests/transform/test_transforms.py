"""Each transform: golden text before and after, and equal results on random inputs."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
from onnx_model import parse

import bucketize
from bucketize import ops
from bucketize.dispatch.tree import dispatch
from bucketize.errors import BucketizeError, PaddingError, TypeRelError, VerifyError
from bucketize.interpret import evaluate_module, run_function
from bucketize.ir import (
    FUSED,
    IF,
    Atom,
    Binding,
    Builder,
    Const,
    Function,
    Module,
    Var,
    all_bindings,
    specialise,
)
from bucketize.kernel.workload import signature
from bucketize.lower.concat import MOST, split_concats
from bucketize.lower.fuse import MAX_INPUTS, MAX_MEMBERS, fuse, is_taken
from bucketize.lower.layout import SHALLOW, layout
from bucketize.lower.pipeline import lower
from bucketize.onnx import from_onnx
from bucketize.ops.dim import mask_tail
from bucketize.text import parse_function, show
from bucketize.transform.apply import apply
from bucketize.transform.cse import cse
from bucketize.transform.dead_code import dead_code, used_atoms
from bucketize.transform.dynamic_to_static import dynamic_to_static
from bucketize.transform.fold_constant import fold_constant
from bucketize.transform.fold_if import fold_if
from bucketize.transform.simplify import SIMPLIFY, simplify
from bucketize.types import ANY, Dim, Symbol, minimum, tensor
from bucketize.verify import verify

N = Symbol("N", 1, 8)
S = Symbol("S", 1, 16)
M = Symbol("M")


def const(*shape: int, seed: int = 0) -> Const:
    return Const(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def scalar(value: float) -> Const:
    return Const(np.asarray(value, np.float32))


def indices(*values: int) -> Const:
    return Const(np.asarray(values, np.int64))


def check(golden: Any, before: Function, after: Function, *shapes: tuple[int, ...]) -> None:
    """The text of both, and equal results."""
    verify(Module({"main": after}))
    golden.check(f"{show(before)}\n// becomes\n{show(after)}\n")
    rng = np.random.default_rng(1)
    for flag in (True, False):
        args = [
            np.asarray(flag) if p.type.dtype == bool else rng.standard_normal(s).astype(np.float32)
            for p, s in zip(before.params, shapes, strict=True)
        ]
        for got, want in zip(run_function(after, args), run_function(before, args), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_dynamic_to_static(golden: Any) -> None:
    x = Var("x", tensor("float32", N, S, 24))
    b = Builder()
    shape = b.emit(ops.shape_of, x)
    size = b.emit(ops.gather, shape, Const(np.asarray(1, np.int64)), axis=0)
    row = b.emit(ops.unsqueeze, size, axes=(0,))
    wanted = b.emit(ops.concat, indices(-1), row, indices(4, 6), axis=0)
    y = b.emit(ops.dyn_reshape, x, wanted)
    z = b.emit(ops.add, size, Const(np.asarray(1, np.int64)))
    before = b.function("main", [x], [y, z])
    check(golden, before, dead_code(dynamic_to_static(before)), (2, 3, 24))


def test_every_dyn_op_has_a_rewrite_and_unknown_operands_stay() -> None:
    x, shape = Var("x", tensor("float32", N)), Var("shape", tensor("int64", 2))
    b = Builder()
    y = b.emit(ops.dyn_reshape, x, shape)
    fn = b.function("main", [x, shape], [y])
    assert dynamic_to_static(fn) is fn
    assert y.type.shape == (ANY, ANY)


def test_fold_constant(golden: Any) -> None:
    x = Var("x", tensor("float32", N, 3))
    b = Builder()
    weight = b.emit(ops.transpose, const(2, 3), axes=(1, 0))
    y = b.emit(ops.matmul, x, weight)
    before = b.function("main", [x], [b.emit(ops.add, y, b.emit(ops.neg, scalar(2)))])
    check(golden, before, fold_constant(before), (2, 3))


def test_cse(golden: Any) -> None:
    x = Var("x", tensor("float32", N, 3))
    b = Builder()
    one, two = b.emit(ops.relu, x), b.emit(ops.relu, x)
    three, four = b.emit(ops.add, one, scalar(1)), b.emit(ops.add, two, scalar(1))
    before = b.function("main", [x], [b.emit(ops.mul, three, four)])
    check(golden, before, cse(before), (2, 3))


def test_several_results_are_folded_and_found_again() -> None:
    x = Var("x", tensor("float32", N, 3))
    b = Builder()
    values, _ = b.emit_all(ops.topk, x, k=2, axis=1)
    _, again = b.emit_all(ops.topk, x, k=2, axis=1)
    (top, at) = b.emit_all(ops.topk, const(3), k=1, axis=0)
    fn = b.function("main", [x], [values, again, top, at])
    once = cse(fold_constant(fn))
    assert [new.op for new in once.body] == [ops.topk]
    assert once.results[:2] == once.body[0].outs
    arg = np.ones((2, 3), np.float32)
    for got, want in zip(run_function(once, [arg]), run_function(fn, [arg]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_cse_keeps_the_branches_apart() -> None:
    c, x = Var("c", tensor("bool")), Var("x", tensor("float32", 3))
    halves = []
    for _ in range(2):
        inner = Builder()
        halves.append(inner.function("", (), [inner.emit(ops.relu, x)]))
    b = Builder()
    fn = b.function("main", [c, x], b.emit_all(IF, c, then=halves[0], orelse=halves[1]))
    verify(Module({"main": cse(fn)}))


def test_dead_code(golden: Any) -> None:
    x = Var("x", tensor("float32", N, 3))
    b = Builder()
    b.emit(ops.exp, b.emit(ops.relu, x))
    before = b.function("main", [x], [b.emit(ops.neg, x)])
    check(golden, before, dead_code(before), (2, 3))


def test_dead_code_in_branches(golden: Any) -> None:
    c, x = Var("c", tensor("bool")), Var("x", tensor("float32", N, 3))
    b = Builder()
    unused = b.emit(ops.exp, x)
    halves = []
    for op in (ops.relu, ops.neg):
        inner = Builder()
        inner.emit(op, unused)
        halves.append(inner.function("", (), [inner.emit(op, x)]))
    outs = b.emit_all(IF, c, then=halves[0], orelse=halves[1])
    before = b.function("main", [c, x], outs)
    check(golden, before, dead_code(before), (), (2, 3))


def test_cse_in_a_branch_alone() -> None:
    c, x = Var("c", tensor("bool")), Var("x", tensor("float32", 3))
    b, inner = Builder(), Builder()
    twice = [inner.emit(ops.relu, x), inner.emit(ops.relu, x)]
    then = inner.function("", (), [inner.emit(ops.add, *twice)])
    outs = b.emit_all(IF, c, then=then, orelse=Builder().function("", (), [x]))
    (found,) = cse(b.function("main", [c, x], outs)).body
    assert [n.op for n in found.attrs["then"].body] == [ops.relu, ops.add]


def choice(b: Builder, condition: Atom, x: Atom) -> Atom:
    """`x` or its negative."""
    inner = Builder()
    orelse = inner.function("", (), [inner.emit(ops.neg, x)])
    then = Builder().function("", (), [x])
    return b.emit_all(IF, condition, then=then, orelse=orelse)[0]


def test_fold_if(golden: Any) -> None:
    x, c = Var("x", tensor("float32", N, 3)), Var("c", tensor("bool"))
    b = Builder()
    y = choice(b, Const(np.asarray(False)), x)
    y = choice(b, b.emit(ops.dim_less, dim=N, than=9), y)
    y = choice(b, b.emit(ops.dims_within, dims=(N, 3), box=((1, 9), (4, None))), y)
    size = b.emit(ops.gather, b.emit(ops.shape_of, x), Const(np.asarray(0, np.int64)), axis=0)
    nine = Const(np.asarray(9, np.int64))
    y = choice(b, b.emit(ops.logical_not, b.emit(ops.equal, size, nine)), y)
    y = choice(b, b.emit(ops.dim_less, dim=N, than=8), y)
    y = choice(b, b.emit(ops.dims_within, dims=(N, N), box=((1, 9), (2, None))), y)
    before = b.function("main", [x, c], [choice(b, c, y)])
    after = dead_code(fold_if(before))
    check(golden, before, after, (2, 3), ())
    assert fold_if(after) is after


def test_what_constants_decide_is_folded_too() -> None:
    x = Var("x", tensor("float32", N, 3))
    b = Builder()
    y = choice(b, b.emit(ops.greater, scalar(1), scalar(2)), x)
    simple = simplify(
        b.function("main", [x], [choice(b, b.emit(ops.less, scalar(1), scalar(2)), y)])
    )
    assert [n.op for n in simple.body] == [ops.neg]


def test_a_branch_not_taken_need_not_fit() -> None:
    """What the first `if` leaves has three rows; the second one adds five of them elsewhere."""
    x = Var("x", tensor("float32", ANY, 3))
    b, first = Builder(), Builder()
    cut = first.emit(ops.strided_slice, x, begin=(0,), end=(3,), strides=(1,), axes=(0,))
    three = first.function("", (), [first.emit(ops.add, cut, const(3, 3))])
    (y,) = b.emit_all(
        IF, Const(np.asarray(True)), then=three, orelse=Builder().function("", (), [x])
    )
    size = b.emit(ops.gather, b.emit(ops.shape_of, y), Const(np.asarray(0, np.int64)), axis=0)
    second = Builder()
    five = second.function("", (), [second.emit(ops.add, y, const(5, 3))])
    is_five = b.emit(ops.equal, size, Const(np.asarray(5, np.int64)))
    outs = b.emit_all(IF, is_five, then=five, orelse=Builder().function("", (), [y]))
    simple = simplify(b.function("main", [x], outs))
    assert [n.op for n in simple.body] == [ops.strided_slice, ops.add]


def grey_or_colour() -> Module:
    """Images of one channel are made to have three; else they are taken as they are."""
    return from_onnx(
        parse(
            "(float[N, C, H, W] x, float[8, 3, 3, 3] w) => (y) <int64 at = {1}, int64 one = {1}> "
            "{ s = Shape(x) c = Gather(s, at) grey = Equal(c, one) "
            "rgb = If(grey) <then_branch = t () => (a) { a = Concat<axis = 1>(x, x, x) }, "
            "else_branch = e () => (b) { b = Identity(x) }> "
            "y = Conv(rgb, w) }"
        )
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_a_bucket_decides_a_branch(golden: Any, channels: int) -> None:
    mod = dispatch(grey_or_colour(), lambda shapes: {"x": {1: [(channels, channels + 1)]}})
    clone = mod.function(f"main[C={channels}]")
    after = simplify(specialise(clone, {}, "main"))
    sizes = (2, channels, 5, 6), (8, 3, 3, 3)
    check(golden, grey_or_colour().main, after, *sizes)
    assert all(b.op is not IF for b in all_bindings(after))
    shapes = [v.type for b in after.body for v in b.outs]
    assert {s.name for t in shapes for s in t.symbols()} <= {"N", "H", "W"}
    assert all(d is not ANY for t in shapes for d in t.shape)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype(np.float32) for s in sizes]
    for got, want in zip(run_function(clone, args), run_function(after, args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def conv(b: Builder, x: Atom, weight: Const, bias: Const, pad: int) -> Var:
    attrs = {"strides": (1, 1), "dilations": (1, 1), "groups": 1, "layout": "NCHW"}
    y = b.emit(ops.conv2d, x, weight, pads=(pad,) * 4, **attrs)
    return b.emit(ops.add, y, bias)


def network() -> Function:
    """Two convolutions with a residual add, then the usual head."""
    x = Var("x", tensor("float32", N, 4, S, S))
    b = Builder()
    y = b.emit(ops.relu, conv(b, x, const(4, 4, 3, 3), const(1, 4, 1, 1), 1))
    z = conv(b, y, const(4, 4, 1, 1, seed=1), const(4, 1, 1), 0)
    out = b.emit(ops.relu, b.emit(ops.add, z, x))
    mean = b.emit(ops.reduce_mean, out, axes=(2, 3), keepdims=True)
    flat = b.emit(ops.reshape, mean, newshape=(N, 4))
    return b.function("main", [x], [b.emit(ops.matmul, flat, const(4, 5))])


def test_layout(golden: Any) -> None:
    before = network()
    check(golden, before, layout(before), (2, 4, 6, 6))


def squeeze_and_excite() -> Function:
    """Weights of the channels that pass through a reshape, and a constant used twice."""
    x = Var("x", tensor("float32", N, 4, 4, 4))
    b = Builder()
    y = conv(b, x, const(4, 4, 1, 1), const(1, 4, 1, 1), 0)
    mean = b.emit(ops.reduce_mean, y, axes=(2, 3), keepdims=True)
    weights = b.emit(ops.reshape, b.emit(ops.reshape, mean, newshape=(N, 4)), newshape=(N, 4, 1, 1))
    again = b.emit(ops.reshape, mean, newshape=(N, 4, 1, 1))
    joined = b.emit(ops.concat, b.emit(ops.mul, y, weights), b.emit(ops.mul, y, again), axis=1)
    return b.function("main", [x], [joined, b.emit(ops.relu, again)])


def test_layout_of_squeeze_and_excite(golden: Any) -> None:
    before = squeeze_and_excite()
    check(golden, before, lower(before), (3, 4, 4, 4))


def test_layout_keeps_constants_of_one_pixel_in_their_rank() -> None:
    x, s = Var("x", tensor("float32", 1, 3, 1, 1)), Var("s", tensor("float32"))
    b = Builder()
    k = const(1, 4, 1, 1)
    y = b.emit(ops.add, conv(b, x, const(4, 3, 1, 1), k, 0), k)
    joined = b.emit(ops.concat, y, const(1, 2, 1, 1), axis=1)
    before = b.function("main", [x, s], [joined, b.emit(ops.mul, k, s)])
    args = [np.ones((1, 3, 1, 1), np.float32), np.asarray(2, np.float32)]
    for got, want in zip(
        run_function(lower(before), args), run_function(before, args), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_layout_around_a_branch() -> None:
    c, x = Var("c", tensor("bool")), Var("x", tensor("float32", N, 3, 4, 4))
    b = Builder()
    y = conv(b, x, const(4, 3, 1, 1), const(4, 1, 1), 0)
    halves = []
    for op in (ops.relu, ops.neg):
        inner = Builder()
        halves.append(inner.function("", (), [inner.emit(op, y)]))
    (z,) = b.emit_all(IF, c, then=halves[0], orelse=halves[1])
    before = b.function("main", [c, x], [z])
    for flag in (True, False):
        args = [np.asarray(flag), np.ones((2, 3, 4, 4), np.float32)]
        got, want = run_function(lower(before), args), run_function(before, args)
        np.testing.assert_allclose(got[0], want[0], rtol=1e-6)


def branches_with_convolutions() -> Function:
    """Around an outer convolution; the branches read it, and one ends in its own epilogue."""
    c, x = Var("c", tensor("bool")), Var("x", tensor("float32", N, 4, S, S))
    b = Builder()
    y = b.emit(ops.relu, conv(b, x, const(4, 4, 1, 1), const(1, 4, 1, 1), 0))
    then, orelse = Builder(), Builder()
    z = conv(then, y, const(4, 4, 3, 3, seed=1), const(1, 4, 1, 1, seed=2), 1)
    blocks = {
        "then": then.function("", (), [then.emit(ops.relu, z)]),
        "orelse": orelse.function("", (), [orelse.emit(ops.neg, y)]),
    }
    (out,) = b.emit_all(IF, c, **blocks)
    return b.function("main", [c, x], [b.emit(ops.exp, out)])


def test_branches_are_lowered(golden: Any) -> None:
    before = branches_with_convolutions()
    check(golden, before, lower(before), (), (2, 4, 6, 6))
    after = lower(before)
    heavy = [b for b in all_bindings(after) if b.op is FUSED]
    inner = [m for b in heavy for m in b.attrs["body"].body if m.op is ops.conv2d]
    assert [m.attrs["layout"] for m in inner] == ["NHWC", "NHWC"]


def test_fuse_keeps_what_a_branch_reads() -> None:
    c, x = Var("c", tensor("bool")), Var("x", tensor("float32", N, 8))
    b, inner = Builder(), Builder()
    y = b.emit(ops.matmul, x, const(8, 8))
    z = b.emit(ops.relu, y)
    then = inner.function("", (), [inner.emit(ops.neg, y)])
    outs = b.emit_all(IF, c, then=then, orelse=Builder().function("", (), [z]))
    fused = fuse(b.function("main", [c, x], outs))
    assert [f.op.name for f in fused.body] == ["matmul", "relu", "if"]


POOL = {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}


def turned(b: Builder, y: Var, *axes: int) -> Var:
    """Two groups of two channels, transposed."""
    return b.emit(ops.transpose, b.emit(ops.reshape, y, newshape=(N, 2, 2, 8, 8)), axes=axes)


AFTER_CONVOLUTION = {  # what follows one: y is its result, w a parameter; and the ops that it takes
    "max_pool2d": (lambda b, y, w: b.emit(ops.max_pool2d, y, **POOL), "max_pool2d transpose"),
    "avg_pool2d": (lambda b, y, w: b.emit(ops.avg_pool2d, y, **POOL), "avg_pool2d transpose"),
    "pool in NHWC": (
        lambda b, y, w: b.emit(ops.max_pool2d, w, layout="NHWC", **POOL),
        "max_pool2d",
    ),
    "convolution in NHWC": (
        lambda b, y, w: b.emit(ops.conv2d, w, const(2, 8, 1, 1), layout="NHWC"),
        "conv2d",
    ),
    "mean of pixels": (
        lambda b, y, w: b.emit(ops.reduce_mean, y, axes=(2, 3), keepdims=False),
        "reduce_mean",
    ),
    "sum of channels, kept": (
        lambda b, y, w: b.emit(ops.reduce_sum, y, axes=(1,), keepdims=True),
        "reduce_sum reshape",  # of one channel
    ),
    "max of rows, kept": (
        lambda b, y, w: b.emit(ops.relu, b.emit(ops.reduce_max, y, axes=(2,), keepdims=True)),
        "reduce_max relu transpose",
    ),
    "sum of channels": (
        lambda b, y, w: b.emit(ops.reduce_sum, y, axes=(1,), keepdims=False),
        "transpose reduce_sum",
    ),
    "mean of what is in NCHW": (
        lambda b, y, w: b.emit(ops.reduce_mean, w, axes=(2, 3), keepdims=True),
        "reduce_mean",
    ),
    "mean of what has no channels": (
        lambda b, y, w: b.emit(
            ops.reduce_mean, b.emit(ops.reshape, w, newshape=(N, 256)), axes=(1,), keepdims=True
        ),
        "reshape reduce_mean",
    ),
    "reshape": (
        lambda b, y, w: b.emit(ops.reshape, y, newshape=(N, 4 * 8 * 8)),
        "transpose reshape",
    ),
    "reshape of what is in NCHW": (
        lambda b, y, w: b.emit(
            ops.reshape, b.emit(ops.reduce_mean, w, axes=(2, 3), keepdims=True), newshape=(N, 4)
        ),
        "reduce_mean reshape",
    ),
    "concat of channels": (
        lambda b, y, w: b.emit(ops.concat, y, w, axis=1),
        "transpose concat transpose",
    ),
    "concat of rows": (lambda b, y, w: b.emit(ops.concat, y, y, axis=2), "concat transpose"),
    "concat of what is in NCHW": (lambda b, y, w: b.emit(ops.concat, w, w, axis=1), "concat"),
    "concat of what has no channels": (
        lambda b, y, w: b.emit(
            ops.concat, b.emit(ops.reduce_mean, y, axes=(2, 3), keepdims=False), const(2, 4), axis=0
        ),
        "reduce_mean concat",
    ),
    "slice of channels and images": (
        lambda b, y, w: b.emit(
            ops.strided_slice, y, begin=(1, 0), end=(4, 1), strides=(2, 1), axes=(1, 0)
        ),
        "strided_slice transpose",
    ),
    "slice of lines": (
        lambda b, y, w: b.emit(
            ops.strided_slice, y, begin=(7, 1), end=(2, 9), strides=(-2, 3), axes=(2, 3)
        ),
        "strided_slice transpose",
    ),
    "a shuffle of channels": (
        lambda b, y, w: b.emit(ops.reshape, turned(b, y, 0, 2, 1, 3, 4), newshape=(N, 4, 8, 8)),
        "reshape transpose reshape transpose",
    ),
    "channels of rank 5": (
        lambda b, y, w: turned(b, y, 0, 2, 1, 3, 4),
        "reshape transpose transpose",
    ),
    "a transpose of images": (
        lambda b, y, w: turned(b, y, 1, 0, 2, 3, 4),
        "reshape transpose transpose",
    ),
    "reshape of pixels": (
        lambda b, y, w: b.emit(ops.reshape, y, newshape=(N, 4, 4, 16)),
        "transpose reshape",
    ),
    "reshape of images": (
        lambda b, y, w: b.emit(ops.reshape, y, newshape=(2 * N, 2, 8, 8)),
        "transpose reshape",
    ),
    "a transpose of lines": (
        lambda b, y, w: b.emit(ops.transpose, y, axes=(0, 1, 3, 2)),
        "transpose transpose",
    ),
    "a transpose to NHWC": (
        lambda b, y, w: b.emit(ops.neg, b.emit(ops.transpose, y, axes=(0, 2, 3, 1))),
        "neg",
    ),
    "a transpose to NCHW": (
        lambda b, y, w: b.emit(
            ops.max_pool2d, b.emit(ops.transpose, w, axes=(0, 3, 1, 2)), kernel=(1, 1)
        ),
        "max_pool2d transpose",
    ),
    "a transpose that nothing follows": (
        lambda b, y, w: b.emit(ops.transpose, w, axes=(0, 3, 1, 2)),
        "transpose",
    ),
    "attributes": (lambda b, y, w: b.emit(ops.clip, y, lo=-0.25, hi=0.5), "clip transpose"),
    "a number": (lambda b, y, w: b.emit(ops.mul, y, scalar(3)), "mul transpose"),
    "a constant of channels": (lambda b, y, w: b.emit(ops.mul, y, const(4, 1, 1)), "mul transpose"),
    "a variable of rank 3": (
        lambda b, y, w: b.emit(ops.add, y, b.emit(ops.reduce_max, w, axes=(0,), keepdims=False)),
        "reduce_max transpose add",
    ),
    "a variable of rank 1": (
        lambda b, y, w: b.emit(
            ops.add, y, b.emit(ops.reduce_max, w, axes=(0, 1, 2), keepdims=False)
        ),
        "reduce_max transpose add",
    ),
    "a variable of rank 0": (
        lambda b, y, w: b.emit(
            ops.mul, y, b.emit(ops.reduce_max, w, axes=(0, 1, 2, 3), keepdims=False)
        ),
        "reduce_max mul transpose",
    ),
    "elementwise of what is in NCHW": (lambda b, y, w: b.emit(ops.neg, w), "neg"),
    "elementwise of what has no channels": (
        lambda b, y, w: b.emit(ops.neg, b.emit(ops.reduce_mean, y, axes=(2, 3), keepdims=False)),
        "reduce_mean neg",
    ),
}


@pytest.mark.parametrize("case", AFTER_CONVOLUTION)
def test_layout_behind_a_convolution(case: str) -> None:
    make, expected = AFTER_CONVOLUTION[case]
    x, w = (Var(name, tensor("float32", N, 4, 8, 8)) for name in "xw")
    b = Builder()
    y = b.emit(ops.conv2d, x, const(4, 4, 1, 1))
    before = b.function("main", [x, w], [make(b, y, w)])
    after = verify(Module({"main": layout(before)})).main
    assert " ".join(a.op.name for a in after.body) == f"transpose conv2d {expected}"
    args = list(np.random.default_rng(1).standard_normal((2, 2, 4, 8, 8)).astype(np.float32))
    (got,), (want,) = run_function(after, args), run_function(before, args)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_layout_takes_a_number_that_is_a_parameter() -> None:
    x, k = Var("x", tensor("float32", N, 4, 8, 8)), Var("k", tensor("float32"))
    b = Builder()
    y = b.emit(ops.conv2d, x, const(4, 4, 1, 1))
    before = b.function("main", [x, k], [b.emit(ops.mul, y, k)])
    after = verify(Module({"main": layout(before)})).main
    assert [a.op.name for a in after.body] == ["transpose", "conv2d", "mul", "transpose"]
    args = [np.ones((2, 4, 8, 8), np.float32), np.array(3, np.float32)]
    (got,), (want,) = run_function(after, args), run_function(before, args)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def depthwise(dtype: str = "float32", *, known: bool = True) -> Function:
    """A padded convolution of each channel by itself, whose weights may be known."""
    x, w = Var("x", tensor(dtype, N, 4, S, S)), Var("w", tensor(dtype, 4, 1, 3, 3))
    b = Builder()
    weights = Const(const(4, 1, 3, 3).value.astype(dtype)) if known else w
    y = b.emit(ops.conv2d, x, weights, groups=4, pads=(1, 2, 0, 1), strides=(2, 1))
    return b.function("main", [x, w], [y])


def dense(channels: int, outs: int = 20) -> Function:
    """A padded convolution."""
    x, b = Var("x", tensor("float32", N, channels, S, S)), Builder()
    y = b.emit(ops.conv2d, x, const(outs, channels, 3, 3), pads=(1, 2, 0, 1))
    return b.function("main", [x], [y])


@pytest.mark.parametrize(
    ("before", "padded"),
    [
        (depthwise(), False),
        (depthwise("float64"), False),
        (depthwise(known=False), False),
        (dense(SHALLOW - 1), True),
        (dense(SHALLOW), False),
        (dense(SHALLOW - 1, 5), False),
    ],
    ids=["depthwise", "float64", "unknown weights", "shallow", "dense", "inner products"],
)
def test_layout_pads_shallow_images_alone(before: Function, padded: bool) -> None:
    after = layout(before)
    assert any(b.op is ops.pad for b in after.body) == padded
    shapes = [[{"N": 2, "S": 5}.get(str(d), d) for d in p.type.shape] for p in before.params]
    rng = np.random.default_rng(0)
    args = [
        rng.standard_normal(shape).astype(p.type.dtype)
        for shape, p in zip(shapes, before.params, strict=True)
    ]
    for got, want in zip(run_function(after, args), run_function(before, args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_layout_leaves_other_functions_alone() -> None:
    x = Var("x", tensor("float32", N, 4))
    b = Builder()
    fn = b.function("main", [x], [b.emit(ops.relu, x)])
    assert layout(fn) is fn


def test_fuse(golden: Any) -> None:
    before = fold_constant(layout(network()))
    check(golden, before, fuse(before), (2, 4, 6, 6))


def test_fuse_takes_a_whole_gelu() -> None:
    x = Var("x", tensor("float32", N, S, 8))
    b = Builder()
    y = b.emit(ops.add, b.emit(ops.matmul, x, const(8, 16)), const(16))
    e = b.emit(ops.erf, b.emit(ops.div, y, scalar(2**0.5)))
    out = b.emit(ops.mul, b.emit(ops.mul, y, b.emit(ops.add, e, scalar(1))), scalar(0.5))
    fused = fuse(b.function("main", [x], [out]))
    assert [f.op for f in fused.body] == [FUSED]
    assert len(fused.body[0].attrs["body"].body) == 7


def test_what_a_graph_repeats_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates are asked no more often about a chain of many layers than about one of few."""
    asked: list[int] = []

    def counted(members: list[Binding]) -> bool:
        asked.append(len(members))
        return is_taken(members)

    monkeypatch.setattr("bucketize.lower.fuse.is_taken", counted)
    numbers = []
    for layers in (4, 40):
        b, x = Builder(), Var("x", tensor("float32", Symbol("N"), 8))
        y: Var = x
        for i in range(layers):
            y = b.emit(ops.matmul, y, Const(np.full((8, 8), i, np.float32)))
            y = b.emit(ops.relu, b.emit(ops.add, y, Const(np.full(8, i, np.float32))))
        fused = fuse(b.function("main", [x], [y]))
        assert [f.op for f in fused.body] == [FUSED] * layers
        numbers.append(len(asked))
    assert numbers[1] == 2 * numbers[0]  # of both graphs together


def test_numbers_and_bounds_tell_groups_apart() -> None:
    """What a template may look at is in the signature, weights' values and names are not."""

    def signed(number: float, hi: int | None, weight: float) -> Hashable:
        b, x = Builder(), Var(f"x{weight}", tensor("float32", Symbol("N", 1, hi), 8))
        y = b.emit(ops.mul, x, Const(np.array(number, np.float32)))
        b.emit(ops.add, y, Const(np.full(8, weight, np.float32)))
        return signature(b.body, b.body[-1].outs)

    assert signed(1.0, 8, 2.0) == signed(1.0, 8, 3.0)
    assert len({signed(1.0, 8, 2.0), signed(2.0, 8, 2.0), signed(1.0, 9, 2.0)}) == 3


@pytest.mark.sweep
@pytest.mark.parametrize("count", [MOST, MOST + 1, MOST**2 + 1])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concats_of_many_operands(count: int, axis: int) -> None:
    """No kernel has more than `MOST`; a number stays one, and the order is kept."""
    b, x = Builder(), Var("x", tensor("float32", 2, 3, 4))
    number = Const(np.full((2, 3, 4), 7, np.float32))
    few = [b.emit(ops.add, x, Const(np.array(i, np.float32))) for i in range(5)]
    made = list(itertools.islice(itertools.cycle(few), count - 1))
    fn = b.function("main", [x], [b.emit(ops.concat, *made, number, axis=axis)])
    new = split_concats(fn)
    sizes = [len(f.args) for f in new.body if f.op is ops.concat]
    assert max(sizes) <= MOST
    assert (new is fn) == (count <= MOST)
    given = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    (want,), (same,) = run_function(fn, [given]), run_function(new, [given])
    np.testing.assert_array_equal(same, want)
    (got,) = bucketize.compile(Module({"main": fn})).run(given)
    np.testing.assert_array_equal(got, want)


def test_fuse_keeps_what_others_read() -> None:
    x = Var("x", tensor("float32", N, 8))
    b = Builder()
    y = b.emit(ops.matmul, x, const(8, 8))
    z = b.emit(ops.relu, y)
    w = b.emit(ops.reduce_max, y, axes=(0,), keepdims=True)
    fused = fuse(b.function("main", [x], [b.emit(ops.div, z, w)]))
    assert [f.op.name for f in fused.body] == ["matmul", "reduce_max", "fused"]


def groups(fn: Function) -> list[str]:
    """The ops of each binding of `fn` fused, those of a group joined."""
    fused = verify(Module({"main": fuse(fn)})).main
    bodies = [b.attrs["body"].body if b.op is FUSED else (b,) for b in fused.body]
    return ["+".join(m.op.name for m in body) for body in bodies]


def test_fuse_ends_groups_where_values_escape() -> None:
    x = Var("x", tensor("float32", N, 8))
    b = Builder()
    y = b.emit(ops.relu, b.emit(ops.matmul, x, const(8, 8)))
    z = b.emit(ops.neg, y)
    fn = b.function("main", [x], [y, z, x])
    assert groups(fn) == ["matmul+relu", "neg"]
    assert fuse(fn).results[2] is x
    w = b.emit(ops.reduce_max, y, axes=(0,), keepdims=True)
    out = b.emit(ops.div, z, w)
    assert groups(b.function("main", [x], [out])) == ["matmul+relu", "reduce_max", "neg+div"]


def test_fuse_knows_the_nodes_of_its_members() -> None:
    x = Var("x", tensor("float32", N, 8))
    b = Builder(origin=("dense",))
    y = b.emit(ops.add, b.emit(ops.matmul, x, const(8, 8)), const(8))
    b.origin = ("act", "dense")
    y = b.emit(ops.relu, y)
    b.origin = ("soft",)
    fused = fuse(b.function("main", [x], [b.emit(ops.softmax, y, axis=1)]))
    assert [(f.op.name, f.origin) for f in fused.body] == [
        ("fused", ("dense", "act")),
        ("softmax", ("soft",)),
    ]


def test_fuse_passes_over_what_nobody_reads() -> None:
    x = Var("x", tensor("float32", N, 8))
    b = Builder()
    y = b.emit(ops.matmul, x, const(8, 8))
    b.emit(ops.relu, y)
    z = b.emit(ops.neg, y)
    b.emit(ops.exp, x)
    assert groups(b.function("main", [x], [z])) == ["matmul+relu+neg", "exp"]


def test_fuse_keeps_out_what_has_several_results() -> None:
    x = Var("x", tensor("float32", N, 8))
    b = Builder()
    values, _ = b.emit_all(ops.topk, x, k=3, axis=1)
    assert groups(b.function("main", [x], [b.emit(ops.neg, values)])) == ["topk", "neg"]


def test_fuse_cuts_long_chains_into_several_groups() -> None:
    x = Var("x", tensor("float32", N, 8))
    b, y = Builder(), x
    for _ in range(MAX_MEMBERS + 4):
        y = b.emit(ops.neg, y)
    chain = groups(b.function("main", [x], [y]))
    assert [g.count("neg") for g in chain] == [MAX_MEMBERS, 4]


def test_fuse_cuts_groups_of_too_many_inputs() -> None:
    params = [Var(f"p{i}", tensor("float32", N, 8)) for i in range(MAX_INPUTS + 2)]
    b, y = Builder(), params[0]
    for p in params[1:]:
        y = b.emit(ops.add, y, p)
    sums = groups(b.function("main", params, [y]))
    assert [g.count("add") for g in sums] == [MAX_INPUTS - 1, 2]


def test_fuse_takes_the_mask_of_attention() -> None:
    x, mask = Var("x", tensor("float32", N, 4, S, S)), Var("m", tensor("float32", N, 1, 1, S))
    b = Builder()
    scaled = b.emit(ops.div, b.emit(ops.matmul, x, x), scalar(8))
    fused = fuse(b.function("main", [x, mask], [b.emit(ops.add, scaled, mask)]))
    assert [f.op.name for f in fused.body] == ["fused"]


def test_fuse_keeps_out_what_a_tile_cannot_read() -> None:
    x, y = Var("x", tensor("float32", 1, S, S)), Var("y", tensor("float32", N, S, S))
    b = Builder()
    scores = b.emit(ops.matmul, x, x)
    wider = b.emit(ops.add, scores, y)
    whole = b.emit(ops.cast, scores, dtype="int64")
    fused = fuse(b.function("main", [x, y], [wider, whole]))
    assert [f.op.name for f in fused.body] == ["matmul", "add", "cast"]


def test_lower_names_the_transform_that_fails() -> None:
    b = Builder()
    halves = [b.function("", (), [const(size)]) for size in (4, 3)]
    either = b.emit(IF, Const(np.array(True)), then=halves[0], orelse=halves[1])
    fn = b.function("main", [], [b.emit(ops.add, either, const(5))])
    with pytest.raises(TypeRelError, match="extents differ: 4 and 5") as e:
        lower(fn)
    assert "while running fold_if" in e.value.notes


def test_an_observer_sees_every_pass() -> None:
    x = Var("x", tensor("float32", N, 3))
    b = Builder()
    fn = b.function("main", [x], [b.emit(ops.neg, b.emit(ops.add, scalar(1), scalar(2)))])
    seen: list[tuple[str, Function]] = []
    lowered = lower(fn, observe=lambda name, after: seen.append((name, verify(after))))
    names = [name for name, _ in seen]
    assert names[: len(SIMPLIFY)] == [f.__name__ for f in SIMPLIFY]
    assert names[len(SIMPLIFY) :] == [
        *("flatten_windows", "narrow", "bound_rows", "sink_views", "split_concats", "dead_code"),
        *("layout", "fold_constant", "dead_code", "fuse"),
    ]
    assert seen[-1][1] is lowered
    assert [len(f.body) for name, f in seen[:6]] == [2, 2, 2, 2, 2, 0]


def test_what_an_observer_refuses_names_the_pass() -> None:
    x, gone = Var("x", tensor("float32", N, 3)), Var("gone", tensor("float32", N, 3))

    def break_scope(fn: Function) -> Function:
        return Function(fn.name, fn.params, fn.body, (gone,))

    fn = Builder().function("main", [x], [x])
    with pytest.raises(VerifyError, match=r"gone.* is not defined here") as e:
        apply(fn, [cse, break_scope], observe=lambda _, after: verify(after))
    assert e.value.notes == ("law: scope", "in @main", "while running break_scope")


def test_constants_that_cannot_be_computed_stay_for_the_run_to_refuse() -> None:
    b = Builder()
    fn = b.function("main", [], [b.emit(ops.gather, const(3, 2), indices(5), axis=0)])
    assert fold_constant(fn) is fn


def test_a_branch_that_is_not_legal_becomes_its_error() -> None:
    """Once sizes are known; the `if` has the types of the other branch, and text round-trips."""
    x, y = Var("x", tensor("float32", N, 4)), Var("y", tensor("float32", S, 4))
    c = Var("c", tensor("bool"))
    then, orelse, b = Builder(), Builder(), Builder()
    halves = {
        "then": then.function("", (), [then.emit(ops.add, x, y)]),
        "orelse": orelse.function("", (), [orelse.emit(ops.relu, x)]),
    }
    fn = specialise(b.function("main", [x, y, c], [b.emit(IF, c, **halves)]), {"N": 2, "S": 3})
    assert str(fn.results[0].type) == "float32[2, 4]"
    assert show(parse_function(show(fn))) == show(fn)
    inputs = np.ones((2, 4), np.float32), np.ones((3, 4), np.float32)
    for whole in (fn, lower(fn)):
        run_function(whole, [*inputs, np.array(False)])
        with pytest.raises(TypeRelError, match=r"extents differ: 2 and 3, in add\(float32\[2, 4"):
            run_function(whole, [*inputs, np.array(True)])


def test_what_a_binding_reads_comes_in_order() -> None:
    """A layout emits transposes in it; a set of variables is ordered by their addresses."""
    xs = [Var(f"x{i}", tensor("float32", N, 4)) for i in range(9)]
    b = Builder()
    b.emit(ops.concat, *xs, axis=1)
    assert list(used_atoms(b.body[0])) == xs


# --- the policy "pad" ----------------------------------------------------------------------------


def by_log(lo: int, mid: int, hi: int, axis: int = 0) -> Any:
    return lambda shapes: {"x": {axis: [(lo, mid), (mid, hi)]}}


def attention() -> Function:
    """softmax(x x^T) x: masks are needed, and enough."""
    x = Var("x", tensor("float32", N, S, 8))
    b = Builder()
    scores = b.emit(ops.matmul, x, b.emit(ops.transpose, x, axes=(0, 2, 1)))
    return b.function("main", [x], [b.emit(ops.matmul, b.emit(ops.softmax, scores, axis=2), x)])


def test_pad_puts_masks_in(golden: Any) -> None:
    fn = attention()
    mod = dispatch(Module({"main": fn}), by_log(1, 4, 9, axis=1), policy="pad", fallback=True)
    golden.check(show(verify(mod)))
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 4, 7, 8, 9):
        x = rng.standard_normal((2, size, 8)).astype(np.float32)
        (got,), (want,) = evaluate_module(mod, x), run_function(fn, [x])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_pad_a_batch_needs_no_mask() -> None:
    mod = dispatch(Module({"main": attention()}), by_log(1, 4, 9), policy="pad")
    assert [p.name for p in mod.functions["main[N=4..8]"].params] == ["x"]
    assert all(b.op is not mask_tail for b in mod.functions["main[N=4..8]"].body)


def full(b: Builder, extent: Dim) -> Var:
    return b.emit(ops.full, shape=(extent,), value=0, dtype="int64")


def either(b: Builder, x: Var) -> Var:
    any_of = b.emit(ops.cast, b.emit(ops.reduce_max, x, axes=(0, 1, 2)), dtype="bool")
    blocks = [Builder().function("", (), [x])] * 2
    (out,) = b.emit_all(IF, any_of, then=blocks[0], orelse=blocks[1])
    return out


@pytest.mark.parametrize(
    "make",
    [
        lambda b, x: x,
        lambda b, x: b.emit(ops.neg, x),
        lambda b, x: full(b, (S + 1) // 2),
        lambda b, x: full(b, minimum(S, 5)),
        lambda b, x: full(b, N % 3 + 1),
        lambda b, x: full(b, 20 - N + S),
        lambda b, x: full(b, N * S),
        lambda b, x: b.emit(
            ops.broadcast_to, b.emit(ops.reduce_max, x, axes=(0, 1)), shape=(N, S, 8)
        ),
    ],
)
def test_pad_keeps_what_grows_with_it(make: Any) -> None:
    x = Var("x", tensor("float32", N, S, 8))
    b = Builder()
    fn = b.function("main", [x], [make(b, x)])
    mod = dispatch(Module({"main": fn}), by_log(1, 4, 9, axis=1), policy="pad")
    for size in (1, 2, 3, 4, 8, 9):
        args = [np.random.default_rng(0).standard_normal((2, size, 8)).astype(np.float32)]
        (got,), (want,) = evaluate_module(mod, *args), run_function(fn, args)
        np.testing.assert_array_equal(got, want)


def test_pad_asks_what_is_relied_on_of_the_sizes_of_a_bucket() -> None:
    x, b = Var("x", tensor("float32", N, S, 8)), Builder()
    fn = b.function("main", [x], b.emit_all(ops.topk, x, k=2, axis=1))
    mod = dispatch(Module({"main": fn}), by_log(2, 4, 9, axis=1), policy="pad")
    for size in (2, 3, 4, 8, 9):
        args = [np.random.default_rng(0).standard_normal((2, size, 8)).astype(np.float32)]
        for got, want in zip(evaluate_module(mod, *args), run_function(fn, args), strict=True):
            np.testing.assert_array_equal(got, want)
    with pytest.raises(TypeRelError, match="expected 0 <= k <= 1 along axis 1, got 2"):
        evaluate_module(mod, np.ones((2, 1, 8), np.float32))


def test_pad_leaves_open_what_other_symbols_are() -> None:
    x, y = Var("x", tensor("float32", N, S, 8)), Var("y", tensor("float32", M, 1, 8))
    b = Builder()
    fn = b.function("main", [x, y], [b.emit(ops.broadcast_to, y, shape=(N, S, 8))])
    mod = dispatch(Module({"main": fn}), by_log(1, 4, 9, axis=1), policy="pad")
    assert {b.args[0] for b in all_bindings(mod.main) if b.op is ops.pad} == {x}
    args = [np.zeros((2, 3, 8), np.float32), np.ones((1, 1, 8), np.float32)]
    (got,), (want,) = evaluate_module(mod, *args), run_function(fn, args)
    np.testing.assert_array_equal(got, want)


SIX = Const(np.arange(6.0, dtype=np.float32))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b, x: b.emit(ops.concat, x, x, axis=1), "concat leaks"),
        (
            lambda b, x: b.emit(ops.tile, x, repeats=(N, S, 1)),
            r"^padding S to 3: tile computes with a padded extent \(repeats=\(N, S, 1\)\)",
        ),
        (either, "^padding S to 3: if has no padding rule"),
        (lambda b, x: full(b, (21 - S) // 2), r"axis 0, \(-S \+ 21\)//2, need not grow with it"),
        (lambda b, x: full(b, minimum(20 - S, 13)), r"min\(-S \+ 20, 13\), need not grow"),
        (lambda b, x: full(b, S % 3 + 1), r"S % 3 \+ 1, need not grow"),
        (lambda b, x: full(b, 20 // S + 1), r"20//S \+ 1, need not grow"),
        (lambda b, x: b.emit(ops.reshape, x, newshape=(N * S, 8)), "reshape leaks padding: axis 1"),
        (lambda b, x: b.emit(ops.arange, stop=20 - S), "need not grow with it"),
        (lambda b, x: full(b, 20 - S), "need not grow"),
        (lambda b, x: b.emit(ops.reshape, x, newshape=(N, S // 2, 16)), "reshape leaks padding"),
        (lambda b, x: b.emit(ops.reshape, SIX, newshape=(S, 2)), r"reshape: 6 and 2\*S need not"),
        (lambda b, x: b.emit(ops.broadcast_to, SIX, shape=(S, S)), "broadcast_to: 6 and S need"),
        (lambda b, x: full(b, S - 2), "full: S - 2 may be negative at a true size"),
        (lambda b, x: b.emit_all(ops.topk, x, k=2, axis=1)[0], "topk: S - 2 may be negative"),
        (
            lambda b, x: b.emit(ops.max_pool2d, b.emit(ops.unsqueeze, x, axes=(0,)), kernel=(2, 1)),
            "max_pool2d: S - 2 may be negative",
        ),
        (
            lambda b, x: b.emit(
                ops.broadcast_to, b.emit(ops.reduce_max, x, axes=(1, 2)), shape=(S,)
            ),
            r"broadcast_to: N and S need not agree",
        ),
    ],
)
def test_pad_names_the_op_that_leaks(make: Any, message: str) -> None:
    x = Var("x", tensor("float32", N, S, 8))
    b = Builder()
    mod = Module({"main": b.function("main", [x], [make(b, x)])})
    with pytest.raises(PaddingError, match=message):
        dispatch(mod, by_log(1, 4, 9, axis=1), policy="pad")


def test_pad_needs_a_top() -> None:
    x = Var("x", tensor("float32", Symbol("N"), 3))
    b = Builder()
    mod = Module({"main": b.function("main", [x], [b.emit(ops.relu, x)])})
    with pytest.raises(PaddingError, match=r"N=4.. has no top to pad to"):
        dispatch(mod, lambda shapes: {"x": {0: [(1, 4), (4, None)]}}, policy="pad")


def test_errors_of_the_user_are_bucketize_errors() -> None:
    assert issubclass(PaddingError, BucketizeError)


def test_zeros_of_either_sign_are_not_one_kernel() -> None:
    x, out = Var("x", tensor("float32", N, 4)), Builder()
    made = [out.emit(ops.clip, x, lo=zero, hi=5.0) for zero in (0.0, -0.0)]
    exe = bucketize.compile(Module({"main": out.function("main", [x], made)}))
    plus, minus = exe.run(x=np.full((2, 4), -1, np.float32))
    assert not np.signbit(plus).any()
    assert np.signbit(minus).all()
