"""The reference interpreter: each binding by its op's own meaning. Slow, and the oracle of all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bucketize.call import arrange_inputs, bind_shapes, check_memory, refusal, shapes_of, too_deep
from bucketize.errors import ShapeError, TypeRelError
from bucketize.ir import (
    CALL,
    FUSED,
    IF,
    ILLEGAL,
    LOOP,
    NO_BUCKET,
    Atom,
    Binding,
    Const,
    Function,
    Module,
    Var,
    check_module,
    substitute_attr,
)
from bucketize.op import Array, Value
from bucketize.types import AnyDim, Dim, evaluate, symbols


def run_function(
    fn: Function,
    args: Sequence[Value],
    module: Module | None = None,
    outer: Mapping[Atom, Value] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> list[Value]:
    """The results of `fn`; `outer` and `sizes` are what a nested block sees around it."""
    dims = bind_shapes(fn.params, shapes_of(args), sizes)
    _check_told(fn, dims)
    taken = 0
    env: dict[Atom, Value] = {**(outer or {}), **dict(zip(fn.params, args, strict=True))}

    def value(atom: Atom) -> Value:
        return atom.value if isinstance(atom, Const) else env[atom]

    for b in fn.body:
        operands = [value(a) for a in b.args]
        if b.op is IF:
            branch = b.attrs["then" if operands[0] else "orelse"]
            outs = run_function(branch, (), module, env, dims)
        elif b.op is LOOP:
            outs = _run_loop(b, operands, module, env, dims)
        elif b.op is CALL:
            assert module is not None, "a call needs its module"
            outs = run_function(module.function(b.attrs["callee"]), operands, module)
            bind_shapes(b.outs, [o.shape for o in outs], dims, "result")
        elif b.op in (NO_BUCKET, ILLEGAL):
            raise refusal(b, dims)
        else:
            outs = compute(b, operands, dims, taken)
        taken += sum(o.nbytes for o in outs if isinstance(o, np.ndarray))
        env.update(zip(b.outs, outs, strict=True))
    return [value(r) for r in fn.results]


def _check_told(fn: Function, sizes: Mapping[str, int]) -> None:
    """Raise ShapeError if there is no memory for all results that the sizes tell of.

    All of them are kept to the end; none is computed yet.
    """
    taken = 0
    for b in fn.body:
        results = [(shape, o.type.dtype) for o in b.outs if (shape := _told(o, sizes)) is not None]
        taken = _held(b, results, taken)


def _told(out: Var, sizes: Mapping[str, int]) -> list[int] | None:
    """The shape of a result, if sizes tell it."""
    try:
        return [evaluate(d, sizes) for d in out.type.shape] if out.type.is_tensor else None
    except TypeRelError:  # what only a run can tell, or no run at these sizes will make
        return None


def _held(b: Binding, results: Iterable[tuple[Sequence[int], np.dtype[Any]]], taken: int) -> int:
    """The bytes of `check_memory`; an error names the op."""
    try:
        return check_memory(results, taken)
    except ShapeError as e:
        raise ShapeError(f"in {b.op.name}: {e}") from None


def _run_loop(
    b: Binding,
    operands: Sequence[Value],
    module: Module | None,
    outer: Mapping[Atom, Value],
    sizes: Mapping[str, int],
) -> list[Value]:
    trips, proceed, *carried = operands
    rounds: list[list[Value]] = []
    while proceed and len(rounds) < trips:
        args = [np.asarray(len(rounds)), *carried]
        proceed, *results = run_function(b.attrs["body"], args, module, outer, sizes)
        carried, rows = results[: len(carried)], results[len(carried) :]
        rounds.append(rows)
    return [*carried, *stacked(b.outs[len(carried) :], rounds, sizes)]


def stacked(
    outs: Sequence[Var], rounds: Sequence[Sequence[Array]], sizes: Mapping[str, int]
) -> list[Array]:
    """The rows of all rounds of a loop, one array for each of `outs`.

    Of no round, an extent that only rounds could tell is 0. Raises ShapeError where rows differ.
    """
    if not rounds:
        shapes = [[_extent(d, sizes) for d in o.type.axes[1:]] for o in outs]
        return [np.zeros((0, *s), o.type.dtype) for o, s in zip(outs, shapes, strict=True)]
    return [_stacked(o, [row[i] for row in rounds]) for i, o in enumerate(outs)]


def _stacked(out: Var, rows: Sequence[Array]) -> Array:
    try:
        return np.stack(rows)
    except ValueError as e:
        shapes = dict.fromkeys(str(r.shape) for r in rows)
        raise ShapeError(f"in loop: rows of {out!r} differ: {' and '.join(shapes)}") from e


def _extent(dim: Dim, sizes: Mapping[str, int]) -> int:
    named = not isinstance(dim, AnyDim) and all(s.name in sizes for s in symbols(dim))
    return evaluate(dim, sizes) if named else 0


def compute(
    b: Binding, operands: Sequence[Value], sizes: Mapping[str, int], taken: int = 0
) -> list[Value]:
    """What one binding makes of its operands, by the meaning of its op or of its group.

    Errors name the op: ShapeErrors where numpy refuses these values, or memory does, in which
    `taken` bytes are held already.
    """
    if b.op is FUSED:
        return run_function(b.attrs["body"], operands, sizes=sizes)
    attrs = {k: substitute_attr(v, sizes) for k, v in b.attrs.items()}
    try:
        if not b.is_ranked and b.op.relation is None:  # what types would have told, they tell now
            b.op.infer(*(Const(a).type for a in operands), **attrs)
        if b.op.relation is None and b.op.shape_from_values is None:
            shapes = b.op.run_time_shapes(*operands, **attrs)
            _held(b, zip(shapes, (o.type.dtype for o in b.outs), strict=True), taken)
        try:
            return list(b.op.run(*operands, **attrs))
        except ValueError:  # our words for shapes that do not fit, if that is it
            if b.op.relation is None:
                b.op.run_time_shapes(*operands, **attrs)
            raise
    except TypeRelError as e:
        node = f" (node {'+'.join(b.origin)})" if b.origin else ""
        e.add_note(f"in {b.op.name}({', '.join(str(a.type) for a in b.args)}){node}")
        raise
    except (ValueError, IndexError, ArithmeticError, MemoryError) as e:
        raise ShapeError(f"in {b.op.name}: {e}") from e


def evaluate_module(module: Module, /, *args: Value, **named: Value) -> list[Value]:
    """The results of `main` by the reference meaning of every op."""
    check_module(module)
    inputs = arrange_inputs(module.main.params, args, named)
    try:
        return run_function(module.main, inputs, module)
    except RecursionError as e:
        raise too_deep() from e
