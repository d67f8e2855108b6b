"""What a call takes by the models of its kernels, before anything is linked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bucketize.call import check_sizes, refusal
from bucketize.ir import Const
from bucketize.kernel.cost import seconds
from bucketize.kernel.templates import TEMPLATES
from bucketize.program.instruction import Call, Compute, KernelCall, Refuse, RunSegment
from bucketize.program.path import way
from bucketize.program.program import Program
from bucketize.types import Sizes

CALL_S = 1.5e-5
"""From Python into a program at a shape seen before, and back: see `-m benchmarks overhead`."""


@dataclass(frozen=True)
class Expected:
    """A kernel in a call, or an op that numpy computes."""

    what: KernelCall | Compute
    seconds: float | None
    """Of one run; None where there is no model, or a run alone tells the sizes."""
    times: int = 1
    """How often it is run, in a loop."""


@dataclass(frozen=True)
class Prediction:
    """What a call at some sizes takes."""

    clone: str
    """The function that serves them."""
    kernels: tuple[Expected, ...]
    """In the order in which they run."""

    @property
    def seconds(self) -> float:
        """Seconds of the whole call, without those of kernels that are not known."""
        return CALL_S + sum(k.times * (k.seconds or 0.0) for k in self.kernels)


def predicted(program: Program, sizes: Sizes, function: str = "main") -> Prediction:
    """What a function takes, or the clone that serves the sizes, on the program's target.

    Args:
        program: of a module; what the sizes come to is decided, nothing is linked or run.
        sizes: by symbol name, of all symbols in the types of the inputs.
        function: where the call begins: `main`, or a clone by its name.

    Raises:
        ShapeError: a size is missing.
        NoBucketError, ShapeError or TypeRelError: what serves the sizes refuses them.

    """
    check_sizes(program.routines[function].params, sizes)
    clone = function
    runs: list[tuple[KernelCall | Compute, Sizes, int]] = []
    for instruction, inside, times in way(program, function, sizes):
        if isinstance(instruction, Call):
            clone = program.routines.serving(instruction.callee).name
        elif isinstance(instruction, RunSegment):
            segment = instruction.segment
            is_known = all(s in inside for s in segment.symbols)
            calls = [c.at(inside) if is_known else c for c in segment.calls]
            runs += [(call, inside, times) for call in calls]
        elif isinstance(instruction, Compute):
            runs.append((instruction, inside, times))
        elif isinstance(instruction, Refuse):
            raise refusal(instruction.binding, dict(inside))
    cold = constant_bytes(what for what, _, _ in runs)
    kernels = [
        Expected(what, predicted_kernel(program, what, inside, cold), times)
        for what, inside, times in runs
    ]
    return Prediction(clone, tuple(kernels))


def constant_bytes(kernels: Iterable[KernelCall | Compute]) -> int:
    """Bytes of the constants that kernels read: what passes through the caches in each call."""
    calls = (k for k in kernels if isinstance(k, KernelCall))
    sizes = {id(a.value): a.value.nbytes for k in calls for a in k.args if isinstance(a, Const)}
    return sum(sizes.values())


def predicted_kernel(
    program: Program, what: KernelCall | Compute, sizes: Sizes, cold_bytes: int
) -> float | None:
    """The seconds of one, as `Expected` has them."""
    if isinstance(what, Compute) or TEMPLATES[what.implementation.template].cost is None:
        return None
    if not what.workload.body.mentioned() <= sizes.keys():
        return None
    implementation, target, threads = what.implementation, program.target, program.threads
    return seconds(what.workload, implementation, sizes, target, cold_bytes, threads)
