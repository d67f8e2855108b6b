"""Operators that bring an axis together, whether they keep it or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import FREE, UNSAFE, Array, Fill, Op, Padding, op
from bucketize.ops.rules import check_axes, extreme_numbers, text
from bucketize.types import Dim, Shape, TensorType, maximum, meet, minimum, rely_on_least

__all__ = [
    "argmax",
    "argmin",
    "cumprod",
    "cumsum",
    "layer_norm",
    "log_softmax",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "softmax",
]

EXAMPLE = "float32[N, C, H] {axes=(0, 2), keepdims=True}; float32[N, C] {axes=(1,)}"
NEAR_ONE = EXAMPLE.replace("]", "] in [0.9, 1.1)")  # products of many stay finite
INTEGERS = "; int64[3] {axes=(0,)}; int32[2, N] {axes=(1,)}"


def _reduced(x: Shape, *, axes: tuple[int, ...], keepdims: bool) -> Shape:
    check_axes(len(x), *axes)
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(x))
    return tuple(d for i, d in enumerate(x) if i not in axes)


def _reduction(
    padding: Padding, example: str = EXAMPLE, value: Any = False
) -> Callable[[Callable[..., Array]], Op]:
    """Declare an operator that reduces `axes`, where `padding` must hold of them."""
    return op(
        shape=_reduced,
        padding=lambda _arg, axis, _x, axes, **_: padding if axis in axes else FREE,
        example=example,
        value=value,
        total=True,
    )


def _fold(rule: Callable[[Dim, Dim], Dim]) -> Callable[..., Shape | None]:
    def value(x: TensorType, *, axes: tuple[int, ...], **_: Any) -> Shape | None:
        if not x.value or len(axes) != len(x.shape):
            return None
        return (reduce(rule, x.value),)

    return value


@_reduction(Fill(0), EXAMPLE + INTEGERS, value=True)
def reduce_sum(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The sum of `x` along `axes`."""
    return np.asarray(np.sum(x, axes, x.dtype, keepdims=keepdims))


@_reduction(Fill(1), NEAR_ONE + INTEGERS, value=True)
def reduce_prod(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The product of `x` along `axes`."""
    return np.asarray(np.prod(x, axes, x.dtype, keepdims=keepdims))


@_reduction(UNSAFE)
def reduce_mean(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The mean of `x` along `axes`; padding would change the count."""
    return np.asarray(np.mean(x, axes, keepdims=keepdims), x.dtype)


@_reduction(Fill(-math.inf), EXAMPLE + INTEGERS, _fold(maximum))
def reduce_max(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The greatest of `x` along `axes`; of none the least number of the dtype."""
    return np.asarray(np.max(x, axes, keepdims=keepdims, initial=extreme_numbers(x.dtype)[0]))


@_reduction(Fill(math.inf), EXAMPLE + INTEGERS, _fold(minimum))
def reduce_min(x: Array, *, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The smallest of `x` along `axes`; of none the greatest number of the dtype."""
    return np.asarray(np.min(x, axes, keepdims=keepdims, initial=extreme_numbers(x.dtype)[1]))


# --- the first extreme ---------------------------------------------------------------------------


def _arg_shape(x: Shape, *, axis: int, keepdims: bool) -> Shape:
    kept = _reduced(x, axes=(axis,), keepdims=keepdims)
    if x[axis] == 0:
        raise TypeRelError(f"axis {axis} of {text(x)} has no elements, thus no first extreme")
    rely_on_least(x[axis], 1)
    return kept


def _arg_extreme(fill: float) -> Callable[[Callable[..., Array]], Op]:
    return op(
        shape=_arg_shape,
        dtype=lambda _, **__: np.dtype(np.int64),
        padding=lambda _arg, at, _x, axis, **_: Fill(fill) if at == axis else FREE,
        example="float32[N, C] {axis=1}; int64[N, C] {axis=0, keepdims=True}",
    )


@_arg_extreme(-math.inf)
def argmax(x: Array, *, axis: int, keepdims: bool = False) -> Array:
    """Where the greatest of `x` along `axis` is; the first, if there are several."""
    return np.asarray(np.argmax(x, axis, keepdims=keepdims))


@_arg_extreme(math.inf)
def argmin(x: Array, *, axis: int, keepdims: bool = False) -> Array:
    """Where the smallest of `x` along `axis` is; the first, if there are several."""
    return np.asarray(np.argmin(x, axis, keepdims=keepdims))


# --- normalisations ------------------------------------------------------------------------------


def _along(fill: Padding) -> Callable[..., Padding]:
    return lambda _arg, at, _x, *, axis, **_: fill if at == axis else FREE


def _kept(x: Shape, *, axis: int, **_: Any) -> Shape:
    check_axes(len(x), axis)
    return x


@op(
    shape=_kept,
    padding=_along(Fill(-math.inf)),
    total=True,
    example="float32[N, C] {axis=1}; float32[N, C, H] {axis=0}",
)
def softmax(x: Array, *, axis: int) -> Array:
    """`x` made positive and to sum to one along `axis`."""
    e = np.exp(x - x.max(axis, keepdims=True, initial=-math.inf))
    return e / e.sum(axis, keepdims=True)  # type: ignore[no-any-return]


@op(
    shape=_kept,
    padding=_along(Fill(-math.inf)),
    example="float32[N, C] {axis=1}; float32[N, C, H] {axis=0}",
)
def log_softmax(x: Array, *, axis: int) -> Array:
    """The logarithm of `softmax`."""
    shifted = x - x.max(axis, keepdims=True, initial=-math.inf)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))  # type: ignore[no-any-return]


