"""The release that this is."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from bucketize.errors import BucketizeError


@cache
def release() -> str:
    """The last tag: commits behind it count as it, for logs and saved programs.

    Building a wheel writes it down, and so does installing one; of sources that only lie there
    nobody knows.
    """
    try:
        version: str = import_module("bucketize._version").__version__
    except ModuleNotFoundError as e:
        raise BucketizeError(
            "bucketize is not installed: pip install -e ./runtime -e . where it lies"
        ) from e
    return version.partition(".post")[0]


def rest(module: str) -> Any:
    """A module of bucketize that only some calls need, and that bucketize-runtime has not.

    Raises BucketizeError where that alone is installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as e:
        if str(e.name).partition(".")[0] != "bucketize":
            raise
        message = f"{module} is no part of bucketize-runtime: pip install bucketize"
        raise BucketizeError(message) from e
