"""Dead code elimination: in each block one sweep from the results up."""

from __future__ import annotations

from collections.abc import KeysView
from dataclasses import replace

from bucketize.ir import Atom, Binding, Function, blocks_of, copy_block, map_blocks


def dead_code(fn: Function) -> Function:
    """`fn` without the bindings that no result needs, nor the result of a block."""
    return _sweep(map_blocks(fn, _sweep))  # the blocks first: what only dead code read is dead


def _sweep(fn: Function) -> Function:
    live = live_bindings(fn)
    if len(live) == len(fn.body):
        return fn
    kept = tuple(b for b in fn.body if b in live)
    return copy_block(replace(fn, body=kept), {}, fn.params)


def live_bindings(fn: Function) -> set[Binding]:
    """The bindings that the results need, nested blocks included as users."""
    needed: set[Atom] = set(fn.results)
    live: set[Binding] = set()
    for b in reversed(fn.body):
        if not needed.isdisjoint(b.outs):
            live.add(b)
            needed.update(used_atoms(b))  # keys on the right of |= would copy the set
    return live


def used_atoms(b: Binding) -> KeysView[Atom]:
    """What `b` reads, inside its blocks too, in order."""
    used = dict.fromkeys(b.args)
    for block in blocks_of(b).values():
        used |= dict.fromkeys((*block.results, *(a for i in block.body for a in used_atoms(i))))
    return used.keys()
