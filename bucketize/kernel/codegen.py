"""LLVM IR, made of a kernel's source, and machine code, made of LLVM IR."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import ModuleType

import llvmlite.binding as llvm

from bucketize.machine.target import Processor


def generated(path: Path, wanted: Processor) -> tuple[llvm.ModuleRef, str]:
    """The IR of the kernel whose source a file holds, optimised, and the kernel's symbol there.

    Python's own cache of compiled files takes no part: it would be believed unseen.
    """
    module = ModuleType(path.stem)
    exec(compile(path.read_text(), path, "exec"), module.__dict__)
    its, symbol = module.kernel(wanted)
    return its, symbol


def compiled(module: llvm.ModuleRef, entry: str, name: str, wanted: Processor) -> bytes:
    """The object file of LLVM IR that is optimised already; its function `entry` is called `name`.

    Everything else stays inside the object: two of them never share a symbol. The module is used
    up: LLVM changes it on the way.
    """
    code: bytes = machine(wanted).emit_object(_named(module, entry, name))
    return code


def assembly(module: llvm.ModuleRef, entry: str, name: str, wanted: Processor) -> str:
    """The assembly of what `compiled` gives, to read."""
    code: str = machine(wanted).emit_assembly(_named(module, entry, name))
    return code


def _named(module: llvm.ModuleRef, entry: str, name: str) -> llvm.ModuleRef:
    for function in module.functions:
        if not function.is_declaration and function.name != entry:
            function.linkage = "internal"
    module.get_function(entry).name = name
    return module


@cache
def machine(wanted: Processor) -> llvm.TargetMachine:
    """What makes machine code for a processor, be it another one than this."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(wanted.code_triple).create_target_machine(
        cpu=wanted.cpu, features=wanted.code_features, opt=3, reloc="pic", codemodel="small"
    )
