"""Progress on stderr: a bar on a terminal, elsewhere a line after two seconds and every ten."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from threading import Event, Thread
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from bucketize.errors import ArgumentError
from bucketize.table import visible

if TYPE_CHECKING:  # rich takes 30 ms to import: only where a bar is drawn
    from rich.spinner import Spinner
    from rich.table import Table

T = TypeVar("T")
Tell: TypeAlias = Callable[[str, int, int], None]
"""Is told what is being worked on, and how many pieces of the work are done, of how many."""
Wait: TypeAlias = Callable[[float], bool]
"""Waits so many seconds; whether it is over before."""


class TellMore(Protocol):
    """A `Tell` that may know more: a limit, and what it expects."""

    def __call__(
        self,
        what: str,
        done: int,
        total: int,
        /,
        *,
        left_s: float | None = None,
        expected_s: float | None = None,
    ) -> None:
        """Be told; `left_s` until time is up, `expected_s` until all is done, infinite if unknown.

        Without `expected_s` pieces are alike, and the rate of those that are done tells.
        """


BAR = 12  # columns, so that counters and the begin of a name fit into 80
FIRST_S, EVERY_S = 2.0, 10.0  # without a terminal: when lines are written
LONGEST_S = 99 * 86400.0  # that is told exactly


@dataclass
class Meter:
    """How far a piece of work has come, and what follows for the rest of it."""

    title: str
    clock: Callable[[], float] = time.monotonic
    what: str = ""
    done: int = 0
    total: int | None = None
    """None until something is told."""
    end: float | None = None
    """The latest time of the clock at which the work stops, finished or not."""
    limited: float | None = None
    """When that was first told."""
    expected: float | None = None
    """When it is expected to be done; infinite if nobody knows, None if the rate tells."""

    def __post_init__(self) -> None:
        """The time runs from now on."""
        self.title = visible(self.title)
        self.begin = self.start = self.last = self.clock()
        self.first = 0

    def tell(
        self,
        what: str,
        done: int,
        total: int,
        /,
        *,
        left_s: float | None = None,
        expected_s: float | None = None,
    ) -> None:
        """Take a step, as `TellMore`; where something else is counted, the rate begins anew."""
        self.last = self.clock()
        if total != self.total or done < self.done:
            self.start, self.first = self.last, done
        self.what, self.done, self.total = visible(what), done, total
        self.end = None if left_s is None else self.last + left_s
        self.expected = None if expected_s is None else self.last + expected_s
        if self.limited is None and self.end is not None:
            self.limited = self.last

    @property
    def rate(self) -> float | None:
        """Pieces a second; None before there is one."""
        seconds = self.last - self.start
        done = self.done - self.first
        return done / seconds if done and seconds > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds until the end, as far as the rate, or an estimate, and the time limit tell.

        What takes longer than was expected is not said to end at once: then the limit alone tells.
        """
        guesses = [] if self.end is None else [self.end - self.clock()]
        expected = self._expected
        if expected is not None and self.clock() < expected < math.inf:
            guesses.append(expected - self.clock())
        return max(min(guesses), 0.0) if guesses else None

    @property
    def _expected(self) -> float | None:
        """When the work is expected to be done."""
        if self.expected is not None or not self.rate or self.total is None:
            return self.expected
        return self.last + (self.total - self.done) / self.rate

    @property
    def share(self) -> float:
        """The share of the work done, or of its time if more of that has passed."""
        done = self.done / self.total if self.total else 0.0
        if self.end is None or self.limited is None:
            return done
        time = max(self.end - self.limited, 1e-9)
        return min(max(done, (self.clock() - self.limited) / time), 1.0)

    def counters(self) -> str:
        """`12/40  0.8/s  0:00:35 left`; the time that has passed until more is known."""
        count = [] if self.total is None else [f"{self.done}/{self.total}"]
        alike = self.rate is not None and self.expected is None
        rate = [per_time(self.rate)] if self.rate is not None and alike else []
        left = self.left_s
        over_s = 0.0 if self.end is None else self.clock() - self.end
        if left is None:
            time = f"{span(self.clock() - self.begin)} so far"
        else:
            time = f"{span(over_s)} over" if over_s > 0 else f"{span(left)} left"
        return "  ".join([*count, *rate, time])

    def line(self) -> str:
        """All of it as a line of text."""
        return "  ".join(part for part in (self.title + ":", self.counters(), self.what) if part)


