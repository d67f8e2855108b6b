"""`tune`: tasks searched, each as long as it is worth it, what was found confirmed, all logged."""

from __future__ import annotations

import itertools
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd

from bucketize.busy import watched
from bucketize.errors import ArgumentError, TuneError, warn
from bucketize.ir import Module, check_module
from bucketize.log.fingerprint import dispatcher_of
from bucketize.log.frame import trial_frame
from bucketize.measure.cluster import Cluster, GoneError
from bucketize.measure.job import Worker
from bucketize.measure.runner import Bench, Measurer, Site
from bucketize.progress import shown
from bucketize.table import several
from bucketize.tune.progress import Progress, tuning_bar
from bucketize.tune.recorder import Journal
from bucketize.tune.session import Session
from bucketize.tune.sizes import Traffic
from bucketize.tune.task import Subject, subjects_of

UNTIL = 0.01  # of the whole latency: if all next trials are expected to save less, it is enough


def tune(  # noqa: PLR0913  (a session has that many choices, nearly all with a default)
    mod: Module | Iterable[Module],
    *,
    log: str | Path,
    trials: int = 64,
    search: str = "skopt",
    seed: int = 0,
    threads: int = 1,
    sizes: str | Traffic = "bounds",
    seconds: float | None = None,
    until: float = UNTIL,
    model: str | None = None,
    measurer: Measurer | None = None,
    client: Any = None,
    progress: Callable[[Progress], None] | bool | None = None,
) -> pd.DataFrame:
    """Search an implementation for every distinct workload of every clone, and confirm it there.

    Each trial is a row of the log. Time goes where the next trial is expected to save most of the
    latency, each size counting by its weight, relative to its own latency. What is found is timed
    again beside the default, by itself, then in the running clone, then all of a clone together;
    `compile` uses what was faster every time. Trials that the log already has, from this host and
    these versions, are not repeated: a session that was interrupted, even killed, goes on where it
    stopped. Sessions on one log take turns, and learn what the others measured. What a clone runs
    by from earlier sessions takes part again, and stays unless it is beaten.

    Args:
        mod: the module, dispatched or not; or several, which share what they have in common.
        log: the CSV file that trials are added to; made if there is none.
        trials: implementations to try per task at most, the default and those of earlier sessions
            included.
        search: "skopt", "random" or "grid".
        seed: of the search; with the same measurements it makes the same proposals.
        threads: that a kernel runs on.
        sizes: where schedules are judged: "middle" or "bounds" of each bucket, or a list of sizes
            met in practice, such as `[{"N": 1}, {"N": 8}]` or, weighted, `[({"N": 1}, 0.9), ...]`.
        seconds: an end to searching and confirming; a measurement that has begun is finished. Where
            it is too short for all clones, as many as possible get a verdict, and the same call
            goes on with the others, of which a warning tells.
        until: the share of the latency that the next trials, one of each task, must be expected to
            save to be worth it; 0 goes on until `trials` or `seconds`. Only "skopt" expects
            anything.
        model: the name in the log; by default that of the log's file.
        measurer: a `Worker` with time limits and plugins of your own, a `Replay` of another log, or
            a `Cluster`.
        client: a `distributed.Client`: measure on the workers of its cluster, as docs/cluster.md
            says. The rows are theirs, and `compile` uses them on machines like theirs.
        progress: called before a batch is compiled, and after some were timed in turns; True shows
            a bar on stderr.

    Returns:
        The rows of this session.

    Raises:
        TuneError: arguments that allow no session, or a measuring process that does not start.
        LogError: a log that cannot be read or written.

    """
    with opened(
        mod,
        log=log,
        trials=trials,
        search=search,
        seed=seed,
        threads=threads,
        sizes=sizes,
        seconds=seconds,
        until=until,
        model=model,
        measurer=measurer,
        client=client,
        progress=progress,
    ) as session:
        session.work()
        if shortfall := session.shortfall():
            goes_on = "the same call goes on with them"
            warn(f"{shortfall}; {goes_on}")
    return trial_frame(session.written)


