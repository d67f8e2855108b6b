"""The user's cache, and who may write a file: no machine code is run that others can put there."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import tempfile
from pathlib import Path

import platformdirs

VARIABLE = "BUCKETIZE_CACHE"


def cache_directory() -> Path:
    """Where kernels are kept: the environment's BUCKETIZE_CACHE, or the user's cache directory."""
    return Path(os.environ.get(VARIABLE) or platformdirs.user_cache_dir("bucketize"))


def put(path: Path, data: bytes) -> None:
    """Put a file into the cache, whole or not at all; a cache made by root serves all users."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def open_to_others(path: Path, status: os.stat_result) -> str | None:
    """Who else may write to `path`, a file or a directory of this status; None if nobody may.

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
