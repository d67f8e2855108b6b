"""Each law of the IR, kept and broken."""

import re
from dataclasses import replace

import numpy as np
import pytest

from bucketize.errors import UnknownNameError, VerifyError
from bucketize.ir import CALL, FUSED, IF, Binding, Builder, Const, Function, Functions, Module, Var
from bucketize.ops import add, relu, softmax
from bucketize.ops.dim import dim_less
from bucketize.text import parse, parse_function
from bucketize.types import Symbol, TensorType, tensor
from bucketize.verify import verify

MODULE = """
def @main(%x: float32[N, 4]) -> float32[N, 4] where N in [1, 8] {
  %0 = relu(%x) : float32[N, 4]
  %1 = dim_less(dim=N, than=2) : bool[]
  %2 = if %1 {
    %3 = call @main[N=1](%0) : float32[N, 4]
    yield %3
  } else {
    %4 = fused(%a = %0, %b = %x) {
      %0 = add(%a, %b) : float32[N, 4]
      yield %0
    } : float32[N, 4]
    yield %4
  } : float32[N, 4]
  return %2
}

def @main[N=1](%x: float32[1, 4]) -> float32[1, 4] {
  %0 = softmax(%x, axis=1) : float32[1, 4]
  return %0
}"""

N = Symbol("N", 1, 8)
X = Var("x", tensor("float32", N, 4))


@pytest.fixture
def module():
    return parse(MODULE)


def refused(what):
    """The error of verify against a module or a main."""
    with pytest.raises(VerifyError) as e:
        verify(Module(Functions({"main": what})) if isinstance(what, Function) else what)
    return e.value


def refusal(what):
    """What it says, the outermost place first."""
    error = refused(what)
    law, *places = error.notes
    assert re.fullmatch(r"law: \w+", law)
    return ": ".join([*reversed(places), error.message])


def main(*body, results=()):
    return Function("main", (X,), tuple(body), results)


def binding(op, *args, out=X.type, **attrs):
    return Binding((Var("y", out),), op, args, op.complete(attrs))


def test_a_legal_module_comes_back(module):
    assert verify(module) is module
    assert verify(module, functions=["main"]) is module


def test_a_function_may_be_verified_alone(module):
    clone = module.function("main[N=1]")
    assert verify(clone) is clone
    leaked = replace(clone, results=(Var("y", X.type),))
    with pytest.raises(VerifyError, match=r"%y: .* not defined here\n  law: scope\n  in @main\["):
        verify(leaked)


def test_a_refusal_names_the_law_and_the_binding():
    wrong = binding(relu, X, out=tensor("float32", 3, 4))
    assert str(refused(main(wrong))).splitlines() == [
        "typed float32[3, 4], inferred float32[N, 4]",
        "  law: types",
        "  in %0 = relu(%x) : float32[3, 4]",
        "  in @main",
    ]
    assert refused(main(binding(add, X, Const(np.ones(3, np.float32))))).notes[0] == "law: types"
    assert refused(Module({"main": main(), "f": main()})).notes[0] == "law: name"


def test_clones_that_are_recipes_remain_so(module):
    asked = []

    def clone(name):
        asked.append(name)
        return parse_function(f"def @{name}(%x: float32[2]) {{ return }}")

    names = [f"main[N={i}]" for i in range(1, 5000)]
    lazy = Module({"main": module.main, **dict.fromkeys(names, clone)})
    assert verify(lazy) is lazy
    assert verify(lazy, functions=["main"]) is lazy
    assert asked == []
    assert refusal(verify_one(lazy, names[0])).endswith(
        "ranks differ: float32[2] and float32[N, 4]"
    )


def verify_one(module, name):
    module.function(name)
    return module


def test_there_is_a_main():
    with pytest.raises(UnknownNameError, match="no function named 'main'; known: none"):
        verify(Module({}))
    with pytest.raises(UnknownNameError, match="no function named 'f'; known: main"):
        verify(Module({"main": main()}), functions=["f"])


def test_a_function_goes_by_its_name():
    module = Module({"main": main(), "f": main()})
    assert refusal(module) == "in @f: the function's own name is 'main'"


def test_parameters_differ():
    twice = Function("main", (X, Var("x", X.type)), (), ())
    assert refusal(twice) == "in @main: two parameters are named x"


def test_one_name_is_one_symbol():
    other = Var("y", tensor("float32", Symbol("N", 2)))
    fault = refusal(Function("main", (X, other), (), ()))
    assert fault == "in @main: two symbols: N in [1, 8], and in [2, ...]"
    inside = binding(dim_less, dim=Symbol("N"), than=3, out=tensor("bool"))
    assert "in @main: two symbols" in refusal(main(inside))


@pytest.mark.parametrize("name", ["", "a b", "float32", "max", "inf", "where", "1"])
def test_symbols_have_names_that_can_be_written(name):
    x = Var("x", tensor("float32", Symbol(name)))
    fault = refusal(Function("main", (x,), (), ()))
    assert fault == f"in @main: {name!r} is no name for a symbol"


def test_variables_are_defined_before_use():
    y = Var("y", X.type)
    line = "%0 = relu(%?y) : float32[N, 4]"
    assert refusal(main(binding(relu, y))) == (
        f"in @main: in {line}: %y: float32[N, 4] is not defined here"
    )
    assert refusal(main(results=(y,))) == "in @main: %y: float32[N, 4] is not defined here"


def test_variables_are_defined_once():
    one = binding(relu, X)
    two = Binding(one.outs, relu, (X,), {})
    assert refusal(main(one, two)).endswith("%y: float32[N, 4] is defined twice")


