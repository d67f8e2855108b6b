"""What the code of attention depends on."""

from __future__ import annotations

from dataclasses import dataclass

from bucketize.kernel.gemm.epilogue import Epilogue
from bucketize.kernel.gemm.store import block_names

COPIED = 16
"""Rows from which on panels are read from copies, where they could be read in their place: one row
took 1.6 times as long with copies, 8 rows 1.25, 16 rows 0.95, 128 rows 0.7."""


@dataclass(frozen=True)
class HeadForm:
    """What the code of attention depends on; everything else is left to run time."""

    lanes: int
    rows: int
    """Rows of the tallest tile of scores."""
    vectors: int
    """Vectors of a row of a tile of scores."""
    value_rows: int
    """Rows of the tallest tile of results."""
    value_vectors: int
    inputs: int
    """Arguments of the kernel."""
    query: int
    key: int
    value: int
    """The places of Q, K and V among them."""
    by_key: bool
    """Whether the elements of a key are neighbours in memory; else those of neighbouring keys."""
    clean: bool
    """Whether rows of weights that are no numbers count as 0."""
    limit: int | None
    """The place of how many keys there are, where others are padding, which weighs nothing."""
    segments: int | None
    """The place of where segments of rows end, if each sees the keys of its own segment alone."""
    in_order: bool
    """Whether a row is summed in one order, however many others there are, and hidden keys."""
    epilogue: Epilogue
    """What the scores go through before their softmax."""

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the kernel's dims, in order; a table of batch levels follows them."""
        cut = ["blocks", "low", "tall"] if self.segments is None else ["heads", "height"]
        names = ["keys", "depth", "features", *cut, "levels"]
        names += ["copied"] if self.segments is None else []
        names += ["q_step", "k_step", "v_step", "c_step"]
        names += ["score_step", "inverses", "key_panels", "value_panels"]
        return (*names, *(f"e{i}_step" for i in range(len(self.epilogue.operands))))

    @property
    def block_names(self) -> tuple[str, ...]:
        """The words of the kernel's argument block."""
        return block_names(self.inputs, self.dims)


def widths(vectors: int) -> tuple[int, ...]:
    """The vectors that panels of keys may have: the last one has as few as it can."""
    return tuple(sorted({1, (vectors + 1) // 2, vectors}))
