"""What a search hears of its kin: from a log, from other buckets, from other processors."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bucketize.dispatch.tree import dispatch
from bucketize.ir import Builder, Const, Module, Var
from bucketize.log.log import append, rows
from bucketize.log.outcome import Outcome
from bucketize.log.trial import Trial, schedule_hash
from bucketize.machine.host import host, processor, target_of
from bucketize.machine.target import Target
from bucketize.measure.job import Job
from bucketize.measure.runner import LocalRunner
from bucketize.ops import add, matmul, relu
from bucketize.tune import api as entry
from bucketize.tune import residual
from bucketize.tune import session as beginning
from bucketize.tune import task as believing
from bucketize.tune.api import opened
from bucketize.tune.budget import Budget
from bucketize.tune.database import Database
from bucketize.tune.observation import observations
from bucketize.tune.options import Options
from bucketize.tune.refine import kernels_of
from bucketize.tune.residual import Forest, forest
from bucketize.tune.samples import is_product, logs, records, reference
from bucketize.tune.search import Search
from bucketize.tune.session import TuningSession
from bucketize.tune.task import Task, subjects_of, tasks_of
from bucketize.tune.transfer import NEAREST, Transfer
from bucketize.types import Symbol, tensor

DEPTH, COLUMNS = 256, 128


class Machine:
    """A measurer of its own mind: what a schedule takes by others it takes at every size."""

    source = None
    has_clock = False

    def __init__(self, spread: float) -> None:
        self.spread = spread

    def measure(self, jobs: Sequence[Job]) -> Iterator[list[Outcome]]:
        for job in jobs:
            logs = (self.log(schedule_hash(i.schedule)) for i in job.implementations)
            yield [Outcome(seconds=(1e-4 * math.exp(log),) * 15) for log in logs]

    def log(self, schedule: str) -> float:
        return random.Random(schedule).gauss(0, self.spread)


def module(depth: int = DEPTH, columns: int = COLUMNS, *, biased: bool = False) -> Module:
    x = Var("x", tensor("float32", Symbol("N", 1, 256), depth))
    out = Builder()
    y = out.emit(matmul, x, Const(np.ones((depth, columns), np.float32)))
    y = out.emit(add, y, Const(np.ones(columns, np.float32))) if biased else y
    return Module({"main": out.function("main", [x], [out.emit(relu, y)])})


def halves() -> Module:
    return dispatch(module(), lambda _: {"x": {0: [(1, 16), (16, 257)]}})


LOW, HIGH = [{"N": n} for n in (5, 10, 15)], [{"N": n} for n in (16, 64, 256)]
MACHINE = Machine(0.1)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "product.csv"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


OPTIONS = {"trials": 10**6, "measurer": MACHINE}


def begun(stack: ExitStack, log: Path, mod: Module, sizes: object, **more: object) -> TuningSession:
    options = Options(log=log, sizes=sizes, **(OPTIONS | more))  # type: ignore[arg-type]
    return stack.enter_context(opened(mod, options))


def heard(database: Database, task: Task) -> Search:
    search = Search(task.space)
    Transfer(database).tell(task, search)
    return search


def known(log: Path) -> Database:
    return Database.of(rows(log), 1)


def only(mod: Module, sizes: object) -> Task:
    (subject,) = subjects_of(mod, sizes)  # type: ignore[arg-type]
    (task,) = subject.tasks
    return task


# --- who is heard --------------------------------------------------------------------------------


def test_the_bucket_beside_is_heard_at_each_of_its_sizes(log: Path, stack: ExitStack) -> None:
    session = begun(stack, log, halves(), LOW)
    session.work()
    tried = len({t.schedule_hash for t in session.written})
    told = heard(known(log), only(halves(), HIGH)).neighbours
    assert [len(n.beyond) for n in told] == [tried] * 3
    middle = math.log(16 * 64 * 256) / 3
    assert [n.away for n in told] == pytest.approx([math.log(n) - middle for n in (15, 10, 5)])


def test_what_is_heard_is_what_was_not_believed_there(log: Path, stack: ExitStack) -> None:
    begun(stack, log, halves(), [{"N": 4}]).work()
    task, there = only(halves(), HIGH), only(halves(), [{"N": 4}])
    ((neighbour),) = heard(known(log), task).neighbours
    assert there.space.believed is not None
    default = MACHINE.log(schedule_hash(there.default.schedule))
    for at, beyond in neighbour.beyond.items():
        made = task.space.points[at]
        found = MACHINE.log(schedule_hash(made.schedule)) - default
        believed = there.space.believed[there.space.index[made.key]]
        assert beyond == pytest.approx(found - believed)


@pytest.mark.parametrize(
    ("other", "hears"),
    [
        (module(), True),
        (module(biased=True), True),  # another workload with weights of the same extents
        (module(depth=DEPTH + 16), False),
        (module(columns=COLUMNS + 16), False),
    ],
)
def test_products_are_kin_that_differ_by_rows(
    log: Path, stack: ExitStack, other: Module, hears: bool
) -> None:
    begun(stack, log, other, LOW).work()
    assert bool(heard(known(log), only(module(), HIGH)).neighbours) == hears


def test_a_task_does_not_hear_what_its_search_counts(log: Path, stack: ExitStack) -> None:
    begun(stack, log, module(), LOW).work()
    session = begun(stack, log, module(), LOW)
    (task,) = session.tasks
    assert session.scheduler.searches[task].tried
    assert session.scheduler.heard(task).neighbours == ()


def test_it_hears_what_is_known_at_some_of_its_sizes_only(log: Path, stack: ExitStack) -> None:
    begun(stack, log, module(), LOW[:1]).work()
    session = begun(stack, log, module(), LOW)
    (task,) = session.tasks
    assert not session.scheduler.searches[task].tried
    assert len(session.scheduler.heard(task).neighbours) == 1


def test_the_nearest_are_heard(log: Path, stack: ExitStack) -> None:
    begun(stack, log, module(), [{"N": n} for n in range(2, NEAREST + 5)]).work()
    told = heard(known(log), only(module(), [{"N": 1}])).neighbours
    nearest = range(2, NEAREST + 2)
    assert [n.away for n in told] == pytest.approx([math.log(n) for n in nearest])


def test_rows_that_compare_with_nothing_known_tell_nothing(log: Path, stack: ExitStack) -> None:
    begun(stack, log, module(), LOW).work()
    for baseline in ("", "no implementation", "matmul mr=99"):
        changed = [replace(t, baseline=baseline) for t in rows(log)]
        assert not heard(Database.of(changed, 1), only(module(), HIGH)).neighbours


@pytest.mark.parametrize(
    "changes",
    [{"shape": "8x256"}, {"shape": ""}, {"shape": "8x0,0x256"}, {"flops": 1.0}, {"flops": None}],
)
def test_what_is_no_product_is_kin_of_none(
    log: Path, stack: ExitStack, changes: dict[str, Any]
) -> None:
    begun(stack, log, module(), LOW).work()
    every = rows(log)
    assert any(map(is_product, every))
    changed = [replace(t, **changes) for t in every]
    assert not any(map(is_product, changed))
    assert Database.of(changed, 1).kin.keys() == {t.workload for t in every}


@pytest.mark.parametrize(
    ("template", "shape", "flops"),
    [
        ("matmul", "2x4x8,2x8x16", 2.0 * 3 * 8 * 16),
        ("matmul", "8,2x8x16", 4096.0),
        ("matmul", "4x8,16", 4096.0),
        ("conv2d", "1x8x8x4,16x8x3x3", 1e6),
        ("conv2d", "8x8x4,16x4x3x3", 1e6),
        ("conv2d", "1x8x8x4,16x4x3", 1e6),
    ],
)
def test_shapes_and_work_that_do_not_agree_are_no_product(
    log: Path, stack: ExitStack, template: str, shape: str, flops: float
) -> None:
    begun(stack, log, module(), LOW).work()
    one = replace(rows(log)[0], template=template, shape=shape, flops=flops)
    assert not is_product(one)


def test_what_was_measured_in_a_larger_model_stands_by_itself(log: Path, stack: ExitStack) -> None:
    session = begun(stack, log, module(), LOW)
    session.work()
    trials = [replace(t, latency_median_s=1e-3, baseline_s=1e-3) for t in rows(log)]
    colder = [replace(t, graph_bytes=1e9, baseline_s=2e-3) for t in trials]
    once, twice = (observations(session.tasks, its) for its in (trials, trials + colder))
    warm = {task.weight_bytes for task in session.tasks}
    assert {o.cold_bytes for o in once} == warm
    assert {o.cold_bytes for o in twice} == {*warm, 10**9}
    cold = [seconds for o in twice if o.cold_bytes == 10**9 for seconds in o.seconds]
    assert [s for o in twice if o.cold_bytes in warm for s in o.seconds] == [
        s for o in once for s in o.seconds
    ]
    assert len(cold) == len(trials)
    assert len(kernels_of(session.tasks, trials + colder)) == 2 * len(once)


def test_failures_tell_nothing(log: Path, stack: ExitStack) -> None:
    begun(stack, log, module(), LOW).work()
    failed = [replace(t, latency_median_s=None) for t in rows(log)]
    assert not heard(Database.of(failed, 1), only(module(), HIGH)).neighbours


# --- what it spares ------------------------------------------------------------------------------


def tried(session: TuningSession) -> int:
    return len({(t.workload, t.schedule_hash) for t in session.written})


def test_the_second_bucket_needs_the_default_and_what_was_best_in_the_first(
    log: Path, tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with as many schedules, whatever this one has: each has its own chance."""
    wide = replace(host(), name="", lanes=16, registers=32, l1=48 << 10, l2=2 << 20, l3=300 << 20)

    class WideBench(LocalRunner):
        __init__ = partialmethod(LocalRunner.__init__, target=wide)

    monkeypatch.setattr(entry, "LocalRunner", WideBench)
    first = begun(stack, log, halves(), LOW)
    first.work()
    second, alone = (begun(stack, path, halves(), HIGH) for path in (log, tmp_path / "alone.csv"))
    second.work()
    alone.work()
    best = min(first.written, key=lambda t: t.latency_median_s or math.inf).schedule_hash
    order = dict.fromkeys(t.schedule_hash for t in second.written)
    assert list(order) == [schedule_hash(second.tasks[0].default.schedule), best]
    assert min(tried(alone), tried(first)) > len(order)


