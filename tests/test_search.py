"""The search over schedules, on costs that need no clock."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from bucketize.errors import TuneError, UnknownNameError
from bucketize.tune.log import Schedule, Trial, rows, schedule_hash
from bucketize.tune.search import (
    STRATEGIES,
    Measure,
    Proposal,
    Space,
    propose,
    search,
)

LOGS = Path(__file__).parent.parent / "tuning_logs"

KNOBS = {"mr": (1, 2, 4, 6, 8), "nv": (1, 2, 3, 4), "order": ("mn", "nm"), "unroll": (1, 2, 4)}
DEFAULT = {"mr": 4, "nv": 2, "order": "mn", "unroll": 1}


def too_many_registers(schedule: Schedule) -> str | None:
    used = int(schedule["mr"]) * int(schedule["nv"])
    return f"{used} registers of 24" if used > 24 else None


SPACE = Space(KNOBS, DEFAULT, too_many_registers)


def cost(proposal: Proposal) -> float | None:
    """A bowl with its bottom at mr=6, nv=4, nm, unroll 4; mr=8 fails."""
    mr, nv, order, unroll = proposal.schedule.values()
    if mr == 8:
        return None
    away = abs(int(mr) - 6) / 4 + abs(int(nv) - 4) / 4 + abs(int(unroll) - 4) / 16
    return 1e-4 * (1 + away + (order == "mn"))


def best(tried: Sequence[tuple[Proposal, float | None]]) -> float:
    return min(found for _, found in tried if found is not None)


def run(strategy: str, trials: int = 30, seed: int = 0) -> list[tuple[Proposal, float | None]]:
    return list(search(SPACE, cost, trials, strategy=strategy, seed=seed))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_default_first_then_valid_and_never_repeated(strategy: str) -> None:
    tried = run(strategy)
    assert tried[0] == (Proposal(DEFAULT, "default"), cost(Proposal(DEFAULT, "default")))
    assert len(tried) == 30
    assert len({schedule_hash(proposal.schedule) for proposal, _ in tried}) == 30
    assert not any(too_many_registers(proposal.schedule) for proposal, _ in tried)
    assert {proposal.source for proposal, _ in tried[1:]} <= {strategy, "random"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_used_up_space_ends_the_search(strategy: str) -> None:
    space = Space({"a": (1, 2, 3), "b": ("x", "y"), "c": (7,)}, {"a": 2, "b": "x", "c": 7})
    tried = list(search(space, lambda p: float(p.schedule["a"]), 100, strategy=strategy))
    assert len(tried) == 6
    assert propose(space, [(p.schedule, c) for p, c in tried], strategy=strategy) is None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_space_whose_every_schedule_fails_is_still_walked(strategy: str) -> None:
    assert len(list(search(SPACE, lambda _: None, 12, strategy=strategy))) == 12


def test_a_seed_fixes_the_proposals() -> None:
    assert run("skopt", 15) == run("skopt", 15)
    assert run("random") != run("random", seed=1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_search_goes_on_where_it_stopped(strategy: str) -> None:
    whole = run(strategy, 16)
    history = [(proposal.schedule, found) for proposal, found in whole[:9]]
    rest = list(search(SPACE, cost, 16, strategy=strategy, history=history))
    assert rest == whole[9:]


def test_neighbours_best_come_second_when_they_fit() -> None:
    fits = {"mr": 6, "nv": 4, "order": "nm", "unroll": 4}
    strangers = [
        {"mr": 8, "nv": 4, "order": "nm", "unroll": 4},  # invalid here
        {"mr": 5, "nv": 1, "order": "nm", "unroll": 4},  # no such value
        {"tile": 8},  # another template
        {**fits, "depth": 2},
    ]
    proposals = search(SPACE, cost, 3, transfer=[*strangers, fits, DEFAULT])
    assert [proposal.source for proposal, _ in proposals] == ["default", "transfer", "random"]
    assert propose(SPACE, [(DEFAULT, 1.0)], transfer=[fits]) == Proposal(fits, "transfer")


def test_the_surrogate_beats_chance() -> None:
    def mean(strategy: str) -> float:
        return sum(best(run(strategy, 14, seed)) for seed in range(4)) / 4

    assert mean("skopt") < 0.9 * mean("random")


def landscapes() -> dict[str, list[Trial]]:
    """Recorded grids, by shape."""
    found: dict[str, list[Trial]] = {}
    for log in sorted(LOGS.glob("*-grid.csv")):
        for one in rows(log):
            found.setdefault(one.shape, []).append(one)
    return found


def recorded(trials: list[Trial], default: Schedule) -> tuple[Space, Measure]:
    """The space of the schedules in a log, and what each of them took."""
    costs = {t.schedule_hash: t.latency_median_s for t in trials}
    schedules = [json.loads(t.schedule) for t in trials]
    knobs = {name: sorted({s[name] for s in schedules}) for name in default}

    def unknown(schedule: Schedule) -> str | None:
        return None if schedule_hash(schedule) in costs else "not recorded"

    return Space(knobs, default, unknown), lambda p: costs[schedule_hash(p.schedule)]


def excess(trials: list[Trial], strategy: str, seed: int) -> float:
    """How much slower than the best of all is the best of 20, from an ordinary start."""
    by_latency = sorted(trials, key=lambda t: t.latency_median_s or math.inf)
    ordinary = json.loads(by_latency[len(trials) // 2].schedule)
    space, measure = recorded(trials, ordinary)
    found = best(list(search(space, measure, 20, strategy=strategy, seed=seed)))
    return found / (by_latency[0].latency_median_s or math.inf) - 1


def test_the_surrogate_beats_chance_at_equal_trials_on_recorded_kernels() -> None:
    grids = landscapes()
    assert len(grids) == 3

    def mean(strategy: str, seeds: int) -> float:
        found = [excess(t, strategy, seed) for t in grids.values() for seed in range(seeds)]
        return sum(found) / len(found)

    assert mean("skopt", 3) < 0.75 * mean("random", 40)


def test_the_grid_finds_the_best_of_all() -> None:
    everything = run("grid", 1000)
    assert len(everything) == len(SPACE.points) < math.prod(map(len, KNOBS.values()))
    assert best(everything) == 1e-4


def test_a_huge_space_is_sampled() -> None:
    knobs = {name: tuple(range(12)) for name in "abcde"}
    space = Space(knobs, dict.fromkeys(knobs, 0))
    tried = list(search(space, lambda p: 1.0 + sum(map(int, p.schedule.values())), 8))
    assert len({schedule_hash(proposal.schedule) for proposal, _ in tried}) == 8
    assert 4000 < len(space.points) <= 5000


def test_an_unknown_strategy_lists_the_known() -> None:
    with pytest.raises(UnknownNameError, match=r"'annealing'; known: grid, random, skopt"):
        run("annealing")


def test_an_invalid_default_is_an_error() -> None:
    with pytest.raises(TuneError, match=r"default schedule .* is invalid: 32 registers of 24"):
        Space(KNOBS, {**DEFAULT, "mr": 8, "nv": 4}, too_many_registers)
