"""Several implementations of one workload, of which its size chooses."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bucketize.kernel.schedule import Implementation

SEPARATOR = "; from "


@dataclass(frozen=True)
class Select:
    """Implementations by `Workload.size`; or a single one, for all sizes."""

    implementations: tuple[Implementation, ...]
    thresholds: tuple[int, ...] = ()
    """Rising: from the first on it is the second implementation, and so on."""

    def __str__(self) -> str:
        first, *others = self.implementations
        pairs = zip(self.thresholds, others, strict=True)
        return str(first) + "".join(f"{SEPARATOR}{least}: {other}" for least, other in pairs)

    @classmethod
    def parse(cls, text: str) -> Select:
        """The inverse of `str`; raises ValueError."""
        first, *others = text.split(SEPARATOR)
        pairs = [other.partition(": ")[::2] for other in others]
        select = cls(
            tuple(Implementation.parse(one) for one in (first, *(one for _, one in pairs))),
            tuple(int(least) for least, _ in pairs),
        )
        if str(select) != text or any(a >= b for a, b in pairwise((0, *select.thresholds))):
            raise ValueError(f"{text!r} is no 'implementation; from SIZE: implementation ...'")
        return select

    def index(self, size: int) -> int:
        """The place of the implementation that runs at a size of the workload."""
        return bisect_right(self.thresholds, size)

    def at(self, size: int) -> Implementation:
        """The implementation that runs at a size."""
        return self.implementations[self.index(size)]

    def mapped(self, new: Sequence[Implementation]) -> Select:
        """A choice of other implementations; neighbours that are alike become one."""
        starts = [k for k in range(1, len(new)) if new[k] != new[k - 1]]
        thresholds = tuple(self.thresholds[k - 1] for k in starts)
        return Select((new[0], *(new[k] for k in starts)), thresholds)

    def replaced(self, index: int, implementation: Implementation) -> Select:
        """The choice with another implementation at a place."""
        each = list(self.implementations)
        each[index] = implementation
        return Select(tuple(each), self.thresholds)
