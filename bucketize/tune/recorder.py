"""A session's part of a log: the rows that it writes, and those that others add meanwhile."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from bucketize.errors import LateError, LogError, warn
from bucketize.kernel.templates import TEMPLATES
from bucketize.lock import locked
from bucketize.log.environment import HOST, VERSIONS
from bucketize.log.log import Tail, append, difference, select
from bucketize.log.trial import Origin, Trial
from bucketize.tune.database import Database


@dataclass
class Recorder:
    """The log of a session: read, added to, and all that is known by it."""

    log: Path
    origin: Origin
    database: Database = field(default_factory=Database)
    written: list[Trial] = field(default_factory=list)
    seen: set[tuple[str, int]] = field(default_factory=set)
    """The rows of others that are known, by run and number."""
    is_shared: bool = False
    """Whether another session was met at the log."""
    clock: Callable[[], float] = time.monotonic
    left: Callable[[], float] = lambda: math.inf
    """Seconds until the session's time is up."""
    waits: Callable[[str], None] = lambda _: None
    """Is told, each time, for whom the session waits."""

    def __post_init__(self) -> None:
        self.tail = Tail(self.log, TEMPLATES)

    def read(self) -> list[Trial]:
        """The rows of others so far, with a warning of those that cannot count."""
        reading = self.tail.read()
        reading.tell(self.log)
        trials = reading.table.trials
        self.seen = {(trial.run_id, trial.trial) for trial in trials}
        mine = select(trials, environment=self.origin.environment)
        self.database = Database.of(mine, self.origin.threads)
        return trials

    def news(self) -> list[Trial]:
        """The rows that others have added since, which are learnt where they count."""
        rows = self.tail.read().table.trials
        others = {(t.run_id, t.trial): t for t in rows if t.run_id != self.origin.run_id}
        fresh = [trial for where, trial in others.items() if where not in self.seen]
        self.seen |= others.keys()
        if fresh:
            self.share(f"{len(fresh)} rows of others came since it was read")
        for trial in fresh:
            same = not difference(trial, self.origin.environment, HOST + VERSIONS)
            if same and trial.threads == self.origin.threads:
                self.database.learn(trial)
        return fresh

    def add(self, row: Trial) -> Trial:
        """Add a row to the log, the next of the session, and learn it."""
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        left_s = None if math.isinf(left := self.left()) else left
        trial = replace(row, trial=len(self.written), timestamp=now, left_s=left_s)
        append(self.log, trial)
        self.written.append(trial)
        self.database.learn(trial)
        return trial

    @contextmanager
    def turn(self, seconds: float) -> Iterator[list[Trial]]:
        """With the right to measure, and what other sessions have added to the log since.

        Sessions on one log have it by turns, so that they measure nothing twice. The system takes
        it back from one that was killed.

        Raises:
            LateError: another had it all these seconds.
            LogError: there is no place for a lock.

        """
        end = self.clock() + seconds
        with ExitStack() as mine:
            try:
                self.log.parent.mkdir(parents=True, exist_ok=True)
                # who waits, comes next
                with locked(Path(f"{self.log}.next.lock"), max(seconds, 0.0), self.wait):
                    left = max(end - self.clock(), 0.0)
                    mine.enter_context(locked(Path(f"{self.log}.turn.lock"), left, self.wait))
            except TimeoutError as e:
                raise LateError(f"another session was at work on the log: {e}") from e
            except OSError as e:
                raise LogError(f"cannot lock {self.log}: {e.strerror or e}") from e
            yield self.news()

    def wait(self, said: str) -> None:
        """Say for whom the session waits."""
        self.waits(said)
        self.share(said)

    def share(self, said: str) -> None:
        """Say, once, that there is another session."""
        if not self.is_shared:
            self.is_shared = True
            turns = "they take turns, and measure nothing twice"
            warn(f"another session is at work on {self.log}, so {turns} ({said})")
