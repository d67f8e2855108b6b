"""Tuning: tasks, search, measurement in a child process, and the log.

`bucketize.tune` names both this package and the function `session.tune`, whichever was imported
first; so the package can be called, too. Only a call loads the search and its scikit-optimize:
`log` and `choice`, which `compile` needs, are light.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bucketize.tune.session import tune

__all__ = ["tune"]


class _CallablePackage(ModuleType):
    """A package that is called for its function of the same name."""

    def __getattr__(self, name: str) -> Any:
        if name != "tune":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{self.__name__}.session").tune

    def __call__(self, *args: Any, **options: Any) -> Any:
        """`session.tune`."""
        return self.tune(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
