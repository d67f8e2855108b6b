"""The template of rotary embeddings: x cos + (the halves of x exchanged, one of them negative) sin.

As exporters write it: slices, a negation, a concatenation, two products and a sum of the same rows,
maybe with a transpose before it, along whose strides the rows are read in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from bucketize.ir import Atom, Binding
from bucketize.kernel.emit.module import kernel_source
from bucketize.kernel.gemm.epilogue import FLOAT32
from bucketize.kernel.gemm.level import byte_strides, merged, table
from bucketize.kernel.loops.cost import Counts, LoopCounts, Steps
from bucketize.kernel.loops.loop import spread
from bucketize.kernel.rotary import loops
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.template import Launch, Shapes, Template
from bucketize.kernel.workload import Workload, accepted
from bucketize.machine.target import Target
from bucketize.op import Op
from bucketize.ops import add, concat, mul, neg, strided_slice, transpose
from bucketize.ops.rules import slice_ends
from bucketize.types import AnyDim, Shape, product

PLAIN = 7
"""The ops of a rotary embedding, but for a transpose."""


@dataclass(frozen=True)
class Rotary:
    """A workload as a rotary embedding: the places of its arguments."""

    x: int
    axes: tuple[int, ...]
    """The order in which the axes of x are read."""
    cos: int
    sin: int


@dataclass(frozen=True)
class _Makers:
    """What makes the values of a group."""

    of: Mapping[Atom, Binding]

    def made_by(self, atom: Atom, op: Op) -> Binding | None:
        b = self.of.get(atom)
        return b if b is not None and b.op is op else None

    def products(self, atom: Atom) -> Iterator[tuple[Atom, Atom]]:
        """The factors of a product, either first."""
        if b := self.made_by(atom, mul):
            yield from ((b.args[0], b.args[1]), (b.args[1], b.args[0]))

    def turned(self, atom: Atom) -> Atom | None:
        """What of its halves are exchanged in a value, the second one negative."""
        joined = self.made_by(atom, concat)
        if joined is None or len(joined.args) != 2:
            return None
        minus = self.made_by(joined.args[0], neg)
        high = self.made_by(minus.args[0], strided_slice) if minus else None
        low = self.made_by(joined.args[1], strided_slice)
        if high is None or low is None or high.args[0] is not low.args[0]:
            return None
        x = high.args[0]
        size, last = x.type.shape[-1], len(x.type.shape) - 1
        if not isinstance(size, int) or size % 2 or joined.attrs["axis"] != last:
            return None
        halves = _cut(low, last, size), _cut(high, last, size)
        return x if halves == ((0, size // 2), (size // 2, size)) else None


def _cut(b: Binding, axis: int, size: int) -> tuple[object, object] | None:
    """Where a slice begins and ends along the only axis that it cuts."""
    attrs = b.attrs
    if tuple(attrs["axes"]) != (axis,) or tuple(attrs["strides"]) != (1,):
        return None
    return slice_ends(size, attrs["begin"][0], attrs["end"][0], 1)


def rotary_of(workload: Workload) -> Rotary | None:
    """The workload as a rotary embedding; None if it is none."""
    body, makers = workload.body.body, _Makers({b.outs[0]: b for b in workload.body.body})
    total = makers.made_by(workload.body.results[0], add)
    for x, cos, sin in _readings(total, makers) if total else ():
        turn = makers.made_by(x, transpose)
        read, axes = (turn.args[0], turn.attrs["axes"]) if turn else (x, range(len(x.type.shape)))
        if len(body) == PLAIN + bool(turn) and _lie(workload, read, tuple(axes), cos, sin):
            at = workload.body.params.index
            return Rotary(at(read), tuple(axes), at(cos), at(sin))
    return None


def _readings(total: Binding, makers: _Makers) -> Iterator[tuple[Atom, Atom, Atom]]:
    """What a sum may have for x, cos and sin."""
    one, other = total.args
    for plain, exchanged in ((one, other), (other, one)):
        for turned, sin in makers.products(exchanged):
            x = makers.turned(turned)
            if x is not None:
                yield from ((x, cos, sin) for y, cos in makers.products(plain) if y is x)


def _lie(workload: Workload, x: Atom, axes: tuple[int, ...], cos: Atom, sin: Atom) -> bool:
    """Whether the arguments lie as the kernel reads them: rows of x and its factors in memory."""
    out, params = workload.result, workload.body.params
    factors = all(_repeats(a.type.shape, out.shape) for a in (cos, sin))
    floats = all(a in params and a.type.dtype == FLOAT32 for a in (x, cos, sin))
    whole = len(out.shape) > 1 and axes[-1] == len(axes) - 1
    return factors and floats and whole and tuple(x.type.shape[a] for a in axes) == out.shape


def _repeats(shape: Shape, out: Shape) -> bool:
    """Whether an array is whole along the last axis, and along the others whole or repeated."""
    behind = out[len(out) - len(shape) :]
    if not shape or len(shape) > len(out) or shape[-1] != out[-1]:
        return False
    pairs = zip(shape, behind, strict=True)
    return all(not isinstance(d, AnyDim) and d in (1, o) for d, o in pairs)


def _launch(workload: Workload, _: Schedule, shapes: Shapes, _target: Target) -> Launch:
    """Over the rows of the result."""
    rotary, *batch = accepted(rotary_of(workload)), *shapes[-1][:-2]
    *arguments, out = shapes
    x = byte_strides(arguments[rotary.x], len(out))
    reads = [[x[a] for a in rotary.axes]]
    for place in (rotary.cos, rotary.sin):
        given = arguments[place]
        reads.append(list(spread(given, out, byte_strides(given, len(out)))))
    reads.append(byte_strides(out, len(out)))
    levels = merged([(size, [r[a] for r in reads]) for a, size in enumerate(batch)])
    levels = levels or [(1, [0] * len(reads))]
    words = (out[-1] // 2, out[-2], len(levels), *(r[-2] for r in reads), *table(levels))
    return Launch(words, product(out[:-1]))


def _counts(_workload: Workload, _: Schedule, at: LoopCounts) -> Counts:
    half, *_rest = at.dims
    return {"row": at.extent, "simple": 8 * at.extent * half}


def _source(workload: Workload, _: Schedule, target: Target) -> str:
    rotary = accepted(rotary_of(workload))
    places = {"x": rotary.x, "cos": rotary.cos, "sin": rotary.sin}
    return kernel_source(loops.__name__, {"lanes": target.lanes, **places})


TEMPLATE = Template(
    name="rotary",
    accepts=lambda workload: rotary_of(workload) is not None,
    source=_source,
    launch=_launch,
    cost=partial(Steps, _launch, _counts),
)
