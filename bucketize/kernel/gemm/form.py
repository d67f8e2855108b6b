"""What a register tile's code depends on, and the words by which it is told its place."""

from __future__ import annotations

from dataclasses import dataclass, field

from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm.epilogue import Epilogue
from bucketize.kernel.gemm.schedule import ABREAST, LOW, Tile
from bucketize.kernel.gemm.store import block_names
from bucketize.ops.rounding import FORMATS
from bucketize.types import Dim, maximum, minimum

TAPS = ("taps", "tap_step", "inner_taps", "inner_tap_step", "tap_bytes")
IMAGE = ("width", "height", "line_step", "image_step")
PADS = (
    *("before", "across", "channels"),
    *("down", "top", "stride_y", "dilation_y", "reach_y"),
    *("right", "left", "stride_x", "dilation_x", "reach_x"),
)
"""Words of a padded image: bytes from where the first window begins to the image, the window's
columns, and channels of a pixel; along each axis the image's extent, the pads before it, and how
a window goes."""


@dataclass(frozen=True, kw_only=True)
class TileForm(Tile):
    """The knobs, and all else that a kernel's code depends on; the rest is left to run time."""

    lanes: int
    least: int = 1
    """Rows of the lowest tile that the balanced cut of the rows can ask for."""
    inputs: int = 0
    """Arguments of the kernel."""
    a: int = 0
    b: int = 0
    """The places of the factors among them."""
    packed: bool = False
    """Whether B lies as [panel][depth][width]; else it is a matrix in its own place."""
    image: bool = False
    """Whether rows are the pixels of a convolution, with a window of taps."""
    epilogue: Epilogue = field(default_factory=Epilogue)
    padded: bool = False
    """Whether windows see pads: zeros that are nowhere in memory."""
    pairs: bool = False
    """Whether an element of A and of B is a pair of bfloat16 along the depth, as one float."""
    in_order: bool = False
    """Whether elements of low tiles are summed in the order of those of high ones: in one chain."""
    streams: bool = False
    """Whether a tile that is alone reads a packed B as a stream, in a loop of its own."""
    near: bool = False
    """Whether what comes next of a packed B is asked for into the first cache, not the second."""
    abreast: int = 0
    """Vectors of sums of a low tile which is alone, at most: so many panels of a packed B, side by
    side, it covers. 0: one."""
    panels: int = 1
    """Panels that a tile covers."""
    passes: bool = True
    """Whether the depth may be cut into passes, all but the last of which leave sums in memory."""

    @property
    def width(self) -> int:
        """Columns of a tile."""
        return self.nr * self.panels

    @property
    def vectors(self) -> int:
        """Vectors of a row of a tile."""
        return self.width // self.lanes

    def group(self, rows: Dim) -> Dim:
        """The panels that a tile of so many rows, which is alone, covers: one if it is not low."""
        height = maximum(rows, 1)
        fitting = minimum(self.abreast // (height * (self.nr // self.lanes)), ABREAST)
        return maximum(minimum(fitting, ABREAST * (min(self.mr, LOW) // height)), 1)

    @property
    def b_step(self) -> int:
        """Bytes of a step of the reduction in a packed panel."""
        return self.nr * FORMATS[self.weights].dtype.itemsize

    @property
    def head(self) -> int:
        """Bytes before the first step of a packed panel."""
        return self.nr * FLOAT_BYTES if FORMATS[self.weights].stepped else 0

    @property
    def unit(self) -> str:
        """The dim that passes cut: the window's lines, or the depth."""
        return "taps" if self.image else "depth"

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the kernel's dims, in order; a table of batch levels follows them.

        They must not depend on the kinds of operands: a launch sees concrete types, where an
        extent of 1 hides whether the operand was meant to vary.
        """
        names = ["tiles", "low", "tall", "panels", "columns", "depth", "a_step", "c_step"]
        names += ["panel_step", "levels", "pass_units"]
        names += [] if self.packed else ["b_step", "copied"]
        names += ["group"] if self.abreast else []
        names += [*TAPS, *IMAGE] if self.image else []
        names += PADS if self.padded else []
        return (*names, *(f"e{i}_step" for i in range(len(self.epilogue.operands))))

    @property
    def block_names(self) -> tuple[str, ...]:
        """The words of the kernel's argument block."""
        return block_names(self.inputs, self.dims)

    @property
    def frame_names(self) -> tuple[str, ...]:
        """The words that tell a tile its place."""
        names = ["b", "c", "columns", "units"]
        names += ["first", "last", "partial"] if self.passes else []
        names += ["skip"] if self.image else ["row_step", "run"]
        names += ["ahead", "lines"] if self.packed else ["b_step"]
        names += ["alone"] if self.streams else []
        names += ["kind"] if self.abreast else []
        names += ["head"] if self.head else []
        operands = (f"e{i}" for i in range(len(self.epilogue.operands)))
        tables = ("row", "y", "x") if self.padded else ("row",)
        names += ["inside", "inner_taps", "depth", "line", "zeros", "finite"] if self.padded else []
        return (*names, *operands, *(f"{t}{m}" for t in tables for m in range(self.mr)))
