"""What an executable does for given sizes: the path through the decisions, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from bucketize.call import refusal
from bucketize.ir import Binding
from bucketize.link.image import Supply
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.program.instruction import (
    Branch,
    Call,
    Compute,
    Decide,
    Instruction,
    KernelCall,
    Refuse,
    RunSegment,
)
from bucketize.program.path import way
from bucketize.runtime.vm import Context
from bucketize.table import Block, Format, fields_of, folded, pairs, shortened, whole
from bucketize.types import Dim, UnrankedType, evaluate

if TYPE_CHECKING:
    from bucketize.lower.alternative import Alternative

Rows: TypeAlias = Sequence[Mapping[str, Any]]
Formats: TypeAlias = Mapping[str, Format]


@dataclass(repr=False)
class Explanation:
    """The way that sizes take: `clone` serves them; `steps` are its kernels, in order.

    A step has the names of its nodes in the model, joined by "+", its ops, the shape of its result
    (None where only a run can tell its rank), its kernel's template, that one's schedule, why it
    was chosen, and, where a group of kernels is run on some lines of its images at a time, which
    group, and how many lines of its last result.
    """

    sizes: dict[str, int]
    clone: str = "main"
    executor: str = "vm"
    arrangement: Arrangement = USUAL
    path: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    arena_bytes: int = 0
    weight_bytes: int = 0
    """Bytes of the constants of its kernels, as the model has them."""
    packed_bytes: int = 0
    """Bytes of constants as kernels want them, each layout once: of all that the clone may run."""
    all_packed_bytes: int = 0
    """Bytes of constants, laid out, of all that is compiled so far."""
    inside: dict[str, int] = field(default_factory=dict)
    """The sizes by the names that the clone has for them."""
    expected: Callable[[], Sequence[float | None]] = tuple
    """The seconds of each step by the models of the kernels, None where there is no model; none of
    an executable that was loaded."""
    alternatives: Callable[[], Sequence[Alternative]] = tuple
    """The arrangements of the clone's kernels by what the model expects of them, the best first;
    none of an executable that was loaded. To find them can take a second."""

    shared: Callable[[], str] = str
    """How requests share calls of `run_many`, or why they do not."""

    @cached_property
    def second(self) -> Alternative | None:
        """The best of the other arrangements, its price relative to that of what runs."""
        others = {a.arrangement: a for a in self.alternatives()}
        mine = others.pop(self.arrangement, None)
        best = min(others.values(), key=lambda a: a.price, default=None)
        return best and mine and replace(best, price=best.price / (mine.price or 1.0))

    def __repr__(self) -> str:
        """The text of `str`: what a session or a notebook shows."""
        return str(self)

    def __str__(self) -> str:
        return self.text(lambda rows, formats: whole(fields_of(rows, formats)))

    def text(self, table: Callable[[Rows, Formats], str]) -> str:
        """All of it, the steps drawn by `table`."""
        kernels = [table(self.rows, FORMATS)] if self.steps else []
        lines = [self.headline, *kernels, *self.notes, self.arranged, self.memory]
        many = self.shared()
        return "\n".join([*lines, *([f"many requests: {many}"] if many else [])])

    @property
    def headline(self) -> str:
        """The line of the sizes and of their way."""
        sizes = pairs(self.sizes, ", ")
        way = f"{' -> '.join(self.path)} ({self.executor} executor)"
        return f"{sizes}: {way}" if sizes else way

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The steps as they are shown, what repeats once; without columns that are empty in all."""
        rows = [row for block in self.blocks for row in self._told(block)]
        names = [name for name in COLUMNS if any(row[name] for row in rows)]
        return [{name: row[name] for name in names} for row in rows]

    @cached_property
    def blocks(self) -> list[Block]:
        """The steps, those that come several times in a row told once."""
        return list(folded([tuple(str(step[name]) for name in SAME) for step in self.steps]))

    def _told(self, block: Block) -> list[dict[str, Any]]:
        """The rows of a block: the names are those of its first time, its times the sums of all."""
        first, length, times = block
        rows = []
        for i in range(first, first + length):
            row: dict[str, Any] = {n: shown(self.steps[i][n]) for n, shown in SHOWN.items()}
            taken = self.seconds[i : first + length * times : length]
            expected = [s for s in taken if s is not None]
            row[TIME] = 1e6 * sum(expected) if expected else None
            row["times"] = f"{times}x" if times > 1 else ""
            rows.append(row)
        return rows

    @cached_property
    def seconds(self) -> Sequence[float | None]:
        """What each step is expected to take; None where no model tells."""
        return self.expected() or [None] * len(self.steps)

    @property
    def notes(self) -> list[str]:
        """What to know of the rows, where there is something."""
        often = max((block.times for block in self.blocks), default=1)
        if often == 1:
            return []
        return [
            f"{len(self.steps)} kernels; a block of rows with {often}x comes {often} times in a "
            "row: names are of the first time, times the sum of all"
        ]

    @property
    def memory(self) -> str:
        """The line of the memory between the kernels, and of the weights."""
        each = (self.arena_bytes, self.weight_bytes, self.packed_bytes, self.all_packed_bytes)
        arena, weights, packed, whole = (f"{size / 2**20:.1f} MiB" for size in each)
        return f"arena: {arena}; weights: {weights}, packed {packed}, in all clones {whole}"

    @property
    def arranged(self) -> str:
        """The line of the arrangement."""
        line, second = f"arrangement: {self.arrangement}", self.second
        if second is None:
            return line
        more = f"{100 * (second.price - 1):+.1f} %"
        return f"{line}; the next best, {second.arrangement.brief}, is expected to take {more}"


