"""Ops that write what is in no argument: pads, masks, and tensors made from nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bucketize.kernel.emit.expression import dtype_text
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.loop import (
    GRAIN,
    Source,
    argument_shapes,
    bits_name,
    bits_of,
    joined,
    kernel_text,
    loop_template,
    takes,
)
from bucketize.kernel.template import Launch, Lines, LineWindow, Shapes, by_lines
from bucketize.kernel.workload import Workload
from bucketize.ops import arange, full, pad
from bucketize.ops.dim import mask_tail
from bucketize.types import Dim, product

PadAxis = tuple[Dim, Dim, Dim]  # the extent of the result, that of the argument, pads before it
INDEX = {
    "edge": ("{k} = least(greatest({k}, 0), {d} - 1)",),
    "wrap": ("{k} %= {d}",),
    "reflect": (
        "{k} = abs({k}) % greatest(2 * ({d} - 1), 1)",
        "{k} = least({k}, 2 * ({d} - 1) - {k})",
    ),
    "symmetric": ("{k} %= 2 * {d}", "{k} = least({k}, 2 * {d} - 1 - {k})"),
}
"""By the mode of `pad`: how an index outside of 0..d becomes one inside."""


def _kept_then_filled(s: Source, source: str) -> None:
    """A run of y: the elements from `left` to `right` copied, the others filled."""
    for bounds, value in (("left", "v"), ("left, right", source), ("right, m", "v")):
        with s.loops(t=bounds):
            s(f"y[i + t] = {value}")


def _filled(workload: Workload) -> str:
    """The line that makes `v` of the bits of the value."""
    return f"v = {bits_name(workload.result.dtype)}(bits)"


# --- pad -----------------------------------------------------------------------------------------


def _pad_source(workload: Workload) -> str:
    rank, mode = max(len(workload.result.shape), 1), workload.anchor.attrs["mode"]
    s = Source()
    last = "bits" if mode == "constant" else "inner"
    s(f"w{rank - 1} = {1 if mode == 'constant' else last}")
    s(*(f"w{a} = w{a + 1} * d{a + 1}" for a in reversed(range(rank - 1))))
    if mode == "constant":
        _constant_rows(s, workload, rank)
    else:
        _mapped_rows(s, rank, mode)
    names = [f"{name}{a}" for name in ("e", "d", "b") for a in range(rank)]
    return kernel_text(f"pad: {mode}", workload, s, [*names, last], moved=(0,))


def _constant_rows(s: Source, workload: Workload, rank: int) -> None:
    s(_filled(workload))
    with s.pieces([f"e{a}" for a in range(rank)]):
        before, size = f"b{rank - 1}", f"d{rank - 1}"
        s(f"p = j - {before}", "left = least(greatest(-p, 0), m)")
        s(f"right = least(greatest({size} - p, 0), m)")
        for a in range(rank - 1):
            s(f"k = c{a} - b{a}", f"p += k * w{a}")
            with s.block(f"if k < 0 or k >= d{a}:"):
                s("left = m", "right = m")
        _kept_then_filled(s, "x0[p + t]")


def _mapped_rows(s: Source, rank: int, mode: str) -> None:
    """Rows of `inner` elements at each place of the last axis: what is inside is one run of x."""

    def mapped(a: int, index: str) -> list[str]:
        return [f"k = {index} - b{a}", *(line.format(k="k", d=f"d{a}") for line in INDEX[mode])]

    last = rank - 1
    s(f"row = e{last} * inner", f"begins = b{last} * inner", f"ends = begins + d{last} * inner")
    with s.pieces([*(f"e{a}" for a in range(last)), "row"]):
        s("p = 0")
        for a in range(last):
            s(*mapped(a, f"c{a}"), f"p += k * w{a}")
        s("left = least(greatest(begins - j, 0), m)", "right = least(greatest(ends - j, 0), m)")
        for outside in ("left", "right, m"):
            with s.loops(t=outside):
                s(
                    *mapped(last, "(j + t) // inner"),
                    "y[i + t] = x0[p + k * inner + (j + t) % inner]",
                )
        s("p += j - begins")
        with s.loops(t="left, right"):
            s("y[i + t] = x0[p + t]")


def _pad_launch(workload: Workload, shapes: Shapes) -> Launch:
    (x,), out, attrs = argument_shapes(workload, shapes), shapes[-1], workload.anchor.attrs
    rank = max(len(out), 1)
    axes = [(e, d, lo) for e, d, (lo, _) in zip(out, x, attrs["pads"], strict=True)]
    last: Dim
    if attrs["mode"] == "constant":
        axes, last = _merged(axes), bits_of(attrs["value"], workload.result.dtype)
    else:
        axes, last = _apart(axes)
    axes = [(1, 1, 0)] * (rank - len(axes)) + axes
    dims = (*(n for column in zip(*axes, strict=True) for n in column), last)
    return Launch(dims, product(out), GRAIN, lines=_pad_lines(workload, shapes))


def _pad_lines(workload: Workload, shapes: Shapes) -> Lines | None:
    """Unless lines come from anywhere, or images are added."""
    attrs = workload.anchor.attrs
    if attrs["mode"] != "constant" or any(n != 0 for n in attrs["pads"][0]):
        return None
    place = next((i for i, p in enumerate(workload.body.params) if p is workload.anchor.args[0]), 0)
    top = attrs["pads"][1][0] if len(attrs["pads"]) > 1 else 0
    return by_lines(shapes[-1], product(shapes[-1][2:]), {place: LineWindow(before=top)})


def _merged(axes: Sequence[PadAxis]) -> list[PadAxis]:
    """Axes without pads as part of the axis before them."""
    runs = joined(axes, lambda _, axis: axis[0] == axis[1] and axis[2] == 0)
    inner = [product(extent for extent, _, _ in rest) for _, *rest in runs]
    return [(e * n, d * n, b * n) for ((e, d, b), *_), n in zip(runs, inner, strict=True)]


def _apart(axes: Sequence[PadAxis]) -> tuple[list[PadAxis], Dim]:
    """Axes up to the last one with pads, and how many elements lie behind each place of that."""
    padded = [i for i, (extent, size, before) in enumerate(axes) if (extent, before) != (size, 0)]
    kept = padded[-1] + 1 if padded else 0
    return [*axes[:kept]], product(extent for extent, _, _ in axes[kept:])


def _pad_counts(workload: Workload, at: LoopCounts) -> Counts:
    rank = max(len(workload.result.shape), 1)
    rows = math.prod(at.dims[: rank - 1])
    if workload.anchor.attrs["mode"] == "constant":
        return {"row": 3 * rows}
    outside = max(at.dims[rank - 1] - at.dims[2 * rank - 1], 0) * at.dims[-1]
    return {"row": 4 * rows, "lone": rows * outside}


PAD = loop_template("pad", takes(pad), _pad_source, _pad_launch, _pad_counts)


# --- mask_tail -----------------------------------------------------------------------------------


def _mask_source(workload: Workload) -> str:
    s = Source()
    s(
        _filled(workload),
        "keep = least(greatest(int64(x1[0]), 0), extent) * inner",
        "row = extent * inner",
    )
    with s.pieces(["_", "row"]):
        s("left = 0", "right = least(greatest(keep - j, 0), m)")
        _kept_then_filled(s, "x0[i + t]")
    return kernel_text("mask_tail", workload, s, ["extent", "inner", "bits"], moved=(0,))


def _mask_launch(workload: Workload, shapes: Shapes) -> Launch:
    x, attrs = argument_shapes(workload, shapes)[0], workload.anchor.attrs
    inner = product(x[attrs["axis"] + 1 :])
    bits = bits_of(attrs["value"], workload.result.dtype)
    return Launch((x[attrs["axis"]], inner, bits), product(x), GRAIN)


def _mask_counts(_workload: Workload, at: LoopCounts) -> Counts:
    extent, inner, _ = at.dims
    return {"row": 2 * at.extent / max(extent * inner, 1)}


MASK_TAIL = loop_template("mask_tail", takes(mask_tail), _mask_source, _mask_launch, _mask_counts)


# --- tensors made from nothing -------------------------------------------------------------------


def _full_source(workload: Workload) -> str:
    s = Source()
    s(_filled(workload))
    with s.loops(t="begin, end"):
        s("y[t] = v")
    return kernel_text("full", workload, s, ["bits"], moved=())


def _full_launch(workload: Workload, shapes: Shapes) -> Launch:
    bits = bits_of(workload.anchor.attrs["value"], workload.result.dtype)
    return Launch((bits,), product(shapes[-1]), GRAIN)


def _arange_source(workload: Workload) -> str:
    s = Source()
    with s.loops(t="begin, end"):
        s(f"y[t] = {dtype_text(workload.result.dtype)}(start + t * step)")
    return kernel_text("arange", workload, s, ["start", "step"])


def _arange_launch(workload: Workload, shapes: Shapes) -> Launch:
    attrs = workload.anchor.attrs
    return Launch((attrs["start"], attrs["step"]), product(shapes[-1]), GRAIN)


FULL = loop_template("full", takes(full), _full_source, _full_launch, lambda *_: {})
ARANGE = loop_template(
    "arange", takes(arange), _arange_source, _arange_launch, lambda _, at: {"simple": 2 * at.extent}
)
