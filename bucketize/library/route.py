"""What a program computes at which sizes: for a library, one segment behind a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bucketize.errors import ProgramError
from bucketize.ir import Var
from bucketize.program.instruction import Call, Code, Decide, Refuse, RunSegment, Segment
from bucketize.program.program import Program, Routine
from bucketize.types import Dim, Symbol, TensorType


@dataclass(frozen=True)
class Route:
    """A segment, and how it is called from outside."""

    segment: Segment
    inputs: tuple[int, ...]
    """Of the model, in the order of the segment's parameters."""
    outputs: tuple[int, ...]
    """Of the segment's results, in the order of the model's outputs."""
    symbols: Mapping[str, str]
    """The model's symbol of each of the clone's."""


@dataclass(frozen=True)
class Routes:
    """Where sizes lead."""

    nodes: tuple[int, ...]
    """As `program.decision_table` has them, over the model's symbols."""
    leaves: tuple[Route | str, ...]
    """Or why a clone cannot be called."""


def routes_of(program: Program) -> Routes:
    """The routes of a program.

    Raises ProgramError, which names the operator, if anything but native segments is on the way.
    """
    main = program.decide("main")
    symbols = list(dict.fromkeys(s.name for p in main.params for s in p.type.symbols()))
    own = dict(zip(symbols, symbols, strict=True))
    if not all(isinstance(p.type, TensorType) for p in main.params):
        raise ProgramError("a library takes tensors, no sequences and nothing that may be absent")
    code = main.code
    match code.instructions:
        case (Decide() as decide,) if code.results == decide.outs:
            nodes = list(decide.nodes)
            for i in range(0, len(nodes), 4):
                nodes[i] = symbols.index(decide.symbols[nodes[i]])
            leaves = [decide.leaves[k] for k in range(len(decide.leaves))]
            return Routes(tuple(nodes), tuple(_behind(program, main, c, own) for c in leaves))
    return Routes((), (_behind(program, main, code, own),))


def _behind(
    program: Program, routine: Routine, code: Code, symbols: Mapping[str, str]
) -> Route | str:
    """What a block comes to: a segment, a call of a clone, or an error of these sizes."""
    match code.instructions:
        case (RunSegment() as run,) if set(code.results) <= set(run.outs):
            if all(a in routine.fn.params for a in run.args):
                inputs = tuple(routine.fn.params.index(a) for a in run.args)
                outputs = tuple(run.outs.index(r) for r in code.results)
                if len(set(outputs)) == len(run.outs):
                    return Route(run.segment, inputs, outputs, symbols)
        case (Call() as call,) if call.args == routine.fn.params and code.results == call.outs:
            callee = program.decide(call.callee)
            return _behind(program, callee, callee.code, _symbols(routine, callee, symbols))
        case (Refuse(),):
            return "the model is not legal at these sizes"
    raise ProgramError(f"{routine.name} is no native code alone{_culprit(code)}: no library has it")


def _culprit(code: Code) -> str:
    """The operator that is in the way."""
    bindings = [getattr(i, "binding", None) for i in code.instructions]
    ops = dict.fromkeys(b.op.name for b in bindings if b is not None)
    others = dict.fromkeys(i.name for i in code.instructions if not isinstance(i, RunSegment))
    if ops:
        return f" (numpy computes {', '.join(ops)})"
    if not set(code.results) <= {out for i in code.instructions for out in getattr(i, "outs", ())}:
        return " (a result is an input, or a constant)"
    return f" ({', '.join(others)})" if others else ""


def _symbols(caller: Routine, callee: Routine, symbols: Mapping[str, str]) -> Mapping[str, str]:
    """The model's symbol of each of the callee's, by where it stands in an input."""
    of_model: dict[str, str] = {}
    for theirs, ours in zip(callee.params, caller.params, strict=True):
        for inner, outer in zip(_dims(theirs), _dims(ours), strict=True):
            if isinstance(inner, Symbol) and isinstance(outer, Symbol):
                of_model.setdefault(inner.name, symbols[outer.name])
    return of_model


def _dims(param: Var) -> Sequence[Dim]:
    return param.type.shape
