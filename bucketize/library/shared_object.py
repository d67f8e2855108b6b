"""Shared objects of ELF: objects of ours, placed and bound, with data behind them.

What a linker does for any objects is little for these: they ask each other for nothing, but for the
data, and the C library for a few functions, through a table that the system's loader fills. Its
format: the System V ABI and its supplements for x86-64 and for 64-bit Arm.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import TypeAlias

from bucketize.errors import ProgramError
from bucketize.library.data import ModelData
from bucketize.machine.elf import ARM, FILL, HEADER, IDENT, JUMP_BYTES, SECTION, SYMBOL, X86, Object
from bucketize.machine.file import Piece
from bucketize.machine.target import LINE

PAGE = {X86: 1 << 12, ARM: 1 << 16}  # the largest that systems have
SHARED, VERSION = 3, 1
SEGMENT = struct.Struct("<IIQQQQQQ")
LOAD, DYNAMIC, STACK = 1, 2, 0x6474E551
READ, WRITE, RUN = 4, 2, 1
RELOCATION = struct.Struct("<QQq")
IMPORT = {X86: 6, ARM: 1025}  # R_X86_64_GLOB_DAT, R_AARCH64_GLOB_DAT
FUNCTION = 0x12  # a symbol that all see, of a function
LIBRARIES = "libc.so.6", "libm.so.6"
SLOT = 8  # bytes of an address
TAG = struct.Struct("<qQ")
TAGS = 13  # of the table for the system's loader, with those of `LIBRARIES` and the last
ADRP, LOAD_64, BRANCH, NOP = 0x90000010, 0xF9400211, 0xD61F0220, 0xD503201F  # by x16 and x17
SEGMENTS = 6
TEXT = 5  # the number of the section


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


class Strings:
    """A table of names."""

    def __init__(self) -> None:
        """The empty name is at 0."""
        self.data = bytearray(1)

    def add(self, name: str) -> int:
        """The place of a name."""
        at = len(self.data)
        self.data += os.fsencode(name) + b"\0"
        return at


class Text:
    """Objects side by side, and the jumps to functions of other libraries behind them."""

    def __init__(self, objects: Sequence[Object], own: str) -> None:
        """The text of some objects, of one machine; those who ask for `own` ask for the data."""
        (self.machine,) = {its.machine for its in objects}
        self.objects: list[tuple[int, Object]] = []
        """Each, and where it begins."""
        self.functions: dict[str, int] = {}
        """Where each function that others call begins, by its name."""
        self.asked: dict[str, int] = {}
        """Functions of other libraries, by their names, in order."""
        end = 0
        for its in objects:
            start = _up(end, LINE)
            end = start + its.size
            self.objects.append((start, its))
            for name, entry in its.symbols:
                if entry.info == FUNCTION and entry.section in its.placed:
                    self.functions[name] = start + its.placed[entry.section] + entry.value
            for _, _, name, entry, _ in its.relocations():
                if not entry.section and name != own:
                    self.asked.setdefault(name, len(self.asked))
        self.jumps = _up(end, JUMP_BYTES)
        """Where the jumps begin."""
        self.size = self.jumps + JUMP_BYTES * len(self.asked)

    def bytes_at(self, address: int, data: int, table: int) -> bytearray:
        """The text at an address, with data and the table of functions at theirs."""
        memory = bytearray(self.size)
        for start, its in self.objects:
            for number, place in its.placed.items():
                code = its.bytes_of(its.sections[number])
                memory[start + place : start + place + len(code)] = code
            for place, kind, name, entry, addend in its.relocations():
                here = start + place
                if entry.section:
                    to = address + start + its.placed[entry.section] + entry.value
                elif name in self.asked:
                    to = address + self.jumps + JUMP_BYTES * self.asked[name]
                else:
                    to = data
                FILL[self.machine][kind](memory, here, to + addend, address + here)
        for i in range(len(self.asked)):
            at = self.jumps + JUMP_BYTES * i
            _jump(self.machine, memory, at, address + at, table + SLOT * i)
        return memory


def _jump(machine: int, memory: bytearray, at: int, here: int, slot: int) -> None:
    """A jump to the address in a slot."""
    if machine == X86:
        memory[at : at + 6] = b"\xff\x25" + struct.pack("<i", slot - here - 6)
        memory[at + 6 : at + JUMP_BYTES] = b"\xcc" * (JUMP_BYTES - 6)
        return
    struct.pack_into("<IIII", memory, at, ADRP, LOAD_64, BRANCH, NOP)
    FILL[ARM][275](memory, at, slot, here)
    FILL[ARM][286](memory, at + 4, slot, here)


def text_of(codes: Sequence[bytes], own: str) -> Text:
    """The text of object files.

    Raises ProgramError where one is no object of ours.
    """
    try:
        return Text([Object.read(code) for code in codes], own)
    except (ValueError, struct.error) as e:
        raise ProgramError(f"no library can be made of this machine code: {e}") from e


class Layout:
    """Where the parts of the file are; each has the same place in memory.

    Names and symbols, the text, what the system's loader writes to, the data: these come last, as
    they may be longer than a jump is far.
    """

    def __init__(self, name: str, text: Text, data: ModelData, exports: Sequence[str]) -> None:
        """The layout of a library of a name, whose functions are `exports`."""
        page, names = PAGE[text.machine], Strings()
        self.needed = [names.add(library) for library in LIBRARIES]
        self.name = names.add(name)
        self.imports = [names.add(function) for function in text.asked]
        self.exports = [(names.add(function), text.functions[function]) for function in exports]
        self.names, self.hash = bytes(names.data), _hash([*text.asked, *exports])
        count = 1 + len(self.imports) + len(self.exports)
        sizes = count * SYMBOL.size, len(self.names), len(self.hash)
        self.symbols_at = HEADER.size + SEGMENTS * SEGMENT.size
        self.names_at = _up(self.symbols_at + sizes[0], SLOT)
        self.hash_at = _up(self.names_at + sizes[1], SLOT)
        self.rela_at = _up(self.hash_at + sizes[2], SLOT)
        self.head_end = self.rela_at + len(self.imports) * RELOCATION.size
        self.text_at = _up(self.head_end, page)
        self.tags_at = _up(self.text_at + text.size, page)
        self.table_at = self.tags_at + TAGS * TAG.size
        self.table_end = self.table_at + SLOT * len(self.imports)
        self.data_at = self.text_at + data_behind(text)
        self.end = self.data_at + data.size


def data_behind(text: Text) -> int:
    """How far the data begin behind the beginning of the text."""
    page = PAGE[text.machine]
    return _up(text.size, page) + _up(TAGS * TAG.size + SLOT * len(text.asked), page)


def pieces(name: str, text: Text, data: ModelData, exports: Sequence[str]) -> list[Piece]:
    """The pieces of the shared object.

    Args:
        name: of the library.
        text: of its code.
        data: of which the text reads.
        exports: its functions that others may call.

    """
    its = Layout(name, text, data, exports)
    parts = _parts(its, text, data)
    sections_at, sections = _sections(parts, its.end)
    return [
        (0, _head(its, text, data, sections_at, len(parts))),
        *((its.symbols_at, _symbols(its)), (its.names_at, its.names), (its.hash_at, its.hash)),
        (its.rela_at, _relocations(its, text.machine)),
        (its.text_at, text.bytes_at(its.text_at, its.data_at, its.table_at)),
        *((its.tags_at, _tags(its)), (its.table_at, bytes(SLOT * len(its.imports)))),
        *((its.data_at + place, piece) for place, piece in data.blobs()),
        (its.end, sections),
    ]


def _head(its: Layout, text: Text, data: ModelData, sections_at: int, parts: int) -> bytes:
    """The header of the file, and the segments that are mapped."""
    page, start = PAGE[text.machine], HEADER.size
    tables, tags = its.table_end - its.tags_at, TAGS * TAG.size
    segments = [
        (LOAD, READ, 0, its.head_end, page),
        (LOAD, READ | RUN, its.text_at, text.size, page),
        (LOAD, READ | WRITE, its.tags_at, tables, page),
        (LOAD, READ, its.data_at, data.size, page),
        (DYNAMIC, READ | WRITE, its.tags_at, tags, SLOT),
        (STACK, READ | WRITE, 0, 0, 16),
    ]
    ident = IDENT.ljust(16, b"\0")
    counts = SEGMENT.size, len(segments), SECTION.size, parts + 2, parts + 1
    header = (ident, SHARED, text.machine, VERSION, 0, start, sections_at, 0, start, *counts)
    return HEADER.pack(*header) + b"".join(
        SEGMENT.pack(kind, access, at, at, at, size, size, unit)
        for kind, access, at, size, unit in segments
    )


def _tags(its: Layout) -> bytes:
    """What the system's loader wants to know, by the numbers of the ABI."""
    tags = [
        *((1, place) for place in its.needed),  # NEEDED
        (14, its.name),  # SONAME
        (4, its.hash_at),  # HASH
        *((5, its.names_at), (10, len(its.names))),  # STRTAB, STRSZ
        *((6, its.symbols_at), (11, SYMBOL.size)),  # SYMTAB, SYMENT
        (7, its.rela_at),  # RELA
        *((8, len(its.imports) * RELOCATION.size), (9, RELOCATION.size)),  # RELASZ, RELAENT
        (30, 8),  # FLAGS: BIND_NOW
        (0, 0),
    ]
    assert len(tags) == TAGS
    return b"".join(TAG.pack(*tag) for tag in tags)


