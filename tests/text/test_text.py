"""The text form: what it looks like, that it comes back, and what bad text is told."""

import builtins
import re

import numpy as np
import pytest
from drawing import modules
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bucketize.errors import ParseError, TypeRelError, UnknownNameError
from bucketize.ir import FUSED, STRUCTURAL, Builder, Clone, Const, Function, Module, Var
from bucketize.op import all_ops
from bucketize.ops import add, relu
from bucketize.ops.dim import from_dims
from bucketize.text import constants, parse, parse_function, parse_type, show, show_binding
from bucketize.text.reader import Reader
from bucketize.types import ANY, Symbol, broadcast, maximum, tensor

N, S = Symbol("N", 1, 32), Symbol("S", 4)

WHOLE = """\
def @main(%x: float32[N, 6], %"b:": bool[]) -> float32[?, ?], float32[] where N in [1, 32], S >= 4 {
  %0 = matmul(%x, const[0]: float32[6, 16]) : float32[N, 16]
  %1 = add(%0, const[1]: float32[16]) : float32[N, 16]
  %2 = softmax(%1, axis=1) : float32[N, 16]
  %3 = reshape(%x, newshape=(2, N, 3)) : float32[2, N, 3]
  %4 = fused @add_relu(%x = %3, %y: float32[?, 1, 1] = float32[2, 1, 1](nan, -inf)) {
    %0 = add(%x, %y) : float32[2, N, 3]
    %1 = relu(%0) : float32[2, N, 3]
    yield %1
  } : float32[2, N, 3]
  %5 = if %"b:" {
    %6 = relu(%2) : float32[N, 16]
    %7 = dim_less(dim=N, than=4) : bool[]
    %8 = if %7 {
      yield %6
    } else {
      yield %2
    } : float32[N, 16]
    yield %8
  } else {
    yield const[2]: float32[32, 3]
  } : float32[?, ?]
  %9, %10 = call @main[N=1](%5) : float32[?, (S - 1)//2 + 1], float32[?, 1]
  %11 = no_bucket(sizes=(N,), buckets='N in [1, 4)') : float32[N]
  %12 = cast(float32[2](0.1, -0.0), dtype='float64') : float64[2]
  return %5, float32(2.5)
}

def @main[N=1](%x: float32[1, 16]) -> float32[1, 16], float32[1, 1] {
  %0 = matmul(const[3]: float32[1, 9], const[4]: float32[9, 1]) : float32[1, 1]
  %1 = add(%0, float32[0, 1]()) : float32[0, 1]
  return %x, %0
}"""


def test_what_it_looks_like():
    table = [np.zeros(s, np.float32) for s in ((6, 16), (16,), (32, 3), (1, 9), (9, 1))]
    module = parse(WHOLE, table)
    assert show(module) == WHOLE
    for mine, theirs in zip(constants(module), table, strict=True):
        assert mine is theirs


def test_types_may_be_left_out():
    bare = re.sub(r"\) : [^\n]*", ")", re.sub(r" -> .*(?= where)", "", FUNCTION))
    assert bare != FUNCTION
    assert show(parse_function(bare)) == FUNCTION


FUNCTION = """\
def @f(%x: float32[N, 4]) -> float32[N, 4] where N in [1, 32] {
  %0 = relu(%x) : float32[N, 4]
  %1 = softmax(%0, axis=0) : float32[N, 4]
  return %1
}"""


def test_some_functions_of_a_module():
    module = Module(
        {"main": parse_function(FUNCTION), "f": lambda name: pytest.fail("not asked for")}
    )
    assert show(module, ["main"]) == FUNCTION
    assert constants(module, functions=["main"]) == []
    with pytest.raises(UnknownNameError, match="no function named 'g'; known: f, main"):
        show(module, ["g"])


CLONES = [
    (Clone({}), "clone(bucket)"),
    (Clone({"N": (2, 4), "H": (1, None)}), "clone(bucket N=2..3 H=1..)"),
    (
        Clone({"N": (1, 9)}, "pad", {"N": 3}, 2.5, "big"),
        "clone(bucket N=1..8, policy pad, opt N=3, weight 2.5, label big)",
    ),
    (
        Clone({"batch size": (0, 1), 'é"': (1, None), "opt": (2, 3)}, opt={}, label="where {"),
        r'clone(bucket "batch size"=0 "\u00e9\""=1.. opt=2, opt, label "where {")',
    ),
    (
        Clone({"where": (0, 1), "x.1": (3, 4)}, opt={"2": 2}, weight=1e-7, label="a]b:c"),
        'clone(bucket "where"=0 x.1=3, opt "2"=2, weight 1e-07, label "a]b:c")',
    ),
]


