"""A segment whose kernels are called one by one from here, on the table and arena of a context."""

from __future__ import annotations

from collections.abc import Callable

from bucketize.link.block import COUNT, WORD
from bucketize.link.ffi import function_at
from bucketize.link.image import Image
from bucketize.link.memory import Lent, address
from bucketize.program.instruction import Segment
from bucketize.runtime.state import State
from bucketize.runtime.thread_pool import ONE, TEAM, Run


class RowState(State):
    """A segment's table, whose rows are run each by itself."""

    def __init__(self, segment: Segment, image: Image, lent: Lent) -> None:
        super().__init__(segment, image, lent)
        self.at_once = False
        self.calls = [self._call(i) for i in range(len(self.linked.kernels))]

    @property
    def undivided(self) -> bool:
        """Each kernel is called by itself."""
        return False

    @property
    def rows(self) -> list[int]:
        """The rows that are run at the sizes that the table is filled for, in order."""
        rows: list[int] = self.order[1 : int(self.order[COUNT]) + 1].tolist()
        return rows

    def _call(self, i: int) -> Callable[[], None]:
        """What one row of the table runs, a kernel or a group; several threads', their rows."""
        plan, kernels = self.plan, self.linked.kernels[i : i + 1]
        stride = plan.width * WORD
        row = address(self.table) + i * plan.threads * stride
        if plan.threads == 1:
            native = function_at(int(kernels[0]))
            return lambda: native(row)
        run = Run(kernels, ONE, self.chunks[i : i + 1], row, stride, plan.threads)
        return lambda: self._run(run)

    def _run(self, run: Run) -> None:
        run.cut()
        TEAM.run(self.share, run)
