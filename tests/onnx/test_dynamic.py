"""Operands that only a run knows: what is computed, what becomes static, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_model import agree, parse, run_ort

import bucketize
from bucketize import ops
from bucketize.dispatch.tree import dispatch
from bucketize.errors import BucketizeError, ShapeError
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Const, Function, Module, Var
from bucketize.onnx import from_onnx
from bucketize.program.instruction import Compute, RunSegment, instructions
from bucketize.transform.simplify import simplify
from bucketize.types import ANY, Symbol, tensor
from bucketize.verify import verify

N, M = Symbol("N"), Symbol("M")

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = floats(2, 3, 4)
REDUCE = "(float[N, 3, H] x, int64[K] a) => (float[P, Q, R] y)"

# a graph, and operands that are not the first: sets of them, each by name
Operands = dict[str, Any]
CASES: dict[str, tuple[str, list[Operands]]] = {
    **{
        op: (
            f"{REDUCE} {{ e = Exp(x) y = {op}(e, a) }}",
            [{"a": ints(1)}, {"a": ints(-1, 0)}, {"a": ints(2, 0, 1)}],
        )
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1")
    },
    **{
        f"{op}, less": (
            f"(float[N, 3, H] x, int64[2] a) => (y) {{ e = Exp(x) y = {op}<keepdims = 0>(e, a) }}",
            [{"a": ints(1, 2)}, {"a": ints(-1, 0)}],
        )
        for op in ("ReduceSum", "ReduceL2", "ReduceLogSum", "ReduceSumSquare", "ReduceMean")
    },
    "rank by the output": (
        "(float[N, 3, H] x, int64[K] a) => (float[P] y) { y = ReduceSum<keepdims = 0>(x, a) }",
        [{"a": ints(1, 2)}, {"a": ints(-1, 0)}],
    ),
    "all": (
        "(float[N, 3, H] x, int64[K] a) => (float y) { y = ReduceMax<keepdims = 0>(x, a) }",
        [{"a": ints(1, 2, 0)}],
    ),
    "none is all": (f"{REDUCE} {{ y = ReduceSum(x, a) }}", [{"a": ints()}, {"a": ints(1)}]),
    "none is none": (
        f"{REDUCE} {{ y = ReduceSum<noop_with_empty_axes = 1>(x, a) }}",
        [{"a": ints()}, {"a": ints(1)}],
    ),
    "and on": (
        f"{REDUCE} {{ m = ReduceMean(x, a) y = Sub(x, m) }}",
        [{"a": ints(-1)}, {"a": ints(0, 1)}],
    ),
    "squeeze": (
        "(float[N, 3, H] x, int64[1] o, int64[1] a) => (y) "
        "{ u = ReduceSum(x, o) y = Squeeze(u, a) }",
        [{"o": ints(1), "a": ints(-2)}, {"o": ints(2), "a": ints(2)}],
    ),
    "unsqueeze": (
        "(float[N, 3, H] x, int64[K] a) => (float[P, Q, R, S, T] y) { y = Unsqueeze(x, a) }",
        [{"a": ints(0, -1)}, {"a": ints(3, 1)}],
    ),
    "cumsum": (
        "(float[N, 3, H] x, int64 a) => (y, z) "
        "{ y = CumSum(x, a) z = CumSum<exclusive = 1, reverse = 1>(x, a) }",
        [{"a": np.array(1)}, {"a": np.array(-1)}],
    ),
    "split": (
        "(float[N, 3, H] x, int64[2] s) => (y, z) { y, z = Split<axis = -1>(x, s) }",
        [{"s": ints(1, 3)}, {"s": ints(4, 0)}],
    ),
    "split evenly": (
        "(float[N, 3, H] x, int64[3] r) => (v, w, y, z) { t = Tile(x, r) i = NonZero(t) "
        "v, w = Split<axis = 1, num_outputs = 2>(i) y, z = Split<axis = 2, num_outputs = 2>(t) }",
        [{"r": ints(1, 1, 1)}, {"r": ints(1, 3, 2)}],
    ),
    "slice": (
        "(float[N, 3, H] x, int64[K] b, int64[K] e, int64[K] a, int64[K] s) => (float[P, Q, R] y) "
        "{ y = Slice(x, b, e, a, s) }",
        [
            {"b": ints(1), "e": ints(9), "a": ints(-2), "s": ints(1)},
            {"b": ints(-1, 0), "e": ints(-9, 1), "a": ints(2, 0), "s": ints(-2, 1)},
        ],
    ),
    "slice the first": (
        "(float[N, 3, H] x, int64[K] b, int64[K] e) => (float[P, Q, R] y) { y = Slice(x, b, e) }",
        [{"b": ints(1), "e": ints(9)}, {"b": ints(0, 1, 2), "e": ints(9, -1, 3)}],
    ),
    "pad": (
        "(float[N, 3, H] x, int64[P] p, float v, int64[K] a) => (float[A, B, C] y) "
        "{ y = Pad(x, p, v, a) }",
        [
            {"p": ints(1, 2), "v": np.array(7, np.float32), "a": ints(-1)},
            {"p": ints(1, 0, -1, 2), "v": np.array(-1, np.float32), "a": ints(0, 1)},
        ],
    ),
    "trilu": (
        "(float[N, 3, H] x, int64 k) => (y, z) { y = Trilu(x, k) z = Trilu<upper = 0>(x, k) }",
        [{"k": np.array(1)}, {"k": np.array(-2)}, {"k": np.array(9)}],
    ),
    "topk": (
        "(float[N, 3, H] x, int64[K] k) => (float[A, B, C] y, int64[A, B, C] z) "
        "{ y, z = TopK<axis = 2>(x, k) }",
        [{"k": ints(1)}, {"k": ints(4)}],
    ),
    "expand": (
        "(float[N, 3, H] x, int64[K] s) => (float[A, B, C, D] y) { y = Expand(x, s) }",
        [{"s": ints(2, 1, 3, 1)}, {"s": ints(1, 2, 1, 4)}],
    ),
    "reshape": (
        "(float[N, 3, H] x, int64[K] s) => (float[A, B] y) { y = Reshape(x, s) }",
        [{"s": ints(4, -1)}, {"s": ints(0, 12)}],
    ),
    "tile": (
        "(float[N, 3, H] x, int64[K] r) => (float[A, B, C] y) { y = Tile(x, r) }",
        [{"r": ints(1, 2, 3)}, {"r": ints(2, 0, 1)}],
    ),
    "full": (
        "(float[N, 3, H] x, int64[K] s) => (float[A, B] y) { z = Neg(x) y = ConstantOfShape(s) }",
        [{"s": ints(2, 3)}, {"s": ints(0, 1)}],
    ),
    "gather rows": (
        "(float[N, 3, H] x, int64[M, K] i) => (float[A, B] y) { y = GatherND(x, i) }",
        [{"i": np.array([[0, 1], [1, 2], [-1, 0]])}],
    ),
    "scatter rows": (
        "(float[N, 3, H] x, int64[M, K] i, float[M, H] u) => (y) { y = ScatterND(x, i, u) }",
        [{"i": np.array([[0, 1], [1, 2]]), "u": floats(2, 4)}],
    ),
    "one hot": (
        "(float[N, 3, H] x, int64[A] i, int64[D] d, float[V] v) => (y, z) "
        "{ y = OneHot<axis = 0>(i, d, v) t = Transpose(x) c = Cast<to = 7>(t) "
        "z = OneHot(c, d, v) }",
        [
            {"i": ints(0, 4, -1, 9), "d": ints(5), "v": floats(2)},
            {"i": ints(-2, 1), "d": ints(2), "v": floats(2)},
        ],
    ),
    "one hot of floats": (
        "(float[N, 3, H] x, float d, float[2] v) => (y) { y = OneHot<axis = 1>(x, d, v) }",
        [{"d": np.array(2, np.float32), "v": floats(2)}],
    ),
    "unique": (
        "(float[N, 3, H] x, int64[K] i) => (a, b, c, d, e, f, g, h) "
        "{ a, b, c, d = Unique<sorted = 0>(i) t = Gather<axis = 2>(x, i) "
        "e, f, g, h = Unique<axis = -1>(t) }",
        [{"i": ints(2, 0, 2, 1, 0)}, {"i": ints(3)}],
    ),
    "unique of all": (
        "(float[N, 3, H] x, int64[A, B] i) => (a, b, c, d) { a, b, c, d = Unique(i) }",
        [{"i": np.array([[3, 1], [3, 2]])}],
    ),
    "boxes": (
        "(float[N, 3, H] x, float[N, S, 4] b, float[N, 3, S] s, int64[K] k, float o, float l) => "
        "(u, v, w) { u = NonMaxSuppression(b, s, k, o, l) "
        "v = NonMaxSuppression<center_point_box = 1>(b, s, k, o) w = NonMaxSuppression(b, s) }",
        [
            {
                "b": RNG.uniform(0, 3, (2, 9, 4)).astype(np.float32),
                "s": floats(2, 3, 9),
                "k": ints(k),
                "o": np.array(o, np.float32),
                "l": np.array(least, np.float32),
            }
            for k, o, least in ((2, 0.1, 0.0), (9, 0.5, -1.0), (0, 0.5, 0.0))
        ],
    ),
    "flatten": (
        "(float[N, 3, H] x, int64[3] r) => (y) { t = Slice(x, r, r) y = Flatten<axis = 2>(t) }",
        [{"r": ints(0, 0, 0)}],
    ),
}


@pytest.mark.parametrize(("part", "whole"), [(1, 3), (7, 10), (9, 10)])
def test_a_box_whose_share_is_the_limit_is_kept(part: int, whole: int) -> None:
    """As onnxruntime does, in float32: 0.7 of float64 is above that of float32."""
    inputs = {
        "b": np.array([[[0, 0, 1, part], [0, 0, 1, whole]]], np.float32),
        "s": np.array([[[1, 2]]], np.float32),
        "o": np.array(part / whole, np.float32),
    }
    model = parse(
        "(float[1, N, 4] b, float[1, 1, N] s, float o) => (int64[K, 3] y) <int64 k = {20}>"
        " { y = NonMaxSuppression(b, s, k, o) }"
    )
    (want,) = run_ort(model, inputs)
    (got,) = bucketize.compile(from_onnx(model)).run(**inputs)
    assert len(want) == 2
    np.testing.assert_array_equal(got, want)


def with_constants(model: onnx.ModelProto, operands: Operands) -> onnx.ModelProto:
    """The model with operands as initializers."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    fixed.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), k) for k, v in operands.items()
    )
    del fixed.graph.input[1:]
    return fixed


