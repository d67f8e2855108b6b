"""Activations: what stands between the layers of a network. Elementwise, as `elementwise` says."""

from __future__ import annotations

import math

import numpy as np

from bucketize.op import Array
from bucketize.ops.elementwise.arithmetic import UNARY, elementwise, erf, unary
from bucketize.ops.rules import numbers

__all__ = [
    "clip",
    "gelu",
    "gelu_tanh",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "relu",
    "sigmoid",
    "silu",
    "softplus",
]


@elementwise("max(x0, 0)", f"{UNARY}; int64[N]", numbers)
def relu(x: Array) -> Array:
    """The positive part of `x`."""
    return np.maximum(x, 0)


@unary("where(x0 < 0, alpha * x0, x0)", "float32[N]; float32[N] {alpha=0.5}")
def leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    """`x`, less steep below zero."""
    return np.where(x < 0, alpha * x, x)


@unary("min(max(x0, lo), hi)", "float32[N] {lo=-0.5, hi=1.5}; float32[N] {lo=1.0, hi=-1.0}")
def clip(x: Array, *, lo: float = -math.inf, hi: float = math.inf) -> Array:
    """`x` kept within `lo` and `hi`; `hi` wins. Integers are clipped by `maximum` and `minimum`."""
    return np.minimum(np.maximum(x, lo), hi)


@unary("1 / (1 + exp(-x0))")
def sigmoid(x: Array) -> Array:
    """The logistic function of `x`."""
    return np.asarray(1 / (1 + np.exp(-x)))


@unary("x0 / (1 + exp(-x0))")
def silu(x: Array) -> Array:
    """`x` times its logistic function."""
    return np.asarray(x / (1 + np.exp(-x)))


@unary("max(0, min(1, alpha * x0 + beta))", "float32[N]; float32[N] {alpha=0.1, beta=0.2}")
def hard_sigmoid(x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """The logistic function as three straight lines."""
    return np.maximum(0, np.minimum(1, alpha * x + beta))


@unary("x0 * max(0, min(1, x0 / 6 + 0.5))")
def hard_swish(x: Array) -> Array:
    """`x` times its logistic function, as three straight lines."""
    return np.asarray(x * np.maximum(0, np.minimum(1, x / 6 + 0.5)))


@unary("max(x0, 0) + log(1 + exp(-abs(x0)))")
def softplus(x: Array) -> Array:
    """The logarithm of `1 + exp(x)`."""
    return np.asarray(np.logaddexp(x, x.dtype.type(0)))


@unary("gelu(x0)")
def gelu(x: Array) -> Array:
    """`x` times the normal distribution's probability below it."""
    return np.asarray(0.5 * x * (1 + erf.compute(x * math.sqrt(0.5))))


@unary("0.5 * x0 * (1 + tanh(0.7978845608028654 * (x0 + 0.044715 * x0 * x0 * x0)))")
def gelu_tanh(x: Array) -> Array:
    """`gelu` as approximated by a hyperbolic tangent."""
    return np.asarray(0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))))
