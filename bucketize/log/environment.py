"""Where and with what a trial is measured: what must agree before two latencies may be compared."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version

from llvmlite import binding

from bucketize.machine.host import calibration_of, host
from bucketize.release import release


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
    speed: str = field(default="", compare=False)
    """Probes of this machine, "ghz=2.98 fma=1.82 ...": no two of a kind have the same."""


VERSIONS = ("bucketize_version", "numba_version", "llvmlite_version")  # that write machine code
ALIKE = frozenset({"0.1.0", "0.2.0"})
"""Releases whose schedules take the same time: rows of one count for the other."""
HOST = ("target_triple", "target_features", "host_cpu", "host_cores")


@cache
def here() -> Environment:
    """The environment of this process.

    What trials made of the speed is no part of it: rows from before and after count alike.
    """
    its_own = calibration_of(host())
    return Environment(
        bucketize_version=release(),
        python_version=platform.python_version(),
        numpy_version=version("numpy"),
        numba_version=version("numba"),
        llvmlite_version=version("llvmlite"),
        target_triple=binding.get_process_triple(),
        target_features=host().processor.digest,
        host_cpu=host().name,
        host_cores=os.cpu_count() or 1,
        speed=str(host().speed if its_own is None else its_own.alone),
    )
