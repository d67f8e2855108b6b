"""The samples that an op's `example` holds: a small grammar, read into things to draw from.

    example  = sample (";" sample)*
    sample   = argument ("," argument)* ["{" name "=" python, ... "}"]
    argument = dtype "[" dims "]" [ "in [" low "," high ")" | "=" elements ]

A dim is an integer or an expression over names of one capital letter; names are extents, drawn
anew each time. Elements, bounds and attributes are Python over these names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from types import CodeType
from typing import Any

import numpy as np

from bucketize.op import Array, Op
from bucketize.types import Dim, Symbol

Names = Mapping[str, Any]

ARGUMENT = re.compile(r"(\w+)\[([^]]*)\](?: in \[([^)]*)\))?(?: = (.+))?")
BETWEEN = re.compile(r", (?=\w+\[)")


@dataclass(frozen=True)
class Argument:
    """A tensor of a sample, as it is written."""

    dtype: np.dtype[Any]
    dims: tuple[str, ...]
    within: str
    given: str

    def shape(self, names: Names) -> tuple[Dim, ...]:
        return tuple(python(d, names) for d in self.dims)

    def elements(self, names: Names) -> tuple[Dim, ...]:
        value = python(self.given, names)
        return value if isinstance(value, tuple) else (value,)

    def draw(self, rng: np.random.Generator, names: Names) -> Array:
        shape: Any = self.shape(names)
        if self.given:
            return np.array(self.elements(names), self.dtype).reshape(shape)
        if self.dtype.kind == "b":
            return np.asarray(rng.random(shape) < 0.5)
        low, high = python(f"({self.within or '-9, 9'})", names)
        if self.dtype.kind in "iu":
            return np.asarray(rng.integers(low, high, shape, self.dtype))
        if self.within:
            return np.asarray(rng.uniform(low, high, shape), self.dtype)
        drawn = rng.normal(0, 2, shape)
        halves = np.floor(drawn) + 0.5  # where rounding has to decide
        return np.asarray(np.where(rng.random(shape) < 0.2, halves, drawn), self.dtype)


@dataclass(frozen=True)
class Sample:
    """An op with arguments and attributes."""

    op: Op
    args: tuple[Argument, ...]
    attributes: str
    number: int

    @cached_property
    def names(self) -> list[str]:
        texts = [self.attributes, *(t for a in self.args for t in (*a.dims, a.within, a.given))]
        return sorted(set(re.findall(r"\b[A-Z]\b", " ".join(texts))))

    def attrs(self, names: Names) -> dict[str, Any]:
        return self.op.complete(python(f"dict({self.attributes})", names))

    def draw(self, rng: np.random.Generator, names: Names) -> list[Array]:
        return [a.draw(rng, names) for a in self.args]

    def symbols(self) -> dict[str, Symbol]:
        return {n: Symbol(n) for n in self.names}

    def __str__(self) -> str:
        return f"{self.op.name}-{self.number}"


def python(text: str, names: Names) -> Any:
    """What an expression over the names says."""
    return eval(_compiled(text), {}, dict(names))


@cache
def _compiled(text: str) -> CodeType:
    return compile(text.strip(), "<example>", "eval")


def _argument(text: str) -> Argument:
    match = ARGUMENT.fullmatch(text)
    assert match, f"not an argument: {text!r}"
    dtype, dims, within, given = match.groups(default="")
    return Argument(np.dtype(dtype), tuple(filter(None, dims.split(", "))), within, given)


@cache
def samples(op: Op) -> list[Sample]:
    """All samples of an op."""
    return [parse(op, text.strip(), i) for i, text in enumerate(op.example.split(";"))]


def parse(op: Op, text: str, number: int) -> Sample:
    """One sample from its text."""
    head, _, attributes = text.rstrip("}").partition("{")
    args = tuple(map(_argument, filter(None, BETWEEN.split(head.strip()))))
    return Sample(op, args, attributes, number)
