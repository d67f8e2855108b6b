"""Requests that wait for models, and the threads that run them together.

Nothing waits for company: what came while a call ran goes together in the next one, as `run_many`
has it. So a lone request is answered at once, and the more come the more share a call. What would
be answered after its deadline is refused when it comes, by what requests took of late; what waited
longer than that told is refused when its turn comes.

Calls of all models share the cores: as many run at once as their threads fit in, and who had least
of them comes next (start-time fair queueing; Goyal, Vin and Cheng, 1996).
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import TypeAlias

import numpy as np

from bucketize.errors import ArgumentError
from bucketize.many.deliver import Done
from bucketize.op import Array, Value
from bucketize.serve.model import ServedModel
from bucketize.serve.refusal import BusyError

Feed: TypeAlias = Mapping[str, Array]
Answer: TypeAlias = "Future[list[Value]]"
KEPT = 0.8
"""The share of an average of late that is kept at each call."""
AIM = 0.8
"""The share of a deadline after which requests are expected to be answered: what was not foreseen
has the rest, and the way to the client."""
LEAST_S = 0.001  # after which to ask again: who is told 0 asks without end
AT_ONCE = 256  # requests that a thread takes: one that comes then waits for no more


def seconds(text: str | None) -> float | None:
    """A deadline's text, as in `20ms`, in seconds; ArgumentError where it is none."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(m?)s", text)
    if match is None or not float(match[1]):
        raise ArgumentError(f"expected a time, as in 20ms or 1.5s, got {text!r}")
    return float(match[1]) * (1e-3 if match[2] else 1.0)


@dataclass
class Party:
    """What a client asks for at once: all of it is answered, or nothing."""

    is_taken: bool
    """Whether it is answered however late: nobody was before it, or a part is answered."""


@dataclass(frozen=True)
class Waiting:
    """A request that waits."""

    feed: Feed
    size: int
    """Elements of its inputs."""
    came: float
    party: Party
    answer: Answer = field(default_factory=Future)


@dataclass(eq=False)
class Line:
    """The requests of a model."""

    model: ServedModel
    cores: int
    """Cores that a call takes."""
    jobs: deque[Waiting] = field(default_factory=deque)
    elements: int = 0
    """Elements of requests that wait."""
    running: set[Taken] = field(default_factory=set)
    element_s: float = 0.0
    """Seconds of a core for each element, of late; 0 before the first call."""
    had_s: float = 0.0
    """Seconds of cores that it had; what it could have had while nothing waited counts as had."""

    @property
    def is_busy(self) -> bool:
        """Whether requests have no answer yet."""
        return bool(self.jobs) or any(taken.left for taken in self.running)

    def cost(self, size: int) -> float:
        """Seconds of cores that elements are expected to take."""
        return size * self.element_s

    def left_s(self, now: float) -> float:
        """Seconds of cores that all requests still take: those that run have had a part."""
        running = sum(max(self.cost(t.left) - (now - t.since) * t.cores, 0) for t in self.running)
        return self.cost(self.elements) + running

    def learn(self, size: int, seconds: float) -> None:
        """Note what elements took, in seconds of cores."""
        each = seconds / size
        self.element_s = KEPT * self.element_s + (1 - KEPT) * each if self.element_s else each


@dataclass(eq=False)
class Taken:
    """Requests that run together."""

    line: Line
    jobs: list[Waiting]
    cores: int
    charged: float
    """Seconds of cores."""
    left: int
    """Elements of those without an answer."""
    since: float
    """When the last was answered, or they began."""


