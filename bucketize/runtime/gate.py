"""A limit on what calls that run at once take of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from bucketize.errors import ShapeError


class Gate:
    """Bytes that the calls of an executable share; who comes first goes first."""

    def __init__(self, most: int) -> None:
        """Calls may take `most` bytes together, with weights that they share."""
        self.most = most
        self._taken = 0
        self._changed = Condition()
        self._waiting: deque[object] = deque()

    def left(self, weights: int) -> int:
        """What a call may take, if it is alone."""
        return self.most - weights

    @contextmanager
    def room(self, size: int, weights: int) -> Iterator[None]:
        """Wait until so many bytes may be taken.

        Raises:
            ShapeError: they never may.

        """
        check_room(size, self.most, weights)
        me = object()
        with self._changed:
            self._waiting.append(me)
            try:
                self._changed.wait_for(
                    lambda: self._waiting[0] is me and self._taken + size <= self.left(weights)
                )
            finally:
                self._waiting.remove(me)
                self._changed.notify_all()
            self._taken += size
        try:
            yield
        finally:
            with self._changed:
                self._taken -= size
                self._changed.notify_all()


def check_room(size: int, most: int, weights: int) -> None:
    """Raise a ShapeError for a call that takes more than it may."""
    if size > most - weights:
        raise ShapeError(
            f"the call takes {size:,} bytes, and {max(most - weights, 0):,} are left by a limit of "
            f"{most:,}, of which weights have {weights:,}"
        )
