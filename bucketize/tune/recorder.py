"""The rows that a session writes: what is common to all of them, and what each is about."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bucketize.errors import LogError
from bucketize.kernel.template import Implementation
from bucketize.kernel.templates import TEMPLATES
from bucketize.lock import locked
from bucketize.log.confidence import of_median, ratios
from bucketize.log.environment import Environment
from bucketize.log.fingerprint import bounds_of, graph_of, source_of
from bucketize.log.log import append, content, read, rows
from bucketize.log.trial import (
    CLONE,
    ERROR_LENGTH,
    KERNEL,
    Source,
    Trial,
    schedule_hash,
    schedule_json,
)
from bucketize.measure.job import Outcome, quartiles
from bucketize.tune.task import Point, Subject, Task


@dataclass
class Journal:
    """A session's part of a log."""

    log: Path
    model: str
    threads: int
    environment: Environment
    search: str
    seed: int
    dispatchers: Mapping[str, str]
    """What was decided for the module of each clone, by its identity."""
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    written: list[Trial] = field(default_factory=list)
    seen: set[tuple[str, int]] = field(default_factory=set)
    """The rows of others that are known, by run and number."""
    seen_bytes: int = 0
    """Of the log when it was looked at."""
    clock: Callable[[], float] = time.monotonic

    def read(self) -> list[Trial]:
        """The rows of others so far, with a warning of those that cannot count."""
        self.seen_bytes = self.size
        known = rows(self.log, TEMPLATES) if self.log.exists() else []
        self.seen = {(trial.run_id, trial.trial) for trial in known}
        return known

    def news(self) -> list[Trial]:
        """The rows that others have added since."""
        if self.size == self.seen_bytes:
            return []
        self.seen_bytes = self.size
        known = read(content(self.log), self.log, TEMPLATES).table.trials
        others = {(t.run_id, t.trial): t for t in known if t.run_id != self.run_id}
        fresh = [trial for where, trial in others.items() if where not in self.seen]
        self.seen |= others.keys()
        return fresh

    @property
    def size(self) -> int:
        """Of the log, in bytes."""
        return self.log.stat().st_size if self.log.exists() else 0

    def row(
        self,
        *,
        made: Implementation | Mapping[str, str],
        outcome: Outcome,
        default: Outcome,
        source: Source,
        task: Task | None = None,
        point: Point | None = None,
        subject: Subject | None = None,
        **more: Any,
    ) -> Trial:
        """A row about a task at a point, or about a clone, and the default beside it."""
        about = _about(task, point) if task and point else {}
        columns = {
            **self._session(),
            **self._whose(task or subject),
            **_source(subject),
            **_schedule(made),
            "source": source,
            "status": "failed" if outcome.failed else "ok",
            **outcome.columns,
            "error": outcome.error[:ERROR_LENGTH],
            **_beside(outcome, default),
        }
        return Trial(**(columns | about | more))

    def add(self, row: Trial) -> Trial:
        """Add a row to the log: the next of the session."""
        trial = replace(row, trial=len(self.written), timestamp=_now())
        alone = self.size == self.seen_bytes
        append(self.log, trial)
        self.seen_bytes = self.size if alone else self.seen_bytes
        self.written.append(trial)
        return trial

    @contextmanager
    def turn(self, seconds: float, say: Callable[[str], None]) -> Iterator[None]:
        """With the right to measure for the log, which its sessions have by turns.

        The system takes it back from a session that was killed. Raises a TimeoutError after so many
        seconds; a longer wait is said.
        """
        with ExitStack() as mine:
            end = self.clock() + seconds
            try:
                self.log.parent.mkdir(parents=True, exist_ok=True)
                with locked(Path(f"{self.log}.next.lock"), seconds, say):  # who waits, comes next
                    left = max(end - self.clock(), 0.0)
                    mine.enter_context(locked(Path(f"{self.log}.turn.lock"), left, say))
            except TimeoutError:
                raise
            except OSError as e:
                raise LogError(f"cannot lock {self.log}: {e.strerror or e}") from e
            yield

    def _session(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "trial": len(self.written),
            "timestamp": _now(),
            **asdict(self.environment),
            "threads": self.threads,
            "model": self.model,
            "search": self.search,
            "seed": self.seed,
        }

    def _whose(self, whose: Task | Subject | None) -> dict[str, Any]:
        assert whose is not None, "a row is about a task or about a clone"
        return {
            "function": whose.function,
            "bucket": whose.bucket,
            "clone": whose.clone,
            "dispatcher": self.dispatchers.get(whose.clone, ""),
            "op": CLONE,
            "workload": whose.clone,
        }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _source(subject: Subject | None) -> dict[str, str]:
    if subject is None:
        return {}
    source = source_of(subject.module, subject.function)
    return {"graph": graph_of(source), "bounds": bounds_of(source)}


def _schedule(made: Implementation | Mapping[str, str]) -> dict[str, Any]:
    """Of a kernel, or the implementations of a clone by workload."""
    schedule = made.schedule if isinstance(made, Implementation) else made
    return {
        "template": made.template if isinstance(made, Implementation) else "",
        "schedule": schedule_json(schedule),
        "schedule_hash": schedule_hash(schedule),
    }


def _beside(outcome: Outcome, default: Outcome) -> dict[str, Any]:
    """How it compares with the default, round by round."""
    paired = bool(outcome.seconds and default.seconds)
    found = of_median(ratios([(outcome.seconds, default.seconds)], [1.0])) if paired else None
    low, median, high = quartiles(default.seconds) if default.seconds else (None, None, None)
    return {
        "baseline_q1_s": low,
        "baseline_s": median,
        "baseline_q3_s": high,
        "ratio_low": found.low if found else None,
        "ratio_high": found.high if found else None,
    }


def _about(task: Task, point: Point) -> dict[str, Any]:
    """What a row tells of a task at a point."""
    return {
        "level": KERNEL,
        "op": task.op,
        "workload": task.workload.hash,
        "layer": task.layer,
        "shape": point.shape,
        "weight": point.weight,
        "flops": task.flops(point),
        "bytes": task.bytes(point),
        "graph_bytes": task.weight_bytes,
        "baseline": str(task.default),
    }
