"""What a converter sees of an ONNX node, and the table of converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from onnx import helper

from bucketize.ir import Atom, Builder, Const, Var
from bucketize.op import MAX_VALUE, Op
from bucketize.ops.dyn.operand import is_unknown
from bucketize.ops.dyn.shape import dyn_reshape, dyn_with_rank
from bucketize.ops.elementwise.activation import clip
from bucketize.ops.elementwise.arithmetic import cast as cast_op
from bucketize.ops.rules import limits
from bucketize.ops.shape import concat, reshape, shape_of, strided_slice, transpose
from bucketize.types import Dim, Shape, meet
from bucketize.types.number import WIDER, DType, greatest_float, kind_of


class Lost(Exception):  # noqa: N818 - nothing new: what a node reads was a finding already
    """What a node's graph makes is not known, as nodes in it cannot be converted."""


class Unsupported(Exception):  # noqa: N818 - a finding; all of them make one UnsupportedModelError
    """Why a node cannot be converted."""


class Untold(Unsupported):
    """What only a run can tell: it may convert the node (`postponed`)."""


class Unread(Unsupported):
    """Something of a node that its converter does not read; the standard's function may do."""


@dataclass(frozen=True)
class Scaled:
    """Integers that stand for (number - zero point) * scale: one for all, or each of an axis."""

    numbers: Atom
    scale: Atom
    zero: Atom | None
    axis: int


@dataclass(frozen=True)
class Node:
    """An ONNX node: operands as atoms (None where left out), attributes, and where to emit.

    Reading an attribute removes it: what is left after the conversion was not understood.
    """

    inputs: tuple[Atom | None, ...]
    attrs: dict[str, Any]
    outputs: int
    builder: Builder
    precision: str
    """The precision of convolutions."""
    weights: str = "float32"
    """The format of the matrices that products know."""
    rank: int | None = None
    """The rank of the first output, if the model declares it."""
    named: int = 1
    """How many of the outputs have a name; one without is left out."""
    scaled: dict[Atom, Scaled] = field(default_factory=dict)
    """What DequantizeLinear made floats of, so far in the model."""
    turned: dict[tuple[Const, tuple[int, ...]], Const] = field(default_factory=dict)
    """Constants whose axes are in another order, so far in the model: one for all that read it."""

    def __getitem__(self, index: int) -> Atom:
        """An operand that must be there."""
        atom = self.optional(index)
        if atom is None:
            raise Unsupported(f"input {index} is left out")
        return atom

    def optional(self, index: int) -> Atom | None:
        """An operand, or None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def operands(self) -> tuple[Atom, ...]:
        """All operands, of a node where none may be left out."""
        return tuple(self[i] for i in range(len(self.inputs)))

    def vector(self, index: int, count: int | None = None) -> Atom:
        """An operand that must be a vector, if it is known of how many elements.

        Where only `count` tells, a run checks how many there are.
        """
        atom = self[index]
        if not atom.type.shape:  # a number, where the standard asks for a vector of one
            return scalar_as_vector(self.builder, atom)
        if len(atom.type.shape) != 1:
            raise Unsupported(f"input {index} is {atom.type}, expected a vector")
        if isinstance(atom.type.shape[0], int) or count is None:
            return atom
        return self.emit(reshape, atom, newshape=(count,))

    @property
    def added(self) -> int | None:
        """How many axes more than the first operand the first output has, if both are known."""
        if self.rank is None or not self[0].type.is_tensor:
            return None
        return self.rank - len(self[0].type.shape)

    @property
    def removed(self) -> int | None:
        """How many axes fewer."""
        return None if self.added is None else -self.added

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute: int, float, str, array, function, graph, or a tuple of them."""
        return self.attrs.pop(name, default)

    def choice(self, name: str, *words: str) -> str:
        """An attribute that is one of `words`, the first of them unless it is given."""
        value: str = self.attr(name, words[0])
        if value not in words:
            raise Unsupported(f"{name} is {value!r}, known: {', '.join(words)}")
        return value

    def axis(self, name: str, default: int) -> int:
        """An attribute that is an axis of the first operand, counted from the front."""
        return self.front((self.attr(name, default),))[0]

    def front(self, axes: Shape, rank: int | None = None) -> tuple[int, ...]:
        """Axes counted from the front; the rank is that of the first operand unless given."""
        unranked = rank is None and not self[0].type.is_tensor
        if unranked and all(isinstance(a, int) and a >= 0 for a in axes):
            return tuple(map(int, axes))  # type: ignore[arg-type]  # a run tells whether they exist
        rank = len(self[0].type.shape) if rank is None else rank
        for axis in axes:
            if not isinstance(axis, int) or not -rank <= axis < rank:
                raise Unsupported(f"axis {axis} is out of range for rank {rank}")
        return tuple(int(a) % rank for a in axes)  # type: ignore[arg-type]

    def number(self, index: int, what: str) -> float | None:
        """The only element of an operand that must be constant; None if left out."""
        atom = self.optional(index)
        if atom is None:
            return None
        if not isinstance(atom, Const) or atom.value.size != 1:
            raise Untold(f"{what} known only at run time")
        return short(atom.value.reshape(-1)[0])

    def emit(self, op: Op, *args: Atom, **attrs: Any) -> Var:
        """Bind `op(*args)` to a new variable; Untold where an attribute is not known."""
        for name, value in attrs.items():
            if is_unknown(value):
                raise Untold(f"{name} of {op.name} would be {value}, which only a run can tell")
        return self.builder.emit(op, *args, **attrs)

    def emit_dynamic(self, op: Op, *args: Atom, **attrs: Any) -> Var:
        """Bind a `dyn` op, or its static twin where the operands that it reads are constant."""
        (out,) = self.emit_dynamic_all(op, *args, **attrs)
        return out

    def emit_dynamic_all(self, op: Op, *args: Atom, **attrs: Any) -> tuple[Var, ...]:
        """Bind a `dyn` op of several results, or its static twin where it reads constants."""
        read = [a for i, a in enumerate(args) if i in op.reads]
        ranked = all(a.type.is_tensor for a in args)
        if ranked and op.static is not None and all(isinstance(a, Const) for a in read):
            twin = op.static(*(a.type for a in args), **op.complete(attrs))
            if twin is not None:
                static, static_attrs = twin
                kept = [a for i, a in enumerate(args) if i not in op.reads]
                return self.builder.emit_all(static, *kept, **static_attrs)
        return self.builder.emit_all(op, *args, **attrs)

    def like(self, x: Atom, value: float) -> Const:
        """A scalar constant of the dtype of `x`, which has to hold it."""
        if not holds(x.type.dtype, value):
            raise Unsupported(f"{value} is no {x.type.dtype}")
        return Const(np.asarray(value, x.type.dtype))


