"""Rewriting: one rule, applied to every binding of a function and of its nested blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from bucketize.ir.build import Builder, Env, copy_binding
from bucketize.ir.core import Atom, Binding, Function
from bucketize.ir.structure import IF

Rule: TypeAlias = Callable[[Builder, Binding, tuple[Atom, ...]], Atom | None]


def rewrite(fn: Function, rule: Rule) -> Function:
    """`fn` rebuilt; where `rule` gives an atom, that atom stands for the binding.

    The rule sees the new arguments and may emit bindings of its own. Branches of an `If` are
    rewritten by the same rule. Returns `fn` itself when the rule never answers.
    """
    env: Env = {}
    out, changed = _rewrite_block(fn, rule, env)
    return out if changed else fn


def _rewrite_block(fn: Function, rule: Rule, env: Env) -> tuple[Function, bool]:
    out, changed = Builder(), False
    for b in fn.body:
        args = tuple(env.get(a, a) for a in b.args)
        if b.op is IF:
            halves = {k: _rewrite_block(b.attrs[k], rule, dict(env)) for k in ("then", "orelse")}
            changed |= any(c for _, c in halves.values())
            made = out.emit_all(IF, *args, **{k: f for k, (f, _) in halves.items()})
            env.update(zip(b.outs, made, strict=True))
            continue
        before = len(out.body)
        atom = rule(out, b, args)
        if atom is None:
            assert len(out.body) == before, "a rule that declines must not emit"
            copy_binding(out, b, env)
        else:
            changed, env[b.out] = True, atom
    return out.function(fn.name, fn.params, [env.get(r, r) for r in fn.results]), changed
