"""An executable beside another one, or beside an engine, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from bucketize.analysis.benchmark import OURS, bench, pause
from bucketize.analysis.engines import Run, session
from bucketize.analysis.layers import engine_layers
from bucketize.executable import Executable
from bucketize.inspect.profile import BETWEEN
from bucketize.kernel.templates import TEMPLATES
from bucketize.op import Array
from bucketize.progress import Tell
from bucketize.report.running import REPETITIONS
from bucketize.report.subject import ReportSubject
from bucketize.table import pairs, several

ROUNDS = 20
LEAST = 0.05
"""The share of the shorter time by which two layers differ at least that are not called the same;
and by more than the distance of quartiles, of both together: profiles are made one by one."""
LAYERS = ["name", "here", "there", "here_s", "there_s", "gained_s", "ratio", "which", "why"]

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Rival:
    """What an executable is compared with."""

    name: str
    run: Run
    layers: Callable[[Arrays], pd.DataFrame]
    """Its name, op, time_s and iqr_s, in order; of kernels of ours `kernel` and `schedule`, too."""

    @classmethod
    def of_executable(cls, name: str, exe: Executable) -> Self:
        """Another executable."""

        def layers(inputs: Arrays) -> pd.DataFrame:
            in_order = [inputs[n] for n in exe.inputs]
            return exe.profile(*in_order, repetitions=REPETITIONS)

        return cls(name, lambda inputs: exe.run(**inputs), layers)

    @classmethod
    def of_engine(cls, name: str, model: str | Path, threads: int) -> Self:
        """An engine that tells what its layers take."""
        layers = partial(engine_layers, name, model, threads=threads, repetitions=REPETITIONS)
        return cls(name, session(name, model, threads).run, layers)


def compared(
    subject: ReportSubject,
    profiles: Mapping[str, pd.DataFrame],
    rival: Rival,
    inputs: Callable[[Mapping[str, int]], Arrays],
    tell: Tell | None,
) -> dict[str, pd.DataFrame]:
    """The executable and its rival at each of the sizes that are looked at.

    Returns:
        `versus`: rows as of `bucketize.analysis.bench`, with sizes; and `against`: those of
        `matched`, with sizes.

    """
    whole, layers = [], []
    for sizes in subject.points:
        arrays, text = inputs(sizes), pairs(sizes)
        runs: dict[str, Run] = {
            OURS: lambda given: subject.executable.run(**given),
            rival.name: rival.run,
        }
        wait = pause(subject.program.threads)
        frame = bench(runs, arrays, ROUNDS, pause_s=wait, progress=tell)
        whole.append(frame.assign(sizes=text))
        layers.append(matched(profiles[text], rival.layers(arrays)).assign(sizes=text))
    return {
        "versus": pd.concat(whole, ignore_index=True),
        "against": pd.concat(layers, ignore_index=True),
    }


def matched(here: pd.DataFrame, there: pd.DataFrame) -> pd.DataFrame:
    """Layers that compute the same nodes of the model, beside each other.

    Kernels that share a node belong together, and so do those that share one with these: what one
    side fuses is beside all that the other side takes for it.

    Args:
        here: of `Executable.profile`.
        there: the same, or of `bucketize.analysis.engine_layers`.

    Returns:
        A row for each: name (of the nodes), here and there (what runs), here_s, there_s, gained_s
        (the latter less the former), ratio (the former by the latter), which ("faster" or "slower"
        here; "same", where they are not so far apart, by `LEAST`, or no spread is known; or "only
        here", "only there"), why.

    """
    nodes = {n for name in here["name"] for n in name.split("+")}
    mine = [set(name.split("+")) for name in here["name"]]
    its = [{_node(n, nodes) for n in name.split("+")} for name in there["name"]]
    labels = _components([*mine, *its])
    rows = []
    for label in dict.fromkeys(labels):
        places = [k for k, other in enumerate(labels) if other == label]
        of_mine = here.iloc[[k for k in places if k < len(here)]]
        of_its = there.iloc[[k - len(here) for k in places if k >= len(here)]]
        rows.append(_row(of_mine, of_its))
    return pd.DataFrame(rows, columns=LAYERS)


def _node(name: str, nodes: set[str]) -> str:
    """The node that an engine names, or made another of: `x/MatMul/Fusion` is of `x/MatMul`."""
    if name in nodes:
        return name
    ends = [k for k, letter in enumerate(name) if letter == "/" and name[:k] in nodes]
    return name[: ends[-1]] if ends else name


def _components(sets: Sequence[set[str]]) -> list[int]:
    """For each set the number of those that it hangs together with."""
    numbers = {name: k for k, name in enumerate(dict.fromkeys(n for s in sets for n in s))}
    edges = [(k, len(sets) + numbers[name]) for k, s in enumerate(sets) for name in s]
    count = len(sets) + len(numbers)
    rows, columns = np.array(edges).T
    graph = coo_array((np.ones(len(edges)), (rows, columns)), shape=(count, count))
    _, labels = connected_components(graph, directed=False)
    of_sets: list[int] = labels[: len(sets)].tolist()
    return of_sets


def _row(here: pd.DataFrame, there: pd.DataFrame) -> dict[str, Any]:
    here_s, there_s = (float(f["time_s"].sum()) if len(f) else None for f in (here, there))
    row = {
        "name": "+".join(_nodes(here if len(here) else there)),
        "here": _what(here),
        "there": _what(there),
        "here_s": here_s,
        "there_s": there_s,
        "why": _why(here, there),
    }
    if here_s is None or there_s is None:
        return row | {"which": "only there" if here_s is None else "only here"}
    gained_s, spread_s = there_s - here_s, _spread(here) + _spread(there)
    is_other = abs(gained_s) > LEAST * min(here_s, there_s) and abs(gained_s) > spread_s
    which = ("faster" if gained_s > 0 else "slower") if is_other else "same"
    ratio = here_s / there_s if there_s else np.nan  # too short for the clock
    return row | {"gained_s": gained_s, "ratio": ratio, "which": which}


def _spread(layers: pd.DataFrame) -> float:
    """How far apart quartiles are; NaN where that is not known of one of them."""
    return float(layers["iqr_s"].astype(float).sum(skipna=False))


def _nodes(layers: pd.DataFrame) -> Iterable[str]:
    return dict.fromkeys(node for name in layers["name"] for node in name.split("+"))


def _what(layers: pd.DataFrame) -> str:
    """What runs, each once: kernels, or ops of an engine."""
    column = "kernel" if "kernel" in layers else "op"
    return ", ".join(f"{n} x {what}" if n > 1 else what for what, n in _counted(layers[column]))


def _counted(words: Iterable[str]) -> list[tuple[str, int]]:
    every = list(words)
    return [(word, every.count(word)) for word in dict.fromkeys(every) if word]


def _why(here: pd.DataFrame, there: pd.DataFrame) -> str:
    """In what both differ, as far as it is known."""
    if BETWEEN in [*here["name"], *there["name"]]:
        return "what a call takes beyond its kernels"
    if not len(here) or not len(there):
        return ""
    parts = []
    if len(here) != len(there):
        side, more = ("here", there) if len(here) < len(there) else ("there", here)
        other = "there" if side == "here" else "here"
        parts.append(f"fused {side}: {several(len(more), 'kernel')} {other}")
    fewer = [_fewer_products(f) for f in (here, there)]
    if fewer[0] != fewer[1]:
        parts.append(f"fewer products {'here' if fewer[0] else 'there'} (Winograd)")
    return "; ".join([*parts, *_differences(here, there)])


def _fewer_products(layers: pd.DataFrame) -> bool:
    """Whether sums are found by fewer products, as far as it is known."""
    kernels = layers.get("kernel", ())
    return any(name in TEMPLATES and TEMPLATES[name].minimal for name in kernels)


def _differences(here: pd.DataFrame, there: pd.DataFrame) -> list[str]:
    """In what kernels differ, where both sides are ours."""
    if "schedule" not in there:
        return []
    titles = {"kernel": "kernel", "schedule": "schedule", "lines": "strips", "why": "found by"}
    parts = []
    for column, title in titles.items():
        mine, its = (_texts(f[column]) for f in (here, there))
        if mine != its:
            parts.append(f"{title}: {mine or 'none'} here, {its or 'none'} there")
    return parts or ["the same kernels and schedules"]


def _texts(column: pd.Series[Any]) -> str:
    return ", ".join(dict.fromkeys(str(v) for v in column if v and v == v))  # noqa: PLR0124  NaN
