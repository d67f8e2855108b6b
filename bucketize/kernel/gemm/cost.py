"""Cost of a product: the cycles and the traffic of its loops, from the macrokernel's structure.

For each panel of columns the tiles of all rows pass over the depth. A tile's step multiplies
`height` values of A by `vectors` vectors of B; the panel comes from far away for the first tile and
from a cache for the others, unless it was fetched ahead while the panel before was worked on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np

from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm.schedule import ABREAST, FILL, HIGH, LOW, NEON, Tiling, schedules
from bucketize.kernel.product import Product
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.typical import TypicalPoints
from bucketize.machine.speed import Floats, fitted, joined
from bucketize.machine.target import LINE, Target
from bucketize.types import Column, Dim, Points, Sizes

Extents: TypeAlias = Callable[[Dim], Column]
"""What a dim is at each of some points."""
HIDDEN = 3  # how well latency and sums overlap: 1, one after the other; many, the longer alone
PAGE = 4096  # bytes, after which addresses fall into the same set of a first cache


@dataclass(frozen=True)
class ProductConstants:
    """What is alike on all cores of a family; cycles unless said."""

    tile: float
    """To begin and end a tile."""
    row: float
    """To find a row of a tile."""
    pixel: float
    """To find one of an image."""
    store: float
    """To store a vector of a tile, with its epilogue."""
    spill: float
    """To keep a vector of sums between passes."""
    panel: float
    """To begin a pass over a panel."""
    call: float
    near: float
    """How much faster than a stream B comes from the second cache."""
    third: float
    """How much faster than a stream B comes from the third cache."""
    far: float
    """How much faster than one A comes from there, results go there, and B comes again."""
    farthest: float
    """How much faster than a stream B comes from memory."""
    share: float
    """The share of the first cache that B may fill."""
    share_l2: float
    """The share of the second cache that B may fill."""
    asked: float
    """How much of what is asked for ahead comes in time."""
    overlap: float
    """How well arithmetic and traffic overlap: 1, one after the other; many, the longer alone."""
    overlap_memory: float
    """How well arithmetic and traffic overlap where B comes from memory."""
    abreast: float
    """How much faster than one stream several panels side by side come from memory."""
    conflict: float
    """For a line of A that rows which lie a page apart have driven out of the first cache."""
    broadcast: float
    """Loads that a number of A takes, where a tile is one vector wide and nothing hides it."""


class Knobs(NamedTuple):
    """The knobs of schedules that the model reads, a column each."""

    mr: Floats
    nv: Floats
    """The vectors of a tile's row."""
    kc: Floats
    copy: Floats
    """1 where panels are copied."""

    def depth(self, whole: int) -> Floats:
        """How deep a pass is at most, over so deep a product."""
        return np.where(self.kc > 0, self.kc, whole)


def arrays(schedules: Sequence[Schedule], lanes: int) -> Knobs:
    """The knobs of schedules for vectors of so many lanes."""
    rows = [(t.mr, t.nr / lanes, t.kc, t.copy == "yes") for t in map(Tiling.of, schedules)]
    return Knobs(*np.array(rows, float).T)


def tiles_of(rows: Floats, most: Floats) -> Floats:
    """How many tiles of `most` rows a product is cut into, as `matmul.balanced` does."""
    return np.maximum(np.ceil(rows / most), np.minimum(np.ceil(rows / HIGH), 2))


