"""What a function computes whatever its bounds: by it a log is seen to be of other bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from bucketize.ir import Const, Function, Module, Var, all_bindings
from bucketize.types import Interval, Type, show_interval

SHOWN = 8  # intervals of a symbol


def source_of(mod: Module, name: str) -> Function:
    """What a clone specialises, as far as it is known; another function itself."""
    clone = mod.clones.get(name)
    return mod.functions[name] if clone is None or clone.origin is None else clone.origin


def graph_of(fn: Function) -> str:
    """A hash of its inputs, its ops on floats and its constants, without sizes that are bounded.

    Whatever bounds make simpler is left out: sizes computed as integers, and ops that stay dynamic.
    """
    inputs = [f"{p.name} {_kind(p.type)}" for p in fn.params]
    every = list(all_bindings(fn))
    ops = [b.op.name.removeprefix("dyn.") for b in every if any(map(_is_float, b.outs))]
    constants = sorted(
        str(a.type)
        for b in every
        for a in b.args
        if isinstance(a, Const) and _is_float(a) and len(a.type.shape) > 1
    )
    words = "\n".join([*inputs, *ops, *constants])
    return hashlib.sha256(words.encode()).hexdigest()[:16]


def bounds_of(fn: Function) -> str:
    """The bounds of its symbols, `N=1..32;S=8..512:8`; of those only that have any."""
    symbols = sorted(fn.symbols().values(), key=str)
    return ";".join(s.option for s in symbols if s.bounds != (0, None))


def dispatcher_of(mod: Module) -> str:
    """What a dispatcher decided, `N=1,2..3,4..;S=1..`, and by which policy; of many a few.

    Its name would tell less: it has options, and may be a lambda.
    """
    buckets = [clone.bucket for clone in mod.clones.values()]
    names = dict.fromkeys(name for bucket in buckets for name in bucket)
    texts = [f"{n}={_several({b[n] for b in buckets if n in b})}" for n in names]
    policies = {clone.policy for clone in mod.clones.values()} - {"exact"}
    return " ".join([";".join(texts), *sorted(policies)])


def _several(intervals: Collection[Interval]) -> str:
    """The intervals of a symbol from the lowest on."""
    in_order = sorted(intervals, key=lambda ends: (ends[0], ends[1] is None, ends[1]))
    texts = [show_interval(ends) for ends in in_order]
    if len(texts) > SHOWN:
        texts = [*texts[: SHOWN - 1], f"... {len(texts)} in all", texts[-1]]
    return ",".join(texts)


def _kind(type_: Type) -> str:
    return f"{type_.dtype} {len(type_.shape)}" if type_.is_tensor else str(type_)


def _is_float(atom: Var | Const) -> bool:
    return atom.type.is_tensor and atom.type.dtype.kind == "f"
