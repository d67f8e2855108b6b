"""Products of bfloat16 stay short where the processor multiplies pairs of them: elsewhere, floats.

An odd depth, or number of channels, is made even by zeros on both sides, which add nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bucketize.ir import Atom, Binding, Builder, Const, Function, rewrite
from bucketize.kernel.emit.dot import PAIR
from bucketize.machine.target import Target
from bucketize.op import Array
from bucketize.ops import cast, conv2d, matmul, pad
from bucketize.types.number import BFLOAT16


def narrow(fn: Function, target: Target | None) -> Function:
    """`fn` with products of bfloat16 by known matrices, and convolutions of them, in pairs."""
    if target is None or BFLOAT16.name not in target.processor.dots:
        return fn
    pairs = _Pairs()
    new = rewrite(fn, pairs.rule)
    return new if pairs.changed else fn


@dataclass
class _Pairs:
    """What is known of a function while it is rebuilt."""

    short: dict[Atom, Atom] = field(default_factory=dict)
    """Floats that are bfloat16 made wider, and those."""
    products: dict[Atom, tuple[Atom, Const]] = field(default_factory=dict)
    """Products of such floats, and their factors."""
    changed: bool = False

    def rule(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
        if b.op is conv2d:
            return self._windows(out, b, args)
        if b.op is cast and args[0] in self.products and b.out.type.dtype == BFLOAT16:
            self.changed = True
            return _product(out, *self.products[args[0]])
        if b.op is cast and b.is_ranked and args[0].type.dtype == BFLOAT16:
            wide = out.emit(cast, *args, **b.attrs)
            self.short[wide] = args[0]
            return wide
        if b.op is matmul and b.attrs["weights"] == BFLOAT16.name and args[0] in self.short:
            product = out.emit(matmul, *args, **b.attrs)
            if isinstance(args[1], Const):
                self.products[product] = self.short[args[0]], args[1]
            return product
        return None

    def _windows(self, out: Builder, b: Binding, args: tuple[Atom, ...]) -> Atom | None:
        """A convolution whose image has one more channel, and lies padded, if it was odd."""
        x, weights = args
        if x.type.dtype != BFLOAT16 or not isinstance(weights, Const):
            return None
        is_odd = weights.value.shape[1] % PAIR == 1
        if not is_odd or b.attrs["groups"] > 1 or b.attrs["layout"] != "NCHW":
            return None
        self.changed = True
        top, left, bottom, right = b.attrs["pads"]
        padded = out.emit(pad, x, pads=((0, 0), (0, 1), (top, bottom), (left, right)))
        more = Const(_with_zeros(weights.value, 1))
        return out.emit(conv2d, padded, more, **{**b.attrs, "pads": (0, 0, 0, 0)})


def _product(out: Builder, x: Atom, weights: Const) -> Atom:
    matrix = weights.value.astype(BFLOAT16)
    if len(matrix) % PAIR:
        around = ((0, 0),) * (len(x.type.shape) - 1)
        x, matrix = out.emit(pad, x, pads=(*around, (0, 1))), _with_zeros(matrix, 0)
    return out.emit(matmul, x, Const(matrix))


def _with_zeros(value: Array, axis: int) -> Array:
    """The array with zeros behind its last place along an axis."""
    return np.pad(value, [(0, int(a == axis)) for a in range(value.ndim)])
