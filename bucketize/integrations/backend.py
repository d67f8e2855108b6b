"""`onnx.backend`: models and single nodes, as ONNX's own tests run them.

A module is a backend if it has these names. Source:
https://onnx.ai/onnx/api/backend.html, "Backend".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from bucketize.compiler import compile
from bucketize.errors import ArgumentError
from bucketize.executable import Executable
from bucketize.onnx import from_onnx
from bucketize.op import Value

CPU = "CPU"


class CompiledBackend(BackendRep):
    """A model that was compiled."""

    def __init__(self, executable: Executable) -> None:
        """What runs is `executable`."""
        super().__init__()
        self.executable = executable

    def run(self, inputs: Sequence[Value] | Mapping[str, Value], **kwargs: Any) -> Any:
        """The results.

        Args:
            inputs: in the order of the model's, or by name.
            **kwargs: none has a meaning.

        Returns:
            A tuple whose fields have the names of outputs.

        Raises:
            BucketizeError: as of `Executable.run`.

        """
        if isinstance(inputs, Mapping):
            results = self.executable.run(**inputs)
        else:
            results = self.executable.run(*inputs)
        return namedtupledict("Outputs", self.executable.outputs)(*results)


class BucketizeBackend(Backend):
    """ONNX's interface of a backend."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether there is such a device: the CPU.

        Args:
            device: as in "CPU" or "CUDA:1".

        Returns:
            Whether it is the CPU.

        """
        return device.partition(":")[0] == CPU

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = CPU, **kwargs: Any) -> CompiledBackend:
        """Compile a model.

        Args:
            model: of ONNX.
            device: "CPU", as there is no other.
            **kwargs: none has a meaning.

        Returns:
            What runs it.

        Raises:
            ArgumentError: another device.
            UnsupportedModelError: the model cannot be read.

        """
        if not cls.supports_device(device):
            raise ArgumentError(f"device: expected {CPU!r}, got {device!r}")
        return CompiledBackend(compile(from_onnx(model)))

    @classmethod
    def run_node(  # type: ignore[override]  # types of results are not asked for
        cls, node: onnx.NodeProto, inputs: Sequence[Any], device: str = CPU, **kwargs: Any
    ) -> Any:
        """The results of one node, of the newest opset.

        Args:
            node: of ONNX.
            inputs: arrays, in its order.
            device: as of `prepare`.
            **kwargs: `opset_version`, if it is another one.

        Returns:
            As `CompiledBackend.run`.

        Raises:
            UnsupportedModelError: the node cannot be read.

        """
        names = [name for name in node.input if name]
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, inputs, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([node], "node", infos, outputs)
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
        return cls.run_model(model, list(inputs), device)


prepare = BucketizeBackend.prepare
run_node = BucketizeBackend.run_node
run_model = BucketizeBackend.run_model
supports_device = BucketizeBackend.supports_device
