"""Attention as one kernel: it equals its group at any size and layout; where fusion finds it."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx_model import draw, parse, run_ort
from test_transforms import check as check_transform
from test_vector_templates import TARGETS, Case, run, shape_of

import bucketize
from bucketize import ops
from bucketize.dispatch.tree import dispatch
from bucketize.errors import TypeRelError
from bucketize.interpret import evaluate_module, run_function
from bucketize.ir import FUSED, Atom, Builder, Const, Function, Module, Var
from bucketize.kernel.attention import template as attention
from bucketize.kernel.attention.mask import hiding_of
from bucketize.kernel.attention.pattern import attention_of
from bucketize.kernel.gemm.epilogue import Epilogue, Operand
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload
from bucketize.lower.alternative import Alternatives
from bucketize.lower.arrangement import USUAL
from bucketize.lower.fuse import fuse
from bucketize.machine.host import host
from bucketize.machine.target import Target
from bucketize.onnx import from_onnx
from bucketize.op import Array, Op
from bucketize.transform.simplify import simplify
from bucketize.types import ANY, Dim, Symbol, tensor
from bucketize.verify import verify

pytestmark = pytest.mark.usefixtures("few_registers")

B, H, S, T, D, E = (Symbol(name) for name in "BHSTDE")
EXPORTED = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))  # of Q, K and V
PLAIN = ((B, H, S, D), (B, H, D, T), (B, H, T, E))
APART = ((B, S, H, D), (B, T, H, D), (B, T, H, E))


EIGHT = Const(np.arange(8, dtype=np.float32))


def number(value: float) -> Const:
    return Const(np.asarray(value, np.float32))


def plain(b: Builder, q: Atom, k: Atom, v: Atom, *mask: Atom) -> Var:
    """Scores, through a mask if there is one, and what their softmax makes of the values."""
    scores = b.emit(ops.matmul, q, k)
    for m in mask:
        scores = b.emit(ops.add, b.emit(ops.div, scores, number(9)), m)
    axis = len(scores.type.shape) - 1
    return b.emit(ops.matmul, b.emit(ops.softmax, scores, axis=axis), v)


def exported(b: Builder, q: Atom, k: Atom, v: Atom, *mask: Atom) -> Var:
    """The same of heads that lie beside each other, as exporters write it."""
    turned = (b.emit(ops.transpose, x, axes=a) for x, a in zip((q, k, v), EXPORTED, strict=True))
    return b.emit(ops.transpose, plain(b, *turned, *mask), axes=(0, 2, 1, 3))


def case(make: Any, *types: tuple[Dim, ...]) -> Case:
    return Case(attention.TEMPLATE, make, types, ())


WITHOUT, PER_KEY, FULL = (
    case(exported, *APART, *mask) for mask in ((), ((B, 1, 1, T),), ((S, T),))
)
IN_PLACE = case(plain, *PLAIN, (1, H, S, 1))


def drawn(of: Case, sizes: Mapping[str, int]) -> list[Array]:
    rng = np.random.default_rng(0)
    shapes = (shape_of(t, sizes) for t in of.types)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def computed(of: Case, args: list[Array], sizes: Mapping[str, int], target: Target) -> Array:
    load = of.workload()
    schedule = of.template.default(load, target)
    return run(of.template, load, schedule, args, target, sizes)


def check(of: Case, sizes: Mapping[str, int], target: Target) -> None:
    args = drawn(of, sizes)
    (want,) = run_function(of.workload().body, [a.astype(np.float64) for a in args])
    got = computed(of, args, sizes, target)
    np.testing.assert_allclose(got, want, atol=3e-6, err_msg=str(sizes))


def sized(rows: int, keys: int, depth: int, features: int, heads: int = 2) -> dict[str, int]:
    return {"B": 2, "H": heads, "S": rows, "T": keys, "D": depth, "E": features}


# --- the kernel -----------------------------------------------------------------------------------

ROWS = (1, 2, 15, 16, 17, 64, 100, 130)


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize("of", [PER_KEY, IN_PLACE], ids=["exported", "in place"])
def test_attention_equals_its_group(of: Case, target: Target) -> None:
    assert attention.TEMPLATE.accepts(of.workload())
    for i, rows in enumerate(ROWS):
        depth = (16, 32, 64, 80)[i % 4]
        check(of, sized(rows, rows, depth, depth), target)
        check(of, sized(rows, ROWS[-1 - i], 1 + i, 3 * i + 1), target)
    check(of, sized(512, 512, 64, 64, heads=1) | {"B": 1}, target)


@pytest.mark.parametrize("of", [WITHOUT, FULL], ids=["no mask", "full mask"])
def test_attention_with_other_masks(of: Case) -> None:
    for rows, keys in ((1, 130), (130, 1), (33, 70)):
        # without a mask they are not divided: few elements, so that they stay small
        check(of, sized(rows, keys, 4, 40), TARGETS[0])


def test_heads_that_are_shared_are_read_where_they_are() -> None:
    shared = case(plain, (B, H, S, D), (1, D, T), (T, E))
    assert not attention.TEMPLATE.accepts(shared.workload())  # of other ranks
    for keys, values in (((B, 1, D, T), (1, H, T, E)), ((B, 1, D, T), (B, 1, T, E))):
        shared = case(plain, (B, H, S, D), keys, values)
        check(shared, sized(7, 19, 16, 16, heads=3), TARGETS[0])


def hidden(b: Builder, q: Atom, k: Atom, v: Atom, mask: Atom) -> Var:
    """Scores where a mask is true, else a number; as of GPT-2."""
    scores = b.emit(ops.where, mask, b.emit(ops.matmul, q, k), number(-1e4))
    return b.emit(ops.matmul, b.emit(ops.softmax, scores, axis=3), v)


@pytest.mark.parametrize("mask", [(S, T), (B, 1, S, T), (B, 1, 1, T), (B, H, S, 1), (B, 1, 1, 1)])
def test_masks_of_truths(mask: tuple[Dim, ...]) -> None:
    of = case(hidden, *PLAIN, mask)
    params = [
        Var(f"p{i}", tensor("bool" if i == 3 else "float32", *t)) for i, t in enumerate(of.types)
    ]
    out = Builder()
    load = Workload(out.function("", params, [hidden(out, *params)]), (False,) * 4)
    rng = np.random.default_rng(0)
    for rows, keys in ((3, 37), (40, 64)):
        sizes = sized(rows, keys, 4, 16)
        *args, drawn_mask = drawn(of, sizes)
        truths = rng.random(drawn_mask.shape) < 0.5
        (want,) = run_function(load.body, [*args, truths])
        schedule = attention.TEMPLATE.default(load, TARGETS[0])
        got = run(attention.TEMPLATE, load, schedule, [*args, truths], TARGETS[0], sizes)
        np.testing.assert_allclose(got, want, atol=3e-6)


def scaled(b: Builder, q: Atom, k: Atom, v: Atom, mask: Atom) -> Var:
    """Q and K each times the root of a scale, as torch writes it."""
    turned = (b.emit(ops.transpose, x, axes=a) for x, a in zip((q, k, v), EXPORTED, strict=True))
    x, y, z = turned
    x, y = b.emit(ops.mul, x, number(0.5)), b.emit(ops.div, y, number(-3))
    scores = b.emit(ops.add, b.emit(ops.matmul, x, y), mask)
    return b.emit(ops.matmul, b.emit(ops.softmax, scores, axis=3), z)


def test_factors_of_queries_and_keys_become_one_of_the_scores() -> None:
    of = case(scaled, *APART, (S, T))
    found = attention_of(of.workload())
    assert found is not None
    assert found.epilogue.steps[0] == ("x0 * x1", (0, float(np.float32(-0.5 / 3))), ())
    for rows, keys in ((3, 37), (40, 64)):
        check(of, sized(rows, keys, 16, 16), TARGETS[0])


def repeated(b: Builder, x: Atom, count: int, *, axis: int = 2) -> Var:
    """Each head `count` times, as exporters write it."""
    apart = b.emit(ops.unsqueeze, x, axes=(axis,))
    shape = tuple(count if a == axis else d for a, d in enumerate(apart.type.shape))
    spread = b.emit(ops.broadcast_to, apart, shape=shape)
    joined = (*shape[: axis - 1], shape[axis - 1] * count, *shape[axis + 1 :])
    return b.emit(ops.reshape, spread, newshape=joined)


def grouped(b: Builder, q: Atom, k: Atom, v: Atom, mask: Atom) -> Var:
    """Three heads of Q for each of K and V, which lie beside each other; as of Llama."""
    k, v = (b.emit(ops.transpose, x, axes=(0, 2, 1, 3)) for x in (k, v))
    k = b.emit(ops.transpose, repeated(b, k, 3), axes=(0, 1, 3, 2))
    return plain(b, q, k, repeated(b, v, 3), mask)


@pytest.mark.parametrize("mask", [(B, 1, S, T), (B, 6, 1, T), (6, S, T)])
def test_heads_that_are_repeated_are_read_where_they_are(mask: tuple[Dim, ...]) -> None:
    of = case(grouped, (B, 6, S, D), (B, T, 2, D), (B, T, 2, E), mask)
    for rows, keys in ((1, 37), (40, 64)):
        check(of, sized(rows, keys, 16, 16), TARGETS[0])


@pytest.mark.parametrize("level", [1e3, -1e3])
def test_scores_far_from_zero_neither_overflow_nor_vanish(level: float) -> None:
    sizes = sized(17, 40, 64, 16)
    q, k, v, mask = drawn(FULL, sizes)
    args = [q, k, v, mask + np.float32(level)]
    (want,) = run_function(FULL.workload().body, [a.astype(np.float64) for a in args])
    rounded = np.spacing(np.float32(level))  # of each score
    got = computed(FULL, args, sizes, TARGETS[0])
    np.testing.assert_allclose(got, want, atol=4 * abs(float(rounded)))


def test_infinities_and_nan_stay_in_their_rows() -> None:
    sizes = sized(5, 37, 8, 8)
    q, k, v, mask = drawn(FULL, sizes)
    mask[0] = -math.inf
    mask[1, 5:] = -math.inf
    mask[2, 36] = math.inf
    mask[3, 7] = math.nan
    (want,) = run_function(FULL.workload().body, [q, k, v, mask])
    got = computed(FULL, [q, k, v, mask], sizes, TARGETS[0])
    np.testing.assert_allclose(got, want, atol=3e-6)
    assert [bool(np.isnan(got[:, s]).all()) for s in range(5)] == [True, False, True, True, False]


def tailed(b: Builder, q: Atom, k: Atom, v: Atom, count: Atom, other: Atom | None = None) -> Var:
    """Keys that are padding hidden, before and behind the softmax; as the policy pad does it."""
    scores = b.emit(ops.mul, b.emit(ops.matmul, q, k), number(0.5))
    scores = b.emit(ops.mask_tail, scores, count, axis=3, value=-math.inf)
    weights = b.emit(ops.softmax, scores, axis=3)
    weights = b.emit(ops.mask_tail, weights, other or count, axis=3, value=0.0)
    return b.emit(ops.matmul, weights, v)


def tail_of(*counts: str) -> Workload:
    params = [Var(f"p{i}", tensor("float32", *t)) for i, t in enumerate(PLAIN)]
    params += [Var(name, tensor("int64")) for name in counts]
    out = Builder()
    return Workload(out.function("", params, [tailed(out, *params)]), (False,) * len(params))


def test_keys_that_are_padding_weigh_nothing() -> None:
    load, rng, template = tail_of("n"), np.random.default_rng(0), attention.TEMPLATE
    for rows, keys, count in ((3, 37, 5), (40, 64, 64), (40, 64, 33), (2, 9, 0), (2, 9, 99)):
        sizes = sized(rows, keys, 4, 16)
        args = [rng.standard_normal(shape_of(t, sizes)).astype(np.float32) for t in PLAIN]
        args.append(np.asarray(count))
        (want,) = run_function(load.body, args)
        got = run(template, load, template.default(load, TARGETS[0]), args, TARGETS[0], sizes)
        np.testing.assert_allclose(got, want, atol=3e-6)


def test_tails_of_two_lengths_are_declined() -> None:
    assert attention_of(tail_of("n")) is not None
    assert attention_of(tail_of("n", "m")) is None


def segmented(b: Builder, q: Atom, k: Atom, v: Atom, ends: Atom, *mask: Atom) -> Var:
    """Keys of other segments hidden, behind a mask if there is one; as `ragged` does it."""
    scores = b.emit(ops.matmul, q, k)
    for m in mask:
        bias = m.type.dtype == np.float32
        scores = b.emit(ops.add, scores, m) if bias else b.emit(ops.where, m, scores, number(-9))
    scores = b.emit(ops.mask_segments, scores, ends, value=-math.inf)
    axis = len(scores.type.shape) - 1
    return b.emit(ops.matmul, b.emit(ops.softmax, scores, axis=axis), v)


def apart(b: Builder, q: Atom, k: Atom, v: Atom, ends: Atom, *mask: Atom) -> Var:
    """The same of heads that lie beside each other."""
    turned = (b.emit(ops.transpose, x, axes=a) for x, a in zip((q, k, v), EXPORTED, strict=True))
    return b.emit(ops.transpose, segmented(b, *turned, ends, *mask), axes=(0, 2, 1, 3))


R = Symbol("R")
SQUARE = ((B, H, S, D), (B, H, D, S), (B, H, S, E))
BESIDE = ((B, S, H, D), (B, S, H, D), (B, S, H, E))


def segments_of(make: Any, types: Any, *mask: Any) -> Workload:
    params = [Var(f"p{i}", tensor("float32", *t)) for i, t in enumerate(types)]
    params += [Var("ends", tensor("int64", R)), *(Var("m", tensor(d, *t)) for d, t in mask)]
    out = Builder()
    return Workload(out.function("", params, [make(out, *params)]), (False,) * len(params))


def segment_arguments(load: Workload, sizes: Mapping[str, int], ends: list[int]) -> list[Array]:
    rng = np.random.default_rng(0)
    args = []
    for p in load.body.params:
        drawn_ = rng.standard_normal(shape_of(p.type.shape, {**sizes, "R": len(ends)}))
        args.append(drawn_ > 0 if p.type.dtype == bool else drawn_.astype(np.float32))
    args[3] = np.array(ends)
    return args


MASKS = [
    (),
    ("float32", (S, S)),
    ("float32", (B, 1, 1, S)),
    ("float32", (H, S, 1)),
    ("bool", (S, S)),
]
ENDS = ([1], [5, 6, 23], [17, 17, 34, 130], [64, 128, 129])


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize(("make", "types"), [(segmented, SQUARE), (apart, BESIDE)])
def test_segments_are_attention_of_their_own(make: Any, types: Any, target: Target) -> None:
    for i, ends in enumerate(ENDS):
        mask = MASKS[i : i + 1] if MASKS[i] else []
        load = segments_of(make, types, *mask)
        sizes = sized(ends[-1], ends[-1], (16, 32, 20, 64)[i], (16, 5, 64, 33)[i])
        args = segment_arguments(load, sizes, ends)
        (want,) = run_function(
            load.body, [a.astype(np.float64) if a.dtype == np.float32 else a for a in args]
        )
        schedule = attention.TEMPLATE.default(load, target)
        sizes |= {"R": len(ends)}
        got = run(attention.TEMPLATE, load, schedule, args, target, sizes)
        np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("mask", MASKS[1:])
def test_segments_behind_any_mask(mask: Any) -> None:
    load, ends = segments_of(apart, BESIDE, mask), [9, 41, 60]
    sizes = sized(60, 60, 16, 16) | {"R": 3}
    args = segment_arguments(load, sizes, ends)
    (want,) = run_function(load.body, args)
    schedule = attention.TEMPLATE.default(load, TARGETS[0])
    got = run(attention.TEMPLATE, load, schedule, args, TARGETS[0], sizes)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_what_is_no_number_stays_in_its_segment() -> None:
    load, ends = segments_of(segmented, SQUARE), [7, 20, 45]
    sizes = sized(45, 45, 16, 16) | {"R": 3}
    args = segment_arguments(load, sizes, ends)
    args[0][:, :, 7:20], args[1][..., 7:20], args[2][:, :, 7:20] = np.nan, np.inf, np.nan
    schedule = attention.TEMPLATE.default(load, TARGETS[0])
    got = run(attention.TEMPLATE, load, schedule, args, TARGETS[0], sizes)
    assert np.isnan(got[:, :, 7:20]).all()
    assert np.isfinite(got[:, :, :7]).all()
    assert np.isfinite(got[:, :, 20:]).all()


@pytest.mark.parametrize("ends", [[-5, 9], [99, 3], [2**62, -(2**62)], [20, 45]])
def test_segments_that_end_anywhere_stay_within_the_arrays(ends: list[int]) -> None:
    load, sizes = segments_of(apart, BESIDE), sized(40, 40, 16, 16) | {"R": 2}
    args = segment_arguments(load, sizes, [20, 40])
    schedule = attention.TEMPLATE.default(load, TARGETS[0])
    run(attention.TEMPLATE, load, schedule, [*args[:3], np.array(ends)], TARGETS[0], sizes)


def test_a_mask_of_segments_is_that_of_numpy_where_no_kernel_has_it() -> None:
    x, ends = np.ones((2, 5, 5), np.float32), np.array([2, 2, 5])
    got = ops.mask_segments.compute(x, ends, value=0.0)
    np.testing.assert_array_equal(got[0], np.kron(np.eye(2), np.ones((3, 3)))[1:, 1:])


def at_the_edge(array: Array) -> Array:
    """The same, with memory behind it that nobody may read."""
    size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(memory.ctypes.data + size), mmap.PAGESIZE, 0) == 0
    placed = memory[size - array.nbytes : size].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


@pytest.mark.parametrize("of", [PER_KEY, IN_PLACE], ids=["exported", "in place"])
@pytest.mark.parametrize("rows", [3, 40])
def test_nothing_is_read_behind_the_arguments(of: Case, rows: int) -> None:
    """In a process of its own, which ends where it is."""
    sizes = sized(rows, 37, 19, 23)
    computed(of, drawn(of, sizes), sizes, TARGETS[0])  # the kernel is built
    child = os.fork()
    if not child:
        failed = 1
        try:
            computed(of, [at_the_edge(a) for a in drawn(of, sizes)], sizes, TARGETS[0])
            failed = 0
        finally:
            os._exit(failed)
    assert os.waitpid(child, 0)[1] == 0


def cleaned(b: Builder, q: Atom, k: Atom, v: Atom, mask: Atom) -> Var:
    """Rows that a mask hides whole weigh nothing; as torch writes it."""
    scores = b.emit(ops.add, b.emit(ops.matmul, q, k), mask)
    weights = b.emit(ops.softmax, scores, axis=3)
    weights = b.emit(ops.where, b.emit(ops.isnan, weights), number(0), weights)
    return b.emit(ops.matmul, weights, v)


def test_rows_of_weights_that_are_no_numbers_count_as_zero() -> None:
    of, sizes = case(cleaned, *PLAIN, (S, T)), sized(5, 37, 8, 8)
    q, k, v, mask = drawn(of, sizes)
    mask[0] = -math.inf
    mask[1, 5:] = -math.inf
    mask[2, 36] = math.inf
    mask[3, 7] = math.nan
    (want,) = run_function(of.workload().body, [q, k, v, mask])
    got = computed(of, [q, k, v, mask], sizes, TARGETS[0])
    np.testing.assert_allclose(got, want, atol=3e-6)
    assert [bool(np.any(got[:, :, s])) for s in range(5)] == [False, True, False, False, True]


def test_no_keys_weigh_nothing_and_no_rows_are_no_work() -> None:
    dims = [Symbol(name, 0) for name in "ST"]
    empty = case(plain, (dims[0], 4), (4, dims[1]), (dims[1], 8))
    for rows, keys in ((3, 0), (0, 3)):
        sizes = {"S": rows, "T": keys}
        got = computed(empty, drawn(empty, sizes), sizes, TARGETS[0])
        np.testing.assert_array_equal(got, np.zeros((rows, 8)))


# --- what a mask hides ----------------------------------------------------------------------------

LONG = sized(130, 130, 16, 16)


def in_order(rows: int, keys: int, low: float = -math.inf) -> Array:
    """Keys that come later are hidden by such a number."""
    hidden = np.arange(keys) > np.arange(rows)[:, None]
    return np.where(hidden, np.float32(low), np.float32(0))


def chosen(b: Builder, q: Atom, k: Atom, v: Atom, mask: Atom, *, swapped: bool = False) -> Var:
    """Scores where truths say so, else none."""
    scores = b.emit(ops.matmul, q, k)
    pair = (number(-math.inf), scores) if swapped else (scores, number(-math.inf))
    scores = b.emit(ops.where, mask, *pair)
    return b.emit(ops.matmul, b.emit(ops.softmax, scores, axis=3), v)


def masked(make: Any, held: str = "float32") -> Workload:
    types = [tensor("float32", *t) for t in PLAIN] + [tensor(held, S, T)]
    params = [Var(f"p{i}", t) for i, t in enumerate(types)]
    out = Builder()
    return Workload(out.function("", params, [make(out, *params)]), (False,) * 4)


def through(load: Workload, args: list[Array], target: Target = TARGETS[0]) -> Array:
    schedule = attention.TEMPLATE.default(load, target)
    return run(attention.TEMPLATE, load, schedule, args, target, LONG)


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize("low", [-math.inf, float(np.finfo(np.float32).min)])
def test_keys_that_come_later_are_not_read(low: float, target: Target) -> None:
    """They are no numbers; but for those that share a vector with one that is seen."""
    load = masked(plain)
    q, k, v, _ = drawn(case(plain, *PLAIN, (S, T)), LONG)
    mask = in_order(130, 130, low)
    (want,) = run_function(load.body, [a.astype(np.float64) for a in (q, k, v, mask)])
    got = through(load, [q, k, v, mask], target)
    np.testing.assert_allclose(got, want, atol=3e-6)
    k[..., 112:], v[:, :, 112:] = math.nan, math.nan
    poisoned = through(load, [q, k, v, mask], target)
    np.testing.assert_array_equal(poisoned[:, :, :80], got[:, :, :80])
    assert np.isnan(poisoned[:, :, 112:]).all()


@pytest.mark.parametrize("swapped", [False, True])
def test_truths_hide_keys(*, swapped: bool) -> None:
    load = masked(partial(chosen, swapped=swapped), "bool")
    q, k, v, _ = drawn(case(plain, *PLAIN, (S, T)), LONG)
    mask = (in_order(130, 130) == 0) ^ swapped
    (want,) = run_function(load.body, [q, k, v, mask])
    np.testing.assert_allclose(through(load, [q, k, v, mask]), want, atol=3e-6)
    v[:, :, 112:] = math.nan
    assert np.isfinite(through(load, [q, k, v, mask])[:, :, :80]).all()


def test_rows_that_a_mask_hides_whole_are_those_of_all_keys() -> None:
    """The lowest number hides nothing where all are so low: the mean of all values."""
    load, low = masked(plain), float(np.finfo(np.float32).min)
    q, k, v, _ = drawn(case(plain, *PLAIN, (S, T)), LONG)
    for hidden, mask in ((low, in_order(130, 130, low)), (-math.inf, in_order(130, 130))):
        mask[[3, 40]] = hidden
        (want,) = run_function(load.body, [q, k, v, mask])
        np.testing.assert_allclose(through(load, [q, k, v, mask]), want, atol=3e-6)


def test_no_number_in_a_mask_shows() -> None:
    load = masked(plain)
    q, k, v, _ = drawn(case(plain, *PLAIN, (S, T)), LONG)
    mask = in_order(130, 130)
    mask[5, 129] = math.nan
    got = through(load, [q, k, v, mask])
    assert [s for s in range(130) if np.isnan(got[:, :, s]).any()] == [5]


@pytest.mark.parametrize(
    ("steps", "operands", "hides"),
    [
        ([("x0 + x1", (0, 1), ())], ["full"], True),
        ([("x0 + x1", (1, 0), ())], ["column"], True),
        ([("x0 * x1", (0, 2.0), ()), ("x0 + x1", (2, 1), ())], ["full"], True),
        ([("where(x0, x1, x2)", (1, 0, -math.inf), ())], ["full"], True),
        ([], [], False),
        ([("x0 + x1", (0, 1), ())], ["row"], False),
        ([("x0 - x1", (0, 1), ())], ["full"], False),
        ([("x0 + x1", (0, 1), ()), ("x0 * x1", (2, -1.0), ())], ["full"], False),
        ([("x0 + x1", (0, 1), ()), ("x0 + x1", (1, 2), ())], ["full", "full"], False),
        ([("where(x0, x1, x2)", (1, 0, -1e4), ())], ["full"], False),
        ([("where(x0, x1, x2)", (1, 0.0, -math.inf), ())], ["full"], False),
    ],
)
def test_the_last_step_of_scores_hides(steps: Any, operands: list[str], *, hides: bool) -> None:
    kinds_ = tuple(Operand(i, kind) for i, kind in enumerate(operands))
    assert (hiding_of(Epilogue(kinds_, tuple(steps))) is not None) == hides


# --- what is declined -----------------------------------------------------------------------------


def other_axis(b: Builder, q: Atom, k: Atom, v: Atom) -> Var:
    return b.emit(ops.matmul, b.emit(ops.softmax, b.emit(ops.matmul, q, k), axis=0), v)


def weights_last(b: Builder, q: Atom, k: Atom, v: Atom) -> Var:
    return b.emit(ops.matmul, v, b.emit(ops.softmax, b.emit(ops.matmul, q, k), axis=1))


def turned(b: Builder, q: Atom, k: Atom, v: Atom, *, which: int) -> Var:
    """One of them with the elements of its rows apart."""
    atoms = [q, k, v]
    atoms[which] = b.emit(ops.transpose, atoms[which], axes=(1, 0))
    return plain(b, *atoms)


def turned_out(b: Builder, q: Atom, k: Atom, v: Atom) -> Var:
    return b.emit(ops.transpose, plain(b, q, k, v), axes=(1, 0))


def values_of_scores(b: Builder, q: Atom, k: Atom, v: Atom) -> Var:
    scores = b.emit(ops.matmul, q, k)
    return b.emit(ops.matmul, b.emit(ops.softmax, scores, axis=1), scores)


def not_cleaned(b: Builder, q: Atom, k: Atom, v: Atom, *, by: float) -> Var:
    """Something else is put there, or it is put elsewhere."""
    weights = b.emit(ops.softmax, b.emit(ops.matmul, q, k), axis=1)
    pair = (number(by), weights) if by else (weights, number(by))
    return b.emit(ops.matmul, b.emit(ops.where, b.emit(ops.isnan, weights), *pair), v)


def after(b: Builder, q: Atom, k: Atom, v: Atom) -> Var:
    return b.emit(ops.relu, plain(b, q, k, v))


def factors(b: Builder, q: Atom, k: Atom, v: Atom, *, which: int, by: Const) -> Var:
    """One of them times a constant that the scores cannot be multiplied by in its place."""
    atoms = [q, k, v]
    atoms[which] = b.emit(ops.mul, atoms[which], by)
    return plain(b, *atoms)


def powers(b: Builder, q: Atom, k: Atom, v: Atom) -> Var:
    return plain(b, b.emit(ops.div, number(1), q), k, v)


@pytest.mark.parametrize(
    "make",
    [
        *(partial(factors, which=2, by=number(3)), partial(factors, which=0, by=EIGHT), powers),
        *(partial(not_cleaned, by=by) for by in (0, 1)),
        *(other_axis, weights_last, turned_out, values_of_scores, after),
        *(partial(turned, which=which) for which in (0, 2)),
    ],
)
def test_groups_that_are_not_read_so_are_declined(make: Any) -> None:
    load = case(make, (8, 8), (8, 8), (8, 8)).workload()
    assert attention_of(load) is None
    assert candidates(load) == []


def repeats(b: Builder, q: Atom, k: Atom, v: Atom, *, axes: tuple[int, ...]) -> Var:
    """Each of them repeated along the axis before such a one, if it is any."""
    q, k, v = (repeated(b, x, 2, axis=a) if a else x for x, a in zip((q, k, v), axes, strict=True))
    return plain(b, q, b.emit(ops.transpose, k, axes=(0, 1, 3, 2)), v)


@pytest.mark.parametrize(
    ("axes", "heads"),
    [((2, 0, 0), (2, 4, 4)), ((0, 2, 1), (4, 2, 4)), ((0, 3, 3), (4, 4, 4))],
    ids=["queries", "other axes", "keys"],
)
def test_repetition_of_anything_but_heads_is_declined(
    axes: tuple[int, ...], heads: tuple[int, ...]
) -> None:
    batch = (4, 4, 2) if axes[2] == 1 else (4, 4, 4)
    of = case(
        partial(repeats, axes=axes), *((n, h, 6, 8) for n, h in zip(batch, heads, strict=True))
    )
    assert attention_of(of.workload()) is None


WIDER_MASK = case(plain, (S, D), (D, T), (T, E), (1, S, T))
WIDER_VALUES = case(plain, (1, S, D), (1, D, T), (3, T, E))
UNKNOWN = case(plain, (S, D), (D, T), (T, E), (S, ANY))


@pytest.mark.parametrize("of", [WIDER_MASK, WIDER_VALUES, UNKNOWN])
def test_shapes_that_are_not_those_of_heads_are_declined(of: Case) -> None:
    assert attention_of(of.workload()) is None


def test_integers_and_weights_that_are_no_parameters_are_declined() -> None:
    params = [Var(name, tensor("int32", 4, 4)) for name in "qkv"]
    out = Builder()
    scores = out.emit(ops.cast, out.emit(ops.matmul, *params[:2]), dtype="float32")
    weights = out.emit(ops.softmax, scores, axis=1)
    values = out.emit(ops.cast, params[2], dtype="float32")
    last = out.emit(ops.matmul, weights, values)
    load = Workload(out.function("", params, [last]), (False,) * 3)
    assert attention_of(load) is None


# --- where it is found ----------------------------------------------------------------------------


def heads(*, shared: bool = False) -> Function:
    """Attention as exporters write it; its scores, and K turned, may be read elsewhere."""
    types = (1, S, 4, 16), (1, S, 4, 16), (1, S, 4, 16), (1, 1, 1, S)
    params = [Var(name, tensor("float32", *t)) for name, t in zip("qkvm", types, strict=True)]
    out = Builder()
    y = exported(out, *params)
    more = [b.out for b in out.body if shared and b.op in (ops.transpose, ops.div)]
    return out.function("main", params, [y, *more])


TURNS = "transpose+transpose+transpose"


def test_fuse_takes_attention_whole(golden: Any) -> None:
    before = heads()
    check_transform(golden, before, fuse(before), *[(1, 7, 4, 16)] * 3, (1, 1, 1, 7))
    assert kinds(before) == [f"{TURNS}+matmul+div+add+softmax+matmul+transpose"]


def test_fuse_leaves_out_what_others_read() -> None:
    apart = [*["transpose"] * 3, "matmul+div", "add+softmax", "matmul", "transpose"]
    assert kinds(heads(shared=True)) == apart


def kinds(fn: Function, *apart: int) -> list[str]:
    """The ops of each kernel."""
    fused = verify(Module({"main": fuse(fn, set(apart))})).main
    bodies = [b.attrs["body"].body if b.op is FUSED else (b,) for b in fused.body]
    return ["+".join(m.op.name for m in body) for body in bodies]


def test_what_is_apart_leaves_attention() -> None:
    fn = heads()
    product, soft, last = (at(fn, op) for op in (ops.matmul, ops.softmax, ops.transpose))
    turns, scores = ["transpose"] * 3, "matmul+div+add"
    assert kinds(fn, soft[0]) == [*turns, scores, "softmax", "matmul", "transpose"]
    assert kinds(fn, product[0]) == [*turns, f"{scores}+softmax+matmul+transpose"]
    assert kinds(fn, product[1]) == [*turns, scores, "softmax", "matmul", "transpose"]
    assert kinds(fn, last[3]) == [f"{TURNS}+{scores}+softmax+matmul", "transpose"]
    assert kinds(fn, last[1]) == [
        "transpose",
        f"transpose+transpose+{scores}+softmax+matmul+transpose",
    ]


def test_fuse_takes_factors_and_masks_of_truths() -> None:
    shapes = [(2, S, 4, 16)] * 3
    params = [Var(n, tensor("float32", *t)) for n, t in zip("qkv", shapes, strict=True)]
    mask = Var("m", tensor("bool", S, S))
    out = Builder()
    q, k, v = (out.emit(ops.transpose, x, axes=a) for x, a in zip(params, EXPORTED, strict=True))
    q, k = out.emit(ops.mul, number(2), q), out.emit(ops.mul, k, number(2))
    scores = out.emit(ops.where, mask, out.emit(ops.matmul, q, k), number(-1e4))
    y = out.emit(ops.matmul, out.emit(ops.softmax, scores, axis=3), v)
    fn = out.function("main", [*params, mask], [y])
    assert kinds(fn) == ["transpose+mul+transpose+mul+transpose+matmul+where+softmax+matmul"]


@pytest.mark.parametrize("shared", [False, True])
def test_fuse_takes_repeated_heads(*, shared: bool) -> None:
    types = (2, 6, S, 16), (2, S, 2, 16), (2, S, 2, 16), (S, S)
    params = [Var(n, tensor("float32", *t)) for n, t in zip("qkvm", types, strict=True)]
    out = Builder()
    y = grouped(out, *params)
    more = [b.out for b in out.body if shared and b.op is ops.broadcast_to]
    fn = out.function("main", params, [y, *more])
    repeat, rest = "unsqueeze+broadcast_to+reshape", "matmul+div+add+softmax+matmul"
    if not shared:
        turned = f"transpose+{repeat}"
        assert kinds(fn) == [f"{turned}+transpose+{turned}+{rest}"]
        parts = repeat.split("+")
        for op in (ops.unsqueeze, ops.broadcast_to, ops.reshape):  # all or nothing
            assert [k for k in kinds(fn, at(fn, op)[0]) if k in parts] == parts
    else:
        assert kinds(fn)[-1] == f"transpose+{rest}"


@pytest.mark.parametrize("shared", [False, True])
def test_fuse_takes_what_cleans_weights(*, shared: bool) -> None:
    params = [Var(n, tensor("float32", 2, 4, *t)) for n, t in zip("qkvm", SIZES, strict=True)]
    out = Builder()
    y = cleaned(out, *params)
    more = [b.out for b in out.body if shared and b.op is ops.isnan]
    fn = out.function("main", params, [y, *more])
    apart = ["matmul+add", "softmax", "isnan", "where", "matmul"]
    assert kinds(fn) == (apart if shared else ["matmul+add+softmax+isnan+where+matmul"])


SIZES = (S, 16), (16, S), (S, 16), (S, S)


def at(fn: Function, op: Op) -> list[int]:
    return [i for i, b in enumerate(fn.body) if b.op is op]


def test_alternatives_cut_attention_where_that_is_cheaper() -> None:
    """A price for attention that nobody would pay."""
    fn = heads()

    def seconds(load: Workload, _: object) -> float:
        return 100.0 if attention_of(load) else 1.0

    (first, *_) = Alternatives(fn, host(), 1).priced(POINT, seconds)
    cut = kinds(fn, *first.arrangement.apart)
    assert cut == [*3 * ["transpose"], "matmul", "div", "add", "softmax", "matmul", "transpose"]
    (first, *_) = Alternatives(fn, host(), 1).priced(POINT, lambda *_: 1.0)
    assert first.arrangement == USUAL


POINT = [({"S": 7}, 1.0)]


def test_fuse_takes_onnx_attention_of_shared_heads_whole() -> None:
    """Nothing is copied but the past; keys are turned twice."""
    taken = "transpose+transpose+transpose+matmul+mul+where+softmax+matmul+transpose"
    graph = "(float[N, S, 48] q, float[N, S, 16] k, float[N, S, 16] v"
    attrs = "q_num_heads = 6, kv_num_heads = 2, is_causal = 1"
    alone = from_onnx(parse(f"{graph}) => (y) {{ y = Attention<{attrs}>(q, k, v) }}", 23))
    last = [k for k in kinds(simplify(alone.main)) if "matmul" in k]
    assert last == [f"transpose+{taken}"]
    past = "float[N, 2, P, 8] a, float[N, 2, P, 8] b"
    node = f"{{ y, c, d = Attention<{attrs}>(q, k, v, , a, b) }}"
    cached = from_onnx(parse(f"{graph}, {past}) => (y, c, d) {node}", 23))
    last = [k for k in kinds(simplify(cached.main)) if "matmul" in k]
    assert last == ["transpose+transpose+matmul+mul+where+softmax+matmul+transpose"]
    compiled = bucketize.compile(cached)
    rng = np.random.default_rng(0)
    for rows, past_rows in ((1, 30), (7, 3)):
        sizes = {"N": 2, "S": rows, "P": past_rows}
        inputs = [draw(rng, p, sizes) for p in cached.main.params]
        for got, want in zip(compiled.run(*inputs), evaluate_module(cached, *inputs), strict=True):
            np.testing.assert_allclose(got, want, atol=3e-6)


def behind_the_past(q: Array, k: Array, v: Array, past: tuple[Array, Array]) -> Array:
    """Row i sees the past whole, and new keys up to its own: step by step, as the standard says."""
    shared = q.shape[1] // k.shape[1]
    k, v = (np.concatenate(pair, 2).repeat(shared, 1) for pair in zip(past, (k, v), strict=True))
    out = np.zeros((*q.shape[:3], v.shape[3]))
    for i in range(q.shape[2]):
        seen = past[0].shape[2] + i + 1
        scores = np.einsum("nhd,nhkd->nhk", q[:, :, i], k[:, :, :seen]) / math.sqrt(q.shape[3])
        weights = np.exp(scores - scores.max(2, keepdims=True))
        weights /= weights.sum(2, keepdims=True)
        out[:, :, i] = np.einsum("nhk,nhkd->nhd", weights, v[:, :, :seen])
    return out


@pytest.mark.parametrize("shared", [1, 3])
def test_the_order_of_time_begins_behind_the_past(shared: int) -> None:
    graph = f"""(float[N, {2 * shared}, S, 8] q, float[N, 2, S, 8] k, float[N, 2, S, 8] v,
    float[N, 2, P, 8] a, float[N, 2, P, 8] b) => (y, c, d)
    {{ y, c, d = Attention<is_causal = 1>(q, k, v, , a, b) }}"""
    module = from_onnx(parse(graph, 23))
    compiled = bucketize.compile(module)
    rng = np.random.default_rng(0)
    for rows, past in ((1, 30), (7, 3), (17, 16), (40, 5), (2, 63)):
        sizes = {"N": 2, "S": rows, "P": past}
        q, k, v, *before = [draw(rng, p, sizes) for p in module.main.params]
        wanted = behind_the_past(q, k, v, (before[0], before[1]))
        for each in (compiled.run, partial(evaluate_module, module)):
            np.testing.assert_allclose(each(q, k, v, *before)[0], wanted, atol=3e-6)


BY_TORCH = """
(float[B, S, 64] x, float[64, 64] wq, float[64, 64] wk, float[64, 64] wv) => (out) { q0 =
MatMul(x, wq) k0 = MatMul(x, wk) v0 = MatMul(x, wv) s = Shape(x) zero = Constant<value_int =
0>() one = Constant<value_int = 1>() b = Gather(s, zero) l = Gather(s, one) a0 =
Constant<value_ints = [0]>() b1 = Unsqueeze(b, a0) l1 = Unsqueeze(l, a0) h =
Constant<value_ints = [4]>() d = Constant<value_ints = [16]>() shape = Concat<axis = 0>(b1,
l1, h, d) q1 = Reshape(q0, shape) k1 = Reshape(k0, shape) v1 = Reshape(v0, shape) q =
Transpose<perm = [0, 2, 1, 3]>(q1) k = Transpose<perm = [0, 2, 1, 3]>(k1) v = Transpose<perm
= [0, 2, 1, 3]>(v1) qs = Shape(q) m1 = Constant<value_ints = [-1]>() big =
Constant<value_ints = [9223372036854775807]>() el = Slice(qs, m1, big) elf = Cast<to =
1>(el) sq = Sqrt(elf) onef = Constant<value_floats = [1.0]>() scale = Div(onef, sq) m2 =
Constant<value_ints = [-2]>() ql = Slice(qs, m2, m1) ks = Shape(k) kl = Slice(ks, m2, m1) ms
= Concat<axis = 0>(ql, kl) f1 = Constant<value_float = 1.0>() ones = Expand(f1, ms) tri =
Trilu<upper = 0>(ones) f0 = Constant<value_float = 0.0>() eq = Equal(tri, f0) ninf =
Constant<value_float = -inf>() mask = Where(eq, ninf, f0) kt = Transpose<perm = [0, 1, 3,
2]>(k) rt = Sqrt(scale) q2 = Mul(q, rt) k2 = Mul(kt, rt) qk = MatMul(q2, k2) sc = Add(qk,
mask) p = Softmax<axis = -1>(sc) y = MatMul(p, v) yt = Transpose<perm = [0, 2, 1, 3]>(y) e =
Constant<value_ints = [64]>() os = Concat<axis = 0>(b1, l1, e) out = Reshape(yt, os) }
"""


def test_fuse_takes_scaled_dot_product_attention_as_torch_writes_it() -> None:
    """In order of time, by a mask that all heads share; one kernel besides what makes the mask."""
    model = parse(BY_TORCH, 17)
    module = from_onnx(model)
    turned = "transpose+mul+transpose+transpose+mul+transpose"
    assert kinds(simplify(module.main))[-2] == (f"{turned}+matmul+add+softmax+matmul+transpose")
    rng, compiled = np.random.default_rng(0), bucketize.compile(module)
    for sizes in ({"B": 1, "S": 1}, {"B": 2, "S": 19}):
        inputs = {p.name: draw(rng, p, sizes) / 4 for p in module.main.params}
        (got,), (want,) = compiled.run(**inputs), run_ort(model, inputs)
        np.testing.assert_allclose(got, want, atol=1e-5)


# --- as a whole -----------------------------------------------------------------------------------


def test_fuse_takes_attention_of_the_policy_pad() -> None:
    module = Module({"main": heads()})
    mod = dispatch(module, lambda _: {n: {1: [(9, 33)]} for n in "qkv"}, policy="pad")
    scores = "matmul+div+add+mask_tail+softmax+mask_tail+matmul"
    clone = replace(simplify(mod.function("main[S=9..32]")), name="main")
    assert kinds(clone)[-1].endswith(f"{scores}+transpose")


@pytest.mark.parametrize("policy", ["exact", "pad"])
def test_an_executable_computes_what_its_module_does(policy: str) -> None:
    module = Module({"main": heads()})
    mod = dispatch(module, lambda _: {n: {1: [(1, 9), (9, 33)]} for n in "qkv"}, policy=policy)
    exe = bucketize.compile(mod)
    rng = np.random.default_rng(0)
    for size in (1, 8, 9, 20, 32, 40):
        shapes = [(1, size, 4, 16)] * 3 + [(1, 1, 1, size)]
        args = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        (got,), (want,) = exe.run(*args), evaluate_module(module, *args)
        np.testing.assert_allclose(got, want, atol=3e-6)


POSITIONS = """(float[B, S, 64] x, float[100, 64] table) => (y) {
    zero = Constant<value_ints = [0]>()
    n = Shape<start = 1, end = 2>(x)
    places = Slice(table, zero, n, zero)
    h = Add(x, places)
    t = Transpose<perm = [0, 2, 1]>(h)
    scores = MatMul(h, t)
    p = Softmax<axis = -1>(scores)
    y = MatMul(p, h)
}"""


def test_a_length_without_bounds_may_not_exceed_a_table_of_positions() -> None:
    """What is priced at the length's bounds has no size there."""
    model = parse(POSITIONS, 20)
    exe = bucketize.compile(from_onnx(model))
    rng = np.random.default_rng(0)
    for size in (1, 7, 100):
        x, table = (rng.standard_normal((n, 64)).astype(np.float32) for n in (size, 100))
        (wanted,) = run_ort(model, {"x": x[None], "table": table})
        np.testing.assert_allclose(exe.run(x[None], table)[0], wanted, atol=1e-4)
    with pytest.raises(TypeRelError, match="extents differ: 101 and 100"):
        exe.run(np.zeros((1, 101, 64), np.float32), table)
