"""`compile`: a module and the best schedules of a log become an executable."""

from __future__ import annotations

import logging
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from bucketize.errors import BucketizeWarning, unknown_name
from bucketize.ir import Module, check_module
from bucketize.kernel.target import Target, host
from bucketize.kernel.template import Implementation, Template
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.workload import Workload
from bucketize.program.decide import completed, decide, defaults, redecided
from bucketize.program.family import Choose
from bucketize.program.instruction import AGREED, LOGGED
from bucketize.program.program import Program
from bucketize.progress import Tell, progress_bar, shown
from bucketize.runtime.executable import Executable
from bucketize.runtime.link import link
from bucketize.runtime.native import check_threads
from bucketize.tune.choice import Digests, Verdict, verdicts
from bucketize.tune.log import LogWarning, rows, select
from bucketize.tune.trial import Trial

EXECUTORS = ("auto", "graph", "vm")
SHOWN = 3  # illegal clones that a warning names
LOGGER = logging.getLogger("bucketize")


def compile(
    mod: Module,
    *,
    log: str | Path | None = None,
    threads: int = 1,
    executor: str = "auto",
    lazy: bool = False,
    strict: bool = False,
    progress: Tell | bool | None = None,
) -> Executable:
    """Compile `mod` with each clone's best valid schedules of `log`, else on defaults.

    `executor` is "graph" (static functions only), "vm", or "auto": the graph executor for what is
    static. With `lazy` a clone compiles at its first use; with `strict` that is an error.
    `progress=True` shows a bar on stderr; a function of yours is told what is being worked on,
    how many are done (functions, then kernels), and of how many. `Executable.counts` says how many
    workloads the log served.
    """
    check_module(mod)
    if executor not in EXECUTORS:
        raise unknown_name("executor", executor, EXECUTORS)
    check_threads(threads)
    start = time.perf_counter()
    target = host()
    choose = defaults(target) if log is None else logged_choice(mod, log, threads, target)
    program = decide(mod, choose, target=target, threads=threads, executor=executor)
    names = ["main"] if lazy else list(mod.functions)
    with shown(progress, progress_bar("compiling")) as tell:
        for i, name in enumerate(names):
            if tell is not None:
                tell(f"deciding {name}", i, len(names))
            program.decide(name, whole=strict or not lazy)
        program.routines.is_closed = strict
        image = link(program, tell)
    executable = Executable(image, mod, time.perf_counter() - start)
    LOGGER.info("%s", executable.counts)
    _warn_of_illegal(program)
    return executable


def _warn_of_illegal(program: Program) -> None:
    """Name the clones, as far as they are decided, that refuse every run."""
    refusals = {n: r.refusal for n, r in program.routines.decided().items() if r.refusal}
    if refusals:
        named = ", ".join([*list(refusals)[:SHOWN], *(["..."] if len(refusals) > SHOWN else [])])
        reason = next(iter(refusals.values()))
        warnings.warn(
            f"{len(refusals)} of {len(program.clones)} clones are not legal and refuse every run "
            f"({named}): {reason}",
            BucketizeWarning,
            stacklevel=3,
        )


def rebuilt(program: Program) -> Executable:
    """The executable of a stored program of another processor or version, compiled for this one."""
    start, target = time.perf_counter(), host()
    here = redecided(program, defaults(target), target)
    for name in here.routines:
        here.decide(name)
    return Executable(link(here), seconds=time.perf_counter() - start)


def logged_choice(mod: Module, log: str | Path, threads: int, target: Target) -> Choose:
    """What the log confirmed for each clone of a module, the default for what it did not.

    In place of an implementation that its template no longer allows there is the default, and a
    LogWarning: what was confirmed was all of them together.
    """
    trials = select(rows(log, TEMPLATES))
    _warn_of_threads(trials, log, threads)
    known, digests, otherwise = verdicts(trials, threads), Digests(mod), defaults(target)
    _warn_of_unconfirmed([t for t in trials if t.threads == threads], known, log)

    def choose(
        name: str, workload: Workload, able: Sequence[Template]
    ) -> tuple[Implementation, str]:
        default, why = otherwise(name, workload, able)
        verdict = known.get(digests[name]) if name in mod.functions else None
        if verdict is None:
            return default, why
        made = verdict.implementations.get(workload.hash)
        if made is None:
            return default, AGREED
        chosen = completed(made.template, made.schedule, workload, able, target)
        if chosen is None:
            warnings.warn(
                f"{log}: {name} was confirmed with {made}, which is not legal any more: its "
                f"default stays; tune again",
                LogWarning,
                stacklevel=2,
            )
            return default, why
        return chosen, LOGGED

    return choose


def _warn_of_unconfirmed(
    trials: Sequence[Trial], known: Mapping[str, Verdict], log: Path | str
) -> None:
    """Say so where there are trials with so many threads, and no verdict: none is used."""
    if trials and not known:
        warnings.warn(
            f"{log}: none of its {len(trials)} trials is confirmed in a clone, so the defaults "
            f"stay; `tune` confirms what it finds",
            LogWarning,
            stacklevel=4,
        )


def _warn_of_threads(trials: Sequence[Trial], log: str | Path, threads: int) -> None:
    """Count the trials of workloads that were never measured with so many threads."""
    served = {trial.workload for trial in trials if trial.threads == threads}
    others = Counter(trial.threads for trial in trials if trial.workload not in served)
    if others:
        counts = ", ".join(f"{n} with threads={t}" for t, n in sorted(others.items()))
        warnings.warn(
            f"{log}: left out {others.total()} of {len(trials)} trials, whose workloads were not "
            f"measured with threads={threads} ({counts}); tune with threads={threads}, too",
            LogWarning,
            stacklevel=4,
        )
