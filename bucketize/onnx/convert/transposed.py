"""The converter of transposed convolutions."""

from __future__ import annotations

from typing import Any

from bucketize.ir import Atom
from bucketize.onnx.convert.reduce import biased
from bucketize.onnx.convert.window import Sizes, auto_pad, halves, numbers, steps, windows_of
from bucketize.onnx.node import Node, Unsupported, converts
from bucketize.ops.shape import reshape, squeeze, unsqueeze
from bucketize.ops.window.transposed import conv_transpose
from bucketize.types import Dim, Shape, maximum


@converts("ConvTranspose")
def _conv_transpose(n: Node) -> Atom:
    weights = windows_of(n)
    kernel = weights.type.shape[2:]
    strides, dilations = steps(n, kernel)
    more = numbers(n, "output_padding", len(kernel), 0)
    spread = [
        (size - 1) * stride + (k - 1) * dilation + 1 + m
        for size, k, stride, dilation, m in zip(
            n[0].type.shape[2:], kernel, strides, dilations, more, strict=True
        )
    ]
    wanted = _wanted(n, strides)
    window: dict[str, tuple[Dim, ...]] = {"strides": strides, "dilations": dilations}
    window |= {"pads": _pads(n, spread, wanted), "output_padding": _behind(spread, wanted, more)}
    y = _emitted(n, weights, window)
    if wanted is not None and y.type.shape[2:] != wanted:
        y = n.emit(reshape, y, newshape=(*y.type.shape[:2], *wanted))  # which a run checks
    return biased(n, y, n.optional(2))


def _wanted(n: Node, strides: Sizes) -> Shape | None:
    """The extents of the result, where the node tells those in place of pads."""
    sizes, declared = n[0].type.shape[2:], n.attr("output_shape")
    if declared:
        if len(declared) not in (len(sizes), len(sizes) + 2) or min(declared) < 1:
            raise Unsupported(f"output_shape is {declared}, the image is {n[0].type}")
        extents: Shape = declared[-len(sizes) :]
        return extents
    if n.attrs.get("auto_pad", "NOTSET").startswith("SAME"):
        return tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    return None


def _pads(n: Node, spread: list[Dim], wanted: Shape | None) -> Shape:
    """The pads before each axis, then those after each."""
    rule, given = auto_pad(n, len(spread))
    if wanted is None:
        return given
    return halves([maximum(s - w, 0) for s, w in zip(spread, wanted, strict=True)], rule)


def _behind(spread: list[Dim], wanted: Shape | None, more: Sizes) -> Shape:
    """Elements of the result behind what is spread: as many more as are wanted, too."""
    if wanted is None:
        return more
    return tuple(m + maximum(w - s, 0) for m, s, w in zip(more, spread, wanted, strict=True))


def _emitted(n: Node, weights: Atom, window: dict[str, tuple[Dim, ...]]) -> Atom:
    """A window along one axis is one of height 1 along two."""
    attrs: dict[str, Any] = {"groups": n.attr("group", 1), "precision": n.precision}
    if len(weights.type.shape) > 3:
        return n.emit(conv_transpose, n[0], weights, **window, **attrs)
    lo, hi = window["pads"]
    flat = {"pads": (0, lo, 0, hi), "output_padding": (0, *window["output_padding"])}
    flat |= {k: (1, *window[k]) for k in ("strides", "dilations")}
    args = [n.emit(unsqueeze, a, axes=(2,)) for a in (n[0], weights)]
    return n.emit(squeeze, n.emit(conv_transpose, *args, **flat, **attrs), axes=(2,))
