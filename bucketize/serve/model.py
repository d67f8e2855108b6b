"""A model that is served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bucketize.executable import Executable
from bucketize.loader import identity

if TYPE_CHECKING:  # a program that was saved needs no compiler, nor scipy
    from bucketize.integrations.sentence_transformers import SentenceTransformer
    from bucketize.serve.drift import DriftAlarm


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
            name: that clients call it by.
            version: a number.
            executable: what runs it.
            path: of a saved program: another one that is put there serves from then on.
            encoder: of texts, by the executable.
            drift: looks whether requests come as planned.
            trusted: as that of `load`, of what is put there.

        """
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
    def symbols(self) -> tuple[str, ...]:
        """The symbols of its inputs."""
        types = self.inputs.values()
        return tuple(dict.fromkeys(symbol.name for type_ in types for symbol in type_.symbols()))

    @property
    def threads(self) -> int:
        """Threads that a call takes."""
        return self.executable.program.threads
