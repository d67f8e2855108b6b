"""`bucketize top`: how far a tuning session has come that runs elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bucketize.cli.echo import echo
from bucketize.cli.table import fitting, table
from bucketize.progress import Wait, beside, span
from bucketize.table import legible, pairs, several, shortened

if TYPE_CHECKING:
    from bucketize.analysis.course import Course
    from bucketize.log.log import Tail
    from bucketize.log.trial import Trial

LOOK_S = 1.0  # between two looks at the log
EVERY_S = 10.0  # without a terminal: when lines are written
TASKS, FAILURES = 10, 3  # that are shown


@click.command(short_help="Watch a tuning session by its log.")
@click.argument("log", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--once", is_flag=True, help="Say how far it is, and end.")
def top(log: Path, once: bool) -> None:
    """Watch the session of `tune` that adds to LOG, from another terminal or process.

    Nothing but LOG is read: the rows of the session that wrote the last one. It ends when the
    session's time is up, as its rows tell it, and no more come; or at Ctrl-C.

    \b
    Examples:
      bucketize top trials.csv
      bucketize top trials.csv --once
    """
    from bucketize.log.log import Tail

    view = View(Tail(log))
    view.look()
    if not once:
        with shown(view), suppress(KeyboardInterrupt):  # Ctrl-C is how a watch ends
            follow(view)
    echo(view.text)


@dataclass
class View:
    """What is shown of a log that others add to."""

    tail: Tail
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    trials: list[Trial] = field(default_factory=list)
    course: Course | None = None
    """How far the session is; None before there is a row."""

    def look(self) -> None:
        """Take up the rows that were added; a row that is being written is taken the next time."""
        file, end = self.tail.file, self.tail.end
        rows = self.tail.read().table.trials
        if self.tail.file != file or self.tail.end < end:  # another log in the place of the last
            self.trials, self.course = [], None
        if rows:
            from bucketize.analysis.course import course
            from bucketize.log.frame import trial_frame

            self.trials += rows
            self.course = course(trial_frame(self.trials))

    @property
    def is_over(self) -> bool:
        """Whether the session has ended, as far as the log tells."""
        return self.course is not None and self.course.is_over(self.now())

    @property
    def line(self) -> str:
        """How far it is, in a line."""
        if self.course is None:
            return waiting(self.tail.path)
        return f"{counted(self.course)}; {timed(self.course, self.now())}"

    @property
    def text(self) -> str:
        """All of it."""
        if self.course is None:
            return fitting(waiting(self.tail.path))
        head = [f"{self.tail.path}: {pairs(self.course.about, ', ')}", self.line]
        lines = map(fitting, [*head, *gained(self.course)])
        return "\n".join([*lines, *tasks(self.course), *map(fitting, failing(self.course))])


def follow(view: View, wait: Callable[[float], None] = time.sleep) -> None:
    """Look again and again, until the session is over."""
    while not view.is_over:
        wait(LOOK_S)
        view.look()


@contextmanager
def shown(view: View) -> Iterator[None]:
    """The view on a terminal as it is now, elsewhere lines of it now and then."""
    if not sys.stdout.isatty():
        with beside(partial(write_lines, view)):
            yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def picture() -> Text:
        return Text(legible(view.text))

    with Live(get_renderable=picture, console=Console(), transient=True, auto_refresh=True):
        yield


def write_lines(view: View, wait: Wait) -> None:
    """Write lines, one at once, until `wait`, given seconds, returns True."""
    echo(view.line)
    while not wait(EVERY_S):
        echo(view.line)


def waiting(log: Path) -> str:
    """What is said before there is a row."""
    reason = "has no trial yet" if log.exists() else "is not there yet"
    return f"{log} {reason}: waiting for a session of `bucketize tune`"


def counted(course: Course) -> str:
    """What was done, in numbers."""
    done = f"{several(course.trials, 'trial')} of {several(course.reached, 'task')}"
    confirming = several(course.confirmations, "measurement")
    return f"{done}, {course.failed} failed; {confirming} to confirm"


def timed(course: Course, now: datetime) -> str:
    """When it began, when it wrote its last row, and how long it may go on.

    A clock that was ahead wrote rows of the future: they are of now.
    """
    now = max(now, course.last)
    quiet = f"the last row {seconds(now - course.last)} ago"
    if course.is_over(now):
        return (
            f"over: {seconds(course.last - course.begun)} from its first row to its last, {quiet}"
        )
    so_far, left_s = f"{seconds(now - course.begun)} so far, {quiet}", course.left_at(now)
    if left_s is None:
        return f"{so_far}, no limit of time"
    return f"{so_far}, {span(left_s)} left" if left_s >= 0 else f"{so_far}, {span(-left_s)} over"


def seconds(length: timedelta) -> str:
    """How long something took."""
    return span(max(length.total_seconds(), 0.0))


def gained(course: Course) -> Iterator[str]:
    """What the best of all tasks gains, and what was confirmed of it."""
    if len(course.tasks):
        yield f"kernels at their best so far, each once: {course.gain:.3f} of the defaults' time"
    if len(course.clones):
        faster = int((course.clones["ratio"] < 1).sum())
        least = course.clones["ratio"].min()
        of = several(len(course.clones), "clone")
        yield f"confirmed: {faster} of {of} faster than on defaults, the best {least:.3f} of them"


def tasks(course: Course) -> Iterator[str]:
    """A table of the tasks that take most, and how many more there are."""
    rows = [
        {
            "function": row["function"],
            "layer": shortened(row["layer"]),
            "op": row["op"],
            "tried": row["tried"],
            "failed": row["failed"],
            "best": row["relative"],
            "share": row["share"],
        }
        for row in course.tasks[:TASKS].to_dict("records")
    ]
    if rows:
        yield table(rows, dict.fromkeys(("best", "share"), "{:.2f}".format))
    if (more := len(course.tasks) - TASKS) > 0:
        yield f"and {several(more, 'task')} that take less"


def failing(course: Course) -> Iterator[str]:
    """The last failures."""
    for row in course.failures[:FAILURES].to_dict("records"):
        where = f"{row['function']} {shortened(row['layer'])} {row['op']}"
        yield f"failed {row['timestamp']:%H:%M:%S} {where}: {row['error_kind']}: {row['error']}"
