"""Where the time of a call goes: each kernel timed by itself, beside what the machine could do.

Kernels run as ever, on the table and the arena of a context; only the loop over them is Python's,
with a look at the clock around each. What the looking costs is measured, and left out. A group that
a call runs in strips is timed as a whole; what its kernels take of that is told by running each of
them alone, over its whole extent, in another context.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bucketize.busy import watched
from bucketize.errors import ArgumentError
from bucketize.inspect.predict import CALL_S, KernelRun, predicted_runs
from bucketize.inspect.roofline import Roofline, measured
from bucketize.inspect.row import RowState
from bucketize.kernel.work import work
from bucketize.link.block import GROUPED
from bucketize.link.image import Image
from bucketize.link.memory import Lent
from bucketize.op import Array
from bucketize.program.instruction import Compute, Instruction, KernelCall, Segment
from bucketize.program.program import Program, Routine
from bucketize.progress import Tell, announced, progress_bar, shown, steps
from bucketize.runtime.state import WHAT, State
from bucketize.runtime.thread_pool import NONE, Run
from bucketize.runtime.vm import Context, Registers, Sizes
from bucketize.table import pairs
from bucketize.timing import TICK_S, Call, interleaved, processor_seconds, wall_seconds
from bucketize.types import evaluate

if TYPE_CHECKING:
    import pandas as pd

BETWEEN = "(between kernels)"
RUNS = {
    "whole": "whole runs",
    "kernels": "kernel by kernel",
    "alone": "kernels of groups one by one",
}
"""What goes on, in words."""


@dataclass(frozen=True)
class Layer:
    """What a kernel, or numpy, computes in a call."""

    name: str
    """The nodes of the model that it comes from; without them its ops, both joined by "+"."""
    op: str
    kernel: str
    """The name of its template, or "numpy"."""
    shape: tuple[int, ...] | None
    """The shape of the first result."""
    schedule: str = ""
    why: str = ""
    """Where its implementation comes from: "log" or "default"."""
    flops: int | None = None
    """Operations of matrix products and convolutions; other ops do not count."""
    bytes: int | None = None
    """Bytes of operands and results, each once; None where no work model tells."""
    predicted_s: float | None = None
    """What the model of its template says that it takes; None for numpy."""
    group: int | None = None
    """The number of the group with which it runs in strips."""
    lines: int | None = None
    """Lines of the group's last result, in a strip."""


