"""Tuning sessions, most of them over a template that goes wrong in every way a kernel can."""

from __future__ import annotations

import inspect
import json
import math
import os
import pickle
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketize import zoo
from bucketize.dispatch.tree import dispatch
from bucketize.errors import ArgumentError, BucketizeWarning, LogError, TuneError, UnknownNameError
from bucketize.ir import Builder, Const, Module, Var
from bucketize.kernel.build import cores
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.template import Launch
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.workload import Workload
from bucketize.log.environment import here
from bucketize.log.log import LogWarning, append, rows
from bucketize.log.outcome import Outcome
from bucketize.log.trial import PLACE, Origin, Trial
from bucketize.measure import process as child_module
from bucketize.measure import runner as measure
from bucketize.measure.case import case_of
from bucketize.measure.job import Job
from bucketize.measure.process import Child, DeathError, Event, Limits
from bucketize.measure.runner import Replay, Worker
from bucketize.measure.timer import parts
from bucketize.onnx import from_onnx
from bucketize.ops import conv2d, matmul, relu
from bucketize.tune import recorder as journal_module
from bucketize.tune.api import opened, tune
from bucketize.tune.options import Options
from bucketize.tune.progress import WAITING, Progress
from bucketize.tune.recorder import Recorder
from bucketize.tune.task import tasks_of
from bucketize.types import Profile, Symbol, tensor

KINDS = {
    "none": "none",
    "wrong": "wrong_answer",
    "unfinished": "wrong_answer",
    "rim": "wrong_answer",
    "crash": "crash",
    "hang": "run_timeout",
    "broken": "compile",
    "die": "crash",
    "endless": "compile_timeout",
    "chatter": "none",
    "tires": "crash",
    "stalls": "run_timeout",
    "refuses": "compile",
}
OTHERS = 1  # implementations of other templates
LIMITS = Limits(prepare_s=900.0, compile_s=900.0, run_s=900.0)  # nothing that ends is as slow


@pytest.fixture(scope="module", autouse=True)
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The faulty template, known to this process for as long as this file runs."""
    before = dict(TEMPLATES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUCKETIZE_CACHE", str(tmp_path_factory.mktemp("kernels")))
        patch.setattr(measure, "Child", measure.Child)  # which the plugin replaces
        import faulty

        assert next(iter(TEMPLATES)) == faulty.FAULTY.name
        yield
    TEMPLATES.clear()
    TEMPLATES.update(before)
    del sys.modules["faulty"]


@pytest.fixture(scope="module")
def worker(plugin: None) -> Iterator[Worker]:
    """Of all tests: what dies in one is started anew for the next."""
    with Worker(LIMITS, plugins=["faulty"], has_clock=False) as worker:
        yield worker


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "relu.csv"


def module(hi: int | None = 64) -> Module:
    x = Var("x", tensor("float32", Symbol("N", 1, hi), 8))
    out = Builder()
    y = out.emit(relu, x)
    return Module({"main": out.function("main", [x], [y])})


def dispatched(hi: int | None = 64) -> Module:
    intervals = [(1, 2), (2, 16), (16, None)]
    return dispatch(module(hi), lambda _: {"x": {0: intervals}})


def fault(trial: Trial) -> str:
    """What is wrong with the kernel; the template's name where it is none of ours."""
    return str(json.loads(trial.schedule).get("fault", trial.template))


def identity(trial: Trial) -> tuple[str, str, str, str]:
    return trial.workload, trial.template, trial.schedule_hash, trial.shape


def faulty_job(*faults: str) -> Job:
    """A job of these implementations."""
    (task,) = tasks_of(module(), [{"N": 4}])
    (point,) = task.points
    return Job(
        workload=task.workload,
        shape=point.shape,
        implementations=tuple(Implementation("faulty", {"fault": f, "copy": 1}) for f in faults),
        sizes=point.sizes,
    )


def children() -> list[psutil.Process]:
    """Those that measure; other tests may have left others."""
    found = psutil.Process().children()
    return [child for child in found if "bucketize.measure.worker" in child.cmdline()]


# --- measurement ---------------------------------------------------------------------------------


def test_every_way_to_go_wrong_is_a_row_and_tuning_goes_on(log: Path, worker: Worker) -> None:
    options = {"log": log, "trials": 99, "search": "grid", "sizes": "middle", "measurer": worker}
    frame = tune(module(), **options)
    written = rows(log)
    assert len(frame) == len(written) == len(KINDS) + 1 + OTHERS
    assert fault(written[0]) == "none"
    kinds = {fault(t): t.error_kind for t in written}
    assert kinds == {**KINDS, "elementwise": "none"}
    for trial in written:
        good = trial.error_kind == "none"
        assert trial.status == ("ok" if good else "failed")
        assert (trial.latency_median_s is not None) == good
        assert bool(trial.error) != good
        assert trial.baseline_s is not None  # the default's, in the same rounds
        assert (trial.repeats >= 5) == good
        assert (trial.ratio_low is None) != good
    errors = {fault(t): t.error for t in written}
    assert "killed by SIGSEGV in run" in errors["crash"]
    assert "killed by SIGSEGV in run" in errors["tires"]
    assert "still in run after 900 s" in errors["stalls"]
    assert "still in compile after 900 s" in errors["endless"]
    assert "there_is_no_such_name" in errors["broken"]
    assert "outside" in errors["rim"]
    assert errors["refuses"] == "ArithmeticError: no text for this"
    assert frame["error_kind"].tolist() == [t.error_kind for t in written]
    before = log.read_bytes()
    assert tune(module(), **options).empty
    assert log.read_bytes() == before