def dynamic(fn: Function) -> list[str]:
    return [b.op.name for b in fn.body if b.op.static is not None]


def imported(model: onnx.ModelProto) -> Module:
    """The module of a model any of whose extents may be 0."""
    symbols = from_onnx(model).main.symbols()
    module = from_onnx(model, bounds=dict.fromkeys(symbols, (0, None)))
    verify(module)
    return module


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_operands_known_at_run_time(name: str) -> None:
    """Interpreted, compiled, and once they are constants static: as onnxruntime has it."""
    graph, sets = CASES[name]
    model = parse(graph, 18)
    module = imported(model)
    exe = bucketize.compile(module)
    for operands in sets:
        want = run_ort(model, {"x": X, **operands})
        same(evaluate_module(module, x=X, **operands), want)
        same(exe.run(x=X, **operands), want)
        static = simplify(imported(with_constants(model, operands)).main)
        assert not dynamic(static) or "evenly" in name
        same(evaluate_module(Module({"main": static}), X), want)


@pytest.mark.parametrize(
    "name", ["and on", "slice", "split", "trilu", "unique", "rank by the output"]
)
def test_dispatched_modules_take_them_too(name: str) -> None:
    graph, sets = CASES[name]
    model = parse(graph, 18)
    module = from_onnx(model, bounds=dict.fromkeys(from_onnx(model).main.symbols(), (0, 9)))
    exe = bucketize.compile(
        dispatch(module, lambda _: {"x": {0: [(0, 2), (2, 4), (4, 10)]}}), lazy=True
    )
    for operands in sets:
        for count in (2, 1):
            inputs = {"x": X[:count], **operands}
            same(exe.run(**inputs), run_ort(model, inputs))


