"""What a call takes by the models of its kernels, before anything is linked."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bucketize.call import check_sizes, refusal
from bucketize.kernel.cost import model_of
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.work import read_in_part
from bucketize.lower.cost import distinct_bytes
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
    """Seconds of one run; None where there is no model, or a run alone tells the sizes."""
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
    """What a function takes at sizes: see `predictions`."""
    return predictions(program, [sizes], function)[0]


def predictions(
    program: Program, points: Sequence[Sizes], function: str = "main", threads: int | None = None
) -> list[Prediction]:
    """What a function takes, or the clone that serves the sizes, on the program's target.

    A kernel that comes again, or at many sizes, is asked for once.

    Args:
        program: of a module; what the sizes come to is decided, nothing is linked or run.
        points: sizes by symbol name, of all symbols in the types of the inputs.
        function: where the call begins: `main`, or a clone by its name.
        threads: that share each kernel; None: the program's.

    Returns:
        Of each point what it takes, in order.

    Raises:
        ShapeError: a size is missing.
        NoBucketError, ShapeError or TypeRelError: what serves the sizes refuses them.

    """
    ways = [_way(program, sizes, function) for sizes in points]
    costs = _Costs(program, threads or program.threads)
    for _, runs in ways:
        costs.ask(runs)
    seconds = costs.seconds()
    return [
        Prediction(clone, tuple(Expected(r.what, next(seconds), r.times) for r in runs))
        for clone, runs in ways
    ]


class KernelRun(NamedTuple):
    """A kernel on the way of a call, or an op that numpy computes."""

    what: KernelCall | Compute
    sizes: Sizes
    times: int = 1


def _way(program: Program, sizes: Sizes, function: str) -> tuple[str, list[KernelRun]]:
    """The clone that serves sizes, and what it runs."""
    check_sizes(program.routines[function].params, sizes)
    clone, runs = function, list[KernelRun]()
    for instruction, inside, times, _ in way(program, function, sizes):
        if isinstance(instruction, Call):
            clone = program.routines.serving(instruction.callee).name
        elif isinstance(instruction, RunSegment):
            segment = instruction.segment
            is_known = all(s in inside for s in segment.symbols)
            calls = [c.at(inside) if is_known else c for c in segment.calls]
            runs += [KernelRun(call, inside, times) for call in calls]
        elif isinstance(instruction, Compute):
            runs.append(KernelRun(instruction, inside, times))
        elif isinstance(instruction, Refuse):
            raise refusal(instruction.binding, dict(inside))
    return clone, runs


def predicted_runs(program: Program, runs: Sequence[KernelRun]) -> list[float | None]:
    """The seconds of each run of one call, as `Expected` has them."""
    costs = _Costs(program, program.threads)
    costs.ask(runs)
    return list(costs.seconds())


def constant_bytes(kernels: Iterable[KernelCall | Compute]) -> int:
    """Bytes of the constants of kernels, each counted once."""
    calls = (k for k in kernels if isinstance(k, KernelCall))
    return distinct_bytes(a for k in calls for a in k.args)


def passed_bytes(kernels: Iterable[KernelCall | Compute]) -> int:
    """Bytes of constants that pass through the caches in each call.

    A table of which a part is read, as of embeddings, is none of them.
    """
    calls = (k for k in kernels if isinstance(k, KernelCall))
    pairs = ((k, *pair) for k in calls for pair in zip(k.workload.body.params, k.args, strict=True))
    return distinct_bytes(a for k, param, a in pairs if param is not read_in_part(k.workload))


class _Costs:
    """What kernels take, each asked of its model at all of its sizes at once."""

    def __init__(self, program: Program, threads: int) -> None:
        self._program, self._threads = program, threads
        self._asked: dict[Hashable, tuple[KernelCall, int, dict[int, Sizes]]] = {}
        """By workload, implementation and cold bytes: one of the calls, and the sizes by `id`."""
        self._order: list[tuple[Hashable, int] | None] = []

    def ask(self, runs: Sequence[KernelRun]) -> None:
        """Ask for the kernels of a call, which lie in each other's caches."""
        cold = passed_bytes(r.what for r in runs)
        for what, sizes, _ in runs:
            if isinstance(what, Compute) or not self._is_told(what, sizes):
                self._order.append(None)
                continue
            key = what.workload, what.implementation.key, cold
            self._asked.setdefault(key, (what, cold, {}))[2][id(sizes)] = sizes
            self._order.append((key, id(sizes)))

    def seconds(self) -> Iterator[float | None]:
        """Seconds of each run, in the order of asking; None where nothing tells."""
        taken: dict[tuple[Hashable, int], float] = {}
        for key, (call, cold, sizes) in self._asked.items():
            at = list(sizes.values()), self._program.target, cold, self._threads
            each = model_of(call.workload, call.implementation).seconds_at(*at).tolist()
            taken.update(((key, i), s) for i, s in zip(sizes, each, strict=True))
        yield from (None if asked is None else taken[asked] for asked in self._order)

    def _is_told(self, call: KernelCall, sizes: Sizes) -> bool:
        """Whether there is a model of a kernel, and sizes are known before a run."""
        has_model = TEMPLATES[call.implementation.template].cost is not None
        return has_model and call.workload.body.mentioned() <= sizes.keys()
