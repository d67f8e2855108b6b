"""The greatest or smallest of each line along an axis, without sorting the line; rows in order.

The first k elements of a line become a heap in the results' own memory, with the one that ranks
last at its root; each later element that ranks before it takes its place: O(n log k). Then the heap
is taken down from the root, which leaves it in order.
"""

from __future__ import annotations

import math

from bucketize.ir import Binding
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.index import is_plain
from bucketize.kernel.loops.loop import (
    GRAIN,
    Source,
    argument_shapes,
    kernel_text,
    loop_template,
    takes,
)
from bucketize.kernel.template import REPORT, Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.ops import row_order, topk
from bucketize.types import product
from bucketize.types.number import kind_of


def _source(workload: Workload) -> str:
    s = Source()
    with s.block("if k > n:"):
        s("wrong[0] = 1", "wrong[1] = k - 1", "wrong[2] = n")
    with s.block("elif k > 0:"), s.loops(i="begin, end"):
        s("p = i // inner * n * inner + i % inner", "q = i // inner * k * inner + i % inner")
        _select(s, workload.anchor)
    return kernel_text("topk", workload, s, ["n", "inner", "k"], checked=True)


def _select(s: Source, b: Binding) -> None:
    """The lines that put the first k by rank, of the line at p, at q: in order if it is asked."""
    with s.loops(t="k"):
        s("y0[q + t * inner] = x0[p + t * inner]", "y1[q + t * inner] = t")
    if b.attrs["sorted"]:
        _rounds(s, _ranks_before(b), _precedes(b, LATER, "y0[q]"), "k - 1")
    else:
        _rounds(s, _ranks_before(b), _precedes(b, LATER, "y0[q]"), "0")
        _rounds(s, "{at} < {at2}", "", "k - 1")


LATER = "x0[p + (t + k - made) * inner]"


def _rounds(s: Source, before: str, enters: str, taken: str) -> None:
    """Rounds that each vacate a place of the heap at q and sift an element down from there.

    First k elements become a heap; then each later one that `enters` takes the root's place; the
    last rounds, as many as `taken`, put the root behind what stays in the heap.
    """
    s("made = k // 2", f"chosen = made + {'n - k' if enters else '0'}", "t = 0")
    with s.block(f"while t < chosen + {taken}:"):
        with s.block("if t < made:"):
            s("c = made - 1 - t", "count = k", "e = q + c * inner", "v = y0[e]", "at = y1[e]")
        if enters:
            with s.block("elif t < chosen:"):
                with s.block(f"while t < chosen and not {enters}:"):  # of equals the earlier stays
                    s("t += 1")
                with s.block("if t == chosen:"):
                    s("continue")
                s("c = 0", "count = k", "at = t + k - made", f"v = {LATER}")
        with s.block("else:"):
            s("c = 0", "count = chosen + k - 1 - t", "e = q + count * inner")
            s("v = y0[e]", "at = y1[e]", "y0[e] = y0[q]", "y1[e] = y1[q]")
        _sift(s, before)
        s("t += 1")


def _sift(s: Source, before: str) -> None:
    """The lines that put v, of index `at`, into the heap of `count` whose place c is vacant."""
    left = {"v": "y0[e]", "at": "y1[e]"}
    with s.block("while 2 * c + 1 < count:"):
        s("d = 2 * c + 1", "e = q + d * inner")
        right = {"v2": "y0[e + inner]", "at2": "y1[e + inner]"}
        with s.block(f"if d + 1 < count and ({before.format(**left, **right)}):"):
            s("d += 1", "e += inner")
        with s.block(f"if not ({before.format(v='v', at='at', v2='y0[e]', at2='y1[e]')}):"):
            s("break")
        s("y0[q + c * inner] = y0[e]", "y1[q + c * inner] = y1[e]", "c = d")
    s("y0[q + c * inner] = v", "y1[q + c * inner] = at")


def _precedes(b: Binding, x: str, y: str) -> str:
    """Whether the value x goes before y; NaN is greater than every number."""
    relation, (nan, number) = (">", (x, y)) if b.attrs["largest"] else ("<", (y, x))
    above = f"{x} {relation} {y}"
    if kind_of(b.args[0].type.dtype) != "f":
        return above
    return f"({above} or ({nan} != {nan} and {number} == {number}))"


