"""The functions of register tiles: one for each height that a cut of the rows can ask for."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import POINTER
from bucketize.kernel.gemm.microkernel import RegisterTile, TileForm
from bucketize.kernel.gemm.neon import LANES, NeonTile
from bucketize.kernel.gemm.store import finisher
from bucketize.machine.present import ARM, system_of


class Tiles:
    """The functions that compute one tile, one for each height: void(block, frame)."""

    def __init__(self, w: Writer, form: TileForm) -> None:
        self.form = form
        self.finish = finisher(w, form)
        self.is_neon = system_of(w.module.triple)[0] == ARM and w.lanes == LANES
        self.kind = NeonTile if self.is_neon else RegisterTile
        heights = range(form.least, form.mr + 1)
        self.functions = {h: w.define(f"tile{h}", [POINTER, POINTER], self._of(h)) for h in heights}

    def call(self, w: Writer, height: ir.Value, block: ir.Value, frame: ir.Value) -> None:
        """Compute the tile of this height that the frame describes."""
        with w.cases(height) as case:
            for h, function in self.functions.items():
                with case(h):
                    w.call(function, [block, frame])

    def _of(self, height: int) -> Callable[..., None]:
        return lambda w, *arguments: self.kind(
            w, self.form, self.finish, height, *arguments
        ).write()
