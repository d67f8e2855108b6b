"""The dispatch transform: clones, trees, validation, and that nothing lands in a wrong bucket."""

from __future__ import annotations

import gc
import re
from math import ceil, log2
from typing import Any

import numpy as np
import pytest

from bucketize import ops
from bucketize.dispatch.bucket import clip, show_bucket
from bucketize.dispatch.tree import dispatch, name_dims
from bucketize.errors import (
    BucketizeError,
    DispatchError,
    NoBucketError,
    PaddingError,
    ParseError,
    UnknownNameError,
)
from bucketize.interpret import evaluate_module
from bucketize.ir import (
    CALL,
    IF,
    Builder,
    Clone,
    Const,
    Function,
    Gap,
    Leaf,
    Module,
    Side,
    Var,
    decisions,
    specialise,
)
from bucketize.text import parse, show
from bucketize.types import ANY, Dim, Interval, Profile, Symbol, tensor
from bucketize.verify import verify
from dispatchers import log_dispatcher


def module(*dims: Dim) -> Module:
    """`relu(data) + 1` over these dims."""
    x = Var("data", tensor("float32", *dims))
    b = Builder()
    y = b.emit(ops.relu, x)
    z = b.emit(ops.add, y, Const(np.float32(1).reshape(())))
    return Module({"main": b.function("main", [x], [z])})


def intervals(axis: int, *pairs: tuple[int, int | None]) -> Any:
    return lambda shapes: {"data": {axis: list(pairs)}}


def clones(mod: Module) -> list[str]:
    return [n for n in mod.functions if n != "main"]


def depth(fn: Function) -> int:
    ifs = [b for b in fn.body if b.op is IF]
    return max((1 + depth(b.attrs[k]) for b in ifs for k in ("then", "orelse")), default=0)


def callee(mod: Module, *sizes: int) -> str:
    """The clone that the tree calls for an input of these sizes, by walking the tree."""
    fn = mod.main
    env = {str(d): s for d, s in zip(fn.params[0].type.shape, sizes, strict=True)}
    while True:
        last = fn.body[-1]
        if last.op is CALL:
            return last.attrs["callee"]
        test = fn.body[-2].attrs
        assert last.op is IF
        fn = last.attrs["then" if env[str(test["dim"])] < test["than"] else "orelse"]


def test_dispatch_by_text(golden: Any) -> None:
    mod = dispatch(module(Symbol("N", 1, 8), 3), log_dispatcher)
    golden.check(show(verify(mod)))


def test_the_rfc_example_makes_81_clones() -> None:
    mod = dispatch(module(1, 3, ANY, ANY), log_dispatcher)
    made = list(mod.clones)
    assert len(made) == 81
    assert made[0] == "main[data_2=1,data_3=1]"
    assert made[-1] == "main[data_2=256..,data_3=256..]"
    assert depth(mod.main) <= 2 * ceil(log2(9))


def test_an_extent_of_0_goes_to_the_fallback_clone() -> None:
    mod = dispatch(module(1, 3, ANY, ANY), log_dispatcher)
    assert set(clones(mod)) - set(mod.clones) == {"main[fallback]"}
    assert callee(mod, 1, 3, 0, 5) == callee(mod, 1, 3, 5, 0) == "main[fallback]"
    x = np.ones((1, 3, 5, 0), np.float32)
    assert evaluate_module(mod, x)[0].shape == x.shape
    mod = dispatch(module(1, 3, ANY, 5), log_dispatcher, fallback=False)
    with pytest.raises(
        NoBucketError, match=r"no bucket covers data_2=0; buckets: data_2=1, 2\.\.3,"
    ):
        evaluate_module(mod, np.ones((1, 3, 0, 5), np.float32))
    boxes: list[dict[str, Any]] = [{"data_2": (8, 10)}, {"data_2": (2, 4)}]
    mod = dispatch(module(1, 3, ANY, 5), lambda _: boxes, fallback=False)
    both = r"data_2=1; buckets: main\[data_2=2\.\.3\], main\[data_2=8\.\.9\]"
    with pytest.raises(NoBucketError, match=f"no bucket covers {both}"):
        evaluate_module(mod, np.ones((1, 3, 1, 5), np.float32))
    mod = dispatch(module(1, 3, ANY, 5), log_dispatcher, fallback=False)
    with pytest.raises(
        NoBucketError,
        match=r'\n  data_2=0 .*: bounds={"data_2": \(0, None\)} or --dim data_2=0\.\.$',
    ):
        evaluate_module(mod, np.ones((1, 3, 0, 5), np.float32))


