"""Calls: shapes bound to symbols, inputs put in order and checked; errors name the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bucketize.errors import NoBucketError, ShapeError, unknown_name
from bucketize.ir import Binding, Var
from bucketize.op import Array
from bucketize.types import AnyDim, Expr, Symbol, evaluate


def bind_shapes(
    params: Sequence[Var],
    shapes: Sequence[tuple[int, ...]],
    known: Mapping[str, int] | None = None,
    what: str = "input",
) -> dict[str, int]:
    """The sizes of the symbols when the parameters have these shapes; errors name the axis.

    `known` holds the sizes of symbols that the parameters need not tell.
    """
    env = dict(known or {})
    for param, shape in zip(params, shapes, strict=True):
        if len(shape) != len(param.type.shape):
            want, got = len(param.type.shape), len(shape)
            raise ShapeError(f"{what} {param.name!r}: expected rank {want} {param.type}, got {got}")
        for axis, (dim, size) in enumerate(zip(param.type.shape, shape, strict=True)):
            where = f"{what} {param.name!r}, axis {axis}"
            if isinstance(dim, Symbol):
                _bind_symbol(env, dim, size, where)
            elif not isinstance(dim, Expr | AnyDim) and dim != size:
                raise ShapeError(f"{where}: expected {dim}, got {size}")
    _check_expressions(params, shapes, env, what)
    return env


def _bind_symbol(env: dict[str, int], symbol: Symbol, size: int, where: str) -> None:
    if env.setdefault(symbol.name, size) != size:
        raise ShapeError(f"{where}: expected {symbol.name}={env[symbol.name]}, got {size}")
    if size < symbol.lo or (symbol.hi is not None and size > symbol.hi):
        top = "..." if symbol.hi is None else symbol.hi
        raise ShapeError(f"{where}: expected {symbol.name} in [{symbol.lo}, {top}], got {size}")


def _check_expressions(
    params: Sequence[Var], shapes: Sequence[tuple[int, ...]], env: Mapping[str, int], what: str
) -> None:
    for param, shape in zip(params, shapes, strict=True):
        for axis, (dim, size) in enumerate(zip(param.type.shape, shape, strict=True)):
            if isinstance(dim, Expr) and evaluate(dim, env) != size:
                want = f"{dim}={evaluate(dim, env)}"
                raise ShapeError(f"{what} {param.name!r}, axis {axis}: expected {want}, got {size}")


def no_bucket(b: Binding, sizes: Mapping[str, int]) -> NoBucketError:
    """The error of a leaf that no bucket covers."""
    shown = ", ".join(f"{d}={evaluate(d, sizes)}" for d in b.attrs["sizes"])
    return NoBucketError(f"no bucket covers {shown}; buckets: {b.attrs['buckets']}")


def arrange_inputs(
    params: Sequence[Var], args: Sequence[Array], named: Mapping[str, Array]
) -> list[Array]:
    """Arrays in the order of the parameters, of the right dtypes; errors name the input."""
    if named or len(args) != len(params):
        args = _in_order([p.name for p in params], args, named)
    return [_checked(p, a) for p, a in zip(params, args, strict=True)]


def _in_order(
    names: Sequence[str], args: Sequence[Array], named: Mapping[str, Array]
) -> list[Array]:
    for name in named:
        if name not in names:
            raise unknown_name("input", name, names)
    if len(args) > len(names):
        raise ShapeError(f"expected {len(names)} inputs ({', '.join(names)}), got {len(args)}")
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


def _checked(param: Var, array: Array) -> Array:
    array = np.asarray(array)
    if array.dtype != param.type.dtype:
        raise ShapeError(f"input {param.name!r}: expected {param.type.dtype}, got {array.dtype}")
    return array
