"""The dispatcher that cuts each dynamic axis by a rule of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeAlias

from bucketize.errors import ArgumentError, DispatchError, did_you_mean
from bucketize.types import AnyDim, Dim, Interval, Profile, Shape, Symbol, bounds

Intervals: TypeAlias = dict[str, dict[int, list[Interval]]]
Answer: TypeAlias = Intervals | list[Profile] | list[dict[str, Interval]]
Dispatcher: TypeAlias = Callable[[Mapping[str, Shape]], Answer]


MOST = 1 << 20  # buckets of an axis that a rule makes: half a second, and 140 MB


class RuleDispatcher:
    """A dispatcher made of one rule, whose keyword-only parameters are its options.

    Args:
        rule: the rule.
        **options: of the rule.

    Raises:
        DispatchError: the rule has no such option.

    """

    def __init__(self, rule: Callable[..., Any], **options: Any) -> None:
        functools.update_wrapper(self, rule)  # type: ignore[arg-type]  # each kind can be called
        check_options(rule, options)
        self.rule, self.options = rule, options

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"<dispatcher {self.rule.__name__}({options})>"

    def with_options(self, **options: Any) -> Self:
        """A dispatcher of this rule with other options.

        Args:
            **options: those that are set; others stay.

        Returns:
            A new dispatcher.

        Raises:
            DispatchError: the rule has no such option.

        """
        return type(self)(self.rule, **self.options | options)


class AxisDispatcher(RuleDispatcher):
    """A dispatcher made of one rule. The intervals cover each dynamic axis without a gap.

    Of an axis without an upper bound size 0 is left to the fallback clone, unless 0 is a cut.

    Args:
        rule: `rule(lo, hi, **options)` lists where new buckets begin. `lo` and `hi` are the
            inclusive bounds of the axis; `hi` is None where there is none. Cuts outside the bounds,
            and repeated ones, do no harm.
        **options: keyword-only parameters of the rule.

    Raises:
        DispatchError: the rule has no such option.

    """

    def __call__(self, shapes: Mapping[str, Shape] | None = None, **options: Any) -> Intervals:
        """Cut the dynamic axes of the inputs: what `dispatch` calls.

        Args:
            shapes: of the inputs, by name.
            **options: none: they are set by `with_options`.

        Returns:
            Half-open intervals by input and axis.

        Raises:
            ArgumentError: options, or no shapes.
            DispatchError: the rule cannot use its options on an axis.

        """
        if options or not isinstance(shapes, Mapping):
            raise self._misused(options)
        cut = {name: self._cut_axes(name, shape) for name, shape in shapes.items()}
        return {name: axes for name, axes in cut.items() if axes}

    def _misused(self, options: Mapping[str, Any]) -> ArgumentError:
        name = self.rule.__name__
        shown = ", ".join(f"{n}={v!r}" for n, v in options.items()) or "..."
        how = f"pass it as it is, or with options set: {name}.with_options({shown})"
        return ArgumentError(f"{name} is a dispatcher, not a function that makes one: {how}")

    def _cut_axes(self, name: str, shape: Shape) -> dict[int, list[Interval]]:
        return {i: self._cut(f"{name}[{i}]", dim) for i, dim in enumerate(shape) if is_free(dim)}

    def _cut(self, axis: str, dim: Dim) -> list[Interval]:
        lo, hi = bounds(dim)
        first = max(lo, 1) if hi is None else lo
        try:
            cuts = list(self._cuts(first, hi))
            return partition(cuts, lo if lo in cuts else first, hi)
        except DispatchError as e:
            e.add_note(
                f"while {self.rule.__name__} cuts axis {axis}, {dim} in [{lo}, {hi or 'inf'}]"
            )
            raise

    def _cuts(self, lo: int, hi: int | None) -> Iterable[int]:
        try:
            cuts: Iterable[int] = self.rule(lo, hi, **self.options)
        except TypeError as e:  # its text is about the rule's code, not about the options
            raise self._unusable("") from e
        except (ValueError, ArithmeticError) as e:
            raise self._unusable(f": {e}") from e
        return cuts

    def _unusable(self, why: str) -> DispatchError:
        name, kinds = self.rule.__name__, _options_of(self.rule).items()
        given = ", ".join(f"{n}={v!r}" for n, v in self.options.items()) or "its defaults"
        takes = ", ".join(f"{n}: {kind}" for n, kind in kinds) or "no options"
        return DispatchError(f"{name} cannot use {given}{why}; it takes {takes}")


def check_options(rule: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise `DispatchError` if the rule has no such options."""
    able = _options_of(rule)
    if unknown := sorted(options.keys() - able.keys()):
        guess = did_you_mean(unknown[0], able)
        names = ", ".join(able)
        raise DispatchError(f"{rule.__name__} has no option {unknown[0]!r}; it has: {names}{guess}")


def _options_of(rule: Callable[..., Any]) -> dict[str, str]:
    """The options of a rule, and how each is annotated."""
    parameters = inspect.signature(rule).parameters.values()
    return {
        p.name: inspect.formatannotation(p.annotation).strip("'")
        for p in parameters
        if p.kind is p.KEYWORD_ONLY
    }


def is_free(dim: Dim) -> bool:
    """Whether an axis is decided by its own size; an expression follows from its symbols."""
    return isinstance(dim, AnyDim | Symbol)


def partition(cuts: Iterable[int], lo: int, hi: int | None) -> list[Interval]:
    """The half-open intervals between the cuts that fall inside the inclusive bounds."""
    begins = sorted({lo, *(c for c in cuts if lo < c and (hi is None or c <= hi))})
    return list(zip(begins, [*begins[1:], None if hi is None else hi + 1], strict=True))


def demand(holds: bool, rule: str, got: object) -> None:
    """Raise the error of an option that breaks `rule`."""
    if not holds:
        raise DispatchError(f"{rule}, got {got!r}")