@pytest.mark.parametrize(("clone", "clause"), CLONES)
@pytest.mark.parametrize(
    "fn", ["def @f(%x: float32[N]) where N in [1, 3] { return %x }", "def @f() { return }"]
)
def test_a_clone_says_what_it_serves(clone, clause, fn):
    again = round_trip(Module({"f": parse_function(fn)}, {"f": clone}))
    assert again.clones == {"f": clone}
    assert f" {clause} {{" in show(again)
    assert "clone" not in show(again.function("f"))


def test_constants_are_shared_by_identity():
    table = np.zeros((3, 3), np.float32)
    x = Var("x", tensor("float32", 3, 3))
    out = Builder()
    y = out.emit(add, out.emit(add, x, Const(table)), Const(table))
    fn = out.function("main", [x], [y])
    assert constants(fn) == [table] or len(constants(fn)) == 1
    new = parse_function(show(fn), constants(fn))
    assert new.body[0].args[1] is new.body[1].args[1]
    assert new.body[0].args[1].value is table


def test_names_that_need_quotes_or_meet():
    odd = [
        Var(n, tensor("float32", 2)) for n in ("x", "x", "x.1", "0", 'a "b"', "input.1", "é", "")
    ]
    fn = Function("f: 1", tuple(odd), (), (odd[1], odd[3]))
    text = show(fn)
    assert text.startswith('def @"f: 1"(%x: float32[2], %x.1: float32[2], %x.1.1: float32[2], ')
    assert '%"0": float32[2], %"a \\"b\\"": float32[2], %input.1: float32[2], %é: float' in text
    assert show(parse_function(text)) == text
    assert [p.name for p in parse_function(text).params[3:]] == ["0", 'a "b"', "input.1", "é", ""]


def test_a_group_states_the_bounds_that_differ():
    inner, outer = Builder(), Builder()
    wide = Var("p", tensor("float32", Symbol("N", 2), S))
    x = Var("x", tensor("float32", N, S))
    body = inner.function("", [wide], [inner.emit(relu, wide)])
    fn = outer.function("f", [x], [outer.emit(FUSED, x, body=body)])
    head = show(fn).split("\n")[1]
    assert head == "  %0 = fused(%p: float32[N, S] = %x) where N >= 2 {"
    again = parse_function(show(fn))
    assert show(again) == show(fn)
    assert again.body[0].attrs["body"].symbols() == {"N": Symbol("N", 2), "S": S}


def test_a_binding_alone():
    module = parse(
        WHOLE, [np.zeros(s, np.float32) for s in ((6, 16), (16,), (32, 3), (1, 9), (9, 1))]
    )
    fn = module.main
    lines = {f"  {show_binding(fn, b)}" for b in fn.body}
    assert lines <= {line.removesuffix(" {") for line in WHOLE.split("\n")}
    branch = fn.body[5].attrs["then"]
    assert show_binding(fn, branch.body[0]) == "%6 = relu(%2) : float32[N, 16]"


def test_a_free_variable_shows_as_one():
    fn = Function("f", (), (), (Var("x", tensor("float32")),))
    assert show(fn) == "def @f() -> float32[] {\n  return %?x\n}"


def test_no_results():
    fn = Function("f", (), (), ())
    assert show(fn) == "def @f() {\n  return\n}"
    assert show(parse_function(show(fn))) == show(fn)


def test_comments_are_skipped():
    assert show(parse_function(FUNCTION.replace("{", "{ # a group: {"))) == FUNCTION


@pytest.mark.parametrize(
    "dim", [3, N, ANY, (N - 1) // 2 + 1, broadcast(N, Symbol("M", 0)), maximum(N, S) % 7, -N + 40]
)
def test_a_type_comes_back(dim):
    bounds = {"N": N, "S": S, "M": Symbol("M", 0)}
    type_ = tensor("float32", dim, 2)
    assert parse_type(str(type_), bounds) == type_


# --- the law -----------------------------------------------------------------------------------


def round_trip(what):
    text, table = show(what), constants(what)
    again = parse(text, table)
    assert show(again) == text
    assert len(constants(again)) == len(table)
    return again


dtypes = st.sampled_from(
    ["float16", "float32", "float64", "int8", "int32", "int64", "uint64", "bool"]
)
shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)


