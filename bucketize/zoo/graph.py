"""An ONNX model being written node by node, as an exporter would write it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

OPSET = 17
IR_VERSION = 8


class Graph:
    """A model under construction: scoped nodes, and weights drawn from one seeded stream."""

    def __init__(self, name: str, seed: int) -> None:
        # Weights go straight into the final message: each copy of bert-base costs 0.4 GB.
        self.model = ModelProto(ir_version=IR_VERSION, producer_name="bucketize.zoo")
        self.model.opset_import.append(helper.make_opsetid("", OPSET))
        self.model.graph.name = name
        self._random = np.random.Generator(np.random.SFC64(seed))
        self._scope: tuple[str, ...] = ()
        self._uses: Counter[str] = Counter()

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """The part of the network whose nodes and weights are named under `name`."""
        outer, self._scope = self._scope, (*self._scope, name)
        yield
        self._scope = outer

    def input(self, name: str, dtype: int, *shape: int | str) -> str:
        """A graph input; strings in `shape` name dynamic dims."""
        self.model.graph.input.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, *shape: int | str) -> None:
        """Declare the value called `name` a float32 output of the graph."""
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        self.model.graph.output.append(value)

    def node(self, op_type: str, *inputs: str, out: str | None = None, **attrs: Any) -> str:
        """The one result of a new node, named `out` or after the node."""
        path = "/".join(("", *self._scope, op_type))
        name = f"{path}_{self._uses[path]}" if self._uses[path] else path
        self._uses[path] += 1
        out = out or f"{name}_output_0"
        self.model.graph.node.append(helper.make_node(op_type, inputs, [out], name, **attrs))
        return out

    def constant(self, value: float | Sequence[int]) -> str:
        """A Constant node: float32 for a float, int64 for anything else."""
        tensor = TensorProto()
        _fill(tensor, np.asarray(value, np.float32 if isinstance(value, float) else np.int64))
        return self.node("Constant", value=tensor)

    def tensor(self, name: str, value: NDArray[Any]) -> str:
        """An initializer that holds `value`."""
        name = ".".join((*self._scope, name))
        _fill(self.model.graph.initializer.add(name=name), value)
        return name

    def weight(self, name: str, *shape: int, std: float, mean: float = 0.0) -> str:
        """A float32 initializer with normally distributed elements."""
        value = self._random.standard_normal(shape, np.float32)
        value *= np.float32(std)
        if mean:
            value += np.float32(mean)
        return self.tensor(name, value)


def _fill(tensor: TensorProto, value: NDArray[Any]) -> None:
    tensor.data_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    tensor.dims.extend(value.shape)
    tensor.raw_data = value.tobytes()
