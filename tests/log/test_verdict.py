"""What a clone runs: verdicts on it, whatever else the log holds, and how sure they are."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from choosing import chosen, implementations_of
from hypothesis import given
from hypothesis import strategies as st
from test_log import trial

import bucketize
from bucketize.dispatch.tree import dispatch
from bucketize.errors import BucketizeWarning, LogError
from bucketize.ir import Builder, Const, Module, Var
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.templates import TEMPLATES
from bucketize.log.confidence import Interval, of_median, ratios
from bucketize.log.fingerprint import bounds_of, graph_of, source_of
from bucketize.log.log import LogWarning, append, rows
from bucketize.log.trial import CLONE, Trial
from bucketize.log.verdict import Digests, Verdict, histories, verdicts
from bucketize.ops import matmul, relu
from bucketize.program.configuration import Configuration
from bucketize.program.instruction import AGREED, DEFAULT, LOGGED
from bucketize.tune.task import Task, tasks_of
from bucketize.types import Symbol, tensor

Bounds = tuple[float, float]
MADE = {"w": "gemm mr=2"}


def judged(
    *ratios: Bounds | None, made: Mapping[str, str] = MADE, run: int = 0, **changes: object
) -> list[Trial]:
    """The rows of a verdict: a point, all of one weight, for each interval."""
    about = {
        **dict.fromkeys(("op", "level"), CLONE),
        **dict.fromkeys(("workload", "clone"), "c"),
        **dict.fromkeys(("template", "layer"), ""),
        "source": "confirm",
        "weight": 1 / len(ratios),
        "schedule": json.dumps(dict(made)),
        "run_id": f"run{run}",
        "timestamp": f"2024-01-01T00:00:{run:02}.000000+00:00",
    }
    found = []
    for i, bounds in enumerate(ratios):
        low, high = bounds or (None, None)
        at = {"shape": f"{i + 1}x8", "ratio_low": low, "ratio_high": high}
        found.append(trial(i, **{**about, **at, **changes}))
    return found


def told(trials: Iterable[Trial], clone: str = "c") -> Verdict:
    return verdicts(trials, 1)[clone]


# --- the rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "pays"),
    [
        ([(0.7, 0.9)], True),
        ([(0.7, 1.01)], False),  # not beyond the noise
        ([(1.1, 1.2)], False),
        ([(0.5, 0.7), (0.95, 1.04)], True),  # one point may be as it was
        ([(0.5, 0.6), (1.01, 1.05)], False),  # though faster by far on the whole
        ([(0.9, 1.2), (0.9, 1.2)], False),
        ([(0.7, 0.9), None], False),  # too few rounds to tell
        ([None], False),
    ],
)
def test_implementations_pay_if_all_is_faster_and_no_point_slower(
    bounds: list[Bounds | None], pays: bool
) -> None:
    verdict = told(judged(*bounds))
    assert verdict.pays is pays
    made = {"w": Implementation("gemm", {"mr": 2})}
    assert implementations_of(verdict.configuration) == (made if pays else {})


def test_the_interval_is_that_of_the_weighted_geometric_mean() -> None:
    found = told(judged((0.4, 0.9))).interval
    assert found is not None
    assert [found.median, found.low, found.high] == pytest.approx([0.6, 0.4, 0.9])
    heavy, light = judged((0.25, 0.25), (1.0, 1.0))
    found = Verdict((replace(heavy, weight=0.75), replace(light, weight=0.25))).interval
    assert found is not None
    assert [found.median, found.low, found.high] == pytest.approx([0.25**0.75] * 3)
    narrower = told(judged((0.8, 1.25), (0.8, 1.25))).interval  # as errors of two points do
    assert narrower is not None
    assert narrower.high == pytest.approx(1.25 ** (1 / 2**0.5))


def test_a_set_that_does_not_pay_leaves_the_defaults() -> None:
    lost = judged((1.0, 1.2))
    assert told(lost).rows == tuple(lost)
    assert not told(lost).pays
    assert told(lost).configuration.implementations == {}


OTHER = {"w": "gemm mr=4"}
KEPT = judged((0.8, 0.9), (0.7, 0.8), run=1)


@pytest.mark.parametrize(
    "later",
    [
        judged(None, None, made={}, run=2),  # nothing was found
        judged((0.9, 1.3), (0.9, 1.3), run=2),  # too noisy to tell
        judged((0.5, 3.0), (0.5, 3.0), run=2),
        judged((0.9, 0.99), (1.01, 1.02), run=2),  # slower at a point, but not on the whole
        judged((1.1, 1.2), (1.1, 1.2), made=OTHER, run=2),  # another lost
        judged((0.5, 1.1), (0.5, 1.1), made=OTHER, run=2),
        judged((0.7, 0.85), (0.7, 0.75), made=OTHER, run=2),  # of a better median
        judged(None, None, made=OTHER, run=2),
        judged((0.1, 0.2), (0.1, 0.2), made=OTHER, run=2)[:1],  # a session was killed
    ],
)
def test_what_is_confirmed_stays_until_it_is_beaten(later: Sequence[Trial]) -> None:
    assert told([*KEPT, *later]).rows == tuple(KEPT)


@pytest.mark.parametrize(
    ("later", "made"),
    [
        (judged((0.5, 0.6), (0.5, 0.6), made=OTHER, run=2), OTHER),  # beaten
        (judged((0.9, 0.95), (0.8, 0.9), run=2), MADE),  # timed again, it pays as before
        (judged((1.1, 1.2), (1.0, 1.2), run=2), {}),  # shown to be slower than the defaults
        (judged((0.8, 0.9), made=OTHER, run=2), OTHER),  # at other sizes, where it was not timed
    ],
)
def test_what_is_confirmed_goes_where_it_is_beaten_or_slower(
    later: Sequence[Trial], made: Mapping[str, str]
) -> None:
    verdict = told([*KEPT, *later])
    assert verdict.rows == tuple(later)
    assert verdict.configuration == Configuration.of(made)


def test_who_was_timed_again_is_compared_by_that() -> None:
    """As the machine is busier, both are: what looks better than once before is no better now."""
    noisy = judged((0.5, 1.1), (0.5, 1.1), run=2)
    better = judged((0.4, 0.6), (0.4, 0.6), made=OTHER, run=2)
    assert told([*KEPT, *better]).configuration == Configuration.of(OTHER)
    assert told([*KEPT, *noisy, *better]).configuration == Configuration.of(MADE)


def test_only_what_is_apart_is_beaten() -> None:
    """Medians tell nothing where intervals overlap."""
    one, other = Verdict(tuple(judged((0.80, 0.90)))), Verdict(tuple(judged((0.60, 0.85))))
    far = Verdict(tuple(judged((0.60, 0.79))))
    assert other.interval is not None
    assert one.interval is not None
    assert other.interval.median < one.interval.median
    assert not other.beats(one)
    assert not one.beats(other)
    assert far.beats(one)
    assert not one.beats(far)
    assert not one.beats(one)


def test_the_order_of_the_log_counts_whatever_clocks_said() -> None:
    """A clock was set back by a day; of what was not beaten the later rows change nothing."""
    old, new = judged((0.8, 0.9), run=2), judged((0.5, 0.6), made=OTHER, run=1)
    assert told([*old, *new]).configuration == Configuration.of(OTHER)
    slower = judged((1.1, 1.2), run=1)
    assert told([*old, *slower]).rows == tuple(slower)
    assert told([*slower, *old]).rows == tuple(old)


def test_a_verdict_that_lacks_rows_is_none() -> None:
    """A session was killed while it wrote them."""
    old, new = judged((0.7, 0.8), run=1), judged((0.5, 0.6), (0.5, 0.6), made=OTHER, run=2)
    assert told([*old, *new[:1]]).rows == tuple(old)
    assert told([*old, *new]).rows == tuple(new)
    assert verdicts(new[:1], 1) == {}


def test_rows_of_other_threads_and_other_clones_do_not_count() -> None:
    trials = [*judged((0.5, 0.6)), *judged((1.1, 1.2), run=9, threads=2)]
    trials += judged((1.1, 1.2), run=9, clone="d")
    assert told(trials).pays
    assert not verdicts(trials, 2)["c"].pays
    assert verdicts(trials, 3) == {}


def test_what_no_implementation_can_be_read_of_is_an_error() -> None:
    verdict = told(judged((0.5, 0.6), made={"w": "gemm mr"}))
    with pytest.raises(LogError, match=r"row of run run0 confirms what is none: 'gemm mr' is no"):
        _ = verdict.configuration


# --- laws: of what else is in a log, and of what comes later --------------------------------------

INTERVALS = st.tuples(st.floats(0.3, 1.3), st.floats(1.0, 1.2)).map(lambda p: (p[0], p[0] * p[1]))
SETS = st.dictionaries(
    st.sampled_from("vw"), st.sampled_from(["gemm mr=2", "gemm mr=4"]), max_size=2
)
RUNS = st.lists(st.tuples(st.lists(st.none() | INTERVALS, min_size=1, max_size=3), SETS))


Runs = list[tuple[list[Bounds | None], dict[str, str]]]


def history(runs: Runs, **changes: str) -> list[Trial]:
    """The rows of some verdicts, one after the other."""
    found = [judged(*b, made=made, run=i, **changes) for i, (b, made) in enumerate(runs)]
    return [row for several in found for row in several]


@given(RUNS, RUNS, st.randoms(use_true_random=False))
def test_other_modules_and_rows_that_come_twice_change_no_choice(
    mine: Runs, others: Runs, dice: random.Random
) -> None:
    ours, theirs = history(mine), history(others, clone="d")
    kernels = [trial(i, clone="c", workload="w", run_id="run0") for i in range(3)]
    before = verdicts(ours, 1)
    log = [*ours, *ours]  # merged with itself
    for row in (*theirs, *kernels):
        log.insert(dice.randrange(len(log) + 1), row)
    after = verdicts(log, 1)
    assert after.keys() - {"d"} == before.keys()
    if ours:
        assert after["c"].configuration == before["c"].configuration


@given(RUNS, RUNS)
def test_what_follows_never_takes_a_configuration_that_is_not_shown_to_be_better(
    runs: Runs, more: Runs
) -> None:
    before = verdicts(history(runs), 1).get("c")
    told = history([*runs, *more])
    after = verdicts(told, 1).get("c")
    if before is None or after is None or after.configuration == before.configuration:
        return
    known = histories(told)["c"]
    if after.pays:
        assert after.configuration in [v.configuration for v in known if v.pays]
    else:
        assert any(v.loses for v in known)


# --- what `compile` makes of it -------------------------------------------------------------------


def module(width: int = 8, hi: int | None = 16, lo: int = 1) -> Module:
    x = Var("x", tensor("float32", lo if lo == hi else Symbol("N", lo, hi), width))
    out = Builder()
    product = out.emit(matmul, x, Const(np.ones((width, 32), np.float32)))
    return Module({"main": out.function("main", [x], [out.emit(relu, product)])})


def other(task: Task) -> Implementation:
    """One that is not the default."""
    return next(made for made in task.space.points if made.key != task.default.key)


def confirmed(task: Task, made: Implementation | None, **changes: object) -> list[Trial]:
    return judged(
        *((0.5, 0.6), (0.7, 0.8)),
        made={task.workload.hash: str(made)} if made else {},
        **{"clone": task.clone, "workload": task.clone, **changes},
    )


def test_a_verdict_comes_back_from_the_log(tmp_path: Path) -> None:
    log, mod = tmp_path / "log.csv", module()
    (task,) = tasks_of(mod)
    written = confirmed(task, other(task))
    for row in written:
        append(log, row)
    assert tuple(rows(log, TEMPLATES)) == tuple(written)
    assert chosen(mod, log, task) == (other(task), LOGGED)
    counts = bucketize.compile(mod, log=log).counts
    assert (counts.found, counts.defaults) == (1, 0)


def test_a_verdict_is_on_one_clone(tmp_path: Path) -> None:
    """Of the same workload, in a module that differs by nothing but its bounds."""
    log, mod = tmp_path / "log.csv", module()
    (task,), (wider,) = tasks_of(mod), tasks_of(module(hi=32))
    assert task.workload.hash == wider.workload.hash
    for row in confirmed(task, other(task)):
        append(log, row)
    assert chosen(module(hi=32), log, wider) == (wider.default, DEFAULT)
    for row in confirmed(wider, None, timestamp="2025-01-01T00:00:00+00:00"):
        append(log, row)
    assert chosen(module(hi=32), log, wider) == (wider.default, AGREED)
    told = (
        "1 kernel calls: 0 with schedules from the log, 1 on defaults that it kept, 0 on defaults;"
    )
    assert str(bucketize.compile(module(hi=32), log=log).counts).startswith(told)
    assert chosen(mod, log, task) == (other(task), LOGGED)


Bound = tuple[int, int | None]


@pytest.mark.parametrize(
    ("theirs", "ours", "told"),
    [
        ((1, 16), (1, 32), "for N=1..16, not for N=1..32, so none is used; give the same bounds"),
        ((2, None), (0, None), r"for N=2\.\., not for symbols without bounds"),
        ((4, 4), (1, 16), "for symbols without bounds, not for N=1..16"),
    ],
)
@pytest.mark.parametrize("split", [True, False])
def test_a_log_of_other_bounds_is_told(
    tmp_path: Path, theirs: Bound, ours: Bound, told: str, split: bool
) -> None:
    log = tmp_path / "log.csv"

    def made(lo: int, hi: int | None) -> Module:
        mod = module(lo=lo, hi=hi)
        bounded = split and lo != hi
        return dispatch(mod, lambda _: {"x": {0: [(2, 4), (4, None)]}}) if bounded else mod

    def told_of(mod: Module) -> None:
        source = source_of(mod, next(iter(mod.clones), "main"))
        for row in judged((0.5, 0.6), graph=graph_of(source), bounds=bounds_of(source)):
            append(log, row)

    told_of(module(width=16))  # another model's
    bucketize.compile(made(*ours), log=log)
    told_of(made(*theirs))
    with pytest.warns(LogWarning, match=f"its verdicts on this model are {told}"):
        bucketize.compile(made(*ours), log=log)
    for row in judged((0.5, 0.6), run=1, clone="d"):  # of a version that did not tell
        append(log, row)
    told_of(module(lo=ours[0], hi=ours[1]))  # of another dispatcher, or of none
    bucketize.compile(made(*ours), log=log)


@pytest.mark.parametrize("change", [{"host_cpu": "abacus"}, {"numba_version": "0.1"}])
def test_verdicts_from_elsewhere_do_not_count(tmp_path: Path, change: dict[str, str]) -> None:
    log, mod = tmp_path / "log.csv", module()
    (task,) = tasks_of(mod)
    for row in confirmed(task, other(task), **change):
        append(log, row)
    with pytest.warns(LogWarning, match="skipped 2 of 2 trials measured elsewhere"):
        assert chosen(mod, log, task) == (task.default, DEFAULT)


def test_what_is_not_confirmed_is_not_used_and_that_is_said(tmp_path: Path) -> None:
    log, mod = tmp_path / "log.csv", module()
    (task,) = tasks_of(mod)
    first, _ = confirmed(task, other(task))
    append(log, first)
    with pytest.warns(LogWarning, match=r"none of its 1 trials is confirmed in a clone, so the"):
        assert chosen(mod, log, task) == (task.default, DEFAULT)


def test_an_implementation_that_is_not_legal_any_more_leaves_its_default(tmp_path: Path) -> None:
    log, mod = tmp_path / "log.csv", module()
    (task,) = tasks_of(mod)
    unknown = Implementation(task.default.template, {**task.default.schedule, "unfurl": 2})
    for row in confirmed(task, unknown):
        append(log, row)
    with pytest.warns(BucketizeWarning, match="which is not legal any more: its default stays"):
        assert chosen(mod, log, task) == (task.default, DEFAULT)


# --- identities -----------------------------------------------------------------------------------

NAMES = st.from_regex(r"[A-Za-z_]\w{0,8}", fullmatch=True)
KNOBS = st.dictionaries(NAMES, st.integers() | st.text(max_size=8) | NAMES, max_size=4)


@given(NAMES, KNOBS)
def test_an_implementation_is_read_back_from_its_text(
    template: str, schedule: dict[str, int | str]
) -> None:
    made = Implementation(template, schedule)
    again = Implementation.parse(str(made))
    assert again == made
    assert list(map(type, again.schedule.values())) == list(map(type, schedule.values()))


def test_the_text_of_an_implementation_is_plain_where_it_can_be() -> None:
    made = Implementation("gemm", {"mr": 6, "skip": -1, "order": "nk", "digits": "12", "no": ""})
    assert str(made) == 'gemm mr=6 skip=-1 order=nk digits="12" no=""'


@pytest.mark.parametrize(
    "text", ["gemm mr", "gemm mr=", "gemm mr=06", "gemm mr=6 ", "gemm mr=6 mr=7", 'gemm a="b', ""]
)
def test_what_is_no_implementation_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no implementation, which is 'template knob=value"):
        Implementation.parse(text)


def test_a_clone_is_the_same_however_often_it_is_made() -> None:
    def digests(cut: int = 4, policy: str = "exact", width: int = 8) -> dict[str, str]:
        intervals = {"x": {0: [(1, cut), (cut, 17)]}}
        mod = dispatch(module(width), lambda _: intervals, policy=policy)
        found = Digests(mod)
        return {name: found[name] for name in mod.functions if name != "main"}

    first = digests()
    assert digests() == first
    assert len(set(first.values())) == len(first) == 2
    for changed in (digests(cut=5), digests(policy="pad"), digests(width=9)):
        assert not set(changed.values()) & set(first.values())


def test_constants_count_by_their_types() -> None:
    mod = module()
    assert Digests(mod)["main"] == Digests(module())["main"]
    assert Digests(mod)["main"] != Digests(module(hi=8))["main"]


# --- how sure a median is -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "ends"), [(15, (4, 12)), (6, (1, 6)), (9, (2, 8)), (5, None), (1, None), (0, None)]
)
def test_the_interval_of_a_median_by_order(count: int, ends: tuple[int, int] | None) -> None:
    """The table of order statistics, at 95 %: as in any text on nonparametric statistics."""
    values = [float(i) for i in range(1, count + 1)]
    random.Random(0).shuffle(values)
    low, high = ends or (0, 0)
    expected = Interval((count + 1) / 2, low, high) if ends else None
    assert of_median(values) == expected


def test_ratios_pair_the_rounds_and_weigh_the_points() -> None:
    one = ([1.0, 2.0, 4.0], [2.0, 2.0, 2.0])
    assert ratios([one], [7.0]) == pytest.approx([0.5, 1.0, 2.0])
    longer = ([8.0, 8.0, 8.0, 99.0], [4.0, 2.0, 1.0, 1.0])
    assert ratios([one, longer], [1.0, 1.0]) == pytest.approx([1.0, 2.0, 4.0])
    assert ratios([one, longer], [3.0, 1.0]) == pytest.approx([0.5**0.5, 2**0.5, 8**0.5])