def _running_padding(
    first: int, _arg: int, at: int, _x: Shape, *, axis: int, reverse: bool, **_: Any
) -> Padding:
    """What comes last matters where sums or products begin there: it must change nothing."""
    return Fill(first) if at == axis and reverse else FREE


@op(
    shape=_kept,
    padding=partial(_running_padding, 0),
    example="float32[N, C] {axis=1}; int64[N, C] {axis=0, exclusive=True, reverse=True}; "
    "float32[N] {axis=0, reverse=True}",
)
def cumsum(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """The sums of all elements up to each along `axis`, or from it on, with or without itself."""
    return _running(np.cumsum, x, axis, 0 if exclusive else None, reverse=reverse)


def _running(so_far: Any, x: Array, axis: int, first: int | None, *, reverse: bool) -> Array:
    """What numpy's `so_far` makes of all elements up to each, or from it on; or behind a first."""
    y = np.flip(x, axis) if reverse else x
    total = so_far(y if first is None else _behind(y, axis, first), axis, x.dtype)
    return np.asarray(np.flip(total, axis) if reverse else total)


def _behind(x: Array, axis: int, first: int) -> Array:
    """`x` one place further along `axis`, without its last element, behind a number."""
    front = [(int(a == axis), 0) for a in range(x.ndim)]
    longer = np.pad(x, front, constant_values=first)
    return longer.take(range(x.shape[axis]), axis)


@op(
    shape=_kept,
    padding=partial(_running_padding, 1),
    example="float32[N, C] {axis=1}; int64[N, C] {axis=0, exclusive=True, reverse=True}; "
    "float32[N] {axis=0, reverse=True}; int32[N, C] {axis=1, exclusive=True}",
)
def cumprod(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """The products of all elements up to each along `axis`, or from it on (ONNX CumProd)."""
    return _running(np.cumprod, x, axis, 1 if exclusive else None, reverse=reverse)


def _norm_shape(x: Shape, scale: Shape, bias: Shape, *, axis: int, **_: Any) -> Shape:
    check_axes(len(x), axis)
    for y in (scale, bias):
        if len(y) > len(x) - axis:
            raise TypeRelError(f"rank {len(y)} is scaled over the {len(x) - axis} last axes")
        for d, e in zip(reversed(x), reversed(y), strict=False):
            if e != 1:
                meet(d, e)
    return x


@op(
    shape=_norm_shape,
    padding=lambda arg, at, *_, axis, **__: FREE if arg == 0 and at < axis else UNSAFE,
    total=True,
    example="float32[N, C, H], float32[H], float32[H] {axis=2}; "
    "float32[N, C, H], float32[C, H], float32[H] {axis=1, epsilon=0.1}",
)
def layer_norm(x: Array, scale: Array, bias: Array, *, axis: int, epsilon: float = 1e-5) -> Array:
    """`x` with mean 0 and variance 1 over the axes from `axis` on, then scaled and shifted."""
    axes = tuple(range(axis, x.ndim))
    centred = x - x.mean(axes, keepdims=True)
    variance = np.mean(centred * centred, axes, keepdims=True)
    return centred / np.sqrt(variance + epsilon) * scale + bias  # type: ignore[no-any-return]
