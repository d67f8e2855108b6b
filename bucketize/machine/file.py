"""A file that is put in its place: whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

Piece: TypeAlias = tuple[int, bytes | bytearray | memoryview]
"""Where bytes begin in a file, behind those of the piece before; and they."""


def put(path: Path, pieces: Iterable[Piece], mode: int = 0o644) -> None:
    """Put a file of pieces there; until it is whole, what was there stays.

    Raises OSError where it cannot be written.
    """
    temporary = path.parent / f"{path.name}{os.urandom(4).hex()}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            for place, piece in pieces:
                file.write(bytes(place - file.tell()))
                file.write(piece)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
