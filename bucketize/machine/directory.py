"""The user's cache: kernels, how fast the machine is, and what else takes seconds to make."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import platformdirs

from bucketize.machine.file import open_to_others, put

VARIABLE = "BUCKETIZE_CACHE"
DIGEST = sha256().digest_size


def cache_directory() -> Path:
    """Where kernels are kept: the environment's BUCKETIZE_CACHE, or the user's cache directory."""
    return Path(os.environ.get(VARIABLE) or platformdirs.user_cache_dir("bucketize"))


def kept(name: str, make: Callable[[], bytes]) -> bytes:
    """What a file of the cache holds if it is whole and nobody else could write it, or is made.

    Where nothing can be kept it is made again the next time.
    """
    path = cache_directory() / f"kept_{name}"
    with suppress(OSError):
        if not any(open_to_others(its, its.stat()) for its in (path.parent, path)):
            digest, content = (file := path.read_bytes())[:DIGEST], file[DIGEST:]
            if digest == sha256(content).digest():
                return content
    content = make()
    with suppress(OSError):
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        put(path, [(0, sha256(content).digest() + content)])
    return content


def kept_files() -> list[Path]:
    """The files of `kept`."""
    return sorted(cache_directory().glob("kept_*"))
