"""Merging: fewer clones, all sizes served as before, and what it loses is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import bucketize
from bucketize import zoo
from bucketize.dispatch.tree import dispatch
from bucketize.errors import DispatchError, ShapeError
from bucketize.ir import Builder, Module, Var
from bucketize.ops import relu
from bucketize.partition.merge import merge
from bucketize.traffic.value import Traffic
from bucketize.types import Symbol, tensor
from dispatchers import exact_dispatcher, log_dispatcher, per_symbol

TARGET = "x86-64-v4"


def mlp(most: int | None = 64) -> Module:
    return bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, most)})


def test_clones_of_the_same_kernels_become_one() -> None:
    mod = dispatch(mlp(), log_dispatcher)
    its = merge(mod, target=TARGET)
    assert list(its.module.clones) == ["main[N=1..64]"]
    assert its.before.clones == len(mod.clones) == 6
    assert abs(its.loss) < 0.02
    assert str(its).startswith("1 clone serves as 6 did, ")
    x = np.random.default_rng(0).random((5, 784), np.float32)
    mine, its_before = (bucketize.compile(m).run(x) for m in (its.module, mod))
    np.testing.assert_allclose(mine[0], its_before[0], rtol=1e-5, atol=1e-6)


def test_sizes_that_nobody_served_are_as_they_were() -> None:
    some = dispatch(mlp(), lambda _: [{"N": (4, 8)}, {"N": (8, 16)}])
    its = merge(some, target=TARGET)
    assert list(its.module.clones) == ["main[N=4..15]"]
    assert "main[fallback]" in its.module.functions
    strict = dispatch(mlp(), lambda _: [{"N": (4, 8)}, {"N": (8, 16)}], fallback=False)
    assert "main[fallback]" not in merge(strict, target=TARGET).module.functions
    with pytest.raises(ShapeError, match=r"^traffic: no clone serves N=3, they serve \[4, 15\]$"):
        merge(some, Traffic(("N",), np.array([[3]]), np.array([1])), target=TARGET)


def test_symbols_that_were_not_cut_stay_whole() -> None:
    x = Var("x", tensor("float32", Symbol("H", 1, 64), Symbol("W", 1, 64)))
    out = Builder()
    mod = Module({"main": out.function("main", [x], [out.emit(relu, x)])})
    its = merge(dispatch(mod, per_symbol({"H": exact_dispatcher})), target=TARGET)
    assert its.before.clones == 64
    assert all(c.bucket["H"][0] >= 1 for c in its.module.clones.values())
    assert its.partition.chosen.clones <= 16


def test_what_cannot_be_merged_is_refused() -> None:
    with pytest.raises(DispatchError, match=r"^main has no clones: there is nothing to merge$"):
        merge(mlp())
    with pytest.raises(
        DispatchError, match=r"^clones of main are padded: those that are exact are "
    ):
        merge(dispatch(mlp(), log_dispatcher, policy="pad"))


def test_other_functions_keep_their_clones() -> None:
    mod = mlp()
    twice = Module({"main": mod.main, "other": replace(mod.main, name="other")}, names=mod.names)
    both = dispatch(dispatch(twice, log_dispatcher), log_dispatcher, function="other")
    new = merge(both, target=TARGET).module
    before = {name for name in both.clones if name.startswith("other[")}
    assert len(before) == 6
    assert set(new.clones) == {"main[N=1..64]", *before}
