"""A dispatcher for each symbol."""

from __future__ import annotations

from collections.abc import Mapping

from bucketize.errors import ArgumentError, DispatchError, did_you_mean
from bucketize.types import Dim, Interval, Shape, Symbol, bounds
from dispatchers.axis import Dispatcher, Intervals, is_free


def per_symbol(rules: Mapping[str, Dispatcher]) -> Dispatcher:
    """The dispatcher that follows a dispatcher of its own on each symbol.

    Args:
        rules: dispatchers by symbol; other symbols are not cut. An axis that the model does not
            name goes by input and axis, `"data_2"`, as `dispatch` names it.

    Returns:
        The dispatcher.

    Raises:
        ArgumentError: no dispatchers by symbol.

    """
    if not isinstance(rules, Mapping) or not all(map(callable, rules.values())):
        wanted = '{"N": log_dispatcher}, a dispatcher by symbol'
        raise ArgumentError(f"per_symbol: expected {wanted}, got {rules!r}")

    def symbol_dispatcher(shapes: Mapping[str, Shape]) -> Intervals:
        """One rule for each symbol."""
        axes = free_axes(shapes)
        if unknown := sorted(rules.keys() - axes.values()):
            names = ", ".join(sorted(set(axes.values()))) or "none"
            guess = did_you_mean(unknown[0], axes.values())
            raise DispatchError(f"no dynamic axis is named {unknown[0]!r}; known: {names}{guess}")
        cuts: Intervals = {}
        for (name, axis), key in axes.items():
            if key in rules:
                cuts.setdefault(name, {})[axis] = _intervals(rules[key], shapes, name, axis)
        return cuts

    symbol_dispatcher.__name__ = "per_symbol"  # by which errors call it
    return symbol_dispatcher


def free_axes(shapes: Mapping[str, Shape]) -> dict[tuple[str, int], str]:
    """The dynamic axes, as (input, axis), and what each goes by."""
    return {
        (name, axis): axis_name(name, axis, dim)
        for name, shape in shapes.items()
        for axis, dim in enumerate(shape)
        if is_free(dim)
    }


def axis_name(name: str, axis: int, dim: Dim) -> str:
    """The symbol of an axis, or else its input and place."""
    return dim.name if isinstance(dim, Symbol) else f"{name}_{axis}"


def _intervals(
    rule: Dispatcher, shapes: Mapping[str, Shape], name: str, axis: int
) -> list[Interval]:
    # The rule sees one dynamic axis: `exact_dispatcher` must not trip over its unbounded neighbour.
    alone = tuple(d if i == axis else bounds(d)[0] for i, d in enumerate(shapes[name]))
    cuts = rule({name: alone})
    if isinstance(cuts, list):
        raise DispatchError(f"per_symbol takes dispatchers that give intervals, got {cuts[0]}")
    return cuts[name][axis]
