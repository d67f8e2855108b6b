"""Profiles: which nodes kernels come from, what a kernel takes, and the bounds of the machine."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import bucketize
from bucketize.ir import Module
from bucketize.program.instruction import Compute, RunSegment, instructions
from dispatchers import log_dispatcher


def weight(name: str, *shape: int) -> onnx.TensorProto:
    value = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(value, name)


def model(*names: str, bias: float = 0.5) -> onnx.ModelProto:
    """Two products, an elementwise op behind each; a node without a name is known by its output."""
    one, two, three, four = names or ("", "", "", "")
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], one),
        helper.make_node("Relu", ["h"], ["r"], two),
        helper.make_node("MatMul", ["r", "b"], ["p"], three),
        helper.make_node("Add", ["p", "c"], ["y"], four),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 32])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 16])
    c = numpy_helper.from_array(np.full(16, bias, np.float32), "c")
    weights = [weight("a", 32, 24), weight("b", 24, 16), c]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def module(*names: str) -> Module:
    return bucketize.from_onnx(model(*names), bounds={"N": (1, 8)})


NAMES = ("fc1", "act", "fc2", "bias")
X = np.ones((3, 32), np.float32)


def origins(exe: bucketize.Executable) -> set[str]:
    steps = [i for r in exe.routines.values() for i in instructions(r.code)]
    native = [c.binding for i in steps if isinstance(i, RunSegment) for c in i.segment.calls]
    host = [i.binding for i in steps if isinstance(i, Compute)]
    return {"+".join(b.origin) for b in native + host}


# --- the nodes of the model that a kernel comes from ---


@pytest.mark.parametrize(
    ("names", "expected"),
    [(NAMES, {"fc1+act", "fc2+bias"}), ((), {"h+r", "p+y"})],
)
@pytest.mark.parametrize("policy", ["none", "exact", "pad"])
def test_kernels_know_the_nodes_that_they_come_from(
    names: tuple[str, ...], expected: set[str], policy: str, tmp_path: Path
) -> None:
    mod = module(*names)
    if policy != "none":
        mod = bucketize.dispatch(mod, log_dispatcher, policy=policy)
    exe = bucketize.compile(pickle.loads(pickle.dumps(mod)))
    exe.run(x=X)
    assert expected <= origins(exe)
    exe.save(tmp_path / "net.bkt")
    loaded = bucketize.load(tmp_path / "net.bkt")
    loaded.run(x=X)
    assert expected <= origins(loaded)


def test_nodes_change_neither_programs_nor_kernels() -> None:
    exe, other = (bucketize.compile(module(*names)) for names in (NAMES, ()))
    assert exe.program == other.program
    assert exe.kernels.keys() == other.kernels.keys()
    assert str(exe.module.main) == str(other.module.main)  # type: ignore[union-attr]


def test_ops_that_numpy_computes_and_convolutions_know_their_nodes() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["h"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"], "act"),
        helper.make_node("NonZero", ["r"], ["y"], "where"),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4, "H", 8])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [4, None])
    graph = helper.make_graph(nodes, "g", [x], [y], [weight("w", 8, 4, 3, 3)])
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    exe = bucketize.compile(bucketize.from_onnx(proto))
    assert origins(exe) >= {"conv", "conv+act", "where"}  # its padding is a kernel of its own