@pytest.mark.parametrize(
    ("symbol", "dispatcher"),
    [(Symbol("P", 0, 7), log_dispatcher), (Symbol("P"), log_dispatcher.with_options(low=0))],
)
def test_an_extent_of_0_has_a_bucket_where_it_is_asked_for(symbol: Symbol, dispatcher: Any) -> None:
    mod = dispatch(module(symbol), dispatcher)
    assert clones(mod)[:3] == ["main[P=0]", "main[P=1]", "main[P=2..3]"]
    assert clones(mod) == list(mod.clones)


def test_a_shared_symbol_is_decided_once() -> None:
    n = Symbol("B", 1, 8)
    x, y = Var("x", tensor("float32", n, 3)), Var("y", tensor("float32", n, 3))
    b = Builder()
    mod = Module({"main": b.function("main", [x, y], [b.emit(ops.add, x, y)])})
    assert len(clones(dispatch(mod, log_dispatcher))) == 3


def test_every_size_reaches_the_bucket_that_holds_it() -> None:
    mod = dispatch(module(Symbol("N", 1, 40)), intervals(0, (2, 3), (3, 9), (9, 32)))
    for size in range(1, 41):
        if not 2 <= size < 32:
            assert callee(mod, size) == "main[fallback]"
        else:
            lo, hi = mod.clones[callee(mod, size)].bucket["N"]
            assert hi is not None
            assert lo <= size < hi


def test_clones_carry_the_bounds_and_one_size_is_static() -> None:
    mod = dispatch(module(Symbol("N", 1, 8), 3), log_dispatcher)
    assert mod.functions["main[N=1]"].results[0].type == tensor("float32", 1, 3)
    bounded = mod.functions["main[N=2..3]"].params[0].type.shape[0]
    assert bounded == Symbol("N", 2, 3)
    clone = mod.clones["main[N=2..3]"]
    assert show_bucket(clone.bucket) == "N=2..3"
    assert clone.origin is not None
    assert clone.origin.params[0].type.shape[0] == Symbol("N", 1, 8)


def test_names_of_unknown_axes_are_fresh() -> None:
    x, y = Var("x", tensor("float32", ANY, 3)), Var("y", tensor("float32", Symbol("x_0", 1, 9), 3))
    b = Builder()
    fn = b.function("main", [x, y], [b.emit(ops.relu, x), b.emit(ops.relu, y)])
    mod = dispatch(Module({"main": fn}), lambda _: {"x": {0: [(1, 4), (4, None)]}})
    assert list(mod.clones) == ["main[x_0_=1..3]", "main[x_0_=4..]"]


def test_symbols_for_unknown_axes_begin_at_0() -> None:
    (x,) = name_dims(module(ANY, 3).main).params
    assert x.type.shape == (Symbol("data_0", 0), 3)


def test_bounds_clip_and_drop_intervals() -> None:
    mod = dispatch(module(Symbol("N", 3, 20)), log_dispatcher)
    assert clones(mod) == ["main[N=3]", "main[N=4..7]", "main[N=8..15]", "main[N=16..20]"]


def test_parameters_keep_their_order_and_results_their_values() -> None:
    n = Symbol("N", 1, 8)
    x, y = Var("x", tensor("float32", n, 3)), Var("y", tensor("float32", 3))
    b = Builder()
    out = b.emit(ops.sub, y, x)
    mod = Module({"main": b.function("main", [x, y], [out, x])})
    new = dispatch(mod, log_dispatcher)
    assert [p.name for p in new.main.params] == ["x", "y"]
    for size in (1, 2, 5, 8):
        args = np.ones((size, 3), np.float32), np.arange(3, dtype=np.float32)
        pairs = zip(evaluate_module(new, *args), evaluate_module(mod, *args), strict=True)
        for got, want in pairs:
            np.testing.assert_array_equal(got, want)


