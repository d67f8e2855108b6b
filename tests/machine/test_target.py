"""The machine that kernels are made for, and how BUCKETIZE_TARGET makes it another one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import bucketize
from bucketize import zoo
from bucketize.errors import ProgramError, UnknownNameError
from bucketize.kernel.object import machine
from bucketize.machine.target import (
    VARIABLE,
    VECTORS,
    Processor,
    Target,
    cache_sizes,
    described,
    host,
    processor,
    target_of,
)

ROOT = Path(__file__).parents[2]
FEATURES = llvm.get_host_cpu_features()
HAS = [name for name in VECTORS if FEATURES.get(name)]
NARROWER = HAS[HAS.index(processor().vectors) + 1 :] if HAS else []


def test_the_host_is_described() -> None:
    target = host()
    assert isinstance(target, Target)
    assert target.lanes in (4, 8, 16)
    assert target.registers in (16, 32)
    assert 0 < target.l1 < target.l2
    assert len(target.features) == 16


@pytest.mark.parametrize(
    ("features", "lanes", "registers"),
    [
        ({"avx512f": True, "avx2": True}, 16, 32),
        ({"avx512f": False, "avx2": True, "sse2": True}, 8, 16),
        ({"neon": True}, 4, 32),
        ({}, 4, 16),
    ],
)
def test_the_widest_vectors_are_taken(
    features: dict[str, bool], lanes: int, registers: int
) -> None:
    target = target_of(described("z80", features))
    assert (target.name, target.lanes, target.registers) == ("z80", lanes, registers)


def test_caches_are_read_by_level(tmp_path: Path) -> None:
    told = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M")]
    for i, (level, kind, size) in enumerate(told):
        index = tmp_path / f"index{i}"
        index.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (index / name).write_text(text + "\n")
    assert cache_sizes(tmp_path) == {1: 48 << 10, 2: 2 << 20, 3: 0}


def test_caches_that_are_not_told_are_taken_to_be_small(tmp_path: Path) -> None:
    assert cache_sizes(tmp_path) == {1: 32 << 10, 2: 256 << 10, 3: 2 << 20}


# --- restricted ------------------------------------------------------------------------------

WIDE = {"avx512f": True, "avx2": True, "fma": True, "sse2": True, "neon": False}


def test_a_restricted_processor_is_another_one_without_what_is_wider() -> None:
    whole, less = described("zen9", WIDE), described("zen9", WIDE, "avx2")
    told = "+avx2,+avx512f,+fma,-neon,+sse2"
    assert whole == Processor("zen9", told, "avx512f", is_restricted=False)
    assert less == Processor("zen9", f"{told},-avx512f", "avx2", is_restricted=True)
    assert described("zen9", WIDE, "sse2").features == f"{told},-avx512f,-avx2"
    targets = target_of(whole), target_of(less)
    assert [t.name for t in targets] == ["zen9", "zen9:avx2"]
    assert [(t.lanes, t.registers) for t in targets] == [(16, 32), (8, 16)]
    assert targets[0].features != targets[1].features


def test_restricting_to_the_widest_vectors_changes_nothing() -> None:
    assert described("zen9", WIDE, "avx512f") == described("zen9", WIDE)


@pytest.mark.parametrize(
    ("most", "features", "message"),
    [
        (
            "avx512",
            WIDE,
            "no BUCKETIZE_TARGET of this zen9 named 'avx512'; known: avx2, avx512f, sse2; "
            "did you mean 'avx512f'?",
        ),
        ("neon", WIDE, "no BUCKETIZE_TARGET of this zen9 named 'neon'; known: avx2, avx512f, sse2"),
        ("avx2", {}, "no BUCKETIZE_TARGET of this zen9 named 'avx2'; known: none"),
    ],
)
def test_vectors_that_the_machine_lacks_are_refused(
    most: str, features: dict[str, bool], message: str
) -> None:
    with pytest.raises(UnknownNameError) as caught:
        described("zen9", features, most)
    assert str(caught.value) == message


SIXTEEN = """
define void @f(ptr %p, ptr %q) {
  %a = load <16 x float>, ptr %p, align 4
  %b = load <16 x float>, ptr %q, align 4
  %r = call <16 x float> @llvm.roundeven.v16f32(<16 x float> %b)
  %c = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %a, <16 x float> %r, <16 x float> %b)
  store <16 x float> %c, ptr %p, align 4
  ret void
}
declare <16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare <16 x float> @llvm.roundeven.v16f32(<16 x float>)
"""
BEYOND = {"avx2": "zmm|%k[0-7]", "avx": "zmm", "sse2": "zmm|ymm|vfmadd|call"}


@pytest.mark.parametrize("name", HAS)
def test_machine_code_has_no_wider_vectors(name: str) -> None:
    """Nor calls of functions in place of what is gone."""
    its = described(llvm.get_host_cpu_name(), FEATURES, name)
    code = machine(its).emit_assembly(llvm.parse_assembly(SIXTEEN))
    assert not re.search(BEYOND.get(name, "call"), code)


SCRIPT = """
import re, sys
import numpy as np
import bucketize
from bucketize import zoo
from bucketize.machine.target import host
sys.path[:0] = ["tests", "tests/kernel"]
import test_kernel_build
space = {"__name__": "k"}
exec(test_kernel_build.source(1), space)
exe = bucketize.compile(bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 4)}))
np.save(sys.argv[1] + "/y.npy", *exe.run(np.ones((3, 784), np.float32)))
exe.save(sys.argv[1] + "/m.bkt")
widest = max(map(int, re.findall(r"<(\\d+) x float>", space["kernel"][0])))
print(host().name, host().lanes, widest <= host().lanes)
"""


def run(most: str, *command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])))
    environment = {**os.environ, VARIABLE: most, "PYTHONPATH": path}
    command = (sys.executable, "-P", *command)
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, cwd=ROOT
    )


@pytest.mark.parametrize("name", NARROWER)
def test_a_restricted_process_compiles_for_its_vectors_alone(name: str, tmp_path: Path) -> None:
    done = run(name, "-c", SCRIPT, str(tmp_path))
    lanes, _ = VECTORS[name]
    cpu = processor().cpu
    assert done.stdout.splitlines() == [f"{cpu}:{name} {lanes} True"], done.stderr
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 4)})
    want = bucketize.compile(mod).run(np.ones((3, 784), np.float32))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want[0], rtol=1e-4, atol=1e-6)
    there = f"was compiled for {cpu}:{name}, another processor than this {host().name}"
    with pytest.raises(ProgramError, match=there):
        bucketize.load(tmp_path / "m.bkt")


def test_the_command_line_tells_which_vectors_there_are() -> None:
    done = run("pdp11", "-m", "bucketize.cli", "compile", "zoo:mlp")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: no {VARIABLE} of this {processor().cpu} named")