def test_a_workload_that_is_known_where_it_is_judged_needs_no_trial(
    log: Path, stack: ExitStack
) -> None:
    begun(stack, log, module(), LOW).work()
    again = begun(stack, log, module(), LOW, model="another")
    again.work()
    assert not again.written


def test_no_more_is_asked_at_once_than_is_worth_it(log: Path, stack: ExitStack) -> None:
    """When all that was asked turns out as expected, the rest is worth less than `until`."""
    free = begun(stack, log.with_name("free.csv"), module(), LOW, until=0.0)
    ((task, free_asked),) = free.batch(free.subjects)
    search = free.scheduler.heard(task)
    gains = [search.expecting(free_asked[:n]).gain() for n in range(len(free_asked) + 1)]
    least = next(n for n in range(2, len(gains)) if gains[n] < gains[n - 1])
    assert least < len(free_asked)
    until = (gains[least] + gains[least - 1]) / 2
    session = begun(stack, log, module(), LOW, until=until)
    ((_, asked),) = session.batch(session.subjects)
    assert [p.implementation for p in asked] == [p.implementation for p in free_asked[:least]]


@pytest.mark.parametrize("search", ["grid", "random"])
@pytest.mark.filterwarnings("ignore:.*measured elsewhere")
def test_who_expects_nothing_grows_no_forest(
    log: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, search: str
) -> None:
    """Neither of the logs that come with the project, nor of what other processors found."""
    monkeypatch.setattr(believing, "forest", None)
    monkeypatch.setattr(beginning, "Forest", None)
    begun(stack, log, module(), LOW[:1], search=search, trials=3).work()
    assert len({t.schedule_hash for t in rows(log)}) == 3
    elsewhere(log)
    again = begun(stack, log, module(), LOW[:1], search=search, trials=3)
    again.work()
    assert tried(again) == 3


