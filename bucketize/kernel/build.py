"""Kernels from source text: real files in a cache directory, compiled once for all processes.

A kernel is two files, named by all that it depends on: its source, which anybody may read, and
its machine code.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from threading import Lock, RLock, local
from typing import TYPE_CHECKING, Self

from bucketize.errors import KernelError
from bucketize.kernel.cache import code_path, made, stored
from bucketize.kernel.codegen import compiled, generated
from bucketize.kernel.object import Kernel, load
from bucketize.machine.directory import cache_directory
from bucketize.machine.host import processor
from bucketize.machine.target import Processor, cores

if TYPE_CHECKING:
    from bucketize.progress import Tell

_built: dict[Path, Kernel] = {}
_compiling = RLock()
if hasattr(os, "register_at_fork"):  # LLVM has a lock of its own, which a child would find taken
    _end = {f"after_in_{process}": _compiling.release for process in ("parent", "child")}
    os.register_at_fork(before=_compiling.acquire, **_end)


def kernel_name(source: str, hint: str, wanted: Processor) -> str:
    """The name of the kernel of a source: `hint`, and a digest of all that it depends on."""
    text = f"{environment()} {wanted.digest}\n{source}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"k_{hint}_{digest}"


def build(source: str, name_hint: str, wanted: Processor | None = None) -> Kernel:
    """The kernel of this source, a module with an `entry` called `kernel`, for this processor.

    Or for another, on which alone it has an address. The source names itself by `__name__`. Raises
    KernelError when the cache cannot be written.
    """
    wanted = wanted or processor()
    path = _path(source, name_hint, wanted)
    if path not in _built:
        start = time.perf_counter()
        code, cached = stored(path), True
        if code is None:
            code, cached = made(path, source, partial(_compile, wanted))
        address = load(path.stem, code) if not wanted.misfit else 0
        seconds = time.perf_counter() - start
        _built[path] = Kernel(path.stem, code, address, path, cached, seconds)
    return _built[path]


def is_built(source: str, name_hint: str, wanted: Processor | None = None) -> bool:
    """Whether `build` would find the kernel, in this process or on the disk."""
    path = _path(source, name_hint, wanted or processor())
    return path in _built or code_path(path).exists()


def _path(source: str, hint: str, wanted: Processor) -> Path:
    return cache_directory() / f"{kernel_name(source, hint, wanted)}.py"


BUILD_S = 0.3  # to compile a kernel, about
WORTH = 3  # kernels for each process beside this one, which has to start first, in 0.1 s


class Building:
    """Kernels on their way: other processes begin at once, this one helps when it finds the time.

    Those that numba types are at the left end, from which the others take: this one, which takes
    from the right, may never have to import numba.
    """

    def __init__(self, wanted: Processor | None = None) -> None:
        """Nothing is wanted yet, for this processor or another."""
        self._most = cores() - 1
        self._for = wanted or processor()
        self._builders = Builders(self._for)
        self._threads = ThreadPoolExecutor(max(self._most, 1))
        self._known: set[str] = set()
        self._missing: dict[str, str] = {}
        self._waiting: deque[tuple[str, str]] = deque()
        self._jobs: list[Future[None]] = []
        self._done, self._telling = 0, Lock()
        self._progress: Tell | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()
        with self._builders:
            self._threads.shutdown()

    def want(self, sources: Mapping[str, str]) -> None:
        """Have the kernels of some sources built, each with its hint, if they are missing."""
        for source, hint in sources.items():
            if source in self._known:
                continue
            self._known.add(source)
            if not is_built(source, hint, self._for):
                self._missing[source] = hint
                add = self._waiting.appendleft if "numba" in source else self._waiting.append
                add((source, hint))
        wanted = min(self._most, len(self._missing) // WORTH) if self._waiting else 0
        for _ in range(wanted - sum(not job.done() for job in self._jobs)):
            self._jobs.append(
                self._threads.submit(self._work, self._builders.build, self._waiting.popleft)
            )

    def finish(self, progress: Tell | None = None) -> None:
        """Help until all are built, or raise what went wrong with one.

        `progress` is told the kernels compiled of those that were missing.
        """
        with self._telling:
            self._progress = progress
            if self._missing:
                self._tell("kernels")
        self._work(partial(build, wanted=self._for), self._waiting.pop)
        for job in self._jobs:
            job.result()
        for source, hint in self._missing.items():
            kernel = build(source, hint, self._for)
            assert kernel.path is not None
            _built[kernel.path] = replace(kernel, cached=False)

    def _tell(self, what: str) -> None:
        if self._progress is not None:
            self._progress(what, self._done, len(self._missing))

    def _work(
        self, make: Callable[[str, str], object], take: Callable[[], tuple[str, str]]
    ) -> None:
        try:
            while self._waiting:
                try:
                    source, hint = take()
                except IndexError:  # another took the last one
                    return
                make(source, hint)
                with self._telling:
                    self._done += 1
                    self._tell(f"kernel {hint}")
        except BaseException:  # an interrupt, too: what was not begun is not wanted any more
            self._waiting.clear()
            raise


class Builders:
    """Processes that build kernels into the cache, one for each thread that asks."""

    def __init__(self, wanted: Processor) -> None:
        self._for = asdict(wanted)
        self._mine = local()
        self._all: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.communicate()  # its input ends, and so does it

    def build(self, source: str, hint: str) -> None:
        """Have a kernel built; what its process says when it fails is the error."""
        if not hasattr(self._mine, "process"):
            self._mine.process = self._started()
        process: subprocess.Popen[str] = self._mine.process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps([source, hint, self._for]) + "\n")
            process.stdin.flush()
            said = process.stdout.readline()
        except BrokenPipeError:
            said = ""
        if not said:
            raise KernelError(f"a process that compiles kernels died (exit {process.wait()})")
        if error := json.loads(said):
            raise KernelError(f"cannot compile {hint}: {error}")

    def _started(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(  # -P: what lies about in this folder is no module
            [sys.executable, "-P", "-m", "bucketize.kernel.builder"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            start_new_session=True,  # an interrupt from the keyboard is the parent's to handle
        )
        self._all.append(process)
        return process


@cache
def environment() -> str:
    """All that every kernel depends on: versions, and the code that generates it."""
    code = hashlib.sha256()
    for path in emitting():
        code.update(path.read_bytes())
    return f"{version('numba')} {version('llvmlite')} {code.hexdigest()}"


def emitting() -> list[Path]:
    """The files of the package that code is made by, whatever its source says.

    `tests/kernel/test_emitting.py` finds out what kernels read while they are written.
    """
    root = Path(__file__).parents[1]
    folders = (root / name for name in ("kernel", "machine", "types"))
    return [*sorted(p for f in folders for p in f.rglob("*.py")), root / "ops" / "rounding.py"]


def _compile(wanted: Processor, path: Path) -> bytes:
    with _compiling, _uncollected():
        # no name holds the module: to let go of it takes LLVM's lock, which a fork must find free
        return compiled(*generated(path, wanted), path.stem, wanted)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the collector, which goes over all that lives again and again while IR is written."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
