"""The release that this is."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from bucketize.errors import BucketizeError


@cache
def release() -> str:
    """The last tag: commits behind it count as it, for logs and saved programs.

    Building a wheel writes it down, and so does installing one; of sources that only lie there
    nobody knows.
    """
    try:
        told: str = import_module("bucketize._version").__version__
    except ModuleNotFoundError as e:
        raise BucketizeError("bucketize is not installed: pip install -e . where it lies") from e
    return told.partition(".post")[0]