def test_a_row_tells_how_its_trial_came_about(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path / "kernels"))
    x = Var("x", tensor("float32", Symbol("N", 1, 64), 8))
    out = Builder()
    y = out.emit(matmul, x, Const(np.ones((8, 16), np.float32)))
    mod = Module({"main": out.function("main", [x], [y])})
    split = dispatch(mod, lambda _: {"x": {0: [(1, 2), (2, 65)]}})
    options = {"trials": 3, "seed": 7, "sizes": "middle", "until": 0.0}
    with Worker(LIMITS, has_clock=False) as worker:
        tune(split, log=log, measurer=worker, **options)
        tune(mod, log=tmp_path / "again.csv", measurer=worker, **options)
        tune(mod, log=tmp_path / "again.csv", measurer=worker, **{**options, "search": "grid"})
    first, again = rows(log), rows(tmp_path / "again.csv")
    assert {(row.search, row.seed, row.dispatcher) for row in first} == {("skopt", 7, "N=1,2..64")}
    assert {row.dispatcher for row in again} == {""}
    assert {row.build for row in first} == {"compiled"}
    assert "cached" in {row.build for row in again}
    for row in (*first, *again):
        assert row.packed_bytes is not None
        assert row.packed_bytes >= 8 * 16 * 4
        assert row.load is not None
        assert row.latency_q1_s <= row.latency_median_s <= row.latency_q3_s
        assert row.baseline_q1_s <= row.baseline_s <= row.baseline_q3_s
        proposed = row.source == "skopt"
        assert (row.expected_ratio is not None) == (row.expected_gain is not None) == proposed


@pytest.mark.parametrize("late", ["tires", "stalls"])
def test_who_fails_in_the_rounds_is_found_and_the_others_are_timed(
    worker: Worker, late: str
) -> None:
    """No event tells which of them was running: each is timed alone."""
    (outcomes,) = worker.measure([faulty_job("none", late, "chatter", "wrong")])
    kinds = [outcome.error_kind for outcome in outcomes]
    assert kinds == ["none", KINDS[late], "none", "wrong_answer"]
    assert [len(outcome.seconds) >= 5 for outcome in outcomes] == [True, False, True, False]


def test_what_takes_too_long_to_prepare_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once more for each implementation, alone."""
    asked: list[int] = []

    def ask(_: Child, what: Event) -> Event:
        if "build" in what:
            return {"error": "", "compile_s": 0.1}
        asked.append(len(what["job"].implementations))
        raise DeathError("run_timeout", "still in prepare after 300 s", {"stage": "prepare"})

    monkeypatch.setattr(measure.Child, "ask", ask)
    (outcomes,) = Worker(LIMITS).measure([faulty_job("none", "wrong", "chatter")])
    assert asked == [3]
    assert [outcome.error_kind for outcome in outcomes] == ["run_timeout"] * 3


def test_implementations_of_a_job_have_as_many_rounds(worker: Worker) -> None:
    (outcomes,) = worker.measure([faulty_job("none", "chatter")])
    ours, theirs = (len(outcome.seconds) for outcome in outcomes)
    assert ours == theirs
    assert outcomes[0].beside(outcomes[1])["repeats"] == ours


def test_a_job_is_read_back() -> None:
    """As a child reads it: with the constants that the workload computes with."""
    x, out = Var("x", tensor("float32", Symbol("N", 1, 64), 3)), Builder()
    y = out.emit(matmul, x, Const(np.arange(6.0, dtype=np.float32).reshape(3, 2)))
    workload = Workload(out.function("main", [x], [y]), (False,))
    job = replace(faulty_job("none", "wrong"), workload=workload, threads=2)
    again: Job = pickle.loads(pickle.dumps(job))
    ours, theirs = (each.workload.body.body[0].args[1] for each in (job, again))
    assert np.array_equal(ours.value, theirs.value)
    assert (again.workload.key, again.workload.constant) == (workload.key, workload.constant)
    assert replace(again, workload=workload) == job


def test_sizes_of_a_workload_share_its_constants_and_their_layouts() -> None:
    x = Var("x", tensor("float32", Symbol("N", 1, 64), 8))
    out = Builder()
    y = out.emit(matmul, x, Const(np.ones((8, 16), np.float32)))
    (task,) = tasks_of(Module({"main": out.function("main", [x], [y])}), [{"N": 2}, {"N": 5}])
    jobs = [
        Job(
            workload=task.workload,
            shape=point.shape,
            implementations=(task.default,),
            sizes=point.sizes,
        )
        for point in task.points
    ]
    two, five = map(case_of, jobs)
    place = task.workload.constant.index(True)
    assert two.inputs[place] is five.inputs[place]
    packed = two.laid_out(place, "twice", lambda: np.tile(two.inputs[place], 2))
    assert five.laid_out(place, "twice", lambda: None) is packed
    assert len(two.ring(place, packed, 3)) == 3
    assert five.rings is two.rings
    for case, extent in ((two, 2), (five, 5)):
        (a,) = (array for i, array in enumerate(case.inputs) if i != place)
        assert a.shape == (extent, 8)
        np.testing.assert_allclose(case.expected, a @ case.inputs[place], rtol=1e-4, atol=1e-5)


def test_two_threads_are_measured_apart(log: Path, worker: Worker) -> None:
    options = {"log": log, "trials": 1, "sizes": "middle", "measurer": worker}
    tune(module(), **options)
    (trial,) = tune(module(), threads=2, **options).itertuples()
    assert (trial.threads, trial.error_kind) == (2, "none")


def test_a_worker_that_does_not_start_is_an_error(log: Path) -> None:
    before = set(children())
    with (
        Worker(plugins=["no_such_plugin"]) as worker,
        pytest.raises(TuneError, match=r"exit status 1 \(cannot import the plugin no_such"),
    ):
        tune(module(), log=log, measurer=worker)
    assert set(children()) == before


def test_a_cache_that_takes_no_kernel_is_no_fault_of_kernels(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row says that one failed, so that the next session tunes."""
    options = {"log": log, "trials": 2, "until": 0.0}
    monkeypatch.setenv("BUCKETIZE_CACHE", "/proc/kernels")
    with (
        Worker(LIMITS) as worker,
        pytest.raises(TuneError, match="cannot keep a kernel in /proc/kernels"),
    ):
        tune(module(), measurer=worker, **options)
    assert not log.exists()
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path / "kernels"))
    with Worker(LIMITS) as worker:
        tune(module(), measurer=worker, **options)
    assert {row.error_kind for row in rows(log)} == {"none"}


