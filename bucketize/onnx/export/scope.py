"""Where exported nodes are written: a scope for each block, in one frame for each function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from onnx import NodeProto, TensorProto, helper, numpy_helper

from bucketize.ir import Atom, Const, Var
from bucketize.onnx.kind import type_name
from bucketize.onnx.node import Unsupported
from bucketize.onnx.standard import dtypes_of
from bucketize.op import MAX_VALUE
from bucketize.types import Symbol, TensorType, Type, UnrankedType
from bucketize.types.number import DType

OPSET = 24  # the newest that every onnx package has which this project allows

Key: TypeAlias = Hashable
"""What a name stands for: an atom by identity, a dim, or the content of a small constant."""


@dataclass
class Frame:
    """The main graph or a function: what its scopes share.

    The constants of the main graph are its initializers, which its blocks see. A function sees
    nothing around it: small constants are nodes of its own, and it takes the others, `captured`,
    as inputs behind its parameters.
    """

    params: tuple[Var, ...]
    initializers: list[TensorProto] | None
    derived: dict[tuple[Const, str], Const]
    """Constants made of others and how, shared by all frames."""
    captured: dict[Const, str] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)
    """The types of the values that are atoms."""
    taken: set[str] = field(default_factory=set)
    titles: Counter[str] = field(default_factory=Counter)
    """The titles of the nodes, how often each was given."""
    numbers: Iterator[int] = field(default_factory=count)

    def name(self, hint: str) -> str:
        """A name that no other value of the frame has."""
        name = f"{hint}_{next(self.numbers)}"
        while name in self.taken:
            name = f"{hint}_{next(self.numbers)}"
        self.taken.add(name)
        return name

    def place(self, symbol: Symbol) -> tuple[Var, int]:
        """A parameter and its axis whose extent is the symbol."""
        for param in self.params:
            for axis, dim in enumerate(param.type.axes):
                if isinstance(dim, Symbol) and dim.name == symbol.name:
                    return param, axis
        raise Unsupported(f"no parameter has the extent {symbol}, by which it computes")


@dataclass
class ExportScope:
    """The nodes of a block so far; a nested one sees the names of the outer."""

    frame: Frame
    outer: ExportScope | None = None
    nodes: list[NodeProto] = field(default_factory=list)
    names: dict[Key, str] = field(default_factory=dict)
    title: str = ""
    """The name of the nodes that are written next, if they have one."""

    def find(self, key: Key) -> str | None:
        """The name of what is here already, or around."""
        scope: ExportScope | None = self
        while scope is not None:
            if key in scope.names:
                return scope.names[key]
            scope = scope.outer
        return None

    def once(self, key: Key, make: Callable[[], str]) -> str:
        """The name of what is here already, or around, or else is made."""
        name = self.find(key)
        if name is None:
            name = self.names[key] = make()
        return name

    def bind(self, atom: Atom, name: str) -> None:
        """Say that a value is this atom."""
        self.names[atom] = name
        self.frame.types[name] = atom.type

    def value(self, atom: Atom) -> str:
        """The name of an atom: one that was made, or a constant."""
        name = self.find(atom)
        if name is not None:
            return name
        assert isinstance(atom, Const), f"{atom} is not bound"
        return self.constant(atom)

    def constant(self, const: Const) -> str:
        """The name of a constant: of small ones those of one content are one."""
        array = const.value
        small = array.size <= MAX_VALUE
        key = (array.dtype.name, array.shape, array.tobytes()) if small else const
        name = self.find(key)
        return name or self._held(const, key, small)

    def _held(self, const: Const, key: Key, small: bool) -> str:
        frame, name = self.frame, self.frame.name("constant")
        if frame.initializers is not None:
            frame.initializers.append(numpy_helper.from_array(const.value, name))
        elif small:
            tensor = numpy_helper.from_array(const.value)
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            frame.captured[const] = name
        frame.types[name] = const.type
        local = small and frame.initializers is None  # a node, of this block and those inside
        (self if local else self.root).names[key] = name
        return name

    @property
    def depth(self) -> int:
        """The number of blocks around it."""
        return 0 if self.outer is None else self.outer.depth + 1

    @property
    def root(self) -> ExportScope:
        """The scope of the frame itself."""
        return self if self.outer is None else self.outer.root

    def node(
        self, op_type: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any
    ) -> tuple[str, ...]:
        """Append a node; the names of its results. Raises Unsupported if ONNX takes no such."""
        if not domain:
            self._check(op_type, inputs)
        outs = tuple(self.frame.name(op_type) for _ in range(outputs))
        node = helper.make_node(op_type, inputs, outs, domain=domain, name=self._title(), **attrs)
        self.nodes.append(node)
        return outs

    def _title(self) -> str:
        """The name of a node; the second of one title and those after it are numbered."""
        if not self.title:
            return ""
        self.frame.titles[self.title] += 1
        number = self.frame.titles[self.title]
        return self.title if number == 1 else f"{self.title} ({number})"

    def _check(self, op_type: str, inputs: tuple[str, ...]) -> None:
        """Raise Unsupported if the standard does not allow the dtype of an operand."""
        formal = dtypes_of(op_type, OPSET)
        for i, name in enumerate(inputs):
            type_ = self.frame.types.get(name)
            if type_ is not None and type_name(type_) not in formal[min(i, len(formal) - 1)]:
                shown = type_.dtype if isinstance(type_, TensorType | UnrankedType) else type_
                raise Unsupported(f"ONNX {op_type} takes no {shown} there")


def known(dtype: DType) -> bool:
    """Whether ONNX has such tensors in the opset that is written."""
    return type_name(UnrankedType(dtype)) in dtypes_of("Cast", OPSET)[0]
