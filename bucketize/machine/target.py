"""The machine that kernels are generated for: vector width, registers, cache sizes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bucketize.errors import unknown_name
from bucketize.machine.present import ARM, TOLD, UNTOLD, present, system, system_of
from bucketize.machine.speed import FAMILIES, TYPICAL, Speed
from bucketize.quota import quota

VARIABLE = "BUCKETIZE_TARGET"
LINE = 64
"""Bytes of a cache line, and of the widest vector, on all machines that matter: buffers begin at
multiples, words that different threads write lie apart, a prefetch brings so much."""
# feature -> (float32 lanes of a vector, vector registers); the first that is there wins
VECTORS = {"avx512f": (16, 32), "avx2": (8, 16), "avx": (8, 16), "sse2": (4, 16), "neon": (4, 32)}
DOTS: Mapping[str, Mapping[str, str]] = {
    "int8": {"avx512f": "avx512vnni", "avx2": "avxvnni", "neon": "dotprod"},
    "bfloat16": {"avx512f": "avx512bf16", "neon": "bf16"},
}
"""The feature that adds products of short numbers up, by the number and the widest vectors: four of
bytes, two of bfloat16. On x86-64 one byte of a pair has a sign, on Arm both, or with `i8mm` one."""
GO_WITH: Mapping[str, tuple[str, ...]] = {
    "avx512f": ("avx512",),
    "avx2": ("avx2", "avxvnni", "avxifma", "avxneconvert"),
    "avx": ("avx", "f16c", "fma", "vaes", "vpclmulqdq"),
    "sse2": (),
    "neon": (),
}
"""How features begin that are built on vectors, and are gone without them."""
NO_VECTORS = (4, 16)  # LLVM splits vectors that the machine lacks
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
SMALL_CACHES = {1: 32 << 10, 2: 256 << 10, 3: 2 << 20}  # where the system does not tell


@dataclass(frozen=True)
class Processor:
    """What machine code is made for, in LLVM's words."""

    triple: str
    cpu: str
    features: str
    """`+avx2,-fma`: of two that disagree the last one holds."""
    vectors: str
    """The widest that may be used: of `VECTORS`, or empty."""
    is_restricted: bool
    """Whether it has wider ones."""

    @property
    def name(self) -> str:
        """One that may not do all it can is another processor: `emeraldrapids:avx2`."""
        return f"{self.cpu}:{self.vectors}" if self.is_restricted else self.cpu

    @property
    def digest(self) -> str:
        """A hash of everything that the machine code depends on."""
        text = f"{self.triple} {self.cpu} {self.features}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def dots(self) -> frozenset[str]:
        """The numbers of `DOTS` whose products it adds up in one instruction."""
        has = self.on()
        return frozenset(short for short, by in DOTS.items() if by.get(self.vectors) in has)

    @property
    def code_triple(self) -> str:
        """What LLVM makes code for: objects are ELF, whatever the system, as they are ours alone.

        Calls are made alike, of numbers and addresses.
        """
        return f"{system_of(self.triple)[0]}-unknown-linux-gnu"

    @property
    def code_features(self) -> str:
        """The features, without what no system tells, and what macOS on Arm keeps for itself."""
        less = [f"-{name}" for name in sorted(self.on() & UNTOLD)]
        kept = ["+reserve-x18"] if system_of(self.triple) == (ARM, "darwin") else []
        return ",".join(filter(None, (self.features, *less, *kept)))

    @property
    def misfit(self) -> str:
        """What its code needs and this process has not, in words; empty if it runs."""
        if system_of(self.triple) != system():
            return "{} of {}, and this is {} of {}".format(*system_of(self.triple), *system())
        most = os.environ.get(VARIABLE, "")
        if self.vectors in wider(most):
            return f"{self.vectors}, and {VARIABLE} is {most}"
        gone = tuple(name for vectors in wider(self.vectors) for name in GO_WITH[vectors])
        lacks = {name for name in self.on() & TOLD if not name.startswith(gone)} - present()
        return f"{', '.join(sorted(lacks))}, which this processor lacks" if lacks else ""

    def on(self) -> set[str]:
        """The features that it has, and may use."""
        states = {word[1:]: word[0] for word in self.features.split(",") if word}
        return {name for name, state in states.items() if state == "+"}


@dataclass(frozen=True)
class Target:
    """What a template may know of the machine; caches in bytes, a level that is missing is 0."""

    name: str
    lanes: int
    registers: int
    l1: int
    l2: int
    l3: int
    processor: Processor
    speed: Speed = TYPICAL
    """The speed of a core; as it was measured, where it was."""
    beside: Speed = TYPICAL
    """The speed of a core while all cores work."""
    family: str = FAMILIES[0]
    """The family of its cores, as models of cost have constants for."""
    in_order: bool = False
    """Whether each element is summed in one order, whatever else a kernel is asked for: what
    `compile` calls `invariant`, and what saved programs call it."""
    weight_bytes: int = 0
    """Bytes of a program's weights, if a call reads more of them than defaults take for granted."""

    @cached_property
    def crowded(self) -> Target:
        """The machine while all of its cores work."""
        return replace(self, speed=self.beside)


def target_of(its: Processor, caches: Mapping[int, int] | None = None) -> Target:
    """What templates may know of a processor; without caches, with those of this machine."""
    lanes, registers = VECTORS.get(its.vectors, NO_VECTORS)
    caches = caches or cache_sizes()
    return Target(its.name, lanes, registers, caches[1], caches[2], caches[3], its)


def wider(vectors: str) -> list[str]:
    """The vectors that are wider than some, of the same processors."""
    order = list(VECTORS)
    return order[: order.index(vectors)] if vectors in order[:-1] else []


def described(triple: str, cpu: str, features: Mapping[str, bool], most: str = "") -> Processor:
    """A processor that uses no wider vectors than `most`; what is built on those goes with them."""
    has = [name for name in VECTORS if features.get(name)]
    if most and most not in has:
        raise unknown_name(f"{VARIABLE} of this {cpu}", most, has)
    wider = has[: has.index(most)] if most else []
    words = [f"{'+' if on else '-'}{name}" for name, on in sorted(features.items())]
    words += [f"-{name}" for name in wider]
    vectors = most or next(iter(has), "")
    return Processor(triple, cpu, ",".join(words), vectors, bool(wider))


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
    """The cores that this process may use: those of its affinity mask, within its quota of time.

    Of a quota of 2.5 it is 2: a third thread would use the quota up before its period ends, and the
    system would stop all three till then.
    """
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    count, limit = len(mine) or os.cpu_count() or 1, quota()
    return count if limit is None else max(1, min(count, int(limit)))