class Queue:
    """The requests of all models, for threads of their own."""

    def __init__(
        self, cores: int, most: int, latency_s: float | None = None, at_once: int = AT_ONCE
    ) -> None:
        """Threads that run requests.

        Args:
            cores: that calls use at once.
            most: requests of a model that wait; others are refused.
            latency_s: the deadline of an answer after its request came; None: there is none.
            at_once: requests that a call takes at most.

        """
        self.cores, self.most, self.latency_s, self.at_once = cores, most, latency_s, at_once
        self._aim_s = math.inf if latency_s is None else AIM * latency_s
        self._free = cores
        self._lines: dict[ServedModel, Line] = {}
        self._clock_s = 0.0
        """What the line had that was last chosen: one that begins to wait is not behind it."""
        self._changed = Condition()
        self._ends = False
        self._threads = [Thread(target=self._work, daemon=True) for _ in range(cores)]
        for thread in self._threads:
            thread.start()

    def waiting(self, model: ServedModel) -> int:
        """Requests of a model that wait."""
        with self._changed:
            return len(self.line(model).jobs)

    def line(self, model: ServedModel) -> Line:
        """The requests of a model."""
        if model not in self._lines:
            self._lines[model] = Line(model, self._cores_of(model))
        return self._lines[model]

    def _cores_of(self, model: ServedModel) -> int:
        return min(model.threads, self.cores)

    def submit(self, model: ServedModel, feeds: Sequence[Feed]) -> list[Answer]:
        """Have requests of a client answered: all of them, or none.

        Raises BusyError: as many wait as may, or they would be late.
        """
        now, party = time.monotonic(), Party(False)
        jobs = [Waiting(feed, sum(map(np.size, feed.values())), now, party) for feed in feeds]
        size = sum(job.size for job in jobs)
        with self._changed:
            line = self.line(model)
            party.is_taken = not any(each.is_busy for each in self._lines.values())
            self._admit(line, len(jobs), size, now)
            if not line.jobs:
                line.had_s = max(line.had_s, self._clock_s)
            line.jobs.extend(jobs)
            line.elements += size
            self._changed.notify()
        return [job.answer for job in jobs]

    def _admit(self, line: Line, count: int, size: int, now: float) -> None:
        expected = self._expected_s(line, size, now)
        if self._ends:
            raise BusyError("the server ends", 1.0)
        if len(line.jobs) + count > self.most:
            raise BusyError(f"{self.most} requests wait already", max(expected, LEAST_S))
        if expected > self._aim_s and line.jobs:
            message = f"its answer is expected after {expected:.3f} s, of {self.latency_s:g}"
            raise BusyError(message, expected - self._aim_s)

    def _expected_s(self, line: Line, size: int, now: float) -> float:
        """After how long a request would be answered, by what others took of late.

        Another model is before it with no more than the line itself has.
        """
        own = line.left_s(now) + line.cost(size)
        others = (each for each in self._lines.values() if each is not line)
        before = sum(min(each.left_s(now), own) for each in others)
        return max((own + before) / self.cores, line.cost(size) / line.cores)

    def close(self) -> None:
        """Answer what waits, take nothing else, and end."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while taken := self._taken():
            line, start = taken.line, taken.since
            size = self._run(taken)
            core_s = (time.monotonic() - start) * taken.cores
            with self._changed:
                line.running.remove(taken)
                line.had_s += core_s - taken.charged
                if size:  # what is refused takes next to nothing, and would tell so of others
                    line.learn(size, core_s)
                self._free += taken.cores
                self._changed.notify_all()

    def _taken(self) -> Taken | None:
        """Requests of the model that had least, which is charged what they are expected to take.

        None when it ends.
        """
        with self._changed:
            while True:
                lines = [line for line in self._lines.values() if line.jobs]
                if not lines and self._ends:
                    return None
                line = min(lines, key=lambda each: each.had_s, default=None)
                if line is not None:  # another program may be there since
                    line.cores = self._cores_of(line.model)
                if line is None or line.cores > self._free:  # who comes next keeps others waiting
                    self._changed.wait()
                elif jobs := self._of(line):
                    size = sum(job.size for job in jobs)
                    charged = line.cost(size)
                    taken = Taken(line, jobs, line.cores, charged, size, time.monotonic())
                    line.running.add(taken)
                    self._clock_s = line.had_s
                    line.had_s += charged
                    self._free -= line.cores
                    self._changed.notify()
                    return taken

    def _of(self, line: Line) -> list[Waiting]:
        """Take requests whose clients are still there: a share of those for each call that fits.

        With a deadline, as many as the first of them can wait for.
        """
        calls = self._free // line.cores
        count = min(math.ceil(len(line.jobs) / calls), self.at_once)
        jobs: list[Waiting] = []
        size, room_s, now = 0, math.inf, time.monotonic()
        while line.jobs and len(jobs) < count:
            job = line.jobs[0]
            size += job.size
            if jobs and line.cost(size) / line.cores > room_s:
                break
            line.jobs.popleft()
            line.elements -= job.size
            if self._begins(line, job, now):
                if not jobs:
                    room_s = self._room_s(line, job, now)
                jobs.append(job)
            else:
                size -= job.size
        return jobs

    def _room_s(self, line: Line, job: Waiting, now: float) -> float:
        """How long a call may take whose first request this is: until it has to be there.

        One that is late gains nothing by a short call.
        """
        left = self._aim_s - (now - job.came)
        return left if line.cost(job.size) / line.cores <= left else self._aim_s / 2

    def _begins(self, line: Line, job: Waiting, now: float) -> bool:
        """Whether a request is answered: its client is there, and it would not be late.

        What is late with nobody before it, as it is large, is answered.
        """
        if not job.answer.set_running_or_notify_cancel():
            return False
        waited, takes = now - job.came, line.cost(job.size) / line.cores
        in_time = waited <= self._aim_s / 2 or waited + takes <= self._aim_s
        if in_time or job.party.is_taken:
            job.party.is_taken = True
            return True
        message = f"late: it waited {waited:.3f} s and takes {takes:.3f}, of {self.latency_s:g}"
        retry_s = max(line.left_s(now) / self.cores, takes, LEAST_S)
        job.answer.set_exception(BusyError(message, retry_s))
        return False

    def _run(self, taken: Taken) -> int:
        """Answer requests; the elements of those that have results."""
        left, size = dict(enumerate(taken.jobs)), 0
        try:
            for i, done in _results(taken.line.model, [job.feed for job in taken.jobs]):
                job = left.pop(i)
                size += 0 if isinstance(done, Exception) else job.size
                self._answer(taken, job, done)
        except Exception as e:  # whatever it is, nobody may wait for ever
            for job in left.values():
                self._answer(taken, job, e)
        return size

    def _answer(self, taken: Taken, job: Waiting, done: Done | Exception) -> None:
        with self._changed:
            taken.left -= job.size
            taken.since = time.monotonic()
        if isinstance(done, Exception):
            job.answer.set_exception(done)
        else:
            job.answer.set_result(done)


def _results(model: ServedModel, feeds: Sequence[Feed]) -> Iterable[tuple[int, Done]]:
    """What each request comes to; a lone one is run as it is, its rows are not looked at."""
    if len(feeds) > 1:
        return model.executable.stream_many(feeds)
    return [(0, model.executable.run(**feeds[0]))]
