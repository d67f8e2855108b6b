"""Reductions over any axes.

Neighbouring axes that are both kept, or both reduced, are one. Where the last axis is kept, a
block of it is accumulated at a time, in order of memory; where it is reduced, the vectoriser has
leave to reorder (see `accumulate.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from bucketize.ir import Binding
from bucketize.kernel.emit.expression import dtype_text
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import (
    GRAIN,
    Source,
    argument_shapes,
    joined,
    kernel_text,
    literal,
    loop_template,
    takes,
)
from bucketize.kernel.template import Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.op import Op
from bucketize.ops import reduce_max, reduce_mean, reduce_min, reduce_prod, reduce_sum
from bucketize.types import product
from bucketize.types.number import kind_of

BLOCK = 256  # elements that are accumulated at a time: a few KiB of stack
ROW_GRAIN = 16
ZERO = "float64(0)"
"""Where sums begin that are one chain of any length: of millions float32 would lose all digits."""
CHAIN = 1024
"""Rows that are one sum in float32, before it joins what came before: its error grows with them
(Higham, The Accuracy of Floating Point Summation, 1993)."""


def lowest(dtype: np.dtype[Any]) -> Any:
    """The least number of this dtype."""
    return dtype.type(-math.inf if kind_of(dtype) == "f" else np.iinfo(dtype).min)


def highest(dtype: np.dtype[Any]) -> Any:
    """The greatest number of this dtype."""
    return dtype.type(math.inf if kind_of(dtype) == "f" else np.iinfo(dtype).max)


STEPS: dict[Op, tuple[str, Callable[[np.dtype[Any]], Any]]] = {
    reduce_sum: ("plus", lambda dtype: dtype.type(0)),
    reduce_mean: ("plus", lambda dtype: dtype.type(0)),
    reduce_prod: ("times", lambda dtype: dtype.type(1)),
    reduce_max: ("greatest", lowest),
    reduce_min: ("least", highest),
}
"""How two numbers become one, and what it begins with."""


def _accepts(b: Binding) -> bool:
    kinds = "f" if b.op is reduce_mean else "iuf"
    return kind_of(b.out.type.dtype) in kinds


def runs(rank: int, axes: Sequence[int]) -> list[tuple[bool, list[int]]]:
    """Runs of axes, each with whether it is reduced."""
    groups = joined(range(rank), lambda one, next_: (one in axes) == (next_ in axes))
    return [(members[0] in axes, members) for members in groups]


def _runs(workload: Workload) -> list[tuple[bool, list[int]]]:
    b = workload.anchor
    return runs(len(b.args[0].type.shape), b.attrs["axes"])


def _source(workload: Workload, lanes: int = 0) -> str:
    """The text; with lanes, rows are summed as `row_total` does, and several axes in float64."""
    groups = _runs(workload)
    kept = [g for g, (reduced, _) in enumerate(groups) if not reduced]
    gone = [g for g, (reduced, _) in enumerate(groups) if reduced]
    s = Source()
    s(*(f"s{g} = {_product(range(g + 1, len(groups)))}" for g in range(len(groups) - 1)))
    if workload.anchor.op is reduce_mean:
        s(f"count = {dtype_text(workload.result.dtype)}({_product(gone)})")
    if gone and gone[-1] == len(groups) - 1:
        _rows(s, workload, kept, gone, lanes)
    else:
        _blocks(s, workload, kept, gone)
    title = f"{workload.anchor.op.name}: {''.join('r' if r else 'k' for r, _ in groups)}"
    return kernel_text(title, workload, s, [f"n{g}" for g in range(len(groups))])


def _product(groups: Sequence[int]) -> str:
    return " * ".join(f"n{g}" for g in groups) or "1"


def _finished(workload: Workload, total: str) -> str:
    return f"{total} / count" if workload.anchor.op is reduce_mean else total


def _start(workload: Workload) -> str:
    return literal(STEPS[workload.anchor.op][1](workload.result.dtype))


def _blocks(s: Source, workload: Workload, kept: list[int], gone: list[int]) -> None:
    """The last axis is kept, and is the run's."""
    step, _ = STEPS[workload.anchor.op]
    dtype, start = dtype_text(workload.result.dtype), _start(workload)
    summed = step == "plus" and workload.result.dtype == np.float32 and bool(gone)
    s(f"a = scratch({BLOCK}, {dtype})", *[f"sums = scratch({BLOCK}, float64)"][:summed])
    with s.pieces([f"n{g}" for g in kept] or ["1"], BLOCK):
        outer = (f"c{k} * s{g}" for k, g in enumerate(kept[:-1]))
        s(f"p = {' + '.join([*outer, 'j'])}")
        with s.loops(t="m"):
            s(f"a[t] = {start}", *[f"sums[t] = {ZERO}"][:summed])
        with _chains(s, gone, start) if summed else s.loops(**_indices(gone)):
            s(f"q = {' + '.join(['p', *(f'r{g} * s{g}' for g in gone)])}")
            with s.loops(t="m"):
                s(f"a[t] = {step}(a[t], x0[q + t])")
        with s.loops(t="m"):
            s(f"y[i + t] = {_finished(workload, 'float32(sums[t] + a[t])' if summed else 'a[t]')}")


