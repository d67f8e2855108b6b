"""Dims and types: random expressions against Python's own arithmetic, and the lattice's laws."""

import contextlib
import functools
import itertools
import math
import operator
import pickle

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bucketize.errors import TypeRelError
from bucketize.text import parse_type
from bucketize.types import (
    ANY,
    FUNCTIONS,
    Symbol,
    TensorType,
    assumptions,
    bounds,
    broadcast,
    broadcast_shapes,
    ceil_div,
    evaluate,
    extremes,
    join,
    join_types,
    maximum,
    meet,
    meet_types,
    minimum,
    positive,
    product,
    rely_on_least,
    show_interval,
    substitute,
    symbols,
    tensor,
    total,
)

N, M, K = Symbol("N", 1), Symbol("M", 2, 9), Symbol("K", 0, 4)
INF = math.inf
SYMBOLS = {s.name: s for s in (N, M, K)}
BINARY = {"-": operator.sub} | {name: f.value for name, f in FUNCTIONS.items()}

leaves = st.sampled_from("NMK") | st.integers(-4, 9)
divisors = st.integers(1, 6) | st.sampled_from(
    ["N", "M", ("+", "K", 1), ("*", 2, "M"), ("//", "M", 2)]
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner),
        st.tuples(st.sampled_from(["//", "%"]), inner, divisors),
    ),
    max_leaves=6,
)
values = st.fixed_dictionaries(
    {"N": st.integers(1, 40), "M": st.integers(2, 9), "K": st.integers(0, 4)}
)
dims = st.sampled_from([1, 2, 3, 7, N, M, N + 1, (N - 1) // 2 + 1, ANY])


def build(tree, leaf):
    """The value of a tree whose symbols are `leaf`'s entries."""
    if isinstance(tree, tuple):
        fn, a, b = tree
        return BINARY[fn](build(a, leaf), build(b, leaf))
    return leaf[tree] if isinstance(tree, str) else tree


def python(tree, env):
    """The value of a tree of integers, without a line of ours."""
    if not isinstance(tree, tuple):
        return env.get(tree, tree)
    fn, a, b = tree[0], python(tree[1], env), python(tree[2], env)
    return eval(f"{fn}({a}, {b})" if fn.isalpha() else f"({a}) {fn} ({b})")


@given(trees, values)
def test_an_expression_evaluates_as_python_does(tree, env):
    assert evaluate(build(tree, SYMBOLS), env) == python(tree, env)


@given(trees, values)
def test_bounds_contain_every_evaluation(tree, env):
    dim = build(tree, SYMBOLS)
    (lo, hi), value = bounds(dim), evaluate(dim, env)
    assert value < 0 or (lo <= value and (hi is None or value <= hi))


signed = st.recursive(
    st.one_of(leaves, st.integers(-9, 9)),
    lambda inner: st.tuples(
        st.sampled_from(["+", "-", "*", "min", "max", "//", "%"]), inner, inner
    ),
    max_leaves=6,
)


@given(signed, values)
def test_divisors_of_any_sign_are_refused_or_divide_as_in_python(tree, env):
    """Where all are positive, there is a value; where one is not, rules for such are not asked."""
    are_positive = all(b > 0 for b in divisors_of(tree, env))
    with contextlib.nullcontext() if are_positive else contextlib.suppress(TypeRelError):
        dim = build(tree, SYMBOLS)
        value, (lo, hi) = evaluate(dim, env), extremes(dim)
        if are_positive:
            assert lo <= value <= hi
            assert value == python(tree, env)


def divisors_of(tree, env):
    """What is divided by in a tree, 0 where that is no number."""
    if not isinstance(tree, tuple):
        return []
    below = [b for t in tree[1:] for b in divisors_of(t, env)]
    if tree[0] not in ("//", "%") or 0 in below:
        return below
    return [*below, python(tree[2], env)]


@given(trees, values, st.sampled_from([N, M, 2 * M - 1, (N + 1) // 2, 5]))
def test_substitution_commutes_with_evaluation(tree, env, replacement):
    dim = build(tree, SYMBOLS)
    inner = evaluate(substitute(dim, {"N": replacement}), env)
    assert inner == evaluate(dim, {**env, "N": evaluate(replacement, env)})


@given(trees, st.integers(1, 40), values)
def test_symbols_may_become_known_one_at_a_time(tree, n, env):
    dim = build(tree, SYMBOLS)
    assert evaluate(substitute(dim, {"N": n}), env) == evaluate(dim, {**env, "N": n})
    assert N not in symbols(substitute(dim, {"N": n}))


@given(trees)
def test_text_parses_back(tree):
    dim = build(tree, SYMBOLS)
    assert parse_type(f"int64[{dim}]", SYMBOLS).shape == (dim,)


@given(trees, trees, trees)
def test_equal_polynomials_are_one_object_in_a_set(a, b, c):
    x, y, z = (build(t, SYMBOLS) for t in (a, b, c))
    for left, right in (
        ((x + y) + z, z + (y + x)),
        ((x * y) * z, z * (y * x)),
        (x * (y + z), x * z + x * y),
        (x - y, -(y - x)),
        ((x + y) - y, x),
    ):
        assert left == right
        assert hash(left) == hash(right)
        assert str(left) == str(right)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (lambda: (N + 2 * 3 - 7) // 2 + 1, "(N - 1)//2 + 1"),
        (lambda: 2 * N // 2, "N"),
        (lambda: (2 * N + 1) // 2, "N"),
        (lambda: (N * M + M) // M, "N + 1"),
        (lambda: N // 2 // 3, "N//6"),
        (lambda: M // (N // (M + 1)), "M//(N//(M + 1))"),
        (lambda: 3 - N, "-N + 3"),
        (lambda: N * N * M - 2 * N, "M*N*N - 2*N"),
        (lambda: -(-N // 4), "-((-N)//4)"),
        (lambda: (N + 1) % 2, "(N + 1) % 2"),
        (lambda: (4 * N) % 2, "0"),
        (lambda: 2 * (N // 2) * M, "2*M*(N//2)"),
        (lambda: maximum(N, M), "max(N, M)"),
        (lambda: minimum(N, 0), "0"),
        (lambda: maximum(N - 3, 1) // 2, "max(N - 3, 1)//2"),
        (lambda: broadcast(N, K), "broadcast(K, N)"),
        (
            lambda: broadcast(broadcast(K + 1, N), broadcast(N, K)),
            "broadcast(broadcast(K, K + 1), N)",
        ),
        (lambda: broadcast(broadcast(K, N), broadcast(N, K)), "broadcast(K, N)"),
        (lambda: ANY * 2 + N, "?"),
        (lambda: ANY * 0, "0"),
        (lambda: N - N, "0"),
        (lambda: -1 // M + -1 // N, "(-1)//M + (-1)//N"),
        (lambda: 7 // N, "7//N"),
        (lambda: 7 % N, "7 % N"),
        (lambda: M // 10, "0"),
        (lambda: M % 10, "M"),
        (lambda: 0 // (N + M), "0//(M + N)"),
        (lambda: (N + M) // (N + M), "1"),
        (lambda: (N // 2 + 3) // 4, "(N + 6)//8"),
        (lambda: (M // 2 + N) // 3, "(M//2 + N)//3"),
        (lambda: K // 4, "K//4"),
        (lambda: K // 5, "0"),
        (lambda: N % 3 * M, "M*(N % 3)"),
        (lambda: (N + 1) * (N - 1), "N*N - 1"),
        (lambda: (N + 1) * (N + 1), "N*N + 2*N + 1"),
        (lambda: minimum(N, M) // 2, "min(N, M)//2"),
        (lambda: broadcast(N, K) // 2, "broadcast(K, N)//2"),
        (lambda: minimum(N, 1), "1"),
        (lambda: maximum(N, 1), "N"),
        (lambda: minimum(K, 4), "K"),
        (lambda: maximum(K, 4), "4"),
        (lambda: minimum(K, 3), "min(K, 3)"),
        (lambda: maximum(ANY, 3), "?"),
        (lambda: minimum(3, ANY), "?"),
        (lambda: minimum(ANY, 3), "?"),
        (lambda: maximum(3, ANY), "?"),
    ],
)
def test_canonical_text(dim, text):
    assert str(dim()) == text  # built here, not when the module is read


def test_text_of_what_nests_reads_each_atom_once(monkeypatch):
    dim, read = N, []
    for _ in range(12):
        dim = (dim + 1) // 2
        dim = maximum(dim, K)
    monkeypatch.setattr(Symbol, "__str__", lambda s: read.append(s) or s.name)
    assert str(dim).count("N") + str(dim).count("K") == len(read) / 2


@given(st.lists(st.sampled_from([0, 3, -3, N, M, N * M, -N, N // 2, ANY]), max_size=6))
def test_a_total_is_the_sum(dims):
    assert total(dims) == functools.reduce(operator.add, dims, 0)


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (lambda: N, (1, None)),
        (lambda: M * M - 1, (3, 80)),
        (lambda: 2 * M + K, (4, 22)),
        (lambda: M // 2, (1, 4)),
        (lambda: N // M, (0, None)),
        (lambda: ANY, (0, None)),
        (lambda: 3 - N, (0, 2)),
        (lambda: K * (-N // 4), (0, 0)),
        (lambda: N // Symbol("Z", 0, 0), (1, None)),  # it has no value, and no bounds that matter
        (lambda: minimum(N, M), (1, 9)),
        (lambda: N % M, (0, 8)),
        (lambda: 7, (7, 7)),
        (lambda: Symbol("A", 0, 2**60) * 3, (0, 3 * 2**60)),
    ],
)
def test_bounds(dim, expected):
    assert bounds(dim()) == expected


SMALL = range(-5, 6)


@pytest.mark.parametrize("fn", ["+", "*", "//", "min", "max"])
def test_spans_are_no_wider_than_they_must_be(fn):
    function = FUNCTIONS[fn]
    spans = itertools.combinations_with_replacement(SMALL, 2)
    for a, b in itertools.product(spans, [(0, 1), (0, 3), (1, 1), (1, 4), (2, 3)]):
        firsts, seconds = range(a[0], a[1] + 1), range(b[0] or fn == "//", b[1] + 1)
        found = [function.value(x, y) for x in firsts for y in seconds]
        assert function.span(a, b) == (min(found), max(found)), (a, b)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_native_code_of_a_function_says_what_its_value_is(function):
    known = {"least": min, "greatest": max}  # of words
    for a, b in itertools.product(range(-5, 6), repeat=2):
        if eval(function.fault, {"a": a, "b": b}):
            with pytest.raises(TypeRelError):
                function.value(a, b)
        else:
            assert eval(function.code, {"a": a, "b": b, **known}) == function.value(a, b)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_the_value_of_a_function_grows_with_the_arguments_that_it_names(function):
    for a, b in itertools.product(range(1, 6), repeat=2):
        for args, more in (((a, b), (a + 1, b)), ((a, b), (a, b + 1))):
            at = 0 if args[0] != more[0] else 1
            legal = not any(
                eval(function.fault, dict(zip("ab", x, strict=True))) for x in (args, more)
            )
            if at in function.grows and legal:
                assert function.value(*args) <= function.value(*more)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((-INF, INF), (1, INF), (-INF, INF)),
        ((1, INF), (2, INF), (0, INF)),
        ((-7, -3), (2, INF), (-4, -1)),
        ((7, 9), (2, INF), (0, 4)),
    ],
)
def test_spans_of_quotients_without_end(a, b, expected):
    assert FUNCTIONS["//"].span(a, b) == expected


def test_ceiling_division_keeps_its_rest():
    assert [evaluate(-(-N // 4), {"N": n}) for n in (1, 4, 5)] == [1, 1, 2]


def test_a_pickle_has_no_hash_of_the_process_that_made_it():
    """Hashes of names differ from process to process."""
    dim = (N + 1) // 2
    ((term,), _), *_ = dim.terms
    for each in (dim, term):
        there = pickle.loads(pickle.dumps(each))
        object.__setattr__(there, "_hash", hash(there) + 1)  # as another process has it
        here = pickle.loads(pickle.dumps(there))
        assert (here, hash(here)) == (each, hash(each))


def test_the_unknown_extent_is_itself_out_of_a_pickle():
    assert pickle.loads(pickle.dumps((ANY, N))) == (ANY, N)
    assert pickle.loads(pickle.dumps(ANY)) is ANY


def test_evaluating_names_what_is_unknown():
    with pytest.raises(TypeRelError, match=r"M \+ N is not known: M \+ 2 remains under \{'N': 2\}"):
        evaluate(N + M, {"N": 2})


@pytest.mark.parametrize("divide", [operator.floordiv, operator.mod])
def test_division_by_a_negative_number(divide):
    """Written or found out when sizes are put in; bounds would be wrong."""
    for by in (-1, -2):
        with pytest.raises(TypeRelError, match=f"N divided by {by}: a divisor of dims is positive"):
            divide(N, by)
    with pytest.raises(TypeRelError, match="5 divided by -2: a divisor of dims is positive"):
        evaluate(divide(N, K - 4), {"N": 5, "K": 2})


@pytest.mark.parametrize("divide", [operator.floordiv, operator.mod])
def test_division_by_zero(divide):
    """Written or found out when sizes are put in, where all is integers by then."""
    with pytest.raises(TypeRelError, match="N divided by 0"):
        divide(N, 0)
    for sizes in ({"N": 5, "K": 0}, {"N": N, "K": 0}):
        with pytest.raises(TypeRelError, match=r"(5|N) divided by 0"):
            substitute(divide(N, K), sizes)
    with pytest.raises(TypeRelError, match="5 divided by 0"):
        evaluate(divide(N, K), {"N": 5, "K": 0})


# --- meet and join -----------------------------------------------------------------------------


@given(dims, dims)
def test_meet_and_join_are_commutative_up_to_equality_at_run_time(a, b):
    assert join(a, b) == join(b, a)
    assume((a, b) not in {(1, N + 1), (N + 1, 1)})  # N >= 1
    try:
        both = meet(a, b), meet(b, a)
    except TypeRelError:
        with pytest.raises(TypeRelError):
            meet(b, a)
    else:
        kinds = {type(d) for d in both}
        assert len(kinds) == 1
        assert both[0] in (a, b)


@given(dims)
def test_meet_and_join_are_idempotent(a):
    assert meet(a, a) == join(a, a) == a


@given(dims)
def test_any_is_the_unit_of_meet_and_the_top_of_join(a):
    assert meet(ANY, a) == meet(a, ANY) == a
    assert join(ANY, a) == join(a, ANY) == ANY


@given(dims, dims)
def test_join_widens(a, b):
    assert meet(join(a, b), a) == a
    assert meet(join(a, b), b) == b


def test_meet_says_more():
    assert meet(ANY, 3) == 3
    assert meet(N, 3) == meet(3, N) == 3
    assert meet(K, 4) == 4
    assert meet(K, 0) == 0
    assert meet(N + 1, M) == M


@pytest.mark.parametrize(("a", "b"), [(2, 3), (M, 1), (12, M), (N + 1, N), (2 * N + 4, 3)])
def test_extents_that_cannot_be_equal(a, b):
    with pytest.raises(TypeRelError) as e:
        meet(a, b)
    assert str(e.value) == f"extents differ: {a} and {b}"


def test_types_meet_and_join():
    a, b = tensor("float32", ANY, 3, N), tensor("float32", 2, 3, M)
    assert meet_types(a, b) == tensor("float32", 2, 3, N)
    assert join_types(a, b) == tensor("float32", ANY, 3, ANY)
    known = TensorType(np.dtype("int64"), (2,), (N, 3))
    assert join_types(known, known).value == (N, 3)
    assert join_types(known, tensor("int64", 2)).value is None


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (tensor("float32", N), tensor("int64", N), "dtypes differ: float32[N] and int64[N]"),
        (tensor("float32", N), tensor("int64"), "dtypes differ: float32[N] and int64[]"),
    ],
)
def test_types_that_do_not_fit(a, b, message):
    for combine in (meet_types, join_types):
        with pytest.raises(TypeRelError) as e:
            combine(a, b)
        assert str(e.value) == message


@pytest.mark.parametrize(
    ("interval", "shown"),
    [((3, 4), "3"), ((0, 1), "0"), ((2, 4), "2..3"), ((1, 33), "1..32"), ((256, None), "256..")],
)
def test_an_interval_is_shown_with_both_ends(interval, shown):
    assert show_interval(interval) == shown


# --- broadcasting ------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), [*itertools.product(range(5), repeat=2)])
def test_broadcast_is_numpys(a, b):
    if a == b or 1 in (a, b):
        (expected,) = np.broadcast_shapes((a,), (b,))
        assert broadcast(a, b) == expected
        both = broadcast(Symbol("A", 0), Symbol("B", 0))
        assert evaluate(both, {"A": a, "B": b}) == expected
        assert evaluate(broadcast(Symbol("A", 0), b), {"A": a}) == expected
    else:
        with pytest.raises(TypeRelError, match=f"extents differ: {a} and {b}"):
            broadcast(a, b)


@given(dims, dims, values)
def test_broadcast_is_sound(a, b, env):
    assume(ANY not in (a, b))
    sizes = evaluate(a, env), evaluate(b, env)
    assume(sizes[0] == sizes[1] or 1 in sizes)
    assert evaluate(broadcast(a, b), env) == max(sizes)


def test_positions_out_of_a_table_broadcast_with_their_whole():
    """`min(S, 512)` and `S` agree where `S` is 512 at most, which is checked at run time."""
    length = Symbol("S", 0)
    cut = minimum(length, 512)
    for pair in ((length, cut), (cut, length)):
        with assumptions() as noted:
            assert broadcast(*pair) == length
        assert noted == [(">=", 512, length)]
    with assumptions() as noted:
        assert broadcast(Symbol("S", 1, 512), minimum(Symbol("S", 1, 512), 512))
    assert not noted
    assert "broadcast" in str(broadcast(length, minimum(length, 1)))  # S = 7 and 1 do broadcast


def test_broadcast_decides_what_it_can():
    assert broadcast(ANY, 3) == broadcast(3, ANY) == 3
    assert broadcast(ANY, 1) == ANY
    assert broadcast(ANY, N) == ANY
    assert broadcast(N, 1) == broadcast(N, N) == N
    assert broadcast(N, M) == M  # M > 1
    with pytest.raises(TypeRelError, match="extents differ: -1 and -2"):
        broadcast(-1, -2)  # of windows that do not fit
    assert str(broadcast(N, K)) == str(broadcast(K, N)) == "broadcast(K, N)"


@pytest.mark.parametrize(
    ("narrower", "expected"),
    [
        ({"A": M}, "broadcast(M, B)"),  # M > 1, but B is M or 1 only if a run says so
        ({"B": M}, "broadcast(A, M)"),
        ({"A": M, "B": N + 1}, "broadcast(M, N + 1)"),
        ({"A": M, "B": 1}, "M"),
        ({"A": 1}, "B"),
        ({"A": N, "B": N}, "N"),
    ],
)
def test_what_was_broadcast_under_narrower_bounds(narrower, expected):
    both = broadcast(Symbol("A", 0), Symbol("B", 0))
    with assumptions() as made:
        assert str(substitute(both, narrower)) == expected
    assert made == []  # noted where it was broadcast first


def test_what_was_broadcast_of_extents_that_differ_is_an_error():
    both = broadcast(Symbol("A", 0), Symbol("B", 0))
    with pytest.raises(TypeRelError, match="extents differ: M and M \\+ 1"):
        substitute(both, {"A": M, "B": M + 1})


def test_shapes_broadcast_from_the_right():
    assert broadcast_shapes((N, 1, 3), (4, 1), ()) == (N, 4, 3)
    assert broadcast_shapes() == ()


def test_product():
    assert product((N, 3, M)) == 3 * N * M
    assert product(()) == 1


# --- what is left to run time ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("combine", "expected"),
    [
        (lambda: meet(N, N), []),
        (lambda: meet(N, ANY), []),
        (lambda: meet(N, 3), [("==", N, 3)]),
        (lambda: meet(N, M), [("==", N, M)]),
        (lambda: broadcast(N, M), [("broadcast", M, N)]),
        (lambda: broadcast(0, N), [("broadcast", 0, N)]),
        (lambda: broadcast(M, ANY), []),
        (lambda: broadcast(N, K), []),
        (lambda: broadcast(M, M + 1 - N), [("broadcast", M, M + 1 - N)]),
        (lambda: broadcast(M, N + 1), [("==", M, N + 1)]),
        (lambda: rely_on_least(N, 1), []),
        (lambda: rely_on_least(N, 2), [(">=", N, 2)]),
        (lambda: rely_on_least(M, N), [(">=", M, N)]),
    ],
)
def test_what_is_relied_on_is_noted(combine, expected):
    with assumptions() as made:
        combine()
    assert made == expected
    combine()  # nobody listens
    assert made == expected


@given(st.integers(0, 40), st.integers(1, 9))
def test_ceil_div_and_positive_are_those_of_integers(a, b):
    assert ceil_div(a, b) == -(-a // b)
    assert evaluate(ceil_div(N, b), {"N": a}) == -(-a // b)
    assert evaluate(positive(K), {"K": a}) == positive(a) == (a > 0)


# --- types -------------------------------------------------------------------------------------


def test_a_type_prints_as_it_is_written():
    assert str(tensor("float32", N, ANY, (N - 1) // 2)) == "float32[N, ?, (N - 1)//2]"
    assert str(tensor("bool")) == "bool[]"


def test_a_type_knows_its_symbols():
    t = TensorType(np.dtype("int64"), (N * M, maximum(K, N - 9)), (N,))
    assert t.symbols() == {N, M, K}
    assert not t.is_static
    new = t.substitute({"N": 2, "M": 3, "K": 4})
    assert new == TensorType(np.dtype("int64"), (6, 4), (2,))
    assert new.is_static
