"""Linking a program that was just decided: kernels are built, constants are packed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from bucketize.fork import ThreadLock
from bucketize.kernel.build import Building, build
from bucketize.kernel.object import Kernel
from bucketize.kernel.template import Launch
from bucketize.kernel.templates import TEMPLATES
from bucketize.link import native as cores
from bucketize.link.ffi import Native, function_at
from bucketize.link.image import Image, core
from bucketize.link.memory import Pool, aligned
from bucketize.link.plan import Plan, agreed
from bucketize.link.planner import Pitches, launch_of, plan_of
from bucketize.op import Array
from bucketize.program.instruction import KernelCall, Segment
from bucketize.program.program import Program

if TYPE_CHECKING:
    from bucketize.progress import Tell


def core_source(name: str) -> str:
    """The source of one of the kernels that every image has, and what its words depend on."""
    text = (Path(cores.__file__).parent / f"{name}.py").read_text()
    return f"{text}\n# {agreed()}\n"


@cache
def shared() -> Native:
    """What shares a table of kernels among threads, for kernels that no image has."""
    return function_at(build(core_source("share"), name_hint="share").address)


class Linker:
    """The supply of an image from a compiler: `link.image.Supply`."""

    def __init__(self, program: Program) -> None:
        """Nothing is built or packed before it is asked for."""
        self.program = program
        self._for = program.target.processor
        self._kernels: dict[str, Kernel] = {}
        self._plans: dict[Segment, Plan] = {}
        self._launches: dict[Hashable, Launch] = {}
        self._constants: dict[Hashable, tuple[Array, Array]] = {}
        self._pool = Pool()
        self._packing = ThreadLock()

    def core(self, name: str) -> Kernel:
        return build(core_source(name), name, self._for)

    def plan(self, segment: Segment) -> Plan:
        if segment not in self._plans:
            threads, l2 = self.program.threads, self.program.target.l2
            self._plans[segment] = plan_of(segment, threads, self._launch, l2)
        return self._plans[segment]

    def _launch(self, call: KernelCall, pitches: Pitches) -> Launch:
        """Read once for all calls that share workload and implementation."""
        key = call.workload, call.implementation.key, pitches
        if key not in self._launches:
            self._launches[key] = launch_of(call, pitches, self.program.target)
        return self._launches[key]

    def kernel(self, name: str) -> Kernel:
        if name not in self._kernels:
            self._kernels[name] = build(self.program.sources[name], _hint(name), self._for)
        return self._kernels[name]

    def kernels(self) -> dict[str, Kernel]:
        return dict(self._kernels)

    def constant(self, value: Array, call: KernelCall | None, argument: int) -> Array:
        """One copy for all who want the same layout."""
        layout = "" if call is None else call.packs[argument]
        with self._packing:
            key = (id(value), layout)
            if key not in self._constants:  # `value` is kept: its id must stay its own
                packed = _packed(value, call, argument) if call and layout else None
                mine = aligned(value) if packed is None else self._pool.copy(packed)
                self._constants[key] = (value, mine)
            return self._constants[key][1]

    def constants(self, segment: Segment) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        plan = self.plan(segment)
        results = tuple(self.constant(c.value, None, 0) for c in plan.held)
        constants = []
        for _, row, index in plan.constants:
            if row < 0:
                constants.append(results[index])
            else:
                call = segment.rows[row]
                constants.append(self.constant(call.args[index].value, call, index))  # type: ignore[union-attr]
        return tuple(constants), results

    def constant_bytes(self) -> int:
        """Bytes of constants, those used as they are included."""
        with self._packing:
            distinct = {id(a): a for _, a in self._constants.values()}
        return sum(a.nbytes for a in distinct.values())


def _hint(name: str) -> str:
    return name.removeprefix("k_").rpartition("_")[0]


def _packed(value: Array, call: KernelCall, argument: int) -> Array | None:
    template = TEMPLATES[call.implementation.template]
    return template.pack(call.workload, call.implementation.schedule, argument, value)


def core_sources(threads: int) -> dict[str, str]:
    """Sources that every image for so many threads has, each with its hint."""
    return {core_source(name): name for name in core(threads)}


def sources(program: Program, segments: Iterable[Segment]) -> dict[str, str]:
    """Sources of the kernels of some segments, each with its hint."""
    names = {call.kernel for segment in segments for call in segment.rows}
    return {program.sources[name]: _hint(name) for name in sorted(names)}


def link(program: Program) -> Image:
    """The image of a program; of what is decided already, everything is built and packed."""
    with Building(program.target.processor) as building:
        return linked(program, building)


def linked(program: Program, building: Building, progress: Tell | None = None) -> Image:
    """The image of a program, of kernels that may be on their way; weights are packed meanwhile."""
    tell = progress or (lambda *_: None)
    linker, segments = Linker(program), list(program.segments())
    building.want(core_sources(program.threads) | sources(program, segments))
    for i, segment in enumerate(segments):
        tell("packing weights", i, len(segments))
        linker.constants(segment)
    building.finish(progress)
    image = Image(program, linker)
    for i, segment in enumerate(segments):
        tell("planning", i, len(segments))
        image.linked(segment)
    return image
