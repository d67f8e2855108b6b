"""The tuning log: a CSV file to which every measured schedule adds one line.

`Trial`'s fields are the columns. Whoever appends holds the file's lock for as long as one write
takes, so several processes may share a log; whoever reads needs no lock.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from bucketize.errors import LogError
from bucketize.lock import locked
from bucketize.tune.cells import row_fault
from bucketize.tune.environment import HOST, VERSIONS, Environment, here

SCHEMA_VERSION = 2  # 2 added `template`
LOCK_TIMEOUT_S = 60.0
HEADER_BYTES = 1 << 16  # no header is longer
TAIL_BYTES = 1 << 20  # no row is longer
ERROR_LENGTH = 500  # characters of an error's message that a row keeps

Schedule = Mapping[str, int | str]
Source = Literal["default", "random", "grid", "skopt", "transfer", "replay"]
ErrorKind = Literal[
    "none",
    "invalid",
    "compile",
    "compile_timeout",
    "run",
    "run_timeout",
    "wrong_answer",
    "crash",
]


class LogWarning(UserWarning):
    """Lines of a tuning log that are left out of account, and why."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One measured schedule, one line of the log; times in seconds, None an empty field."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    trial: int  # the how-manieth of its run
    timestamp: str  # ISO 8601, UTC
    bucketize_version: str
    python_version: str
    numpy_version: str
    numba_version: str
    llvmlite_version: str
    target_triple: str
    target_features: str
    host_cpu: str
    host_cores: int
    threads: int
    model: str
    function: str
    bucket: str  # "N=[1,2);H=[32,64)"
    shape: str  # of the workload's parameters: "128x768,768x768"
    weight: float  # what the shape counts among those of its bucket
    op: str
    workload: str  # hash
    schedule: str  # JSON
    schedule_hash: str
    source: str
    status: str  # "ok" or "failed"
    error_kind: str
    error: str
    compile_s: float | None = None
    repeats: int = 0
    latency_median_s: float | None = None
    latency_min_s: float | None = None
    latency_std_s: float | None = None
    baseline_s: float | None = None  # the default schedule's median latency at this shape
    max_rel_err: float | None = None
    template: str = ""  # of the kernel; empty in rows of schema 1

    @property
    def environment(self) -> Environment:
        """Where and with what the trial was measured."""
        return Environment(**{f.name: getattr(self, f.name) for f in fields(Environment)})


COLUMNS = tuple(field.name for field in fields(Trial))
ADDED = ("template",)  # columns that logs of an older schema lack


def schedule_json(schedule: Schedule) -> str:
    """The canonical text of a schedule."""
    return json.dumps(dict(schedule), sort_keys=True)


def schedule_hash(schedule: Schedule) -> str:
    """The identity of a schedule, whatever the order of its knobs."""
    return hashlib.sha256(schedule_json(schedule).encode()).hexdigest()[:16]


def append(path: str | Path, trial: Trial) -> None:
    """Add one line to the log, and the header before the first one.

    A line that a killed writer left unfinished is removed first. When the write fails (a full
    disk), the log keeps what it had: that one trial is lost.

    Raises:
        LogError: the log is of another schema, or cannot be written.

    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            locked(Path(f"{path}.lock"), LOCK_TIMEOUT_S, lambda said: _warn(f"{path}: {said}")),
            _opened(path) as fd,
        ):
            columns = _header_of(fd, path)
            _cut_torn_tail(fd, path)
            _write_whole(fd, _text(trial, columns or COLUMNS, header=columns is None))
    except OSError as e:
        raise LogError(f"cannot add a trial to {path}: {e.strerror or e}") from e


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        yield fd
    finally:
        os.close(fd)


def _header_of(fd: int, path: Path) -> tuple[str, ...] | None:
    """The columns of the open log; None when it has no whole header yet."""
    head, newline, rest = os.pread(fd, HEADER_BYTES, 0).partition(b"\n")
    if not newline:
        if not _encoded(COLUMNS).startswith(head):
            raise LogError(_schema_message(path, head.decode(errors="replace")))
        return None
    columns = _checked_columns(head.decode(errors="replace"), path)
    _check_version(_cells(rest.partition(b"\n")[0]), columns, path)
    return columns


def _cut_torn_tail(fd: int, path: Path) -> None:
    size = os.fstat(fd).st_size
    tail = os.pread(fd, TAIL_BYTES, max(0, size - TAIL_BYTES))
    torn = len(tail) - (tail.rfind(b"\n") + 1)
    if torn:
        os.ftruncate(fd, size - torn)
        _warn(
            f"{path}: removed a torn last line: {tail[-torn:][:60].decode(errors='replace')!r}..."
        )


def _write_whole(fd: int, line: bytes) -> None:
    """One write; what a full disk let through of it is taken back."""
    size = os.fstat(fd).st_size
    written = 0
    try:
        while written < len(line):
            written += os.write(fd, line[written:])
    except OSError:
        os.ftruncate(fd, size)
        raise


def _text(trial: Trial, columns: Sequence[str], *, header: bool) -> bytes:
    cells = asdict(trial)
    row = _encoded([_cell(cells.get(name)) for name in columns])
    return _encoded(columns) + row if header else row


def _cell(value: object) -> str:
    """The text of a value, on one line: a reader splits at line ends before it looks at quotes."""
    return "" if value is None else re.sub(r"[\r\n]+", " ", str(value))


def _encoded(cells: Sequence[str]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue().encode(errors="backslashreplace")


def rows(path: str | Path, templates: Container[str] | None = None) -> list[Trial]:
    """The log's trials, in order. Torn lines, and rows that cannot count, make a LogWarning.

    Args:
        path: of the log.
        templates: the known ones; rows of others are left out. By default any will do.

    Raises:
        LogError: there is no such file, or it is of another schema.

    """
    return [trial for trial, _ in lines(path, templates)]


def lines(
    path: str | Path, templates: Container[str] | None = None
) -> list[tuple[Trial, dict[str, str]]]:
    """The log's trials, each with the cells of the columns that this version does not know."""
    path = Path(path)
    try:
        header, *body = path.read_bytes().split(b"\n")
    except OSError as e:
        raise LogError(f"cannot read the tuning log {path}: {e.strerror or e}") from e
    if not body:
        if header:
            _warn(f"{path}: skipped a torn header")
        return []
    columns = _checked_columns(header.decode(errors="replace"), path)
    read = {number: _parsed(line, columns, path) for number, line in enumerate(body[:-1], 2)}
    torn = [number for number, row in read.items() if row is None]
    if body[-1]:  # no line end: the writer was killed, and a cell may look whole though it is not
        torn.append(len(body) + 1)
    if torn:
        _warn(f"{path}: skipped {len(torn)} torn line(s): {', '.join(map(str, torn))}")
    return _sound({number: row for number, row in read.items() if row is not None}, templates, path)


