"""The way that sizes take through a program: past decisions and calls, down to the clone's code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bucketize.call import bind_shapes
from bucketize.program.instruction import Call, Code, Decide, Instruction, Loop
from bucketize.program.program import Program
from bucketize.types import AnyDim, Dim, Sizes, evaluate, symbols


class Step(NamedTuple):
    """An instruction on the way."""

    instruction: Instruction
    sizes: Sizes
    """Those that are known there."""
    times: int = 1
    """How often it is run: in a loop, once for each round, or once if only a run tells."""


def way(program: Program, name: str, sizes: Sizes) -> Iterator[Step]:
    """The instructions that a call of a function comes to, with the sizes there.

    After a `Call` come the instructions of the callee, at its own sizes, after a `Loop` those of a
    round, at the sizes that are known before it.
    """
    yield from _walk(program, program.routines[name].code, sizes)


def _walk(program: Program, code: Code, sizes: Sizes) -> Iterator[Step]:
    for instruction in code.instructions:
        if isinstance(instruction, Decide):
            leaf = instruction.leaves[instruction.leaf(sizes)]
            yield from _walk(program, leaf, sizes)
            continue
        yield Step(instruction, sizes)
        if isinstance(instruction, Loop):
            times = _known(instruction.rounds, sizes)
            for step in _walk(program, instruction.body, sizes):
                yield step._replace(times=times * step.times)
        if isinstance(instruction, Call):
            b = instruction.binding
            callee = program.routines[b.attrs["callee"]]
            known = [(p, a) for p, a in zip(callee.params, b.args, strict=True) if a.type.is_tensor]
            shapes = [tuple(evaluate(d, sizes) for d in a.type.shape) for _, a in known]
            yield from way(program, callee.name, bind_shapes([p for p, _ in known], shapes))


def _known(rounds: Dim, sizes: Sizes) -> int:
    known = not isinstance(rounds, AnyDim) and all(s.name in sizes for s in symbols(rounds))
    return evaluate(rounds, sizes) if known else 1
