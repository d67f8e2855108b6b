"""What `compile` chooses by a log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bucketize.compiler import logged
from bucketize.ir import Module
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.select import Select
from bucketize.machine.host import host
from bucketize.program.configuration import Configuration
from bucketize.program.decide import decide
from bucketize.program.instruction import RunSegment, instructions
from bucketize.tune.task import Task


def chosen(mod: Module, log: Path, task: Task) -> tuple[Implementation, str]:
    """What a task runs, and why."""
    strategies = logged(mod, log, 1)
    program = decide(mod, strategies, target=host(), threads=1, executor="auto")
    code = program.decide(task.function).code
    calls = (c for i in instructions(code) if isinstance(i, RunSegment) for c in i.segment.calls)
    call = next(call for call in calls if call.workload.hash == task.workload.hash)
    return call.implementation, call.why


def configuration_of(implementations: Mapping[str, Implementation]) -> Configuration:
    """These, by the hash of the workload, at all sizes."""
    return Configuration({name: Select((one,)) for name, one in implementations.items()})


def implementations_of(configuration: Configuration) -> dict[str, Implementation]:
    """The inverse: of each workload the only one."""
    selects = configuration.implementations.items()
    return {name: one for name, select in selects for (one,) in [select.implementations]}
