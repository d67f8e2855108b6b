"""`save_library`: an executable as a shared object with a plain interface of C, and its header."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import llvmlite.binding as llvm

from bucketize.errors import ProgramError
from bucketize.executable import Executable
from bucketize.kernel.codegen import machine
from bucketize.kernel.emit.integer import functions_text
from bucketize.kernel.emit.module import optimised
from bucketize.kernel.emit.word import DATA
from bucketize.library import shared_object
from bucketize.library.data import data_of
from bucketize.library.header import header
from bucketize.library.native import model
from bucketize.library.route import Route, Routes, routes_of
from bucketize.link.image import Image
from bucketize.machine.target import Processor
from bucketize.release import release

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
}


def save_library(exe: Executable, path: str | Path) -> Path:
    """Write a shared object of ELF, and beside it the header that says what C calls.

    It needs the C library and its mathematics alone; weights are inside. Every clone is in it, and
    runs on the thread that calls.

    Args:
        exe: of native code alone: what numpy would compute, a library cannot.
        path: of the library, as in `model.so`; its functions are called `bucketize_model_run` then.

    Returns:
        The path of the header.

    Raises:
        ProgramError: the model has an operator that no kernel computes, or an input that is no
            tensor; the files cannot be written.

    """
    path = Path(path)
    image = exe.image
    routes = routes_of(image.program)
    prefix = f"bucketize_{_identifier(path.stem)}"
    exports = [f"{prefix}_{name}" for name in FUNCTIONS]
    codes = _codes(image, routes, prefix)
    text = shared_object.text_of(codes, DATA)
    behind = shared_object.data_behind(text)
    data = data_of(image, routes, {name: at - behind for name, at in text.functions.items()})
    _put(path, lambda f: shared_object.write(f, path.name, text, data, exports))
    main = image.program.routines["main"]
    results = dict(zip(image.program.outputs, main.code.results, strict=True))
    its = image.program.target.name
    told = header(path.name, prefix, release(), its, main.params, results)
    beside = path.with_suffix(".h")
    _put(beside, lambda f: f.write(told.encode()))
    return beside


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _codes(image: Image, routes: Routes, prefix: str) -> dict[str, bytes]:
    """The machine code of a library, by the names of its functions."""
    supply = image.supply
    segments = dict.fromkeys(r.segment for r in routes.leaves if isinstance(r, Route))
    names = dict.fromkeys(name for s in segments for name in image.linked(s).plan.kernels)
    core = [supply.core(name) for name in ("fill", "walk", "strip")]
    kernels = [*core, *(supply.kernel(name) for name in names)]
    own = _functions(image.program.target.processor, prefix)
    return {"": own, **{kernel.name: kernel.code for kernel in kernels}}


def _functions(wanted: Processor, prefix: str) -> bytes:
    named = {f"{prefix}_{name}": function for name, function in FUNCTIONS.items()}
    text = functions_text(named, wanted.code_triple)
    code: bytes = machine(wanted).emit_object(llvm.parse_assembly(optimised(text, wanted)))
    return code


def _put(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Put a file there, whole or not at all."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
            Path(temporary).chmod(0o755 if path.suffix == ".so" else 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as e:
        raise ProgramError(f"cannot write {path}: {e.strerror or e}") from e
