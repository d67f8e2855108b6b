"""What a kernel is: its source, its LLVM IR, its assembly."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from bucketize.errors import unknown_name
from bucketize.kernel.codegen import assembly, generated
from bucketize.link.link import Linker
from bucketize.program.instruction import KernelCall
from bucketize.program.program import Program
from bucketize.table import shortened


class CodeForm(Enum):
    """How a kernel is read."""

    SOURCE = "source"
    """The text that is generated: what the name of its file is a digest of."""
    IR = "ir"
    """LLVM's, as machine code is made of it."""
    ASM = "asm"
    """The assembly of that machine code."""


def kernel_texts(program: Program, function: str, name: str, form: CodeForm) -> Iterator[str]:
    """Each kernel of this name in a function, behind a line of how it was chosen.

    Args:
        program: for any processor.
        function: the clone.
        name: nodes of the model, as `explain` and `profile` write them, or joined by "+"; or a
            kernel's own, `k_matmul_...`.
        form: what is wanted of it.

    Raises:
        UnknownNameError: the function has no such kernel; what it has is listed.

    """
    calls = [c for call in program.decide(function).calls() for c in call.each]
    matching = {c.kernel: c for c in calls if name in _names(c)}
    if not matching:
        raise unknown_name(f"kernel in {function}", name, {_names(c)[0] for c in calls})
    for call in matching.values():
        mark = "#" if form is CodeForm.SOURCE else ";"
        yield f"{mark} {call.kernel}: {call.implementation} [{call.why}]"
        yield _text(program, call.kernel, form)


def _names(call: KernelCall) -> tuple[str, ...]:
    """The names of a call: its nodes' as tables print them, in full, and its kernel's."""
    nodes = "+".join(call.binding.origin or (b.op.name for b in call.workload.body.body))
    template = call.implementation.template
    return shortened(nodes), shortened(nodes, kernel=template), nodes, call.kernel


def _text(program: Program, kernel: str, form: CodeForm) -> str:
    if form is CodeForm.SOURCE:
        return program.sources[kernel]
    path = Linker(program).kernel(kernel).path
    assert path is not None  # what is built has a source
    wanted = program.target.processor
    module, symbol = generated(path, wanted)
    if form is CodeForm.IR:
        return str(module)
    return assembly(module, symbol, kernel, wanted).expandtabs()  # a terminal is given no tabs
