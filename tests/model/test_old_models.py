"""Whole nets as exporters of old wrote them, beside onnxruntime, at several sizes.

onnxruntime runs opset 7 and newer; what an older model computes, the same net of opset 7 does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from agreement import agree
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.version_converter import convert_version
from onnx_model import draw, ort_session, parse

import bucketize
from bucketize.errors import UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Module
from bucketize.onnx import from_onnx
from bucketize.onnx.load import OPSETS, Source
from bucketize.types import AnyDim
from dispatchers import log_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

OLDEST, NEWEST_OF_ORT = 7, 24  # of the opsets that onnxruntime runs
NEWEST = min(OPSETS[-1], defs.onnx_opset_version())
TOLERANCE = 1e-4
HALF_TOLERANCE = 2e-2
IR_VERSION = 3  # the last whose weights are inputs, too
FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64

Net = Callable[["Writer"], Sequence[str]]


class Writer:
    """A model in the way of its opset: weights are inputs, too, and nodes have no names."""

    def __init__(self, opset: int, data_type: int = FLOAT) -> None:
        self.opset, self.data_type = opset, data_type
        self.dtype = helper.tensor_dtype_to_np_dtype(data_type)
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def model(self, net: Net) -> onnx.ModelProto:
        outputs = [helper.make_tensor_value_info(n, self.data_type, None) for n in net(self)]
        graph = helper.make_graph(self.nodes, "main", self.inputs, outputs, self.weights)
        sets = [helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=sets, ir_version=IR_VERSION)

    def input(self, name: str, *dims: int | str, data_type: int | None = None) -> str:
        kind = data_type or self.data_type
        self.inputs.append(helper.make_tensor_value_info(name, kind, dims))
        return name

    def held(self, value: Any, dtype: Any) -> str:
        """A weight of this value."""
        tensor = numpy_helper.from_array(np.asarray(value, dtype), f"gpu_0/{len(self.weights)}_w")
        self.weights.append(tensor)
        return self.input(tensor.name, *tensor.dims, data_type=tensor.data_type)

    def drawn(self, *shape: int) -> str:
        """A weight that keeps activations near 1."""
        scale = np.sqrt(2 / np.prod(shape[1:]))
        return self.held(self.random.standard_normal(shape) * scale, self.dtype)

    def positive(self, *shape: int) -> str:
        return self.held(self.random.uniform(0.5, 1.5, shape), self.dtype)

    def all(self, op_type: str, *inputs: str, outputs: int = 1, **attrs: Any) -> tuple[str, ...]:
        names = tuple(f"{op_type}__{len(self.nodes)}:{i}" for i in range(outputs))
        self.nodes.append(helper.make_node(op_type, inputs, names, **attrs))
        return names

    def __call__(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """The first result of a new node."""
        return self.all(op_type, *inputs, **attrs)[0]

    # forms that changed

    def before(self, opset: int, **attrs: Any) -> dict[str, Any]:
        """Attributes that were asked for, or allowed, before an opset."""
        return attrs if self.opset < opset else {}

    def norm(self, x: str, channels: int) -> str:
        """A batch normalisation; one that says that it is a test may list what training makes."""
        names = (self.positive(channels), *(self.drawn(channels) for _ in "bm"))
        attrs = self.before(6, consumed_inputs=[0, 0, 0, 1, 1]) | self.before(7, is_test=1)
        attrs |= self.before(9, spatial=1)
        variance = self.positive(channels)
        attrs |= {"outputs": 1 if self.opset >= OLDEST else 5, "epsilon": 1e-3}
        return self("BatchNormalization", x, *names, variance, **attrs)

    def relu(self, x: str) -> str:
        return self("Relu", x, **self.before(6, consumed_inputs=[0]))

    def dropout(self, x: str) -> str:
        return self("Dropout", x, outputs=2, ratio=0.5, **self.before(7, is_test=1))

    def reshape(self, x: str, *shape: int) -> str:
        if self.opset < 5:
            return self("Reshape", x, shape=shape)
        return self("Reshape", x, self.held(shape, np.int64))

    def gemm(self, x: str, outs: int, ins: int) -> str:
        weights = self.drawn(outs, ins), self.drawn(outs)
        return self("Gemm", x, *weights, transB=1, **self.before(7, broadcast=1))

    def channelwise(self, op_type: str, x: str, channels: int, rank: int) -> str:
        """A number for each channel: at an axis, or with axes behind."""
        if self.opset < OLDEST:
            return self(op_type, x, self.positive(channels), broadcast=1, axis=1)
        return self(op_type, x, self.positive(channels, *(1,) * (rank - 2)))

    def cast(self, x: str, data_type: int) -> str:
        name = TensorProto.DataType.Name(data_type)
        return self("Cast", x, to=name if self.opset < 6 else data_type)

    def scaled_up(self, x: str, *scales: float, mode: str = "nearest") -> str:
        if self.opset < 9:
            return self("Upsample", x, scales=scales, mode=mode)
        return self("Upsample", x, self.held(scales, np.float32), mode=mode)


def _alexnet(w: Writer) -> Sequence[str]:
    """By caffe2: two groups, a response normalised across channels, masks that nobody reads."""
    x = w.input("gpu_0/data_0", "N", 3, 33, 33)
    x = w("Conv", x, w.drawn(8, 3, 5, 5), w.drawn(8), kernel_shape=[5, 5], strides=[2, 2])
    x = w("LRN", w.relu(x), size=5, alpha=1e-2, beta=0.75, bias=1.0)
    x = w("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    x = w("Conv", x, w.drawn(8, 4, 3, 3), w.drawn(8), group=2, pads=[1, 1, 1, 1], dilations=[1, 1])
    x = w("MaxPool", w.relu(x), kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 0, 0])
    x = w.dropout(w.relu(w.gemm(w.reshape(x, -1, 8 * 3 * 3), 16, 72)))
    return [w("Softmax", w.gemm(x, 5, 16), axis=1)]


def _squeezenet(w: Writer) -> Sequence[str]:
    """By caffe2: paths that are joined, and a softmax over all that is behind the batch."""
    x = w.input("data_0", "N", 3, "H", "W")
    x = w.relu(w("Conv", x, w.drawn(8, 3, 3, 3), w.drawn(8), strides=[2, 2]))
    x = w("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    x = w.relu(w("Conv", x, w.drawn(4, 8, 1, 1), w.drawn(4)))
    one = w("Conv", x, w.drawn(6, 4, 1, 1), w.drawn(6))
    three = w("Conv", x, w.drawn(6, 4, 3, 3), w.drawn(6), pads=[1, 1, 1, 1])
    x = w("Concat", w.relu(one), w.relu(three), **({} if w.opset < 4 else {"axis": 1}))
    x = w("GlobalAveragePool", w("Conv", w.dropout(x), w.drawn(5, 12, 1, 1), w.drawn(5)))
    return [w("Softmax", x, **w.before(3, axis=1)), w("AveragePool", x, kernel_shape=[1, 1])]


def _resnet(w: Writer) -> Sequence[str]:
    """By mxnet: norms first, fields of preprocessing, slopes and scales for each channel."""
    x = w.input("data", "N", 3, "H", "W")
    x = w.channelwise("Mul", w.channelwise("Sub", x, 3, 4), 3, 4)
    x = w("Conv", x, w.drawn(8, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    y = w.norm(x, 8)
    y = w("PRelu", y, w.positive(8) if w.opset < OLDEST else w.positive(8, 1, 1))
    y = w("Conv", y, w.drawn(8, 8, 3, 3), pads=[1, 1, 1, 1])
    x = w("Add", x, w.norm(y, 8), **w.before(6, consumed_inputs=[0, 0]))
    pads = {"paddings" if w.opset < 2 else "pads": [0, 0, 1, 1, 0, 0, 1, 1]}
    x = w("Pad", w("LeakyRelu", x, alpha=0.1), mode="constant", value=0.5, **pads)
    x = w("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 1])
    x = w("Flatten", w("GlobalMaxPool", w("Clip", x, min=-1.0, max=2.5)))
    return [w("LogSoftmax", w.gemm(x, 5, 8)), w("Hardmax", x)]


def _ferplus(w: Writer) -> Sequence[str]:
    """By CNTK: extents of images say how much is padded, biases stand at an axis."""
    x = w.input("Input3", "N", 1, "H", "W")
    mean, scale = w.held(0.5, w.dtype), w.held([2.0], w.dtype)
    x = w("Div", w("Sub", x, mean, **w.before(7, broadcast=1)), scale, **w.before(7, broadcast=1))
    for ins, outs, rule, strides in ((1, 4, "SAME_UPPER", [1, 1]), (4, 8, "SAME_LOWER", [2, 2])):
        kernel = {"kernel_shape": [4, 3], "strides": strides, "dilations": [1, 1]}
        x = w("Conv", x, w.drawn(outs, ins, 4, 3), auto_pad=rule, group=1, **kernel)
        x = w.relu(w.channelwise("Add", x, outs, 4))
        attrs = {"kernel_shape": [3, 2], "strides": [2, 2]}
        x = w("MaxPool", x, auto_pad=rule, **attrs)
    x = w("AveragePool", x, kernel_shape=[2, 2], auto_pad="VALID", pads=[0, 0, 0, 0])
    x = w("ReduceMean", x, axes=[2, 3], keepdims=0)
    x = w("MatMul", w.dropout(x), w.drawn(8, 5))
    return [w("Add", x, w.drawn(5), **w.before(7, broadcast=1))]


def _keras(w: Writer) -> Sequence[str]:
    """By keras2onnx: channels come last, and go there again; a decoder of greater images."""
    x = w.input("input_1", "N", "H", "W", 3)
    x = w("Conv", w("Transpose", x, perm=[0, 3, 1, 2]), w.drawn(6, 3, 3, 3), auto_pad="SAME_UPPER")
    x = w("Clip", w.norm(x, 6), min=0.0, max=6.0)
    x = w("Conv", x, w.drawn(6, 1, 3, 3), pads=[1, 1, 1, 1], group=6)
    y = w("ReduceSum", w("Elu", x), axes=[-1], keepdims=1)
    squeezed = w("Unsqueeze", w("Squeeze", y, axes=[3]), axes=[3])
    x = w.scaled_up(w("Add", x, squeezed), 1.0, 1.0, 2.0, 2.0)
    x = w.scaled_up(w("HardSigmoid", x), 1.0, 1.0, 1.0, 1.5, mode="linear")
    x = w("ConvTranspose", x, w.drawn(6, 2, 2, 2), w.drawn(2), strides=[2, 2])
    x = w("InstanceNormalization", x, w.positive(2), w.drawn(2))
    x = w(
        "Slice", w("Transpose", x, perm=[0, 2, 3, 1]), axes=[1, 2], starts=[1, 1], ends=[-1, 9999]
    )
    return [x, w("Softmax", x, axis=3), w("Softmax", x, axis=1)]


def _tagger(w: Writer) -> Sequence[str]:
    """By torch: shapes are computed from shapes, states are zeros of the batch's extent."""
    x = w.input("words", "T", "N", data_type=INT64)
    x = w("Gather", w.drawn(9, 4), x)
    (size,) = (w("Slice", w("Shape", x), axes=[0], starts=[1], ends=[2]),)
    ones = (w("Constant", value=numpy_helper.from_array(np.array([n]))) for n in (2, 3))
    two, three = ones
    zeros = w("ConstantOfShape", w("Concat", two, size, three, axis=0))
    both = (w.drawn(2, 12, 4), w.drawn(2, 12, 3), w.drawn(2, 24))
    attrs = {"hidden_size": 3, "direction": "bidirectional"}
    y, last, _ = w.all("LSTM", x, *both, "", zeros, zeros, outputs=3, **attrs)
    y = w.reshape(w("Transpose", y, perm=[0, 2, 1, 3]), 0, 0, -1)
    y = w("GRU", y, w.drawn(1, 15, 6), w.drawn(1, 15, 5), hidden_size=5, linear_before_reset=1)
    y = w("MatMul", w("Squeeze", y, axes=[1]), w.drawn(5, 4))
    return [w("LogSoftmax", y, axis=2), w("RNN", y, w.drawn(1, 2, 4), w.drawn(1, 2, 2),
                                          hidden_size=2), last]  # fmt: skip