def _ranks_before(b: Binding) -> str:
    """Whether `v` at index `at` ranks before `v2` at `at2`: a template."""
    first, second = _precedes(b, "{v}", "{v2}"), _precedes(b, "{v2}", "{v}")
    return f"{first} or ({{at}} < {{at2}} and not {second})"


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    (x,), b = argument_shapes(workload, shapes), workload.anchor
    axis = b.attrs["axis"]
    inner = math.prod(x[axis + 1 :])
    grain = 1 if axis == len(b.args[0].type.shape) - 1 else GRAIN
    dims = (x[axis], inner, shapes[-1][axis])
    return Launch(dims, math.prod(x[:axis]) * inner, grain, REPORT, checked=True)


def _counts(_: Workload, at: LoopCounts) -> Counts:
    """A look at each element, and a way through the heap for each that is chosen."""
    n, _inner, k = at.dims
    return {"row": at.extent, "lone": at.extent * (n + k * math.log2(k + 1))}


TOPK = loop_template("topk", takes(topk), _source, _launch, _counts)


# --- rows: merged, in runs that double, between the memory of both results ------------------------

X, Y = "x0[p + c]", "x0[q + c]"


def _rows_source(workload: Workload) -> str:
    s, b = Source(), workload.anchor
    s("if begin >= end:", "    return", "width = 1")
    with s.loops(t="n"):
        s("y0[t] = t")
    with s.block("while width < n:"):
        _merge(s, b)
        with s.loops(t="n"):
            s("y0[t] = y1[t]")
        s("width *= 2")
    with s.loops(t="least(n, 1)"):
        s("y1[t] = 1")
    with s.loops(t="1, n"):
        is_lone = len(b.args[0].type.shape) == 1
        _compare(s, "y0[t]", "y0[t - 1]", _alike(b) if is_lone else f"{X} == {Y}")
        s("y1[t] = int64(c < m)")
    return kernel_text("row_order", workload, s, ["n", "m"])


def _merge(s: Source, b: Binding) -> None:
    """The lines that merge each two runs of y0 to one of y1; of equals those of the first first."""
    s("u = 0", "v = 0", "middle = 0", "right = 0")
    with s.loops(t="n"):
        with s.block("if t == right:"):
            s("u = t", "middle = least(t + width, n)", "v = middle")
            s("right = least(middle + width, n)")
        s("second = u == middle")
        with s.block("if u < middle and v < right:"):
            _compare(s, "y0[v]", "y0[u]", _alike(b))
            less = _with_nan(b, f"{X} < {Y}", f"{X} == {X} and {Y} != {Y}")
            s(f"second = c < m and ({less})")
        with s.block("if second:"):
            s("y1[t] = y0[v]", "v += 1")
        with s.block("else:"):
            s("y1[t] = y0[u]", "u += 1")


def _compare(s: Source, row: str, other: str, alike: str) -> None:
    """The lines that find the first place `c` at which two rows are not alike."""
    s(f"p = {row} * m", f"q = {other} * m", "c = 0")
    with s.block(f"while c < m and ({alike}):"):
        s("c += 1")


def _alike(b: Binding) -> str:
    return _with_nan(b, f"{X} == {Y}", f"{X} != {X} and {Y} != {Y}")


def _with_nan(b: Binding, numbers: str, nan: str) -> str:
    """A comparison, of dtypes that have NaN with what holds of it."""
    return f"{numbers} or ({nan})" if kind_of(b.args[0].type.dtype) == "f" else numbers


def _rows_launch(workload: Workload, shapes: Shapes) -> Launch:
    (x,) = argument_shapes(workload, shapes)
    return Launch((x[0], product(x[1:])), 1)


def _rows_counts(_: Workload, at: LoopCounts) -> Counts:
    """Each row is compared once in each round, mostly by its first element."""
    n, _m = at.dims
    return {"lone": 3 * n * math.log2(n + 2)}


ROW_ORDER = loop_template(
    "row_order", takes(row_order, where=is_plain), _rows_source, _rows_launch, _rows_counts
)
