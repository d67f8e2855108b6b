"""What the code of a kernel of inner products depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm.epilogue import Epilogue, Operand
from bucketize.kernel.gemm.store import block_names

Pair: TypeAlias = tuple[int, int]

FILLED = 16
"""Weights are filled up to so many numbers: whole vectors of any width."""
DIMS = ("height", "across", "line", "image", "down", "right")
"""Lines and columns of the result; bytes of a line and of an image, and how many lines and columns
that has. Behind them come bytes from pixel to pixel: of the image, the result, and operands."""
FLAT = 2
"""Channels out whose pixels are stored together; more of them pixel by pixel."""


@dataclass(frozen=True)
class InnerForm:
    """The form of a kernel; everything else is left to run time."""

    lanes: int
    columns: int
    """Pixels of the widest tile."""
    outs: int
    channels: int
    kernel: Pair
    strides: Pair
    dilation: int
    """Lines of the image from one line of a window to the next."""
    pads: tuple[int, int, int, int]
    """Lines above the image, columns before it, lines below, columns behind."""
    inputs: int
    x: int
    w: int
    """The places of image and weights among the inputs."""
    epilogue: Epilogue

    @property
    def stretch(self) -> int:
        """Numbers of a line of a window, which lie one behind the other."""
        return self.kernel[1] * self.channels

    @property
    def row(self) -> int:
        """Numbers of a stretch of weights, which are filled up with zeros."""
        return -(-self.stretch // FILLED) * FILLED

    @property
    def plane(self) -> int:
        """Numbers of the weights of a channel out."""
        return self.kernel[0] * self.row

    @property
    def is_flat(self) -> bool:
        """Whether pixels of the result are stored together, where they lie behind each other."""
        return self.outs <= FLAT

    @property
    def neighbours(self) -> dict[str, int]:
        """By array, where pixels may lie apart: the bytes from one to the next if they do not."""
        steps = {"x": self.channels} if self.kernel[1] > 1 else {}
        if self.is_flat:
            rows = {f"e{i}": self.outs if o.columns else 1 for i, o in self.operands if o.rows}
            steps |= {"c": self.outs} | rows
        return {array: numbers * FLOAT_BYTES for array, numbers in steps.items()}

    @property
    def operands(self) -> list[tuple[int, Operand]]:
        """The operands of the epilogue, numbered."""
        return list(enumerate(self.epilogue.operands))

    @property
    def has_rim(self) -> bool:
        """Whether windows may leave a line."""
        return self.kernel[1] > 1 or self.pads[1] > 0 or self.pads[3] > 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Pixels of tiles."""
        return sizes_of(self.columns)

    @property
    def arrays(self) -> tuple[str, ...]:
        """What a tile reads and writes."""
        return ("x", "w", "c", *(f"e{i}" for i, _ in self.operands))

    @property
    def stepping(self) -> tuple[str, ...]:
        """The arrays of which a pixel has a part of its own."""
        return tuple(a for a in self.arrays if a != "w")

    @property
    def block_names(self) -> tuple[str, ...]:
        """The words of the kernel's argument block."""
        return block_names(self.inputs, (*DIMS, *(f"{a}_step" for a in self.stepping)))

    @property
    def frame_names(self) -> tuple[str, ...]:
        """The words that tell tiles their place, how many there are, and what windows see."""
        return (*self.arrays, "count", "rows", "columns")


def sizes_of(columns: int) -> tuple[int, ...]:
    """Pixels of tiles: the widest, then each half of the one before, down to one."""
    return (columns, *(sizes_of(-(-columns // 2)) if columns > 1 else ()))
