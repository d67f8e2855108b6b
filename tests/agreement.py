"""Whether results are those that are wanted, up to rounding."""

from __future__ import annotations

import math

import numpy as np


def agree(
    got: list[np.ndarray], want: list[np.ndarray], tolerance: float, largest: float = math.inf
) -> None:
    """Exactly, but for floats: these within `tolerance`, unless one wanted is `largest` or more."""
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if w.dtype.kind != "f":
            np.testing.assert_array_equal(g, w)
            continue
        scale = max(1.0, np.abs(w[np.isfinite(w)].astype(np.float64)).max(initial=0))
        if scale < largest:
            np.testing.assert_allclose(g, w, tolerance, tolerance * scale)