Row: TypeAlias = tuple[Trial, dict[str, str]]


def _sound(read: Mapping[int, Row], templates: Container[str] | None, path: Path) -> list[Row]:
    """The rows that can count, of those read, by line; a LogWarning tells of the others."""
    faults = {number: _fault(trial, templates) for number, (trial, _) in read.items()}
    bad = [number for number, fault in faults.items() if fault]
    if bad:
        first = f"line {bad[0]}: {faults[bad[0]]}"
        _warn(f"{path}: left out {len(bad)} bad row(s), the first in {first}")
    return [row for number, row in read.items() if not faults[number]]


def _fault(trial: Trial, templates: Container[str] | None) -> str:
    if trial.template and templates is not None and trial.template not in templates:
        return f"no template is named {trial.template!r}"
    return row_fault(vars(trial))


def select(
    trials: Iterable[Trial],
    *,
    environment: Environment | None = None,
    host: bool = True,
    versions: bool = True,
) -> list[Trial]:
    """The trials measured on this host with these versions; a LogWarning counts the others.

    Args:
        trials: rows of a log.
        environment: what they are compared with; by default that of this process.
        host: whether another processor matters.
        versions: whether other versions of what writes machine code matter.

    """
    wanted = environment or here()
    names = (HOST if host else ()) + (VERSIONS if versions else ())
    trials = list(trials)
    reasons = [_difference(trial, wanted, names) for trial in trials]
    skipped = Counter(reason for reason in reasons if reason)
    if skipped:
        listed = "; ".join(f"{n} with {reason}" for reason, n in skipped.most_common())
        _warn(f"skipped {skipped.total()} of {len(trials)} trials measured elsewhere: {listed}")
    return [trial for trial, reason in zip(trials, reasons, strict=True) if not reason]


def _difference(trial: Trial, wanted: Environment, names: Iterable[str]) -> str:
    for name in names:
        theirs, ours = getattr(trial, name), getattr(wanted, name)
        if theirs != ours:
            return f"{name} {theirs} (here {ours})"
    return ""


def _checked_columns(header: str, path: Path) -> tuple[str, ...]:
    columns = tuple(next(csv.reader([header]), ()))
    missing = [name for name in COLUMNS if name not in columns and name not in ADDED]
    if missing:
        raise LogError(_schema_message(path, header, f"it lacks {', '.join(missing)}"))
    return columns


def _parsed(
    line: bytes, columns: tuple[str, ...], path: Path
) -> tuple[Trial, dict[str, str]] | None:
    """The trial of one line, and its unknown cells; None when the line is torn."""
    cells = _cells(line)
    if len(cells) != len(columns):
        return None
    _check_version(cells, columns, path)
    named = dict(zip(columns, cells, strict=True))
    try:
        known = {n: parse(named.pop(n)) for n, parse in PARSERS.items() if n in named}
    except ValueError:
        return None
    return Trial(**known), named


def _cells(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode(errors="replace")], strict=True), [])
    except csv.Error:  # a quote without its twin
        return []


def _check_version(cells: Sequence[str], columns: Sequence[str], path: Path) -> None:
    version = dict(zip(columns, cells, strict=False)).get("schema_version", str(SCHEMA_VERSION))
    if version.isdigit() and int(version) > SCHEMA_VERSION:
        reason = f"its rows are of schema {version}"
        raise LogError(_schema_message(path, ",".join(columns), reason))


def _schema_message(path: Path, header: str, reason: str = "its first line is no header") -> str:
    ours = ",".join(COLUMNS)
    return (
        f"{path} is of another schema: {reason}\n"
        f"  its header: {header}\n"
        f"  schema {SCHEMA_VERSION}:   {ours}"
    )


def _seconds(cell: str) -> float | None:
    return float(cell) if cell else None


TYPES: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "float | None": _seconds,
}
PARSERS = {field.name: TYPES[str(field.type)] for field in fields(Trial)}


def _warn(message: str) -> None:
    warnings.warn(message, LogWarning, stacklevel=3)
