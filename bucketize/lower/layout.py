"""The layout transform: NCHW networks run in NHWC, with padding made physical where that pays.

Each variable may exist in both layouts; the other one is made by a transpose when first asked
for. Ops that do not care follow the layout of their arguments, so that transposes remain only
where a network enters or leaves its convolutional part. Of more than four axes the last two are
the image's, too: all between the first and these are its channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TypeAlias

import numpy as np

from bucketize.ir import Atom, Binding, Builder, Const, Env, Function, copy_binding, map_blocks
from bucketize.kernel.depthwise.template import TEMPLATE as DEPTHWISE
from bucketize.kernel.gemm.conv import TEMPLATE as DENSE
from bucketize.kernel.gemm.conv import window
from bucketize.kernel.inner.template import TEMPLATE as INNER
from bucketize.kernel.workload import workload_of
from bucketize.op import Attrs
from bucketize.ops import (
    avg_pool2d,
    concat,
    conv2d,
    conv2d_integer,
    grid_sample,
    max_pool2d,
    pad,
    reduce_max,
    reduce_mean,
    reduce_sum,
    reshape,
    resize,
    roi_align,
    strided_slice,
    transpose,
)
from bucketize.ops.rules import same
from bucketize.transform.dead_code import used_atoms
from bucketize.types import AnyDim

AXIS = (0, 3, 1, 2)  # where an NCHW axis is found in NHWC
SHALLOW = 32
"""Channels of a group below which an image is padded where it lies. To find out which taps of a
tile see pads takes as long as some steps of its sums, and a line of a window is one piece where
none does. Of 56 pixels with 32 channels a copy was 1 % faster, with 64 it was 3 % slower."""


def to_nhwc(rank: int) -> tuple[int, ...]:
    """The axes that a transpose to channels last takes."""
    return (0, rank - 2, rank - 1, *range(1, rank - 2))


def to_nchw(rank: int) -> tuple[int, ...]:
    """The axes that a transpose from channels last back to NCHW takes."""
    return (0, *range(3, rank), 1, 2)


def layout(fn: Function, planar: Set[int] = frozenset()) -> Function:
    """`fn` with convolutions, pools and what surrounds them in NHWC, in branches too.

    Those at the places `planar` of its body stay in NCHW. What passes into a branch or out of it
    is in NCHW.
    """
    return _block(map_blocks(fn, _block), planar)


def _block(fn: Function, planar: Set[int] = frozenset()) -> Function:
    if not anchors(fn) - planar and not any(b.op in CHANNELS_LAST for b in fn.body):
        return fn
    layouts = Layouts()
    for i, b in enumerate(fn.body):
        layouts.add(b, planar=i in planar)
    return layouts.function(fn)


def anchors(fn: Function) -> set[int]:
    """The places of what has a layout, is in NCHW, and might stay there."""
    has = (b.op in ANCHORS and b.attrs.get("layout") == "NCHW" for b in fn.body)
    return {i for i, anchor in enumerate(has) if anchor}


class Layouts:
    """The two forms of every variable while a function is rebuilt."""

    def __init__(self) -> None:
        """Nothing is rebuilt yet."""
        self.out = Builder()
        self.nchw: Env = {}
        self.nhwc: Env = {}

    def add(self, b: Binding, *, planar: bool = False) -> None:
        """Rebuild the next binding; one that is `planar` keeps its layout."""
        self.out.origin = b.origin
        rule = RULES.get(b.op, _elementwise if b.op.scalar is not None else None)
        if planar or rule is None or not b.is_ranked or not rule(self, b):
            self.plain(b)

    def function(self, fn: Function) -> Function:
        """What was rebuilt of `fn`, which is all of it."""
        return self.out.function(fn.name, fn.params, [self.as_nchw(r) for r in fn.results])

    def plain(self, b: Binding) -> None:
        self.nchw.update({a: self.as_nchw(a) for a in used_atoms(b)})
        copy_binding(self.out, b, self.nchw)

    def as_nchw(self, atom: Atom) -> Atom:
        if atom not in self.nchw and atom in self.nhwc:
            self.nchw[atom] = reordered(self.out, self.nhwc[atom], to_nchw(len(atom.type.shape)))
        return self.nchw.get(atom, atom)

    def as_nhwc(self, atom: Atom) -> Atom:
        if atom not in self.nhwc:
            axes = to_nhwc(len(atom.type.shape))
            self.nhwc[atom] = (
                _constant_nhwc(atom)
                if isinstance(atom, Const)
                else reordered(self.out, self.nchw.get(atom, atom), axes)
            )
        return self.nhwc[atom]


def reordered(out: Builder, x: Atom, axes: Sequence[int]) -> Atom:
    """`x` with its axes in another order: a view, if those that move have one element."""
    shape = x.type.shape
    stays = [a for a in axes if shape[a] != 1]
    if stays == sorted(stays) and not any(isinstance(d, AnyDim) for d in shape):
        return out.emit(reshape, x, newshape=tuple(shape[a] for a in axes))
    return out.emit(transpose, x, axes=tuple(axes))


Rule: TypeAlias = Callable[[Layouts, Binding], bool]
"""Puts the result of a binding into one of the two forms, or declines."""


def _constant_nhwc(const: Const) -> Const:
    value = const.value.reshape((1,) * (4 - const.value.ndim) + const.value.shape)
    return Const(np.ascontiguousarray(value.transpose(to_nhwc(4))))


def _conv2d(to: Layouts, b: Binding) -> bool:
    if b.attrs["layout"] != "NCHW":
        return False
    x, weights = to.as_nhwc(b.args[0]), to.as_nchw(b.args[1])
    attrs = {**b.attrs, "layout": "NHWC"}
    if any(p != 0 for p in b.attrs["pads"]) and _wants_pads(x, weights, attrs):
        top, left, bottom, right = b.attrs["pads"]
        pads = ((0, 0), (top, bottom), (left, right), (0, 0))
        x = to.out.emit(pad, x, pads=pads, value=0.0)
        attrs["pads"] = (0, 0, 0, 0)
    to.nhwc[b.out] = to.out.emit(conv2d, x, weights, **attrs)
    return True


def _wants_pads(x: Atom, weights: Atom, attrs: Attrs) -> bool:
    """Whether a convolution runs best on an image that is padded where it lies."""
    alone = Builder()
    alone.emit(conv2d, x, weights, **attrs)
    workload, _ = workload_of(alone.body[-1])
    dense = DENSE.accepts(workload) and not any(t.accepts(workload) for t in (DEPTHWISE, INNER))
    return dense and window(workload)[1] < SHALLOW


def _reduce(to: Layouts, b: Binding) -> bool:
    x, keepdims = b.args[0], b.attrs["keepdims"]
    if x not in to.nhwc or len(x.type.shape) != 4:
        return False
    if not keepdims and tuple(b.attrs["axes"]) != (2, 3):
        return False
    axes = tuple(sorted(AXIS[a] for a in b.attrs["axes"]))
    form = to.nhwc if keepdims else to.nchw  # of rank 2, [N, C], in both layouts
    form[b.out] = to.out.emit(b.op, to.nhwc[x], axes=axes, keepdims=keepdims)
    return True


def _reshape(to: Layouts, b: Binding) -> bool:
    """A reshape of one pixel, whose channels lie alike in both layouts, or one of channels."""
    x = b.args[0]
    if x not in to.nhwc:
        return False
    if x.type.shape[2:] == (1, 1):
        to.nchw[b.out] = to.out.emit(reshape, to.nhwc[x], **b.attrs)
        return True
    old, new = x.type.shape, b.out.type.shape
    pairs = zip((old[0], *old[-2:]), (new[0], *new[-2:]), strict=True) if len(new) > 3 else ()
    if not all(same(a, b) for a, b in pairs) or len(new) < 4:
        return False
    shape = tuple(new[a] for a in to_nhwc(len(new)))
    to.nhwc[b.out] = to.out.emit(reshape, to.nhwc[x], newshape=shape)
    return True


def _transpose(to: Layouts, b: Binding) -> bool:
    """Between the layouts, which moves nothing, or of channels."""
    x, axes = b.args[0], tuple(b.attrs["axes"])
    rank = len(axes)
    if rank == 4 and axes == to_nchw(4):
        to.nhwc[b.out] = to.as_nchw(x)
    elif x not in to.nhwc:
        return False
    elif rank == 4 and axes == to_nhwc(4):
        to.nchw[b.out] = to.nhwc[x]
    elif (axes[0], *axes[-2:]) == (0, rank - 2, rank - 1):
        moved = (0, 1, 2, *(a + 2 for a in axes[1:-2]))
        to.nhwc[b.out] = to.out.emit(transpose, to.nhwc[x], axes=moved)
    else:
        return False
    return True


def _turned(turned: Callable[[Attrs], Attrs | None], *, leads: bool = False) -> Rule:
    """The rule of an op that is as good in NHWC, with some attributes `turned`; None declines.

    It follows the layout of its image, or `leads`: the image is turned for it.
    """

    def rule(to: Layouts, b: Binding) -> bool:
        x, *others = b.args
        follows = x in to.nhwc and len(x.type.shape) == 4
        attrs = turned(b.attrs) if leads or follows else None
        if attrs is None:
            return False
        operands = to.as_nhwc(x), *map(to.as_nchw, others)
        to.nhwc[b.out] = to.out.emit(b.op, *operands, **{**b.attrs, **attrs})
        return True

    return rule


def _channels_last(attrs: Attrs) -> Attrs | None:
    return {"layout": "NHWC"} if attrs["layout"] == "NCHW" else None


def _turned_axes(attrs: Attrs) -> Attrs:
    return {"axes": tuple(AXIS[a] for a in attrs["axes"])}


def _concat(to: Layouts, b: Binding) -> bool:
    if len(b.out.type.axes) != 4 or not any(a in to.nhwc for a in b.args):
        return False
    args = [to.as_nhwc(a) for a in b.args]
    to.nhwc[b.out] = to.out.emit(concat, *args, axis=AXIS[b.attrs["axis"]])
    return True


def _elementwise(to: Layouts, b: Binding) -> bool:
    if len(b.out.type.axes) != 4 or not any(a in to.nhwc for a in b.args):
        return False
    if any(0 < len(a.type.shape) < 4 and not isinstance(a, Const) for a in b.args):
        return False
    args = [to.as_nhwc(a) if a.type.shape else to.as_nchw(a) for a in b.args]
    to.nhwc[b.out] = to.out.emit(b.op, *args, **b.attrs)
    return True


ANCHORS = (conv2d, max_pool2d, avg_pool2d, roi_align)
CHANNELS_LAST = (conv2d_integer,)
"""What has a layout, but kernels for one only."""
RULES: dict[object, Rule] = {
    conv2d: _conv2d,
    **dict.fromkeys(
        (conv2d_integer, max_pool2d, avg_pool2d, roi_align), _turned(_channels_last, leads=True)
    ),
    reduce_mean: _reduce,
    reduce_sum: _reduce,
    reduce_max: _reduce,
    reshape: _reshape,
    transpose: _transpose,
    strided_slice: _turned(_turned_axes),
    pad: _turned(lambda attrs: {"pads": tuple(attrs["pads"][a] for a in to_nhwc(4))}),
    # along height and width, which are in the same order in both layouts
    resize: _turned(lambda attrs: _turned_axes(attrs) if {*attrs["axes"]} <= {2, 3} else None),
    grid_sample: _turned(_channels_last),
    concat: _concat,
}
