"""Building, rewriting, refining and running the IR."""

import re

import numpy as np
import pytest

from bucketize.call import arrange_inputs, bind_shapes
from bucketize.errors import NoBucketError, ShapeError, TypeRelError, UnknownNameError
from bucketize.interpret import evaluate_module, run_function
from bucketize.ir import (
    FUSED,
    IF,
    Builder,
    Clone,
    Const,
    Function,
    Functions,
    Module,
    Var,
    all_bindings,
    map_blocks,
    refine,
    rewrite,
    specialise,
)
from bucketize.op import register
from bucketize.ops import add, relu, reshape, softmax
from bucketize.ops.dim import dim_less, from_dims
from bucketize.text import parse, parse_function, show
from bucketize.types import ANY, Symbol, TensorType, tensor
from bucketize.verify import verify

N = Symbol("N", 1, 8)

MLP = """
def @main(%x: float32[N, 3], %w: float32[3, 3]) -> float32[N, 3] where N in [1, 8] {
  %0 = matmul(%x, %w) : float32[N, 3]
  %1 = add(%0, float32[3](0.5, -1.0, 2.0)) : float32[N, 3]
  %2 = relu(%1) : float32[N, 3]
  return %2
}"""

BRANCHES = """
def @main(%x: float32[N, 2]) -> float32[?, 2], float32[N, 2] where N in [1, 8] {
  %0 = relu(%x) : float32[N, 2]
  %1 = dim_less(dim=N, than=3) : bool[]
  %2, %3 = if %1 {
    %4, %5 = call @small(%0) : float32[?, 2], float32[N, 2]
    yield %4, %5
  } else {
    %6 = add(%0, %x) : float32[N, 2]
    yield %6, %x
  } : float32[?, 2], float32[N, 2]
  return %2, %3
}

def @small(%y: float32[M, 2]) -> float32[M, 2], float32[M, 2] where M in [1, 2] {
  %0 = add(%y, float32(1.0)) : float32[M, 2]
  return %0, %y
}"""


@pytest.fixture
def mlp():
    return parse_function(MLP)


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# --- building ----------------------------------------------------------------------------------


def test_the_builder_types_and_names_in_order():
    out = Builder()
    x = Var("x", tensor("float32", N, 4))
    y = out.emit(softmax, x, axis=0)
    z = out.emit(add, y, Const(np.ones((2, 1, 4), np.float32)))
    assert (y.name, z.name) == ("0", "1")
    assert z.type == tensor("float32", 2, N, 4)
    fn = out.function("f", [x], [z])
    assert [b.out for b in fn.body] == [y, z]
    assert fn.body[0].attrs == {"axis": 0}
    assert fn.symbols() == {"N": N}
    with pytest.raises(TypeError):
        fn.body[0].attrs["axis"] = 1


def test_an_ill_typed_binding_names_its_op_and_types():
    x = Var("x", tensor("float32", N, 4))
    with pytest.raises(TypeRelError, match="4 and 3") as e:
        Builder().emit(add, x, Const(np.ones((2, 3), np.float32)))
    assert e.value.notes == ("in add(float32[N, 4], float32[2, 3])",)


def test_attributes_are_checked():
    x = Var("x", tensor("float32", N, 4))
    with pytest.raises(UnknownNameError, match="no attribute of softmax named 'axes'; known: axis"):
        Builder().emit(softmax, x, axes=1)
    with pytest.raises(TypeRelError, match="reshape needs the attribute newshape"):
        Builder().emit(reshape, x)


def test_small_integers_are_followed_as_dims():
    assert Const(np.array([2, 3])).type.value == (2, 3)
    assert Const(np.arange(65)).type.value is None
    assert Const(np.ones(2, np.float32)).type.value is None
    sizes = Builder().emit(from_dims, dims=(N, 2 * N))
    assert sizes.type == TensorType(np.dtype("int64"), (2,), (N, 2 * N))


def test_branches_must_return_alike():
    x = Var("x", tensor("float32", N, 4))
    cond = Builder().emit(dim_less, dim=N, than=3)
    one, none = Function("", (), (), (x,)), Function("", (), (), ())
    with pytest.raises(TypeRelError, match="branches return 1 and 0 results"):
        Builder().emit_all(IF, cond, then=one, orelse=none)
    row = Function("", (), (), (Var("y", tensor("int64", 4)),))
    with pytest.raises(TypeRelError, match=re.escape("differ: float32[N, 4] and int64[4]")):
        Builder().emit_all(IF, cond, then=one, orelse=row)


