"""Whole logs: several made one, and one made smaller.

A log is replaced by a rename, under the lock of those who append: whoever reads sees the old one
or the new one, and no row that is written meanwhile is lost.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bucketize.errors import LogError
from bucketize.tune.cells import encoded, moment
from bucketize.tune.log import COLUMNS, SCHEMA_VERSION, Table, table, writing


@dataclass(frozen=True)
class Merging:
    """What became of the rows of several logs."""

    rows: int
    repeated: int  # left out, being identical to another


def merge(paths: Iterable[str | Path], out: str | Path, *, force: bool = False) -> Merging:
    """Write one log with the rows of all, in order of time, each once, as this version writes them.

    Rows of the same moment keep the order of their logs, and of the logs here. Columns that this
    version does not know follow the others, in the order of the alphabet.

    Args:
        paths: of the logs, each left alone unless it is `out`.
        out: the log to write, whole or not at all; it may be one of the logs.
        force: replace `out` where it exists and is none of the logs.

    Raises:
        LogError: a log that cannot be read or is of another schema, or `out` cannot be written.

    """
    logs, out = [Path(path) for path in paths], Path(out)
    with _replacing(out):
        if out.exists() and not force and not any(_same(log, out) for log in logs):
            raise LogError(
                f"{out} exists: --force replaces it; to merge into it, name it among the logs"
            )
        tables = [table(log) for log in logs]
        unknown = sorted({name for each in tables for name in each.unknown})
        lines = [line for each in tables for line in _lines(each, unknown)]
        once = dict.fromkeys(sorted(lines, key=lambda line: line[0]))
        _put(out, encoded([*COLUMNS, *unknown]) + b"".join(text for _, text in once))
    return Merging(rows=len(once), repeated=len(lines) - len(once))


def _same(log: Path, out: Path) -> bool:
    return log.exists() and log.samefile(out)


def _lines(table: Table, unknown: Sequence[str]) -> Iterator[tuple[datetime, bytes]]:
    """Each row's moment and its line, in the form of this version."""
    moments = [moment(text) for text in table.known["timestamp"]]
    empty = [""] * len(moments)
    known = {**table.known, "schema_version": [SCHEMA_VERSION] * len(moments)}
    columns = [known[name] for name in COLUMNS] + [table.unknown.get(n, empty) for n in unknown]
    return zip(moments, map(encoded, zip(*columns, strict=True)), strict=True)


@contextmanager
def _replacing(path: Path) -> Iterator[None]:
    """With the locks of those who write the log by this name, or by that which it links to."""
    try:
        with ExitStack() as locks:
            for name in dict.fromkeys((path.absolute(), path.resolve())):
                locks.enter_context(writing(name))
            yield
    except OSError as e:
        raise LogError(f"cannot write {path}: {e.strerror or e}") from e


def _put(path: Path, text: bytes) -> None:
    """Put the file there, whole or not at all; a link stays a link, and who may read it."""
    real = path.resolve()
    temporary = Path(f"{real}.{uuid.uuid4().hex}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)  # as `append` does
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        if real.exists():
            os.chmod(temporary, stat.S_IMODE(real.stat().st_mode))
        os.replace(temporary, real)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
