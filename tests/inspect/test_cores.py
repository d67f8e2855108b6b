"""The family of a machine's cores: that whose constants say best what kernels take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bucketize.inspect import cores
from bucketize.kernel.cost import seconds as modelled
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.workload import Workload
from bucketize.machine.host import host
from bucketize.machine.speed import FAMILIES, TYPICAL
from bucketize.machine.target import Target

MACHINES = {
    "as it is": host(),
    "a faster one": replace(host(), speed=replace(TYPICAL, ghz=4.0, l2=55.0, l3=30.0)),
    "of 8 lanes": replace(host(), lanes=8, registers=16, l1=32 << 10, l2=512 << 10),
}


def taken(name: str, load: Workload, way: Implementation, target: Target, copies: int) -> float:
    """What a kernel takes on a machine of a family, if the model is right."""
    passed = cores.DEPTH * cores.WIDTH * 4 * copies if copies > 1 else 0
    return modelled(load, way, {}, replace(target, family=name), passed)


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.25])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_machine_is_of_the_family_that_takes_as_long(
    monkeypatch: pytest.MonkeyPatch, name: str, machine: str, ratio: float
) -> None:
    """Whatever its name and its speed, and though a model errs by a fifth."""
    monkeypatch.setattr(cores, "seconds", lambda *its: taken(name, *its) * ratio)
    assert cores.family(MACHINES[machine]) == name


@pytest.mark.parametrize("ratio", [0.9, 1.1])
@pytest.mark.parametrize("name", FAMILIES)
def test_where_the_convolution_leaves_it_open_the_product_tells(
    monkeypatch: pytest.MonkeyPatch, name: str, ratio: float
) -> None:
    """As with 8 lanes, where it takes half of what one family says and twice the other's."""

    def seconds(load: Workload, way: Implementation, target: Target, copies: int) -> float:
        each = [taken(family, load, way, target, copies) for family in FAMILIES]
        between = (each[0] * each[1]) ** 0.5
        return between if copies == 1 else taken(name, load, way, target, copies) * ratio

    monkeypatch.setattr(cores, "seconds", seconds)
    assert cores.family(MACHINES["of 8 lanes"]) == name


def test_kernels_take_some_time_here() -> None:
    for load, copies in ((cores.convolution(), 1), (cores.dense(), 3)):
        way = cores.implementation(load, host())
        assert 1e-6 < cores.seconds(load, way, host(), copies) < 0.1
    assert cores.family(host()) in FAMILIES
