"""Requests that wait, and who comes next."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_server import WAIT_S, X, mlp, wait_until

from bucketize.errors import ShapeError
from bucketize.serve.model import ServedModel
from bucketize.serve.queue import Party, Queue, Waiting
from bucketize.serve.refusal import BusyError
from bucketize.serve.server import Server
from bucketize.traffic.value import Traffic


class Slow:
    """An executable whose calls end when they are let."""

    def __init__(self, threads: int = 1) -> None:
        self.program = SimpleNamespace(threads=threads)
        self.calls: list[int] = []
        self.may_end = threading.Event()

    def run(self, x: np.ndarray) -> list[np.ndarray]:
        return dict(self.stream_many([{"x": x}]))[0]

    def stream_many(self, requests: list[Any]) -> Iterator[Any]:
        self.calls.append(len(requests))
        assert self.may_end.wait(WAIT_S)
        yield from enumerate([r["x"]] for r in requests)


def served(executable: Any, name: str = "m") -> ServedModel:
    return ServedModel(name, "1", executable)


def ask(queue: Queue, model: ServedModel, count: int = 1) -> Any:
    (answer,) = queue.submit(model, [feed(count)])
    return answer


def feed(count: int = 1) -> dict[str, np.ndarray]:
    return {"x": np.zeros(count, np.float32)}


def begun(queue: Queue, slow: Slow, model: ServedModel) -> Any:
    first = ask(queue, model)
    wait_until(lambda: bool(slow.calls))
    return first


def test_what_comes_while_a_call_runs_goes_together() -> None:
    slow = Slow()
    model = served(slow)
    queue = Queue(1, 100)
    futures = [begun(queue, slow, model), *(ask(queue, model, i) for i in range(5))]
    futures[2].cancel()
    assert queue.waiting(model) == 5
    slow.may_end.set()
    assert [f.result(WAIT_S)[0].size for i, f in enumerate(futures) if i != 2] == [1, 0, 2, 3, 4]
    assert slow.calls == [1, 4]
    queue.close()
    assert queue.line(model).elements == 0
    with pytest.raises(BusyError, match="the server ends"):
        ask(queue, model)


def test_no_more_wait_than_may() -> None:
    slow = Slow()
    model = served(slow)
    queue = Queue(1, 2)
    futures = [begun(queue, slow, model), *(ask(queue, model) for _ in range(2))]
    with pytest.raises(BusyError, match="2 requests wait already") as e:
        ask(queue, model)
    assert e.value.retry_s > 0
    slow.may_end.set()
    assert all(f.result(WAIT_S) for f in futures)
    queue.close()


def test_what_would_be_late_is_refused_when_it_comes() -> None:
    slow = Slow()
    model = served(slow)
    queue = Queue(1, 100, latency_s=1_250.0)
    queue.line(model).element_s = 200.0
    futures = [begun(queue, slow, model), *(ask(queue, model) for _ in range(4))]
    with pytest.raises(BusyError, match=r"its answer is expected after 11\d\d.\d+ s, of 1250") as e:
        ask(queue, model)
    assert 100 < e.value.retry_s <= 200
    slow.may_end.set()
    assert all(f.result(WAIT_S) for f in futures)
    queue.close()


def test_what_runs_is_waited_for_no_longer_than_it_still_takes() -> None:
    """A call that has had half of its time leaves the other half; one that is late, nothing."""
    slow = Slow()
    model = served(slow)
    queue = Queue(1, 100, latency_s=1_250.0)
    line = queue.line(model)
    line.element_s = 200.0
    futures = [begun(queue, slow, model), *(ask(queue, model) for _ in range(4))]
    (taken,) = line.running
    now = time.monotonic()  # the queue's clock, which begins with the machine
    for since, expected in ((0.0, 1000), (-100.0, 900), (-500.0, 800)):
        taken.since = now + since
        assert line.left_s(now) == pytest.approx(expected)
    futures.append(ask(queue, model))
    slow.may_end.set()
    assert all(f.result(WAIT_S) for f in futures)
    queue.close()
    assert (line.elements, line.running) == (0, set())


def test_what_waited_too_long_is_refused_when_its_turn_comes() -> None:
    slow = Slow()
    model = served(slow)
    queue = Queue(1, 100, latency_s=10_000.0)
    futures = [begun(queue, slow, model), *(ask(queue, model) for _ in range(3))]
    jobs = queue.line(model).jobs
    jobs[1] = replace(jobs[1], came=jobs[1].came - 10_001)
    slow.may_end.set()
    with pytest.raises(
        BusyError, match=r"^late: it waited 1000\d\.\d+ s and takes .*, of 10000"
    ) as e:
        futures[2].result(WAIT_S)
    assert e.value.retry_s > 0
    assert all(futures[i].result(WAIT_S) for i in (0, 1, 3))
    assert slow.calls == [1, 2]
    queue.close()
    assert queue.line(model).elements == 0


def test_a_call_takes_what_its_first_request_can_wait_for() -> None:
    slow = Slow()
    model = served(slow)
    queue = Queue(1, 100, latency_s=12_500.0)
    first = begun(queue, slow, model)
    others = [ask(queue, model, 2) for _ in range(10)]
    queue.line(model).element_s = 1_000.0  # and 800 after the first call
    slow.may_end.set()
    assert all(f.result(WAIT_S) for f in (first, *others))
    assert slow.calls[:2] == [1, 6]
    queue.close()


def test_a_lone_request_is_taken_however_large() -> None:
    slow = Slow()
    slow.may_end.set()
    model = served(slow)
    queue = Queue(1, 100, latency_s=100.0)
    queue.line(model).element_s = 1.0
    assert ask(queue, model, 1000).result(WAIT_S)[0].size == 1000
    assert queue.line(model).element_s < 1
    queue.close()


@pytest.mark.parametrize("count", [1, 40])
def test_who_finds_nobody_before_it_is_answered_however_late(count: int) -> None:
    """All that it asks for at once; others are refused, and told to wait for a moment at least."""
    slow = Slow()
    slow.may_end.set()
    model = served(slow)
    queue = Queue(1, 100, latency_s=1e-9)
    for _ in range(3):
        answers = queue.submit(model, [feed()] * count)
        assert all(answer.result(WAIT_S) for answer in answers)
    slow.may_end.clear()
    before = len(slow.calls)
    first = queue.submit(model, [feed()] * count)
    wait_until(lambda: len(slow.calls) > before)
    late = ask(queue, model, 0) if count == 1 else None
    slow.may_end.set()
    assert all(answer.result(WAIT_S) for answer in first)
    if late is not None:
        with pytest.raises(BusyError, match=r"^late: it waited") as e:
            late.result(WAIT_S)
        assert e.value.retry_s >= 0.001
    queue.close()


def test_what_a_client_asks_for_at_once_is_answered_if_a_part_is() -> None:
    slow = Slow()
    model = served(slow)
    queue = Queue(1, 100, latency_s=10_000.0)
    first = begun(queue, slow, model)
    answers = queue.submit(model, [feed()] * 2)
    jobs = queue.line(model).jobs
    jobs[1] = replace(jobs[1], came=jobs[1].came - 10_001)
    slow.may_end.set()
    assert all(answer.result(WAIT_S) for answer in (first, *answers))
    queue.close()


def test_late_requests_of_one_client_share_calls() -> None:
    slow = Slow()
    slow.may_end.set()
    model = served(slow)
    queue = Queue(1, 100, latency_s=12_500.0)
    line = queue.line(model)
    line.element_s = 1_000.0
    party = [replace(job, came=job.came - 20_000) for job in waiting(12)]
    with queue._changed:
        line.jobs.extend(party)
        line.elements += len(party)
        queue._changed.notify()
    assert all(job.answer.result(WAIT_S) for job in party)
    assert slow.calls[0] == 5  # half of what is aimed at, 10,000 s
    queue.close()


def waiting(count: int) -> list[Waiting]:
    """Requests of a client that found nobody before it."""
    return [Waiting(feed(), 1, time.monotonic(), Party(True)) for _ in range(count)]


def test_errors_are_of_those_who_made_them() -> None:
    model = ServedModel("m", "1", mlp())
    queue = Queue(2, 100)
    (good,) = queue.submit(model, [{"x": X}])
    (bad,) = queue.submit(model, [{"x": X[:, :3]}])
    assert len(good.result(WAIT_S)) == 1
    with pytest.raises(ShapeError, match="axis 1: expected 4, got 3"):
        bad.result(WAIT_S)
    queue.close()


def test_what_is_refused_says_nothing_of_how_long_others_take() -> None:
    model, queue = served(mlp()), Queue(1, 100)
    queue.submit(model, [{"x": X}])[0].result(WAIT_S)
    wait_until(lambda: queue.line(model).element_s > 0)
    before = queue.line(model).element_s
    for _ in range(3):
        (bad,) = queue.submit(model, [{"x": np.zeros((64, 1_000), np.float32)}])
        assert isinstance(bad.exception(WAIT_S), ShapeError)
    queue.close()
    assert queue.line(model).element_s == before


class Broken:
    """An executable with a fault."""

    program = SimpleNamespace(threads=1)

    def run(self, **_: Any) -> Any:
        raise ZeroDivisionError


def test_a_fault_is_an_answer_and_the_thread_lives() -> None:
    model = served(Broken())
    queue = Queue(1, 100)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            ask(queue, model).result(WAIT_S)
    queue.close()


def test_requests_of_a_client_are_taken_together_or_not_at_all() -> None:
    slow = Slow()
    model = served(slow)
    queue = Queue(1, 3)
    first = begun(queue, slow, model)
    with pytest.raises(BusyError, match="3 requests wait already"):
        queue.submit(model, [feed()] * 4)
    assert queue.waiting(model) == 0
    three = queue.submit(model, [feed(i) for i in range(3)])
    slow.may_end.set()
    assert [f.result(WAIT_S)[0].size for f in (first, *three)] == [1, 0, 1, 2]
    assert slow.calls == [1, 3]
    queue.close()


def test_a_model_in_a_flood_keeps_no_other_waiting() -> None:
    """Of 40 requests of one model a call takes 10; a request of another comes before the second."""
    flood, lone, order = Slow(), Slow(), list[str]()
    models = served(flood), served(lone, "lone")
    queue = Queue(1, 100, at_once=10)
    first = begun(queue, flood, models[0])
    many = queue.submit(models[0], [feed() for _ in range(40)])
    other = ask(queue, models[1])
    for i, future in enumerate(many):
        future.add_done_callback(lambda _, i=i: order.append(f"flood {i}"))
    other.add_done_callback(lambda _: order.append("lone"))
    for each in (flood, lone):
        each.may_end.set()
    for future in (first, *many, other):
        future.result(WAIT_S)
    queue.close()
    assert order.index("lone") <= 10
    assert flood.calls == [1, 10, 10, 10, 10]


def test_each_model_has_places_of_its_own() -> None:
    slow, other = Slow(), Slow()
    models = served(slow), served(other, "other")
    queue = Queue(1, 2)
    futures = [begun(queue, slow, models[0]), *(ask(queue, models[0]) for _ in range(2))]
    with pytest.raises(BusyError):
        ask(queue, models[0])
    futures.append(ask(queue, models[1]))
    slow.may_end.set()
    other.may_end.set()
    assert all(f.result(WAIT_S) for f in futures)
    queue.close()


def test_as_many_calls_run_as_their_threads_fit_in() -> None:
    """On two cores: two calls of one thread share what waits, and one of two waits for both."""
    one, two = Slow(), Slow(threads=2)
    models = served(one), served(two, "two")
    queue = Queue(2, 100)
    futures = [ask(queue, models[0]), ask(queue, models[0])]
    wait_until(lambda: one.calls == [1, 1])
    queue.line(models[0]).had_s = 1.0
    futures += [ask(queue, models[1]), *(ask(queue, models[0]) for _ in range(6))]
    assert two.calls == []
    one.may_end.set()
    wait_until(lambda: two.calls == [1])
    assert one.calls == [1, 1]
    two.may_end.set()
    assert all(f.result(WAIT_S) for f in futures)
    queue.close()
    assert one.calls[2] == 3  # the second call takes a share of what is left
    assert sum(one.calls) == 8


def test_a_model_of_more_threads_than_cores_runs() -> None:
    slow = Slow(threads=8)
    slow.may_end.set()
    queue = Queue(1, 100)
    assert ask(queue, served(slow)).result(WAIT_S)
    queue.close()


def test_who_goes_takes_all_of_its_requests_along() -> None:
    """It waits for the first of five; a call for others runs."""
    slow, queue = Slow(), Queue(1, 100)
    model, server = served(slow), Server([], queue)

    async def gone() -> None:
        first = begun(queue, slow, model)
        asked = asyncio.create_task(server.every_result(model, [feed()] * 5))
        while queue.waiting(model) < 5:
            await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        slow.may_end.set()
        assert first.result(WAIT_S)

    asyncio.run(gone())
    queue.close()
    assert slow.calls == [1]


def test_a_server_ends_whatever_fails_beside_it(tmp_path: Path) -> None:
    """Its threads do, and sizes are written."""
    model, queue = ServedModel("net", "1", mlp()), Queue(1, 100)

    async def failing() -> None:
        async with Server([model], queue, traffic=tmp_path).running():
            queue.submit(model, [{"x": X}])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(failing())
    assert not any(thread.is_alive() for thread in queue._threads)
    assert Traffic.read(tmp_path / "net.csv").total == 1


def test_a_program_in_anothers_place_has_the_cores_of_its_own_threads() -> None:
    """It wants both; a call of the one before is under way, on one of them."""
    slow = Slow()
    model, queue = served(slow), Queue(2, 100)
    futures = [begun(queue, slow, model)]
    slow.program = SimpleNamespace(threads=2)
    futures += [ask(queue, model), ask(queue, model)]
    wait_until(lambda: queue.line(model).cores == 2)
    assert slow.calls == [1]
    slow.may_end.set()
    assert all(f.result(WAIT_S) for f in futures)
    queue.close()
    assert (slow.calls, queue._free) == ([1, 2], 2)
