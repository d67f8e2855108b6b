"""Where and with what a trial is measured: what must agree before two latencies may be compared."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

from llvmlite import binding


@dataclass(frozen=True)
class Environment:
    """The versions, the target and the host of a measurement; its fields are columns of the log."""

    bucketize_version: str
    python_version: str
    numpy_version: str
    numba_version: str
    llvmlite_version: str
    target_triple: str
    target_features: str  # a hash: the list itself has a hundred names
    host_cpu: str
    host_cores: int


VERSIONS = (
    "bucketize_version",
    "python_version",
    "numpy_version",
    "numba_version",
    "llvmlite_version",
)
HOST = ("target_triple", "target_features", "host_cpu", "host_cores")


@cache
def here() -> Environment:
    """The environment of this process."""
    features: str = binding.get_host_cpu_features().flatten()
    return Environment(
        bucketize_version=version("bucketize"),
        python_version=platform.python_version(),
        numpy_version=version("numpy"),
        numba_version=version("numba"),
        llvmlite_version=version("llvmlite"),
        target_triple=binding.get_process_triple(),
        target_features=hashlib.sha256(features.encode()).hexdigest()[:16],
        host_cpu=binding.get_host_cpu_name(),
        host_cores=os.cpu_count() or 1,
    )
