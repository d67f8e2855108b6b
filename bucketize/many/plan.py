"""The calls that many requests come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bucketize.errors import BucketizeError
from bucketize.table import several


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
    """Of requests that share it; none of one that is run as it is."""
    requests: tuple[int, ...]
    why: str
    """How rows share it, or why they do not."""

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

    def __str__(self) -> str:
        failed = [f"request {i}: {e.message}" for i, e in self.errors.items()]
        return "\n".join([*map(str, self.calls), *failed])
