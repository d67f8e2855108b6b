"""The template of pooling over NHWC images of float32, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bucketize.ir import Binding, Const
from bucketize.kernel.depthwise.cost import FITTED
from bucketize.kernel.emit.module import form_source
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm.epilogue import FLOAT32
from bucketize.kernel.loops.loop import takes
from bucketize.kernel.loops.pool import counts_pads, dims_of, is_mean
from bucketize.kernel.pool import loops
from bucketize.kernel.pool.loops import VECTORS, PoolForm
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Launch, LineWindow, Shapes, Template, by_lines, pitch_of
from bucketize.kernel.work import work
from bucketize.kernel.workload import Workload
from bucketize.machine.speed import Floats, joined
from bucketize.machine.target import Target
from bucketize.ops import avg_pool2d, max_pool2d
from bucketize.types import Dim, Points, product

GRAIN = 16  # pixels: two threads should not write to one cache line, of one channel either
GREATEST = 3  # steps on a vector to take the greater of two, where NaN is greatest


def _accepts(b: Binding) -> bool:
    (x,) = b.args
    return b.attrs["layout"] == "NHWC" and x.type.dtype == FLOAT32 and not isinstance(x, Const)


def _form(workload: Workload, target: Target) -> PoolForm:
    channels = workload.result.shape[3]
    return PoolForm(
        lanes=target.lanes,
        mean=is_mean(workload),
        counts_pads=counts_pads(workload),
        dilated=any(d != 1 for d in workload.anchor.attrs["dilations"]),
        cut=not isinstance(channels, int) or channels % target.lanes != 0,
    )


def _launch(workload: Workload, _schedule: Schedule, shapes: Shapes, _target: Target) -> Launch:
    out, pixels = shapes[-1], (pitch_of(shape) * FLOAT_BYTES for shape in shapes)
    attrs = workload.anchor.attrs
    lines = by_lines(out, out[2], {0: LineWindow.of(attrs, attrs["kernel"][0])})
    return Launch((*dims_of(workload, shapes), *pixels), product(out[:3]), GRAIN, lines=lines)


@dataclass(frozen=True)
class PoolCost:
    """The cost of pooling, over dims."""

    moved: Dim
    """Bytes."""
    pixels: Dim
    """Pixels of the result."""
    channels: Dim
    taps: Dim
    """Places of the window."""
    steps: int
    """On a vector, for each of them."""

    def seconds(
        self, schedules: Sequence[Schedule], points: Points, target: Target, cold_bytes: int = 0
    ) -> Floats:
        """Seconds of schedules at points: by the vectors worked on and the bytes moved.

        The constants are those of depthwise convolutions, whose windows slide alike; none is fitted
        to pooling. There are no weights to be cold.
        """
        del cold_bytes
        c, its = FITTED[target.family], target.speed
        dims = self.moved, self.pixels, self.channels, self.taps
        moved, pixels, channels, taps = (points.values(d).astype(float) for d in dims)
        vectors = np.ceil(channels / target.lanes)
        step = max(1 / its.loads, self.steps / its.fma)
        of_pixel = vectors * (taps * step + c.store) + np.ceil(vectors / VECTORS) * taps * c.tile
        far = np.where(moved <= c.share_l2 * target.l2, c.near * its.l2, c.far * its.l3)
        both = joined(pixels * of_pixel, moved / far, c.overlap)
        return np.tile(((both + c.call) / its.ghz / 1e9)[:, None], len(schedules))


def _cost(workload: Workload) -> PoolCost:
    *pixels, channels = workload.result.shape
    return PoolCost(
        moved=work(workload).moved,
        pixels=product(pixels),
        channels=channels,
        taps=product(workload.anchor.attrs["kernel"]),
        steps=1 if is_mean(workload) else GREATEST,
    )


TEMPLATE = Template(
    name="pool_nhwc",
    accepts=takes(max_pool2d, avg_pool2d, where=_accepts),
    source=lambda workload, _, target: form_source(loops.__name__, _form(workload, target)),
    launch=_launch,
    cost=_cost,
    pitched=lambda _: frozenset({0, -1}),
)
