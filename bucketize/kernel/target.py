"""The machine that kernels are generated for: vector width, registers, cache sizes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

# feature -> (float32 lanes of a vector, vector registers); the first that is there wins
VECTORS = {
    "avx512f": (16, 32),
    "avx2": (8, 16),
    "avx": (8, 16),
    "sse2": (4, 16),
    "neon": (4, 32),
}
NO_VECTORS = (4, 16)  # LLVM splits vectors that the machine lacks
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
SMALL_CACHES = {1: 32 << 10, 2: 256 << 10, 3: 2 << 20}  # where the system does not tell


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


@cache
def host() -> Target:
    """The machine that this runs on."""
    features = llvm.get_host_cpu_features()
    lanes, registers = vectors(features)
    caches = cache_sizes()
    name = llvm.get_host_cpu_name()
    text = f"{llvm.get_process_triple()} {name} {features.flatten()}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Target(name, lanes, registers, caches[1], caches[2], caches[3], digest)


def vectors(features: Mapping[str, bool]) -> tuple[int, int]:
    """Lanes and registers of the widest float32 vectors among `features`."""
    return next((v for name, v in VECTORS.items() if features.get(name)), NO_VECTORS)


def cache_sizes(root: Path = CACHES) -> dict[int, int]:
    """Bytes of the data caches by level, as one core sees them."""
    found = {1: 0, 2: 0, 3: 0}
    for index in root.glob("index*"):
        if _read(index / "type") != "Instruction":
            found[int(_read(index / "level"))] = _bytes(_read(index / "size"))
    return found if found[1] else dict(SMALL_CACHES)


def _read(path: Path) -> str:
    return path.read_text().strip()


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    assert match is not None, f"{CACHES} has a size {text!r}"
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
