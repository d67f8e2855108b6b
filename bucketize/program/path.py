"""The way that sizes take through a program: past decisions and calls, down to the clone's code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from bucketize.call import bind_shapes
from bucketize.interpret import run_function
from bucketize.program.instruction import Branch, Call, Code, Instruction, RunSegment
from bucketize.program.program import Program
from bucketize.transform.dead_code import dead_code
from bucketize.types import Sizes, evaluate


class PathStep(NamedTuple):
    """An instruction on the way."""

    instruction: Instruction
    sizes: Sizes
    """Sizes that are known there."""
    times: int = 1
    """How often it is run: in a loop, once for each round, or once if only a run tells."""
    is_decided: bool = False
    """Whether the sizes tell which of its blocks is run."""


def way(program: Program, name: str, sizes: Sizes) -> Iterator[PathStep]:
    """The instructions that a call of a function comes to, with the sizes there.

    After a `Call` come the instructions of the callee, at its own sizes, after others those of the
    blocks that they are known to run, at the sizes that are known before.
    """
    return walk(program, program.routines[name].code, sizes)


def clone_at(program: Program, name: str, sizes: Sizes) -> str:
    """The function that a call of another begins with: what serves the sizes now, or itself.

    What comes behind is not looked at.
    """
    steps = (step.instruction for step in way(program, name, sizes))
    calls = (step.callee for step in steps if isinstance(step, Call))
    return next((program.routines.serving(callee).name for callee in calls), name)


def walk(program: Program, code: Code, sizes: Sizes) -> Iterator[PathStep]:
    """The instructions that a run of `code` comes to, with the sizes there."""
    for instruction in code.instructions:
        blocks = instruction.taken(sizes) or _chosen(code, instruction, sizes)
        yield PathStep(instruction, sizes, is_decided=bool(blocks))
        for block, times in blocks:
            for step in walk(program, block, sizes):
                yield step._replace(times=times * step.times)
        if isinstance(instruction, Call):
            callee = program.routines.serving(instruction.callee)
            pairs = zip(callee.params, instruction.args, strict=True)
            tensors = [(p, a) for p, a in pairs if a.type.is_tensor]
            shapes = [tuple(evaluate(d, sizes) for d in a.type.shape) for _, a in tensors]
            inside = bind_shapes([p for p, _ in tensors], shapes)
            yield from walk(program, callee.code, inside)


def _chosen(code: Code, instruction: Instruction, sizes: Sizes) -> tuple[tuple[Code, int], ...]:
    """The branch that is taken where what makes its condition reads sizes alone."""
    if not isinstance(instruction, Branch):
        return ()
    for before in code.instructions:
        if isinstance(before, RunSegment) and instruction.condition in before.outs:
            segment = before.segment
            if not before.args and all(s in sizes for s in segment.symbols):
                condition = segment.fn.results[before.outs.index(instruction.condition)]
                alone = dead_code(replace(segment.fn, results=(condition,)))
                (holds,) = run_function(alone, (), sizes=sizes)
                return ((instruction.then if holds else instruction.orelse, 1),)
    return ()
