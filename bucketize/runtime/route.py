"""Short cuts: input shapes that decisions lead straight to one plan need not walk there again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bucketize.call import bind_shapes
from bucketize.ir import Function
from bucketize.op import Array
from bucketize.runtime.segment import Plan
from bucketize.runtime.vm import Call, Code, Decide, RunSegment
from bucketize.types import evaluate


class Compiled(Protocol):
    """A function compiled for either executor."""

    fn: Function
    code: Code


@dataclass(frozen=True, eq=False)
class Route:
    """The plan that a call comes to, and which inputs it reads, in its order."""

    plan: Plan
    inputs: tuple[int, ...]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The results for inputs of the shapes that the route was found for."""
        return self.plan.run([arrays[i] for i in self.inputs])


def find_route(
    name: str, sizes: Mapping[str, int], compiled: Mapping[str, Compiled]
) -> Route | None:
    """The route of a call at these sizes, if nothing but decisions, calls and one segment is on it.

    Calls must hand on the parameters as they are, and results must come back as they are.
    """
    fn, code = compiled[name].fn, compiled[name].code
    while len(code.instructions) == 1 and isinstance(code.instructions[0], Decide):
        decide = code.instructions[0]
        if code.results != decide.outs:
            return None
        code = decide.blocks[decide.choose(*(sizes[s] for s in decide.symbols))]
    if len(code.instructions) != 1:
        return None
    last = code.instructions[0]
    if isinstance(last, Call) and last.binding.args == fn.params:
        return _behind_call(last, code, sizes, compiled)
    if isinstance(last, RunSegment) and code.results == last.segment.fn.results:
        params = last.segment.fn.params
        if all(p in fn.params for p in params):
            return Route(last.segment.plan(sizes), tuple(map(fn.params.index, params)))
    return None


def _behind_call(
    call: Call, code: Code, sizes: Mapping[str, int], compiled: Mapping[str, Compiled]
) -> Route | None:
    callee = call.binding.attrs["callee"]
    if code.results != call.binding.outs or callee not in compiled:
        return None
    shapes = [tuple(evaluate(d, sizes) for d in a.type.shape) for a in call.binding.args]
    return find_route(callee, bind_shapes(compiled[callee].fn.params, shapes), compiled)
