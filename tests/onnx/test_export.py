"""Modules as ONNX models: valid, run by onnxruntime with our results, and read back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import test_fuzz
import test_fuzz_onnx
from agreement import agree
from onnx import checker, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeContextError
from onnx_model import ort_session, parse
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, NotImplemented
from test_zoo import SMALL

import bucketize
from bucketize import ops, zoo
from bucketize.errors import (
    DispatchError,
    ExportError,
    NoBucketError,
    PaddingError,
    ShapeError,
    TypeRelError,
    UnsupportedModelError,
)
from bucketize.interpret import evaluate_module
from bucketize.ir import CALL, FUSED, IF, STRUCTURAL, Builder, Const, Function, Module, Var
from bucketize.onnx.export.module import MAX_DEPTH, _Export
from bucketize.onnx.export.rule import RULES
from bucketize.onnx.export.scope import OPSET
from bucketize.op import Op, all_ops
from bucketize.ops.sample import Sample, samples
from bucketize.transform.simplify import simplify
from bucketize.types import (
    ANY,
    Dim,
    Profile,
    Symbol,
    TensorType,
    broadcast,
    maximum,
    minimum,
    tensor,
)
from dispatchers import log_dispatcher, profiles

Arrays = dict[str, np.ndarray]
N = Symbol("N", 1)


def exported(mod: Module) -> onnx.ModelProto:
    """The model of a module, which every checker takes; onnx's takes no results without ranks."""
    model = bucketize.to_onnx(mod)
    if all(r.type.is_tensor for r in mod.main.results):
        checker.check_model(model, full_check=True)
    return model


def named(mod: Module, arrays: Sequence[np.ndarray]) -> Arrays:
    return {p.name: a for p, a in zip(mod.main.params, arrays, strict=True)}


def runner(model: onnx.ModelProto) -> Callable[[Arrays], list[np.ndarray]]:
    """In onnxruntime; where it has no kernel for a dtype, in the evaluator of the onnx package."""
    try:
        session = ort_session(model)
    except NotImplemented:
        evaluator = ReferenceEvaluator(model)
        return lambda inputs: [np.asarray(a) for a in evaluator.run(None, inputs)]
    return lambda inputs: session.run(None, {n: np.asarray(a) for n, a in inputs.items()})


def used(mod: Module, inputs: Arrays) -> Arrays:
    return {p.name: inputs[p.name] for p in mod.main.params}


Emit = Callable[..., Any]
N4 = Symbol("N", 1, 4)


def module(emit: Emit, dtype: str, *shape: Any) -> Module:
    """What `emit` makes of one parameter, x."""
    x, out = Var("x", tensor(dtype, *shape)), Builder()
    return Module({"main": out.function("main", [x], [emit(out, x)])})


# --- rules ---------------------------------------------------------------------------------------

TABLE = [op for op in all_ops().values() if op not in STRUCTURAL and op.relation is None]
LATER = [ops.bitcast, ops.cumprod, ops.dyn_cumprod]  # operators of newer opsets than exports have
KNOWN_ALONE = ("weights=", "half_pixel_symmetric", "asymmetric")
"""What samples have that leave with constants alone: rounded weights, scales. See below."""

SATURATING = [ops.matmul_integer, ops.conv2d_integer]
"""Where a processor adds no products of bytes to 32 bits, onnxruntime adds pairs of them to 16, and
saturates: factors are of seven bits, whose pairs fit."""


def test_every_op_has_a_rule() -> None:
    assert [n for n, op in all_ops().items() if op not in (*STRUCTURAL, *RULES)] == []


def single(sample: Sample) -> Module:
    """A module of one binding; the extents that it computes with are those of further inputs."""
    names: dict[str, Any] = dict(sample.symbols())
    params = [Var(f"x{i}", TensorType(a.dtype, a.shape(names))) for i, a in enumerate(sample.args)]
    extents = [Var(f"of{n}", tensor("bool", s)) for n, s in names.items()]
    out = Builder()
    made = out.emit_all(sample.op, *params, **sample.attrs(names))
    return Module({"main": out.function("main", [*params, *extents], made)})


