"""Model, defaults and search against the recorded grids: what `-m benchmarks replay` prints."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import replay
from benchmarks.algorithm import defaults
from benchmarks.calibrate import (
    counted,
    detoured,
    expected,
    fitted,
    fitted_detour,
    fitted_steps,
    fitted_sweep,
    measured,
    swept,
)
from bucketize.kernel.depthwise import cost as sweep
from bucketize.kernel.depthwise.cost import DepthwiseCost
from bucketize.kernel.gemm.cost import FITTED, ProductCost, arrays, best, seconds
from bucketize.kernel.gemm.schedule import schedules
from bucketize.kernel.loops import cost as loops
from bucketize.kernel.loops.cost import Steps, seconds_each, taken
from bucketize.kernel.product import Product
from bucketize.kernel.typical import TypicalPoints
from bucketize.kernel.winograd import cost as detour
from bucketize.kernel.winograd.cost import WinogradCost
from bucketize.tune.observation import SHORT
from bucketize.tune.residual import Forest
from bucketize.tune.samples import CLOCK, Record, records
from bucketize.types import Symbol

TARGET = replay.TARGETS["emeraldrapids"]
CONSTANTS = FITTED[TARGET.family]


@pytest.fixture(scope="module")
def recorded() -> list[Record]:
    """Products of that processor: read once, where they are asked for."""
    return [r for r in replay.judged() if r.host == TARGET.name]


def test_the_grids_are_exhaustive(recorded: list[Record]) -> None:
    assert len(recorded) > 60
    for record in recorded:
        legal = schedules(TARGET, record.product.packed)
        assert {tuple(sorted(s.items())) for s in record.schedules} == {
            tuple(sorted(s.items())) for s in legal
        }


def test_a_model_fitted_to_one_half_knows_the_other(recorded: list[Record]) -> None:
    assert replay.model_error(recorded[::8], TARGET) < 0.15


def test_defaults_are_near_the_best_and_narrow_ones_no_worse_than_wide_ones(
    recorded: list[Record],
) -> None:
    assert replay.default_excess(recorded, TARGET).mean < 1.05
    assert (
        max(replay.narrow_by_wide(recorded, TARGET).ratios) <= 1.04
    )  # what is that close is alike


def test_the_search_finds_in_ten_trials_what_chance_does_not(
    recorded: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "TRIALS", (1, 10))  # after which it need not go on
    ours = replay.searched(recorded[::4], TARGET, **replay.SEARCHES["model"])
    chance = replay.searched(recorded[::4], TARGET, **{**replay.SEARCHES["random"], "seeds": 2})
    ten = replay.TRIALS.index(10)
    assert ours[ten] < 1.03
    assert ours[ten] < chance[ten]


def test_a_neighbour_spares_most_trials_and_costs_less_than_a_trial_is_worth(
    recorded: list[Record],
) -> None:
    kin = [r for r in recorded if r.product.kin == (1024, 1024, True, False)]
    others = recorded[::5]
    found = replay.transferred([*kin, *others], TARGET, False, replay.THREE)
    (_, _, alone, _), (_, _, after, excess) = found["alone"], found["after a neighbour"]
    assert after <= alone / 4
    assert excess < 2 * replay.UNTIL


# --- the model -----------------------------------------------------------------------------------


def test_more_work_takes_longer_under_every_schedule() -> None:
    knobs = arrays(schedules(TARGET, True), TARGET.lanes)
    product = Product((64,), 1024, 1024)
    whole = seconds(product, knobs, CONSTANTS, TARGET)
    for more in ({"rows": (256,)}, {"columns": 4096}, {"depth": 4096}, {"batch": (3,)}):
        assert (seconds(replace(product, **more), knobs, CONSTANTS, TARGET) > whole).all()


def test_sizes_are_rows_and_schedules_are_columns() -> None:
    knobs = arrays(schedules(TARGET, True), TARGET.lanes)
    product = Product((1, 5, 64), 256, 512)
    together = seconds(product, knobs, CONSTANTS, TARGET)
    assert together.shape == (3, len(schedules(TARGET, True)))
    for i, rows in enumerate(product.rows):
        alone = seconds(replace(product, rows=(rows,)), knobs, CONSTANTS, TARGET)
        np.testing.assert_allclose(alone[0], together[i])


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_the_default_is_legal_whatever_the_vectors(lanes: int) -> None:
    target = replace(TARGET, name="", lanes=lanes, registers=32 if lanes == 16 else 16)
    for rows, columns, depth in ((1, 1, 1), (7, 10, 64), (256, 3072, 768), (100_000, 64, 27)):
        for packed in (True, False):
            product = Product((rows,), columns, depth, packed=packed)
            assert best(product, target) in schedules(target, packed)


def test_panels_have_one_width_unless_another_pays() -> None:
    widths = {best(Product((m,), 1024, 1024), TARGET)["nr"] for m in (1, 3, 17, 64, 256)}
    assert len(widths) == 1
    assert best(Product((64,), 10, 1024), TARGET)["nr"] == 16  # most of a wider one is empty


def test_extents_are_judged_at_the_ends_of_their_bounds() -> None:
    rows = Symbol("N", 1, 256)
    points = TypicalPoints([(rows, (1, 256))], [()])
    ((typical, places),) = ProductCost(rows, 64, 32).products(points.extents, 0)
    assert (typical.rows, places) == ((1, 16, 256), [0, 1, 2])
    three = ProductCost(rows, rows, 64).products(points.extents, 0)  # both grow together
    assert [(p.rows, p.columns) for p, _ in three] == [((1,), 1), ((16,), 16), ((256,), 256)]
    assert ProductCost(rows, 64, 32, a_step=128).product([{"N": 3}, {"N": 7}]).rows == (3, 7)


# --- fitting -------------------------------------------------------------------------------------


def made_of(constants: object, products: list[Product]) -> list[Record]:
    """What a machine would record that is just as a model says."""
    found = []
    for product in products:
        able = list(schedules(TARGET, True))
        taken = seconds(product, arrays(able, TARGET.lanes), constants, TARGET)[0]  # type: ignore[arg-type]
        logs = np.log(taken / taken[0]).tolist()
        found.append(Record("", product, TARGET.lanes, able, logs, [float(taken[0])]))
    return found


def test_fitting_finds_the_machine_that_made_the_records() -> None:
    true = replace(CONSTANTS, row=4.0, far=0.5, store=2.0)
    products = [
        Product((m,), n, k, cold_bytes=30 << 20)
        for m in (1, 17, 256)
        for n, k in ((1024, 1024), (3072, 768), (64, 256))
    ]
    mine = made_of(true, products)
    found = fitted(mine, TARGET)
    error = max(float(np.abs(expected(r, found, TARGET) - measured(r)).max()) for r in mine)
    assert error < math.log(1.05)
    assert found.far == pytest.approx(true.far, rel=0.05)


def test_what_is_no_product_is_no_record() -> None:
    assert records([]) == []


def test_a_latency_is_told_without_the_clock_by_the_best_job() -> None:
    record = Record(TARGET.name, Product((1,), 1, 1), logs=[0.0, 1.0], baselines=[3e-6, 2e-6])
    quiet, clock = 2e-6, CLOCK[TARGET.name]
    np.testing.assert_allclose(np.exp(measured(record)), [quiet - clock, quiet * math.e - clock])


def test_products_between_more_weights_are_others() -> None:
    cold = list(replay.rows(replay.LOGS / f"{TARGET.name}-cold.csv"))
    warm = [replace(trial, graph_bytes=0) for trial in cold]
    found = records([*cold, *warm])
    assert len(found) == 2 * len(records(cold))
    assert {r.product.cold_bytes for r in found} == {0, 18 * 2 * 4 * 768 * 3072}


@pytest.mark.parametrize(
    "knobs", [{"mr": 6}, {"mr": 0, "nr": 16}, {"mr": "a", "nr": 16}, {"kc": "b"}]
)
def test_schedules_of_others_that_are_none_are_no_records(knobs: dict[str, Any]) -> None:
    cold = list(replay.rows(replay.LOGS / f"{TARGET.name}-cold.csv"))
    schedule = json.loads(cold[0].schedule)
    odd = knobs if "mr" in knobs else {**schedule, **knobs}
    other = replace(cold[0], schedule=json.dumps(odd), schedule_hash="other")
    assert [r.schedules for r in records([*cold, other])] == [r.schedules for r in records(cold)]


# --- what is no product --------------------------------------------------------------------------


def test_models_fitted_to_a_part_know_the_rest() -> None:
    assert replay.steps_error(replay.observed("rest", TARGET.name, Steps)[::3], TARGET) < 0.2
    assert (
        replay.sweep_error(replay.observed("convolution", TARGET.name, DepthwiseCost), TARGET) < 0.2
    )
    filters = replay.observed("filters", TARGET.name, WinogradCost)[::3]
    assert replay.detour_error(filters, TARGET) < 0.2


def test_what_is_too_short_for_the_clock_is_not_observed() -> None:
    for kind, grid in ((Steps, "rest"), (DepthwiseCost, "convolution")):
        observed = replay.observed(grid, TARGET.name, kind)
        assert len(observed) >= 5
        assert min(min(one.seconds) for one in observed) > SHORT


def test_what_has_knobs_that_are_gone_is_not_observed() -> None:
    """As transposes, whose blocks were a knob when the grid was recorded."""
    assert all(one.schedules == [{}] for one in replay.observed("rest", TARGET.name, Steps))


def test_fitting_finds_the_constants_that_made_what_is_observed() -> None:
    true = {**loops.FITTED[TARGET.family], "exp": 6.0, "byte": 4.0}
    given = replay.observed("rest", TARGET.name, Steps)[::3]
    counts, _ = counted(given, TARGET)
    taken_s = iter(taken(counts, seconds_each(true, TARGET.speed)).tolist())
    made = [replace(one, seconds=[next(taken_s) for _ in one.schedules]) for one in given]
    found = fitted_steps(made, TARGET)
    ours, theirs = (taken(counts, seconds_each(of, TARGET.speed)) for of in (found, true))
    np.testing.assert_allclose(ours, theirs, rtol=0.05)
    assert found["exp"] == pytest.approx(true["exp"], rel=0.1)


KINDS: dict[str, tuple[Any, ...]] = {
    "convolution": (
        *(DepthwiseCost, swept, lambda made: fitted_sweep(made, TARGET)),
        replace(sweep.FITTED[TARGET.family], far=0.6, store=3.0),
    ),
    "filters": (
        *(WinogradCost, detoured, lambda made: fitted_detour({TARGET: made})),
        replace(detour.FITTED, first=0.9, patch=150.0),
    ),
}


@pytest.mark.parametrize("grid", KINDS)
def test_fitting_finds_the_constants_of_convolutions(grid: str) -> None:
    kind, modelled, fit, true = KINDS[grid]
    given = replay.observed(grid, TARGET.name, kind)[::2]
    made = [replace(one, seconds=np.exp(modelled(one, TARGET, true)).tolist()) for one in given]
    found = fit(made)
    for one in made:
        np.testing.assert_allclose(modelled(one, TARGET, found), one.logs, atol=0.05)


def test_sizes_decide_the_algorithm_of_a_convolution() -> None:
    assert replay.chosen(TARGET).mean < 1.08
    assert 0.95 < replay.chosen_by_wide(TARGET).mean < 1.05
    found = {made.template for made in defaults(TARGET, wide=False).values()}
    assert found == {"conv2d", "winograd"}


# --- the forest ----------------------------------------------------------------------------------


def test_a_forest_expects_of_several_products_what_it_does_of_each_and_its_trees_say(
    recorded: list[Record],
) -> None:
    one, other = recorded[::4][:2]
    forest = Forest(recorded[::4][2:], TARGET)
    both = forest.expected([one.product, other.product], one.schedules)
    for record, logs in zip((one, other), both, strict=True):
        (alone,) = forest.expected([record.product], one.schedules)
        np.testing.assert_array_equal(logs, alone)
        knobs = arrays(one.schedules, TARGET.lanes)
        trees = forest._trees.predict(forest._features(record.product, knobs))
        modelled = np.log(seconds(record.product, knobs, CONSTANTS, TARGET)[0])
        np.testing.assert_array_equal(logs, modelled + trees)
