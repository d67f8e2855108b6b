"""The bars of the command line."""

from __future__ import annotations

from bucketize.progress import progress_bar as compiling_bar
from bucketize.tune.progress import tuning_bar

__all__ = ["compiling_bar", "tuning_bar"]
