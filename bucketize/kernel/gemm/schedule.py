"""What a schedule of a product may be: the tile that stays in registers, and how deep a pass is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from bucketize.kernel.loops.loop import schedule_error
from bucketize.kernel.template import Knob, Schedule, combinations
from bucketize.machine.target import Target

KC = (0, 128, 256, 512)  # 0: all of it in one pass
PREFERRED = (128, 256, 512, 0)  # depths of a pass, where a model sees no difference
MOST_ROWS = 14
HIGH = 12
"""Rows of a tile that x86-64 has registers for the addresses of: 13 rows of two vectors of 16 took
1.04 to 2.2 times as long in one tile as in two, on two processors."""


def tallest(target: Target) -> dict[int, int]:
    """The most rows of a tile, by its vectors.

    Each row needs an address, too: with 16 registers, sums of more than 8 rows of one vector leave
    them, and 14 took 1.2 to 1.5 times as long as 8.
    """
    most_rows = min(target.registers // 2, MOST_ROWS)
    return {v: min((target.registers - v - 1) // v, most_rows) // 2 * 2 for v in range(1, 5)}


def tiles(target: Target) -> Iterator[tuple[int, int]]:
    """Rows and vectors of the tiles worth a try: those that fill the registers, and lower ones.

    Below half of what fits, arithmetic waits for loads.
    """
    heights = sorted({*tallest(target).values(), 4})
    for vectors, most in tallest(target).items():
        yield from ((rows, vectors) for rows in heights if most <= 2 * rows <= 2 * most)


def knobs(target: Target, packed: bool) -> dict[str, tuple[Knob, ...]]:
    """The knobs of every product: rows and columns of a tile, and how deep a pass is."""
    shapes = list(tiles(target))
    common: dict[str, tuple[Knob, ...]] = {
        "mr": tuple(sorted({rows for rows, _ in shapes})),
        "nr": tuple(sorted({target.lanes * vectors for _, vectors in shapes})),
        "kc": KC,
    }
    return common if packed else common | {"copy": ("no", "yes")}


def valid(schedule: Schedule, target: Target, packed: bool) -> str | None:
    """Why a product cannot have this schedule."""
    wrong = schedule_error(knobs(target, packed), schedule)
    if wrong:
        return wrong
    mr, nv = int(schedule["mr"]), int(schedule["nr"]) // target.lanes
    if (mr, nv) not in tiles(target):
        known = ", ".join(f"{m} x {v}" for m, v in tiles(target))
        return f"{target.registers} registers are for tiles of {known} vectors, not {mr} x {nv}"
    return None


@cache
def schedules(target: Target, packed: bool) -> tuple[Schedule, ...]:
    """Every legal schedule; of those that a model cannot tell apart, the better ones first."""

    def rank(s: Schedule) -> tuple[int, ...]:
        mr, nr = int(s["mr"]), int(s["nr"])
        return -nr, mr > HIGH, PREFERRED.index(int(s["kc"])), -mr

    legal = [s for s in combinations(knobs(target, packed)) if not valid(s, target, packed)]
    return tuple(sorted(legal, key=rank))
