"""Each row of docs/semantics.md: NaN, infinities and axes of nothing, interpreted and compiled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_model import parse

import bucketize
from bucketize.interpret import evaluate_module

PAGE = Path(__file__).parents[2] / "docs" / "semantics.md"
DTYPES = {"float32": "float", "int64": "int64", "bool": "bool"}
NAMES = {"nan": np.nan, "inf": np.inf}


class Row(NamedTuple):
    node: str
    of: str
    gives: str
    evaluator: str

    def inputs(self) -> dict[str, np.ndarray]:
        operands = re.findall(r"\b[cxzw]\b", self.node.partition("(")[2])
        kind = np.int64 if self.of.startswith("int: ") else np.float32
        literals = self.of.removeprefix("int: ").split(";")
        drawn = [np.asarray(literal(text)) for text in literals]
        arrays = [a if a.dtype == bool else a.astype(kind) for a in drawn]
        return dict(zip(operands, arrays, strict=True))

    def model(self) -> onnx.ModelProto:
        """Last axes are symbols, one for each extent."""
        symbols: dict[int, str] = {}
        params = []
        for name, array in self.inputs().items():
            dims = [str(d) for d in array.shape]
            if dims:
                dims[-1] = symbols.setdefault(array.shape[-1], "NMK"[len(symbols)])
            params.append(f"{DTYPES[array.dtype.name]}[{', '.join(dims)}] {name}")
        given = ", ".join(params).replace("[] ", " ")
        constants = "int64 axis = {-1}, float half = {0.5}, float negative = {-0.5}"
        return parse(f"({given}) => (y) <{constants}> {{ y = {self.node} }}", opset=20)


def literal(text: str) -> object:
    return eval(text, {}, NAMES)


def rows() -> list[Row]:
    cells = [[c.strip(" `") for c in line.split("|")] for line in PAGE.read_text().splitlines()]
    found = [Row(*c[1:5]) for c in cells if len(c) == 8]
    return [r for r in found if "(" in r.node]


def check(got: np.ndarray, wanted: str) -> None:
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got.astype(np.float64), literal(wanted), 1e-5, 1e-6)
    else:  # exactly: float64 does not hold every int64
        np.testing.assert_array_equal(got, np.asarray(literal(wanted)))


@pytest.mark.parametrize("row", rows(), ids=lambda r: f"{r.node.partition('<')[0]}-{r.of}")
@pytest.mark.filterwarnings("ignore")
def test_row(row: Row) -> None:
    model, inputs = row.model(), row.inputs()
    module = bucketize.from_onnx(model)
    symbols = dict.fromkeys(module.main.symbols(), (0, None))
    module = bucketize.from_onnx(model, bounds=symbols)
    for run in (lambda **i: evaluate_module(module, **i), bucketize.compile(module).run):
        check(run(**inputs)[0], row.gives)
    if row.evaluator == "refused":
        with pytest.raises(ValueError, match=r"zero-size|pad|identity"):
            ReferenceEvaluator(model).run(None, inputs)
    else:
        said = row.gives if row.evaluator == "same" else row.evaluator
        check(ReferenceEvaluator(model).run(None, inputs)[0], said)


def test_the_page_has_rows() -> None:
    assert len(rows()) > 50


@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("flags", ["", "<exclusive = 1>", "<reverse = 1>"])
def test_sums_of_zeros_have_the_sign_that_ieee_gives(dtype: str, axis: int, flags: str) -> None:
    """-0 + -0 is -0, and 0 + -0 is 0; what comes before all is 0."""
    graph = f"({dtype}[N, M] x) => (y) <int64 a = {{{axis}}}> {{ y = CumSum{flags}(x, a) }}"
    mod = bucketize.from_onnx(parse(graph))
    kind = {"float": "f4", "double": "f8", "float16": "f2"}[dtype]
    x = np.array([[-0.0, -0.0, 0.0, -0.0], [-0.0, 1.0, -1.0, -0.0]], kind)
    (want,) = evaluate_module(mod, x=x)
    (got,) = bucketize.compile(mod).run(x=x)
    assert got.tobytes() == want.tobytes()
    if not flags:
        assert np.signbit(want[0, 0])
