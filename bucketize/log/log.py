"""The tuning log: a CSV file to which every measured schedule adds one line.

`Trial`'s fields are the columns. Whoever appends holds the file's lock for as long as one write
takes, so several processes may share a log; whoever reads needs no lock.
"""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bucketize.errors import LogError, warn
from bucketize.lock import locked
from bucketize.log.cell import Cells, Check, encoded, one_of, picked, row_faults, split, typed
from bucketize.log.environment import ALIKE, HOST, VERSIONS, Environment, here
from bucketize.log.trial import ADDED, COLUMNS, CONFIRMING, PARSERS, SCHEMA_VERSION, WORDS, Trial
from bucketize.machine.file import path_of
from bucketize.types import show_interval

LOCK_TIMEOUT_S = 600.0  # nobody holds it as long
HEADER_BYTES = 1 << 16  # no header is longer
READABLE = partial(os.open, mode=0o644)  # how a log is opened: everybody may read a new one
LISTED = 5  # lines that a warning names
BLOCK_BYTES = 1 << 20  # that are searched at once for the end of the last row


class LogWarning(UserWarning):
    """Lines of a tuning log that are left out of account, and why."""


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
        with writing(path), open(path, "ab+", buffering=0, opener=READABLE) as file:
            fd = file.fileno()
            columns = _header_of(fd, path)
            _cut_torn_tail(fd, path)
            _write_whole(fd, _text(trial, columns or COLUMNS, header=columns is None))
    except OSError as e:
        raise LogError(f"cannot add a trial to {path}: {e.strerror or e}") from e


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """With the lock that every writer of the log holds; TimeoutError where it is not to be had."""
    lock = Path(f"{path}.lock")
    with locked(lock, LOCK_TIMEOUT_S, lambda said: _warn(f"{path}: {said}")):
        yield


def _header_of(fd: int, path: Path) -> tuple[str, ...] | None:
    """The columns of the open log; None when it has no whole header yet."""
    head, newline, rest = os.pread(fd, HEADER_BYTES, 0).partition(b"\n")
    if not newline:
        _check_torn_header(head, path)
        return None
    columns = _checked_columns(head, path)
    first = dict(zip(columns, split(rest.partition(b"\n")[0]), strict=False))
    _check_versions([first.get("schema_version", "")], columns, path)
    return columns


def _cut_torn_tail(fd: int, path: Path) -> None:
    size = os.fstat(fd).st_size
    end = _end_of_lines(fd, size)
    if end < size:
        shown = os.pread(fd, 60, end).decode(errors="replace")
        os.ftruncate(fd, end)
        _warn(f"{path}: removed a torn last line: {shown!r}...")


def _end_of_lines(fd: int, end: int) -> int:
    """Where the last whole line ends: searched for from the file's end, a block at a time."""
    while end:
        start = max(0, end - BLOCK_BYTES)
        if at := os.pread(fd, end - start, start).rfind(b"\n") + 1:
            return start + at
        end = start
    return 0


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
    row = encoded([cells.get(name) for name in columns])
    return encoded(columns) + row if header else row


@dataclass(frozen=True)
class Table:
    """The rows of a log by column: those of `Trial` in their types, unknown ones as text."""

    known: Mapping[str, Sequence[Any]]
    unknown: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> Table:
        """The table of these rows."""
        return cls({name: [getattr(t, name) for t in trials] for name in COLUMNS}, {})

    @property
    def trials(self) -> list[Trial]:
        """The rows, one by one."""
        cells = zip(*self.known.values(), strict=True)
        return [Trial(**dict(zip(self.known, row, strict=True))) for row in cells]


@dataclass(frozen=True)
class Reading:
    """A log as it was read, and the lines that hold no row of it; the header is line 1."""

    table: Table
    lines: Sequence[int]  # of the table's rows
    torn: Sequence[int]  # lines
    bad: Mapping[int, str]  # why rows cannot count, by line

    def tell(self, path: Path) -> None:
        """Make a LogWarning of the lines that hold no row."""
        if 1 in self.torn:
            _warn(f"{path}: skipped a torn header")
        elif self.torn:
            listed = ", ".join(map(str, self.torn[:LISTED]))
            more = ", ..." if len(self.torn) > LISTED else ""
            _warn(f"{path}: skipped {len(self.torn)} torn line(s): {listed}{more}")
        if self.bad:
            line, fault = next(iter(self.bad.items()))
            first = f"line {line}: {fault}"
            _warn(f"{path}: left out {len(self.bad)} bad row(s), the first in {first}")


