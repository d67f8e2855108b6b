"""Operators of onnxruntime's own domain: each beside its kernel, and models that it rewrote."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx_model import run_ort

import bucketize
from bucketize import zoo
from bucketize.errors import BucketizeError, UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.onnx import from_onnx
from bucketize.onnx.node import CONVERTERS, MICROSOFT
from bucketize.op import Array
from bucketize.verify import verify

pytestmark = pytest.mark.usefixtures("few_registers")

BATCH, ROWS, KEYS, WIDTH, HEADS = 2, 5, 7, 16, 4
FEW = 1 << 16


class Given(NamedTuple):
    """An operand of a call: its elements, and its dims, which may be symbols."""

    elements: Array
    dims: tuple[int | str, ...]


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def bytes_(dtype: str, *shape: int, seed: int = 0) -> Array:
    """Of seven bits, whose products onnxruntime adds up exactly on every processor."""
    low = -64 if dtype == "int8" else 0
    return np.random.default_rng(seed).integers(low, 64, shape).astype(dtype)


def given(elements: Array, *dims: int | str) -> Given:
    return Given(elements, dims or elements.shape)


def number(value: float, dtype: str = "float32") -> Array:
    return np.array(value, dtype)


def node(
    op_type: str, operands: list[Array | Given | None], outputs: str = "y", **attrs: Any
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node, and what it is called with; a result named - is left out."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(operands)]
    pairs = [(k, x) for k, x in zip(names, operands, strict=True) if x is not None]
    inputs = {k: x for k, x in pairs if isinstance(x, Given)}
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(x.elements.dtype), x.dims)
        for k, x in inputs.items()
    ]
    results = ["" if r == "-" else r for r in outputs.split()]
    domain = "" if op_type == "SimplifiedLayerNormalization" else MICROSOFT
    made = helper.make_node(op_type, names, results, "node", domain=domain, **attrs)
    tensors = [numpy_helper.from_array(x, k) for k, x in pairs if not isinstance(x, Given)]
    outs = [helper.make_empty_tensor_value_info(r) for r in results if r]
    graph = helper.make_graph([made], "g", infos, outs, tensors)
    sets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    return model, {k: x.elements for k, x in inputs.items()}


def ours(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """What the interpreter makes of a model; kernels make the same."""
    dims = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim}
    module = from_onnx(model, bounds=dict.fromkeys(dims - {""}, (0, FEW)))
    verify(module)
    want = evaluate_module(module, **feeds)
    for got, expected in zip(bucketize.compile(module).run(**feeds), want, strict=True):
        assert got.dtype == expected.dtype
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
        else:
            assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1
    return list(want)


X = given(floats(BATCH, ROWS, WIDTH), "B", "S", WIDTH)
Y = given(floats(BATCH, ROWS, WIDTH, seed=1), "B", "S", WIDTH)
VECTOR, OTHER = floats(WIDTH, seed=2), floats(WIDTH, seed=3)
IMAGE = given(floats(1, 3, 8, 8), 1, 3, "H", "W")
FILTERS = floats(4, 3, 3, 3, seed=4)

FUSED: dict[str, tuple[Any, ...]] = {
    "Gelu": ("Gelu", [X]),
    "BiasGelu": ("BiasGelu", [X, VECTOR]),
    "FastGelu": ("FastGelu", [X]),
    "FastGelu of a sum": ("FastGelu", [X, VECTOR]),
    "QuickGelu": ("QuickGelu", [X]),
    "QuickGelu, alpha 1": ("QuickGelu", [X], "y", {"alpha": 1.0}),
    "FusedMatMul": ("FusedMatMul", [X, Y], "y", {"transB": 1, "alpha": 0.25}),
    "FusedMatMul, A turned": ("FusedMatMul", [X, Y], "y", {"transA": 1}),
    "FusedMatMul of batches": (
        "FusedMatMul",
        [given(floats(ROWS, BATCH, WIDTH), "S", "B", WIDTH), Y],
        "y",
        {"transBatchA": 1, "transB": 1},
    ),
    "FusedMatMul of turned batches": (
        "FusedMatMul",
        [Y, given(floats(WIDTH, BATCH, 3), WIDTH, "B", 3)],
        "y",
        {"transBatchB": 1},
    ),
    "FusedMatMul, both": (
        "FusedMatMul",
        [given(floats(ROWS, BATCH, 6), "S", "B", 6), given(floats(BATCH, 5, 3), "B", "S", 3)],
        "y",
        {"transBatchA": 1, "transA": 1},
    ),
    "TransposeMatMul": ("TransposeMatMul", [X, Y], "y", {"transB": 1}),
    "FusedGemm": (
        "FusedGemm",
        [given(floats(ROWS, WIDTH), "S", WIDTH), floats(6, WIDTH), floats(6)],
        "y",
        {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
    "FusedConv": (
        "FusedConv",
        [IMAGE, FILTERS, floats(4)],
        "y",
        {"pads": [1, 1, 1, 1], "activation": "Relu"},
    ),
    "FusedConv, a sum": (
        "FusedConv",
        [given(IMAGE.elements), FILTERS, floats(4), given(floats(1, 4, 6, 6))],
        "y",
        {"activation": "Relu"},
    ),
    "FusedConv, clipped": (
        "FusedConv",
        [IMAGE, FILTERS],
        "y",
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
    ),
    "FusedConv, hard": (
        "FusedConv",
        [IMAGE, FILTERS],
        "y",
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
    ),
    "SkipLayerNormalization": ("SkipLayerNormalization", [X, Y, VECTOR, OTHER]),
    "SkipLayerNormalization, and the sum": (
        "SkipLayerNormalization",
        [X, Y, VECTOR, None, OTHER],
        "y - - sum",
        {"epsilon": 1e-3},
    ),
    "SkipSimplifiedLayerNormalization": (
        "SkipSimplifiedLayerNormalization",
        [X, Y, VECTOR, OTHER],
        "y - - sum",
        {"epsilon": 1e-3},
    ),
    "SimplifiedLayerNormalization": (
        "SimplifiedLayerNormalization",
        [X, VECTOR],
        "y",
        {"epsilon": 1e-3},
    ),
}


@pytest.mark.parametrize("case", FUSED)
def test_what_the_optimiser_joins(case: str) -> None:
    agrees(FUSED[case])


def agrees(case: tuple[Any, ...], near: float = 1e-5) -> None:
    """A node is read, and makes what onnxruntime's kernel does."""
    op_type, operands, outputs, attrs = (*case, *("y", {})[len(case) - 2 :])
    model, feeds = node(op_type, operands, outputs, **attrs)
    for got, want in zip(ours(model, feeds), run_ort(model, feeds), strict=True):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=near, atol=near)


