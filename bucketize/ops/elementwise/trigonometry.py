"""Trigonometric and hyperbolic functions of each element, and their inverses."""

from __future__ import annotations

import numpy as np

from bucketize.ops.elementwise.arithmetic import function

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan"]

WITHIN_1, WITHIN_0_9 = "float32[N, C] in [-1, 1)", "float32[N, C] in [-0.9, 0.9)"
FROM_1 = "float32[N, C] in [1, 9)"

sin = function("sin", np.sin, "The sine of `x`.")
cos = function("cos", np.cos, "The cosine of `x`.")
tan = function("tan", np.tan, "The tangent of `x`.")
asin = function("asin", np.arcsin, "The angle whose sine is `x`; NaN beyond -1 and 1.", WITHIN_1)
acos = function("acos", np.arccos, "The angle whose cosine is `x`; NaN beyond -1 and 1.", WITHIN_1)
atan = function("atan", np.arctan, "The angle whose tangent is `x`.")
sinh = function("sinh", np.sinh, "The hyperbolic sine of `x`.")
cosh = function("cosh", np.cosh, "The hyperbolic cosine of `x`.")
asinh = function("asinh", np.arcsinh, "The number whose hyperbolic sine is `x`.")
acosh = function(
    "acosh", np.arccosh, "The number whose hyperbolic cosine is `x`; NaN below 1.", FROM_1
)
atanh = function(
    "atanh",
    np.arctanh,
    "The number whose hyperbolic tangent is `x`; NaN beyond -1 and 1.",
    WITHIN_0_9,
)
