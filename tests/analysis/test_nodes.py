"""Two engines node by node: a fault that was put into one of them is found, wherever it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from bucketize.analysis.nodes import (
    Difference,
    NodeComparison,
    Tolerance,
    difference,
    marked,
    reads,
    single_node,
)
from bucketize.errors import EngineError

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)

CHAIN = """
    <ir_version: 8, opset_import: ["": 17]>
    chain (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
    <float[4] w = {1, 2, 3, 4}> {
        a = Mul(x, w)
        b = Relu(a)
        c = Tanh(b)
        l = Exp(x)
        r = Neg(l)
        s = Add(c, r)
        y = Sigmoid(s)
        z = Identity(c)
        unused = Neg(s)
    }
"""


def side(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> Sequence[Any]:
    return ReferenceEvaluator(model).run(None, dict(inputs))


def faulty(*outputs: str, by: float = 0.5) -> Callable[..., Sequence[Any]]:
    """An engine that makes what one of its nodes should too large, wherever that node is met."""

    def run(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> Sequence[Any]:
        altered = onnx.ModelProto()
        altered.CopyFrom(model)
        nodes = list(altered.graph.node)
        del altered.graph.node[:]
        for node in nodes:
            (name,) = node.output
            if name in outputs:
                node.output[0] = f"{name}_right"
                value = onnx.numpy_helper.from_array(np.float32(by))
                step = onnx.helper.make_node("Constant", [], [f"{name}_by"], value=value)
                add = onnx.helper.make_node("Add", [f"{name}_right", f"{name}_by"], [name])
                altered.graph.node.extend([node, step, add])
            else:
                altered.graph.node.append(node)
        return side(altered, inputs)

    return run


def comparison(mine: Callable[..., Sequence[Any]], text: str = CHAIN) -> NodeComparison:
    model = onnx.parser.parse_model(text)
    return NodeComparison(model, {"x": X}, mine, side)


@pytest.mark.parametrize("output", ["a", "b", "c", "l", "r", "s", "y", "z"])
@pytest.mark.parametrize("way", [NodeComparison.all_at_once, NodeComparison.bisect])
def test_the_node_with_the_fault_is_named(
    way: Callable[[NodeComparison], onnx.NodeProto | None], output: str
) -> None:
    its = comparison(faulty(output))
    first = way(its)
    assert first is not None
    assert list(first.output) == [output]
    (alone,) = its.alone(first)
    assert alone is not None
    assert not alone.agrees
    assert alone.absolute == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("way", [NodeComparison.all_at_once, NodeComparison.bisect])
def test_of_several_faults_each_named_node_has_inputs_that_agree(
    way: Callable[[NodeComparison], onnx.NodeProto | None],
) -> None:
    its = comparison(faulty("r", "s", "y"))
    first = way(its)
    assert first is not None
    assert list(first.output) == ["r"]
    row = its.frame.set_index("output").loc["r"]
    assert (row["agrees"], row["inputs_agree"]) == (False, True)


@pytest.mark.parametrize("way", [NodeComparison.all_at_once, NodeComparison.bisect])
def test_what_agrees_has_no_first(way: Callable[[NodeComparison], object]) -> None:
    its = comparison(side)
    assert way(its) is None
    assert its.frame["agrees"].all()


def test_bisection_asks_for_one_tensor_at_a_time() -> None:
    runs: list[list[str]] = []
    wrong = faulty("a")

    def counted(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> Sequence[Any]:
        runs.append([o.name for o in model.graph.output])
        return wrong(model, inputs)

    text = "\n".join(f"t{i + 1} = Neg(t{i})" for i in range(1, 40))
    its = comparison(
        counted,
        f"""<ir_version: 8, opset_import: ["": 17]>
        long (float[N, 4] x) => (float[N, 4] t40) {{ a = Neg(x)  t1 = Neg(a)  {text} }}""",
    )
    assert list(its.bisect().output) == ["a"]  # type: ignore[union-attr]
    assert len(runs) <= 8
    assert all(len(outputs) <= 2 for outputs in runs)
    assert len(its.frame) == len(runs)


def test_a_difference_that_the_outputs_hide_is_found_all_at_once_alone() -> None:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        hides (float[N, 4] x) => (float[N, 4] y) { a = Abs(x)  b = Add(a, a)  y = Sign(b) }
    """
    assert list(comparison(faulty("a"), text).all_at_once().output) == ["a"]  # type: ignore[union-attr]
    assert comparison(faulty("a"), text).bisect() is None


def test_a_fault_that_comes_with_others_only_is_no_fault_of_the_node() -> None:
    """An engine that is wrong where two nodes stand together."""

    def fused(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> Sequence[Any]:
        together = {"b", "c"} <= {o for n in model.graph.node for o in n.output}
        return faulty("c")(model, inputs) if together else side(model, inputs)

    its = comparison(fused)
    first = its.all_at_once()
    assert first is not None
    assert list(first.output) == ["c"]
    assert its.alone(first) == [Difference(True)]


def test_what_a_graph_inside_a_node_reads_is_its_input() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        branch (float[N, 4] x, bool c) => (float[N, 4] y) {
            a = Neg(x)
            y = If(c) <
                then_branch = one () => (float[N, 4] t) { u = Abs(a)  t = Exp(u) },
                else_branch = two () => (float[N, 4] e) { e = Identity(x) }
            >
        }
    """)
    branch = model.graph.node[1]
    assert set(reads(branch)) == {"a", "c", "x"}
    single = single_node(model, branch, {"a": X, "x": X, "c": np.array(True)})
    assert [i.name for i in single.graph.input] == ["a", "c", "x"]
    (y,) = side(single, {"a": X, "x": X, "c": np.array(True)})
    np.testing.assert_allclose(y, np.exp(np.abs(X)), rtol=1e-6)
    its = NodeComparison(model, {"x": X, "c": np.array(True)}, faulty("a"), side)
    assert list(its.all_at_once().output) == ["a"]  # type: ignore[union-attr]


def test_constants_come_along_with_a_node_and_outputs_stay_first() -> None:
    model = onnx.parser.parse_model(CHAIN)
    single = single_node(model, model.graph.node[0], {"x": X})
    assert [t.name for t in single.graph.initializer] == ["w"]
    assert [i.name for i in single.graph.input] == ["x"]
    assert [o.name for o in marked(model, ["y", "a"]).graph.output] == ["y", "z", "a"]
    assert [o.name for o in model.graph.output] == ["y", "z"]


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("got", "expected", "agrees"),
    [
        ([1.0, 2.0], [1.0, 2.001], True),
        ([1.0, 2.0], [1.0, 2.01], False),
        ([1e-5], [0.0], True),
        ([NAN, 1.0], [NAN, 1.0], True),
        ([NAN], [1.0], False),
        ([1.0], [NAN], False),
        ([INF, -INF], [INF, -INF], True),
        ([INF], [-INF], False),
        ([1e38], [INF], False),
        ([NAN], [INF], False),
        ([], [], True),
    ],
)
def test_when_floats_agree(got: list[float], expected: list[float], agrees: bool) -> None:
    its = difference(np.array(got, np.float32), np.array(expected, np.float32), Tolerance())
    assert its is not None
    assert its.agrees is agrees
    if not agrees and not np.isfinite([*got, *expected]).all():
        assert its.absolute == INF


def test_floats_have_their_tolerance_where_longdouble_is_a_double(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on macOS on Arm."""
    monkeypatch.setattr(np, "longdouble", np.float64)
    for dtype, agrees in ((np.float32, True), (np.int64, False)):
        its = difference(np.array([5001], dtype), np.array([5000], dtype), Tolerance())
        assert its is not None
        assert its.agrees is agrees


def test_when_others_agree() -> None:
    def agree(got: Any, expected: Any, atol: float = 1e-4) -> bool:
        its = difference(got, expected, Tolerance(atol))
        assert its is not None
        return its.agrees

    large = np.array([2**62, 2**62 + 1])
    assert agree(large, large)
    assert not agree(large, large[::-1].copy())  # no rtol, and no rounding to 53 bits
    assert agree(np.uint8([3]), np.uint8([4]), atol=1)
    assert not agree(np.uint8([3]), np.uint8([5]), atol=1)
    assert not agree(np.array([True]), np.array([False]))
    assert agree(np.array([1 + 2j], np.complex64), np.array([1 + 2j], np.complex64))
    assert not agree(np.array([1 + 2j], np.complex64), np.array([1 + 3j], np.complex64))
    assert agree(np.array(["a"], object), np.array(["a"], object))
    assert not agree(np.array(["a"], object), np.array(["b"], object))
    apart = difference(X, X[:2], Tolerance())
    assert apart == Difference(False, INF, INF, "shape (3, 4) for (2, 4)")
    assert difference([X], [X], Tolerance()) is None


def test_what_is_no_array_is_not_compared() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        list (float[N, 4] x) => (float[M, 4] y) {
            a = Neg(x)  s = SequenceConstruct(a, x)  y = ConcatFromSequence<axis=0>(s)
        }
    """)
    its = NodeComparison(model, {"x": X}, faulty("y"), side)
    first = its.all_at_once()
    assert first is not None
    assert list(first.output) == ["y"]
    row = its.frame.set_index("output").loc["s"]
    assert row["agrees"] is None
    assert row["reason"] == "no array"
    with pytest.raises(EngineError, match="y reads s, which is no array"):
        its.alone(first)
