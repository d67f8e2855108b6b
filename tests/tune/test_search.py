"""The search over schedules, on costs that need no clock."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bucketize.errors import TuneError, UnknownNameError
from bucketize.ir import FUSED, Builder, Const, Var, all_bindings
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.template import Template, everywhere
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.workload import Workload, workload_of
from bucketize.log.trial import Schedule
from bucketize.lower.pipeline import lower
from bucketize.machine.host import host
from bucketize.ops import conv2d, relu
from bucketize.tune.search import STRATEGIES, Proposal, Search, Space, schedules, space_of
from bucketize.tune.surrogate import Neighbour
from bucketize.types import tensor

LOGS = Path(__file__).parents[2] / "tuning_logs"

KNOBS = {"mr": (1, 2, 4, 6, 8), "nv": (1, 2, 3, 4), "order": ("mn", "nm"), "unroll": (1, 2, 4)}
DEFAULT = {"mr": 4, "nv": 2, "order": "mn", "unroll": 1}

Cost = Callable[[Implementation], float | None]
Tried = list[tuple[Proposal, float | None]]


def too_many_registers(schedule: Schedule) -> str | None:
    used = int(schedule["mr"]) * int(schedule["nv"])
    return f"{used} registers of 24" if used > 24 else None


def made(schedule: Schedule, template: str = "gemm") -> Implementation:
    return Implementation(template, schedule)


def space(knobs: Mapping[str, Sequence[int | str]], default: Schedule) -> Space:
    return Space([made(schedule) for schedule in schedules(knobs)], made(default))


SPACE = Space([made(s) for s in schedules(KNOBS) if not too_many_registers(s)], made(DEFAULT))


OF_DEFAULT = 1 + 2 / 4 + 2 / 4 + 3 / 16 + 1


def cost(one: Implementation) -> float | None:
    """By the default's; a bowl with its bottom at mr=6, nv=4, nm, unroll 4; mr=8 fails."""
    mr, nv, order, unroll = one.schedule.values()
    if mr == 8:
        return None
    away = abs(int(mr) - 6) / 4 + abs(int(nv) - 4) / 4 + abs(int(unroll) - 4) / 16
    return (1 + away + (order == "mn")) / OF_DEFAULT


def best(tried: Tried) -> float:
    return min(found for _, found in tried if found is not None)


def walk(search: Search, cost: Cost, trials: int) -> Tried:
    """Ask and tell, one by one, until so many are tried or the space is used up."""
    tried: Tried = []
    while len(search.tried) < trials and (asked := search.ask()):
        (proposal,) = asked
        tried.append((proposal, cost(proposal.implementation)))
        search.tell(*_told(tried[-1]))
    return tried


def _told(one: tuple[Proposal, float | None]) -> tuple[Implementation, float | None]:
    return one[0].implementation, one[1]