@pytest.mark.parametrize("op", [o for o in TABLE if o not in LATER], ids=lambda op: op.name)
def test_every_rule_says_what_its_op_does(op: Op) -> None:
    for sample in samples(op):
        if any(mark in sample.attributes for mark in KNOWN_ALONE):
            continue
        mod = single(sample)
        model = exported(mod)
        run, back = runner(model), bucketize.from_onnx(model)
        for seed in range(3):
            rng = np.random.default_rng(seed)
            sizes = {n: int(rng.integers(1, 6)) for n in sample.names}
            drawn = sample.draw(rng, sizes)
            if op in SATURATING:
                drawn = [a // 2 if a.dtype.itemsize == 1 else a for a in drawn]
            inputs = [*drawn, *(np.zeros(sizes[n], bool) for n in sample.names)]
            want = evaluate_module(mod, *inputs)
            agree(evaluate_module(back, **used(back, named(mod, inputs))), want, 1e-6)
            try:
                got = run(named(mod, inputs))
            except Fail as e:
                if not re.search(REFUSED, str(e)):
                    raise
                continue
            agree(got, want, 1e-4)


@pytest.mark.parametrize("op", LATER, ids=lambda op: op.name)
def test_what_came_after_the_opset_of_exports_is_refused(op: Op) -> None:
    with pytest.raises(ExportError, match=f"{op.name}: ONNX .* from opset 26 on"):
        exported(single(samples(op)[0]))


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_weights_leave_as_the_numbers_that_their_format_holds(weights: str) -> None:
    """Once, for all clones."""
    known = Const(np.random.default_rng(0).standard_normal((16, 8)).astype("f4"))
    mod = module(lambda out, x: out.emit(ops.matmul, x, known, weights=weights), "float32", N4, 16)
    model = exported(bucketize.dispatch(mod, log_dispatcher))
    assert len([t for t in model.graph.initializer if t.dims == [16, 8]]) == 1
    x = np.ones((3, 16), "f4")
    agree(runner(model)({"x": x}), evaluate_module(mod, x), 1e-6)


NONE: dict[str, tuple[int, ...]] = {"begin": (), "end": (), "strides": (), "axes": ()}


@pytest.mark.parametrize(
    ("emit", "size"),
    [
        (lambda out, x: out.emit(ops.squeeze, x, axes=()), 3),
        (lambda out, x: out.emit(ops.unsqueeze, x, axes=()), 3),
        (lambda out, x: out.emit(ops.reduce_sum, x, axes=()), 3),
        (lambda out, x: out.emit(ops.strided_slice, x, **NONE), 3),
        (lambda out, x: out.emit(ops.dims_within, dims=(N,), box=((0, None),)), 3),
        (lambda out, x: out.emit(ops.reshape, x, newshape=(5, 0)), 0),
        (lambda out, x: out.emit(ops.reshape, x, newshape=(5, N)), 0),
    ],
)
def test_none_is_not_all_and_zero_is_an_extent(emit: Emit, size: int) -> None:
    mod = module(emit, "float32", replace(N, lo=0), 2)
    x = np.ones((size, 2), "f4")
    agree(runner(exported(mod))({"x": x}), evaluate_module(mod, x), 0)


@pytest.mark.parametrize(
    "dim",
    [
        *(2 * N - 5, (N - 7) // 2 + 9, (N + 1) // 2, (N - 9) % 4, (3 * N) % 4, N * N * N),
        *(maximum(N, 4) * minimum(N, 3), broadcast(N, Symbol("M"))),
    ],
    ids=str,
)
def test_dims_are_computed_as_they_are_written(dim: Dim) -> None:
    x, y = (Var(n.lower(), tensor("bool", Symbol(n))) for n in "NM")
    out = Builder()
    made = [out.emit(ops.from_dims, dims=(dim, 3, 4, dim)), out.emit(ops.from_dims, dims=())]
    mod = Module({"main": out.function("main", [x, y], made)})
    run = runner(exported(mod))
    for n in range(1, 12):
        arrays = [np.zeros(n, bool), np.zeros(5 if n == 1 else 1, bool)]
        agree(run(named(mod, arrays)), evaluate_module(mod, *arrays), 0)


def test_thresholds_of_boxes_that_are_left_out_are_floats() -> None:
    inputs = "(float[1, B, 4] b, float[1, 1, B] s, int64 k)"
    model = parse(f"{inputs} => (y) {{ y = NonMaxSuppression(b, s, k) }}")
    made = bucketize.to_onnx(bucketize.from_onnx(model))
    checker.check_model(made, full_check=True)


# --- what cannot be said -------------------------------------------------------------------------


def test_what_onnx_has_no_form_for_is_listed_at_once() -> None:
    x, b = Var("x", tensor("float32", N, 3, 4, 4)), Var("b", tensor("bool", ANY))
    y = Var("y", tensor("float32", 4, 4))
    out = Builder(origin=("first",))
    out.emit(ops.add, b, b)
    out.origin = ("second",)
    out.emit(ops.add, b, b)
    out.origin = ()
    out.emit(ops.pad, y, pads=((1, 1), (0, 0)), mode="symmetric")
    out.emit(ops.avg_pool2d, x, kernel=(2, 2), pads=(N, 0, 0, 0))
    out.emit(ops.matmul, y, y, weights="int8")
    out.emit(ops.full, shape=(Symbol("K"),), value=0, dtype="int64")
    last = out.emit(ops.from_dims, dims=(ANY,))
    mod = Module({"main": out.function("main", [x, b, y], [last])})
    with pytest.raises(ExportError) as caught:
        bucketize.to_onnx(mod)
    assert str(caught.value).splitlines() == [
        "the module cannot be exported:",
        "  add: ONNX Add takes no bool there (first, second)",
        "  pad: ONNX Pad has no mode symmetric (in main)",
        "  avg_pool2d: the pads (N, 0, 0, 0) depend on sizes (in main)",
        "  matmul: weights of int8 are known only at run time (in main)",
        "  full: no parameter has the extent K, by which it computes (in main)",
        "  from_dims: it computes with an extent that nothing is known of (in main)",
    ]


def test_an_operator_without_a_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RULES, ops.tanh)
    with pytest.raises(ExportError, match=r"tanh: no rule for this operator \(in main\)"):
        bucketize.to_onnx(module(lambda out, x: out.emit(ops.tanh, x), "float32", N))


def test_a_function_that_calls_itself_is_refused() -> None:
    x = Var("x", tensor("float32", N))
    out = Builder()
    call = out.emit(CALL, x, callee="f", types=(x.type,))
    mod = Module({name: out.function(name, [x], [call]) for name in ("main", "f")})
    with pytest.raises(ExportError, match="f calls itself, which a function of an ONNX model"):
        bucketize.to_onnx(mod)


def chain(count: int) -> Module:
    boxes = [Profile({"x": (i,)}, {"x": (i,)}, {"x": (i,)}) for i in range(1, count + 1)]
    mod = module(lambda out, x: out.emit(ops.neg, x), "float32", N)
    return bucketize.dispatch(mod, profiles(*boxes))


def test_a_file_holds_only_so_deep_a_nest() -> None:
    model = exported(chain(MAX_DEPTH - 1))
    x = np.ones(MAX_DEPTH - 1, "f4")
    (y,) = runner(model)({"x": x})
    np.testing.assert_array_equal(y, -x)
    with pytest.raises(ExportError, match="decisions nest more than 30 deep"):
        bucketize.to_onnx(chain(MAX_DEPTH + 1))


# --- structure -----------------------------------------------------------------------------------


def two_buckets(policy: str = "exact", *, fallback: bool = True, hi: int | None = 4) -> Module:
    known = Const(np.arange(96, dtype="f4").reshape(3, 32) / 96)

    def emit(out: Builder, x: Var) -> Var:
        return out.emit(ops.relu, out.emit(ops.matmul, x, known))

    mod = module(emit, "float32", Symbol("N", 1, hi), 3)
    cut_up = {"x": {0: [(1, 2), (2, 5)]}}
    return bucketize.dispatch(mod, lambda _: cut_up, policy=policy, fallback=fallback)


def text(model: onnx.ModelProto) -> str:
    """As the onnx package prints it; of large constants no elements."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.producer_version = ""
    for tensor_ in copy.graph.initializer:
        if math.prod(tensor_.dims) > 8:
            array = numpy_helper.to_array(tensor_)
            tensor_.CopyFrom(numpy_helper.from_array(array[:0], tensor_.name))
    return onnx.printer.to_text(copy) + "\n"


@pytest.mark.parametrize("policy", ["exact", "pad"])
def test_two_buckets(policy: str, golden: Any) -> None:
    golden.check(text(exported(two_buckets(policy))))


@pytest.mark.parametrize("policy", ["exact", "pad"])
@pytest.mark.parametrize("fallback", [True, False])
def test_every_bucket_and_its_edges(policy: str, fallback: bool) -> None:
    mod = two_buckets(policy, fallback=fallback, hi=7)
    model = exported(mod)
    run, back = runner(model), bucketize.from_onnx(model)
    assert back.main.symbols()["N"] == Symbol("N", 1, 7)
    for size in range(9):
        x = np.random.default_rng(size).standard_normal((size, 3)).astype("f4")
        legal = 1 <= size <= (7 if fallback else 4)
        if legal:
            want = evaluate_module(mod, x)
            agree(run({"x": x}), want, 1e-6)
            agree(evaluate_module(back, x), want, 1e-6)
            continue
        with pytest.raises(Exception, match="no bucket covers N; buckets: N=1"):
            run({"x": x})
        with pytest.raises(ShapeError, match=r"expected N in \[1, 7\]|in gather: "):
            evaluate_module(back, x)
        with pytest.raises((NoBucketError, ShapeError)):
            evaluate_module(mod, x)


def test_a_clone_is_a_function_and_weights_are_there_once() -> None:
    mod = two_buckets(hi=9)
    model = exported(mod)
    assert [f.name for f in model.functions] == ["main_N_1", "main_N_2_4", "main_fallback"]
    assert [f.doc_string for f in model.functions] == list(mod.functions)[1:]
    assert all(len(f.input) == 2 for f in model.functions)  # x, and the weights
    assert len([t for t in model.graph.initializer if t.dims == [3, 32]]) == 1
    assert model.opset_import[0].version == OPSET


def test_the_bounds_of_every_dynamic_extent_return() -> None:
    x = Var(
        "x", tensor("float32", Symbol("N", 0, 9), ANY, 2 * Symbol("N", 0, 9), N4.__class__("M"))
    )
    out = Builder()
    mod = Module({"main": out.function("main", [x], [x])}, names=["x"])
    model = exported(mod)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param for d in dims] == ["N", "", "2*N", "M"]
    symbols = bucketize.from_onnx(model, bounds={"M": (2, 3)}).main.symbols().values()
    assert [(s.name, s.lo, s.hi) for s in symbols] == [
        *(("N", 0, 9), ("x_1", 0, None), ("_2_N", 0, 18), ("M", 2, 3))
    ]


@pytest.mark.parametrize("stored", ["{", "[1]", '{"N": 3}', "[" * 100_000])
def test_bounds_in_the_metadata_that_are_none(stored: str) -> None:
    model = exported(two_buckets())
    model.metadata_props[0].value = stored
    with pytest.raises(UnsupportedModelError, match=r"the metadata bucketize\.bounds are none: "):
        bucketize.from_onnx(model)


def test_bounds_in_the_metadata_that_come_twice() -> None:
    model = exported(two_buckets())
    model.metadata_props.append(model.metadata_props[0])
    with pytest.raises(UnsupportedModelError, match=r"bounds are none: '\{.*\}' and '\{.*\}'"):
        bucketize.from_onnx(model)


def test_results_have_their_names_whatever_they_are() -> None:
    x = Var("x", tensor("float32", N))
    out, known = Builder(), Const(np.arange(3.0))
    y = out.emit(ops.neg, x)
    mod = Module(
        {"main": out.function("main", [x], [y, y, x, x, known])},
        names=["Neg_0", "b", "x", "c", "constant_1"],
    )
    model = exported(mod)
    assert [o.name for o in model.graph.output] == ["Neg_0", "b", "x", "c", "constant_1"]
    array = np.ones(2, "f4")
    agree(runner(model)({"x": array}), evaluate_module(mod, array), 0)
    assert bucketize.from_onnx(model).outputs == mod.outputs


@pytest.mark.parametrize("names", [["x", "y"], ["y", "y"]])
def test_results_named_like_others_are_refused(names: list[str]) -> None:
    x, out = Var("x", tensor("float32", N)), Builder()
    made = [out.emit(ops.neg, x), out.emit(ops.exp, x)]
    with pytest.raises(ExportError, match=r"two values are named '[xy]', one of them a result"):
        bucketize.to_onnx(Module({"main": out.function("main", [x], made)}, names=names))


def test_nodes_are_named_after_those_of_the_model() -> None:
    graph = "(float[N] x) => (y) { a = Exp(x) b = Sin(a) y = Mean(a, b, x) }"
    named_nodes = parse(graph)
    for i, node in enumerate(named_nodes.graph.node):
        node.name = f"/layer/{i}"
    names = [n.name for n in exported(bucketize.from_onnx(named_nodes)).graph.node if n.name]
    assert names == ["/layer/0", "/layer/1", "/layer/2", "/layer/2 (2)", "/layer/2 (3)"]


def test_functions_call_functions_and_hand_constants_on() -> None:
    """Large ones: small ones are nodes of the function."""
    x, t = Var("x", tensor("float32", N, 2)), tensor("float32", ANY, 2)
    large, small = (Const(np.arange(n, dtype="f4").reshape(n, 1)) for n in (80, 1))

    def function(name: str, emit: Callable[[Builder], Any]) -> Function:
        out = Builder()
        return out.function(name, [x], [emit(out)])

    def branch(out: Builder, test: Any) -> Any:
        halves = [function("", lambda o, c=c: o.emit(ops.concat, x, c, axis=0)) for c in test]
        blocks = [Function("", (), h.body, h.results) for h in halves]
        condition = out.emit(ops.dim_less, dim=N, than=2)
        return out.emit(IF, condition, then=blocks[0], orelse=blocks[1])

    wide = [Const(np.repeat(c.value, 2, 1)) for c in (large, small)]
    inner = function("g", lambda out: branch(out, wide))
    outer = function("f", lambda out: out.emit(CALL, x, callee="g", types=(t,)))
    mod = Module(
        {
            "main": function("main", lambda out: out.emit(CALL, x, callee="f", types=(t,))),
            "f": outer,
            "g": inner,
        }
    )
    model = exported(mod)
    assert [(f.name, len(f.input)) for f in model.functions] == [("g", 2), ("f", 2)]
    back = bucketize.from_onnx(model)
    for size in (1, 2, 5):
        array = np.ones((size, 2), "f4")
        want = evaluate_module(mod, array)
        agree(runner(model)({"x": array}), want, 0)
        agree(evaluate_module(back, array), want, 0)


def test_functions_of_like_names_stay_apart() -> None:
    t, out = tensor("float32", N), Builder()
    x = Var("x", t)
    functions = {}
    for name, op in (("f[1]", ops.neg), ("f_1", ops.exp)):
        inner = Builder()
        functions[name] = inner.function(name, [x], [inner.emit(op, x)])
    made = [out.emit(CALL, x, callee=name, types=(t,)) for name in functions]
    model = exported(Module({"main": out.function("main", [x], made), **functions}))
    assert [f.name for f in model.functions] == ["f_1", "f_1_"]
    agree(
        runner(model)({"x": np.ones(1, "f4")}), [-np.ones(1, "f4"), np.exp(np.ones(1, "f4"))], 1e-6
    )


def test_a_group_leaves_as_its_ops() -> None:
    def emit(out: Builder, x: Var) -> Var:
        p, inner = Var("p", x.type), Builder()
        body = inner.function("", [p], [inner.emit(ops.relu, inner.emit(ops.add, p, p))])
        return out.emit(FUSED, out.emit(FUSED, x, body=body), body=body)

    mod = module(emit, "float32", N)
    model = exported(mod)
    assert [n.op_type for n in model.graph.node] == ["Add", "Relu", "Add", "Relu", "Identity"]
    x = np.array([-1, 2], "f4")
    agree(runner(model)({"x": x}), evaluate_module(mod, x), 0)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_loops_leave_and_return(rounds: int) -> None:
    """What they carry changes its extent, rows are stacked, a condition ends them."""
    graph = """(float[N] x, int64 n) => (y, rows) <bool yes = {1}> {
        y, rows = Loop <body = b (int64 i, bool go, float[K] c) => (more, float[L] d, float r) {
            d = Concat <axis = 0> (c, x)
            r = ReduceSum <keepdims = 0> (d)
            two = Constant <value = int64 {2}> ()
            more = Less (i, two)
        }> (n, yes, x)
    }"""
    mod = bucketize.from_onnx(parse(graph, 21))
    model = exported(mod)
    back = bucketize.from_onnx(model)
    inputs = {"x": np.arange(4, dtype="f4"), "n": np.array(rounds)}
    want = evaluate_module(mod, **inputs)
    agree(runner(model)(inputs), want, 0)
    agree(evaluate_module(back, **inputs), want, 0)


def test_what_is_illegal_fails_where_it_is_reached() -> None:
    """A window of 3 over 1 or 2: that clone cannot be, and the others can."""
    x, out = Var("x", tensor("float32", 1, 1, Symbol("H", 1, 8), 3)), Builder()
    y = out.emit(ops.max_pool2d, x, kernel=(3, 3))
    mod = Module({"main": out.function("main", [x], [y, out.emit(ops.shape_of, y)])})
    listed = bucketize.dispatch(mod, lambda _: [{"H": (1, 3)}, {"H": (3, 9)}])
    array = np.random.default_rng(0).standard_normal((1, 1, 8, 3)).astype("f4")
    cases = (
        (listed, "Calculated output dimension is negative"),
        (bucketize.dispatch(mod, log_dispatcher), "no size of H=1"),
    )
    for dispatched, why in cases:
        run = runner(exported(dispatched))
        agree(run({"x": array[:, :, :4]}), evaluate_module(dispatched, array[:, :, :4]), 0)
        with pytest.raises(Exception, match=why):
            run({"x": array[:, :, :1]})


@pytest.mark.parametrize("shape", [(), (2,), (1, 3), (4, ANY), (0, 2)], ids=str)
def test_a_refusal_has_the_type_of_what_is_refused(shape: tuple[Any, ...]) -> None:
    n = Symbol("N", 1, 4)
    x = Var("x", tensor("bool", n))
    known = tuple(n if d is ANY else d for d in shape)
    out = Builder()
    made = out.emit(ops.full, shape=known, value=1, dtype="float16")
    mod = Module({"main": out.function("main", [x], [made])})
    cut_up = {"x": {0: [(1, 2), (2, 4)]}}
    mod = bucketize.dispatch(mod, lambda _: cut_up, fallback=False)
    run = runner(exported(mod))
    (got,) = run({"x": np.zeros(3, bool)})
    agree([got], evaluate_module(mod, np.zeros(3, bool)), 0)
    with pytest.raises(Exception, match=r"no bucket covers N; buckets: N=1, 2\.\.3"):
        run({"x": np.zeros(4, bool)})


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "uint4", "float16"])
def test_a_refusal_of_any_dtype_and_size(dtype: str) -> None:
    """Not even as an array of no element is what is refused made."""
    n = Symbol("N", 1, 4)
    x, out = Var("x", tensor("float32", n)), Builder()
    large = out.emit(ops.full, shape=(2, 2**62, n), value=1, dtype="float32")
    made = out.emit(ops.cast, large, dtype=dtype)
    mod = Module({"main": out.function("main", [x], [made])})
    mod = bucketize.dispatch(mod, lambda _: {"x": {0: [(1, 2), (2, 4)]}}, fallback=False)
    text = onnx.printer.to_text(bucketize.to_onnx(mod))
    assert "no bucket covers" in text


# --- whole models --------------------------------------------------------------------------------

ONE_AXIS = {"mlp": "N", "mobilenetv2": "N", "resnet18": "N", "bert-mini": "S"}


@pytest.mark.parametrize(
    ("name", "policy"),
    [*((name, "exact") for name in ONE_AXIS), ("mlp", "pad"), ("resnet18", "pad")],
)
def test_models_of_the_zoo(name: str, policy: str) -> None:
    """Beside the original in onnxruntime, at the least and the greatest size of each bucket."""
    symbol, original = ONE_AXIS[name], zoo.build(name)
    top = SMALL[name][1][symbol]
    sizes = {"exact": [1, 2, 3, top], "pad": [2, 3]}[policy]
    buckets = [(1, 2), (2, 4)]
    mod = bucketize.from_onnx(original, bounds={symbol: (1, max(sizes))})
    (axis,) = {
        (p.name, at)
        for p in mod.main.params[:1]
        for at, d in enumerate(p.type.shape)
        if str(d) == symbol
    }
    mod = bucketize.dispatch(mod, lambda _: {axis[0]: {axis[1]: buckets}}, policy=policy)
    model = exported(mod)
    first, second = runner(original), runner(model)
    back = bucketize.from_onnx(model)
    for size in sizes:
        inputs = zoo.inputs(name, {**SMALL[name][0], symbol: size})
        want = first(inputs)
        agree(second(inputs), want, 1e-4)
    if name in ("mlp", "bert-mini"):
        agree(evaluate_module(back, **inputs), want, 1e-4)


# --- random graphs -------------------------------------------------------------------------------

SHARE = 30  # of the graphs, in every run of the tests
REFUSED = (
    "must be at least 1, got 0|Pad reflect|pool_attributes|out of data bounds|smaller than the di"
)
"""What onnxruntime does not take, though it is legal: extents of 0, and far reflections."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--graphs") or SHARE))