class Scripted(Child):
    """A process that says what it is told to."""

    script = ""

    def _command(self) -> list[str]:
        return [sys.executable, "-c", self.script]


def test_a_worker_that_is_not_ready_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "START_LIMIT_S", 0.1)
    child = Scripted(LIMITS)
    child.script = "input()"
    with pytest.raises(TuneError, match=r"^the measuring process is not ready after 0\.1 s$"):
        child.ask({})
    assert child._process is None


def test_a_process_that_says_no_more_but_lives_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "DYING_S", 0.1)
    child = Scripted(LIMITS)
    child.script = "import os, sys; os.write(1, b'{}\\n'); input(); os.close(1); sys.stdin.read()"
    with pytest.raises(DeathError, match="killed by SIGKILL in prepare"):
        child.ask({})
    assert child._process is None


def test_the_processes_of_a_worker_start_when_it_is_entered_and_end_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure, "cores", cores)  # as it is where no tests run beside each other
    with Worker() as worker:  # one that has just begun has no command line yet to be found by
        began = [psutil.Process(child._process.pid) for child in worker._children if child._process]
        assert len(began) == cores()
    assert not any(process.is_running() for process in began)


def test_a_worker_that_knows_no_such_template_is_an_error(log: Path) -> None:
    with Worker() as worker, pytest.raises(TuneError, match="no template named 'faulty'; known"):
        tune(module(), log=log, measurer=worker)


def test_a_worker_that_died_in_between_is_started_anew(log: Path, worker: Worker) -> None:
    options = {"log": log, "search": "grid", "sizes": "middle", "measurer": worker}
    tune(module(), trials=1, **options)
    for child in children():
        child.kill()
        child.wait()
    (trial,) = tune(module(), trials=2, **options).itertuples()
    assert trial.error_kind == "none"


# --- interruptions -------------------------------------------------------------------------------

SCRIPT = """
import pickle, sys
from bucketize.measure import runner
from bucketize.measure.runner import Worker
from bucketize.tune.api import tune
import faulty
log, trials, children = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
module, limits = pickle.loads(bytes.fromhex(sys.argv[4]))
runner.cores = lambda: children
def progress(told):
    if told.done >= trials:
        print("so many", flush=True)
        sys.stdin.read()
options = {"trials": 6, "search": "grid", "sizes": "middle", "progress": progress}
with Worker(limits, plugins=["faulty"], has_clock=False) as worker:
    frame = tune(module, log=log, measurer=worker, **options)
print(len(frame))
"""


def start(log: Path, trials: int = 99, children: int = 1) -> subprocess.Popen[str]:
    """A session of so many measuring processes that after so many trials says so, and waits."""
    given = pickle.dumps((module(), LIMITS)).hex()
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(log), str(trials), str(children), given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_a_killed_session_resumes_without_loss_or_repetition(log: Path, worker: Worker) -> None:
    child = start(log, 2, 2)
    assert child.stdout is not None
    assert child.stdout.readline() == "so many\n"
    measuring = psutil.Process(child.pid).children()
    child.kill()
    child.communicate()
    kept = rows(log)
    assert 2 <= len(kept) < 6
    frame = tune(module(), log=log, trials=6, search="grid", sizes="middle", measurer=worker)
    assert rows(log)[: len(kept)] == kept
    assert len(rows(log)) == len(kept) + len(frame) == 6
    assert max(Counter(map(identity, rows(log))).values()) == 1
    assert len(measuring) == 2
    for process in measuring:
        process.wait()  # it saw its input end


