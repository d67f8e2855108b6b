"""Rewriting: one rule for every binding, one transform for every block, and a walk over all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from bucketize.ir.build import Builder, Env, copy_binding
from bucketize.ir.core import Atom, Binding, Function
from bucketize.ir.structure import IF

Atoms: TypeAlias = Atom | Sequence[Atom]
Rule: TypeAlias = Callable[[Builder, Binding, tuple[Atom, ...]], Atoms | None]


def all_bindings(fn: Function) -> Iterator[Binding]:
    """Every binding of a function, those of the blocks of an `If` behind it."""
    for b in fn.body:
        yield b
        for block in blocks_of(b).values():
            yield from all_bindings(block)


def blocks_of(b: Binding) -> dict[str, Function]:
    """The nested blocks of a binding: the branches of an `If`, by their attribute."""
    return {k: b.attrs[k] for k in ("then", "orelse")} if b.op is IF else {}


def rewrite(fn: Function, rule: Rule) -> Function:
    """`fn` rebuilt; where `rule` gives atoms, they stand for what the binding makes.

    The rule sees the new arguments and may emit bindings of its own. Branches of an `If` are
    rewritten by the same rule before it sees the `If` itself. Returns `fn` itself when the rule
    never answers.
    """
    out, changed = _rewrite_block(fn, rule, {})
    return out if changed else fn


def _rewrite_block(fn: Function, rule: Rule, env: Env) -> tuple[Function, bool]:
    out, changed = Builder(), False
    for b in fn.body:
        args = tuple(env.get(a, a) for a in b.args)
        if b.op is IF:
            halves = {k: _rewrite_block(f, rule, dict(env)) for k, f in blocks_of(b).items()}
            changed |= any(c for _, c in halves.values())
            new = Binding(b.outs, IF, args, {k: f for k, (f, _) in halves.items()})
        else:
            new = b
        before = len(out.body)
        made = rule(out, new, args)
        if made is not None:
            changed = True
            env.update(zip(b.outs, made if isinstance(made, Sequence) else (made,), strict=True))
            continue
        assert len(out.body) == before, "a rule that declines must not emit"
        if new is b:
            copy_binding(out, b, env)
        else:
            env.update(zip(b.outs, out.emit_all(IF, *args, **new.attrs), strict=True))
    return out.function(fn.name, fn.params, [env.get(r, r) for r in fn.results]), changed


def map_blocks(fn: Function, transform: Callable[[Function], Function]) -> Function:
    """`fn` with every nested block of an `If` transformed, the innermost first.

    A block sees the variables around it. Returns `fn` itself when no block changes.
    """

    def rule(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atoms | None:
        blocks = blocks_of(b)
        new = {k: transform(block) for k, block in blocks.items()}
        if all(new[k] is block for k, block in blocks.items()):
            return None
        return out.emit_all(IF, *args, **new)

    return rewrite(fn, rule)
