"""Loop source: kernels as Python text that numba compiles, and what their templates share.

Such a kernel serves every size: its text depends on ranks, dtypes and patterns alone, and `launch`
derives the dims from concrete shapes without looking at what the types once knew.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np

from bucketize.ir import Atom, Binding, Const
from bucketize.kernel.emit.expression import DTYPES, IMPORTS, dtype_text, stored_text
from bucketize.kernel.loops.cost import Counts, LoopCounts, Steps
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Launch, Shapes, Template, pitch_of
from bucketize.kernel.workload import Workload
from bucketize.machine.target import Target
from bucketize.op import Op
from bucketize.ops.dim import fill_number
from bucketize.types import Dim, Shape, minimum, product

T = TypeVar("T")

GRAIN = 64  # elements: two threads should not write to one cache line
ONE, HALF, NONE = "float32(1.0)", "float32(0.5)", "float32(0.0)"
NOWHERE: Mapping[str, Sequence[str]] = {}
DEEP = 2
"""Axes of rows from which on places are carried from row to row: found by the indices they take as
many products, of numbers more than there are registers. Of one axis they are found faster."""
ANY_ORDER = (
    "from bucketize.kernel.emit.accumulate "
    "import greatest, least, multiply_add, plus, scratch, times"
)
ONE_ORDER = (
    "from bucketize.kernel.emit.accumulate "
    "import added as plus, greatest, least, multiplied as times, multiply_add, scratch"
)
HEAD = f"""\
{IMPORTS}\
{ANY_ORDER}
from bucketize.kernel.emit.entry import entry
from bucketize.kernel.emit.native import pointer
from bucketize.kernel.emit.row import copied, fetch, repeated
from bucketize.kernel.emit.tile import transposed


