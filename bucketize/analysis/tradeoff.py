"""The trade-off of dispatchers, measured: what each costs, and how fast its clones are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
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
from bucketize.ir import Builder, Module, Var
from bucketize.op import Array
from bucketize.ops import relu
from bucketize.program.instruction import DEFAULT, LOGGED, RunSegment, instructions
from bucketize.progress import Tell, progress_bar, shown
from bucketize.runtime.executable import Executable
from bucketize.timing import interleaved
from bucketize.tune.environment import here
from bucketize.types import tensor

ROUNDS = 15  # of calls at least, at each case
ENOUGH_S, MOST = 3.0, 301  # more rounds until this time has passed, at most so many
CACHE = "BUCKETIZE_CACHE"


@dataclass(frozen=True, eq=False)
class Case:
    """Sizes by symbol, arrays of these sizes by input, and what the ops mean by them."""

    sizes: Mapping[str, int]
    arrays: Mapping[str, Array]
    wanted: Sequence[Array]

    @classmethod
    def of(cls, mod: Module, /, **arrays: Array) -> Case:
        """The case of these inputs of a module, computed op by op: slow."""
        params = name_dims(mod.main).params
        given = arrange_inputs(params, (), arrays)
        sizes = bind_shapes(params, [a.shape for a in given])
        return cls(sizes, arrays, evaluate_module(mod, **arrays))

    @property
    def shape(self) -> str:
        """`N=4,H=224,W=224`."""
        return ",".join(f"{symbol}={size}" for symbol, size in self.sizes.items())


Logs: TypeAlias = str | Path | Mapping[str, str | Path] | None  # by dispatcher, or one for all


def measure_trade_off(
    modules: Mapping[str, Module],
    cases: Sequence[Case],
    *,
    log: Logs = None,
    threads: int = 1,
    model: str = "",
    progress: Tell | bool | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The latency of each module at each case, and its cost: `trade_off(*measure_trade_off(...))`.

    The modules are called in turn, round by round, so that whatever slows the machine slows all.

    Args:
        modules: by dispatcher; "oracle" has a static clone for exactly each case.
        cases: where latency is measured; see `Case.of`.
        log: the tuning log whose schedules serve, or one log for each dispatcher that has one; the
            rest run on defaults.
        threads: of the executables.
        model: its name, for the frames.
        progress: told what goes on, and how much of it is done, of how much; True shows a bar on
            stderr.

    Returns:
        A row per dispatcher, shape and round: `latency_s`, the `clone` that served, the largest
        relative error of its results, and which model, on which machine, when. And a row per
        dispatcher but the oracle, with what it cost: `clones`, distinct `kernels`, `compile_s` from
        an empty cache, `weight_mib` of constants as kernels hold them, and of its `tasks` (the
        workloads of each clone that have knobs) how many the log knows, `searched`, and for how
        many it knows better than the default, `tuned`.

    """
    with shown(progress, progress_bar("comparing")) as tell:
        executables = _compiled(modules, log, threads, tell)
        where: dict[str, Any] = {"model": model, **_here(), "threads": threads}
        costs = [{"dispatcher": n, **_cost(e)} for n, e in executables.items() if n != ORACLE]
        latencies: list[dict[str, Any]] = []
        for i, case in enumerate(cases):
            if tell is not None:
                tell(f"measuring {case.shape}", i, len(cases))
            latencies += _latencies(executables, case)
    return pd.DataFrame(latencies).assign(**where), pd.DataFrame(costs)


def _compiled(
    modules: Mapping[str, Module], log: Logs, threads: int, tell: Tell | None
) -> dict[str, Executable]:
    """The executables, each from an empty cache."""
    executables: dict[str, Executable] = {}
    _load_compiler()
    for name, mod in modules.items():
        told = tell and partial(_told, tell, name)
        own = log.get(name) if isinstance(log, Mapping) else log
        with _empty_cache():
            executables[name] = compile(mod, log=own, threads=threads, progress=told)
    return executables


def _here() -> dict[str, str]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"host_cpu": here().host_cpu, "date": now}


def _load_compiler() -> None:
    """Compile something first, else the first module's seconds hold the compiler's loading."""
    x = Var("x", tensor("float32", 1))
    b = Builder()
    with _empty_cache():
        compile(Module({"main": b.function("main", [x], [b.emit(relu, x)])}))


def _told(progress: Tell, name: str, function: str, done: int, total: int) -> None:
    progress(f"{name}: {function}", done, total)


def _cost(exe: Executable) -> dict[str, Any]:
    """What an executable came to: clones, distinct kernels, seconds, bytes, and tuned workloads."""
    why = _sources(exe)
    return {
        "clones": max(len(exe.program.routines) - 1, 1),
        "kernels": exe.counts.kernels,
        "compile_s": exe.counts.seconds,
        "weight_mib": exe.constant_bytes() / 2**20,
        "tasks": len(why),
        "searched": sum(source != DEFAULT for source in why.values()),
        "tuned": sum(source == LOGGED for source in why.values()),
    }


def _sources(exe: Executable) -> dict[tuple[str, str], str]:
    """Where each clone's choice comes from for each distinct workload that has knobs."""
    return {
        (routine.name, call.workload.hash): call.why
        for routine in exe.routines.values()
        for i in instructions(routine.code)
        if isinstance(i, RunSegment)
        for call in i.segment.calls
        if call.implementation.schedule
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
    """The latency of every executable in every round at one case, and its error."""
    errors = {n: worst_error(e.run(**case.arrays), case.wanted) for n, e in executables.items()}
    calls = {name: partial(exe.run, **case.arrays) for name, exe in executables.items()}
    times = interleaved(  # each right after a call of its own: its weights are warm then
        calls, least=ROUNDS, most=MOST, enough_s=ENOUGH_S, before=calls
    )
    shapes = {name: array.shape for name, array in case.arrays.items()}
    clones = {name: exe.explain(**shapes).clone for name, exe in executables.items()}
    for name, taken in times.items():
        for i, seconds in enumerate(taken):
            yield {
                "dispatcher": name,
                "shape": case.shape,
                "clone": clones[name],
                "round": i,
                "latency_s": seconds,
                "max_rel_err": errors[name],
            }
