"""JSON that any reader takes: Python's own has words for NaN and infinities, which JSON has not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any


def json_text(
    value: object, indent: int | None = None, default: Callable[[Any], Any] | None = None
) -> str:
    """JSON of a value, null for NaN and infinities.

    Args:
        value: what `json` takes.
        indent: of nested values; None: all on a line.
        default: what stands for what `json` does not take.

    """
    rest = None if default is None else lambda other: finite(default(other))
    return json.dumps(finite(value), indent=indent, default=rest, allow_nan=False)


def finite(value: Any) -> Any:
    """A value of lists and mappings, None for each of its numbers that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [*map(finite, value)]
    return value
