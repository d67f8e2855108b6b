"""Frames of what clones run: the clones, their kernels, the decisions that lead to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import islice
from typing import Any

import pandas as pd

from bucketize.dispatch.bucket import show_bucket
from bucketize.inspect.predict import Expected, Prediction
from bucketize.ir import Atom, Binding
from bucketize.program.instruction import (
    LOGGED,
    Call,
    Compute,
    Decide,
    KernelCall,
    Refuse,
    RunSegment,
)
from bucketize.program.path import way
from bucketize.program.program import Program
from bucketize.report.subject import ReportSubject
from bucketize.table import pairs
from bucketize.text import show
from bucketize.types import Sizes

LISTED = 12
"""Distinct ways through kernels that are told kernel by kernel."""
LEAVES = 300
"""Leaves of a tree of decisions that is shown whole."""
CLONES = [
    *("clone", "bucket", "sizes", "listing", "executor", "arrangement", "kernels", "tuned"),
    *("on_host", "predicted_s", "requests", "share"),
]
KERNELS = [
    *("listing", "segment", "name", "op", "shape", "dtype", "kernel", "schedule", "choices"),
    *("why", "strip", "predicted_s", "share", "source"),
]


def clones(subject: ReportSubject) -> pd.DataFrame:
    """The functions that serve sizes.

    Returns:
        A row for each, those first that are asked for most: clone, bucket, sizes (at which it is
        looked at), listing (clones of one number call the same kernels), executor, arrangement,
        kernels (called there), tuned (of them, by the log), on_host (ops that numpy computes),
        predicted_s (of a call there), requests and their share. What no size that was tried leads
        to has no sizes; requests are missing where no traffic is known. `attrs["sizes"]` are, by
        listing, the sizes of its first clone.

    """
    requests = served(subject)
    numbers: dict[tuple[str, ...], int] = {}
    first: dict[int, Sizes] = {}
    rows = []
    for name in subject.clones:
        row = {"clone": name, **_requests(requests, name)}
        clone = subject.program.clones.get(name)
        row["bucket"] = show_bucket(clone.bucket) if clone else ""
        for sizes, taken in subject.predicted(_first(subject, name)):
            key = kernels_called(subject.program, sizes)
            row |= {"sizes": pairs(sizes), **_facts(subject, taken)}
            row["listing"] = numbers.setdefault(key, len(numbers) + 1)
            first.setdefault(row["listing"], sizes)
        rows.append(row)
    frame = pd.DataFrame(rows, columns=CLONES)
    frame = frame.astype(dict.fromkeys(("listing", "kernels", "tuned", "on_host"), "Int64"))
    frame.attrs["sizes"] = first
    return frame


def _first(subject: ReportSubject, clone: str) -> list[Sizes]:
    """The first sizes that a clone serves."""
    for sizes in subject.inside(clone):
        if any(taken.clone == clone for _, taken in subject.predicted([sizes])):
            return [sizes]
    return []


def _facts(subject: ReportSubject, taken: Prediction) -> dict[str, Any]:
    routine = subject.program.routines[taken.clone]
    calls = [k.what for k in taken.kernels if isinstance(k.what, KernelCall)]
    return {
        "executor": routine.executor,
        "arrangement": str(routine.arrangement),
        "kernels": len(calls),
        "tuned": sum(call.why == LOGGED for call in calls),
        "on_host": len(taken.kernels) - len(calls),
        "predicted_s": taken.seconds,
    }


def kernels_called(program: Program, sizes: Sizes) -> tuple[str, ...]:
    """What a call comes to, whatever its sizes in the clone: kernels, and what chooses them."""
    texts: list[str] = []
    for instruction, *_ in way(program, "main", sizes):
        if isinstance(instruction, RunSegment):
            texts += [str(call) for call in instruction.segment.calls]
        elif isinstance(instruction, Compute):
            texts.append(instruction.binding.op.name)
    return tuple(texts)


def _requests(requests: dict[str, int], name: str) -> dict[str, Any]:
    total = sum(requests.values())
    mine = requests.get(name, 0)
    return {"requests": mine, "share": mine / total} if total else {}


def served(subject: ReportSubject) -> dict[str, int]:
    """The requests of the traffic by the function that serves them."""
    traffic = subject.requests
    if traffic is None:
        return {}
    counts: dict[str, int] = {}
    for size, number in zip(traffic.sizes.tolist(), traffic.requests.tolist(), strict=True):
        clone = _serving(subject.program, dict(zip(traffic.symbols, size, strict=True)))
        counts[clone] = counts.get(clone, 0) + number
    return counts


def _serving(program: Program, sizes: Sizes) -> str:
    """The function that a call begins with, or why none does."""
    for instruction, *_ in way(program, "main", sizes):
        if isinstance(instruction, Call):
            return instruction.callee
        if isinstance(instruction, Refuse):
            return "refused"
    return "main"


# --- kernels -------------------------------------------------------------------------------------


def kernels(subject: ReportSubject, every: pd.DataFrame) -> pd.DataFrame:
    """The kernels that clones call, once for all clones that call the same.

    Args:
        subject: the executable.
        every: of `clones`.

    Returns:
        A row for each call, in order: listing, segment (of native code; missing of what numpy
        computes), name, op, shape, kernel, schedule, why and strip as `Executable.explain` has
        them at the sizes of the listing's first clone; dtype (what it reads, and makes where that
        is another); choices (kernels by size, where sizes choose); predicted_s, and its share;
        source (the name of the kernel).

    """
    rows: list[dict[str, Any]] = []
    for listing, sizes in islice(every.attrs["sizes"].items(), LISTED):
        rows += [{"listing": listing, **row} for row in kernel_rows(subject, sizes)]
    frame = pd.DataFrame(rows, columns=KERNELS)
    return frame.astype({"segment": "Int64"})


def kernel_rows(subject: ReportSubject, sizes: Sizes) -> list[dict[str, Any]]:
    """The kernels of a call at some sizes."""
    steps = subject.executable.explain(**sizes).steps
    ((_, taken),) = subject.predicted([sizes])
    numbers = segment_numbers(subject.program, sizes)
    total = taken.seconds
    return [
        {
            "segment": number,
            **{name: step[name] for name in ("name", "op", "kernel", "why", "strip")},
            "shape": _text(step["shape"]),
            "schedule": pairs(step["schedule"], " "),
            **_of_call(whole),
            "source": getattr(kernel.what, "kernel", ""),
            "predicted_s": _seconds(kernel),
            "share": None if kernel.seconds is None else kernel.times * kernel.seconds / total,
        }
        for step, kernel, (number, whole) in zip(steps, taken.kernels, numbers, strict=True)
    ]


def _seconds(kernel: Expected) -> float | None:
    return None if kernel.seconds is None else kernel.times * kernel.seconds


def _text(shape: Iterable[object] | None) -> str:
    return "?" if shape is None else " x ".join(map(str, shape))


def segment_numbers(
    program: Program, sizes: Sizes
) -> list[tuple[int | None, KernelCall | Compute]]:
    """Each kernel of a call, in order, with the number of its segment."""
    numbers: list[tuple[int | None, KernelCall | Compute]] = []
    segment = 0
    for instruction, *_ in way(program, "main", sizes):
        if isinstance(instruction, RunSegment):
            segment += 1
            numbers += [(segment, call) for call in instruction.segment.calls]
        elif isinstance(instruction, Compute):
            numbers.append((None, instruction))
    return numbers


def _of_call(what: KernelCall | Compute) -> dict[str, Any]:
    if isinstance(what, Compute):
        types = (a.type for a in (*what.binding.args, *what.binding.outs))
        dtypes = dict.fromkeys(str(t.dtype) for t in types if t.is_tensor)
        return {"dtype": ", ".join(dtypes), "choices": ""}
    body = what.workload.body
    read = dict.fromkeys(str(p.type.dtype) for p in body.params)
    written = [str(r.dtype) for r in what.workload.results if str(r.dtype) not in read]
    dtype = ", ".join(read) + (f" to {', '.join(dict.fromkeys(written))}" if written else "")
    return {"dtype": dtype, "choices": str(what.select) if what.larger else ""}


def edges(subject: ReportSubject, every: pd.DataFrame) -> pd.DataFrame:
    """Which kernels read what others made, of the clone that is looked at first.

    Returns:
        A row for each pair: source and target, places in the first listing of `kernels`.

    """
    first = islice(every.attrs["sizes"].values(), 1)
    pairs_ = [edge for sizes in first for edge in read_from(subject.program, sizes)]
    return pd.DataFrame(sorted(set(pairs_)), columns=["source", "target"])


def read_from(program: Program, sizes: Sizes) -> Iterator[tuple[int, int]]:
    """The edges of a call: what writes, and what reads it, by their places."""
    makers: dict[Atom, set[int]] = {}
    count = 0
    for instruction, *_ in way(program, "main", sizes):
        if isinstance(instruction, RunSegment):
            segment = instruction.segment
            _hand(makers, instruction.args, segment.fn.params)
            numbers = {c.binding.outs[0]: count + k for k, c in enumerate(segment.calls)}
            for binding in segment.fn.body:
                yield from _made(makers, binding, numbers.get(binding.outs[0]))
            count += len(numbers)
            _hand(makers, segment.fn.results, instruction.outs)
        elif isinstance(instruction, Compute):
            yield from _made(makers, instruction.binding, count)
            count += 1
        elif isinstance(instruction, Call):
            _hand(makers, instruction.args, program.routines.serving(instruction.callee).fn.params)


def _hand(makers: dict[Atom, set[int]], own: Iterable[Atom], other: Iterable[Atom]) -> None:
    """What is known of atoms is known of those that stand for them elsewhere."""
    for mine, its in zip(own, other, strict=False):  # a padded clone is told extents, too
        makers[its] = makers.get(mine, set())


def _made(
    makers: dict[Atom, set[int]], binding: Binding, number: int | None
) -> Iterator[tuple[int, int]]:
    """The edges to a kernel; what has none hands on what it reads."""
    read = set[int]().union(*(makers.get(a, set()) for a in binding.args))
    makers.update(dict.fromkeys(binding.outs, read if number is None else {number}))
    if number is not None:
        yield from ((source, number) for source in read)


def functions(subject: ReportSubject, names: Set[str]) -> dict[str, str]:
    """What some kernels compute, as text, by their names."""
    calls = (c for segment in subject.program.segments() for c in segment.rows)
    return {c.kernel: show(c.workload.body) for c in calls if c.kernel in names}


# --- decisions -----------------------------------------------------------------------------------


def decisions(subject: ReportSubject) -> pd.DataFrame:
    """The tree by which `main` chooses a clone.

    Returns:
        A row for each line of it, in the order of reading: depth, text ("if N < 4", "else"), clone
        (that it leads to; empty where more tests follow), requests (that come there). None where
        nothing is decided, or the tree has too many leaves to be read.

    """
    code = subject.program.routines["main"].code
    trees = [i for i in code.instructions if isinstance(i, Decide)]
    if not trees or len(trees[0].leaves) > LEAVES:
        return pd.DataFrame(columns=["depth", "text", "clone", "requests"])
    counts = _by_leaf(subject, trees[0])
    return pd.DataFrame(list(_lines(trees[0], 0, 0, counts)))


def _by_leaf(subject: ReportSubject, tree: Decide) -> dict[int, int]:
    traffic = subject.requests
    if traffic is None:
        return {}
    counts: dict[int, int] = {}
    for size, number in zip(traffic.sizes.tolist(), traffic.requests.tolist(), strict=True):
        leaf = tree.leaf(dict(zip(traffic.symbols, size, strict=True)))
        counts[leaf] = counts.get(leaf, 0) + number
    return counts


def _lines(tree: Decide, at: int, depth: int, counts: dict[int, int]) -> Iterator[dict[str, Any]]:
    """The lines below a node."""
    symbol, bound, below, other = tree.nodes[at : at + 4]
    for text, following in ((f"if {tree.symbols[symbol]} < {bound}", below), ("else", other)):
        row = {"depth": depth, "text": text, "clone": "", "requests": None}
        if following < 0:
            leaf = {"clone": _callee(tree, ~following)}
            yield row | leaf | {"requests": counts.get(~following, 0) if counts else None}
        else:
            yield row
            yield from _lines(tree, following, depth + 1, counts)


def _callee(tree: Decide, leaf: int) -> str:
    steps = tree.leaves[leaf].instructions
    callees = [step.callee for step in steps if isinstance(step, Call)]
    return callees[0] if callees else "no bucket"


def buckets(subject: ReportSubject) -> pd.DataFrame:
    """The buckets: clone, symbol, first, last (where a bucket is open, as far as is looked)."""
    rows = []
    for name in subject.clones:
        clone = subject.program.clones.get(name)
        for symbol, (low, high) in (clone.bucket if clone else {}).items():
            ends = subject.ends.get(symbol, (low, low))
            last = max(ends[1], low) if high is None else high - 1
            rows.append({"clone": name, "symbol": symbol, "first": low, "last": last})
    return pd.DataFrame(rows, columns=["clone", "symbol", "first", "last"])


def cuts(of: pd.DataFrame) -> pd.DataFrame:
    """Where buckets begin, of `buckets`: symbol, size; without the least of each symbol."""
    each = of.groupby("symbol", sort=False)["first"].unique()
    rows = [
        {"symbol": symbol, "size": size}
        for symbol, firsts in each.items()
        for size in sorted(firsts.tolist())[1:]
    ]
    return pd.DataFrame(rows, columns=["symbol", "size"])