def test_results_keep_their_names() -> None:
    mod = Module(module(Symbol("N", 1, 8), 3).functions, names=["scores"])
    assert dispatch(mod, log_dispatcher).names == mod.names


def test_constants_are_shared_by_all_clones() -> None:
    x = Var("data", tensor("float32", Symbol("N", 1, 64), 3))
    weight = Const(np.ones((3, 3), np.float32))
    b = Builder()
    mod = Module({"main": b.function("main", [x], [b.emit(ops.matmul, x, weight)])})
    mod = dispatch(mod, log_dispatcher)
    assert all(mod.functions[n].body[0].args[1] is weight for n in clones(mod))


def test_6561_buckets_are_dispatched_without_making_a_clone() -> None:
    mod = dispatch(module(ANY, ANY, ANY, ANY), log_dispatcher)
    assert len(mod.clones) == len(clones(mod)) - 1 == 6561
    assert set(mod.functions.made()) == {"main", "main[fallback]"}  # the original
    assert depth(mod.main) <= 4 * ceil(log2(9))


def test_ten_thousand_buckets_are_shown_abridged() -> None:
    sizes = [(i, i + 1) for i in range(1, 102)]
    mod = dispatch(
        module(Symbol("H", 1, 101), Symbol("W", 1, 101)),
        lambda shapes: {"data": {0: sizes, 1: sizes}},
        limit=20_000,
    )
    assert len(clones(mod)) == len(mod.clones) == 10201
    text = show(mod, ["main"])
    calls = re.findall(r"call @(\S+)\(", text)
    assert calls[:3] == ["main[H=1,W=1]", "main[H=1,W=2]", "main[H=1,W=3]"]
    assert calls[3:] == ["main[H=101,W=99]", "main[H=101,W=100]", "main[H=101,W=101]"]
    gaps = re.findall(r"\.\.\. \(leaves left out: ([\d,]+)\)", text)
    assert sum(int(n.replace(",", "")) for n in gaps) == 10201 - 6
    with pytest.raises(ParseError, match=r"expected a name, got '\.\.\.'"):
        parse(text)
    steps = list(decisions(mod.main, abridged=True))
    assert [s.callees for s in steps if isinstance(s, Leaf)] == [[c] for c in calls]
    assert sum(s.leaves for s in steps if isinstance(s, Gap)) == 10201 - 6
    assert all(s.depth > 0 for s in steps if isinstance(s, Gap))
    assert sum(isinstance(s, Leaf) for s in decisions(mod.main)) == 10201


def test_garbage_is_collected_again_after_an_error() -> None:
    with pytest.raises(PaddingError):
        dispatch(module(Symbol("N")), log_dispatcher, policy="pad")
    assert gc.isenabled()


def test_the_decisions_in_the_order_of_their_text() -> None:
    mod = dispatch(module(Symbol("N", 1, 8), 3), intervals(0, (2, 4)))
    told = [
        (s.depth, s.test.attrs["than"], s.holds) if isinstance(s, Side) else (s.depth, s.callees)
        for s in decisions(mod.main)
        if not isinstance(s, Gap)
    ]
    assert told == [
        (0, 2, True),
        (1, ["main[fallback]"]),
        (0, 2, False),
        (1, 4, True),
        (2, ["main[N=2..3]"]),
        (1, 4, False),
        (2, ["main[fallback]"]),
    ]
    (whole,) = decisions(module(3).main)
    assert whole == Leaf(0, whole.block)
    assert whole.callees == []


def test_two_functions_of_a_module_keep_their_clones() -> None:
    one = module(Symbol("N", 1, 8), 3)
    mod = Module({**one.functions, "f": specialise(one.main, {}, "f")})
    mod = dispatch(dispatch(mod, log_dispatcher), log_dispatcher, function="f")
    assert mod.clones["main[N=2..3]"].bucket == mod.clones["f[N=2..3]"].bucket == {"N": (2, 4)}
    assert len(mod.clones) == 6


