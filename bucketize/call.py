"""Calls: shapes bound to symbols, inputs put in order and checked; errors name the input."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np

from bucketize.errors import (
    ArgumentError,
    BucketizeError,
    CompileError,
    NoBucketError,
    ShapeError,
    TypeRelError,
    unknown_name,
)
from bucketize.ir import ILLEGAL, Binding, Var
from bucketize.op import Array, Value
from bucketize.quota import memory
from bucketize.table import pairs
from bucketize.types import (
    Dim,
    Expr,
    OptionalType,
    SequenceType,
    Symbol,
    TensorType,
    Type,
    evaluate,
)

MEMORY = memory()
"""Bytes that this machine has, or a container of this process: what tensors that live at once need
is held against it before it is asked for, as the system promises more than it has, and ends who
uses it."""


def check_memory(results: Iterable[tuple[Sequence[int], np.dtype[Any]]], taken: int = 0) -> int:
    """The bytes that are held when results of these shapes are, too; `taken` are already.

    Raises ShapeError at the first one that there is no memory for.
    """
    for shape, dtype in results:
        taken += math.prod(shape) * dtype.itemsize
        if not has_memory(taken):
            raise no_memory(shape, dtype)
    return taken


def has_memory(size: int) -> bool:
    """Whether this process can hold so many bytes."""
    return size <= MEMORY


def no_memory(shape: Sequence[int], dtype: np.dtype[Any]) -> ShapeError:
    """The error of a result that is too large, by this rule or by the system's."""
    return ShapeError(f"no memory for a result of {dtype}{list(shape)}")


def shapes_of(values: Sequence[Value]) -> tuple[Any, ...]:
    """The shapes of arrays; of a list a tuple of those of its elements, None of nothing."""
    return tuple([v.shape if isinstance(v, np.ndarray) else _inside(v) for v in values])


def _inside(value: Value) -> tuple[Any, ...] | None:
    return None if value is None else shapes_of(value)


def bind(
    outs: Sequence[Var], values: Sequence[Value], sizes: Mapping[str, int], what: str = "result"
) -> dict[str, int]:
    """The sizes when variables hold these values, which are of their types: kernels believe them.

    Raises ShapeError if they are not.
    """
    check_kinds(outs, values, what)
    return bind_shapes(outs, shapes_of(values), sizes, what)


def check_kinds(outs: Sequence[Var], values: Sequence[Any], what: str) -> None:
    """Raise ShapeError unless values are arrays of the variables' dtypes, or lists, or nothing."""
    if len(outs) != len(values):
        raise ShapeError(f"{what}: expected {len(outs)} values, got {len(values)}")
    for out, value in zip(outs, values, strict=True):
        if not _is_of(out.type, value):
            got = getattr(value, "dtype", type(value).__name__)
            raise ShapeError(f"{what} {out.name!r}: expected {out.type}, got {got}")


def _is_of(type_: Type, value: Any) -> bool:
    if isinstance(type_, OptionalType):
        return value is None or _is_of(type_.element, value)
    if isinstance(type_, SequenceType):
        return isinstance(value, list | tuple) and all(_is_of(type_.element, v) for v in value)
    return hasattr(value, "dtype") and value.dtype == type_.dtype


def bind_shapes(
    params: Sequence[Var],
    shapes: Sequence[Any],
    sizes: Mapping[str, int] | None = None,
    what: str = "input",
) -> dict[str, int]:
    """The sizes of the symbols when the parameters have these shapes; errors name the axis.

    Shapes are as `shapes_of` tells them. `sizes` holds those of symbols that the parameters need
    not tell.
    """
    env = dict(sizes or {})
    derived: list[tuple[Var, int, int]] = []
    for param, shape in _tensors(params, shapes):
        dims = param.type.shape
        if len(shape) != len(dims):
            want, got = len(dims), len(shape)
            raise ShapeError(f"{what} {param.name!r}: expected rank {want} {param.type}, got {got}")
        for axis, size in enumerate(shape):
            if isinstance(dims[axis], Expr):
                derived.append((param, axis, size))
            elif (wanted := _refused(env, dims[axis], size)) is not None:
                raise _mismatch(what, param, axis, wanted, size)
    for param, axis, size in derived:
        dim = param.type.shape[axis]
        if (value := evaluate(dim, env)) != size:
            raise _mismatch(what, param, axis, f"{dim}={value}", size)
    return env


def _tensors(params: Iterable[Var], shapes: Iterable[Any]) -> Iterator[tuple[Var, tuple[int, ...]]]:
    """Each tensor of known rank with its shape; those in a sequence one after the other."""
    for param, shape in zip(params, shapes, strict=True):
        type_, name = param.type, param.name
        if type_.is_tensor:
            yield param, shape
        elif isinstance(type_, OptionalType) and shape is not None:
            yield from _tensors([Var(name, type_.element)], [shape])
        elif isinstance(type_, SequenceType):
            yield Var(f"len({name})", TensorType(type_.dtype, (type_.count,))), (len(shape or ()),)
            for i, each in enumerate(shape or ()):
                yield from _tensors([Var(f"{name}[{i}]", type_.element)], [each])


def _refused(env: dict[str, int], dim: Dim, size: int) -> object:
    """What was expected in place of `size`; None if it is right. Notes what it says of a symbol."""
    if isinstance(dim, int):
        return None if dim == size else dim
    if not isinstance(dim, Symbol):
        return None
    if env.setdefault(dim.name, size) != size:
        return f"{dim.name}={env[dim.name]}"
    return None if dim.holds(size) else f"{dim.name} in {dim.range}"


