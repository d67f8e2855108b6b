"""The calls that many requests come to."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bucketize.errors import BucketizeError
from bucketize.table import several

LANE_S = 1e-4
"""To hand a call to another thread and back (Zen 4, two cores)."""
IN_REQUEST = "in request "
"""A note that tells which of a list it was begins so."""


@dataclass(frozen=True)
class Row:
    """A row of a request."""

    request: int
    index: int
    """Its place in the request."""
    tokens: int
    """How many of it are seen; 0 where they are not counted."""


@dataclass(frozen=True)
class PlannedCall:
    """A call, and what shares it."""

    rows: tuple[Row, ...]
    """Rows of requests that share it; none of one that is run as it is."""
    requests: tuple[int, ...]
    why: str
    """How rows share it, or why they do not."""
    seconds: float | None = None
    """Seconds that it is expected to take; None: no model was asked."""

    @property
    def tokens(self) -> int:
        """All that are packed."""
        return sum(row.tokens for row in self.rows)

    def __str__(self) -> str:
        if not self.rows:
            return f"request {self.requests[0]} as it is: {self.why}"
        rows, requests = several(len(self.rows), "row"), several(len(self.requests), "request")
        return f"{rows} of {requests}, {self.why}"


@dataclass(frozen=True)
class CallPlan:
    """The calls that requests come to, and the requests that cannot be run."""

    calls: tuple[PlannedCall, ...]
    errors: Mapping[int, BucketizeError] = field(default_factory=dict)
    lanes: int = 1
    """Calls that run side by side, a thread each; 1: one after the other, each by all threads."""

    @property
    def seconds(self) -> float | None:
        """What all are expected to take; None: no model was asked."""
        each = [call.seconds for call in self.calls if call.seconds is not None]
        if len(each) < len(self.calls):
            return None
        handing = LANE_S * len(each) if self.lanes > 1 else 0.0
        return makespan(each, self.lanes) + handing

    def __str__(self) -> str:
        failed = [f"request {i}: {e.message}" for i, e in self.errors.items()]
        lanes = [f"{self.lanes} calls at a time, a thread each"] if self.lanes > 1 else []
        seconds = self.seconds if self.calls else None
        expected = [] if seconds is None else [f"expected to take {1e3 * seconds:.3g} ms"]
        return "\n".join([*map(str, self.calls), *failed, *lanes, *expected])


def makespan(seconds: Sequence[float], lanes: int) -> float:
    """When the last of some calls ends, each begun in order by the lane that is idle first."""
    ends = [0.0] * lanes
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def own_notes(error: Exception) -> tuple[str, ...]:
    """What an error notes, without which of the requests that shared a call it was."""
    notes = error.notes if isinstance(error, BucketizeError) else ()
    return tuple(note for note in notes if not note.startswith(IN_REQUEST))
