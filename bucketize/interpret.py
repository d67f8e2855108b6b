"""The reference interpreter: each binding by its op's own meaning. Slow, and the oracle of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bucketize.call import arrange_inputs, bind_shapes, refusal
from bucketize.errors import ShapeError, TypeRelError
from bucketize.ir import (
    CALL,
    FUSED,
    IF,
    ILLEGAL,
    NO_BUCKET,
    Atom,
    Binding,
    Const,
    Function,
    Module,
    check_module,
    substitute_attr,
)
from bucketize.op import Array


def run_function(
    fn: Function,
    args: Sequence[Array],
    module: Module | None = None,
    outer: Mapping[Atom, Array] | None = None,
    symbols: Mapping[str, int] | None = None,
) -> list[Array]:
    """The results of `fn`; `outer` and `symbols` are what a branch of an `if` sees around it."""
    dims = bind_shapes(fn.params, [a.shape for a in args], symbols)
    env: dict[Atom, Array] = {**(outer or {}), **dict(zip(fn.params, args, strict=True))}

    def value(atom: Atom) -> Array:
        return atom.value if isinstance(atom, Const) else env[atom]

    for b in fn.body:
        operands = [value(a) for a in b.args]
        if b.op is IF:
            branch = b.attrs["then" if operands[0] else "orelse"]
            outs = run_function(branch, (), module, env, dims)
        elif b.op is CALL:
            assert module is not None, "a call needs its module"
            outs = run_function(module.function(b.attrs["callee"]), operands, module)
        elif b.op in (NO_BUCKET, ILLEGAL):
            raise refusal(b, dims)
        else:
            outs = compute(b, operands, dims)
        env.update(zip(b.outs, outs, strict=True))
    return [value(r) for r in fn.results]


def compute(b: Binding, operands: Sequence[Array], sizes: Mapping[str, int]) -> list[Array]:
    """What one binding makes of its operands, by the meaning of its op or of its group.

    Errors name the op: ShapeErrors where numpy refuses these values, or memory does.
    """
    if b.op is FUSED:
        return run_function(b.attrs["body"], operands, symbols=sizes)
    attrs = {k: substitute_attr(v, sizes) for k, v in b.attrs.items()}
    try:
        return list(b.op.run(*operands, **attrs))
    except TypeRelError as e:
        e.add_note(f"in {b.op.name}({', '.join(str(a.type) for a in b.args)})")
        raise
    except (ValueError, IndexError, ArithmeticError, MemoryError) as e:
        raise ShapeError(f"in {b.op.name}: {e}") from e


def evaluate_module(module: Module, *args: Array, **named: Array) -> list[Array]:
    """The results of `main` by the reference meaning of every op."""
    check_module(module)
    return run_function(module.main, arrange_inputs(module.main.params, args, named), module)
