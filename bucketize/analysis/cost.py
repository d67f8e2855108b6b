"""What a dispatcher costs: its clones compiled as at a first start, and what that came to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bucketize.compiler import compile
from bucketize.executable import Executable
from bucketize.inspect.calibrate import calibrated
from bucketize.ir import Builder, Module, Var
from bucketize.machine.directory import VARIABLE
from bucketize.ops import relu
from bucketize.program.instruction import DEFAULT, LOGGED
from bucketize.program.program import Routine
from bucketize.progress import Tell
from bucketize.types import tensor

COSTS = ("kernels", "compile_s", "weight_mib", "tasks", "searched", "tuned")


def load_compiler() -> None:
    """Compile something first, else the first module's seconds hold the compiler's loading."""
    x = Var("x", tensor("float32", 1))
    b = Builder()
    with _empty_cache():
        compile(Module({"main": b.function("main", [x], [b.emit(relu, x)])}))


def compiled_anew(mod: Module, log: str | Path | None, threads: int, tell: Tell) -> Executable:
    """The executable, every clone of it, from an empty cache."""
    with _empty_cache():
        return compile(mod, log=log, threads=threads, progress=tell)


@contextmanager
def _empty_cache() -> Iterator[None]:
    """Compile as a first start does, but for the machine's speed: without kernels from the disk."""
    calibrated()
    with tempfile.TemporaryDirectory(prefix="bucketize-") as directory, cache_in(directory):
        yield


@contextmanager
def cache_in(directory: str | Path) -> Iterator[None]:
    """Keep kernels in this directory, and take them from there alone."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(directory)
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def clones(mod: Module) -> int:
    """How many functions serve sizes: itself, or its clones."""
    return max(len(mod.functions) - 1, 1)


def cost(exe: Executable) -> dict[str, Any]:
    """What an executable came to: distinct kernels, seconds, bytes, and tuned workloads."""
    why = [source for routine in exe.routines.values() for source in choices(routine).values()]
    return {
        "kernels": exe.counts.kernels,
        "compile_s": exe.counts.seconds,
        "weight_mib": exe.constant_bytes() / 2**20,
        "tasks": len(why),
        "searched": sum(source != DEFAULT for source in why),
        "tuned": sum(source == LOGGED for source in why),
    }


def choices(routine: Routine) -> dict[str, str]:
    """Where a clone's choice comes from, for each distinct workload that has knobs."""
    return {
        call.workload.hash: call.why for call in routine.calls() if call.implementation.schedule
    }


def is_tuned(routine: Routine) -> bool:
    """Whether the log has a word on what a clone runs, or there is nothing to choose."""
    why = choices(routine).values()
    return not why or any(source != DEFAULT for source in why)
