"""Trials beside models: what was measured is believed, and clones run what it shows to be best."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketize
from bucketize import zoo
from bucketize.ir import Module
from bucketize.kernel.cost import seconds, seconds_over
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.workload import Workload
from bucketize.log.cell import encoded, shape_text
from bucketize.log.environment import here
from bucketize.log.log import LogWarning, append
from bucketize.log.outcome import Outcome
from bucketize.log.trial import COLUMNS, KernelAt, Origin, Trial
from bucketize.lower.cost import default_of
from bucketize.machine.host import host
from bucketize.machine.named import named
from bucketize.machine.speed import Floats
from bucketize.partition.evidence import Evidence, _denoised
from bucketize.partition.expectation import expectation, routine_of, workloads
from bucketize.partition.partition import partition
from bucketize.traffic.value import Traffic
from bucketize.tune.surrogate import NOISE
from bucketize.types import Points, Symbol, evaluate

TARGET = named("x86-64-v4")


@cache
def mlp() -> Module:
    return bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})


@cache
def first() -> tuple[Workload, Implementation, Implementation]:
    """A workload, its default, and another implementation of it."""
    workload = next(iter(workloads(routine_of(mlp(), "main", TARGET, 1), TARGET)))
    default = default_of(workload, candidates(workload), TARGET).implementations[0]
    knobs = TEMPLATES[default.template].knobs(workload, TARGET)
    name, values = next((n, v) for n, v in knobs.items() if len(v) > 1)
    other = next(v for v in values if v != default.schedule[name])
    return workload, default, Implementation(default.template, {**default.schedule, name: other})


def trial(
    workload: Workload,
    one: Implementation,
    size: int,
    times: float,
    default: Implementation | None = None,
    default_times: float = 1.0,
) -> Trial:
    """One that took so many times what the model says, as the default beside it did."""
    default = default or one
    took, beside = (
        Outcome(seconds=(seconds(workload, i, {"N": size}, TARGET) * factor,) * 9)
        for i, factor in ((one, times), (default, times if default is one else default_times))
    )
    shapes = [[evaluate(d, {"N": size}) for d in p.type.shape] for p in workload.body.params]
    at = KernelAt(
        function="main", bucket="", clone="", dispatcher="", op="matmul", workload=workload.hash,
        layer="", shape=shape_text(tuple(map(tuple, shapes))), weight=1.0, flops=1.0, bytes=1.0,
        graph_bytes=0.0, baseline=str(default),
    )  # fmt: skip
    origin = Origin("mlp", 1, replace(here(), host_cpu=TARGET.name), "skopt", 0)
    row = Trial.of_kernel(origin, at, one, took, beside, "skopt")
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
    lacking = [replace(mine, latency_median_s=None), replace(mine, baseline_s=None)]
    named = [replace(mine, baseline=text) for text in ("", "matmul mr=0", "none mr=4")]
    for none in (*others, *lacking, *named, replace(mine, workload="x")):
        assert evidence([none]).corrected(workload, [default], sizes, taken)[0, 0] == 1
    assert evidence([replace(mine, shape="3x3,3x3")]).implementations(workload) == []


def test_a_clone_runs_what_is_best_where_it_serves() -> None:
    workload, default, other = first()
    its = evidence(
        trial(workload, one, size, times, default, beside)
        for one, each in ((default, (1.0, 3.0)), (other, (3.0, 1.0)))
        for size, times, beside in zip((2, 60), each, (1.0, 3.0), strict=True)
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
    assert got.seconds[1, 0] == pytest.approx(taken[0, 0], rel=0.05)
    assert (got.least <= got.seconds.min(axis=0) * (1 + 1e-12)).all()


def test_buckets_begin_where_trials_say(tmp_path: Path) -> None:
    """The default is the slower the larger sizes are, another kernel the other way round."""
    path, sizes = tmp_path / "t.csv", [1, 2, 4, 8, 16, 32, 64]
    for workload in workloads(routine_of(mlp(), "main", TARGET, 1), TARGET):
        default = default_of(workload, candidates(workload), TARGET).implementations[0]
        knobs = TEMPLATES[default.template].knobs(workload, TARGET)
        pairs = [(n, v) for n, each in knobs.items() for v in each if v != default.schedule[n]]
        other = Implementation(default.template, {**default.schedule, **dict(pairs[:1])})
        for size in sizes:
            slow = 1.0 if size < 16 else 9.0
            append(path, trial(workload, default, size, slow))
            append(path, trial(workload, other, size, 9.0 / slow, default, slow))
    requests = Traffic(("N",), np.array(sizes)[:, None], np.ones(len(sizes), int))
    its = partition(mlp(), requests, log=path, target=TARGET.name)
    assert 16 in {bucket["N"][0] for bucket in its.chosen.buckets}
    assert its.saved > 0.1
    assert its.loss < its.frontier[0].seconds / its.oracle - 1


def test_a_busy_hour_is_no_difference_between_kernels() -> None:
    """A job that all took longer in tells what it would have told."""
    workload, default, other = first()
    quiet = [trial(workload, i, 4, 1.0, default) for i in (default, other)]
    busy = [replace(quiet[0]), trial(workload, other, 4, 1.5, default, 1.5)]
    sizes, taken = np.array([4.0]), np.ones((1, 2))
    same = evidence(quiet).corrected(workload, [default, other], sizes, taken)
    assert evidence(busy).corrected(workload, [default, other], sizes, taken) == pytest.approx(same)


def test_how_cold_weights_were_is_part_of_what_was_measured() -> None:
    """Measured where others were warm and where all were cold, as models have it both times."""
    workload, default, other = first()
    warm, cold = (
        [seconds(workload, i, {"N": 4}, TARGET, its) for i in (other, default)]
        for its in (0, 1_000_000_000)
    )
    times = [c / w for c, w in zip(cold, warm, strict=True)]
    trials = [
        trial(workload, other, 4, 1.0, default),
        replace(trial(workload, other, 4, times[0], default, times[1]), graph_bytes=1e9),
    ]
    sizes, taken = np.array([4.0]), np.ones((1, 2))
    got = evidence(trials).corrected(workload, [default, other], sizes, taken)
    assert got == pytest.approx(taken)


def _local(logs: Floats) -> Floats:
    """What is of a size alone."""
    return np.asarray(logs - logs.mean(axis=0))


@pytest.mark.parametrize("seed", range(9))
def test_the_least_of_what_is_noisy_is_no_less_than_the_truth(seed: int) -> None:
    random = np.random.default_rng(seed)
    noise, apart = random.normal(0, NOISE, (6, 16)), np.zeros((6, 16))
    assert _local(noise).min(axis=1).mean() < -0.05
    assert _local(_denoised(noise)).min(axis=1).mean() > -0.01
    apart[:3, ::2] = apart[3:, 1::2] = 0.1
    assert 0.02 < _local(_denoised(apart + noise))[apart > 0].mean() < 0.05  # 0.05 is the truth
    noise[random.random((6, 16)) < 0.3] = np.nan
    assert np.isfinite(_denoised(noise)).all()


@pytest.mark.parametrize("varies", [0.0, 0.05, 0.15])
def test_a_default_that_is_wrong_by_size_is_no_difference_between_others(varies: float) -> None:
    random, below = np.random.default_rng(0), []
    for _ in range(50):
        shared = random.normal(0, varies, (6, 1))
        noise = random.normal(0, NOISE, (6, 11))
        below.append((_denoised(shared + noise) - shared).min(axis=1).mean())
    assert -0.03 < np.mean(below) < 0  # of noise alone -0.063


@pytest.mark.parametrize("sizes", [(4,), (4, 16, 64)])
def test_the_default_is_what_it_was_measured(sizes: tuple[int, ...]) -> None:
    """It is no noisy trial beside itself, however far from it all others are."""
    workload, default, _ = first()
    others = [i for i in some_kernels(workload, 32) if i.key != default.key]
    its = evidence(trial(workload, i, n, 1.5, default) for n in sizes for i in others)
    taken = np.ones((len(sizes), 1 + len(others)))
    got = its.corrected(workload, [default, *others], np.array(sizes, float), taken)
    assert got[:, 0] == pytest.approx(1)
    assert got[:, 1:] == pytest.approx(1.5)


SIZES = (32, 36, 40, 52, 58, 64)
"""Models rank kernels about the same way at all of them."""


@cache
def some_kernels(workload: Workload, size: int) -> list[Implementation]:
    """Those of the default's template that are the best by their model."""
    template = TEMPLATES[first()[1].template]
    knobs = template.knobs(workload, TARGET)
    each = (dict(zip(knobs, v, strict=True)) for v in itertools.product(*knobs.values()))
    legal = [
        Implementation(template.name, s) for s in each if not template.valid(workload, s, TARGET)
    ]
    return sorted(legal, key=lambda i: seconds(workload, i, {"N": size}, TARGET))[:12]


