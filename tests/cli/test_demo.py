"""`bucketize demo`: what it measures, checks and writes, and the sentences that it ends with."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import Result

from bucketize.analysis import load, tradeoff
from bucketize.analysis.tradeoff import Survey
from bucketize.cli import encoder
from bucketize.cli.advice import LIMIT, advice
from bucketize.cli.command import demo
from bucketize.cli.encoder import Texts
from bucketize.errors import BucketizeError

Run = Callable[..., Result]
SMALL = demo.Scene("mlp", {"N": (1, 8)}, ({"N": 1}, {"N": 3}), tuned_at=({"N": 2},))
FEW = Texts("bert-mini", "queries", 40)
DISPATCHED = [demo.AUTO, demo.TUNED, demo.LOG, LIMIT]
UNTUNED = [name for name in DISPATCHED if name != demo.TUNED]
WAYS = [encoder.PACKED, encoder.ALONE, encoder.PADDED, encoder.SORTED]


@pytest.mark.slow
@pytest.mark.filterwarnings("default:.*trials is confirmed|.* have no verdict")  # by the clock
def test_demo(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "NET", SMALL)
    monkeypatch.setattr(demo, "TEXTS", FEW)
    for module in (encoder, tradeoff):
        monkeypatch.setattr(module, "ENOUGH_S", 0.1)
    result = run("demo", "--seconds", "2", "-o", "out")
    assert result.exit_code == 0, result.output
    out = tmp_path / "out"
    words = "bucketize {} zoo:mlp --dim=N=1..8 -d auto --at=N={} --threads=1"
    assert f"{words.format('tune', 2)} --log out/trials.csv --seconds=2" in result.stderr
    assert words.format("report", "1 --at=N=3") in result.stderr
    trials = (load(out / "trials.csv")["source"] != "confirm").sum()
    assert f"{trials} trial" in capfd.readouterr().err  # the child
    assert "auto: 1 clone is enough" in result.stderr
    assert "are within" in result.stderr
    files = "trials.csv, tradeoff.csv, ways.csv, tradeoff.png and report.html"
    assert f"Written to out/: {files}" in result.stderr
    dispatched = DISPATCHED if "a clone is faster" in result.stderr else UNTUNED
    net, texts, sentences = result.stdout.split("Yours, ")[0].rstrip().split("\n\n")
    for shown, names in ((net, ["mlp", *dispatched]), (texts, ["bert-mini", *WAYS])):
        assert [line.split("  ")[0] for line in shown.splitlines()] == names
    gained, cost, take = join_lines(sentences)
    assert (gained[:8], cost[:6], take[:6]) == ("Gained: ", "Cost: ", "Take: ")
    assert (out / "tradeoff.png").exists()
    rows = pd.read_csv(out / "tradeoff.csv")
    assert set(rows["shape"]) == {"N=1", "N=3", "40 texts"}
    assert list(dict.fromkeys(rows["dispatcher"])) == dispatched + WAYS
    assert (rows["slowdown"][rows["dispatcher"].isin([demo.AUTO, encoder.PACKED])] == 1).all()
    assert {"date", "host_cpu", "threads", "n", "slowdown_q1", "compile_s"} <= set(rows)


def join_lines(text: str) -> list[str]:
    """The lines, with those that were broken between words in one."""
    return re.sub(r"\n  +", " ", text.rstrip()).splitlines()


def test_the_demo_ends_as_its_tuning_does(
    run: Run, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = demo.Scene("mlp", {"N": (1, 8)}, ({"N": 1},), tuned_at=({"N": 9},))
    monkeypatch.setattr(demo, "NET", wrong)
    result = run("demo", "-o", "out")
    assert result.exit_code == 2
    assert not result.stdout
    assert capfd.readouterr().err.endswith("error: expected N in [1, 8], got 9\n")


@pytest.mark.parametrize("log", [None, Path("trials.csv")])
def test_what_gained_nothing_by_tuning_is_not_compared(
    log: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be the same program twice."""
    taken = []

    class Untimed(Survey):
        def work(self) -> None:
            taken.append((list(self.modules), self.log))

    monkeypatch.setattr("bucketize.analysis.tradeoff.Survey", Untimed)
    with click.Context(demo.demo):
        demo.compared(SMALL, log, 1)
    assert taken == [(UNTUNED, {}) if log is None else (DISPATCHED, {demo.TUNED: log})]


def test_a_wrong_result_ends_the_demo() -> None:
    row = {"clone": "main", "model": "mlp", "dispatcher": "log buckets", "shape": "N=3"}
    latency = pd.DataFrame([{**row, "max_rel_err": 1e-7}, {**row, "max_rel_err": 0.25}])
    assert demo.checked(latency[:1]) == 1e-7
    told = "main of mlp, log buckets, at N=3 is off by 2.5e-01, more than 0.0001"
    with pytest.raises(BucketizeError, match=told):
        demo.checked(latency)


def test_texts_are_as_long_as_their_traffic_says() -> None:
    many = Texts("bert-mini", "chunks", 2000)
    lengths = many.lengths(512)
    assert lengths == many.lengths(512)
    assert 300 < np.median(lengths) < 330  # the traffic's is 314
    assert max(many.lengths(100)) == 100