def test_clones_share_what_they_are_copies_of() -> None:
    mod = module(Symbol("H", 1, 8), Symbol("W", 1, 8))
    exact = dispatch(mod, log_dispatcher)
    assert len({id(clone.origin) for clone in exact.clones.values()}) == 1
    cuts = [(1, 2), (2, 4), (4, 9)]
    pad = dispatch(mod, lambda shapes: {"data": {0: cuts, 1: cuts}}, policy="pad")
    origins = {name: clone.origin for name, clone in pad.clones.items()}
    assert origins["main[H=2..3,W=2..3]"] is origins["main[H=4..8,W=4..8]"]
    assert len(set(origins.values())) == 4  # of two symbols each is padded or of one size
    assert pad.functions["main[H=2..3,W=4..8]"].params[0].type == tensor("float32", 3, 8)
    assert pad.clones["main[H=2..3,W=4..8]"].policy == "pad"


def test_without_fallback_an_uncovered_size_is_refused() -> None:
    mod = dispatch(module(Symbol("N", 1, 9)), intervals(0, (2, 4), (4, 8)), fallback=False)
    assert clones(mod) == ["main[N=2..3]", "main[N=4..7]"]
    with pytest.raises(NoBucketError, match=r"covers N=1; buckets: N=2..3, 4..7"):
        evaluate_module(mod, np.zeros(1, np.float32))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (((1, 2), (4, 8)), r"\(1, 2\), \(4, 8\) leave a gap: sizes 2 to 3 are in none"),
        (((1, 4), (3, 8)), r"overlap: one ends at 4, the next begins at 3"),
        (((4, 8), (1, 4)), r"\(1, 4\) are out of order: one ends at 8, the next begins at 1"),
        (((4, 8), (4, 9)), r"\(4, 9\) are out of order: one ends at 8, the next begins at 4"),
        (((4, 2),), r"\(4, 2\) is reversed"),
        (((4, 4),), r"\(4, 4\) is empty"),
        (((-1, 2),), r"axis 0 \(N\): intervals \(-1, 2\): \(-1, 2\) begins below 0"),
        (((1, None), (4, 8)), "unbounded interval is not the last"),
        (((100, 200),), r"intervals \(100, 200\) are all out of its bounds \[1, 64\]"),
        (((1, 2.5),), r"intervals \(1, 2.5\): \(1, 2.5\) is no pair of integers"),
        (((True, 2),), r"\(True, 2\) is no pair of integers"),
        (((0, True), (True, 2)), r"\(0, True\) is no pair of integers"),
        (((1,),), r"intervals \(1,\): \(1,\) is no pair of integers"),
        ((), r"input 'data', axis 0 \(N\): expected a list of intervals"),
    ],
)
def test_illegal_intervals(pairs: Any, message: str) -> None:
    with pytest.raises(DispatchError, match=message):
        dispatch(module(Symbol("N", 1, 64), 3), intervals(0, *pairs))


def test_intervals_of_numpys_integers() -> None:
    """As quantiles are, or what `linspace` gives; other numbers of numpy's are none."""
    one, four = np.int64(1), np.int32(4)
    clones = dispatch(module(Symbol("N", 1, 64), 3), intervals(0, (one, four), (four, 9))).clones
    ends = [end for clone in clones.values() for end in clone.bucket["N"]]
    assert [(type(end), end) for end in ends] == [(int, end) for end in (1, 4, 4, 9)]
    for bad in (np.float64(4), np.bool_(True), np.array([4])):
        with pytest.raises(DispatchError, match="is no pair of integers"):
            dispatch(module(Symbol("N", 1, 64), 3), intervals(0, (1, bad)))


