"""Processors by name, for programs that are compiled on one machine and run on another."""

from __future__ import annotations

from dataclasses import dataclass

from bucketize.errors import unknown_name
from bucketize.machine.target import Target, described, target_of

ARM_LINUX, X86_LINUX = "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"
ARM_MACOS = "arm64-apple-macosx11.0.0"
N1 = "neon lse rdm rcpc fullfp16 dotprod"
V1 = f"{N1} i8mm bf16 sve"
X86_V3 = "cx16 popcnt sahf sse3 ssse3 sse4.1 sse4.2 avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave"


@dataclass(frozen=True)
class _Known:
    """A processor, as LLVM names it."""

    triple: str
    features: str
    """What code for it may use: a machine that has all of them runs that code."""
    l1: int
    """KiB, and so are the others."""
    l2: int
    l3: int


KNOWN = {
    "cortex-a72": _Known(ARM_LINUX, "neon", 32, 1024, 0),
    "neoverse-n1": _Known(ARM_LINUX, N1, 64, 1024, 32 << 10),
    "neoverse-v1": _Known(ARM_LINUX, V1, 64, 1024, 32 << 10),
    "neoverse-n2": _Known(ARM_LINUX, f"{V1} sve2", 64, 1024, 32 << 10),
    "neoverse-v2": _Known(ARM_LINUX, f"{V1} sve2", 64, 2048, 36 << 10),
    "apple-m1": _Known(ARM_MACOS, "neon", 128, 12 << 10, 8 << 10),
    "x86-64-v3": _Known(X86_LINUX, X86_V3, 32, 256, 2048),
    "x86-64-v4": _Known(
        X86_LINUX, f"{X86_V3} avx512f avx512bw avx512cd avx512dq avx512vl", 32, 1024, 2048
    ),
}


def named(name: str) -> Target:
    """The target of a processor's name; raises UnknownNameError where it is not in `KNOWN`."""
    if name not in KNOWN:
        raise unknown_name("target", name, KNOWN)
    row = KNOWN[name]
    its = described(row.triple, name, dict.fromkeys(row.features.split(), True))
    caches = {1: row.l1 << 10, 2: row.l2 << 10, 3: row.l3 << 10}
    return target_of(its, caches)
