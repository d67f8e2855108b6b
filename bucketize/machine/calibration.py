"""What models of cost share: constants fitted to processors, and times that overlap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from bucketize.machine.target import Target

C = TypeVar("C")


@dataclass(frozen=True)
class Fitted(Generic[C]):
    """The constants of a model, by the name of the processor; `-m benchmarks constants` fits them.

    Those of a processor that was not measured are another's.
    """

    generic: C
    known: Mapping[str, C]

    def of(self, target: Target) -> C:
        """Those of a target."""
        return self.known.get(target.name, self.generic)


def joined(a: NDArray[np.float64], b: NDArray[np.float64], overlap: float) -> NDArray[np.float64]:
    """Of two times that overlap: between their sum (1) and the longer (infinity)."""
    longer, shorter = np.maximum(a, b), np.minimum(a, b)
    share = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
    found: NDArray[np.float64] = longer * (1 + share**overlap) ** (1 / overlap)
    return found
