"""Points: a dim at many sizes is what it is at each of them."""

from __future__ import annotations

import pytest

from bucketize.errors import TypeRelError
from bucketize.types import ANY, Dim, Points, Symbol, evaluate, maximum, minimum

N, H = Symbol("N", 0), Symbol("H", 0)
SIZES = [{"N": n, "H": h} for n in (0, 1, 7, 1 << 40) for h in (1, 6, 1 << 41)]
DIMS: list[Dim] = [
    5,
    N,
    N * H * H - 3,
    (N + 3) // 4 * H,
    (N * H) % (H + 1),
    maximum(N, 2) // minimum(H, 4),
]


@pytest.mark.parametrize("dim", DIMS, ids=str)
def test_values_are_those_at_each_point_however_large(dim: Dim) -> None:
    values = Points(SIZES).values(dim)
    assert values.tolist() == [evaluate(dim, sizes) for sizes in SIZES]
    assert all(type(value) is int for value in values)


def test_what_has_no_value_at_one_point_is_an_error_or_replaced_there() -> None:
    points, dim = Points(SIZES), H // N
    with pytest.raises(TypeRelError, match="divided by 0"):
        points.values(dim)
    replaced = [evaluate(dim, s) if s["N"] else -i for i, s in enumerate(SIZES)]
    assert points.values_or(dim, lambda i: -i).tolist() == replaced
    for unknown in (ANY, Symbol("K"), N * Symbol("K")):
        with pytest.raises(TypeRelError, match="is not known"):
            points.values(unknown)


def test_some_of_the_points() -> None:
    points = Points(SIZES)
    assert points.at([2, 0]).values(H).tolist() == [1 << 41, 1]
    assert points.at(range(len(SIZES))) is points
    assert len(Points([]).values(N // 2)) == 0
