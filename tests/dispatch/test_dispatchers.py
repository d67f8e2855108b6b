"""The dispatchers: what they cut, and what they say when an option is wrong."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketize.dispatch.tree import dispatch
from bucketize.errors import ArgumentError, DispatchError
from bucketize.ir import Builder, Module, Var
from bucketize.ops import relu
from bucketize.types import ANY, Dim, Profile, Symbol, tensor
from dispatchers import (
    Dispatcher,
    exact_dispatcher,
    from_file,
    from_traffic,
    log_dispatcher,
    per_symbol,
    profiles,
    uniform_dispatcher,
)

RFC = [(1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (32, 64), (64, 128), (128, 256), (256, None)]


def cut(dispatcher: Dispatcher, dim: Dim) -> list[tuple[int, int | None]]:
    """What a dispatcher makes of a single axis."""
    found = dispatcher({"data": (dim,)})
    assert isinstance(found, dict)
    return found["data"][0]


def test_log_gives_the_intervals_of_the_rfc() -> None:
    assert log_dispatcher({"data": (1, 3, ANY, ANY)}) == {"data": {2: RFC, 3: RFC}}


def test_static_inputs_and_expressions_are_left_alone() -> None:
    n = Symbol("N")
    assert log_dispatcher({"mask": (1, 3), "data": (n + 1, n * 2)}) == {}


@pytest.mark.parametrize(
    ("options", "dim", "intervals"),
    [
        ({"base": 4}, ANY, [(1, 4), (4, 16), (16, 64), (64, 256), (256, None)]),
        ({"base": 4}, Symbol("N", 1, 32), [(1, 4), (4, 16), (16, 33)]),
        ({"low": 64}, ANY, [(1, 64), (64, 128), (128, 256), (256, None)]),
        ({"high": 4}, ANY, [(1, 2), (2, 4), (4, None)]),
        ({"high": 4}, Symbol("N", 3, 9), [(3, 4), (4, 10)]),
        ({}, Symbol("N", 1, 600), [*RFC[:-1], (256, 512), (512, 601)]),
        ({}, Symbol("N", 0, 2), [(0, 1), (1, 3)]),
        ({}, Symbol("N", 1, 4), [(1, 2), (2, 5)]),
        ({"high": 4}, Symbol("N", 1, 4), [(1, 2), (2, 4), (4, 5)]),
        ({"base": 4, "low": 4}, Symbol("N", 1, 64), [(1, 4), (4, 16), (16, 65)]),
    ],
)
def test_log_options(options: dict[str, Any], dim: Dim, intervals: object) -> None:
    assert cut(log_dispatcher.with_options(**options), dim) == intervals


@pytest.mark.parametrize(
    ("options", "dim", "intervals"),
    [
        ({}, Symbol("N", 1, 16), [(k, k + 2) for k in range(1, 17, 2)]),
        ({"count": 4}, Symbol("N", 1, 32), [(1, 9), (9, 17), (17, 25), (25, 33)]),
        ({"count": 2, "high": 128}, ANY, [(1, 65), (65, 129), (129, None)]),
        ({"step": 16}, Symbol("N", 1, 40), [(1, 17), (17, 33), (33, 41)]),
        ({"step": 128}, ANY, [(1, 129), (129, 257), (257, None)]),
        ({"count": 9}, Symbol("N", 1, 3), [(1, 2), (2, 3), (3, 4)]),
    ],
)
def test_uniform_options(options: dict[str, Any], dim: Dim, intervals: object) -> None:
    assert cut(uniform_dispatcher.with_options(**options), dim) == intervals


def test_exact_gives_named_sizes_a_bucket_of_their_own() -> None:
    assert cut(exact_dispatcher, Symbol("N", 2, 4)) == [(2, 3), (3, 4), (4, 5)]
    sized = exact_dispatcher.with_options(sizes=[1, 8])
    assert cut(sized, ANY) == [(1, 2), (2, 8), (8, 9), (9, None)]


symbols = st.tuples(st.integers(0, 40), st.integers(0, 400)).map(
    lambda t: Symbol("N", t[0], t[0] + t[1])
)
ready = st.sampled_from(
    [
        log_dispatcher,
        log_dispatcher.with_options(base=1.5, low=3),
        uniform_dispatcher,
        uniform_dispatcher.with_options(step=7),
        uniform_dispatcher.with_options(count=3, high=11),
        exact_dispatcher.with_options(sizes=[4, 9, 1000]),
        from_traffic({"N": {3: 5, 20: 1, 50: 9}}, count=3),
    ]
)


@given(ready, symbols)
def test_intervals_cover_the_bounds_without_gap_or_overlap(d: Dispatcher, n: Symbol) -> None:
    intervals = cut(d, n)
    assert intervals[0][0] == n.lo
    assert intervals[-1][1] == (n.hi or 0) + 1
    assert all(a[1] == b[0] for a, b in itertools.pairwise(intervals))
    assert all(hi is not None and lo < hi for lo, hi in intervals)


def test_each_symbol_may_have_its_own_dispatcher() -> None:
    shapes = {"ids": (Symbol("batch", 1, 2), Symbol("seq")), "image": (3, ANY)}
    mixed = per_symbol(
        {
            "batch": exact_dispatcher,  # has no rule for the unbounded axis beside it
            "image_1": log_dispatcher.with_options(high=2),
        }
    )
    assert mixed(shapes) == {"ids": {0: [(1, 2), (2, 3)]}, "image": {1: [(1, 2), (2, None)]}}


def test_an_axis_without_a_name_has_one_for_dispatch_and_for_who_calls_a_dispatcher(
    tmp_path: Path,
) -> None:
    path = tmp_path / "buckets.yaml"
    path.write_text("intervals: {data_2: [[1, 4], [4, null]]}")
    two = from_file(path)
    assert two({"data": (1, 3, ANY)}) == {"data": {2: [(1, 4), (4, None)]}}
    x = Var("data", tensor("float32", 1, 3, ANY))
    out = Builder()
    mod = Module({"main": out.function("main", [x], [out.emit(relu, x)])})
    assert list(dispatch(mod, two).clones) == ["main[data_2=1..3]", "main[data_2=4..]"]


def test_traffic_is_split_evenly() -> None:
    n = Symbol("N", 1, 64)
    skewed = from_traffic({"N": {1: 900, 2: 10, 8: 80, 32: 10}}, count=4)
    assert cut(skewed, n) == [(1, 2), (2, 9), (9, 33), (33, 65)]
    one_by_one = from_traffic({"N": [5, 5, 5, 7, 9, 12, 3]}, count=2)
    assert cut(one_by_one, n) == [(1, 6), (6, 13), (13, 65)]


def test_profiles_are_handed_on() -> None:
    box = Profile({"x": (1, 3)}, {"x": (4, 3)}, {"x": (8, 3)}, "small")
    assert profiles(box)({"x": (Symbol("N"), 3)}) == [box]


def test_files(tmp_path: Path) -> None:
    n = Symbol("N", 1, 64)
    path = tmp_path / "buckets.yaml"
    path.write_text("intervals: {N: [[1, 8], [8, null]], x_1: [[1, 2], [2, null]]}")
    assert from_file(path)({"x": (n, ANY)}) == {
        "x": {0: [(1, 8), (8, None)], 1: [(1, 2), (2, None)]}
    }
    path.write_text("profiles: [{name: s, min: {x: [1, 3]}, opt: {x: [4, 3]}, max: {x: [8, 3]}}]")
    assert from_file(path)({"x": (n, 3)}) == [
        Profile({"x": (1, 3)}, {"x": (4, 3)}, {"x": (8, 3)}, "s")
    ]
    path = tmp_path / "buckets.json"
    path.write_text(json.dumps({"traffic": {"N": {1: 9, 8: 1}}, "count": 2}))
    assert cut(from_file(path), n) == [(1, 2), (2, 9), (9, 65)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the file is empty; it may hold, for instance, intervals: {N: \[\[1, 8\]"),
        ("# only this", "the file is empty"),
        ("[3]", "expected exactly one of intervals, buckets, profiles, traffic, got list"),
        ("interval: {N: []}", r"expected exactly one of .*, got \['interval'\]"),
        ("{intervals: {}, traffic: {}}", r"got \['intervals', 'traffic'\]"),
        ("intervals: {N: [[1]]}", r"expected an interval \[lo, hi\], got \[1\]"),
        ("intervals: {N: [1, 2]}", r"expected an interval \[lo, hi\], got 1"),
        ("buckets: [{N: 3}]", r"expected an interval \[lo, hi\], got 3"),
        ("{intervals: {N: [[1, 2]]}, fallbac: no}", "intervals has no option 'fallbac', as in"),
        ("intervals: {N: [[a, 2]]}", "expected a whole number, got 'a'"),
        ("intervals: {N: [[1, .inf]]}", "a whole number or null, for no end, got inf"),
        ("intervals: {N: [[.nan, 4]]}", "expected a whole number, got nan"),
        ("intervals: {N: [[1, 2.5]]}", "expected a whole number .* got 2.5"),
        ("intervals: {N: [[true, 2]]}", "expected a whole number, got True"),
        ("intervals: {N: 3}", "intervals do not follow the schema, as in .*: TypeError: .*int"),
        ("traffic: {N: {1: 0.5}}", "expected a whole number, got 0.5"),
        ("{traffic: {N: {1: 1}}, count: .inf}", "expected a whole number, got inf"),
        ("profiles: [{min: {x: [-.inf]}}]", "expected a whole number, got -inf"),
        ("profiles: [{min: {x: [1]}}]", "profiles do not follow the schema.*missing 2 required"),
        ("{traffic: {N: {1: 2}}, size: 3}", "traffic has no option 'size', as in"),
        ("{intervals: [}", "is neither YAML nor JSON"),
        ("intervals: 2024-13-01", "is neither YAML nor JSON: month must be in 1..12"),
        (b"intervals: {N: [[1, \xff]]}", "is neither YAML nor JSON: unacceptable character #x00ff"),
        ("[" * 1000, "nests too deep"),
        ("intervals: " + "[" * 1000 + "]" * 1000, "nests too deep"),
    ],
)
def test_a_file_that_breaks_the_schema(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "buckets.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DispatchError, match=message) as e:
        from_file(path)
    assert str(path) in str(e.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("intervals: {N: [[1, 4], [3, null]]}", "overlap: one ends at 4, the next begins at 3"),
        ("intervals: {N: [[1, 4], [6, null]]}", "leave a gap: sizes 4 to 5 are in none"),
        ("intervals: {M: [[1, null]]}", "no dynamic axis is named 'M'; known: N"),
        (
            "intervals: {N: [[1, 4], [4, 9999999999999999999]]}",
            "N: 4..9+8, but sizes end below 2[*][*]62; None is no end",
        ),
        ("profiles: []", "the dispatcher gave no profile"),
    ],
)
def test_what_dispatch_says_of_a_file_names_it(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "buckets.yaml"
    path.write_text(text)
    x, out = Var("x", tensor("float32", Symbol("N"))), Builder()
    mod = Module({"main": out.function("main", [x], [out.emit(relu, x)])})
    with pytest.raises(DispatchError, match=message) as e:
        dispatch(mod, from_file(path))
    assert e.value.notes == (f"from dispatcher {path}",)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(DispatchError, match=r"cannot read nowhere\.yaml: No such file"):
        from_file("nowhere.yaml")


def test_an_unknown_option_lists_the_known_ones() -> None:
    message = "log_dispatcher has no option 'bse'; it has: base, low, high; did you mean 'base'"
    with pytest.raises(DispatchError, match=message):
        log_dispatcher.with_options(bse=4)


@pytest.mark.parametrize(
    ("misuse", "cure"),
    [
        (lambda: log_dispatcher(base=4), r"log_dispatcher\.with_options\(base=4\)"),
        (lambda: log_dispatcher(4), r"log_dispatcher\.with_options\(\.\.\.\)"),
        (uniform_dispatcher, r"uniform_dispatcher\.with_options"),
    ],
)
def test_who_calls_a_dispatcher_for_its_options_is_told_how(misuse: Any, cure: str) -> None:
    with pytest.raises(ArgumentError, match=f"not a function that makes one: .*{cure}"):
        misuse()


@pytest.mark.parametrize(
    ("dispatcher", "message"),
    [
        (log_dispatcher.with_options(base=1), "base must be at least 1.1, got 1"),
        (
            log_dispatcher.with_options(base="x"),
            "log_dispatcher cannot use base='x'; it takes base: float, low: int",
        ),
        (log_dispatcher.with_options(base=math.inf), "log_dispatcher cannot use base=inf: "),
        (uniform_dispatcher.with_options(step=1.5), "uniform_dispatcher cannot use step=1.5; "),
        (log_dispatcher.with_options(low=-1), "low must be at least 0, got -1"),
        (
            log_dispatcher.with_options(low=16, high=4),
            r"low must be at most high, got \(16, 4\)\n  while log_dispatcher cuts axis data",
        ),
        (uniform_dispatcher.with_options(step=0), "step must be at least 1, got 0"),
        (uniform_dispatcher.with_options(count=0), "count must be at least 1, got 0"),
        (uniform_dispatcher.with_options(count=2, step=2), r"takes step or count, got \(2, 2\)"),
        (exact_dispatcher, "needs sizes=... where an axis has no bound"),
        (
            from_traffic({"N": {}}),
            "at least one request, got {}\n  while from_traffic cuts axis data",
        ),
        (
            uniform_dispatcher.with_options(step=1, high=1 << 40),
            "makes at most 1,048,576 buckets of",
        ),
        (from_traffic({"N": {4: -1}}), "requests are counted from 0, got {4: -1}"),
        (from_traffic({"N": {4: 1}}, count=0), "count must be at least 1, got 0"),
        (per_symbol({"M": log_dispatcher}), "no dynamic axis is named 'M'; known: N"),
        (per_symbol({"n": log_dispatcher}), "named 'n'; known: N; did you mean 'N'"),
        (per_symbol({"N": profiles(Profile({}, {}, {}))}), "takes dispatchers that give intervals"),
    ],
)
def test_errors_name_the_value(dispatcher: Dispatcher, message: str) -> None:
    with pytest.raises(DispatchError, match=message):
        cut(dispatcher, Symbol("N"))


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda: from_traffic([1, 8]), r'expected {"N": \[1, 8, 8\]} by symbol, got list'),
        (lambda: per_symbol(log_dispatcher), r'per_symbol: expected {"N": log_dispatcher}'),
        (lambda: per_symbol({"N": 4}), r"a dispatcher by symbol, got {'N': 4}"),
    ],
)
def test_what_is_asked_for_by_symbol_is_given_by_symbol(misuse: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        misuse()


def test_an_axis_of_very_many_sizes_has_no_bucket_for_each() -> None:
    with pytest.raises(DispatchError, match="exact_dispatcher makes at most 1,048,576 buckets"):
        cut(exact_dispatcher, Symbol("N", 1, 10**11))
    few = cut(uniform_dispatcher.with_options(count=10**9), Symbol("N", 1, 4))
    assert few == cut(exact_dispatcher, Symbol("N", 1, 4))


def test_an_error_says_which_axis_it_is_about() -> None:
    with pytest.raises(DispatchError) as e:
        exact_dispatcher({"data": (1, Symbol("W", 4))})
    assert e.value.notes == ("while exact_dispatcher cuts axis data[1], W in [4, inf]",)
