"""Many texts through an encoder: by shared calls, one by one, in padded batches, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bucketize.busy import Machine, Watch
from bucketize.cli.model import ZOO, Arrays, NamedModel, compiled, load_model
from bucketize.compare import worst_error
from bucketize.op import Array
from bucketize.progress import announced, progress_bar, steps
from bucketize.timing import interleaved

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.executable import Executable

    Frames: TypeAlias = tuple[pd.DataFrame, pd.DataFrame]
Way: TypeAlias = Callable[[], list[Array]]  # the result of each text, in the order of texts
Run: TypeAlias = Callable[..., Sequence[Array]]
PACKED, ALONE = "run_many", "one by one"
BATCH = 32  # texts of a padded batch, as of sentence-transformers
PADDED, SORTED = "padded batches", "sorted batches"
LEAST, MOST, ENOUGH_S = 7, 31, 15.0  # rounds: more than the least until this time has passed


@dataclass(frozen=True)
class Texts:
    """An encoder of the zoo, the traffic that lengths are drawn from, and how many."""

    model: str
    traffic: str
    count: int

    def __str__(self) -> str:
        """`bert-mini on 256 texts as long as those of zoo:traffic/queries`."""
        return f"{self.model} on {self.count} texts as long as those of zoo:traffic/{self.traffic}"

    def lengths(self, most: int) -> list[int]:
        """Lengths of `count` texts, at most `most` tokens each."""
        from bucketize.zoo import traffic

        its = traffic(self.traffic).without_times()
        shares = its.requests / its.total
        drawn = np.random.default_rng(0).choice(its.sizes[:, 0], self.count, p=shares)
        return [int(n) for n in np.minimum(drawn, most)]

    def requests(self, model: NamedModel) -> list[Arrays]:
        """Texts of these lengths, all of whose tokens are seen."""
        lengths = self.lengths(model.bounds["S"][1] or 1)
        drawn = [model.inputs({"B": 1, "S": n}) for n in lengths]
        return [{**r, "attention_mask": np.ones_like(r["attention_mask"])} for r in drawn]


def encoded(texts: Texts, threads: int) -> Frames:
    """Seconds of all texts by way and round, and the calls of each way."""
    model = load_model(f"{ZOO}{texts.model}", [("B", (1, BATCH))])
    requests = texts.requests(model)
    exe = compiled(model.module, threads=threads)
    ways = ways_of(exe, requests)
    wanted = meant(model, requests)
    errors = first_runs(ways, wanted)
    times, machine = measured(ways)
    machine.warn()
    return _latency(texts, times, errors, threads), _calls(exe, requests)


def ways_of(exe: Executable, requests: Sequence[Arrays]) -> dict[str, Way]:
    """All ways, by name."""
    order = range(len(requests))
    as_they_come, sorted_ = groups(order), groups(by_length(requests))
    return {
        PACKED: lambda: [results[0] for results in exe.run_many(requests)],
        ALONE: lambda: [exe.run(**request)[0] for request in requests],
        PADDED: lambda: in_groups(exe.run, requests, as_they_come),
        SORTED: lambda: in_groups(exe.run, requests, sorted_),
    }


def length(request: Arrays) -> int:
    """The tokens of a text."""
    return int(request["input_ids"].shape[1])


def by_length(requests: Sequence[Arrays]) -> list[int]:
    """The places of texts, short ones first."""
    return sorted(range(len(requests)), key=lambda i: length(requests[i]))


def groups(order: Sequence[int]) -> list[Sequence[int]]:
    """Places in this order, `BATCH` at a time."""
    return [order[begin : begin + BATCH] for begin in range(0, len(order), BATCH)]


def in_groups(run: Run, requests: Sequence[Arrays], places: Iterable[Sequence[int]]) -> list[Array]:
    """The result of each text, of groups that are padded to the longest of each."""
    results: dict[int, Array] = {}
    for group in places:
        (rows,) = run(**batch([requests[i] for i in group]))
        results |= {i: rows[k : k + 1, : length(requests[i])] for k, i in enumerate(group)}
    return [results[i] for i in range(len(requests))]


def batch(texts: Sequence[Arrays]) -> Arrays:
    """The texts of a group as one request."""
    width = max(map(length, texts))
    return {
        name: np.concatenate(
            [np.pad(text[name], ((0, 0), (0, width - length(text)))) for text in texts]
        )
        for name in texts[0]
    }


def meant(model: NamedModel, requests: Sequence[Arrays]) -> list[Array]:
    """What the ops mean by each text, those of equal length at once, without padding."""
    from bucketize.interpret import evaluate_module

    alike = groupby(by_length(requests), key=lambda i: length(requests[i]))
    places = [group for _, same in alike for group in groups(list(same))]
    with progress_bar(f"checking {model.name}") as tell:
        step = steps(tell, len(places))

        def run(**arrays: Array) -> Sequence[Array]:
            step("the ops' own results")
            return evaluate_module(model.module, **arrays)

        return in_groups(run, requests, places)


def first_runs(ways: Mapping[str, Way], wanted: Sequence[Array]) -> dict[str, float]:
    """By way, the worst error of a text; what `run_many` packs is compiled here."""
    with progress_bar("first runs") as tell:
        step = steps(tell, len(ways))
        return {n: worst_error(announced(way, step, n)(), wanted) for n, way in ways.items()}


def measured(ways: Mapping[str, Way]) -> tuple[dict[str, list[float]], Machine]:
    """Seconds of each way in each round, and what the machine did meanwhile."""
    with progress_bar("comparing") as tell, Watch() as watch:
        step = steps(tell, len(ways) * MOST)
        before = {name: partial(step, name) for name in ways}
        times = interleaved(ways, least=LEAST, most=MOST, enough_s=ENOUGH_S, before=before)
        watch.rounds(times)
    return times, watch.machine


def _latency(
    texts: Texts, times: Mapping[str, list[float]], errors: Mapping[str, float], threads: int
) -> pd.DataFrame:
    import pandas as pd

    from bucketize.log.environment import here

    rows = [
        {"dispatcher": name, "round": i, "latency_s": seconds, "max_rel_err": errors[name]}
        for name, taken in times.items()
        for i, seconds in enumerate(taken)
    ]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    where = {"model": texts.model, "host_cpu": here().host_cpu, "date": now}
    shape = f"{texts.count} texts"
    return pd.DataFrame(rows).assign(**where, shape=shape, clone="main", threads=threads)


def _calls(exe: Executable, requests: Sequence[Arrays]) -> pd.DataFrame:
    import pandas as pd

    batches = -(-len(requests) // BATCH)
    packed = len(exe.plan_many(requests).calls)
    calls = {PACKED: packed, ALONE: len(requests), PADDED: batches, SORTED: batches}
    return pd.DataFrame({"dispatcher": list(calls), "calls": list(calls.values())})
