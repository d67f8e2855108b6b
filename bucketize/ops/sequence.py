"""Operators on sequences, and on what is optional.

A run holds a list of arrays, and None for what is absent. Nothing changes a list, or an array in
one: what an operator hands on is an operand of its own, whole, or new.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from bucketize.errors import TypeRelError
from bucketize.op import Array, Value, numbers_in, related
from bucketize.ops.dyn.operand import front_axes
from bucketize.types import (
    ANY,
    Dim,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    UnrankedType,
    bounds,
    ceil_div,
    join,
    join_types,
)

__all__ = [
    "concat_from_sequence",
    "optional_get_element",
    "optional_has_element",
    "optional_none",
    "optional_some",
    "sequence_at",
    "sequence_construct",
    "sequence_empty",
    "sequence_erase",
    "sequence_insert",
    "sequence_length",
    "split_to_sequence",
]


def sequence_type(type_: Type) -> SequenceType:
    """The type, if it is that of a sequence."""
    if not isinstance(type_, SequenceType):
        raise TypeRelError(f"expected a sequence, got {type_}")
    return type_


def _element(type_: Type) -> Type:
    """A tensor's type without its elements, which may differ from those of its neighbours."""
    if isinstance(type_, SequenceType | OptionalType):
        raise TypeRelError(f"expected a tensor, got {type_}")
    return type_.mapped(lambda d: d)


def _check_positions(positions: Sequence[Type]) -> None:
    for p in positions:
        if p.dtype.kind != "i" or p.axes:
            raise TypeRelError(f"a position is an integer, got {p}")


def _place(position: Array, count: int, end: int) -> int:
    """A position from the front; it must be below `end`, and those from the back count, too."""
    at = int(position)
    if not -count <= at < end:
        raise IndexError(f"position {at} is out of range for {count} elements")
    return at + count if at < 0 else at


# --- making and taking apart ---------------------------------------------------------------------


@related(lambda dtype: (SequenceType(UnrankedType(np.dtype(dtype)), 0),))
def sequence_empty(*, dtype: str) -> list[Array]:
    """A sequence of nothing (ONNX SequenceEmpty)."""
    del dtype
    return []


def _construct_relation(*types: Type) -> tuple[Type, ...]:
    if not types:
        raise TypeRelError("a sequence of no element does not tell their dtype")
    return (SequenceType(functools.reduce(join_types, map(_element, types)), len(types)),)


@related(_construct_relation)
def sequence_construct(*elements: Array) -> list[Array]:
    """The operands one after the other (ONNX SequenceConstruct)."""
    return list(elements)


def _at_relation(sequence: Type, position: Type) -> tuple[Type, ...]:
    _check_positions([position])
    return (sequence_type(sequence).element,)


@related(_at_relation)
def sequence_at(sequence: list[Array], position: Array) -> Array:
    """One element (ONNX SequenceAt)."""
    return sequence[_place(position, len(sequence), len(sequence))]


def _insert_relation(sequence: Type, x: Type, *position: Type) -> tuple[Type, ...]:
    _check_positions(position)
    type_ = sequence_type(sequence)
    joined = join_types(type_, SequenceType(_element(x), 1))
    assert isinstance(joined, SequenceType)
    return (SequenceType(joined.element, type_.count + 1),)


@related(_insert_relation)
def sequence_insert(sequence: list[Array], x: Array, *position: Array) -> list[Array]:
    """The sequence with an element more, at the end or before another (ONNX SequenceInsert)."""
    count = len(sequence)
    at = _place(position[0], count, count + 1) if position else count
    return [*sequence[:at], x, *sequence[at:]]


def _erase_relation(sequence: Type, *position: Type) -> tuple[Type, ...]:
    _check_positions(position)
    type_ = sequence_type(sequence)
    return (SequenceType(type_.element, type_.count - 1 if bounds(type_.count)[0] else ANY),)


@related(_erase_relation)
def sequence_erase(sequence: list[Array], *position: Array) -> list[Array]:
    """The sequence without one element, the last unless told (ONNX SequenceErase)."""
    count = len(sequence)
    at = _place(position[0] if position else np.array(-1), count, count)
    return [*sequence[:at], *sequence[at + 1 :]]


def _length_relation(sequence: Type) -> tuple[Type, ...]:
    count = sequence_type(sequence).count
    return (TensorType(np.dtype(np.int64), (), None if count == ANY else (count,)),)


