"""The trade-off of dispatchers, measured: what each costs, and how fast its clones are."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bucketize.cli.model import ORACLE, compiled, worst_error
from bucketize.cli.parameter import Sizes, shown_sizes

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.cli.model import Arrays, Model, Results
    from bucketize.ir import Module
    from bucketize.runtime.executable import Executable

    Modules: TypeAlias = Mapping[str, Module]  # by dispatcher

ROUNDS = 15
CACHE = "BUCKETIZE_CACHE"


@dataclass(frozen=True, eq=False)
class Case:
    """Sizes, arrays of these sizes, and what the ops mean by them."""

    sizes: Sizes
    arrays: Arrays
    wanted: Results


def cases_of(model: Model, points: Sequence[Sizes]) -> list[Case]:
    """The cases at the given sizes."""
    from bucketize.interpret import evaluate_module

    every = [model.sizes(point) for point in points]
    drawn = [(sizes, model.inputs(sizes)) for sizes in every]
    return [Case(s, arrays, evaluate_module(model.module, **arrays)) for s, arrays in drawn]


def compare(
    modules: Modules, cases: Sequence[Case], *, log: Path | None, threads: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The cost of each module, and its latency at each case: the frames that `trade_off` takes."""
    import pandas as pd

    executables: dict[str, Executable] = {}
    costs = []
    for name, mod in modules.items():
        with empty_cache():
            exe = executables[name] = compiled(mod, f"compiling {name}", log=log, threads=threads)
        costs.append({"dispatcher": name, **cost(exe)})
    rows = [row for case in cases for row in latencies(executables, case)]
    cost_frame = pd.DataFrame([row for row in costs if row["dispatcher"] != ORACLE])
    return cost_frame, pd.DataFrame(rows)


def cost(exe: Executable) -> dict[str, Any]:
    """What an executable came to: clones, distinct kernels, seconds and bytes."""
    return {
        "clones": max(len(exe.module.functions) - 1, 1),
        "kernels": exe.counts.kernels,
        "compile_s": exe.counts.seconds,
        "weight_mib": exe.constant_bytes() / 2**20,
        "tuned": exe.counts.found,
        "workloads": exe.counts.found + exe.counts.defaults,
    }


@contextmanager
def empty_cache() -> Iterator[None]:
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


def latencies(executables: Mapping[str, Executable], case: Case) -> Iterator[dict[str, Any]]:
    """The median latency of every executable at one case, measured in turns, and its error."""
    errors = {n: worst_error(e.run(**case.arrays), case.wanted) for n, e in executables.items()}
    times: dict[str, list[float]] = {name: [] for name in executables}
    for _ in range(ROUNDS):
        for name, exe in executables.items():
            times[name].append(seconds(lambda exe=exe: exe.run(**case.arrays)))  # type: ignore[misc]
    for name, exe in executables.items():
        yield {
            "dispatcher": name,
            "shape": shown_sizes(case.sizes),
            "clone": exe.explain(**case.sizes).clone,
            "latency_s": statistics.median(times[name]),
            "max_rel_err": errors[name],
        }


def seconds(action: Callable[[], object]) -> float:
    """How long an action takes, the second time in a row: its own weights are warm then."""
    action()
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def shown_latency(latency: pd.DataFrame) -> str:
    """Latency in milliseconds, a row per shape, a column per dispatcher."""
    from bucketize.cli.table import table

    shapes = latency["shape"].unique()
    by = latency.set_index(["shape", "dispatcher"])["latency_s"]
    rows = [{"latency [ms]": s, **(1e3 * by[s]).map("{:.2f}".format).to_dict()} for s in shapes]
    return table(rows)


def shown_trade(trade: pd.DataFrame) -> str:
    """The trade-off table as text."""
    from bucketize.cli.table import frame_table, milliseconds

    formats = {
        "compile_s": "{:.1f} s".format,
        "weight_mib": "{:.0f}".format,
        "mean_s": milliseconds,
        "mean_slowdown": "{:.2f}".format,
        "worst_slowdown": "{:.2f}".format,
    }
    return frame_table(trade, formats)
