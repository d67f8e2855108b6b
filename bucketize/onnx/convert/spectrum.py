"""Converters of Fourier transforms and mel filters."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from bucketize.ir import Atom, Const
from bucketize.onnx.convert.shape import extent, iota, scalar
from bucketize.onnx.node import Node, Unsupported, cast, converts, native_dtype, vector
from bucketize.ops.dyn.shape import dyn_arange
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.index import gather
from bucketize.ops.shape import unsqueeze
from bucketize.ops.spectrum import dyn_dft, mel_weight_matrix

converts("DFT")(lambda n: _transformed(n, Const(np.array(n.axis("axis", 1)))))
converts("DFT", 20)(lambda n: _transformed(n, n.optional(2) or Const(np.array(-2))))


def _transformed(n: Node, axis: Atom) -> Atom:
    length = n.optional(1) or vector()
    kind = {name: bool(n.attr(name, 0)) for name in ("onesided", "inverse")}
    return n.emit_dynamic(dyn_dft, n[0], length, axis, **kind)


@converts("STFT")
def _stft(n: Node) -> Atom:
    """Frames that overlap, gathered, and the transform of each."""
    x, window = n[0], n.optional(2)
    if len(x.type.shape) != 3:
        raise Unsupported(f"a signal {x.type}, expected [batch, length, 1 or 2]")
    step = cast(n, scalar(n, 1), "int64")
    if n.optional(3):
        length = cast(n, scalar(n, 3), "int64")
    else:
        length = extent(n, window, 0) if window else extent(n, x, 1)
    zero, one = (Const(np.array(k)) for k in (0, 1))
    end = n.emit(e.add, n.emit(e.sub, extent(n, x, 1), length), one)
    starts = n.emit_dynamic(dyn_arange, zero, end, step)
    inside = iota(n, length)
    places = n.emit(e.add, n.emit(unsqueeze, starts, axes=(1,)), inside)
    frames: Atom = n.emit(gather, x, places, axis=1)
    if window:
        frames = n.emit(e.mul, frames, n.emit(unsqueeze, window, axes=(1,)))
    onesided = bool(n.attr("onesided", 1))
    return n.emit_dynamic(dyn_dft, frames, length, Const(np.array(2)), onesided=onesided)


@converts("MelWeightMatrix")
def _mel_weight_matrix(n: Node) -> Atom:
    dtype = native_dtype(n.attr("output_datatype", TensorProto.FLOAT)).name
    return n.emit(mel_weight_matrix, *(scalar(n, i) for i in range(5)), dtype=dtype)
