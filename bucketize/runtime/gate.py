"""A limit on what calls that run at once take of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition

from bucketize.errors import ShapeError
from bucketize.fork import begins_anew


class Gate:
    """Bytes that the calls of an executable share, and weights; who comes first goes first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.begin_anew()
        begins_anew(self)

    def begin_anew(self) -> None:
        """No call runs or waits; nor does one in a child of a fork."""
        self._taken = 0
        self._changed = Condition()
        self._waiting: deque[object] = deque()

    def change(self, most: int) -> None:
        """Another limit, for those that wait, too."""
        with self._changed:
            self.most = most
            self._changed.notify_all()

    def check(self, size: int, weights: int) -> None:
        """Raise a ShapeError for a call that takes more than it ever may."""
        if size > self.most - weights:
            raise ShapeError(
                f"the call takes {size:,} bytes, and {max(self.most - weights, 0):,} are left by a "
                f"limit of {self.most:,}, of which weights have {weights:,}"
            )

    @contextmanager
    def room(self, size: int, weights: int) -> Iterator[None]:
        """Wait until so many bytes may be taken; raises as `check`."""
        me = object()

        def may_go() -> bool:
            self.check(size, weights)  # the limit may have changed
            return self._waiting[0] is me and self._taken + size <= self.most - weights

        with self._changed:
            self._waiting.append(me)
            try:
                self._changed.wait_for(may_go)
                self._taken += size
            finally:
                self._waiting.remove(me)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._taken -= size
                self._changed.notify_all()
