"""The greatest or smallest of each line along an axis, without sorting the line.

The first k elements of a line become a heap in the results' own memory, with the one that ranks
last at its root; each later element that ranks before it takes its place: O(n log k). Then the heap
is taken down from the root, which leaves it in order.
"""

from __future__ import annotations

import math

from bucketize.ir import Binding
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
from bucketize.ops import topk


def _source(workload: Workload) -> str:
    s = Source()
    with s.block("if k > n:"):
        s("wrong[0] = 1", "wrong[1] = k - 1", "wrong[2] = n")
    with s.block("elif k > 0:"), s.loops(i="begin, end"):
        s("p = i // inner * n * inner + i % inner", "q = i // inner * k * inner + i % inner")
        _select(s, workload.anchor)
        _take_down(s, workload.anchor)
    return kernel_text("topk", workload, s, ["n", "inner", "k"], checked=True)


def _select(s: Source, b: Binding) -> None:
    """The lines that leave the first k by rank in the heap at q, of the line at p."""
    with s.loops(t="k"):
        s("y0[q + t * inner] = x0[p + t * inner]", "y1[q + t * inner] = t")
    _heapify(s, _ranks_before(b))
    with s.loops(t="k, n"):
        s("v = x0[p + t * inner]", "at = t")
        with s.block(f"if {_precedes(b, 'v', 'y0[q]')}:"):  # of equals the earlier one stays
            _sift(s, "0", "k", _ranks_before(b))


def _take_down(s: Source, b: Binding) -> None:
    """The lines that put the heap at q in order: by rank, or by index if not sorted."""
    before = _ranks_before(b) if b.attrs["sorted"] else "{at} < {at2}"
    if not b.attrs["sorted"]:
        _heapify(s, before)
    with s.loops(h="k - 1"):
        s(
            "e = q + (k - 1 - h) * inner",
            "v = y0[e]",
            "at = y1[e]",
            "y0[e] = y0[q]",
            "y1[e] = y1[q]",
        )
        _sift(s, "0", "k - 1 - h", before)


def _heapify(s: Source, before: str) -> None:
    with s.loops(h="k // 2"):
        s("e = q + (k // 2 - 1 - h) * inner", "v = y0[e]", "at = y1[e]")
        _sift(s, "k // 2 - 1 - h", "k", before)


def _sift(s: Source, root: str, count: str, before: str) -> None:
    """The lines that put v, of index `at`, into the heap of `count` whose `root` is vacant."""
    left = {"v": "y0[e]", "at": "y1[e]"}
    s(f"c = {root}")
    with s.block(f"while 2 * c + 1 < {count}:"):
        s("d = 2 * c + 1", "e = q + d * inner")
        right = {"v2": "y0[e + inner]", "at2": "y1[e + inner]"}
        with s.block(f"if d + 1 < {count} and ({before.format(**left, **right)}):"):
            s("d += 1", "e += inner")
        with s.block(f"if not ({before.format(v='v', at='at', v2='y0[e]', at2='y1[e]')}):"):
            s("break")
        s("y0[q + c * inner] = y0[e]", "y1[q + c * inner] = y1[e]", "c = d")
    s("y0[q + c * inner] = v", "y1[q + c * inner] = at")


def _precedes(b: Binding, x: str, y: str) -> str:
    """Whether the value x goes before y; NaN is greater than every number."""
    relation, (nan, number) = (">", (x, y)) if b.attrs["largest"] else ("<", (y, x))
    above = f"{x} {relation} {y}"
    if b.args[0].type.dtype.kind != "f":
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


TOPK = loop_template("topk", takes(topk), _source, _launch)
