"""A CSV that grows while something is measured, and that a later run goes on with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bucketize.errors import BucketizeError
from bucketize.machine.host import host

CPU = "cpu"
BROKEN = (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError)


class Sheet:
    """Rows of some columns, among them the `cpu` that measured them."""

    def __init__(self, path: Path, columns: Sequence[str], key: Sequence[str]) -> None:
        """Read what is there.

        Raises:
            BucketizeError: it is no such sheet, or another machine's.

        """
        self.path, self.key = path, list(key)
        self.frame = pd.DataFrame(columns=list(columns))
        if path.exists():
            self.frame = _read(path, columns)

    def has(self, key: Iterable[Any]) -> bool:
        """Whether there are rows of this key."""
        return tuple(key) in set(self.frame[self.key].itertuples(index=False, name=None))

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows that belong together: either all of them are in the file, or none."""
        more = pd.DataFrame(list(rows), columns=self.frame.columns)
        self.frame = more if self.frame.empty else pd.concat([self.frame, more], ignore_index=True)
        unfinished = self.path.with_suffix(".part")
        self.frame.to_csv(unfinished, index=False)
        os.replace(unfinished, self.path)


def _read(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path)
    except BROKEN as e:
        raise BucketizeError(f"{path} is no CSV: {e}") from e
    if list(frame.columns) != list(columns):
        told = f"has the columns {', '.join(frame.columns)}, not {', '.join(columns)}"
        raise BucketizeError(f"{path} {told}; name another --out")
    if others := set(frame[CPU]) - {host().name}:
        told = f"was measured on {', '.join(map(str, others))}, this is {host().name}"
        raise BucketizeError(f"{path} {told}; name another --out")
    return frame
