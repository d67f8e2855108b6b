"""Recorded trials as products: what logs tell of kernels that a model of products knows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm.schedule import Tiling, is_packed
from bucketize.kernel.product import Product
from bucketize.kernel.schedule import Schedule
from bucketize.log.cell import parse_shapes
from bucketize.log.log import rows
from bucketize.log.trial import KERNEL, Trial

PRODUCTS = ("matmul", "conv2d")  # templates
CLOCK = {"emeraldrapids": 0.85e-6, "znver5": 0.42e-6}
"""By processor, the seconds of a trial that are not the kernel's: two looks at the clock, and a
call from Python. A kernel that does nothing seems to take so long."""


def kernel_seconds(trial: Trial) -> float:
    """What the kernel of a trial took, without looks at the clock."""
    return without_clock(trial.latency_median_s or math.nan, trial.host_cpu)


def without_clock(latency: float, processor: str) -> float:
    """The seconds of a latency that are a kernel's, at least half of it."""
    return max(latency - CLOCK.get(processor, 0.0), latency / 2)


DEFAULTS = 2  # of a product: that of its own size and that of all


@dataclass
class Record:
    """A product on a processor, and what it took under some schedules."""

    host: str
    product: Product
    lanes: int = 1
    """Lanes of the vectors that the widths of panels are multiples of."""
    schedules: list[Schedule] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    """Logarithms of latency by the default's of the same rounds."""
    baselines: list[float] = field(default_factory=list)
    """Seconds of the default."""


def records(trials: Iterable[Trial]) -> list[Record]:
    """The products among some trials; of what was measured again the last counts."""
    latest = {
        (t.host_cpu, t.workload, t.template, t.shape, t.graph_bytes, t.baseline, t.schedule_hash): t
        for t in trials
        if t.level == KERNEL and t.threads == 1
    }
    products: dict[tuple[object, ...], Record] = {}
    lanes: dict[str, int] = {}
    for key, t in latest.items():
        schedule = json.loads(t.schedule)
        if t.latency_median_s and t.baseline_s and is_product(t) and _is_tiling(schedule):
            if key[:6] not in products:
                products[key[:6]] = Record(t.host_cpu, product_of(t))
            record = products[key[:6]]
            record.schedules.append(schedule)
            record.logs.append(math.log(t.latency_median_s / t.baseline_s))
            record.baselines.append(t.baseline_s)
            width = Tiling.of(schedule).nr
            lanes[t.host_cpu] = math.gcd(lanes.get(t.host_cpu, 0), width)
    return [replace(record, lanes=lanes[record.host]) for record in products.values()]


def _is_tiling(schedule: Mapping[str, object]) -> bool:
    """Whether a schedule is one of products: those of other machines are not checked before."""
    knobs = schedule.get("mr"), schedule.get("nr"), schedule.get("kc", 1)
    numbers = [knob for knob in knobs if isinstance(knob, int)]
    return len(numbers) == len(knobs) and min(numbers[:2]) > 0 <= numbers[2]


def is_product(trial: Trial) -> bool:
    """Whether a trial tells which product it computed: that of two operands, of a row at least."""
    shapes = parse_shapes(trial.shape)[:2]
    if trial.template not in PRODUCTS or len(shapes) < 2 or 0 in (*shapes[0], *shapes[1]):
        return False
    a, b = shapes
    rows = (trial.flops or 0) / (2 * math.prod(b[-2:] if trial.template == "matmul" else b))
    if trial.template == "matmul":
        return len(b) > 1 and rows >= (1 if len(b) == 2 else a[-2] if len(a) > 1 else math.inf)
    return len(a) == len(b) == 4 and rows >= 1 and a[-1] >= b[1]


def product_of(trial: Trial) -> Product:
    """The product that a trial computed, from its shapes and its work."""
    a, b, *_ = parse_shapes(trial.shape)
    packed = is_packed(json.loads(trial.schedule))
    cold = int(trial.graph_bytes or 0)
    if trial.template == "matmul":
        depth, columns = b[-2:]
        whole = round((trial.flops or 0) / (2 * depth * columns))
        rows = whole if len(b) == 2 else a[-2]
        return Product(
            (rows,), columns, depth, (whole // rows,), packed, a_step=depth * FLOAT_BYTES,
            cold_bytes=cold,
        )  # fmt: skip
    out, inner, height, width = b
    groups, depth = a[-1] // inner, inner * height * width
    rows = round((trial.flops or 0) / (2 * depth * out))
    stride = round(math.sqrt(a[0] * a[1] * a[2] / rows))
    image = (height, width) != (1, 1) or stride > 1
    return Product(
        (rows,),
        out // groups,
        depth,
        (groups,),
        packed,
        image,
        a_step=a[-1] * stride * FLOAT_BYTES,
        a_share=min(stride**2 / (height * width), 1.0),
        cold_bytes=cold,
    )


@cache
def reference() -> tuple[Record, ...]:
    """The products of the logs that come with the project, of any processor.

    Without those whose defaults alone were timed, beside other templates.
    """
    products = (r for log in logs() for r in records(rows(log)))
    return tuple(r for r in products if len(r.schedules) > DEFAULTS)


def logs() -> list[Path]:
    """The logs that come with the project."""
    paths = sorted(Path(str(path)) for path in files("tuning_logs").iterdir())
    return [path for path in paths if path.suffix == ".csv"]
