"""What models of cost share: constants fitted to processors, and times that overlap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bucketize.machine.target import Target

C = TypeVar("C")
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Fitted(Generic[C]):
    """The constants of a model, by the name of the processor; `-m benchmarks constants` fits them.

    Those of a processor that was not measured are another's.
    """

    generic: C
    known: Mapping[str, C]

    def of(self, target: Target) -> C:
        """The constants of a target."""
        return self.known.get(target.name, self.generic)


def fitted(
    kind: Callable[..., C], processors: Sequence[str], **constants: tuple[float, ...]
) -> Fitted[C]:
    """A model's constants, by name one for each processor; the first one's serve all others."""
    rows = zip(*constants.values(), strict=True)
    fits = [kind(**dict(zip(constants, row, strict=True))) for row in rows]
    return Fitted(fits[0], dict(zip(processors, fits, strict=True)))


def joined(a: Floats, b: Floats, overlap: float) -> Floats:
    """Joins two times that overlap: between their sum (1) and the longer (infinity)."""
    longer, shorter = np.maximum(a, b), np.minimum(a, b)
    share = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
    return longer * (1 + share**overlap) ** (1 / overlap)
