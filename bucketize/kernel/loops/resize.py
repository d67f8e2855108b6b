"""Resizing along neighbouring axes, row by row of the result.

A row is made of rows of the argument, of which each is first brought to its new length and kept for
as long as rows of the result want it. Which neighbours an element has, and their weights, is found
once a call for the last axis, once a row for those before it. Where the last axis grows by a known
whole factor, its elements repeat one pattern, which is written out. Where all that both axes do is
to have their elements several times, the loop is over the argument's rows, and nothing is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from bucketize.ir import Binding
from bucketize.kernel.emit.expression import dtype_text
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import Source, argument_shapes, kernel_text, loop_template, takes
from bucketize.kernel.loops.neighbour import ResizeForm, write_neighbours, write_scale
from bucketize.kernel.template import Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.ops import resize
from bucketize.ops.resample.interpolate import CROP
from bucketize.types import Dim, product

JOINED = 4  # rows that are added up in one loop: so many pointers LLVM tells apart from the result
INDEX_BYTES = 4


def _accepts(b: Binding) -> bool:
    attrs, kind = b.attrs, b.out.type.dtype.kind
    plain = attrs["coordinates"] != CROP and attrs["policy"] == "stretch" and not attrs["antialias"]
    return bool(plain and attrs["axes"]) and (attrs["mode"] == "nearest" or kind == "f")


def _source(workload: Workload) -> str:
    plan, s = ResizeForm(workload.anchor), Source()
    if plan.copies:
        _copies(s, plan)
    else:
        _rows(s, plan, workload)
    names = [f"{name}{k}" for name in "no" for k in range(len(plan.axes))]
    moved = (0,) if plan.nearest else None
    return kernel_text(_title(workload), workload, s, [*names, "inner"], moved=moved)


def _rows(s: Source, plan: ResizeForm, workload: Workload) -> None:
    """Row by row of the result, whose neighbours are found."""
    kind = dtype_text(workload.result.dtype)
    for k in range(len(plan.axes)):
        write_scale(s, plan, k)
    row = "inner" if plan.flat else f"o{plan.last} * inner" if plan.behind else f"o{plan.last}"
    s(f"row = {row}")
    if not plan.flat and not plan.repeats:
        _memory(s, plan, workload, kind)
        _table(s, plan)
    (_nearest_rows if plan.nearest else _weighted_rows)(s, plan, kind)


def _copies(s: Source, plan: ResizeForm) -> None:
    """Row by row of the argument, which is written wherever it is to be: none is looked up."""
    with s.loops(i="begin, end", k=str(plan.copies)):
        s(f"repeated(y, (i * {plan.copies} + k) * o1, x0, i * n1, n1, {len(plan.pattern)})")


def _title(workload: Workload) -> str:
    attrs = workload.anchor.attrs
    by = attrs["rounding"] if attrs["mode"] == "nearest" else attrs["cubic"]
    return f"resize: {attrs['mode']} ({by}), {attrs['coordinates']}"


# --- the last axis -------------------------------------------------------------------------------


def _memory(s: Source, plan: ResizeForm, workload: Workload, kind: str) -> None:
    """In the workspace: rows at their new length, weights of the last axis, and its neighbours."""
    taps, kept = plan.taps(plan.last), 0 if plan.nearest or not plan.before else plan.rows
    s(f"space = block[{1 + len(workload.body.params)}]")
    if kept:
        s(f"kept = pointer(space, {kind})", f"space += {kept} * row * {np.dtype(kind).itemsize}")
    if not plan.nearest:
        s("weight = pointer(space, float32)", f"space += {taps} * o{plan.last} * {FLOAT_BYTES}")
    s("at = pointer(space, int32)")


def _table(s: Source, plan: ResizeForm) -> None:
    count = f"o{plan.last}"
    with s.loops(j=count):
        write_neighbours(s, plan, plan.last, "j")
        for t in range(plan.taps(plan.last)):
            s(f"at[{t} * {count} + j] = int32(i{plan.last}_{t})")
            if not plan.nearest:
                s(f"weight[{t} * {count} + j] = w{plan.last}_{t}")


def _lengthened(s: Source, plan: ResizeForm, to: str) -> None:
    """The row of x0 at p, brought to its new length at q of `to`."""
    if plan.nearest and plan.behind:
        with s.loops(j=f"o{plan.last}"):
            s(f"copied({to}, q + j * inner, x0, p + at[j] * inner, inner)")
    elif plan.behind:
        with s.loops(j=f"o{plan.last}", t="inner"):
            s(f"{to}[q + j * inner + t] = {_sum(plan, 'inner')}")
    elif not plan.pattern:
        with s.loops(j=f"o{plan.last}"):
            s(f"{to}[q + j] = {_sum(plan)}")
    elif plan.repeats:
        s(f"repeated({to}, q, x0, p, n{plan.last}, {len(plan.pattern)})")
    else:
        _repeated(s, plan, to)


def _sum(plan: ResizeForm, inner: str = "") -> str:
    """The neighbours of element j of the last axis, by the table; of parts of it the t-th each."""
    terms = []
    for t in range(plan.taps(plan.last)):
        entry = f"{t} * o{plan.last} + j"
        there = f"at[{entry}] * inner + t" if inner else f"at[{entry}]"
        terms.append(f"x0[p + {there}]" + (f" * weight[{entry}]" if not plan.nearest else ""))
    return " + ".join(terms)


def _repeated(s: Source, plan: ResizeForm, to: str) -> None:
    """By the pattern, but at the ends, which see what lies outside."""
    factor, n = len(plan.pattern), f"n{plan.last}"
    offsets = [at for taps in plan.pattern for at, _ in taps]
    low, high = max(0, -min(offsets)), max(0, *offsets)
    s(f"low, high = least({low}, {n}), greatest({n} - {high}, least({low}, {n}))")
    with s.loops(u="low, high"):
        for place, taps in enumerate(plan.pattern):
            terms = (f"x0[p + u + {at}]" + _times(plan, weight) for at, weight in taps)
            s(f"{to}[q + u * {factor} + {place}] = {' + '.join(terms)}")
    for ends in (f"low * {factor}", f"high * {factor}, o{plan.last}"):
        with s.loops(j=ends):
            s(f"{to}[q + j] = {_sum(plan)}")


def _times(plan: ResizeForm, weight: float) -> str:
    return "" if plan.nearest else f" * float32({weight!r})"


# --- rows ----------------------------------------------------------------------------------------


@contextmanager
def _each_row(s: Source, plan: ResizeForm) -> Iterator[None]:
    """The rows of the result, row i of the image `image` at q0, with the places of its rows."""
    with s.loops(i="begin, end"):
        s("image = i", "q0 = i * row")
        for k in reversed(plan.before):
            s(f"y{k} = image % o{k}", f"image //= o{k}")
        for k in plan.before:
            write_neighbours(s, plan, k, f"y{k}")
        yield


def _row_at(plan: ResizeForm, chosen: Sequence[str]) -> str:
    """Which row of an image is at these places."""
    text = "0"
    for k, place in zip(plan.before, chosen, strict=True):
        text = place if text == "0" else f"({text}) * n{k} + {place}"
    return text


def _plane(plan: ResizeForm) -> str:
    return " * ".join(f"n{k}" for k in plan.before) or "1"


def _nearest_rows(s: Source, plan: ResizeForm, _: str) -> None:
    """A row that was just made is copied."""
    old = "inner" if plan.flat else f"n{plan.last} * inner" if plan.behind else f"n{plan.last}"
    s("same = -1")
    with _each_row(s, plan):
        s(f"r = image * ({_plane(plan)}) + {_row_at(plan, [f'i{k}_0' for k in plan.before])}")
        s(f"p, q = r * {old}, q0")
        if plan.flat:
            s("copied(y, q, x0, p, row)")
            return
        with s.block("if r == same:"):
            s("copied(y, q, y, q - row, row)")
        with s.block("else:"):
            _lengthened(s, plan, "y")
        s("same = r")


def _weighted_rows(s: Source, plan: ResizeForm, kind: str) -> None:
    old = "inner" if plan.flat else f"n{plan.last} * inner" if plan.behind else f"n{plan.last}"
    if not plan.before:
        with _each_row(s, plan):
            s(f"p, q = i * {old}, q0")
            _lengthened(s, plan, "y")
        return
    count = plan.rows
    s(f"wanted, slot = scratch({count}, int64), scratch({count}, int64)")
    s(f"share, held = scratch({count}, float32), scratch({count}, int64)", "seen = -1")
    with _each_row(s, plan):
        for r, taps in enumerate(np.ndindex(*(plan.taps(k) for k in plan.before))):
            pairs = list(zip(plan.before, taps, strict=True))
            s(f"wanted[{r}] = {_row_at(plan, [f'i{k}_{t}' for k, t in pairs])}")
            s(f"slot[{r}] = {_slot(plan, pairs)}")
            s(f"share[{r}] = {' * '.join(f'w{k}_{t}' for k, t in pairs)}")
        if not plan.flat:
            _keep(s, plan, old)
        _add_up(s, plan, kind, old)


def _slot(plan: ResizeForm, pairs: Sequence[tuple[int, int]]) -> str:
    """Where a row is kept: neighbours that are wanted at once have places of their own."""
    text = "0"
    for k, t in pairs:
        text = f"({text}) * {plan.taps(k)} + i{k}_{t} % {plan.taps(k)}"
    return text


def _keep(s: Source, plan: ResizeForm, old: str) -> None:
    """The rows that are wanted, at their new length; of another image none is there."""
    with s.block("if image != seen:"):
        s("seen = image")
        with s.loops(r=str(plan.rows)):
            s("held[r] = -1")
    with s.loops(r=str(plan.rows)), s.block("if held[slot[r]] != wanted[r]:"):
        s("held[slot[r]] = wanted[r]")
        s(f"p, q = (image * ({_plane(plan)}) + wanted[r]) * {old}, slot[r] * row")
        _lengthened(s, plan, "kept")


def _add_up(s: Source, plan: ResizeForm, kind: str, old: str) -> None:
    """A row of the result: some of its rows at a time."""
    source = "x0" if plan.flat else "kept"
    for first in range(0, plan.rows, JOINED):
        rows = range(first, min(first + JOINED, plan.rows))
        for r in rows:
            start = f"(image * ({_plane(plan)}) + wanted[{r}]) * {old}"
            s(f"p{r} = {start if plan.flat else f'slot[{r}] * row'}", f"f{r}_ = share[{r}]")
        terms = [*["y[q0 + t]"][: first > 0], *(f"{source}[p{r} + t] * f{r}_" for r in rows)]
        with s.loops(t="row"):
            s(f"y[q0 + t] = {kind}({' + '.join(terms)})")


# --- launching -----------------------------------------------------------------------------------


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    plan = ResizeForm(workload.anchor)
    x, out = argument_shapes(workload, shapes)[0], shapes[-1]
    old, new = ([shape[a] for a in plan.axes] for shape in (x, out))
    inner = product(x[plan.axes[-1] + 1 :])
    rows = old if plan.copies else new
    extent = product(x[: plan.axes[0]]) * product(rows[k] for k in plan.before)
    space: Dim = 0
    if not plan.flat and not plan.repeats:
        taps = plan.taps(plan.last)
        space = taps * new[-1] * (INDEX_BYTES + (0 if plan.nearest else FLOAT_BYTES))
        if plan.before and not plan.nearest:
            size = np.dtype(dtype_text(workload.result.dtype)).itemsize
            space += plan.rows * new[-1] * inner * size
    return Launch((*old, *new, inner), extent, workspace=space)


def _counts(workload: Workload, at: LoopCounts) -> Counts:
    """A row is looked up, or made by its pattern; and added to others."""
    plan = ResizeForm(workload.anchor)
    *extents, inner = at.dims
    row = inner * (1 if plan.flat else extents[-1])
    rows = at.extent * (plan.copies or 1)
    elements = rows * row
    if plan.flat or plan.pattern:
        return {"row": 2 * rows, "simple": elements * plan.rows}
    looked_up = elements * plan.taps(plan.last)
    kind = "simple" if plan.behind else "apart"
    return {"row": 2 * at.extent, kind: looked_up, "multiply": elements * plan.rows}


RESIZE = loop_template("resize", takes(resize, where=_accepts), _source, _launch, _counts)
