"""The layout transform: NCHW networks run in NHWC, with convolutions' padding made physical.

Each variable may exist in both layouts; the other one is made by a transpose when first asked
for. Ops that do not care follow the layout of their arguments, so that transposes remain only
where a network enters or leaves its convolutional part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from bucketize.ir import IF, Atom, Binding, Builder, Const, Env, Function, copy_binding
from bucketize.ops import (
    avg_pool2d,
    concat,
    conv2d,
    max_pool2d,
    pad,
    reduce_max,
    reduce_mean,
    reduce_sum,
    reshape,
    transpose,
)

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
AXIS = (0, 3, 1, 2)  # where an NCHW axis is found in NHWC


def layout(fn: Function) -> Function:
    """`fn` with convolutions, pools and what surrounds them in NHWC."""
    if not any(b.op in ANCHORS and b.attrs.get("layout") == "NCHW" for b in fn.body):
        return fn
    return _Layouts().function(fn)


class _Layouts:
    """The two forms of every variable while a function is rebuilt."""

    def __init__(self) -> None:
        self.out = Builder()
        self.nchw: Env = {}
        self.nhwc: Env = {}

    def function(self, fn: Function) -> Function:
        for b in fn.body:
            rule = RULES.get(b.op, _elementwise if b.op.scalar is not None else None)
            new = rule(self, b) if rule else None
            if new is None:
                self.plain(b)
            else:
                self.nhwc[b.out] = new
        return self.out.function(fn.name, fn.params, [self.as_nchw(r) for r in fn.results])

    def plain(self, b: Binding) -> None:
        used = [*b.args]
        if b.op is IF:
            raise AssertionError("a function with branches has no layout of its own")
        self.nchw.update({a: self.as_nchw(a) for a in used})
        copy_binding(self.out, b, self.nchw)

    def as_nchw(self, atom: Atom) -> Atom:
        if atom not in self.nchw and atom in self.nhwc:
            self.nchw[atom] = self.out.emit(transpose, self.nhwc[atom], axes=TO_NCHW)
        return self.nchw.get(atom, atom)

    def as_nhwc(self, atom: Atom) -> Atom:
        if atom not in self.nhwc:
            self.nhwc[atom] = (
                _constant_nhwc(atom)
                if isinstance(atom, Const)
                else self.out.emit(transpose, self.nchw.get(atom, atom), axes=TO_NHWC)
            )
        return self.nhwc[atom]


Rule: TypeAlias = Callable[[_Layouts, Binding], "Atom | None"]


def _constant_nhwc(const: Const) -> Const:
    value = const.value.reshape((1,) * (4 - const.value.ndim) + const.value.shape)
    value = np.ascontiguousarray(value.transpose(TO_NHWC))
    return Const(value.reshape(value.shape[3:]) if value.shape[:3] == (1, 1, 1) else value)


def _conv2d(to: _Layouts, b: Binding) -> Atom | None:
    if b.attrs["layout"] != "NCHW":
        return None
    x = to.as_nhwc(b.args[0])
    top, left, bottom, right = b.attrs["pads"]
    if any(b.attrs["pads"]):
        pads = ((0, 0), (top, bottom), (left, right), (0, 0))
        x = to.out.emit(pad, x, pads=pads, value=0.0)
    attrs = {**b.attrs, "layout": "NHWC", "pads": (0, 0, 0, 0)}
    return to.out.emit(conv2d, x, to.as_nchw(b.args[1]), **attrs)


def _pool(to: _Layouts, b: Binding) -> Atom | None:
    if b.attrs["layout"] != "NCHW":
        return None
    return to.out.emit(b.op, to.as_nhwc(b.args[0]), **{**b.attrs, "layout": "NHWC"})


def _reduce(to: _Layouts, b: Binding) -> Atom | None:
    x = b.args[0]
    if x not in to.nhwc or len(x.type.shape) != 4:
        return None
    axes = tuple(sorted(AXIS[a] for a in b.attrs["axes"]))
    new = to.out.emit(b.op, to.nhwc[x], axes=axes, keepdims=b.attrs["keepdims"])
    if b.attrs["keepdims"]:
        return new
    if tuple(b.attrs["axes"]) != (2, 3):
        return None
    to.nchw[b.out] = new  # rank 2: [N, C] in both layouts
    return new


def _reshape(to: _Layouts, b: Binding) -> Atom | None:
    """Flattening one pixel: the order of the channels is the same in both layouts."""
    x = b.args[0]
    if x not in to.nhwc or x.type.shape[2:] != (1, 1):
        return None
    to.nchw[b.out] = to.out.emit(reshape, to.nhwc[x], **b.attrs)
    return to.nchw[b.out]


def _concat(to: _Layouts, b: Binding) -> Atom | None:
    if len(b.out.type.shape) != 4 or not any(a in to.nhwc for a in b.args):
        return None
    axis = AXIS[b.attrs["axis"]]
    return to.out.emit(concat, *(to.as_nhwc(a) for a in b.args), axis=axis)


def _elementwise(to: _Layouts, b: Binding) -> Atom | None:
    if len(b.out.type.shape) != 4 or not any(a in to.nhwc for a in b.args):
        return None
    if any(0 < len(a.type.shape) < 4 and not isinstance(a, Const) for a in b.args):
        return None
    args = [to.as_nhwc(a) if a.type.shape else a for a in b.args]
    return to.out.emit(b.op, *args, **b.attrs)


ANCHORS = (conv2d, max_pool2d, avg_pool2d)
RULES: dict[object, Rule] = {
    conv2d: _conv2d,
    max_pool2d: _pool,
    avg_pool2d: _pool,
    reduce_mean: _reduce,
    reduce_sum: _reduce,
    reduce_max: _reduce,
    reshape: _reshape,
    concat: _concat,
}
