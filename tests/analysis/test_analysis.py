"""Frames in, frames and figures out."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_log import trial

from bucketize import analysis, zoo
from bucketize.analysis import (
    Case,
    best_schedules,
    buckets,
    confirmed,
    failures,
    knobs,
    load,
    measure_trade_off,
    progress,
    tasks,
    trade_off,
    versus_oracle,
)
from bucketize.analysis.frame import best_trials
from bucketize.cli.compare import shown_latency, shown_ratio, verdict
from bucketize.dispatch.tree import dispatch
from bucketize.errors import ArgumentError, BucketizeError, LogError
from bucketize.log.cell import parse_shapes, shape_text
from bucketize.log.frame import trial_frame, trials_of
from bucketize.log.log import append
from bucketize.log.trial import CLONE, COLUMNS, PLACE, Trial, schedule_hash, schedule_json
from bucketize.log.verdict import geometric_mean
from bucketize.onnx import from_onnx
from bucketize.tune.api import tune


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
    measured(8, None, bucket="N=2..3"),
]


def test_load_types_every_column_and_keeps_unknown_ones(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    append(log, SEARCHED[0])
    append(log, SEARCHED[5])
    header, *rows = log.read_text().splitlines()
    extended = tmp_path / "extended.csv"
    extended.write_text("\n".join([f"{header},note", *(f"{row},hot" for row in rows), ""]))
    frame = load([log, extended])
    assert list(frame.columns) == [*COLUMNS, "gflops", "note"]
    assert (frame["trial"].dtype, frame["latency_median_s"].dtype) == ("int64", "float64")
    assert frame["note"].isna().tolist() == [True, True, False, False]
    assert frame["timestamp"][0] == pd.Timestamp("2024-01-01T00:00:00Z")
    assert trials_of(frame[:2]) == [SEARCHED[0], SEARCHED[5]]
    assert load(log)["latency_median_s"].isna().tolist() == [False, True]


def test_an_empty_log_is_an_empty_typed_frame() -> None:
    frame = trial_frame([])
    assert list(frame.columns) == [*COLUMNS, "gflops"]
    assert frame["weight"].dtype == "float64"
    assert best_schedules(frame).empty
    assert progress(frame).empty
    assert failures(frame).empty


def test_moments_are_in_utc_however_the_log_writes_them() -> None:
    texts = [
        "2026-01-31T12:00:00+00:00",
        "2026-01-31T13:00:00+01:00",
        "2026-W05-6T12",
        "20260131T12",
    ]
    frame = trial_frame([measured(1, 4e-3, timestamp=text) for text in texts])
    assert frame["timestamp"].unique().tolist() == [pd.Timestamp(texts[0])]
    written = frame.assign(timestamp=frame["timestamp"].astype(str))  # as a CSV file gives it
    assert {t.timestamp for t in [*trials_of(frame), *trials_of(written)]} == {texts[0]}


def test_load_of_no_file(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"no\.csv"):
        load(tmp_path / "no.csv")


def test_best_schedules_weighs_shapes_and_leaves_failures_out() -> None:
    (row,) = best_schedules(trial_frame(SEARCHED)).to_dict("records")
    assert json.loads(row["schedule"]) == {"mr": 2}
    assert row["relative"] == pytest.approx(0.25 ** (1 / 4) * 0.5 ** (3 / 4))
    assert row["latency_s"] == pytest.approx((1e-3 + 3 * 2e-3) / 4)
    assert (row["shapes"], row["tried"], row["failed"]) == (2, 4, 1)


def test_schedules_of_different_templates_are_different(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    for template, latency_s in (("gemm", 4e-3), ("winograd", 2e-3)):
        append(log, measured(1, latency_s, template=template, layer="%3", flops=8e6))
    frame = load(log)
    assert frame["gflops"].tolist() == pytest.approx([2.0, 4.0])
    (row,) = best_schedules(frame).to_dict("records")
    assert (row["template"], row["layer"], row["tried"]) == ("winograd", "%3", 2)
    assert row["gflops"] == pytest.approx(4.0)
    assert progress(frame)["best"].tolist() == [1.0, 0.5]


def test_work_that_the_log_does_not_tell_is_missing(tmp_path: Path) -> None:
    append(tmp_path / "log.csv", measured(1, 4e-3))
    frame = load(tmp_path / "log.csv")
    assert frame["gflops"].isna().all()
    assert best_schedules(frame)["gflops"].isna().all()


def test_tasks_come_in_the_order_of_the_log() -> None:
    trials = [measured(mr, 4e-3, workload=name) for mr, name in [(1, "b"), (1, "a"), (2, "b")]]
    assert best_schedules(trial_frame(trials))["workload"].tolist() == ["b", "a"]
    assert progress(trial_frame(trials))["step"].tolist() == [1, 2, 1]


def test_knobs_are_columns() -> None:
    schedules = ['{"mr": 6, "order": "nk"}', '{"unroll": 4}']
    frame = pd.DataFrame({"schedule": schedules}, index=[7, 9])
    columns = knobs(frame)
    assert list(columns.index) == [7, 9]
    assert columns.loc[7, ["mr", "order"]].tolist() == [6, "nk"]
    assert columns.isna().to_numpy().tolist() == [[False, False, True], [True, True, False]]
    assert columns["mr"].dtype == "Int64"
    assert knobs(trial_frame(SEARCHED))["mr"].tolist() == [1, 1, 2, 2, 4, 4, 6, 8]
    assert knobs(trial_frame([])).empty


def test_bounds_of_buckets_are_columns() -> None:
    columns = buckets(pd.DataFrame({"bucket": ["N=1;H=32..", "N=0..8", ""]}))
    assert columns.columns.tolist() == ["N_lo", "N_hi", "H_lo", "H_hi"]
    assert set(columns.dtypes) == {pd.Int64Dtype()}
    cells = columns.astype(object).where(columns.notna(), None).to_numpy().tolist()
    assert cells == [[1, 1, 32, None], [0, 8, None, None], [None] * 4]


def test_texts_that_hold_no_columns_are_errors() -> None:
    with pytest.raises(BucketizeError, match="the frame lacks schedule; expected one of `load`"):
        knobs(pd.DataFrame({"bucket": [""]}))
    with pytest.raises(BucketizeError, match=r"'N=\[1,2\)' is no bucket, expected sizes: N="):
        buckets(pd.DataFrame({"bucket": ["N=[1,2)"]}))


def test_the_last_of_repeated_measurements_counts() -> None:
    again = [measured(1, 4e-3), measured(2, 1e-3), measured(2, 5e-3)]
    best = best_trials(again)
    assert json.loads(best[0].schedule) == {"mr": 1}
    assert best_trials([*again, measured(1, None)])


def test_a_choice_names_its_template_and_what_it_costs() -> None:
    best = best_trials([measured(1, 3e-3, template="gemm", baseline_s=None)])
    assert (best[0].template, geometric_mean(best)) == ("gemm", pytest.approx(3e-3))


def test_a_schedule_that_failed_anywhere_is_no_choice() -> None:
    failed = [measured(1, 1e-9, shape="1x4"), measured(1, None, shape="8x4")]
    assert not best_trials(failed)
    best = best_trials([*failed, measured(2, 2e-3, shape="1x4")])
    assert json.loads(best[0].schedule) == {"mr": 2}


def test_runs_on_a_busy_machine_compare_by_their_baselines() -> None:
    busy = [measured(1, 8e-3, baseline_s=8e-3), measured(2, 5e-3, baseline_s=8e-3)]
    quiet = [measured(4, 4.5e-3, baseline_s=4e-3)]
    best = best_trials(busy + quiet)
    assert json.loads(best[0].schedule) == {"mr": 2}


@pytest.mark.parametrize("shapes", [((1, 2), (), (3,)), ((128, 768), (768, 768)), ((),)])
def test_shape_text_is_read_back(shapes: tuple[tuple[int, ...], ...]) -> None:
    assert parse_shapes(shape_text(shapes)) == shapes


def told(ratio: float | None, **changes: object) -> Trial:
    """A row of a verdict on a clone, whose interval is five per cent to either side."""
    ends = {} if ratio is None else {"ratio_low": ratio / 1.05, "ratio_high": ratio * 1.05}
    made = {"schedule": "{}" if ratio is None else '{"w": "gemm mr=2", "v": "gemm mr=4"}'}
    about = {"level": CLONE, "op": CLONE, "workload": "c", "clone": "c", "source": "confirm"}
    return trial(**{**about, **made, **ends, **changes})


def test_what_a_clone_gained_is_a_row_of_its_own() -> None:
    trials = [
        *SEARCHED,
        told(0.8, function="main[N=1]", shape="1x4", weight=0.5),
        told(0.8, function="main[N=1]", shape="8x4", weight=0.5),
        told(0.9, function="main[N=2]", run_id="a", timestamp="2024-01-01T00:00:00+00:00"),
        told(1.2, function="main[N=2]", run_id="b", timestamp="2024-01-02T00:00:00+00:00"),
    ]
    first, second = confirmed(trial_frame(trials)).to_dict("records")
    assert (first["function"], first["chosen"], first["shapes"]) == ("main[N=1]", 2, "1x4; 8x4")
    assert first["ratio"] == pytest.approx(0.8)
    assert 0.8 / 1.05 < first["ratio_low"] < 0.8 < first["ratio_high"] < 0.8 * 1.05
    assert [second[name] for name in ("function", "chosen")] == ["main[N=2]", 0]
    assert [second[name] for name in ("ratio", "ratio_low", "ratio_high")] == [1.0, 1.0, 1.0]
    assert confirmed(trial_frame(SEARCHED)).empty


def test_clones_of_one_name_have_a_row_each_and_half_a_verdict_has_none() -> None:
    """A model that was changed, or bounded otherwise, has its functions' names as before."""
    trials = [told(0.8, clone="c"), told(0.9, clone="d"), told(0.7, clone="e", weight=0.5)]
    ratios = confirmed(trial_frame(trials))["ratio"].tolist()
    assert ratios == pytest.approx([0.8, 0.9])


