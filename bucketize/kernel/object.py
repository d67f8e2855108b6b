"""Machine code: object files made of LLVM IR, and loaded into the process without a compiler."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock

import llvmlite.binding as llvm

from bucketize.errors import KernelError
from bucketize.machine.target import Processor, processor

MAGIC = b"bucketize object 2\n"  # 2: the digest is of the name, too
DIGEST = hashlib.sha256().digest_size

_loading = Lock()


@dataclass(frozen=True)
class Kernel:
    """Native code: `address` is of a function void(int64* block)."""

    name: str
    code: bytes = field(repr=False)
    """The object file."""
    address: int
    """0 if it is for another processor than this."""
    path: Path | None = None
    """The source; None of one that was loaded."""
    cached: bool = True
    """Whether it was compiled earlier."""
    compile_s: float = 0.0
    """Seconds that getting it took."""


def compiled(text: str, entry: str, name: str, wanted: Processor) -> bytes:
    """The object file of LLVM IR that is optimised already; its function `entry` is called `name`.

    Everything else stays inside the object: two of them never share a symbol.
    """
    module = llvm.parse_assembly(text)
    for function in module.functions:
        if not function.is_declaration and function.name != entry:
            function.linkage = "internal"
    module.get_function(entry).name = name
    code: bytes = machine(wanted).emit_object(module)
    return code


def sealed(code: bytes, name: str) -> bytes:
    """The bytes of a file that holds the object of `name`: with a digest of both in front.

    So a torn file is known, and one that was renamed.
    """
    return MAGIC + _digest(code, name) + code


def unsealed(file: bytes, name: str) -> bytes | None:
    """The object of such a file; None if it is not whole, or not of this name."""
    start = len(MAGIC) + DIGEST
    code = file[start:]
    whole = file[:start] == MAGIC + _digest(code, name)
    return code if whole else None


def _digest(code: bytes, name: str) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + code).digest()


_addresses: dict[str, int] = {}


def load(name: str, code: bytes) -> int:
    """The address of the function `name` of an object; of one that is loaded already, its own."""
    with _loading:
        if name not in _addresses:
            engine = _engine()
            try:
                engine.add_object_file(llvm.ObjectFileRef.from_data(code))
                engine.finalize_object()
            except RuntimeError as e:
                raise KernelError(f"the machine code of {name} cannot be loaded: {e}") from e
            address = engine.get_function_address(name)
            if not address:
                raise KernelError(f"an object file lacks its function {name}")
            _addresses[name] = address
    return _addresses[name]


@cache
def machine(wanted: Processor) -> llvm.TargetMachine:
    """What makes machine code for a processor, be it another one than this."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(wanted.triple).create_target_machine(
        cpu=wanted.cpu, features=wanted.features, opt=3, jit=True, codemodel="jitdefault"
    )


@cache
def _engine() -> llvm.ExecutionEngine:
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine(processor()))