def holds(dtype: DType, *values: float) -> bool:
    """Whether numbers are some of a dtype: of floats all are, rounded."""
    if kind_of(dtype) == "f":
        return True
    least, most = limits(dtype)
    return all(least <= v <= most and v == int(v) for v in values)


def transposed(n: Node, x: Atom, axes: tuple[int, ...]) -> Atom:
    """`x` with its axes in this order; of a constant at once, for it is a view of its memory."""
    if not isinstance(x, Const) or sorted(axes) != list(range(x.value.ndim)):
        return n.emit(transpose, x, axes=axes)
    return n.turned.setdefault((x, axes), Const(x.value.transpose(axes)))


def scalar_as_vector(out: Builder, x: Atom) -> Atom:
    """A vector of one element."""
    if isinstance(x, Const):
        return Const(x.value.reshape(1))
    return out.emit(reshape, x, newshape=(1,))


def ranked(out: Builder, x: Atom, rank: int) -> Var:
    """`x` as a tensor of so many axes, which a run checks; nothing is known of their extents."""
    return out.emit(dyn_with_rank, x, rank=rank)


def fitted(n: Node, x: Atom, axis: int, other: Atom | int, along: int = 0) -> Atom:
    """`x` with the extent along an axis that another has: what types do not tell, a run checks."""
    dims = x.type.shape
    if axis >= len(dims):
        raise Unsupported(f"{x.type} has no axis {axis}")
    extent = other if isinstance(other, int) else other.type.shape[along]
    whole = (*dims[:axis], extent, *dims[axis + 1 :])
    same = meet(extent, dims[axis]) == dims[axis] == extent and not is_unknown(extent)
    if same or (x is other and axis == along):
        return x
    if not is_unknown(whole):
        return n.emit(reshape, x, newshape=whole)
    own = n.emit(shape_of, x)
    count = (
        vector(other)
        if isinstance(other, int)
        else cut(n, n.emit(shape_of, other), 0, along, along + 1)
    )
    parts = (cut(n, own, 0, 0, axis), count, cut(n, own, 0, axis + 1, len(dims)))
    return n.emit(dyn_reshape, x, n.emit(concat, *parts, axis=0), allow_zero=True)


def cut(out: Node | Builder, x: Atom, axis: int, begin: Dim, end: Dim, step: int = 1) -> Var:
    """`x` from `begin` to `end` along an axis."""
    ends = {"begin": (begin,), "end": (end,), "strides": (step,)}
    return out.emit(strided_slice, x, **ends, axes=(axis,))


def vector(*elements: int) -> Const:
    """A constant operand of integers."""
    return Const(np.array(elements, np.int64))


def cast(n: Node, x: Atom, dtype: str) -> Atom:
    """`x` in a dtype, itself if it has that; of a short constant, as shapes are, at once."""
    if x.type.dtype == dtype:
        return x
    if isinstance(x, Const) and x.value.size <= MAX_VALUE:
        return Const(*cast_op.run(x.value, dtype=dtype))
    return n.emit(cast_op, x, dtype=dtype)


