"""Shared objects of ELF: objects of ours, placed and bound, with data behind them.

What a linker does for any objects is little for these: they ask each other for nothing, but for the
data, and the C library for a few functions, through a table that the system's loader fills. Its
format: the System V ABI and its supplements for x86-64 and for 64-bit Arm.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TypeAlias

from bucketize.errors import ProgramError
from bucketize.library.data import ModelData
from bucketize.machine.elf import ARM, FILL, HEADER, IDENT, SECTION, SYMBOL, X86, Object

PAGE = {X86: 1 << 12, ARM: 1 << 16}  # the largest that systems have
SHARED, VERSION = 3, 1
SEGMENT = struct.Struct("<IIQQQQQQ")
LOAD, DYNAMIC, STACK = 1, 2, 0x6474E551
READ, WRITE, RUN = 4, 2, 1
RELOCATION = struct.Struct("<QQq")
IMPORT = {X86: 6, ARM: 1025}  # R_X86_64_GLOB_DAT, R_AARCH64_GLOB_DAT
FUNCTION = 0x12  # a symbol that all see, of a function
LIBRARIES = "libc.so.6", "libm.so.6"
JUMP_BYTES = 16
NEEDED, HASH, STRINGS, SYMBOLS, RELA, RELA_BYTES, RELA_ENTRY, STRING_BYTES, SYMBOL_ENTRY = (
    *(1, 4, 5, 6, 7, 8, 9),
    *(10, 11),
)
NAME, FLAGS = 14, 30
BIND_NOW = 8
ADRP, LOAD_64, BRANCH = 0x90000010, 0xF9400211, 0xD61F0220  # x16, page; x17, [x16]; br x17


@dataclass
class Strings:
    """A table of names."""

    data: bytearray = field(default_factory=lambda: bytearray(1))

    def add(self, name: str) -> int:
        """The place of a name."""
        at = len(self.data)
        self.data += name.encode() + b"\0"
        return at


@dataclass
class Text:
    """Objects side by side, and the jumps to functions of other libraries behind them."""

    objects: Mapping[str, Object]
    machine: int
    places: dict[str, int] = field(default_factory=dict)
    """Where each object begins."""
    functions: dict[str, int] = field(default_factory=dict)
    """Where each function that others call begins, by its name."""
    asked: dict[str, int] = field(default_factory=dict)
    """Of other libraries, by their names, in order."""
    size: int = 0

    @classmethod
    def of(cls, objects: Mapping[str, Object], own: str) -> Text:
        """The text of some objects; those who ask for `own` ask for the data."""
        (machine,) = {its.machine for its in objects.values()}
        text = cls(objects, machine)
        for name, its in objects.items():
            text.places[name] = start = -(-text.size // 64) * 64
            text.size = start + its.size
            for symbol, s in its.symbols:
                if s.info == FUNCTION and s.section in its.placed:
                    text.functions[symbol] = start + its.placed[s.section] + s.value
            for _, _, asked, s, _ in its.relocations():
                if not s.section and asked != own:
                    text.asked.setdefault(asked, len(text.asked))
        text.jumps = -(-text.size // JUMP_BYTES) * JUMP_BYTES
        text.size = text.jumps + JUMP_BYTES * len(text.asked)
        return text

    jumps: int = 0
    """Where the jumps begin."""

    def bytes_at(self, address: int, data: int, table: int) -> bytearray:
        """The text at an address, with data and the table of functions at theirs."""
        memory = bytearray(self.size)
        for name, its in self.objects.items():
            start = self.places[name]
            for number, place in its.placed.items():
                code = its.bytes_of(its.sections[number])
                memory[start + place : start + place + len(code)] = code
            for place, kind, asked, symbol, addend in its.relocations():
                to, here = (
                    self._target(start, its, asked, symbol.section, symbol.value),
                    start + place,
                )
                where = data if to is None else address + to
                FILL[self.machine][kind](memory, here, where + addend, address + here)
        for i in range(len(self.asked)):
            at = self.jumps + JUMP_BYTES * i
            _jump(self.machine, memory, at, address + at, table + 8 * i)
        return memory

    def _target(self, start: int, its: Object, name: str, section: int, value: int) -> int | None:
        """Where a symbol is, None for the data."""
        if section:
            return start + its.placed[section] + value
        if name in self.asked:
            return self.jumps + JUMP_BYTES * self.asked[name]
        return None


def _jump(machine: int, memory: bytearray, at: int, here: int, slot: int) -> None:
    """A jump to the address in a slot."""
    if machine == X86:
        memory[at : at + 6] = b"\xff\x25" + struct.pack("<i", slot - here - 6)
        memory[at + 6 : at + JUMP_BYTES] = b"\xcc" * (JUMP_BYTES - 6)
        return
    struct.pack_into("<IIII", memory, at, ADRP, LOAD_64, BRANCH, 0xD503201F)
    FILL[ARM][275](memory, at, slot, here)
    FILL[ARM][286](memory, at + 4, slot, here)


def text_of(codes: Mapping[str, bytes], own: str) -> Text:
    """The text of object files, each by a name.

    Raises ProgramError where one is no object of ours.
    """
    try:
        return Text.of({name: Object.read(code) for name, code in codes.items()}, own)
    except (ValueError, struct.error) as e:
        raise ProgramError(f"no library can be made of this machine code: {e}") from e


def data_behind(text: Text) -> int:
    """How far the data begin behind the text."""
    page = PAGE[text.machine]
    return -(-text.size // page) * page


def write(file: IO[bytes], name: str, text: Text, data: ModelData, exports: Sequence[str]) -> None:
    """Write the shared object.

    Args:
        file: to write to, at its beginning.
        name: of the library.
        text: of its code.
        data: of which the text reads.
        exports: its functions that others may call.

    """
    strings = Strings()
    needed = [strings.add(library) for library in LIBRARIES]
    own_name = strings.add(name)
    imports = [(strings.add(f), 0, 0) for f in text.asked]
    exported = [(strings.add(f), text.functions[f], 1) for f in exports]
    count = 1 + len(imports) + len(exported)
    hashed = _hash([*text.asked, *exports])
    sizes = (count * SYMBOL.size, len(strings.data), len(hashed), len(imports) * RELOCATION.size)
    places, at = [], HEADER.size + 6 * SEGMENT.size
    for size in sizes:
        at = -(-at // 8) * 8
        places.append(at)
        at += size
    symbols_at, strings_at, hash_at, rela_at = places
    page = PAGE[text.machine]
    start = -(-at // page) * page
    data_at = start + data_behind(text)
    dynamic_at = -(-(data_at + data.size) // page) * page
    tags = [
        *((NEEDED, place) for place in needed),
        *((NAME, own_name), (HASH, hash_at), (STRINGS, strings_at), (SYMBOLS, symbols_at)),
        *((STRING_BYTES, len(strings.data)), (SYMBOL_ENTRY, SYMBOL.size)),
        *((RELA, rela_at), (RELA_BYTES, sizes[3]), (RELA_ENTRY, RELOCATION.size)),
        *((FLAGS, BIND_NOW), (0, 0)),
    ]
    table_at = dynamic_at + 16 * len(tags)
    end = table_at + 8 * len(imports)
    code = text.bytes_at(start, data_at, table_at)
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in tags)
    slots = (table_at + 8 * i for i in range(len(imports)))
    rela = b"".join(
        RELOCATION.pack(slot, (1 + i) << 32 | IMPORT[text.machine], 0)
        for i, slot in enumerate(slots)
    )
    text_section = 5
    symbols = bytes(SYMBOL.size) + b"".join(
        SYMBOL.pack(string, FUNCTION, 0, text_section if own else 0, start + place if own else 0, 0)
        for string, place, own in (*imports, *exported)
    )
    parts: list[Part] = [
        (".dynsym", 11, READ, symbols_at, len(symbols), 2, 1, SYMBOL.size),
        (".dynstr", 3, READ, strings_at, len(strings.data), 0, 0, 0),
        (".hash", 5, READ, hash_at, len(hashed), 1, 0, 4),
        (".rela.dyn", 4, READ, rela_at, len(rela), 1, 0, RELOCATION.size),
        (".text", 1, READ | RUN, start, len(code), 0, 0, 0),
        (".rodata", 1, READ, data_at, data.size, 0, 0, 0),
        (".dynamic", 6, READ | WRITE, dynamic_at, len(dynamic), 2, 0, 16),
        (".got", 1, READ | WRITE, table_at, 8 * len(imports), 0, 0, 8),
    ]
    sections = _sections(parts, end)
    segments = [
        SEGMENT.pack(LOAD, READ, 0, 0, 0, at, at, page),
        SEGMENT.pack(LOAD, READ | RUN, start, start, start, len(code), len(code), page),
        SEGMENT.pack(LOAD, READ, data_at, data_at, data_at, data.size, data.size, page),
        SEGMENT.pack(
            LOAD, READ | WRITE, *[dynamic_at] * 3, end - dynamic_at, end - dynamic_at, page
        ),
        SEGMENT.pack(DYNAMIC, READ | WRITE, *[dynamic_at] * 3, len(dynamic), len(dynamic), 8),
        SEGMENT.pack(STACK, READ | WRITE, 0, 0, 0, 0, 0, 16),
    ]
    header = HEADER.pack(
        IDENT.ljust(16, b"\0"),
        SHARED,
        text.machine,
        VERSION,
        0,
        HEADER.size,
        sections.at,
        0,
        HEADER.size,
        SEGMENT.size,
        len(segments),
        SECTION.size,
        len(parts) + 2,
        len(parts) + 1,
    )
    pieces: Iterator[tuple[int, bytes | bytearray | memoryview]] = iter(
        [
            (0, header + b"".join(segments)),
            *((symbols_at, symbols), (strings_at, strings.data), (hash_at, hashed)),
            *((rela_at, rela), (start, code)),
            *((data_at + place, piece) for place, piece in data.blobs()),
            *((dynamic_at, dynamic), (table_at, bytes(8 * len(imports)))),
            (end, sections.data),
        ]
    )
    for place, piece in pieces:
        file.write(bytes(place - file.tell()))
        file.write(piece)


@dataclass
class _Sections:
    data: bytes
    at: int


Part: TypeAlias = tuple[str, int, int, int, int, int, int, int]
"""Of the file: name, type, access, place, bytes, link, info, bytes of an entry."""


def _sections(parts: Sequence[Part], end: int) -> _Sections:
    """The names of sections and their table, which linkers read; loaders do without."""
    names = Strings()
    rows = [SECTION.pack(*[0] * 10)]
    for name, kind, how, at, size, link, info, entry in parts:
        flags = 2 | (how & WRITE and 1) | (how & RUN and 4)
        rows.append(SECTION.pack(names.add(name), kind, flags, at, at, size, link, info, 8, entry))
    own = names.add(".shstrtab")
    rows.append(SECTION.pack(own, 3, 0, 0, end, len(names.data), 0, 0, 1, 0))
    at = -(-(end + len(names.data)) // 8) * 8
    return _Sections(bytes(names.data).ljust(at - end, b"\0") + b"".join(rows), at)


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
