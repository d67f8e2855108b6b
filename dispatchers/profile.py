"""Boxes of shapes, as TensorRT's optimization profiles."""

from __future__ import annotations

from collections.abc import Mapping

from bucketize.types import Profile, Shape
from dispatchers.axis import Dispatcher


def profiles(*boxes: Profile) -> Dispatcher:
    """The dispatcher whose buckets are boxes of shapes (TensorRT's optimization profiles).

    Args:
        *boxes: where they overlap, the first one wins.

    Returns:
        The dispatcher.

    """

    def profile_dispatcher(_shapes: Mapping[str, Shape]) -> list[Profile]:
        """Boxes of input shapes."""
        return list(boxes)

    return profile_dispatcher
