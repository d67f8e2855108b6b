"""The lower half of the text form's grammar: tokens, dims, types and attribute values.

Values are written as in Python, dims as expressions over symbols; `#` begins a comment.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from bucketize.errors import ParseError, TypeRelError
from bucketize.types import (
    ANY,
    FUNCTIONS,
    Dim,
    OptionalType,
    SequenceType,
    Shape,
    Symbol,
    Symbolic,
    TensorType,
    Type,
    UnrankedType,
)
from bucketize.types.number import LACKING, SHORT

T = TypeVar("T")

DTYPES = {d.name: d for d in (*map(np.dtype, "?bBhHiIqQefdFD"), *SHORT) if not d.names}
WORDS = {"True": True, "False": False, "None": None, "inf": math.inf, "nan": math.nan}
CALLS = {n: f.value for n, f in FUNCTIONS.items() if not f.sign}
RESERVED = frozenset((*DTYPES, *WORDS, *CALLS, "const", "where", "in"))
"""Names that no symbol can have."""

KINDS = ("sequence", "optional")  # no names of types but in front of parentheses
TYPES = "types"  # the attribute of ops whose types are not inferred, written behind the colon
PLAIN_NAME = r"[^\W\d][\w.]*"
PLAIN_FUNCTION = r"[\w.]+(?:\[[^][\n]*\])?"
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""(?:\s|\#[^\n]*)*+(?: (?P<variable>%(?:\d+|{PLAIN_NAME}|{_STRING}))
    | (?P<function>@(?:{PLAIN_FUNCTION}|{_STRING}))
    | (?P<number>\d+(?:\.(?!\.)\d*)?(?:e[-+]?\d+)?)
    | (?P<name>{PLAIN_NAME})
    | (?P<string>'(?:[^'\\\n]|\\.)*'|{_STRING})
    | (?P<mark>->|//|>=|\.\.\.|\.\.|[-+*%(){{}}\[\],:=?])
    | (?P<end>\Z)
    | (?P<other>.))""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A piece of the text, and where it begins."""

    kind: str
    text: str
    start: int


def quoted(sigil: str, plain: str, name: str) -> str:
    """`name` behind its sigil, in quotes unless it has the `plain` form."""
    return sigil + (name if re.fullmatch(plain, name) else json.dumps(name))


def word(name: str) -> str:
    """`name`, in quotes unless it reads as a word of its own."""
    return json.dumps(name) if name in RESERVED else quoted("", PLAIN_NAME, name)


def unquoted(token: str) -> str:
    """The name that `quoted` made `token` of."""
    return str(json.loads(token[1:])) if token[1:2] == '"' else token[1:]


def joined(items: Iterable[object], lead: str = "") -> str:
    """The items with commas between, behind `lead` if there are any."""
    text = ", ".join(map(str, items))
    return lead + text if text else ""


def parse_type(text: str, bounds: Mapping[str, Symbol] | None = None) -> Type:
    """The type that `text` shows, its symbols taken from `bounds` where they are there."""
    reader = Reader(text)
    reader.bounds = dict(bounds or {})
    type_ = reader.type()
    reader.kind("end")
    return type_


