"""The load that a server is put under, and the peer behind its queue."""

from __future__ import annotations

import csv
from pathlib import Path

import click
import numpy as np
import pytest
from test_sentence_transformers import WORDS, model

from benchmarks import serving, serving_side
from benchmarks.serving import Probe, append, by_peer, highest, message
from benchmarks.serving_side import BATCH, OURS, PEER, served
from bucketize.serve.grpc import MESSAGES, asked_for


@pytest.mark.parametrize("capacity", [3.0, 20.0, 150.0])
def test_the_highest_rate_is_found_to_five_percent(capacity: float) -> None:
    """One probe of a rate that could be served fails, as others had the machine."""
    fails = [True]

    def at(rate: float) -> Probe:
        bad = rate > capacity or (rate > capacity / 3 and fails.pop() if fails else False)
        return Probe(rate, 0.1, 0.3 if bad else 0.2, 0.0, 0.0)

    assert capacity / 1.05 <= highest(at, 0.2).rate <= capacity


def test_a_side_that_serves_nothing_is_told() -> None:
    refusing = Probe(1, 0.1, 0.1, 0.5, 0.0)
    with pytest.raises(click.ClickException, match="1 requests a second are not served in time"):
        highest(lambda _: refusing, 0.2)


def test_rows_are_appended_and_compared(tmp_path: Path) -> None:
    rows = [{"side": side, "rate": rate} for rate in (3.0, 4.0) for side in (OURS, PEER)]
    rows[0]["rate"] = 6.0
    assert by_peer(rows) == [2.0, 1.0]
    for _ in range(2):
        append(tmp_path / "a.csv", rows)
    with (tmp_path / "a.csv").open() as file:
        assert [row["rate"] for row in csv.DictReader(file)] == ["6.0", "3.0", "4.0", "4.0"] * 2


def test_both_sides_come_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padded batches of requests of all lengths, the last of which is not full."""
    monkeypatch.setitem(serving_side.MODELS, "tiny", model)
    monkeypatch.setattr(serving, "feeds", lambda sizes: [feed(n) for n in sizes])
    (ours, _), (peer, at_once) = (served(side, "tiny", 1) for side in (OURS, PEER))
    assert at_once == BATCH
    requests = [feed(1 + i * 7 % 23) for i in range(BATCH + 3)]
    theirs = dict(peer.stream_many(requests))
    for i, (want,) in enumerate(ours.run_many(requests)):
        np.testing.assert_allclose(theirs[i][0], want, atol=1e-5)
    sent = MESSAGES["ModelInferRequest"].FromString(message("tiny", 5))
    for name, array in asked_for(sent, {}).feed.items():
        np.testing.assert_array_equal(array, feed(5)[name])


def feed(length: int) -> dict[str, np.ndarray]:
    ids = np.arange(length)[None] % len(WORDS)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}
