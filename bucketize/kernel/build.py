"""Kernels from source text: real files in a cache directory, compiled once for all processes.

A kernel is two files, named by all that it depends on: its source, which anybody may read, and
its machine code.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from itertools import count
from pathlib import Path
from threading import Lock, local
from types import ModuleType
from typing import TYPE_CHECKING, Self, TypeVar

from bucketize.errors import KernelError
from bucketize.kernel.cache import cache_directory, code_path, made, stored
from bucketize.kernel.object import Kernel, compiled, load
from bucketize.kernel.target import cores, host

if TYPE_CHECKING:
    from bucketize.progress import Tell

Job = TypeVar("Job")

_built: dict[Path, Kernel] = {}


def kernel_name(source: str, hint: str) -> str:
    """The name of the kernel of a source: `hint`, and a digest of all that it depends on."""
    digest = hashlib.sha256(f"{_environment()}\n{source}".encode()).hexdigest()[:16]
    return f"k_{hint}_{digest}"


def build(source: str, name_hint: str) -> Kernel:
    """The kernel of this source, a module with an `entry` called `kernel`.

    The source names itself by `__name__`. Raises KernelError when the cache cannot be written.
    """
    path = cache_directory() / f"{kernel_name(source, name_hint)}.py"
    if path not in _built:
        start = time.perf_counter()
        code, cached = stored(path), True
        if code is None:
            code, cached = made(path, source, _compile)
        address = load(path.stem, code)
        seconds = time.perf_counter() - start
        _built[path] = Kernel(path.stem, code, address, path, cached, seconds)
    return _built[path]


def is_built(source: str, name_hint: str) -> bool:
    """Whether `build` would find the kernel, in this process or on the disk."""
    path = cache_directory() / f"{kernel_name(source, name_hint)}.py"
    return path in _built or code_path(path).exists()


WORTH = 8  # kernels for each process beside this one, which has to import numba first


def build_all(sources: Mapping[str, str], progress: Tell | None = None) -> None:
    """Build the kernels of some sources, each with its hint; many missing in several processes.

    `progress` is told the kernels compiled of those that were missing.
    """
    missing = {s: hint for s, hint in sources.items() if not is_built(s, hint)}
    tell = progress or (lambda *_: None)
    waiting, telling, done = deque(missing.items()), Lock(), count(1)
    if missing:
        tell("kernels", 0, len(missing))

    def work(make: Callable[[str, str], object]) -> None:
        try:
            for source, hint in _taken(waiting):
                make(source, hint)
                with telling:
                    tell(f"kernel {hint}", next(done), len(missing))
        except BaseException:  # an interrupt, too: what was not begun is not wanted any more
            waiting.clear()
            raise

    others = min(cores() - 1, len(missing) // WORTH)
    with Builders() as builders, ThreadPoolExecutor(max(others, 1)) as threads:
        jobs = [threads.submit(work, builders.build) for _ in range(others)]
        work(build)
        for job in jobs:
            job.result()
    for source, hint in missing.items():
        kernel = build(source, hint)
        assert kernel.path is not None
        _built[kernel.path] = replace(kernel, cached=False)


def _taken(jobs: deque[Job]) -> Iterator[Job]:
    """Jobs until there are none left; several threads may take them."""
    while True:
        try:
            job = jobs.popleft()
        except IndexError:
            return
        yield job


class Builders:
    """Processes that build kernels into the cache, one for each thread that asks."""

    def __init__(self) -> None:
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
            process.stdin.write(json.dumps([source, hint]) + "\n")
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
def _environment() -> str:
    """All that a kernel depends on apart from its source: versions, generator code, machine."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    return f"{version('numba')} {version('llvmlite')} {code.hexdigest()} {host().features}"


def _compile(path: Path) -> bytes:
    """Python's own cache of compiled files takes no part: it would be believed unseen."""
    module = ModuleType(path.stem)
    exec(compile(path.read_text(), path, "exec"), module.__dict__)
    text, symbol = module.kernel
    return compiled(text, symbol, path.stem)
