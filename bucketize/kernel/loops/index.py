"""Gathering and scattering, and indices of what is not zero. Negative ones count from the back.

Those that are out of range move nothing, but are reported; see `Launch.checked`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bucketize.ir import Binding
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import (
    GRAIN,
    Source,
    argument_shapes,
    kernel_text,
    loop_template,
    strides_of,
    takes,
)
from bucketize.kernel.template import REPORT, Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.machine.target import LINE
from bucketize.ops import (
    gather,
    gather_elements,
    gather_nd,
    nonzero_rows,
    scatter_elements,
    scatter_nd,
    tensor_scatter,
)
from bucketize.types import Dim, product

AHEAD = 32  # rows: how far what is fetched lies before what is copied
FETCHED = 8  # lines of a row: that it goes on the processor sees by itself


@contextmanager
def _index(s: Source, index: str, extent: str) -> Iterator[None]:
    """The lines for `k`, an index along an axis of `extent`; the context's only if it is in it."""
    s(f"k = int64({index})")
    with s.block("if k < 0:"):
        s(f"k += {extent}")
    with s.block(f"if k < 0 or k >= {extent}:"), s.block("if wrong[0] == 0:"):
        s("wrong[0] = 1", f"wrong[1] = int64({index})", f"wrong[2] = {extent}")
    with s.block("else:"):
        yield


def _checked(dims: Sequence[Dim], shapes: Shapes) -> Launch:
    return Launch(tuple(dims), product(shapes[-1]), GRAIN, REPORT, checked=True)


# --- gather: rows of `inner` elements ------------------------------------------------------------


def _gather_source(workload: Workload) -> str:
    line = LINE // workload.result.dtype.itemsize
    s = Source()
    with s.pieces(["_", "count", "inner"]):
        with s.block(f"if m >= {2 * line}:"):
            s(f"k = int64(x1[least(c1 + {AHEAD}, count - 1)])")
            with s.loops(t=f"0, least(m, {FETCHED * line}), {line}"):
                s("fetch(x0, (c0 * extent + k) * inner + t)")
        with _index(s, "x1[c1]", "extent"):
            s("copied(y, i, x0, (c0 * extent + k) * inner + j, m)")
    names = ["extent", "count", "inner"]
    return kernel_text("gather", workload, s, names, moved=(0,), checked=True)


def _gather_launch(workload: Workload, shapes: Shapes) -> Launch:
    x, indices = argument_shapes(workload, shapes)
    axis = workload.anchor.attrs["axis"]
    return _checked((x[axis], product(indices), product(x[axis + 1 :])), shapes)


GATHER = loop_template(
    "gather",
    takes(gather),
    _gather_source,
    _gather_launch,
    lambda _, at: {"row": at.extent / max(at.dims[-1], 1)},
)


# --- elements ------------------------------------------------------------------------------------


def _place(s: Source, at: Sequence[str], axis: int) -> None:
    """The line for `p`, where in an array the index along `axis` leads."""
    terms = [f"{'k' if a == axis else c} * s{a}" for a, c in enumerate(at)]
    s(f"p = {' + '.join(terms)}")


def _elements_source(workload: Workload) -> str:
    rank, axis = len(workload.result.shape), workload.anchor.attrs["axis"]
    s = Source()
    row = s.pieces([f"e{a}" for a in range(rank)])
    with row, s.loops(t="m"), _index(s, "x1[i + t]", "extent"):
        _place(s, [*(f"c{a}" for a in range(rank - 1)), "(j + t)"], axis)
        s("y[i + t] = x0[p]")
    names = _element_names(rank)
    return kernel_text("gather_elements", workload, s, names, moved=(0,), checked=True)


def _element_names(rank: int) -> list[str]:
    return ["extent", *(f"e{a}" for a in range(rank)), *(f"s{a}" for a in range(rank))]


def _elements_launch(workload: Workload, shapes: Shapes) -> Launch:
    x, indices, *_ = argument_shapes(workload, shapes)
    extent = x[workload.anchor.attrs["axis"]]
    return _checked((extent, *indices, *strides_of(x)), shapes)


GATHER_ELEMENTS = loop_template(
    "gather_elements",
    takes(gather_elements),
    _elements_source,
    _elements_launch,
    lambda _, at: {"lone": at.extent},
)