def test_what_was_timed_in_a_clone_is_no_trial_of_a_kernel() -> None:
    more = [measured(6, 1e-9, shape=shape, level=PLACE) for shape in ("1x4", "8x4")]
    alone, with_more = trial_frame(SEARCHED), trial_frame([*SEARCHED, *more, told(0.8)])
    assert best_schedules(with_more).equals(best_schedules(alone))
    assert progress(with_more).equals(progress(alone))
    assert [task for task, _ in tasks(with_more)] == [task for task, _ in tasks(alone)]
    assert knobs(with_more).columns.tolist() == ["mr"]


def test_what_is_timed_again_is_no_step_of_the_search_but_counts() -> None:
    again = measured(2, 3e-3, source="confirm")
    frame = trial_frame([measured(1, 4e-3), measured(2, 1e-3), again])
    assert progress(frame)["best"].tolist() == pytest.approx([1.0, 0.25])
    assert best_schedules(frame)["relative"].tolist() == pytest.approx([0.75])


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


def test_trade_off_says_what_was_measured_where() -> None:
    where = {"model": "mlp", "host_cpu": "znver4", "threads": 2, "date": "2026-01-31"}
    trade = trade_off(LATENCY.assign(**where), COST)
    assert trade[[*where, "shapes"]].to_dict("records") == [{**where, "shapes": "N=1; N=7"}] * 3


