"""Calibrations: what is kept of a machine's speed, how it is read, and what reads it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from bucketize.errors import KernelError
from bucketize.kernel.gemm.cost import modelled
from bucketize.kernel.gemm.schedule import schedules
from bucketize.kernel.loops.cost import FITTED, seconds_each
from bucketize.kernel.product import Product
from bucketize.machine import calibration
from bucketize.machine.calibration import (
    Calibration,
    calibration_path,
    machine_name,
    read,
    stored,
    write,
)
from bucketize.machine.host import host, machine_of
from bucketize.machine.speed import TYPICAL, Speed
from bucketize.save.read import _target as restored

FAST = replace(TYPICAL, ghz=5.0, l3=30.0)
MINE = Calibration("a machine, 2 cores", FAST, replace(FAST, l3=15.0), "AMD", 2, 0.05, "2026-01-01")


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A cache of its own, where calibrations are looked at."""
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path))
    monkeypatch.setenv("BUCKETIZE_CALIBRATE", "1")
    host.cache_clear()
    yield tmp_path
    host.cache_clear()


def test_what_is_written_is_read(mine: Path) -> None:
    assert stored(MINE.machine) is None
    path = write(MINE)
    assert stored(MINE.machine) == MINE
    assert path == calibration_path(MINE.machine)
    assert [p.name for p in mine.iterdir()] == [path.name]  # no temporary file is left


def test_another_machine_has_another_file(mine: Path) -> None:
    write(MINE)
    assert stored("a machine, 4 cores") is None


DAMAGED: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "Expecting"),
    "no object": ("[]", "no calibration of this version"),
    "another version's": (json.dumps({**asdict(MINE), "more": 1}), "of this version"),
    "a family that is none": (
        json.dumps({**asdict(MINE), "family": "z80"}),
        "family is 'z80', not of Intel, AMD",
    ),
    "noise that is none": (json.dumps({**asdict(MINE), "spread": None}), "spread is None"),
    "a time that is none": (json.dumps({**asdict(MINE), "when": 5}), "when is 5"),
    "a figure is missing": (
        json.dumps({**asdict(MINE), "alone": {"ghz": 3.0}}),
        "a speed has ghz, fma",
    ),
    "a figure is a word": (
        json.dumps({**asdict(MINE), "alone": {**asdict(FAST), "ghz": "fast"}}),
        "ghz is 'fast'",
    ),
    "a figure is 0": (
        json.dumps({**asdict(MINE), "beside": {**asdict(FAST), "l2": 0.0}}),
        r"l2 is 0\.0",
    ),
    "a figure is infinite": (
        json.dumps({**asdict(MINE), "beside": {**asdict(FAST), "l2": float("inf")}}),
        "l2 is inf",
    ),
    "a figure is true": (
        json.dumps({**asdict(MINE), "beside": {**asdict(FAST), "l2": True}}),
        "l2 is True",
    ),
}


def test_a_file_of_nothing_but_brackets_is_not_used(
    mine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(MINE).write_text("[" * 100_000)
    with caplog.at_level(logging.WARNING, "bucketize"):
        assert stored(MINE.machine) is None
    assert "is not used: maximum recursion depth" in caplog.text


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_told_and_not_used(
    mine: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    text, told = DAMAGED[what]
    path = write(MINE)
    path.write_text(text)
    with pytest.raises(ValueError, match=told):
        read(text)
    with caplog.at_level(logging.WARNING, "bucketize"):
        assert stored(MINE.machine) is None
    assert f"{path} is not used" in caplog.text


def test_a_cache_that_cannot_be_written_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path / "file"))
    with pytest.raises(KernelError, match=r"cannot keep a calibration in .*file"):
        write(MINE)


def test_a_machine_is_named_by_what_the_system_tells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: Some CPU\nmodel name: Other\n")
    (tmp_path / "sys_vendor").write_text("A cloud\n")
    monkeypatch.setattr(calibration, "PROCESSORS", tmp_path / "cpuinfo")
    monkeypatch.setattr(calibration, "BOARD", tmp_path)
    named = machine_name("znver5:avx2", (1 << 15, 1 << 20, 0), 4)
    assert named == "Some CPU, A cloud, 4 cores, caches of 32/1024/0 KiB, znver5:avx2"
    monkeypatch.setattr(calibration, "PROCESSORS", tmp_path / "none")
    monkeypatch.setattr(calibration.platform, "processor", lambda: "")
    assert machine_name("arm", (1, 1, 1), 1).startswith("A cloud, 1 cores")


def test_the_host_is_as_fast_as_it_was_measured(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert host().speed == TYPICAL
    write(replace(MINE, machine=machine_of(host())))
    assert host().speed == TYPICAL  # as it was known to this process
    host.cache_clear()
    its = host()
    assert (its.speed, its.beside, its.family) == (MINE.alone, MINE.beside, MINE.family)
    host.cache_clear()
    monkeypatch.setenv("BUCKETIZE_CALIBRATE", "0")
    assert host().speed == TYPICAL


def test_a_saved_target_has_its_speeds() -> None:
    its = replace(host(), speed=FAST)
    facts = json.loads(json.dumps(asdict(its)))
    assert restored(facts) == its
    older = {n: v for n, v in facts.items() if n not in ("speed", "beside")}
    assert restored({**older, "later": 1}).speed == TYPICAL
    with pytest.raises(ValueError, match="ghz is -1"):
        restored({**facts, "speed": {**asdict(FAST), "ghz": -1}})


@pytest.mark.parametrize("figure", [f.name for f in fields(Speed) if f.name != "prefetch"])
def test_a_faster_machine_is_expected_to_take_less_for_something_and_more_for_nothing(
    figure: str,
) -> None:
    slow = replace(host(), lanes=16, registers=32, l1=48 << 10, l2=2 << 20, l3=32 << 20)
    factor = 0.5 if figure in ("latency", "exp", "root") else 2.0
    better = replace(TYPICAL, **{figure: getattr(TYPICAL, figure) * factor})
    able, constants = schedules(slow, True), FITTED["Intel"]
    products = [
        Product((rows,), columns, depth, cold_bytes=cold)
        for rows, columns, depth in ((1, 512, 512), (2, 64, 64), (256, 512, 512), (256, 64, 9000))
        for cold in (0, 8 << 20, 1 << 30)
    ]
    each = [seconds_each(constants, its) for its in (better, TYPICAL)]
    ratios = [fast_s / each[1][kind] for kind, fast_s in each[0].items()]
    for product in products:
        taken = [modelled(product, able, its) for its in (replace(slow, speed=better), slow)]
        ratios += (taken[0] / taken[1]).ravel().tolist()
    assert min(ratios) < 0.99
    assert max(ratios) < 1 + 1e-9


@pytest.mark.parametrize("family", FITTED)
def test_a_step_of_a_product_is_expected_to_take_no_less_than_the_machine_does(family: str) -> None:
    for fma in (0.5, 1.0, 2.0):
        each = seconds_each(FITTED[family], replace(TYPICAL, ghz=1.0, fma=fma))
        assert each["multiply"] >= 1e-9 / fma


def test_a_speed_is_text_of_its_figures() -> None:
    assert str(TYPICAL).startswith("ghz=2.98 fma=1.82 loads=1.65 ")
    assert host().speed == TYPICAL  # tests decide as a typical machine does
