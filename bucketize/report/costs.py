"""Frames of what calls cost over sizes, of the kernels that sizes choose among, of trade-offs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from bucketize.errors import TypeRelError
from bucketize.inspect.predict import Prediction
from bucketize.kernel.cost import seconds_over
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.program.instruction import KernelCall
from bucketize.report.subject import ReportSubject
from bucketize.table import pairs
from bucketize.types import Points, Sizes

KERNELS = 4
"""Kernels whose implementations are shown over sizes: those that take most."""
BINS = 120
"""Sizes of a symbol that requests are told at; of more, neighbours are joined."""
FREQUENT = 300
"""Sizes that are told by all of their symbols."""


def costs(subject: ReportSubject) -> pd.DataFrame:
    """What calls are expected to take over sizes, one symbol at a time.

    Returns:
        A row for each size: symbol, size, sizes (of all symbols), clone, predicted_s.

    """
    base = subject.points[0]
    rows = [
        {
            "symbol": name,
            "size": sizes[name],
            "sizes": pairs(sizes),
            "clone": taken.clone,
            "predicted_s": taken.seconds,
        }
        for name in subject.symbols
        for sizes, taken in subject.predicted(subject.grid(name, base))
    ]
    return pd.DataFrame(rows, columns=["symbol", "size", "sizes", "clone", "predicted_s"])


def traffic(subject: ReportSubject) -> pd.DataFrame:
    """The requests by the size of each symbol.

    Returns:
        A row for each size: symbol, size, last (of the sizes that are joined with it), requests.

    """
    its = subject.requests
    if its is None:
        return pd.DataFrame(columns=["symbol", "size", "last", "requests"])
    rows: list[dict[str, Any]] = []
    for column, name in zip(its.sizes.T, its.symbols, strict=True):
        sizes, places = np.unique(column, return_inverse=True)
        counts = np.bincount(places, its.requests).astype(np.int64)
        step = -(-len(sizes) // BINS)
        for first in range(0, len(sizes), step):
            part = slice(first, first + step)
            ends = {"size": int(sizes[part][0]), "last": int(sizes[part][-1])}
            rows.append({"symbol": name, **ends, "requests": int(counts[part].sum())})
    return pd.DataFrame(rows)


def sizes(subject: ReportSubject) -> pd.DataFrame:
    """The most frequent sizes: a column for each symbol, and requests; most first."""
    its = subject.requests
    if its is None:
        return pd.DataFrame(columns=["requests"])
    order = np.argsort(-its.requests, kind="stable")[:FREQUENT]
    frame = pd.DataFrame(its.sizes[order], columns=list(its.symbols))
    return frame.assign(requests=its.requests[order])


# --- implementations -----------------------------------------------------------------------------


def implementations(subject: ReportSubject) -> pd.DataFrame:
    """What the implementations of the costliest kernels are expected to take over sizes.

    They are those that clones or sizes choose among, and the default of each other template, for
    kernels of the call that is looked at first.

    Returns:
        A row for each kernel, size and implementation: name, workload (its hash), symbol, size,
        implementation, predicted_s, runs (whether it is the one that runs there).

    """
    rows: list[dict[str, Any]] = []
    base = subject.points[0]
    for call, name in islice(_costliest(subject, base), KERNELS):
        rows += _over(subject, call, name, subject.predicted(subject.grid(name, base)))
    columns = ["name", "workload", "symbol", "size", "implementation", "predicted_s", "runs"]
    return pd.DataFrame(rows, columns=columns).astype({"runs": bool})


def _costliest(subject: ReportSubject, base: Sizes) -> Iterator[tuple[KernelCall, str]]:
    """Kernels that take most, each of one workload, with the symbol that they grow by most."""
    ways = subject.predicted([base])
    kernels = [k for _, taken in ways for k in taken.kernels if k.seconds is not None]
    kernels.sort(key=lambda k: -k.times * (k.seconds or 0.0))
    seen: set[str] = set()
    for kernel in kernels:
        call = kernel.what
        if not isinstance(call, KernelCall) or call.workload.hash in seen:
            continue
        seen.add(call.workload.hash)
        names = [n for n in subject.symbols if n in call.workload.body.mentioned()]
        each = _able(subject, call) if names else []
        if len(each) > 1:
            yield call, max(names, key=lambda n: subject.ends[n][1] / subject.ends[n][0])


def _able(subject: ReportSubject, call: KernelCall) -> list[Implementation]:
    """The implementations that a call chooses among, and the defaults of other templates."""
    target, workload = subject.program.target, call.workload
    segments = subject.program.segments()
    alike = [c for s in segments for c in s.every if c.workload.hash == workload.hash]
    mine = {c.implementation.key: c.implementation for one in (call, *alike) for c in one.each}
    templates = {i.template for i in mine.values()}
    for template in candidates(workload, target):
        if template.name not in templates:
            other = Implementation(template.name, template.default(workload, target))
            mine.setdefault(other.key, other)
    return [i for i in mine.values() if TEMPLATES[i.template].cost is not None]


def _over(
    subject: ReportSubject, call: KernelCall, name: str, ways: Sequence[tuple[Sizes, Prediction]]
) -> Iterator[dict[str, Any]]:
    program = subject.program
    ran = [_in_place(call, taken) for _, taken in ways]
    each = {one.key: one for one in (*_able(subject, call), *filter(None, ran))}
    with suppress(TypeRelError):  # a size that no type of the kernel has a value at
        at = Points([sizes for sizes, _ in ways])
        args = call.workload, [*each.values()], at, program.target, program.threads
        seconds = seconds_over(*args).tolist()
        for (sizes, _), taken, its in zip(ways, seconds, ran, strict=True):
            for one, second in zip(each.values(), taken, strict=True):
                yield {
                    "name": "+".join(call.binding.origin),
                    "workload": call.workload.hash,
                    "symbol": name,
                    "size": sizes[name],
                    "implementation": str(one),
                    "predicted_s": second,
                    "runs": its is not None and one.key == its.key,
                }


def _in_place(call: KernelCall, taken: Prediction) -> Implementation | None:
    """What computes the same as a call at other sizes, of another clone; None if nobody knows."""
    kernels = [k.what for k in taken.kernels if isinstance(k.what, KernelCall)]
    same = [k for k in kernels if k.workload.hash == call.workload.hash]
    origin = call.binding.origin  # static clones have workloads of their own
    same += [k for k in kernels if origin and k.binding.origin == origin]
    able = [k.implementation for k in same if TEMPLATES[k.implementation.template].cost is not None]
    return able[0] if able else None