def test_an_op_is_declared_once():
    with pytest.raises(AssertionError, match="operator relu is declared twice"):
        register(relu)


def test_values_print_for_messages(mlp):
    result = "float32[N, 3]"
    assert repr(mlp) == f"<function main(%x: float32[N, 3], %w: float32[3, 3]) -> {result}>"
    assert repr(mlp.body[2]) == "%2: float32[N, 3] = relu(%1: float32[N, 3],)"
    assert repr(mlp.body[1].args[1]) == "const float32[3]"
    assert repr(mlp.body[2].op) == "<op relu>"


# --- modules -----------------------------------------------------------------------------------


def test_a_recipe_is_followed_once_and_late(mlp):
    asked = []

    def recipe(name):
        asked.append(name)
        return specialise(mlp, {"N": 1}, name)

    functions = Functions({"main": mlp, "one": recipe})
    module = Module(functions).replace(mlp)
    assert "one" in module.functions
    assert list(module.functions) == ["main", "one"]
    assert list(module.functions.made()) == ["main"]
    assert asked == []
    assert module.function("one") is module.function("one")
    assert asked == ["one"]
    assert list(module.functions.made()) == ["main", "one"]


def test_an_unknown_function_lists_the_known(mlp):
    with pytest.raises(UnknownNameError, match="no function named 'f'; known: main"):
        Module({"main": mlp}).function("f")


def test_a_module_is_mapped_lazily(mlp):
    seen = []

    def note(fn):
        seen.append(fn.name)
        return fn

    clones = {"f": Clone({"N": (1, 3)})}
    module = Module({"main": mlp, "f": lambda name: mlp}, clones).mapped(note)
    assert seen == []
    assert module.main is mlp
    assert seen == ["main"]
    assert module.clones == module.replace(mlp).clones == clones


# --- rewriting ---------------------------------------------------------------------------------


def test_a_rule_that_never_answers_changes_nothing(mlp):
    assert rewrite(mlp, lambda out, b, args: None) is mlp
    fn = parse(BRANCHES).main
    assert rewrite(fn, lambda out, b, args: None) is fn


def test_a_rule_may_emit_and_redirect(mlp):
    def twice(out, b, args):
        return out.emit(relu, out.emit(add, args[0], args[0])) if b.op is relu else None

    new = rewrite(mlp, twice)
    assert [b.op.name for b in new.body] == ["matmul", "add", "add", "relu"]
    assert new.params == mlp.params
    x, w = floats(2, 3), floats(3, 3)
    (a,), (b,) = run_function(mlp, [x, w]), run_function(new, [x, w])
    np.testing.assert_array_equal(b, 2 * a)


def test_a_rule_that_drops_a_binding(mlp):
    new = rewrite(mlp, lambda out, b, args: args[0] if b.op is relu else None)
    assert [b.op.name for b in new.body] == ["matmul", "add"]
    assert new.results == (new.body[-1].out,)


def test_a_rule_reaches_into_branches():
    fn = parse(BRANCHES).main
    new = rewrite(fn, lambda out, b, args: args[0] if b.op is add else None)
    assert new is not fn
    assert new.body[2].attrs["orelse"].body == ()
    assert new.body[2].attrs["orelse"].results[0] is new.body[0].out


def test_a_rule_sees_an_if_behind_its_blocks():
    seen = []

    def note(out, b, args):
        seen.append(b)
        return args[0] if b.op is add else None

    rewrite(parse(BRANCHES).main, note)
    assert [b.op.name for b in seen] == ["relu", "dim_less", "call", "add", "if"]
    assert seen[-1].attrs["orelse"].body == ()


def test_a_rule_answers_for_each_result():
    fn = parse(BRANCHES).main
    new = rewrite(fn, lambda out, b, args: [fn.params[0]] * 2 if b.op is IF else None)
    assert new.results == fn.params * 2
    with pytest.raises(ValueError, match="zip"):
        rewrite(fn, lambda out, b, args: fn.params if b.op is IF else None)


def test_all_bindings_are_those_of_the_blocks_too():
    names = [b.op.name for b in all_bindings(parse(BRANCHES).main)]
    assert names == ["relu", "dim_less", "if", "call", "add"]


def test_blocks_are_mapped_inside_out():
    text = """
    def @main(%x: float32[2], %c: bool[]) -> float32[2] {
      %0 = if %c {
        %1 = if %c { yield %x } else { %2 = relu(%x) yield %2 }
        yield %1
      } else { yield %x }
      return %0
    }"""
    fn = parse(text).main
    seen = []

    def outer_first(block):
        seen.append(len(block.body))
        return block

    assert map_blocks(fn, outer_first) is fn
    assert seen == [0, 1, 1, 0]
    empty = map_blocks(fn, lambda f: Function(f.name, (), (), fn.params[:1]))
    assert [b.op for b in all_bindings(empty)] == [IF]
    verify(Module({"main": empty}))


