"""Kernels from source text: real files in a cache directory, compiled once for all processes."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import llvmlite
import numba
import platformdirs
from filelock import FileLock

from bucketize.errors import KernelError
from bucketize.kernel.target import host

VARIABLE = "BUCKETIZE_CACHE"
LOGGER = logging.getLogger("bucketize")


@dataclass(frozen=True)
class Kernel:
    """Native code: `address` is of a function void(int64* block)."""

    address: int
    name: str
    path: Path
    cached: bool
    """Whether it came from the disk, compiled earlier."""
    compile_s: float
    """Seconds that getting it took."""


_built: dict[Path, Kernel] = {}


def cache_directory() -> Path:
    """Where kernels are kept: the environment's BUCKETIZE_CACHE, or the user's cache directory."""
    return Path(os.environ.get(VARIABLE) or platformdirs.user_cache_dir("bucketize"))


def build(source: str, *, name_hint: str) -> Kernel:
    """The kernel of this source, a module with a numba cfunc `kernel` of void(CPointer(int64)).

    The source names itself by `__name__`. Raises KernelError when the cache cannot be written.
    """
    name = f"k_{name_hint}_{_digest(source)}"
    path = cache_directory() / f"{name}.py"
    if path not in _built:
        _built[path] = _locked(path, source)
    return _built[path]


def _digest(source: str) -> str:
    return hashlib.sha256(f"{_environment()}\n{source}".encode()).hexdigest()[:16]


@cache
def _environment() -> str:
    """All that a kernel depends on apart from its source: versions, generator code, machine."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    return f"{numba.__version__} {llvmlite.__version__} {code.hexdigest()} {host().features}"


def _locked(path: Path, source: str) -> Kernel:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            _write(path, source)
            return _load(path)
    except OSError as e:
        raise KernelError(f"cannot keep a kernel in {path.parent} (set {VARIABLE}): {e}") from e


def _write(path: Path, source: str) -> None:
    """Put the source there, whole or not at all; a torn file is written anew."""
    text = source.encode()
    if path.exists() and path.read_bytes() == text:
        return
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _load(path: Path) -> Kernel:
    start = time.perf_counter()
    stored = _stored(path)
    try:
        module = _import(path)
    except Exception as e:  # whatever unpickling torn machine code raises
        if isinstance(e, OSError) or not stored:
            raise
        LOGGER.warning("%s: stored machine code cannot be read (%s); compiling anew", path, e)
        for file in stored:
            file.unlink()
        module = _import(path)
    seconds = time.perf_counter() - start
    cfunc = module.kernel
    return Kernel(cfunc.address, path.stem, path, cfunc.cache_hits > 0, seconds)


def _stored(path: Path) -> list[Path]:
    """Numba's files of this kernel."""
    return list((path.parent / "__pycache__").glob(f"{path.stem}.*.nb[ci]"))


def _import(path: Path) -> ModuleType:
    """The module, under its name in sys.modules: numba reads its cache through that."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module
