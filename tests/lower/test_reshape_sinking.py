"""Views of products move behind the elementwise ops that read them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from test_attention import kinds

import bucketize
from bucketize import ops
from bucketize.interpret import evaluate_module
from bucketize.ir import Atom, Builder, Const, Function, Module, Var
from bucketize.lower.pipeline import lower, simplified
from bucketize.lower.reshape import sink_views
from bucketize.types import ANY, Dim, Symbol, tensor
from bucketize.verify import verify

pytestmark = pytest.mark.usefixtures("few_registers")

N, S = Symbol("N"), Symbol("S")
RNG = np.random.default_rng(0)
APART = (N, S, 8)


def const(*shape: int) -> Const:
    return Const(RNG.standard_normal(shape).astype(np.float32))


def product(b: Builder, x: Atom) -> Var:
    """Of rows that lie flat, which then have their axes again; as of GPT-2."""
    flat = b.emit(ops.reshape, x, newshape=(N * S, 8))
    y = b.emit(ops.add, b.emit(ops.matmul, flat, const(8, 8)), const(8))
    return b.emit(ops.reshape, y, newshape=APART)


def function(make: Callable[..., Atom], *types: tuple[Dim, ...]) -> Function:
    params = [Var(f"p{i}", tensor("float32", *t)) for i, t in enumerate((APART, *types))]
    b = Builder()
    return b.function("main", params, [make(b, *params)])


def activated(b: Builder, x: Atom) -> Var:
    y = product(b, x)
    return b.emit(ops.mul, y, b.emit(ops.sigmoid, y))


def chained(b: Builder, x: Atom) -> Var:
    """Residuals of two layers, of which one is no product, with numbers and a bias between."""
    y = b.emit(ops.add, x, product(b, x))
    scaled = b.emit(ops.mul, Const(np.full((1, 1, 1), 2, np.float32)), product(b, y))
    return b.emit(ops.add, b.emit(ops.add, y, scaled), const(1, 1, 8))


def per_head(b: Builder, x: Atom, factor: Atom) -> Var:
    """The last axis is another, and the other argument has the whole shape."""
    flat = b.emit(ops.reshape, x, newshape=(N * S, 8))
    y = b.emit(ops.reshape, b.emit(ops.matmul, flat, const(8, 8)), newshape=(N, S, 2, 4))
    return b.emit(ops.mul, y, factor)


JOINED = {
    "activated": (function(activated), ["reshape", "matmul+add+sigmoid+mul", "reshape"]),
    "chained": (
        function(chained),
        ["reshape", "reshape", "matmul+add+add", "matmul+add+mul+add+add", "reshape"],
    ),
    "per head": (function(per_head, (N, S, 2, 4)), ["reshape", "reshape", "matmul+mul", "reshape"]),
}


@pytest.mark.parametrize("name", JOINED)
def test_what_reads_a_view_joins_the_product(name: str) -> None:
    fn, expected = JOINED[name]
    sunk = simplified(fn)
    verify(Module({"main": sunk}))
    assert sorted(kinds(sunk)) == sorted(expected)
    exe = bucketize.compile(Module({"main": fn}))
    for n, s in ((1, 1), (3, 5)):
        shapes = [p.type.substitute({"N": n, "S": s}).shape for p in fn.params]
        args = [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]  # type: ignore[arg-type]
        (want,) = evaluate_module(Module({"main": fn}), *args)
        (same,) = evaluate_module(Module({"main": sunk}), *args)
        np.testing.assert_array_equal(same, want)
        np.testing.assert_allclose(exe.run(*args)[0], want, atol=1e-5)


def along(b: Builder, x: Atom) -> Var:
    """A convolution along one axis of [N, C, S], with a bias and an activation."""
    image = b.emit(ops.unsqueeze, x, axes=(2,))
    y = b.emit(ops.conv2d, image, const(8, 8, 1, 3), pads=(0, 1, 0, 1))
    y = b.emit(ops.squeeze, y, axes=(2,))
    return b.emit(ops.gelu, b.emit(ops.add, y, const(8, 1)))


def test_convolutions_along_one_axis_stay_in_one_layout() -> None:
    """Two of them one behind the other: nothing is turned between them."""
    x, b = Var("x", tensor("float32", N, 8, S)), Builder()
    fn = b.function("main", [x], [along(b, along(b, x))])
    layer = ["conv2d", "add", "gelu"]
    assert [m.op.name for m in simplified(fn).body] == ["unsqueeze", *layer, *layer, "reshape"]
    made = [m.op.name for m in lower(fn).body if m.op.name != "fused"]
    assert made.count("transpose") == 2
    residual = b.function("main", [x], [b.emit(ops.add, fn.results[0], x)])
    assert [m.op.name for m in simplified(residual).body][-3:] == ["gelu", "reshape", "add"]
    module, exe = Module({"main": fn}), bucketize.compile(Module({"main": fn}))
    for n, s in ((1, 1), (2, 9)):
        image = RNG.standard_normal((n, 8, s)).astype(np.float32)
        (got,), (want,) = exe.run(image), evaluate_module(module, image)
        np.testing.assert_allclose(got, want, atol=2e-5)


def lone(b: Builder, x: Atom) -> Var:
    """Of no product."""
    flat = b.emit(ops.reshape, b.emit(ops.relu, x), newshape=(N * S, 8))
    return b.emit(ops.neg, flat)


def across(b: Builder, x: Atom, other: Atom) -> Var:
    """The other argument repeats along an axis that does not lie apart in what the view is of."""
    return b.emit(ops.mul, product(b, x), other)


def per_head_bias(b: Builder, x: Atom) -> Var:
    """A vector along a last axis that the product does not have."""
    flat = b.emit(ops.reshape, x, newshape=(N * S, 8))
    y = b.emit(ops.reshape, b.emit(ops.matmul, flat, const(8, 8)), newshape=(N, S, 2, 4))
    return b.emit(ops.add, y, const(4))


def widened(b: Builder, x: Atom, other: Atom) -> Var:
    """The view is repeated."""
    return b.emit(ops.add, product(b, x), other)


@pytest.mark.parametrize(
    "fn",
    [
        function(lone),
        function(across, (N, 1, 8)),
        function(across, (S, 1)),
        function(across, (N, ANY, 8)),
        function(per_head_bias),
        function(widened, (3, N, S, 8)),
    ],
)
def test_other_views_stay_where_they_are(fn: Function) -> None:
    assert sink_views(fn) is fn
