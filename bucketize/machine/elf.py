"""Object files put into memory, without a compiler or a linker.

An object of ours is position-independent and asks for nothing but functions of the C library, so
what is left to do is to place its sections side by side and to fill in the distances between them.
ELF and its relocations: the System V ABI and its supplements for x86-64 and for 64-bit Arm. It is
the format of objects for macOS, too: who loads them is this module alone.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from bucketize.errors import KernelError
from bucketize.machine.present import ARM as ARCHITECTURE
from bucketize.machine.present import LIBRARY, system

IDENT = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, version 1
RELOCATABLE = 1
X86, ARM = 62, 183
NAMES = {X86: "x86-64", ARM: "64-bit Arm"}

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
LOADED, WRITTEN = 2, 1  # flags of sections
BYTES, RELOCATIONS, SYMBOLS = 1, 4, 2  # types of sections
UNWINDING = ".eh_frame"  # nothing is thrown through a kernel
READ_AND_RUN = mmap.PROT_READ | mmap.PROT_EXEC
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
FAILED = ctypes.c_void_p(-1).value


class Section(NamedTuple):
    """A row of the table of sections."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


class Entry(NamedTuple):
    """A row of the table of symbols; one of section 0 is of the C library."""

    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


@dataclass
class Object:
    """An object file that was read; its sections have no place yet."""

    code: bytes
    machine: int
    sections: list[Section]
    names: Section
    """The names of sections."""

    @classmethod
    def read(cls, code: bytes) -> Object:
        """An object file; raises ValueError or struct.error if it is none."""
        ident, kind, machine, _, _, _, start, *rest = HEADER.unpack_from(code)
        if not ident.startswith(IDENT) or kind != RELOCATABLE or machine not in NAMES:
            raise ValueError("it is no object file")
        count, names = rest[-2:]
        rows = SECTION.iter_unpack(code[start : start + count * SECTION.size])
        sections = [Section(*row) for row in rows]
        return cls(code, machine, sections, sections[names])

    def text(self, table: Section, place: int) -> str:
        """A name of a table of names."""
        start = table.offset + place
        return self.code[start : self.code.index(b"\0", start)].decode()

    def bytes_of(self, section: Section) -> bytes:
        """What is in a section."""
        return self.code[section.offset : section.offset + section.size]

    @cached_property
    def symbols(self) -> list[tuple[str, Entry]]:
        """Each with its name."""
        (table,) = (s for s in self.sections if s.type == SYMBOLS)
        symbols = (Entry(*row) for row in SYMBOL.iter_unpack(self.bytes_of(table)))
        return [(self.text(self.sections[table.link], s.name), s) for s in symbols]

    @cached_property
    def placed(self) -> dict[int, int]:
        """Where each section that is needed at run time begins, by its number.

        Raises ValueError for one that a kernel would write to: none of ours does.
        """
        places, end = {}, 0
        for number, section in enumerate(self.sections):
            name = self.text(self.names, section.name)
            if not section.flags & LOADED or not section.size or name == UNWINDING:
                continue
            if section.flags & WRITTEN or section.type != BYTES:
                raise ValueError(f"its section {name} is not known")
            places[number] = end = -(-end // section.alignment) * section.alignment
            end += section.size
        return places

    @cached_property
    def size(self) -> int:
        """Bytes of all that is placed."""
        return max(start + self.sections[number].size for number, start in self.placed.items())

    def relocations(self) -> Iterator[tuple[int, int, str, Entry, int]]:
        """Where a distance is asked for, of which kind, to what, and what is added to it."""
        for section in self.sections:
            if section.type != RELOCATIONS or section.info not in self.placed:
                continue
            for offset, info, addend in RELOCATION.iter_unpack(self.bytes_of(section)):
                symbol = self.symbols[info >> 32]
                yield self.placed[section.info] + offset, info & 0xFFFFFFFF, *symbol, addend


# --- relocations ---------------------------------------------------------------------------------


def _page(address: int) -> int:
    return address >> 12


def _word32(memory: Any, at: int, value: int) -> None:
    struct.pack_into("<i", memory, at, value)


def _word64(memory: Any, at: int, value: int) -> None:
    struct.pack_into("<Q", memory, at, value % 2**64)


def _bits(memory: Any, at: int, value: int, count: int, shift: int) -> None:
    """Put the low bits of a value into an instruction of Arm."""
    (old,) = struct.unpack_from("<I", memory, at)
    mask = (1 << count) - 1
    struct.pack_into("<I", memory, at, old & ~(mask << shift) | (value & mask) << shift)


def _near(memory: Any, at: int, distance: int) -> None:
    """A page, by its distance: 21 bits, the two lowest apart."""
    if not -(2**20) <= distance < 2**20:
        raise ValueError("a section is too far away")
    _bits(memory, at, distance, 2, 29)
    _bits(memory, at, distance >> 2, 19, 5)


def _branch(memory: Any, at: int, distance: int) -> None:
    if not -(2**27) <= distance < 2**27:
        raise ValueError("a function is too far away")
    _bits(memory, at, distance >> 2, 26, 0)


Fill = Callable[[Any, int, int, int], None]
"""Fills in, at a place of the memory, the address of a symbol, as seen from an address."""


def _low(scale: int) -> Fill:
    """The place in its page, by units of so many bits."""
    return lambda m, at, to, _: _bits(m, at, (to & 0xFFF) >> scale, 12, 10)


FILL: Mapping[int, Mapping[int, Fill]] = {
    X86: {
        1: lambda m, at, to, _: _word64(m, at, to),  # R_X86_64_64
        2: lambda m, at, to, here: _word32(m, at, to - here),  # PC32
        4: lambda m, at, to, here: _word32(m, at, to - here),  # PLT32
    },
    ARM: {
        257: lambda m, at, to, _: _word64(m, at, to),  # R_AARCH64_ABS64
        260: lambda m, at, to, here: _word64(m, at, to - here),  # PREL64
        261: lambda m, at, to, here: _word32(m, at, to - here),  # PREL32
        275: lambda m, at, to, here: _near(m, at, _page(to) - _page(here)),  # ADR_PREL_PG_HI21
        277: _low(0),  # ADD_ABS_LO12_NC
        278: _low(0),  # LDST8_ABS_LO12_NC
        282: lambda m, at, to, here: _branch(m, at, to - here),  # JUMP26
        283: lambda m, at, to, here: _branch(m, at, to - here),  # CALL26
        284: _low(1),  # LDST16_ABS_LO12_NC
        285: _low(2),  # LDST32_ABS_LO12_NC
        286: _low(3),  # LDST64_ABS_LO12_NC
        299: _low(4),  # LDST128_ABS_LO12_NC
    },
}
JUMP = {
    X86: bytes.fromhex("ff2502000000 6690"),  # jmp [rip + 2], beyond a nop
    ARM: bytes.fromhex("50000058 00021fd6"),  # ldr x16, .+8; br x16
}
"""A jump to the address behind it: functions of the C library are out of reach of a branch."""
JUMP_BYTES = 16


# --- memory --------------------------------------------------------------------------------------


def load(code: bytes, name: str) -> int:
    """The address of the function `name` of an object file, which is placed in memory.

    Raises KernelError: it is no object of this processor's, or asks for what is not there.
    """
    try:
        its = Object.read(code)
        starts = [
            its.placed[symbol.section] + symbol.value
            for entry, symbol in its.symbols
            if entry == name and symbol.section in its.placed
        ]
        if not starts:
            raise ValueError(f"it lacks its function {name}")
        if its.machine != _here():
            raise ValueError(f"it is for {NAMES[its.machine]}")
        return _place(its) + starts[0]
    except (ValueError, struct.error, IndexError, OSError) as e:
        raise KernelError(f"the machine code of {name} cannot be loaded: {e}") from e


def _place(its: Object) -> int:
    """Write the sections and what they ask for into pages of their own; then they may run."""
    asked = dict.fromkeys(name for _, _, name, s, _ in its.relocations() if not s.section)
    table = -(-its.size // JUMP_BYTES) * JUMP_BYTES
    jumps = {name: table + JUMP_BYTES * i for i, name in enumerate(asked)}
    size = table + JUMP_BYTES * len(jumps)
    base = _pages(size)
    pages = memoryview((ctypes.c_char * size).from_address(base)).cast("B")
    for number, start in its.placed.items():
        section = its.sections[number]
        pages[start : start + section.size] = its.bytes_of(section)
    for name, place in jumps.items():
        pages[place : place + 8] = JUMP[its.machine]
        _word64(pages, place + 8, _function(name))
    for place, kind, name, symbol, addend in its.relocations():
        to = jumps[name] if not symbol.section else its.placed[symbol.section] + symbol.value
        if kind not in FILL[its.machine]:
            raise ValueError(f"its relocation {kind} is not known")
        FILL[its.machine][kind](pages, place, base + to + addend, base + place)
    _let_run(base, size)
    return base


def _pages(size: int) -> int:
    """Memory that nobody gives back: threads may still run in it when the interpreter ends."""
    assert LIBRARY is not None
    take = LIBRARY.mmap
    take.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    take.restype = ctypes.c_void_p
    base = take(None, size, mmap.PROT_READ | mmap.PROT_WRITE, PRIVATE, -1, 0)
    if base in (None, FAILED):
        raise OSError("no memory for its pages")
    return int(base)


def _let_run(base: int, size: int) -> None:
    """Pages that were never run before: Linux brings the caches of instructions up to date itself.

    It does so where pages become executable (`__sync_icache_dcache` of its port to Arm).
    """
    assert LIBRARY is not None
    protect = LIBRARY.mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if protect(base, size, READ_AND_RUN):
        raise OSError("its pages cannot be made executable")
    if hasattr(LIBRARY, "sys_icache_invalidate"):  # macOS
        LIBRARY.sys_icache_invalidate(ctypes.c_void_p(base), ctypes.c_size_t(size))


def _here() -> int:
    return ARM if system()[0] == ARCHITECTURE else X86


@cache
def _function(name: str) -> int:
    """The address of a function of the C library, or of its mathematics."""
    for library in (LIBRARY, _mathematics()):
        if library is not None and hasattr(library, name):
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    raise ValueError(f"it asks for {name}, which the C library has not")


@cache
def _mathematics() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:  # of macOS, and of musl, libc has it all
        return None
