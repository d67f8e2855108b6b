"""How fast a machine is: the few figures that models of cost take from it, and times that overlap.

`bucketize calibrate` measures them. The constants beside them, in `kernel/*/cost`, are of a family
of cores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Speed:
    """What one core does, while nothing else runs; cycles are those of its clock."""

    ghz: float
    """Billions of cycles in a second."""
    fma: float
    """Fused multiply-adds of vectors in a cycle."""
    loads: float
    """Loads of vectors from the first cache, in a cycle."""
    latency: float
    """Cycles from a fused multiply-add to the next that needs it."""
    exp: float
    """Cycles of an exponential of a vector, one after the other in a loop."""
    root: float
    """Cycles of a square root of a vector."""
    l2: float
    """Bytes in a cycle, read in order from the second cache; and so on."""
    l3: float
    l3_share: float
    """The share of the last cache that holds what is read again and again, beside others'."""
    memory: float
    """Bytes in a cycle."""
    prefetch: float
    """How many times as fast few rows of a product read B from memory that ask for it ahead."""

    def __str__(self) -> str:
        return " ".join(f"{name}={value:g}" for name, value in asdict(self).items())


TYPICAL = Speed(
    ghz=2.98,
    fma=1.82,
    loads=1.65,
    latency=4.0,
    exp=9.3,
    root=12.0,
    l2=48.0,
    l3=10.2,
    l3_share=0.115,
    memory=7.1,
    prefetch=1.1,
)
"""Where nothing was measured: a server of 2023, Emerald Rapids."""


def joined(a: Floats, b: Floats, overlap: Floats | float) -> Floats:
    """Joins two times that overlap: between their sum (1) and the longer (infinity)."""
    longer, shorter = np.maximum(a, b), np.minimum(a, b)
    share = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
    return longer * (1 + share**overlap) ** (1 / overlap)


C = TypeVar("C")

FAMILIES = INTEL, AMD = "Intel", "AMD"
"""Families of cores; those of no machine that was measured are of the first one. `inspect/cores`
tells them apart by what a kernel takes."""


def fitted(kind: Callable[..., C], **constants: tuple[float, ...]) -> Mapping[str, C]:
    """The constants of a model, by family of cores; given by name, one for each family.

    `-m benchmarks constants` fits them. They count cycles, or how much of a machine's `Speed` comes
    through: how fast a machine is, no constant says.
    """
    rows = zip(*constants.values(), strict=True)
    fits = [kind(**dict(zip(constants, row, strict=True))) for row in rows]
    return dict(zip(FAMILIES, fits, strict=True))


def speed_of(values: Any) -> Speed:
    """The speed of a JSON object; a `ValueError` where a figure is missing or is none."""
    names = [f.name for f in fields(Speed)]
    if not isinstance(values, dict) or set(values) != set(names):
        raise ValueError(f"a speed has {', '.join(names)}")
    wrong = [n for n, v in values.items() if type(v) not in (int, float) or not 0 < v < math.inf]
    if wrong:
        raise ValueError(f"{wrong[0]} is {values[wrong[0]]!r}")
    return Speed(**{name: float(values[name]) for name in names})