def simulated(path: Path, *, apart: float) -> Path:
    """A log of trials with the noise of machines.

    Long blocks are slower by `apart` than models say at small sizes, short ones at large sizes.
    """
    random = np.random.default_rng(0)
    text = [encoded(COLUMNS)]
    for workload, size in itertools.product(
        workloads(routine_of(mlp(), "main", TARGET, 1), TARGET), SIZES
    ):
        tried = some_kernels(workload, size)
        default = default_of(workload, candidates(workload), TARGET).implementations[0]

        def times(one: Implementation, size: int = size) -> float:
            slow = (one.schedule["kc"] in (0, 512)) == (size < 46)
            return float(np.exp(slow * apart + random.normal(0, NOISE)))

        beside = times(default)
        for one in tried:
            row = trial(workload, one, size, times(one), default, beside)
            text.append(encoded(getattr(row, name) for name in COLUMNS))
    path.write_bytes(b"".join(text))
    return path


def test_noise_makes_no_clones_and_differences_do(tmp_path: Path) -> None:
    clones, sizes = [], np.array(SIZES)[:, None]
    requests = Traffic(("N",), sizes, np.ones(len(SIZES), int))
    for apart in (0.0, 0.1):
        log = simulated(tmp_path / "t.csv", apart=apart)
        its = partition(mlp(), requests, log=log, target=TARGET.name, budget=2)
        clones.append(its.chosen.clones)
    assert clones == [1, 2]


