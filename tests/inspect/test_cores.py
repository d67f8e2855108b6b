"""The family of a machine's cores: that whose constants say best what a convolution takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bucketize.inspect import cores
from bucketize.kernel.depthwise.cost import FITTED
from bucketize.kernel.depthwise.template import sweep
from bucketize.kernel.schedule import Schedule
from bucketize.kernel.workload import Workload
from bucketize.machine.host import host
from bucketize.machine.speed import FAMILIES, TYPICAL
from bucketize.machine.target import Target
from bucketize.types import Points

MACHINES = {
    "as it is": host(),
    "a faster one": replace(host(), speed=replace(TYPICAL, ghz=4.0, l2=55.0, l3=30.0)),
    "of 8 lanes": replace(host(), lanes=8, registers=16, l1=32 << 10, l2=512 << 10),
}


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.25])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_machine_is_of_the_family_that_takes_as_long(
    monkeypatch: pytest.MonkeyPatch, name: str, machine: str, ratio: float
) -> None:
    """Whatever its name and its speed, and though a model errs by a fifth."""

    def seconds(load: Workload, schedule: Schedule, target: Target) -> float:
        taken = sweep(load).modelled([schedule], Points([{}]), target, FITTED[name])
        return float(taken[0, 0]) * ratio

    monkeypatch.setattr(cores, "seconds", seconds)
    assert cores.family(MACHINES[machine]) == name


def test_the_convolution_takes_some_time_here() -> None:
    load = cores.layer()
    schedule: Schedule = {"columns": cores.COLUMNS, "channels": host().lanes, "order": cores.ORDER}
    assert 1e-6 < cores.seconds(load, schedule, host()) < 0.1
    assert cores.family(host()) in FAMILIES