def test_two_sessions_on_one_log_lose_nothing_and_repeat_nothing(log: Path) -> None:
    sessions = [start(log), start(log)]
    printed = [int(session.communicate()[0]) for session in sessions]
    assert sum(printed) == len(rows(log)) == 6
    assert max(Counter(map(identity, rows(log))).values()) == 1
    assert {fault(t) for t in rows(log)} == {"none", "wrong", "unfinished", "rim", "crash"}


@pytest.fixture
def other(log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another session, whose turn it is."""
    code = f"import filelock; turn = filelock.FileLock({str(log) + '.turn.lock'!r}); turn.acquire()"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{code}; print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    yield holder
    holder.kill()
    holder.communicate()


def test_who_waits_for_another_session_says_so_until_the_time_is_up(
    log: Path, other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketize.lock.PATIENCE_S", 0.05)
    told = rf"another session is at work on .*relu\.csv, .* which process {other.pid} holds"
    came: list[Progress] = []
    with pytest.warns(BucketizeWarning, match=told) as warned:
        tune(
            module(), log=log, measurer=Pretend(), seconds=0.2, sizes="middle", progress=came.append
        )
    assert len(warned) == 1
    assert {at.op for at in came} == {WAITING}
    assert f"which process {other.pid} holds" in came[0].workload
    assert not log.exists()


def test_the_time_for_a_turn_is_that_of_both_locks(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, waits = 0.0, list[float]()

    @contextmanager
    def slow(_path: Path, seconds: float, _say: object) -> Iterator[None]:
        nonlocal now
        waits.append(seconds)
        now += 7.0
        yield

    monkeypatch.setattr(journal_module, "locked", slow)
    recorder = Recorder(log, Origin("relu", 1, here(), "grid", 0), clock=lambda: now)
    with recorder.turn(10.0):
        assert waits == [10.0, 3.0]


def test_rows_tell_how_long_the_session_may_go_on(log: Path) -> None:
    left = [trial.left_s for trial in record(log, module(), trials=4, seconds=1e6)]
    assert len(left) == 4
    assert all(s is not None and 0 < s <= 1e6 for s in left)
    assert left == sorted(left, reverse=True)  # type: ignore[type-var]
    endless = record(log.with_name("endless.csv"), module(), trials=4)
    assert {trial.left_s for trial in endless} == {None}


def test_a_session_that_was_killed_holds_nobody_up(
    log: Path, other: subprocess.Popen[bytes]
) -> None:
    other.kill()
    other.wait()
    assert len(tune(module(), log=log, measurer=Pretend(), trials=2, sizes="middle")) == 2


def test_what_another_session_measures_meanwhile_is_not_measured_again(log: Path) -> None:
    """And what it measured on other threads is not taken for the same."""
    whole = record(log.with_name("alone.csv"), module(), trials=6)
    asked = {"search": "grid", "sizes": "middle", "trials": 6, "until": 0.0}
    with opened(module(), Options(log=log, measurer=Pretend(), **asked)) as session:  # type: ignore[arg-type]
        for trial in whole[:4]:
            append(log, replace(trial, run_id="another"))
        for trial in whole:
            append(log, replace(trial, run_id="third", threads=2, status="failed", **FAILED))
        with pytest.warns(
            BucketizeWarning, match=r"another session is .* \(10 rows of others came"
        ):
            session.work()
    assert list(map(identity, session.written)) == list(map(identity, whole[4:]))


FAILED = {"error_kind": "crash", "latency_median_s": None}


def test_an_interrupt_leaves_a_good_log_and_no_child(log: Path) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.done:
            raise KeyboardInterrupt

    before = set(children())
    with Worker(LIMITS, plugins=["faulty"]) as worker, pytest.raises(KeyboardInterrupt) as e:
        tune(module(), log=log, sizes="middle", measurer=worker, progress=interrupt)
    (kept,) = e.value.__notes__
    number = len(rows(log))
    assert number > 0
    assert kept == (
        f"{log} keeps the {number} trials of this session; the same call goes on from there"
    )
    assert set(children()) == before


def test_a_truncated_log_loses_one_trial_which_is_measured_again(log: Path, worker: Worker) -> None:
    options = {"log": log, "trials": 3, "search": "grid", "sizes": "middle", "measurer": worker}
    tune(module(), **options)
    log.write_bytes(log.read_bytes()[:-20])
    with pytest.warns(LogWarning) as warned:
        frame = tune(module(), **options)
    assert [str(w.message).split(": ")[1][:7] for w in warned] == ["skipped", "removed"]
    assert [fault(t) for t in rows(log)] == ["none", "none", "wrong"]
    assert len(frame) == 1


def test_trials_of_other_versions_do_not_count(log: Path) -> None:
    recorded = record(log, module(), trials=2)
    older = log.with_name("older.csv")
    for trial in recorded:
        append(older, Trial(**{**vars(trial), "numba_version": "0.1"}))
    replay = Replay(recorded)
    with pytest.warns(LogWarning, match=r"skipped 2 of 2 .* numba_version 0\.1"):
        frame = tune(module(), log=older, trials=2, search="grid", sizes="middle", measurer=replay)
    assert len(frame) == 2


def test_what_is_no_log_is_refused(log: Path) -> None:
    log.write_text("time,seconds\n1,2\n")
    with pytest.raises(LogError, match="is no tuning log: its first line begins with"):
        tune(module(), log=log, measurer=Replay([]))


# --- sessions without a clock ---------------------------------------------------------------------


class Pretend:
    """A measurer that knows: `speed` of each fault, in microseconds."""

    source = None

    def __init__(self, *, has_clock: bool = False, **speed: float) -> None:
        self.has_clock = has_clock
        self.speed = speed
        self.jobs: list[tuple[str, ...]] = []
        """The shape of each, and what was timed beside the default."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[list[Outcome]]:
        for job in jobs:
            named = [str(i.schedule.get("fault", i.template)) for i in job.implementations]
            self.jobs.append((job.shape, *named))
            yield [Outcome(seconds=(self.seconds(name, job),) * 15) for name in named]

    def seconds(self, name: str, _: Job) -> float:
        return self.speed.get(name, 50.0) * 1e-6


def record(log: Path, mod: Module, **options: object) -> list[Trial]:
    asked = {"search": "grid", "sizes": "middle", "measurer": Pretend(), **options}
    tune(mod, log=log, **asked)
    return rows(log)


def test_replay_needs_no_worker_and_says_so_in_the_log(log: Path, tmp_path: Path) -> None:
    recorded = record(log, module(), measurer=Pretend(hang=3.0))
    replayed = tmp_path / "replayed.csv"
    options = {"sizes": "middle", "measurer": Replay(recorded)}
    frame = tune(module(), log=replayed, trials=5, search="skopt", **options)
    assert frame["source"].unique().tolist() == ["replay"]
    latencies = {identity(t): t.latency_median_s for t in recorded}
    for trial in rows(replayed):
        assert trial.latency_median_s == latencies[identity(trial)]
    with pytest.raises(TuneError, match=r"replayed log has no trial of .* at 22x8 with 1 thread"):
        tune(module(16 * 31), log=replayed, **options)


def test_what_was_timed_in_a_clone_is_not_replayed_as_a_kernel(log: Path) -> None:
    recorded = record(log, module(), trials=1)
    (trial,) = recorded
    in_place = replace(trial, level=PLACE, latency_median_s=1.0)
    job = replace(faulty_job("none"), shape=trial.shape)
    ((outcome,),) = Replay([trial, in_place]).measure([job])
    assert outcome.seconds == (trial.latency_median_s,)


def test_neighbours_best_comes_second(log: Path) -> None:
    speed = Pretend(rim=1.0)
    record(log, dispatched(), measurer=speed, trials=11, sizes=[{"N": 1}])
    assert {t.bucket for t in rows(log)} == {"N=1"}
    told = record(log, dispatched(), measurer=speed, trials=3)
    sources = [(t.source, fault(t)) for t in told if t.bucket == "N=2..15"]
    assert sources[:2] == [("default", "none"), ("transfer", "rim")]


def test_progress_names_bucket_workload_and_best(log: Path) -> None:
    told: list[Progress] = []
    options = {"measurer": Pretend(none=10.0, wrong=5.0), "progress": told.append, "trials": 4}
    record(log, dispatched(), **options)
    assert [p.best for p in told] == [None, 0.5, 0.5, 0.5]  # before, and after each job
    assert [p.bucket for p in told] == ["N=1", "N=1", "N=2..15", "N=16..64"]
    assert {p.op for p in told} == {"relu"}
    assert [(p.done, p.total) for p in told] == [(0, 12), (4, 12), (8, 12), (12, 12)]
    assert {p.left_s for p in told} == {None}


def test_progress_counts_what_a_log_leaves_to_do(log: Path) -> None:
    record(log, dispatched(), trials=4)
    told: list[Progress] = []
    record(log, dispatched(), trials=99, seconds=1e6, progress=told.append)
    left = 3 * (len(KINDS) + 1 + OTHERS - 4)
    assert (told[0].done, told[0].total) == (0, left)
    assert told[-1].done == told[-1].total == left
    assert all(p.left_s is not None and 0 < p.left_s <= 1e6 for p in told)
    again: list[Progress] = []
    record(log, dispatched(), trials=99, progress=again.append)
    assert not again


def test_bounds_measure_each_schedule_at_three_shapes(log: Path) -> None:
    pretend = Pretend()
    record(log, dispatched(), sizes="bounds", trials=3, measurer=pretend)
    both = ("none", "none", "wrong")  # both copies
    assert pretend.jobs[:3] == [("1x8", *both), ("2x8", *both), ("16x8", *both)]
    assert {shape for shape, *_ in pretend.jobs[3:]} == {"5x8", "15x8", "32x8", "64x8"}
    again = Pretend()
    record(log, dispatched(), sizes="bounds", trials=3, measurer=again)
    assert again.jobs == []


def test_who_failed_at_one_shape_is_not_timed_at_the_next(log: Path) -> None:
    class Failing(Pretend):
        def measure(self, jobs: Sequence[Job]) -> Iterator[list[Outcome]]:
            for job, outcomes in zip(jobs, super().measure(jobs), strict=True):
                bad = [i.schedule.get("fault") == "wrong" for i in job.implementations]
                failed = Outcome(error_kind="crash", error="it was")
                yield [failed if b else o for b, o in zip(bad, outcomes, strict=True)]

    pretend = Failing()
    record(log, module(), sizes="bounds", trials=3, measurer=pretend)
    timed = [sum("wrong" in job for job in pretend.jobs), len(pretend.jobs)]
    assert timed == [1, 3]
    assert [fault(t) for t in rows(log) if t.status == "failed"] == ["wrong"]


def two(hi: int = 64) -> Module:
    """A workload whose size is open, and one that all clones share."""
    x = Var("x", tensor("float32", Symbol("N", 1, hi), 8))
    z = Var("z", tensor("float32", 3, 3))
    out = Builder()
    results = [out.emit(relu, x), out.emit(relu, z)]
    return Module({"main": out.function("main", [x, z], results)})


def test_a_workload_that_buckets_share_is_measured_once(log: Path) -> None:
    pretend = Pretend()
    mod = dispatch(two(), lambda _: {"x": {0: [(1, 8), (8, None)]}})
    written = record(log, mod, trials=2, measurer=pretend)
    assert sorted(shape for shape, *_ in pretend.jobs) == ["23x8", "3x3", "3x8"]
    assert max(Counter(map(identity, written)).values()) == 1


def test_what_several_dispatchers_share_is_measured_once(log: Path) -> None:
    coarse, fine = ([(1, 2), (2, None)], [(1, 2), (2, 9), (9, None)])
    mods = [dispatch(module(), lambda _, cut=cut: {"x": {0: cut}}) for cut in (coarse, fine)]
    pretend = Pretend()
    written = record(log, mods, trials=3, sizes="bounds", measurer=pretend)
    assert max(Counter(map(identity, written)).values()) == 1
    assert sum(shape == "1x8" for shape, *_ in pretend.jobs) == 1
    assert {t.bucket for t in written} == {"N=1", "N=2..64", "N=2..8", "N=9..64"}
    again = Pretend()
    record(log, mods[::-1], trials=3, sizes="bounds", measurer=again)
    assert again.jobs == []


def test_a_session_ends_in_time(log: Path) -> None:
    options = {"log": log, "sizes": "middle", "measurer": Pretend()}
    assert tune(module(), seconds=1e-9, **options).empty
    assert len(tune(module(), seconds=1e9, trials=3, **options)) == 3


def test_a_session_ends_when_little_is_left_to_gain(log: Path, tmp_path: Path) -> None:
    options = {"sizes": "middle", "trials": 99, "search": "skopt"}
    everything = len(KINDS) + 1 + OTHERS
    few = tune(module(), log=log, until=0.9, measurer=Pretend(), **options)
    assert len(few) < everything
    all_ = tune(module(), log=tmp_path / "all.csv", until=0.0, measurer=Pretend(), **options)
    assert len(all_) == everything
    grid = tune(module(), log=tmp_path / "grid.csv", until=0.9, measurer=Pretend(),
                **{**options, "search": "grid"})  # fmt: skip
    assert len(grid) == everything  # which expects nothing


def test_time_goes_to_what_takes_most(log: Path) -> None:
    class Uneven(Pretend):
        def seconds(self, name: str, job: Job) -> float:
            return super().seconds(name, job) * (1e6 if job.shape == "3x7" else 1.0)

    out, several = Builder(), [Var(f"x{i}", tensor("float32", 3, i)) for i in range(1, 10)]
    results = [out.emit(relu, x) for x in several]
    mod = Module({"main": out.function("main", several, results)})
    tune(mod, log=log, sizes="middle", trials=99, until=0.05, measurer=Uneven())
    tried = Counter(trial.shape for trial in rows(log))
    most = tried.pop("3x7")
    assert most > max(tried.values())


def test_the_model_is_named_after_the_log(log: Path) -> None:
    (first,) = record(log, module(), trials=1)
    assert (first.model, first.function, first.bucket) == ("relu", "main", "")
    (_, named) = record(log, module(), trials=2, model="mine")
    assert named.model == "mine"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"trials": 0}, TuneError, "trials: expected at least 1, got 0"),
        ({"log": 3}, ArgumentError, "expected the path of a log, got int"),
        ({"sizes": {"N": 3}}, ArgumentError, r"sizes: expected 'middle', .* got {'N': 3}"),
        ({"sizes": 3}, ArgumentError, r"or a list as \[{'N': 3}, .* got 3"),
        ({"sizes": [{"N": "x"}]}, ArgumentError, r"sizes: expected .* got \[{'N': 'x'}\]"),
        ({"client": "tcp://a:1"}, ArgumentError, r"expected distributed.Client\(.* got 'tcp:"),
        ({"threads": 999}, TuneError, r"threads: expected 1 to \d+, got 999"),
        ({"trials": "8"}, TuneError, "trials: expected at least 1, got '8'"),
        ({"threads": "2"}, TuneError, r"threads: expected 1 to \d+, got '2'"),
        ({"seconds": 0.0}, TuneError, "seconds: expected a finite number above 0, or None, got 0"),
        ({"seconds": math.inf}, TuneError, "seconds: expected .*, got inf"),
        ({"seconds": math.nan}, TuneError, "seconds: expected .*, got nan"),
        ({"seconds": "8"}, TuneError, "seconds: expected .*, got '8'"),
        ({"until": 1.0}, TuneError, "until: expected a share of the latency, from 0 to 1, got 1.0"),
        ({"until": -0.1}, TuneError, "until: expected a share .*, got -0.1"),
        ({"until": math.nan}, TuneError, "until: expected .*, got nan"),
        ({"until": "8"}, TuneError, "until: expected .*, got '8'"),
        ({"seed": 1 << 63}, TuneError, "seed: expected a whole number of 64 bits, got 9223372036"),
        ({"seed": 1.5}, TuneError, "seed: expected a whole number of 64 bits, got 1.5"),
        ({"traffic": 5}, ArgumentError, "traffic: expected a bucketize.Traffic, got 5"),
        ({"mod": []}, ArgumentError, "expected a Module or several, got none"),
        ({"progress": 7}, ArgumentError, "progress: expected True, None or a function, got 7"),
        ({"search": "luck"}, UnknownNameError, "'luck'; known: grid, random, skopt"),
        ({"sizes": "top"}, UnknownNameError, "'top'; known: bounds, middle"),
        ({"sizes": [{"N": 999}]}, TuneError, r"no bucket of main holds any of .*999"),
        ({"sizes": [({"N": 3}, 0.0)]}, TuneError, r"weight of .* is 0.0, expected a number above"),
        ({"sizes": [{"M": 3}]}, TuneError, r"the sizes \{'M': 3\} lack N of main"),
    ],
)
def test_bad_arguments(
    log: Path, options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        tune(**{"mod": module(), "log": log, "measurer": Pretend(), **options})
    assert not log.exists()


# --- tasks ----------------------------------------------------------------------------------------


def points(mod: Module, sizes: object = "middle") -> dict[str, list[tuple[str, float]]]:
    return {
        task.function: [(point.shape, point.weight) for point in task.points]
        for task in tasks_of(mod, sizes)
    }


def test_each_clone_is_judged_in_the_middle_of_its_bucket() -> None:
    assert points(dispatched()) == {
        "main[N=1]": [("1x8", 1.0)],
        "main[N=2..15]": [("5x8", 1.0)],
        "main[N=16..64]": [("32x8", 1.0)],
    }
    assert points(dispatched(None))["main[N=16..]"] == [("23x8", 1.0)]
    assert points(module(None)) == {"main": [("6x8", 1.0)]}


def test_bounds_are_low_middle_and_top() -> None:
    assert points(dispatched(), "bounds")["main[N=2..15]"] == [
        ("2x8", 1.0), ("5x8", 1.0), ("15x8", 1.0),
    ]  # fmt: skip
    assert points(dispatched(), "bounds")["main[N=1]"] == [("1x8", 3.0)]


def test_traffic_goes_to_the_bucket_that_serves_it() -> None:
    traffic = [{"N": 1}, ({"N": 3}, 0.5), ({"N": 15}, 2.0), {"N": 3}, {"N": 1000}]
    assert points(dispatched(), traffic) == {
        "main[N=1]": [("1x8", 1.0)],
        "main[N=2..15]": [("3x8", 1.5), ("15x8", 2.0)],
    }


def test_the_fallback_gets_the_traffic_that_no_bucket_serves() -> None:
    mod = dispatch(module(), lambda _: {"x": {0: [(2, 4)]}})
    assert points(mod, [{"N": 3}, {"N": 50}]) == {
        "main[fallback]": [("50x8", 1.0)],
        "main[N=2..3]": [("3x8", 1.0)],
    }


def conv_of(high: int, window: int = 3) -> Module:
    """A convolution that is legal where the height is at least that of its window."""
    x = Var("x", tensor("float32", Symbol("N", 1, 3), 3, Symbol("H", 1, high), 8))
    kernel = Const(np.ones((4, 3, window, 3), np.float32))
    out = Builder()
    return Module({"main": out.function("main", [x], [out.emit(conv2d, x, kernel)])})


def test_clones_that_are_not_legal_have_no_tasks() -> None:
    mod = dispatch(conv_of(8), lambda _: {"x": {2: [(1, 2), (2, 3), (3, 5)]}})
    assert {task.function for task in tasks_of(mod)} == {"main[H=3..4]", "main[fallback]"}
    with pytest.raises(TuneError, match=r"not legal at {'N': 1, 'H': 2}: a window of 3 .* over 2"):
        tasks_of(mod, [{"N": 1, "H": 3}, {"N": 1, "H": 2}])
    listed = [{"H": (1, 2)}, {"H": (2, 3)}]
    mod = dispatch(conv_of(8), lambda _: listed, fallback=False)
    with pytest.raises(TuneError, match="no clone is legal at any of its sizes: bound the symbols"):
        tasks_of(mod)


def test_schedules_are_judged_at_legal_sizes_only() -> None:
    mod = dispatch(conv_of(8), lambda _: {"x": {2: [(1, 3), (3, 9)]}}, fallback=False)
    assert set(points(mod)) == {"main[H=3..8]"}  # of H=1..2 none is legal, which no bound tells
    assert {p.sizes.get("H") for t in tasks_of(conv_of(8, 5)) for p in t.points} == {8}
    assert {p.sizes.get("H") for t in tasks_of(conv_of(8), "bounds") for p in t.points} == {3, 8}


def test_a_profile_is_judged_at_its_opt() -> None:
    profile = Profile({"x": (1, 8)}, {"x": (7, 8)}, {"x": (64, 8)}, name="all")
    mod = dispatch(module(), lambda _: [profile], fallback=False)
    assert list(points(mod).values()) == [[("7x8", 1.0)]]


def test_a_workload_that_occurs_twice_is_one_task() -> None:
    x = Var("x", tensor("float32", Symbol("N", 1, 64), 8))
    z = Var("z", tensor("float32", Symbol("M", 1, 64), 8))
    out = Builder()
    results = [out.emit(relu, x), out.emit(relu, z)]
    mod = Module({"main": out.function("main", [x, z], results)})
    (task,) = tasks_of(mod, [({"N": 2, "M": 4}, 1.0), ({"N": 4, "M": 4}, 1.0)])
    assert [(p.shape, p.weight) for p in task.points] == [("2x8", 1.0), ("4x8", 3.0)]
    assert [p.sizes for p in task.points] == [{"N": 2}, {"N": 4}]  # M is N, where it is one


def test_every_template_of_a_workload_has_its_trials(log: Path) -> None:
    """A depthwise convolution is one task; three templates compete for it."""
    x = Var("x", tensor("float32", 1, 16, 8, 8))
    out = Builder()
    y = out.emit(conv2d, x, Const(np.ones((16, 1, 3, 3), np.float32)), groups=16)
    mod = Module({"main": out.function("main", [x], [y])})
    (task,) = [task for task in tasks_of(mod) if task.op == "conv2d"]
    assert {p.template for p in task.space.points} == {"conv2d", "conv2d_loops", "depthwise"}

    class Steady(Pretend):
        def measure(self, jobs: Sequence[Job]) -> Iterator[list[Outcome]]:
            for job in jobs:
                yield [Outcome(seconds=(latency[i.template],)) for i in job.implementations]

    latency = {"conv2d": 1e-3, "depthwise": 2e-3, "conv2d_loops": 3e-3, "transpose": 1e-3}
    tune(mod, log=log, trials=9999, search="grid", measurer=Steady())
    mine = [trial for trial in rows(log) if trial.workload == task.workload.hash]
    assert Counter(t.template for t in mine) == Counter(p.template for p in task.space.points)
    assert {t.baseline_s for t in mine} == {latency[task.default.template]}  # so that they compare


def test_tasks_tell_their_layer_and_their_work(log: Path, worker: Worker) -> None:
    x = Var("x", tensor("float32", Symbol("N", 1, 4), 8))
    out = Builder()
    product = out.emit(matmul, x, Const(np.ones((8, 16), np.float32)))
    results = [out.emit(relu, product)]
    matmul_task, *_ = tasks_of(Module({"main": out.function("main", [x], results)}))
    (point,) = matmul_task.points
    assert point.sizes == {"N": 2}
    assert matmul_task.flops(point) == 2 * 2 * 8 * 16
    assert matmul_task.bytes(point) == 4 * (2 * 8 + 8 * 16 + 2 * 16)
    row = tune(module(), log=log, trials=1, sizes="middle", measurer=worker).iloc[0]
    assert row[["layer", "bytes"]].tolist() == ["%0", 2 * 4 * 8 * 8]
    assert math.isnan(row["flops"])  # no product in a relu
    layers = [task.layer for task in tasks_of(from_onnx(zoo.build("mlp")))]
    assert layers[::2] == ["/layers.0/Gemm+/layers.1/Relu", "/layers.4/Gemm"]


def test_the_options_are_keywords_of_tune() -> None:
    """With their defaults, which stand in `Options` alone; each is explained."""
    mod, *asked = inspect.signature(tune).parameters.values()
    assert (mod.name, mod.default) == ("mod", mod.empty)
    assert asked == list(inspect.signature(Options).parameters.values())
    explained = re.findall(r"^        (\w+): ", tune.__doc__ or "", re.M)
    assert explained[: 1 + len(asked)] == ["mod", *(each.name for each in asked)]
    with pytest.raises(TypeError, match="unexpected keyword argument 'trails'"):
        tune(module(), log="x.csv", trails=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"missing .* 'log'"):
        tune(module())  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError):
        Options(log="x.csv").trials = 3  # type: ignore[misc]


