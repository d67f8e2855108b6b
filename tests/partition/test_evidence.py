"""Trials beside models: what was measured is believed, and clones run what it shows to be best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bucketize
from bucketize import zoo
from bucketize.ir import Module
from bucketize.kernel.cost import seconds, seconds_over
from bucketize.kernel.template import Implementation
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.workload import Workload
from bucketize.log.cell import shape_text
from bucketize.log.environment import here
from bucketize.log.log import LogWarning, append
from bucketize.log.outcome import Outcome
from bucketize.log.trial import KernelAt, Origin, Trial
from bucketize.lower.cost import default_of
from bucketize.machine.named import named
from bucketize.partition.evidence import Evidence
from bucketize.partition.expectation import expectation, workloads
from bucketize.partition.partition import partition
from bucketize.traffic.value import Traffic
from bucketize.types import Points, Symbol, evaluate

TARGET = named("x86-64-v4")


def mlp() -> Module:
    return bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})


def first() -> tuple[Workload, Implementation, Implementation]:
    """A workload, its default, and another implementation of it."""
    workload = next(iter(workloads(mlp(), "main", TARGET, 1)))
    default = default_of(workload, candidates(workload), TARGET).implementations[0]
    knobs = TEMPLATES[default.template].knobs(workload, TARGET)
    name, values = next((n, v) for n, v in knobs.items() if len(v) > 1)
    other = next(v for v in values if v != default.schedule[name])
    return workload, default, Implementation(default.template, {**default.schedule, name: other})


def trial(workload: Workload, one: Implementation, size: int, times: float) -> Trial:
    """One that took so many times what the model says."""
    modelled = seconds(workload, one, {"N": size}, TARGET)
    shapes = [[evaluate(d, {"N": size}) for d in p.type.shape] for p in workload.body.params]
    at = KernelAt(
        function="main", bucket="", clone="", dispatcher="", op="matmul", workload=workload.hash,
        layer="", shape=shape_text(tuple(map(tuple, shapes))), weight=1.0, flops=1.0, bytes=1.0,
        graph_bytes=0.0, baseline="",
    )  # fmt: skip
    outcome = Outcome(seconds=(modelled * times,) * 9)
    origin = Origin("mlp", 1, replace(here(), host_cpu=TARGET.name), "skopt", 0)
    row = Trial.of_kernel(origin, at, one, outcome, outcome, "skopt")
    return replace(row, trial=size, timestamp="2026-01-31T12:00:00+00:00")


def evidence(trials: Iterable[Trial]) -> Evidence:
    return Evidence.of(trials, TARGET, 1)


def test_between_sizes_that_were_measured_the_factor_is_interpolated() -> None:
    workload, default, other = first()
    its = evidence([trial(workload, default, 4, 1.0), trial(workload, default, 16, 4.0)])
    sizes = np.array([1.0, 4.0, 8.0, 16.0, 64.0])
    points = Points([{"N": int(n)} for n in sizes])
    taken = seconds_over(workload, [default, other], points, TARGET)
    ratio = its.corrected(workload, [default, other], sizes, taken) / taken
    assert ratio[:, 0] == pytest.approx([1, 1, 2, 4, 4])
    assert ratio[:, 1] == pytest.approx(ratio[:, 0])  # of what was not measured: as others


def test_trials_of_others_count_nothing() -> None:
    workload, default, _ = first()
    mine = trial(workload, default, 4, 2.0)
    sizes, taken = np.array([4.0]), np.ones((1, 1))
    others = [replace(mine, threads=2), replace(mine, host_cpu="z80"), replace(mine, level="clone")]
    for none in (*others, replace(mine, latency_median_s=None), replace(mine, workload="x")):
        assert evidence([none]).corrected(workload, [default], sizes, taken)[0, 0] == 1
    assert evidence([replace(mine, shape="3x3,3x3")]).implementations(workload) == []


def test_a_clone_runs_what_is_best_where_it_serves() -> None:
    workload, default, other = first()
    its = evidence(
        trial(workload, one, size, times)
        for one, times in ((default, (1.0, 3.0)), (other, (3.0, 1.0)))
        for size, times in zip((2, 60), times, strict=True)
    )
    calls, points = {workload: 1}, [{"N": 2}, {"N": 60}]
    boxes = [(Symbol("N", 1, 64),), (Symbol("N", 1, 8),), (Symbol("N", 9, 64),)]
    got = expectation(
        calls, boxes, points, np.array([1.0, 1.0]), target=TARGET, threads=1, evidence=its
    )
    kernels = [{got.every[k][1].key for k in numbers} for numbers in got.kernels]
    assert default.key in kernels[1]
    assert other.key in kernels[2]
    taken = seconds_over(workload, [default], Points(points), TARGET)
    assert got.seconds[1, 0] == pytest.approx(taken[0, 0])
    assert (got.least <= got.seconds.min(axis=0) * (1 + 1e-12)).all()


def test_buckets_begin_where_trials_say(tmp_path: Path) -> None:
    """The default is the slower the larger sizes are, another kernel the other way round."""
    path, sizes = tmp_path / "t.csv", [1, 2, 4, 8, 16, 32, 64]
    for workload in workloads(mlp(), "main", TARGET, 1):
        default = default_of(workload, candidates(workload), TARGET).implementations[0]
        knobs = TEMPLATES[default.template].knobs(workload, TARGET)
        pairs = [(n, v) for n, each in knobs.items() for v in each if v != default.schedule[n]]
        other = Implementation(default.template, {**default.schedule, **dict(pairs[:1])})
        for size in sizes:
            append(path, trial(workload, default, size, 1.0 if size < 16 else 9.0))
            append(path, trial(workload, other, size, 9.0 if size < 16 else 1.0))
    requests = Traffic(("N",), np.array(sizes)[:, None], np.ones(len(sizes), int))
    its = partition(mlp(), requests, log=path, target=TARGET.name)
    assert 16 in {bucket["N"][0] for bucket in its.chosen.buckets}
    assert its.saved > 0.1
    assert its.loss < its.frontier[0].seconds / its.oracle - 1


def test_a_log_that_says_nothing_is_told(tmp_path: Path) -> None:
    workload, default, _ = first()
    path = tmp_path / "t.csv"
    append(path, replace(trial(workload, default, 4, 1.0), host_cpu="z80"))
    with pytest.warns(LogWarning, match=r"none of its 1 rows times a kernel on .* with threads=1"):
        partition(mlp(), log=path, target=TARGET.name)