FOLDS = {"add": "plus", "mul": "times", "min": "least", "max": "greatest"}


def _can_fold(b: Binding) -> bool:
    return b.attrs["reduction"] == "none" or b.out.type.dtype.kind in "iuf"


def _copy(s: Source) -> None:
    with s.loops(t="begin, end"):
        s("y[t] = x0[t]")


def _joined(workload: Workload, place: str, update: str) -> str:
    """The line that puts an update where it belongs, or joins it to what is there."""
    reduction = workload.anchor.attrs["reduction"]
    if reduction == "none":
        return f"y[{place}] = {update}"
    return f"y[{place}] = {FOLDS[reduction]}(y[{place}], {update})"


def _scatter_text(workload: Workload, s: Source, names: Sequence[str]) -> str:
    anchor = workload.anchor
    moved = (0, 2) if anchor.attrs["reduction"] == "none" else None
    return kernel_text(anchor.op.name, workload, s, names, moved=moved, checked=True)


def _scatter_elements_source(workload: Workload) -> str:
    """Each thread goes through all updates in order and keeps those that fall to it."""
    rank, axis = len(workload.result.shape), workload.anchor.attrs["axis"]
    s = Source()
    _copy(s)
    s("i = 0")
    with s.loops(**{f"c{a}": f"e{a}" for a in range(rank)}):
        with _index(s, "x1[i]", "extent"):
            _place(s, [f"c{a}" for a in range(rank)], axis)
            with s.block("if p >= begin and p < end:"):
                s(_joined(workload, "p", "x2[i]"))
        s("i += 1")
    return _scatter_text(workload, s, _element_names(rank))


SCATTER_ELEMENTS = loop_template(
    "scatter_elements",
    takes(scatter_elements, where=_can_fold),
    _scatter_elements_source,
    _elements_launch,
    lambda workload, at: {"lone": math.prod(at.dims[1 : 1 + len(workload.result.shape)])},
)


# --- rows of indices -----------------------------------------------------------------------------


def _depth(workload: Workload) -> int:
    depth = workload.anchor.args[1].type.shape[-1]
    assert isinstance(depth, int), "the rank of the result depends on it"
    return depth


@contextmanager
def _follow(s: Source, depth: int, row: str) -> Iterator[None]:
    """Add to `p` where row `row` of the indices leads; the context's lines only if it does."""
    with ExitStack() as nested:
        for a in range(depth):
            nested.enter_context(_index(s, f"x1[({row}) * {depth} + {a}]", f"d{a}"))
            s(f"p += k * s{a}")
        yield


def _row_names(depth: int) -> list[str]:
    return ["rows", "inner", "batch", *(f"{n}{a}" for n in ("d", "s") for a in range(depth))]


def _rows_launch(workload: Workload, shapes: Shapes) -> Launch:
    x, indices, *_ = argument_shapes(workload, shapes)
    first, depth = workload.anchor.attrs.get("batch_dims", 0), _depth(workload)
    named = slice(first, first + depth)
    rows, inner = product(indices[first:-1]), product(x[first + depth :])
    dims = (rows, inner, product(x[first:]), *x[named], *strides_of(x)[named])
    return _checked(dims, shapes)


def _gather_nd_source(workload: Workload) -> str:
    depth = _depth(workload)
    s = Source()
    with s.pieces(["_", "rows", "inner"]):
        s("p = c0 * batch + j")
        with _follow(s, depth, "c0 * rows + c1"):
            s("copied(y, i, x0, p, m)")
    return kernel_text("gather_nd", workload, s, _row_names(depth), moved=(0,), checked=True)


def _scatter_nd_source(workload: Workload) -> str:
    """Each thread goes through all updates in order and keeps those that fall to it."""
    depth = _depth(workload)
    s = Source()
    _copy(s)
    with s.loops(r="rows"):
        s("p = 0")
        part = "greatest(begin - p, 0), least(end - p, inner)"
        with _follow(s, depth, "r"), s.loops(t=part):
            s(_joined(workload, "p + t", "x2[r * inner + t]"))
    return _scatter_text(workload, s, _row_names(depth))


