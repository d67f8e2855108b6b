"""What the workers of a Dask cluster are given to do, and what comes back of it.

Each has one thing at a time. What is lost with a worker is tried once more, by another.
"""

from __future__ import annotations

import importlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from bucketize.errors import BucketizeError, TuneError

POLL_S = 0.2  # how often it is asked which workers there are
TRIES = 2  # of what was lost with its worker

Future: TypeAlias = Any  # distributed has no types
Start: TypeAlias = Callable[[str], Future]
"""Starts something on the worker of this address."""


def distributed() -> Any:
    """Dask distributed, which an extra brings."""
    try:
        return importlib.import_module("distributed")
    except ModuleNotFoundError as e:
        raise TuneError(
            "measuring on a cluster needs Dask distributed: pip install 'bucketize[cluster]'"
        ) from e


class Loans:
    """What workers are given to do: each one thing at a time."""

    def __init__(self, starts: Sequence[Start], patience_s: float) -> None:
        self.starts, self.patience_s = starts, patience_s
        self.waiting = deque(range(len(starts)))
        self.lent: dict[str, tuple[int, str, Future]] = {}  # by the future's key
        self.losses: Counter[int] = Counter()
        self.ended: SimpleQueue[Future] = SimpleQueue()

    def __bool__(self) -> bool:
        return bool(self.waiting or self.lent)

    @property
    def futures(self) -> list[Future]:
        """Futures of what is under way."""
        return [future for _, _, future in self.lent.values()]

    def lend(self, workers: Sequence[str]) -> None:
        """Give those something that have nothing to do."""
        busy = {address for _, address, _ in self.lent.values()}
        for address in workers:
            if self.waiting and address not in busy:
                i = self.waiting.popleft()
                future = self.starts[i](address)
                self.lent[future.key] = i, address, future
                future.add_done_callback(self.ended.put)

    def results(self, workers: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """What came, within a moment; None of what was lost, and may not be tried again."""
        for key, (_, address, future) in list(self.lent.items()):
            if address not in workers:
                future.cancel()
                yield from self.lost(key)
        try:
            key = self.ended.get(timeout=POLL_S).key
        except Empty:
            return
        if key in self.lent:  # not given up
            yield from self.result(key)

    def result(self, key: str) -> Iterator[tuple[int, Any]]:
        """What came of something that has ended."""
        i, address, future = self.lent[key]
        if future.status == "error":
            failure = future.exception()
            if not isinstance(failure, distributed().KilledWorker):
                raise _told(failure, address)
        elif future.status == "finished":
            try:
                came = future.result(self.patience_s)
            except (TimeoutError, CancelledError):  # the worker went before it was fetched
                return (yield from self.lost(key))
            del self.lent[key]
            yield i, came
            return
        yield from self.lost(key)

    def lost(self, key: str) -> Iterator[tuple[int, Any]]:
        """Have it tried again, unless it was."""
        i, _, _ = self.lent.pop(key)
        self.losses[i] += 1
        if self.losses[i] < TRIES:
            self.waiting.appendleft(i)
        else:
            yield i, None


def _told(failure: BaseException, address: str) -> BaseException:
    """What went wrong on a worker, as an error of the session."""
    if isinstance(failure, BucketizeError):
        failure.add_note(f"on the worker {address}")
        return failure
    error = TuneError(f"the worker {address} fails: {type(failure).__name__}: {failure}")
    error.__cause__ = failure
    return error
