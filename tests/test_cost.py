"""The model of what kernels take: laws over all templates."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bucketize.errors import TypeRelError
from bucketize.kernel.cost import seconds
from bucketize.kernel.target import host
from bucketize.kernel.template import TEMPLATES, Implementation, Template
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload
from tests.test_kernel_loops import CASES as LOOPS
from tests.test_kernel_loops import workload_of
from tests.test_vector_templates import CASES as VECTORS
from tests.test_vector_templates import legal

TARGET = replace(host(), name="emeraldrapids", lanes=16, registers=32)
SIZE = 192  # of every symbol: fills panels of any width, so that none is cut before it grows
WORKLOADS = [
    *(pytest.param(workload_of(case), id=str(case)) for case in LOOPS),
    *(pytest.param(case.workload(), id=f"vector-{i}") for i, case in enumerate(VECTORS)),
]


def ways(load: Workload) -> list[Implementation]:
    """A few implementations of every template that takes a workload."""
    return [
        Implementation(t.name, schedule)
        for t in candidates(load)
        for schedule in legal(t, load, TARGET)[::7]
    ]


def sizes_of(load: Workload) -> dict[str, int]:
    return dict.fromkeys(load.body.mentioned(), SIZE)


@pytest.mark.parametrize("load", WORKLOADS)
def test_what_a_kernel_takes_is_positive_and_does_not_fall_as_extents_grow(load: Workload) -> None:
    sizes = sizes_of(load)
    for way in ways(load):
        taken = seconds(load, way, sizes, TARGET)
        assert 0 < taken < math.inf
        for name in sizes:
            for times in (2, 9):
                more = seconds(load, way, sizes | {name: times * SIZE}, TARGET)
                assert more >= taken, f"{way}: {name}={times * SIZE}"


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_every_template_is_among_the_cases(template: Template) -> None:
    assert any(template.accepts(case.values[0]) for case in WORKLOADS)


def test_cold_weights_take_longer() -> None:
    load = VECTORS[0].workload()
    (way, *_) = ways(load)
    warm, cold = (seconds(load, way, {"N": SIZE}, TARGET, n) for n in (0, 1 << 30))
    assert cold > warm


def test_a_size_that_is_not_told_is_an_error() -> None:
    load = VECTORS[0].workload()
    with pytest.raises(TypeRelError, match="N is not known"):
        seconds(load, ways(load)[0], {}, TARGET)
