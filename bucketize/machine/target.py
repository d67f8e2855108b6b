"""The machine that kernels are generated for: vector width, registers, cache sizes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from bucketize.errors import unknown_name
from bucketize.machine.calibration import is_wanted, machine_name, speed_of, stored
from bucketize.machine.speed import TYPICAL, Speed

VARIABLE = "BUCKETIZE_TARGET"
# feature -> (float32 lanes of a vector, vector registers); the first that is there wins
VECTORS = {"avx512f": (16, 32), "avx2": (8, 16), "avx": (8, 16), "sse2": (4, 16), "neon": (4, 32)}
DOTS = {"avx512f": "avx512vnni", "avx2": "avxvnni"}
"""The feature that adds products of bytes in vectors of these."""
NO_VECTORS = (4, 16)  # LLVM splits vectors that the machine lacks
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
SMALL_CACHES = {1: 32 << 10, 2: 256 << 10, 3: 2 << 20}  # where the system does not tell


@dataclass(frozen=True)
class Processor:
    """What machine code is made for, in LLVM's words."""

    cpu: str
    features: str
    """`+avx2,-fma`: of two that disagree the last one holds."""
    vectors: str
    """The widest that may be used: of `VECTORS`, or empty."""
    is_restricted: bool
    """Whether it has wider ones."""
    dots: bool = False
    """Whether it adds products of bytes, in its widest vectors."""

    @property
    def name(self) -> str:
        """One that may not do all it can is another processor: `emeraldrapids:avx2`."""
        return f"{self.cpu}:{self.vectors}" if self.is_restricted else self.cpu


@dataclass(frozen=True)
class Target:
    """What a template may know of the machine; caches in bytes, a level that is missing is 0."""

    name: str
    lanes: int
    registers: int
    l1: int
    l2: int
    l3: int
    features: str
    """A hash of everything that the machine code depends on."""
    dots: bool = False
    """Whether it adds products of four bytes to 32 bits in one instruction."""
    speed: Speed = TYPICAL
    """Of a core; as it was measured, where it was."""
    beside: Speed = TYPICAL
    """The same while all cores work."""

    @cached_property
    def crowded(self) -> Target:
        """The machine while all of its cores work."""
        return replace(self, speed=self.beside)


@cache
def host() -> Target:
    """The machine that this runs on, as fast as it was measured, if it was.

    Raises UnknownNameError as `processor` does.
    """
    its = target_of(processor())
    its_own = stored(machine_of(its)) if is_wanted() else None
    return its if its_own is None else replace(its, speed=its_own.alone, beside=its_own.beside)


def restored(values: Mapping[str, Any]) -> Target:
    """The target of a saved program, whose version may have had other fields.

    Raises ValueError where a speed is none.
    """
    cells: dict[str, Any] = {f.name: values[f.name] for f in fields(Target) if f.name in values}
    for name in {"speed", "beside"} & set(cells):
        cells[name] = speed_of(cells[name])
    return Target(**cells)


def machine_of(its: Target) -> str:
    """What tells this machine from others, as calibrations have it."""
    return machine_name(its.name, (its.l1, its.l2, its.l3), os.cpu_count() or 1)


def target_of(its: Processor) -> Target:
    """What templates may know of a processor, with the caches of this machine."""
    lanes, registers = VECTORS.get(its.vectors, NO_VECTORS)
    caches = cache_sizes()
    text = f"{llvm.get_process_triple()} {its.cpu} {its.features}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Target(its.name, lanes, registers, caches[1], caches[2], caches[3], digest, its.dots)


@cache
def processor() -> Processor:
    """The processor of this machine, as far as the environment's BUCKETIZE_TARGET lets it.

    Raises UnknownNameError where it has no such vectors.
    """
    most = os.environ.get(VARIABLE, "")
    return described(llvm.get_host_cpu_name(), llvm.get_host_cpu_features(), most)


def described(cpu: str, features: Mapping[str, bool], most: str = "") -> Processor:
    """A processor that uses no wider vectors than `most`; what is built on those goes with them."""
    has = [name for name in VECTORS if features.get(name)]
    if most and most not in has:
        raise unknown_name(f"{VARIABLE} of this {cpu}", most, has)
    wider = has[: has.index(most)] if most else []
    words = [f"{'+' if on else '-'}{name}" for name, on in sorted(features.items())]
    words += [f"-{name}" for name in wider]
    vectors = most or next(iter(has), "")
    dots = bool(features.get(DOTS.get(vectors, "")))
    return Processor(cpu, ",".join(words), vectors, bool(wider), dots)


def cache_sizes(root: Path = CACHES) -> dict[int, int]:
    """Bytes of the data caches by level, as one core sees them."""
    sizes = {1: 0, 2: 0, 3: 0}
    for index in root.glob("index*"):
        if _read(index / "type") != "Instruction":
            sizes[int(_read(index / "level"))] = _bytes(_read(index / "size"))
    return sizes if sizes[1] else dict(SMALL_CACHES)


def _read(path: Path) -> str:
    return path.read_text().strip()


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    assert match is not None, f"{CACHES} has a size {text!r}"
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def cores() -> int:
    """The cores that this process may use, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
