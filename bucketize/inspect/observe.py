"""What each kernel of a call makes, as it runs in its clone, beside what its ops mean.

Segments are linked anew with what kernels make as results, so that each stays in memory of its own;
kernels, schedules and fusion are those of the program. What is written inside of another tensor, as
the operands of a concat are, is told with that one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bucketize.interpret import compute
from bucketize.ir import Atom, Binding, Const, Var
from bucketize.kernel.object import Kernel
from bucketize.link.image import Image, Supply
from bucketize.link.memory import Lent
from bucketize.link.plan import Plan
from bucketize.link.planner import launch_of, plan_of
from bucketize.op import Array, Value
from bucketize.program.instruction import KernelCall, Segment
from bucketize.program.program import Program
from bucketize.runtime.state import State
from bucketize.runtime.vm import Context


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
    expected: Sequence[Value]
    """What its ops mean, on the operands that it had."""


def observe(image: Image, arrays: Sequence[Value], function: str = "main") -> list[ObservedKernel]:
    """The kernels of a call of a function, in the order in which they run."""
    context = _ObservedContext(Image(image.program, _Planned(image.program, image.supply)))
    context.enter(image.program.routines[function], arrays)
    return context.seen


@dataclass(frozen=True)
class _Planned:
    """A supply that plans what it is asked for; all else is another one's."""

    program: Program
    supply: Supply

    def core(self, name: str) -> Kernel:
        return self.supply.core(name)

    def plan(self, segment: Segment) -> Plan:
        launch = partial(launch_of, target=self.program.target)
        return plan_of(segment, self.program.threads, launch)

    def kernel(self, name: str) -> Kernel:
        return self.supply.kernel(name)

    def constant(self, value: Array, call: KernelCall | None, argument: int) -> Array:
        return self.supply.constant(value, call, argument)

    def kernels(self) -> dict[str, Kernel]:
        return self.supply.kernels()

    def constant_bytes(self) -> int:
        return self.supply.constant_bytes()


class _ObservedContext(Context):
    """A context that keeps what kernels make."""

    def __init__(self, image: Image) -> None:
        super().__init__(image)
        self.seen: list[ObservedKernel] = []

    def new_state(self, segment: Segment) -> State:
        return _ObservedState(segment, self.image, self.lent, self.seen)


class _ObservedState(State):
    """A segment of which a run gives what its kernels make, too."""

    def __init__(
        self, segment: Segment, image: Image, lent: Lent, seen: list[ObservedKernel]
    ) -> None:
        super().__init__(_laid_open(segment), image, lent)
        self.first, self.seen = len(segment.fn.results), seen

    @property
    def undivided(self) -> bool:
        """No captured call passes `run` by."""
        return False

    def run(self, arrays: Sequence[Array], into: Mapping[int, Array] | None = None) -> list[Array]:
        results = super().run(arrays, into)
        assert self.sizes is not None
        sizes = dict(zip(self.plan.symbols, self.sizes, strict=True))
        env = dict(zip(self.segment.fn.results, results, strict=True))
        inputs = dict(zip(self.segment.fn.params, arrays, strict=True))
        self.seen += _kernels(self.segment, inputs, env, sizes)
        return results[: self.first]


def _laid_open(segment: Segment) -> Segment:
    """The segment with what its kernels make as results, where nothing else moves by that."""
    made = [o for call in segment.calls for o in call.binding.outs]
    own = [o for o in made if segment.root(o) is o and o not in segment.fn.results]
    whole = _with_results(segment, own)
    if _runs_as(whole, segment):
        return whole
    for out in own:
        more = _with_results(segment, [out])
        if _runs_as(more, segment):
            segment = more
    return segment


def _with_results(segment: Segment, more: Sequence[Var]) -> Segment:
    fn = segment.fn
    return Segment(replace(fn, results=(*fn.results, *more)), segment.every)


def _runs_as(one: Segment, other: Segment) -> bool:
    """Whether two segments run the same kernels on rows that lie as far apart."""
    if one.calls != other.calls:
        return False
    return all(one.pitches(call) == other.pitches(call) for call in one.calls)


def _kernels(
    segment: Segment,
    inputs: Mapping[Atom, Value],
    results: Mapping[Atom, Value],
    sizes: Mapping[str, int],
) -> Iterator[ObservedKernel]:
    """What was seen of each kernel, beside what its ops mean."""
    calls = {call.binding.outs[0]: call.at(sizes) for call in segment.calls}
    env = dict(inputs)
    for b in segment.fn.body:
        operands = [a.value if isinstance(a, Const) else env[a] for a in b.args]
        expected = compute(b, operands, sizes)
        env.update({o: results.get(o, e) for o, e in zip(b.outs, expected, strict=True)})
        if b.outs[0] in calls and all(o in results for o in b.outs):
            yield _observed(b, calls[b.outs[0]], [results[o] for o in b.outs], expected)


def _observed(
    b: Binding, call: KernelCall, got: Sequence[Array], expected: Sequence[Value]
) -> ObservedKernel:
    ops = "+".join(inner.op.name for inner in call.workload.body.body)
    name = "+".join(b.origin) or ops
    return ObservedKernel(name, ops, call.implementation.template, got, expected)
