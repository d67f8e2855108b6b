"""Types: tensors, of known rank or not, sequences of them, and what may be absent."""

from __future__ import annotations

from collections.abc import Callable, KeysView, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bucketize.errors import TypeRelError, UnknownRankError
from bucketize.types.dim import ANY, Dim, Shape, Symbol
from bucketize.types.extent import symbols
from bucketize.types.ratio import Ratio
from bucketize.types.relation import join, meet, substitute

DimRule = Callable[[Dim, Dim], Dim]


class Type:
    """What a variable holds. Only tensors have a shape: reading that of others is an error."""

    __slots__ = ()

    is_tensor: ClassVar[bool] = False
    """Whether it is a tensor whose rank is known."""

    if TYPE_CHECKING:

        @property
        def dtype(self) -> np.dtype[Any]:
            """The dtype of the elements."""

        @property
        def shape(self) -> Shape:
            """The extents of a tensor whose rank is known."""

    @property
    def value(self) -> Shape | None:
        """The elements of a small integer tensor that is known as dims."""
        return None

    @property
    def axes(self) -> Shape:
        """The extents that a run's value has, whatever it is: those of tensors of known rank."""
        return ()

    @property
    def dims(self) -> Shape:
        """All dims in the type."""
        return self.axes

    @property
    def is_static(self) -> bool:
        """Whether it is a tensor of which every extent is an integer."""
        return self.is_tensor and all(isinstance(d, int) for d in self.axes)

    def mapped(self, rule: Callable[[Dim], Dim]) -> Type:
        """The type with `rule` applied to every dim, and no elements known."""
        del rule
        return self

    def substitute(self, env: Mapping[str, Dim]) -> Type:
        """The type with the symbols that `env` names replaced."""
        return self.mapped(lambda d: substitute(d, env))

    def symbols(self) -> KeysView[Symbol]:
        """The symbols in the type, in order."""
        return dict.fromkeys(s for d in self.dims for s in symbols(d)).keys()


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """A dtype and a shape; `value` holds the elements of a small integer tensor known as dims.

    `ratio` is the only element of a tensor of floats, where shape arithmetic goes through it.
    """

    is_tensor: ClassVar[bool] = True

    dtype: np.dtype[Any]
    shape: Shape
    value: Shape | None = None
    ratio: Ratio | None = None

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    @property
    def axes(self) -> Shape:
        """Its extents."""
        return self.shape

    def mapped(self, rule: Callable[[Dim], Dim]) -> TensorType:
        """The type with `rule` applied to every extent, and no elements known."""
        return TensorType(self.dtype, tuple([rule(d) for d in self.shape]))

    def substitute(self, env: Mapping[str, Dim]) -> TensorType:
        """The type with the symbols that `env` names replaced, in shape and value."""
        value = self.value and tuple(substitute(d, env) for d in self.value)
        ratio = self.ratio and self.ratio.substitute(env)
        shape = tuple(substitute(d, env) for d in self.shape)
        return TensorType(self.dtype, shape, value, ratio)


@dataclass(frozen=True, slots=True)
class UnrankedType(Type):
    """A tensor of which only a run can tell how many axes it has; printed `float32[...]`."""

    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.dtype}[...]"

    @property
    def shape(self) -> Shape:
        """Raise UnknownRankError: a tensor of unknown rank has no shape."""
        raise UnknownRankError(f"the rank of {self} is unknown: only a run can tell")


class Holder(Type):
    """What holds tensors and is none."""

    __slots__ = ()

    @property
    def shape(self) -> Shape:
        """Raise TypeRelError: what holds tensors has no shape."""
        raise TypeRelError(f"expected a tensor, got {self}")


@dataclass(frozen=True, slots=True)
class SequenceType(Holder):
    """A list of tensors, of the type of all of them; `count` is how many there are.

    Of an empty one the type of the elements says no more than their dtype.
    """

    element: Type
    count: Dim = ANY

    def __str__(self) -> str:
        return f"sequence({self.element}{'' if self.count == ANY else f', {self.count}'})"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements of the tensors."""
        return self.element.dtype

    @property
    def dims(self) -> Shape:
        """Dims of the elements, and how many these are."""
        return (*self.element.dims, self.count)

    def mapped(self, rule: Callable[[Dim], Dim]) -> SequenceType:
        """The type with `rule` applied to every dim."""
        return SequenceType(self.element.mapped(rule), rule(self.count))


@dataclass(frozen=True, slots=True)
class OptionalType(Holder):
    """A tensor or a sequence, or nothing."""

    element: Type

    def __str__(self) -> str:
        return f"optional({self.element})"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of what may be there."""
        return self.element.dtype

    @property
    def dims(self) -> Shape:
        """Dims of what may be there."""
        return self.element.dims

    def mapped(self, rule: Callable[[Dim], Dim]) -> OptionalType:
        """The type with `rule` applied to every dim."""
        return OptionalType(self.element.mapped(rule))


def tensor(dtype: Any, *shape: Dim) -> TensorType:
    """A tensor type, written short: `tensor("float32", N, 3)`."""
    return TensorType(np.dtype(dtype), shape)


def _check_kinds(a: Type, b: Type) -> None:
    """Raise a TypeRelError unless both are tensors, or sequences, or optional, of one dtype."""
    apart = SequenceType, OptionalType
    if any(isinstance(a, kind) != isinstance(b, kind) for kind in apart):
        raise TypeRelError(f"types differ: {a} and {b}")
    if a.dtype != b.dtype:
        raise TypeRelError(f"dtypes differ: {a} and {b}")


def _by_axis(rule: DimRule, a: TensorType, b: TensorType) -> TensorType:
    shape = tuple(rule(x, y) for x, y in zip(a.shape, b.shape, strict=True))
    return TensorType(a.dtype, shape, a.value if a.value == b.value else None)


def meet_types(a: Type, b: Type) -> Type:
    """The type when both must hold."""
    if isinstance(a, OptionalType) and isinstance(b, OptionalType):
        return OptionalType(meet_types(a.element, b.element))
    _check_kinds(a, b)
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        if len(a.shape) != len(b.shape):
            raise TypeRelError(f"ranks differ: {a} and {b}")
        return _by_axis(meet, a, b)
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return SequenceType(meet_types(a.element, b.element), meet(a.count, b.count))
    return b if isinstance(a, UnrankedType) else a


def join_types(a: Type, b: Type) -> Type:
    """The type when either may hold: of tensors of two ranks none is known.

    What is there is also something that may be there.
    """
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        inner = (t.element if isinstance(t, OptionalType) else t for t in (a, b))
        return OptionalType(join_types(*inner))
    _check_kinds(a, b)
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        same = len(a.shape) == len(b.shape)
        return _by_axis(join, a, b) if same else UnrankedType(a.dtype)
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return SequenceType(_join_elements(a, b), join(a.count, b.count))
    return UnrankedType(a.dtype)


def _join_elements(a: SequenceType, b: SequenceType) -> Type:
    """What elements of either may be; an empty sequence has none."""
    if 0 in (a.count, b.count):
        return b.element if a.count == 0 else a.element
    return join_types(a.element, b.element)


@dataclass(frozen=True)
class Profile:
    """A box of input shapes, both ends included, and the shape it is tuned for (cf. TensorRT)."""

    min: Mapping[str, tuple[int, ...]]
    opt: Mapping[str, tuple[int, ...]]
    max: Mapping[str, tuple[int, ...]]
    name: str = ""
