"""Converters of what onnxruntime's optimiser joins: products, norms and what follows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.convert.linalg import scaled
from bucketize.onnx.convert.shape import places
from bucketize.onnx.node import MICROSOFT, Node, Unsupported, cast, converts, standard
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.elementwise.activation import sigmoid
from bucketize.ops.reduce import reduce_sum

# --- activations ---------------------------------------------------------------------------------

PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""What may follow a product or a convolution in the same node, and its attributes in order."""


@converts("Gelu", domain=MICROSOFT)
def _gelu(n: Node) -> Atom:
    return standard(n, "Gelu", n[0])


@converts("BiasGelu", domain=MICROSOFT)
def _bias_gelu(n: Node) -> Atom:
    return standard(n, "Gelu", n.emit(e.add, n[0], n[1]))


@converts("FastGelu", domain=MICROSOFT)
def _fast_gelu(n: Node) -> Atom:
    return standard(n, "Gelu", total_of(n, n[0], n.optional(1)), approximate="tanh")


@converts("QuickGelu", domain=MICROSOFT)
def _quick_gelu(n: Node) -> Atom:
    x, alpha = n[0], n.attr("alpha", 1.702)
    return n.emit(e.mul, x, n.emit(sigmoid, scaled(n, x, alpha)))


def total_of(n: Node, *terms: Atom | None) -> Atom:
    """The sum of those that are not left out, in their order."""
    first, *others = (x for x in terms if x is not None)
    for other in others:
        first = n.emit(e.add, first, other)
    return first


def _activated(n: Node, y: Atom, name: str, params: Sequence[float]) -> Atom:
    """`y` behind an activation; parameters that are left out have the standard's defaults."""
    if name == "Clip" and len(params) == 2:
        ends = (Const(np.asarray(p, y.type.dtype)) for p in params)
        return standard(n, "Clip", y, *ends)
    if name not in PARAMETERS:
        raise Unsupported(
            f"the activation {name!r} of {len(params)} numbers, known: Clip of 2, "
            f"{', '.join(PARAMETERS)}"
        )
    return standard(n, name, y, **dict(zip(PARAMETERS[name], params, strict=False)))


# --- products ------------------------------------------------------------------------------------


@converts("TransposeMatMul", domain=MICROSOFT)
@converts("FusedMatMul", domain=MICROSOFT)
def _fused_matmul(n: Node) -> Atom:
    """`alpha * a @ b`, whose matrices may be turned, and their rows stand before all batches."""
    alpha = n.attr("alpha", 1.0)
    a, b = (
        _turned(n, x, n.attr(f"trans{side}", 0), n.attr(f"transBatch{side}", 0))
        for side, x in zip("AB", (n[0], n[1]), strict=True)
    )
    return scaled(n, standard(n, "MatMul", a, b), alpha)


def _turned(n: Node, x: Atom, matrices: int, batches: int) -> Atom:
    rank = len(x.type.shape)
    axes = [*range(rank)]
    if rank < 2:
        return x
    if batches:
        axes = [*axes[1:-1], 0, axes[-1]]
    if matrices:
        axes[-2:] = reversed(axes[-2:])
    return x if axes == [*range(rank)] else standard(n, "Transpose", x, perm=tuple(axes))


@converts("FusedGemm", domain=MICROSOFT)
def _fused_gemm(n: Node) -> Atom:
    name = n.attr("activation", "")
    params = {p: n.attr(f"activation_{p}") for p in ("alpha", "beta", "gamma")}
    y = standard(n, "Gemm", *n.inputs, **taken(n))
    wanted = (params[p] for p in PARAMETERS.get(name, ()))
    return _activated(n, y, name, [p for p in wanted if p is not None]) if name else y


@converts("FusedConv", domain=MICROSOFT)
def _fused_conv(n: Node) -> Atom:
    """A convolution, a fourth operand added to it, an activation."""
    name, params = n.attr("activation", ""), n.attr("activation_params", ())
    y = standard(n, "Conv", n[0], n[1], n.optional(2), **taken(n))
    y = total_of(n, y, n.optional(3))
    return _activated(n, y, name, params) if name else y


def taken(n: Node) -> dict[str, Any]:
    """All attributes that are left, for another converter to read."""
    attrs = dict(n.attrs)
    n.attrs.clear()
    return attrs


# --- normalisations ------------------------------------------------------------------------------


@converts("SkipLayerNormalization", domain=MICROSOFT)
def _skip_layer_norm(n: Node) -> tuple[Atom | None, ...]:
    total = total_of(n, n[0], n[1], n.optional(4))
    epsilon = n.attr("epsilon", 1e-12)
    y = standard(n, "LayerNormalization", total, n[2], n.optional(3), epsilon=epsilon)
    return y, None, None, total


@converts("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def _skip_rms_norm(n: Node) -> tuple[Atom | None, ...]:
    total = total_of(n, n[0], n[1], n.optional(3))
    y = standard(n, "RMSNormalization", total, n[2], epsilon=n.attr("epsilon", 1e-12))
    return y, None, None, total


@converts("SimplifiedLayerNormalization")
def _rms_norm(n: Node) -> Atom:
    """In the standard's own domain, though it is none of the standard's."""
    return standard(n, "RMSNormalization", n[0], n[1], **taken(n))


# --- embeddings ----------------------------------------------------------------------------------


@converts("EmbedLayerNormalization", domain=MICROSOFT)
def _embed_layer_norm(n: Node) -> tuple[Atom, ...]:
    n.attr("mask_index_type")  # which says whether the second result is of use
    at, segments = n.optional(8), n.optional(1)
    rows = [standard(n, "Gather", n[2], n[0])]
    rows.append(standard(n, "Gather", n[3], places(n, n[0], 1) if at is None else at))
    if segments is not None:
        rows.append(standard(n, "Gather", n[4], segments))
    return embedded(n, rows, n[5], n[6], n.optional(7))


def embedded(
    n: Node, rows: Sequence[Atom], scale: Atom, bias: Atom, mask: Atom | None
) -> tuple[Atom, ...]:
    """The sum of embeddings normalised, how many words the mask shows of each text, and the sum."""
    total, epsilon = total_of(n, *rows), n.attr("epsilon", 1e-12)
    y = standard(n, "LayerNormalization", total, scale, bias, epsilon=epsilon)
    shown = n.emit(e.equal, n[0] if mask is None else mask, Const(np.array(1, np.int32)))
    words = n.emit(reduce_sum, cast(n, shown, "int32"), axes=(1,), keepdims=False)
    return y, words if mask is not None else n.emit(e.mul, words, n.like(words, 0)), total