def _row_counts(workload: Workload, at: LoopCounts) -> Counts:
    """Extents that count the rows moved: of the result or of the updates."""
    updates, inner, *_ = at.dims
    rows = at.extent / max(inner, 1) if workload.anchor.op is gather_nd else updates
    return {"row": rows, "lone": rows * _depth(workload)}


GATHER_ND = loop_template(
    "gather_nd", takes(gather_nd), _gather_nd_source, _rows_launch, _row_counts
)
SCATTER_ND = loop_template(
    "scatter_nd", takes(scatter_nd, where=_can_fold), _scatter_nd_source, _rows_launch, _row_counts
)


# --- caches --------------------------------------------------------------------------------------


def _cache_source(workload: Workload) -> str:
    """Rows of `row` elements, as many for each sequence: what is kept of them, and the update.

    The update lies from `a` to `b`, what of it is beyond the end at the begin.
    """
    s = Source()
    with s.pieces(["_", "row"]):
        s("start = int64(x2[c0 // rows])")
        if workload.anchor.attrs["circular"]:
            s("start %= extent", "fits = True")
        else:
            s("fits = start >= 0 and start <= extent - length")
        with s.block("if fits:"):
            s("a = start * inner", "b = a + part", "wrapped = greatest(b - row, 0)")
            for x, at, first, last in (
                ("x1", "c0 * part + row - a + t", "0", "wrapped"),
                ("x0", "i - j + t", "wrapped", "a"),
                ("x1", "c0 * part - a + t", "a", "least(b, row)"),
                ("x0", "i - j + t", "b", "row"),
            ):
                s(f"t = greatest({first}, j)")
                s(f"copied(y, i - j + t, {x}, {at}, least({last}, j + m) - t)")
        with s.block("elif wrong[0] == 0:"):
            s("wrong[0] = 1", "wrong[1] = start", "wrong[2] = extent - length + 1")
    names = ["extent", "length", "inner", "rows", "row", "part"]
    return kernel_text("tensor_scatter", workload, s, names, moved=(0, 1), checked=True)


def _cache_launch(workload: Workload, shapes: Shapes) -> Launch:
    x, update, _ = argument_shapes(workload, shapes)
    axis = workload.anchor.attrs["axis"]
    inner = product(x[axis + 1 :])
    rows = product(x[1:axis])
    dims = (x[axis], update[axis], inner, rows, x[axis] * inner, update[axis] * inner)
    return _checked(dims, shapes)


TENSOR_SCATTER = loop_template(
    "tensor_scatter",
    takes(tensor_scatter),
    _cache_source,
    _cache_launch,
    lambda _, at: {"row": 4 * at.extent / max(at.dims[4], 1)},
)


def _nonzero_source(workload: Workload) -> str:
    s, rank = Source(), len(workload.anchor.args[0].type.shape)
    s("if begin >= end:", "    return", "total = 0", "at = 0")
    with ExitStack() as loops:
        for axis in range(rank):
            loops.enter_context(s.loops(**{f"i{axis}": f"n{axis}"}))
        with s.block("if x0[at] != 0 and total < count:"):
            s(*(f"y[total * {rank} + {axis}] = i{axis}" for axis in range(rank)), "total += 1")
        s("at += 1")
    with s.loops(t=f"total * {rank}, count * {rank}"):
        s("y[t] = 0")
    return kernel_text("nonzero", workload, s, [*(f"n{axis}" for axis in range(rank)), "count"])


def _nonzero_launch(workload: Workload, shapes: Shapes) -> Launch:
    (x,) = argument_shapes(workload, shapes)
    return Launch((*x, workload.anchor.attrs["count"]), 1)


def _nonzero_counts(_: Workload, at: LoopCounts) -> Counts:
    return {"lone": 2 * math.prod(at.dims[:-1])}


def is_plain(b: Binding) -> bool:
    """Whether elements are of a kind that loops compare as they are."""
    return b.args[0].type.dtype.kind in "biuf" and b.args[0].type.dtype != "float16"


NONZERO = loop_template(
    "nonzero",
    takes(nonzero_rows, where=is_plain),
    _nonzero_source,
    _nonzero_launch,
    _nonzero_counts,
)