def _indices(groups: Sequence[int]) -> dict[str, str]:
    return {f"r{g}": f"n{g}" for g in groups}


@contextmanager
def _chains(s: Source, groups: Sequence[int], start: str) -> Iterator[None]:
    """Loops over runs of axes in which `a` is summed; `sums` has the sums of rows before these."""
    *outer, last = groups
    with s.loops(**_indices(outer), k=f"0, n{last}, {CHAIN}"):
        before = " + ".join(["k", *_indices(outer)])
        with s.block(f"if {before} > 0:"), s.loops(t="m"):
            s("sums[t] += a[t]", f"a[t] = {start}")
        with s.loops(**{f"r{last}": f"k, least(k + {CHAIN}, n{last})"}):
            yield


def _rows(s: Source, workload: Workload, kept: list[int], gone: list[int], lanes: int) -> None:
    """The last axis is reduced: one element of the result after the other."""
    step, _ = STEPS[workload.anchor.op]
    *outer, last = gone
    with s.pieces([f"n{g}" for g in kept] or ["1"]), s.loops(t="m"):
        places = [*(f"c{k}" for k in range(len(kept) - 1)), "(j + t)"][-len(kept) :] if kept else []
        terms = [f"{c} * s{g}" for c, g in zip(places, kept, strict=True)]
        s(f"p = {' + '.join(terms) or '0'}")
        if len(workload.anchor.attrs["axes"]) == 1:
            row_total(s, workload, step, _start(workload), ("p", f"p + n{last}"), lanes)
        else:
            wide = lanes > 0 and step == "plus" and workload.result.dtype == np.float32
            s(f"a = {ZERO if wide else _start(workload)}")
            with s.loops(**{f"r{g}": f"n{g}" for g in outer}):
                s(f"q = {' + '.join(['p', *(f'r{g} * s{g}' for g in outer)])}")
                with s.loops(u=f"n{last}"):
                    s("a = a + x0[q + u]" if wide else f"a = {step}(a, x0[q + u])")
            if wide:
                s("a = float32(a)")
        s(f"y[i + t] = {_finished(workload, 'a')}")


def row_total(
    s: Source, workload: Workload, step: str, start: str, ends: tuple[str, str], lanes: int
) -> None:
    """The lines for `a`, what lies between two places brought together.

    With `lanes` sums have one order, that of the template of rows: an element joins the lane that
    its place leads to.
    """
    first, last = ends
    s(f"a = {start}")
    if not lanes or step != "plus" or workload.result.dtype != np.float32:
        with s.loops(u=f"{first}, {last}"):
            s(f"a = {step}(a, x0[u])")
        return
    s(f"b = scratch({lanes}, float32)")
    with s.loops(v=str(lanes)):
        s(f"b[v] = {start}")
    with s.loops(u=f"{first}, {last}, {lanes}", v=f"least({lanes}, {last} - u)"):
        s("b[v] = b[v] + x0[u + v]")
    while lanes > 1:
        lanes //= 2
        with s.loops(v=str(lanes)):
            s(f"b[v] = b[v] + b[v + {lanes}]")
    s("a = b[0]")


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    (x,), groups = argument_shapes(workload, shapes), _runs(workload)
    dims = tuple(product(x[a] for a in members) for _, members in groups)
    return Launch(dims, product(shapes[-1]), ROW_GRAIN if groups and groups[-1][0] else GRAIN)


def _counts(workload: Workload, at: LoopCounts) -> Counts:
    """Each element joins a sum once; sums of a block of neighbours stay in a small array."""
    size, (*_, last), groups = math.prod(at.dims), (1, *at.dims), _runs(workload)
    kind = "choose" if workload.anchor.op in (reduce_max, reduce_min) else "simple"
    divided = at.extent if workload.anchor.op is reduce_mean else 0
    if groups and groups[-1][0]:
        lines = size / max(last, 1)
        return {kind: size, "fold": lines, "divide": divided}
    return {"row": size / min(max(last, 1), BLOCK), kind: 2 * size, "divide": divided}


REDUCE = loop_template(
    "reduce", takes(*STEPS, where=_accepts), _source, _launch, _counts, ordered=_source
)