def _shape(shape: Sequence[Dim] | None) -> str:
    return "?" if shape is None else f"({', '.join(map(str, shape))})"


TIME = "model us"
FORMATS: Formats = {TIME: "{:.1f}".format}
SHOWN: Mapping[str, Callable[[Any], str]] = {
    "name": shortened,
    "op": str,
    "shape": _shape,
    "kernel": str,
    "schedule": partial(pairs, gap=" "),
    "why": str,
    "strip": str,
}
"""By the fields of a step that are shown, how."""
COLUMNS = ("times", "name", "op", "shape", "kernel", TIME, "schedule", "why", "strip")
SAME = ("op", "shape", "kernel", "schedule", "why")
"""What is the same of steps that repeat."""


def explain(sizes: dict[str, int], context: Context) -> Explanation:
    """Follow the decisions from `main` down to kernels."""
    report, calls = Explanation(dict(sizes)), list[KernelCall]()
    _enter(context, "main", report)
    for instruction, inside, _, is_decided in way(context.image.program, "main", sizes):
        if isinstance(instruction, Branch) and is_decided:
            continue  # what it runs comes next
        _tell(context, instruction, inside, report)
        calls += instruction.segment.rows if isinstance(instruction, RunSegment) else ()
        if not isinstance(instruction, Call | Decide):
            report.inside = dict(inside)
    _weigh(context.image.supply, calls, report)
    return report


def _enter(context: Context, name: str, report: Explanation) -> None:
    routine = context.image.program.routines.serving(name)
    report.clone, report.executor = routine.name, routine.executor
    report.arrangement = routine.arrangement
    report.path.append(routine.name)


def _tell(
    context: Context, instruction: Instruction, sizes: Mapping[str, int], report: Explanation
) -> None:
    if isinstance(instruction, Refuse):
        raise refusal(instruction.binding, dict(sizes))
    if isinstance(instruction, Call):
        _enter(context, instruction.callee, report)
    elif instruction.note:
        report.path.append(instruction.note)
    elif isinstance(instruction, Compute):
        report.steps.append(_host_step(instruction.binding))
    elif isinstance(instruction, RunSegment):
        segment = instruction.segment
        is_known = all(s in sizes for s in segment.symbols)
        steps = [
            _step(call.at(sizes), sizes) if is_known else _step(call, {}) for call in segment.calls
        ]
        report.steps += steps
        if is_known:
            state = context.state(segment)
            state.measure(tuple(sizes[s] for s in segment.symbols))
            report.arena_bytes = max(report.arena_bytes, state.needed)
            for i, (group, lines) in state.strips().items():
                steps[i]["strip"] = f"group {group}, {lines} line{'s' * (lines > 1)} at a time"


def _weigh(supply: Supply, calls: Sequence[KernelCall], report: Explanation) -> None:
    """Tell the bytes of the constants that calls read, each in each layout once."""
    weights: dict[int, int] = {}
    packed: dict[tuple[int, str], int] = {}
    for call in calls:
        for i, layout in call.packs.items():
            value = call.args[i].value  # type: ignore[union-attr]  # constants have layouts
            weights[id(value)] = value.nbytes
            packed[id(value), layout] = supply.constant(value, call, i).nbytes
    report.weight_bytes, report.packed_bytes = sum(weights.values()), sum(packed.values())
    report.all_packed_bytes = supply.constant_bytes()


def _host_step(b: Binding) -> dict[str, Any]:
    data_dependent = b.op.shape_from_values is not None or b.op.reads
    why = "its shape depends on values" if data_dependent else "no template takes it"
    why = why if b.is_ranked else _unranked(b)
    return {
        "name": "+".join(b.origin),
        "op": b.op.name,
        "shape": b.outs[0].type.axes if b.outs[0].type.is_tensor else None,
        "kernel": "numpy",
        "schedule": {},
        "why": why,
        "strip": "",
    }


def _unranked(b: Binding) -> str:
    types = [a.type for a in (*b.args, *b.outs)]
    type_ = next(t for t in types if not t.is_tensor)
    if isinstance(type_, UnrankedType):
        return f"{type_} has no rank that is known before a run"
    return f"{type_} is held on the host"


def _step(call: KernelCall, sizes: Mapping[str, int]) -> dict[str, Any]:
    members = [b.op.name for b in call.workload.body.body]
    able = [call] if sizes else call.each
    shape = tuple(evaluate(d, sizes) if sizes else d for d in call.binding.outs[0].type.shape)
    return {
        "name": "+".join(call.binding.origin),
        "op": "+".join(members),
        "shape": shape,
        "kernel": " or ".join(dict.fromkeys(c.implementation.template for c in able)),
        "schedule": dict(call.implementation.schedule),
        "why": call.why,
        "strip": "",
    }