def test_a_rule_must_not_emit_and_decline(mlp):
    with pytest.raises(AssertionError, match="must not emit"):
        rewrite(mlp, lambda out, b, args: out.emit(relu, args[0]) and None)


# --- refining ----------------------------------------------------------------------------------


def test_refine_infers_anew(mlp):
    fn = refine(mlp, [tensor("float32", 2, ANY), tensor("float32", 3, 3)])
    assert fn.params[0].type == tensor("float32", 2, 3)
    assert fn.results[0].type == tensor("float32", 2, 3)


def test_refine_names_what_does_not_fit(mlp):
    w = tensor("float32", 3, 3)
    with pytest.raises(TypeRelError, match="main takes 2 arguments, got 1"):
        refine(mlp, [w])
    with pytest.raises(TypeRelError, match=re.escape("ranks differ: float32[N, 3] and float32[3]")):
        refine(mlp, [tensor("float32", 3), w])
    with pytest.raises(TypeRelError, match="extents differ: 3 and 4"):
        refine(mlp, [tensor("float32", 2, 4), w])
    with pytest.raises(TypeRelError, match="extents differ: N and 9"):
        refine(mlp, [tensor("float32", 9, 3), w])


def test_refine_shares_symbols():
    fn = parse_function("def @f(%x: float32[N], %y: float32[N]) { return %x }")
    with pytest.raises(TypeRelError, match="extents differ: 2 and 3"):
        refine(fn, [tensor("float32", 2), tensor("float32", 3)])


def test_specialise_narrows_types_attributes_branches_and_groups():
    fn = parse_function("""
    def @f(%x: float32[N, 4], %c: bool[]) where N in [1, 8] {
      %0 = reshape(%x, newshape=(2*N, 2)) : float32[2*N, 2]
      %1 = fused(%a = %0) {
        %0 = reshape(%a, newshape=(N, 4)) : float32[N, 4]
        yield %0
      } : float32[N, 4]
      %2 = if %c {
        %3 = reshape(%1, newshape=(4*N,)) : float32[4*N]
        yield %3
      } else {
        yield float32[1](0.0)
      } : float32[?]
      return %2
    }""")
    text = show(specialise(fn, {"N": 2}, "g"))
    assert text == show(
        parse_function("""
    def @g(%x: float32[2, 4], %c: bool[]) {
      %0 = reshape(%x, newshape=(4, 2))
      %1 = fused(%a = %0) {
        %0 = reshape(%a, newshape=(2, 4))
        yield %0
      }
      %2 = if %c {
        %3 = reshape(%1, newshape=(8,))
        yield %3
      } else {
        yield float32[1](0.0)
      }
      return %2
    }""")
    )
    narrow = specialise(fn, {"N": Symbol("N", 2, 4)})
    assert narrow.symbols() == {"N": Symbol("N", 2, 4)}
    assert "where N in [2, 4]" in show(narrow)


def test_specialise_leaves_out_the_branch_that_does_not_fit():
    fn = parse_function("""
    def @f(%x: float32[N, 2], %y: float32[4, 2]) where N in [1, 8] {
      %0 = dim_less(dim=N, than=4) : bool[]
      %1 = if %0 {
        %2 = relu(%x) : float32[N, 2]
        yield %2
      } else {
        %3 = add(%x, %y) : float32[4, 2]
        yield %3
      } : float32[?, 2]
      return %1
    }""")
    with pytest.raises(TypeRelError, match="extents differ: 3 and 4"):
        Builder().emit(add, Var("x", tensor("float32", 3, 2)), fn.params[1])
    few = specialise(fn, {"N": 3})
    assert [b.op.name for b in few.body] == ["dim_less", "relu"]
    assert few.results[0].type == tensor("float32", 3, 2)
    assert len(specialise(fn, {"N": Symbol("N", 2, 4)}).body) == 2


# --- running -----------------------------------------------------------------------------------


def test_straight_line_code_runs(mlp):
    x, w = floats(4, 3), floats(3, 3)
    (y,) = run_function(mlp, [x, w])
    expected = np.maximum(x @ w + np.array([0.5, -1, 2], np.float32), 0)
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_branches_and_calls_run(n):
    x = floats(n, 2)
    a, b = evaluate_module(parse(BRANCHES), x)
    y = np.maximum(x, 0)
    np.testing.assert_array_equal(a, y + 1 if n < 3 else y + x)
    np.testing.assert_array_equal(b, y if n < 3 else x)