def rows(path: str | Path, templates: Container[str] | None = None) -> list[Trial]:
    """The log's trials, in order. Torn lines, and rows that cannot count, make a LogWarning.

    Args:
        path: of the log.
        templates: the known ones; rows of others are left out. By default any will do.

    Raises:
        LogError: there is no such file, or it is of another schema.

    """
    return table(path, templates).trials


def table(path: str | Path, templates: Container[str] | None = None) -> Table:
    """The log's trials by column, those that this version does not know included; as `rows`."""
    path = path_of(path, "the path of a log")
    reading = read(content(path), path, templates)
    reading.tell(path)
    return reading.table


def content(path: Path) -> bytes:
    """The bytes of a log; a LogError where there is none to be read."""
    try:
        return path.read_bytes()
    except OSError as e:
        raise _unreadable(path, e) from e


def _unreadable(path: Path, e: OSError) -> LogError:
    return LogError(f"cannot read the tuning log {path}: {e.strerror or e}")


@dataclass
class Tail:
    """A log that others add to: each time it is read, what was not there before."""

    path: Path
    templates: Container[str] | None = None
    header: bytes = b""
    end: int = 0
    """The end of the lines that were read, in bytes."""
    file: int = 0
    """The inode: one that replaces the log, as `merge` does, is read from its begin."""

    def read(self) -> Reading:
        """The rows that were added, parsed without those before; none where there is no file."""
        try:
            with self.path.open("rb") as opened:
                at = os.fstat(opened.fileno())
                if at.st_ino != self.file or at.st_size < self.end:
                    self.header, self.end, self.file = b"", 0, at.st_ino
                opened.seek(self.end)
                text = opened.read()
        except FileNotFoundError:
            text = b""
        except OSError as e:
            raise _unreadable(self.path, e) from e
        reading = read(self.header + text, self.path, self.templates)
        self.header = self.header or text[: text.find(b"\n") + 1]
        self.end += text.rfind(b"\n") + 1
        return reading


def read(text: bytes, path: Path, templates: Container[str] | None = None) -> Reading:
    """What the bytes of the log at `path` hold, without a warning; as `rows`."""
    cells, numbers, torn = _cells_by_column(text, path)
    parsed, mangled = typed(cells, PARSERS)
    added = {name: [default] * len(numbers) for name, default in ADDED.items()}
    columns = added | _up_to_date(parsed)
    check: dict[str, Check] = {"template": partial(_template_fault, templates), **ONE_OF}
    faults = {row: f for row, f in row_faults(columns, check).items() if row not in mangled}
    unknown = {name: column for name, column in cells.items() if name not in columns}
    left_out = mangled | faults.keys()
    kept = [row for row in range(len(numbers)) if row not in left_out]
    return Reading(
        Table(picked(columns, kept), picked(unknown, kept)),
        lines=[numbers[row] for row in kept],
        torn=sorted([*torn, *(numbers[row] for row in mangled)]),
        bad={numbers[row]: fault for row, fault in faults.items()},
    )


def _cells_by_column(text: bytes, path: Path) -> tuple[Cells, list[int], list[int]]:
    """The cells of whole lines, by column; their numbers; the numbers of torn lines."""
    header, *body = text.split(b"\n")
    if not body:
        _check_torn_header(header, path)
        return dict.fromkeys(COLUMNS, ()), [], [1] if header else []
    columns = _checked_columns(header, path)
    lines = {number: split(line) for number, line in enumerate(body[:-1], 2)}
    whole = {number: cells for number, cells in lines.items() if len(cells) == len(columns)}
    by_column = list(zip(*whole.values(), strict=True)) or [()] * len(columns)
    cells = dict(zip(columns, by_column, strict=True))
    _check_versions(cells["schema_version"], columns, path)
    torn = list(lines.keys() - whole.keys())
    if body[-1]:  # no line end: the writer was killed, and a cell may look whole though it is not
        torn.append(len(body) + 1)
    return cells, list(whole), torn


ONE_OF = {column: one_of(words) for column, words in WORDS.items()}
HALF_OPEN = re.compile(r"=\[(\d+),(\d+|inf)\)|=(\d+)\.\.(\d*)(?=[],])")  # buckets, clones' names


