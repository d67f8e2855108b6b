"""A module at sizes that are known beforehand."""

from __future__ import annotations

from typing import SupportsIndex, TypeAlias

from bucketize.call import checked_size
from bucketize.dispatch.tree import is_dispatched, name_dims
from bucketize.errors import BucketizeError, DispatchError, ShapeError, unknown_name
from bucketize.ir import Module, check_module
from bucketize.ir import specialise as specialised
from bucketize.transform.simplify import simplify
from bucketize.types import Dim, Symbol

Size: TypeAlias = SupportsIndex | tuple[int, int | None]


def specialise(mod: Module, /, **sizes: Size) -> Module:
    """Hold symbols of `main` to sizes, or to narrower bounds, and simplify it.

    What follows from the sizes is folded: static twins of `dyn` ops, known branches, constants. The
    inputs stay as they were, and an input of another size is an error. On the command line that is
    `--dim N=1 --dim H=32..64`.

    Args:
        mod: the module, not dispatched.
        **sizes: by symbol: `N=1` is 1 everywhere, `H=(32, 64)` is 32 to 64, both ends included;
            None is no upper bound. An axis that is `?` goes by its place, `data_2`.

    Returns:
        A new module.

    Raises:
        ArgumentError: no module.
        DispatchError: `main` is dispatched.
        ShapeError: a size that is none, or out of its bounds.
        TypeRelError: the model is not legal at these sizes.
        UnknownNameError: there is no such symbol.

    """
    check_module(mod)
    main = name_dims(mod.main)
    if is_dispatched(main, mod):
        raise DispatchError("main is dispatched; specialise the original, then dispatch")
    symbols = main.symbols()
    dims: dict[str, Dim] = {}
    for name, size in sizes.items():
        if name not in symbols:
            raise unknown_name("symbol", name, symbols)
        dims[name] = _held(symbols[name], size)
    try:
        return mod.replace(simplify(specialised(main, dims)))
    except BucketizeError as e:
        e.add_note(f"with {', '.join(f'{name}={size}' for name, size in sizes.items())}")
        raise


def _held(symbol: Symbol, size: Size) -> Dim:
    if not isinstance(size, tuple):
        return checked_size(symbol, size)
    match size:
        case (int(lo), hi) if hi is None or isinstance(hi, int):
            first = checked_size(symbol, lo)
            last = symbol.hi if hi is None else checked_size(symbol, hi)
            if last is None or first <= last:
                return symbol.within(first, last)
    raise ShapeError(f"{symbol.name}: expected a size, or bounds (lo, hi), got {size!r}")
