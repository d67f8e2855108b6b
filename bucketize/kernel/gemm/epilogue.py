"""What a kernel does to each value before it stores it: the elementwise ops after an anchor.

Relative to the [rows, columns] of the output an operand is `full`, `column` (varies along the last
axis only), `row`, or `scalar`. A step is an op's expression over values: 0 is the anchor's, then
come the operands, then the steps; a float stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir

from bucketize.ir import Atom, Binding, Const
from bucketize.kernel.emit import expression
from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.emit.writer import BYTE, Size
from bucketize.kernel.workload import Workload
from bucketize.ops.rounding import FORMATS, PLAIN
from bucketize.types import AnyDim, Dim, Type

Step: TypeAlias = tuple[str, tuple[int | float, ...], tuple[tuple[str, float], ...]]

KINDS = {(True, True): "full", (False, True): "column", (True, False): "row"}
SCALAR = "scalar"
FLOATS, TRUTHS = "floats", "truths"


@dataclass(frozen=True)
class Operand:
    """An argument of the epilogue: its place among the kernel's inputs, its kind, what it holds."""

    place: int
    kind: str
    held: str = FLOATS

    @property
    def plain(self) -> tuple[Any, ...]:
        """The operand as literals."""
        return (self.place, self.kind, *([self.held] if self.held != FLOATS else []))

    @property
    def rows(self) -> bool:
        """Whether it varies from row to row."""
        return self.kind in ("full", "row")

    @property
    def columns(self) -> bool:
        """Whether it varies from column to column."""
        return self.kind in ("full", "column")

    def load(self, w: Writer, row: ir.Value, i: Size, mask: ir.Value | None) -> ir.Value:
        """A vector of it from column `i` of a row on; where the mask is off, no access."""
        if self.held == TRUTHS:
            return w.load_truths(w.at(row, i), mask) if self.columns else _splat_truth(w, row)
        return w.load(w.item(row, i), mask) if self.columns else w.load_splat(row)


def _splat_truth(w: Writer, pointer: ir.Value) -> ir.Value:
    """Whether one byte from memory is 1, in every element."""
    byte = w.builder.load(pointer, typ=BYTE, align=1)
    return w.splat(w.builder.icmp_unsigned("!=", byte, ir.Constant(BYTE, 0)), w.lanes)


@dataclass(frozen=True)
class Epilogue:
    """Operands, and steps of which the last one's value is stored."""

    operands: tuple[Operand, ...] = ()
    steps: tuple[Step, ...] = ()
    result: str = PLAIN
    """The format of what is stored: floats, or bfloat16."""

    @property
    def size(self) -> int:
        """Bytes of an element of the result."""
        return FORMATS[self.result].dtype.itemsize

    @property
    def is_long(self) -> bool:
        """Whether its code is long, so that it should be written once and looped over."""
        return any(expression.is_long(scalar) for scalar, _, _ in self.steps)

    @property
    def plain(self) -> tuple[Any, ...]:
        """The epilogue as literals, for a kernel's source; `of_plain` reads them."""
        short = [self.result] if self.result != PLAIN else []
        return (tuple(o.plain for o in self.operands), self.steps, *short)

    @staticmethod
    def of_plain(
        operands: tuple[tuple[Any, ...], ...], steps: tuple[Step, ...], result: str = PLAIN
    ) -> Epilogue:
        """The inverse of `plain`."""
        return Epilogue(tuple(Operand(*o) for o in operands), steps, result)

    def scaled(self, factor: float) -> Epilogue:
        """The epilogue of the anchor's value times a number."""
        if factor == 1:
            return self
        first = 1 + len(self.operands)  # the number of the new step, which stands for the anchor

        def moved(ref: int | float) -> int | float:
            if isinstance(ref, float):
                return ref
            return first if ref == 0 else ref + (ref >= first)

        steps = [(scalar, tuple(map(moved, refs)), attrs) for scalar, refs, attrs in self.steps]
        return replace(self, steps=(("x0 * x1", (0, factor), ()), *steps))

    def write(self, w: Writer, value: ir.Value, operand: Callable[[int], ir.Value]) -> ir.Value:
        """The code that turns the anchor's value into what is stored; `operand(i)` loads one."""
        values = [value, *(operand(i) for i in range(len(self.operands)))]
        for scalar, refs, attrs in self.steps:
            args = [w.number(r) if isinstance(r, float) else values[r] for r in refs]
            values.append(expression.write(scalar, w, args, dict(attrs), w.lanes))
        return values[-1] if self.steps else value


