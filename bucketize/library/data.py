"""The data of a library: all that its functions read, as bytes without addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from bucketize.errors import ProgramError
from bucketize.ir import Var
from bucketize.library.block import CONSTANT, CORE, DIM, LEAF, MODEL, PLAN, RESULT, SOURCES
from bucketize.library.route import Route, Routes
from bucketize.link.block import WORD
from bucketize.link.image import Image, Linked
from bucketize.link.plan import FAILURES, Plan
from bucketize.link.table import row, table
from bucketize.op import Array
from bucketize.types import Symbol

TABLES = ("code", "checks", "words", "parts", "tensors", "pointers", "groups", "reports", "links")
"""The tables of a plan that native code reads as they are."""
LARGEST = 1 << 62
ALIGNMENT = 64
TEXTS = {
    "no_memory_at": "no memory for %lld bytes",
    "no_array_at": "there is no array at place %lld",
    "no_shape_at": "there is no shape at place %lld",
    "too_short_at": "an output needs %lld bytes, got %lld",
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
            self.arrays[id(array)] = self.add(np.ascontiguousarray(array), ALIGNMENT), array
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


def data_of(image: Image, routes: Routes) -> ModelData:
    """The data of an image, for what runs at which sizes; MODEL is where they begin."""
    data = ModelData()
    model = np.zeros(len(MODEL), np.int64)
    data.add(model)
    main = image.program.routines["main"]
    symbols = list(dict.fromkeys(s.name for p in main.params for s in p.type.symbols()))
    segments = list(dict.fromkeys(r.segment for r in routes.leaves if isinstance(r, Route)))
    firsts = {r.segment: r for r in reversed(routes.leaves) if isinstance(r, Route)}
    plans = [_plan(data, image, firsts[s], symbols) for s in segments]
    leaves = [
        (-1, data.text(leaf)) if isinstance(leaf, str) else (segments.index(leaf.segment), 0)
        for leaf in routes.leaves
    ]
    dims = list(_dims(data, main.params, symbols))
    results = zip(image.program.outputs, main.code.results, strict=True)
    model[:] = row(
        MODEL,
        n_symbols=len(symbols),
        n_inputs=len(main.params),
        inputs_at=_tensors(data, [(p.name, p.type) for p in main.params]),
        n_dims=len(dims),
        dims_at=data.rows(DIM, "input axis symbol first least most step text_at range_at", dims),
        nodes_at=data.numbers(routes.nodes or [0]),
        n_nodes=len(routes.nodes) // 4,
        leaves_at=data.rows(LEAF, "plan text_at", leaves),
        n_plans=len(plans),
        plans_at=data.numbers(plans or [0]),
        n_outputs=len(image.program.outputs),
        outputs_at=_tensors(data, [(name, atom.type) for name, atom in results]),
        core_at=data.kernels([image.supply.core(name).name for name in CORE.__members__]),
        **{name: data.text(text) for name, text in TEXTS.items()},
    )
    return data


def _tensors(data: ModelData, tensors: Sequence[tuple[str, Any]]) -> int:
    return data.numbers([data.text(f"{name}: {type_}") for name, type_ in tensors] or [0])


def _dims(
    data: ModelData, params: Sequence[Var], symbols: Sequence[str]
) -> Iterator[tuple[int, ...]]:
    """The rows of all axes of inputs, those that tell a symbol's size before the others."""
    later: list[tuple[int, ...]] = []
    seen = set[str]()
    for i, param in enumerate(params):
        for axis, dim in enumerate(param.type.shape):
            where = f"input {param.name}: dim {axis} must be"
            if isinstance(dim, int):
                text = data.text(f"{where} %lld, got %lld")
                later.append((i, axis, -1, 0, dim, dim, 1, text, text))
            elif isinstance(dim, Symbol):
                most = LARGEST if dim.hi is None else dim.hi
                texts = f"{dim.name}=%lld, got %lld", f"{dim.name} in {dim.range}, got %lld"
                said = [data.text(f"{where} {text}") for text in texts]
                is_first = dim.name not in seen
                seen.add(dim.name)
                symbol, sizes = symbols.index(dim.name), (dim.lo, most, dim.step)
                its = (i, axis, symbol, int(is_first), *sizes, *said)
                if is_first:
                    yield its
                else:
                    later.append(its)
            else:
                raise ProgramError(f"{where} {dim}: a library takes sizes and symbols alone")
    yield from later


def _plan(data: ModelData, image: Image, route: Route, symbols: Sequence[str]) -> int:
    linked = image.linked(route.segment)
    plan = linked.plan
    rows = [*plan.kernels, *[image.supply.core("strip").name] * len(plan.groups)]
    constants = [
        (word, data.constant(array))
        for (word, _, _), array in zip(plan.constants, linked.constants, strict=True)
    ]
    tables = {name: getattr(plan, name) for name in TABLES}
    return data.words(
        PLAN,
        symbols_at=data.numbers([symbols.index(route.symbols[s]) for s in plan.symbols] or [0]),
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
        inputs_at=data.numbers(route.inputs or [0]),
        n_inputs=len(route.inputs),
        results_at=_results(data, linked),
        n_results=len(plan.results),
        outputs_at=data.numbers(route.outputs or [0]),
        failures_at=data.numbers([data.text(f"these sizes: {text}") for text in FAILURES]),
        reports_text_at=data.numbers([data.text(_report(route, k)) for k in range(len(rows))]),
    )


def _report(route: Route, step: int) -> str:
    rows = route.segment.rows
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
