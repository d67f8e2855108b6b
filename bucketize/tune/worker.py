"""The child process that compiles and measures: `python -m bucketize.tune.worker`.

Questions come as lines of JSON on stdin, events go as lines of JSON to what was stdout at the
start; what a template or a kernel prints goes to stderr. Before each stage an alarm is set whose
signal ends the process even in native code, so that a hanging kernel does not outlive its parent.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import IO, Any

from bucketize.compare import relative_error
from bucketize.errors import BucketizeError, unknown_name
from bucketize.kernel.build import build
from bucketize.kernel.object import Kernel
from bucketize.kernel.target import Target, host
from bucketize.kernel.template import Implementation
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.work import FORK, work
from bucketize.runtime.native import check_threads
from bucketize.tune.call import Call, timed
from bucketize.tune.case import Case, Output, case_of, fault
from bucketize.tune.child import Event, Limits
from bucketize.tune.measure import Job, Outcome
from bucketize.types import evaluate

GRACE_S = 5.0  # the parent's limit comes first

Say = Callable[..., None]


# --- compiling -----------------------------------------------------------------------------------


def built(source: str, hint: str, say: Say) -> Event:
    """Have a kernel in the cache; what it took, or what is wrong with it."""
    say("compile")
    try:
        return {"error": "", "compile_s": build(source, name_hint=hint).compile_s}
    except Exception as e:  # whatever a template or numba raises is an outcome
        return {"error": f"{type(e).__name__}: {e}"}


# --- timing --------------------------------------------------------------------------------------


def measured(job: Job, case: Case, say: Say) -> list[Outcome]:
    """The outcomes of a job; `say(stage, **more)` announces each stage before it begins."""
    tried = [_Trial(job, case, made) for made in job.implementations]
    for i, trial in enumerate(tried):
        trial.check(i, say)
    calls = [t.call for t in tried if t.call is not None]
    warm = [a for a, c in zip(case.inputs, job.constant, strict=True) if not c]
    seconds = iter(timed(calls, warm, job.rounds, lambda: say("run")))
    return [t.outcome if t.call is None else t.with_seconds(next(seconds)) for t in tried]


class _Trial:
    """One implementation in a job: first checked, then timed beside the others."""

    def __init__(self, job: Job, case: Case, made: Implementation) -> None:
        self.job, self.case, self.made = job, case, made
        self.outcome = Outcome()
        self.call: Call | None = None

    def check(self, number: int, say: Say) -> None:
        """Compile, run once, compare."""
        say("compile", implementation=number)
        reason = TEMPLATES[self.made.template].valid(self.case.workload, self.made.schedule, host())
        if reason:
            self.outcome = Outcome(error_kind="invalid", error=reason)
            return
        output = Output(self.case.expected)
        try:
            kernel, call = self.compiled(output)
        except Exception as e:  # whatever a template or numba raises is an outcome
            self.outcome = Outcome(error_kind="compile", error=f"{type(e).__name__}: {e}")
            return
        say("run", implementation=number)
        call()
        error = relative_error(output.array, self.case.expected)
        wrong = fault(error, output)
        self.outcome = Outcome(compile_s=kernel.compile_s, max_rel_err=error)
        if wrong:
            self.outcome = replace(self.outcome, error_kind="wrong_answer", error=wrong)
        else:
            self.call = call

    def compiled(self, output: Output) -> tuple[Kernel, Call]:
        """The kernel, and the call of it with as cold weights as in the graph."""
        case, job, target = self.case, self.job, host()
        template, schedule = TEMPLATES[self.made.template], self.made.schedule
        kernel = build(template.source(case.workload, schedule, target), name_hint=template.name)
        launch = template.launch(case.concrete, schedule, case.shapes, target)
        keys = [
            template.pack_key(case.workload, schedule, i) if job.constant[i] else ""
            for i in range(len(case.inputs))
        ]
        pass_by = _others(job.weight_bytes, target)
        arguments = [
            case.packed(
                i, key, pass_by, lambda i: template.pack(case.workload, schedule, i, case.inputs[i])
            )
            if job.constant[i]
            else (case.inputs[i],)
            for i, key in enumerate(keys)
        ]
        threads = job.threads if evaluate(work(case.concrete).total, {}) >= FORK else 1
        return kernel, Call(kernel.address, launch, [(output.array,), *arguments], threads)

    def with_seconds(self, seconds: Sequence[float]) -> Outcome:
        """What came of it in the end."""
        return replace(self.outcome, seconds=tuple(seconds))


def _others(weight_bytes: int, target: Target) -> int:
    """Bytes that pass through the caches between two calls; beyond twice the largest, no matter."""
    return min(weight_bytes, 2 * max(target.l1, target.l2, target.l3))


# --- the process ---------------------------------------------------------------------------------


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(prog="bucketize.tune.worker", description=__doc__)
    parser.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE")
    parser.add_argument("--limits", type=json.loads, default={}, metavar="JSON")
    options = parser.parse_args()
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in options.modules:
        _import(name)
    _serve(events, Limits(**options.limits))


def _import(plugin: str) -> None:
    try:
        importlib.import_module(plugin)
    except ImportError as e:
        sys.exit(f"cannot import the plugin {plugin}: {e}")


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
        send(_answer(json.loads(line), say))
        signal.setitimer(signal.ITIMER_REAL, 0)


def _answer(asked: dict[str, Any], say: Say) -> Event:
    if "build" in asked:
        source, hint = asked["build"]
        return built(source, hint, say)
    job = Job.of_plain(asked["job"])
    try:
        case = _prepared(job)
    except BucketizeError as e:
        return {"refused": "; ".join([str(e), *getattr(e, "__notes__", ())])}
    return {"outcomes": [asdict(outcome) for outcome in measured(job, case, say)]}


def _prepared(job: Job) -> Case:
    for made in job.implementations:
        if made.template not in TEMPLATES:
            raise unknown_name("template", made.template, TEMPLATES)
    check_threads(job.threads)
    return case_of(job)


def _alarm(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_S)


if __name__ == "__main__":
    main()
