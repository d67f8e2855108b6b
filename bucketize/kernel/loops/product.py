"""Matrix products of any numbers, as loops over the columns of the result.

The vector code of `gemm` is for float32; here LLVM's vectoriser widens the innermost loop. It takes
a few rows and a few steps of the sum at once, so that sums are seldom moved. Those of float16 are
float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from bucketize.ir import Binding
from bucketize.kernel.emit.expression import dtype_text
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.elementwise import run_time_strides
from bucketize.kernel.loops.loop import Source, argument_shapes, kernel_text, loop_template, only_op
from bucketize.kernel.template import Launch, Shapes
from bucketize.kernel.workload import Workload
from bucketize.ops import matmul, matmul_integer
from bucketize.types.number import kind_of

ROWS, STEPS = 4, 4  # at once: 16 numbers of A in registers, and the sums read once for 4 steps
STRIP = 32  # rows that share a block of B while it is in the cache
MATRIX = 2  # its rank
COLUMNS, DEPTH = 256, 64  # of that block: 128 KiB of float64, less than any second level


@dataclass(frozen=True)
class LoopProduct:
    """Rows of A times columns of B, as the names of pointers and the text of what lies between.

    A begins at `p` and B at `q`; the sums are in `total`, and t is the column.
    """

    a: str
    row: str
    """From a row of A to the next."""
    step: str
    """From an element of a row to the next, which meets the next row of B."""
    b: str
    lead: str
    """From a row of B to the next."""
    column: str
    """Where in a row of B the column t is."""
    depth: str
    columns: str
    """The columns that are computed, as of a `range`."""

    def write(self, s: Source, begin: str, end: str) -> None:
        """Add the products to the sums of the rows from `begin` to `end`."""
        s(f"full = {end} - ({end} - {begin}) % {ROWS}", f"row = {self.row}")
        s(f"step = {self.step}", f"lead = {self.lead}")
        with s.loops(first=f"0, {self.depth}, {DEPTH}"):
            s(f"last = least(first + {DEPTH}, {self.depth})")
            s(f"even = last - (last - first) % {STEPS}")
            for bounds, rows in ((f"{begin}, full, {ROWS}", ROWS), (f"full, {end}", 1)):
                with s.loops(r=bounds):
                    s("p0 = p + r * row", f"s0 = r * {COLUMNS}")
                    for r in range(1, rows):
                        s(f"p{r} = p{r - 1} + row", f"s{r} = s{r - 1} + {COLUMNS}")
                    self._steps(s, f"first, even, {STEPS}", rows, STEPS)
                    self._steps(s, "even, last", rows, 1)

    def _steps(self, s: Source, bounds: str, rows: int, steps: int) -> None:
        with s.loops(k=bounds):
            s("along = k * step", "q0 = q + k * lead")
            for u in range(steps):
                if u:
                    s("along += step", f"q{u} = q{u - 1} + lead")
                s(*(f"a{r}_{u} = {self.a}[p{r} + along]" for r in range(rows)))
            with s.loops(t=self.columns):
                s(*(f"b{u} = {self.b}[q{u} + {self.column}]" for u in range(steps)))
                s(*(f"total[s{r} + t] = {_chain(r, steps)}" for r in range(rows)))


def _chain(row: int, steps: int) -> str:
    """The sum of a row and `steps` products."""
    text = f"total[s{row} + t]"
    for u in range(steps):
        text = f"multiply_add(a{row}_{u}, b{u}, {text})"
    return text


@contextmanager
def sums(s: Source, rows: str, columns: str, result: str, kind: str) -> Iterator[None]:
    """The lines of the context add to sums that are zero before and stored as `result` after."""
    with s.loops(r=rows, t=columns):
        s(f"total[r * {COLUMNS} + t] = {kind}(0)")
    yield
    with s.loops(r=rows, t=columns):
        s(f"{result} = total[r * {COLUMNS} + t]")


def scratch_sums(s: Source, kind: str) -> None:
    """The line that makes the sums."""
    s(f"total = scratch({STRIP * COLUMNS}, {kind})")


# --- matmul --------------------------------------------------------------------------------------


def _source(workload: Workload) -> str:
    batch = range(len(workload.result.shape) - 2)
    kind = dtype_text(workload.result.dtype)
    product = LoopProduct("x0", "depth", "1", "x1", "columns", "t", "depth", "w")
    s = Source()
    scratch_sums(s, kind)
    with s.pieces([*(f"e{a}" for a in batch), "rows"], STRIP):
        s(f"p = {' + '.join([*(f'c{a} * s0_{a}' for a in batch), 'j * depth'])}")
        s(f"matrix = {' + '.join(f'c{a} * s1_{a}' for a in batch) or '0'}")
        with s.loops(c=f"0, columns, {COLUMNS}"):
            s(f"w = least(columns - c, {COLUMNS})", "q = matrix + c")
            with sums(s, "m", "w", "y[(i + r) * columns + c + t]", kind):
                product.write(s, "0", "m")
    names = [f"{n}{a}" for n in ("e", "s0_", "s1_") for a in batch]
    return kernel_text("matmul", workload, s, [*names, "rows", "depth", "columns"])


def _launch(workload: Workload, shapes: Shapes) -> Launch:
    x, y = argument_shapes(workload, shapes)
    batch, (rows, columns), depth = shapes[-1][:-2], shapes[-1][-2:], x[-1]
    matrices = [[s * math.prod(a[-2:]) for s in run_time_strides(a[:-2], batch)] for a in (x, y)]
    dims = (*batch, *matrices[0], *matrices[1], rows, depth, columns)
    return Launch(dims, math.prod(batch) * rows, ROWS)


def _accepts(workload: Workload) -> bool:
    """Whether it is a product of numbers, but not by a matrix that vector code packs."""
    b = only_op(workload)
    if b is None or b.op not in (matmul, matmul_integer) or not _sums(b):
        return False
    return not _is_packed(workload, b)


def _is_packed(workload: Workload, b: Binding) -> bool:
    """Whether `gemm.matmul` lays the matrix out beforehand: read as it lies, it never paid."""
    x, y = b.args
    params = workload.body.params
    packed = [p for p, constant in zip(params, workload.constant, strict=True) if constant]
    floats = all(a.type.dtype == np.float32 for a in b.args)
    return floats and x in params and y in packed and len(y.type.shape) == MATRIX


def _sums(b: Binding) -> bool:
    return kind_of(b.out.type.dtype) in "iuf" and b.attrs.get("weights") in (None, "float32")


def _counts(_workload: Workload, at: LoopCounts) -> Counts:
    *_, depth, columns = at.dims
    return block_counts(at.extent * depth * columns, columns)


def block_counts(multiplications: float, columns: float) -> Counts:
    """What products do whose inner loops run over so many columns."""
    begun = multiplications / min(max(columns, 1), COLUMNS) / (ROWS * STEPS)
    return {"row": begun, "multiply": multiplications}


MATMUL_LOOPS = loop_template("matmul_loops", _accepts, _source, _launch, _counts)
