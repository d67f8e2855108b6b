"""Kernels without numba: a module of LLVM IR with one entry, void(int64* block), optimised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeAlias

import llvmlite.binding as llvm
from llvmlite import ir

from bucketize.kernel.codegen import machine
from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import POINTER, VOID
from bucketize.machine.target import Processor

Emit: TypeAlias = Callable[..., None]
Generated: TypeAlias = Callable[[Processor], tuple[llvm.ModuleRef, str]]
"""A kernel for any processor: its optimised IR, and its symbol there."""


def kernel_source(module: str, parameters: dict[str, Any]) -> str:
    """The text of the kernel that `emit` of a module, `module` whole, writes with `parameters`."""
    shown = "\n".join(f"    {k!r}: {v!r}," for k, v in parameters.items())
    return f'''"""Vector code written by {module}."""

from math import inf, nan

from {module} import emit
from bucketize.kernel.emit.module import vector_kernel

parameters = {{
{shown}
}}
kernel = vector_kernel(__name__, emit, parameters)
'''


def form_source(module: str, form: Any) -> str:
    """The text of a kernel with a form's fields; one that is no literal has a `plain` that is."""
    values = {f.name: getattr(form, f.name) for f in fields(form)}
    return kernel_source(module, {name: getattr(v, "plain", v) for name, v in values.items()})


def vector_kernel(name: str, emit: Emit, parameters: dict[str, Any]) -> Generated:
    """A kernel that `emit(writer, block, **parameters)` writes."""
    rest = dict(parameters)
    lanes = rest.pop("lanes")

    def generated(wanted: Processor) -> tuple[llvm.ModuleRef, str]:
        text = module_text(name, lambda w, block: emit(w, block, **rest), wanted.code_triple, lanes)
        return optimised(text, wanted), name

    return generated


def module_text(name: str, body: Emit, triple: str, lanes: int = 1) -> str:
    """The IR of a kernel whose code `body(writer, block)` writes."""
    module = ir.Module(name)
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(VOID, [POINTER]), name)
    writer = Writer(ir.IRBuilder(function.append_basic_block()), lanes)
    body(writer, function.args[0])
    writer.builder.ret_void()
    return str(module)


def optimised(text: str, wanted: Processor) -> llvm.ModuleRef:
    """The IR, with what is written clumsily put right: the rest is written as it shall be.

    Loops are unrolled, and values kept in registers, by who writes them: LLVM's passes for the
    most speed take as long again as all of the compiler, and kernels are no faster for it.
    """
    module, its = llvm.parse_assembly(text), machine(wanted)
    module.data_layout = str(its.target_data)
    passes = llvm.create_new_module_pass_manager()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(its, llvm.create_pipeline_tuning_options()))
    return module
