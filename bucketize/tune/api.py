"""`tune`: tasks searched, each as long as it is worth it, what was found confirmed, all logged."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import signature
from types import FrameType
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeAlias

from bucketize.busy import watched
from bucketize.errors import ArgumentError, TuneError, warn
from bucketize.inspect.calibrate import calibrated
from bucketize.ir import Module, check_module
from bucketize.log.frame import trial_frame
from bucketize.measure.cluster import Cluster, GoneError, Site
from bucketize.measure.runner import LocalRunner, Worker
from bucketize.progress import shown
from bucketize.table import several
from bucketize.traffic.value import check_traffic
from bucketize.tune.options import Options
from bucketize.tune.progress import tuning_bar
from bucketize.tune.refine import teach
from bucketize.tune.session import TuningSession
from bucketize.tune.task import subjects_of

if TYPE_CHECKING:
    import pandas as pd

Modules: TypeAlias = Module | Iterable[Module]
Fields = ParamSpec("Fields")
Tune: TypeAlias = "Callable[[Modules, Options], pd.DataFrame]"


def _spelled_out(
    options: Callable[Fields, Options],
) -> Callable[[Tune], Callable[Concatenate[Modules, Fields], pd.DataFrame]]:
    """Have a function that takes options take each of their fields by its name."""

    def spelled_out(tune: Tune) -> Callable[Concatenate[Modules, Fields], pd.DataFrame]:
        first, _ = signature(tune).parameters.values()
        its = [first, *signature(options).parameters.values()]
        spelled = signature(tune).replace(parameters=its)

        @wraps(tune)
        def called(mod: Modules, *args: Fields.args, **fields: Fields.kwargs) -> pd.DataFrame:
            try:
                spelled.bind(mod, *args, **fields)
            except TypeError as e:
                raise ArgumentError(f"tune: {e}") from None
            return tune(mod, options(*args, **fields))

        called.__signature__ = spelled  # type: ignore[attr-defined]
        return called  # type: ignore[return-value]  # `mod` may be given by its name, too

    return spelled_out


@_spelled_out(Options)
def tune(mod: Modules, options: Options) -> pd.DataFrame:  # noqa: D417  (it tells each field)
    """Search an implementation for every distinct workload of every clone, and confirm it there.

    Each trial is a row of the log. Time goes where the next trial is expected to save most of the
    latency, each size counting by its weight, relative to its own latency. What is found is timed
    again beside the default, by itself, then in the running clone, then all of a clone together;
    `compile` uses what was faster every time. Trials on one thread of this machine may refine
    what was measured of it, by which defaults of other models are chosen.

    Trials that the log already has, from this host and these versions, are not repeated: a session
    that was interrupted, even killed, goes on where it stopped. Sessions on one log take turns, and
    learn what the others measured. What a clone runs by from earlier sessions takes part again, and
    stays unless it is beaten.

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
        traffic: in place of `sizes`, the requests that come: each clone is judged at quantiles of
            its own, and time goes by requests times the seconds that they are expected to save.
        seconds: an end to searching and confirming, in which waiting for other sessions on the log
            counts, and starting up does not; a measurement that has begun is finished. Where
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
    with opened(mod, options) as session:
        session.work()
        if shortfall := session.shortfall():
            goes_on = "the same call goes on with them"
            warn(f"{shortfall}; {goes_on}")
    return trial_frame(session.written)


@contextmanager
def opened(mod: Modules, options: Options) -> Iterator[TuningSession]:
    """The session of `tune` with these options, ready to work."""
    mods = list(mod) if isinstance(mod, Iterable) and not isinstance(mod, str) else [mod]
    if not mods:
        raise ArgumentError("expected a Module or several, got none")
    for each in mods:
        check_module(each)
        _check_inputs(each)
    if options.traffic is not None:
        check_traffic(options.traffic)
    calibrated()
    with ExitStack() as stack:
        site = _site(options, stack)
        _check_threads(options.threads, site.threads)
        subjects = [
            subject
            for each in mods
            for subject in subjects_of(
                each, options.traffic or options.sizes, options.threads, site.target
            )
        ]
        where = f" on {several(site.lanes, 'worker')}" if isinstance(site, Cluster) else ""
        tell = stack.enter_context(shown(options.progress, tuning_bar(f"tuning{where}")))
        session = TuningSession(
            subjects=list({subject.clone: subject for subject in subjects}.values()),
            options=options,
            site=site,
            tell=tell or (lambda _: None),
        )
        if isinstance(site, LocalRunner) and site.has_clock:
            stack.enter_context(watched())  # what else is done on this machine, it is said
        stack.enter_context(_kept(session))
        stack.enter_context(_heard(session))
        yield session
        if session.written and isinstance(site, LocalRunner) and site.has_clock:
            teach(session.tasks, session.known())


def _site(options: Options, stack: ExitStack) -> Site:
    """Where the session measures."""
    if options.client is not None:
        return Cluster(options.client)
    if isinstance(options.measurer, Cluster):
        return options.measurer
    return LocalRunner(options.measurer or stack.enter_context(Worker()))


@contextmanager
def _kept(session: TuningSession) -> Iterator[None]:
    """An interruption, or a cluster taken away, notes on the error what the session leaves."""
    try:
        yield
    except (KeyboardInterrupt, GoneError) as e:
        kept = f"{session.recorder.log} keeps the {len(session.written)} trials of this session"
        e.add_note(f"{kept}; the same call goes on from there")
        raise


@contextmanager
def _heard(session: TuningSession) -> Iterator[None]:
    """Ctrl-C is remembered: what it raises is lost where an object is just being collected.

    Python prints a traceback of what is lost, which tells nobody anything here.
    """
    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def hear(number: int, frame: FrameType | None) -> None:
        session.is_interrupted = True
        before(number, frame)

    def lose(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            hook(lost)

    signal.signal(signal.SIGINT, hear)
    sys.unraisablehook = lose
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = hook


def _check_inputs(mod: Module) -> None:
    for p in mod.main.params:
        if not p.type.is_tensor:
            fault = f"input {p.name!r} is {p.type}, of which only a run knows a shape"
            raise TuneError(f"{fault}: no input to time can be made up")


def _check_threads(threads: int, most: int) -> None:
    if not isinstance(threads, int) or not 1 <= threads <= most:
        raise TuneError(f"threads: expected 1 to {most}, got {threads!r}")
