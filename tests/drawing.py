"""Random modules: elementwise ops, branches, loops, groups and calls, as the draw will have it."""

import inspect
from contextlib import suppress
from itertools import count

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import bucketize.ops  # noqa: F401  (fills the table of operators)
from bucketize.errors import BucketizeError
from bucketize.ir import (
    CALL,
    FUSED,
    IF,
    LOOP,
    NO_BUCKET,
    ROUND,
    Builder,
    Const,
    Module,
    Var,
    all_bindings,
    copy_block,
    settle,
    without_value,
)
from bucketize.op import all_ops
from bucketize.ops.dim import dim_less
from bucketize.types import ANY, Symbol, tensor

NUMBERS = count()
"""Of the functions that are called: each call has one of its own."""
ELEMENTWISE = sorted(n for n, o in all_ops().items() if o.scalar is not None and not o.defaults)


@st.composite
def modules(draw):
    """A module of main and what it calls."""
    lo = draw(st.integers(0, 3))
    n = Symbol("N", lo, draw(st.none() | st.integers(lo, 9)))
    params = [
        Var("x", tensor("float32", n, 4)),
        Var("y", tensor("float32", draw(st.sampled_from([1, 4, n, ANY, n // 2 + 1])))),
        Var("k", tensor("int64", 2 * n - 1)),
        Var("b", tensor("bool")),
    ]
    out, pool = Builder(), list(params)
    grow(draw, out, pool, depth=2)
    results = draw(st.lists(st.sampled_from(pool), max_size=3))
    main = out.function("main", params, results)
    calls = [b for b in all_bindings(main) if b.op is CALL]
    return Module({"main": main} | {b.attrs["callee"]: callee(b) for b in calls})


def callee(b):
    """A function that a call fits."""
    inner = Builder()
    made = inner.emit_all(NO_BUCKET, sizes=(3,), buckets="none", types=b.attrs["types"])
    params = [Var(f"p{i}", without_value(a.type)) for i, a in enumerate(b.args)]
    return inner.function(b.attrs["callee"], params, made)


def grow(draw, out, pool, depth):
    for _ in range(draw(st.integers(0, 4))):
        step = draw(st.sampled_from([ordinary, ordinary, constant, branch, loop, group, call]))
        with suppress(BucketizeError):  # types may not fit
            pool.extend(step(draw, out, pool, depth))


def ordinary(draw, out, pool, depth):
    op = all_ops()[draw(st.sampled_from(ELEMENTWISE))]
    count = len(inspect.signature(op.compute).parameters)
    return [out.emit(op, *(draw(st.sampled_from(pool)) for _ in range(count)))]


def constant(draw, out, pool, depth):
    shape = draw(st.sampled_from([(), (4,), (1, 4), (3, 4)]))
    return [Const(draw(arrays.arrays("float32", shape)))]


def branch(draw, out, pool, depth):
    if not depth:
        return []
    cond = out.emit(dim_less, dim=draw(st.sampled_from(sorted(pool[0].type.symbols()))), than=3)
    result = draw(st.sampled_from(pool))
    halves = []
    for _ in range(2):
        inner, seen = Builder(), list(pool)
        grow(draw, inner, seen, depth - 1)
        same = [v for v in seen if v.type.dtype == result.type.dtype]
        same = [v for v in same if len(v.type.shape) == len(result.type.shape)]
        halves.append(inner.function("", (), [draw(st.sampled_from(same))]))
    return out.emit_all(IF, cond, then=halves[0], orelse=halves[1])


def loop(draw, out, pool, depth):
    if not depth:
        return []
    carried = draw(st.lists(st.sampled_from(pool), max_size=2))
    params = [Var("i", ROUND), *(Var("c", tensor(a.type.dtype, *a.type.shape)) for a in carried)]
    inner, seen = Builder(), [*pool, *params[1:]]
    grow(draw, inner, seen, depth - 1)
    kept = [draw(st.sampled_from([v for v in seen if fits(v, a)])) for a in carried]
    rows = draw(st.lists(st.sampled_from(seen), max_size=2))
    drawn = inner.function("body", params, (TRUE, *kept, *rows))
    body = settle([a.type for a in carried], lambda new: copy_block(drawn, {}, new))
    trips = Const(np.array(draw(st.integers(0, 3))))
    return out.emit_all(LOOP, trips, TRUE, *carried, body=body)


def fits(atom, other):
    a, b = atom.type, other.type
    return a.dtype == b.dtype and len(a.shape) == len(b.shape)


TRUE = Const(np.array(True))


def group(draw, out, pool, depth):
    args = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3))
    params = [Var(f"x{i}", a.type) for i, a in enumerate(args)]
    inner, seen = Builder(), list(params)
    for _ in range(3):
        seen.extend(ordinary(draw, inner, seen, 0))
    return out.emit_all(FUSED, *args, body=inner.function("", params, seen[-1:]))


def call(draw, out, pool, depth):
    args = draw(st.lists(st.sampled_from(pool), max_size=2))
    types = tuple(a.type for a in draw(st.lists(st.sampled_from(pool), max_size=2)))
    if draw(st.booleans()):
        name = f"f{next(NUMBERS)}{draw(st.sampled_from(['', '[N=1]']))}"
        return out.emit_all(CALL, *args, callee=name, types=types)
    return out.emit_all(NO_BUCKET, sizes=(3,), buckets="it's", types=types)
