"""`load`: an executable from a file, without model, log, compiler, cache or writable disk."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from bucketize.errors import ArgumentError, ProgramError
from bucketize.program.file import File, sound
from bucketize.runtime.executable import Executable
from bucketize.runtime.image import Image
from bucketize.runtime.stored import Stored
from bucketize.runtime.team import check_threads


def load(path: str | Path, *, rebuild: bool = False) -> Executable:
    """The executable that `Executable.save` wrote.

    Machine code runs on the processor that it was made for, and its tables are those of one
    version of bucketize. Elsewhere that is an error, unless `rebuild` allows to compile the
    kernels anew; the schedules are then the file's where they are legal here.

    Raises:
        ProgramError: the file is none of ours, damaged, of a newer format, or of another
            processor or version.

    """
    if not isinstance(path, str | os.PathLike):
        kind = type(path).__name__
        raise ArgumentError(f"expected the path of what `Executable.save` wrote, got {kind}")
    file = File(path)
    with sound(path):
        stored = Stored(file)
        reason = stored.foreign()
        check_threads(stored.header["threads"])
        if reason is None:
            return Executable(Image(stored.program(), stored))
    if not rebuild:
        raise ProgramError(f"{path} {reason}; rebuild=True compiles its kernels anew")
    stored.check()
    # The compiler is loaded by name, so that loading without it pays nothing for it.
    compiler = importlib.import_module("bucketize.compiler")
    executable: Executable = compiler.rebuilt(stored.program())
    return executable
