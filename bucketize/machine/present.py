"""What the processor of this machine can do, as the system tells: no compiler is asked."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ARM = "aarch64"
LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None
PROCESSORS = Path("/proc/cpuinfo")

SAME = (
    *("adx", "aes", "avx", "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512ifma"),
    *("avx512vbmi", "avx512vl", "bmi2", "cmov", "cx16", "cx8", "f16c", "fma", "fxsr", "gfni"),
    *("mmx", "movbe", "popcnt", "sse", "sse2", "sse4a", "ssse3", "vaes", "vpclmulqdq"),
)
FLAGS: Mapping[str, str] = {
    **dict(zip(SAME, SAME, strict=True)),
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vp2intersect": "avx512_vp2intersect",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxifma": "avx_ifma",
    "avxneconvert": "avx_ne_convert",
    "avxvnni": "avx_vnni",
    "avxvnniint8": "avx_vnni_int8",
    "avxvnniint16": "avx_vnni_int16",
    "bmi": "bmi1",
    "crc32": "sse4_2",
    "lzcnt": "abm",
    "pclmul": "pclmulqdq",
    "prfchw": "3dnowprefetch",
    "sahf": "lahf_lm",
    "sha": "sha_ni",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
}
"""Linux's word for a feature of x86-64, by LLVM's. Others are of instructions for systems, for
cryptography, or for matrices of a size of their own, which no kernel has."""
MAC_WORDS: Mapping[str, str] = {
    "avx1.0": "avx",
    "bmi1": "bmi",
    "lahf": "sahf",
    "pclmulqdq": "pclmul",
    "prefetchw": "prfchw",
}
"""LLVM's word, by that of macOS, where they differ by more than capitals."""
MAC_LISTS = "features", "leaf7_features", "extfeatures"
HARDWARE = {  # Linux's auxiliary vector: entry and bit, by LLVM's name of the feature
    "fullfp16": (16, 10),
    "lse": (16, 8),
    "rdm": (16, 12),
    "rcpc": (16, 15),
    "dotprod": (16, 20),
    "sve": (16, 22),
    "sve2": (26, 1),
    "i8mm": (26, 13),
    "bf16": (26, 14),
}
"""What LLVM does not read of an Arm processor under Linux."""
MAC_ARM = {
    "fullfp16": "FEAT_FP16",
    "lse": "FEAT_LSE",
    "rdm": "FEAT_RDM",
    "rcpc": "FEAT_LRCPC",
    "dotprod": "FEAT_DotProd",
    "i8mm": "FEAT_I8MM",
    "bf16": "FEAT_BF16",
}
TOLD = frozenset({*FLAGS, *HARDWARE, "neon"})
"""The features that a system tells."""

APX = ("ccmp", "cf", "egpr", "ndd", "nf", "ppx", "push2pop2", "zu")
UNTOLD = frozenset({"avx10.2", *APX})
"""What LLVM would use and Linux does not tell: code does without."""


def system_of(triple: str) -> tuple[str, str]:
    """Architecture and operating system."""
    architecture, _, rest = triple.partition("-")
    systems = (s for s in ("linux", "darwin", "macosx", "windows") if s in rest)
    system = next(systems, rest).replace("macosx", "darwin")
    return architecture.replace("arm64", ARM), system


@cache
def system() -> tuple[str, str]:
    """Architecture and operating system of this process."""
    its = os.uname()
    return its.machine.replace("arm64", ARM).replace("amd64", "x86_64"), its.sysname.lower()


@cache
def present() -> frozenset[str]:
    """The features of this processor, by LLVM's names, that are of `TOLD`."""
    architecture, name = system()
    if architecture == ARM:  # all have vectors of four floats
        return frozenset({"neon", *(mac_arm() if name == "darwin" else hardware())})
    return frozenset(mac_x86() if name == "darwin" else flags(PROCESSORS.read_text()))


def flags(text: str) -> set[str]:
    """The features that Linux tells of the first processor of x86-64."""
    lines = (line for line in text.splitlines() if line.startswith("flags"))
    words = set(next(lines, "").partition(":")[2].split())
    return {name for name, word in FLAGS.items() if word in words}


def hardware() -> set[str]:
    """The features in `HARDWARE`, as the kernel of Linux tells them on 64-bit Arm."""
    assert LIBRARY is not None
    tell = LIBRARY.getauxval
    tell.argtypes, tell.restype = [ctypes.c_ulong], ctypes.c_ulong
    return {name for name, (entry, bit) in HARDWARE.items() if tell(entry) >> bit & 1}


def mac_arm() -> set[str]:
    """The features that macOS tells of its own processors."""
    by = {name: _sysctl(f"hw.optional.arm.{word}") for name, word in MAC_ARM.items()}
    return {name for name, number in by.items() if int.from_bytes(number, "little")}


def mac_x86() -> set[str]:
    """The features that macOS tells of a processor of x86-64."""
    lists = b" ".join(_sysctl(f"machdep.cpu.{name}").rstrip(b"\0") for name in MAC_LISTS)
    words = lists.decode().lower().split()
    return {MAC_WORDS.get(word, word) for word in words} & TOLD


def _sysctl(name: str) -> bytes:
    """What macOS tells by a name; nothing where it has no such name."""
    assert LIBRARY is not None
    ask, key, size = LIBRARY.sysctlbyname, name.encode(), ctypes.c_size_t(0)
    if ask(key, None, ctypes.byref(size), None, ctypes.c_size_t(0)):
        return b""
    value = ctypes.create_string_buffer(size.value)
    return value.raw if not ask(key, value, ctypes.byref(size), None, ctypes.c_size_t(0)) else b""
