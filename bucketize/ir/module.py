"""Modules: named functions, and which of them are clones of which buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from bucketize.errors import ArgumentError, BucketizeError, TypeRelError, unknown_name
from bucketize.ir.build import illegal
from bucketize.ir.call import check_calls
from bucketize.ir.core import Function
from bucketize.ir.tree import tree_lines
from bucketize.table import html_heading, html_lines, html_table
from bucketize.types import Interval, show_interval

Recipe: TypeAlias = Callable[[str], Function]
"""Makes the function of a name: one recipe serves all clones of a function."""


class Functions(Mapping[str, Function]):
    """Functions by name; those given as a recipe are made when first asked for."""

    def __init__(self, entries: Mapping[str, Function | Recipe]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Function:
        entry = self._entries[name]
        if not isinstance(entry, Function):
            entry = self._entries[name] = entry(name)
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def made(self) -> dict[str, Function]:
        """The functions that no recipe stands for any more."""
        return {n: f for n, f in self._entries.items() if isinstance(f, Function)}

    def updated(self, entries: Mapping[str, Function | Recipe]) -> Functions:
        """Functions with `entries` put in; recipes stay recipes."""
        return Functions({**self._entries, **entries})

    def mapped(self, transform: Callable[[Function], Function]) -> Functions:
        """Each function transformed when first asked for."""
        return Functions(dict.fromkeys(self, lambda name: transform(self[name])))


@dataclass(frozen=True, slots=True)
class Clone:
    """What a copy of a function is for: the sizes that it serves, and how.

    Clones are equal if their text is: `origin` does not count.
    """

    bucket: Mapping[str, Interval]
    """Half-open, by the symbol's name."""
    policy: str = "exact"
    opt: Mapping[str, int] | None = None
    """The sizes that it is tuned for, where a profile names them."""
    weight: float = 1.0
    """Its share of the traffic, relative to the other clones'."""
    label: str = ""
    """The name of its profile."""
    origin: Function | None = field(default=None, compare=False, repr=False)
    """The simplified function that it specialises; not known of a clone that was parsed."""


@dataclass(frozen=True, eq=False)
class Module:
    """Named functions, and which of them are clones; `main` is where a run begins.

    Args:
        functions: by name; a recipe makes the function when it is first asked for.
        clones: of functions, by name.
        names: of the results of `main`, if they have any.

    Raises:
        TypeRelError: a call hands on, or expects back, what the callee does not take or return at
            any sizes.
        UnknownNameError: there is no such callee.

    """

    functions: Functions
    clones: Mapping[str, Clone]
    names: tuple[str, ...]

    def __init__(
        self,
        functions: Mapping[str, Function | Recipe],
        clones: Mapping[str, Clone] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        if not isinstance(functions, Functions):  # those of transforms call what they called before
            check_calls(functions)
            functions = Functions(functions)
        object.__setattr__(self, "functions", functions)
        object.__setattr__(self, "clones", {} if clones is None else clones)
        object.__setattr__(self, "names", tuple(names))

    def __repr__(self) -> str:
        more = f", {len(self.clones)} clones" if self.clones else ""
        return f"<module of {self.main!r}{more}>"

    def _repr_html_(self) -> str:
        """For notebooks: what `main` takes and gives, how it decides, and its clones."""
        rows = [[name, *_facts(clone)] for name, clone in self.clones.items()]
        clones = html_table(["clone", "sizes", "policy", "weight"], rows) if rows else ""
        tree = html_lines(tree_lines(self.main, abridged=True)) if rows else ""
        return html_heading("module", repr(self.main)) + tree + clones

    def __reduce__(self) -> tuple[Any, ...]:
        return Module, (Functions(self.functions), dict(self.clones), self.names)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the results of `main`; `output_0`, ... where it has none."""
        return self.names or tuple(f"output_{i}" for i in range(len(self.main.results)))

    @property
    def main(self) -> Function:
        """The entry."""
        return self.functions["main"]

    def function(self, name: str) -> Function:
        """The function of a name.

        Args:
            name: "main", or another one of `functions`.

        Returns:
            The function, made if it was not yet.

        Raises:
            UnknownNameError: there is none; the known ones are listed.

        """
        if name not in self.functions:
            raise unknown_name("function", name, self.functions)
        return self.functions[name]

    def replace(self, *functions: Function) -> Module:
        """The module with functions put in.

        Args:
            *functions: each takes the place of the one of its name, if there is one.

        Returns:
            A new module, with the same clones.

        """
        return Module(
            self.functions.updated({f.name: f for f in functions}), self.clones, self.names
        )

    def mapped(self, transform: Callable[[Function], Function]) -> Module:
        """The module with each function transformed.

        Args:
            transform: called with a function when that is first asked for.

        Returns:
            A new module, with the same clones.

        """
        return Module(self.functions.mapped(transform), self.clones, self.names)


def _facts(clone: Clone) -> list[str]:
    sizes = ", ".join(f"{n}={show_interval(i)}" for n, i in clone.bucket.items())
    return [sizes, clone.policy, f"{clone.weight:g}"]


def refusing(module: Module, name: str, error: BucketizeError) -> Function | None:
    """The clone whose types do not fit, as one that refuses every run; None if it is no clone."""
    clone = module.clones.get(name)
    if clone is None or clone.origin is None:
        error.add_note(f"in {name}: if the model is not legal at these sizes, bound its symbols")
        return None
    nodes = ", ".join(map(repr, error.origin))
    where = f"in node {nodes}" if nodes else ", ".join(error.notes[:1])
    reason = TypeRelError(f"{name} is not legal: {error.message}{where and ', ' + where}")
    return replace(illegal(clone.origin, reason), name=name)


def check_module(given: object) -> None:
    """Raise an `ArgumentError` that says how to make a module of what was given in place of one."""
    if isinstance(given, Module):
        return
    how = "make one by bucketize.from_onnx(model) first"
    if isinstance(given, str | PathLike):
        how = f"bucketize.from_onnx({str(given)!r}) first"
        if Path(given).suffix == ".bkt":
            how = f"what `save` wrote is run by bucketize.load({str(given)!r})"
    raise ArgumentError(f"expected a Module, got {type(given).__name__}: {how}")
