"""Requests that wait for a model, and the threads that run them together.

Nothing waits for company: what came while a call ran goes together in the next one, by
`run_many`. So a lone request is answered at once, and the more come the more share a call. What
would be answered after its deadline is refused when it comes, by what requests took of late.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread

from bucketize.errors import BucketizeError, RequestsError
from bucketize.op import Array, Value
from bucketize.serve.model import ServedModel
from bucketize.serve.refusal import BusyError

AT_ONCE = 256  # requests that a thread takes: one that comes then waits for no more


@dataclass(frozen=True)
class Waiting:
    """A request that waits."""

    model: ServedModel
    feed: Mapping[str, Array]
    size: int
    """Elements of its inputs."""
    came: float
    answer: Future[list[Value]] = field(default_factory=Future)


class Queue:
    """The requests of all models, for threads of their own."""

    def __init__(self, workers: int, most: int, latency_s: float | None = None) -> None:
        """Threads that run requests.

        Args:
            workers: threads; each runs calls of one model at a time.
            most: requests that wait; others are refused.
            latency_s: the deadline of an answer after its request came; None: there is none.

        """
        self.most, self.latency_s = most, latency_s
        self._workers = workers
        self._jobs: deque[Waiting] = deque()
        self._models: set[ServedModel] = set()
        self._changed = Condition()
        self._ends = False
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._jobs)

    def submit(self, model: ServedModel, feed: Mapping[str, Array]) -> Future[list[Value]]:
        """Have a request answered.

        Raises BusyError: there are as many as may wait, or it would be late.
        """
        size = sum(array.size for array in feed.values())
        with self._changed:
            expected = self.expected_s(model, size)
            if self._ends:
                raise BusyError("the server ends", 1.0)
            if len(self._jobs) >= self.most:
                raise BusyError(f"{self.most} requests wait already", max(expected, 0.001))
            if self.latency_s is not None and expected > self.latency_s and self._jobs:
                message = f"its answer is expected after {expected:.3f} s, of {self.latency_s:g}"
                raise BusyError(message, expected - self.latency_s)
            job = Waiting(model, feed, size, time.monotonic())
            self._jobs.append(job)
            self._models.add(model)
            model.waiting += size
            self._changed.notify()
        return job.answer

    def expected_s(self, model: ServedModel, size: int) -> float:
        """After how long a request would be answered, by what others took of late."""
        before = sum(m.waiting * m.element_s for m in self._models)
        return (before + size * model.element_s) / self._workers

    def close(self) -> None:
        """Answer what waits, take nothing else, and end."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while jobs := self._taken():
            model, start = jobs[0].model, time.monotonic()
            try:
                self._run(model, jobs)
            finally:
                size = sum(job.size for job in jobs)
                with self._changed:
                    model.waiting -= size
                    model.learn(size, time.monotonic() - start)

    def _taken(self) -> list[Waiting]:
        """All requests of the model whose request has waited longest; none when it ends."""
        jobs: list[Waiting] = []
        with self._changed:
            while not jobs:
                if not self._jobs:
                    if self._ends:
                        break
                    self._changed.wait()
                    continue
                jobs = self._of_one_model()
            if self._jobs:
                self._changed.notify()
        return jobs

    def _of_one_model(self) -> list[Waiting]:
        """Take out the requests of the first one's model whose clients are still there."""
        model, jobs, others = self._jobs[0].model, list[Waiting](), deque[Waiting]()
        while self._jobs:
            job = self._jobs.popleft()
            if job.model is not model or len(jobs) >= AT_ONCE:
                others.append(job)
            elif job.answer.set_running_or_notify_cancel():
                jobs.append(job)
            else:  # its client is gone
                model.waiting -= job.size
        self._jobs = others
        return jobs

    def _run(self, model: ServedModel, jobs: list[Waiting]) -> None:
        try:
            results = model.executable.run_many([job.feed for job in jobs])
        except RequestsError as e:
            results = e.results  # type: ignore[assignment]  # errors, of those that failed
        except BaseException as e:  # whatever it is, nobody may wait for ever
            for job in jobs:
                job.answer.set_exception(e)
            if not isinstance(e, Exception):
                raise
            return
        for job, result in zip(jobs, results, strict=True):
            if isinstance(result, BucketizeError):
                job.answer.set_exception(result)
            else:
                job.answer.set_result(result)
