"""Sequences, what is optional, and tensors whose rank a run tells, beside onnxruntime."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_model import parse, run_ort

import bucketize
from bucketize import ops
from bucketize.dispatch.tree import dispatch
from bucketize.errors import (
    CompileError,
    PaddingError,
    ShapeError,
    TypeRelError,
    UnknownRankError,
    UnsupportedModelError,
)
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Var, without_value
from bucketize.onnx import from_onnx, to_onnx
from bucketize.ops import sequence as s
from bucketize.text import constants, show
from bucketize.text import parse as parse_text
from bucketize.transform.simplify import simplify
from bucketize.types import (
    ANY,
    OptionalType,
    SequenceType,
    Symbol,
    UnrankedType,
    join_types,
    meet_types,
    tensor,
)
from bucketize.verify import verify
from dispatchers import log_dispatcher

N, M = Symbol("N"), Symbol("M")
UNRANKED = UnrankedType(np.dtype("float32"))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def whole(*n: int) -> np.ndarray:
    return np.array(n if len(n) != 1 else n[0], np.int64)


def same(got, want):
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for pair in zip(got, want, strict=True):
            same(*pair)
    elif want is None:
        assert got is None
    else:
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def check(model, *runs, tmp_path, oracle=run_ort, leaves=True, ranked=True):
    """The module of a model that computes what the oracle does, in every way to run it."""
    module = verify(from_onnx(model))
    text = show(module)
    assert show(parse_text(text, constants(module))) == text
    exe = bucketize.compile(module)
    exe.save(tmp_path / "m.bkt")
    ways = [exe.run, bucketize.load(tmp_path / "m.bkt").run]
    ways.append(lambda **inputs: evaluate_module(module, **inputs))
    if any(not isinstance(d, int) for p in module.main.params for d in p.type.axes):
        ways.append(bucketize.compile(dispatch(module, log_dispatcher)).run)
    if leaves:
        left = to_onnx(module)
        if (
            ranked
        ):  # the checker asks for a rank of all that enters and leaves, which no engine does
            onnx.checker.check_model(left, full_check=True)
        back = from_onnx(left)
        ways.append(lambda **inputs: evaluate_module(back, **inputs))
        ways.append(lambda **inputs: oracle(left, inputs))
    for inputs in runs:
        want = oracle(model, inputs)
        for run in ways:
            for pair in zip(run(**inputs), want, strict=True):
                same(*pair)
    return module


def reference(model, inputs):
    return ReferenceEvaluator(model).run(None, inputs)


MODELS = {
    "take": (
        """(float[N, 2] x, float[M, 2] z, int64 i) => (float[K, 2] y, int64 n) {
          s = SequenceConstruct(x, z, x)
          e = SequenceErase(s, i)
          f = SequenceInsert(e, z, i)
          g = SequenceInsert(f, x)
          h = SequenceErase(g)
          y = SequenceAt(h, i)
          n = SequenceLength(h)
        }""",
        [{"x": random(a, 2), "z": random(b, 2), "i": whole(i)} for a, b, i in
         ((3, 4, 0), (1, 5, 1), (2, 2, -1), (4, 1, -2))],
    ),
    "split": (
        """(float[N, 6] x, int64[K] parts) => (seq(float[A, 6]) a, seq(float[B]) b, seq(float[N, C])
          c, float[D, E] d) {
          a = SplitToSequence<axis = 0>(x, parts)
          b = SplitToSequence<axis = 1, keepdims = 0>(x)
          four = Constant<value = int64 {4}>()
          c = SplitToSequence<axis = -1>(x, four)
          d = ConcatFromSequence<axis = 0>(a)
        }""",
        [{"x": random(n, 6), "parts": np.array(p, np.int64)} for n, p in
         ((3, [1, 2]), (5, [5]), (4, [1, 1, 1, 1]))],
    ),
    "join": (
        """(seq(float[N, 2]) x) => (float[K, 2] y, int64 n) {
          y = ConcatFromSequence<axis = 0>(x)
          n = SequenceLength(x)
        }""",
        [{"x": [random(k + 1, 2) for k in range(n)]} for n in (1, 3)],
    ),
    "stack": (
        """(seq(float[3, 2]) x) => (float[3, K, 2] y) {
          y = ConcatFromSequence<axis = 1, new_axis = 1>(x)
        }""",
        [{"x": [random(3, 2) for k in range(n)]} for n in (1, 4)],
    ),
    "collect": (
        """(int64 n, float[N] x) => (seq(float[K]) ys, float[L] y) {
          go = Constant<value = bool {1}>()
          none = SequenceEmpty()
          ys, last = Loop(n, go, none, x)<body = b (int64 i, bool c, seq(float[P]) s, float[Q] h)
            => (bool c2, seq(float[R]) s2, float[T] h2) {
            c2 = Identity(c)
            h2 = Concat<axis = 0>(h, x)
            s2 = SequenceInsert(s, h2)
          }>
          y = ConcatFromSequence<axis = 0>(ys)
        }""",
        [{"n": whole(n), "x": random(k)} for n, k in ((1, 3), (4, 2))],
    ),
    "branch": (
        """(bool c, float[N] x) => (seq(float[K]) y) {
          y = If(c)<then_branch = t () => (a) { a = SequenceConstruct(x, x) },
            else_branch = f () => (b) { z = Neg(x) b = SequenceConstruct(z) }>
        }""",
        [{"c": np.array(c), "x": random(3)} for c in (True, False)],
    ),
    "constants": (
        """(float[N] x, int64 i) => (float[K] y) <float[2] w = {1, 2}> {
          s = SequenceConstruct(w, x)
          y = SequenceAt(s, i)
        }""",
        [{"x": random(3), "i": whole(i)} for i in (0, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models(name, tmp_path):
    graph, runs = MODELS[name]
    check(parse(graph), *runs, tmp_path=tmp_path)


MAP = """(seq(float[N]) x, float[2] z) => (seq(float[K]) y, seq(float[L]) w) {
  y, w = SequenceMap(x, z)<body = b (float[A] a, float[2] c) => (float[B] d, float[A] e) {
    d = Concat<axis = 0>(a, c)
    e = Neg(a)
  }>
}"""


def test_a_map_of_a_graph(tmp_path):
    runs = [{"x": [random(k + 1) for k in range(n)], "z": random(2)} for n in (1, 3)]
    check(parse(MAP, 18), *runs, tmp_path=tmp_path)


OPTIONAL = """(optional(float[2]) x, float[2] z) => (bool has, float[2] y) {
  has = OptionalHasElement(x)
  y = If(has)<then_branch = t () => (a) { a = OptionalGetElement(x) },
    else_branch = f () => (b) { b = Neg(z) }>
}"""


def test_what_is_optional(tmp_path):
    runs = [{"x": random(2), "z": random(2) + 1}, {"x": None, "z": random(2)}]
    check(parse(OPTIONAL, 18), *runs, tmp_path=tmp_path)


def test_what_is_optional_by_type(tmp_path):
    type_ = helper.make_tensor_type_proto(TensorProto.FLOAT, [None])
    nodes = [
        helper.make_node("Optional", [], ["nothing"], type=type_),
        helper.make_node("Optional", ["x"], ["some"]),
        helper.make_node("OptionalHasElement", ["nothing"], ["a"]),
        helper.make_node("OptionalHasElement", ["some"], ["b"]),
        helper.make_node("OptionalGetElement", ["some"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])
    flags = [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in "ab"]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])
    graph = helper.make_graph(nodes, "g", [x], [*flags, y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    module = check(model, {"x": random(3)}, tmp_path=tmp_path)
    assert [b.op.name for b in simplify(module.main).body] == []


# --- folding -------------------------------------------------------------------------------------


def names(module):
    return [b.op.name for b in simplify(module.main).body]


def test_what_is_split_and_taken_again_stays_native(tmp_path):
    graph = """(float[N, 6] x, float[K, 6] z) => (float[N, 2] y, float[L, 6] w, float[N] v, int64 n)
    <int64[2] parts = {4, 2}, int64 one = {1}, int64 back = {-2}> {
      s = SplitToSequence<axis = 1>(x, parts)
      y = SequenceAt(s, one)
      e = SequenceEmpty()
      a = SequenceInsert(e, x)
      b = SequenceInsert(a, z)
      c = SequenceInsert(b, x, back)
      d = SequenceErase(c, back)
      w = ConcatFromSequence<axis = 0>(d)
      t = SplitToSequence<axis = 1, keepdims = 0>(x)
      v = SequenceAt(t, back)
      n = SequenceLength(d)
    }"""
    run = {"x": random(3, 6), "z": random(2, 6)}
    module = check(parse(graph), run, tmp_path=tmp_path)
    assert names(module) == ["strided_slice", "concat", "strided_slice", "squeeze"]
    assert bucketize.compile(module).counts.host == {}


def test_parts_that_are_not_even(tmp_path):
    graph = """(float[N, 7] x) => (float[N, K] y, float[N, 2, 3] w)
    <int64 three = {3}, int64 last = {-1}, int64 first = {0}> {
      s = SplitToSequence<axis = 1>(x, three)
      y = SequenceAt(s, last)
      e = SequenceErase(s)
      w = ConcatFromSequence<axis = 1, new_axis = 1>(e)
    }"""
    module = check(parse(graph), {"x": random(2, 7)}, tmp_path=tmp_path)
    assert "sequence" not in " ".join(names(module))
    assert str(simplify(module.main).results[0].type) == "float32[N, 1]"


def test_places_that_are_out_of_range_are_refused_by_the_run():
    graph = """(float[N] x) => (float[N] y) <int64 two = {2}> {
      s = SequenceConstruct(x, x)
      y = SequenceAt(s, two)
    }"""
    exe = bucketize.compile(from_onnx(parse(graph)))
    with pytest.raises(ShapeError, match=r"in sequence_at: position 2 is out of range for 2"):
        exe.run(random(3))


# --- what no rank is known of --------------------------------------------------------------------

RANKS = {
    "branches": (
        """(bool c, float[N, 3] x) => (y, float[K] z, int64 n) {
          w = If(c)<then_branch = t () => (a) { a = Identity(x) }, else_branch = f () => (b) {
            axes = Constant<value_ints = [0]>() b = Unsqueeze(x, axes) }>
          y = Neg(w)
          shape = Shape(y)
          n = Size(shape)
          flat = Constant<value_ints = [-1]>()
          z = Reshape(y, flat)
        }""",
        [{"c": np.array(c), "x": random(n, 3)} for c, n in ((True, 2), (False, 4))],
    ),
    "reshape": (
        """(float[N, 4] x, int64[K] shape) => (y, float[L] z) {
          y = Reshape(x, shape)
          w = Exp(y)
          flat = Constant<value_ints = [-1]>()
          v = Reshape(w, flat)
          z = Mul(v, v)
        }""",
        [{"x": random(n, 4), "shape": np.array(s, np.int64)} for n, s in
         ((3, [12]), (2, [2, 2, -1]), (1, [4, 1]))],
    ),
    "input": (
        """(float[] x, float[2] z) => (y, float[K, 2] w) {
          a = Add(x, z)
          y = Transpose<perm = [1, 0]>(a)
          rows = Constant<value_ints = [-1, 2]>()
          b = Reshape(a, rows)
          w = Relu(b)
        }""",
        [{"x": random(n, 2), "z": random(2)} for n in (1, 3)],
    ),
    "sums": (  # to nothing: of one, and of all axes; the first result declares its rank
        """(float x, int64[K] shape) => (float y, float z) {
          a = Expand(x, shape)
          y = ReduceSum<keepdims = 0>(a)
          b = Relu(a)
          z = ReduceMax<keepdims = 0>(b)
        }""",
        [{"x": random(), "shape": np.array(s, np.int64)} for s in ((2, 3), (4,))],
    ),
    "squeeze": (
        """(float[N, 2, M] x) => (y) { z = Squeeze(x) y = Neg(z) }""",
        [{"x": random(n, 2, m)} for n, m in ((1, 1), (3, 1), (2, 3))],
    ),
    "cut": (
        """(float[] x) => (y, z, w) <int64[1] one = {1}, int64[1] last = {-1}, int64[1] a = {0}> {
          y, v = Split<axis = 1, num_outputs = 2>(x)
          z = Concat<axis = 0>(y, v)
          w = Slice(x, one, last, a)
        }""",
        [{"x": random(*shape)} for shape in ((3, 4), (4, 2, 3))],
    ),
    "carried": (
        """(int64 n, float[N] x) => (y) {
          go = Constant<value = bool {1}>()
          y = Loop(n, go, x)<body = b (int64 i, bool c, float[] h) => (bool c2, float[] h2) {
            c2 = Identity(c)
            axes = Constant<value_ints = [0]>()
            h2 = Unsqueeze(h, axes)
          }>
        }""",
        [{"n": whole(n), "x": random(3)} for n in (0, 1, 3)],
    ),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", RANKS)
def test_ranks_that_a_run_tells(name, tmp_path):
    graph, runs = RANKS[name]
    check(parse(graph, 18), *runs, tmp_path=tmp_path, oracle=reference, ranked=False)


def test_a_known_condition_leaves_one_branch():
    graph = """(float[N, 3] x) => (float[N, 3] y) {
      r = Shape(x) n = Size(r) two = Constant<value = int64 {2}>() c = Equal(n, two)
      y = If(c)<then_branch = t () => (a) { a = Neg(x) }, else_branch = f () => (b) { b = Det(x) }>
    }"""
    assert names(from_onnx(parse(graph))) == ["neg"]


def test_ranks_that_a_bucket_tells():
    graph, _ = RANKS["sums"]
    module = from_onnx(parse(graph, 18), bounds={"K": (0, None)})
    run = bucketize.compile(bucketize.dispatch(module, log_dispatcher), lazy=True).run
    for shape in ((), (3,), (2, 3)):
        y, z = run(random(), np.array(shape, np.int64))
        np.testing.assert_allclose(y, random() * np.prod(shape), 1e-6)
        np.testing.assert_array_equal(z, np.maximum(random(), 0))


def test_a_run_checks_what_types_could_not():
    module = from_onnx(
        parse("(float[] x, float[2, 3] z) => (y) { y = Transpose<perm = [1, 0]>(x) }")
    )
    with pytest.raises(TypeRelError, match=r"axes \(1, 0\) do not permute rank 3"):
        bucketize.compile(module).run(random(1, 2, 3), random(2, 3))


def test_explained():
    graph, _ = RANKS["reshape"]
    told = str(bucketize.compile(from_onnx(parse(graph, 18))).explain(N=3, K=2))
    assert "float32[...] has no rank that is known before a run" in told
    told = str(bucketize.compile(from_onnx(parse(MODELS["stack"][0]))).explain())
    assert "sequence(float32[3, 2]) is held on the host" in told


def test_a_shape_of_a_rank_that_a_run_alone_can_tell_is_a_question_mark():
    graph, _ = RANKS["reshape"]
    told = bucketize.compile(from_onnx(parse(graph, 18))).explain(N=3, K=2)
    unranked = [step for step in told.steps if step["shape"] is None]
    assert unranked
    shapes = [row["shape"] for row in told.rows]
    assert shapes.count("?") == len(unranked)
    scalar = from_onnx(parse("(float x) => (y) { y = Exp(x) }"))
    assert [row["shape"] for row in bucketize.compile(scalar).explain().rows] == ["()"]


# --- scans of a batch ----------------------------------------------------------------------------

SCAN = """({lengths}float[B, 2] h, float[B, T, 2] x) => (float[B, 2] last, float[B, T, 2] y) {{
  last, y = Scan<num_scan_inputs = 1, directions = [{back}], body = b (float[2] a, float[2] c)
    => (float[2] d, float[2] e) {{ d = Add(a, c) e = Mul(d, c) }}>({name}, h, x)
}}"""


@pytest.mark.sweep
@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("lengths", [None, [2, 4, 1], [1, 3, 4]])
def test_scans_of_a_batch(back, lengths, tmp_path):
    declared = "int64[B] lengths, " if lengths else ""
    graph = SCAN.format(lengths=declared, back=back, name="lengths" if lengths else "")
    run = {"h": random(3, 2), "x": random(3, 4, 2)}
    if lengths:
        run["lengths"] = np.array(lengths, np.int64)
    check(parse(graph, 8), run, tmp_path=tmp_path, leaves=False)


def test_scans_without_inputs_are_refused():
    graph = SCAN.format(lengths="", back=0, name="").replace("inputs = 1", "inputs = 3")
    with pytest.raises(UnsupportedModelError, match="num_scan_inputs is 3 of 2 inputs"):
        from_onnx(parse(graph, 8))


# --- other operators that came with these --------------------------------------------------------


@pytest.mark.parametrize(("time", "batch"), [(0, 1), (1, 0)])
def test_reverse_sequence(time, batch, tmp_path):
    graph = f"""(float[A, B, 2] x, int64[K] n) => (float[A, B, 2] y)
      {{ y = ReverseSequence<time_axis = {time}, batch_axis = {batch}>(x, n) }}"""
    runs = []
    for lengths in ([1, 3, 2], [3, 1]):
        shape = (3, len(lengths)) if time == 0 else (len(lengths), 3)
        runs.append({"x": random(*shape, 2), "n": np.array(lengths, np.int64)})
    check(parse(graph), *runs, tmp_path=tmp_path)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (1, 2, 3, 4, 5)])
def test_affine_grids(corners, size, tmp_path):
    axes = len(size) - 2
    out = ", ".join("ABCD"[: axes + 2])
    graph = f"""(float[N, {axes}, {axes + 1}] theta, int64[{len(size)}] size) => (float[{out}] y)
      {{ y = AffineGrid<align_corners = {corners}>(theta, size) }}"""
    run = {"theta": random(size[0], axes, axes + 1), "size": np.array(size, np.int64)}
    check(parse(graph, 20), run, tmp_path=tmp_path, oracle=reference)


# --- types ---------------------------------------------------------------------------------------

SEQUENCE = SequenceType(tensor("float32", N, 3), 2)
TYPES = [
    UNRANKED,
    SEQUENCE,
    SequenceType(UNRANKED),
    SequenceType(tensor("int64", ANY), N + 1),
    OptionalType(tensor("float32")),
    OptionalType(SEQUENCE),
]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_types_as_text(type_):
    module = parse_text(f"def @main(%x: {type_}, %n: int64[N]) -> {type_} {{\n  return %x\n}}")
    assert module.main.params[0].type == type_
    assert show(parse_text(show(module))) == show(module)


def test_types_as_attributes():
    text = """def @main() -> optional(sequence(float32[?, 3])) {
  %0 = optional_none(type=sequence(float32[?, 3])) : optional(sequence(float32[?, 3]))
  return %0
}"""
    assert show(parse_text(text)) == text


def test_a_symbol_may_have_the_name_of_a_kind():
    type_ = "float32[sequence, optional]"
    text = f"def @main(%x: {type_}) -> {type_} {{\n  return %x\n}}"
    assert show(parse_text(text)) == text


JOINS = [
    (tensor("float32", N), tensor("float32", N, 2), "float32[...]"),
    (UNRANKED, tensor("float32", N), "float32[...]"),
    (SequenceType(UNRANKED, 0), SEQUENCE, "sequence(float32[N, 3])"),
    (SEQUENCE, SequenceType(tensor("float32", M, 3), 2), "sequence(float32[?, 3], 2)"),
    (OptionalType(SEQUENCE), SequenceType(UNRANKED, 0), "optional(sequence(float32[N, 3]))"),
    (OptionalType(UNRANKED), OptionalType(tensor("float32")), "optional(float32[...])"),
]


@pytest.mark.parametrize(("a", "b", "joined"), JOINS, ids=str)
def test_types_join(a, b, joined):
    assert str(join_types(a, b)) == str(join_types(b, a)) == joined
    assert join_types(join_types(a, b), b) == join_types(a, b)


def test_types_meet():
    row = tensor("float32", N)
    assert meet_types(UNRANKED, row) == meet_types(row, UNRANKED) == row
    known = SequenceType(tensor("float32", 4, 3), ANY)
    assert str(meet_types(SequenceType(UNRANKED, N), known)) == "sequence(float32[4, 3], N)"
    assert meet_types(OptionalType(UNRANKED), OptionalType(row)) == OptionalType(row)


def test_types_that_differ_in_kind():
    for a, b in [(SEQUENCE, UNRANKED), (tensor("float32"), SEQUENCE)]:
        with pytest.raises(TypeRelError, match="types differ"):
            join_types(a, b)
    with pytest.raises(TypeRelError, match="types differ"):
        meet_types(OptionalType(SEQUENCE), SEQUENCE)


COUNTED = [
    (ops.dyn_reshape, tensor("float32", N, 3), tensor("int64", N), {"allow_zero": False}),
    (ops.gather_nd, tensor("float32", N, 3), tensor("int64", 2, N), {"batch_dims": 0}),
    (ops.dyn_squeeze, tensor("float32", N, 3), tensor("int64", N), {}),
    (ops.add, tensor("float32", N, 3), UNRANKED, {}),
]


@pytest.mark.parametrize(("op", "x", "told", "attrs"), COUNTED)
def test_ranks_that_no_type_tells(op, x, told, attrs):
    assert op.infer(x, told, **attrs) == (UNRANKED,)


def test_types_without_a_shape():
    with pytest.raises(UnknownRankError, match=r"the rank of float32\[...\] is unknown"):
        _ = UNRANKED.shape
    for type_ in (SEQUENCE, OptionalType(UNRANKED)):
        with pytest.raises(TypeRelError, match=re.escape(f"expected a tensor, got {type_}")):
            _ = type_.shape
    assert without_value(SEQUENCE) is SEQUENCE


X, SEQ, OPT = Var("x", tensor("float32", N)), Var("s", SEQUENCE), Var("o", OptionalType(SEQUENCE))
ILL = [
    (s.sequence_at, (X, X), "a position is an integer, got float32[N]"),
    (s.sequence_length, (X,), "expected a sequence, got float32[N]"),
    (s.sequence_insert, (SEQ, SEQ), f"expected a tensor, got {SEQUENCE}"),
    (s.sequence_construct, (), "a sequence of no element does not tell their dtype"),
    (s.optional_some, (OPT,), "is optional already"),
    (s.optional_get_element, (X,), "expected something optional, got float32[N]"),
    (bucketize.ops.relu, (SEQ,), f"expected a tensor, got {SEQUENCE}"),
]


@pytest.mark.parametrize(("op", "args", "message"), ILL)
def test_operands_of_another_kind(op, args, message):
    with pytest.raises(TypeRelError, match=re.escape(message)):
        Builder().emit(op, *args)


# --- errors of a run -----------------------------------------------------------------------------

FAULTS = [
    ("y = SplitToSequence(x, p)", {"p": whole(0)}, "expected parts of at least 1, got 0"),
    ("y = SplitToSequence(x, p)", {"p": np.array([2, 2])},
     "parts of [2, 2] do not make the extent 3"),
    ("s = SplitToSequence(x, p) t = SequenceErase(s) t2 = SequenceErase(t) t3 = SequenceErase(t2) "
     "y = SequenceErase(t3)", {"p": whole(1)},
     "position -1 is out of range for 0 elements"),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "given", "message"), FAULTS)
def test_what_a_run_refuses(nodes, given, message):
    rank = "[K]" if given["p"].ndim else ""
    graph = f"(float[N] x, int64{rank} p) => (seq(float[K]) y) {{ {nodes} }}"
    module = from_onnx(parse(graph))
    for run in (bucketize.compile(module).run, lambda **a: evaluate_module(module, **a)):
        with pytest.raises(ShapeError, match=re.escape(message)):
            run(x=random(3), **given)


def test_nothing_to_concatenate_and_nothing_there():
    joins = from_onnx(parse(MODELS["join"][0]))
    with pytest.raises(ShapeError, match="a sequence of no element has nothing to concatenate"):
        bucketize.compile(joins).run(x=[])
    graph = "(optional(float[2]) x) => (float[2] y) { y = OptionalGetElement(x) }"
    with pytest.raises(
        ShapeError, match="in optional_get_element: expected a value to be there, got nothing"
    ):
        bucketize.compile(from_onnx(parse(graph, 18))).run(x=None)


def test_inputs_of_another_kind():
    exe = bucketize.compile(from_onnx(parse(MODELS["stack"][0])))
    with pytest.raises(ShapeError, match="input 'x': expected a list of arrays, got ndarray"):
        exe.run(x=random(3, 2))
    with pytest.raises(ShapeError, match=r"input 'x\[1\]': expected float32, got int64"):
        exe.run(x=[random(3, 2), whole(1, 2)])
    with pytest.raises(ShapeError, match=r"input 'x\[1\]', axis 0: expected 3, got 4"):
        exe.run(x=[random(3, 2), random(4, 2)])
    with pytest.raises(ShapeError, match=r"input 'x\[0\]': expected rank 2 float32\[3, 2\], got 1"):
        exe.run(x=[random(3)])


def test_results_are_their_own():
    graph = "(seq(float[N]) x, float[M] z) => (seq(float[K]) y) { y = SequenceInsert(x, z) }"
    exe = bucketize.compile(from_onnx(parse(graph)))
    given = [random(2), random(3)]
    z = random(4)
    (got,) = exe.run(given, z)
    for array in got:
        array[:] = 0
    same([*given, z], [random(2), random(3), random(4)])


# --- what does not take them ---------------------------------------------------------------------


def test_what_no_policy_pads():
    graph, _ = MODELS["constants"]
    module = from_onnx(parse(graph), bounds={"N": (1, 8)})
    with pytest.raises(PaddingError, match=r"sequence_construct.* has no padding rule"):
        dispatch(module, log_dispatcher, policy="pad")


def test_the_graph_executor_takes_no_sequence():
    module = from_onnx(parse(MODELS["stack"][0]))
    told = r"takes static shapes only, but input 'x' is sequence\(float32\[3, 2\]\)"
    with pytest.raises(CompileError, match=told):
        bucketize.compile(module, executor="graph")


def test_warm_up():
    for name in ("stack", "take"):
        bucketize.compile(from_onnx(parse(MODELS[name][0])))
    exe = bucketize.compile(from_onnx(parse(OPTIONAL, 18)))
    exe.warm_up()


def test_optional_without_anything():
    node = helper.make_node("Optional", [], ["y"], name="o")
    out = helper.make_value_info(
        "y", helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [1]))
    )
    graph = helper.make_graph([node], "g", [], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    with pytest.raises(UnsupportedModelError, match="neither an operand nor a type is given"):
        from_onnx(model)


def test_inputs_of_kinds_that_are_not_read():
    graph = "(float[N] x) => (y) { y = Identity(x) }"
    model = parse(graph)
    model.graph.input[0].type.CopyFrom(helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [3]))
    with pytest.raises(UnsupportedModelError, match="a sparse_tensor_type is not supported"):
        from_onnx(model)
