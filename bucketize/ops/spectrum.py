"""Discrete Fourier transforms, whose numbers are pairs along a last axis, and mel filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Attrs, op
from bucketize.ops.dyn.operand import dynamic, front_axes, lone
from bucketize.ops.rules import check_axes, floats, named_dtype, text, unsafe
from bucketize.types import ANY, Dim, Shape, rely_on_least

__all__ = ["dft", "dyn_dft", "mel_weight_matrix"]

PARTS = 1, 2  # a real number alone, or with an imaginary one


def _dft_shape(x: Shape, *, axis: int, length: Dim, onesided: bool, inverse: bool) -> Shape:
    check_axes(len(x), axis)
    if axis == len(x) - 1:
        raise TypeRelError(f"axis {axis} of {text(x)} holds the parts of numbers")
    if isinstance(x[-1], int) and x[-1] not in PARTS:
        raise TypeRelError(f"numbers have 1 or 2 parts, along the last axis of {text(x)}")
    if isinstance(length, int) and length < 1:
        raise TypeRelError(f"a transform of {length} numbers")
    rely_on_least(length, 1)
    kept = length // 2 + 1 if onesided and not inverse else length
    parts = 1 if onesided and inverse else 2
    return (*x[:axis], kept, *x[axis + 1 : -1], parts)


@op(
    shape=_dft_shape,
    dtype=floats,
    padding=lambda _, at, x, axis, **__: UNSAFE if at in (axis, len(x) - 1) else FREE,
    example="float32[N, C, 1] {axis=1, length=C}; float32[N, C, 2] {axis=0, length=N+2}; "
    "float64[N, C, 1] {axis=1, length=3, onesided=True}; "
    "float32[N, C, 2] {axis=1, length=C, inverse=True}; "
    "float32[N, C+1, 2] {axis=1, length=2*C, onesided=True, inverse=True}",
)
def dft(
    x: Array, *, axis: int, length: int, onesided: bool = False, inverse: bool = False
) -> Array:
    """The discrete Fourier transform along `axis`, of `length` numbers (ONNX DFT).

    There are zeros behind those that are too few. By `onesided` only the first half is made, or,
    if `inverse`, given: then the result is real.
    """
    z = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    if onesided and inverse:
        return np.fft.irfft(z, length, axis)[..., None].astype(x.dtype)
    y = (np.fft.ifft if inverse else np.fft.fft)(z, length, axis)
    if onesided:
        y = y.take(range(length // 2 + 1), axis)
    return np.stack([y.real, y.imag], -1).astype(x.dtype)


@dynamic(
    dft,
    reads=(1, 2),
    example="float32[N, C, 1], int64[] = 5, int64[] = -2; "
    "float32[N, C, 2], int64[0] = (), int64[1] = (0,) {inverse=True}; "
    "float32[N, C+1, 2], int64[0] = (), int64[] = 1 {onesided=True, inverse=True}",
)
def dyn_dft(x: Shape, length: Dim | Shape, axis: Dim | Shape, **kind: bool) -> Attrs | Shape:
    """`dft` of a length, that of the axis if it is empty, and along an axis that tensors hold."""
    (front,) = front_axes(len(x), (lone("axis", axis),))
    given = None if length == () else lone("dft_length", length)
    if not isinstance(front, int):
        return (*(ANY for _ in x[:-1]), 1 if all(kind.values()) else 2)
    size = x[front]
    usual = 2 * (size - 1) if all(kind.values()) else size
    return {"axis": front, "length": usual if given is None else given, **kind}


# --- mel filters ---------------------------------------------------------------------------------


def _mel_sizes(bins: Array, length: Array, *_: Array, **__: Any) -> tuple[int, int]:
    return int(length) // 2 + 1, int(bins)


def _mel_shape(*scalars: Shape, **_: Any) -> Shape:
    if any(scalars):
        raise TypeRelError(f"expected scalars, got {', '.join(map(text, scalars))}")
    return ANY, ANY


@op(
    shape=_mel_shape,
    shape_from_values=_mel_sizes,
    dtype=named_dtype,
    padding=unsafe,
    example="int64[] in [1, 8), int64[] in [16, 40), int64[] in [8000, 8001), "
    'float32[] in [0, 1), float32[] in [2000, 3000) {dtype="float32"}',
)
def mel_weight_matrix(
    bins: Array, length: Array, rate: Array, low: Array, high: Array, *, dtype: str
) -> Array:
    """Triangles over the frequencies of a transform of `length`, even on the mel scale.

    One column for each of so many `bins`, between two frequencies (ONNX MelWeightMatrix).
    """
    ends = [2595 * np.log10(1 + float(hertz) / 700) for hertz in (low, high)]
    count = int(bins) + 2
    mel = ends[0] + np.arange(count) * (ends[1] - ends[0]) / count
    hertz = 700 * (10 ** (mel / 2595) - 1)
    edges = ((int(length) + 1) * hertz // float(rate)).astype(np.int64)
    out = np.zeros(_mel_sizes(bins, length), dtype)
    if edges.size and not (edges.min() >= 0 and edges.max() < len(out)):
        raise IndexError(f"frequencies beyond those of a transform of {length}")
    for column, (left, middle, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        rising = np.arange(left, middle + 1)
        out[rising, column] = (rising - left) / (middle - left) if middle > left else 1
        falling = np.arange(middle, right)
        out[falling, column] = (right - falling) / max(right - middle, 1)
    return out