def test_a_callee_checks_its_arguments():
    module = parse(BRANCHES.replace("than=3", "than=5"))
    with pytest.raises(
        ShapeError, match=re.escape("input 'y', axis 0: expected M in [1, 2], got 4")
    ):
        evaluate_module(module, floats(4, 2))


def test_a_group_runs():
    out, inner = Builder(), Builder()
    x, p = Var("x", tensor("float32", N, 2)), Var("p", tensor("float32", N, 2))
    y = inner.emit(relu, inner.emit(add, p, p))
    group = out.emit(FUSED, x, body=inner.function("", [p], [y]))
    (result,) = run_function(out.function("f", [x], [group]), [floats(3, 2)])
    np.testing.assert_array_equal(result, np.maximum(2 * floats(3, 2), 0))


def test_an_attribute_dim_is_evaluated():
    fn = parse_function("""
    def @f(%x: float32[N, 4]) -> float32[2*N, 2], int64[2] {
      %0 = reshape(%x, newshape=(2*N, 2)) : float32[2*N, 2]
      %1 = from_dims(dims=(N, 2*N)) : int64[2]
      return %0, %1
    }""")
    a, b = run_function(fn, [floats(3, 4)])
    assert a.shape == (6, 2)
    assert b.tolist() == [3, 6]


def test_no_bucket():
    fn = parse_function("""
    def @f(%x: float32[N]) {
      %0 = no_bucket(sizes=(N,), buckets='N in [1, 4)') : float32[N]
      return %0
    }""")
    with pytest.raises(NoBucketError, match=r"covers N=5; buckets: N in \[1, 4\)"):
        run_function(fn, [floats(5)])


# --- inputs ------------------------------------------------------------------------------------

PARAMS = parse_function(
    "def @f(%x: float32[N, 3], %y: float32[N, 2*N + 1], %z: int64[?]) where N in [2, 8] {return %x}"
).params


def test_shapes_bind_symbols():
    assert bind_shapes(PARAMS, [(2, 3), (2, 5), (9,)]) == {"N": 2}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2,), (2, 5), (1,)], "input 'x': expected rank 2 float32[N, 3], got 1"),
        ([(2, 4), (2, 5), (1,)], "input 'x', axis 1: expected 3, got 4"),
        ([(2, 3), (3, 5), (1,)], "input 'y', axis 0: expected N=2, got 3"),
        ([(9, 3), (9, 5), (1,)], "input 'x', axis 0: expected N in [2, 8], got 9"),
        ([(1, 3), (1, 5), (1,)], "input 'x', axis 0: expected N in [2, 8], got 1"),
        ([(2, 3), (2, 6), (1,)], "input 'y', axis 1: expected 2*N + 1=5, got 6"),
    ],
)
def test_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(ShapeError) as e:
        bind_shapes(PARAMS, shapes)
    assert str(e.value) == message


def test_an_open_bound_shows_as_such():
    params = parse_function("def @f(%x: float32[N]) where N >= 4 { return %x }").params
    with pytest.raises(ShapeError, match=re.escape("expected N in [4, ...], got 3")):
        bind_shapes(params, [(3,)])


def test_inputs_go_by_place_or_name():
    x, y, z = floats(2, 3), floats(2, 5), np.zeros(1, np.int64)
    for args, named in (([x, y, z], {}), ([x], {"z": z, "y": y}), ([], {"z": z, "y": y, "x": x})):
        arranged = arrange_inputs(PARAMS, args, named)
        assert all(a is b for a, b in zip(arranged, [x, y, z], strict=True))


X, Y, Z = floats(2, 3), floats(2, 5), np.zeros(1, np.int64)


@pytest.mark.parametrize(
    ("args", "named", "error", "message"),
    [
        ([X], {"w": Y}, UnknownNameError, "no input named 'w'; known: x, y, z"),
        ([X, Y, Z, Z], {}, ShapeError, "expected the inputs x, y, z; got 4"),
        ([X], {"z": Z}, ShapeError, "expected the inputs x, y, z; missing: y"),
        ([X, Y], {"x": X, "z": Z}, ShapeError, "expected the inputs x, y, z; given twice: x"),
        ([X, Y, X], {}, ShapeError, "input 'z': expected int64, got float32"),
    ],
)
def test_inputs_that_do_not_fit(args, named, error, message):
    with pytest.raises(error) as e:
        arrange_inputs(PARAMS, args, named)
    assert str(e.value) == message