def same(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


WRONG = {
    "ReduceSum": ({"a": ints(3)}, "axis 3 is out of range for rank 3"),
    "ReduceMean": ({"a": ints(1, -2)}, r"axes \(1, 1\) name one of them twice"),
    "rank by the output": ({"a": ints(1)}, "input 'a', axis 0: expected 2, got 1"),
    "cumsum": ({"a": np.array(3)}, "(axis|index) 3 is out of range for (rank|extent) 3"),
    "split": (
        {"s": ints(1, 2)},
        r"axis 2 of \[2, 3, 4\] in parts of \[1, 2\]|parts that do not add up to axis 2 of",
    ),
    "squeeze": ({"o": ints(1), "a": ints(0)}, "extents differ: 2 and 1"),
    "slice": ({k: ints(0) for k in "beas"}, "a step of 0 from 0 to 0"),
    "boxes": ({**CASES["boxes"][1][0], "k": ints(1, 2)}, "input 'k', axis 0: expected 1, got 2"),
    "topk": (
        {"k": ints(5)},
        "expected 0 <= k <= 4 along axis 2, got 5|in topk: index 4 is out of range for extent 4",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_operands_that_are_wrong_are_named_when_they_come(name: str) -> None:
    module = imported(parse(CASES[name][0], 18))
    operands, reason = WRONG[name]
    for run in (
        lambda: evaluate_module(module, x=X, **operands),
        lambda: bucketize.compile(module).run(x=X, **operands),
    ):
        with pytest.raises(BucketizeError, match=reason):
            run()


# --- without ONNX --------------------------------------------------------------------------------


def both(params: list[Var], b: Builder, *results: Var) -> Any:
    """Interpreted and compiled: a call that gives the results if they are the same."""
    module = Module({"main": b.function("main", params, results)})
    verify(module)
    exe = bucketize.compile(module)

    def run(*args: np.ndarray) -> list[np.ndarray]:
        got = exe.run(*args)
        same(got, evaluate_module(module, *args))
        return got

    return run


def test_a_slice_whose_bounds_come_at_run_time() -> None:
    x, b = Var("x", tensor("float32", N, 8)), Builder()
    begin, end = Var("begin", tensor("int64", 2)), Var("end", tensor("int64", 2))
    operands = (begin, end, Const(ints(1, 2)), Const(ints(0, 1)))
    part = b.emit(ops.dyn_strided_slice, x, *operands)
    run = both([x, begin, end], b, b.emit(ops.neg, part))
    a = floats(5, 8)
    np.testing.assert_array_equal(run(a, ints(1, 0), ints(-1, 7))[0], -a[1:-1, 0:7:2])
    np.testing.assert_array_equal(run(a, ints(4, -3), ints(2, 99))[0], -a[4:2, -3::2])


# --- extents that are named on the way -----------------------------------------------------------

NAMED = """(float[N, M] x, int64[1] most) => (y, z, best, at, n, rank) {
  i = NonZero(x)
  s = Shape(i)
  n = Gather(s, one)
  wide = Concat<axis = 0>(n, s)
  y = Expand(half, wide)
  long = Mul(n, two)
  flat = Reshape<allowzero = 1>(i, long)
  few = Slice(flat, zero, n)
  z = Add(few, n)
  column = Cast<to = 1>(flat)
  best, at = TopK(column, most)
  rank = Gather(s, zero)
}"""


def test_what_follows_from_an_extent_that_a_run_named_is_static() -> None:
    """Nothing is computed on the host: how many there are is read, and then a dim."""
    model = parse(NAMED)
    numbers = {"zero": 0, "one": 1, "two": 2}
    for name, value in numbers.items():
        model.graph.initializer.append(numpy_helper.from_array(ints(value), name))
    model.graph.initializer.append(numpy_helper.from_array(np.full(1, 0.5, np.float32), "half"))
    module = imported(model)
    exe = bucketize.compile(module)
    code = exe.routines["main"].code
    host = [i.binding.op.name for i in instructions(code) if isinstance(i, Compute)]
    assert host == []
    segments = [i.segment for i in instructions(code) if isinstance(i, RunSegment)]
    kept = {b.op.name for s in segments for b in s.fn.body}
    assert not kept & {"shape_of", "gather", "concat", "mul", "nonzero"}, (
        "nothing reads them any more"
    )
    for x in (floats(3, 4), np.zeros((3, 4), np.float32), np.eye(5, dtype=np.float32)):
        inputs = {"x": x, "most": ints(min(2, np.count_nonzero(x)))}
        want = run_ort(model, inputs)
        same(evaluate_module(module, **inputs), want)
        same(exe.run(**inputs), want)


PARTLY = {
    "reshape": ("Reshape(x, t)", "int64[1] s", "n = Shape<end = 1>(x) t = Concat<axis = 0>(n, s)"),
    "sum": ("Reshape(x, t)", "int64[2] s", "n = Shape(x) t = Add(n, s)"),
    "pads": ("Pad(x, t)", "int64[1] s", "t = Concat<axis = 0>(zero, s, zero, s)"),
}


@pytest.mark.parametrize("name", PARTLY)
def test_sizes_of_which_some_are_known_tell_these(name: str) -> None:
    last, given, nodes = PARTLY[name]
    graph = f"(float[N, 4] x, {given}) => (y) <int64[1] zero = {{0}}> {{ {nodes} y = {last} }}"
    kept = {"reshape": [4], "sum": [0, 0], "pads": [2]}[name]
    module = agree(parse(graph), {"N": 3}, {"N": 1}, s=np.array(kept))
    first, second = module.main.results[0].type.shape
    assert second == ANY
    assert (first == ANY) == (name == "sum")  # nothing of it is known


def test_a_size_that_is_only_divided_by_is_checked_where_that_is_computed() -> None:
    """No shape of that segment has it: it comes from the count of another one."""
    graph = """
        (float[N] x, float[M] y) => (int64[K] z)
        <int64 one = {1}, int64 lot = {1000}, int64[1] flat = {-1}> {
            a = NonZero(x) s = Shape(a) d = Gather<axis = 0>(s, one) f = Cast<to = 1>(d)
            scaled = Mul(y, f) b = NonZero(scaled) c = Reshape(b, flat)
            e = Mul(d, lot) square = Mul(d, d) q = Div(e, square) z = Mul(c, q)
        }"""
    exe = bucketize.compile(from_onnx(parse(graph)))
    x, y = np.array([1, 0, 2], "f4"), np.array([1, 1, 0, 1], "f4")
    assert exe.run(x, y)[0].tolist() == [0, 500, 1500]
    with pytest.raises(ShapeError, match="must be at least 1, got 0"):
        exe.run(np.zeros(2, "f4"), y)