@pytest.mark.parametrize(("trials", "learns"), [(9, True), (1, False)])
def test_what_is_expected_is_computed_before_the_time_runs(
    log: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, trials: int, learns: bool
) -> None:
    """Where nothing but the default may be tried, nothing is learnt."""
    done: list[str] = []
    begin = Budget.begin

    def grown(target: Target) -> Forest:
        done.append("forest")
        return forest(target)

    def started(budget: Budget) -> None:
        done.append("clock")
        begin(budget)

    monkeypatch.setattr(believing, "forest", grown)
    monkeypatch.setattr(Budget, "begin", started)
    begun(stack, log, module(), LOW[:1], trials=trials).work()
    assert done[-1] == "clock"
    assert ("forest" in done) is learns


def test_what_was_learnt_is_kept_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path))
    few = tuple(records(rows(logs()[0])))[:4]
    monkeypatch.setattr(residual, "reference", lambda: few)
    learn, target = forest.__wrapped__, target_of(processor())
    first = learn(target)
    monkeypatch.setattr(residual, "reference", None)
    again = learn(target)
    asked = [r.product for r in few], few[0].schedules
    assert first.expected(*asked).tolist() == again.expected(*asked).tolist()
    with pytest.raises(TypeError):  # as there is nothing of a machine of this speed
        learn(replace(target, speed=replace(target.speed, ghz=9.0)))


