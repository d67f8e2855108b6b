"""What a product takes: the cycles and the traffic of its loops, from the macrokernel's structure.

For each panel of columns the tiles of all rows pass over the depth. A tile's step multiplies
`height` values of A by `vectors` vectors of B; the panel comes from far away for the first tile and
from a cache for the others, unless it was fetched ahead while the panel before was worked on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from bucketize.kernel.emit.vector import FLOAT_BYTES
from bucketize.kernel.gemm.microkernel import LINE
from bucketize.kernel.target import Target
from bucketize.kernel.template import Schedule

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Product:
    """The extents of a product, or of a convolution as one."""

    batch: int
    """Products side by side."""
    rows: int
    columns: int
    depth: int
    packed: bool = True
    """Whether B lies in panels."""
    image: bool = False
    """Whether the rows of A are windows of an image."""
    a_bytes: int = 0
    """Of A in memory: an image is less than its windows."""
    cold_bytes: int = 0
    """What passes through the caches until B is read again."""


@dataclass(frozen=True)
class Constants:
    """What a processor takes; cycles unless said."""

    ghz: float
    fma: float
    """Fused multiply-adds of vectors in a cycle."""
    loads: float
    """Of a vector, or of a value for all its lanes, in a cycle."""
    latency: float
    """Of a chain of sums, for each step."""
    tile: float
    """To begin and end a tile."""
    row: float
    """To find a row of a tile."""
    pixel: float
    """To find one of an image."""
    store: float
    """Of a vector of a tile, with its epilogue."""
    spill: float
    """Of a vector of sums that is kept between passes."""
    panel: float
    """To begin a pass over a panel."""
    call: float
    l1: float
    """Bytes in a cycle that B costs beside the arithmetic, from the first cache; and so on."""
    l2: float
    l3: float
    memory: float
    share: float
    """Of the first cache, that B may fill."""
    held: float
    """The share of the last cache that others leave."""
    hidden: float
    """How much of a tile's time hides what it waits for."""


def arrays(schedules: Sequence[Schedule], lanes: int) -> dict[str, Floats]:
    """The knobs of schedules, a column each."""
    rows = [
        (s["mr"], int(s["nr"]) / lanes, s["kc"], float(s.get("copy") == "yes")) for s in schedules
    ]
    return dict(zip(("mr", "nv", "kc", "copy"), np.array(rows, float).T, strict=True))


def seconds(p: Product, k: Mapping[str, Floats], c: Constants, target: Target) -> Floats:
    """The seconds that a product takes under each schedule."""
    mr, nv = k["mr"], k["nv"]
    width = nv * target.lanes
    tiles = np.ceil(p.rows / mr)
    low, tall = np.floor(p.rows / tiles), p.rows % tiles
    panels = np.ceil(p.columns / width)
    passes = np.ceil(p.depth / np.where(k["kc"] > 0, k["kc"], p.depth))
    depth = p.depth / passes  # of a pass
    part = depth * width * FLOAT_BYTES  # of B in a pass

    # B comes again from the cache that holds a pass over a panel beside the rows of A
    near = np.where(part <= c.share * target.l1, c.l1, c.l2)

    def step(height: Floats) -> Floats:
        """Cycles of a step of the reduction, B being near."""
        arithmetic = np.maximum(height * nv / c.fma, c.latency)
        return np.maximum(arithmetic, (height + nv) / c.loads) + width * FLOAT_BYTES / near

    far = _far(p, c, target)
    tall_step = step(low + 1)
    reduction = (step(low) * (tiles - tall) + tall_step * tall) * depth
    first = np.where(tall > 0, tall_step, step(low)) * depth
    fetched = np.where(tiles > 1, np.minimum(tiles * LINE / (width * FLOAT_BYTES), 1), 0)
    waits = (1 - fetched) * np.maximum(part / far - c.hidden * first, 0)
    of_part = np.maximum(reduction + waits, part / far)
    cycles = panels * passes * (of_part + c.panel)

    vectors = p.rows * nv * panels
    cycles = cycles + panels * tiles * passes * c.tile + vectors * c.store
    cycles = cycles + 2 * vectors * (passes - 1) * c.spill
    cycles = cycles + p.rows * panels * passes * (c.pixel if p.image else c.row)
    cycles = cycles + _rows_again(p, panels, c, target)
    if not p.packed:
        copied = (k["copy"] > 0) | (p.columns % width > 0)
        cycles = cycles + np.where(copied, panels * p.depth * nv * (c.store + 1 / c.loads), 0)
    found: Floats = (p.batch * cycles + c.call) / c.ghz / 1e9
    return found


def _far(p: Product, c: Constants, target: Target) -> float:
    """Bytes in a cycle from where B is when the product begins."""
    between = max(p.cold_bytes, p.depth * p.columns * FLOAT_BYTES)
    if between <= 0.8 * target.l2:
        return c.l2
    return c.l3 if between <= c.held * target.l3 else c.memory


def _rows_again(p: Product, panels: Floats, c: Constants, target: Target) -> Floats:
    """Cycles of reading A once for each panel, and of writing the result."""
    a = p.a_bytes or p.rows * p.depth * FLOAT_BYTES
    out = p.rows * p.columns * FLOAT_BYTES
    rate = np.inf if a <= 0.6 * target.l2 else c.l3
    found: Floats = a * panels / rate + out / (c.l2 if out <= 0.6 * target.l2 else c.l3)
    return found


NAMES = tuple(f.name for f in fields(Constants))
