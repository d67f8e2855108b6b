"""Modules held to sizes, or to narrower bounds."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx_model import parse
from test_dispatch import module

import bucketize
from bucketize import compile, dispatch, from_onnx, specialise, zoo
from bucketize.errors import BucketizeError, DispatchError, ShapeError, TypeRelError
from bucketize.interpret import evaluate_module
from bucketize.ir import all_bindings
from bucketize.types import ANY, Symbol
from bucketize.verify import verify
from bucketize.zoo import BOUNDS, build
from dispatchers import log_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")


@pytest.mark.parametrize("name", ["mlp", "resnet18", "mobilenetv2", "bert-mini"])
def test_a_static_network_computes_what_the_dynamic_one_does(name: str) -> None:
    mod = from_onnx(build(name), bounds=BOUNDS[name])
    sizes = {s.name: max(s.lo, min(s.hi or 64, 4)) for s in mod.main.symbols().values()}
    held = verify(specialise(mod, **sizes))
    assert not held.main.symbols()
    assert all(o.type.is_static for b in all_bindings(held.main) for o in b.outs)
    assert held.outputs == mod.outputs
    assert [p.name for p in held.main.params] == [p.name for p in mod.main.params]
    arrays = zoo.inputs(name, sizes)
    for one, other in zip(
        evaluate_module(held, **arrays), evaluate_module(mod, **arrays), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    compile(held, executor="graph", lazy=True)


def test_what_follows_from_a_size_is_folded() -> None:
    branches = (
        "<then_branch = t () => (a) { a = Neg(x) }, else_branch = e () => (b) { b = Abs(x) }>"
    )
    text = "(float[N, M] x) => (y, r) <int64 zero = {0}, int64 many = {4}> { s = Shape(x) "
    text += f"n = Gather(s, zero) c = Less(n, many) y = If(c) {branches} r = ConstantOfShape(s) }}"
    mod = from_onnx(parse(text))
    few = verify(specialise(mod, N=3))
    assert [b.op.name for b in few.main.body] == ["neg", "full"]
    assert list(few.main.symbols()) == ["M"]
    x = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(compile(few).run(x)[0], -x)
    np.testing.assert_array_equal(compile(few).run(x)[1], 0 * x)
    assert [b.op.name for b in specialise(mod, N=(4, 9)).main.body] == ["abs", "full"]
    assert [b.op.name for b in specialise(mod, N=(1, 3)).main.body] == ["neg", "full"]
    static = specialise(mod, N=5, M=2).main
    assert [b.op.name for b in static.body] == ["abs"], "the zeros are a constant"


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({}, Symbol("N", 1, 32)),
        ({"N": 3}, 3),
        ({"N": np.int64(3)}, 3),
        ({"N": (3, 3)}, 3),
        ({"N": (2, 8)}, Symbol("N", 2, 8)),
        ({"N": (2, None)}, Symbol("N", 2, 32)),
        ({"N": (32, None)}, 32),
        ({"N": (1, 32)}, Symbol("N", 1, 32)),
    ],
)
def test_sizes_and_bounds(held: dict[str, Any], expected: object) -> None:
    mod = specialise(module(Symbol("N", 1, 32), 3), **held)
    assert mod.main.params[0].type.shape[0] == expected
    assert mod.main.results[0].type.shape[0] == expected


def test_an_axis_without_a_name_goes_by_its_place() -> None:
    mod = specialise(module(ANY, ANY, Symbol("C")), data_1=(2, None))
    assert [str(d) for d in mod.main.params[0].type.shape] == ["data_0", "data_1", "C"]
    assert mod.main.symbols()["data_1"] == Symbol("data_1", 2)
    assert specialise(mod, data_0=0 + 7).main.params[0].type.shape[0] == 7


def test_the_other_symbols_are_dispatched() -> None:
    mod = dispatch(specialise(module(Symbol("N"), Symbol("M", 1, 8)), N=3), log_dispatcher)
    assert list(mod.clones) == ["main[M=1]", "main[M=2..3]", "main[M=4..8]"]
    x = -np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(compile(mod).run(x)[0], np.maximum(x, 0) + 1)
    with pytest.raises(ShapeError, match="input 'data', axis 0: expected 3, got 4"):
        compile(mod).run(np.ones((4, 5), np.float32))


def illegal_at_2() -> bucketize.Module:
    return from_onnx(parse("(float[N] x, float[3] w) => (y) { y = Add(x, w) }"))


@pytest.mark.parametrize(
    ("held", "error", "message"),
    [
        ({"M": 3}, BucketizeError, "no symbol named 'M'; known: H, N"),
        ({"N": 33}, ShapeError, "expected N in [1, 32], got 33"),
        ({"N": 0}, ShapeError, "expected N in [1, 32], got 0"),
        ({"N": 2.0}, ShapeError, "N: expected an integer, got 2.0"),
        ({"N": "3"}, ShapeError, "N: expected an integer, got '3'"),
        ({"N": (2, 33)}, ShapeError, "expected N in [1, 32], got 33"),
        ({"N": (0, 9)}, ShapeError, "expected N in [1, 32], got 0"),
        ({"N": (9, 2)}, ShapeError, "N: expected a size, or bounds (lo, hi), got (9, 2)"),
        ({"N": (9,)}, ShapeError, "N: expected a size, or bounds (lo, hi), got (9,)"),
        ({"N": (1.5, 2)}, ShapeError, "N: expected a size, or bounds (lo, hi), got (1.5, 2)"),
    ],
)
def test_what_no_symbol_can_be_held_to(held: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        specialise(module(Symbol("N", 1, 32), 3, Symbol("H")), **held)


def test_a_size_at_which_the_model_is_not_legal_is_named() -> None:
    with pytest.raises(TypeRelError, match="2 and 3") as caught:
        specialise(illegal_at_2(), N=2)
    assert "with N=2" in caught.value.notes
    assert specialise(illegal_at_2(), N=1).main.results[0].type.shape == (3,)


def test_a_dispatched_module_is_refused() -> None:
    mod = dispatch(module(Symbol("N"), 3), log_dispatcher)
    with pytest.raises(DispatchError, match="main is dispatched; specialise the original"):
        specialise(mod, N=3)