def test_a_branch_keeps_its_variables(module):
    inner = module.main.body[2].attrs["then"].body[0].out
    leaked = replace(module.main, results=(inner,))
    assert refusal(Module({**module.functions, "main": leaked})).endswith("is not defined here")


def test_a_group_is_closed():
    p = Var("p", X.type)
    body = Function("", (p,), (binding(add, p, X),), ())
    body = replace(body, results=(body.body[0].out,))
    fault = refusal(main(binding(FUSED, X, body=body)))
    assert fault == (
        "in @main: in %0 = fused(%p = %x): in %0 = add(%p, %?x) : float32[N, 4]: "
        "%x: float32[N, 4] is not defined here"
    )


def test_a_group_has_one_result_of_ordinary_ops():
    p = Var("p", X.type)
    two = Function("", (p,), (), (p, p))
    bound = Binding((Var("a", X.type), Var("b", X.type)), FUSED, (X,), {"body": two})
    assert refusal(main(bound)).endswith("the group has 2 results, not 1")
    call = binding(CALL, p, callee="f", types=(p.type,))
    group = binding(FUSED, X, body=Function("", (p,), (call,), call.outs))
    assert refusal(main(group)).endswith("the group holds call")


def test_constants_hold_numbers():
    text = Const(np.array(["a"], dtype=object))
    assert refusal(main(results=(text,))) == "in @main: a constant of dtype object"


def test_attributes_are_the_ops():
    lacking = Binding((Var("y", X.type),), softmax, (X,), {})
    assert refusal(main(lacking)) == "in @main: in softmax: attributes [], the op has ['axis']"
    branch = Binding((), IF, (X,), {"then": main()})
    assert refusal(main(branch)) == (
        "in @main: in if: attributes ['then'], the op has ['orelse', 'then']"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(np.int64(1), "np.int64(1), a int64"), ([1], "[1], a list"), ((1, {}), "(1, {}), a tuple")],
)
def test_attributes_are_plain(value, shown):
    y = Binding((Var("y", X.type),), softmax, (X,), {"axis": value})
    assert refusal(main(y)) == f"in @main: in softmax: attribute axis is {shown}"


def test_types_are_those_inferred():
    wrong = binding(relu, X, out=tensor("float32", 3, 4))
    assert refusal(main(wrong)) == (
        "in @main: in %0 = relu(%x) : float32[3, 4]: typed float32[3, 4], inferred float32[N, 4]"
    )


def test_types_that_do_not_fit_are_refused():
    wrong = binding(add, X, Const(np.ones(3, np.float32)))
    assert refusal(main(wrong)).endswith("extents differ: 4 and 3")


def test_known_values_are_part_of_a_type():
    sizes = parse_function("def @main(%x: float32[N]) { %0 = from_dims(dims=(N, 2)) return }")
    (b,) = sizes.body
    forgot = Binding((Var("y", tensor("int64", 2)),), b.op, b.args, b.attrs)
    fault = refusal(replace(sizes, body=(forgot,)))
    assert fault.endswith("typed int64[2], inferred int64[2] of N, 2")
    known = Var("y", TensorType(np.dtype("int64"), (2,), (Symbol("N"), 2)))
    verify(Module({"main": replace(sizes, body=(Binding((known,), b.op, b.args, b.attrs),))}))


def test_conditions_are_one_truth_value():
    empty = Function("", (), (), ())
    floats = Binding((), IF, (X,), {"then": empty, "orelse": empty})
    assert refusal(main(floats)) == (
        "in @main: in if %x: the condition is float32[N, 4], not bool[]"
    )
    cond = binding(dim_less, dim=N, than=3, out=tensor("bool"))
    taking = Function("", (Var("p", X.type),), (), ())
    branch = Binding((), IF, cond.outs, {"then": taking, "orelse": empty})
    assert refusal(main(cond, branch)).endswith("a branch takes parameters")


def test_branches_agree():
    cond = binding(dim_less, dim=N, than=3, out=tensor("bool"))
    then = Function("", (), (), (X,))
    orelse = Function("", (), (), (Const(np.ones(3, np.int64)),))
    branch = Binding((Var("z", X.type),), IF, cond.outs, {"then": then, "orelse": orelse})
    assert refusal(main(cond, branch)).endswith("dtypes differ: float32[N, 4] and int64[3]")


def test_calls_name_a_function():
    call = binding(CALL, X, callee="f", types=(X.type,))
    assert refusal(Module(Functions({"main": main(call)}))) == (
        "in @main: in %0 = call @f(%x) : float32[N, 4]: no function is named 'f'"
    )


def test_calls_fit():
    call = binding(CALL, X, callee="f", types=(X.type,))
    made = parse_function("def @f(%x: float32[9, 4]) {return %x}")
    refused = refusal(Module(Functions({"main": main(call), "f": made})))
    assert refused.startswith("in @main: in %0 = call @f(%x) : float32[N, 4]: @f takes (float32[9,")


def test_nothing_calls_itself():
    text = """
    def @main() { if bool(True) { call @f() yield } else { yield } return }
    def @f() { call @g() return }
    def @g() { call @f() return }"""
    fault = refusal(parse(text))
    assert re.fullmatch(r"functions call each other in a circle: @(\w) -> @(\w) -> @\1", fault)
    assert refusal(parse("def @main() { call @main() return }")).endswith("@main -> @main")


def test_what_the_builder_makes_is_legal():
    out = Builder()
    y = out.emit(softmax, out.emit(add, X, Const(np.ones(4, np.float32))), axis=1)
    verify(Module({"main": out.function("main", [X], [y])}))
