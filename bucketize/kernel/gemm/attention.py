"""The template of attention: softmax(Q K^T, scaled and masked) V, each read in place along strides.

The group is two products with a softmax between them; elementwise ops may lie before the softmax,
and transposes that keep the elements of a row together around it all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bucketize.ir import Atom, Binding, Const
from bucketize.kernel.emit import expression
from bucketize.kernel.emit.vector import FLOAT_BYTES
from bucketize.kernel.gemm import cost, epilogue
from bucketize.kernel.gemm.epilogue import FLOAT32, Epilogue
from bucketize.kernel.gemm.head import BLOCK, Heads, tallest, value_vectors
from bucketize.kernel.gemm.headkernel import HeadForm, source
from bucketize.kernel.gemm.level import Level, byte_strides, merged, table
from bucketize.kernel.gemm.matmul import balanced
from bucketize.kernel.gemm.microkernel import LINE
from bucketize.kernel.loops.loop import schedule_error, spread
from bucketize.kernel.target import Target
from bucketize.kernel.template import Knob, Launch, Schedule, Shapes, Template
from bucketize.kernel.workload import Workload
from bucketize.ops import (
    broadcast_to,
    div,
    isnan,
    mask_tail,
    matmul,
    mul,
    reshape,
    softmax,
    transpose,
    unsqueeze,
    where,
)
from bucketize.types import Dim, Shape, ceil_div, positive, product

ROWS = (12, 24, 48)  # of Q in a block
COPIED = 16
"""Rows from which on panels are read from copies, where they could be read in their place: one row
took 1.6 times as long with copies, 8 rows 1.25, 16 rows 0.95, 128 rows 0.7."""

# --- the group -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Read:
    """A parameter, the order in which its axes are read, and what it is multiplied by.

    It is read `count` times along an axis, each element so often before the next: shared heads.
    """

    place: int
    axes: tuple[int, ...]
    factor: float = 1.0
    count: int = 1
    along: int = 0
    """That axis of what is read."""

    def seen(self, extents: Sequence[Dim]) -> tuple[Dim, ...]:
        """What is told for each axis, in that order."""
        return tuple(extents[a] for a in self.axes)


@dataclass(frozen=True)
class Attention:
    """A workload as attention."""

    query: Read
    key: Read
    """As the second factor of the scores: its last axis counts the keys."""
    value: Read
    out: tuple[int, ...]
    """The axes of the result by those of the product."""
    clean: bool
    """Whether rows of weights that are no numbers count as 0."""
    limit: int | None
    """The place of how many keys there are, where others are padding."""
    epilogue: Epilogue
    scores: Binding


def attention_of(workload: Workload) -> Attention | None:
    """The workload as attention; None if it is none, or one that the kernel cannot compute."""
    body = workload.body.body
    first, *more = [i for i, b in enumerate(body) if b.op is matmul] or [0]
    if len(more) != 1:
        return None
    before: dict[Atom, Binding] = {b.out: b for b in body[:first]}
    behind = [b for b in body[-1:] if b.op is transpose]
    chain = list(body[first : len(body) - len(behind)])
    cleaning = _cleaning(chain)
    kept = [b for b in chain if b not in cleaning]
    if len(kept) < 3 or [b.op for b in kept[-2:]] != [softmax, matmul]:
        return None
    scores, *steps, weights, last = kept
    limit = _limit(workload, steps, cleaning)
    if limit is not None:
        steps.pop()
    tail = epilogue.of_steps(workload, scores, steps, truths=True)
    reads = [_read(workload, a, before) for a in (*scores.args, last.args[1])]
    if tail is None or None in reads or before or not _is_chain(chain, behind, workload):
        return None
    if limit is None and any(b.op is mask_tail for b in cleaning):
        return None
    query, key, value = (r for r in reads if r is not None)
    rank = len(scores.out.type.shape)
    out = behind[0].attrs["axes"] if behind else tuple(range(rank))
    tail = tail.scaled(float(np.float32(query.factor * key.factor)))
    clean = bool(cleaning) and limit is None
    found = Attention(query, key, value, out, clean, limit, tail, scores)
    return found if weights.attrs["axis"] == rank - 1 and _fits(found, last) else None


def _cleaning(chain: Sequence[Binding]) -> Sequence[Binding]:
    """What puts 0 in the place of weights before the last of a chain."""
    if [b.op for b in chain[-3:-1]] == [softmax, mask_tail]:
        return chain[-2:-1]
    if [b.op for b in chain[-4:-1]] != [softmax, isnan, where]:
        return ()
    weights, test, put = chain[-4:-1]
    zero = isinstance(put.args[1], Const) and put.args[1].value.size == 1
    zero = zero and not put.args[1].value.any()  # type: ignore[union-attr]
    fits = test.args[0] is weights.out and put.args[::2] == (test.out, weights.out)
    return (test, put) if zero and fits else ()


def _limit(workload: Workload, steps: Sequence[Binding], cleaning: Sequence[Binding]) -> int | None:
    """The parameter that tells how many keys are no padding, on both sides of the softmax."""
    if not steps or len(cleaning) != 1:
        return None
    before, behind = steps[-1], cleaning[0]
    count, last = before.args[-1], len(before.out.type.shape) - 1
    if (before.op, count) != (behind.op, behind.args[-1]) or count not in workload.body.params:
        return None
    told = [(b.attrs["axis"], b.attrs["value"]) for b in (before, behind)]
    return workload.body.params.index(count) if told == [(last, -math.inf), (last, 0)] else None


def _read(workload: Workload, atom: Atom, before: dict[Atom, Binding]) -> Read | None:
    """What an op reads of the parameters, through transposes, repetition, products by numbers.

    They are taken out of what comes `before`.
    """
    axes, factor, repeat = tuple(range(len(atom.type.shape))), 1.0, (1, 0)
    while b := before.pop(atom, None):
        if b.op is transpose:
            atom, axes = b.args[0], tuple(b.attrs["axes"][a] for a in axes)
        elif b.op is reshape and (found := _repeated(b, before)) and repeat == (1, 0):
            atom, count, along = found
            repeat = count, axes.index(along)
        elif number := _number(b):
            atom, factor = number[0], factor * number[1]
        else:
            return None
    if atom not in workload.body.params or atom.type.dtype != FLOAT32:
        return None
    return Read(workload.body.params.index(atom), axes, factor, *repeat)


def _repeated(b: Binding, before: dict[Atom, Binding]) -> tuple[Atom, int, int] | None:
    """What is repeated as exporters write it, how often, and along which axis."""
    spread_ = before.pop(b.args[0], None)
    new = before.pop(spread_.args[0], None) if spread_ else None
    if spread_ is None or new is None or (spread_.op, new.op) != (broadcast_to, unsqueeze):
        return None
    x, (axis, *more) = new.args[0], new.attrs["axes"]
    shape = x.type.shape
    count = spread_.out.type.shape[axis] if not more and 0 < axis < len(shape) + 1 else None
    if not isinstance(count, int):
        return None
    along = axis - 1
    apart = (*shape[:axis], count, *shape[axis:])
    joined = (*shape[:along], shape[along] * count, *shape[axis:])
    fits = spread_.out.type.shape == apart and b.out.type.shape == joined
    return (x, count, along) if fits else None


def _number(b: Binding) -> tuple[Atom, float] | None:
    """What a binding multiplies by a number or divides by one, and the number."""
    if b.op not in (mul, div):
        return None
    x, y = b.args if isinstance(b.args[1], Const) or b.op is div else b.args[::-1]
    if not isinstance(y, Const) or y.value.size != 1 or len(x.type.shape) < len(y.type.shape):
        return None
    number = float(y.value.reshape(-1)[0])
    return (x, number if b.op is mul else 1 / number) if number else None


def _is_chain(chain: Sequence[Binding], behind: Sequence[Binding], workload: Workload) -> bool:
    """Whether each reads the one before it, where attention has it, and the last is the result."""
    soft = next(i for i, b in enumerate(chain) if b.op is softmax)
    pairs = [(chain[soft - 1], chain[soft]), (chain[-2], chain[-1])]
    pairs += [(chain[-1], b) for b in behind]
    direct = all(later.args[0] is earlier.out for earlier, later in pairs)
    return direct and workload.body.results == [*chain, *behind][-1].outs


def _fits(found: Attention, last: Binding) -> bool:
    """Whether rows lie as the kernel reads and writes them, and the batch is that of the scores."""
    rank = len(found.scores.out.type.shape)
    reads = found.query, found.key, found.value
    rows = found.query.axes, found.value.axes, found.out
    repeats = {(r.count, r.along) for r in reads if r.count > 1}
    return (
        found.value.factor == 1
        and found.query.count == 1
        and len(repeats) <= 1
        and all(along < rank - 2 for _, along in repeats)
        and all(len(r.axes) == rank for r in reads)
        and all(axes[-1] == rank - 1 for axes in rows)
        and rank - 1 in found.key.axes[-2:]
        and found.scores.out.type.shape[:-1] == last.out.type.shape[:-1]
    )


# --- schedules -----------------------------------------------------------------------------------


def _accepts(workload: Workload) -> bool:
    return attention_of(workload) is not None


def _knobs(_workload: Workload, target: Target) -> dict[str, tuple[Knob, ...]]:
    """Rows of a block, and columns of a panel of keys."""
    return {"rows": ROWS, "nr": tuple(target.lanes * v for v in sorted(tallest(target)))}


def _default(_workload: Workload, target: Target) -> dict[str, Knob]:
    return {"rows": BLOCK, "nr": cost.usual_width(target, True)}


def _found(workload: Workload) -> Attention:
    found = attention_of(workload)
    assert found is not None, "asked of a workload that was not accepted"
    return found


def _form(workload: Workload, schedule: Schedule, target: Target) -> HeadForm:
    found, vectors = _found(workload), int(schedule["nr"]) // target.lanes
    features = workload.body.params[found.value.place].type.shape[-1]
    wide = value_vectors(features, target)
    return HeadForm(
        lanes=target.lanes,
        rows=tallest(target)[vectors],
        vectors=vectors,
        value_rows=tallest(target)[wide],
        value_vectors=wide,
        inputs=len(workload.body.params),
        query=found.query.place,
        key=found.key.place,
        value=found.value.place,
        by_key=found.key.axes[-1] != len(found.key.axes) - 1,
        clean=found.clean,
        limit=found.limit,
        epilogue=found.epilogue,
    )


# --- launch --------------------------------------------------------------------------------------


def _launch(workload: Workload, schedule: Schedule, shapes: Shapes, target: Target) -> Launch:
    found, form = _found(workload), _form(workload, schedule, target)
    *arguments, out = shapes
    reads = found.query, found.key, found.value
    query, key, value = (
        (r.seen(arguments[r.place]), r.seen(byte_strides(arguments[r.place], len(r.axes))))
        for r in reads
    )
    made = _undone(out, found.out), _undone(byte_strides(out, len(out)), found.out)
    batch, (rows, features), (depth, keys) = made[0][:-2], made[0][-2:], key[0][-2:]
    steps = [_over(batch, r, *at) for r, at in zip(reads, (query, key, value), strict=True)]
    operands = [
        spread(shape, (*batch, rows, keys), byte_strides(shape, len(out), size))
        for shape, size in _operands(workload, found, arguments)
    ]
    repeated = [*(r.count > 1 for r in reads), False, *(False for _ in operands)]
    shared = max(reads, key=lambda r: r.count)
    levels = _levels(batch, shared, [*steps, made[1][:-2], *operands], repeated)
    cut = balanced(rows, int(schedule["rows"]))
    dims = {
        "keys": keys,
        "depth": depth,
        "features": features,
        "blocks": cut["tiles"],
        "low": cut["low"],
        "tall": cut["tall"],
        "levels": len(levels),
        "copied": rows // COPIED,
        "q_step": query[1][-2],
        "k_step": key[1][-1 if form.by_key else -2],
        "v_step": value[1][-2],
        "c_step": made[1][-2],
    }
    places, space = _space(form, int(schedule["rows"]), keys, depth, features)
    dims |= places | {f"e{i}_step": each[-2] for i, each in enumerate(operands)}
    extent = product(batch) * cut["tiles"] * positive(rows)
    words = (*(dims[name] for name in form.dims), *table(levels))
    return Launch(words, extent, workspace=space)


def _operands(
    workload: Workload, found: Attention, arguments: Sequence[Shape]
) -> list[tuple[Shape, int]]:
    """The shapes of what the scores go through, and the bytes of an element."""
    places = [o.place for o in found.epilogue.operands]
    return [(arguments[p], workload.body.params[p].type.dtype.itemsize) for p in places]


def _over(batch: Shape, read: Read, shape: Shape, strides: Sequence[Dim]) -> tuple[Dim, ...]:
    """The steps of an argument along the axes of the batch; shared heads count once."""
    extents = tuple(d // read.count if a == read.along else d for a, d in enumerate(batch))
    return spread(shape[:-2], extents, strides[:-2])


def _levels(
    batch: Shape, shared: Read, steps: Sequence[Sequence[Dim]], repeated: Sequence[bool]
) -> list[Level]:
    """The levels of the batch, from the steps of each array along its axes.

    An axis of shared heads is two: what is repeated stands still along the second.
    """
    levels: list[Level] = [(size, [s[a] for s in steps]) for a, size in enumerate(batch)]
    if shared.count > 1:
        (size, each), count = levels[shared.along], shared.count
        pairs = list(zip(each, repeated, strict=True))
        outer: list[Dim] = [step if still else step * count for step, still in pairs]
        inner: list[Dim] = [0 if still else step for step, still in pairs]
        levels[shared.along : shared.along + 1] = [(size // count, outer), (count, inner)]
    return merged(levels) or [(1, [0] * len(steps))]


def _undone(extents: Sequence[Dim], axes: Sequence[int]) -> tuple[Dim, ...]:
    """What is told for each axis of a transpose's argument, from what is told for its result's."""
    return tuple(extents[axes.index(a)] for a in range(len(axes)))


def _space(
    form: HeadForm, rows: int, keys: Dim, depth: Dim, features: Dim
) -> tuple[dict[str, Dim], Dim]:
    """Where the parts of the workspace begin, and its bytes: scores, inverses, keys, values.

    Rows of scores are a line longer than they must be, so that they do not share sets of a cache.
    """
    width, wide = (v * form.lanes for v in (form.vectors, form.value_vectors))
    panels = ceil_div(keys, width)
    step = panels * width * FLOAT_BYTES + LINE
    inverses = rows * step
    key_panels = inverses + ceil_div(rows * FLOAT_BYTES, LINE) * LINE
    whole = ceil_div(depth, form.lanes) * form.lanes
    value_panels = key_panels + _lines(panels * width * whole * FLOAT_BYTES)
    end = value_panels + ceil_div(features, wide) * wide * keys * FLOAT_BYTES
    places = {
        "score_step": step,
        "inverses": inverses,
        "key_panels": key_panels,
        "value_panels": value_panels,
    }
    return places, end


def _lines(size: Dim) -> Dim:
    """Bytes of whole lines."""
    return ceil_div(size, LINE) * LINE


# --- the template --------------------------------------------------------------------------------


def _cost(workload: Workload) -> Heads:
    found = _found(workload)
    *batch, rows, keys = found.scores.out.type.shape
    features = workload.body.params[found.value.place].type.shape[-1]
    depth = found.scores.args[0].type.shape[-1]
    steps = (expression.operations(scalar) for scalar, _, _ in found.epilogue.steps)
    return Heads(product(batch), rows, keys, depth, features, sum(steps, Counter[str]()))


TEMPLATE = Template(
    name="attention",
    accepts=_accepts,
    knobs=_knobs,
    default=_default,
    valid=lambda workload, schedule, target: schedule_error(_knobs(workload, target), schedule),
    source=lambda workload, schedule, target: source(_form(workload, schedule, target)),
    launch=_launch,
    pack=lambda *_: None,
    pack_key=lambda *_: "",
    cost=_cost,
)
