"""Export rules of what is about bits.

ONNX shifts numbers without a sign, and by less than they have bits.
"""

from __future__ import annotations

import numpy as np

from bucketize.onnx.export.rule import ExportSite, exports
from bucketize.onnx.node import Unsupported
from bucketize.ops.elementwise import bits

WIDEST = 64


@exports(bits.left_shift)
def _left_shift(s: ExportSite) -> str:
    return s.cast(_shifted(s, s.cast(s[0], np.int64), "LEFT"), s.dtype)


@exports(bits.right_shift)
def _right_shift(s: ExportSite) -> str:
    """Shifts the complement of a negative number, and takes the complement again."""
    x = s.cast(s[0], np.int64)
    if s.dtype.kind == "u":
        return s.cast(_shifted(s, x, "RIGHT"), s.dtype)
    negative = s.node("Less", x, s.constant(0, np.int64))
    without = s.node("Where", negative, s.node("BitwiseNot", x), x)
    y = _shifted(s, without, "RIGHT")
    return s.cast(s.node("Where", negative, s.node("BitwiseNot", y), y), s.dtype)


def _shifted(s: ExportSite, x: str, direction: str) -> str:
    """The bits of an int64, shifted as they are; 0 if there is none left."""
    by, zero, most = s.cast(s[1], np.int64), *(s.constant(n, np.int64) for n in (0, WIDEST - 1))
    places = s.node("Max", s.node("Min", by, most), zero)
    y = s.node("BitShift", s.cast(x, np.uint64), s.cast(places, np.uint64), direction=direction)
    some = s.node("Equal", places, by)
    return s.node("Where", some, s.cast(y, np.int64), zero)


@exports(bits.bitcast)
def _bitcast(_: ExportSite) -> str:
    raise Unsupported("ONNX reads bits as another dtype from opset 26 on")
