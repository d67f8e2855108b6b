"""Converters of what draws numbers.

A node without a seed has one made of its name: nodes draw different numbers, and each call the
same ones. The rounds of a loop would, too, so there it is refused (`translate`).
"""

from __future__ import annotations

import math
import zlib

import numpy as np

from bucketize.ir import Atom, Const
from bucketize.onnx.node import Node, Unsupported, cast, converts, native_dtype
from bucketize.op import Op
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.fill import full
from bucketize.ops.random import normal_like, uniform_like
from bucketize.ops.reduce import argmax
from bucketize.ops.shape import unsqueeze
from bucketize.types.number import DType, kind_of

FLOAT32 = np.dtype(np.float32)
SEEDS = 1 << 32  # that numpy has
NAMED = 1 << 24  # of them, those that the attribute, a float, holds exactly


def seed_of(n: Node) -> int:
    """The seed that a node gives, or one of its own."""
    given = n.attr("seed")
    if given is None:
        return zlib.crc32("/".join(n.builder.origin).encode()) % NAMED
    if not math.isfinite(given):
        raise Unsupported(f"seed is {given}")
    return int(given) % SEEDS


def _draws(law: str, op: Op, **usual: float) -> None:
    """Declare what draws by a law: of a shape, or as much as there is of an operand."""

    def drawn(n: Node, x: Atom, dtype: DType) -> Atom:
        parameters = {name: n.attr(name, value) for name, value in usual.items()}
        return n.emit(op, x, **parameters, seed=seed_of(n), dtype=_dtype(n, dtype))

    converts(f"Random{law}")(lambda n: drawn(n, _shaped(n), FLOAT32))
    converts(f"Random{law}Like")(lambda n: drawn(n, n[0], n[0].type.dtype))


_draws("Normal", normal_like, mean=0.0, scale=1.0)
_draws("Uniform", uniform_like, low=0.0, high=1.0)


def _shaped(n: Node) -> Atom:
    """A tensor of the shape that is asked for."""
    return n.emit(full, shape=n.attr("shape"), value=0.0, dtype="float32")


def _dtype(n: Node, usual: DType) -> str:
    given = n.attr("dtype")
    dtype = usual if given is None else native_dtype(given)
    if kind_of(dtype) != "f":
        raise Unsupported(f"numbers of {dtype} are not drawn")
    return dtype.name


@converts("Bernoulli")
def _bernoulli(n: Node) -> Atom:
    """1 as often as the operand says; the standard's function has it the other way around."""
    given = n.attr("dtype")
    dtype = n[0].type.dtype if given is None else native_dtype(given)
    drawn = n.emit(uniform_like, n[0], seed=seed_of(n), dtype="float64")
    return cast(n, n.emit(e.less, drawn, cast(n, n[0], "float64")), dtype.name)


@converts("Multinomial")
def _multinomial(n: Node) -> Atom:
    """The class of the greatest logarithm of its share, each with noise of Gumbel's law."""
    dtype, count = native_dtype(n.attr("dtype", 6)), n.attr("sample_size", 1)
    if len(n[0].type.shape) != 2:
        raise Unsupported(f"input 0 is {n[0].type}, expected rank 2")
    shares = n.emit(unsqueeze, cast(n, n[0], "float64"), axes=(1,))
    each = n.emit(e.add, shares, Const(np.zeros((1, count, 1))))
    drawn = n.emit(uniform_like, each, seed=seed_of(n), dtype="float64")
    noise = n.emit(e.neg, n.emit(e.log, n.emit(e.neg, n.emit(e.log, drawn))))
    return cast(n, n.emit(argmax, n.emit(e.add, each, noise), axis=2), dtype.name)


def dropped(n: Node, x: Atom, ratio: Atom) -> tuple[Atom, Atom]:
    """`x` with elements left out, so many of all as `ratio` says, and which are kept."""
    share = cast(n, ratio, "float64")
    kept = n.emit(e.greater_equal, n.emit(uniform_like, x, seed=seed_of(n), dtype="float64"), share)
    one = n.like(share, 1)
    factor = cast(n, n.emit(e.div, one, n.emit(e.sub, one, share)), x.type.dtype.name)
    return n.emit(e.where, kept, n.emit(e.mul, x, factor), n.like(x, 0)), kept
