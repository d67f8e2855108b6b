"""What a clone is for, as a clause of its head: `clone(bucket N=2..3 H=1.., weight 2.0)`.

Both ends are inclusive; what is as usual is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from bucketize.ir import Clone
from bucketize.text.reader import Reader, joined, word
from bucketize.types import Interval, show_interval

T = TypeVar("T")


def show_clone(clone: Clone) -> str:
    """The clause."""
    return f"clone({joined(_facts(clone))})"


def _facts(clone: Clone) -> Iterator[str]:
    yield " ".join(["bucket", *(f"{word(n)}={show_interval(i)}" for n, i in clone.bucket.items())])
    if clone.policy != "exact":
        yield f"policy {word(clone.policy)}"
    if clone.opt is not None:
        yield " ".join(["opt", *(f"{word(n)}={size}" for n, size in clone.opt.items())])
    if clone.weight != 1:
        yield f"weight {clone.weight}"
    if clone.label:
        yield f"label {word(clone.label)}"


def read_clone(reader: Reader) -> Clone:
    """The clone of a clause whose first word is read."""
    facts: dict[str, Any] = {}
    reader.expect("(")
    reader.listed(lambda: _read_fact(reader, facts), ")")
    return Clone(**{"bucket": {}, **facts})


def _read_fact(reader: Reader, facts: dict[str, Any]) -> None:
    readers: dict[str, Callable[[], Any]] = {
        "bucket": lambda: _by_symbol(reader, lambda: _interval(reader)),
        "policy": reader.word,
        "opt": lambda: _by_symbol(reader, reader.integer),
        "weight": lambda: _weight(reader),
        "label": reader.word,
    }
    at, name = reader.now, reader.kind("name")
    if name not in readers:
        reader.fail(f"a clone has no {name!r}; known: {joined(readers)}", at)
    if name in facts:
        reader.fail(f"the clone's {name} is given twice", at)
    facts[name] = readers[name]()


def _by_symbol(reader: Reader, item: Callable[[], T]) -> dict[str, T]:
    values: dict[str, T] = {}
    while reader.now.kind in ("name", "string"):
        at, name = reader.now, reader.word()
        if name in values:
            reader.fail(f"{name} is given twice", at)
        reader.expect("=")
        values[name] = item()
    return values


def _interval(reader: Reader) -> Interval:
    at, lo = reader.now, reader.integer()
    last: int | None = lo
    if reader.accept(".."):
        last = reader.integer() if reader.now.kind == "number" else None
    interval = lo, None if last is None else last + 1
    if lo < 0 or (last is not None and last < lo):
        reader.fail(
            f"no sizes are {show_interval(interval)}: they begin at 0 or above, and ascend", at
        )
    return interval


def _weight(reader: Reader) -> float:
    at, value = reader.now, reader.value()
    if not isinstance(value, int | float):
        reader.fail(f"expected a number, got {value!r}", at)
    return float(value)