def _bert(w: Writer) -> Sequence[str]:
    """By tf2onnx: names with colons, masks from casts, norms from means."""
    ids = w.input("ids:0", "unk__1", "unk__2", data_type=INT64)
    x = w("Gather", w.drawn(9, 8), ids)
    mask = w("Unsqueeze", w.cast(w("Equal", ids, w.held(0, np.int64)), w.data_type), axes=[1, 2])
    one = w("Constant", value=numpy_helper.from_array(w.dtype.type(-1e4)))
    mask = w("Mul", mask, one)
    mean = w("ReduceMean", x, axes=[-1])
    low = w("Sub", x, mean)
    variance = w("ReduceMean", w("Mul", low, low), axes=[2], keepdims=1)
    root = w("Reciprocal", w("Sqrt", w("Add", variance, w.held(1e-12, w.dtype))))
    x = w("Add", w("Mul", low, w("Mul", root, w.positive(8))), w.drawn(8))
    parts = w.all("Split", w("MatMul", x, w.drawn(8, 24)), outputs=3, axis=2, split=[8, 8, 8])
    heads = [w("Transpose", w.reshape(p, 0, 0, 2, 4), perm=[0, 2, 1, 3]) for p in parts]
    scores = w("MatMul", heads[0], w("Transpose", heads[1], perm=[0, 1, 3, 2]))
    scores = w("Softmax", w("Add", scores, mask), axis=3)
    y = w("Transpose", w("MatMul", scores, heads[2]), perm=[0, 2, 1, 3])
    y = w("Add", w.reshape(y, 0, 0, 8), x)
    cube = w("Pow", y, w.held(3.0, w.dtype))
    y = w("Mul", y, w("Tanh", w("Add", y, cube)))
    first = w("Squeeze", w("Slice", y, axes=[1], starts=[0], ends=[1]), axes=[1])
    pooled, _ = w.all("TopK", first, k=3, axis=1, outputs=2)
    return [y, w("Tile", pooled, w.held([1, 2], np.int64))]


