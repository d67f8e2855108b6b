"""Rewriting: one rule for every binding, one transform for every block, and a walk over all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from bucketize.errors import TypeRelError
from bucketize.ir.build import Builder, Env, copy_binding, illegal, taken_block
from bucketize.ir.core import Atom, Binding, Function
from bucketize.ir.structure import IF

Atoms: TypeAlias = Atom | Sequence[Atom]
Rule: TypeAlias = Callable[[Builder, Binding, tuple[Atom, ...]], Atoms | None]


def blocks_of(b: Binding) -> dict[str, Function]:
    """The nested blocks of a binding: the branches of an `If`, by their attribute."""
    return {k: b.attrs[k] for k in ("then", "orelse")} if b.op is IF else {}


def functions_of(b: Binding) -> dict[str, Function]:
    """The functions that a binding holds, blocks and groups, by their attribute."""
    return {k: v for k, v in b.attrs.items() if isinstance(v, Function)}


def all_bindings(
    fn: Function, inside: Callable[[Binding], dict[str, Function]] = blocks_of
) -> Iterator[Binding]:
    """Every binding of a function, those of what is `inside` of one behind it."""
    for b in fn.body:
        yield b
        for inner in inside(b).values():
            yield from all_bindings(inner, inside)


def rewrite(fn: Function, rule: Rule) -> Function:
    """`fn` rebuilt; where `rule` gives atoms, they stand for what the binding makes.

    The rule sees the new arguments and may emit bindings of its own. Branches of an `If` are
    rewritten by the same rule before it sees the `If` itself, but of one whose condition is known
    only the taken branch is, in place: what is refined on the way need not fit the other. Returns
    `fn` itself when the rule never answers and no condition is known.
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
        new, inside = _rewrite_branches(b, args, rule, env)
        before, out.origin = len(out.body), b.origin
        made = rule(out, new, args)
        if made is not None:
            env.update(zip(b.outs, made if isinstance(made, Sequence) else (made,), strict=True))
        else:
            assert len(out.body) == before, "a rule that declines must not emit"
            _repeat(out, new, env)
        changed |= inside or made is not None
    return changed


def _rewrite_branches(
    b: Binding, args: tuple[Atom, ...], rule: Rule, env: Env
) -> tuple[Binding, bool]:
    """`b` with its blocks rewritten, and whether one of them changed."""
    blocks, changed = dict[str, Function](), False
    for name, block in blocks_of(b).items():
        out, inner = Builder(), dict(env)
        try:
            changed |= _rewrite_block(out, block, rule, inner)
        except TypeRelError as e:
            blocks[name], changed = illegal(block, e), True
            continue
        results = [inner.get(r, r) for r in block.results]
        blocks[name] = out.function(block.name, block.params, results)
    return (Binding(b.outs, b.op, args, blocks, b.origin) if blocks else b), changed


def _repeat(out: Builder, b: Binding, env: Env) -> None:
    if b.op is IF:  # its arguments and blocks are new already
        env.update(zip(b.outs, out.emit_all(IF, *b.args, **b.attrs), strict=True))
    else:
        copy_binding(out, b, env)


def map_blocks(fn: Function, transform: Callable[[Function], Function]) -> Function:
    """`fn` with every nested block of an `If` transformed, the innermost first.

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
