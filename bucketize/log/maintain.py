"""Whole logs: several made one, one made smaller, and what they hold counted.

A log is replaced by a rename, under the lock of those who append: whoever reads sees the old one
or the new one, and no row that is written meanwhile is lost.
"""

from __future__ import annotations

import math
import os
import re
import stat
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any

from bucketize.errors import LogError, UnknownNameError, unknown_name
from bucketize.log.cell import encoded, moment
from bucketize.log.environment import HOST, VERSIONS, here
from bucketize.log.log import Reading, Table, content, difference, read, table, writing
from bucketize.log.trial import COLUMNS, SCHEMA_VERSION, Trial
from bucketize.machine.file import check_replaceable
from bucketize.table import several

CONFIRM = "confirm"  # the source of rows that measure a choice once more
IDENTITY = attrgetter(
    *("workload", "template", "schedule_hash", "shape", "graph_bytes", "threads"), *HOST, *VERSIONS
)
"""What measurements have in common of which a reader takes the last."""


@dataclass(frozen=True)
class Merging:
    """What became of the rows of several logs."""

    rows: int
    repeated: int  # left out, being identical to another


def merge(paths: Iterable[str | Path], out: str | Path, *, force: bool = False) -> Merging:
    """Write one log with the rows of all, in order of time, each once, as this version writes them.

    Rows of a log stay in its order, which tells what came after what though a clock was set back:
    each counts as written at the latest moment so far. Rows of the same moment are in the order of
    the logs here. Columns that this version does not know follow the others, in the order of the
    alphabet.

    Args:
        paths: of the logs, each left alone unless it is `out`.
        out: the log to write, whole or not at all; it may be one of the logs.
        force: replace `out` where it exists and is none of the logs.

    Raises:
        LogError: a log that cannot be read or is of another schema, or `out` cannot be written.

    """
    logs, out = [Path(path) for path in paths], Path(out)
    with _replacing(out):
        is_input = out.exists() and any(log.exists() and log.samefile(out) for log in logs)
        if out.exists() and not (force or is_input):
            raise LogError(
                f"{out} exists: --force replaces it; to merge into it, name it among the logs"
            )
        tables = [table(log) for log in logs]
        unknown = sorted({name for each in tables for name in each.unknown})
        lines = [line for each in tables for line in _lines(each, unknown)]
        once = dict.fromkeys(text for _, text in sorted(lines, key=lambda line: line[0]))
        _put(out, encoded([*COLUMNS, *unknown]) + b"".join(once))
    return Merging(rows=len(once), repeated=len(lines) - len(once))


def _lines(table: Table, unknown: Sequence[str]) -> Iterator[tuple[datetime, bytes]]:
    """The latest moment up to each row, and its line, in the form of this version."""
    moments = list(accumulate(map(moment, table.known["timestamp"]), max))
    empty = [""] * len(moments)
    cells = {**table.known, "schema_version": [SCHEMA_VERSION] * len(moments)}
    columns = [cells[name] for name in COLUMNS] + [table.unknown.get(n, empty) for n in unknown]
    return zip(moments, map(encoded, zip(*columns, strict=True)), strict=True)


@dataclass(frozen=True)
class Prunable:
    """The rows that may be dropped: those of all that is given; all, where nothing is."""

    older_days: float | None = None
    host: str | None = None  # a processor's name
    model: str | None = None

    def lines(self, rows: Mapping[int, Trial]) -> set[int]:
        """Where rows may be dropped; an `UnknownNameError` for a name that none of them has."""
        covered, now = set(rows), datetime.now(UTC)
        for kind, name, column in (("host", self.host, "host_cpu"), ("model", self.model, "model")):
            names = {line: getattr(trial, column) for line, trial in rows.items()}
            if name is not None and name not in names.values():
                raise unknown_name(kind, name, set(names.values()))
            covered -= {line for line, theirs in names.items() if name not in (None, theirs)}
        if self.older_days is not None:
            ages = {line: now - moment(rows[line].timestamp) for line in covered}
            covered = {line for line in covered if ages[line] / timedelta(days=1) > self.older_days}
        return covered


EVERYTHING = Prunable()


@dataclass(frozen=True)
class Pruning:
    """What became of the rows of a log."""

    kept: int
    dropped: Mapping[str, int]  # rows by reason
    backup: Path | None = None  # where the old log is


def prune(
    path: str | Path,
    scope: Prunable = EVERYTHING,
    *,
    drop_failed: bool = False,
    dry_run: bool = False,
    backup: bool = True,
) -> Pruning:
    """Drop the rows that can no longer count; the lines that stay are not touched.

    These are rows of other versions of what writes machine code, all but the last of repeated
    measurements, and lines that no reader takes. Rows that confirm a choice are each evidence: they
    are no repeats, and make none of others. Whatever model a measurement was made for, it is one
    of its workload. Where nothing is to be dropped, nothing is written.

    Args:
        path: of the log.
        scope: drop these rows only; lines that no reader takes are in no scope but that of all.
        drop_failed: drop the trials that failed, too.
        dry_run: write nothing, tell what would be dropped.
        backup: keep the old log beside the new one, with `.bak` added to its name.

    Raises:
        LogError: the log cannot be read or written, or is of another schema.
        UnknownNameError: no row has the host or the model of the scope.

    """
    path = Path(path)
    pruned, _, _ = _pruned(path, scope, drop_failed)  # without the lock: no one waits for a look
    if dry_run or not pruned.dropped:
        return pruned
    with _replacing(path):
        pruned, old, new = _pruned(path, scope, drop_failed)
        beside = Path(f"{path}.bak") if backup and pruned.dropped else None
        if beside:
            _put(beside, old, like=path)
        _put(path, new)
    return replace(pruned, backup=beside)


