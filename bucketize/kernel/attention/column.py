"""A column of tiles: some rows of one panel of a product, as a function of its own."""

from __future__ import annotations

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import POINTER
from bucketize.kernel.gemm.epilogue import Epilogue
from bucketize.kernel.gemm.form import TileForm
from bucketize.kernel.gemm.store import Words, put_rows
from bucketize.kernel.gemm.tiles import Tiles

JOB = ("rows", "a", "a_step", "b", "b_step", "c", "c_step", "columns", "units", "e0", "e0_step")
"""What the function is told: where A, the panel and the result are, and one operand."""


class Column:
    """A function that computes some rows of one panel of a product, in balanced tiles."""

    def __init__(
        self,
        w: Writer,
        name: str,
        rows: int,
        vectors: int,
        epilogue: Epilogue,
        *,
        in_order: bool = False,
    ) -> None:
        width = vectors * w.lanes
        self.form = TileForm(
            rows, width, lanes=w.lanes, epilogue=epilogue, in_order=in_order, passes=False
        )
        self.function = w.define(name, [POINTER], self._write)

    def _write(self, w: Writer, words: ir.Value) -> None:
        form, job = self.form, Words(w, words, JOB)
        block, frame = (Words.new(w, names) for names in (form.block_names, form.frame_names))
        tiles = Tiles(w, form)
        steps = ["c_step", *(["e0_step"] if form.epilogue.operands else [])]
        for name in steps:
            block.put(name, job.word(name))
        self._put_panel(job, frame)
        rows = job.word("rows")
        count = w.greatest(w.ceildiv(rows, form.mr), 1)
        low = w.div(rows, count)
        tall = w.sub(rows, w.mul(low, count))
        tiles.column(w, block.memory, frame, (0, count, low, tall))

    def _put_panel(self, job: Words, frame: Words) -> None:
        w, operands = frame.w, ["e0"] if self.form.epilogue.operands else []
        put_rows(w, frame, job.pointer("a"), job.word("a_step"), self.form.mr)
        for name in ("b", "b_step", "c", "columns", "units", *operands):
            frame.put(name, job.word(name))
