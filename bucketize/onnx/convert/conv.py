"""The converter of convolutions: of floats, of which some were bytes before."""

from __future__ import annotations

from bucketize.ir import Atom
from bucketize.onnx.convert.quantized import scaled_conv
from bucketize.onnx.convert.reduce import biased
from bucketize.onnx.convert.window import Ops, slide, window_of, windows_of
from bucketize.onnx.node import Node, converts
from bucketize.ops.window.image import conv2d
from bucketize.ops.window.volume import conv3d

CONV: Ops = {2: conv2d, 3: conv3d}


@converts("Conv")
def _conv(n: Node) -> Atom:
    return biased(n, scaled_conv(n) or _of_floats(n), n.optional(2))


def _of_floats(n: Node) -> Atom:
    weights = windows_of(n)
    attrs = {"groups": n.attr("group", 1), "precision": n.precision}
    return slide(n, CONV, window_of(n, weights.type.shape[2:]), 0.0, n[0], weights, **attrs)
