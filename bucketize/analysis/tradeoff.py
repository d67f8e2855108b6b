"""The trade-off of dispatchers, measured: what each costs, and how fast its clones are."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from bucketize.analysis.frame import ORACLE
from bucketize.call import arrange_inputs, bind_shapes
from bucketize.compare import worst_error
from bucketize.compiler import compile
from bucketize.dispatch.tree import name_dims
from bucketize.interpret import evaluate_module
from bucketize.ir import Module
from bucketize.op import Array
from bucketize.runtime.executable import Executable
from bucketize.timing import interleaved

Progress: TypeAlias = Callable[[str, int, int], None]  # (what, done, total)

ROUNDS = 15
CACHE = "BUCKETIZE_CACHE"


@dataclass(frozen=True, eq=False)
class Case:
    """Sizes by symbol, arrays of these sizes by input, and what the ops mean by them."""

    sizes: Mapping[str, int]
    arrays: Mapping[str, Array]
    wanted: Sequence[Array]

    @classmethod
    def of(cls, mod: Module, **arrays: Array) -> Case:
        """The case of these inputs of a module, computed op by op: slow."""
        params = name_dims(mod.main).params
        given = arrange_inputs(params, (), arrays)
        sizes = bind_shapes(params, [a.shape for a in given])
        return cls(sizes, arrays, evaluate_module(mod, **arrays))

    @property
    def shape(self) -> str:
        """`N=4,H=224,W=224`."""
        return ",".join(f"{symbol}={size}" for symbol, size in self.sizes.items())


def measure_trade_off(
    modules: Mapping[str, Module],
    cases: Sequence[Case],
    *,
    log: str | Path | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The latency of each module at each case, and its cost: `trade_off(*measure_trade_off(...))`.

    Args:
        modules: by dispatcher; "oracle" has a static clone for exactly each case.
        cases: where latency is measured; see `Case.of`.
        log: the tuning log whose schedules serve; defaults without one.
        threads: of the executables.
        progress: told what compiles, how many functions of a module are done, and of how many.

    """
    executables: dict[str, Executable] = {}
    for name, mod in modules.items():
        told = progress and partial(_told, progress, name)
        with _empty_cache():
            executables[name] = compile(mod, log=log, threads=threads, progress=told)
    costs = [{"dispatcher": n, **_cost(e)} for n, e in executables.items() if n != ORACLE]
    rows = [row for case in cases for row in _latencies(executables, case)]
    return pd.DataFrame(rows), pd.DataFrame(costs)


def _told(progress: Progress, name: str, function: str, done: int, total: int) -> None:
    progress(f"{name}: {function}", done, total)


def _cost(exe: Executable) -> dict[str, Any]:
    """What an executable came to: clones, distinct kernels, seconds and bytes."""
    return {
        "clones": max(len(exe.program.routines) - 1, 1),
        "kernels": exe.counts.kernels,
        "compile_s": exe.counts.seconds,
        "weight_mib": exe.constant_bytes() / 2**20,
        "tuned": exe.counts.found,
        "workloads": exe.counts.found + exe.counts.defaults,
    }


@contextmanager
def _empty_cache() -> Iterator[None]:
    """Compile as a first start does: without kernels from the disk."""
    before = os.environ.get(CACHE)
    with tempfile.TemporaryDirectory(prefix="bucketize-") as directory:
        os.environ[CACHE] = directory
        try:
            yield
        finally:
            os.environ.pop(CACHE)
            if before is not None:
                os.environ[CACHE] = before


def _latencies(executables: Mapping[str, Executable], case: Case) -> Iterator[dict[str, Any]]:
    """The median latency of every executable at one case, measured in turns, and its error."""
    errors = {n: worst_error(e.run(**case.arrays), case.wanted) for n, e in executables.items()}
    calls = {name: partial(exe.run, **case.arrays) for name, exe in executables.items()}
    times = interleaved(calls, least=ROUNDS, before=calls)  # its own weights are warm then
    shapes = {name: array.shape for name, array in case.arrays.items()}
    for name, exe in executables.items():
        yield {
            "dispatcher": name,
            "shape": case.shape,
            "clone": exe.explain(**shapes).clone,
            "latency_s": statistics.median(times[name]),
            "max_rel_err": errors[name],
        }
