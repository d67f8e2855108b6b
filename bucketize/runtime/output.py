"""Results in arrays of the caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from bucketize.errors import ArgumentError, ShapeError
from bucketize.op import Array, Value


def placed(
    into: Sequence[Array | None],
    numbers: Sequence[int],
    results: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
    inputs: Sequence[Value],
) -> dict[int, Array]:
    """The arrays that kernels can write results to, by the numbers of these.

    Not those of another shape or dtype, with gaps, or that share memory with an input: kernels read
    while they write.

    Args:
        into: of the outputs of a call.
        numbers: of the results that these are.
        results: the shape and dtype of each result.
        inputs: of the call.

    """
    places: dict[int, Array] = {}
    for array, number in zip(into, numbers, strict=True):
        if array is None or number in places or (array.shape, array.dtype) != results[number]:
            continue
        if not (array.flags.c_contiguous and array.flags.aligned):
            continue
        if not any(np.may_share_memory(array, other) for other in _arrays(inputs)):
            places[number] = array
    return places


def _arrays(values: Sequence[Value]) -> Iterator[Array]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _arrays(value)
        elif value is not None:
            yield value


def checked(names: Sequence[str], into: Sequence[Array | None]) -> Sequence[Array | None]:
    """Arrays for all outputs, or None.

    ArgumentError for what is none, may not be written to, or shares memory with another's.
    """
    if not isinstance(into, Sequence) or len(into) != len(names):
        got = len(into) if isinstance(into, Sequence) else type(into).__name__
        raise ArgumentError(f"expected a list of arrays for {', '.join(names)}, got {got}")
    for name, array in zip(names, into, strict=True):
        if array is not None and not isinstance(array, np.ndarray):
            raise ArgumentError(f"output {name!r}: expected an array, got {type(array).__name__}")
        if array is not None and not array.flags.writeable:
            raise ArgumentError(f"output {name!r}: the array may not be written to")
    given = [(name, a) for name, a in zip(names, into, strict=True) if a is not None]
    for (one, a), (other, b) in combinations(given, 2):
        if np.shares_memory(a, b):
            raise ArgumentError(f"outputs {one!r} and {other!r}: their arrays share memory")
    return into


def filled(
    names: Sequence[str], into: Sequence[Array | None], results: Sequence[Value]
) -> list[Value]:
    """The results in the arrays of the caller: copied, where no kernel wrote there.

    Raises ShapeError where one is of another shape or dtype.
    """
    pairs = zip(names, into, results, strict=True)
    return [_filled(name, array, result) for name, array, result in pairs]


def _filled(name: str, array: Array | None, result: Value) -> Value:
    if array is None or array is result:
        return result
    if not isinstance(result, np.ndarray):
        raise ShapeError(f"output {name!r} is no tensor: no array can hold it")
    if (array.shape, array.dtype) != (result.shape, result.dtype):
        expected, got = (f"{a.dtype}{list(a.shape)}" for a in (result, array))
        raise ShapeError(f"output {name!r}: expected an array of {expected}, got {got}")
    array[...] = result
    return array
