"""The user's cache: kernels, and how fast the machine is."""

from __future__ import annotations

import os
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
