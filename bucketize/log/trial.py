"""A trial: one measured schedule, one row of a tuning log. Its fields are the log's columns."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from bucketize.kernel.schedule import Implementation
from bucketize.log.cell import optional_integer, optional_number
from bucketize.log.environment import Environment
from bucketize.log.outcome import CACHED, COMPILED, ErrorKind, Outcome

SCHEMA_VERSION = 4  # 2 added `template`, 3 writes both ends of buckets, 4 how a trial came about

Schedule = Mapping[str, int | str]
Source = Literal["default", "random", "grid", "model", "skopt", "transfer", "confirm", "replay"]
KERNEL, PLACE, CLONE = "kernel", "place", "clone"
"""Where a latency was taken: of a kernel by itself, of one between its neighbours in a clone, of a
clone as a whole. Of the last, op is CLONE, too, and the schedule names implementations."""


@dataclass(frozen=True)
class Origin:
    """A session: what all of its rows have in common."""

    model: str
    threads: int
    environment: Environment
    search: str
    seed: int
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of a row that no log has yet, which gives it a number and a time."""
        more = {name: value for name, value in vars(self).items() if name != "environment"}
        return {**vars(self.environment), **more, "trial": -1, "timestamp": ""}


@dataclass(frozen=True, kw_only=True, eq=False)
class Owner:
    """The function that is tuned for one bucket of sizes, as columns have it."""

    function: str
    bucket: str
    clone: str
    """Its identity in its bucket."""
    dispatcher: str
    """The decision for its module."""

    @property
    def names(self) -> dict[str, str]:
        """The columns by their names."""
        return {of.name: getattr(self, of.name) for of in fields(Owner)}


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelAt(Owner):
    """A workload of a function where it is judged; the fields are columns."""

    op: str
    workload: str
    layer: str
    shape: str
    weight: float
    flops: float | None
    bytes: float | None
    graph_bytes: float
    baseline: str
    level: str = KERNEL


@dataclass(frozen=True, kw_only=True, eq=False)
class CloneAt(Owner):
    """A function as a whole where it is judged; the fields are columns."""

    graph: str
    bounds: str
    shape: str
    weight: float


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
    graph_bytes: float | None = None  # of the constants that pass by in a call: how cold they are
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
    speed: str = ""  # of a core, as it was measured: "ghz=2.98 fma=1.82 ..."
    left_s: float | None = None  # until the session's time was up, when the row was written

    @classmethod
    def of_kernel(
        cls,
        origin: Origin,
        kernel: KernelAt,
        implementation: Implementation,
        outcome: Outcome,
        default: Outcome,
        source: Source,
    ) -> Trial:
        """A row about an implementation of a workload, and about the default beside it."""
        return cls(
            **origin.columns,
            **vars(kernel),
            **outcome.beside(default),
            template=implementation.template,
            schedule=schedule_json(implementation.schedule),
            schedule_hash=schedule_hash(implementation.schedule),
            source=source,
        )

    @classmethod
    def of_clone(
        cls,
        origin: Origin,
        clone: CloneAt,
        implementations: Mapping[str, str],
        outcome: Outcome,
        default: Outcome,
        rests_on: str,
    ) -> Trial:
        """A row about a clone under a configuration, and about its defaults beside it."""
        return cls(
            **origin.columns,
            **vars(clone),
            **outcome.beside(default),
            op=CLONE,
            workload=clone.clone,
            level=CLONE,
            schedule=schedule_json(implementations),
            schedule_hash=schedule_hash(implementations),
            source="confirm",
            rests_on=rests_on,
        )


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