# --- embeddings and attention --------------------------------------------------------------------

WORDS = given(np.arange(BATCH * ROWS, dtype=np.int32).reshape(BATCH, ROWS) % 9, "B", "S")
KINDS = given((np.arange(BATCH * ROWS, dtype=np.int32) % 2).reshape(BATCH, ROWS), "B", "S")
SHOWN = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32)
SEEN = given(SHOWN, "B", "S")
TABLES = [floats(9, WIDTH, seed=5), floats(12, WIDTH, seed=6), floats(2, WIDTH, seed=7)]
PLACES = given(np.array([[0, 2, 3, 4, 11], [5, 6, 7, 8, 9]], np.int64), "B", "S")

EMBEDDED: dict[str, tuple[Any, ...]] = {
    "all": ("EmbedLayerNormalization", [WORDS, KINDS, *TABLES, VECTOR, OTHER, SEEN], "y words sum"),
    "one kind of texts, no mask": (
        "EmbedLayerNormalization",
        [WORDS, None, *TABLES[:2], None, VECTOR, OTHER],
        "y words",
        {"epsilon": 1e-5, "mask_index_type": 0},
    ),
    "places": (
        "EmbedLayerNormalization",
        [
            given(WORDS.elements, "B", "S"),
            None,
            *TABLES[:2],
            None,
            VECTOR,
            OTHER,
            None,
            given(PLACES.elements.astype(np.int32), "B", "S"),
        ],
        "y words",
    ),
}


@pytest.mark.parametrize("case", EMBEDDED)
def test_embeddings(case: str) -> None:
    agrees(EMBEDDED[case])


WEIGHTS, BIAS = floats(WIDTH, 3 * WIDTH, seed=8), floats(3 * WIDTH, seed=9)
PAST = given(floats(2, BATCH, HEADS, 3, 4, seed=10), 2, "B", HEADS, "P", 4)
LONG = np.concatenate([np.ones((BATCH, 3), np.int32), SHOWN], axis=1)
EACH_ROW = np.tril(np.ones((BATCH, ROWS, ROWS), np.int32))
SCORES = floats(1, HEADS, ROWS, ROWS, seed=11)
HEAD = {"num_heads": HEADS}

