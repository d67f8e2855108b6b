"""A trial: one measured schedule, one row of a tuning log. Its fields are the log's columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from bucketize.log.cell import optional_integer, optional_number
from bucketize.log.environment import Environment

SCHEMA_VERSION = 4  # 2 added `template`, 3 writes both ends of buckets, 4 how a trial came about
ERROR_LENGTH = 500  # characters of an error's message that a row keeps

Schedule = Mapping[str, int | str]
Source = Literal["default", "random", "grid", "model", "skopt", "transfer", "confirm", "replay"]
KERNEL, PLACE, CLONE = "kernel", "place", "clone"
"""Where a latency was taken: of a kernel by itself, of one between its neighbours in a clone, of a
clone as a whole. Of the last, op is CLONE, too, and the schedule names implementations."""
COMPILED, CACHED = "compiled", "cached"
ErrorKind = Literal[
    "none",
    "invalid",
    "compile",
    "compile_timeout",
    "run",
    "run_timeout",
    "wrong_answer",
    "crash",
]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One measured schedule, one line of the log; times in seconds, None an empty field."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    trial: int  # the how-manieth of its run
    timestamp: str  # ISO 8601, UTC
    bucketize_version: str
    python_version: str
    numpy_version: str
    numba_version: str
    llvmlite_version: str
    target_triple: str
    target_features: str
    host_cpu: str
    host_cores: int
    threads: int
    model: str
    function: str
    bucket: str  # "N=1;H=32..63"
    shape: str  # of the workload's parameters: "128x768,768x768"
    weight: float  # what the shape counts among those of its bucket
    op: str
    workload: str  # hash
    schedule: str  # JSON
    schedule_hash: str
    source: str
    status: str  # "ok" or "failed"
    error_kind: str
    error: str
    compile_s: float | None = None
    repeats: int = 0
    latency_median_s: float | None = None
    latency_min_s: float | None = None
    latency_std_s: float | None = None
    baseline_s: float | None = None  # the default's median latency in the same rounds
    max_rel_err: float | None = None
    template: str = ""  # of the kernel; empty in rows of schema 1
    layer: str = ""  # the first layer of the function that the workload computes
    flops: float | None = None  # at this shape; a product's multiplication and sum are two
    bytes: float | None = None  # that the kernel reads and writes at least
    baseline: str = ""  # the default: "matmul mr=6 nr=64 kc=128"
    graph_bytes: float | None = None  # of the constants of the whole function: how cold they are
    clone: str = ""  # the identity of the function in its bucket
    level: str = KERNEL  # or PLACE, or CLONE
    ratio_low: float | None = None  # of latency to the default's, round by round: the ends of the
    ratio_high: float | None = None  # interval that holds its median with 95 % certainty
    graph: str = ""  # of a verdict: what the function computes whatever its bounds
    bounds: str = ""  # of a verdict: those of the function's symbols, "N=1..32;S=1..512"
    dispatcher: str = ""  # what it decided: "N=1,2..3,4.."
    search: str = ""  # the strategy that proposed: "skopt", "random", "grid"
    seed: int | None = None  # of the search
    expected_ratio: float | None = None  # of latency to the default's, before it was measured
    expected_gain: float | None = None  # below the best so far, of its latency
    latency_q1_s: float | None = None  # quartiles
    latency_q3_s: float | None = None
    baseline_q1_s: float | None = None  # of the default in the same rounds
    baseline_q3_s: float | None = None
    load: float | None = None  # average of the last minute, where it was timed
    build: str = ""  # of the kernel: COMPILED for this trial, or CACHED
    packed_bytes: float | None = None  # of the constants as the kernel has them laid out
    rests_on: str = ""  # of a verdict: the rows that led to it, "1f00c0ffee00:3..5,9"
    replaces: str = ""  # of a verdict that stands: the rows of the one that stood before

    @property
    def environment(self) -> Environment:
        """Where and with what the trial was measured."""
        return Environment(**{f.name: getattr(self, f.name) for f in fields(Environment)})


COLUMNS = tuple(field.name for field in fields(Trial))
FIRST_ADDED = COLUMNS.index("template")
ADDED: Mapping[str, Any] = {field.name: field.default for field in fields(Trial)[FIRST_ADDED:]}
"""What columns hold that logs of an older version lack."""

WORDS: Mapping[str, tuple[str, ...]] = {
    "status": ("ok", "failed"),
    "source": get_args(Source),
    "error_kind": get_args(ErrorKind),
    "level": (KERNEL, PLACE, CLONE),
    "build": ("", COMPILED, CACHED),
}
"""What columns may hold that hold nothing else."""

CONFIRMING = ("clone", "level", "ratio_low", "ratio_high")
"""The columns that verdicts are read by."""


def schedule_json(schedule: Schedule) -> str:
    """The canonical text of a schedule."""
    return json.dumps(dict(schedule), sort_keys=True)


def schedule_hash(schedule: Schedule) -> str:
    """The identity of a schedule, whatever the order of its knobs."""
    return hashlib.sha256(schedule_json(schedule).encode()).hexdigest()[:16]


TYPES: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "float | None": optional_number,
    "int | None": optional_integer,
}
PARSERS = {field.name: TYPES[str(field.type)] for field in fields(Trial)}