def check_sizes(params: Iterable[Var], sizes: Mapping[str, int]) -> None:
    """Raise a ShapeError unless all symbols of the parameters have a size."""
    missing = sorted({s.name for p in params for s in p.type.symbols()} - sizes.keys())
    if missing:
        raise ShapeError(
            f"the size of {', '.join(missing)} is missing; got {dict(sizes) or 'none'}"
        )


def checked_size(symbol: Symbol, value: SupportsIndex) -> int:
    """A size that was given by its symbol, if it is an integer within the bounds."""
    try:
        size = operator.index(value)
    except TypeError as e:
        raise ShapeError(f"{symbol.name}: expected an integer, got {value!r}") from e
    wanted = _refused({}, symbol, size)
    if wanted is not None:
        raise ShapeError(f"expected {wanted}, got {size}")
    return size


def checked_shape(param: Var, value: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """A shape that was given by its input, if it is one."""
    try:
        return tuple(map(operator.index, value))
    except TypeError as e:
        name, wanted = param.name, "a shape, a tuple of integers"
        raise ShapeError(f"input {name!r}: expected {wanted}, got {value!r}") from e


def _mismatch(what: str, param: Var, axis: int, wanted: object, size: int) -> ShapeError:
    return ShapeError(f"{what} {param.name!r}, axis {axis}: expected {wanted}, got {size}")


def refusal(b: Binding, sizes: Mapping[str, int]) -> BucketizeError:
    """The error of a leaf that no bucket covers, or of a branch that is not legal."""
    if b.op is ILLEGAL:
        return TypeRelError(b.attrs["reason"])
    dims = {str(d): evaluate(d, sizes) for d in b.attrs["sizes"]}
    error = NoBucketError(f"no bucket covers {pairs(dims, ', ')}; buckets: {b.attrs['buckets']}")
    for name in (name for name, size in dims.items() if size == 0):
        asked = f'bounds={{"{name}": (0, None)}} or --dim {name}=0..'
        error.add_note(f"{name}=0 has a bucket where it is asked for: {asked}")
    return error


def too_deep() -> CompileError:
    """The error of functions that call each other more often than Python's stack can hold."""
    return CompileError("functions call each other without an end, or too deep for Python's stack")


def arrange_inputs(
    params: Sequence[Var], args: Sequence[Value], named: Mapping[str, Value]
) -> list[Value]:
    """Values in the order of the parameters, of the right dtypes; errors name the input."""
    if named or len(args) != len(params):
        args = _in_order([p.name for p in params], args, named)
    return [_checked(p.name, p.type, a) for p, a in zip(params, args, strict=True)]


def _in_order(
    names: Sequence[str], args: Sequence[Value], named: Mapping[str, Value]
) -> list[Value]:
    for name in named:
        if name not in names:
            raise unknown_name("input", name, names)
    for i, array in enumerate(args):
        _refuse_mapping(names[i] if i < len(names) else i, array)
    if len(args) > len(names):
        raise ShapeError(f"expected the inputs {', '.join(names)}; got {len(args)}")
    given = dict(zip(names, args, strict=False))
    twice = given.keys() & named.keys()
    missing = [n for n in names if n not in given and n not in named]
    if twice or missing:
        fault = (
            f"given twice: {', '.join(sorted(twice))}"
            if twice
            else f"missing: {', '.join(missing)}"
        )
        raise ShapeError(f"expected the inputs {', '.join(names)}; {fault}")
    return [{**given, **named}[n] for n in names]


def _checked(name: str, type_: Type, value: Value) -> Value:
    if isinstance(type_, OptionalType):
        return None if value is None else _checked(name, type_.element, value)
    if isinstance(type_, SequenceType):
        if not isinstance(value, list | tuple):
            got = type(value).__name__
            raise ShapeError(f"input {name!r}: expected a list of arrays, got {got}")
        return [_checked(f"{name}[{i}]", type_.element, v) for i, v in enumerate(value)]
    return _checked_array(name, type_, value)


def _checked_array(name: str, type_: Type, array: Array) -> Array:
    try:
        given, wanted = np.asarray(array), type_.dtype
        if given.dtype == object and hasattr(array, "__dlpack__"):
            given = np.from_dlpack(array)
    except (ValueError, BufferError) as e:
        raise ShapeError(f"input {name!r}: expected an array: {e}") from e
    if given.dtype == wanted:
        return given
    _refuse_mapping(name, array)
    alike = np.can_cast(given.dtype, wanted, "same_kind")
    how = f"; .astype(numpy.{wanted}) converts it" if alike else ""
    raise ShapeError(f"input {name!r}: expected {wanted}, got {given.dtype}{how}")


def _refuse_mapping(name: str | int, array: object) -> None:
    if isinstance(array, Mapping):
        how = "unpack it: run(**inputs), or run_named(**inputs) for results by name, too"
        raise ArgumentError(f"input {name!r}: expected an array, got a mapping; {how}")


def sizes_of(inputs: Sequence[Var], given: Mapping[str, Any]) -> dict[str, int]:
    """Symbol sizes from input shapes (by input name) and sizes (by symbol name) that agree."""
    params = {p.name: p for p in inputs}
    symbols = {s.name: s for p in inputs for s in p.type.symbols()}
    for name in given:
        if name not in params and name not in symbols:
            raise unknown_name("input or symbol", name, [*params, *symbols])
    # a number says the size of a symbol, also of one that is called as an input is
    whole = {n for n, v in given.items() if n not in params or isinstance(v, int | np.integer)}
    shapes = {n: checked_shape(params[n], given[n]) for n in given if n not in whole & {*symbols}}
    named = {n: checked_size(symbols[n], given[n]) for n in given if n not in shapes}
    sizes = bind_shapes([params[n] for n in shapes], list(shapes.values()), named)
    check_sizes(inputs, sizes)
    return sizes