# --- from another processor ----------------------------------------------------------------------


@pytest.fixture
def few_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the logs that come with the project: a forest is grown of them in each session."""
    monkeypatch.setattr(beginning, "reference", lambda: reference()[::6])


def elsewhere(log: Path) -> None:
    """Make the rows of a log those of another processor."""
    there = [replace(t, host_cpu="znver9") for t in rows(log)]
    log.unlink()
    for trial in there:
        append(log, trial)


@pytest.mark.usefixtures("few_references")
@pytest.mark.filterwarnings("ignore:.*measured elsewhere")
def test_what_another_processor_found_is_no_news_from_a_neighbour(
    log: Path, stack: ExitStack
) -> None:
    begun(stack, log, module(), [*LOW, *HIGH], search="grid").work()
    elsewhere(log)
    begun(stack, log, module(), HIGH).work()
    session = begun(stack, log, module(), [{"N": 32}])
    (task,) = session.tasks
    told = session.scheduler.heard(task).neighbours
    plain = heard(session.database, task).neighbours
    assert len(told) == len(plain) == len(HIGH)
    news, of_all = ([abs(b) for n in of for b in n.beyond.values()] for of in (told, plain))
    assert sum(news) < 0.9 * sum(of_all)


@pytest.mark.usefixtures("few_references")
@pytest.mark.filterwarnings("ignore:.*measured elsewhere")
def test_what_another_processor_found_is_believed_more_but_no_trial_of_this_one(
    log: Path, stack: ExitStack
) -> None:
    begun(stack, log, module(), LOW, search="grid").work()
    elsewhere(log)
    (plain,) = tasks_of(module(), LOW)
    session = begun(stack, log, module(), LOW)
    (task,) = session.tasks
    search = session.scheduler.searches[task]
    assert not search.tried
    true = [MACHINE.log(schedule_hash(p.schedule)) for p in plain.space.points]
    before, after = (
        np.corrcoef(true, believed)[0, 1]
        for believed in (plain.space.believed, search.space.believed)
    )
    assert after > before + 0.1


def test_a_log_of_this_processor_alone_leaves_beliefs_as_they_are(
    log: Path, stack: ExitStack
) -> None:
    begun(stack, log, module(), LOW).work()
    session = begun(stack, log, module(), HIGH)
    (task,) = session.tasks
    assert session.scheduler.searches[task].space is task.space


def test_rows_of_other_threads_are_no_neighbours(log: Path, stack: ExitStack) -> None:
    begun(stack, log, module(), LOW).work()
    others: list[Trial] = [replace(t, threads=2) for t in rows(log)]
    assert not heard(Database.of(others, 1), only(module(), HIGH)).neighbours
