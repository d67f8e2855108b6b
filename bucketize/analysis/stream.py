"""Callers side by side: what several streams of calls come to, window by window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier, BrokenBarrierError
from time import perf_counter

from bucketize.errors import EngineError
from bucketize.machine.energy import Energy
from bucketize.timing import TICK_S, Call, turns

WINDOW_S = 0.2  # at least
CALLS = 5  # of the slowest engine, in a window


@dataclass(frozen=True)
class Window:
    """What the callers of one engine did, all at the same time."""

    latencies: tuple[float, ...]
    """Seconds of each call."""
    seconds: float
    """From the first call's begin to the last one's end."""
    joules: float | None = None
    """Joules that the machine took meanwhile, where it is asked."""

    @property
    def per_call_s(self) -> float:
        """Seconds by calls: what a call takes where its neighbours share the time."""
        return self.seconds / len(self.latencies)


def window(calls: Sequence[Call], seconds: float, energy: Energy | None = None) -> Window:
    """Call for so long, a thread each, once at least.

    Each caller makes a call that is not timed; then all begin together. What was begun in time is
    finished, and counts.
    """
    readings = list[Sequence[int]]()

    def read() -> None:
        if energy is not None:
            readings.append(energy.read())

    gate = Barrier(len(calls), action=read)

    def stream(call: Call) -> tuple[float, float, list[float]]:
        try:
            call()
        except BaseException:
            gate.abort()
            raise
        gate.wait()
        return _stream(call, seconds)

    with ThreadPoolExecutor(len(calls)) as pool:
        try:
            begun = [pool.submit(stream, call) for call in calls]
        except RuntimeError as e:
            gate.abort()  # who was begun waits for the others
            raise EngineError(f"{len(calls)} streams need as many threads: {e}") from e
        streams = _results(begun)
    read()
    begin, end = min(s[0] for s in streams), max(s[1] for s in streams)
    latencies = tuple(latency for s in streams for latency in s[2])
    joules = None if energy is None else energy.joules(*readings)
    return Window(latencies, max(end - begin, TICK_S), joules)


def _stream(call: Call, seconds: float) -> tuple[float, float, list[float]]:
    """When the calls of one caller began and ended, and what each took."""
    latencies = list[float]()
    begin = now = perf_counter()
    while not latencies or now < begin + seconds:
        call()
        before, now = now, perf_counter()
        latencies.append(now - before)
    return begin, now, latencies


def _results(
    futures: Sequence[Future[tuple[float, float, list[float]]]],
) -> list[tuple[float, float, list[float]]]:
    """The results, or the error that kept the others from beginning."""
    errors = [e for f in futures if (e := f.exception()) is not None]
    for error in errors:
        if not isinstance(error, BrokenBarrierError):
            raise error
    return [f.result() for f in futures]


def windows(
    callers: Mapping[str, Sequence[Call]],
    before: Mapping[str, Call],
    warmup: int,
    energy: Energy | None = None,
) -> Iterator[dict[str, Window]]:
    """A window of each engine, round by round, without end.

    All windows are equally long: `WINDOW_S`, or `CALLS` calls of the slowest.

    Args:
        callers: the calls of each engine, one for each that calls beside the others.
        before: what runs right before the window of an engine.
        warmup: windows of one call before the first.
        energy: the counters to read around each, if any.

    """
    slowest = 0.0

    def taken(name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            results[name] = window(callers[name], seconds, energy)

        return run

    results = dict[str, Window]()
    warm = turns({name: taken(name, 0.0) for name in callers}, before=before)
    for _ in range(max(warmup, 1)):
        next(warm)
        slowest = max(slowest, *(max(w.latencies) for w in results.values()))
    seconds = max(WINDOW_S, CALLS * slowest)
    for _ in turns({name: taken(name, seconds) for name in callers}, before=before):
        yield dict(results)
