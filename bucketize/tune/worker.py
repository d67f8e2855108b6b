"""The child process that measures: `python -m bucketize.tune.worker [--import MODULE]...`.

Jobs come as lines of JSON on stdin, events go as lines of JSON to what was stdout at the start;
what a template or a kernel prints goes to stderr. Before each stage of a job an alarm is set whose
signal ends the process even in native code, so that a hanging kernel does not outlive its parent.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import IO

import numpy as np

from bucketize.compare import relative_error
from bucketize.errors import BucketizeError, unknown_name
from bucketize.kernel.build import build
from bucketize.kernel.object import Kernel
from bucketize.kernel.target import Target, host
from bucketize.kernel.template import Template
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.work import FORK, work
from bucketize.kernel.workload import Workload
from bucketize.op import Array
from bucketize.runtime.native import check_threads
from bucketize.runtime.storage import aligned
from bucketize.tune.call import Call, timed
from bucketize.tune.case import Case, Output, case_of, fault
from bucketize.tune.measure import Job, Limits, Outcome
from bucketize.types import evaluate

GRACE_S = 5.0  # the parent's limit comes first

Say = Callable[..., None]


def measured(job: Job, case: Case, say: Say) -> Outcome:
    """The outcome of a job; `say(stage, **so_far)` announces each stage before it begins."""
    say("compile")
    template = TEMPLATES[job.template]
    reason = template.valid(case.workload, job.schedule, host())
    if reason:
        return Outcome(error_kind="invalid", error=reason)
    output = Output(case.expected)
    try:
        kernel, call = _compiled(job, case, template, output)
    except Exception as e:  # whatever a template or numba raises is an outcome
        return Outcome(error_kind="compile", error=f"{type(e).__name__}: {e}")
    say("run", compile_s=kernel.compile_s)
    return _run(job, case, output, call, kernel)


def _compiled(job: Job, case: Case, template: Template, output: Output) -> tuple[Kernel, Call]:
    workload, schedule, target = case.workload, job.schedule, host()
    kernel = build(template.source(workload, schedule, target), name_hint=template.name)
    launch = template.launch(case.concrete, schedule, case.shapes, target)
    arguments = [
        _packed(template, job, workload, i, array) if job.constant[i] else array
        for i, array in enumerate(case.inputs)
    ]
    threads = job.threads if evaluate(work(case.concrete).total, {}) >= FORK else 1
    return kernel, Call(kernel.address, launch, [output.array, *arguments], threads)


def _packed(template: Template, job: Job, workload: Workload, i: int, array: Array) -> Array:
    packed = template.pack(workload, job.schedule, i, array)
    return array if packed is None else aligned(packed)


def _run(job: Job, case: Case, output: Output, call: Call, kernel: Kernel) -> Outcome:
    call()
    error = relative_error(output.array, case.expected)
    wrong = fault(error, output)
    if wrong:
        return Outcome(
            error_kind="wrong_answer", error=wrong, compile_s=kernel.compile_s, max_rel_err=error
        )
    warm = [a for a, c in zip(case.inputs, job.constant, strict=True) if not c]
    seconds = timed(call, [*warm, output.array], between=_others(job.weight_bytes, host()))
    return Outcome(
        compile_s=kernel.compile_s,
        repeats=len(seconds),
        latency_median_s=float(np.median(seconds)),
        latency_min_s=min(seconds),
        latency_std_s=float(np.std(seconds)),
        max_rel_err=error,
    )


def _others(weight_bytes: int, target: Target) -> int:
    """Bytes that pass through the caches between two calls; beyond twice the largest, no matter."""
    return min(weight_bytes, 2 * max(target.l1, target.l2, target.l3))


def main() -> None:
    """Serve jobs until stdin ends."""
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
    def send(event: dict[str, object]) -> None:
        events.write(json.dumps(event) + "\n")
        events.flush()

    def say(stage: str, **so_far: object) -> None:
        _alarm(limits.of(stage))
        send({"stage": stage, "so_far": so_far})

    send({"ready": os.getpid()})
    for line in sys.stdin:
        _alarm(limits.of("prepare"))
        job = Job.decode(line)
        try:
            case = _prepared(job)
        except BucketizeError as e:
            send({"refused": "; ".join([str(e), *getattr(e, "__notes__", ())])})
        else:
            send({"outcome": asdict(measured(job, case, say))})
        signal.setitimer(signal.ITIMER_REAL, 0)


def _prepared(job: Job) -> Case:
    if job.template not in TEMPLATES:
        raise unknown_name("template", job.template, TEMPLATES)
    check_threads(job.threads)
    return case_of(job)


def _alarm(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_S)


if __name__ == "__main__":
    main()
