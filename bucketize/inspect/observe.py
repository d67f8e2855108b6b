"""What each kernel of a call makes, as it runs in its clone, beside what its ops mean.

Kernels, schedules, fusion and the places of tensors are those of the program; each kernel is called
by itself, over its whole extent, and its operands and results are read where they lie.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from bucketize.inspect.row import RowState
from bucketize.interpret import compute
from bucketize.ir import Atom, Const
from bucketize.link.image import Image
from bucketize.link.memory import Lent
from bucketize.op import Array, Value
from bucketize.program.instruction import KernelCall, Segment
from bucketize.runtime.state import State
from bucketize.runtime.vm import Context
from bucketize.types import evaluate


@dataclass(frozen=True)
class ObservedKernel:
    """A kernel in one call."""

    name: str
    """The nodes of the model that it comes from; without them its ops, both joined by "+"."""
    op: str
    kernel: str
    """The name of its template."""
    got: Sequence[Array]
    """Its results."""
    meaning: Callable[[], Sequence[Value]]
    """What its ops make of the operands that it had."""


def observe(image: Image, arrays: Sequence[Value]) -> list[ObservedKernel]:
    """The kernels of a call of `main`, in the order in which they run."""
    context = _ObservedContext(image)
    context.enter(image.program.routines["main"], arrays)
    return context.seen


class _ObservedContext(Context):
    """A context that keeps what kernels make."""

    def __init__(self, image: Image) -> None:
        super().__init__(image)
        self.seen: list[ObservedKernel] = []

    def new_state(self, segment: Segment) -> State:
        return _ObservedState(segment, self.image, self.lent, self.seen)


class _ObservedState(RowState):
    """A segment whose kernels are looked at before and after they run."""

    def __init__(
        self, segment: Segment, image: Image, lent: Lent, seen: list[ObservedKernel]
    ) -> None:
        super().__init__(segment, image, lent)
        self.forbid_strips()
        self.seen = seen

    def run_kernels(self) -> None:
        assert self.sizes is not None
        sizes = dict(zip(self.plan.symbols, self.sizes, strict=True))
        for row in self.rows:
            call = self.segment.rows[row]
            first = row * self.plan.threads * self.plan.width
            outs = call.binding.outs
            operands = self._operands(call, first + len(outs), sizes)
            self.calls[row]()
            got = [self._read(out, first + k, sizes) for k, out in enumerate(outs)]
            meaning = partial(compute, call.binding, operands, sizes)
            self.seen.append(_observed(call, got, meaning))

    def _operands(self, call: KernelCall, first: int, sizes: Mapping[str, int]) -> list[Value]:
        """The operands, whose addresses are in words from the `first` on."""
        words = {atom: first + k for k, atom in enumerate(call.args)}
        return [
            a.value if isinstance(a, Const) else self._read(a, words[a], sizes)
            for a in call.binding.args
        ]

    def _read(self, atom: Atom, word: int, sizes: Mapping[str, int]) -> Array:
        """A copy of what is at the address in a word; its rows may lie apart."""
        shape = tuple(evaluate(d, sizes) for d in atom.type.shape)
        if not math.prod(shape):
            return np.empty(shape, atom.type.dtype)
        pitch = self.segment.place(atom).pitch
        row = 1 if not shape else shape[-1] if pitch is None else evaluate(pitch, sizes)
        extents = (*shape[1:-1], row, 1)[-len(shape) or 1 :]  # of what is behind each axis
        size = atom.type.dtype.itemsize
        strides = [math.prod(extents[i:]) * size for i in range(len(shape))]
        span = size + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        memory = ctypes.string_at(int(self.table[word]), span)
        return np.ndarray(shape, atom.type.dtype, memory, strides=strides).copy()


def _observed(
    call: KernelCall, got: Sequence[Array], meaning: Callable[[], Sequence[Value]]
) -> ObservedKernel:
    ops = "+".join(b.op.name for b in call.workload.body.body)
    name = "+".join(call.binding.origin) or ops
    return ObservedKernel(name, ops, call.implementation.template, got, meaning)
