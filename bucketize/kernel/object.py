"""Object files: how they are kept, and loaded into the process without a compiler."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from bucketize.fork import ThreadLock
from bucketize.machine import elf

MAGIC = b"bucketize object 2\n"  # 2: the digest is of the name, too
DIGEST = hashlib.sha256().digest_size

_loading = ThreadLock()


@dataclass(frozen=True)
class Kernel:
    """Native code: `address` is of a function void(int64* block)."""

    name: str
    code: bytes = field(repr=False)
    """The object file."""
    address: int
    """0 if it is for another processor than this."""
    path: Path | None = None
    """The source; None of one that was loaded."""
    cached: bool = True
    """Whether it was compiled earlier."""
    compile_s: float = 0.0
    """Seconds that getting it took."""


def sealed(code: bytes, name: str) -> bytes:
    """The bytes of a file that holds the object of `name`: with a digest of both in front.

    So a torn file is known, and one that was renamed.
    """
    return MAGIC + _digest(code, name) + code


def unsealed(file: bytes, name: str) -> bytes | None:
    """The object of such a file; None if it is not whole, or not of this name."""
    start = len(MAGIC) + DIGEST
    code = file[start:]
    whole = file[:start] == MAGIC + _digest(code, name)
    return code if whole else None


def _digest(code: bytes, name: str) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + code).digest()


_addresses: dict[str, int] = {}


def load(name: str, code: bytes) -> int:
    """The address of the function `name` of an object; of one that is loaded already, its own."""
    with _loading:
        if name not in _addresses:
            _addresses[name] = elf.load(code, name)
    return _addresses[name]
