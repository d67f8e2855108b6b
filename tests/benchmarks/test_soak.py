"""A soak passes where everything is as it should be, and its hostile clients are what they say."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_server import Process, X, mlp

from benchmarks.hostile import CLIENTS, Ports
from benchmarks.soak import Course, Second, Tally, figure, summary

ANSWERS = np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32)
AT_ONCE = [k for k, bad in CLIENTS.items() if not bad.is_waited_for]
"""Others take half a minute and more: in tests of the server it has less patience."""


def course(**other: Any) -> Course:
    tally = Tally()
    for which in (0, 1):
        for model in ("text", "net"):
            tally.take(model, ANSWERS[which], ANSWERS)
    tally.take("text", "refused", ANSWERS)
    tally.hostile.update(CLIENTS)
    seconds = [Second(i, 100.0 + i % 7, 9, 30, 5 * i, i) for i in range(300)]
    return replace(Course(seconds, tally, 4.0, 20, 21, ["a.bkt is not served: it"], 0), **other)


def test_what_is_as_it_should_be_passes() -> None:
    its = course()
    assert its.faults() == []
    told = summary(its, 0.3)
    assert told.endswith("PASSED")
    assert "net 0: 1, net 1: 1, text 0: 1, text 1: 1, text refused: 1" in told


def growing(mib: float) -> list[Second]:
    return [Second(i, 100 + mib * i / 100, 9, 30, i, 0) for i in range(300)]


def tally(**other: Any) -> Tally:
    return replace(course().tally, **other)


@pytest.mark.parametrize(
    ("fault", "its"),
    [
        ("memory grew by 11.0 MiB", lambda: course(seconds=growing(11.0))),
        ("29 files are open, 20 at the start", lambda: course(left=29)),
        ("nobody was answered for 11 s", lambda: course(tally=tally(unserved_s=11.0))),
        ("never served: ['text 1']", lambda: course(tally=without("text 1"))),
        (
            "nothing was refused: there was no overload",
            lambda: course(tally=without("text refused")),
        ),
        (
            "never came: ['no JSON']",
            lambda: course(tally=tally(hostile=Counter({*CLIENTS} - {"no JSON"}))),
        ),
        ("it ended with 1", lambda: course(code=1)),
        ("it said ['Traceback']", lambda: course(said=["Traceback"])),
        ("2 times text: a wrong answer", lambda: course(tally=wrong())),
    ],
)
def test_what_is_not_is_told(fault: str, its: Any) -> None:
    made = its()
    assert made.faults() == [fault]
    assert summary(made, 0.3).splitlines()[-2:] == [f"fault: {fault}", "FAILED: 1 fault"]


def without(name: str) -> Tally:
    its = course().tally
    del its.answers[name]
    return its


def wrong() -> Tally:
    its = course().tally
    its.take("text", ANSWERS[0] + 0.5, ANSWERS)
    its.take("text", ANSWERS[0][:, :1], ANSWERS)
    return its


def test_bodies_that_come_and_go_are_no_growth() -> None:
    high = [replace(each, mib=each.mib + 64 * (i % 3 == 0)) for i, each in enumerate(growing(0.0))]
    assert course(seconds=[*growing(0.0)[:200], *high[200:]]).faults() == []


def test_memory_is_drawn() -> None:
    axes = figure(pd.DataFrame(growing(1.0))).axes
    assert [each.get_ylabel() for each in axes] == ["MiB resident", "open", "requests a second"]
    np.testing.assert_allclose(axes[0].lines[0].get_ydata()[-1], 102.99)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    folder = tmp_path_factory.mktemp("soak")
    mlp().save(folder / "net.bkt")
    with Process(folder, "net.bkt", "text=net.bkt", "--grpc-port", "0") as its:
        yield Ports(its.client.port, its.grpc_port)
        np.testing.assert_array_equal(its.client.infer(X), X)
        its.end()


@pytest.mark.parametrize("kind", AT_ONCE)
def test_hostile_clients_are_told_what_is_wrong(ports: Ports, kind: str) -> None:
    bad = CLIENTS[kind]
    assert bad.is_told(asyncio.run(bad.does(ports)))
