"""`save_library`: an executable as a shared object with a plain interface of C, and its header."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from bucketize.errors import ArgumentError
from bucketize.executable import Executable
from bucketize.kernel.codegen import machine
from bucketize.kernel.emit.integer import functions_text
from bucketize.kernel.emit.module import optimised
from bucketize.kernel.emit.word import DATA
from bucketize.library import shared_object
from bucketize.library.block import CORE
from bucketize.library.data import data_of
from bucketize.library.flow import Flow
from bucketize.library.header import header
from bucketize.library.native import model
from bucketize.library.objects import write_objects
from bucketize.link.image import Image
from bucketize.machine.file import path_of, put
from bucketize.machine.target import Processor
from bucketize.save.container import placing

FUNCTIONS: dict[str, Callable[..., object]] = {
    "open": model.opened,
    "close": model.closed,
    "error": model.error,
    "inputs": model.inputs,
    "outputs": model.outputs,
    "input": model.input_text,
    "output": model.output_text,
    "shape": model.shape,
    "run": model.run,
    "result": model.result,
}
FORMATS = ("so", "c")


def save_library(exe: Executable, path: str | Path, format: str = "so") -> Path:
    """Write a program as a library of C, and the header that says what is called how.

    It needs the C library and its mathematics alone; weights are inside. Every clone is in it, and
    runs on the thread that calls.

    Args:
        exe: of native code alone: what numpy would compute, a library cannot.
        path: of the library, as in `model.so`, whose functions are `bucketize_model_run` and the
            like; of a folder, for "c".
        format: "so", a shared object of ELF, as it is loaded under Linux; or "c": objects, header
            and Makefile, for a linker of one's own.

    Returns:
        The path of the header.

    Raises:
        ArgumentError: another format, no path, or that of the header.
        ProgramError: the model has an operator that no kernel computes, or an input that is no
            tensor; the files cannot be written.

    """
    if format not in FORMATS:
        raise ArgumentError(f"format: expected {' or '.join(FORMATS)}, got {format!r}")
    path, image = path_of(path, "the path of a library to write"), exe.image
    stem = Path(os.path.abspath(path)).stem  # of "." the folder's
    name = re.sub(r"\W", "_", stem, flags=re.ASCII)  # an identifier of C
    if not name or (format == "so" and path.suffix in (".h", path.name)):
        raise ArgumentError(f"{path}: expected a name for the library, as in model.so")
    prefix, flow = f"bucketize_{name}", Flow(image.program)
    codes, data = _codes(image, flow, prefix), data_of(image, flow)
    exports = [f"{prefix}_{function}" for function in FUNCTIONS]
    said = header(path.name, prefix, image.program)
    if format == "c":
        return write_objects(path, name, codes, data, exports, said)
    text = shared_object.text_of(list(codes.values()), f"{prefix}_data")
    behind = shared_object.data_behind(text)
    data.tell({name: at - behind for name, at in text.functions.items()})
    beside = path.with_suffix(".h")
    with placing(path):
        put(path, shared_object.pieces(path.name, text, data, exports), 0o755)
        put(beside, [(0, os.fsencode(said))])
    return beside


def _codes(image: Image, flow: Flow, prefix: str) -> dict[str, bytes]:
    """Machine code, by the names of its functions; of the interface, by an empty one."""
    supply = image.supply
    plans = [image.linked(s).plan for s in flow.segments() if s.fn.body]
    names = dict.fromkeys(name for plan in plans for name in plan.kernels)
    core = [supply.core(name) for name in CORE.__members__]
    kernels = [*core, *(supply.kernel(name) for name in names)]
    own = _functions(image.program.target.processor, prefix)
    return {"": own, **{kernel.name: kernel.code for kernel in kernels}}


@cache
def _functions(wanted: Processor, prefix: str) -> bytes:
    """The machine code of what C calls; libraries that are linked into one keep apart."""
    named = {f"{prefix}_{name}": function for name, function in FUNCTIONS.items()}
    text = functions_text(named, wanted.code_triple).replace(DATA, f"{prefix}_data")
    code: bytes = machine(wanted).emit_object(optimised(text, wanted))
    return code