def behind(mod: Module, graph: Any) -> Iterator[Module]:
    """The module as it is, and dispatched in both ways by the sizes of its first parameter."""
    yield mod
    dispatcher, first = graph.rng.choice(test_fuzz.DISPATCHERS), mod.main.params[0].name

    def cut_up(shapes: Any) -> Any:
        return dispatcher({first: shapes[first]})

    for policy in ("exact", "pad"):
        with suppress(PaddingError, DispatchError):
            yield bucketize.dispatch(mod, cut_up, policy=policy)


def compare(mod: Module, cases: list[tuple[Arrays, Any]], tolerance: float, most: float) -> None:
    model = exported(mod)
    back = bucketize.from_onnx(model)
    try:
        run = runner(model)
    except RuntimeContextError:  # Gelu of float64 in a function: neither engine has that
        run = None
    for inputs, want in cases:
        try:
            agree(evaluate_module(back, **used(back, inputs)), want, tolerance, most)
        except (ShapeError, TypeRelError):  # a window over an extent of 0 may be refused
            assert any(0 in a.shape for a in inputs.values())
        if run is not None and all(a.size for a in want):
            try:
                got = run(inputs)
            except (Fail, InvalidArgument) as e:
                if not re.search(REFUSED, str(e)):
                    raise
                continue
            agree(got, want, tolerance, most)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
