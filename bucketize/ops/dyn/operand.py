"""How `dyn` operators read the operands that stand for attributes."""

from __future__ import annotations

from typing import Any, TypeAlias

from bucketize.errors import TypeRelError, UnknownRankError
from bucketize.op import Array, Attrs, Op
from bucketize.ops.rules import check_axes, text
from bucketize.types import ANY, AnyDim, Dim, Shape, TensorType, Type, product

Twin: TypeAlias = tuple[Op, Attrs] | None


def twin(op: Op, **attrs: Any) -> Twin:
    """The twin, unless an attribute would hold an extent that nothing is known of."""
    return None if any(map(is_unknown, attrs.values())) else (op, attrs)


def is_unknown(value: Any) -> bool:
    """Whether an attribute holds an extent that nothing is known of."""
    return any(map(is_unknown, value)) if isinstance(value, tuple) else isinstance(value, AnyDim)


def read(type_: TensorType) -> Shape:
    """The elements of an operand: the dims known of it, or as many unknown ones."""
    size = product(type_.shape)
    assert type_.value is not None or isinstance(size, int)
    return (ANY,) * size if type_.value is None else type_.value  # type: ignore[operator]


def integers(operand: Array) -> tuple[int, ...]:
    """The elements of an operand at run time."""
    return tuple(map(int, operand.reshape(-1)))


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
