"""Tensor types: a dtype and a shape of dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.types.dim import Dim, Shape, Symbol, symbols
from bucketize.types.relation import join, meet, substitute


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dtype and a shape; `value` holds the elements of a small integer tensor known as dims."""

    dtype: np.dtype[Any]
    shape: Shape
    value: Shape | None = None

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def is_static(self) -> bool:
        """Whether every extent is an integer."""
        return all(isinstance(d, int) for d in self.shape)

    def substitute(self, env: Mapping[str, Dim]) -> TensorType:
        """The type with the symbols that `env` names replaced, in shape and value."""
        value = self.value and tuple(substitute(d, env) for d in self.value)
        return TensorType(self.dtype, tuple(substitute(d, env) for d in self.shape), value)

    def symbols(self) -> frozenset[Symbol]:
        """The symbols of the shape."""
        return frozenset[Symbol]().union(*(symbols(d) for d in self.shape))


def tensor(dtype: Any, *shape: Dim) -> TensorType:
    """A tensor type, written short: `tensor("float32", N, 3)`."""
    return TensorType(np.dtype(dtype), shape)


def _combine(rule: Callable[[Dim, Dim], Dim], a: TensorType, b: TensorType) -> TensorType:
    if a.dtype != b.dtype:
        raise TypeRelError(f"dtypes differ: {a} and {b}")
    if len(a.shape) != len(b.shape):
        raise TypeRelError(f"ranks differ: {a} and {b}")
    shape = tuple(rule(x, y) for x, y in zip(a.shape, b.shape, strict=True))
    return TensorType(a.dtype, shape, a.value if a.value == b.value else None)


def meet_types(a: TensorType, b: TensorType) -> TensorType:
    """The type when both must hold."""
    return _combine(meet, a, b)


def join_types(a: TensorType, b: TensorType) -> TensorType:
    """The type when either may hold."""
    return _combine(join, a, b)


@dataclass(frozen=True)
class Profile:
    """A box of input shapes, both ends included, and the shape it is tuned for (cf. TensorRT)."""

    min: Mapping[str, tuple[int, ...]]
    opt: Mapping[str, tuple[int, ...]]
    max: Mapping[str, tuple[int, ...]]
    name: str = ""
