"""What an executable did for its requests: how long each bucket took, and what it loses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

import numpy as np

from bucketize.errors import ArgumentError, BucketizeError
from bucketize.kernel.cost import seconds_over
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.lower.cost import defaults_of
from bucketize.machine.speed import Floats
from bucketize.program.instruction import KernelCall, RunSegment
from bucketize.program.path import clone_at, way
from bucketize.program.program import Program
from bucketize.table import Format, fields_of, several, whole
from bucketize.traffic.counter import Clones
from bucketize.traffic.value import Traffic
from bucketize.types import Points, Sizes, Symbol


@dataclass(frozen=True)
class BucketReport:
    """What a clone did for its requests."""

    clone: str
    requests: int
    mean_s: float | None
    """Mean seconds of a request; None if none was timed."""
    p99_s: float | None
    """What 99 % of them did not exceed."""
    share: float | None
    """The share of the time of all requests."""
    regret: float | None
    """What its kernels are predicted to take more than the best for each size, as a share of these.
    None where no model tells, or the clone is padded."""


@dataclass(frozen=True)
class ServingReport:
    """What the clones of an executable did for its requests; `str` of it is a table."""

    buckets: tuple[BucketReport, ...]
    """The buckets that had any requests; what took most time first."""

    def __str__(self) -> str:
        requests = sum(b.requests for b in self.buckets)
        head = f"{several(requests, 'request')} in {several(len(self.buckets), 'bucket')}"
        rows = [{HEADS.get(k, k): v for k, v in asdict(b).items()} for b in self.buckets]
        return "\n".join([head, whole(fields_of(rows, FORMATS))]) if rows else head


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.4g} ms"


HEADS = {"mean_s": "mean", "p99_s": "p99"}  # the cells have a unit of their own
FORMATS: dict[str, Format] = {
    **dict.fromkeys(("mean", "p99"), _milliseconds),
    **dict.fromkeys(("share", "regret"), "{:.1%}".format),
}


def report(program: Program, clones: Clones, traffic: Traffic | None, sizes: int) -> ServingReport:
    """What clones did.

    Args:
        program: of the executable.
        clones: requests of each clone.
        traffic: sizes of the requests.
        sizes: of how many the regret is told, those with most requests.

    """
    if not isinstance(sizes, int) or sizes < 0:
        raise ArgumentError(f"sizes: expected a number from 0, got {sizes!r}")
    served = {name: its for name, its in clones.items() if its.requests}
    times = {name: its.requests * (its.mean_s or 0.0) for name, its in served.items()}
    total = sum(times.values())
    regrets = {} if traffic is None else _regrets(program, traffic, sizes)
    buckets = [
        BucketReport(
            name,
            its.requests,
            its.mean_s,
            its.quantile_s(0.99),
            times[name] / total if total else None,
            regrets.get(name),
        )
        for name, its in served.items()
    ]
    return ServingReport(tuple(sorted(buckets, key=lambda bucket: -times[bucket.clone])))


def _regrets(program: Program, traffic: Traffic, count: int) -> dict[str, float]:
    """By clone what is lost at those of its sizes that are among the most frequent."""
    taken: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for sizes, requests in _frequent(traffic.without_times(), count):
        with suppress(BucketizeError):  # rounded sizes that no clone serves
            clone = clone_at(program, "main", sizes)
            taken[clone] += [
                (requests * mine, requests * best) for mine, best in _seconds(program, sizes)
            ]
    regrets = {}
    for clone, pairs in taken.items():
        mine, best = (sum(column) for column in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
        is_exact = clone not in program.clones or program.clones[clone].policy == "exact"
        if best and is_exact:
            regrets[clone] = mine / best - 1
    return regrets


def _frequent(traffic: Traffic, count: int) -> Iterator[tuple[Sizes, int]]:
    """Sizes and their requests, the most frequent first."""
    for row in np.argsort(-traffic.requests, kind="stable")[:count]:
        sizes = traffic.sizes[row].tolist()
        yield dict(zip(traffic.symbols, sizes, strict=True)), int(traffic.requests[row])


def _seconds(program: Program, sizes: Sizes) -> Iterator[tuple[float, float]]:
    """What each kernel that runs takes by its model, and the best for just these sizes."""
    for instruction, inside, times, _ in way(program, "main", sizes):
        if not isinstance(instruction, RunSegment):
            continue
        for call in instruction.segment.calls:
            if call.workload.body.mentioned() <= inside.keys():
                taken = times * _taken(program, call, inside)
                yield float(taken[0]), float(taken.min())


def _taken(program: Program, call: KernelCall, sizes: Sizes) -> Floats:
    """Seconds by the kernel that runs, then by the default for just these sizes; 0 of no model."""
    workload, target = call.workload, program.target
    box = tuple(Symbol(name, size, size) for name, size in sizes.items())
    best = defaults_of(workload, candidates(workload, target), target, (box,))
    each = [call.at(sizes).implementation, *best]
    if any(TEMPLATES[i.template].cost is None for i in each):
        return np.zeros(len(each))
    taken: Floats = seconds_over(workload, each, Points([sizes]), target, program.threads)[0]
    return taken