def _up_to_date(columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Buckets of rows older than schema 3, which wrote them half-open, as they are written now."""
    older = [version is not None and version < 3 for version in columns["schema_version"]]
    if not any(older):
        return dict(columns)
    now = {name: _inclusive(columns[name], older) for name in ("function", "bucket")}
    return {**columns, **now}


def _inclusive(texts: Sequence[str], older: Sequence[bool]) -> list[str]:
    new = {text: HALF_OPEN.sub(_sizes, text) for text in set(texts)}
    return [new[text] if old else text for text, old in zip(texts, older, strict=True)]


def _sizes(ends: re.Match[str]) -> str:
    lo, hi = (a or b or "inf" for a, b in zip(ends.group(1, 2), ends.group(3, 4), strict=True))
    return f"={show_interval((int(lo), None if hi == 'inf' else int(hi)))}"


def _template_fault(templates: Container[str] | None, name: str) -> str:
    is_known = not name or templates is None or name in templates
    return "" if is_known else f"{name!r}, and no template has this name"


def select(
    trials: Iterable[Trial],
    *,
    environment: Environment | None = None,
    names: Sequence[str] = HOST + VERSIONS,
) -> list[Trial]:
    """The trials measured on this host with these versions; a LogWarning counts the others.

    Args:
        trials: rows of a log.
        environment: what they are compared with; by default that of this process.
        names: the columns by which they are.

    """
    wanted = environment or here()
    trials = list(trials)
    reasons = [difference(trial, wanted, names) for trial in trials]
    skipped = Counter(reason for reason in reasons if reason)
    if skipped:
        listed = "; ".join(f"{n} with {reason}" for reason, n in skipped.most_common())
        _warn(f"skipped {skipped.total()} of {len(trials)} trials measured elsewhere: {listed}")
    return [trial for trial, reason in zip(trials, reasons, strict=True) if not reason]


def difference(trial: Trial, wanted: Environment, names: Iterable[str]) -> str:
    """The first of these columns in which a trial is of another environment; empty if none is."""
    for name in names:
        theirs, ours = getattr(trial, name), getattr(wanted, name)
        if theirs != ours and not (name == VERSIONS[0] and {theirs, ours} <= ALIKE):
            return f"{name} {theirs} (here {ours})"
    return ""


def _check_torn_header(header: bytes, path: Path) -> None:
    if not encoded(COLUMNS).startswith(header):
        raise _no_log(path, header)


def _checked_columns(header: bytes, path: Path) -> tuple[str, ...]:
    columns = tuple(split(header.removeprefix(codecs.BOM_UTF8)))
    if not set(COLUMNS).intersection(columns):
        raise _no_log(path, header)
    missing = [name for name in COLUMNS if name not in columns and name not in ADDED]
    if missing:
        raise _other_schema(path, columns, f"it lacks {', '.join(missing)}")
    return columns


def _check_versions(versions: Iterable[str], columns: Sequence[str], path: Path) -> None:
    newer = [v for v in set(versions) if v.isdigit() and int(v) > SCHEMA_VERSION]
    if newer:
        raise _other_schema(path, columns, f"its rows are of schema {', '.join(sorted(newer))}")


def check_takes_verdicts(path: Path) -> None:
    """Raise a `LogError` where the log was begun without the columns that verdicts are read by."""
    header, newline, _ = content(path).partition(b"\n")
    columns = _checked_columns(header, path) if newline else CONFIRMING
    lacking = [name for name in CONFIRMING if name not in columns]
    if lacking:
        raise LogError(
            f"{path} was begun by an older version and lacks {', '.join(lacking)}: "
            f"`bucketize log merge {path} -o {path}` adds what is new"
        )


def _no_log(path: Path, header: bytes) -> LogError:
    ours = ",".join(COLUMNS[:4])
    if _is_text(header):
        begin = header[:60].decode(errors="ignore")
        reason = f"its first line begins with {begin!r}, a log's with {ours}"
    else:
        reason = f"its first line is no text, a log's begins with {ours}"
    return LogError(f"{path} is no tuning log: {reason}; `tune` writes logs")


def _is_text(line: bytes) -> bool:
    try:
        return line.decode().replace("\t", "").rstrip("\r").isprintable()
    except UnicodeDecodeError:
        return False


def _other_schema(path: Path, columns: Sequence[str], reason: str) -> LogError:
    return LogError(
        f"{path} is of another schema: {reason}\n"
        f"  its header: {','.join(columns)}\n"
        f"  schema {SCHEMA_VERSION}:   {','.join(COLUMNS)}"
    )


def _warn(message: str) -> None:
    warn(message, LogWarning)
