"""Trigonometric and hyperbolic functions of each element, and their inverses."""

from __future__ import annotations

import numpy as np

from bucketize.op import Array
from bucketize.ops.elementwise.arithmetic import unary

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan"]


@unary("sin(x0)")
def sin(x: Array) -> Array:
    """The sine of `x`."""
    return np.sin(x)


@unary("cos(x0)")
def cos(x: Array) -> Array:
    """The cosine of `x`."""
    return np.cos(x)


@unary("tan(x0)")
def tan(x: Array) -> Array:
    """The tangent of `x`."""
    return np.tan(x)


@unary("asin(x0)", "float32[N, C] in [-1, 1)")
def asin(x: Array) -> Array:
    """The angle whose sine is `x`; NaN beyond -1 and 1."""
    return np.arcsin(x)


@unary("acos(x0)", "float32[N, C] in [-1, 1)")
def acos(x: Array) -> Array:
    """The angle whose cosine is `x`; NaN beyond -1 and 1."""
    return np.arccos(x)


@unary("atan(x0)")
def atan(x: Array) -> Array:
    """The angle whose tangent is `x`."""
    return np.arctan(x)


@unary("sinh(x0)")
def sinh(x: Array) -> Array:
    """The hyperbolic sine of `x`."""
    return np.sinh(x)


@unary("cosh(x0)")
def cosh(x: Array) -> Array:
    """The hyperbolic cosine of `x`."""
    return np.cosh(x)


@unary("asinh(x0)")
def asinh(x: Array) -> Array:
    """The number whose hyperbolic sine is `x`."""
    return np.arcsinh(x)


@unary("acosh(x0)", "float32[N, C] in [1, 9)")
def acosh(x: Array) -> Array:
    """The number whose hyperbolic cosine is `x`; NaN below 1."""
    return np.arccosh(x)


@unary("atanh(x0)", "float32[N, C] in [-0.9, 0.9)")
def atanh(x: Array) -> Array:
    """The number whose hyperbolic tangent is `x`; NaN beyond -1 and 1."""
    return np.arctanh(x)
