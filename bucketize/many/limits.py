"""What calls of many requests may take."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from bucketize.errors import ArgumentError


@dataclass(frozen=True)
class CallLimits:
    """Limits of one list of requests; None: there is none."""

    tokens: int | None = None
    """Tokens of rows that share a packed call; None: as many as the models of kernels say."""
    bytes: int | None = None
    """Bytes of calls that run at once, beside weights, requests and results that are ready."""
    first_s: float | None = None
    """Seconds of a call that requests share, by the models: so soon the first results are there."""
    all_s: float | None = None
    """From when the list is given: no call begins that is expected to end later."""

    def __post_init__(self) -> None:
        for name in ("tokens", "bytes"):
            check_count(name, getattr(self, name))
        for name in ("first_s", "all_s"):
            check_seconds(name, getattr(self, name))

    @property
    def are_timed(self) -> bool:
        """Whether what calls take matters."""
        return self.first_s is not None or self.all_s is not None


def check_count(name: str, value: Any) -> None:
    """Raise an ArgumentError for what is no number from 1, and not None."""
    if value is not None and not (_is_number(value, Integral) and value > 0):
        raise ArgumentError(f"{name}: expected a number from 1, got {value!r}")


def check_seconds(name: str, value: Any) -> None:
    """Raise an ArgumentError for what is no number above 0, and not None."""
    if value is not None and not (_is_number(value, Real) and value > 0):
        raise ArgumentError(f"{name}: expected seconds above 0, got {value!r}")


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