def test_batches_are_padded_and_results_come_in_order() -> None:
    lengths = [3, 1, 40, 2] * 10
    texts = [dict.fromkeys(("input_ids", "attention_mask"), np.full((1, n), n)) for n in lengths]
    shapes = []

    def run(input_ids: np.ndarray, attention_mask: np.ndarray) -> list[np.ndarray]:
        shapes.append(input_ids.shape)
        assert (input_ids == attention_mask).all()
        return [2 * input_ids]

    order = encoder.by_length(texts)
    for places, widths in ((range(40), [40, 40]), (order, [40, 40])):
        shapes.clear()
        got = encoder.in_groups(run, texts, encoder.groups(places))
        assert shapes == [(32, widths[0]), (8, widths[1])]
        assert [row.tolist() for row in got] == [[[2 * n] * n] for n in lengths]


def comparison(*ways: tuple[str, str, float, float]) -> pd.DataFrame:
    """A trade-off: model, way, its time by that of the first of the model, half of the spread."""
    rows = [
        {
            "model": model,
            "dispatcher": name,
            "clones": None if model == "text" else 9 if name == demo.LOG else 1,
            "compile_s": 2.0,
            "weight_mib": 60.0,
            "searched": 3 * (name == demo.TUNED),
            "mean_slowdown": ratio,
            "mean_slowdown_q1": ratio - half,
            "mean_slowdown_q3": ratio + half,
            "mean_slowdown_low": ratio - 0.6 * half,
            "mean_slowdown_high": ratio + 0.6 * half,
        }
        for model, name, ratio, half in ways
    ]
    return pd.DataFrame(rows)


NET, TEXT = ("net", demo.AUTO, 1.0, 0.0), ("text", encoder.PACKED, 1.0, 0.0)
ALONE, PADDED = encoder.ALONE, encoder.PADDED
CLONE = "is 1 clone, compiled in 2.0 s, 60 MiB of weights"


@pytest.mark.parametrize(
    ("ways", "gained", "cost", "take"),
    [
        (
            [NET, ("net", demo.TUNED, 0.8, 0.02), ("net", demo.LOG, 1.0, 0.01)],
            "net: auto is as fast as log buckets, within 2 %; is slower than tuned auto, "
            "which takes 0.80 of its time (0.79 to 0.81)",
            f"net: tuned auto {CLONE}, after 25 s of tuning, once",
            "net: tuned auto",
        ),
        (  # what the dearer one gains beyond the cheaper is noise
            [NET, ("net", demo.TUNED, 0.87, 0.01), ("net", demo.LOG, 0.86, 0.01)],
            "net: auto is slower than tuned auto, which takes 0.87 of its time (0.86 to 0.88) and "
            "log buckets, which takes 0.86 of its time (0.85 to 0.87)",
            f"net: tuned auto {CLONE}, after 25 s of tuning, once",
            "net: tuned auto",
        ),
        (  # nobody has all sizes before
            [NET, ("net", demo.LOG, 1.0, 0.01), ("net", LIMIT, 0.9, 0.01)],
            "net: auto is as fast as log buckets, within 2 %; is slower than a program for "
            "each size, which takes 0.90 of its time (0.89 to 0.91)",
            f"net: auto {CLONE}",
            "net: auto",
        ),
        (
            [
                NET,
                ("net", demo.LOG, 1.0, 0.01),
                TEXT,
                ("text", ALONE, 1.25, 0.0),
                ("text", PADDED, 2.0, 0.04),
            ],
            "net: auto is as fast as log buckets, within 2 %. text: run_many takes 20 % less "
            "time than one by one (20 to 20 %) and 50 % less time than padded batches (49 to 51 %)",
            f"net: auto {CLONE}",
            "net: auto. text: run_many",
        ),
        (
            [TEXT, ("text", ALONE, 0.9, 0.01), ("text", PADDED, 1.15, 0.1)],
            "text: run_many is slower than one by one, which takes 0.90 of its time (0.89 to 0.91);"
            " cannot be told from padded batches (1.05 to 1.25) in half of the rounds: "
            "the machine was too busy",
            None,
            "text: one by one",
        ),
        (  # but not what is large
            [TEXT, ("text", PADDED, 1.6, 0.2)],
            "text: run_many takes 38 % less time than padded batches (32 to 42 %)",
            None,
            "text: run_many",
        ),
        (  # where rounds do not tell, or tell of little, the cheapest
            [NET, ("net", demo.TUNED, 0.99, 0.005), ("net", demo.LOG, 0.98, 0.04)],
            "net: auto is slower than tuned auto, which takes 0.99 of its time (0.99 to 0.99); is "
            "not told apart from log buckets (0.96 to 1.00)",
            f"net: auto {CLONE}",
            "net: auto",
        ),
        (  # rounds differ by more than their median is in doubt
            [NET, ("net", demo.LOG, 0.97, 0.04)],
            "net: auto is slower than log buckets, which takes 0.97 of its time (0.95 to 0.99)",
            "net: log buckets is 9 clones, compiled in 2.0 s, 60 MiB of weights",
            "net: log buckets",
        ),
        (  # a busy machine hides what is small
            [NET, ("net", demo.LOG, 0.85, 0.1)],
            "net: auto cannot be told from log buckets (0.75 to 0.95) in half of the rounds: "
            "the machine was too busy",
            f"net: auto {CLONE}",
            "net: nothing before this ran on a quiet machine",
        ),
    ],
    ids=[
        "tuned",
        "cheapest",
        "limit",
        "nothing and gain",
        "loss",
        "clear",
        "little",
        "sure",
        "busy",
    ],
)
def test_three_sentences_say_what_to_take(
    ways: list[tuple[str, str, float, float]], gained: str, cost: str | None, take: str
) -> None:
    told = advice(comparison(*ways), {"net": 25.0})
    lines = [f"Gained: {gained}.", *([f"Cost: {cost}."] if cost else []), f"Take: {take}."]
    assert told.splitlines() == lines