@given(st.tuples(dtypes, shapes).flatmap(lambda ds: arrays.arrays(*ds)))
def test_constants_come_back_to_the_bit(array):
    fn = Function("main", (), (), (Const(array),))
    again = round_trip(Module({"main": fn})).main.results[0].value
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(again, array)
    if array.dtype.kind == "f":  # 0.0 is not -0.0, but one nan is as good as another
        signs = (np.signbit(a[~np.isnan(a)]) for a in (again, array))
        np.testing.assert_array_equal(*signs)


@given(st.integers(0, 2**32 - 1))
def test_every_float32_comes_back(bits):
    array = np.array(bits, np.uint32).view(np.float32)
    again = round_trip(Module({"main": Function("main", (), (), (Const(array),))}))
    np.testing.assert_array_equal(again.main.results[0].value, array)


class Names(dict):
    """Every name is a symbol, but Python's own."""

    def __missing__(self, name):
        if hasattr(builtins, name):
            raise KeyError(name)
        return Symbol(name)


ARGUMENT = re.compile(r"(\w+\[[^]]*\])(?: in \[[^)]*\)| = (\([^)]*\)|[^,{]+))?,? ?")


def emit_example(op, text, out):
    """The parameters and the result of a binding of `op` by one of its examples."""
    arguments, _, attrs = text.strip().partition("{")
    params, args = [], []
    for type_text, value in ARGUMENT.findall(arguments):
        type_ = parse_type(type_text)
        known = eval(value, {}, Names()) if value and "range" not in value else None
        if known is None or len(type_.shape) > 1:
            params.append(Var(f"x{len(params)}", type_))
            args.append(params[-1])
        else:
            dims = known if isinstance(known, tuple) else (known,)
            args.append(out.emit(from_dims, dims=dims, scalar=not type_.shape))
    return params, out.emit_all(op, *args, **eval(f"dict({attrs.rstrip('}')})", {}, Names()))


CASES = [
    pytest.param(op, text, id=f"{op.name}-{text.strip()}")
    for op in all_ops().values()
    if op not in STRUCTURAL and op.relation is None
    for text in op.example.split(";")
]


@pytest.mark.parametrize(("op", "text"), CASES)
def test_every_op_comes_back(op, text):
    out = Builder()
    params, made = emit_example(op, text, out)
    new = round_trip(Module({"main": out.function("main", params, made)})).main.body[-1]
    assert new.op is op
    assert new.attrs == out.body[-1].attrs
    assert [v.type for v in new.outs] == [v.type for v in made]


@given(modules())
def test_every_module_comes_back(module):
    round_trip(module)


# --- errors ------------------------------------------------------------------------------------


