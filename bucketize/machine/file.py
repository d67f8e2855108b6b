"""A file that is put in its place, whole or not at all; and who else may write one."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from bucketize.errors import ArgumentError

Piece: TypeAlias = tuple[int, bytes | bytearray | memoryview]
"""Where bytes begin in a file, behind those of the piece before; and they."""


def put(path: Path, pieces: Iterable[Piece], mode: int = 0o644) -> None:
    """Put a file of pieces there; until it is whole, what was there stays.

    Raises OSError where it cannot be written, or where a device or a pipe is, which stays.
    """
    check_replaceable(path)
    temporary = path.parent / f"{path.name}{os.urandom(4).hex()}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            for place, piece in pieces:
                file.write(bytes(place - file.tell()))
                file.write(piece)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_replaceable(path: Path) -> None:
    """Raise OSError where another file would take the place of what is none."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "it is a device or a pipe, no file", str(path))


def takes_files(directory: Path) -> bool:
    """Whether a file can be made there; root has every right, and yet none in /proc."""
    try:
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        return False
    return True


def path_of(path: object, expected: str) -> Path:
    """The path of a file; ArgumentError, with what was expected, for what is none."""
    if not isinstance(path, str | os.PathLike) or not isinstance(text := os.fspath(path), str):
        raise ArgumentError(f"expected {expected}, got {type(path).__name__}")
    try:
        is_name = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise ArgumentError(f"expected {expected}, got {text!r}")
    return Path(text)


def open_to_others(path: Path, status: os.stat_result) -> str | None:
    """The reason why others may write to `path`, a file or a directory of this status; else None.

    In a sticky directory, as /tmp is, nobody moves or removes files of others.
    """
    if status.st_uid not in (os.getuid(), 0):
        return f"{path} belongs to user {status.st_uid}"
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return None
    by_group = bool(status.st_mode & stat.S_IWGRP) and not _is_private(status.st_gid)
    return f"others may write to {path}" if by_group or status.st_mode & stat.S_IWOTH else None


def _is_private(group: int) -> bool:
    """Whether a group is this user's alone, by name: where there are such, the umask is 002."""
    user = os.getuid()
    try:
        return user != 0 and grp.getgrgid(group).gr_name == pwd.getpwuid(user).pw_name
    except KeyError:  # of a container, say, whose users have no names
        return False
