"""Warming up by a traffic: what is asked for most comes first, within a budget of seconds."""

from __future__ import annotations

import numpy as np
import pytest

import bucketize
from bucketize import zoo
from bucketize.dispatch.tree import dispatch
from bucketize.executable import Executable
from bucketize.traffic.value import Traffic

BUCKETS = [{"N": (1, 4)}, {"N": (4, 16)}, {"N": (16, 65)}]
NAMES = ["main[N=1..3]", "main[N=4..15]", "main[N=16..64]"]


def lazy() -> Executable:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})
    return bucketize.compile(dispatch(mod, lambda _: BUCKETS), lazy=True)


def traffic(counts: dict[int, int]) -> Traffic:
    return Traffic(("N",), np.array([*counts])[:, None], np.array([*counts.values()]))


@pytest.mark.parametrize(
    ("counts", "order"),
    [({2: 9, 8: 1, 20: 1}, [2, 0, 1]), ({2: 100, 8: 2, 20: 1}, [0, 2, 1]), ({8: 1}, [1, 0, 2])],
)
def test_what_is_asked_for_most_comes_first(counts: dict[int, int], order: list[int]) -> None:
    told: list[str] = []
    exe = lazy()
    cold = exe.warm_up(lambda what, *_: told.append(what), traffic=traffic(counts))
    assert [name for name in told if name in NAMES] == [NAMES[k] for k in order]
    assert cold == []
    assert exe.traffic is None


def test_without_time_nothing_is_begun() -> None:
    exe = lazy()
    assert exe.warm_up(traffic=traffic({20: 1}), seconds=0) == [NAMES[2], *NAMES[:2]]
    assert set(exe.routines) == {"main"}


def test_the_load_of_a_bucket_is_that_of_its_requests() -> None:
    mine = Traffic(("N", "S"), np.array([[2, 3], [2, 8], [9, 3]]), np.array([5, 1, 7]))
    assert mine.load({"N": (1, 4)}) == 5 * 6 + 16
    assert mine.load({"N": (1, 4), "S": (3, 8)}) == 30
    assert mine.load({"S": (8, None)}) == 16
    assert mine.load({"N": (50, None)}) == 0
    assert mine.load({"H": (1, 2)}) == 30 + 16 + 7 * 27