def seconds(p: Product, k: Knobs, c: ProductConstants, target: Target) -> Floats:
    """The seconds that a product takes: a row for each of its sizes, a column for each schedule."""
    mr, nv, its = k.mr, k.nv, target.speed
    rows, batch = (np.array(n, float)[:, None] for n in (p.rows, p.batch))
    width = nv * target.lanes
    tiles = tiles_of(rows, mr)
    low, tall = np.floor(rows / tiles), rows % tiles
    panels = np.ceil(p.columns / width)
    passes = np.where((tiles == 1) & (not p.image), 1, np.ceil(p.depth / k.depth(p.depth)))
    depth = p.depth / passes  # of a pass
    part = depth * width * FLOAT_BYTES  # of B in a pass
    fitting = np.clip(FILL * target.registers // (rows * nv), 1, most_abreast(p, target))
    group = np.where((tiles == 1) & (rows <= LOW) & (panels >= fitting), fitting, 1)

    def step(height: Floats) -> Floats:
        """Cycles of a step of the reduction, for each of the panels that a tile covers."""
        sums = height * nv * group  # each waits for its last; just enough to hide that hide less
        arithmetic = joined(sums / its.fma, np.full_like(sums, its.latency), HIDDEN)
        lost = np.where(height * _alike(p) > ways, height * c.conflict * FLOAT_BYTES / LINE, 0)
        loads = height * c.broadcast + nv * group
        return np.maximum(arithmetic, loads / its.loads) / group + lost

    ways = target.l1 / PAGE - 2  # of which B takes some
    passed = _passed(p)
    gain = np.where(group > 1, c.abreast, 1.0)
    share, far = held_share(passed, target), far_bytes(passed, c, target, c.third, gain)
    overlap = share * c.overlap + (1 - share) * c.overlap_memory
    tall_step = step(low + 1)
    reduction = (step(low) * (tiles - tall) + tall_step * tall) * depth
    first = np.where(tall > 0, tall_step, step(low)) * depth
    fetched = np.where(tiles > 1, np.minimum(c.asked * tiles * LINE / (width * FLOAT_BYTES), 1), 0)
    # beside what comes from afar, B comes again for each tile if the first cache does not hold it
    near = np.where(part <= c.share_l2 * target.l2, c.near * its.l2, c.far * its.l3)
    again = np.where(part <= c.share * target.l1, 0, (tiles - 1) * part / near)
    overlapped = joined(reduction, part / far + again, overlap)
    overlapped = joined(overlapped, _rows(p, rows, c, target) / passes, c.overlap)
    waited = np.maximum(reduction + np.maximum(part / far - first, 0), part / far)
    waited = np.where(tiles > 1, waited, overlapped)
    of_part = fetched * overlapped + (1 - fetched) * waited
    cycles = panels * passes * (of_part + c.panel)

    vectors = rows * nv * panels
    cycles = cycles + panels * tiles * passes * c.tile + vectors * c.store
    cycles = cycles + 2 * vectors * (passes - 1) * c.spill
    cycles = cycles + rows * panels * passes * (c.pixel if p.image else c.row)
    cycles = cycles + _result(p, rows, c, target)
    if not p.packed:
        copied = (k.copy > 0) | (p.columns % width > 0)
        cycles = cycles + np.where(copied, panels * p.depth * nv * (c.store + 1 / its.loads), 0)
    total: Floats = (batch * cycles + c.call) / its.ghz / 1e9
    return total


def most_abreast(p: Product, target: Target) -> int:
    """Panels that a low tile covers at most, as `matmul.form` has it."""
    return 1 if p.image or not p.packed or target.processor.vectors == NEON else ABREAST


def _passed(p: Product) -> int:
    """Bytes that pass until B is read again."""
    return max(p.cold_bytes, p.depth * p.columns * FLOAT_BYTES)


def held_share(passed: Floats | float, target: Target) -> Floats:
    """The share of weights that the caches hold if so many bytes pass until they are read again."""
    return np.minimum(target.speed.l3_share * target.l3 / np.maximum(passed, 1), 1)


def far_bytes(
    passed: Floats | float,
    c: ProductConstants,
    target: Target,
    third: float,
    gain: Floats | float = 1.0,
) -> Floats:
    """Bytes in a cycle from where weights are if so many pass until they are read again.

    `third`: how much faster than a stream they come from the third cache; `gain`: how much faster
    than one stream they come from memory.
    """
    share, its = held_share(passed, target), target.speed
    memory = c.farthest * its.memory * gain
    far = 1 / (share / (third * its.l3) + (1 - share) / memory)
    return np.where(np.asarray(passed) <= 0.8 * target.l2, c.near * its.l2, far)


def _alike(p: Product) -> float:
    """The share of rows whose lines fall into the same set of the first cache."""
    return math.gcd(p.a_step or p.depth * FLOAT_BYTES, PAGE) / PAGE


def _rows(p: Product, rows: Floats, c: ProductConstants, target: Target) -> Floats:
    """Cycles of reading A for a panel, if the second cache does not hold it."""
    a = rows * p.depth * FLOAT_BYTES * p.a_share
    return np.where(a <= 0.6 * target.l2, 0, a / (c.far * target.speed.l3))


def _result(p: Product, rows: Floats, c: ProductConstants, target: Target) -> Floats:
    """Cycles of writing the result."""
    out = rows * p.columns * FLOAT_BYTES
    near, far = c.near * target.speed.l2, c.far * target.speed.l3
    return np.where(out <= 0.6 * target.l2, out / near, out / far)


FITTED = fitted(
    ProductConstants,
    tile=(5.0, 5.0),
    row=(8.63, 1.96),
    pixel=(13.3, 8.52),
    store=(0.538, 0.372),
    spill=(0.3, 0.3),
    panel=(11.1, 5.38),
    call=(365.0, 515.0),
    near=(1.49, 1.05),
    third=(0.907, 0.95),
    far=(0.907, 1.42),
    farthest=(0.693, 1.03),
    share=(0.6, 0.6),
    share_l2=(0.4, 0.4),
    asked=(3.22, 1.0),
    overlap=(3.8, 3.8),
    overlap_memory=(1.4, 3.3),
    abreast=(1.0, 1.3),
    conflict=(1.92, 1.41),
    broadcast=(1.0, 1.25),
)
"""Fitted by `-m benchmarks constants` to the grids in `tuning_logs`, but for the shares of caches,
which are assumed, and `overlap`: the usual width of panels hangs on it, and it is as
`benchmarks/replay` likes defaults best. AMD's shares of streams rest on a speed that no probe has
measured (`ZEN5` there). `abreast` is what a Zen 3 measured, `broadcast` what a Zen 5 did with tiles
of 14 x 1 and 8 x 1 vectors (1.2 and 1.3 of what was expected); on Intel nobody did. `third` of
AMD goes by what a Zen 5 takes for one row by weights of 1 to 16 MiB, all of a call counted: 20 to
26 bytes in a cycle where the probe finds 28; the grids, whose weights come from memory, hardly tell
it. Intel's is what they have for `far`."""


def modelled(p: Product, schedules: Sequence[Schedule], target: Target) -> Floats:
    """Seconds of a product under schedules, by the constants of the target's cores."""
    return seconds(p, arrays(schedules, target.lanes), FITTED[target.family], target)


# --- over dims -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProductCost:
    """Extents of a product over dims: its cost."""

    rows: Dim
    columns: Dim
    depth: Dim
    batch: Dim = 1
    packed: bool = True
    image: bool = False
    a_step: Dim = 0
    a_share: float = 1.0

    def seconds(
        self, schedules: Sequence[Schedule], points: Points, target: Target, cold_bytes: int = 0
    ) -> Floats:
        """Seconds of schedules at points of the symbols."""
        return self.modelled(points.values, schedules, target, cold_bytes)

    def product(self, sizes: Sequence[Sizes], cold_bytes: int = 0) -> Product:
        """At some sizes of the symbols; those of columns and depth must be the same at all."""
        ((product, _),) = self.products(Points(sizes).values, cold_bytes)
        return product

    def modelled(
        self, at: Extents, schedules: Sequence[Schedule], target: Target, cold_bytes: int
    ) -> Floats:
        """Seconds of schedules, however extents follow from points."""
        pairs = list(self.products(at, cold_bytes))
        seconds = np.concatenate([modelled(product, schedules, target) for product, _ in pairs])
        return seconds[np.argsort(np.concatenate([places for _, places in pairs]))]

    def products(self, at: Extents, cold_bytes: int) -> Iterator[tuple[Product, list[int]]]:
        """Products of the same columns and depth, each with the points where it is.

        What has no elements is taken for one.
        """
        extents = self.rows, self.batch, self.columns, self.depth
        rows, batch, *fixed = (np.maximum(at(d), 1).tolist() for d in extents)
        fixed.append(at(self.a_step).tolist())
        alike: dict[tuple[int, ...], list[int]] = {}
        for i, key in enumerate(zip(*fixed, strict=True)):
            alike.setdefault(key, []).append(i)
        for (columns, depth, step), places in alike.items():
            high, many = (tuple(n[i] for i in places) for n in (rows, batch))
            shape = high, columns, depth, many, self.packed, self.image, step, self.a_share
            yield Product(*shape, cold_bytes), places


# --- the best of some schedules -------------------------------------------------------------------


COLD = 16
"""Second caches of weights that pass between two calls of a kernel: on Zen 5, where four are held
by the last cache, products of few rows looked three times as fast as they are."""


def cold_bytes(target: Target) -> int:
    """Bytes of those weights, as defaults have it: at least as many as the program has."""
    return max(COLD * target.l2, target.weight_bytes)


LARGE = Product((256,), 512, 512)
# Both were chosen by `benchmarks/replay` on the recorded grids.
WORTH_A_COPY = 0.9  # of the time with panels of the usual width
ALIKE = 0.04  # of the logarithm of a time: what is so close is the same


@cache
def usual_width(target: Target, packed: bool) -> int:
    """The width of panels that is best for a large product."""
    able = schedules(target, packed)
    return int(able[int(modelled(LARGE, able, target).argmin())]["nr"])


def best(product: Product, target: Target) -> Schedule:
    """The best schedule of a product, over its sizes."""
    able = schedules(target, product.packed)
    (schedule,) = _best(modelled(product, able, target)[None], able, product.packed, target)
    return schedule


def _best(
    seconds: Floats, able: Sequence[Schedule], packed: bool, target: Target
) -> list[Schedule]:
    """The schedules of the least mean logarithm of seconds, if they pay for weights of their own.

    Seconds are [box, point, schedule]. Clones share weights that are packed in panels of one width;
    another width is a second copy of them all, for which a tenth of the time is too little.
    """
    score = np.log(seconds).mean(axis=1)
    width = usual_width(target, packed)
    mine = np.where([s["nr"] == width for s in able], score, np.inf)
    least = mine.min(axis=1, keepdims=True) + math.log(WORTH_A_COPY)
    other = (score.min(axis=1, keepdims=True) < least) | (not packed)
    asked = np.where(other, score, mine)
    first = np.argmax(asked <= asked.min(axis=1, keepdims=True) + ALIKE, axis=1)
    return [able[i] for i in first]


def defaults(extents: ProductCost, points: TypicalPoints, target: Target) -> list[Schedule]:
    """The best schedule in each box."""
    able = schedules(target, extents.packed)
    seconds = extents.modelled(points.extents, able, target, cold_bytes(target))
    return _best(seconds.reshape(len(points.boxes), -1, len(able)), able, extents.packed, target)
