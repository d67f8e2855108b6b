"""Locks between processes: whoever waits for one says for whom."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

PATIENCE_S = 1.0  # this much is waited in silence


@contextmanager
def locked(path: Path, timeout_s: float, say: Callable[[str], None]) -> Iterator[None]:
    """With the lock file at `path`, after `timeout_s` at most; a longer wait is said.

    Raises TimeoutError, which names the lock and who holds it, and OSError where it cannot be made.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=min(PATIENCE_S, timeout_s))
    except Timeout:
        if not path.exists():  # as in /proc: what is not there nobody holds; nobody removes it
            raise FileNotFoundError(errno.ENOENT, f"no file can be made in {path.parent}") from None
        what = f"the lock {path}, which {_holder(path)} holds"
        limit = f"; up to {timeout_s:.3g} s" if timeout_s < math.inf else ""
        say(f"waiting for {what}{limit}")
        try:
            lock.acquire(timeout=max(timeout_s - PATIENCE_S, 0.0))
        except Timeout as e:
            raise TimeoutError(f"waited {timeout_s:.3g} s for {what}") from e
    try:
        yield
    finally:
        lock.release()


def _holder(lock: Path) -> str:
    """The process that has a lock, as far as Linux tells."""
    try:
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        inode = str(lock.stat().st_ino)
    except OSError:
        return "another process"
    pids = [cells[4] for cells in locks if "->" not in cells and cells[5].endswith(f":{inode}")]
    return f"process {pids[0]}" if pids else "another process"
