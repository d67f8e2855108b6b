"""Docstrings stand by themselves; public ones say what a function takes, gives and raises.

They do in sections, as Google's style has them.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import bucketize
import dispatchers
from bucketize import errors

SECTION = re.compile(r"^(Args|Returns|Raises):\n(.*?)(?=^\S|\Z)", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(r"^    \**(\w+): \S", re.MULTILINE)
LEANING = re.compile(r"(Those|That|Of|The same|As|It|And|They|So many|Else|Their|Whose|What it)\b")
"""Beginnings that tell something only beside a neighbour, which no editor shows."""
ROOT = Path(__file__).parent.parent


def sections(doc: str) -> dict[str, str]:
    """The text of each section."""
    return dict(SECTION.findall(doc))


def entries(section: str) -> list[str]:
    """The names of a section."""
    return ENTRY.findall(section)


def public(owner: str, value: Any) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """The public functions of a public value, each with its name and its docstring."""
    if isinstance(value, ModuleType):
        for name in value.__all__:
            yield from public(f"{owner}.{name}", getattr(value, name))
    elif isinstance(value, dispatchers.AxisDispatcher):
        yield owner, inspect.getdoc(value.rule) or "", value.rule
    elif inspect.isclass(value) and value.__module__.startswith(("bucketize", "dispatchers")):
        for name, method in vars(value).items():
            function = getattr(method, "__func__", method)
            if isinstance(function, FunctionType) and is_declared(name, function):
                doc = function.__doc__ or (value.__doc__ if name == "__init__" else "")
                yield f"{owner}.{name}", inspect.cleandoc(doc or ""), function
    elif isinstance(value, FunctionType):
        yield owner, inspect.getdoc(value) or "", value


def is_declared(name: str, function: FunctionType) -> bool:
    """Whether a method is public; a constructor that `dataclass` writes is in its fields' text."""
    written = function.__code__.co_filename != "<string>"
    return written and (not name.startswith("_") or name in ("__init__", "__call__"))


def parameters(function: Callable[..., Any]) -> list[str]:
    """What a caller gives, but for what is not used."""
    names = inspect.signature(function).parameters
    return [n for n in names if n not in ("self", "cls") and not n.startswith("_")]


PUBLIC = {
    label: (doc, function)
    for package in (bucketize, dispatchers)
    for label, doc, function in public(package.__name__, package)
}
TAKING = [label for label, (_, function) in PUBLIC.items() if parameters(function)]


def test_all_that_is_public_is_looked_at() -> None:
    assert {"bucketize.compile", "bucketize.Executable.run", "bucketize.Module.__init__"} <= set(
        TAKING
    )
    assert {"dispatchers.log_dispatcher", "bucketize.analysis.bench"} <= set(TAKING)


@pytest.mark.parametrize("label", PUBLIC)
def test_public_functions_have_docstrings(label: str) -> None:
    assert PUBLIC[label][0]


@pytest.mark.parametrize("label", TAKING)
def test_every_parameter_is_named_in_order(label: str) -> None:
    doc, function = PUBLIC[label]
    assert entries(sections(doc).get("Args", "")) == parameters(function)


@pytest.mark.parametrize("label", TAKING)
def test_who_takes_something_says_what_comes_of_it(label: str) -> None:
    doc, function = PUBLIC[label]
    nothing = label.endswith("__init__") or function.__annotations__["return"] in (
        "None",
        "NoReturn",
    )
    assert ("Returns" in sections(doc)) != nothing


@pytest.mark.parametrize("label", PUBLIC)
def test_what_comes_of_it_begins_with_no_colon(label: str) -> None:
    """The site would show what stands before one in the first line as a type."""
    first = sections(PUBLIC[label][0]).get("Returns", "").partition("\n")[0]
    assert ":" not in first


@pytest.mark.parametrize("label", PUBLIC)
def test_errors_are_classes_that_there_are(label: str) -> None:
    raised = sections(PUBLIC[label][0]).get("Raises")
    if raised is None:
        return
    assert entries(raised)
    for name in entries(raised):
        kind = getattr(errors, name, None) or getattr(builtins, name)
        assert issubclass(kind, Exception)


def test_sections_are_read_as_they_are_written() -> None:
    args = "Args:\n    x: a number,\n        or: two.\n    *y: more.\n\n"
    doc = f"A value.\n\n{args}Raises:\n    OSError: so."
    assert entries(sections(doc)["Args"]) == ["x", "y"]
    assert entries(sections(doc)["Raises"]) == ["OSError"]


def strings(text: str) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes, functions, fields and constants, each with its line."""
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.lineno, value.value.strip()


def test_a_docstring_stands_by_itself() -> None:
    """Say the noun: of what, the same as what, which those are."""
    leaning = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for part in ("bucketize", "dispatchers", "runtime")
        for path in sorted((ROOT / part).rglob("*.py"))
        for line, text in strings(path.read_text())
        if LEANING.match(text)
    ]
    assert not leaning, "\n".join(["say the noun: help() shows no neighbours", *leaning])


def test_a_docstring_that_leans_is_seen() -> None:
    text = 'class A:\n    """Office."""\n    x: int\n    """Of a call."""\nK = 1\n"""The same."""\n'
    assert [line for line, each in strings(text) if LEANING.match(each)] == [6, 4]
