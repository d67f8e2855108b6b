"""What an executable does for given sizes: the path through the decisions, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bucketize.call import bind_shapes, no_bucket
from bucketize.errors import ShapeError, unknown_name
from bucketize.ir import Binding, Function
from bucketize.runtime.route import Compiled
from bucketize.runtime.segment import Segment, Step
from bucketize.runtime.vm import (
    Branch,
    Call,
    Code,
    Compute,
    Decide,
    Instruction,
    Refuse,
    RunSegment,
)
from bucketize.types import Symbol, evaluate


@dataclass
class Explanation:
    """The way that sizes take: `clone` serves them; `steps` are its kernels, in order."""

    sizes: dict[str, int]
    clone: str = "main"
    executor: str = "vm"
    path: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    arena_bytes: int = 0

    def __str__(self) -> str:
        sizes = ", ".join(f"{k}={v}" for k, v in self.sizes.items())
        lines = [f"{sizes}: {' -> '.join(self.path)} ({self.executor} executor)"]
        lines += [_line(s) for s in self.steps]
        return "\n".join([*lines, f"arena: {self.arena_bytes / 2**20:.1f} MiB"])


def _line(step: Mapping[str, Any]) -> str:
    knobs = " ".join(f"{k}={v}" for k, v in step["schedule"].items())
    return f"  {step['op']:<28} {step['shape']!s:<22} {step['kernel']:<12} {knobs}  [{step['why']}]"


def sizes_of(main: Function, given: Mapping[str, Any]) -> dict[str, int]:
    """Symbol sizes from input shapes (by input name) or sizes (by symbol name)."""
    params = {p.name: p for p in main.params}
    known = main.symbols()
    sizes: dict[str, int] = {}
    for name, value in given.items():
        if name in params:
            sizes |= bind_shapes([params[name]], [tuple(value)])
        elif name in known:
            sizes[name] = int(value)
        else:
            raise unknown_name("input or symbol", name, [*params, *known])
    missing = sorted(known.keys() - sizes.keys())
    if missing:
        raise ShapeError(f"the size of {', '.join(missing)} is missing; got {sizes or 'none'}")
    return sizes


def explain(name: str, sizes: dict[str, int], routine: Callable[[str], Compiled]) -> Explanation:
    """Follow the decisions from the function `name` down to kernels."""
    told = Explanation(dict(sizes))
    _follow(name, sizes, routine, told)
    return told


def _follow(
    name: str, sizes: dict[str, int], routine: Callable[[str], Compiled], told: Explanation
) -> None:
    compiled = routine(name)
    told.clone = name
    told.executor = type(compiled).__name__.lower().replace("routine", "vm")
    told.path.append(name)
    _walk(compiled.code, sizes, routine, told)


def _walk(
    code: Code, sizes: dict[str, int], routine: Callable[[str], Compiled], told: Explanation
) -> None:
    for instruction in code.instructions:
        if isinstance(instruction, Decide):
            block = instruction.choose(*(sizes[s] for s in instruction.symbols))
            _walk(instruction.blocks[block], sizes, routine, told)
        elif isinstance(instruction, Call):
            _enter_call(instruction, sizes, routine, told)
        else:
            _tell(instruction, sizes, told)


def _enter_call(
    call: Call, sizes: dict[str, int], routine: Callable[[str], Compiled], told: Explanation
) -> None:
    callee = call.binding.attrs["callee"]
    shapes = [tuple(evaluate(d, sizes) for d in a.type.shape) for a in call.binding.args]
    _follow(callee, bind_shapes(routine(callee).fn.params, shapes), routine, told)


def _tell(instruction: Instruction, sizes: dict[str, int], told: Explanation) -> None:
    if isinstance(instruction, Refuse):
        raise no_bucket(instruction.binding, sizes)
    if isinstance(instruction, Branch):
        told.path.append("a branch that depends on values")
    elif isinstance(instruction, Compute):
        told.steps.append(_host_step(instruction.binding))
    elif isinstance(instruction, RunSegment):
        known = all(s in sizes for s in instruction.segment.symbols)
        told.steps += [_step(s, sizes if known else {}) for s in instruction.segment.steps]
        if known:
            told.arena_bytes = max(told.arena_bytes, _arena(instruction.segment, sizes))


def _arena(segment: Segment, sizes: Mapping[str, int]) -> int:
    return segment.plan(sizes).arena_bytes


def _host_step(b: Binding) -> dict[str, Any]:
    data_dependent = b.op.shape_from_values is not None or b.op.reads
    why = "its shape depends on values" if data_dependent else "no template takes it"
    step = {"op": b.op.name, "shape": b.outs[0].type.shape, "kernel": "numpy", "schedule": {}}
    return {**step, "why": why}


def _step(step: Step, sizes: Mapping[str, int]) -> dict[str, Any]:
    members = [b.op.name for b in step.workload.body.body]
    shape = tuple(
        evaluate(d, sizes) if sizes or not isinstance(d, Symbol) else d
        for d in step.binding.out.type.shape
    )
    return {
        "op": "+".join(members),
        "shape": shape,
        "kernel": step.template.name,
        "schedule": dict(step.schedule),
        "why": step.source,
    }
