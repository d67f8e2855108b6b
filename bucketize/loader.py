"""`load`: an executable from a file, without model, log, compiler, cache or writable disk."""

from __future__ import annotations

import os
from pathlib import Path

from bucketize.errors import ProgramError, warn
from bucketize.executable import Executable
from bucketize.link.image import Image
from bucketize.machine.file import open_to_others, path_of
from bucketize.machine.target import cores
from bucketize.release import rest
from bucketize.runtime.thread_pool import MOST_THREADS, check_threads
from bucketize.save.container import File, sound
from bucketize.save.read import SavedProgram


def load(path: str | Path, *, rebuild: bool = False, trusted: bool = False) -> Executable:
    """The executable that `Executable.save` wrote.

    A saved program is code, of which digests tell damage, not intent: load only what you trust.
    Machine code runs on the processor that it was made for, and its tables are those of one
    version of bucketize.

    The file is mapped into memory, and read as it is used. Replace it by renaming another one, as
    `save` does: who uses the old one keeps it. A file that is cut short or written over in place
    ends the processes that use it by SIGBUS, which nothing can catch, or changes what they compute.

    Args:
        path: of the file.
        rebuild: run nothing that the file brings: its kernels are compiled anew from the
            description of what they compute, with the file's schedules where they are legal here.
        trusted: take a file that others than you and root may write, or replace in its directory.

    Returns:
        The executable; its `module` is None.

    Raises:
        ArgumentError: no path.
        CompileError: it was compiled for more threads than any call has.
        ProgramError: the file is none of ours, damaged, of a newer format, of another processor or
            version, or others may write it.

    """
    file = File(path_of(path, "the path of what `Executable.save` wrote"))
    with sound(path):
        stored = SavedProgram(file)
        reason = stored.foreign()
        _check_threads(path, stored.header["threads"])
        if reason is None and not rebuild:
            if not trusted:
                _check_owner(file)
            return Executable(Image(stored.program(), stored))
    if not rebuild:
        raise ProgramError(f"{path} {reason}; rebuild=True (--rebuild) compiles its kernels anew")
    with sound(path):
        stored.check()
        program = stored.program()
    # The compiler is loaded by name, so that loading without it pays nothing for it.
    executable: Executable = rest("bucketize.compiler").rebuilt(program)
    return executable


def identity(path: str | Path) -> object:
    """What tells a file from another in its place; None if there is none.

    Args:
        path: of the file.

    Returns:
        What is equal for as long as the file is the same.

    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _check_threads(path: str | os.PathLike[str], threads: int) -> None:
    """Refuse what no call has; warn of more than there are here, on which calls run as well."""
    check_threads(threads, MOST_THREADS)
    if threads > (here := cores()):
        warn(f"{path} was compiled for {threads} threads; this process may use {here}, which work")


def _check_owner(file: File) -> None:
    """Raise ProgramError if anybody but this user and root may write the file, or replace it."""
    path = file.path.resolve()
    for place, status in ((path, file.status), (path.parent, path.parent.stat())):
        open_ = open_to_others(place, status)
        if open_ is not None:
            raise ProgramError(
                f"{open_}, and a saved program is code: chown and chmod go-w mend that of a "
                "file of your own; trusted=True (--trusted) runs it all the same, rebuild=True "
                "(--rebuild) compiles it anew and runs nothing that it brings"
            )