def test_trade_off_weighs_shapes_by_traffic() -> None:
    weighted = LATENCY.assign(weight=[9.0, 1.0] * 3)
    trade = trade_off(weighted, COST).set_index("dispatcher")
    assert trade["mean_slowdown"].tolist() == pytest.approx([2.8, 1.025, 1.0])


def test_calls_of_one_round_are_compared() -> None:
    """The machine is twice as slow in the second round: no ratio tells."""
    rounds = pd.concat([LATENCY.assign(round=0), LATENCY.assign(round=1)], ignore_index=True)
    rounds.loc[rounds["round"] == 1, "latency_s"] *= 2
    beside = versus_oracle(rounds).set_index(["dispatcher", "shape"])
    assert beside.loc[("none", "N=1"), ["n", "latency_s", "slowdown"]].tolist() == [2, 4.5, 3.0]
    quartiles = ["latency_q1_s", "latency_q3_s", "slowdown_q1", "slowdown_q3"]
    assert beside.loc[("none", "N=1"), quartiles].tolist() == [3.75, 5.25, 3.0, 3.0]
    assert trade_off(rounds, COST)["n"].tolist() == [2, 2, 2]


def test_latencies_are_told_with_their_spread_and_rounds() -> None:
    rounds = pd.concat([LATENCY.assign(round=i, latency_s=i + 1.0) for i in range(5)])
    header, *lines = shown_latency(rounds).splitlines()
    assert header.split() == ["ms", "oracle", "log", "none", "rounds"]
    assert lines[0].split() == ["N=1", *["3000.00", "±1000.00"] * 3, "5"]


def test_quartiles_are_expected_over_the_shapes() -> None:
    rounds = pd.concat([LATENCY.assign(round=i) for i in range(5)], ignore_index=True)
    noisy = (rounds["dispatcher"] == "none") & (rounds["shape"] == "N=1")
    rounds.loc[noisy, "latency_s"] = [1.0, 2.0, 3.0, 4.0, 9.0]
    none = trade_off(rounds, COST).set_index("dispatcher").loc["none"]
    columns = ["mean_slowdown_q1", "mean_slowdown", "mean_slowdown_q3", "worst_slowdown"]
    assert none[columns].tolist() == [1.5, 2.0, 2.5, 3.0]
    assert verdict(none) == "unclear"  # five rounds are too few
    assert shown_ratio(none) == "2.00 ±0.50"