IMAGES = {"N": (0, 8), "H": (16, 64), "W": (16, 64)}
IMAGE_SIZES = [{"N": 1, "H": 16, "W": 16}, {"N": 3, "H": 17, "W": 30}, {"N": 2, "H": 33, "W": 20}]
TOKENS = {"T": (1, 16), "N": (1, 8)}

# how, in which opsets, and within which bounds at which sizes it runs
NETS: dict[str, tuple[Net, Sequence[int], Any, Any]] = {
    "alexnet": (_alexnet, (1, 3, 6, 8), {"N": (1, 8)}, [{"N": 1}, {"N": 3}]),
    "squeezenet": (_squeezenet, (1, 3, 6, 9), IMAGES, IMAGE_SIZES),
    "resnet": (_resnet, (1, 2, 6, 7, 9), IMAGES, IMAGE_SIZES),
    "ferplus": (_ferplus, (1, 6, 7), IMAGES, IMAGE_SIZES),
    "keras": (_keras, (7, 8, 9), IMAGES, IMAGE_SIZES),
    "tagger": (_tagger, (9,), TOKENS, [{"T": 1, "N": 1}, {"T": 6, "N": 3}]),
    "bert": (_bert, (7, 9), {"unk__1": (1, 8), "unk__2": (1, 32)},
             [{"unk__1": 1, "unk__2": 1}, {"unk__1": 3, "unk__2": 9}]),
}  # fmt: skip
CASES = [(name, opset) for name, (_, opsets, *_) in NETS.items() for opset in opsets]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "opset"), CASES)
def test_old_nets(name: str, opset: int) -> None:
    net = NETS[name][0]
    check(name, Writer(opset).model(net), Writer(max(opset, OLDEST)).model(net))


