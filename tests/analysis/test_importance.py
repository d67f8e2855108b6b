"""Which knobs matter: of logs whose times are known functions of the knobs."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from test_log import trial

from bucketize.analysis import importance
from bucketize.cli.group import main
from bucketize.errors import BucketizeError, BucketizeWarning
from bucketize.log.frame import trial_frame
from bucketize.log.log import append
from bucketize.log.trial import CLONE, Trial, schedule_hash, schedule_json


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked here is clear to a few."""
    module = sys.modules["bucketize.analysis.importance"]  # whose name is the function's, too
    monkeypatch.setattr(module, "TREES", 15)
    monkeypatch.setattr(module, "REPEATS", 3)


SCHEDULES = [
    {"mr": mr, "nr": nr, "kc": 64, "copy": copy}
    for mr, nr, copy in itertools.product((2, 4, 6, 8), (8, 16, 32), ("no", "yes"))
]


def log_of(
    seconds: Callable[[dict[str, int | str], int], float], rows: tuple[int, ...] = (4, 64, 1024)
) -> list[Trial]:
    """Every schedule at some numbers of rows."""
    trials = [
        trial(
            schedule=schedule_json(schedule),
            schedule_hash=schedule_hash(schedule),
            template="matmul",
            shape=f"{n}x64,64x64",
            latency_median_s=seconds(schedule, n),
        )
        for schedule, n in itertools.product(SCHEDULES, rows)
    ]
    random.Random(0).shuffle(trials)
    return trials


def test_the_knob_that_time_hangs_on_has_the_variance() -> None:
    dice = random.Random(1)

    def seconds(schedule: dict[str, int | str], n: int) -> float:
        times = {8: 3.0, 16: 1.0, 32: 2.0}[int(schedule["nr"])]
        return n * times * (1 + 0.02 * int(schedule["mr"])) * dice.uniform(0.99, 1.01)

    frame = importance(trial_frame(log_of(seconds)))
    assert list(frame["knob"][:2]) == ["nr", "mr"]
    assert set(frame["trials"]) == {72}
    by_knob = frame.set_index("knob")
    assert by_knob.loc["nr", "share"] == pytest.approx(1, abs=0.25)
    assert by_knob.loc["mr", "share"] < 0.1 > by_knob.loc["copy", "share"]
    assert np.isnan(by_knob.loc["kc", "share"])  # one value
    assert dict(by_knob["values"]) == {"nr": 3, "mr": 4, "copy": 2, "kc": 1}
    assert (frame["explained"] > 0.9).all()


def test_shares_are_those_of_two_knobs_that_add_up() -> None:
    """Of a sum of two logarithms each has its own part of the variance: 4/5 and 1/5."""
    far, near = {2: 0.0, 4: 1.0, 6: 0.0, 8: 1.0}, {"no": 0.0, "yes": 0.5}
    log = log_of(lambda s, n: float(np.exp(far[int(s["mr"])] + near[str(s["copy"])])))
    by_knob = importance(trial_frame(log)).set_index("knob")["share"]
    assert by_knob["mr"] == pytest.approx(0.8, abs=0.2)
    assert by_knob["copy"] == pytest.approx(0.2, abs=0.1)


def test_a_knob_that_matters_differently_by_extent_matters() -> None:
    log = log_of(lambda s, n: float(np.exp((1 if n > 32 else -1) * int(s["mr"]) / 8)))
    frame = importance(trial_frame(log))
    assert frame["knob"][0] == "mr"
    assert frame["share"][0] > 0.7


def test_failures_confirmations_and_clones_do_not_count() -> None:
    log = log_of(lambda s, n: float(str(s["copy"]) == "yes") + 1)
    others = [
        {"source": "confirm"},
        {"level": CLONE},
        {"latency_median_s": None, "status": "failed", "error_kind": "crash"},
    ]
    more = [trial(**{**vars(log[0]), **change}) for change in others]
    pd.testing.assert_frame_equal(importance(trial_frame(log + more)), importance(trial_frame(log)))


def test_too_few_trials_are_refused_with_the_reason() -> None:
    log = log_of(lambda s, n: int(s["nr"]))
    with pytest.raises(BucketizeError, match="no importance of knobs: no kernel was timed"):
        importance(trial_frame([]))
    expected = "matmul: 20 of 20 trials have another schedule at their shape, expected at least 30"
    with pytest.raises(BucketizeError, match=expected):
        importance(trial_frame(log[:20]))
    alone = [trial(**{**vars(t), "shape": f"{i}x1"}) for i, t in enumerate(log)]
    with pytest.raises(BucketizeError, match="matmul: 0 of 72 trials have another schedule"):
        importance(trial_frame(alone))
    with pytest.raises(BucketizeError, match=r"lacks shape, .*; expected one of `load`"):
        importance(pd.DataFrame({"host_cpu": [], "threads": [], "workload": []}))


def test_what_no_knob_explains_is_left_out_with_a_warning() -> None:
    dice = random.Random(2)
    noise = [
        trial(**{**vars(t), "template": "rows"}) for t in log_of(lambda s, n: dice.uniform(1, 2))
    ]
    log = log_of(lambda s, n: int(s["nr"]))
    expected = "left out rows: its knobs explain nothing of 72 trials that were held out"
    with pytest.warns(BucketizeWarning, match=expected):
        frame = importance(trial_frame(log + noise))
    assert set(frame["template"]) == {"matmul"}
    same = [
        trial(**{**vars(t), "schedule": "{}", "schedule_hash": str(i)}) for i, t in enumerate(log)
    ]
    with pytest.raises(BucketizeError, match="matmul: no knob has a second value in 72 trials"):
        importance(trial_frame(same))


def test_the_command_tells_shares_and_trials(tmp_path: Path) -> None:
    log = tmp_path / "t.csv"
    for one in log_of(lambda s, n: int(s["nr"]) * n, rows=(4, 64)):
        append(log, one)
    result = CliRunner().invoke(main, ["analyze", str(log), "--frame", "importance"])
    assert result.exit_code == 0, result.output
    head, first, *_ = result.stdout.splitlines()
    assert head.split() == ["template", "knob", "share", "values", "trials", "explained"]
    assert first.split()[:2] == ["matmul", "nr"]
    assert first.split()[-2] == "48"
    assert "kc" in result.stdout
    few = tmp_path / "few.csv"
    append(few, trial(template="matmul"))
    refused = CliRunner().invoke(main, ["analyze", str(few), "--frame", "importance"])
    assert refused.exit_code == 2
    assert "error: no importance of knobs: matmul: 0 of 1 trials have another" in refused.output
