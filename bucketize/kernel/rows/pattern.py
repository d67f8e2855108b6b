"""What a group does to each row of its arguments: elementwise steps, and folds to one number a row.

So softmax, norms and what stands around them are one pattern, however an exporter spelled them.
Values are counted: the arguments come first, then the steps; `COUNT` is how many elements a row
has, a float stands for itself. A value is wide, a vector of the row, or one number a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from bucketize.ir import Atom, Binding, Const
from bucketize.kernel.emit import expression
from bucketize.kernel.gemm.epilogue import BOOL, FLOAT32, FLOATS, TRUTHS, varies_along
from bucketize.kernel.workload import Workload
from bucketize.op import Op
from bucketize.ops import (
    layer_norm,
    log_softmax,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_sum,
    softmax,
)
from bucketize.types import Shape, Type

Ref: TypeAlias = int | float
COUNT = -1
EACH, CYCLE, SAME = "each", "cycle", "same"
SUM, SQUARES, MAX, MIN, TOP = "sum", "squares", "max", "min", "top"
FOLDS = (SUM, SQUARES, MAX, MIN, TOP)
"""How a row becomes a number; `TOP` is the greatest where it does not matter what a NaN does."""


class RowArgument(NamedTuple):
    """How an argument lies beside the rows."""

    rows: str
    """Each row has its own, they come round again, or all rows share one."""
    columns: bool
    """Whether it has an element for each of the row; else one number."""
    held: str
    """Floats, or truths."""


class RowStep(NamedTuple):
    """One value more."""

    how: str
    """An expression over x0, x1, ..., or one of `FOLDS`."""
    refs: tuple[Ref, ...]
    attrs: tuple[tuple[str, float], ...]
    wide: bool


@dataclass(frozen=True)
class RowGroup:
    """A group as steps, the last of which is its result."""

    arguments: tuple[RowArgument, ...]
    steps: tuple[RowStep, ...]

    def step(self, ref: Ref) -> RowStep | None:
        """The step that makes a value, if one does."""
        at = int(ref) - len(self.arguments)
        return self.steps[at] if isinstance(ref, int) and at >= 0 else None

    def is_wide(self, ref: Ref) -> bool:
        """Whether a value is a vector of the row."""
        step = self.step(ref)
        if step is not None:
            return step.wide
        return isinstance(ref, int) and ref != COUNT and self.arguments[ref].columns

    @property
    def result(self) -> int:
        """The value that is stored."""
        return len(self.arguments) + len(self.steps) - 1

    def levels(self) -> list[int]:
        """For each argument and step, how many passes over a row must be over before it."""
        levels = [0] * len(self.arguments)
        for step in self.steps:
            before = [levels[r] for r in step.refs if isinstance(r, int) and r != COUNT]
            levels.append(max(before, default=0) + (step.how in FOLDS))
        return levels

    def passes(self) -> list[list[int]]:
        """The roots of each pass over a row: what it folds, or the result, which it stores."""
        levels, first = self.levels(), len(self.arguments)
        folds: list[list[int]] = [[] for _ in range(max(levels))]
        for ref, step in enumerate(self.steps, first):
            if step.how in FOLDS:
                folds[levels[ref] - 1].append(ref)
        return [*folds, [self.result]] if self.is_wide(self.result) else folds

    def computed(self) -> list[set[int]]:
        """The wide values of steps that each pass computes: what is kept but once."""
        kept, given, computed = self.kept(), None, []
        for roots in self.passes():
            computed.append(self.needed(roots, given))
            given = kept if kept in computed[-1] else given
        return computed

    def needed(self, roots: Sequence[int], given: int | None = None) -> set[int]:
        """The wide values of steps that a pass with these roots needs, where one is given."""
        needed: set[int] = set()
        waiting = [r for root in roots for r in self._read(root)]
        while waiting:
            ref = waiting.pop()
            if ref not in needed and ref != given:
                needed.add(ref)
                waiting += self._read(ref)
        return needed | {r for r in roots if self.is_wide(r)}

    def _read(self, ref: int) -> list[int]:
        step = self.step(ref)
        refs = step.refs if step is not None else ()
        return [r for r in refs if isinstance(r, int) and self.step(r) and self.is_wide(r)]

    def kept(self) -> int | None:
        """A value that takes long and that a later pass needs again; it waits in the result."""
        if not self.is_wide(self.result):
            return None
        needed = [self.needed(roots) for roots in self.passes()]
        first = len(self.arguments)
        long = (
            ref
            for ref, step in enumerate(self.steps, first)
            if step.how not in FOLDS and expression.is_long(step.how)
        )
        return next((ref for ref in long if sum(ref in each for each in needed) > 1), None)


def rows_of(workload: Workload, *, in_order: bool = False) -> RowGroup | None:
    """The workload as steps along its rows; None if it is something else.

    In order a norm rounds where the ops do that it becomes when it is padded.
    """
    anchor = workload.anchor
    if anchor.op not in RULES or len(workload.results) != 1:
        return None
    shape = anchor.args[0].type.shape
    if not shape:
        return None
    arguments = [_argument(p.type, shape) for p in workload.body.params]
    if None in arguments:
        return None
    reader = _RowReader(shape, {p: i for i, p in enumerate(workload.body.params)}, in_order)
    if not all(map(reader.add, workload.body.body)):
        return None
    group = RowGroup(tuple(a for a in arguments if a), tuple(reader.steps))
    return group if reader.values[workload.body.results[0]] == group.result else None


def _argument(type_: Type, shape: Shape) -> RowArgument | None:
    """How an argument lies beside rows of `shape`; None if it is not known, or otherwise."""
    missing = len(shape) - len(type_.shape)
    if missing < 0 or type_.dtype not in (FLOAT32, BOOL):
        return None
    *outer, last = (1,) * missing + type_.shape
    varies = [varies_along(d, s) for d, s in zip(outer, shape[:-1], strict=True) if s != 1]
    columns = varies_along(last, shape[-1])
    if None in varies or columns is None:
        return None
    behind = varies[varies.index(True) :] if True in varies else []
    if not all(behind):
        return None
    rows = SAME if not behind else EACH if len(behind) == len(varies) else CYCLE
    return RowArgument(rows, columns, TRUTHS if type_.dtype == BOOL else FLOATS)


@dataclass
class _RowReader:
    """Turns bindings into steps."""

    shape: Shape
    values: dict[Atom, Ref]
    in_order: bool
    steps: list[RowStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.first = len(self.values)

    def add(self, b: Binding) -> bool:
        """The steps of a binding, if it acts on rows."""
        rule = RULES.get(b.op)
        if rule is not None:
            along = b.args[0].type.shape == self.shape and b.out.type.dtype == FLOAT32
            ref = rule(self, b) if along else None
        else:
            ref = self.mapped(b)
        if ref is not None:
            self.values[b.out] = ref
        return ref is not None

    def ref(self, atom: Atom) -> Ref | None:
        if not isinstance(atom, Const):
            return self.values[atom]
        able = atom.value.size == 1 and atom.type.dtype == FLOAT32
        return float(atom.value.reshape(-1)[0]) if able else None

    def mapped(self, b: Binding) -> Ref | None:
        """The value of an elementwise op."""
        if b.op.scalar is None or not expression.has_vector_form(b.op.scalar):
            return None
        computable = all(a.type.dtype in (FLOAT32, BOOL) for a in b.args)
        wide, refs = b.out.type.shape == self.shape, [self.ref(a) for a in b.args]
        fits = wide or b.out.type.shape == (*self.shape[:-1], 1)
        if not computable or not fits or None in refs or b.out.type.dtype != FLOAT32:
            return None
        attrs = {k: float(v) for k, v in b.attrs.items() if isinstance(v, int | float)}
        return self.put(b.op.scalar, *(r for r in refs if r is not None), wide=wide, **attrs)

    def put(self, how: str, *refs: Ref, wide: bool, **attrs: float) -> int:
        """One step more, and its number."""
        self.steps.append(RowStep(how, refs, tuple(attrs.items()), wide))
        return self.first + len(self.steps) - 1

    def wide(self, how: str, *refs: Ref) -> int:
        return self.put(how, *refs, wide=True)

    def number(self, how: str, *refs: Ref, **attrs: float) -> int:
        return self.put(how, *refs, wide=False, **attrs)

    def is_last(self, axis: int) -> bool:
        return axis == len(self.shape) - 1

    # --- ops along a row ---------------------------------------------------------------------

    def softmax(self, b: Binding) -> Ref | None:
        x = self.ref(b.args[0])
        if x is None or not self.is_last(b.attrs["axis"]):
            return None
        shifted = (x, self.number(TOP, x))
        if b.op is softmax:
            e = self.wide("exp(x0 - x1)", *shifted)
            return self.wide("x0 * x1", e, self.number("1 / x0", self.number(SUM, e)))
        less = self.wide("x0 - x1", *shifted)
        total = self.number(SUM, self.wide("exp(x0)", less))
        return self.wide("x0 - x1", less, self.number("log(x0)", total))

    def layer_norm(self, b: Binding) -> Ref | None:
        x, scale, bias = map(self.ref, b.args)
        if x is None or scale is None or bias is None or not self.is_last(b.attrs["axis"]):
            return None
        mean = self.number("x0 / x1", self.number(SUM, x), COUNT)
        centred = self.wide("x0 - x1", x, mean)
        square = self.squares(centred)
        epsilon = float(b.attrs["epsilon"])
        factor = self.number("rsqrt(x0 / x1 + epsilon)", square, COUNT, epsilon=epsilon)
        y = self.wide("x0 * x1", centred, factor)
        if self.in_order:
            return self.wide("x0 + x1", self.wide("x0 * x1", y, scale), bias)
        return self.wide("fma(x0, x1, x2)", y, scale, bias)

    def squares(self, x: int) -> int:
        if self.in_order:
            return self.number(SUM, self.wide("x0 * x1", x, x))
        return self.number(SQUARES, x)

    def reduced(self, b: Binding) -> Ref | None:
        x, axes = self.ref(b.args[0]), b.attrs["axes"]
        if x is None or len(axes) != 1 or not self.is_last(axes[0]) or not b.attrs["keepdims"]:
            return None
        folded = self.number(REDUCTIONS[b.op], x)
        return self.number("x0 / x1", folded, COUNT) if b.op is reduce_mean else folded


Rule: TypeAlias = Callable[[_RowReader, Binding], "Ref | None"]
REDUCTIONS = {reduce_sum: SUM, reduce_mean: SUM, reduce_max: MAX, reduce_min: MIN}
RULES: dict[Op, Rule] = {
    softmax: _RowReader.softmax,
    log_softmax: _RowReader.softmax,
    layer_norm: _RowReader.layer_norm,
    **dict.fromkeys(REDUCTIONS, _RowReader.reduced),
}
"""Ops that bring the last axis together, as steps."""


def is_along(op: Op) -> bool:
    """Whether an op may be one along rows."""
    return op in RULES