def _relocations(its: Layout, machine: int) -> bytes:
    """What the loader puts into the table: an address for each function that is asked for."""
    slots = (its.table_at + SLOT * i for i in range(len(its.imports)))
    return b"".join(
        RELOCATION.pack(slot, number << 32 | IMPORT[machine], 0)
        for number, slot in enumerate(slots, 1)
    )


def _symbols(its: Layout) -> bytes:
    """The functions that are asked for, then those that others may call."""
    rows = [(name, 0, 0) for name in its.imports]
    rows += [(name, TEXT, its.text_at + place) for name, place in its.exports]
    packed = (SYMBOL.pack(name, FUNCTION, 0, section, at, 0) for name, section, at in rows)
    return bytes(SYMBOL.size) + b"".join(packed)


Part: TypeAlias = tuple[str, int, int, int, int, int, int, int]
"""A section of the file: name, type, access, place, bytes, link, info, bytes of an entry."""


def _parts(its: Layout, text: Text, data: ModelData) -> list[Part]:
    symbols = (1 + len(its.imports) + len(its.exports)) * SYMBOL.size
    rela, table = len(its.imports) * RELOCATION.size, SLOT * len(its.imports)
    both = READ | WRITE
    return [
        (".dynsym", 11, READ, its.symbols_at, symbols, 2, 1, SYMBOL.size),
        (".dynstr", 3, READ, its.names_at, len(its.names), 0, 0, 0),
        (".hash", 5, READ, its.hash_at, len(its.hash), 1, 0, 4),
        (".rela.dyn", 4, READ, its.rela_at, rela, 1, 0, RELOCATION.size),
        (".text", 1, READ | RUN, its.text_at, text.size, 0, 0, 0),
        (".dynamic", 6, both, its.tags_at, TAGS * TAG.size, 2, 0, TAG.size),
        (".got", 1, both, its.table_at, table, 0, 0, SLOT),
        (".rodata", 1, READ, its.data_at, data.size, 0, 0, 0),
    ]


