"""The knobs of products: what is declared, what may be tried, and what fits the registers."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from bucketize.kernel.gemm.schedule import Tiling, is_packed, knobs, tiles, unfit
from bucketize.kernel.template import combinations
from bucketize.machine.host import host

TARGET = replace(host(), name="emeraldrapids", lanes=16, registers=32)
CASES = [(True, "float32"), (True, "int8"), (False, "float32")]


@pytest.mark.parametrize(("packed", "weights"), CASES)
def test_knobs_are_fields_of_a_tiling(packed: bool, weights: str) -> None:
    values = knobs(TARGET, packed, weights)
    left_out = {f.name: f.default for f in fields(Tiling) if f.name not in values}
    for schedule in combinations(values):
        tiling = Tiling.of(schedule)
        assert {name: getattr(tiling, name) for name in values} == schedule
        assert {name: getattr(tiling, name) for name in left_out} == left_out
        assert is_packed(schedule) is packed
        fits = (tiling.mr, tiling.nr // TARGET.lanes) in tiles(TARGET)
        assert (unfit(schedule, TARGET) is None) is fits


def test_a_recorded_schedule_may_have_knobs_that_are_gone() -> None:
    stated = Tiling.of({"mr": 4, "nr": 16, "gone": 1})
    assert stated == Tiling(4, 16, weights="float32", kc=0, copy="no")
