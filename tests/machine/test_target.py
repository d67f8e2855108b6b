"""The machine that kernels are made for, and how BUCKETIZE_TARGET makes it another one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import bucketize
from bucketize import zoo
from bucketize.errors import ProgramError, UnknownNameError
from bucketize.kernel.codegen import machine
from bucketize.machine.host import host, processor
from bucketize.machine.named import KNOWN, X86_LINUX, named
from bucketize.machine.present import (
    ARM,
    TOLD,
    UNTOLD,
    flags,
    mac_arm,
    mac_x86,
    present,
    system,
    system_of,
)
from bucketize.machine.target import (
    VARIABLE,
    VECTORS,
    Processor,
    Target,
    cache_sizes,
    described,
    target_of,
)

ROOT = Path(__file__).parents[2]
TRIPLE = llvm.get_process_triple()
FEATURES = llvm.get_host_cpu_features()
HAS = [name for name in VECTORS if FEATURES.get(name)]
NARROWER = HAS[HAS.index(processor().vectors) + 1 :] if HAS else []


def test_the_host_is_described() -> None:
    target = host()
    assert isinstance(target, Target)
    assert target.lanes in (4, 8, 16)
    assert target.registers in (16, 32)
    assert 0 < target.l1 < target.l2
    assert len(target.processor.digest) == 16


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
    target = target_of(described(TRIPLE, "z80", features))
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
    whole, less = described(TRIPLE, "zen9", WIDE), described(TRIPLE, "zen9", WIDE, "avx2")
    told = "+avx2,+avx512f,+fma,-neon,+sse2"
    assert whole == Processor(TRIPLE, "zen9", told, "avx512f", is_restricted=False)
    assert less == Processor(TRIPLE, "zen9", f"{told},-avx512f", "avx2", is_restricted=True)
    assert described(TRIPLE, "zen9", WIDE, "sse2").features == f"{told},-avx512f,-avx2"
    targets = target_of(whole), target_of(less)
    assert [t.name for t in targets] == ["zen9", "zen9:avx2"]
    assert [(t.lanes, t.registers) for t in targets] == [(16, 32), (8, 16)]
    assert targets[0].processor.digest != targets[1].processor.digest


def test_restricting_to_the_widest_vectors_changes_nothing() -> None:
    assert described(TRIPLE, "zen9", WIDE, "avx512f") == described(TRIPLE, "zen9", WIDE)


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
        described(TRIPLE, "zen9", features, most)
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
    its = described(TRIPLE, llvm.get_host_cpu_name(), FEATURES, name)
    code = machine(its).emit_assembly(llvm.parse_assembly(SIXTEEN))
    assert not re.search(BEYOND.get(name, "call"), code)


SCRIPT = """
import re, sys
import numpy as np
import bucketize
from bucketize import zoo
from bucketize.machine.host import host, processor
sys.path[:0] = ["tests", "tests/kernel"]
import test_kernel_build
space = {"__name__": "k"}
exec(test_kernel_build.source(1), space)
exe = bucketize.compile(bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 4)}))
np.save(sys.argv[1] + "/y.npy", *exe.run(np.ones((3, 784), np.float32)))
exe.save(sys.argv[1] + "/m.bkt")
widest = max(map(int, re.findall(r"<(\\d+) x float>", str(space["kernel"](processor())[0]))))
print(host().name, host().lanes, widest <= host().lanes)
"""


def run(most: str, *command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])))
    environment = {**os.environ, VARIABLE: most, "PYTHONPATH": path}
    command = (sys.executable, "-P", *command)
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, cwd=ROOT
    )


@pytest.mark.sweep
@pytest.mark.parametrize("name", NARROWER)
def test_a_restricted_process_compiles_for_its_vectors_alone(name: str, tmp_path: Path) -> None:
    done = run(name, "-c", SCRIPT, str(tmp_path))
    lanes, _ = VECTORS[name]
    cpu = processor().cpu
    assert done.stdout.splitlines() == [f"{cpu}:{name} {lanes} True"], done.stderr
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 4)})
    want = bucketize.compile(mod).run(np.ones((3, 784), np.float32))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want[0], rtol=1e-4, atol=1e-6)
    loaded = bucketize.load(tmp_path / "m.bkt")  # what is narrower runs here
    np.testing.assert_array_equal(
        loaded.run(np.ones((3, 784), np.float32))[0], np.load(tmp_path / "y.npy")
    )


def test_the_command_line_tells_which_vectors_there_are() -> None:
    done = run("pdp11", "-m", "bucketize.cli", "compile", "zoo:mlp")
    assert done.returncode == 2
    *_, said = done.stderr.splitlines()  # a slow machine tells how far it is, too
    assert said.startswith(f"error: no {VARIABLE} of this {processor().cpu} named")


# --- another processor, by its name ---------------------------------------------------------------


def mlp() -> bucketize.Module:
    return bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 4)})


@pytest.mark.parametrize("name", KNOWN)
def test_a_named_target_has_all_that_its_vectors_need(name: str) -> None:
    target, here = named(name), processor()
    assert target.name == name
    assert (target.lanes, target.registers) == VECTORS[target.processor.vectors]
    assert 0 < target.l1 < target.l2
    assert target.processor.digest != here.digest


def test_an_unknown_target_is_told() -> None:
    with pytest.raises(UnknownNameError, match=r"no target named .pdp11.; .*neoverse-v1"):
        bucketize.compile(mlp(), target="pdp11")


FOREIGN = [name for name in KNOWN if named(name).processor.misfit]


def set_up(monkeypatch: pytest.MonkeyPatch, system: tuple[str, str], *features: str) -> None:
    """This is another machine, with so many features."""
    monkeypatch.setattr("bucketize.machine.target.system", lambda: system)
    monkeypatch.setattr("bucketize.machine.target.present", lambda: frozenset(features))
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.parametrize("name", ["neoverse-v1", "x86-64-v4"])
def test_a_program_runs_where_all_that_it_needs_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = named(name).processor
    system, needs = system_of(its.triple), sorted(its.on() & TOLD)
    set_up(monkeypatch, system, *needs, "more")
    assert not its.misfit
    assert not replace(its, cpu="another", features=f"{its.features},+clzero,-fma4").misfit
    set_up(monkeypatch, system, *needs[1:])
    assert its.misfit == f"{needs[0]}, which this processor lacks"
    set_up(monkeypatch, (system[0], "darwin"), *needs)
    assert its.misfit == f"{system[0]} of linux, and this is {system[0]} of darwin"


def test_a_restricted_program_needs_nothing_of_what_is_wider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features = {**WIDE, "avx512bw": True, "f16c": True}
    wide, avx2, sse2 = (described(X86_LINUX, "z", features, m) for m in ("", "avx2", "sse2"))
    set_up(monkeypatch, ("x86_64", "linux"), "avx2", "f16c", "fma", "sse2")
    assert wide.misfit == "avx512bw, avx512f, which this processor lacks"
    assert not avx2.misfit
    set_up(monkeypatch, ("x86_64", "linux"), "sse2")
    assert avx2.misfit == "avx2, f16c, fma, which this processor lacks"
    assert not sse2.misfit


def test_a_restricted_process_runs_no_wider_program(monkeypatch: pytest.MonkeyPatch) -> None:
    its = described(X86_LINUX, "z", {"avx512f": True, "avx2": True})
    set_up(monkeypatch, ("x86_64", "linux"), "avx2", "avx512f")
    monkeypatch.setenv(VARIABLE, "avx2")
    assert its.misfit == f"avx512f, and {VARIABLE} is avx2"
    assert not described(X86_LINUX, "z", {"avx512f": True, "avx2": True}, "avx2").misfit


# Of these no kernel has an instruction, so no system is asked for them.
UNASKED = {
    *("64bit", "cldemote", "clflushopt", "clwb", "clzero", "cmpccxadd", "enqcmd", "fsgsbase"),
    *("hreset", "invpcid", "kl", "lwp", "movdir64b", "movdiri", "movrs", "mwaitx", "pconfig"),
    *("pku", "prefetchi", "ptwrite", "raoint", "rdpid", "rdpru", "rdrnd", "rdseed", "rtm"),
    *("serialize", "sgx", "shstk", "tsxldtrk", "uintr", "usermsr", "waitpkg", "wbnoinvd"),
    *("widekl", "xsave", "xsavec", "xsaveopt", "xsaves", "sha512", "sm3", "sm4", "tbm", "xop"),
    *("fma4", "avx10.1"),  # the last is a name for what others tell, too
}


def test_every_feature_that_code_may_use_is_asked_for() -> None:
    if system()[0] == "x86_64":
        left = {name for name in FEATURES if not name.startswith("amx-")} - TOLD - UNTOLD
        assert left == UNASKED & FEATURES.keys()


def test_code_does_without_what_no_system_tells() -> None:
    its = described(X86_LINUX, "diamondrapids", {"avx2": True, "egpr": True, "avx10.2": True})
    assert its.code_features == "+avx10.2,+avx2,+egpr,-avx10.2,-egpr"
    assert named("apple-m1").processor.code_features == "+neon,+reserve-x18"
    assert named("apple-m1").processor.code_triple == named("neoverse-n1").processor.code_triple


def test_the_system_tells_what_llvm_sees() -> None:
    more = dict.fromkeys(present(), True) if system()[0] == ARM else {}  # LLVM is told too little
    assert described(TRIPLE, "", {**FEATURES, **more}).on() & TOLD == present()
    assert not processor().misfit
    assert system() == system_of(TRIPLE)


def test_the_features_of_one_processor_are_read() -> None:
    text = "processor : 0\nflags\t\t: fpu pni avx2 avx512_bf16\n\nprocessor : 1\nflags : sse2\n"
    assert flags(text) == {"sse3", "avx2", "avx512bf16"}
    assert flags("") == set()


class Mac:
    """What macOS tells by `sysctlbyname`."""

    def __init__(self, **told: bytes) -> None:
        self.told = told

    def sysctlbyname(self, key: bytes, into: Any, size: Any, *_: object) -> int:
        value = self.told.get(key.decode().rpartition(".")[2])
        if value is None:
            return -1
        if into is None:
            size._obj.value = len(value)
        else:
            into.raw = value
        return 0


def test_macos_tells_words_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    yes, no = (1).to_bytes(4, "little"), bytes(4)
    mac = Mac(
        FEAT_DotProd=yes, FEAT_BF16=no, features=b"FPU SSE4.2 AVX1.0\0", extfeatures=b"LAHF\0"
    )
    monkeypatch.setattr("bucketize.machine.present.LIBRARY", mac)
    assert mac_arm() == {"dotprod"}
    assert mac_x86() == {"sse4.2", "avx", "sahf"}


@pytest.mark.sweep
@pytest.mark.parametrize("name", FOREIGN)
def test_a_program_of_another_processor_is_saved_and_not_run(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.bkt"
    exe = bucketize.compile(mlp(), target=name)
    there = f"compiled for {name}.* does not run here: it needs "
    with pytest.raises(ProgramError, match=f"a program {there}.*; save it, and load it there"):
        exe.run(np.ones((3, 784), np.float32))
    exe.save(path)
    with pytest.raises(ProgramError, match=f"was {there}"):
        bucketize.load(path)
    want = bucketize.compile(mlp()).run(np.ones((3, 784), np.float32))
    got = bucketize.load(path, rebuild=True).run(np.ones((3, 784), np.float32))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-6)
    assert {kernel.code[:4] for kernel in exe.kernels.values()} == {b"\x7fELF"}


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in FOREIGN])
def test_a_program_of_what_this_processor_can_do_runs_here(name: str, tmp_path: Path) -> None:
    exe = bucketize.compile(mlp(), target=name)
    exe.save(tmp_path / "net.bkt")
    loaded = bucketize.load(tmp_path / "net.bkt")
    assert loaded.program == exe.program
    x = np.ones((3, 784), np.float32)
    np.testing.assert_array_equal(loaded.run(x)[0], exe.run(x)[0])
    np.testing.assert_allclose(exe.run(x)[0], bucketize.compile(mlp()).run(x)[0], rtol=1e-4)


def test_the_command_line_compiles_for_another_processor(tmp_path: Path) -> None:
    (name, *_), path = FOREIGN, tmp_path / "net.bkt"
    done = run("", "-m", "bucketize.cli", "compile", "zoo:mlp", "--target", name, "-o", str(path))
    assert done.returncode == 0, done.stderr
    assert path.exists()
    assert "run it" not in done.stdout
    done = run("", "-m", "bucketize.cli", "run", str(path), "--at", "N=1")
    assert f"was compiled for {name}, and does not run here: it needs" in done.stderr