def per_time(rate: float) -> str:
    """`1.5/s`, or what is slower by the minute."""
    return f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"


def span(seconds: float) -> str:
    """`0:01:35`; what is longer than anybody waits, roughly."""
    if seconds > LONGEST_S:
        return f"over {timedelta(seconds=LONGEST_S).days} days"
    return str(timedelta(seconds=round(seconds)))


@contextmanager
def progress_bar(title: str) -> Iterator[Tell]:
    """A bar that lasts as long as the context; it is moved by the function that it gives."""
    with metered(title) as meter:
        yield meter.tell


@contextmanager
def shown(progress: T | bool | None, bar: AbstractContextManager[T]) -> Iterator[T | None]:
    """The listener, of what a caller gave for `progress`: True is `bar`, None nobody.

    Raises:
        ArgumentError: it is neither of these nor a function.

    """
    if progress is True:
        with bar as tell:
            yield tell
    elif progress is None or progress is False:
        yield None
    elif callable(progress):
        yield progress
    else:
        raise ArgumentError(f"progress: expected True, None or a function, got {progress!r}")


@contextmanager
def estimated(progress: Tell | bool | None, title: str) -> Iterator[TellMore]:
    """The listener, of what a caller gave for `progress`; of times only a bar is told.

    Raises:
        ArgumentError: it is neither True nor None nor a function.

    """
    if progress is True:
        with metered(title) as meter:
            yield meter.tell
        return
    with shown(progress, nullcontext(None)) as tell:
        yield lambda what, done, total, /, **_: None if tell is None else tell(what, done, total)


def steps(tell: Tell | None, total: int) -> Callable[[str], None]:
    """Tells, each time it is called with what is worked on now, of one more step of `total`."""
    done = count()

    def step(what: str) -> None:
        if tell is not None:
            tell(what, next(done), total)

    return step


def announced(call: Callable[[], T], step: Callable[[str], None], what: str) -> Callable[[], T]:
    """The call behind a step that tells of it."""

    def told_and_called() -> T:
        step(what)
        return call()

    return told_and_called


@contextmanager
def metered(title: str) -> Iterator[Meter]:
    """A meter that is shown as long as the context lasts."""
    meter = Meter(title)
    drawn = sys.stderr.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
    with _drawn(meter) if drawn else beside(partial(write_lines, meter)):
        yield meter


@contextmanager
def _drawn(meter: Meter) -> Iterator[None]:
    """Drawn anew all the time: seconds pass between two steps, too."""
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    console, spinner = Console(stderr=True), Spinner("dots")

    def picture() -> Table:
        return _picture(meter, spinner)

    with Live(get_renderable=picture, console=console, transient=True, redirect_stdout=False):
        yield


def _picture(meter: Meter, spinner: Spinner) -> Table:
    """What does not fit is cut from the name at the end, not from the counters."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1), expand=True)
    for ratio in (None, None, None, None, 1):
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio)
    bar = ProgressBar(1.0 if meter.total else None, meter.share, width=BAR)
    grid.add_row(spinner, Text(meter.title), bar, meter.counters(), Text(f" {meter.what}"))
    return grid


@contextmanager
def beside(write: Callable[[Wait], object]) -> Iterator[None]:
    """Have a thread write while the context lasts: until what it waits by returns True."""
    stop = Event()
    thread = Thread(target=write, args=(stop.wait,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def write_lines(meter: Meter, wait: Wait) -> None:
    """Write the meter's line now and then, until `wait`, given seconds, returns True."""
    seconds = FIRST_S
    while not wait(seconds):
        print(meter.line(), file=sys.stderr, flush=True)
        seconds = EVERY_S
