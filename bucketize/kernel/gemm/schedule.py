"""Schedules of products: the tile that stays in registers, the depth of a pass, copied panels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.schedule import Knob, Schedule
from bucketize.kernel.template import combinations
from bucketize.machine.speed import AMD
from bucketize.machine.target import Target
from bucketize.ops.rounding import PLAIN

KC = (0, 128, 256, 512)  # 0: all of it in one pass
NEAR = 0.75  # of the first cache, that a pass over a panel may fill
MOST_ROWS = 14
NEON = "neon"
SPARE = 3  # registers that LLVM needs beside sums and factors, on Arm
ABREAST = 4
"""Panels that a low tile covers at most: each is a stream to the processor, with requests of its
own. A Zen 3 reads 14 to 15 GB/s from memory in one, 18 in two, 19 to 20 in four."""
FILL = 0.75
"""The share of the registers that sums of several panels may fill: beside them LLVM wants an
element of each row and two or three vectors of B."""
LOW = 3
"""Rows of a tile that covers several. Four or more, as tiles of two or three, took 0.75 to 1.35 of
the time of one on a Zen 3, most often longer."""
HIGH = 12
"""Rows of a tile that x86-64 has registers for the addresses of: 13 rows of two vectors of 16 took
1.04 to 2.2 times as long in one tile as in two, on two processors."""


@dataclass(frozen=True)
class Tile:
    """The knobs that a kernel's code depends on; those with a default are not in every schedule."""

    mr: int
    """Rows of the tallest tile."""
    nr: int
    """Columns of a tile, and of a panel of B."""
    weights: str = PLAIN
    """The format that a packed B is held in; the steps of int8 lie before each panel."""

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        """The knobs of a schedule, which may be a recorded one."""
        names = cls.__dataclass_fields__
        stated: dict[str, Any] = {name: knob for name, knob in schedule.items() if name in names}
        return cls(**stated)


@dataclass(frozen=True)
class Tiling(Tile):
    """All knobs of a product: with those that a launch alone depends on."""

    kc: int = 0
    """How deep a pass is at most; 0: all of it in one pass."""
    copy: str = "no"
    """Whether panels of a B that lies in its own place are copied, "no" or "yes"."""


def is_packed(schedule: Schedule) -> bool:
    """Whether a schedule is of products whose B lies in panels before they begin."""
    return "copy" not in schedule


def fetches_near(target: Target) -> bool:
    """Whether tiles ask for the panel that comes next into the first cache, not the second.

    On a Zen 5, where weights come from memory, 16 to 48 rows by panels that begin at a page came to
    take 1.1 to 1.5 times as long by requests into the second; 128 rows take 0.96 to 1.0 by those
    into the first, in caches 1.0 to 1.02. A Zen 3 does both alike; on Intel nobody measured it.
    """
    return target.family == AMD


def tallest(target: Target) -> dict[int, int]:
    """The most rows of a tile, by its vectors.

    Each row needs an address, too: with 16 registers, sums of more than 8 rows of one vector leave
    them, and 14 took 1.2 to 1.5 times as long as 8. Arm keeps elements of each row in a vector.
    """
    if target.processor.vectors == NEON:
        return {v: (target.registers - v - SPARE) // (v + 1) for v in range(1, 5)}
    most_rows = min(target.registers // 2, MOST_ROWS)
    return {v: min((target.registers - v - 1) // v, most_rows) // 2 * 2 for v in range(1, 5)}


def tiles(target: Target) -> Iterator[tuple[int, int]]:
    """Rows and vectors of the tiles worth a try: those that fill the registers, and lower ones.

    Below half of what fits, arithmetic waits for loads.
    """
    heights = sorted({*tallest(target).values(), 4})
    for vectors, most in tallest(target).items():
        yield from ((rows, vectors) for rows in heights if most <= 2 * rows <= 2 * most)


def knobs(target: Target, packed: bool, weights: str = PLAIN) -> dict[str, tuple[Knob, ...]]:
    """The values of the knobs of a product whose weights fit into a format."""
    shapes = list(tiles(target))
    common: dict[str, tuple[Knob, ...]] = {
        "mr": tuple(sorted({rows for rows, _ in shapes})),
        "nr": tuple(sorted({target.lanes * vectors for _, vectors in shapes})),
        "kc": KC,
    }
    if not packed:
        return common | {"copy": ("no", "yes")}
    return common if weights == PLAIN else common | {"weights": (PLAIN, weights)}


def unfit(schedule: Schedule, target: Target) -> str | None:
    """Why a product cannot have this tile, or None."""
    tiling = Tiling.of(schedule)
    mr, nv = tiling.mr, tiling.nr // target.lanes
    if (mr, nv) not in tiles(target):
        worth = ", ".join(f"{m} x {v}" for m, v in tiles(target))
        return f"{target.registers} registers are for tiles of {worth} vectors, not {mr} x {nv}"
    return None


@cache
def schedules(target: Target, packed: bool) -> tuple[Schedule, ...]:
    """Every legal schedule; of those that a model cannot tell apart, the better ones first.

    Passes are as deep as B stays in the first cache; where none does they are whole. By replay of
    three processors defaults are 3.4, 4.4 and 4.1 % above the best; with a depth of 128 first, 3.5,
    4.9 and 12.7, the last with a cache of 32 KiB, which a pass of 64 columns fills.
    """

    def rank(s: Schedule) -> tuple[float, ...]:
        t = Tiling.of(s)
        is_near = 0 < t.kc * t.nr * FLOAT_BYTES <= NEAR * target.l1
        return -t.nr, t.mr > HIGH, not is_near, t.kc > 0, -t.kc, -t.mr

    legal = [s for s in combinations(knobs(target, packed)) if not unfit(s, target)]
    return tuple(sorted(legal, key=rank))
