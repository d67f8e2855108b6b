"""A model that is served, and what was learnt of its requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bucketize.executable import Executable

KEPT = 0.8
"""Of an average that is told of late, what is kept at each call."""


class ServedModel:
    """A model, and what was learnt of its requests."""

    def __init__(
        self, name: str, version: str, executable: Executable, path: Path | None = None
    ) -> None:
        """Nothing was asked yet.

        Args:
            name: that clients call it by.
            version: a number.
            executable: what runs it.
            path: of a saved program: another one that is put there serves from then on.

        """
        self.name, self.version, self.executable = name, version, executable
        self.path, self.identity = path, path and identity(path)
        self.element_s = 0.0
        """Seconds for each element of inputs, of late; 0 before the first call."""
        self.waiting = 0
        """Elements of requests that wait or run."""

    @property
    def inputs(self) -> dict[str, Any]:
        """Their types by name."""
        return {p.name: p.type for p in self.executable.program.routines["main"].params}

    @property
    def outputs(self) -> dict[str, Any]:
        """As `inputs`."""
        results = self.executable.program.routines["main"].code.results
        named = zip(self.executable.outputs, results, strict=True)
        return {name: atom.type for name, atom in named}

    def learn(self, size: int, seconds: float) -> None:
        """Note what elements took."""
        each = seconds / max(size, 1)
        self.element_s = KEPT * self.element_s + (1 - KEPT) * each if self.element_s else each


def identity(path: Path) -> Any:
    """What tells a file from another in its place; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
