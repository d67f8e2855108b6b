"""Ops along one axis that do not reduce it to a number: softmax, layer norm, argmax, running sums.

An array is [outer, n, inner] around the axis. Where `inner` is 1 the lines lie in memory, one after
the other; otherwise a block of `inner` is taken along the axis at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from bucketize.ir import Binding
from bucketize.kernel.emit.expression import dtype_text
from bucketize.kernel.loops.cost import Counts, LoopCounts
from bucketize.kernel.loops.elementwise import (
    OPEN,
    STANDS,
    Group,
    axes_of,
    collapsed,
    run_time_strides,
)
from bucketize.kernel.loops.loop import (
    GRAIN,
    Source,
    argument_shapes,
    kernel_text,
    literal,
    loop_template,
    takes,
)
from bucketize.kernel.loops.reduce import BLOCK, CHAIN, ZERO, highest, lowest
from bucketize.kernel.template import Launch, Shapes, Template
from bucketize.kernel.workload import Workload
from bucketize.op import Op
from bucketize.ops import argmax, argmin, cumprod, cumsum, layer_norm, log_softmax, softmax
from bucketize.types import product
from bucketize.types.number import kind_of

Body = Callable[[Source, Workload], None]


def _along(
    name: str,
    ops: tuple[Op, ...],
    kinds: str,
    lines: Body,
    blocks: Body,
    passes: int,
    counts: Callable[[Workload, float, float], Counts],
) -> Template:
    """A template of ops along one axis: bodies for a line at x0[p], and for a block there.

    They pass over the elements so often; `counts` is told how many lines and elements there are.
    """

    def source(workload: Workload) -> str:
        s, in_memory = Source(), _is_last(workload.anchor)
        if in_memory:
            with s.loops(i="begin, end"):
                s("p = i * n")
                lines(s, workload)
        else:
            with s.pieces(["_", "inner"], BLOCK):
                s("p = c0 * n * inner + j")
                blocks(s, workload)
        title = f"{workload.anchor.op.name}: {'lines' if in_memory else 'blocks'}"
        return kernel_text(title, workload, s, ["n", "inner"])

    def launch(workload: Workload, shapes: Shapes) -> Launch:
        x, axis = argument_shapes(workload, shapes)[0], workload.anchor.attrs["axis"]
        inner = product(x[axis + 1 :])
        grain = 1 if _is_last(workload.anchor) else GRAIN
        return Launch((x[axis], inner), product(x[:axis]) * inner, grain)

    def fits(b: Binding) -> bool:
        return kind_of(b.args[0].type.dtype) in kinds

    def counted(workload: Workload, at: LoopCounts) -> Counts:
        n, inner = at.dims
        size = n * at.extent
        if _is_last(workload.anchor):
            return {"row": passes * at.extent, **counts(workload, at.extent, size)}
        blocks = size / min(max(inner, 1), BLOCK)
        return {"row": passes * blocks, **counts(workload, 0, size)}

    return loop_template(name, takes(*ops, where=fits), source, launch, counted)


def _is_last(b: Binding) -> bool:
    return bool(b.attrs["axis"] == len(b.args[0].type.shape) - 1)


def _number(workload: Workload, value: object) -> str:
    return f"{dtype_text(workload.anchor.args[0].type.dtype)}({value})"


# --- softmax -------------------------------------------------------------------------------------


def _softmax_lines(s: Source, workload: Workload) -> None:
    keeps = workload.anchor.op is softmax  # the exponentials in y; a logarithm computes none twice
    s(f"top = {_number(workload, '-math.inf')}", f"total = {_number(workload, 0)}")
    with s.loops(k="n"):
        s("top = greatest(top, x0[p + k])")
    with s.loops(k="n"):
        s("v = exp(x0[p + k] - top)", *["y[p + k] = v"][:keeps], "total = plus(total, v)")
    s(f"f = {_number(workload, 1)} / total" if keeps else "f = log(total)")
    with s.loops(k="n"):
        s("y[p + k] = y[p + k] * f" if keeps else "y[p + k] = x0[p + k] - top - f")


def _softmax_blocks(s: Source, workload: Workload) -> None:
    keeps = workload.anchor.op is softmax
    dtype, zero = dtype_text(workload.result.dtype), _number(workload, 0)
    s(*(f"{name} = scratch({BLOCK}, {dtype})" for name in ("top", "total", "sums")))
    with s.loops(t="m"):
        s(f"top[t] = {_number(workload, '-math.inf')}", f"total[t] = {zero}", f"sums[t] = {zero}")
    with s.loops(k="n", t="m"):
        s("top[t] = greatest(top[t], x0[p + k * inner + t])")
    with s.loops(k="n"):
        with s.block(f"if k % {CHAIN} == 0:"), s.loops(t="m"):
            s("sums[t] += total[t]", f"total[t] = {zero}")
        with s.loops(t="m"):
            s("v = exp(x0[p + k * inner + t] - top[t])", *["y[p + k * inner + t] = v"][:keeps])
            s("total[t] += v")
    with s.loops(t="m"):
        s("v = sums[t] + total[t]")
        s(f"total[t] = {_number(workload, 1)} / v" if keeps else "total[t] = log(v)")
    with s.loops(k="n", t="m"):
        s("q = p + k * inner + t")
        s("y[q] = y[q] * total[t]" if keeps else "y[q] = x0[q] - top[t] - total[t]")


SOFTMAX = _along(
    "softmax",
    (softmax, log_softmax),
    "f",
    _softmax_lines,
    _softmax_blocks,
    3,
    lambda _, lines, size: {"fold": 2 * lines, "choose": size, "exp": size, "simple": 3 * size},
)


# --- argmax --------------------------------------------------------------------------------------


def _argmax_lines(s: Source, workload: Workload) -> None:
    step, start = ("greatest", lowest) if workload.anchor.op is argmax else ("least", highest)
    s(f"top = {literal(start(workload.anchor.args[0].type.dtype))}", "y[i] = 0")
    with s.loops(k="n"):
        s(f"top = {step}(top, x0[p + k])")
    with s.loops(k="n"):
        s("v = x0[p + k]")
        with s.block("if v == top or v != v:"):  # a NaN is the greatest, and the smallest
            s("y[i] = k", "break")


def _argmax_blocks(s: Source, workload: Workload) -> None:
    relation = ">" if workload.anchor.op is argmax else "<"
    s(f"top = scratch({BLOCK}, {dtype_text(workload.anchor.args[0].type.dtype)})")
    s(f"at = scratch({BLOCK}, int64)")
    with s.loops(t="m"):
        s("top[t] = x0[p + t]", "at[t] = 0")
    with s.loops(k="1, n", t="m"):
        s("v = x0[p + k * inner + t]")
        s(f"take = (v {relation} top[t]) | ((v != v) & (top[t] == top[t]))")
        s("top[t] = where(take, v, top[t])", "at[t] = where(take, k, at[t])")
    with s.loops(t="m"):
        s("y[i + t] = at[t]")


def _argmax_counts(workload: Workload, lines: float, size: float) -> Counts:
    """Where a line is searched for its extreme, half of it is passed on the average."""
    if _is_last(workload.anchor):
        return {"fold": lines, "choose": size, "lone": size / 2}
    return {"choose": size, "simple": 6 * size}


ARGMAX = _along("argmax", (argmax, argmin), "iuf", _argmax_lines, _argmax_blocks, 2, _argmax_counts)


# --- running sums and products --------------------------------------------------------------------


def _place(workload: Workload) -> str:
    return "n - 1 - k" if workload.anchor.attrs["reverse"] else "k"


def _sums(workload: Workload) -> bool:
    return workload.anchor.op is cumsum


def _first(workload: Workload) -> str:
    if not _sums(workload):
        return _number(workload, 1)
    # of floats -0 is what changes no sum: 0 + -0 is 0; what comes before all is a 0, though
    return _number(workload, 0 if workload.anchor.attrs["exclusive"] else -0.0)


def _cumulate(s: Source, workload: Workload, total: str) -> None:
    lines = [f"y[q] = {total}", f"{total} {'+' if _sums(workload) else '*'}= v"]
    s("v = x0[q]", *(lines if workload.anchor.attrs["exclusive"] else reversed(lines)))


def _cumsum_lines(s: Source, workload: Workload) -> None:
    s(f"total = {_first(workload)}")
    with s.loops(k="n"):
        s(f"q = p + {_place(workload)}")
        _cumulate(s, workload, "total")


def _cumsum_blocks(s: Source, workload: Workload) -> None:
    s(f"total = scratch({BLOCK}, {dtype_text(workload.result.dtype)})")
    with s.loops(t="m"):
        s(f"total[t] = {_first(workload)}")
    with s.loops(k="n", t="m"):
        s(f"q = p + ({_place(workload)}) * inner + t")
        _cumulate(s, workload, "total[t]")


CUMSUM = _along(
    "cumsum",
    (cumsum, cumprod),
    "iuf",
    _cumsum_lines,
    _cumsum_blocks,
    1,
    lambda workload, _, size: (
        {"lone": size / 2} if _is_last(workload.anchor) else {"simple": 4 * size}
    ),
)


# --- layer norm ----------------------------------------------------------------------------------


def _norm_source(workload: Workload, lanes: int = 0) -> str:
    """Two passes for mean and variance, and one to scale, over the axes that share a stride.

    With lanes it is for sums in one order, which are chains of float64.
    """
    x, scale, bias = (a.type.shape for a in workload.anchor.args)
    tail = x[workload.anchor.attrs["axis"] :]
    s, wide = Source(), lanes > 0 and dtype_text(workload.result.dtype) == "float32"
    zero, joined = (ZERO, "{} + {}") if wide else (_number(workload, 0), "plus({}, {})")
    with s.loops(i="begin, end"):
        s("p = i * n", f"total = {zero}")
        with s.loops(k="n"):
            s(f"total = {joined.format('total', 'x0[p + k]')}")
        s(*["total = float32(total)"][:wide])
        s(f"mean = total / {_number(workload, 'n')}", f"square = {zero}")
        with s.loops(k="n"):
            s("v = x0[p + k] - mean", f"square = {joined.format('square', 'v * v')}")
        epsilon = _number(workload, workload.anchor.attrs["epsilon"])
        s(*["square = float32(square)"][:wide])
        s(f"f = rsqrt(square / {_number(workload, 'n')} + {epsilon})")
        _scale(s, collapsed(axes_of([scale, bias, tail], tail)) or [([], (STANDS,) * 3)])
    names = [f"{name}{a}" for name in ("e", "s1_", "s2_") for a in range(len(tail))]
    return kernel_text("layer_norm", workload, s, ["n", *names])


def _scale(s: Source, groups: list[Group]) -> None:
    extents = [" * ".join(f"e{a}" for a in members) or "1" for members, _ in groups]
    places = []
    for k in (1, 2):
        terms = [
            f"{index} * s{k}_{members[-1]}" if does[k - 1] == OPEN or index != "t" else index
            for index, (members, does) in zip(_indices(groups), groups, strict=True)
            if does[k - 1] != STANDS
        ]
        places.append(" + ".join(terms) or "0")
    s("q = p")
    *outer, inner = zip(_indices(groups), extents, strict=True)
    with s.loops(**dict(outer)):
        s(f"m = {inner[1]}")
        with s.loops(t="m"):
            s(f"y[q + t] = (x0[q + t] - mean) * f * x1[{places[0]}] + x2[{places[1]}]")
        s("q += m")


def _indices(groups: list[Group]) -> list[str]:
    return [*(f"c{g}" for g in range(len(groups) - 1)), "t"]


def _norm_launch(workload: Workload, shapes: Shapes) -> Launch:
    x, scale, bias = argument_shapes(workload, shapes)
    axis = workload.anchor.attrs["axis"]
    tail = x[axis:]
    strides = itertools.chain(run_time_strides(scale, tail), run_time_strides(bias, tail))
    return Launch((product(tail), *tail, *strides), product(x[:axis]))


def _is_float(b: Binding) -> bool:
    return kind_of(b.out.type.dtype) == "f"


LAYER_NORM = loop_template(
    "layer_norm",
    takes(layer_norm, where=_is_float),
    _norm_source,
    _norm_launch,
    lambda _, at: {"row": at.extent, "fold": 2 * at.extent, "simple": 8 * at.extent * at.dims[0]},
    ordered=_norm_source,
)
