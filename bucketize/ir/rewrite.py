"""Rewriting: one rule for every binding, one transform for every block, and a walk over all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from bucketize.ir.build import Builder, Env, blocks_of, copy_binding, remade, taken_block
from bucketize.ir.core import Atom, Binding, Function, Var
from bucketize.ir.structure import IF

Atoms: TypeAlias = Atom | Sequence[Atom]
Rule: TypeAlias = Callable[[Builder, Binding, tuple[Atom, ...]], Atoms | None]


def functions_of(b: Binding) -> dict[str, Function]:
    """The functions that a binding holds, blocks and groups, by their attribute."""
    return {k: v for k, v in b.attrs.items() if isinstance(v, Function)}


def all_bindings(
    fn: Function, inside: Callable[[Binding], dict[str, Function]] = blocks_of
) -> Iterator[Binding]:
    """Every binding of a function, those of what is `inside` of one behind it."""
    waiting = [*reversed(fn.body)]
    while waiting:
        b = waiting.pop()
        yield b
        for inner in reversed(inside(b).values()):
            waiting += reversed(inner.body)


def rewrite(fn: Function, rule: Rule) -> Function:
    """`fn` rebuilt; where `rule` gives atoms, they stand for what the binding makes.

    The rule sees the new arguments and may emit bindings of its own. Branches of an `If` and bodies
    of loops are rewritten by the same rule before it sees these themselves, a body as often as its
    types change, but of an `If` whose condition is known only the taken branch is, in place: what
    is refined on the way need not fit the other. Returns `fn` itself when the rule never answers
    and no condition is known.
    """
    out, env = Builder(), Env()
    changed = _rewrite_block(out, fn, rule, env)
    return out.function(fn.name, fn.params, [env.get(r, r) for r in fn.results]) if changed else fn


def _rewrite_block(out: Builder, fn: Function, rule: Rule, env: Env) -> bool:
    """Emit the bindings of `fn` as rewritten, and note in `env` what they have become."""
    changed = False
    for b in fn.body:
        args = tuple(env.get(a, a) for a in b.args)
        if b.op is IF and (block := taken_block(b, args[0])):
            _rewrite_block(out, block, rule, env)
            env.update(zip(b.outs, [env.get(r, r) for r in block.results], strict=True))
            changed = True
            continue
        new, inside = _rewrite_inside(b, args, rule, env)
        before, out.origin = len(out.body), b.origin
        atoms = rule(out, new, args)
        if atoms is not None:
            env.update(zip(b.outs, atoms if isinstance(atoms, Sequence) else (atoms,), strict=True))
        else:
            assert len(out.body) == before, "a rule that declines must not emit"
            _repeat(out, new, env)
        changed |= inside or atoms is not None
    return changed


def _rewrite_inside(
    b: Binding, args: tuple[Atom, ...], rule: Rule, env: Env
) -> tuple[Binding, bool]:
    """`b` with its blocks rewritten, and whether one of them changed."""
    same: set[Function] = set()

    def make(block: Function, params: tuple[Var, ...]) -> Function:
        out, inner = Builder(), env | dict(zip(block.params, params, strict=True))
        changed = _rewrite_block(out, block, rule, inner)
        rewritten = out.function(block.name, params, [inner.get(r, r) for r in block.results])
        same.update(() if changed else (rewritten,))
        return rewritten

    blocks = remade(b, args, make)
    changed = not same.issuperset(blocks.values())
    return (Binding(b.outs, b.op, args, blocks, b.origin) if blocks else b), changed


def _repeat(out: Builder, b: Binding, env: Env) -> None:
    if blocks_of(b):  # its arguments and blocks are new already
        env.update(zip(b.outs, out.emit_all(b.op, *b.args, **b.attrs), strict=True))
    else:
        copy_binding(out, b, env)


def map_blocks(fn: Function, transform: Callable[[Function], Function]) -> Function:
    """`fn` with every nested block of its bindings transformed, the innermost first.

    A block sees the variables around it. Returns `fn` itself when no block changes.
    """
    body = tuple(_with_blocks(b, transform) for b in fn.body)
    if body == fn.body:
        return fn
    out, env = Builder(), Env()
    for b in body:
        copy_binding(out, b, env)
    return out.function(fn.name, fn.params, [env.get(r, r) for r in fn.results])


def _with_blocks(b: Binding, transform: Callable[[Function], Function]) -> Binding:
    old = blocks_of(b)
    new = {k: transform(map_blocks(block, transform)) for k, block in old.items()}
    return b if new == old else Binding(b.outs, b.op, b.args, new, b.origin)