ATTENTION: dict[str, tuple[Any, ...]] = {
    "no mask": ("Attention", [X, WEIGHTS, BIAS], "y", HEAD),
    "no bias": ("Attention", [X, WEIGHTS], "y", HEAD),
    "weights of a run": ("Attention", [X, given(WEIGHTS), given(BIAS)], "y", HEAD),
    "a mask": ("Attention", [X, WEIGHTS, BIAS, SEEN], "y", HEAD),
    "a mask and its value": (
        "Attention",
        [X, WEIGHTS, BIAS, SEEN],
        "y",
        {**HEAD, "mask_filter_value": -3.0, "scale": 0.7},
    ),
    "lengths": ("Attention", [X, WEIGHTS, BIAS, given(np.array([5, 3], np.int32), "B")], "y", HEAD),
    "ends and begins": (
        "Attention",
        [given(X.elements), WEIGHTS, BIAS, given(np.array([5, 4, 1, 2], np.int32))],
        "y",
        HEAD,
    ),
    "a mask of each row": (
        "Attention",
        [X, WEIGHTS, BIAS, given(EACH_ROW, "B", "S", "S")],
        "y",
        HEAD,
    ),
    "in order": ("Attention", [X, WEIGHTS, BIAS], "y", {**HEAD, "unidirectional": 1}),
    "in order, a mask": ("Attention", [X, WEIGHTS, BIAS, SEEN], "y", {**HEAD, "unidirectional": 1}),
    "other sizes": (
        "Attention",
        [X, floats(WIDTH, 8 + 8 + 12), floats(28)],
        "y",
        {**HEAD, "qkv_hidden_sizes": [8, 8, 12]},
    ),
    "scores": (
        "Attention",
        [X, WEIGHTS, BIAS, None, None, given(SCORES, 1, HEADS, "S", "S")],
        "y",
        HEAD,
    ),
    "scores and a mask": (
        "Attention",
        [X, WEIGHTS, BIAS, SEEN, None, given(SCORES, 1, HEADS, "S", "S")],
        "y",
        HEAD,
    ),
    "a past": (
        "Attention",
        [X, WEIGHTS, BIAS, given(LONG, "B", "T"), PAST],
        "y present",
        {**HEAD, "unidirectional": 1},
    ),
}

K = given(floats(BATCH, KEYS, WIDTH, seed=12), "B", "T", WIDTH)
V = given(floats(BATCH, KEYS, 12, seed=13), "B", "T", 12)
KEPT = given(floats(BATCH, HEADS, KEYS, 4, seed=14), "B", HEADS, "T", 4)
BEFORE = given(floats(BATCH, HEADS, 3, 4, seed=15), "B", HEADS, "P", 4)
MULTI_HEAD: dict[str, tuple[Any, ...]] = {
    "plain": ("MultiHeadAttention", [X, K, V], "y", HEAD),
    "biased": ("MultiHeadAttention", [X, K, V, floats(2 * WIDTH + 12, seed=16)], "y", HEAD),
    "a mask": (
        "MultiHeadAttention",
        [
            X,
            K,
            K,
            None,
            given(np.arange(BATCH * KEYS, dtype=np.int32).reshape(BATCH, KEYS) % 3, "B", "T"),
        ],
        "y",
        HEAD,
    ),
    "lengths": (
        "MultiHeadAttention",
        [X, K, K, None, given(np.array([4, 7], np.int32), "B")],
        "y",
        HEAD,
    ),
    "scores": (
        "MultiHeadAttention",
        [X, K, K, None, None, given(floats(BATCH, HEADS, ROWS, KEYS), "B", HEADS, "S", "T")],
        "y",
        HEAD,
    ),
    "in order": ("MultiHeadAttention", [X, Y, Y], "y", {**HEAD, "unidirectional": 1}),
    "heads apart": ("MultiHeadAttention", [X, KEPT, KEPT], "y", HEAD),
    "heads apart, biased": ("MultiHeadAttention", [X, KEPT, KEPT, BIAS], "y", HEAD),
    "a past": (
        "MultiHeadAttention",
        [X, Y, X, None, None, None, BEFORE, BEFORE],
        "y keys values",
        HEAD,
    ),
    "keys and values": ("MultiHeadAttention", [X, Y, X], "y keys values", HEAD),
}


@pytest.mark.parametrize("case", ATTENTION)
def test_attention(case: str) -> None:
    agrees(ATTENTION[case])


@pytest.mark.parametrize("case", MULTI_HEAD)
def test_attention_of_many_heads(case: str) -> None:
    agrees(MULTI_HEAD[case])


GROUPED_HEADS = {"num_heads": HEADS, "kv_num_heads": 2}
QUERIES = given(floats(BATCH, ROWS, 64, seed=20), "B", "S", 64)
KV = [given(floats(BATCH, ROWS, 32, seed=k), "B", "S", 32) for k in (21, 22)]
CACHE = [given(floats(BATCH, 2, 3, 16, seed=k), "B", 2, "P", 16) for k in (23, 24)]
NO_CACHE = [given(np.zeros((BATCH, 2, 0, 16), np.float32), "B", 2, "P", 16)] * 2
BEHIND = [given(np.full(BATCH, 7, np.int32), "B"), given(number(8, "int32"))]
AT_FIRST = [given(np.array([4, 2], np.int32), "B"), given(number(5, "int32"))]
ANGLES = [floats(20, 8, seed=25), floats(20, 8, seed=26)]
PACKED = given(floats(BATCH, ROWS, 128, seed=27), "B", "S", 128)

