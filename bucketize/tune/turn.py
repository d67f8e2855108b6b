"""Turns: sessions on one log measure one after the other, and learn from each other's rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bucketize.errors import warn
from bucketize.log.environment import HOST, VERSIONS, Environment
from bucketize.log.log import difference
from bucketize.tune.budget import LateError
from bucketize.tune.database import Knowledge
from bucketize.tune.recorder import Journal
from bucketize.tune.scheduler import Agenda


@dataclass
class Turns:
    """A session's turns at its log."""

    journal: Journal
    environment: Environment
    """In which rows of others count."""
    knowledge: Knowledge
    agenda: Agenda
    is_shared: bool = False
    """Whether another session was met at the log."""

    @contextmanager
    def turn(self, seconds: float) -> Iterator[None]:
        """With the right to measure, knowing what other sessions have added to the log.

        Raises a LateError after so many seconds.
        """
        with ExitStack() as mine:
            try:
                mine.enter_context(self.journal.turn(max(seconds, 0.0), self.share))
            except TimeoutError as e:
                raise LateError(f"another session was at work on the log: {e}") from e
            self.catch_up()
            yield

    def catch_up(self) -> None:
        """Learn the rows that other sessions have added since."""
        fresh = self.journal.news()
        if not fresh:
            return
        self.share(f"{len(fresh)} rows of others came since it was read")
        for trial in fresh:
            same = not difference(trial, self.environment, HOST + VERSIONS)
            if same and trial.threads == self.journal.threads:
                self.knowledge.learn(trial)
        touched = {trial.workload for trial in fresh}
        for task in self.agenda.tasks:
            if task.workload.hash in touched:
                self.agenda.refresh(task)

    def share(self, said: str) -> None:
        """Say, once, that there is another session."""
        if not self.is_shared:
            self.is_shared = True
            told = "they take turns, and measure nothing twice"
            log = self.journal.log
            message = f"another session is at work on {log}, so {told} ({said})"
            warn(message)
