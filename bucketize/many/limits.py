"""What calls of many requests may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bucketize.errors import ArgumentError


@dataclass(frozen=True)
class CallLimits:
    """CallLimits of one list of requests; None: there is none."""

    tokens: int | None = None
    """That share a call of packed rows; None: as many as the models of kernels say."""
    bytes: int | None = None
    """Of calls that run at once, beside weights, requests and results that are ready."""
    first_s: float | None = None
    """Of a call that requests share, by the models: so soon the first results are there."""
    all_s: float | None = None
    """From when the list is given: no call begins that is expected to end later."""

    def __post_init__(self) -> None:
        for name, kinds in KINDS.items():
            value: Any = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, kinds) or isinstance(value, bool) or not value > 0:
                what = "a number from 1" if kinds is int else "seconds above 0"
                raise ArgumentError(f"{name}: expected {what}, got {value!r}")

    @property
    def are_timed(self) -> bool:
        """Whether what calls take matters."""
        return self.first_s is not None or self.all_s is not None


KINDS: Mapping[str, Any] = {
    "tokens": int,
    "bytes": int,
    "first_s": (int, float),
    "all_s": (int, float),
}
