"""Rows of data sets, by Dask and by hand; `test_ray` has them by Ray Data."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask
import dask.bag
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
from onnx_model import parse

import bucketize
from bucketize import ops
from bucketize.errors import ArgumentError, ProgramError, ShapeError, UnknownNameError
from bucketize.integrations.predictor import Predictor
from bucketize.ir import Builder, Module, Var
from bucketize.types import Symbol, tensor

ROWS = 20


def model(scale: float = 2.0) -> bucketize.Executable:
    """Rows of any length, scaled, and their sums."""
    x, out = Var("x", tensor("float32", Symbol("N", 1, 8), Symbol("S", 1, 64))), Builder()
    by = out.emit(ops.full, shape=(), value=scale, dtype="float32")
    y = out.emit(ops.mul, x, by)
    total = out.emit(ops.reduce_sum, y, axes=(1,), keepdims=False)
    return bucketize.compile(Module({"main": out.function("main", [x], [y, total])}))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "net.bkt"
    model().save(path)
    return path


def rows(count: int = ROWS) -> list[dict[str, Any]]:
    return [{"id": 100 + i, "x": np.full(1 + i * 7 % 5, i, np.float32)} for i in range(count)]


def check(exe: bucketize.Executable, done: list[dict[str, Any]], before: Any = rows) -> None:
    """Each row is there, in order, with what a call of its own gives."""
    name, total = exe.outputs
    assert [row["id"] for row in done] == [row["id"] for row in before()]
    for row in done:
        y, whole = exe.run(np.asarray(row["x"])[None])
        np.testing.assert_array_equal(row[name], y[0], strict=True)
        assert row[total] == whole[0]


def test_a_bag_of_dask_keeps_its_order(program: Path) -> None:
    bag = dask.bag.from_sequence(rows(), npartitions=3).map_partitions(Predictor(program))
    check(bucketize.load(program), bag.compute(scheduler="sync"))


def test_a_frame_of_dask_keeps_its_index(program: Path) -> None:
    exe = bucketize.load(program)
    frame = pd.DataFrame(rows(), index=range(7, 7 + ROWS))
    meta = {"id": int, "x": object, **dict.fromkeys(exe.outputs, object)}
    with dask.config.set({"dataframe.convert-string": False}):
        parts = dask.dataframe.from_pandas(frame, npartitions=3)
        done = parts.map_partitions(Predictor(program), meta=meta).compute(scheduler="sync")
    assert done.index.tolist() == frame.index.tolist()
    check(exe, done.to_dict("records"))


def test_columns_as_ray_data_has_them(program: Path) -> None:
    """Results of one shape are one array, others an array of arrays."""
    exe, predictor = bucketize.load(program), Predictor(program)
    cells = np.empty(ROWS, object)
    cells[:] = [row["x"] for row in rows()]
    done = predictor({"id": np.arange(100, 100 + ROWS), "x": cells})
    name, total = exe.outputs
    assert (done[name].dtype, done[total].dtype) == (object, np.float32)
    check(exe, [dict(zip(done, row, strict=True)) for row in zip(*done.values(), strict=True)])
    even = predictor({"x": np.ones((3, 2), np.float32)})
    np.testing.assert_array_equal(even[name], np.full((3, 2), 2, np.float32), strict=True)
    assert predictor([]) == []


def test_cells_with_all_axes_are_inputs_as_they_are(program: Path) -> None:
    (row,) = Predictor(program)([{"x": np.ones((2, 3), np.float32)}])
    assert row["output_0"].shape == (2, 3)
    assert row["output_1"].tolist() == [6, 6]


def wrong() -> list[dict[str, Any]]:
    every = rows(6)
    every[3]["x"] = np.ones(65, np.float32)
    every[5]["x"] = np.ones(2, np.float64)
    return every


def test_an_error_names_its_row(program: Path) -> None:
    with pytest.raises(ShapeError) as e:
        Predictor(program, key="id")(wrong())
    assert e.value.notes == ("in row 3 of the batch, id 103; 1 others of the batch failed",)
    with pytest.raises(ShapeError) as e:
        Predictor(program)(wrong()[3:5])
    assert e.value.notes == ("in row 0 of the batch",)
    assert "in request" not in str(e.value)


def test_an_error_names_its_row_through_dask(program: Path) -> None:
    bag = dask.bag.from_sequence(wrong(), npartitions=2).map_partitions(
        Predictor(program, key="id")
    )
    with pytest.raises(ShapeError, match="in row 0 of the batch, id 103"):
        bag.compute(scheduler="sync")


@pytest.mark.parametrize(
    ("batch", "key", "kind", "message"),
    [
        ([{"y": 1}], None, UnknownNameError, "no column named 'x'; known: y"),
        ([{"x": 1}], "name", UnknownNameError, "no column named 'name'; known: x"),
        ([{"x": 1, "output_1": 1}], None, ArgumentError, "column 'output_1' is there already"),
        ([3], None, ArgumentError, "expected columns, a frame, or rows that are mappings, got int"),
        ("rows", None, ArgumentError, "or rows that are mappings, got str"),
    ],
)
def test_what_is_no_batch_is_told(
    program: Path, batch: Any, key: str | None, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        Predictor(program, key=key)(batch)


def test_a_model_of_more_than_tensors_is_refused() -> None:
    text = "(seq(float[N]) x) => (float[M] y) { y = ConcatFromSequence<axis = 0>(x) }"
    predictor = Predictor(lambda: bucketize.compile(bucketize.from_onnx(parse(text))))
    with pytest.raises(ArgumentError, match=r"input 'x' is .*: a cell is a tensor"):
        predictor([{"x": [1]}])


def test_it_goes_over_as_its_arguments_and_opens_once(program: Path) -> None:
    predictor = Predictor(program)
    assert predictor(rows(2))
    first, second = (pickle.loads(pickle.dumps(predictor)) for _ in range(2))
    assert "executable" not in vars(first)
    assert first.executable is second.executable is predictor.executable


def test_another_file_in_its_place_is_another_program(tmp_path: Path) -> None:
    path = tmp_path / "net.bkt"
    one = [{"x": np.ones(2, np.float32)}]
    for scale in (2.0, 3.0):
        model(scale).save(path)
        assert Predictor(path)(one)[0]["output_1"] == 2 * scale
    path.unlink()
    with pytest.raises(ProgramError, match=r"net\.bkt"):
        Predictor(path)(one)


def test_a_function_makes_an_executable() -> None:
    assert Predictor(model)([{"x": np.ones(2, np.float32)}])[0]["output_1"] == 4
    made: Any = dict
    with pytest.raises(ArgumentError, match=r"or a function that makes an executable, got {}"):
        Predictor(made)([{"x": 1}])