# --- timing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class TimedGroup:
    """Kernels that one run has run in strips, by what `State.strips` says of them."""

    number: int
    lines: int


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel or an op of the host in one run."""

    what: KernelCall | Compute
    sizes: Mapping[str, int]
    shape: tuple[int, ...] | None
    seconds: float
    """Seconds of the kernel or op; of its group, if it has one."""
    group: TimedGroup | None = None


def stopwatch(threads: int) -> Callable[[Call], float]:
    """What times a call of so many threads, best without what other processes take."""
    return processor_seconds if threads == 1 else wall_seconds


class _TimedState(RowState):
    """A segment whose kernels are timed: row by row, or each kernel alone."""

    def __init__(
        self, segment: Segment, image: Image, lent: Lent, taken: list[Timed], alone: bool
    ) -> None:
        super().__init__(segment, image, lent)
        self.taken = taken
        if alone:
            self.forbid_strips()
        self.stopwatch = stopwatch(self.plan.threads)
        kernels = self.linked.kernels[:0]
        self.idle = Run(kernels, NONE, self.chunks[:0], 0, 0, self.plan.threads)
        idle = interleaved({"": self._nothing}, least=100, stopwatch=self.stopwatch)
        self.idle_s = min(idle[""])

    def run_kernels(self) -> None:
        assert self.sizes is not None
        sizes = dict(zip(self.plan.symbols, self.sizes, strict=True))
        members = self._members(sizes)
        for row in self.rows:
            seconds = max(self.stopwatch(self.calls[row]) - self.idle_s, 0.0)
            group, calls = members.get(row, (None, self.segment.rows[row : row + 1]))
            self.taken += [Timed(call, sizes, None, seconds, group) for call in calls]

    def _members(self, sizes: Sizes) -> dict[int, tuple[TimedGroup, tuple[KernelCall, ...]]]:
        """By the row of each group that is run in strips, what is told of it, and its calls."""
        strips, members = self.strips(), {}
        for group in self.plan.groups.tolist():
            first, last = group[GROUPED.first], group[GROUPED.last]
            if first in strips:
                calls = tuple(c.at(sizes) for c in self.segment.calls[first : last + 1])
                members[group[GROUPED.step]] = TimedGroup(*strips[first]), calls
        return members

    def _nothing(self) -> None:
        """Run no kernel, with as much around it as `_call` has around one."""
        if self.plan.threads == 1:
            self.walk_word[WHAT] = 0
            self.walk(self.places[1])
        else:
            self._run(self.idle)


class TimedContext(Context):
    """A context that notes how long each kernel and each op of the host takes.

    Kernels are run alone, over their whole extents; or, if they are not, as in a call.
    """

    def __init__(self, image: Image, alone: bool = True) -> None:
        super().__init__(image)
        self.alone = alone
        self.taken: list[Timed] = []
        self.stopwatch = stopwatch(image.program.threads)

    def new_state(self, segment: Segment) -> State:
        return _TimedState(segment, self.image, self.lent, self.taken, self.alone)

    def step(self, instruction: Instruction, registers: Registers, sizes: Sizes) -> None:
        if not isinstance(instruction, Compute):
            super().step(instruction, registers, sizes)
            return
        step = super().step
        seconds = self.stopwatch(lambda: step(instruction, registers, sizes))
        shape = registers[instruction.binding.outs[0]].shape
        self.taken.append(Timed(instruction, {}, shape, seconds))

    def run_once(self, routine: Routine, inputs: Sequence[Array]) -> list[Timed]:
        """What one run took, in order."""
        self.taken.clear()
        self.invoke(routine, inputs)
        return list(self.taken)


def profile(
    image: Image,
    inputs: Sequence[Array],
    call: Callable[[], object],
    repetitions: int,
    roofline: Roofline | None,
    progress: Tell | bool | None = None,
) -> pd.DataFrame:
    """A row for each kernel of `main`, in order, and one for what `call` takes beyond them."""
    if not isinstance(repetitions, int) or repetitions < 1:
        raise ArgumentError(f"repetitions: expected at least 1, got {repetitions!r}")
    routine, threads = image.program.routines["main"], image.program.threads
    contexts = {"kernels": TimedContext(image, alone=False), "alone": TimedContext(image)}
    if not any(timed.group for timed in contexts["kernels"].run_once(routine, inputs)):
        del contexts["alone"]
    runs: dict[str, list[list[Timed]]] = {name: [] for name in contexts}

    def by_kernel(name: str) -> Call:
        def run() -> None:
            runs[name].append(contexts[name].run_once(routine, inputs))

        return run

    calls = {"whole": call, **{name: by_kernel(name) for name in contexts}}
    with shown(progress, progress_bar("profiling")) as tell:
        step = steps(tell, len(calls) * repetitions + 1)
        before = {name: announced(run, step, RUNS[name]) for name, run in calls.items()}
        # each after one of its own kind: the caches hold what they hold in a stream of calls
        with watched() as watch:
            times = interleaved(
                calls, least=repetitions, before=before, stopwatch=stopwatch(threads)
            )
            watch.rounds({"the whole": times["whole"]})
        step("what the machine could do")
        roof = roofline or measured(threads)
    layers = {name: list(zip(*of[1::2], strict=True)) for name, of in runs.items()}
    parts = divided(layers["kernels"], layers.get("alone", layers["kernels"]))
    frame = _frame(parts, times["whole"], roof, image.program)
    frame.attrs["machine"] = watch.machine
    return frame


Layers: TypeAlias = Sequence[tuple[Timed, ...]]
"""By kernel what it took in each of some runs."""


def divided(layers: Layers, alone: Layers) -> Layers:
    """Layers, each of a group with its part of what the group takes: as they take it `alone`."""
    medians = [max(statistics.median(t.seconds for t in runs), TICK_S) for runs in alone]
    whole: dict[TimedGroup | None, float] = defaultdict(float)
    for runs, seconds in zip(layers, medians, strict=True):
        whole[runs[0].group] += seconds
    return [
        tuple(replace(t, seconds=t.seconds * seconds / whole[runs[0].group]) for t in runs)
        if runs[0].group
        else runs
        for runs, seconds in zip(layers, medians, strict=True)
    ]


# --- the frame -----------------------------------------------------------------------------------


def _frame(
    layers: Sequence[tuple[Timed, ...]], whole: Sequence[float], roof: Roofline, program: Program
) -> pd.DataFrame:
    import pandas as pd

    firsts = [runs[0] for runs in layers]
    expected = predicted_runs(program, [KernelRun(first.what, first.sizes) for first in firsts])
    rows = [_row(runs, seconds, roof) for runs, seconds in zip(layers, expected, strict=True)]
    rest = max(statistics.median(whole) - sum(row["time_s"] for row in rows), 0.0)
    between = asdict(Layer(BETWEEN, "", "", None, predicted_s=CALL_S))
    rows.append({**between, **_rates(None, None, rest, roof), "time_s": rest, "iqr_s": None})
    frame = pd.DataFrame(rows)
    frame["share"] = frame["time_s"] / frame["time_s"].sum()
    frame.attrs = {
        "roofline": roof,
        "whole_s": statistics.median(whole),
        "whole_iqr_s": iqr(whole),
        "predicted_s": frame["predicted_s"].sum(),
    }
    return frame[COLUMNS]


COLUMNS = [
    *("name", "op", "kernel", "shape", "time_s", "iqr_s", "share", "predicted_s", "flops", "bytes"),
    *("gflops", "gbytes_s", "intensity", "roofline", "bound", "schedule", "why"),
    *("group", "lines"),
]


def _row(runs: Sequence[Timed], expected: float | None, roof: Roofline) -> dict[str, Any]:
    """A kernel over all runs: the median, and how far apart the quartiles are."""
    times = [run.seconds for run in runs]
    layer, seconds = _layer(runs[0], expected), statistics.median(times)
    rates = _rates(layer.flops, layer.bytes, seconds, roof)
    return {**asdict(layer), **rates, "time_s": seconds, "iqr_s": iqr(times)}


def _rates(flops: int | None, moved: int | None, seconds: float, roof: Roofline) -> dict[str, Any]:
    """What was attained, of what was possible; nothing of a kernel too short for the clock."""
    if flops is None or not moved or seconds == 0:
        return dict.fromkeys(("gflops", "gbytes_s", "intensity", "roofline", "bound"))
    intensity = flops / moved
    return {
        "gflops": flops / seconds / 1e9,
        "gbytes_s": moved / seconds / 1e9,
        "intensity": intensity,
        "roofline": roof.seconds(flops, moved) / seconds,
        "bound": "compute" if intensity > roof.ridge else "memory",
    }


def iqr(values: Sequence[float]) -> float:
    """The distance between the quartiles."""
    low, high = np.quantile(values, [0.25, 0.75])
    return float(high - low)


def _layer(timed: Timed, predicted_s: float | None) -> Layer:
    what = timed.what
    if isinstance(what, Compute):
        name = what.binding.op.name
        return Layer("+".join(what.binding.origin) or name, name, "numpy", timed.shape)
    members = "+".join(b.op.name for b in what.workload.body.body)
    least = work(what.workload)
    return Layer(
        name="+".join(what.binding.origin) or members,
        op=members,
        kernel=what.implementation.template,
        shape=tuple(evaluate(d, timed.sizes) for d in what.binding.outs[0].type.shape),
        schedule=pairs(what.implementation.schedule, " "),
        why=what.why,
        flops=2 * evaluate(least.multiplications, timed.sizes),
        bytes=evaluate(least.moved, timed.sizes),
        predicted_s=predicted_s,
        group=timed.group.number if timed.group else None,
        lines=timed.group.lines if timed.group else None,
    )