def test_random_graphs(seed: int) -> None:
    graph = test_fuzz.Graph(seed)
    grown = graph.module()
    try:
        mod = grown.mapped(simplify)
    except TypeRelError:  # no input could run it
        return
    dtypes = {v.type.dtype.name for b in mod.main.body for v in b.outs}
    dtypes |= {p.type.dtype.name for p in graph.params}
    tolerance = max(test_fuzz.SMOOTH.get(d, 0) for d in dtypes)
    drawn = test_fuzz.cases_of(graph, mod)
    cases = [(named(mod, inputs), want) for inputs, want, _ in drawn if want is not None]
    for each in behind(mod, graph):
        compare(each, cases, tolerance, 1e3 if tolerance >= 1e-2 else math.inf)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
def test_random_onnx_graphs(seed: int) -> None:
    graph = test_fuzz_onnx.Graph(seed)
    graph.wild = False  # onnxruntime's ReduceMax does not see NaN
    model = graph.whole()
    there = {d for dims in graph.dims.values() for d in dims}
    bounds = {n: b for n, b in test_fuzz_onnx.BOUNDS.items() if n in there}
    mod = bucketize.from_onnx(model, bounds=bounds)
    tolerance = max(test_fuzz_onnx.TOLERANCE.get(a.dtype.name, 0) for a in graph.values.values())
    cases = [(inputs, want) for inputs, want, _ in graph.cases(model) if want is not None]
    for each in behind(mod, graph):
        compare(each, cases, tolerance, math.inf)


def test_what_refuses_in_a_run_is_no_fault_of_the_file() -> None:
    """A Gather out of bounds, of nothing: its index may be known when the file is read."""
    known = "<int64[1] at = {9}, bool[0] none = {}>"
    mod = bucketize.from_onnx(parse(f"(float[N] x) => (y) {known} {{ y = Gather(none, at) }}"))
    with pytest.raises(ShapeError, match="index 9 is out of range for extent 0"):
        bucketize.compile(mod).run(np.ones(2, "f4"))


def test_a_clone_gets_its_name_without_a_look_at_all_others() -> None:
    """6,561 clones had 43 million looks: the seconds grew with the square of their number."""

    class Counted(dict[str, Any]):
        walks = 0

        def values(self) -> Any:
            self.walks += 1
            return super().values()

    x, b = Var("x", tensor("float32", N4)), Builder()
    mod = Module({"main": b.function("main", [x], [b.emit(ops.relu, x)])})
    export = _Export(bucketize.dispatch(mod, log_dispatcher), callees=Counted())
    export.graph()
    assert export.callees.walks == 0
    names = [c.proto.name for c in export.callees.values()]
    assert names == ["main_N_1", "main_N_2_4"]
