"""A report that has everything, made once for all tests of a process."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from test_log import trial

import bucketize
from bucketize import zoo
from bucketize.log.log import append
from bucketize.report.report import ModelReport
from dispatchers import log_dispatcher

HOSTILE = "</script><img src=x onerror=\"console.error('mlp')\">&{{ 7 * 7 }}"
"""The name of a model from a stranger."""
TRAFFIC = bucketize.Traffic(("N",), np.array([[1], [3], [9], [40]]), np.array([50, 20, 5, 1]))


@cache
def module() -> bucketize.Module:
    return bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})


@cache
def executable() -> bucketize.Executable:
    return bucketize.compile(bucketize.dispatch(module(), log_dispatcher))


@cache
def log() -> Path:
    """A log of a hostile model: two schedules that were timed, one that failed."""
    path = Path(tempfile.mkdtemp()) / "trials.csv"
    failed = {"latency_median_s": None, "status": "failed", "error_kind": "crash"}
    rows = [
        {"schedule": '{"mr": 4}', "schedule_hash": "a", "latency_median_s": 2e-3},
        {"schedule": '{"mr": 6}', "schedule_hash": "b", "latency_median_s": 1e-3},
        {"schedule": '{"mr": 8}', "schedule_hash": "c", "error": HOSTILE, **failed},
    ]
    for row in rows:
        append(path, trial(model=HOSTILE, template="matmul", baseline_s=2e-3, **row))
    return path


@cache
def whole() -> ModelReport:
    """All sections, of a model whose name tries what names of strangers may try."""
    return bucketize.report(
        executable(),
        name=HOSTILE,
        sizes=[{"N": 3}],
        log=log(),
        traffic=TRAFFIC,
        partition=True,
        against=bucketize.compile(module(), lazy=True),
    )


@cache
def bare() -> ModelReport:
    """As little as there can be: one clone, nothing given."""
    return bucketize.report(bucketize.compile(module()), name="mlp")
