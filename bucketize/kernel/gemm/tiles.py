"""The functions of register tiles: one for each height that a cut of the rows can ask for."""

from __future__ import annotations

from dataclasses import replace

from llvmlite import ir

from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import POINTER, Size, Values
from bucketize.kernel.gemm.form import TileForm
from bucketize.kernel.gemm.microkernel import RegisterTile
from bucketize.kernel.gemm.neon import LANES, NeonTile
from bucketize.kernel.gemm.store import Words, finisher
from bucketize.machine.present import ARM, system_of


class Tiles:
    """The functions that compute a run of tiles, one for each height: void(block, frame)."""

    def __init__(self, w: Writer, form: TileForm) -> None:
        is_neon = system_of(w.module.triple)[0] == ARM and w.lanes == LANES
        self.kind = NeonTile if is_neon else RegisterTile
        finish = finisher(w, form)
        heights = range(form.least, form.mr + 1)
        self.functions = {h: self._function(w, form, finish, h) for h in heights}
        self.wide, self.single = form.mr, 2 * form.mr
        for h in heights if form.abreast else ():
            panels = form.group(h)
            if isinstance(panels, int) and panels > 1:
                wide, single = replace(form, panels=panels), replace(form, in_order=True)
                same = self.functions[h] if single == form else None
                self.functions |= {
                    self.wide + h: self._function(w, wide, finish, h, f"x{panels}"),
                    self.single + h: same or self._function(w, single, finish, h, "x1"),
                }

    def column(
        self, w: Writer, block: ir.Value, frame: Words, cut: tuple[Size, Size, Size, Size]
    ) -> None:
        """Compute tiles lo..hi from the one that the frame describes: (lo, hi, low, tall).

        Tiles before `tall` have `low` rows and one more: those of one height are a run.
        """
        lo, hi, low, tall = cut
        between = w.least(w.greatest(tall, lo), hi)
        kind = frame.word("kind") if "kind" in frame.places else 0

        def run(lower: ir.Value, count: Values) -> Values:
            frame.put("run", count[0])
            key = w.add(w.sub(w.add(low, 1), lower), kind)
            w.when(w.compare(count[0], ">", 0), lambda: self.call(w, key, block, frame.memory))
            return [w.word(w.sub(hi, between))]

        w.loop(0, 2, run, [w.word(w.sub(between, lo))])

    def call(self, w: Writer, key: ir.Value, block: ir.Value, frame: ir.Value) -> None:
        """Compute the run of tiles that the frame describes.

        The key is its height; with `wide` it covers several panels; with `single` one, whose sums
        are made as those of several are.
        """
        with w.cases(key) as case:
            for each, function in self.functions.items():
                with case(each):
                    w.call(function, [block, frame])

    def _function(
        self, w: Writer, form: TileForm, finish: ir.Function, height: int, suffix: str = ""
    ) -> ir.Function:
        def body(w: Writer, *arguments: ir.Value) -> None:
            self.kind(w, form, finish, height, *arguments).write()

        return w.define(f"tile{height}{suffix}", [POINTER, POINTER], body)
