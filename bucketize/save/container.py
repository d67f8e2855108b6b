"""A file of a header and blobs: plain JSON, then bytes in aligned places, each with its digest.

Nothing in it is executed by reading it, and nothing is read that is not asked for: blobs are
views of the file, mapped into memory.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bucketize.errors import ProgramError
from bucketize.machine.file import put
from bucketize.op import Array

NAME = b"bucketize program "
FORMAT = 5  # 4: digests of weighted sums; 5: the share of the last cache that is there
HEAD = len(NAME) + 8 + 8 + 32  # name, format, bytes of the header, its digest
PLACE = 4096  # blobs begin at multiples: a page, so that what is mapped is aligned
BETWEEN = 64  # a cache line
SUMMED = 4096
WEIGHTS = np.cumprod(np.full(SUMMED // 8, 0x9E3779B97F4A7C1B, np.uint64))
"""Factors of the 64-bit words of what is summed: powers of an odd number, modulo 2^64: a sum tells
where a word lies, and each change of one."""

Blob: TypeAlias = bytes | Array


def write(path: str | Path, header: Mapping[str, Any], blobs: Sequence[Blob]) -> None:
    """Put the file there, whole or not at all."""
    views = [memoryview(b).cast("B") if isinstance(b, bytes) else _bytes(b) for b in blobs]
    places: list[tuple[int, int, str]] = []
    end = 0
    for view in views:
        start = -(-end // BETWEEN) * BETWEEN
        end = start + len(view)
        places.append((start, len(view), _digest(view).hex()))
    text = json.dumps({**header, "blobs": places}, allow_nan=False).encode()
    head = NAME + FORMAT.to_bytes(8, "little") + len(text).to_bytes(8, "little") + _digest(text)
    first = _first(len(text))
    starts = [first + start for start, _, _ in places]
    with placing(Path(path)):
        put(Path(path), [(0, head + text), *zip(starts, views, strict=True)])


@contextmanager
def placing(path: Path) -> Iterator[None]:
    """Put files there; where they cannot be written, ProgramError says why not."""
    try:
        yield
    except OSError as e:
        raise ProgramError(f"cannot write {path}: {e.strerror or e}") from e


def is_program(source: object) -> bool:
    """Whether a source is the path of a file that `Executable.save` wrote, by how it begins."""
    if not isinstance(source, str | os.PathLike) or not Path(source).is_file():
        return False
    with Path(source).open("rb") as file:
        return file.read(len(NAME)) == NAME


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _first(header: int) -> int:
    return -(-(HEAD + header) // PLACE) * PLACE


def _digest(data: bytes | memoryview) -> bytes:
    """A digest of the weighted sums of each 4 KiB: hundreds of MiB take next to no time."""
    whole = len(data) // SUMMED * SUMMED
    words = np.frombuffer(data[:whole], np.uint64).reshape(-1, SUMMED // 8)
    digest = hashlib.blake2b(np.einsum("ij,j->i", words, WEIGHTS).data, digest_size=32)
    digest.update(data[whole:])
    return digest.digest()


@contextmanager
def sound(path: str | Path) -> Iterator[None]:
    """Read fields of a header: one that is missing, or of another kind, is damage to the file."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as e:
        fault = f"{type(e).__name__}: {e}"
        raise ProgramError(f"{path} is damaged: its header does not hold together ({fault})") from e


def _at_once(path: str, flags: int) -> int:
    """Open a file; a pipe is not waited for, as who writes into it may never come."""
    return os.open(path, flags | os.O_NONBLOCK)


class File:
    """An open file; its blobs are checked when they are asked for."""

    def __init__(self, path: str | Path) -> None:
        """Read the header, or raise a `ProgramError` that says what is wrong with the file."""
        self.path = Path(path)
        try:
            with open(path, "rb", opener=_at_once) as file:
                self.status = os.fstat(file.fileno())
                if not stat.S_ISREG(self.status.st_mode):
                    raise ProgramError(f"{path} is no file that `save` wrote")
                size = self.status.st_size
                head = file.read(HEAD)
                self._check_head(head)
                length = int.from_bytes(head[len(NAME) + 8 : len(NAME) + 16], "little")
                text = file.read(min(length, size))
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as e:
            raise ProgramError(f"cannot read {path}: {e.strerror or e}") from e
        if len(text) < length or _digest(text) != head[-32:]:
            raise ProgramError(f"{path} is damaged: its header is torn or has changed")
        self._first = _first(length)
        with sound(path):
            self.header: dict[str, Any] = json.loads(text)
            self._places = self.header["blobs"]
            end = max((start + n for start, n, _ in self._places), default=0)
        if self._places and size < self._first + end:
            raise ProgramError(f"{path} is torn: it has {size:,} bytes of {self._first + end:,}")

    def _check_head(self, head: bytes) -> None:
        if not head.startswith(NAME):
            raise ProgramError(f"{self.path} is no program that `save` wrote")
        format_ = int.from_bytes(head[len(NAME) : len(NAME) + 8], "little")
        if format_ != FORMAT:
            raise ProgramError(
                f"{self.path} is of format {format_}, this bucketize reads format {FORMAT}: "
                "load it with the version that saved it, or save it again"
            )

    def blob(self, index: int) -> memoryview:
        """The bytes of a blob, if they are what was written."""
        view = self._view(index)
        if _digest(view).hex() != self._places[index][2]:
            raise ProgramError(f"{self.path} is damaged: blob {index} is not what was saved")
        return view

    def array(self, index: int, dtype: str, shape: Sequence[int], *, check: bool = True) -> Array:
        """A blob as an array that nobody may write to."""
        view = self.blob(index) if check else self._view(index)
        flat: Array = np.frombuffer(view, dtype) if view else np.empty(0, dtype)
        return flat.reshape(shape)

    def _view(self, index: int) -> memoryview:
        start, length, _ = self._places[index]
        return memoryview(self._map)[self._first + start : self._first + start + length]
