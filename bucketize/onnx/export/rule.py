"""What an export rule sees of a binding, and the table of rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bucketize.ir import Atom, Binding, Const
from bucketize.onnx.export.extent import extent_of, extents, scalar, scalar_extent
from bucketize.onnx.export.scope import ExportScope
from bucketize.onnx.kind import data_type
from bucketize.op import Op
from bucketize.types import Dim, Shape, Type


@dataclass(frozen=True)
class ExportSite:
    """A binding on its way to ONNX: operands by name, attributes, and where to write nodes."""

    scope: ExportScope
    binding: Binding

    def __getitem__(self, index: int) -> str:
        """The name of an operand."""
        return self.scope.value(self.binding.args[index])

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of all operands."""
        return tuple(map(self.scope.value, self.args))

    @property
    def args(self) -> tuple[Atom, ...]:
        """The operands as they are in the IR."""
        return self.binding.args

    def type(self, index: int) -> Type:
        """The type of an operand."""
        return self.binding.args[index].type

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the first operand."""
        return self.type(0).dtype

    def attr(self, name: str) -> Any:
        """An attribute; all of them are there."""
        return self.binding.attrs[name]

    def attrs(self, *names: str) -> dict[str, Any]:
        """Attributes that ONNX calls by the same names."""
        return {name: self.attr(name) for name in names}

    def node(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """Append a node of one result, and give its name."""
        (name,) = self.scope.node(op_type, *inputs, **attrs)
        return name

    def nodes(self, op_type: str, *inputs: str, outputs: int, **attrs: Any) -> tuple[str, ...]:
        """Append a node of several results, and give their names."""
        return self.scope.node(op_type, *inputs, outputs=outputs, **attrs)

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of a constant, of the dtype of the first operand unless one is given."""
        return self.scope.constant(Const(np.asarray(value, self.dtype if dtype is None else dtype)))

    def integers(self, *values: int) -> str:
        """The name of a vector of integers that are known."""
        return self.constant(values, np.int64)

    def extents(self, shape: Shape) -> str:
        """The name of a vector of dims."""
        return extents(self.scope, shape)

    def extent(self, dim: Dim) -> str:
        """The name of a dim as a scalar."""
        return scalar_extent(self.scope, dim)

    def extent_of(self, name: str, axis: int) -> str:
        """The extent of an axis of a value, as a scalar."""
        return scalar(self.scope, extent_of(self.scope, name, axis))

    def int64(self, index: int) -> str:
        """An operand of integers, in the dtype that ONNX wants of them."""
        return self[index] if self.type(index).dtype == np.int64 else self.cast(self[index], "i8")

    def vector(self, name: str, index: int) -> str:
        """A vector of dims that an attribute is, or that the `dyn` twin reads of an operand."""
        attrs = self.binding.attrs
        return self.extents(attrs[name]) if name in attrs else self.int64(index)

    def cast(self, name: str, dtype: Any) -> str:
        """A value in another dtype."""
        return self.node("Cast", name, to=data_type(dtype))


Result: TypeAlias = str | tuple[str, ...]
Rule: TypeAlias = Callable[[ExportSite], Result]

RULES: dict[Op, Rule] = {}
"""How each operator of the table leaves; `Unsupported` says why a binding of it cannot."""


def exports(*ops: Op) -> Callable[[Rule], Rule]:
    """Declare the rule of some operators."""

    def declare(rule: Rule) -> Rule:
        for op in ops:
            assert op not in RULES, f"{op.name} is declared twice"
            RULES[op] = rule
        return rule

    return declare


def exports_directly(op: Op, op_type: str, *names: str, int64: int | None = None) -> None:
    """Declare that an operator is an ONNX operator of the same operands and attributes.

    `int64` is the place of an operand that may have another dtype here, but not in ONNX. Whatever
    converters declare by `converts_directly` leaves so, too, unless it has a rule.
    """

    @exports(op)
    def _rule(s: ExportSite) -> str:
        operands = (s.int64(i) if i == int64 else s[i] for i in range(len(s.args)))
        return s.node(op_type, *operands, **s.attrs(*names))
