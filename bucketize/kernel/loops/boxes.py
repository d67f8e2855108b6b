"""The boxes of each class that do not overlap a better one, the best first.

Those whose scores suffice become a heap of which the best is taken again and again, so that no more
are put in order than are looked at. What was kept hangs in lists by the column that it begins in: a
box is compared with those that begin no further before it than the widest of them is wide.
"""

from __future__ import annotations

import math

import numpy as np

from bucketize.ir import Binding
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import Source, argument_shapes, kernel_text, loop_template, takes
from bucketize.kernel.template import Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.ops import kept_boxes
from bucketize.types import Dim, minimum

SIDES = ("low_y", "low_x", "high_y", "high_x", "area")
"""What is noted of a box, of float32."""
LINKS = ("heap", "behind")
"""Numbers of boxes, of int32: of those to be taken, and after each that was kept another."""
WORD = 4  # bytes, of both
COLUMNS = 1024  # at most: a box looks into every one that it lies in
EACH = 16  # boxes a column: fewer would be more columns than lists to look through


def _source(workload: Workload) -> str:
    s = Source()
    s("if begin >= end:", "    return")
    s("most = least(int64(x2[0]), limit)", "share = float32(x3[0])", "bar = float32(x4[0])")
    s("zero = float32(0)", "total = 0")
    _memory(s, workload)
    with s.loops(image="images"):
        _sides(s, workload.anchor.attrs["center"])
        with s.loops(label="classes"):
            s("q = (image * classes + label) * n", "kept = 0")
            _rank(s)
            _clear(s)
            with s.block("while count > 0 and kept < most:"):
                s("k = heap[0]", "count -= 1", "v = heap[count]", "c = 0")
                _sift(s)
                _compare(s)
                with s.block("if apart:"):
                    _keep(s)
    with s.loops(t="total * 3, images * classes * limit * 3"):
        s("y0[t] = 0")
    s("y1[0] = total")
    return kernel_text("kept_boxes", workload, s, ["images", "classes", "n", "limit"])


def _memory(s: Source, workload: Workload) -> None:
    s(f"space = block[{2 + len(workload.body.params)}]")
    for names, kind in ((SIDES, "float32"), (LINKS, "int32")):
        for name in names:
            s(f"{name} = pointer(space, {kind})", f"space += {WORD} * n")
    s("first = pointer(space, int32)")


def _sides(s: Source, center: bool) -> None:
    """The corners of an image's boxes, and from where to where all of them lie."""
    s("left = float32(math.inf)", "right = float32(-math.inf)")
    with s.loops(t="n"):
        s("e = (image * n + t) * 4", *(f"s{i} = x0[e + {i}]" for i in range(4)))
        if center:
            s("s2 *= float32(0.5)", "s3 *= float32(0.5)")
            s("low_y[t] = s0 - s2", "high_y[t] = s0 + s2")
            s("low_x[t] = s1 - s3", "high_x[t] = s1 + s3")
        else:
            s("low_y[t] = least(s0, s2)", "high_y[t] = greatest(s0, s2)")
            s("low_x[t] = least(s1, s3)", "high_x[t] = greatest(s1, s3)")
        s("area[t] = (high_x[t] - low_x[t]) * (high_y[t] - low_y[t])")
        s("left = low_x[t] if low_x[t] < left else left")
        s("right = high_x[t] if high_x[t] > right else right")


def _rank(s: Source) -> None:
    """The heap: the best at its root, of equals the first."""
    s("count = 0")
    with s.loops(t="n"), s.block("if x1[q + t] > bar:"):
        s("heap[count] = int32(t)", "count += 1")
    with s.loops(t="count // 2"):
        s("c = count // 2 - 1 - t", "v = heap[c]")
        _sift(s)


def _sift(s: Source) -> None:
    """The lines that put box v into the heap of `count` whose place c is vacant."""
    with s.block("while 2 * c + 1 < count:"):
        s("d = 2 * c + 1", "i = heap[d]")
        with s.block("if d + 1 < count:"):
            s("j = heap[d + 1]")
            with s.block(f"if {_before('j', 'i')}:"):
                s("d += 1", "i = j")
        with s.block(f"if {_before('v', 'i')}:"):
            s("break")
        s("heap[c] = i", "c = d")
    s("heap[c] = v")


def _before(i: str, j: str) -> str:
    a, b = f"x1[q + {i}]", f"x1[q + {j}]"
    return f"{a} > {b} or ({a} == {b} and {i} < {j})"


def _clear(s: Source) -> None:
    """No box was kept; the columns are so many as the heap is worth."""
    s(f"columns = least(greatest(count // {EACH}, 1), {COLUMNS})", "widest = 0")
    s("scale = float32(columns) / (right - left)")
    with s.loops(t="columns"):
        s("first[t] = int32(-1)")


def _column(s: Source, name: str, x: str) -> None:
    """The column of an x, the first one of a NaN."""
    s(f"place = ({x} - left) * scale", f"{name} = 0")
    with s.block("if place > zero:"):
        s(f"{name} = int64(least(place, float32(columns - 1)))")


def _compare(s: Source) -> None:
    """Whether box k overlaps none that was kept by more than the share."""
    _column(s, "at", "low_x[k]")
    _column(s, "to", "high_x[k]")
    s("apart = True", "column = greatest(at - widest, 0)")
    with s.block("while apart and column <= to:"):
        s("j = first[column]", "column += 1")
        with s.block("while apart and j >= 0:"):
            for axis in "xy":
                ends = f"least(high_{axis}[j], high_{axis}[k])"
                begins = f"greatest(low_{axis}[j], low_{axis}[k])"
                s(f"along_{axis} = greatest({ends} - {begins}, zero)")
            s("common = along_x * along_y", "union = area[j] + area[k] - common")
            with s.block("if common >= union * share or share < zero:"):  # it may be: divide
                s("part = common / union if union > zero else zero")
                s("near = low_x[j] < high_x[k] and high_x[j] > low_x[k]")
                s("apart = not (near and part > share)")
            s("j = behind[j]")


def _keep(s: Source) -> None:
    s("y0[total * 3] = image", "y0[total * 3 + 1] = label", "y0[total * 3 + 2] = int64(k)")
    s("total += 1", "kept += 1", "widest = greatest(widest, to - at)")
    s("behind[k] = first[at]", "first[at] = k")


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    boxes, scores, *_ = argument_shapes(workload, shapes)
    images, n, _ = boxes
    limit = workload.anchor.attrs["limit"]
    each: Dim = n if limit is None else minimum(n, limit)
    words = (len(SIDES) + len(LINKS)) * n + COLUMNS
    return Launch((images, scores[1], n, each), 1, workspace=WORD * words)


def _counts(_: Workload, at: LoopCounts) -> Counts:
    """A way through the heap for each box, and as much to compare it."""
    images, classes, n, _limit = at.dims
    return {"lone": images * classes * n * 2 * math.log2(n + 2)}


def _can_compare(b: Binding) -> bool:
    """Whether numbers are of the kinds of ONNX."""
    boxes, scores, most, *shares = (a.type.dtype for a in b.args)
    plain = boxes == scores == np.float32 and most.kind in "iu"
    return plain and all(d in (np.float32, np.float64) for d in shares)


KEPT_BOXES = loop_template(
    "kept_boxes", takes(kept_boxes, where=_can_compare), _source, _launch, _counts
)
