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
from bucketize.kernel.gemm.microkernel import LINE, UNROLL
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
    """To find a row of a tile, an image's beside that of a matrix."""
    store: float
    """Of a vector of a tile, with its epilogue."""
    spill: float
    """Of a vector of sums that is kept between passes."""
    panel: float
    """To begin a panel, or one pass over it."""
    call: float
    l2: float
    """Bytes in a cycle from the second cache, and so on."""
    l3: float
    memory: float
    hidden: float
    """The share of the traffic from far away that the processor's own prefetching hides."""
    asked: float
    """Cycles of a line that is fetched ahead."""


def arrays(schedules: Sequence[Schedule], lanes: int) -> dict[str, Floats]:
    """The knobs of schedules, a column each."""
    rows = [
        (
            float(s["mr"]),
            float(s["nr"]) / lanes,
            float(s["kc"]),
            float(s.get("order") == "rows"),
            float(s.get("ahead", 0)),
            float(s.get("copy") == "yes"),
        )
        for s in schedules
    ]
    names = ("mr", "nv", "kc", "by_rows", "ahead", "copy")
    return dict(zip(names, np.array(rows).T, strict=True))


def seconds(p: Product, k: Mapping[str, Floats], c: Constants, target: Target) -> Floats:
    """The seconds that a product takes under each schedule."""
    lanes = target.lanes
    mr, nv = k["mr"], k["nv"]
    width = nv * lanes
    tiles = np.ceil(p.rows / mr)
    low, tall = np.floor(p.rows / tiles), p.rows % tiles
    panels = np.ceil(p.columns / width)
    kc = np.where(k["kc"] > 0, np.minimum(k["kc"], p.depth), p.depth)
    passes = np.ceil(p.depth / kc)
    depth = p.depth / passes  # of a pass

    # where B is read from again, and by which bytes
    panel_bytes = depth * width * FLOAT_BYTES
    near = np.where(panel_bytes <= 0.6 * target.l1, np.inf, c.l2)
    near = np.where(panel_bytes > 0.6 * target.l2, c.l3, near)

    def step(height: Floats) -> Floats:
        """Cycles of one step of a tile, B being near."""
        arithmetic = np.maximum(height * nv / c.fma, c.latency)
        return np.maximum(
            np.maximum(arithmetic, (height + nv) / c.loads), width * FLOAT_BYTES / near
        )

    tile_cycles = (
        step(low) * (tiles - tall) + step(low + 1) * tall
    ) * depth  # of a pass, all tiles
    first = step(np.minimum(low + 1, p.rows)) * depth
    far = _far(p, c, target)
    fetch = panel_bytes / far * (1 - c.hidden)
    lines = depth / UNROLL * k["ahead"] * tiles
    ahead = np.where(k["by_rows"] > 0, 0.0, np.minimum(lines * LINE / panel_bytes, 1.0))
    wait = np.maximum(panel_bytes * (1 - ahead) / far - first, 0) + fetch * (1 - ahead)
    of_pass = np.maximum(tile_cycles + wait, panel_bytes / far)
    of_pass = of_pass + np.minimum(lines, panel_bytes / LINE) * c.asked
    by_panels = panels * passes * (of_pass + c.panel)

    # all panels for each tile of rows: B is read again for each
    whole = panels * panel_bytes
    again = np.where(whole <= 0.6 * target.l2, c.l2, c.l3)
    by_rows = panels * (tile_cycles + c.panel * tiles) + whole / far * (1 - c.hidden)
    by_rows = np.maximum(by_rows, whole / far + (tiles - 1) * whole / again)

    cycles = np.where(k["by_rows"] > 0, by_rows, by_panels)
    vectors = p.rows * nv * panels
    cycles = cycles + panels * tiles * passes * c.tile + vectors * c.store
    cycles = cycles + 2 * vectors * (passes - 1) * c.spill
    cycles = cycles + p.rows * panels * passes * c.row * (2.0 if p.image else 1.0)
    cycles = cycles + _rows_again(p, panels, k, c, target)
    if not p.packed:
        cut = np.where((k["copy"] > 0) | (p.columns % width > 0), 1.0, 0.0)
        cycles = cycles + cut * panels * p.depth * nv * (c.store + 1 / c.loads)
    return (p.batch * cycles + c.call) / c.ghz / 1e9


def _far(p: Product, c: Constants, target: Target) -> float:
    """Bytes in a cycle from where B is when the product begins."""
    own = p.depth * p.columns * FLOAT_BYTES
    between = max(p.cold_bytes, own)
    if between <= target.l2 * 0.8:
        return c.l2
    return c.l3 if between <= target.l3 * 0.15 else c.memory


def _rows_again(
    p: Product, panels: Floats, k: Mapping[str, Floats], c: Constants, target: Target
) -> Floats:
    """Cycles of reading A once for each panel, and of writing the result."""
    a = p.a_bytes or p.rows * p.depth * FLOAT_BYTES
    again = np.where(k["by_rows"] > 0, 1.0, panels)
    rate = np.inf if a <= target.l2 * 0.6 else c.l3
    out = p.rows * p.columns * FLOAT_BYTES
    written = out / (c.l2 if out <= target.l2 * 0.6 else c.l3)
    return a * again / rate + written


NAMES = tuple(f.name for f in fields(Constants))
