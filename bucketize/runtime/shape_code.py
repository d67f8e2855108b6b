"""Dims compiled to Python: the shape functions of a whole segment, and the decision of a tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bucketize.types import Dim, Symbol, broadcast, maximum, minimum, substitute

NAMES = {"broadcast": broadcast, "min": minimum, "max": maximum}


def local_names(symbols: Sequence[str]) -> dict[str, str]:
    """A Python identifier for each symbol, whose own name may be any text."""
    return {name: f"s{i}" for i, name in enumerate(symbols)}


def dim_source(dim: Dim, names: Mapping[str, str]) -> str:
    """The dim as a Python expression over the local names."""
    return str(substitute(dim, {n: Symbol(local) for n, local in names.items()}))


def compile_dims(dims: Sequence[Dim], symbols: Sequence[str]) -> Callable[..., tuple[int, ...]]:
    """A function from the symbols' values, in order, to the values of all `dims`."""
    names = local_names(symbols)
    body = "".join(f"{dim_source(d, names)}, " for d in dims)
    header = f"def dims({', '.join(names.values())}):"
    return compile_function(f"{header}\n    return ({body})\n", "dims")


def compile_function(source: str, name: str) -> Callable[..., Any]:
    """The function `name` that the generated source defines."""
    scope: dict[str, Any] = dict(NAMES)
    exec(compile(source, f"<{name}>", "exec"), scope)
    made: Callable[..., Any] = scope[name]
    return made
