"""Measuring a machine: what the probes find, and when the first compile does it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest

import bucketize
from bucketize import zoo
from bucketize.errors import BusyWarning, KernelError
from bucketize.inspect import calibrate as module
from bucketize.inspect.calibrate import calibrate, calibrated, least_hindered, memory_bytes
from bucketize.link.memory import address
from bucketize.machine import host as machine
from bucketize.machine.host import host, machine_of
from bucketize.machine.speed import TYPICAL, Speed
from bucketize.machine.target import cores


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few and short rounds, which show the same."""
    monkeypatch.setattr(module, "ROUNDS", 2)
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    monkeypatch.setattr(module, "PASSES", 1)
    monkeypatch.setattr(module, "CYCLES", 20_000)
    monkeypatch.setattr(module, "LOUD", 1e9)
    monkeypatch.setattr(module, "MOST_BYTES", 2 * module.PIECE)
    module._kept.cache_clear()
    yield
    host.cache_clear()


def test_probes_find_figures_that_a_machine_may_have() -> None:
    its = calibrate(host())
    assert its.machine == machine_of(host())
    assert its.cores == cores()
    for speed in (its.alone, its.beside):
        assert all(0 < value < 1e4 for value in asdict(speed).values())
        assert 0.2 < speed.ghz < 10
        assert speed.latency > 1 / speed.fma / 2  # one that waits is slower than many that do not
        assert [float(f"{v:.3g}") for v in asdict(speed).values()] == list(asdict(speed).values())


def test_a_core_by_itself_is_no_slower_than_one_beside_others() -> None:
    """A slow moment of the one is no moment of the other."""
    slow = replace(TYPICAL, loads=1.1, exp=13.3, l2=33.0, ghz=3.1)
    best = replace(TYPICAL, ghz=3.1)
    assert least_hindered(replace(slow, prefetch=0.7), TYPICAL) == replace(best, prefetch=0.7)
    assert least_hindered(slow, TYPICAL) == least_hindered(TYPICAL, slow) == best
    its = calibrate(host())
    assert its.alone == least_hindered(its.alone, its.beside)