def test_a_log_that_says_nothing_is_told(tmp_path: Path) -> None:
    workload, default, _ = first()
    path = tmp_path / "t.csv"
    append(path, replace(trial(workload, default, 4, 1.0), threads=2))
    with pytest.warns(LogWarning, match=r"none of its 1 rows times a kernel on .* with threads=1"):
        partition(mlp(), log=path, target=TARGET.name)


@pytest.mark.parametrize(
    ("target", "changes", "reason"),
    [
        (TARGET.name, {"host_cpu": "z80"}, "host_cpu z80"),
        (TARGET.name, {"numba_version": "0.1"}, "numba_version 0.1"),
        (None, {"bucketize_version": "0.0.1"}, "bucketize_version 0.0.1"),
        (None, {"target_features": "dead"}, "target_features dead"),
        (None, {"host_cores": 1024}, "host_cores 1024"),
    ],
)
def test_rows_of_other_machines_and_versions_are_told_and_left_out(
    tmp_path: Path, target: str | None, changes: dict[str, Any], reason: str
) -> None:
    workload, default, _ = first()
    mine = replace(trial(workload, default, 4, 1.0), host_cpu=target or host().name)
    path = tmp_path / "t.csv"
    for row in (mine, replace(mine, **changes)):
        append(path, row)
    with pytest.warns(LogWarning) as told:
        partition(mlp(), log=path, target=target)
    (warning,) = told
    skipped = "skipped 1 of 2 trials measured elsewhere: 1 with "
    assert str(warning.message).startswith(skipped + reason)


def test_a_named_target_may_be_another_machine(tmp_path: Path) -> None:
    workload, default, _ = first()
    path = tmp_path / "t.csv"
    append(path, replace(trial(workload, default, 4, 1.0), host_cores=1024, target_features="x"))
    partition(mlp(), log=path, target=TARGET.name)
