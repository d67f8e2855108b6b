"""What a kernel template is, what it takes and gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeAlias

from bucketize.kernel.schedule import Knob, Schedule
from bucketize.kernel.typical import TypicalPoints, points
from bucketize.kernel.workload import Workload
from bucketize.machine.speed import Floats
from bucketize.machine.target import Target
from bucketize.op import Array, Attrs
from bucketize.types import Dim, Points, Shape, evaluate

Shapes: TypeAlias = tuple[Shape, ...]
IMAGE = 4  # the rank of images


@dataclass(frozen=True)
class LineWindow:
    """Lines of an image that a line i of a result is made from: from i * stride - before on."""

    stride: int = 1
    reach: Dim = 1
    """Lines, from the first to the last, of which the image may have some only."""
    before: Dim = 0

    @classmethod
    def of(cls, attrs: Attrs, height: Dim) -> LineWindow:
        """The window, so many taps high, of a convolution or a pool."""
        reach = (height - 1) * attrs["dilations"][0] + 1
        return cls(attrs["strides"][0], reach, attrs["pads"][0])


@dataclass(frozen=True)
class Lines:
    """The extent of a kernel as tiles of a result: it counts (span, tile, step), the last fastest.

    The result is rows of `across` places, a place is `high` lines of one image; an image has `down`
    rows. Tiles hold `low` places, the first `tall` of them one more. A line follows from the tiles
    that its places are in, of all spans; and from lines of the arguments.
    """

    tiles: Dim
    low: Dim
    tall: Dim
    across: Dim
    down: Dim
    high: Dim = 1
    step: Dim = 1
    spans: Dim = 1
    windows: Mapping[int, LineWindow] = field(default_factory=dict)
    """By the place of an argument; of others, line i is made from line i."""


def by_lines(
    out: Shape, step: Dim, windows: Mapping[int, LineWindow] | None = None
) -> Lines | None:
    """A kernel whose extent has `step` numbers a line; None if its result is no image."""
    if len(out) != IMAGE:
        return None
    lines = out[0] * out[1]
    return Lines(lines, 1, 0, 1, out[1], step=step, windows=windows or {})


class Rows(tuple[Dim, ...]):
    """A shape whose rows, along the last axis, lie apart: `pitch` elements from one to the next."""

    pitch: Dim

    def __new__(cls, shape: Shape, pitch: Dim) -> Rows:
        rows = super().__new__(cls, shape)
        rows.pitch = pitch
        return rows


def pitch_of(shape: Shape) -> Dim:
    """Elements from a row to the next one."""
    return shape.pitch if isinstance(shape, Rows) else shape[-1]


@dataclass(frozen=True)
class Launch:
    """How a kernel is run, over dims: a launch rule is read once, at link time.

    The block is [out_0, ..., in_0, ..., workspace, begin, end, dims...]; begin..end is a part of
    range(extent) that begins at a multiple of `grain`; each thread has its own `workspace` bytes.
    """

    dims: tuple[Dim, ...]
    extent: Dim
    grain: int = 1
    workspace: Dim = 0
    checked: bool = False
    """Whether the workspace begins with a report: 0 if all was well, or 1, an index that is out of
    range, and the extent of its axis. The kernel writes it before all else, in each part."""
    lines: Lines | None = None
    """How it runs down the lines of its result, an image [batch, height, ...]; None: not so."""

    def at(self, sizes: Mapping[str, int]) -> Launch:
        """The launch when the symbols have these sizes."""
        dims = tuple(evaluate(d, sizes) for d in self.dims)
        extent, workspace = evaluate(self.extent, sizes), evaluate(self.workspace, sizes)
        return replace(self, dims=dims, extent=extent, workspace=workspace)


REPORT = 3 * 8  # bytes


class Cost(Protocol):
    """What a workload takes by the model of its template."""

    def seconds(
        self, schedules: Sequence[Schedule], points: Points, target: Target, cold_bytes: int = 0
    ) -> Floats:
        """Seconds on one core: a row for each of some points, a column for each schedule.

        `cold_bytes` pass through the caches between two runs of the kernel: they are those of the
        weights of all kernels that run in turn.
        """


class Packing(NamedTuple):
    """The layout that a kernel wants a constant in."""

    key: str
    """Equal keys: equal layouts, so that packed copies can be shared."""
    pack: Callable[[Array], Array]


Defaults: TypeAlias = Callable[[Workload, TypicalPoints, Target], Sequence[Schedule]]


def everywhere(default: Callable[[Workload, Target], Schedule]) -> Defaults:
    """Defaults that give one schedule within any box."""
    return lambda workload, points, target: [default(workload, target)] * len(points.boxes)


@dataclass(frozen=True, eq=False)
class Template:
    """A generator of kernels. `Shapes` are those of the arguments, then of all results."""

    name: str
    accepts: Callable[[Workload], bool]
    source: Callable[[Workload, Schedule, Target], str]
    """The whole text of the kernel's file, for `build`."""
    launch: Callable[[Workload, Schedule, Shapes, Target], Launch]
    knobs: Callable[[Workload, Target], dict[str, tuple[Knob, ...]]] = lambda *_: {}
    """The values of each knob that may be tried; none, nothing to tune."""
    defaults: Defaults = lambda _, points, __: [{}] * len(points.boxes)
    """The schedule that is best within each of some boxes, as far as is known."""
    packing: Callable[[Workload, Schedule, int], Packing | None] = lambda *_: None
    """How the schedule wants constant argument i laid out; None: as it is."""
    cost: Callable[[Workload], Cost] | None = None
    """The cost model, to rank schedules by and to predict; None: nothing is known of it."""
    pitched: Callable[[Workload], frozenset[int]] = lambda _: frozenset()
    """The places of arguments whose shapes may be `Rows` in a launch; -1: that of the result."""
    minimal: bool = False
    """Whether it finds sums by fewer products: where they have one order it is taken wherever it
    can be, for what is chosen by size would differ by size."""
    dot: str = ""
    """The short number whose products a processor must add up in one instruction; empty: none."""
    legal: Callable[[Workload, Schedule, Target], str | None] = lambda *_: None
    """Why values of the knobs that may each be tried do not go together, or None."""

    def default(self, workload: Workload, target: Target) -> dict[str, Knob]:
        """The schedule that is best within the workload's own bounds."""
        (schedule,) = self.defaults(workload, points(workload), target)
        return dict(schedule)

    def pack(self, workload: Workload, schedule: Schedule, i: int, value: Array) -> Array | None:
        """Constant argument i as the schedule wants it laid out; None: as it is."""
        packing = self.packing(workload, schedule, i)
        return None if packing is None else packing.pack(value)

    def pack_key(self, workload: Workload, schedule: Schedule, i: int) -> str:
        """The name of that layout; empty: as it is."""
        packing = self.packing(workload, schedule, i)
        return "" if packing is None else packing.key

    def valid(self, workload: Workload, schedule: Schedule, target: Target) -> str | None:
        """Why the schedule is not legal, or None."""
        knobs = self.knobs(workload, target)
        if schedule.keys() != knobs.keys():
            return f"expected the knobs {list(knobs)}, got {list(schedule)}"
        wrong = (f"{k}={v} is not in {knobs[k]}" for k, v in schedule.items() if v not in knobs[k])
        return next(wrong, None) or self.legal(workload, schedule, target)


def combinations(knobs: Mapping[str, Sequence[Knob]]) -> list[dict[str, Knob]]:
    """Every schedule that the values of `knobs` allow, legal or not."""
    return [dict(zip(knobs, v, strict=True)) for v in itertools.product(*knobs.values())]