@related(_length_relation)
def sequence_length(sequence: list[Array]) -> Array:
    """How many elements there are (ONNX SequenceLength)."""
    return np.array(len(sequence), np.int64)


# --- tensors to sequences and back ---------------------------------------------------------------


def parts_of(x: Type, split: Sequence[Type], axis: int) -> tuple[Dim, Dim]:
    """How many parts `split` makes of an axis, and the extent that all have, as far as known."""
    if not split:
        return x.shape[axis], 1
    (operand,) = split
    if operand.shape:
        sizes = operand.value
        count = operand.shape[0]
        return count, ANY if not sizes else functools.reduce(join, sizes)
    size, extent = (operand.value or (ANY,))[0], x.shape[axis]
    if size == ANY or bounds(size)[0] < 1 or extent == ANY:
        return ANY, ANY
    even = extent % size
    return ceil_div(extent, size), size if even == 0 else ANY


def _split_relation(x: Type, *split: Type, axis: int, keepdims: bool) -> tuple[Type, ...]:
    if not x.is_tensor:
        return (SequenceType(_element(x)),)
    (front,) = front_axes(len(x.shape), (axis,))
    count, extent = parts_of(x, split, front)
    kept = (extent,) if keepdims or split else ()
    shape = (*x.shape[:front], *kept, *x.shape[front + 1 :])
    return (SequenceType(TensorType(x.dtype, shape), count),)


@related(_split_relation)
def split_to_sequence(x: Array, *split: Array, axis: int, keepdims: bool = True) -> list[Array]:
    """The parts of `x` along an axis, each of one number unless told (ONNX SplitToSequence)."""
    (front,) = front_axes(x.ndim, (axis,))
    extent = x.shape[front]
    sizes = _sizes(extent, split)
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise ValueError(f"parts of {list(sizes)} do not make the extent {extent}")
    parts = np.split(x, np.cumsum(sizes)[:-1], front) if sizes else []
    whole = keepdims or bool(split)
    return [p.copy() if whole else p.squeeze(front).copy() for p in parts]


def _sizes(extent: int, split: Sequence[Array]) -> tuple[int, ...]:
    size = numbers_in(*split) if split else 1
    if isinstance(size, tuple):
        return size
    if size < 1:
        raise ValueError(f"expected parts of at least 1, got {size}")
    return (size,) * (extent // size) + ((extent % size,) if extent % size else ())


def _concat_relation(sequence: Type, *, axis: int, new_axis: bool) -> tuple[Type, ...]:
    type_ = sequence_type(sequence)
    element = type_.element
    if not element.is_tensor:
        return (element,)
    shape = element.shape
    (front,) = front_axes(len(shape) + new_axis, (axis,))
    extent = type_.count if new_axis else type_.count * shape[front]
    behind = shape[front if new_axis else front + 1 :]
    return (TensorType(element.dtype, (*shape[:front], extent, *behind)),)


@related(_concat_relation)
def concat_from_sequence(sequence: list[Array], *, axis: int, new_axis: bool = False) -> Array:
    """The elements along an axis, which may be a new one (ONNX ConcatFromSequence)."""
    if not sequence:
        raise ValueError("a sequence of no element has nothing to concatenate")
    return np.stack(sequence, axis) if new_axis else np.concatenate(sequence, axis)


# --- what is optional ----------------------------------------------------------------------------


def optional_type(type_: Type) -> OptionalType:
    """The type, if it is that of something optional."""
    if not isinstance(type_, OptionalType):
        raise TypeRelError(f"expected something optional, got {type_}")
    return type_


def _some_relation(x: Type) -> tuple[Type, ...]:
    if isinstance(x, OptionalType):
        raise TypeRelError(f"{x} is optional already")
    return (OptionalType(x.mapped(lambda d: d)),)


@related(_some_relation)
def optional_some(x: Value) -> Value:
    """What is there, as something optional (ONNX Optional)."""
    return x


@related(lambda type: (OptionalType(type),))
def optional_none(*, type: Type) -> None:
    """Nothing, where there might be a value of this type (ONNX Optional without an operand)."""
    del type


@related(lambda x: (TensorType(np.dtype(np.bool_), ()),) if optional_type(x) else ())
def optional_has_element(x: Value) -> Array:
    """Whether anything is there (ONNX OptionalHasElement)."""
    return np.array(x is not None)


@related(lambda x: (optional_type(x).element,))
def optional_get_element(x: Value) -> Value:
    """What is there (ONNX OptionalGetElement)."""
    if x is None:
        raise ValueError("expected a value to be there, got nothing")
    return x
