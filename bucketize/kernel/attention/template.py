"""The template of attention: softmax(Q K^T, scaled and masked) V, each read in place along strides.

The group is two products with a softmax between them; elementwise ops may lie before the softmax,
and transposes that keep the elements of a row together around it all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bucketize.kernel.attention import loops
from bucketize.kernel.attention.cost import BLOCK, AttentionCost, value_vectors
from bucketize.kernel.attention.form import COPIED, HeadForm
from bucketize.kernel.attention.pattern import Attention, Read, attention_of
from bucketize.kernel.emit import expression
from bucketize.kernel.emit.module import form_source
from bucketize.kernel.emit.writer import FLOAT_BYTES
from bucketize.kernel.gemm import cost
from bucketize.kernel.gemm.level import Level, byte_strides, merged, table
from bucketize.kernel.gemm.matmul import balanced
from bucketize.kernel.gemm.schedule import tallest
from bucketize.kernel.loops.loop import spread
from bucketize.kernel.schedule import Knob, Schedule
from bucketize.kernel.template import Launch, Shapes, Template, everywhere
from bucketize.kernel.workload import Workload, accepted
from bucketize.machine.target import LINE, Target
from bucketize.types import Dim, Shape, ceil_div, minimum, positive, product

ROWS = (12, 24, 48)  # of Q in a block
SEGMENT = 64  # rows, by which segments are judged: only a run tells how long they are

# --- schedules -----------------------------------------------------------------------------------


def _knobs(_workload: Workload, target: Target) -> dict[str, tuple[Knob, ...]]:
    """Rows of a block, and columns of a panel of keys."""
    return {"rows": ROWS, "nr": tuple(target.lanes * v for v in sorted(tallest(target)))}


def _default(_workload: Workload, target: Target) -> dict[str, Knob]:
    return {"rows": BLOCK, "nr": cost.usual_width(target, True)}


def _form(workload: Workload, schedule: Schedule, target: Target) -> HeadForm:
    attention, vectors = accepted(attention_of(workload)), int(schedule["nr"]) // target.lanes
    features = workload.body.params[attention.value.place].type.shape[-1]
    wide = value_vectors(features, target)
    return HeadForm(
        lanes=target.lanes,
        rows=tallest(target)[vectors],
        vectors=vectors,
        value_rows=tallest(target)[wide],
        value_vectors=wide,
        inputs=len(workload.body.params),
        query=attention.query.place,
        key=attention.key.place,
        value=attention.value.place,
        by_key=attention.key.axes[-1] != len(attention.key.axes) - 1,
        clean=attention.clean,
        limit=attention.limit,
        segments=attention.segments,
        in_order=target.in_order,
        epilogue=attention.epilogue,
    )


# --- launch --------------------------------------------------------------------------------------


def _launch(workload: Workload, schedule: Schedule, shapes: Shapes, target: Target) -> Launch:
    attention, form = accepted(attention_of(workload)), _form(workload, schedule, target)
    *arguments, out = shapes
    reads = attention.query, attention.key, attention.value
    query, key, value = (
        (r.seen(arguments[r.place]), r.seen(byte_strides(arguments[r.place], len(r.axes))))
        for r in reads
    )
    extents, strides = (_undone(n, attention.out) for n in (out, byte_strides(out, len(out))))
    batch, (rows, features), (depth, keys) = extents[:-2], extents[-2:], key[0][-2:]
    steps = [_over(batch, r, *at) for r, at in zip(reads, (query, key, value), strict=True)]
    operands = [
        spread(shape, (*batch, rows, keys), byte_strides(shape, len(out), size))
        for shape, size in _operands(workload, attention, arguments)
    ]
    repeated = [*(r.count > 1 for r in reads), False, *(False for _ in operands)]
    shared = max(reads, key=lambda r: r.count)
    levels = _levels(batch, shared, [*steps, strides[:-2], *operands], repeated)
    height, heads = int(schedule["rows"]), product(batch)
    cut = balanced(rows, height)
    dims = {
        "keys": keys,
        "depth": depth,
        "features": features,
        "blocks": cut["tiles"],
        "low": cut["low"],
        "tall": cut["tall"],
        "heads": heads,
        "height": height,
        "levels": len(levels),
        "copied": rows // COPIED,
        "q_step": query[1][-2],
        "k_step": key[1][-1 if form.by_key else -2],
        "v_step": value[1][-2],
        "c_step": strides[-2],
    }
    places, space = _space(form, height, keys, depth, features)
    dims |= places | {f"e{i}_step": each[-2] for i, each in enumerate(operands)}
    extent = heads * cut["tiles"] * positive(rows)
    if attention.segments is not None:
        extent = heads * arguments[attention.segments][0]
    words = (*(dims[name] for name in form.dims), *table(levels))
    return Launch(words, extent, workspace=space)


def _operands(
    workload: Workload, attention: Attention, arguments: Sequence[Shape]
) -> list[tuple[Shape, int]]:
    """The shapes of what the scores go through, and the bytes of an element."""
    places = [o.place for o in attention.epilogue.operands]
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
    value_panels = key_panels + ceil_div(panels * width * whole * FLOAT_BYTES, LINE) * LINE
    end = value_panels + ceil_div(features, wide) * wide * keys * FLOAT_BYTES
    places = {
        "score_step": step,
        "inverses": inverses,
        "key_panels": key_panels,
        "value_panels": value_panels,
    }
    return places, end


# --- the template --------------------------------------------------------------------------------


def _cost(workload: Workload) -> AttentionCost:
    attention = accepted(attention_of(workload))
    *batch, rows, keys = attention.scores.out.type.shape
    if attention.segments is not None:
        batch, rows = [*batch, ceil_div(keys, SEGMENT)], minimum(rows, SEGMENT)
        keys = rows
    features = workload.body.params[attention.value.place].type.shape[-1]
    depth = attention.scores.args[0].type.shape[-1]
    steps = (expression.operations(scalar) for scalar, _, _ in attention.epilogue.steps)
    return AttentionCost(product(batch), rows, keys, depth, features, sum(steps, Counter[str]()))


TEMPLATE = Template(
    name="attention",
    accepts=lambda workload: attention_of(workload) is not None,
    knobs=_knobs,
    defaults=everywhere(_default),
    source=lambda workload, schedule, target: form_source(
        loops.__name__, _form(workload, schedule, target)
    ),
    launch=_launch,
    cost=_cost,
)
