"""torch eager: an ONNX graph, node by node, each op by the function that torch has for it.

There is no torch module for an ONNX file in general; this has the ops of the zoo. What depends on
shapes alone is computed once for each shape, as Python's integers are in a module written by hand.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from onnx import numpy_helper

from bucketize.analysis.engines import Engine, Run
from bucketize.errors import EngineError
from bucketize.op import Array

Values: TypeAlias = dict[str, Any]
Function: TypeAlias = Callable[..., Any]
Sizes: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Step:
    """A node: what computes it, from what, and what nobody wants after it."""

    call: Function
    inputs: Sequence[str]
    output: str
    dead: Sequence[str]
    of_shapes: bool
    """Whether it depends on nothing but shapes and constants."""

    def run(self, values: Values) -> None:
        """Compute it, and let go of what is dead."""
        values[self.output] = self.call(*[values[name] for name in self.inputs])
        for name in self.dead:
            del values[name]


def start(model: Path, threads: int) -> tuple[Run, str]:
    """Read a model; as engines are started."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(threads)
    graph = onnx.load(model).graph
    weights = {w.name: torch.tensor(numpy_helper.to_array(w)) for w in graph.initializer}
    weights[""] = None  # an input that is left out
    every, outputs = steps(graph, table(torch)), [o.name for o in graph.output]
    later = [step for step in every if not step.of_shapes]
    kept: dict[Sizes, Values] = {}

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        sizes = tuple(array.shape for array in inputs.values())
        values = {**weights, **kept.get(sizes, {})}
        values |= {name: torch.from_numpy(array) for name, array in inputs.items()}
        with torch.inference_mode():
            for step in later if sizes in kept else every:
                step.run(values)
        if sizes not in kept:
            kept[sizes] = {s.output: values[s.output] for s in every if s.of_shapes}
        return [values[name].numpy() for name in outputs]

    return run, "inference mode, node by node as the graph has them"


def steps(graph: onnx.GraphProto, known: Mapping[str, Function]) -> list[Step]:
    """The nodes of a graph, in its order, by what computes them."""
    if lacks := sorted({node.op_type for node in graph.node} - known.keys()):
        raise EngineError(f"benchmarks/eager.py has no {', '.join(lacks)}")
    last = {name: node.output[0] for node in graph.node for name in node.input}
    fixed = {"", *(w.name for w in graph.initializer)}
    wanted, shapely = {o.name for o in graph.output}, set(fixed)
    made = []
    for node in graph.node:
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        (out,), of_shapes = node.output, node.op_type == "Shape" or shapely.issuperset(node.input)
        shapely |= {out} if of_shapes else set()
        dead = {n for n in node.input if last[n] == out} - wanted - shapely
        call = partial(known[node.op_type], **attrs)
        made.append(Step(call, list(node.input), out, sorted(dead), of_shapes))
    return made


def symmetric(pads: Sequence[int]) -> list[int]:
    """Padding as torch has it: as much at the end as at the begin."""
    begin, end = list(pads[: len(pads) // 2]), list(pads[len(pads) // 2 :])
    if begin != end:
        raise EngineError(f"benchmarks/eager.py has no padding {list(pads)}")
    return begin


def table(torch: Any) -> dict[str, Function]:
    """By op type of ONNX, the function of its inputs, with its attributes by name."""
    return {**pointwise(torch), **moving(torch), **reducing(torch.nn.functional)} | {
        "Constant": lambda *, value: torch.tensor(numpy_helper.to_array(value)),
        "MatMul": torch.matmul,
        "Shape": lambda x: torch.tensor(x.shape),
        "Softmax": lambda x, *, axis=-1: torch.softmax(x, axis),
    }


def pointwise(torch: Any) -> dict[str, Function]:
    """Ops that compute each element by itself."""

    def divide(x: Any, y: Any) -> Any:
        return torch.div(x, y, rounding_mode=None if x.is_floating_point() else "trunc")

    def cast(x: Any, *, to: int) -> Any:
        return x.to(getattr(torch, onnx.helper.tensor_dtype_to_np_dtype(to).name))

    same = {"Add": "add", "Erf": "erf", "Mul": "mul", "Relu": "relu", "Sub": "sub"}
    return {op: getattr(torch, name) for op, name in same.items()} | {
        "Cast": cast,
        "Clip": lambda x, low, high: torch.clamp(x, low.item(), high.item()),
        "Div": divide,
    }


def moving(torch: Any) -> dict[str, Function]:
    """Ops that compute nothing."""

    def gather(x: Any, at: Any, *, axis: int = 0) -> Any:
        return x[(slice(None),) * (axis % x.ndim) + (at,)]

    def cut(x: Any, *numbers: Any) -> Any:
        at = [slice(None)] * x.ndim
        for begin, end, axis, by in zip(*(v.tolist() for v in numbers), strict=True):
            at[axis] = slice(begin, end, by)
        return x[tuple(at)]

    def reshape(x: Any, shape: Any) -> Any:
        return x.reshape([s or x.shape[i] for i, s in enumerate(shape.tolist())])

    return {
        "Concat": lambda *xs, axis: torch.cat(xs, axis),
        "Expand": lambda x, s: x.expand(torch.broadcast_shapes(x.shape, tuple(s.tolist()))),
        "Flatten": lambda x, *, axis=1: x.reshape(math.prod(x.shape[:axis]), -1),
        "Gather": gather,
        "Reshape": reshape,
        "Slice": cut,
        "Transpose": lambda x, *, perm: x.permute(perm),
        "Unsqueeze": lambda x, axes: x.reshape(unsqueezed(list(x.shape), axes.tolist())),
    }


def reducing(f: Any) -> dict[str, Function]:
    """Layers of networks, of torch.nn.functional."""

    def conv(x: Any, w: Any, b: Any = None, *, kernel_shape: Any = None, **k: Any) -> Any:
        del kernel_shape  # the weights have it
        pads, strides = symmetric(k.pop("pads", (0, 0, 0, 0))), k.pop("strides", 1)
        return f.conv2d(x, w, b, strides, pads, k.pop("dilations", 1), k.pop("group", 1), **k)

    def max_pool(x: Any, *, kernel_shape: Any, strides: Any = 1, pads: Any = (0, 0, 0, 0)) -> Any:
        return f.max_pool2d(x, kernel_shape, strides, symmetric(pads))

    def gemm(x: Any, w: Any, b: Any = None, *, transB: int = 0) -> Any:  # noqa: N803  (ONNX's)
        return f.linear(x, w if transB else w.T, b)

    def norm(x: Any, w: Any, b: Any = None, *, axis: int = -1, epsilon: float = 1e-5) -> Any:
        return f.layer_norm(x, x.shape[axis:], w, b, epsilon)

    return {
        "Conv": conv,
        "Gemm": gemm,
        "GlobalAveragePool": lambda x: f.adaptive_avg_pool2d(x, 1),
        "LayerNormalization": norm,
        "MaxPool": max_pool,
    }


def unsqueezed(shape: list[int], axes: Sequence[int]) -> list[int]:
    """A shape with ones put in, so that they are at `axes`."""
    for axis in sorted(axis % (len(shape) + len(axes)) for axis in axes):
        shape.insert(axis, 1)
    return shape


TORCH = Engine("torch", "torch", start)
