"""Frames in, frames and figures out."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_log import trial

from bucketize import zoo
from bucketize.analysis import (
    Case,
    best_schedules,
    failures,
    load,
    measure_trade_off,
    plot_latency,
    plot_progress,
    plot_trade_off,
    progress,
    trade_off,
    versus_oracle,
)
from bucketize.dispatch.tree import dispatch
from bucketize.errors import BucketizeError, LogError
from bucketize.onnx import from_onnx
from bucketize.tune.cells import parse_shapes, shape_text
from bucketize.tune.choice import Choices, best_choice
from bucketize.tune.frame import trial_frame, trials_of
from bucketize.tune.log import COLUMNS, Trial, append, schedule_hash, schedule_json
from bucketize.types import ANY, Symbol, tensor


def measured(mr: int, latency_s: float | None, **changes: object) -> Trial:
    schedule = {"mr": mr}
    kind = "none" if latency_s is not None else "wrong_answer"
    return trial(
        **{
            "schedule": schedule_json(schedule),
            "schedule_hash": schedule_hash(schedule),
            "latency_median_s": latency_s,
            "baseline_s": 4e-3,
            "status": "ok" if latency_s is not None else "failed",
            "error_kind": kind,
            "error": "" if latency_s is not None else "off by 1",
            **changes,
        }
    )


SEARCHED = [
    measured(1, 4e-3, shape="1x4"),
    measured(1, 4e-3, shape="8x4", weight=3.0),
    measured(2, 1e-3, shape="1x4", source="skopt"),
    measured(2, 2e-3, shape="8x4", weight=3.0, source="skopt"),
    measured(4, 1e-9, shape="1x4"),
    measured(4, None, shape="8x4", weight=3.0),
    measured(6, 1e-9, shape="1x4"),  # never measured at 8x4
    measured(8, None, bucket="N=[2,4)"),
]


def test_load_types_every_column_and_keeps_unknown_ones(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    append(log, SEARCHED[0])
    append(log, SEARCHED[5])
    header, *rows = log.read_text().splitlines()
    extended = tmp_path / "extended.csv"
    extended.write_text("\n".join([f"{header},note", *(f"{row},hot" for row in rows), ""]))
    frame = load([log, extended])
    assert list(frame.columns) == [*COLUMNS, "note"]
    assert (frame["trial"].dtype, frame["latency_median_s"].dtype) == ("int64", "float64")
    assert frame["note"].isna().tolist() == [True, True, False, False]
    assert trials_of(frame[:2]) == [SEARCHED[0], SEARCHED[5]]
    assert load(log)["latency_median_s"].isna().tolist() == [False, True]


def test_an_empty_log_is_an_empty_typed_frame() -> None:
    frame = trial_frame([])
    assert list(frame.columns) == list(COLUMNS)
    assert frame["weight"].dtype == "float64"
    assert best_schedules(frame).empty
    assert progress(frame).empty
    assert failures(frame).empty


def test_load_of_no_file(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"no\.csv"):
        load(tmp_path / "no.csv")


def test_best_schedules_weighs_shapes_and_leaves_failures_out() -> None:
    (row,) = best_schedules(trial_frame(SEARCHED)).to_dict("records")
    assert json.loads(row["schedule"]) == {"mr": 2}
    assert row["relative"] == pytest.approx(0.25 ** (1 / 4) * 0.5 ** (3 / 4))
    assert row["latency_s"] == pytest.approx((1e-3 + 3 * 2e-3) / 4)
    assert (row["shapes"], row["tried"], row["failed"]) == (2, 4, 1)


def test_the_last_of_repeated_measurements_counts() -> None:
    again = [measured(1, 4e-3), measured(2, 1e-3), measured(2, 5e-3)]
    choice = best_choice(again)
    assert choice is not None
    assert choice.schedule == {"mr": 1}
    assert best_choice([*again, measured(1, None)]) is not None


def test_a_choice_names_its_template_and_what_it_costs() -> None:
    choice = best_choice([measured(1, 3e-3, template="gemm", baseline_s=None)])
    assert choice is not None
    assert (choice.template, choice.relative) == ("gemm", pytest.approx(3e-3))


def test_a_schedule_that_failed_anywhere_is_no_choice() -> None:
    failed = [measured(1, 1e-9, shape="1x4"), measured(1, None, shape="8x4")]
    assert best_choice(failed) is None
    choice = best_choice([*failed, measured(2, 2e-3, shape="1x4")])
    assert choice is not None
    assert choice.schedule == {"mr": 2}


def test_runs_on_a_busy_machine_compare_by_their_baselines() -> None:
    busy = [measured(1, 8e-3, baseline_s=8e-3), measured(2, 5e-3, baseline_s=8e-3)]
    quiet = [measured(4, 4.5e-3, baseline_s=4e-3)]
    choice = best_choice(busy + quiet)
    assert choice is not None
    assert choice.schedule == {"mr": 2}


def test_choices_are_made_among_the_shapes_of_the_bucket() -> None:
    n = Symbol("N", 1, 3)
    choices = Choices(
        [
            measured(2, 1e-3, shape="2x4,2x4"),
            measured(4, 2e-3, shape="2x4,2x4"),
            measured(4, 1e-9, shape="2x4,3x4"),
            measured(6, 1e-9, shape="8x4,8x4"),
            measured(8, 1e-9, shape="2x4,2x4", threads=2),
        ],
        threads=1,
    )
    choice = choices.best("w", [tensor("f4", n, 4), tensor("f4", n, 4)])
    assert choice is not None
    assert choice.schedule == {"mr": 2}
    assert choices.best("w", [tensor("f4", n * 4, 4), tensor("f4", ANY, 4)]) is not None
    assert choices.best("w", [tensor("f4", n, 5), tensor("f4", n, 5)]) is None
    assert choices.best("w", [tensor("f4", n, 4)]) is None
    assert choices.best("another", [tensor("f4", n, 4)]) is None


@pytest.mark.parametrize("shapes", [((1, 2), (), (3,)), ((128, 768), (768, 768)), ((),)])
def test_shape_text_is_read_back(shapes: tuple[tuple[int, ...], ...]) -> None:
    assert parse_shapes(shape_text(shapes)) == shapes


def test_failures_are_counted_with_an_example() -> None:
    (row,) = failures(trial_frame(SEARCHED)).to_dict("records")
    assert row == {
        "op": "matmul", "error_kind": "wrong_answer", "trials": 2, "example": "off by 1",
    }  # fmt: skip


def test_progress_follows_the_best_so_far() -> None:
    course = progress(trial_frame([measured(mr, s) for mr, s in LATENCIES]))
    assert course["step"].tolist() == [1, 2, 3, 4]
    assert course["best"].tolist() == pytest.approx([1.0, 0.5, 0.5, 0.25])
    assert math.isnan(course["relative"][2])


LATENCIES = [(1, 4e-3), (2, 2e-3), (4, None), (6, 1e-3)]


def frame_of(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text.strip()), sep=r"\s+")


LATENCY = frame_of("""
dispatcher  shape  latency_s
oracle      N=1    1.0
oracle      N=7    4.0
log         N=1    1.0
log         N=7    5.0
none        N=1    3.0
none        N=7    4.0
""")
COST = frame_of("""
dispatcher  clones  kernels  compile_s  bytes
none        1       3        1.0        100
log         2       4        2.0        104
oracle      7       9        7.0        130
""")


def test_trade_off_compares_with_the_oracle() -> None:
    trade = trade_off(LATENCY, COST).set_index("dispatcher")
    assert list(trade.index) == ["none", "log", "oracle"]
    assert trade["mean_slowdown"].tolist() == [2.0, 1.125, 1.0]
    assert trade["worst_slowdown"].tolist() == [3.0, 1.25, 1.0]
    assert trade.loc["log", ["worst_shape", "mean_s", "clones"]].tolist() == ["N=7", 3.0, 2]


def test_trade_off_weighs_shapes_by_traffic() -> None:
    weighted = LATENCY.assign(weight=[9.0, 1.0] * 3)
    trade = trade_off(weighted, COST).set_index("dispatcher")
    assert trade["mean_slowdown"].tolist() == pytest.approx([2.8, 1.025, 1.0])


def test_a_shape_without_oracle_is_an_error() -> None:
    with pytest.raises(BucketizeError, match="no latency of 'oracle' at N=7; known: N=1"):
        versus_oracle(LATENCY.drop(index=1))
    with pytest.raises(BucketizeError, match="no latency of 'best' at N=1, N=7; known: none"):
        trade_off(LATENCY, COST, oracle="best")


def drawn(figure: Any, path: Path) -> None:
    figure.savefig(path)
    assert path.stat().st_size > 5000


def test_figures_are_drawn(tmp_path: Path) -> None:
    latency = plot_latency(LATENCY)
    assert [line.get_label() for line in latency.axes[0].lines] == ["oracle", "log", "none"]
    assert [tick.get_text() for tick in latency.axes[1].get_xticklabels()] == ["N=1", "N=7"]
    drawn(latency, tmp_path / "latency.png")

    trade = plot_trade_off(trade_off(LATENCY, COST))
    assert [text.get_text() for text in trade.axes[0].texts] == ["none", "log", "oracle"]
    drawn(trade, tmp_path / "trade.png")

    course = plot_progress(progress(trial_frame([measured(mr, s) for mr, s in LATENCIES])))
    assert course.axes[0].lines[0].get_label() == "matmul w N=[1,2);H=[32,64)"
    drawn(course, tmp_path / "progress.png")


# --- measured ------------------------------------------------------------------------------------


def test_a_trade_off_is_measured_from_python() -> None:
    mod = from_onnx(zoo.build("mlp"), bounds={"N": (1, 8)})
    cases = [Case.of(mod, **zoo.inputs("mlp", {"N": size})) for size in (2, 5)]
    assert [(c.shape, c.sizes) for c in cases] == [("N=2", {"N": 2}), ("N=5", {"N": 5})]
    exact = dispatch(mod, lambda shapes: {"data": {0: [(2, 3), (3, 5), (5, 6)]}})
    told: list[str] = []
    cache = os.environ["BUCKETIZE_CACHE"]
    modules = {"none": mod, "oracle": exact}
    latency, cost = measure_trade_off(
        modules, cases, progress=lambda what, done, total: told.append(what)
    )
    assert "none: deciding main" in told
    assert "oracle: deciding main" in told
    assert os.environ["BUCKETIZE_CACHE"] == cache
    assert cost["dispatcher"].tolist() == ["none"]
    assert latency["clone"].tolist() == ["main", "main[N=2..3]", "main", "main[N=5..6]"]
    assert latency["max_rel_err"].max() < 1e-5
    trade = trade_off(latency, cost)
    assert trade.loc[0, ["dispatcher", "clones", "tuned"]].tolist() == ["none", 1, 0]
    assert trade.loc[0, "worst_slowdown"] >= trade.loc[0, "mean_slowdown"] > 0


def test_who_draws_nothing_does_not_import_matplotlib() -> None:
    script = "import sys, bucketize.analysis; print('matplotlib' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "False\n"