@entry
def kernel(block):
"""


class Source:
    """The lines of a kernel's body, indented as they are nested."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def __call__(self, *lines: str) -> None:
        """Add lines where the text has come to."""
        self.lines += [f"{'    ' * self.depth}{line}" for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """The lines of the context under `head`."""
        self(head)
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def loops(self, **extents: str) -> Iterator[None]:
        """Nested loops, an index with its extent for each, the outermost first."""
        depth = self.depth
        for index, extent in extents.items():
            self(f"for {index} in range({extent}):")
            self.depth += 1
        yield
        self.depth = depth

    @contextmanager
    def pieces(
        self,
        extents: Sequence[str],
        longest: int | None = None,
        places: Mapping[str, Sequence[str]] = NOWHERE,
    ) -> Iterator[None]:
        """A loop over the runs of begin..end that lie in one row of an array of `extents`.

        In it `i` is the first element of the run, `m` its length, `j` its place in the row, and
        c0, c1, ... the indices of the row. Each name of `places` is where the run begins in another
        array, by its first element and its strides along all axes: "0" where it stands still.
        """
        *outer, n = extents
        at = [f"{name} = {_place(*along)}" for name, along in places.items()]
        if not outer and not longest:
            self("i = begin", "j = begin", "m = end - begin", *at)
            yield
            return
        self("if begin >= end:", "    return", "i = begin", f"j = i % {n}", f"r = i // {n}")
        for axis in reversed(range(1, len(outer))):
            self(f"c{axis} = r % {outer[axis]}", f"r //= {outer[axis]}")
        self(*["c0 = r"][: len(outer)])
        kept = places if len(outer) >= DEEP else NOWHERE
        self(*at[: len(kept)])
        with self.block("while i < end:"):
            self(f"m = least({n} - j, end - i)")
            if longest:
                self(f"m = least(m, {longest})")
            self(*at[len(kept) :])
            yield
            self("i += m", "j += m")
            self(*(f"{name} += {_times('m', s[-1])}" for name, s in kept.items() if s[-1] != "0"))
            self._carry("j", extents, kept)

    def _carry(
        self, index: str, extents: Sequence[str], places: Mapping[str, Sequence[str]]
    ) -> None:
        *outer, n = extents
        with self.block(f"if {index} == {n}:"):
            self(f"{index} = 0")
            if outer:
                axis = len(outer) - 1
                self(f"c{axis} += 1")
                for name, (*_, step, within) in places.items():
                    self(*_moved(name, step, n, within))
                if axis:
                    behind = {name: strides[:-1] for name, strides in places.items()}
                    self._carry(f"c{axis}", outer, behind)

    def kernel(self, title: str, pointers: Sequence[str], first: int, dims: Sequence[str]) -> str:
        """The text of the file; the block holds `first` addresses before begin and end."""
        body = "\n".join(self.lines)
        used = set(re.findall(r"\w+", body))
        names = [(n, i) for i, n in enumerate(("begin", "end", *dims), first) if n in used]
        loads = [f"    {name} = block[{i}]" for name, i in names]
        lines = [*(f"    {p}" for p in pointers), *loads, body]
        return f'"""{title}"""\n' + HEAD + "\n".join(lines) + "\n"


def _times(count: str, stride: str) -> str:
    return count if stride == "1" else f"{count} * {stride}"


def _moved(name: str, step: str, n: str, within: str) -> Iterator[str]:
    """On by a step of an axis, from behind the `n` elements of the axis within it."""
    back = "" if within == "0" else f" - {_times(n, within)}"
    if step != "0" or back:
        yield f"{name} += {step}{back}"


def _place(first: str, *strides: str) -> str:
    """Where the run begins."""
    indices = [*(f"c{axis}" for axis in range(len(strides) - 1)), "j"]
    terms = [_times(c, s) for c, s in zip(indices, strides, strict=True) if s != "0"]
    return " + ".join([*([first] if first != "0" else []), *terms]) or "0"


def kernel_text(
    title: str,
    workload: Workload,
    body: Source,
    dims: Sequence[str],
    *,
    moved: Sequence[int] | None = None,
    checked: bool = False,
) -> str:
    """The file of a workload of one op: x0, x1, ... are the arguments, y is the result.

    Several results are y0, y1, ... Where elements of the arguments `moved`, or none, are put into
    the result unchanged, both are taken for unsigned integers, so that all dtypes of one size share
    the code. A `checked` kernel finds its report in `wrong`.
    """
    results = [t.dtype for t in workload.results]
    kinds = [stored_text(r) if moved is None else bits_name(r) for r in results]
    names = ["y"] if len(results) == 1 else [f"y{i}" for i in range(len(results))]
    pairs = zip(names, kinds, strict=True)
    pointers = [f"{y} = pointer(block[{i}], {kind})" for i, (y, kind) in enumerate(pairs)]
    for i, arg in enumerate(workload.anchor.args):
        dtype = arg.type.dtype
        kind = bits_name(dtype) if i in (moved or ()) else stored_text(dtype)
        pointers += _argument(workload, f"x{i}", arg, kind)
    workspace = len(results) + len(workload.body.params)
    if checked:
        pointers += [f"wrong = pointer(block[{workspace}], int64)", "wrong[0] = 0"]
    return body.kernel(title, pointers, workspace + 1, dims)


def _argument(workload: Workload, name: str, arg: Atom, kind: str) -> list[str]:
    if isinstance(arg, Const):  # a lone number, part of the workload
        value = arg.value.reshape(-1)[0]
        lone = value.view(kind) if kind.startswith("uint") else value
        return [f"{name} = scratch(1, {dtype_text(lone.dtype)})", f"{name}[0] = {literal(lone)}"]
    place = len(workload.results) + workload.body.params.index(arg)
    return [f"{name} = pointer(block[{place}], {kind})"]


def literal(value: Any) -> str:
    """A lone number as text of its dtype."""
    number = value.item()
    text = repr(number)
    if isinstance(number, float) and not math.isfinite(number):
        text = f"math.{text}" if number > 0 or math.isnan(number) else "-math.inf"
    return text if value.dtype == np.bool_ else f"{dtype_text(value.dtype)}({text})"


def argument_shapes(workload: Workload, shapes: Shapes) -> list[Shape]:
    """The shape of each argument of the only op, from those of the parameters."""
    given = dict(zip(workload.body.params, shapes, strict=False))
    return [a.value.shape if isinstance(a, Const) else given[a] for a in workload.anchor.args]


def only_op(workload: Workload) -> Binding | None:
    """The binding of a workload of one op whose elements loop source can hold."""
    (first, *rest) = workload.body.body
    computable = all(a.type.dtype in DTYPES for a in (*first.outs, *first.args))
    return first if computable and not rest else None


def takes(
    *ops: Op, where: Callable[[Binding], bool] = lambda _: True
) -> Callable[[Workload], bool]:
    """The `accepts` of a template for workloads that are one of `ops`."""

    def accepts(workload: Workload) -> bool:
        b = only_op(workload)
        return b is not None and b.op in ops and where(b)

    return accepts


def joined(axes: Iterable[T], belong: Callable[[T, T], bool]) -> list[list[T]]:
    """Axes in runs of those of which each two neighbours belong together.

    What walks a run as one axis has fewer loops, and longer ones.
    """
    runs: list[list[T]] = []
    for axis in axes:
        if runs and belong(runs[-1][-1], axis):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


def strides_of(shape: Shape) -> tuple[Dim, ...]:
    """The distances, in elements, between neighbours along each axis of an array."""
    rows = [product(shape[a + 1 : -1]) * pitch_of(shape) for a in range(len(shape) - 1)]
    return (*rows, 1) if shape else ()


def spread(shape: Shape, out: Shape, strides: Sequence[Dim]) -> tuple[Dim, ...]:
    """Strides of an array read along the last axes of `out`: 0 where it is repeated.

    Where an extent is 1 in both the stride does not matter, so that only an extent that may be 1
    beside a greater one asks at run time.
    """
    missing = len(out) - len(shape)
    aligned = zip(shape, out[missing:], strides[len(strides) - len(shape) :], strict=True)
    return (0,) * missing + tuple(s if d == o else s * minimum(d - 1, 1) for d, o, s in aligned)


def bits_name(dtype: np.dtype[Any]) -> str:
    """The unsigned integer of the size of `dtype`: its elements when they are only moved."""
    return f"uint{8 * dtype.itemsize}"


def bits_of(value: Any, dtype: np.dtype[Any]) -> int:
    """The bits of a number of this dtype, as a kernel's dim."""
    raw = fill_number(value, dtype).tobytes()
    return int.from_bytes(raw.ljust(8, b"\0"), "little", signed=True)


def loop_template(
    name: str,
    accepts: Callable[[Workload], bool],
    source: Callable[[Workload], str],
    launch: Callable[[Workload, Shapes], Launch],
    counts: Callable[[Workload, LoopCounts], Counts],
    pitched: Callable[[Workload], frozenset[int]] = lambda _: frozenset(),
    ordered: Callable[[Workload, int], str] = lambda *_: "",
) -> Template:
    """A template without knobs: one kernel serves the workload at every size.

    `counts` tells at sizes what its loops do: see `cost`. `ordered` is the source of sums in one
    order, of vectors of so many lanes, if it is another one.
    """

    def text(workload: Workload, _schedule: Schedule, target: Target) -> str:
        if not target.in_order:
            return source(workload)
        own = ordered(workload, target.lanes) or source(workload)
        return own.replace(ANY_ORDER, ONE_ORDER)

    def plain_launch(
        workload: Workload, _schedule: Schedule, shapes: Shapes, _target: Target
    ) -> Launch:
        return launch(workload, shapes)

    return Template(
        name=name,
        accepts=accepts,
        source=text,
        launch=plain_launch,
        cost=partial(Steps, plain_launch, lambda workload, _, at: counts(workload, at)),
        pitched=pitched,
    )
