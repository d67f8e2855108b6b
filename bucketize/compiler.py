"""`compile`: a module and the best schedules of a log become an executable."""

from __future__ import annotations

from pathlib import Path

from bucketize.ir import Module
from bucketize.kernel.target import host
from bucketize.kernel.template import Schedule, Template, Workload
from bucketize.runtime.executable import Executable, Progress
from bucketize.runtime.segment import Chooser
from bucketize.tune.choice import Choices
from bucketize.tune.log import rows, select


def compile(
    mod: Module,
    *,
    log: str | Path | None = None,
    threads: int = 1,
    executor: str = "auto",
    lazy: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> Executable:
    """Compile `mod` with each clone's best valid schedules of `log`, else on defaults.

    `executor` is "graph" (static functions only), "vm", or "auto": the graph executor for what is
    static. With `lazy` a clone compiles at its first use; with `strict` that is an error.
    `Executable.counts` says how many workloads the log served.
    """
    choose = default_choice if log is None else logged_choice(log, threads)
    return Executable(
        mod,
        choose,
        threads=threads,
        executor=executor,
        lazy=lazy,
        strict=strict,
        progress=progress,
    )


def default_choice(workload: Workload, template: Template) -> tuple[Schedule, str]:
    """The template's own schedule for this machine."""
    return template.default(workload, host()), "default"


def logged_choice(log: str | Path, threads: int) -> Chooser:
    """The best schedule of the log for a workload within its bucket's bounds, else the default.

    A schedule that the template no longer allows is as good as none.
    """
    choices = Choices(select(rows(log)), threads)

    def choose(workload: Workload, template: Template) -> tuple[Schedule, str]:
        best = choices.best(workload.hash, [p.type for p in workload.body.params])
        if best is None or not _is_legal(template, workload, best.schedule):
            return default_choice(workload, template)
        return best.schedule, "log"

    return choose


def _is_legal(template: Template, workload: Workload, schedule: Schedule) -> bool:
    """Whether the template still has these knobs and allows these values."""
    knobs = template.knobs(workload, host())
    return schedule.keys() == knobs.keys() and template.valid(workload, schedule, host()) is None
