"""Drift: changes of sizes are told, chance is not, and what they cost decides."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp

import bucketize
from bucketize import zoo
from bucketize.cli.group import main
from bucketize.dispatch.tree import dispatch
from bucketize.errors import ArgumentError, DispatchError, ShapeError, UnknownNameError
from bucketize.ir import Module
from bucketize.kernel.typical import Box
from bucketize.partition import drift as home
from bucketize.partition import partition as question
from bucketize.partition.drift import drift
from bucketize.partition.expectation import Expectation
from bucketize.traffic.drift import DriftWatch, changes
from bucketize.traffic.value import Traffic
from bucketize.types import Sizes
from bucketize.zoo import traffic as of_zoo

TARGET = "x86-64-v4"


def mlp() -> Module:
    return bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})


def uniform(low: int, high: int, requests: int = 1_000) -> Traffic:
    sizes = np.arange(low, high + 1)
    return Traffic(("N",), sizes[:, None], np.full(len(sizes), requests // len(sizes)))


sizes_of = st.lists(st.integers(1, 20), min_size=1, max_size=60)


@given(sizes_of, sizes_of)
def test_the_distance_is_that_of_kolmogorov_and_smirnov(one: list[int], other: list[int]) -> None:
    pair = [Traffic(("N",), np.array(s)[:, None], np.ones(len(s), int)) for s in (one, other)]
    (change,) = changes(*pair)
    pairs = [[sum(n <= size for n in s) / len(s) for s in (one, other)] for size in range(1, 21)]
    assert change.distance == pytest.approx(max(abs(a - b) for a, b in pairs))
    assert 0 <= change.chance <= 1


def test_the_chance_is_that_of_scipy() -> None:
    one, other = uniform(1, 100, 3_000), uniform(5, 90, 1_720)
    each = [np.repeat(t.sizes[:, 0], t.requests) for t in (one, other)]
    wanted = ks_2samp(*each, method="asymp").pvalue
    assert changes(one, other)[0].chance == pytest.approx(wanted, rel=0.2)


def test_a_change_is_told_within_two_thousand_requests() -> None:
    """The second half of a public trace has shorter long prompts than its first."""
    first, second = (of_zoo(f"prompts-{half}").without_times() for half in ("first", "second"))
    watch = DriftWatch(first)
    assert watch.add(first.sample(50_000, seed=1)) == []
    alarms = watch.add(second.sample(2_000, seed=2))
    assert [a.symbol for a in alarms][:1] == ["S"]
    watch.add(second.sample(48_000, seed=3))
    assert (watch.requests, watch.looks) == (100_000, 100)
    assert watch._rows.shape == (1_000, 1)


def test_no_alarm_in_twenty_shuffles() -> None:
    whole = of_zoo("prompts").without_times()
    for seed in range(20):
        watch = DriftWatch(whole)
        assert watch.add(whole.sample(100_000, seed=seed)) == []


def test_requests_may_come_one_by_one() -> None:
    planned = uniform(1, 10)
    watch, together = DriftWatch(planned, window=100), DriftWatch(planned, window=100)
    rows = uniform(30, 40).sample(250)
    single = [alarm for row in rows for alarm in watch.add(row)]
    assert single == together.add(rows)
    assert len(single) == 2


def test_a_change_may_cost_nothing() -> None:
    mod = dispatch(mlp(), lambda _: [{"N": (1, 33)}, {"N": (33, 65)}])
    its = drift(mod, uniform(1, 8), uniform(32, 64), target=TARGET)
    assert its.is_other
    assert not its.is_costly
    assert str(its).startswith("sizes of N differ by 1.00 (chance ")
    assert str(its).endswith("more than those that would be chosen now: they may stay")
    same = drift(mod, uniform(1, 64, 6_400), uniform(1, 64, 64), target=TARGET)
    assert not same.is_other
    assert str(same).startswith("in 64 requests no change of sizes is shown; the clones take ")


def test_a_change_that_costs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clones that serve sizes on both sides of 17 take twice as long."""

    def expected(
        _calls: object, boxes: Sequence[Box], points: Sequence[Sizes], *_: object, **_how: object
    ) -> Expectation:
        wide = np.array([s.lo < 17 <= (s.hi or 99) for (s,) in boxes])
        taken = np.repeat(np.where(wide, 2.0, 1.0)[:, None], len(points), axis=1)
        return Expectation(taken, np.ones(len(points)), [frozenset()] * len(boxes), [])

    monkeypatch.setattr(question, "expectation", expected)
    mod = dispatch(mlp(), lambda _: [{"N": (1, 33)}, {"N": (33, 65)}])
    its = drift(mod, uniform(33, 64), uniform(10, 30), target=TARGET)
    assert its.loss == pytest.approx(1.0)
    assert its.is_costly
    assert str(its).endswith("take 100.0% more than those that would be chosen now: choose again")
    assert not drift(mod, uniform(1, 8), uniform(33, 64), target=TARGET).is_costly
    assert not drift(mod, uniform(33, 64), uniform(10, 30), loss=1.5, target=TARGET).is_costly


def test_the_command_says_it_by_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b.yaml").write_text("buckets: [{N: [1, 33]}, {N: [33, 65]}]")
    uniform(1, 8).write("a.csv")
    replace(uniform(32, 64), times=np.arange(33.0)).write("b.csv")  # as `exe.traffic` has them
    run: Callable[..., Result] = CliRunner().invoke
    call = ["drift", "zoo:mlp", "--dim", "N=1..64", "-d", "b.yaml", "--planned", "a.csv"]
    done = run(main, [*call, "--traffic", "b.csv", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["is_other"] is True
    monkeypatch.setattr(home.Drift, "loss", property(lambda _: 0.2))
    assert run(main, [*call, "--traffic", "b.csv"]).exit_code == 1
    assert run(main, call).exit_code == 2


def test_what_is_no_question_is_refused() -> None:
    one = uniform(1, 8)
    with pytest.raises(DispatchError, match=r"^main has no clones that could fit requests better "):
        drift(mlp(), one, one)
    mod = dispatch(mlp(), lambda _: [{"N": (1, 33)}])
    gap = dispatch(mlp(), lambda _: [{"N": (1, 4)}, {"N": (8, 33)}], fallback=False)
    with pytest.raises(ShapeError, match=r"^traffic: no clone serves N=4, and there is no fall"):
        drift(gap, one, one, target=TARGET)
    assert drift(mod, one, uniform(30, 40), target=TARGET).is_other  # the fallback serves some
    for its in ((one, "x"), (None, one)):
        with pytest.raises(ArgumentError, match=r"^traffic: expected a bucketize.Traffic, got "):
            drift(mod, *its)  # type: ignore[arg-type]
    for loss in (-1, math.nan):
        with pytest.raises(ArgumentError, match=f"^loss: expected a share from 0, got {loss}$"):
            drift(mod, one, one, loss=loss)
    with pytest.raises(UnknownNameError, match="no symbol named 'N'"):
        changes(one, Traffic(("S",), np.array([[1]]), np.array([1])))
    with pytest.raises(ArgumentError, match=r"^window: expected at least 100 requests, got 7$"):
        DriftWatch(one, window=7)
    with pytest.raises(ArgumentError, match=r"^alpha: expected a chance between 0 and 1, got 1$"):
        DriftWatch(one, alpha=1)