GROUPED: dict[str, tuple[Any, ...]] = {
    "a first call": (
        "GroupQueryAttention",
        [QUERIES, *KV, *NO_CACHE, AT_FIRST[0], AT_FIRST[1]],
        "y keys values",
        GROUPED_HEADS,
    ),
    "a further call": (
        "GroupQueryAttention",
        [given(QUERIES.elements[:1], 1, "S", 64), *(given(k.elements[:1], 1, "S", 32) for k in KV)]
        + [given(c.elements[:1], 1, 2, "P", 16) for c in CACHE]
        + [given(np.full(1, 7, np.int32)), BEHIND[1]],
        "y keys values",
        GROUPED_HEADS,
    ),
    "a token": (
        "GroupQueryAttention",
        [
            given(QUERIES.elements[:, :1], "B", 1, 64),
            *(given(k.elements[:, :1], "B", 1, 32) for k in KV),
            *CACHE,
            given(np.full(BATCH, 3, np.int32), "B"),
            given(number(4, "int32")),
            *ANGLES,
        ],
        "y keys values",
        {**GROUPED_HEADS, "do_rotary": 1},
    ),
    "neighbours, packed": (
        "GroupQueryAttention",
        [
            PACKED,
            None,
            None,
            *NO_CACHE,
            given(np.full(BATCH, 4, np.int32), "B"),
            AT_FIRST[1],
            *ANGLES,
        ],
        "y keys values",
        {**GROUPED_HEADS, "do_rotary": 1, "rotary_interleaved": 1},
    ),
    "a window, capped": (
        "GroupQueryAttention",
        [QUERIES, *KV, *NO_CACHE, given(np.full(BATCH, 4, np.int32), "B"), AT_FIRST[1]],
        "y keys values",
        {**GROUPED_HEADS, "local_window_size": 2, "softcap": 3.0, "scale": 0.3},
    ),
}


@pytest.mark.parametrize("case", GROUPED)
def test_attention_of_groups(case: str) -> None:
    """Rows behind the end of a text, and what a cache has of them, are nobody's."""
    op_type, operands, outputs, attrs = GROUPED[case]
    model, feeds = node(op_type, operands, outputs, **attrs)
    lengths = operands[5].elements + 1
    for k, (got, want) in enumerate(zip(ours(model, feeds), run_ort(model, feeds), strict=True)):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        for text, length in enumerate(lengths):
            mine, its = ((x[text, :length] if k == 0 else x[text, :, :length]) for x in (got, want))
            np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("last", "total"), [([7, 6], 8), ([7, 7], 9)])
def test_a_cache_that_calls_fill_is_refused_by_a_run(last: list[int], total: int) -> None:
    operands = [
        QUERIES,
        *KV,
        *CACHE,
        given(np.array(last, np.int32), "B"),
        given(number(total, "int32")),
    ]
    model, feeds = node("GroupQueryAttention", operands, "y keys values", **GROUPED_HEADS)
    module = from_onnx(model, bounds=dict.fromkeys("BPS", (1, 64)))
    with pytest.raises(BucketizeError, match="index 1"):
        bucketize.compile(module).run(**feeds)


COS, SIN = floats(20, 2, seed=17), floats(20, 2, seed=18)
ROTATED: dict[str, tuple[Any, ...]] = {
    "places": ("RotaryEmbedding", [X, PLACES, COS, SIN]),
    "the first place": ("RotaryEmbedding", [X, given(np.array([3], np.int64)), COS, SIN]),
    "neighbours": ("RotaryEmbedding", [X, PLACES, COS, SIN], "y", {"interleaved": 1}),
    "heads apart": (
        "RotaryEmbedding",
        [given(floats(BATCH, HEADS, ROWS, 4), "B", HEADS, "S", 4), PLACES, COS, SIN],
    ),
    "a part": (
        "RotaryEmbedding",
        [X, PLACES, COS, SIN],
        "y",
        {"num_heads": 2, "rotary_embedding_dim": 4},
    ),
}


@pytest.mark.parametrize("case", ROTATED)
def test_rotary(case: str) -> None:
    agrees(ROTATED[case])


# --- bytes ---------------------------------------------------------------------------------------


def scaled(elements: Array, scale: float, zero: int) -> list[Any]:
    """A quantised operand of symbols, its scale and zero point."""
    names = ("B", "S", *elements.shape[2:])[: elements.ndim]
    return [given(elements, *names), number(scale), number(zero, elements.dtype.name)]


A8, B8 = bytes_("uint8", BATCH, ROWS, WIDTH), bytes_("uint8", BATCH, ROWS, WIDTH, seed=1)
INTS = bytes_("int8", BATCH, ROWS, WIDTH, seed=2)
PICTURE = bytes_("uint8", 1, 8, 8, 3)
END = [number(0.07), number(3, "uint8")]

