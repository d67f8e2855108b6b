"""Operators on the bits of integers, element by element."""

from __future__ import annotations

import numpy as np

from bucketize.op import Array
from bucketize.ops.elementwise import elementwise
from bucketize.ops.rules import integers

EXAMPLE = (
    "int64[N, C], int64[C]; int8[N, 1, C], int8[M, 1]; uint16[N] in [0, 2**16), uint16[] in [0, 99)"
)


@elementwise("x0 & x1", EXAMPLE, integers)
def bitwise_and(x: Array, y: Array) -> Array:
    """The bits that both have."""
    return np.bitwise_and(x, y)


@elementwise("x0 | x1", EXAMPLE, integers)
def bitwise_or(x: Array, y: Array) -> Array:
    """The bits that one of them has."""
    return np.bitwise_or(x, y)


@elementwise("x0 ^ x1", EXAMPLE, integers)
def bitwise_xor(x: Array, y: Array) -> Array:
    """The bits that just one of them has."""
    return np.bitwise_xor(x, y)


@elementwise("~x0", "int64[N, C]; int8[N]; uint16[N] in [0, 2**16)", integers)
def bitwise_not(x: Array) -> Array:
    """The bits that `x` does not have."""
    return np.bitwise_not(x)
