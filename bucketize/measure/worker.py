"""The child process that compiles and measures: `python -m bucketize.measure.worker`.

Questions are pickles, a line each on stdin; events go as lines of JSON to what was stdout at the
start; what a template or a kernel prints goes to stderr. Before each stage an alarm is set whose
signal ends the process even in native code, so that a hanging kernel does not outlive its parent.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import IO, Any

from bucketize.busy import machine_load
from bucketize.compare import relative_error
from bucketize.errors import BucketizeError, CacheError, TuneError, unknown_name
from bucketize.kernel.build import build, is_built
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.work import FORK, work
from bucketize.log.outcome import CACHED, COMPILED, Outcome
from bucketize.machine.host import host
from bucketize.measure.case import KernelCase, Output, case_of, fault
from bucketize.measure.job import Job
from bucketize.measure.process import Event, Limits, import_plugins
from bucketize.measure.timer import TimedKernel, timed
from bucketize.op import Array
from bucketize.runtime.thread_pool import check_threads
from bucketize.types import evaluate

GRACE_S = 5.0  # the parent's limit comes first
MOST_TURNS = 64  # arrays: small constants are colder in the graph, and cost little

Say = Callable[..., None]


# --- compiling -----------------------------------------------------------------------------------


def built(source: str, hint: str, say: Say) -> Event:
    """Have a kernel in the cache; what it took, or what is wrong with it."""
    say("compile")
    try:
        return {"error": "", "compile_s": build(source, name_hint=hint).compile_s}
    except CacheError as e:
        return _refused(e)
    except Exception as e:  # whatever a template or numba raises is an outcome
        return {"error": f"{type(e).__name__}: {e}"}


# --- timing --------------------------------------------------------------------------------------


def measured(job: Job, case: KernelCase, say: Say) -> list[Outcome]:
    """The outcomes of a job; `say(stage, **more)` announces each stage before it begins."""
    tried = [_Measurement(job, case, one) for one in job.implementations]
    for i, trial in enumerate(tried):
        trial.check(i, say)
    able = [trial for trial in tried if not trial.outcome.failed]
    warm = [a for a, c in zip(case.inputs, job.workload.constant, strict=True) if not c]
    taken = timed([t.call(_turns(job, case)) for t in able], warm, job.rounds, lambda: say("run"))
    seconds, load = iter(taken), machine_load()
    return [
        t.outcome
        if t.outcome.failed
        else replace(t.outcome, seconds=tuple(next(seconds)), load=load)
        for t in tried
    ]


class _Measurement:
    """One implementation in a job: first checked, then timed beside the others."""

    def __init__(self, job: Job, case: KernelCase, implementation: Implementation) -> None:
        self.job, self.case, self.made = job, case, implementation
        self.template = TEMPLATES[implementation.template]
        self.outcome = Outcome()

    def check(self, number: int, say: Say) -> None:
        """Compile, run once, compare."""
        say("compile", implementation=number)
        reason = self.template.valid(self.case.workload, self.made.schedule, host())
        if reason:
            self.outcome = Outcome(error_kind="invalid", error=reason)
            return
        self.output = Output(self.case.expected)
        try:
            seconds = self.prepare()
            call = self.call()
        except CacheError:  # this machine's fault, and none of the kernel
            raise
        except Exception as e:  # whatever a template or numba raises is an outcome
            self.outcome = Outcome(error_kind="compile", error=f"{type(e).__name__}: {e}")
            return
        say("run", implementation=number)
        call()
        error = relative_error(self.output.array, self.case.expected)
        self.outcome = Outcome(
            build=self.build, compile_s=seconds, max_rel_err=error, packed_bytes=self.packed_bytes
        )
        if wrong := fault(error, self.output):
            self.outcome = replace(self.outcome, error_kind="wrong_answer", error=wrong)

    def prepare(self) -> float:
        """Get the kernel, and its layouts of the constants; the seconds of the first."""
        case, schedule, target = self.case, self.made.schedule, host()
        source = self.template.source(case.workload, schedule, target)
        self.build = CACHED if is_built(source, self.template.name) else COMPILED
        kernel = build(source, name_hint=self.template.name)
        self.address = kernel.address
        self.launch = self.template.launch(case.concrete, schedule, case.shapes, target)
        self.keys = {
            i: self.template.pack_key(case.workload, schedule, i)
            for i, constant in enumerate(self.job.workload.constant)
            if constant
        }
        return kernel.compile_s

    def call(self, turns: int = 0) -> TimedKernel:
        """The call, with so many arrays in place of each constant, or with the constants."""
        case, job = self.case, self.job
        arguments: list[Sequence[Array]] = [[array] for array in case.inputs]
        self.packed_bytes = 0
        for i, key in self.keys.items():
            pack = partial(self.template.pack, case.workload, self.made.schedule, i, case.inputs[i])
            constant = case.laid_out(i, key, pack)
            self.packed_bytes += constant.nbytes
            arguments[i] = case.ring(i, constant, turns) if turns else [constant]
        threads = job.threads if evaluate(work(case.concrete).total, {}) >= FORK else 1
        return TimedKernel(self.address, self.launch, [[self.output.array], *arguments], threads)


def _turns(job: Job, case: KernelCase) -> int:
    """How many arrays take turns in place of each constant, to be as cold as in the graph.

    Until one comes again as many bytes have passed through the caches as the graph has weights.
    """
    weights = sum(a.nbytes for a, c in zip(case.inputs, job.workload.constant, strict=True) if c)
    target = host()
    largest = max(target.l1, target.l2, target.l3)
    others = min(job.weight_bytes, 2 * largest)  # more makes no difference
    return min(max(round(others / max(weights, 1)), 1), MOST_TURNS)


# --- the process ---------------------------------------------------------------------------------


def main() -> None:
    """Serve until stdin ends; the argument tells limits, and what to import first, as JSON."""
    limits, plugins = json.loads(sys.argv[1])
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        import_plugins(plugins)
    except TuneError as e:
        sys.exit(str(e))
    _serve(events, Limits(**limits))


def _serve(events: IO[str], limits: Limits) -> None:
    def send(event: Event) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    def say(stage: str, **more: object) -> None:
        _alarm(limits.of(stage))
        send({"stage": stage, **more})

    send({"ready": os.getpid()})
    for line in sys.stdin:
        _alarm(limits.of("prepare"))
        send(_answer(pickle.loads(base64.b64decode(line)), say))
        signal.setitimer(signal.ITIMER_REAL, 0)


def _answer(asked: dict[str, Any], say: Say) -> Event:
    if "build" in asked:
        source, hint = asked["build"]
        return built(source, hint, say)
    job: Job = asked["job"]
    try:
        case = _prepared(job)
    except BucketizeError as e:
        return _refused(e)
    try:
        return {"outcomes": [asdict(outcome) for outcome in measured(job, case, say)]}
    except CacheError as e:
        return _refused(e)


def _refused(error: BucketizeError) -> Event:
    """What ends a session: it says nothing of kernels."""
    return {"refused": "; ".join([error.message, *error.notes])}


def _prepared(job: Job) -> KernelCase:
    for implementation in job.implementations:
        if implementation.template not in TEMPLATES:
            raise unknown_name("template", implementation.template, TEMPLATES)
    check_threads(job.threads)
    return case_of(job)


def _alarm(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_S)


if __name__ == "__main__":
    main()