def check(name: str, model: Source, today: onnx.ModelProto, tolerance: float = TOLERANCE) -> None:
    """Interpreted, compiled and behind buckets a model computes what onnxruntime does today."""
    module = from_onnx(model, bounds=NETS[name][2])
    assert not any(isinstance(d, AnyDim) for r in module.main.results for d in r.type.shape)
    exe = bucketize.compile(module)
    dispatched = bucketize.dispatch(module, log_dispatcher)
    for inputs, want in wanted(name, module, today):
        agree(evaluate_module(module, **inputs), want, tolerance)
        agree(exe.run(**inputs), want, tolerance)
        agree(evaluate_module(dispatched, **inputs), want, tolerance)


def wanted(name: str, module: Module, today: onnx.ModelProto) -> Iterator[tuple[Any, Any]]:
    """Inputs at each of the sizes, and what onnxruntime makes of them."""
    peer = ort_session(today)
    for sizes in NETS[name][3]:
        rng = np.random.default_rng(1)
        inputs = {p.name: draw(rng, p, sizes) for p in module.main.params}
        yield inputs, peer.run(None, inputs)


DOWN = [("squeezenet", 9, 5), ("resnet", 9, 7), ("keras", 9, 8), ("bert", 9, 7)]
UP = [(name, max(n[1]), to) for name, n in NETS.items() for to in (10, 12, 13, 18, NEWEST)]