def _sections(parts: Sequence[Part], end: int) -> tuple[int, bytes]:
    """The place of the table of sections, and their names and the table, which linkers read."""
    names = Strings()
    rows = [SECTION.pack(*[0] * 10)]
    for name, kind, access, at, size, link, info, entry in parts:
        flags = 2 | (access & WRITE and 1) | (access & RUN and 4)
        row = (names.add(name), kind, flags, at, at, size, link, info, SLOT, entry)
        rows.append(SECTION.pack(*row))
    own = names.add(".shstrtab")
    rows.append(SECTION.pack(own, 3, 0, 0, end, len(names.data), 0, 0, 1, 0))
    at = _up(end + len(names.data), SLOT)
    return at, bytes(names.data).ljust(at - end, b"\0") + b"".join(rows)


def _hash(names: Sequence[str]) -> bytes:
    """The table by which loaders find symbols, of number 1 on."""
    count = max(len(names), 1)
    buckets, chains = [0] * count, [0] * (len(names) + 1)
    for number, name in enumerate(names, 1):
        bucket = _hashed(name) % count
        chains[number], buckets[bucket] = buckets[bucket], number
    return struct.pack(f"<{2 + count + len(chains)}I", count, len(chains), *buckets, *chains)


def _hashed(name: str) -> int:
    """The hash of the System V ABI."""
    value = 0
    for letter in name.encode():
        value = (value << 4) + letter
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value