@pytest.mark.parametrize(
    ("interval", "symbol", "clipped"),
    [
        ((4, 100), Symbol("N", 1, 9), (4, 10)),
        ((4, None), Symbol("N", 1, 9), (4, 10)),
        ((4, 10), Symbol("N", 1, 9), (4, 10)),
        ((1, 4), Symbol("N", 3, 9), (3, 4)),
        ((1, 3), Symbol("N", 3, 9), None),
        ((10, 12), Symbol("N", 3, 9), None),
        ((2, None), Symbol("N", 5), (5, None)),
    ],
)
def test_a_bucket_is_cut_to_the_bounds(
    interval: Interval, symbol: Symbol, clipped: Interval | None
) -> None:
    assert clip(interval, symbol) == clipped


def test_intervals_out_of_the_range_of_a_symbol_without_end() -> None:
    with pytest.raises(DispatchError, match=r"\(1, 3\) are all out of its bounds \[5, ...\]"):
        dispatch(module(Symbol("N", 5), 3), intervals(0, (1, 3)))


def test_a_bucket_may_begin_at_0() -> None:
    mod = dispatch(module(Symbol("N", 0, 8), 3), intervals(0, (0, 1), (1, 9)))
    assert clones(mod) == ["main[N=0]", "main[N=1..8]"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"dota": {0: [(1, 2)]}}, "no input named 'dota'; known: data"),
        ({"data": {1: [(1, 2)]}}, "axis 1 is 3: not dynamic"),
        ({"data": {2: [(1, 2)]}}, "it has no axis 2"),
        ({"data": {-3: [(1, 2)]}}, "it has no axis -3"),
        ({"data": {"0": [(1, 2)]}}, "it has no axis '0'"),
        ({"data": [(1, 2)]}, "expected axis -> intervals"),
        ({}, "named no axis"),
        ([], "gave no profile"),
        (7, "expected intervals, profiles or buckets, got 7"),
        (log_dispatcher, r"<lambda> makes a dispatcher: pass <lambda>\(\.\.\.\), what it makes"),
    ],
)
def test_illegal_answers(answer: Any, message: str) -> None:
    with pytest.raises(BucketizeError, match=message):
        dispatch(module(Symbol("N", 1, 64), 3), lambda shapes: answer)


def test_two_axes_of_one_symbol_must_agree() -> None:
    n = Symbol("N", 1, 8)
    message = r"axis 0 \(N\) has intervals \(1, 9\), but input 'data', axis 1 \(N\) has \(1, 4\)"
    with pytest.raises(DispatchError, match=message):
        dispatch(module(n, n), lambda shapes: {"data": {0: [(1, 9)], 1: [(1, 4), (4, 9)]}})


def test_illegal_calls() -> None:
    mod = module(Symbol("N", 1, 8), 3)
    with pytest.raises(UnknownNameError, match="no policy named 'round'; known: exact, pad"):
        dispatch(mod, log_dispatcher, policy="round")
    with pytest.raises(UnknownNameError, match="no function named 'mein'"):
        dispatch(mod, log_dispatcher, function="mein")
    with pytest.raises(DispatchError, match="expected a dispatcher"):
        dispatch(mod, 3)  # type: ignore[arg-type]
    twice = dispatch(mod, log_dispatcher)
    with pytest.raises(DispatchError, match="main is dispatched already; dispatch the original"):
        dispatch(twice, intervals(0, (1, 3)))
    with pytest.raises(DispatchError, match=r"has a function main\[N=1\] already; dispatch the"):
        dispatch(Module(twice.functions), log_dispatcher)


def test_a_dispatchers_own_error_names_it() -> None:
    def broken(shapes: Any) -> Any:
        raise DispatchError("no idea")

    with pytest.raises(DispatchError, match="no idea") as e:
        dispatch(module(Symbol("N", 1, 8)), broken)
    assert e.value.notes == ("from dispatcher broken",)


def test_what_a_dispatcher_stumbles_over_is_an_error_of_it() -> None:
    def broken(shapes: Any) -> Any:
        return {"data": {0: {"M": [(1, 9)]}["N"]}}

    message = r"dispatcher broken raised KeyError: 'N', asked about data: float32\[N\]"
    with pytest.raises(DispatchError, match=message) as e:
        dispatch(module(Symbol("N", 1, 8)), broken)
    assert isinstance(e.value.__cause__, KeyError)


