"""Machine code, made of LLVM IR."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from bucketize.machine.target import Processor


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


@cache
def machine(wanted: Processor) -> llvm.TargetMachine:
    """What makes machine code for a processor, be it another one than this."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(wanted.code_triple).create_target_machine(
        cpu=wanted.cpu, features=wanted.code_features, opt=3, reloc="pic", codemodel="small"
    )