@pytest.mark.parametrize(
    ("slower", "word"), [(1.0, "same"), (1.03, "slower"), (1 / 1.03, "faster")]
)
def test_many_rounds_tell_what_one_does_not(slower: float, word: str) -> None:
    """Noise of 4 %, whose quartiles hold 1."""
    dice = np.random.default_rng(0)
    for rounds, words in ((5, {"unclear"}), (12, {"unclear", word}), (300, {word})):
        latency = pd.DataFrame(
            {"dispatcher": name, "shape": shape, "round": i, "latency_s": s * noise}
            for name, s in {"oracle": 1.0, "log": slower}.items()
            for shape in ("N=1", "N=7", "N=64")
            for i, noise in enumerate(np.exp(dice.normal(0, 0.04, rounds)))
        )
        log = trade_off(latency, COST).set_index("dispatcher").loc["log"]
        assert verdict(log) in words
    assert log["mean_slowdown_q1"] < 1 < log["mean_slowdown_q3"]


def test_a_shape_without_oracle_is_an_error() -> None:
    with pytest.raises(BucketizeError, match="no latency of 'oracle' at N=7; known: N=1"):
        versus_oracle(LATENCY.drop(index=1))
    with pytest.raises(BucketizeError, match="no latency of 'best' at N=1, N=7; known: none"):
        trade_off(LATENCY, COST, oracle="best")


def test_two_measurements_in_one_frame_are_an_error() -> None:
    both = [LATENCY.assign(model="mlp"), LATENCY.assign(model="resnet18")]
    with pytest.raises(BucketizeError, match=r"^'oracle' has two latencies at N=1 in one round: "):
        trade_off(pd.concat(both, ignore_index=True), COST)


# --- measured ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few_registers")
def test_a_trade_off_is_measured_from_python(tmp_path: Path) -> None:
    mod = from_onnx(zoo.build("mlp"), bounds={"N": (1, 8)})
    cases = [Case.of(mod, **zoo.inputs("mlp", {"N": size})) for size in (2, 5)]
    assert [(c.shape, c.sizes) for c in cases] == [("N=2", {"N": 2}), ("N=5", {"N": 5})]
    exact = dispatch(mod, lambda shapes: {"data": {0: [(2, 3), (3, 5), (5, 6)]}})
    told: list[str] = []
    cache = os.environ["BUCKETIZE_CACHE"]
    tune(mod, log=tmp_path / "none.csv", trials=1)
    modules = {"untuned": mod, "none": mod, "oracle": exact}
    latency, cost = measure_trade_off(
        modules,
        cases,
        log={"none": tmp_path / "none.csv"},
        model="mlp",
        progress=lambda what, done, total: told.append(what),
    )
    with pytest.raises(ArgumentError, match="progress: expected True, None or a function"):
        measure_trade_off(modules, cases, progress=7)
    in_turn = [what for what in told if ", " not in what]  # without steps inside of a piece
    assert in_turn == [
        "cost of untuned",
        *("the ops' own results at N=2", "compiling untuned for N=2", "compiling none for N=2"),
        *("compiling oracle for N=2", "measuring N=2"),
        *("the ops' own results at N=5", "compiling untuned for N=5", "compiling none for N=5"),
        *("compiling oracle for N=5", "measuring N=5"),
        "cost of none",
    ]
    assert "cost of none: deciding main, 0 of 1" in told
    assert os.environ["BUCKETIZE_CACHE"] == cache
    assert cost["dispatcher"].tolist() == ["untuned", "none"]
    assert latency["max_rel_err"].max() < 1e-5
    assert set(latency["model"]) == {"mlp"}
    beside = versus_oracle(latency)
    clones = ["main", "main", "main", "main", "main[N=2]", "main[N=5]"]
    assert beside.sort_values("clone")["clone"].tolist() == clones
    assert (beside["n"] >= 15).all()
    trade = trade_off(latency, cost).set_index("dispatcher")
    # one trial is the default's: searched, and nothing better found
    assert trade.loc["none", ["clones", "tasks", "searched", "tuned"]].tolist() == [1, 3, 3, 0]
    assert trade.loc["untuned", ["tasks", "searched", "tuned"]].tolist() == [3, 0, 0]
    assert trade.loc["none", "worst_slowdown"] >= trade.loc["none", "mean_slowdown"] > 0


def test_who_reads_a_log_imports_neither_matplotlib_nor_the_compiler() -> None:
    script = (
        "import sys, bucketize.analysis;"
        "print([name for name in ('matplotlib', 'numba', 'onnx', 'skopt') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


def test_an_unknown_name_of_the_package_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"'bucketize\.analysis' has no attribute 'best'"):
        analysis.best  # noqa: B018
