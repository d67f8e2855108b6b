"""Linking a program that was just decided: kernels are built, constants are packed."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from bucketize.kernel import core as cores
from bucketize.kernel.build import build, build_all
from bucketize.kernel.object import Kernel
from bucketize.kernel.template import TEMPLATES, Launch
from bucketize.op import Array
from bucketize.program.instruction import KernelCall, Segment
from bucketize.program.plan import Plan
from bucketize.program.planner import Pitches, launch_of, plan_of
from bucketize.program.program import Program
from bucketize.runtime.image import Image, core
from bucketize.runtime.native import Native, function_at
from bucketize.runtime.storage import Pool, aligned

if TYPE_CHECKING:
    from bucketize.progress import Tell


def core_source(name: str) -> str:
    """The source of one of the kernels that every image has."""
    return (Path(cores.__file__).parent / f"{name}.py").read_text()


@cache
def shared() -> Native:
    """What shares a table of kernels among threads, for kernels that no image has."""
    return function_at(build(core_source("share"), name_hint="share").address)


class Linker:
    """The supply of an image from a compiler: `runtime.image.Supply`."""

    def __init__(self, program: Program) -> None:
        """Nothing is built or packed before it is asked for."""
        self.program = program
        self._kernels: dict[str, Kernel] = {}
        self._launches: dict[Hashable, Launch] = {}
        self._constants: dict[Hashable, tuple[Array, Array]] = {}
        self._pool = Pool()
        self._packing = Lock()

    def core(self, name: str) -> Kernel:
        return build(core_source(name), name_hint=name)

    def plan(self, segment: Segment) -> Plan:
        program = self.program
        return plan_of(segment, program.threads, self._launch, program.target.l2)

    def _launch(self, call: KernelCall, pitches: Pitches) -> Launch:
        """Read once for all segments that share the call."""
        key = call, pitches
        if key not in self._launches:
            self._launches[key] = launch_of(call, pitches, self.program.target)
        return self._launches[key]

    def kernel(self, name: str) -> Kernel:
        if name not in self._kernels:
            self._kernels[name] = build(self.program.sources[name], name_hint=_hint(name))
        return self._kernels[name]

    def kernels(self) -> dict[str, Kernel]:
        return dict(self._kernels)

    def constant(self, value: Array, call: KernelCall | None, argument: int) -> Array:
        """One copy for all who want the same layout."""
        layout = "" if call is None else call.packs[argument]
        with self._packing:
            key = (id(value), layout)
            if key not in self._constants:  # `value` is kept: its id must stay its own
                self._constants[key] = (value, self._laid_out(value, call, argument, layout))
            return self._constants[key][1]

    def _laid_out(self, value: Array, call: KernelCall | None, argument: int, layout: str) -> Array:
        packed = _packed(value, call, argument, layout)
        return aligned(value) if packed is None else self._pool.copy(packed)

    def constant_bytes(self) -> int:
        """Those used as they are included."""
        with self._packing:
            held = {id(a): a for _, a in self._constants.values()}
        return sum(a.nbytes for a in held.values())


def _hint(name: str) -> str:
    return name.removeprefix("k_").rpartition("_")[0]


def _packed(value: Array, call: KernelCall | None, argument: int, layout: str) -> Array | None:
    if call is None or not layout:
        return None
    template = TEMPLATES[call.implementation.template]
    return template.pack(call.workload, call.implementation.schedule, argument, value)


def link(program: Program, progress: Tell | None = None) -> Image:
    """The image of a program; of what is decided already, everything is built and packed."""
    tell = progress or (lambda *_: None)
    wanted = {name for s in program.segments() for name in (c.kernel for c in s.calls)}
    sources = {name: program.sources[name] for name in sorted(wanted)}
    texts = {core_source(name): name for name in core(program.threads)}
    build_all({**{t: _hint(n) for n, t in sources.items()}, **texts}, progress)
    image = Image(program, Linker(program))
    segments = list(program.segments())
    for i, segment in enumerate(segments):
        tell("packing weights", i, len(segments))
        image.linked(segment)
    return image
