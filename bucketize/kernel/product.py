"""A product, or a convolution as one: what the model of its cost is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Product:
    """The extents of a product, or of a convolution as one, at one or several sizes."""

    rows: tuple[int, ...]
    columns: int
    depth: int
    batch: tuple[int, ...] = (1,)
    """Products side by side: as many entries as rows has, or one for all."""
    packed: bool = True
    """Whether B lies in panels."""
    image: bool = False
    """Whether the rows of A are windows of an image."""
    a_step: int = 0
    """Bytes from one row of A to the next."""
    a_share: float = 1.0
    """The share of A that is in memory: the windows of an image overlap."""
    cold_bytes: int = 0
    """What passes through the caches until B is read again."""

    @property
    def kin(self) -> tuple[object, ...]:
        """Equal for products that differ by how many rows they have, or how often, alone."""
        return self.columns, self.depth, self.packed, self.image
