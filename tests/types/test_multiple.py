"""Extents of symbols that are known to be multiples."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from bucketize.types import (
    ANY,
    Dim,
    Symbol,
    assumptions,
    ceil_div,
    evaluate,
    extremes,
    meet,
    minimum,
    terms_of,
)
from bucketize.types.extent import divisor

S = Symbol("S", 8, 512, 8)
H = Symbol("H", 32, 1024, 32)
T = Symbol("T", 1, 64)
P, Q = Symbol("P", 2, 8, 2), Symbol("Q", 2, 8, 2)


@pytest.mark.parametrize(
    ("dim", "simple"),
    [
        (S // 8 * 8, S),
        (S % 8, 0),
        ((S + 3) % 8, 3),
        (-(-S // 8), S // 8),
        (ceil_div(S, 4), S // 4),
        ((S - 1) // 2 + 1, S // 2),
        (S // 2 // 4, S // 8),
        (2 * S // 16, S // 8),
        (S // 8 * 4 + S // 8 * 4, S),
        (S * T // 8, S // 8 * T),
        (S * T // 8 * 8, S * T),
        (S // 2 * 3 * 2, 3 * S),
        (minimum(S, 2 * S) // 8 * 8, S),
    ],
    ids=str,
)
def test_what_is_known_of_multiples(dim: Dim, simple: Dim) -> None:
    assert dim == simple


def test_what_is_not_known_stays() -> None:
    own = Symbol("R", 24, 240, 24)  # whose quotients nobody asked for before
    dims = {
        "16*(S//16)": S // 16 * 16,
        "3*(S//3)": S // 3 * 3,
        "S + 8*(T//8)": (S + T) // 8 * 8,
        "S//2": 4 * (S // 8),
        "3*(S//8)": 3 * (S // 8),
        "5*(R//12)": 10 * (own // 24),
        "3*((P*Q)//4)": 6 * (P * Q) // 8,
        "8*(T//8)": T // 8 * 8,
    }
    assert {text: str(dim) for text, dim in dims.items()} == {text: text for text in dims}


def test_of_an_extent_that_nothing_is_known_of_only_1_is_a_divisor() -> None:
    assert [divisor(dim) for dim in (ANY, -6, S, 3 * S + 12 * S * T, minimum(S, H))] == [
        1,
        6,
        8,
        24,
        8,
    ]


def test_terms_are_found_within_others() -> None:
    inner = T // 3
    outer = minimum(inner + 1, S)
    assert set(map(str, terms_of(2 * outer + T))) == {str(inner), str(outer)}
    assert not list(terms_of(3 * T))


def test_halves_that_are_doubled_again_are_what_they_were() -> None:
    """As in a net that goes down by strides and up again: what it skips fits what comes back."""
    down = [H]
    for _ in range(5):
        down.append((down[-1] + 2 - 3) // 2 + 1)
    assert down[-1] == H // 32
    up = down.pop()
    with assumptions() as relied:
        for skipped in reversed(down):
            up = meet(up * 2, skipped)
    assert up == H
    assert not relied


STEPS = st.sampled_from([1, 2, 3, 4, 6, 8])
NUMBERS = st.integers(-4, 8)


def _divided(a: Dim, b: int) -> Dim:
    return a // max(b, 1)


def _rest(a: Dim, b: int) -> Dim:
    return a % max(b, 1)


OPERATIONS: list[Callable[[Dim, int], Dim]] = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    _divided,
    _divided,
    _rest,
    lambda a, b: minimum(a, b * 4),
    lambda a, b: a + Symbol("S", 0, None, 4) * b,
]


@given(STEPS, st.integers(0, 9), st.lists(st.tuples(st.sampled_from(OPERATIONS), NUMBERS)))
def test_simplified_is_what_is_written(
    step: int, times: int, way: list[tuple[Callable[[Dim, int], Dim], int]]
) -> None:
    size = 4 * step * times
    dim: Dim = Symbol("S", 0, None, 4)
    value: Dim = size
    for operation, number in way[:7]:
        dim, value = operation(dim, number), operation(value, number)
        value = evaluate(value, {"S": size})
    assert evaluate(dim, {"S": size}) == value
    assert evaluate(dim, {"S": size}) % max(divisor(dim), 1) == 0
    low, high = extremes(dim)
    assert low <= value <= high


@pytest.mark.parametrize(
    ("ends", "within"),
    [((9, 31), Symbol("S", 16, 24, 8)), ((9, 16), 16), ((9, None), Symbol("S", 16, None, 8))],
)
def test_narrower_bounds(ends: tuple[int, int | None], within: Dim) -> None:
    assert S.within(*ends) == within


def test_sizes_that_it_may_have() -> None:
    assert [n for n in range(30) if S.holds(n)] == [8, 16, 24]
    assert [S.rounded(n) for n in (1, 13, 21, 999)] == [8, 16, 24, 512]
    assert S.range == "[8, 512], a multiple of 8"
    assert [S.option, Symbol("N").option, T.option] == ["S=8..512:8", "N=0..", "T=1..64"]