def wide(n: Node, x: Atom) -> Atom:
    """Floats of 16 bits as float32, of which squares, powers and sums are not cut."""
    return cast(n, x, WIDER.get(x.type.dtype, x.type.dtype).name)


def saturated(n: Node, x: Atom, dtype: np.dtype[Any]) -> Atom:
    """Floats in a shorter dtype, those beyond its greatest number as that; NaN stays."""
    floats = x if kind_of(x.type.dtype) == "f" else cast(n, x, "float32")
    most = min(greatest_float(dtype), greatest_float(floats.type.dtype))
    return cast(n, n.emit(clip, floats, lo=-most, hi=most), dtype.name)


def native_dtype(data_type: int) -> np.dtype[Any]:
    """The dtype of an ONNX data type, which must be one of numbers that are real."""
    try:
        dtype = helper.tensor_dtype_to_np_dtype(data_type)
        name = helper.tensor_dtype_to_string(data_type)
    except KeyError:
        raise Unsupported(f"the data type {data_type} is not supported") from None
    if kind_of(dtype) not in "biuf":
        raise Unsupported(f"the data type {name.removeprefix('TensorProto.')} is not supported")
    return dtype


def short(value: np.generic) -> float:
    """A number with the fewest digits that round to it: a float32 of 1e-05 is not 9.99...e-06."""
    return float(str(value)) if kind_of(value.dtype) == "f" else int(value)


Graph: TypeAlias = Callable[[Builder, Sequence[Atom]], tuple[Atom, ...]]
"""A graph with inputs: emits its nodes on them, and gives its outputs; or raises Lost."""

Result: TypeAlias = Atom | tuple[Atom | None, ...]
"""What a converter makes: None for a result that it does not read."""
Converter: TypeAlias = Callable[[Node], Result]

NEWEST = 1 << 31  # beyond all opsets
MICROSOFT = "com.microsoft"  # the domain of onnxruntime's own operators

CONVERTERS: dict[tuple[str, str], dict[int, Converter]] = {}
"""(domain, op type) -> opset since which the converter holds -> converter."""


def converts(op_type: str, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Declare the converter of an operator from an opset on, until a later one is declared."""

    def declare(converter: Converter) -> Converter:
        versions = CONVERTERS.setdefault((domain, op_type), {})
        assert since not in versions, f"{op_type} since {since} is declared twice"
        versions[since] = converter
        return converter

    return declare


DIRECT: dict[Op, tuple[str, tuple[str, ...], int | None]] = {}
"""Ops that are ONNX operators: of which type and attributes, and the place of an int64 operand."""


def converts_directly(
    op_type: str, op: Op, since: int = 1, *, int64: int | None = None, **attrs: Any
) -> None:
    """Declare that an ONNX operator is `op` of the same operands.

    `attrs` are attributes and their defaults; truth values are integers there. `int64` is the place
    of an operand that may have another dtype here, but not in ONNX. What the package itself
    declares is a rule of `onnx.export`, too: one that comes later needs one of its own.
    """
    DIRECT[op] = op_type, tuple(attrs), int64

    @converts(op_type, since)
    def _convert(n: Node) -> Result:
        given = {name: type(usual)(n.attr(name, usual)) for name, usual in attrs.items()}
        if "axis" in given:
            (given["axis"],) = n.front((given["axis"],))
        return n.emit(op, *n.operands, **given)


def check_read(attrs: Mapping[str, Any]) -> None:
    """Raise Unread for attributes that no converter has taken."""
    if attrs:
        raise Unread(f"the attribute {', '.join(attrs)} is not supported")


def standard_all(
    n: Node, op_type: str, outputs: int, *inputs: Atom | None, opset: int = NEWEST, **attrs: Any
) -> tuple[Atom | None, ...]:
    """What an operator of the standard makes of operands, in the place of a node."""
    convert = converter_of("", op_type, opset)
    assert convert is not None, op_type
    inside = replace(n, inputs=inputs, attrs=attrs, outputs=outputs, named=outputs, rank=None)
    results = convert(inside)
    check_read(attrs)
    return results if isinstance(results, tuple) else (results,)


def standard(n: Node, op_type: str, *inputs: Atom | None, **attrs: Any) -> Atom:
    """The first result of the same."""
    first = standard_all(n, op_type, 1, *inputs, **attrs)[0]
    assert first is not None
    return first


def converter_of(domain: str, op_type: str, opset: int) -> Converter | None:
    """The converter with the greatest `since` that the opset has reached, if there is one."""
    versions = CONVERTERS.get((domain, op_type), {})
    reached = [v for v in versions if v <= opset]
    return versions[max(reached)] if reached else None