@pytest.mark.parametrize(("name", "opset", "target"), DOWN + UP)
def test_converted_nets(name: str, opset: int, target: int) -> None:
    """onnx may mean another net (its Resize is no Upsample): onnxruntime is asked about that."""
    model = Writer(opset).model(NETS[name][0])
    module = from_onnx(convert_version(model, target), bounds=NETS[name][2])
    known = convert_version(model, min(max(target, OLDEST), NEWEST_OF_ORT))
    for inputs, want in wanted(name, module, known):
        agree(evaluate_module(module, **inputs), want, TOLERANCE)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["squeezenet", "bert"])
def test_nets_of_halves(name: str) -> None:
    model = Writer(OLDEST, HALF).model(NETS[name][0])
    check(name, model, model, HALF_TOLERANCE)


def test_weights_beside_the_file(tmp_path: Path) -> None:
    model = Writer(OLDEST).model(_alexnet)
    path, kept = tmp_path / "model.onnx", onnx.ModelProto.FromString(model.SerializeToString())
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    assert (tmp_path / "weights").stat().st_size > path.stat().st_size
    check("alexnet", path, kept)
    with pytest.raises(UnsupportedModelError, match="stored outside of the model"):
        from_onnx(path.read_bytes())


def test_results_without_a_name_are_left_out() -> None:
    """So a norm that lists those of training by no name is none of training."""
    graph = (
        "(float[N, 3] x, float[3] w) => (y) { y, a, b, c, d = BatchNormalization(x, w, w, w, w) }"
    )
    model = parse(graph, 9)
    model.graph.node[0].output[1:] = ["", "", "", ""]
    x, w = np.float32([[1, 2, 3], [4, 5, 7]]), np.float32([1, 2, 3])
    (got,) = evaluate_module(from_onnx(model), x, w)
    np.testing.assert_allclose(got, (x - w) / np.sqrt(w + 1e-5) * w + w, rtol=1e-5)


def test_a_shape_that_is_cast_is_known() -> None:
    """As torch writes shapes for opset 8."""
    graph = (
        "(float[N, 6] x) => (y) <float[3] f = {0, 2, -1}> { s = Cast<to = 7>(f) y = Reshape(x, s) }"
    )
    module = from_onnx(parse(graph, 8))
    assert [str(r.type) for r in module.main.results] == ["float32[N, 2, 3]"]


def test_a_version_must_be_told() -> None:
    model = Writer(9).model(_bert)
    model.opset_import[1].ClearField("version")
    with pytest.raises(UnsupportedModelError, match="the model has opset 0, but bucketize reads 1"):
        from_onnx(model)
