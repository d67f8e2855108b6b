"""The data of a library: all that its functions read, as bytes without addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np

from bucketize.library.block import CONSTANT, CORE, DIM, MODEL, PLAN, RESULT, SLOT, SOURCES, STEP
from bucketize.library.flow import Flow, Label, Slot
from bucketize.link.block import WORD
from bucketize.link.image import Image, Linked
from bucketize.link.plan import FAILURES, PASSES, Plan
from bucketize.link.planner import launch_of, plan_of
from bucketize.link.table import row, table
from bucketize.machine.target import LINE
from bucketize.op import Array
from bucketize.program.instruction import Segment

TABLES = ("code", "checks", "words", "parts", "tensors", "pointers", "groups", "reports", "links")
"""The tables of a plan that native code reads as they are."""
TEXTS = {
    "no_memory_at": "no memory for %lld bytes",
    "no_array_at": "there is no array at place %lld",
    "no_shape_at": "there is no shape at place %lld",
    "too_short_at": "an output needs %lld bytes, got %lld",
    "too_large_at": f"these sizes: {PASSES}",
}


@dataclass
class ModelData:
    """Pieces of bytes, each at a place of its own."""

    pieces: list[tuple[int, Array]] = field(default_factory=list)
    size: int = 0
    texts: dict[str, int] = field(default_factory=dict)
    arrays: dict[int, tuple[int, Array]] = field(default_factory=dict)
    """By the id of an array: its place, and the array, so that the id stays its own."""
    distances: list[tuple[int, Array, Sequence[str]]] = field(default_factory=list)
    """Where it is told how far kernels lie behind the data: a place, its array, the kernels."""

    def add(self, array: Array, alignment: int = 8) -> int:
        """The place of an array."""
        at = -(-self.size // alignment) * alignment
        self.pieces.append((at, array))
        self.size = at + array.nbytes
        return at

    def words(self, words: type[IntEnum], **values: int) -> int:
        """The place of a block."""
        return self.add(np.array(row(words, **values), np.int64))

    def kernels(self, names: Sequence[str]) -> int:
        """The place of words that tell how far kernels lie behind."""
        places = np.zeros(len(names), np.int64)
        at = self.add(places)
        self.distances.append((at, places, names))
        return at

    def numbers(self, numbers: Sequence[int]) -> int:
        """The place of some words."""
        return self.add(np.array(numbers, np.int64))

    def rows(self, words: type[IntEnum], columns: str, rows: Sequence[Sequence[int]]) -> int:
        """The place of a table."""
        return self.add(table(words, columns, rows))

    def text(self, text: str) -> int:
        """The place of a text, which ends with a 0."""
        if text not in self.texts:
            self.texts[text] = self.add(np.frombuffer(text.encode() + b"\0", np.uint8))
        return self.texts[text]

    def constant(self, array: Array) -> int:
        """The place of a constant, one for all who read it."""
        if id(array) not in self.arrays:
            self.arrays[id(array)] = self.add(np.ascontiguousarray(array), LINE), array
        return self.arrays[id(array)][0]

    def slots(self) -> Iterator[tuple[int, str]]:
        """Where it is told how far a kernel lies behind, and which, in order."""
        for at, _, names in self.distances:
            yield from ((at + WORD * i, name) for i, name in enumerate(names))

    def tell(self, places: Mapping[str, int]) -> None:
        """Note how far kernels lie behind, by their names."""
        for _, array, names in self.distances:
            array[:] = [places[name] for name in names]

    def blobs(self) -> Iterator[tuple[int, memoryview]]:
        """Each piece as bytes."""
        for at, array in self.pieces:
            yield at, array.reshape(-1).view(np.uint8).data


def data_of(image: Image, flow: Flow) -> ModelData:
    """The data of an image, for the steps of its program; MODEL is where they begin."""
    data = ModelData()
    model = np.zeros(len(MODEL), np.int64)
    data.add(model)
    main = image.program.routines["main"]
    results = zip(image.program.outputs, main.code.results, strict=True)
    segments = flow.segments()
    plans = [_plan(data, image, segment) for segment in segments]
    numbers = {segment: number for number, segment in enumerate(segments)}
    steps = [
        [step.kind, *(_operand(data, numbers, o) for o in step.operands), *[0] * 4][: len(STEP)]
        for step in flow.steps
    ]
    slots, n_dims = _slots(data, flow.slots)
    model[:] = row(
        MODEL,
        n_sizes=flow.n_sizes,
        n_inputs=len(main.params),
        inputs_at=_tensors(data, [(p.name, p.type) for p in main.params]),
        n_outputs=len(image.program.outputs),
        outputs_at=_tensors(data, [(name, atom.type) for name, atom in results]),
        n_slots=len(slots),
        slots_at=data.rows(SLOT, "rank itemsize dims constant shape", slots),
        n_dims=n_dims,
        n_plans=len(plans),
        plans_at=data.numbers(plans or [0]),
        steps_at=data.rows(STEP, "kind a b c d", steps),
        shapes=flow.shapes,
        core_at=data.kernels([image.supply.core(name).name for name in CORE.__members__]),
        **{name: data.text(text) for name, text in TEXTS.items()},
    )
    return data


def _tensors(data: ModelData, tensors: Sequence[tuple[str, Any]]) -> int:
    return data.numbers([data.text(f"{name}: {type_}") for name, type_ in tensors] or [0])


def _operand(data: ModelData, segments: Mapping[Segment, int], operand: Any) -> int:
    """The word of an operand of a step: a number, or the place of what it is."""
    match operand:
        case Segment():
            return segments[operand]
        case Label():
            return operand.at
        case str():
            return data.text(operand)
        case tuple() if operand and isinstance(operand[0], tuple):
            rows = [[_operand(data, segments, o) for o in row] for row in operand]
            return data.rows(DIM, "slot axis size first least most step text_at range_at", rows)
        case tuple():
            return data.numbers([_operand(data, segments, o) for o in operand] or [0])
    return int(operand)


def _slots(data: ModelData, slots: Sequence[Slot]) -> tuple[list[Sequence[int]], int]:
    """The rows of slots, and how many words their shapes have."""
    rows: list[Sequence[int]] = []
    n_dims = 0
    for slot in slots:
        value, rank = slot.constant, len(slot.type.shape)
        constant = (0, 0) if value is None else (data.constant(value), data.numbers(value.shape))
        rows.append((rank, slot.type.dtype.itemsize, n_dims, *constant))
        n_dims += rank
    return rows, n_dims


def _plan(data: ModelData, image: Image, segment: Segment) -> int:
    linked = image.linked(segment) if segment.fn.body else _of_dims(image, segment)
    plan = linked.plan
    rows = [*plan.kernels, *[image.supply.core("strip").name] * len(plan.groups)]
    constants = [
        (word, data.constant(array))
        for (word, _, _), array in zip(plan.constants, linked.constants, strict=True)
    ]
    tables = {name: getattr(plan, name) for name in TABLES}
    return data.words(
        PLAN,
        n_symbols=len(plan.symbols),
        initial_at=data.add(plan.initial),
        n_registers=len(plan.initial),
        **{f"{name}_at": data.add(np.ascontiguousarray(each)) for name, each in tables.items()},
        **{f"n_{name}": len(each) for name, each in tables.items()},
        constants_at=data.rows(CONSTANT, "word at", constants),
        n_constants=len(constants),
        kernels_at=data.kernels(rows),
        n_rows=len(rows),
        steps=plan.steps,
        threads=plan.threads,
        width=plan.width,
        size=plan.size,
        fixed=plan.fixed,
        n_inputs=len(segment.fn.params),
        n_results=len(plan.results),
        results_at=_results(data, linked),
        failures_at=data.numbers([data.text(f"these sizes: {text}") for text in FAILURES]),
        reports_text_at=data.numbers([data.text(_report(segment, k)) for k in range(len(rows))]),
    )


def _of_dims(image: Image, segment: Segment) -> Linked:
    """A segment that computes dims alone, the shape of its result: no image has it."""
    plan = plan_of(segment, 1, partial(launch_of, target=image.program.target))
    return Linked(plan, plan.initial[:0], (), (), ((plan.results[0].shape, np.dtype(np.int64)),))


def _report(segment: Segment, step: int) -> str:
    rows = segment.rows
    op = rows[step].workload.anchor.op.name if step < len(rows) else ""
    return f"in {op}: index %lld is out of range for extent %lld"


def _results(data: ModelData, linked: Linked) -> int:
    plan: Plan = linked.plan
    rows = []
    for result, (shape, dtype) in zip(plan.results, linked.results, strict=True):
        index = result.index
        if result.source == "constant":
            index = data.constant(linked.held[index])
        assert result.source != "dims" or dtype == np.int64, "a cast of dims is a kernel's"
        source = SOURCES[result.source]
        at = data.numbers(shape or [0])
        rows.append((at, len(shape), dtype.itemsize, source, index))
    return data.rows(RESULT, "shape_at rank itemsize source index", rows)