def test_the_public_name_is_callable_whatever_was_imported_first() -> None:
    script = "import bucketize; {}; bucketize.tune(None, log='x')"
    for first in (
        "import bucketize.log.log",
        "from bucketize.tune.api import tune",
        "bucketize.tune",
    ):
        done = subprocess.run(
            [sys.executable, "-c", script.format(first)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "ArgumentError: expected a Module, got NoneType" in done.stderr


def test_choosing_schedules_loads_neither_pandas_nor_the_search() -> None:
    script = (
        "import sys, bucketize.log.verdict, bucketize.log.log;"
        "print([name for name in ('pandas', 'skopt', 'sklearn') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


def test_a_session_begins_without_what_only_the_search_needs() -> None:
    script = (
        "import sys, bucketize.tune.api;"
        "late = ('numba', 'pandas', 'scipy.optimize', 'scipy.stats', 'skopt', 'sklearn');"
        "print([name for name in late if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


# --- calls and cases ------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(1, 8))
def test_threads_share_out_the_whole_extent(extent: int, grain: int, threads: int) -> None:
    cuts = parts(Launch((), extent, grain), threads)
    assert len(cuts) == threads
    assert [i for begin, end in cuts for i in range(begin, end)] == list(range(extent))
    assert all(begin % grain == 0 or begin == extent for begin, _ in cuts)
