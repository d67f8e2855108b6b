"""A library as objects, for a linker of one's own: with a Makefile that says how."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from bucketize.library.data import ModelData
from bucketize.link.block import WORD
from bucketize.machine.file import put
from bucketize.machine.target import LINE
from bucketize.save.container import placing

INTERFACE = "interface.o"
MAKEFILE = Template("""\
# $name.so from its parts. What others may call is in $name.map.
CC = cc

$name.so: data.S $name.bin $name.map $objects
\t$$(CC) -shared -o $$@ -Wl,-soname,$$@ -Wl,--version-script=$name.map -Wl,-z,noexecstack \\
\t\tdata.S $objects -lm

.PHONY: clean
clean:
\trm -f $name.so
""")
DATA = Template("""\
/* The data of $name: what $name.bin holds, and how far the kernels lie behind it. */
        .section .rodata
        .balign $alignment
        .globl $symbol
        .hidden $symbol
$symbol:
$pieces
        .section .note.GNU-stack, "", %progbits
""")
MAP = Template("{ global: $exports; local: *; };\n")


def write_objects(
    folder: Path,
    name: str,
    codes: Mapping[str, bytes],
    data: ModelData,
    exports: Sequence[str],
    header: str,
) -> Path:
    """Write objects, data, header and Makefile into a folder; the path of the header.

    Raises ProgramError where they cannot be written.
    """
    files = {INTERFACE if not key else f"{key}.o": code for key, code in codes.items()}
    texts = {
        f"{name}.h": header,
        f"{name}.map": MAP.substitute(exports="; ".join(exports)),
        "data.S": DATA.substitute(
            name=name,
            alignment=LINE,
            symbol=f"bucketize_{name}_data",
            pieces="\n".join(_pieces(name, data)),
        ),
        "Makefile": MAKEFILE.substitute(name=name, objects=" ".join(files)),
    }
    with placing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, code in files.items():
            put(folder / file, [(0, code)])
        put(folder / f"{name}.bin", data.blobs())
        for file, text in texts.items():
            put(folder / file, [(0, os.fsencode(text))])
    return folder / f"{name}.h"


def _pieces(name: str, data: ModelData) -> list[str]:
    """The file, cut where it is told how far a kernel lies behind."""
    lines, at = [], 0
    for slot, kernel in data.slots():
        if slot > at:
            lines.append(f'        .incbin "{name}.bin", {at}, {slot - at}')
        lines.append(f"        .quad {kernel} - bucketize_{name}_data")
        at = slot + WORD
    return [*lines, f'        .incbin "{name}.bin", {at}, {data.size - at}']