def wrong(old, new):
    assert old in FUNCTION
    return FUNCTION.replace(old, new)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (wrong("relu(%x)", "relu(%y)"), "%y is not defined; known: %x, line 2:13"),
        (wrong("(%x)", "(%x"), "expected ')', got ':', line 2:16"),
        (wrong("%1 = ", "%0 = "), "%0 is defined twice, line 4:3"),
        (wrong("%1 = ", ""), "expected 1 variables, got 0, line 3:3"),
        (wrong("%1 = ", "%1, %2 = "), "expected 1 variables, got 2, line 3:12"),
        (
            wrong("N, 4] where", "N, 3] where"),
            "written float32[N, 3], inferred float32[N, 4], line 1:27",
        ),
        (
            wrong("%x: float32[N, 4]", "%x: float32[N, 5]"),
            "written float32[N, 4], inferred float32[N, 5], line 2:8",
        ),
        (
            wrong("%x: float32", "%x: float31"),
            "expected a dtype, got 'float31'; known: bool, int8, ",
        ),
        (wrong("axis=0", "axis=$"), "no token begins with '$', line 3:25"),
        (wrong("axis=0", "axis="), "expected a value, got ')', line 3:25"),
        (wrong("axis=0", "axis=1 + 'a'"), "expected an extent, got 'a', line 3:29"),
        (wrong("axis=0", "axis=N//0"), "N divided by 0: a divisor of dims is positive, line 3:28"),
        (
            wrong("axis=0", "axis=N//-2"),
            "N divided by -2: a divisor of dims is positive, line 3:28",
        ),
        (
            wrong("axis=0", "axis=N % -2"),
            "N divided by -2: a divisor of dims is positive, line 3:29",
        ),
        (wrong("[1, 32]", "[1, S]"), "expected an integer, got S, line 1:59"),
        (wrong("[1, 32]", "(1, 32)"), "expected '[', got '(', line 1:55"),
        (wrong("%x: float32[N, 4]", "%x: float32['a']"), "expected an extent, got 'a', line 1:20"),
        (wrong("return %1\n}", "return %1"), "expected '}', got the end, line 4:12"),
        (wrong("return %1\n", ""), "expected a name, got '}', line 4:3"),
        (wrong("def @f", "@f"), "expected 'def', got '@f', line 1:1"),
        (wrong("@f", "f"), "expected a function, got 'f', line 1:5"),
        (wrong("return %1", "return const[0]"), "const[0] of a table of 1 constants, line 4:10"),
        (wrong("return %1", "return float32[2](1.0)"), "1 elements for float32[2], line 4:10"),
        (wrong("return %1", "return int8(300)"), "elements that are no int8 ("),
        (FUNCTION + FUNCTION, "function 'f' is defined twice, line 5:2"),
        (
            wrong("32] {", "32] clone(size 3) {"),
            "a clone has no 'size'; known: bucket, policy, opt, weight, label, line 1:69",
        ),
        (wrong("32] {", "32] clone(opt, opt) {"), "the clone's opt is given twice, line 1:74"),
        (wrong("32] {", "32] clone(opt N=1 N=2) {"), "N is given twice, line 1:77"),
        (wrong("32] {", "32] clone(bucket N=7..2) {"), "no sizes are 7..2: they begin at 0 or"),
        (wrong("32] {", "32] clone(bucket N=-1) {"), "no sizes are -1: they begin at 0 or above"),
        (wrong("32] {", "32] clone(bucket N=-1..) {"), "no sizes are -1..: they begin at 0"),
        (wrong("32] {", "32] clone(bucket N=) {"), "expected a value, got ')', line 1:78"),
        (wrong("32] {", "32] clone(weight N) {"), "expected a number, got Symbol("),
        (wrong("32] {", "32] clone(label 3) {"), "expected a string, got '3', line 1:75"),
        (wrong("32] {", "32] clone(label 'a') {"), "a string that is no JSON (Expecting value"),
    ],
)
def test_bad_text(text, message):
    table = [] if "of a table" in message else [np.zeros(9)]
    with pytest.raises(ParseError) as e:
        parse(text, table)
    assert str(e.value).startswith(message.replace("of 1 constants", "of 0 constants"))


def test_an_error_points_at_its_place():
    with pytest.raises(ParseError) as e:
        parse(wrong("axis=0", "axis=0 1"))
    assert str(e.value) == (
        "expected ')', got '1', line 3:27\n"
        "  %1 = softmax(%0, axis=0 1) : float32[N, 4]\n"
        "                          ^"
    )


def test_a_constant_must_have_its_type():
    text = "def @f() { return const[0]: float32[9] }"
    with pytest.raises(ParseError, match=re.escape("written float32[9], inferred float64[9]")):
        parse(text, [np.zeros(9)])


def test_errors_of_inference_keep_their_kind_and_tell_the_place():
    with pytest.raises(UnknownNameError, match="no operator named 'relo'") as e:
        parse(wrong("relu", "relo"))
    place = "at line 2:8\n  %0 = relo(%x) : float32[N, 4]\n       ^"
    assert e.value.notes == (place,)
    with pytest.raises(TypeRelError, match="extents differ: 4 and 3") as e:
        parse(wrong("relu(%x)", "add(%x, float32[3](1, 2, 3))"))
    assert e.value.notes[-1].startswith("at line 2:8")


def test_a_shape_that_is_read_again_has_the_bounds_in_force():
    reader = Reader("float32[N + 1, 3] float32[N + 1, 3] int8[N + 1, 3] float32[N + 1, 4]")
    for bounds in ({}, {"N": Symbol("N", 2, 8)}):
        reader.bounds, reader.at = bounds, 0
        types = [reader.type() for _ in range(4)]
        n = bounds.get("N", Symbol("N"))
        assert types[0] == types[1] == tensor("float32", n + 1, 3)
        assert types[2:] == [tensor("int8", n + 1, 3), tensor("float32", n + 1, 4)]
        reader.kind("end")


def test_a_bracket_in_a_comment_ends_no_shape():
    reader = Reader("float32[N, # a ]\n 3] float32[N, # a ]\n 4, 5]")
    n = Symbol("N")
    assert [reader.type(), reader.type()] == [tensor("float32", n, 3), tensor("float32", n, 4, 5)]
    reader.kind("end")


def test_one_function_is_expected():
    with pytest.raises(ParseError, match="expected the end, got 'def', line 6:1"):
        parse_function(f"{FUNCTION}\n{FUNCTION}")
