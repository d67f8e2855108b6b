"""The user's cache: kernels, and how fast the machine is."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

VARIABLE = "BUCKETIZE_CACHE"


def cache_directory() -> Path:
    """Where kernels are kept: the environment's BUCKETIZE_CACHE, or the user's cache directory."""
    return Path(os.environ.get(VARIABLE) or platformdirs.user_cache_dir("bucketize"))