def run(strategy: str, trials: int = 30, seed: int = 0) -> Tried:
    return walk(Search(SPACE, strategy, seed), cost, trials)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_default_first_then_valid_and_never_repeated(strategy: str) -> None:
    tried = run(strategy)
    assert tried[0] == (Proposal(made(DEFAULT), "default"), cost(made(DEFAULT)))
    assert len(tried) == 30
    assert len({proposal.implementation.key for proposal, _ in tried}) == 30
    assert not any(too_many_registers(proposal.implementation.schedule) for proposal, _ in tried)
    assert {proposal.source for proposal, _ in tried[1:]} <= {strategy, "random"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_used_up_space_ends_the_search(strategy: str) -> None:
    small = space({"a": (1, 2, 3), "b": ("x", "y"), "c": (7,)}, {"a": 2, "b": "x", "c": 7})
    search = Search(small, strategy)
    assert len(walk(search, lambda one: float(one.schedule["a"]), 100)) == 6
    assert search.ask(4) == []
    assert search.gain() == 0.0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_space_whose_every_schedule_fails_is_still_walked(strategy: str) -> None:
    search = Search(SPACE, strategy)
    assert len(walk(search, lambda _: None, 12)) == 12
    assert search.best is None
    assert search.better(3) == []


def test_a_seed_fixes_the_proposals() -> None:
    assert run("skopt", 15) == run("skopt", 15)
    assert run("random") != run("random", seed=1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_search_goes_on_where_it_stopped(strategy: str) -> None:
    whole = run(strategy, 16)
    resumed = Search(SPACE, strategy)
    for one in whole[:9]:
        resumed.tell(*_told(one))
    assert walk(resumed, cost, 16) == whole[9:]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_batch_is_distinct_and_changes_nothing(strategy: str) -> None:
    search = Search(SPACE, strategy)
    walk(search, cost, 5)
    before = dict(search.tried)
    asked = search.ask(6)
    assert len({p.implementation.key for p in asked}) == 6
    assert not {SPACE.index[p.implementation.key] for p in asked} & before.keys()
    assert search.ask(6) == asked
    assert search.tried == before
    assert Search(SPACE, strategy).ask()[0] == Proposal(made(DEFAULT), "default")


def test_what_is_no_point_of_the_space_is_not_learnt() -> None:
    search = Search(SPACE)
    search.tell(made({"mr": 5, "nv": 1, "order": "nm", "unroll": 4}), 0.5)
    search.tell(made(DEFAULT, "winograd"), 0.5)
    assert search.tried == {}


def test_neighbours_best_come_second_when_they_fit() -> None:
    fits = {"mr": 6, "nv": 4, "order": "nm", "unroll": 4}
    strangers = [
        made({"mr": 8, "nv": 4, "order": "nm", "unroll": 4}),  # invalid here
        made({"mr": 5, "nv": 1, "order": "nm", "unroll": 4}),  # no such value
        made({"tile": 8}),
        made({**fits, "depth": 2}),
        made(fits, "winograd"),  # another template
    ]
    search = Search(SPACE, transfer=[*strangers, made(fits), made(DEFAULT)])
    assert [proposal.source for proposal in search.ask(3)] == ["default", "transfer", "random"]
    search.tell(made(DEFAULT), 1.0)
    assert search.ask() == [Proposal(made(fits), "transfer")]


def test_the_best_few_are_better_than_the_default_and_it_is_none_of_them() -> None:
    search = Search(SPACE)
    points = [p for p in SPACE.points if p.key != SPACE.default.key][:4]
    for point, found in zip(points, (0.9, 0.7, 1.1, None), strict=True):
        search.tell(point, found)
    search.tell(SPACE.default, 0.8)  # by a baseline of another day
    assert search.better(3) == [points[1], points[0]]
    assert search.better(1) == [points[1]]
    assert search.best == (points[1], 0.7)


def test_what_is_expected_to_be_gained_shrinks_as_the_best_is_found() -> None:
    search = Search(SPACE)
    walk(search, cost, 4)
    early = search.gain()
    walk(search, cost, 40)
    assert 0 <= search.gain() < early


def test_a_point_that_is_believed_to_be_good_comes_first() -> None:
    belief = [0.0] * len(SPACE.points)
    belief[17] = -0.7
    search = Search(Space(SPACE.points, SPACE.default, belief))
    search.tell(SPACE.default, 1.0)
    assert search.ask() == [Proposal(SPACE.points[17], "skopt")]
    assert search.gain() == pytest.approx(0.7, abs=0.05)


# --- what neighbours say --------------------------------------------------------------------------

HOME = SPACE.index[SPACE.default.key]


def hearing(*neighbours: Neighbour, believed: Sequence[float] | None = None) -> Search:
    search = Search(replace(SPACE, believed=believed))
    search.hear(neighbours)
    search.tell(SPACE.default, 1.0)
    return search


def test_what_is_good_elsewhere_is_expected_here_and_less_so_from_afar() -> None:
    near, far = (hearing(Neighbour(away, {HOME: 0.0, 17: -0.4})) for away in (0.0, 5.0))
    assert near.ask() == far.ask() == [Proposal(SPACE.points[17], "skopt")]
    logs = [math.log(search.expected(17) or 0) for search in (near, far, hearing())]
    assert -0.35 < logs[0] < logs[1] < logs[2] == 0.0  # a trial of its own says -0.4


def test_beliefs_that_were_right_elsewhere_leave_less_to_gain() -> None:
    known = [0.0] * len(SPACE.points)
    right, wrong = ({HOME: 0.0, **dict.fromkeys(range(20, 30), off)} for off in (0.005, 0.8))
    sure, alone, unsure = (
        hearing(*told, believed=known)
        for told in ((Neighbour(0.0, right),), (), (Neighbour(0.0, wrong),))
    )
    assert sure.gain() < alone.gain() / 2
    assert unsure.gain() > alone.gain()


def test_a_default_elsewhere_tells_nothing_of_beliefs() -> None:
    known = [0.0] * len(SPACE.points)
    told = hearing(*(Neighbour(float(away), {HOME: 0.0}) for away in range(9)), believed=known)
    assert told.gain() == pytest.approx(hearing(believed=known).gain(), rel=0.01)


def test_what_neighbours_say_is_forgotten_for_what_they_say_now() -> None:
    search = hearing(Neighbour(0.0, {HOME: 0.0, 17: -0.4}))
    search.hear([Neighbour(0.0, {HOME: 0.0, 18: -0.4})])
    assert search.ask() == [Proposal(SPACE.points[18], "skopt")]


def test_expecting_is_what_a_search_will_be_if_all_goes_as_expected() -> None:
    search = hearing(Neighbour(0.0, {HOME: 0.0, 17: -0.4}))
    asked = search.ask(3)
    later = search.expecting(asked)
    assert search.tried.keys() == {HOME}
    assert later.tried.keys() == {HOME, *(SPACE.index[p.implementation.key] for p in asked)}
    assert later.tried[17] == search.expected(17)
    assert later.gain() < search.gain()


def test_the_surrogate_beats_chance() -> None:
    def mean(strategy: str) -> float:
        return sum(best(run(strategy, 14, seed)) for seed in range(4)) / 4

    assert mean("skopt") < 0.9 * mean("random")


def test_the_grid_finds_the_best_of_all() -> None:
    everything = run("grid", 1000)
    assert len(everything) == len(SPACE.points) < math.prod(map(len, KNOBS.values()))
    assert best(everything) == 1 / OF_DEFAULT


def test_a_huge_space_is_sampled() -> None:
    knobs = {name: tuple(range(12)) for name in "abcde"}
    drawn = schedules(knobs)
    assert drawn == schedules(knobs)
    assert 4000 < len(drawn) <= 5000
    search = Search(Space([made(s) for s in drawn], made(drawn[0])))
    tried = walk(search, lambda one: 1.0 + sum(map(int, one.schedule.values())), 8)
    assert len({proposal.implementation.key for proposal, _ in tried}) == 8


def test_an_unknown_strategy_lists_the_known() -> None:
    with pytest.raises(UnknownNameError, match=r"'annealing'; known: grid, random, skopt"):
        run("annealing")


# --- the space of a workload ----------------------------------------------------------------------


def rectified() -> Workload:
    x = Var("x", tensor("float32", 4, 8))
    out = Builder()
    return Workload(out.function("main", [x], [out.emit(relu, x)]), (False,))


@pytest.fixture
def knobbed(monkeypatch: pytest.MonkeyPatch) -> Template:
    """A template for `relu` whose grid is too large, or partly illegal."""

    def never(*_: object) -> Any:
        raise AssertionError

    template = Template(
        name="knobbed",
        accepts=lambda workload: workload.anchor.op is relu,
        knobs=lambda *_: KNOBS,
        defaults=everywhere(lambda *_: DEFAULT),
        legal=lambda _, schedule, __: too_many_registers(schedule),
        source=never,
        launch=never,
        packing=never,
    )
    monkeypatch.setitem(TEMPLATES, template.name, template)
    return template


def test_the_space_has_every_legal_schedule_of_every_template(knobbed: Template) -> None:
    found = space_of(rectified(), made(DEFAULT, "knobbed"), host())
    assert {p.template for p in found.points} == {"elementwise", "knobbed"}
    legal = {p.key for p in found.points if p.template == "knobbed"}
    assert legal == {made(s, "knobbed").key for s in schedules(KNOBS) if not too_many_registers(s)}


def test_two_templates_of_one_workload_are_searched_as_one() -> None:
    """A depthwise convolution is for two templates; the default of one is the base of both."""
    x = Var("x", tensor("float32", 1, 16, 8, 8))
    out = Builder()
    y = out.emit(conv2d, x, Const(np.ones((16, 1, 3, 3), np.float32)), groups=16)
    lowered = lower(out.function("main", [x], [y]))
    (product,) = [b for b in all_bindings(lowered) if b.op in (conv2d, FUSED)]
    workload, _ = workload_of(product)
    able = candidates(workload)
    default = made(able[0].default(workload, host()), able[0].name)
    found = space_of(workload, default, host())
    assert {p.template for p in found.points} == {t.name for t in able} >= {"depthwise", "conv2d"}


def test_a_default_that_a_sample_missed_is_tried_all_the_same(
    knobbed: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[space_of.__module__], "ENUMERATED", 5)
    found = space_of(rectified(), made(DEFAULT, "knobbed"), host())
    assert found.points[0] == made(DEFAULT, "knobbed")
    assert len(found.points) < 10


@pytest.mark.parametrize(
    ("default", "message"),
    [
        (
            made({**DEFAULT, "mr": 8, "nv": 4}, "knobbed"),
            r"default, knobbed mr=8 nv=4 .*, is invalid: 32 registers of 24",
        ),
        (made({}, "gemm"), "the default, gemm, is invalid: no such template"),
    ],
)
def test_an_invalid_default_is_an_error(
    knobbed: Template, default: Implementation, message: str
) -> None:
    with pytest.raises(TuneError, match=message):
        space_of(rectified(), default, host())


def test_a_default_outside_of_the_space_is_an_error() -> None:
    with pytest.raises(TuneError, match="the default, gemm a=2, is none that may be tried"):
        Space([made({"a": 1})], made({"a": 2}))
