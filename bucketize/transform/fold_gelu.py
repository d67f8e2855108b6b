"""The activation that exporters write as five ops, `x * 0.5 * (1 + erf(x / sqrt(2)))`, as one.

Which factors are multiplied first differs from exporter to exporter. Of gelu: Hendrycks and Gimpel,
Gaussian error linear units, 2016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bucketize.ir import Atom, Binding, Builder, Const, Function, all_bindings, rewrite
from bucketize.ops.elementwise.activation import gelu
from bucketize.ops.elementwise.arithmetic import add, div, erf, mul

DTYPES = ("float32", "float64")
"""Where it is one op or five alike: five that are shorter round five times."""
ALIKE = 1e-6
"""How far a constant may be from what it stands for, relative: exporters round them."""


def fold_gelu(fn: Function) -> Function:
    """`fn` with gelu where it is written as five ops; who reads one of the five still does."""
    if not any(b.op is erf for b in all_bindings(fn)):
        return fn
    matcher = _Matcher()
    new = rewrite(fn, matcher.rule)
    return new if matcher.folded else fn


@dataclass
class _Matcher:
    """Looks back from a product at what its factors were made by."""

    makers: dict[Atom, Binding] = field(default_factory=dict)
    folded: bool = False

    def rule(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
        """What stands for the result of a binding."""
        if b.op not in (mul, div, erf, add) or not b.is_ranked or b.out.type.dtype not in DTYPES:
            return None
        steps: list[Binding] = []
        x = self._input(Binding(b.outs, b.op, args, b.attrs, b.origin), steps)
        if x is not None and x.type.shape == b.out.type.shape:
            self.folded = True
            out.origin = tuple(dict.fromkeys(n for step in reversed(steps) for n in step.origin))
            return out.emit(gelu, x)
        y = out.emit(b.op, *args, **b.attrs)
        self.makers[y] = out.body[-1]
        return y

    def _input(self, b: Binding, steps: list[Binding]) -> Atom | None:
        """The x of a binding that makes gelu(x), by `steps`, of which it is the first."""
        steps.append(b)
        scale = 1.0
        if scaled := _scaled(b):
            by, product = self._factor(scaled[1], steps)
            scale, maker = scaled[0] * by, self.makers.get(product)
            if maker is None:
                return None
            steps.append(b := maker)
        if b.op is not mul or _scaled(b):
            return None
        factors = [self._factor(a, steps) for a in b.args]
        (s, u), (t, v) = factors
        if not math.isclose(scale * s * t, 0.5, rel_tol=ALIKE):
            return None
        pairs = ((u, v), (v, u))
        return next((x for x, sum_ in pairs if self._is_sum(sum_, x, steps)), None)

    def _factor(self, atom: Atom, steps: list[Binding]) -> tuple[float, Atom]:
        """An atom as a number times another one."""
        scale = 1.0
        while (b := self.makers.get(atom)) and (scaled := _scaled(b)):
            steps.append(b)
            scale, atom = scale * scaled[0], scaled[1]
        return scale, atom

    def _is_sum(self, atom: Atom, x: Atom, steps: list[Binding]) -> bool:
        """Whether an atom is 1 + erf(x / sqrt(2))."""
        b = self.makers.get(atom)
        if b is None or b.op is not add:
            return False
        (inner, one), (other, first) = b.args, b.args[::-1]
        e = inner if _number(one) == 1 else other if _number(first) == 1 else None
        maker = None if e is None else self.makers.get(e)
        if maker is None or maker.op is not erf:
            return False
        steps += [b, maker]
        scale, of = self._factor(maker.args[0], steps)
        return of is x and math.isclose(scale, math.sqrt(0.5), rel_tol=ALIKE)


def _scaled(b: Binding) -> tuple[float, Atom] | None:
    """The number that a binding multiplies an atom by, and the atom."""
    if b.op not in (mul, div):
        return None
    x, y = b.args
    if (by := _number(y)) is not None:
        return (by if b.op is mul else 1 / by if by else math.inf), x
    if b.op is mul and (by := _number(x)) is not None:
        return by, y
    return None


def _number(atom: Atom) -> float | None:
    """A constant of one element."""
    if isinstance(atom, Const) and atom.value.size == 1:
        return float(atom.value.item())
    return None