@contextmanager
def opened(  # noqa: PLR0913  (those of `tune`)
    mod: Module | Iterable[Module],
    *,
    log: str | Path,
    trials: int,
    search: str,
    seed: int,
    threads: int,
    sizes: str | Traffic,
    seconds: float | None,
    until: float,
    model: str | None,
    measurer: Measurer | None,
    client: Any,
    progress: Callable[[Progress], None] | bool | None,
) -> Iterator[Session]:
    """The session of `tune` with these arguments, ready to work; `tune` has what they mean."""
    mods = list(mod) if isinstance(mod, Iterable) and not isinstance(mod, str) else [mod]
    if not mods:
        raise ArgumentError("expected a Module or several, got none")
    for each in mods:
        check_module(each)
        _check_inputs(each)
    _check(trials, seconds, until)
    with ExitStack() as stack:
        site = _site(measurer, client, stack)
        _check_threads(threads, site.threads)
        subjects = (subjects_of(each, sizes, threads, site.target) for each in mods)
        where = f" on {several(site.lanes, 'worker')}" if isinstance(site, Cluster) else ""
        tell = stack.enter_context(shown(progress, tuning_bar(f"tuning{where}")))
        name = Path(log).stem if model is None else model
        distinct = _distinct(itertools.chain.from_iterable(subjects))
        about = name, threads, site.environment, search, seed, _dispatchers(distinct)
        session = Session(
            subjects=distinct,
            journal=Journal(Path(log), *about),
            trials=trials,
            strategy=search,
            seed=seed,
            threads=threads,
            seconds=math.inf if seconds is None else seconds,
            until=until,
            site=site,
            tell=tell or (lambda _: None),
        )
        if isinstance(site, Bench) and site.has_clock:
            stack.enter_context(watched())  # what else is done on this machine, it is said
        stack.enter_context(_kept(session))
        stack.enter_context(_heard(session))
        yield session


def _site(measurer: Measurer | None, client: Any, stack: ExitStack) -> Site:
    """Where the session measures."""
    if client is not None:
        if measurer is not None:
            raise TuneError("give a measurer or a client, not both: Cluster(client) is a measurer")
        return Cluster(client)
    if isinstance(measurer, Cluster):
        return measurer
    return Bench(measurer or stack.enter_context(Worker()))


def _distinct(subjects: Iterable[Subject]) -> list[Subject]:
    """Each clone once, however many modules have it."""
    return list({subject.clone: subject for subject in subjects}.values())


def _dispatchers(subjects: Iterable[Subject]) -> dict[str, str]:
    """What was decided for the module of each clone."""
    every = list(subjects)
    told = {id(mod): dispatcher_of(mod) for mod in {id(s.module): s.module for s in every}.values()}
    return {subject.clone: told[id(subject.module)] for subject in every}


@contextmanager
def _kept(session: Session) -> Iterator[None]:
    """Who interrupts the session, or takes its cluster away, is told what it leaves."""
    try:
        yield
    except (KeyboardInterrupt, GoneError) as e:
        kept = f"{session.journal.log} keeps the {len(session.written)} trials of this session"
        e.add_note(f"{kept}; the same call goes on from there")
        raise


@contextmanager
def _heard(session: Session) -> Iterator[None]:
    """Ctrl-C is remembered: what it raises is lost where an object is just being collected.

    Python prints a traceback of what is lost, which tells nobody anything here.
    """
    before, told = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def hear(number: int, frame: FrameType | None) -> None:
        session.is_interrupted = True
        before(number, frame)

    def lose(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            told(lost)

    signal.signal(signal.SIGINT, hear)
    sys.unraisablehook = lose
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = told


def _check_inputs(mod: Module) -> None:
    for p in mod.main.params:
        if not p.type.is_tensor:
            told = f"input {p.name!r} is {p.type}, of which only a run knows a shape"
            raise TuneError(f"{told}: no input to time can be made up")


def _check(trials: int, seconds: float | None, until: float) -> None:
    if not isinstance(trials, int) or trials < 1:
        raise TuneError(f"trials: expected at least 1, got {trials!r}")
    if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
        raise TuneError(f"seconds: expected a finite number above 0, or None, got {seconds!r}")
    if not isinstance(until, int | float) or not 0 <= until < 1:
        raise TuneError(f"until: expected a share of the latency, from 0 to 1, got {until!r}")


def _check_threads(threads: int, most: int) -> None:
    if not isinstance(threads, int) or not 1 <= threads <= most:
        raise TuneError(f"threads: expected 1 to {most}, got {threads!r}")
