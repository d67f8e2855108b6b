"""What models compute beside products: the layers of the grid "rest", side by side.

`S` is the length of a sequence, `E` the extent of an image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bucketize import ops
from bucketize.ir import Atom, Builder, Const, Module, Var
from bucketize.op import Op
from bucketize.types import Dim, Symbol, tensor

Layer = tuple[Op, tuple["Shape | Const", ...], Mapping[str, Any]]
Shape = tuple[Dim, ...]

S, E = Symbol("S", 1, 512), Symbol("E", 1, 224)
SIZES: list[Mapping[str, int]] = [
    {"S": s, "E": e} for s, e in ((7, 5), (16, 14), (64, 28), (100, 49), (128, 56), (384, 112))
]
WIDTHS = ((256, 4), (768, 12))  # of a transformer, and its heads
CHANNELS = (24, 64, 144)  # of images


def attention() -> Iterator[Layer]:
    """Layers of transformers."""
    for width, heads in WIDTHS:
        x, scores = (1, S, width), (1, heads, S, S)
        scale = Const(np.ones(width, np.float32))
        yield ops.layer_norm, (x, scale, Const(scale.value + 1)), {"axis": 2}
        yield ops.softmax, (scores,), {"axis": 3}
        yield ops.add, (scores, (1, 1, 1, S)), {}
        yield ops.add, (x, x), {}
        yield ops.gelu, ((1, S, 4 * width),), {}
        yield ops.transpose, ((1, S, heads, 64),), {"axes": (0, 2, 1, 3)}
        yield ops.transpose, ((1, S, heads, 64),), {"axes": (0, 2, 3, 1)}
        yield ops.transpose, ((1, heads, S, 64),), {"axes": (0, 2, 1, 3)}
        yield ops.reduce_mean, (x,), {"axes": (1,)}
        yield ops.reduce_mean, (x,), {"axes": (2,), "keepdims": True}
        yield ops.concat, (x, x), {"axis": 1}
        yield ops.concat, (x, (1, S, 64)), {"axis": 2}
        yield ops.broadcast_to, ((1, 1, 1, S),), {"shape": scores}
        cut = {"begin": (0,), "end": (width // 2,), "strides": (1,), "axes": (2,)}
        yield ops.strided_slice, (x,), cut
        yield ops.strided_slice, (x,), {**cut, "strides": (2,), "end": (width,)}
        yield ops.tile, (x,), {"repeats": (1, 1, 2)}
        yield ops.argmax, (x,), {"axis": 2}
        yield ops.cumsum, (x,), {"axis": 1}
    yield from elementwise()


def elementwise() -> Iterator[Layer]:
    """One op of each kind, and what few models have."""
    x = (1, S, 1024)
    for op in (
        ops.relu,
        ops.exp,
        ops.tanh,
        ops.erf,
        ops.sigmoid,
        ops.sqrt,
        ops.log,
        ops.hard_swish,
    ):
        yield op, (x,), {}
    for op in (ops.mul, ops.div, ops.maximum_, ops.pow_):
        yield op, (x, x), {}
    yield ops.mul, (x, (1, S, 1)), {}
    yield ops.log_softmax, (x,), {"axis": 2}
    yield ops.softmax, ((1, 64, S),), {"axis": 1}
    yield ops.cumsum, (x,), {"axis": 2}
    yield ops.reduce_max, (x,), {"axes": (2,)}
    yield ops.cast, (x,), {"dtype": "int32"}


def images() -> Iterator[Layer]:
    """Layers of convolutional networks, and those that lie beside them in memory."""
    yield ops.transpose, ((1, 3, E, E),), {"axes": (0, 2, 3, 1)}
    for channels in CHANNELS:
        x = (1, E, E, channels)
        pads = ((0, 0), (1, 1), (1, 1), (0, 0))
        yield ops.pad, (x,), {"pads": pads}
        yield ops.pad, (x,), {"pads": ((0, 0), (0, 1), (0, 1), (0, 0))}
        yield ops.reduce_mean, (x,), {"axes": (1, 2)}
        yield ops.relu, (x,), {}
        yield ops.add, (x, x), {}
        yield ops.mul, (x, (1, 1, 1, channels)), {}
        yield ops.transpose, ((1, channels, E, E),), {"axes": (0, 2, 3, 1)}
        window = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
        yield ops.max_pool2d, (x,), {**window, "layout": "NHWC"}
        yield ops.avg_pool2d, (x,), {"kernel": (2, 2), "strides": (2, 2), "layout": "NHWC"}
        yield ops.max_pool2d, ((1, channels, E, E),), window
        yield ops.concat, (x, x), {"axis": 3}


def products() -> Iterator[Layer]:
    """Products that the vector code declines."""
    weights = np.ones((16, 16, 3, 3), np.float64)
    yield ops.matmul, ((S, 64), (64, 64)), {}
    yield ops.matmul, ((S, 256), (256, 128)), {}
    for layout, x in (("NHWC", (1, E, E, 16)), ("NCHW", (1, 16, E, E))):
        attrs = {"layout": layout, "pads": (1, 1, 1, 1)}
        yield ops.conv2d, (x, Const(weights)), attrs


def lookups(out: Builder) -> Iterator[tuple[list[Var], Atom]]:
    """Rows of tables, and elements of columns."""
    x, at = Var("looked", tensor("float32", S, 256)), Var("at", tensor("int64", S))
    yield [x, at], out.emit(ops.gather, x, at, axis=0)
    x, at = Var("each", tensor("float32", S, 256)), Var("place", tensor("int64", S, 256))
    yield [x, at], out.emit(ops.gather_elements, x, at, axis=0)


def rest() -> tuple[Module, list[Mapping[str, int]]]:
    """All of them as results of one function, of inputs of their own."""
    out = Builder()
    inputs: list[Var] = []
    results: list[Atom] = []
    layers = [("float32", layer) for layer in (*attention(), *images())]
    layers += [("float64", layer) for layer in products()]
    for i, (dtype, (op, given, attrs)) in enumerate(layers):
        args: list[Atom] = [
            shape if isinstance(shape, Const) else Var(f"x{i}_{k}", tensor(dtype, *shape))
            for k, shape in enumerate(given)
        ]
        inputs += [a for a in args if isinstance(a, Var)]
        results += out.emit_all(op, *args, **attrs)
    for params, result in lookups(out):
        inputs += params
        results.append(result)
    return Module({"main": out.function("main", inputs, results)}), SIZES