BY_FLOATS: dict[str, tuple[Any, ...]] = {
    "QLinearAdd": ("QLinearAdd", [*scaled(A8, 0.1, 30), *scaled(B8, 0.03, 7), *END]),
    "QLinearAdd of int8": (
        "QLinearAdd",
        [*scaled(INTS, 0.1, -3), *scaled(INTS, 0.2, 5), number(0.3), number(0, "int8")],
    ),
    "QLinearMul": ("QLinearMul", [*scaled(A8, 0.1, 30), *scaled(B8, 0.03, 7), *END]),
    "QLinearSigmoid": (
        "QLinearSigmoid",
        [*scaled(A8, 0.1, 30), number(1 / 256), number(0, "uint8")],
    ),
    "QLinearLeakyRelu": ("QLinearLeakyRelu", [*scaled(A8, 0.1, 30), *END], "y", {"alpha": 0.2}),
    "QLinearSoftmax": (
        "QLinearSoftmax",
        [*scaled(A8, 0.1, 30), number(1 / 256), number(0, "uint8")],
        "y",
        {"opset": 13, "axis": -1},
    ),
    "QLinearSoftmax, flat": (
        "QLinearSoftmax",
        [*scaled(A8, 0.1, 30), number(1 / 256), number(0, "uint8")],
        "y",
        {"opset": 12, "axis": 1},
    ),
    "QLinearConcat": (
        "QLinearConcat",
        [*END, *scaled(A8, 0.1, 30), *scaled(B8, 0.03, 7)],
        "y",
        {"axis": 1},
    ),
    "QLinearWhere": (
        "QLinearWhere",
        [given(A8 > 30, "B", "S", WIDTH), *scaled(A8, 0.1, 30), *scaled(B8, 0.03, 7), *END],
    ),
    "QLinearGlobalAveragePool": (
        "QLinearGlobalAveragePool",
        [given(PICTURE), number(0.1), number(30, "uint8"), *END],
        "y",
        {"channels_last": 1},
    ),
    "QLinearAveragePool": (
        "QLinearAveragePool",
        [
            given(PICTURE.transpose(0, 3, 1, 2), 1, 3, "H", "W"),
            number(0.1),
            number(30, "uint8"),
            *END,
        ],
        "y",
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "NhwcMaxPool": (
        "NhwcMaxPool",
        [given(PICTURE, 1, "H", "W", 3)],
        "y",
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    "QLinearConv": (
        "QLinearConv",
        [
            given(PICTURE, 1, "H", "W", 3),
            number(0.1),
            number(30, "uint8"),
            bytes_("int8", 4, 3, 3, 3),
            number(0.02),
            number(0, "int8"),
            *END,
            np.arange(4, dtype=np.int32),
        ],
        "y",
        {"channels_last": 1, "pads": [1, 1, 1, 1]},
    ),
    "QuantizeLinear": (
        "QuantizeLinear",
        [X, VECTOR[:WIDTH] ** 2 + 0.1, np.full(WIDTH, 999, np.uint16)],
        "y",
        {"axis": -1},
    ),
    "DequantizeLinear": ("DequantizeLinear", scaled(A8, 0.1, 30)),
}


@pytest.mark.parametrize("case", BY_FLOATS)
def test_between_quantised_tensors(case: str) -> None:
    """A number that lies between two may become either: one more, one less."""
    op_type, operands, *more = BY_FLOATS[case]
    model, feeds = node(op_type, operands, "y", **(more[1] if more else {}))
    (got,), (want,) = ours(model, feeds), run_ort(model, feeds)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    apart = np.abs(got.astype(np.float64) - want)
    assert apart.max() <= (1 if got.dtype.kind in "iu" else 1e-6)
    assert (apart > 1e-6).mean() < 0.05


def test_a_zero_point_that_is_left_out_is_0() -> None:
    """Beside itself: onnxruntime 1.32 takes such a node for another, or crashes."""
    zero = number(0, "int8")
    both = [
        ours(*node("QLinearLeakyRelu", [given(INTS), number(0.1), z, number(0.2), z]))
        for z in (zero, None)
    ]
    np.testing.assert_array_equal(*both)


COLUMN_SCALES, COLUMN_ZEROS = (VECTOR**2 + 0.1) / 50, bytes_("int8", WIDTH, seed=3)
SQUARE = bytes_("int8", WIDTH, WIDTH, seed=4)
FLAT = given(A8.reshape(-1, WIDTH), "N", WIDTH)
WIDE = bytes_("int8", WIDTH, 3 * WIDTH, seed=5)

PRODUCTS: dict[str, tuple[Any, ...]] = {
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat",
        [
            given(A8, "B", "S", WIDTH),
            SQUARE,
            number(0.1),
            COLUMN_SCALES,
            number(30, "uint8"),
            COLUMN_ZEROS,
            VECTOR,
        ],
    ),
    "MatMulIntegerToFloat, plain": (
        "MatMulIntegerToFloat",
        [given(A8, "B", "S", WIDTH), SQUARE, number(0.1), number(0.2)],
    ),
    "DynamicQuantizeMatMul": (
        "DynamicQuantizeMatMul",
        [X, SQUARE, COLUMN_SCALES, COLUMN_ZEROS, VECTOR],
    ),
    "DynamicQuantizeMatMul of zeros": (
        "DynamicQuantizeMatMul",
        [given(np.zeros((2, 3, WIDTH), np.float32), "B", "S", WIDTH), SQUARE, number(0.5)],
    ),
    "QGemm": (
        "QGemm",
        [FLAT, number(0.1), number(30, "uint8"), SQUARE, number(0.02), number(3, "int8")],
        "y",
        {"alpha": 0.5},
    ),
    "QGemm, turned": (
        "QGemm",
        [
            FLAT,
            number(0.1),
            number(30, "uint8"),
            SQUARE,
            COLUMN_SCALES,
            COLUMN_ZEROS,
            np.arange(WIDTH, dtype=np.int32),
        ],
        "y",
        {"transB": 1},
    ),
    "QAttention": (
        "QAttention",
        [
            given(A8, "B", "S", WIDTH),
            WIDE,
            BIAS,
            number(0.01),
            number(0.02),
            SEEN,
            number(30, "uint8"),
            number(3, "int8"),
        ],
        "y",
        HEAD,
    ),
    "QAttention by columns": (
        "QAttention",
        [
            given(A8, "B", "S", WIDTH),
            WIDE,
            BIAS,
            number(0.01),
            np.abs(floats(3 * WIDTH)) / 50,
            None,
            number(30, "uint8"),
            bytes_("int8", 3 * WIDTH, seed=6),
        ],
        "y",
        {**HEAD, "unidirectional": 1},
    ),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_of_bytes(case: str) -> None:
    agrees(PRODUCTS[case])


def test_quantised_embeddings() -> None:
    tables = [bytes_("uint8", k, WIDTH, seed=k) for k in (9, 12, 2)]
    norm = [bytes_("uint8", WIDTH, seed=k) for k in (3, 4)]
    scales = [number(0.01 * k) for k in range(1, 6)]
    zeros = [number(k, "uint8") for k in range(5)]
    operands = [WORDS, KINDS, *tables, *norm, SEEN, *scales, *zeros]
    agrees(("QEmbedLayerNormalization", operands, "y words", {"epsilon": 1e-5}), near=1e-4)


@pytest.mark.parametrize("columns", [False, True])
def test_recurrent_layers_of_bytes(columns: bool) -> None:
    """The standard's with what weights stand for; onnxruntime rounds what they meet, too."""
    inputs, hidden, gates = 6, 4, 16
    w, r = bytes_("int8", 2, inputs, gates), bytes_("int8", 2, hidden, gates, seed=1)
    shape = (2, gates) if columns else (2,)
    scales = [(np.abs(floats(*shape, seed=k)) + 0.5) / 64 for k in (2, 3)]
    zeros = [np.full(shape, k, np.int8) for k in (0, 0)]
    x, bias = given(floats(ROWS, BATCH, inputs), "S", "B", inputs), floats(2, 2 * gates)
    attrs = {"hidden_size": hidden, "direction": "bidirectional"}
    quantized = [scales[0], zeros[0], scales[1], zeros[1]]
    operands = [x, w, r, bias, None, None, None, None, *quantized]
    model, feeds = node("DynamicQuantizeLSTM", operands, "y h c", **attrs)
    got, loosely = ours(model, feeds), run_ort(model, feeds)
    behind = [s[..., None, :] if columns else s[:, None, None] for s in scales]
    floats_ = [(k * s).transpose(0, 2, 1) for k, s in zip((w, r), behind, strict=True)]
    model, _ = node("LSTM", [x, *floats_, bias], "y h c", **attrs)
    model.graph.node[0].domain = ""
    for mine, want, near in zip(got, run_ort(model, feeds), loosely, strict=True):
        np.testing.assert_allclose(mine, want, atol=1e-5)
        np.testing.assert_allclose(mine, near, atol=0.05)


# --- blocks of few bits --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bits", "zeros"), [*product((2, 4, 8), ("left out", "packed")), (2, "floats"), (4, "floats")]
)
def test_products_by_blocks(bits: int, zeros: str) -> None:
    rows, depth, block = 6, 40, 16
    blocks = -(-depth // block)
    random = np.random.default_rng(bits)
    packed = random.integers(0, 256, (rows, blocks, block * bits // 8)).astype(np.uint8)
    scales = np.abs(floats(rows, blocks)) / (1 << bits)
    of_zeros: dict[str, Array | None] = {
        "left out": None,
        "packed": random.integers(0, 256, (rows, -(-blocks * bits // 8))).astype(np.uint8),
        "floats": floats(rows, blocks, seed=2),
    }
    x = given(floats(BATCH, ROWS, depth), "B", "S", depth)
    attrs = {"N": rows, "K": depth, "bits": bits, "block_size": block}
    operands = [x, packed, scales, of_zeros[zeros], None, floats(rows)]
    agrees(("MatMulNBits", operands, "y", attrs), near=1e-4)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("width", [24, 20])
def test_rows_by_blocks(width: int, zeros: bool) -> None:
    """The last block of a row may be shorter."""
    random = np.random.default_rng(0)
    packed = random.integers(0, 256, (9, width)).astype(np.uint8)
    middle = random.integers(0, 256, (9, 2)).astype(np.uint8) if zeros else None
    operands = [packed, given(WORDS.elements, "B", "S"), np.abs(floats(9, 3)), middle]
    attrs = {"bits": 4, "block_size": 16}
    agrees(("GatherBlockQuantized", operands, "y", attrs))


# --- what is not read ----------------------------------------------------------------------------

REFUSED: dict[str, tuple[Any, ...]] = {
    r"no converter for this operator": ("MurmurHash3", [given(SHOWN, "B", "S")]),
    r"the result has a scale, and no zero point that tells its dtype": (
        "QGemm",
        [
            FLAT,
            number(0.1),
            number(3, "uint8"),
            SQUARE,
            number(0.02),
            number(3, "int8"),
            None,
            number(0.1),
        ],
    ),
    r"the activation 'Swish' of 0 numbers, known: Clip of 2, Elu, ": (
        "FusedConv",
        [IMAGE, FILTERS],
        "y",
        {"activation": "Swish"},
    ),
    r"output 1 is used": ("SkipLayerNormalization", [X, Y, VECTOR], "y mean"),
    r"do_rotary is 1": ("Attention", [X, WEIGHTS, BIAS], "y", {**HEAD, "do_rotary": 1}),
    r"weights of float32\[16, 40\] for Q, K and V of one size": (
        "Attention",
        [X, floats(WIDTH, 40)],
        "y",
        HEAD,
    ),
    r"Q, K and V of \(8, 8, 8\) columns, and weights of": (
        "Attention",
        [X, WEIGHTS],
        "y",
        {**HEAD, "qkv_hidden_sizes": [8, 8, 8]},
    ),
    r"keys and values of float32\[B, S, 8\] and float32\[B, S, 12\] as one result": (
        "Attention",
        [X, floats(WIDTH, 8 + 8 + 12)],
        "y present",
        {**HEAD, "qkv_hidden_sizes": [8, 8, 12]},
    ),
    r"in order, S rows beside T keys": (
        "MultiHeadAttention",
        [X, K, K],
        "y",
        {**HEAD, "unidirectional": 1},
    ),
    r"the attribute opset is left out": ("QLinearSoftmax", [*scaled(A8, 0.1, 30), *END]),
    r"how many float32\[N\] are, one or one for each column, is not known": (
        "QAttention",
        [
            given(A8, "B", "S", WIDTH),
            WIDE,
            BIAS,
            number(0.1),
            given(np.ones(1, np.float32), "N"),
            None,
            number(0, "uint8"),
            number(0, "int8"),
        ],
        "y",
        HEAD,
    ),
    r"a mask of int32\[B, 1, 5, 5\]": (
        "Attention",
        [X, WEIGHTS, BIAS, given(EACH_ROW[:, None], "B", 1, 5, 5)],
        "y",
        HEAD,
    ),
    r"int32\[N\] of lengths for B texts": (
        "Attention",
        [X, WEIGHTS, BIAS, given(np.zeros(6, np.int32), "N")],
        "y",
        HEAD,
    ),
    r"past_sequence_length is given, for a buffer that is shared": (
        "MultiHeadAttention",
        [X, Y, Y, None, None, None, None, None, number(1, "int32")],
        "y",
        HEAD,
    ),
    r"Q, K and V are packed in one tensor": (
        "MultiHeadAttention",
        [given(floats(1, 2, HEADS, 3, 4))],
        "y",
        HEAD,
    ),
    r"a bias for float32\[B, S, W\]": (
        "MultiHeadAttention",
        [given(X.elements, "B", "S", "W"), Y, Y, BIAS],
        "y",
        HEAD,
    ),
    r"k_quant_type is 'PER_TENSOR', known: NONE": (
        "GroupQueryAttention",
        [QUERIES, *KV, *CACHE, *BEHIND],
        "y keys values",
        {**GROUPED_HEADS, "k_quant_type": "PER_TENSOR"},
    ),
    r"position_ids, sinks, norms, or what a cache of bytes needs is given": (
        "GroupQueryAttention",
        [QUERIES, *KV, *CACHE, *BEHIND],
        "y keys values",
        {**GROUPED_HEADS, "smooth_softmax": 1},
    ),
    r"float32\[B, S, 64\] for Q, K and V of 4 and 3 heads": (
        "GroupQueryAttention",
        [QUERIES, None, None, *CACHE, *BEHIND],
        "y keys values",
        {"num_heads": HEADS, "kv_num_heads": 3},
    ),
    r"scale is 2.0": ("RotaryEmbedding", [X, PLACES, COS, SIN], "y", {"scale": 2.0}),
    r"num_heads is left out, for 16 elements and 3 angles": (
        "RotaryEmbedding",
        [X, PLACES, floats(20, 3), floats(20, 3)],
    ),
    r"the scale of A is float32\[16\], expected one number": (
        "MatMulIntegerToFloat",
        [given(A8, "B", "S", WIDTH), SQUARE, COLUMN_SCALES, COLUMN_SCALES],
    ),
    r"3 bits, packed weights or g_idx; known: bits of \(2, 4, 8\)": (
        "MatMulNBits",
        [X, bytes_("uint8", 6, 1, 6), floats(6, 1)],
        "y",
        {"N": 6, "K": WIDTH, "bits": 3, "block_size": 16},
    ),
    r"input 1, uint8\[6, 1, 8\], is known only at run time": (
        "MatMulNBits",
        [X, given(bytes_("uint8", 6, 1, 8)), floats(6, 1)],
        "y",
        {"N": 6, "K": WIDTH, "block_size": 16},
    ),
    r"rows along \(1, 1\) of 4 bits in uint8\[9, 24\], expected the last axis": (
        "GatherBlockQuantized",
        [bytes_("uint8", 9, 24), WORDS, floats(9, 3)],
        "y",
        {"gather_axis": 1, "block_size": 16},
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_read(message: str) -> None:
    op_type, operands, *more = REFUSED[message]
    model, _ = node(op_type, operands, *more[:1], **(more[1] if len(more) > 1 else {}))
    with pytest.raises(UnsupportedModelError, match=message):
        from_onnx(model)


def test_every_converter_is_tried() -> None:
    """Whatever is read of onnxruntime's own is in a table above, or has a test of its own."""
    tables = FUSED, EMBEDDED, ATTENTION, MULTI_HEAD, GROUPED, ROTATED, BY_FLOATS, PRODUCTS
    tried = {case[0] for table in tables for case in table.values()}
    tried |= {"MatMulNBits", "GatherBlockQuantized", "DynamicQuantizeLSTM"}
    tried |= {"QEmbedLayerNormalization"}
    own = {op_type for domain, op_type in CONVERTERS if domain == MICROSOFT}
    assert own <= tried, own - tried


def test_the_domain_need_not_be_imported() -> None:
    """As what onnxruntime's optimiser leaves in memory."""
    model, feeds = node("BiasGelu", [X, VECTOR])
    del model.opset_import[1:]
    (got,) = ours(model, feeds)
    np.testing.assert_allclose(got, run_ort(model, feeds)[0], atol=1e-5)


# --- whole models --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "bert-mini"])
def test_models_that_onnxruntime_rewrote(name: str, tmp_path: Path) -> None:
    """What it writes of a model before it runs it is read, and is that model."""
    proto, options = zoo.build(name), onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "m.onnx"), 3
    onnxruntime.InferenceSession(proto.SerializeToString(), options)
    rewritten = onnx.load(tmp_path / "m.onnx")
    assert any(n.domain == MICROSOFT for n in rewritten.graph.node)
    feeds = zoo.inputs(name, {"N": 3} if name == "mlp" else {"B": 2, "S": 7})
    (got,) = evaluate_module(from_onnx(rewritten), **feeds)
    (want,) = run_ort(proto, feeds)
    np.testing.assert_allclose(got, want, atol=1e-5)


def layer() -> onnx.ModelProto:
    """Embeddings and a layer of an encoder, as the optimiser for transformers writes them."""
    body = """
    <ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
    g (int64[B, S] ids, int64[B, S] mask) => (float[B, S, 16] y) {
        words = Cast<to = 6>(ids)
        seen = Cast<to = 6>(mask)
        x, count = com.microsoft.EmbedLayerNormalization(
            words, , table, places, , scale, bias, seen)
        a = com.microsoft.Attention<num_heads = 4>(x, w, b, count)
        o = MatMul(a, v)
        n, _m, _d, total = com.microsoft.SkipLayerNormalization(o, x, scale, bias, bias)
        p = MatMul(n, u)
        h = com.microsoft.BiasGelu(p, c)
        q = MatMul(h, v)
        y = com.microsoft.SkipLayerNormalization(q, total, scale, bias)
    }"""
    proto = onnx.parser.parse_model(body)
    shapes = {"table": (9, 16), "places": (12, 16), "w": (16, 48), "b": (48,), "c": (16,)}
    shapes |= {"u": (16, 16), "v": (16, 16), "scale": (16,), "bias": (16,)}
    tensors = [
        numpy_helper.from_array(floats(*shape, seed=k) / 2, name)
        for k, (name, shape) in enumerate(shapes.items())
    ]
    proto.graph.initializer.extend(tensors)
    return proto


def test_a_layer_as_the_optimiser_writes_it_runs_its_tokens_alone() -> None:
    proto, lengths = layer(), (12, 3, 7)
    ids = np.arange(36).reshape(3, 12) % 9
    mask = (np.arange(12) < np.array(lengths)[:, None]).astype(np.int64)
    (want,) = run_ort(proto, {"ids": ids, "mask": mask})
    ragged = bucketize.ragged(from_onnx(proto, bounds={"B": (1, 8), "S": (1, 12)}), mask="mask")
    (got,) = bucketize.compile(ragged).run(ids=ids, mask=mask)
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(got[row, :length], want[row, :length], atol=1e-5)
