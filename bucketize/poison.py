"""Whether a padded clone lets through what is behind the true extent: its padding poisoned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bucketize.compare import relative_error
from bucketize.compiler import compile
from bucketize.errors import DispatchError
from bucketize.ir import Atom, Binding, Builder, Clone, Function, Module, rewrite
from bucketize.op import Array, Fill
from bucketize.ops.shape import pad
from bucketize.types import Interval, Sizes, Symbol, Symbolic, symbols

POISONS = ("zero", "nan", "inf", "-inf", "huge")
TOLERANCE = {8: 1e-4, 4: 1e-4, 2: 2e-2}  # by the bytes of a float: sums are in another order


@dataclass(frozen=True, slots=True)
class Leak:
    """An output that differs from that of the exact run."""

    clone: str
    sizes: Sizes
    output: str
    poison: str
    error: float
    """Relative to the greatest magnitude; infinite where NaN or an infinity is in one alone."""


def check_padding(
    mod: Module, padded: Module, inputs: Callable[[Sizes], Mapping[str, Array]]
) -> list[Leak]:
    """Compare padded clones, their padding poisoned, with the module that was dispatched.

    Each is run at the least sizes of its bucket and just below its top, with zero, NaN, both
    infinities and a huge number behind the true extent. Integers get the greatest and the least
    that the inputs hold, which are as legal as these. An input whose zeros the proof relies on
    keeps them.

    Args:
        mod: the module, not dispatched.
        padded: what `dispatch(mod, ..., policy="pad")` made of it.
        inputs: makes the arrays, by input, of sizes by symbol.

    Returns:
        The outputs that differ; empty where nothing leaks.

    Raises:
        DispatchError: there is no padded clone.

    """
    clones = {n: c for n, c in padded.clones.items() if c.policy == "pad"}
    if not clones:
        raise DispatchError('no clone is padded: dispatch the module with policy="pad"')
    own = mod.main.symbols()
    cases = [(n, at, inputs(at)) for n, c in clones.items() for at in _points(c, own)]
    exact = compile(mod)
    wanted = [exact.run(**arrays) for _, _, arrays in cases]
    leaks = []
    for poison in POISONS:
        exe = compile(poisoned(padded, poison, [arrays for _, _, arrays in cases]))
        for (name, at, arrays), want in zip(cases, wanted, strict=True):
            for out, got, right in zip(mod.outputs, exe.run(**arrays), want, strict=True):
                error = relative_error(got, right)
                if error > TOLERANCE.get(right.dtype.itemsize, 0.0):
                    leaks.append(Leak(name, at, out, poison, error))
    return leaks


def poisoned(mod: Module, poison: str, arrays: Sequence[Mapping[str, Array]]) -> Module:
    """A padded module with another value than zero behind the true extents of its inputs."""
    kept = {name for c in mod.clones.values() if c.origin for name in _relied_on(c.origin)}

    def rule(out: Builder, b: Binding, args: tuple[Atom, ...]) -> Any:
        if b.op is not pad or args[0].name in kept:  # type: ignore[union-attr]
            return None
        dtype = args[0].type.dtype
        given = [each[args[0].name] for each in arrays]  # type: ignore[union-attr]
        return out.emit(pad, *args, **{**b.attrs, "value": _value(poison, dtype, given)})

    return mod.replace(rewrite(mod.main, rule))


def _value(poison: str, dtype: np.dtype[Any], given: Sequence[Array]) -> float | int:
    if poison == "zero":
        return 0
    if dtype.kind in "iub":
        ends = (
            min(int(a.min(initial=0)) for a in given),
            max(int(a.max(initial=0)) for a in given),
        )
        return ends[poison != "-inf"]
    if poison == "huge":
        return 1e30 if dtype.itemsize > 2 else 6e4
    return float(poison)


def _relied_on(fn: Function) -> Iterator[str]:
    """The inputs whose padding has to be zero: no mask is put where the dispatch has put zeros."""
    for b in fn.body:
        shapes = [a.type.shape for a in b.args if a.type.is_tensor]
        for i, arg in enumerate(b.args):
            if arg not in fn.params or len(shapes) != len(b.args):
                continue
            grown = [
                n for n, d in enumerate(arg.type.shape) if isinstance(d, Symbolic) and symbols(d)
            ]
            rules = (b.op.padding(i, axis, *shapes, **b.attrs) for axis in grown)
            if any(isinstance(r, Fill) and r.value == 0 for r in rules):
                yield arg.name


def _points(clone: Clone, own: Mapping[str, Symbol]) -> Iterator[dict[str, int]]:
    """The least sizes of a bucket of symbols, and where all are just below the top."""
    low = {n: lo for n, (lo, _) in clone.bucket.items()}
    high = {n: _below_top(interval, own[n].step) for n, interval in clone.bucket.items()}
    yield low
    if high != low:
        yield high


def _below_top(interval: Interval, step: int) -> int:
    """The last multiple of an interval but one; the first where there is no other."""
    lo, hi = interval
    return max(lo, ((hi or lo + 1) - 1) // step * step - step)