def _pruned(path: Path, scope: Prunable, drop_failed: bool) -> tuple[Pruning, bytes, bytes]:
    """What is to be dropped; the bytes of the log now, and without it."""
    old = content(path)
    reading = read(old, path)
    dropped = {} if scope != EVERYTHING else left_out(reading)
    rows = dict(zip(reading.lines, reading.table.trials, strict=True))
    try:
        covered = scope.lines(rows)
    except UnknownNameError as e:
        e.add_note(f"in {path}")
        raise
    void = {line: _void(rows[line], drop_failed) for line in covered}
    dropped |= {line: reason for line, reason in void.items() if reason}
    left = {line: trial for line, trial in rows.items() if line not in dropped}
    dropped |= dict.fromkeys(covered & _superseded(left), "repeated")
    lines = enumerate(re.findall(rb"[^\n]*\n|[^\n]+", old), 1)
    new = b"".join(text for line, text in lines if line not in dropped)
    total = len(rows) + len(reading.torn) + len(reading.bad)
    return Pruning(total - len(dropped), counts(dropped.values())), old, new


def left_out(reading: Reading) -> dict[int, str]:
    """Why lines hold no row that a reader takes, by line."""
    bad = {line: f"bad {fault.partition(' ')[0]}" for line, fault in reading.bad.items()}
    return dict.fromkeys(reading.torn, "torn") | bad


def counts(names: Iterable[str]) -> dict[str, int]:
    """How often each name is there, the most frequent first."""
    return dict(Counter(names).most_common())


def _void(trial: Trial, drop_failed: bool) -> str:
    """Why a row cannot count whatever the others are; empty if it can."""
    failed = drop_failed and trial.status != "ok"
    return difference(trial, here(), VERSIONS) or ("failed" if failed else "")


def _superseded(trials: Mapping[int, Trial]) -> set[int]:
    """The lines of measurements that were made again, with the same versions, further down."""
    measured = {line: trial for line, trial in trials.items() if trial.source != CONFIRM}
    last = {IDENTITY(trial): line for line, trial in measured.items()}
    return measured.keys() - last.values()


@contextmanager
def _replacing(path: Path) -> Iterator[None]:
    """With the locks of those who write the log by this name, or by that which it links to."""
    real = _real(path)
    try:
        check_replaceable(real)
        with ExitStack() as locks:
            for name in dict.fromkeys((path.absolute(), real)):
                locks.enter_context(writing(name))
            yield
    except OSError as e:
        raise LogError(f"cannot write {path}: {e.strerror or e}") from e


def _real(path: Path) -> Path:
    """The file itself, whatever links lead to it."""
    return Path(os.path.realpath(path))


def _put(path: Path, text: bytes, like: Path | None = None) -> None:
    """Put the file there, whole or not at all; a link stays a link, and so does who may read it.

    Where `like` exists, by default the file itself, the new one is for those who may read that.
    """
    real = _real(path)
    model = like or real
    temporary = Path(f"{real}.{uuid.uuid4().hex}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)  # as `append` does
    try:
        with os.fdopen(handle, "wb") as file:
            if model.exists():
                os.fchmod(handle, stat.S_IMODE(model.stat().st_mode))
            file.write(text)
            file.flush()
            os.fsync(handle)
        os.replace(temporary, real)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


WAYS: Mapping[str, Callable[[Trial], str]] = {
    "source": attrgetter("source"),
    "status": lambda t: t.status if t.error_kind == "none" else f"{t.status}: {t.error_kind}",
    "model": attrgetter("model"),
    "function": attrgetter("function"),
    "bucket": attrgetter("bucket"),
    "host": lambda t: (
        f"{t.host_cpu}, {several(t.host_cores, 'core')}, {several(t.threads, 'thread')}"
    ),
    "versions": lambda t: ", ".join(f"{n.partition('_')[0]} {getattr(t, n)}" for n in VERSIONS),
}


def stock(paths: Iterable[str | Path]) -> dict[str, Any]:
    """Count what logs hold. Lines that no reader takes make no warning: they are counted, too.

    Returns:
        `rows`, `workloads`, `schedules` (distinct pairs of template and schedule), `compile_s` and
        `timing_s` (repeats by median latency) in seconds, `first` and `last` timestamp; and the
        rows by each of WAYS and, `left_out`, by why readers here leave them out, the most first.

    Raises:
        LogError: a log that cannot be read, or is of another schema.

    """
    readings = [read(content(path), path) for path in map(Path, paths)]
    trials = [trial for reading in readings for trial in reading.table.trials]
    elsewhere = (difference(trial, here(), HOST + VERSIONS) for trial in trials)
    lines = [reason for reading in readings for reason in left_out(reading).values()]
    by_time = sorted((trial.timestamp for trial in trials), key=moment)
    return {
        "rows": len(trials),
        "workloads": len({trial.workload for trial in trials}),
        "schedules": len({(trial.template, trial.schedule_hash) for trial in trials}),
        "compile_s": _total(trial.compile_s for trial in trials),
        "timing_s": _total(trial.repeats * (trial.latency_median_s or 0.0) for trial in trials),
        "first": by_time[0] if by_time else None,
        "last": by_time[-1] if by_time else None,
        **{way: counts(map(of, trials)) for way, of in WAYS.items()},
        "left_out": counts([*filter(None, elsewhere), *lines]),
    }


def _total(seconds: Iterable[float | None]) -> float:
    """The sum of what is a number: the readers of a log check no column that none of them needs."""
    return math.fsum(s for s in seconds if s is not None and math.isfinite(s))
