"""Convolutional image classifiers: data: float32[N, 3, H, W] to output: float32[N, 1000].

As exporters leave them in inference mode, batch normalization is folded into each convolution.
"""

from __future__ import annotations

from math import sqrt

from onnx import ModelProto, TensorProto

from bucketize.zoo.graph import Graph

CLASSES = 1000
BASIC, BOTTLENECK = 1, 4  # how many times its width a residual block puts out
INVERTED = (  # MobileNetV2's stages: expansion, channels, blocks, stride of the first block
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def resnet18(seed: int) -> ModelProto:
    """ResNet-18 (He et al. 2015, arXiv:1512.03385)."""
    return _resnet("resnet18", seed, (2, 2, 2, 2), BASIC)


def resnet34(seed: int) -> ModelProto:
    """ResNet-34: the blocks of ResNet-18, more of them."""
    return _resnet("resnet34", seed, (3, 4, 6, 3), BASIC)


def resnet50(seed: int) -> ModelProto:
    """ResNet-50 v1.5: the stride of a block is in its 3x3 convolution."""
    return _resnet("resnet50", seed, (3, 4, 6, 3), BOTTLENECK)


def mobilenetv2(seed: int) -> ModelProto:
    """MobileNetV2 at width 1 (Sandler et al. 2018, arXiv:1801.04381)."""
    graph = Graph("mobilenetv2", seed)
    x = graph.input("data", TensorProto.FLOAT, "N", 3, "H", "W")
    with graph.scope("features.0"):
        x = _relu6(graph, _conv(graph, "conv", x, (32, 3, 3), stride=2, gain=1.0))
    width, index = 32, 1
    for expansion, channels, blocks, stride in INVERTED:
        for block in range(blocks):
            with graph.scope(f"features.{index}"):
                x = _inverted(graph, x, width, channels, expansion, 1 if block else stride)
            width, index = channels, index + 1
    with graph.scope(f"features.{index}"):
        x = _relu6(graph, _conv(graph, "conv", x, (1280, width, 1), gain=1.0))
    return _classify(graph, x, 1280)


def _resnet(name: str, seed: int, stages: tuple[int, ...], expansion: int) -> ModelProto:
    graph = Graph(name, seed)
    # Each block adds to its input: branches this small keep the sum of all of them near 1.
    gain = 2.0 / sum(stages)
    x = graph.input("data", TensorProto.FLOAT, "N", 3, "H", "W")
    x = graph.node("Relu", _conv(graph, "conv1", x, (64, 3, 7), stride=2, gain=1.0))
    x = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    width = 64
    for stage, blocks in enumerate(stages):
        inner = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            with graph.scope(f"layer{stage + 1}"), graph.scope(str(block)):
                branch = _branch(graph, x, width, inner, expansion, stride, gain)
                if block == 0 and (stride > 1 or width != inner * expansion):
                    x = _conv(graph, "downsample", x, (inner * expansion, width, 1), stride=stride)
                x = graph.node("Relu", graph.node("Add", branch, x))
            width = inner * expansion
    return _classify(graph, x, width)


def _branch(
    graph: Graph, x: str, width: int, inner: int, expansion: int, stride: int, gain: float
) -> str:
    if expansion == BASIC:
        x = graph.node("Relu", _conv(graph, "conv1", x, (inner, width, 3), stride=stride))
        return _conv(graph, "conv2", x, (inner, inner, 3), gain=gain)
    x = graph.node("Relu", _conv(graph, "conv1", x, (inner, width, 1)))
    x = graph.node("Relu", _conv(graph, "conv2", x, (inner, inner, 3), stride=stride))
    return _conv(graph, "conv3", x, (inner * expansion, inner, 1), gain=gain)


def _inverted(graph: Graph, x: str, width: int, channels: int, expansion: int, stride: int) -> str:
    inner, residual = width * expansion, x
    if expansion > 1:
        # A block ends linearly, so no Relu has halved the second moment of its successor's input.
        x = _relu6(graph, _conv(graph, "expand", x, (inner, width, 1), gain=1.0))
    x = _relu6(graph, _conv(graph, "depthwise", x, (inner, 1, 3), stride=stride, group=inner))
    same = stride == 1 and width == channels
    x = _conv(graph, "project", x, (channels, inner, 1), gain=0.5 if same else 2.0)
    return graph.node("Add", residual, x) if same else x


def _conv(
    graph: Graph,
    name: str,
    x: str,
    taps: tuple[int, int, int],
    *,
    stride: int = 1,
    group: int = 1,
    gain: float = 2.0,
) -> str:
    """A Conv with "same" padding and weights of shape (out, in per group, kernel) in `taps`.

    With a gain of 2 it keeps the second moment of what a Relu left, with 1 that of what none did.
    """
    channels, width, kernel = taps
    with graph.scope(name):
        std = sqrt(gain / (width * kernel * kernel))
        weight = graph.weight("weight", channels, width, kernel, kernel, std=std)
        bias = graph.weight("bias", channels, std=0.1)
        return graph.node(
            "Conv",
            x,
            weight,
            bias,
            dilations=[1, 1],
            group=group,
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
        )


def _relu6(graph: Graph, x: str) -> str:
    return graph.node("Clip", x, graph.constant(0.0), graph.constant(6.0))


def _classify(graph: Graph, x: str, width: int) -> ModelProto:
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x), axis=1)
    with graph.scope("fc"):
        weight = graph.weight("weight", CLASSES, width, std=sqrt(2 / width))
        bias = graph.weight("bias", CLASSES, std=0.1)
        graph.node("Gemm", x, weight, bias, out="output", transB=1)
    graph.output("output", "N", CLASSES)
    return graph.model
