"""Clones that are padded to the tops of their buckets, beside exact ones.

Buckets are `log`'s: 1, 2 to 3, 4 to 7, and so on; sizes are tops, the least, and some between.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import bucketize
from benchmarks.figure import Figure, ratios
from bucketize import zoo
from bucketize.dispatch.tree import POLICIES
from bucketize.timing import interleaved
from dispatchers import log_dispatcher

CASES: tuple[tuple[str, dict[str, int], str], ...] = (
    ("mlp", {}, "N"),
    ("bert-mini", {"B": 1}, "S"),
    ("bert-mini", {"S": 16}, "B"),
    ("resnet18", {"H": 32, "W": 32}, "N"),
)
SIZES = (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 47, 63, 64)
ROUNDS = 15


def main() -> None:
    """Print a row for each size: by exact clones' time that of padded ones."""
    for name, fixed, symbol in CASES:
        exes, shown = compiled(name, fixed, symbol), [name, *(f"{s}={n}" for s, n in fixed.items())]
        for size in SIZES:
            calls = called(name, exes, {**fixed, symbol: size})
            exact, padded = interleaved(calls, least=ROUNDS, before=calls).values()
            ms, by = statistics.median(exact) * 1e3, statistics.median(ratios(padded, exact))
            print(f"{', '.join(shown)}, {symbol}={size}: exact {ms:.3f} ms, padded {by:.3f} of it")


def compiled(name: str, fixed: Mapping[str, int], symbol: str) -> dict[str, Any]:
    """An executable for each policy."""
    mod = bucketize.from_onnx(zoo.build(name), bounds={symbol: (1, max(SIZES))})
    mod = bucketize.specialise(mod, **fixed)
    mods = {p: bucketize.dispatch(mod, log_dispatcher, policy=p) for p in POLICIES}
    return {policy: bucketize.compile(its) for policy, its in mods.items()}


def called(
    name: str, exes: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, Callable[[], Any]]:
    """A call of each."""
    inputs = zoo.inputs(name, sizes)
    return {policy: partial(exe.run, **inputs) for policy, exe in exes.items()}


def quick() -> list[Figure]:
    """The size at which padding does least."""
    name, fixed, symbol = CASES[0]
    calls = called(name, compiled(name, fixed, symbol), {symbol: 7})
    exact, padded = interleaved(calls, least=ROUNDS, before=calls).values()
    return [Figure.of("mlp, N=7, padded by exact", "", ratios(padded, exact))]
