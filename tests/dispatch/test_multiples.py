"""Symbols whose sizes are multiples: from the bounds that were given to buckets and results."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import onnxruntime
import pytest
from c_library import CModel, addresses, saved_library
from onnx_model import parse
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import bucketize
from bucketize import text, zoo
from bucketize.cli.parameter import bound
from bucketize.compiler import compile
from bucketize.errors import BucketizeError, DispatchError, RaggedError, ShapeError
from bucketize.ir import Module
from bucketize.onnx import to_onnx
from bucketize.poison import check_padding
from bucketize.ragged.rows import batch_of
from bucketize.tune.task import tasks_of
from bucketize.types import Symbol
from bucketize.warm_up import rising_sizes
from dispatchers import exact_dispatcher, log_dispatcher, per_symbol

pytestmark = pytest.mark.usefixtures("few_registers")

WINDOWS = """
(float[B, S, 4] x) => (y) <int64[4] s = {0, -1, 8, 4}> {
    r = Reshape(x, s)
    y = ReduceMean<axes = [2], keepdims = 0>(r)
}
"""
BOUNDS = {"B": (1, 2), "S": (8, 64, 8)}
WANTED = r"expected S in \[8, 64\], a multiple of 8, got 12"


def windows() -> Module:
    return bucketize.from_onnx(parse(WINDOWS), bounds=BOUNDS)


def rows(length: int) -> np.ndarray:
    return np.linspace(-1, 1, 2 * length * 4, dtype=np.float32).reshape(2, length, 4)


def means(x: np.ndarray) -> np.ndarray:
    return x.reshape(2, -1, 8, 4).mean(2)


def test_it_is_printed_and_read() -> None:
    shown = text.show(windows())
    assert "where B in [1, 2], S in [8, 64] by 8 {" in shown
    assert text.show(text.parse(shown)) == shown
    (x,) = text.parse(shown.replace("S in [8, 64] by 8", "S >= 8 by 8")).main.params
    assert x.type.shape[1] == Symbol("S", 8, None, 8)


@pytest.mark.parametrize(
    ("ends", "sizes"), [((3, 30, 8), (8, 24)), ((0, None, 4), (0, None)), ((8, 64), (8, 64))]
)
def test_bounds_are_sizes_themselves(ends: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    mod = bucketize.from_onnx(parse("(float[S] x) => (y) { y = Neg(x) }"), bounds={"S": ends})
    (symbol,) = mod.main.symbols().values()
    assert (symbol.lo, symbol.hi) == sizes


def test_bounds_that_hold_one_multiple_are_a_size() -> None:
    mod = bucketize.from_onnx(parse("(float[S] x) => (y) { y = Neg(x) }"), bounds={"S": (9, 23, 8)})
    assert mod.main.params[0].type.shape == (16,)


@pytest.mark.parametrize("ends", [(9, 15, 8), (8, 64, 0), (8, 64, -8), (8, 64, 1.5), (1, 2, 3, 4)])
def test_bounds_that_are_none(ends: tuple[int, ...]) -> None:
    with pytest.raises(BucketizeError, match=r"or \(lo, hi, step\) with a multiple between them"):
        bucketize.from_onnx(parse(WINDOWS), bounds={"S": ends})


def test_on_the_command_line() -> None:
    assert bound("S=8..64:8") == ("S", (8, 64, 8))
    assert bound("S=8..:8") == ("S", (8, None, 8))
    for option in ("S=9..15:8", "S=8..64:0"):
        with pytest.raises(click.BadParameter, match="is empty: it holds no multiple of"):
            bound(option)


def test_a_narrower_symbol_keeps_its_step() -> None:
    narrower = bucketize.specialise(windows(), S=(16, 32)).main.symbols()["S"]
    assert narrower == Symbol("S", 16, 32, 8)
    with pytest.raises(ShapeError, match=WANTED):
        bucketize.specialise(windows(), S=12)


def test_a_static_bucket_for_every_multiple() -> None:
    mod = bucketize.dispatch(windows(), per_symbol({"S": exact_dispatcher}))
    assert list(mod.clones) == [f"main[S={n}..{n + 7}]" for n in range(8, 64, 8)] + ["main[S=64]"]
    assert {str(mod.function(name).params[0].type) for name in mod.clones} == {
        f"float32[B, {n}, 4]" for n in range(8, 65, 8)
    }


def test_a_bucket_of_one_multiple_runs_as_one_of_one_size() -> None:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (8, 24, 8)})
    exe = compile(bucketize.dispatch(mod, per_symbol({"N": log_dispatcher})))
    explained = {n: exe.explain(N=n) for n in (8, 16, 24)}
    assert {n: e.executor for n, e in explained.items()} == {8: "graph", 16: "vm", 24: "vm"}
    for n in explained:
        assert exe(np.ones((n, 784), np.float32))[0].shape == (n, 10)


def test_intervals_between_two_multiples_are_out_of_bounds() -> None:
    with pytest.raises(DispatchError, match=r"out of its bounds \[8, 64\], a multiple of 8"):
        bucketize.dispatch(windows(), lambda _: {"x": {1: [(9, 12)]}})


def test_results_and_refusals(tmp_path: Path) -> None:
    exe = compile(bucketize.dispatch(windows(), per_symbol({"S": log_dispatcher})))
    exe.save(tmp_path / "m.bkt")
    for each in (exe, bucketize.load(tmp_path / "m.bkt")):
        for length in range(8, 65, 8):
            np.testing.assert_allclose(each(rows(length))[0], means(rows(length)), atol=1e-6)
        with pytest.raises(ShapeError, match=f"input 'x', axis 1: {WANTED}"):
            each(rows(12))
    with pytest.raises(ShapeError, match=WANTED):
        exe.memory(B=1, S=12)


def test_other_engines_refuse_what_no_bucket_covers() -> None:
    model = to_onnx(bucketize.dispatch(windows(), per_symbol({"S": log_dispatcher})))
    again = bucketize.from_onnx(model)
    assert again.main.symbols()["S"] == Symbol("S", 8, 64, 8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    np.testing.assert_allclose(session.run(None, {"x": rows(24)})[0], means(rows(24)), atol=1e-6)
    with pytest.raises(InvalidArgument):
        session.run(None, {"x": rows(12)})


def test_a_library_refuses_other_sizes(tmp_path: Path) -> None:
    saved_library(windows(), tmp_path / "m.so")
    output, sizes = np.zeros((2, 8, 4), np.float32), np.array([2, 12, 4], np.int64)
    with CModel(tmp_path / "m.so") as model:
        assert model.run([rows(64)], [output]) == 0
        np.testing.assert_allclose(output, means(rows(64)), atol=1e-6)
        assert model.run([rows(64)], [output], shapes=addresses([sizes])) != 0
        assert model.error == "input x: dim 1 must be S in [8, 64], a multiple of 8, got 12"
    assert "S: at least 8, at most 64, a multiple of 8" in (tmp_path / "m.h").read_text()


def test_what_is_padded_is_padded_to_a_multiple() -> None:
    mod = bucketize.from_onnx(
        parse("(float[S, 4] x) => (y) { y = ReduceSum<keepdims = 0>(x) }"), bounds={"S": (8, 64, 8)}
    )
    padded = bucketize.dispatch(mod, lambda _: {"x": {0: [(8, 30), (30, 65)]}}, policy="pad")
    tops = [padded.function(name).params[0].type.shape[0] for name in padded.clones]
    assert tops == [24, 64]
    assert check_padding(mod, padded, lambda at: {"x": np.ones((at["S"], 4), np.float32)}) == []
    np.testing.assert_allclose(compile(padded)(np.ones((16, 4), np.float32))[0], 64)


def test_sizes_that_are_tried_are_multiples() -> None:
    sizes = [s["S"] for s in rising_sizes(windows().main.params)]
    assert sizes == [8, 16, 32, 64]
    mlp = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (8, 64, 8)})
    assert {p.sizes["N"] for t in tasks_of(mlp, "bounds") for p in t.points} == {8, 24, 64}


def test_partitions_are_asked_at_multiples() -> None:
    for ends, least in (((0, 512, 8), 8), ((24, None, 24), 24)):
        mlp = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": ends})
        sizes = bucketize.partition(mlp).by_size["N"]
        assert sizes[0] == least
        assert len(sizes) > 9
        assert not (sizes % least).any()


def test_rows_that_come_by_several_share_no_call() -> None:
    mod = bucketize.from_onnx(
        parse("(float[N, 4] x) => (y) { y = Neg(x) }"), bounds={"N": (8, 64, 8)}
    )
    with pytest.raises(RaggedError, match=r"rows come by 8: N is \[8, 64\], a multiple of 8"):
        batch_of(mod.main)
