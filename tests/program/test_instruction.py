"""Instructions: one that only this file declares is printed, walked, saved, loaded and run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import bucketize
from bucketize import ops
from bucketize.errors import ProgramError
from bucketize.inspect.predict import predicted
from bucketize.ir import IF, Atom, Binding, Builder, Function, Module, Var
from bucketize.program.cut import Cutter
from bucketize.program.instruction import (
    KINDS,
    Code,
    Instruction,
    RunSegment,
    field_types,
    with_segments,
)
from bucketize.program.path import way
from bucketize.runtime.vm import RUN, Context, Registers
from bucketize.save.read import DECODE
from bucketize.save.write import ENCODE
from bucketize.types import Dim, Sizes, Symbol, evaluate, tensor

N = Symbol("N", 1, 32)
OWN = set(KINDS)
X = np.linspace(-2, 2, 5, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Mix(Instruction, name="mix", text="mix {share} of {condition}, {why} -> {outs}", note="both"):
    """The sum of two blocks, one of them so many times: no op of a model becomes this."""

    condition: Atom
    often: Code
    once: Code
    share: Dim
    why: str
    is_new: bool
    outs: tuple[Var, ...]

    def taken(self, sizes: Sizes) -> tuple[tuple[Code, int], ...]:
        """Both blocks."""
        return (self.often, evaluate(self.share, sizes)), (self.once, 1)


def run_mix(context: Context, i: Mix, registers: Registers, sizes: dict[str, int]) -> None:
    parts = [context.run(block, registers, sizes) for block in (i.often, i.once)]
    for out, often, once in zip(i.outs, *parts, strict=True):
        registers[out] = often * np.float32(evaluate(i.share, sizes)) + once


def model() -> Module:
    """One branch: `exp` of the input, or its square root."""
    x, flag = Var("x", tensor("float32", N)), Var("flag", tensor("bool"))
    blocks = []
    for op in (ops.exp, ops.relu):
        b = Builder()
        blocks.append(b.function("", [], [b.emit(op, x)]))
    b = Builder()
    (out,) = b.emit_all(IF, flag, then=blocks[0], orelse=blocks[1])
    return Module({"main": b.function("main", [x, flag], [out])})


@pytest.fixture
def exe(monkeypatch: pytest.MonkeyPatch) -> bucketize.Executable:
    """Compiled to the instruction of this file where a branch would be."""
    whole = Cutter._instructions

    def cut(
        self: Cutter, b: Binding, brings_sizes: bool, env: dict[Atom, Atom]
    ) -> Iterator[Instruction]:
        if b.op is not IF:
            yield from whole(self, b, brings_sizes, env)
            return
        blocks: list[Function] = [b.attrs["then"], b.attrs["orelse"]]
        often, once = (self.code(block, env) for block in blocks)
        yield Mix(b.args[0], often, once, N + 1, "for a test", True, b.outs)

    monkeypatch.setattr(Cutter, "_instructions", cut)
    monkeypatch.setitem(RUN, Mix, run_mix)
    return bucketize.compile(model())


def expected() -> np.ndarray:
    return np.exp(X) * 6 + np.maximum(X, 0)


def test_a_new_instruction_runs_and_is_printed(exe: bucketize.Executable) -> None:
    np.testing.assert_allclose(exe.run(X, np.array(True))[0], expected(), rtol=1e-5)
    assert str(exe.program).splitlines()[1:10] == [
        "main(x: float32[N], flag: bool[]) on the vm executor",
        "  mix N + 1 of %flag: bool[], for a test -> %2: float32[N]",
        "  often",
        "    run segment 0 on %x: float32[N] -> %3: float32[N]",
        "    return %3: float32[N]",
        "  once",
        "    run segment 1 on %x: float32[N] -> %4: float32[N]",
        "    return %4: float32[N]",
        "  return %2: float32[N]",
    ]


def test_a_new_instruction_is_walked(exe: bucketize.Executable) -> None:
    routine = exe.program.routines["main"]
    assert len(list(routine.segments())) == len(list(routine.calls())) == 2
    steps = list(way(exe.program, "main", {"N": 5}))
    assert [type(s.instruction) for s in steps] == [Mix, RunSegment, RunSegment]
    assert [s.times for s in steps] == [1, 6, 1]
    assert [k.times for k in predicted(exe.program, {"N": 5}).kernels] == [6, 1]
    told = exe.explain(N=5)
    assert told.path == ["main", "both"]
    assert [step["op"] for step in told.steps] == ["exp", "relu"]
    same = with_segments(routine.code, lambda s: s)
    assert same is routine.code
    others = {s: type(s)(s.fn, s.every) for s in routine.segments()}
    renewed = with_segments(routine.code, others.__getitem__)
    (mix,) = renewed.instructions
    assert [block.instructions[0].segment for _, block in mix.blocks()] == list(others.values())


def test_a_new_instruction_is_saved_and_loaded(exe: bucketize.Executable, tmp_path: Path) -> None:
    exe.save(tmp_path / "m.bkt")
    again = bucketize.load(tmp_path / "m.bkt")
    assert again.program == exe.program
    (mix,) = again.program.routines["main"].code.instructions
    assert isinstance(mix, Mix)
    assert (mix.why, mix.is_new, str(mix.share)) == ("for a test", True, "N + 1")
    flag = np.array(True)
    np.testing.assert_array_equal(again.run(X, flag)[0], exe.run(X, flag)[0])


def test_an_unknown_instruction_is_an_error(
    exe: bucketize.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe.save(tmp_path / "m.bkt")
    monkeypatch.delitem(KINDS, "mix")
    with pytest.raises(ProgramError, match=r"does not hold together \(KeyError: 'mix'\)"):
        bucketize.load(tmp_path / "m.bkt").run(X, np.array(True))
    monkeypatch.delitem(RUN, Mix)
    with pytest.raises(KeyError, match="Mix"):
        exe.run(X, np.array(True))


def test_all_that_is_declared_is_run_and_saved() -> None:
    names = {"run", "compute", "read_sizes", "call", "branch", "decide", "loop", "refuse"}
    assert names == OWN, "files of before have these"
    assert {KINDS[name] for name in OWN} == RUN.keys()
    assert ENCODE.keys() - DECODE.keys() == {Binding}, "the facts of an op stand in the step"
    for name in OWN:
        kinds = set(field_types(name).values())
        assert all(k in ENCODE or k.__args__[0] in ENCODE for k in kinds), name