class Reader:
    """A place in the tokens of one text, and the bounds of the symbols that are in force there."""

    def __init__(self, text: str) -> None:
        """Begin at the first token."""
        self.text = text
        self.tokens = [
            Token(kind := str(match.lastgroup), match[kind], match.start(kind))
            for match in _TOKEN.finditer(text)
        ]
        self.at = 0
        self.bounds: dict[str, Symbol] = {}
        self._shapes: dict[Hashable, tuple[Shape, int]] = {}
        """What was read, by its tokens and the bounds, and how many tokens it has."""
        for other in (token for token in self.tokens if token.kind == "other"):
            self.fail(f"no token begins with {other.text!r}", other)

    # errors

    def place(self, token: Token) -> str:
        """The line and column of `token`, the line's text, and a caret under it."""
        before = self.text[: token.start]
        row, column = before.count("\n"), token.start - before.rfind("\n") - 1
        return f"line {row + 1}:{column + 1}\n{self.text.split(chr(10))[row]}\n{' ' * column}^"

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise, pointing at `token` or at where the reader is."""
        raise ParseError(f"{message}, {self.place(token or self.now)}")

    def _shown(self, token: Token) -> str:
        return "the end" if token.kind == "end" else repr(token.text)

    # tokens

    @property
    def now(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    def accept(self, *texts: str) -> str:
        """Take the next token if it is one of these marks or words; its text, or nothing."""
        token = self.tokens[self.at]
        if token.text not in texts or token.kind not in ("mark", "name"):
            return ""
        self.at += 1
        return token.text

    def expect(self, text: str) -> None:
        """Take this mark or word."""
        if not self.accept(text):
            self.fail(f"expected {text!r}, got {self._shown(self.now)}")

    def kind(self, kind: str) -> str:
        """Take a token of this kind."""
        if self.now.kind != kind:
            what = "the end" if kind == "end" else f"a {kind}"
            self.fail(f"expected {what}, got {self._shown(self.now)}")
        self.at += 1
        return self.tokens[self.at - 1].text

    def several(self, item: Callable[[], T]) -> list[T]:
        """One or more items, commas between."""
        items = [item()]
        while self.accept(","):
            items.append(item())
        return items

    def listed(self, item: Callable[[], T], end: str) -> list[T]:
        """Items, commas between, up to and with `end`."""
        if self.accept(end):
            return []
        items = self.several(item)
        self.expect(end)
        return items

    # types

    def type(self) -> Type:
        """A tensor: a dtype and, unless it is a scalar without brackets, its dims; or others."""
        if self.now.text in KINDS:
            return self._kind(self.kind("name"))
        if self.now.text in LACKING:
            self.fail(f"{self.now.text} is a dtype of ml_dtypes: pip install ml_dtypes")
        if self.now.text not in DTYPES:
            self.fail(f"expected a dtype, got {self._shown(self.now)}; known: {', '.join(DTYPES)}")
        dtype = DTYPES[self.kind("name")]
        if not self.accept("["):
            return TensorType(dtype, ())
        if self.accept("..."):
            self.expect("]")
            return UnrankedType(dtype)
        return TensorType(dtype, self._shape())

    def _shape(self) -> Shape:
        """Dims up to a bracket; a text has most of them many times."""
        first = self.at
        within = takewhile(lambda token: token.text != "]", islice(self.tokens, first, None))
        key = *(token.text for token in within), *self.bounds.values()
        if key not in self._shapes:
            shape = tuple(self.listed(self.dim, "]"))
            self._shapes[key] = shape, self.at - first
        shape, count = self._shapes[key]
        self.at = first + count
        return shape

    def _kind(self, name: str) -> Type:
        """`sequence(float32[3], 2)`, of which the count may be left out, or `optional(...)`."""
        self.expect("(")
        element = self.type()
        count = self.dim() if name == "sequence" and self.accept(",") else ANY
        self.expect(")")
        return SequenceType(element, count) if name == "sequence" else OptionalType(element)

    def dim(self) -> Dim:
        """An extent."""
        return self._dims(self.now, self.value())[0]

    def integer(self) -> int:
        """An integer."""
        at, value = self.now, self.dim()
        if not isinstance(value, int):
            self.fail(f"expected an integer, got {value}", at)
        return value

    def where(self) -> dict[str, Symbol]:
        """The symbols of a `where` clause, or none."""
        return {s.name: s for s in self.several(self.bound)} if self.accept("where") else {}

    def bound(self) -> Symbol:
        """A symbol and its bounds: `N >= 4` or `N in [1, 32]`; `by 8`: it is a multiple."""
        name, hi = self.kind("name"), None
        if self.accept(">="):
            lo = self.integer()
        else:
            self.expect("in")
            self.expect("[")
            lo = self.integer()
            self.expect(",")
            hi = self.integer()
            self.expect("]")
        return Symbol(name, lo, hi, self.integer() if self.accept("by") else 1)

    def word(self) -> str:
        """What `word` made a name or a string of."""
        if self.now.kind == "name":
            return self.kind("name")
        at = self.now
        try:
            return str(json.loads(self.kind("string")))
        except ValueError as e:
            self.fail(f"a string that is no JSON ({e})", at)

    def _dims(self, at: Token, *values: Any) -> Sequence[Dim]:
        for v in values:
            if type(v) is not int and not isinstance(v, Symbolic):
                self.fail(f"expected an extent, got {v!r}", at)
        return values

    # values

    def value(self) -> Any:
        """A dim, number, string, type, truth value, None, or a tuple of values."""
        return self._operators(("+", "-"), self._product)

    def _product(self) -> Any:
        return self._operators(("*", "//", "%"), self._unary)

    def _operators(self, marks: tuple[str, ...], operand: Callable[[], Any]) -> Any:
        left = operand()
        while mark := self.accept(*marks):
            at = self.now
            left, right = self._dims(at, left, operand())
            left = self._combined(mark, left, right, at)
        return left

    def _combined(self, mark: str, a: Dim, b: Dim, at: Token) -> Dim:
        try:
            return a - b if mark == "-" else FUNCTIONS[mark].value(a, b)
        except TypeRelError as e:
            self.fail(e.message, at)

    def _unary(self) -> Any:
        if not self.accept("-"):
            return self._primary()
        at, value = self.now, self._unary()
        return -value if type(value) is float else -self._dims(at, value)[0]

    def _primary(self) -> Any:
        kind, text = self.now.kind, self.now.text
        if text == "?":
            value: Any = ANY
        elif kind == "number":
            value = int(text) if text.isdigit() else float(text)
        elif kind == "string":
            value = ast.literal_eval(text)
        elif kind == "name":
            return self._named(text)
        elif text == "(":
            return self._parenthesised()
        else:
            self.fail(f"expected a value, got {self._shown(self.now)}")
        self.at += 1
        return value

    def _parenthesised(self) -> Any:
        self.expect("(")
        if self.accept(")"):
            return ()
        first = self.value()
        if self.accept(")"):
            return first
        self.expect(",")
        return (first, *self.listed(self.value, ")"))

    def _named(self, name: str) -> Any:
        if name in DTYPES or (name in KINDS and self.tokens[self.at + 1].text == "("):
            return self.type()
        at = self.now
        self.at += 1
        if name in CALLS:
            self.expect("(")
            a = self.value()
            self.expect(",")
            a, b = self._dims(at, a, self.value())
            self.expect(")")
            return CALLS[name](a, b)
        return WORDS[name] if name in WORDS else self.bounds.get(name, Symbol(name))
