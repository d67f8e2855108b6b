"""A dispatcher of one's own: short sequences finely, long ones coarsely, batches as they come.

The command line finds it by its path:

    bucketize show zoo:bert-mini --dispatcher examples/own_dispatcher.py:fine_then_coarse:turn=32
"""

from __future__ import annotations

from collections.abc import Mapping

from bucketize.types import Shape, Symbol, bounds

Intervals = list[tuple[int, int | None]]


def fine_then_coarse(
    shapes: Mapping[str, Shape], *, turn: int = 64
) -> dict[str, dict[int, Intervals]]:
    """Steps of 16 up to `turn`, steps of 128 beyond, on every axis named S."""
    return {
        name: {axis: cut(*bounds(dim), turn)}
        for name, shape in shapes.items()
        for axis, dim in enumerate(shape)
        if isinstance(dim, Symbol) and dim.name == "S"
    }


def cut(lo: int, hi: int | None, turn: int) -> Intervals:
    """Half-open intervals from `lo` to `hi`; a bound that is None stays open."""
    end = (hi or 1024) + 1
    starts = sorted({lo, *range(16, turn, 16), *range(turn, end, 128)})
    starts = [s for s in starts if lo <= s < end]
    return list(zip(starts, [*starts[1:], hi and hi + 1], strict=True))


if __name__ == "__main__":
    sequence = Symbol("S", 1, 512)
    print(fine_then_coarse({"input_ids": (Symbol("B", 1, 16), sequence)}))
