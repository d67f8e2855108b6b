"""Where the time of a call goes: each kernel timed by itself, beside what the machine could do.

Kernels run as ever, on the table and the arena of a context; only the loop over them is Python's,
with a look at the clock around each. What the looking costs is measured, and left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from bucketize.errors import ArgumentError
from bucketize.kernel.work import work
from bucketize.op import Array
from bucketize.program.instruction import Compute, Instruction, KernelCall, Segment
from bucketize.program.plan import WORD
from bucketize.program.predict import CALL_S, constant_bytes, predicted_kernel
from bucketize.program.program import Program, Routine
from bucketize.progress import Tell, announced, progress_bar, shown, steps
from bucketize.runtime.image import Image, Linked
from bucketize.runtime.native import function_at
from bucketize.runtime.roofline import Roofline, measured
from bucketize.runtime.state import State
from bucketize.runtime.storage import Arena, address
from bucketize.runtime.team import NONE, ONE, TEAM, Run
from bucketize.runtime.vm import Context, Registers, Sizes
from bucketize.timing import Call, interleaved, processor_seconds, wall_seconds
from bucketize.types import evaluate

BETWEEN = "(between kernels)"
RUNS = {"whole": "whole runs", "kernels": "kernel by kernel"}
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
    """Of the first result."""
    schedule: str = ""
    why: str = ""
    """Where its implementation comes from: "log" or "default"."""
    flops: int | None = None
    """Those of matrix products and convolutions; other ops do not count."""
    bytes: int | None = None
    """Those of operands and results, each once; None where no work model tells."""
    predicted_s: float | None = None
    """What the model of its template says that it takes; None for numpy."""


# --- timing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel or an op of the host in one run."""

    what: KernelCall | Compute
    sizes: Mapping[str, int]
    shape: tuple[int, ...] | None
    seconds: float


def stopwatch(threads: int) -> Callable[[Call], float]:
    """What times a call of so many threads, best without what other processes take."""
    return processor_seconds if threads == 1 else wall_seconds


class _TimedState(State):
    """A segment whose kernels are run one by one, from here."""

    def __init__(
        self, segment: Segment, linked: Linked, image: Image, arena: Arena, taken: list[Timed]
    ) -> None:
        super().__init__(segment, linked, image, arena)
        self.taken = taken
        self.at_once = False
        self.forbid_strips()
        plan = linked.plan
        self.calls = [self._call(i) for i in range(len(segment.calls))]
        self.stopwatch = stopwatch(plan.threads)
        self.idle = Run(linked.kernels[:0], NONE, self.chunks[:0], 0, 0, plan.threads)
        idle = interleaved({"": self._nothing}, least=100, stopwatch=self.stopwatch)
        self.idle_s = min(idle[""])

    def run_kernels(self) -> None:
        assert self.sizes is not None
        sizes = dict(zip(self.plan.symbols, self.sizes, strict=True))
        for what, call in zip(self.segment.calls, self.calls, strict=True):
            seconds = self.stopwatch(call)
            self.taken.append(Timed(what, sizes, None, max(seconds - self.idle_s, 0.0)))

    def _call(self, i: int) -> Callable[[], None]:
        """The kernel of one row of the table; the threads' rows, if there are several."""
        plan, kernels = self.plan, self.linked.kernels[i : i + 1]
        stride = plan.width * WORD
        row = address(self.table) + i * plan.threads * stride
        if plan.threads == 1:
            native = function_at(int(kernels[0]))
            return lambda: native(row)
        run = Run(kernels, ONE, self.chunks[i : i + 1], row, stride, plan.threads)
        return lambda: self._run(run)

    def _run(self, run: Run) -> None:
        run.cut()
        TEAM.run(self.share, run)

    def _nothing(self) -> None:
        """As much around no kernel as `_call` has around one."""
        if self.plan.threads == 1:
            self.walk_word[0] = 0
            self.walk(self.places[1])
        else:
            self._run(self.idle)


class TimedContext(Context):
    """A context that notes how long each kernel and each op of the host takes."""

    def __init__(self, image: Image) -> None:
        super().__init__(image)
        self.taken: list[Timed] = []
        self.stopwatch = stopwatch(image.program.threads)

    def new_state(self, segment: Segment) -> State:
        linked = self.image.linked(segment)
        return _TimedState(segment, linked, self.image, self.arena, self.taken)

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
    context, routine = TimedContext(image), image.program.routines["main"]
    runs: list[list[Timed]] = []

    def by_kernel() -> None:
        runs.append(context.run_once(routine, inputs))

    calls, threads = {"whole": call, "kernels": by_kernel}, image.program.threads
    with shown(progress, progress_bar("profiling")) as tell:
        step = steps(tell, 2 * repetitions + 1)
        before = {name: announced(run, step, RUNS[name]) for name, run in calls.items()}
        # each after one of its own kind: the caches hold what they hold in a stream of calls
        times = interleaved(calls, least=repetitions, before=before, stopwatch=stopwatch(threads))
        step("what the machine could do")
        roof = roofline or measured(threads)
    return _frame(list(zip(*runs[1::2], strict=True)), times["whole"], roof, image.program)


# --- the frame -----------------------------------------------------------------------------------


def _frame(
    layers: Sequence[tuple[Timed, ...]], whole: Sequence[float], roof: Roofline, program: Program
) -> pd.DataFrame:
    cold = constant_bytes(runs[0].what for runs in layers)
    rows = [_row(runs, roof, program, cold) for runs in layers]
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
]


def _row(
    runs: Sequence[Timed], roof: Roofline, program: Program, cold_bytes: int
) -> dict[str, Any]:
    """A kernel over all runs: the median, and how far apart the quartiles are."""
    times = [run.seconds for run in runs]
    expected = predicted_kernel(program, runs[0].what, runs[0].sizes, cold_bytes)
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
        schedule=" ".join(f"{k}={v}" for k, v in what.implementation.schedule.items()),
        why=what.why,
        flops=2 * evaluate(least.multiplications, timed.sizes),
        bytes=evaluate(least.moved, timed.sizes),
        predicted_s=predicted_s,
    )
