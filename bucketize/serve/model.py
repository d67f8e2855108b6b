"""A model that is served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bucketize.errors import ArgumentError
from bucketize.executable import Executable
from bucketize.loader import identity
from bucketize.types import Symbol

if TYPE_CHECKING:  # a program that was saved needs no compiler, nor scipy
    from bucketize.integrations.sentence_transformers import SentenceTransformer
    from bucketize.serve.drift import DriftAlarm


def named(text: str) -> tuple[str, str]:
    """The parts of [NAME=]SOURCE, without a name the first is empty; a path may have a = in it."""
    name, sign, source = text.partition("=")
    return (name, source) if sign and "/" not in name else ("", text)


class ServedModel:
    """A model by its name and version."""

    def __init__(
        self,
        name: str,
        version: str,
        executable: Executable,
        path: Path | None = None,
        encoder: SentenceTransformer | None = None,
        drift: DriftAlarm | None = None,
        trusted: bool = False,
    ) -> None:
        """A model, and where it is from.

        Args:
            name: that clients call it by, in paths of URLs, too.
            version: a number from 1.
            executable: what runs it.
            path: of a saved program: another one that is put there serves from then on.
            encoder: of texts, by the executable.
            drift: looks whether requests come as planned.
            trusted: as that of `load`, of what is put there.

        Raises ArgumentError for a name that no client could ask for, or that names no file.

        """
        if name in ("", ".", "..") or "/" in name or not name.isprintable():
            wanted = "expected signs that can be printed, and no /"
            raise ArgumentError(f"no model can be called {name!r}: {wanted}")
        self.name, self.version, self.executable = name, version, executable
        self.path, self.identity = path, path and identity(path)
        self.encoder, self.drift, self.trusted = encoder, drift, trusted

    @property
    def inputs(self) -> dict[str, Any]:
        """The types of inputs by name."""
        return {p.name: p.type for p in self.executable.program.routines["main"].params}

    @property
    def outputs(self) -> dict[str, Any]:
        """The types of outputs by name."""
        results = self.executable.program.routines["main"].code.results
        named = zip(self.executable.outputs, results, strict=True)
        return {name: atom.type for name, atom in named}

    @property
    def symbols(self) -> dict[str, Symbol]:
        """The symbols of its inputs by name."""
        types = self.inputs.values()
        return {symbol.name: symbol for type_ in types for symbol in type_.symbols()}

    @property
    def threads(self) -> int:
        """Threads that a call takes."""
        return self.executable.program.threads