@pytest.mark.parametrize("threads", [1, 3, 64])
def test_threads_read_no_memory_but_their_own(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """Whatever the caches are said to be: the second one here is larger than all that is read."""
    monkeypatch.setattr(module, "ROUNDS", 5)
    seen = []
    monkeypatch.setattr(module, "round_seconds", lambda _, __, blocks: seen.append(blocks) or 1.0)
    probes = module.Probes(replace(host(), l2=64 << 20, l3=0), threads)
    probes.speed()
    memory, total = address(probes._memory), probes._memory.nbytes
    assert total <= 2 * module.PIECE
    streams = [b for b in seen if memory <= b[0][1] < memory + total and len(b[0]) == 4]
    assert len(streams) == 6 * 5  # from each cache and from memory, and by two tiles
    for blocks in streams:
        ends = [(int(b[1]), int(b[1] + 4 * b[0])) for b in blocks]
        assert len(ends) == threads
        assert all(stop <= start for (_, stop), (start, _) in pairwise(ends))
        assert ends[-1][1] <= memory + total


def test_the_first_compile_measures_the_machine_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BUCKETIZE_CALIBRATE", "1")
    kept = {}
    for where in (module, machine):
        monkeypatch.setattr(where, "stored", kept.get)
    monkeypatch.setattr(module, "write", lambda its: kept.setdefault(its.machine, its))
    host.cache_clear()
    try:
        bucketize.compile(bucketize.from_onnx(zoo.build("mlp")), lazy=True)
        told = capsys.readouterr().err
        assert told.startswith("measured this machine in ")
        assert kept.keys() == {machine_of(host())}
        bucketize.compile(bucketize.from_onnx(zoo.build("mlp")), lazy=True)
        assert capsys.readouterr().err == ""
        assert calibrated().speed == kept[machine_of(host())].alone
        kept.clear()
        module._kept.cache_clear()
        host.cache_clear()
        monkeypatch.setenv("BUCKETIZE_CALIBRATE", "0")
        assert calibrated().speed == TYPICAL
        assert not kept
    finally:
        host.cache_clear()


def test_a_machine_that_cannot_be_measured_is_a_typical_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BUCKETIZE_CALIBRATE", "1")
    for where in (module, machine):
        monkeypatch.setattr(where, "stored", lambda machine: None)
    host.cache_clear()

    def full(its: object) -> None:
        raise KernelError("no space")

    monkeypatch.setattr(module, "write", full)
    with caplog.at_level(logging.WARNING, "bucketize"):
        assert calibrated().speed == calibrated().speed == TYPICAL
    assert len(caplog.records) == 1
    assert "not measured, and taken for a typical one: no space" in caplog.text


def test_noise_is_tried_again_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.default_rng(0)
    rounds = []

    def noisy(*_: object) -> float:
        rounds.append(float(dice.exponential()) + 1e-3)
        return rounds[-1]

    monkeypatch.setattr(module, "round_seconds", noisy)
    monkeypatch.setattr(module, "AGAIN_S", 0.5)
    monkeypatch.setattr(module, "LOUD", 0.5)
    with pytest.warns(BusyWarning, match="half of the rounds of a probe took up to"):
        calibrate(host())
    probes = 9 * len({1, cores()})
    assert len(rounds) > 2 * probes  # of two rounds each, were none tried again


def test_a_slow_pass_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each probe has the best of all its rounds, be they of the first pass or of the second."""
    taken = count()
    probes = 9 * 2  # rounds of a pass

    def seconds(*_: object) -> float:
        return 3e-3 if next(taken) < probes else 1e-3

    monkeypatch.setattr(module, "PASSES", 2)
    monkeypatch.setattr(module, "round_seconds", seconds)
    slow_first = module.Probes(host(), 1).speed()
    monkeypatch.setattr(module, "round_seconds", lambda *_: 1e-3)
    assert module.Probes(host(), 1).speed() == slow_first


def test_a_quiet_probe_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = []
    monkeypatch.setattr(module, "round_seconds", lambda *_: rounds.append(1e-3) or 1e-3)
    monkeypatch.setattr(module, "AGAIN_S", 9.0)
    assert calibrate(replace(host(), l2=1 << 20, l3=32 << 20)).spread == 0
    probes = len(fields(Speed)) + 6  # prefetches are of two, a share of the last cache of six
    assert len(rounds) == 2 * probes * len({1, cores()})


@pytest.mark.parametrize("mib", [2, 6, 9, 14])
def test_what_the_last_cache_holds_is_found(monkeypatch: pytest.MonkeyPatch, mib: int) -> None:
    """By a machine whose last cache holds so many bytes of what is read again and again."""
    monkeypatch.setattr(module, "MOST_BYTES", 64 << 20)
    its = replace(host(), l2=512 << 10, l3=32 << 20)
    probes = module.Probes(its, 1)

    def seconds(_: object, __: object, blocks: Sequence[np.ndarray]) -> float:
        ((floats, start, times, *_),) = blocks
        near = min(mib << 20, 4 * floats) if times > 1 or start == read[-1] else 0
        read.append(start)
        return float(times * (near / 60e9 + (4 * floats - near) / 15e9))

    read = [0]
    monkeypatch.setattr(module, "round_seconds", seconds)
    probes._usual(module.PIECE)
    probes._usual(module.PIECE, probes._pieces)
    assert len(probes._rounds) == 2  # a piece again and again is no round of memory's
    assert probes._held() == pytest.approx(mib << 20, rel=0.15)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_the_last_cache_kept_is_not_taken_for_memory(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """Though it be a whole piece, read fast in every round; nor are prefetches judged by that."""
    monkeypatch.setattr(module, "MOST_BYTES", 512 << 20)
    monkeypatch.setattr(module, "FREE_SHARE", 1)
    probes = module.Probes(replace(host(), l2=1 << 20, l3=32 << 20), threads)
    kept = address(probes._memory)

    def seconds(_: object, __: object, blocks: Sequence[np.ndarray]) -> float:
        floats, start, times, *_ = blocks[0]
        return float(4 * floats * times / (90e9 if start == kept else 30e9))

    monkeypatch.setattr(module, "round_seconds", seconds)
    assert probes._streamed(probes._piece, probes._pieces) == pytest.approx(30e9)
    assert probes._tiled(prefetches=0) == pytest.approx(30e9)
    assert probes._streamed(probes._piece) == pytest.approx(90e9)


def test_memory_is_taken_where_it_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 512 << 20)
    large = replace(host(), l2=1 << 20, l3=1 << 30)
    monkeypatch.setattr(module, "MEMORY", tmp_path / "MEMORY")
    monkeypatch.setattr(module, "spare_memory", lambda: left)
    left: int | None = None
    assert memory_bytes(large) == 512 << 20  # where the system does not tell
    (tmp_path / "MEMORY").write_text("MemTotal:  9999 kB\nMemAvailable:  2097152 kB\n")
    assert memory_bytes(large) == 256 << 20
    left = 1 << 30
    assert memory_bytes(large) == 128 << 20
    assert memory_bytes(replace(large, l3=30 << 20)) == 120 << 20
    left = 0
    assert memory_bytes(large) == module.LEAST_BYTES
