"""The state of a plan in one context: its registers, its table, its blocks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bucketize.call import check_memory
from bucketize.errors import BucketizeError, ShapeError
from bucketize.ir import Function, specialise
from bucketize.ir.relation import broken, extents, relied_on
from bucketize.kernel.work import FORK
from bucketize.link.block import (
    BASE,
    FILL,
    GROUP,
    GROUPED,
    INSIDE,
    ORIGIN,
    POINT,
    REPORT,
    RUN,
    WALK,
    WORD,
)
from bucketize.link.image import Image
from bucketize.link.memory import Lent, address, contiguous, empty_result
from bucketize.link.plan import FAILURES, Result
from bucketize.link.table import block, rows_of
from bucketize.op import Array
from bucketize.program.instruction import UNNAMED, Segment
from bucketize.runtime.thread_pool import TEAM, Run
from bucketize.types import Symbol

SCRATCH = ("offsets", "strides", "live", "sizes")
"""What a fill notes of each tensor."""
UNSHARED = 1 << 62
"""Operations of a kernel that threads begin to share, where none is."""
FILLED_FROM = ("code", "checks", "words", "parts", "tensors", "pointers", "groups")
# members of enumerations take longer to find than these
ARENA, ARRAYS, WHAT, FIRST, WRONG = BASE.arena, len(BASE), WALK.what, WALK.first, WALK.wrong


class State:
    """A segment that has been linked, with memory of its own: one run at a time."""

    def __init__(
        self, segment: Segment, image: Image, lent: Lent, *, one_thread: bool = False
    ) -> None:
        """Filled for no sizes yet; with `one_thread` no kernel is shared, whatever the plan's."""
        linked = image.linked(segment)
        plan = linked.plan
        self.segment, self.plan, self.linked, self.lent = segment, plan, linked, lent
        self.needed = 0
        """Bytes of the arena, at the sizes that the table is filled for."""
        self.image, self.fill, self.walk, self.share = image, image.fill, image.walk, image.share
        self.sizes: tuple[int, ...] | None = None
        """For which it can be run."""
        self.measured: tuple[int, ...] | None = None
        """For which the table is filled."""
        self.at_once = one_thread or plan.threads == 1
        """Whether one native call runs all kernels."""
        self.pointed = 0
        """The arena that the table's pointers are put in for; 0, none."""
        self.results: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        """Shape and dtype of each, at the sizes that the table is filled for."""
        self.registers = plan.initial.copy()
        self.table = np.zeros(plan.size + 1, np.int64)  # never empty: it has an address
        for (word, _, _), constant in zip(plan.constants, linked.constants, strict=True):
            self.table[word] = address(constant)
        origins = block(ORIGIN, table=address(self.table), kernels=address(linked.kernels))
        inside = origins[plan.links[:, INSIDE.base]] + plan.links[:, INSIDE.words] * WORD
        self.table[plan.links[:, INSIDE.word]] = inside
        self.behind = np.zeros(len(plan.pointers), np.int64)
        self.chunks = np.ones(len(linked.kernels), np.int64)
        self.order = np.zeros(len(plan.kernels) + 1, np.int64)
        """How many rows are run, and which."""
        stride = plan.width * WORD
        self.shared = Run(
            linked.kernels, self.order, self.chunks, address(self.table), stride, plan.threads
        )
        self.scratch = np.zeros((len(SCRATCH), len(plan.tensors)), np.int64)
        self.bases = np.zeros(len(BASE) + len(segment.types[0]) + len(plan.results), np.int64)
        self.bases[BASE.table] = address(self.table)
        self.filling = block(FILL, **self._fill_words())
        self.walking = block(WALK, **self._walk_words())
        # views of single words: an index into an array costs more than into a memoryview
        self.fill_word, self.walk_word = self.filling.data, self.walking.data
        self.base, self.register = self.bases.data, self.registers.data
        self.places = address(self.filling), address(self.walking)

    def _fill_words(self) -> dict[str, int]:
        plan = self.plan
        return {
            **rows_of({name: getattr(plan, name) for name in FILLED_FROM}),
            **{name: address(row) for name, row in zip(SCRATCH, self.scratch, strict=True)},
            "registers": address(self.registers),
            "table": address(self.table),
            "steps": plan.steps,
            "threads": plan.threads,
            "width": plan.width,
            "chunks": address(self.chunks),
            "fork": UNSHARED if self.at_once else FORK,
            "behind": address(self.behind),
            "strip": self.image.strip,
            "in_strips": 1,
            "order": address(self.order),
        }

    def _walk_words(self) -> dict[str, int]:
        plan = self.plan
        return {
            **rows_of({"pointers": plan.pointers, "reports": plan.reports}),
            "kernels": address(self.linked.kernels),
            "order": address(self.order),
            "what": POINT | RUN | REPORT,
            "table": address(self.table),
            "bases": address(self.bases),
            "behind": address(self.behind),
            "stride": plan.threads * plan.width * WORD,
            "chunks": address(self.chunks),
        }

    def share_from(self, work: int) -> None:
        """Have several threads share kernels of so much work, or more, from the next fill on."""
        if not self.at_once and self.fill_word[FILL.fork] != work:
            self.sizes = self.measured = None
            self.fill_word[FILL.fork] = work

    def forbid_strips(self) -> None:
        """From the next fill on kernels run one by one, each over its whole extent."""
        self.sizes = self.measured = None
        self.fill_word[FILL.in_strips] = 0

    # Filling.

    def prepare(self, sizes: tuple[int, ...]) -> None:
        """Fill the table for these sizes of the plan's symbols, if it is not filled for them."""
        if sizes == self.sizes:
            return
        self.sizes = None
        self.measure(sizes)
        self.shared.cut()
        self.lent.arena.reserve(self.needed)
        self.check(self.results, self.needed)
        self.pointed = 0  # the offsets changed: put all pointers in again
        self.sizes = sizes

    def check(self, results: Sequence[tuple[Sequence[int], np.dtype[Any]]], taken: int = 0) -> None:
        """Raise ShapeError for results that there is no memory for, or no room in the limit.

        Who let the call begin knew of shapes that follow from its inputs', of no others.
        """
        size, room = check_memory(results, taken), self.lent.room
        if size > room:
            raise ShapeError(f"a part of the call takes {size:,} bytes, a limit leaves {room:,}")

    def measure(self, sizes: tuple[int, ...]) -> None:
        """Fill the table without taking memory: `needed` and `results` are told then."""
        if sizes == self.measured:
            return
        self.sizes = self.measured = None
        register = self.register
        for i, size in enumerate(sizes):
            register[i] = size
        self.fill(self.places[0])
        if self.fill_word[FILL.status]:
            self._refuse(dict(zip(self.plan.symbols, sizes, strict=True)))
        self.needed = int(self.fill_word[FILL.arena_bytes])
        self.results = [
            (tuple([register[r] for r in shape]), dtype) for shape, dtype in self.linked.results
        ]
        self.measured = sizes

    def _refuse(self, sizes: Mapping[str, int]) -> None:
        """Raise what the types say of these sizes; they are inferred again for the words of it."""
        status = self.fill_word[FILL.status]
        fn = self.segment.fn
        pairs = ", ".join(f"{_symbol(fn, n)}={s}" for n, s in sizes.items())
        shown = pairs or "the sizes of the types"
        relied = negative = ""
        if status == RELATION:
            relied = broken(relied_on(fn), sizes)
            negative = "" if relied else broken(extents(fn), sizes)
        why = relied or negative
        try:
            specialise(fn, sizes)
        except BucketizeError as e:
            e.add_note(f"at {shown}{why and ': '}{why}")
            if negative:  # no two types disagree: these sizes alone are at fault
                raise _as_shape_error(e) from e
            raise
        raise ShapeError(f"at {shown}: {why or FAILURES[status]}")

    def strips(self) -> dict[int, tuple[int, int]]:
        """Calls that are run in strips: their group, and the lines of its last result."""
        groups = [g for g in self.plan.groups.tolist() if self.chunks[g[GROUPED.step]]]
        return {
            call: (number, int(self.table[g[GROUPED.words] + GROUP.lines]))
            for number, g in enumerate(groups, 1)
            for call in range(g[GROUPED.first], g[GROUPED.last] + 1)
        }

    # Running.

    def run(self, arrays: Sequence[Array], into: Mapping[int, Array] | None = None) -> list[Array]:
        """The results for inputs of the sizes that the table is filled for.

        They are in fresh memory, but for those that `into` has arrays for, by their numbers.
        """
        base = self.base
        inputs = [a if a.flags.c_contiguous else contiguous(a) for a in arrays]
        if into is None:
            outputs = [empty_result(shape, dtype) for shape, dtype in self.results]
        else:
            outputs = [
                into[i] if i in into else empty_result(*its) for i, its in enumerate(self.results)
            ]
        i = ARRAYS
        for array in inputs:
            base[i] = array.__array_interface__["data"][0]
            i += 1
        for array in outputs:
            base[i] = array.__array_interface__["data"][0]
            i += 1
        self._run_once()
        if self.linked.copies:
            self._copy(inputs, outputs)
        return outputs

    def run_at(self, addresses: memoryview) -> None:
        """Run on inputs and results at these addresses; what no kernel writes is left alone."""
        self.base[ARRAYS:] = addresses
        self._run_once()

    def _run_once(self) -> None:
        """Run on what the bases are, of inputs and of results."""
        memory = self.lent.arena
        if self.needed > memory.most:
            memory.reserve(self.needed)
        arena = self.base[ARENA] = memory.base
        self.walk_word[FIRST] = self.plan.fixed if self.pointed == arena else 0
        self.pointed = 0  # until they are: an interrupt leaves them to be put in again
        if self.at_once:
            self.walk(self.places[1])
        else:
            self._walk_in_parts()
        self.pointed = arena
        if self.walk_word[WRONG]:
            self._report()

    @property
    def undivided(self) -> bool:
        """Whether one native call runs all kernels, at the sizes that the table is filled for."""
        return self.at_once or int(self.chunks.max(initial=1)) <= 1

    def run_rounds(self, addresses: memoryview, rounds: int) -> None:
        """Run again and again, from inputs at these addresses on; `rounds` is a block's address."""
        self.base[ARRAYS:] = addresses
        self.base[ARENA] = self.lent.arena.reserve(self.needed)
        self.walk_word[WHAT], self.walk_word[FIRST] = POINT | RUN | REPORT, 0
        self.pointed = 0
        self.image.rounds(rounds)
        if self.walk_word[WRONG]:
            self._report()

    def _walk_in_parts(self) -> None:
        self.walk_word[WHAT] = POINT
        self.walk(self.places[1])
        self.run_kernels()
        self.walk_word[WHAT] = REPORT
        self.walk(self.places[1])

    def run_kernels(self) -> None:
        """Run the kernels on a table that its pointers are in, by several threads."""
        TEAM.run(self.share, self.shared)

    def _report(self) -> None:
        """Raise what a kernel that checks its indices found."""
        index, extent = self.walk_word[WALK.wrong_index], self.walk_word[WALK.extent]
        op = self.segment.rows[self.walk_word[WRONG] - 1].workload.anchor.op.name
        raise ShapeError(f"in {op}: index {index} is out of range for extent {extent}")

    def _copy(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Fill the results that no kernel writes."""
        for result, output in zip(self.plan.results, outputs, strict=True):
            if result.source != "own":
                output[...] = self._source(result, inputs, outputs).reshape(output.shape)

    def known(self, n: int) -> Array:
        """A copy of a result that sizes tell, or nothing at all does."""
        shape, dtype = self.results[n]
        return self._source(self.plan.results[n], (), ()).astype(dtype).reshape(shape)

    def _source(self, result: Result, inputs: Sequence[Array], outputs: Sequence[Array]) -> Array:
        if result.source == "input":
            return inputs[result.index]
        if result.source == "result":
            return outputs[result.index]
        if result.source == "constant":
            return self.linked.held[result.index]
        root = self.plan.results.index(result)
        size = math.prod(self.results[root][0])
        return self.table[result.index : result.index + size]


RELATION = FAILURES.index("a relation does not hold")


def _symbol(fn: Function, name: str) -> str:
    """A symbol as errors tell it: an extent of no name by what comes of the first node it is at."""
    if not re.fullmatch(rf"{UNNAMED}\d+", name):
        return name
    met = [
        (b.origin, f"axis {v.type.axes.index(Symbol(name))} of {what} of {'+'.join(b.origin)!r}")
        for b in fn.body
        for what, values in (("an operand", b.args), ("the result", b.outs))
        for v in values
        if b.origin and Symbol(name) in v.type.axes
    ]
    return next((text for origin, text in reversed(met) if origin == met[0][0]), name)


def _as_shape_error(error: BucketizeError) -> ShapeError:
    shape_error = ShapeError(error.message)
    shape_error.notes = error.notes
    return shape_error
