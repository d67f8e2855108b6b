"""Whether results are those that are wanted, up to rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def agree(
    got: list[np.ndarray],
    want: list[np.ndarray],
    tolerance: float,
    largest: float = math.inf,
    moved: Sequence[list[np.ndarray]] = (),
) -> None:
    """Exactly, but for floats: these within `tolerance`, unless one wanted is `largest` or more.

    A float that is not so near those of `moved`, what is wanted if all is rounded otherwise, is
    decided by rounding: it may be anything.
    """
    for g, w, *others in zip(got, want, *moved, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if w.dtype.kind != "f":
            np.testing.assert_array_equal(g, w)
            continue
        scale = max(1.0, np.abs(w[np.isfinite(w)].astype(np.float64)).max(initial=0))
        if scale < largest:
            near = [np.isclose(m, w, tolerance, tolerance * scale, equal_nan=True) for m in others]
            g = np.where(np.all(near, axis=0), g, w)  # noqa: PLW2901
            np.testing.assert_allclose(g, w, tolerance, tolerance * scale)
