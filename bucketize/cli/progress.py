"""Progress on stderr: a bar on a terminal, silence elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from bucketize.tune.session import Progress

Tell: TypeAlias = Callable[[float, float, str], None]  # done, total, what is being worked on


@contextmanager
def progress_bar(title: str) -> Iterator[Tell]:
    """A bar that lasts as long as the context; it is moved by the function that it gives."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    console = Console(stderr=True)
    what = TextColumn("{task.fields[what]}", table_column=Column(no_wrap=True, ratio=1))
    title_column = TextColumn("{task.description}", table_column=Column(no_wrap=True))
    columns = (title_column, BarColumn(24), TaskProgressColumn(), TimeElapsedColumn(), what)
    with Progress(
        *columns, console=console, transient=True, expand=True, disable=not console.is_terminal
    ) as bars:
        bar = bars.add_task(title, total=None, what="")
        yield lambda done, total, what: bars.update(bar, completed=done, total=total, what=what)


@contextmanager
def tuning_bar(title: str) -> Iterator[Callable[[Progress], None]]:
    """A bar over the tasks of `tune`: bucket, workload, best so far."""
    with progress_bar(title) as tell:

        def told(at: Progress) -> None:
            best = "" if at.best is None else f", best {at.best:.2f} of the default's time"
            where = f"{at.op} {at.workload[:8]} {at.bucket or at.function}"
            share = at.tried / at.trials if at.trials else 1.0
            tell(at.task + share, at.tasks, f"{where}: {at.tried}/{at.trials}{best}")

        yield told


@contextmanager
def compiling_bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar over what `compile` does now: functions to decide, then kernels that are missing."""
    with progress_bar(title) as tell:
        yield lambda what, done, total: tell(done, total, f"{done} of {total}: {what}")
