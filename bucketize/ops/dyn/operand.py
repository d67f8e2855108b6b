"""Operators told by tensors what their static twins are told by attributes, and how these are read.

Front ends emit them. A shape rule reads the operand's elements: as dims where shape arithmetic can
be followed, as `?` where not, as integers at run time. Once all elements are known, `static` gives
the twin, to be applied to the arguments that are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeAlias

import numpy as np

from bucketize.errors import TypeRelError, UnknownRankError
from bucketize.op import Array, Attrs, Op, numbers_in, op
from bucketize.ops.rules import check_axes, text, unsafe
from bucketize.types import ANY, AnyDim, Dim, Shape, TensorType, Type, product

Twin: TypeAlias = tuple[Op, Attrs] | None


def twin(op: Op, **attrs: Any) -> Twin:
    """The twin, unless an attribute would hold an extent that nothing is known of."""
    return None if any(map(is_unknown, attrs.values())) else (op, attrs)


def dynamic(
    static: Op, /, *, reads: tuple[int, ...] = (1,), **facts: Any
) -> Callable[[Callable[..., Attrs | Shape]], Op]:
    """Declare the `dyn` operator whose twin is `static`; `facts` are other arguments of `op`.

    The decorated function gives the attributes of the twin, from the shapes of the arguments and
    the elements of those in `reads`. Where these do not tell them it gives the shape of the result,
    as far as that is known. Its `**attrs` are the attributes of `static` that no operand is named
    after.
    """

    def declare(attributes: Callable[..., Attrs | Shape]) -> Op:
        def kept(args: Sequence[Any]) -> list[Any]:
            return [a for i, a in enumerate(args) if i not in reads]

        def shape(*seen: Dim | Shape, **attrs: Any) -> Any:
            given = attributes(*seen, **attrs)
            if isinstance(given, tuple):
                return given
            return static.shape(*kept(seen), **static.complete(given))

        def dtype(*dtypes: np.dtype[Any], **attrs: Any) -> Any:
            return static.dtype(*kept(dtypes), **attrs)

        def static_twin(*types: TensorType, **attrs: Any) -> Twin:
            seen = [_seen(t) if i in reads else t.shape for i, t in enumerate(types)]
            given = attributes(*seen, **attrs)
            return None if isinstance(given, tuple) else twin(static, **given)

        @wraps(attributes)
        def compute(*args: Array, **attrs: Any) -> Any:
            seen = [numbers_in(a) if i in reads else a.shape for i, a in enumerate(args)]
            given: Any = attributes(*seen, **attrs)
            return static.compute(*kept(args), **given)

        compute.__signature__ = _signature(attributes, static)  # type: ignore[attr-defined]
        rules = {"shape": shape, "static": static_twin, "dtype": dtype, "padding": unsafe}
        name = attributes.__name__.replace("dyn_", "dyn.")
        return op(name=name, reads=reads, results=static.results, **{**rules, **facts})(compute)

    return declare


def _signature(attributes: Callable[..., Any], static: Op) -> Any:
    """The signature of an operator, with the twin's attributes in place of `**attrs`."""
    own = signature(attributes)
    params = {n.lstrip("_"): p for n, p in own.parameters.items()}
    if any(p.kind is Parameter.VAR_KEYWORD for p in params.values()):
        params.popitem()
        theirs = signature(static.compute).parameters
        params |= {n: theirs[n] for n in static.defaults if n not in params}
    return own.replace(parameters=[p.replace(name=n) for n, p in params.items()])


def _seen(type_: TensorType) -> Dim | Shape:
    """What a shape rule sees of an operand whose elements are known, or at least how many."""
    return read(type_) if type_.shape else read(type_)[0]


def is_unknown(value: Any) -> bool:
    """Whether an attribute holds an extent that nothing is known of."""
    return any(map(is_unknown, value)) if isinstance(value, tuple) else isinstance(value, AnyDim)


def read(type_: TensorType) -> Shape:
    """The elements of an operand: the dims known of it, or as many unknown ones."""
    size = product(type_.shape)
    assert type_.value is not None or isinstance(size, int)
    return (ANY,) * size if type_.value is None else type_.value  # type: ignore[operator]


def counted(what: str, operand: Dim | Shape) -> Shape:
    """The elements of an operand that tells the rank of the result by how many it has."""
    if not isinstance(operand, tuple):
        raise UnknownRankError(
            f"the rank of the result is unknown: how many numbers {what} has, only a run can tell"
        )
    return operand


def elements(what: str, operand: Type) -> Shape:
    """The elements of an operand whose count is known, as dims."""
    count = product(operand.shape)
    return operand.value or counted(what, (ANY,) * count if isinstance(count, int) else ANY)


def lone(what: str, operand: Dim | Shape) -> Dim:
    """The only element of an operand, which may be a scalar or a vector."""
    if not isinstance(operand, tuple):
        return operand
    if len(operand) != 1:
        raise TypeRelError(f"{what} is a vector of one number, got {text(operand)}")
    return operand[0]


def front_axes(rank: int, axes: Shape) -> Any:
    """Axes of a tensor of `rank` counted from the front; what is no number yet is unknown."""
    for a in axes:
        if isinstance(a, int) and not -rank <= a < rank:
            raise TypeRelError(f"axis {a} is out of range for rank {rank}")
    if len(axes) > rank:
        raise TypeRelError(f"{len(axes)} axes of rank {rank}")
    front = tuple(a % rank if isinstance(a, int) else ANY for a in axes)
    check_axes(rank, *(a for a in front if isinstance(a, int)))
    return front