FLOAT32, BOOL = np.dtype(np.float32), np.dtype(np.bool_)


def of_workload(workload: Workload) -> Epilogue | None:
    """The epilogue that follows the anchor, or None if a kernel cannot do it as one."""
    anchor, *rest = workload.body.body
    if anchor is not workload.anchor or workload.body.results[0] is not (rest or [anchor])[-1].out:
        return None
    return of_steps(workload, anchor, rest)


def of_steps(
    workload: Workload, anchor: Binding, rest: Sequence[Binding], *, truths: bool = False
) -> Epilogue | None:
    """What some bindings make of the anchor's value, or None if a kernel cannot do it.

    One that can reads operands of `truths`, too. Between steps all take them; none stores them.
    """
    if rest and rest[-1].out.type.dtype != FLOAT32:
        return None
    reader = _EpilogueReader(workload, anchor, truths)
    steps = []
    for b in rest:
        step = reader.step(b)
        if step is None:
            return None
        steps.append(step)
    return reader.finished(steps)


@dataclass
class _EpilogueReader:
    """Turns bindings into steps, numbering operands as they are met."""

    workload: Workload
    anchor: Binding
    truths: bool
    operands: list[Operand] = field(default_factory=list)
    values: dict[Atom, tuple[str, int]] = field(default_factory=dict)
    """Where a value is: the n-th `operand`, or the n-th `step`."""

    def __post_init__(self) -> None:
        self.values[self.anchor.out] = ("anchor", 0)

    def step(self, b: Binding) -> tuple[str, list[Any], Mapping[str, Any]] | None:
        if b.op.scalar is None or not expression.has_vector_form(b.op.scalar):
            return None
        truths = [a for a in b.args if a.type.dtype == BOOL]
        if truths and expression.compares(b.op.scalar):
            return None  # numbers only
        if not self.truths and any(a not in self.values for a in truths):
            return None
        if not all(v.type.dtype in (FLOAT32, BOOL) for v in (*b.args, b.out)):
            return None
        refs = [self.ref(a) for a in b.args]
        self.values[b.out] = ("step", sum(kind == "step" for kind, _ in self.values.values()))
        return None if None in refs else (b.op.scalar, refs, b.attrs)

    def ref(self, atom: Atom) -> tuple[str, int] | float | None:
        if isinstance(atom, Const):
            able = atom.value.size == 1 and atom.type.dtype == FLOAT32
            return float(atom.value.reshape(-1)[0]) if able else None
        if atom not in self.values:
            kind = operand_kind(atom.type, self.anchor.out.type)
            if kind is None or atom not in self.workload.body.params:
                return None
            self.values[atom] = ("operand", len(self.operands))
            elements = TRUTHS if atom.type.dtype == BOOL else FLOATS
            self.operands.append(Operand(self.workload.body.params.index(atom), kind, elements))
        return self.values[atom]

    def finished(self, steps: list[tuple[str, list[Any], Mapping[str, Any]]]) -> Epilogue:
        first = {"anchor": 0, "operand": 1, "step": 1 + len(self.operands)}

        def number(ref: tuple[str, int] | float) -> int | float:
            return ref if isinstance(ref, float) else first[ref[0]] + ref[1]

        def numbers(attrs: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
            return tuple((k, float(v)) for k, v in attrs.items() if isinstance(v, int | float))

        return Epilogue(
            tuple(self.operands),
            tuple((s, tuple(map(number, refs)), numbers(attrs)) for s, refs, attrs in steps),
        )


def operand_kind(operand: Type, out: Type) -> str | None:
    """How an operand varies over the rows and columns of `out`; None if that is not known.

    Axes before the last two belong to the batch: there it may vary or not.
    """
    if len(operand.shape) > len(out.shape):
        return None
    shape = (1,) * (len(out.shape) - len(operand.shape)) + operand.shape
    varies = [varies_along(a, b) for a, b in zip(shape, out.shape, strict=True)]
    if None in varies:
        return None
    rows, columns = any(varies[:-1]), bool(varies[-1])
    return KINDS.get((rows, columns), SCALAR)


def varies_along(dim: Dim, out: Dim) -> bool | None:
    """Whether there is an element for each along an axis, or one for all; None if not known."""
    if dim == 1:
        return False
    return None if isinstance(dim, AnyDim) or dim != out else True
