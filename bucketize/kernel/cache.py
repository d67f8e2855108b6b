"""The directory of kernels: whose it has to be, how files get into it, how it is kept small.

A file is machine code that this process is going to run, so nothing is read that another user
could have written. Who finds a kernel whole needs no lock, no compiler and no writable disk.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bucketize.errors import CacheError, KernelError, warn
from bucketize.kernel.object import sealed, unsealed
from bucketize.lock import locked
from bucketize.machine.directory import VARIABLE, cache_directory, kept_files
from bucketize.machine.file import open_to_others, put

LOGGER = logging.getLogger("bucketize")
DAY_S = 24 * 3600
LOCK_TIMEOUT_S = 600.0  # no kernel takes as long to compile


def code_path(source: Path) -> Path:
    """The machine code beside a kernel's source."""
    return source.with_suffix(".o")


def stored(source: Path) -> bytes | None:
    """The machine code of a kernel, if it is there, whole, and this kernel's.

    Raises KernelError when it, or the directory, may be written by another user.
    """
    path = code_path(source)
    try:
        with path.open("rb") as file:
            _check_owner(path.parent, path.parent.stat())
            _check_owner(path, os.fstat(file.fileno()))
            code = unsealed(file.read(), source.stem)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise _unusable(source, e) from e
    if code is None:
        LOGGER.warning("%s is torn or another kernel's; compiling it anew", path)
    return code


def made(source: Path, text: str, compiled: Callable[[Path], bytes]) -> tuple[bytes, bool]:
    """The machine code, and whether another process that held the lock before has made it."""
    try:
        source.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _check_owner(source.parent, source.parent.stat())
        with _locked(source):
            code = stored(source)
            if code is not None:
                return code, True
            put(source, [(0, text.encode())])
            code = compiled(source)
            put(code_path(source), [(0, sealed(code, source.stem))])
            return code, False
    except OSError as e:
        raise _unusable(source, e) from e


@contextmanager
def _locked(source: Path) -> Iterator[None]:
    """Hold the lock of a kernel, whose file goes with it: at worst two make the same code."""
    path = source.with_suffix(".lock")
    with locked(path, LOCK_TIMEOUT_S, warn):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Raise KernelError if anybody but this user and root may write there."""
    open_ = open_to_others(path, status)
    if open_ is not None:
        raise KernelError(
            f"{open_}, and machine code of others is not run; use chmod go-w if it is yours, "
            f"or set {VARIABLE} to a directory of your own"
        )


def _unusable(source: Path, error: OSError) -> CacheError:
    return CacheError(f"cannot keep a kernel in {source.parent} (set {VARIABLE}): {error}")


# --- how it is kept small ------------------------------------------------------------------------


@dataclass(frozen=True)
class CachedKernel:
    """A kernel in the cache."""

    source: Path
    size: int
    """Bytes of source and machine code."""
    used: float
    """When it was read or written last, in seconds of the epoch, as far as the system notes it."""


def kernels() -> list[CachedKernel]:
    """What the cache holds, the least recently used first."""
    cached = filter(None, map(_described, cache_directory().glob("k_*.o")))
    return sorted(cached, key=lambda kernel: kernel.used)


def _described(path: Path) -> CachedKernel | None:
    """The kernel of this machine code; None if another process has removed it by now."""
    code, text = _status(path), _status(source := path.with_suffix(".py"))
    if code is None:
        return None
    size = code.st_size + (text.st_size if text else 0)
    return CachedKernel(source, size, _used(code))


def other_bytes() -> int:
    """What is kept beside the kernels; nothing of what another process removes meanwhile."""
    return sum(its.st_size for path in kept_files() if (its := _status(path)))


def _used(its: os.stat_result) -> float:
    return max(its.st_atime, its.st_mtime)


def _status(path: Path) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        return path.stat()
    return None


def prune(days: float) -> list[CachedKernel]:
    """Remove kernels that were not used for so many days, and what else is kept beside them.

    They are compiled anew when needed.
    """
    then = time.time() - days * DAY_S
    old = [k for k in kernels() if k.used < then]
    for kernel in old:
        for suffix in (".o", ".py"):
            kernel.source.with_suffix(suffix).unlink(missing_ok=True)
    for path in kept_files():
        if (its := _status(path)) and _used(its) < then:
            path.unlink(missing_ok=True)
    return old
