"""Resizing along neighbouring axes, row by row of the result.

A row is made of rows of the argument, of which each is first brought to its new length and kept for
as long as rows of the result want it. Which neighbours an element has, and their weights, is found
once a call for the last axis, once a row for those before it. Where the last axis grows by a known
whole factor, its elements repeat one pattern, which is written out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bucketize.ir import Binding
from bucketize.kernel.emit.expression import dtype_text
from bucketize.kernel.emit.vector import FLOAT_BYTES
from bucketize.kernel.loops.cost import Counts, Loops
from bucketize.kernel.loops.loop import Source, argument_shapes, kernel_text, loop_template, takes
from bucketize.kernel.template import Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.ops import resize
from bucketize.ops.interpolate import (
    CROP,
    EARLY,
    REACH,
    SHRUNK_UP,
    coordinates,
    neighbours,
    rounded,
)
from bucketize.types import Dim, product

MOST = 8  # the greatest factor whose pattern is written out
INSIDE = 4 * MOST  # an element whose neighbours all lie inside an axis twice as long
JOINED = 4  # rows that are added up in one loop: so many pointers LLVM tells apart from the result
INDEX_BYTES = 4
Tap = tuple[int, float]
"""How far a neighbour lies from the element that a pattern is of, and its weight."""


@dataclass(frozen=True)
class _Plan:
    """What the text depends on. Axis k of the run has n{k} elements, then o{k}."""

    b: Binding

    @cached_property
    def axes(self) -> range:
        """Those from the first that is resized to the last one."""
        axes = self.b.attrs["axes"]
        return range(axes[0], axes[-1] + 1)

    @property
    def flat(self) -> bool:
        """Whether rows are what lies behind the only axis, and so have their length already."""
        return len(self.axes) == 1 and self.behind

    @property
    def behind(self) -> bool:
        """Whether elements of the last axis are themselves rows."""
        return self.axes[-1] < len(self.b.args[0].type.shape) - 1

    @property
    def before(self) -> range:
        """The axes that rows are chosen along, as they are counted in the run."""
        return range(len(self.axes) - (not self.flat))

    @property
    def last(self) -> int:
        return len(self.axes) - 1

    def place(self, k: int) -> int | None:
        """Which of the resized axes an axis of the run is."""
        axes: tuple[int, ...] = self.b.attrs["axes"]
        return axes.index(self.axes[k]) if self.axes[k] in axes else None

    def taps(self, k: int) -> int:
        """Neighbours of an element along an axis."""
        reach = REACH.get(self.b.attrs["mode"], 0)
        return 2 * reach if reach and self.place(k) is not None else 1

    @property
    def nearest(self) -> bool:
        return bool(self.b.attrs["mode"] == "nearest")

    @property
    def rows(self) -> int:
        """Rows that a row of the result is made of."""
        return math.prod(self.taps(k) for k in self.before)

    @cached_property
    def pattern(self) -> list[list[Tap]]:
        """The neighbours of each of the elements that one becomes; none if that is not known."""
        attrs, x = self.b.attrs, self.b.args[0].type.shape[self.axes[-1]]
        if len(self.b.args) > 1 or self.behind or x == 0:
            return []
        size = attrs["sizes"][-1]
        factors = range(2, MOST + 1) if self.nearest else (2, 4, 8)  # exact in float32
        factor = next((f for f in factors if size == x * f), None)
        if factor is None or attrs["coordinates"] in ("align_corners", "half_pixel_symmetric"):
            return []
        scale, many = np.float32(factor), 2 * INSIDE * factor
        places = coordinates(attrs["coordinates"], 2 * INSIDE, many, scale, np.float32(many))
        places = places[INSIDE * factor : (INSIDE + 1) * factor]
        if self.nearest:
            found = rounded(places, attrs["rounding"], scale) - INSIDE
            return [[(int(at), 1.0)] for at in found]
        index, weights = neighbours(
            *(attrs["mode"], places, 2 * INSIDE, scale, attrs["cubic"]),
            exclude_outside=False,
            antialias=False,
        )
        pairs = zip((index - INSIDE).tolist(), weights.tolist(), strict=True)
        return [list(zip(*pair, strict=True)) for pair in pairs]

    @property
    def repeats(self) -> bool:
        """Whether each element is there several times, and nothing else is."""
        same = all(taps == [(0, 1.0)] for taps in self.pattern)
        return self.nearest and bool(self.pattern) and same


def _accepts(b: Binding) -> bool:
    attrs, kind = b.attrs, b.out.type.dtype.kind
    plain = attrs["coordinates"] != CROP and attrs["policy"] == "stretch" and not attrs["antialias"]
    return bool(plain and attrs["axes"]) and (attrs["mode"] == "nearest" or kind == "f")


def _source(workload: Workload) -> str:
    plan, s = _Plan(workload.anchor), Source()
    kind = dtype_text(workload.result.dtype)
    for k in range(len(plan.axes)):
        _scale(s, plan, k)
    row = "inner" if plan.flat else f"o{plan.last} * inner" if plan.behind else f"o{plan.last}"
    s(f"row = {row}")
    if not plan.flat and not plan.repeats:
        _memory(s, plan, workload, kind)
        _table(s, plan)
    (_nearest_rows if plan.nearest else _weighted_rows)(s, plan, kind)
    names = [f"{name}{k}" for name in "no" for k in range(len(plan.axes))]
    moved = (0,) if plan.nearest else None
    return kernel_text(_title(workload), workload, s, [*names, "inner"], moved=moved)


def _title(workload: Workload) -> str:
    attrs = workload.anchor.attrs
    by = attrs["rounding"] if attrs["mode"] == "nearest" else attrs["cubic"]
    return f"resize: {attrs['mode']} ({by}), {attrs['coordinates']}"


# --- the last axis -------------------------------------------------------------------------------


def _memory(s: Source, plan: _Plan, workload: Workload, kind: str) -> None:
    """In the workspace: rows at their new length, weights of the last axis, and its neighbours."""
    taps, kept = plan.taps(plan.last), 0 if plan.nearest or not plan.before else plan.rows
    s(f"space = block[{1 + len(workload.body.params)}]")
    if kept:
        s(f"kept = pointer(space, {kind})", f"space += {kept} * row * {np.dtype(kind).itemsize}")
    if not plan.nearest:
        s("weight = pointer(space, float32)", f"space += {taps} * o{plan.last} * {FLOAT_BYTES}")
    s("at = pointer(space, int32)")


def _table(s: Source, plan: _Plan) -> None:
    count = f"o{plan.last}"
    with s.loops(j=count):
        _neighbours(s, plan, plan.last, "j")
        for t in range(plan.taps(plan.last)):
            s(f"at[{t} * {count} + j] = int32(i{plan.last}_{t})")
            if not plan.nearest:
                s(f"weight[{t} * {count} + j] = w{plan.last}_{t}")


def _lengthened(s: Source, plan: _Plan, to: str) -> None:
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


def _sum(plan: _Plan, inner: str = "") -> str:
    """The neighbours of element j of the last axis, by the table; of parts of it the t-th each."""
    terms = []
    for t in range(plan.taps(plan.last)):
        entry = f"{t} * o{plan.last} + j"
        there = f"at[{entry}] * inner + t" if inner else f"at[{entry}]"
        terms.append(f"x0[p + {there}]" + (f" * weight[{entry}]" if not plan.nearest else ""))
    return " + ".join(terms)


def _repeated(s: Source, plan: _Plan, to: str) -> None:
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


def _times(plan: _Plan, weight: float) -> str:
    return "" if plan.nearest else f" * float32({weight!r})"


# --- rows ----------------------------------------------------------------------------------------


@contextmanager
def _each_row(s: Source, plan: _Plan) -> Iterator[None]:
    """The rows of the result, row i of the image `image` at q0, with the places of its rows."""
    with s.loops(i="begin, end"):
        s("image = i", "q0 = i * row")
        for k in reversed(plan.before):
            s(f"y{k} = image % o{k}", f"image //= o{k}")
        for k in plan.before:
            _neighbours(s, plan, k, f"y{k}")
        yield


def _row_at(plan: _Plan, chosen: Sequence[str]) -> str:
    """Which row of an image is at these places."""
    text = "0"
    for k, place in zip(plan.before, chosen, strict=True):
        text = place if text == "0" else f"({text}) * n{k} + {place}"
    return text


def _plane(plan: _Plan) -> str:
    return " * ".join(f"n{k}" for k in plan.before) or "1"


def _nearest_rows(s: Source, plan: _Plan, _: str) -> None:
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


def _weighted_rows(s: Source, plan: _Plan, kind: str) -> None:
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


def _slot(plan: _Plan, pairs: Sequence[tuple[int, int]]) -> str:
    """Where a row is kept: neighbours that are wanted at once have places of their own."""
    text = "0"
    for k, t in pairs:
        text = f"({text}) * {plan.taps(k)} + i{k}_{t} % {plan.taps(k)}"
    return text


def _keep(s: Source, plan: _Plan, old: str) -> None:
    """The rows that are wanted, at their new length; of another image none is there."""
    with s.block("if image != seen:"):
        s("seen = image")
        with s.loops(r=str(plan.rows)):
            s("held[r] = -1")
    with s.loops(r=str(plan.rows)), s.block("if held[slot[r]] != wanted[r]:"):
        s("held[slot[r]] = wanted[r]")
        s(f"p, q = (image * ({_plane(plan)}) + wanted[r]) * {old}, slot[r] * row")
        _lengthened(s, plan, "kept")


def _add_up(s: Source, plan: _Plan, kind: str, old: str) -> None:
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


# --- neighbours along an axis --------------------------------------------------------------------


def _scale(s: Source, plan: _Plan, k: int) -> None:
    """The lines for f{k} and v{k}, the scale of an axis and the extent that it leads to."""
    place, attrs = plan.place(k), plan.b.attrs
    if place is None:
        return
    if len(plan.b.args) > 1:
        s(f"f{k} = x1[{place}]", f"v{k} = f{k} * float32(n{k})")
    else:
        s(f"f{k} = float32(o{k}) / float32(n{k})", f"v{k} = float32(o{k})")
    if attrs["coordinates"] == "half_pixel_symmetric":
        s(f"h{k} = float32(n{k}) * {HALF} * ({ONE} - float32(o{k}) / v{k})")


ONE, HALF, NONE = "float32(1.0)", "float32(0.5)", "float32(0.0)"


def _neighbours(s: Source, plan: _Plan, k: int, y: str) -> None:
    """The lines for i{k}_{t} and w{k}_{t}, of element `y` of an axis."""
    if plan.place(k) is None:
        s(f"i{k}_0 = {y}", *[f"w{k}_0 = {ONE}"][: not plan.nearest])
        return
    _coordinate(s, plan.b.attrs["coordinates"], k, y)
    s("b = floor(c)")
    if plan.nearest:
        s(f"i{k}_0 = least(greatest(int64(b) + {_beyond(plan, k)}, 0), n{k} - 1)")
        return
    taps = plan.taps(k)
    for t, weight in enumerate(_weights(plan.b)):
        s(f"j{t} = int64(b) + {t + 1 - taps // 2}", f"w{k}_{t} = {weight}")
        s(f"i{k}_{t} = least(greatest(j{t}, 0), n{k} - 1)")
    if plan.b.attrs["exclude_outside"]:
        for t in range(taps):
            with s.block(f"if j{t} < 0 or j{t} >= n{k}:"):
                s(f"w{k}_{t} = {NONE}")
        s(f"total = {' + '.join(f'w{k}_{t}' for t in range(taps))}")
        s(*(f"w{k}_{t} = w{k}_{t} / total" for t in range(taps)))


def _coordinate(s: Source, kind: str, k: int, y: str) -> None:
    """The lines for c: the steps of `interpolate.coordinates`, one by one."""
    centre = f"(float32({y}) + {HALF}) / f{k}"
    zero = {"align_corners": f"v{k} == {ONE}", "pytorch_half_pixel": f"o{k} == 1"}.get(kind)
    text = {
        "asymmetric": f"float32({y}) / f{k}",
        EARLY: centre,
        "align_corners": f"float32({y}) * float32(n{k} - 1) / (v{k} - {ONE})",
        "half_pixel_symmetric": f"h{k} + {centre} - {HALF}",
    }.get(kind, f"{centre} - {HALF}")
    s(f"c = {text}")
    if zero:
        with s.block(f"if {zero}:"):
            s(f"c = {NONE}")


def _beyond(plan: _Plan, k: int) -> str:
    """1 if the nearest element is behind the place, by the rounding that is asked for."""
    up, shrunk = "(1 if c > b else 0)", f"(1 if c > b and f{k} < {ONE} else 0)"
    return {
        "round_prefer_floor": f"(1 if c - b > {HALF} else 0)",
        "round_prefer_ceil": f"(1 if c - b >= {HALF} else 0)",
        "floor": "0",
        "ceil": up,
        SHRUNK_UP: shrunk,
    }[plan.b.attrs["rounding"]]


def _weights(b: Binding) -> list[str]:
    """Those of the neighbours of a place c behind element b."""
    if b.attrs["mode"] == "linear":
        return [f"{ONE} - (c - b)", f"{ONE} - ({ONE} - (c - b))"]
    a = np.float32(b.attrs["cubic"])
    numbers = [f"float32({float(v)!r})" for v in (a + 2, a + 3, a, 5 * a, 8 * a, 4 * a)]

    def near(x: str) -> str:
        return f"(({numbers[0]} * ({x}) - {numbers[1]}) * ({x}) * ({x}) + {ONE})"

    def far(x: str) -> str:
        one, five, eight, four = numbers[2:]
        return f"((({one} * ({x}) - {five}) * ({x}) + {eight}) * ({x}) - {four})"

    rest = "c - b"
    return [
        far(f"{ONE} + ({rest})"),
        near(rest),
        near(f"{ONE} - ({rest})"),
        far(f"float32(2.0) - ({rest})"),
    ]


# --- launching -----------------------------------------------------------------------------------


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    plan = _Plan(workload.anchor)
    x, out = argument_shapes(workload, shapes)[0], shapes[-1]
    old, new = ([shape[a] for a in plan.axes] for shape in (x, out))
    inner = product(x[plan.axes[-1] + 1 :])
    extent = product(x[: plan.axes[0]]) * product(new[k] for k in plan.before)
    space: Dim = 0
    if not plan.flat and not plan.repeats:
        taps = plan.taps(plan.last)
        space = taps * new[-1] * (INDEX_BYTES + (0 if plan.nearest else FLOAT_BYTES))
        if plan.before and not plan.nearest:
            size = np.dtype(dtype_text(workload.result.dtype)).itemsize
            space += plan.rows * new[-1] * inner * size
    return Launch((*old, *new, inner), extent, workspace=space)


def _counts(workload: Workload, at: Loops) -> Counts:
    """A row is looked up, or made by its pattern; and added to others."""
    plan = _Plan(workload.anchor)
    *extents, inner = at.dims
    row = inner * (1 if plan.flat else extents[-1])
    elements = at.extent * row
    if plan.flat or plan.pattern:
        return {"row": 2 * at.extent, "simple": elements * plan.rows}
    looked_up = elements * plan.taps(plan.last)
    kind = "simple" if plan.behind else "apart"
    return {"row": 2 * at.extent, kind: looked_up, "multiply": elements * plan.rows}


RESIZE = loop_template("resize", takes(resize, where=_accepts), _source, _launch, _counts)
