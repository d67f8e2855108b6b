"""The operators, each declared in the file of its family; a family is imported when it is used.

`bucketize.ops.NAME` is the operator of a name, from whichever family.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bucketize.ops.every import *


def __getattr__(name: str) -> Any:
    every = import_module("bucketize.ops.every")
    if name.startswith("_") or not hasattr(every, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(every, name)


def __dir__() -> list[str]:
    return dir(import_module("bucketize.ops.every"))