# --- profiles ------------------------------------------------------------------------------------


def profile(lo: int, opt: int, hi: int, name: str = "") -> Profile:
    return Profile({"data": (lo, 3)}, {"data": (opt, 3)}, {"data": (hi, 3)}, name)


def test_the_first_profile_that_covers_wins() -> None:
    answer = [profile(1, 8, 16, "big"), profile(8, 24, 32)]
    mod = dispatch(module(Symbol("N", 1, 64), 3), lambda shapes: answer)
    assert clones(mod) == ["main[big:N=1..16]", "main[profile1:N=8..32]", "main[fallback]"]
    assert list(mod.clones.values()) == [
        Clone({"N": (1, 17)}, opt={"N": 8}, label="big"),
        Clone({"N": (8, 33)}, opt={"N": 24}, label="profile1"),
    ]
    verify(mod)
    for size in (1, 8, 16, 17, 32, 33):
        x = np.full((size, 3), -2, np.float32)
        np.testing.assert_array_equal(evaluate_module(mod, x)[0], np.ones_like(x))


def test_without_fallback_a_size_that_no_profile_covers_is_refused() -> None:
    answer = [profile(1, 2, 4, "small"), profile(8, 8, 8)]
    mod = dispatch(module(Symbol("N", 1, 64), 3), lambda shapes: answer, fallback=False)
    message = r"covers N=5; buckets: main\[small:N=1\.\.4\], main\[profile1:N=8\]"
    with pytest.raises(NoBucketError, match=message):
        evaluate_module(mod, np.zeros((5, 3), np.float32))


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ([profile(4, 2, 8)], "expected min <= opt <= max of N, got 4, 2, 8"),
        ([profile(70, 80, 90)], r"N in \[70, 90\] is out of the symbol's bounds"),
        ([profile(1, 1, 1, "a"), profile(2, 2, 2, "a")], "two profiles are named 'a'"),
        ([profile(1, 1, 1, str(i)) for i in range(65)], "65 profiles, but a chain holds 64"),
        ([Profile({"x": (1, 3)}, {}, {})], "no input named 'x'"),
        ([Profile({"data": (1, 4)}, {}, {})], "^input 'data', axis 1: expected 3, got 4"),
        ([Profile({}, {}, {})], r"^input 'data': expected rank 2 float32\[N, 3\], got 0"),
        ([], "^the dispatcher gave no profile"),
    ],
)
def test_illegal_profiles(profiles: list[Profile], message: str) -> None:
    with pytest.raises(BucketizeError, match=message):
        dispatch(module(Symbol("N", 1, 64), 3), lambda shapes: profiles)


def test_a_profile_that_does_not_fit_is_named() -> None:
    with pytest.raises(BucketizeError) as e:
        dispatch(module(3), lambda shapes: [Profile({"data": (4,)}, {}, {}, "big")])
    assert e.value.notes == ("in profile 'big'",)


def test_as_many_profiles_as_there_may_be_and_one_from_0() -> None:
    answer = [profile(i, i, i + 1) for i in range(64)]
    mod = dispatch(module(Symbol("N", 0, 80), 3), lambda shapes: answer)
    assert clones(mod)[0] == "main[profile0:N=0..1]"
    assert len(mod.clones) == 64


def test_a_bucket_whose_sizes_are_not_legal_is_named() -> None:
    width, out = Symbol("W", 1, 4), Builder()
    x = Var("x", tensor("float32", 1, 1, 4, width))
    y = out.emit(ops.max_pool2d, x, kernel=(2, 2))
    cuts = [{"W": (1, 2)}, {"W": (2, 5)}]
    mod = dispatch(Module({"main": out.function("main", [x], [y])}), lambda _: cuts)
    with pytest.raises(BucketizeError) as caught:
        show(mod)
    assert caught.value.notes[-1] == (
        "in main[W=1]: bounds may leave out its sizes, bounds={...} or --dim SYMBOL=LO..HI"
    )
