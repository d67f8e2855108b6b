"""How far tuning has come, and a bar of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bucketize.log.trial import CLONE
from bucketize.progress import metered

WAITING = "waiting"


@dataclass(frozen=True)
class Progress:
    """How far tuning has come: told when some were compiled, or timed, or a clone is confirmed.

    It is told, too, when another session on the log is waited for.
    """

    function: str
    bucket: str
    op: str  # of the task; `CLONE` while a clone is confirmed, `WAITING` for another session
    workload: str  # or the clone, or who is waited for
    best: float | None  # of this task: latency relative to the default's
    done: int  # implementations tried by this session, of all tasks
    total: int  # how many it will try at most, if time suffices and all are worth it
    left_s: float | None  # until the session's time is up, below 0 after; None without a limit


@contextmanager
def tuning_bar(title: str) -> Iterator[Callable[[Progress], None]]:
    """A bar over the trials of `tune`: the best so far, the workload, its bucket."""
    with metered(title) as meter:

        def tell(at: Progress) -> None:
            meter.tell(_words(at), at.done, at.total, left_s=at.left_s)

        yield tell


def _words(at: Progress) -> str:
    if at.op == WAITING:
        return f"another session measures: {at.workload}"
    best = "" if at.best is None else f"best {at.best:.2f} of default, "
    op = "confirming" if at.op == CLONE else f"{at.op} {at.workload[:8]}"
    return f"{best}{op} {at.bucket or at.function}"
