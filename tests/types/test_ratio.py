"""Shape arithmetic through floats: followed where no rounding can show, as onnxruntime computes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx_model import agree, draw, parse, run_ort

import bucketize
from bucketize.ir import Builder, Const, Var
from bucketize.onnx import from_onnx
from bucketize.ops import add, cast, ceil, div, floor, gather, mul, neg, shape_of, sub
from bucketize.transform.simplify import simplify
from bucketize.transform.stayed import FLOATS, bounds_that_help, stayed_dynamic
from bucketize.types import ANY, Dim, Ratio, Symbol, evaluate, ratio_of, tensor

STEPS = {"add": add, "sub": sub, "mul": mul, "div": div}
ROUNDINGS = {"floor": (floor,), "ceil": (ceil,), "cut": (), "cut below 0": (neg,)}
EXACT = 1 << 24  # up to here float32 holds all whole numbers

Chain = tuple[tuple[str, float], ...]


def followed(t: Symbol, chain: Chain, rounding: str, dtype: str = "float32") -> Dim:
    """What is known of a size of `t` after a chain of floats."""
    out, x = Builder(), Var("x", tensor("float32", t))
    y = out.emit(gather, out.emit(shape_of, x), Const(np.array(0)), axis=0)
    y = out.emit(cast, y, dtype=dtype)
    for name, number in chain:
        y = out.emit(STEPS[name], y, Const(np.array(number, dtype)))
    for op in ROUNDINGS[rounding]:
        y = out.emit(op, y)
    (value,) = out.emit(cast, y, dtype="int64").type.value or (ANY,)
    return value


def computed(size: int, chain: Chain, rounding: str, dtype: str = "float32") -> int:
    """The same as numpy has it."""
    y = np.array(size).astype(dtype)
    for name, number in chain:
        y = STEPS[name].compute(y, np.array(number, dtype))
    for op in ROUNDINGS[rounding]:
        y = op.compute(y)
    return int(y.astype(np.int64))


numbers = st.one_of(
    st.integers(-9, 9).map(float), st.sampled_from([0.5, 0.25, 1.5, -2.5, 0.1, 1 / 3, 1e9, 320.0])
)
chains = st.lists(st.tuples(st.sampled_from([*STEPS]), numbers), max_size=5).map(tuple)


@given(chains, st.sampled_from([*ROUNDINGS]), st.integers(0, 1 << 25), st.data())
def test_what_is_followed_is_what_floats_make(chain, rounding, hi, data):
    value = followed(Symbol("T", 0, hi), chain, rounding)
    near = st.integers(max(hi - 50, 0), hi) | st.integers(0, min(50, hi)) | st.integers(0, hi)
    for size in data.draw(st.lists(near, max_size=20)):
        if value != ANY:
            assert evaluate(value, {"T": size}) == computed(size, chain, rounding)


@pytest.mark.parametrize("by", [3.0, 5.0, 7.0, 10.0, 320.0])
@pytest.mark.parametrize("rounding", list(ROUNDINGS))
def test_every_size_up_to_the_greatest_that_is_followed(by, rounding):
    """The bound is where it has to be: near it lie the sizes that rounding may spoil."""
    chain, hi = (("div", by), ("add", 1.0)), EXACT
    while (value := followed(Symbol("T", 0, hi), chain, rounding)) == ANY:
        hi -= hi // 64
    assert hi > 1 << 20
    for size in range(hi - 3000, hi + 1):
        assert evaluate(value, {"T": size}) == computed(size, chain, rounding)


@pytest.mark.parametrize(
    ("chain", "rounding", "text"),
    [
        ((), "cut", "T"),
        ((("div", 1.0), ("add", 1.0)), "ceil", "T + 1"),
        ((("div", 2.0), ("add", 1.0)), "ceil", "(T + 3)//2"),
        ((("div", 5.0), ("add", 1.0)), "ceil", "(T + 9)//5"),
        ((("mul", 0.5),), "floor", "T//2"),
        ((("mul", 1.5),), "cut", "(3*T)//2"),
        ((("div", 3.0), ("div", 2.0)), "floor", "T//6"),
    ],
)
def test_what_exporters_write_is_followed(chain, rounding, text):
    assert str(followed(Symbol("T", 1, 32000), chain, rounding)) == text


@pytest.mark.parametrize(
    ("hi", "chain"),
    [
        (None, ()),  # floats of any size are not exact
        (EXACT + 1, ()),
        (EXACT, (("div", 3.0),)),  # two thirds of a step are left out
        (100, (("mul", 0.1),)),  # it is no tenth
        (100, (("div", 0.0),)),
        (100, (("div", math.nan),)),
        (100, (("div", 3.0), ("mul", 3.0))),  # what is whole was not before
        (100, (("div", 3.0), ("add", 0.5))),
    ],
)
def test_what_floats_may_round_is_not_followed(hi, chain):
    assert followed(Symbol("T", 1, hi), chain, "floor") == ANY


def test_float64_holds_more():
    t = Symbol("T", 1, 1 << 40)
    assert followed(t, (("div", 5.0),), "floor", "float64") == t // 5
    assert followed(t, (("div", 5.0),), "floor") == ANY


def test_a_number_of_a_ratio_is_replaced_and_refused():
    t = Symbol("T", 1, 100)
    half = Ratio(t, 2).substitute({"T": 8})
    assert half.constant == Fraction(4)
    assert [ratio_of(v) for v in (math.inf, 1e30, 0.1)] == [None] * 3


PADDED = """(float[B, 4, T] x) => (y)
<float[6, 4, 4] w, float[6, 3, 5] u, int64 three = {3}, int64 four = {4}, int64 one = {1},
 int64[1] first = {0}, int64[2] rest = {0, 0}, int64 axis = {2}, float stride = {2.0},
 float one_f = {1.0}>
{
  shape = Shape(x)
  length = Gather(shape, axis)
  without = Sub(length, four)
  padded = Add(without, three)
  f = Cast<to = 1>(padded)
  q = Div(f, stride)
  frames = Add(q, one_f)
  c = Ceil(frames)
  whole = Cast<to = 7>(c)
  less = Sub(whole, one)
  two = Cast<to = 7>(stride)
  ideal = Mul(less, two)
  ideal_length = Add(ideal, one)
  extra = Sub(ideal_length, length)
  extra_1 = Unsqueeze(extra, first)
  three_1 = Unsqueeze(three, first)
  extra_more = Add(extra_1, three_1)
  pads = Concat<axis = 0>(rest, three_1, rest, extra_more)
  p = Pad<mode = "reflect">(x, pads)
  z = Conv<strides = [2]>(p, w)
  up = ConvTranspose<strides = [3]>(z, u)
  y = Elu(up)
}"""


def padded_model():
    model, rng = parse(PADDED), np.random.default_rng(0)
    for name, shape in {"w": (6, 4, 4), "u": (6, 3, 5)}.items():
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


SIZES = [{"B": 2, "T": t} for t in (5, 6, 7, 12, 33)]


def test_pads_by_floats_leave_nothing_on_the_host():
    model = padded_model()
    module = agree(model, *SIZES, bounds={"T": (4, 1000)})
    exe = bucketize.compile(module)
    assert exe.counts.host == {}
    for sizes in SIZES:
        x = draw(np.random.default_rng(2), module.main.params[0], sizes)
        want = run_ort(model, {"x": x})
        np.testing.assert_allclose(exe.run(x=x)[0], want[0], rtol=1e-4, atol=1e-4)


def test_pads_by_floats_of_any_size_are_computed_at_run_time():
    model = padded_model()
    module = agree(model, *SIZES)
    x = draw(np.random.default_rng(2), module.main.params[0], SIZES[2])
    got, want = bucketize.compile(module).run(x=x), run_ort(model, {"x": x})
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-4)


def test_the_bound_by_which_floats_are_followed_is_named():
    fn = simplify(from_onnx(padded_model()).main)
    assert [s.op for s in stayed_dynamic(fn)] == ["dyn.pad"]
    ((symbol, fewer),) = bounds_that_help(fn)
    assert (symbol.name, symbol.hi, fewer) == ("T", FLOATS, 1)
