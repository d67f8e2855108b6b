"""Composite models: ONNX text, what their symbols are, and what to put in; `ALL` has them by name.

In the text `$3` stands for a constant, `$[1, 2]` for a vector of int64, `$0.5` for a float,
`$true` for a bool and `$w[2, N]` for weights, drawn once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

Sizes = dict[str, int]
Arrays = dict[str, np.ndarray]

CONSTANT = re.compile(r"\$(?:(w)\[([\d,\s]+)\]|\[([-\d,\s]*)\]|(true|false)|(-?\d+\.\d*)|(-?\d+))")


@dataclass(frozen=True)
class Composite:
    """A model, five sizes of each symbol, and how inputs are made that are not just drawn.

    `given` has Python expressions over the symbols, by input; `oracle` is "ort", or "reference"
    where onnxruntime does not take the model. `bounds` are those of symbols beyond the sizes.
    """

    name: str
    sizes: list[Sizes]
    text: str
    opset: int = 18
    given: dict[str, str] = field(default_factory=dict)
    oracle: str = "ort"

    @cached_property
    def model(self) -> onnx.ModelProto:
        constants: list[onnx.TensorProto] = []

        def name(match: re.Match[str]) -> str:
            constants.append(numpy_helper.from_array(_constant(match), f"constant{len(constants)}"))
            return constants[-1].name

        head = f'<ir_version: 10, opset_import: ["" : {self.opset}, "my" : 1]> g '
        model = parser.parse_model(head + CONSTANT.sub(name, self.text))
        model.graph.initializer.extend(constants)
        return model

    def bounds(self, top: int | None = None) -> dict[str, tuple[int, int | None]]:
        """From the least of each symbol's sizes, 0 or 1, to `top`."""
        return {n: (min(1, *(s[n] for s in self.sizes)), top) for n in self.sizes[0]}

    def inputs(self, sizes: Sizes) -> Arrays:
        rng = np.random.default_rng(sum(sizes.values()))
        return {i.name: self._drawn(rng, i, sizes) for i in self.model.graph.input}

    def _drawn(self, rng: np.random.Generator, i: onnx.ValueInfoProto, sizes: Sizes) -> np.ndarray:
        kind = i.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if i.name in self.given:
            names = {"np": np, "rng": rng, **sizes}
            return np.asarray(eval(self.given[i.name], names), dtype)
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
        if dtype.kind == "f":
            return rng.standard_normal(shape).astype(dtype)
        return rng.integers(0, 2 if dtype.kind == "b" else 3, shape).astype(dtype)


def _constant(match: re.Match[str]) -> np.ndarray:
    weights, shape, vector, truth, real, whole = match.groups()
    if weights:
        extents = [int(d) for d in shape.split(",")]
        rng = np.random.default_rng(match.start())
        return (rng.standard_normal(extents) * extents[0] ** -0.5).astype(np.float32)
    if vector is not None:
        return np.array([int(v) for v in vector.split(",") if v.strip()], np.int64)
    if truth:
        return np.array(truth == "true")
    return np.array(float(real), np.float32) if real else np.array(int(whole), np.int64)


def composite(name: str, sizes: str, text: str, opset: int = 18, **options: Any) -> Composite:
    """`sizes` is "N=1,2,5,7,3 M=...": the n-th run has the n-th size of each."""
    by_name = {n: [*map(int, v.split(","))] for n, v in (s.split("=") for s in sizes.split())}
    columns = [dict(zip(by_name, c, strict=True)) for c in zip(*by_name.values(), strict=True)]
    return Composite(name, columns, text, opset, **options)
