"""How the elements of a resized axis are found, as text: which axes there are, and neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bucketize.ir import Binding
from bucketize.kernel.loops.loop import HALF, NONE, ONE, Source
from bucketize.ops.resample.interpolate import (
    EARLY,
    REACH,
    SHRUNK_UP,
    coordinates,
    neighbours,
    rounded,
)

MOST = 8  # the greatest factor whose pattern is written out
INSIDE = 4 * MOST  # an element whose neighbours all lie inside an axis twice as long
Tap = tuple[int, float]
"""How far a neighbour lies from the element that a pattern is of, and its weight."""


@dataclass(frozen=True)
class ResizeForm:
    """What the text depends on. Axis k of the run has n{k} elements, then o{k}."""

    b: Binding

    @cached_property
    def axes(self) -> range:
        """Axes from the first that is resized to the last one."""
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
        """Along the last axis, if its elements are not themselves rows."""
        return [] if self.behind else self._pattern(self.last)

    def _pattern(self, k: int) -> list[list[Tap]]:
        """The neighbours of each of the elements that one becomes; none if that is not known."""
        attrs, x, place = self.b.attrs, self.b.args[0].type.shape[self.axes[k]], self.place(k)
        if len(self.b.args) > 1 or place is None or x == 0:
            return []
        size = attrs["sizes"][place]
        factors = range(2, MOST + 1) if self.nearest else (2, 4, 8)  # exact in float32
        factor = next((f for f in factors if size == x * f), None)
        if factor is None or attrs["coordinates"] in ("align_corners", "half_pixel_symmetric"):
            return []
        scale, many = np.float32(factor), 2 * INSIDE * factor
        places = coordinates(attrs["coordinates"], 2 * INSIDE, many, scale, np.float32(many))
        places = places[INSIDE * factor : (INSIDE + 1) * factor]
        if self.nearest:
            nearest = rounded(places, attrs["rounding"], scale) - INSIDE
            return [[(int(at), 1.0)] for at in nearest]
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
        return self.nearest and _same(self.pattern)

    @cached_property
    def copies(self) -> int:
        """How often each row is there, if nothing else is; 0 if that is not known."""
        if not self.repeats or len(self.before) != 1:
            return 0
        pattern = self._pattern(0)
        return len(pattern) if _same(pattern) else 0


def _same(pattern: Sequence[Sequence[Tap]]) -> bool:
    return bool(pattern) and all(taps == [(0, 1.0)] for taps in pattern)


def write_scale(s: Source, plan: ResizeForm, k: int) -> None:
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


def write_neighbours(s: Source, plan: ResizeForm, k: int, y: str) -> None:
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


def _beyond(plan: ResizeForm, k: int) -> str:
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
    """Weights of the neighbours of a place c behind element b."""
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
