"""What a call takes of memory, told before any is taken."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bucketize.call import refusal
from bucketize.errors import TypeRelError
from bucketize.ir import Var
from bucketize.program.instruction import (
    Branch,
    Call,
    Code,
    Decide,
    Instruction,
    Refuse,
    RunSegment,
    Segment,
)
from bucketize.program.path import PathStep, walk, way
from bucketize.runtime.vm import Context
from bucketize.types import Sizes, evaluate


@dataclass(frozen=True)
class Memory:
    """Bytes of a call at some sizes."""

    weights: int
    """Bytes of all constants linked so far, as kernels hold them: one copy for all calls."""
    arena: int
    """Between kernels. A context keeps the most that its calls took."""
    between: int
    """Bytes that native segments and host ops hand to each other; all of it lives until the end."""
    results: int
    unknown: tuple[str, ...] = ()
    """Ops whose results only a run can tell: they are not counted."""

    @property
    def of_call(self) -> int:
        """What a call takes beside weights and its inputs."""
        return self.arena + self.between + self.results

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "arena": self.arena,
            "between": self.between,
            "results": self.results,
        }
        shown = ", ".join(f"{name} {size / 2**20:.1f} MiB" for name, size in parts.items())
        left_out = f"; not counted: {', '.join(self.unknown)}" if self.unknown else ""
        return f"{shown}{left_out}"


def memory(context: Context, name: str, sizes: Sizes) -> Memory:
    """What a call of a function takes; `context` is used by no call meanwhile.

    Clones that serve the sizes are decided and linked, which packs their weights. Of branches that
    values decide the larger counts.

    Raises:
        NoBucketError, ShapeError or TypeRelError: what serves the sizes refuses them.

    """
    program = context.image.program
    its = _of_steps(context, way(program, name, sizes))
    results = _bytes(program.routines[name].fn.results, sizes) or 0
    weights = context.image.supply.constant_bytes()
    between = max(0, its.handed - results)
    return Memory(weights, its.arena, between, results, tuple(dict.fromkeys(its.unknown)))


class _Taken(NamedTuple):
    """What instructions take."""

    arena: int
    handed: int
    """Bytes that they hand on."""
    unknown: list[str]


def _of_steps(context: Context, steps: Iterable[PathStep]) -> _Taken:
    arena, handed, unknown = 0, 0, list[str]()
    written: int | None
    for instruction, sizes, _, is_decided in steps:
        if isinstance(instruction, Refuse):
            raise refusal(instruction.binding, dict(sizes))
        if isinstance(instruction, Call | Decide) or (
            isinstance(instruction, Branch) and is_decided
        ):
            continue  # what they hand on was made inside
        if isinstance(instruction, Branch):
            either = [_of_block(context, b, sizes) for b in (instruction.then, instruction.orelse)]
            taken, written = max(e.arena for e in either), max(e.handed for e in either)
            unknown += [name for each in either for name in each.unknown]
        elif isinstance(instruction, RunSegment):
            taken, written = _of_segment(context, instruction.segment, sizes)
        else:
            taken, written = 0, _bytes(_outs(instruction), sizes)
        if written is None:
            unknown.append(_name(instruction))
        arena, handed = max(arena, taken), handed + (written or 0)
    return _Taken(arena, handed, unknown)


def _of_block(context: Context, block: Code, sizes: Sizes) -> _Taken:
    """A block that values decide on; what is called at sizes that they bring is not known."""
    try:
        return _of_steps(context, walk(context.image.program, block, sizes))
    except TypeRelError:
        return _Taken(0, 0, ["call"])


def _name(instruction: Instruction) -> str:
    binding = getattr(instruction, "binding", None)
    return instruction.name if binding is None else binding.op.name


def _of_segment(context: Context, segment: Segment, sizes: Sizes) -> tuple[int, int | None]:
    """Bytes of its arena, and of the results that it writes; None if sizes are not known."""
    if not all(s in sizes for s in segment.symbols):
        return 0, None
    state = context.state(segment)
    state.measure(tuple(sizes[s] for s in state.plan.symbols))
    pairs = zip(state.plan.results, state.results, strict=True)
    own = (math.prod(shape) * dtype.itemsize for r, (shape, dtype) in pairs if r.source == "own")
    return state.needed, sum(own)


def _outs(instruction: Instruction) -> Iterator[Var]:
    binding = getattr(instruction, "binding", None)
    yield from getattr(instruction, "outs", ()) if binding is None else binding.outs


def _bytes(atoms: Iterable[object], sizes: Sizes) -> int | None:
    """Bytes of tensors; None if a shape is not known before a run."""
    total = 0
    for atom in atoms:
        type_ = atom.type  # type: ignore[attr-defined]
        if not type_.is_tensor:
            return None
        try:
            count = math.prod(evaluate(d, sizes) for d in type_.shape)
        except TypeRelError:  # a dim that no size tells
            return None
        total += count * type_.dtype.itemsize
    return total
