"""Laws of the loop templates, over every sample of every operator that they take.

A kernel equals the op's `compute` at sizes that its source has not seen, writes nothing outside of
its result, and does its work in parts that leave nothing between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernel_call import F32, C, Group, M, N, check, floats, loop_template, run, workload
from llvmlite import ir

from bucketize import ops
from bucketize.ir import STRUCTURAL, Const
from bucketize.kernel.emit.expression import DTYPES
from bucketize.kernel.emit.tile import columns
from bucketize.kernel.emit.vector import Writer
from bucketize.kernel.loops.loop import Source, bits_of, joined
from bucketize.kernel.loops.movement import collapsed_axes
from bucketize.kernel.loops.reduce import runs
from bucketize.kernel.loops.transpose import TRANSPOSE, merged
from bucketize.kernel.template import combinations
from bucketize.kernel.templates import LOOP, TEMPLATES, candidates
from bucketize.kernel.workload import Workload
from bucketize.machine.host import host
from bucketize.op import Op, all_ops
from bucketize.ops.sample import Sample, samples
from bucketize.types import ANY, Dim, Symbol, TensorType, tensor

# --- the law over the table ----------------------------------------------------------------------


def workload_of(sample: Sample) -> Workload:
    symbols = sample.symbols()
    types = [TensorType(a.dtype, a.shape(symbols)) for a in sample.args]
    return workload(sample.op, *types, **sample.attrs(symbols))


def chosen(op: Op) -> list[Sample]:
    """All samples, but of elementwise ops only `add` at more than one pattern of shapes."""
    found = [s for s in samples(op) if not op.reads and op.shape_from_values is None]
    if op.scalar is None or op is ops.add:
        return found
    return list({tuple(a.dtype for a in s.args): s for s in reversed(found)}.values())


CASES = [
    s
    for op in all_ops().values()
    if op not in STRUCTURAL and op.relation is None
    for s in chosen(op)
    if loop_template(workload_of(s)) is not None
]
SIZES = (1, 3, 9, 40)


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_kernel_is_its_op_at_every_schedule(case: Sample) -> None:
    load, rng = workload_of(case), np.random.default_rng(7)
    template = loop_template(load)
    assert template is not None
    for schedule in combinations(template.knobs(load, host())):
        assert template.valid(load, schedule, host()) is None
        for size in SIZES:
            env = {n: int(rng.integers(1, size + 1)) for n in case.names}
            check(load, case.draw(rng, env), env, schedule)


WITHOUT = {
    *("reshape", "squeeze", "unsqueeze"),  # views
    *("shape_of", "size_of", "from_dims", "dim_less", "dims_within"),  # dims, known to the host
    *("conv3d", "max_pool3d", "avg_pool3d", "conv_transpose"),  # lowered to those that have one
    "unique",  # the VM runs its compute
    *("nonzero", "compress"),  # lowered to `nonzero_rows`
    "non_max_suppression",  # lowered to `kept_boxes`
    "deform_conv2d",  # likewise
    "conv2d_integer",  # by weights that are not known, which no front end makes
    *("bitcast", "det", "dft", "mel_weight_matrix"),  # rare: so, too
    *("normal_like", "uniform_like"),  # what is drawn is numpy's
    "mask_segments",  # inside of attention
}


def test_every_op_has_a_template_or_is_known_to_have_none() -> None:
    taken = {s.op.name for s in CASES}
    rest = {
        n for n, op in all_ops().items() if op not in STRUCTURAL and not (op.static or op.relation)
    } - taken
    assert rest == WITHOUT


def test_the_table_holds_all_templates_by_name() -> None:
    assert [t.name for t in LOOP] == [n for n, t in TEMPLATES.items() if t in LOOP]
    assert candidates(workload(ops.add, tensor(F32, N), tensor(F32, N)))[0].name == "elementwise"


def test_what_no_template_takes_has_no_candidates() -> None:
    assert candidates(workload(ops.nonzero, tensor(F32, N))) == []


def test_dtypes_that_numba_cannot_compute_with_are_declined() -> None:
    for op in (ops.add, ops.mul):
        load = workload(op, tensor("complex64", N), tensor("complex64", N))
        assert loop_template(load) is None


def test_a_schedule_names_no_knobs_where_there_are_none() -> None:
    load = workload(ops.transpose, tensor(F32, N, C), axes=(1, 0))
    wrong = candidates(load)[0].valid(load, {"block": 32}, host())
    assert wrong == "expected the knobs [], got ['block']"


# --- the others, where the law's samples are too small -------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op", [ops.softmax, ops.log_softmax], ids=str)
def test_infinities_and_nan_survive_softmax(op: Op, axis: int) -> None:
    x = floats(6, 70) * 30
    x[0, 3:] = -np.inf
    x[1] = -np.inf
    x[2, 65] = np.nan
    x[3, 5] = np.inf
    load = workload(op, tensor(F32, N, M), axis=axis)
    with np.errstate(all="ignore"):
        check(load, [x], {"N": 6, "M": 70})


@pytest.mark.parametrize("op", [ops.reduce_max, ops.reduce_min, ops.reduce_sum], ids=str)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
def test_infinities_and_nan_survive_reductions(op: Op, axes: tuple[int, ...]) -> None:
    x = floats(5, 300)
    x[1, 2], x[2, 299], x[3, 7] = -np.inf, np.nan, np.inf
    check(workload(op, tensor(F32, N, M), axes=axes), [x], {"N": 5, "M": 300})


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "uint8"])
@pytest.mark.parametrize("op", [ops.reduce_max, ops.reduce_min, ops.reduce_prod], ids=str)
def test_extremes_begin_below_every_number(op: Op, dtype: str) -> None:
    x = np.array([[1, 2, 0], [3, 100, 7]], dtype)
    lowest = x - 101 if np.dtype(dtype).kind != "u" else x
    check(workload(op, tensor(dtype, N, 3), axes=(1,)), [lowest], {"N": 2})


@pytest.mark.parametrize("axes", [(1, 2), (0, 2), (0, 3), (0, 1, 2, 3), (), (1,), (3,)], ids=str)
def test_reductions_over_any_axes(axes: tuple[int, ...]) -> None:
    load = workload(ops.reduce_mean, tensor(F32, N, 7, M, C), axes=axes, keepdims=True)
    for n, m, c in ((1, 7, 300), (3, 2, 5)):
        check(load, [floats(n, 7, m, c)], {"N": n, "M": m, "C": c})


@pytest.mark.parametrize("rows", [1, 1023, 1024, 1025, 1 << 17])
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        (ops.reduce_sum, {"axes": (0,)}),
        (ops.reduce_sum, {"axes": (0, 2)}),
        (ops.softmax, {"axis": 0}),
        (ops.log_softmax, {"axis": 0}),
    ],
    ids=str,
)
def test_sums_of_many_rows_keep_their_digits(op: Op, attrs: dict[str, Any], rows: int) -> None:
    """A chain ends at 1,024 of them: float32 would lose half of its digits in 2^17."""
    shape = (rows, 2, 3, 5)
    x = np.random.default_rng(rows).random(shape, np.float32)
    load = workload(op, tensor(F32, N, *shape[1:]), **attrs)
    template, want = loop_template(load), op.compute(x.astype(np.float64), **attrs)
    assert template is not None
    likes = [np.empty(want.shape, np.float32)]
    (got,) = run(template, load, template.default(load, host()), [x], {"N": rows}, likes, 1)
    np.testing.assert_allclose(got, want, 2e-6)


def test_an_empty_sum_is_zero() -> None:
    load = workload(ops.reduce_sum, tensor(F32, Symbol("Z", 0), N), axes=(0,))
    check(load, [np.zeros((0, 3), np.float32)], {"Z": 0, "N": 3})


def test_nothing_is_done_where_there_is_nothing() -> None:
    empty = Symbol("Z", 0)
    for load in (
        workload(ops.add, tensor(F32, empty, N), tensor(F32, N)),
        workload(ops.transpose, tensor(F32, empty, N), axes=(1, 0)),
        workload(ops.softmax, tensor(F32, empty, N), axis=1),
    ):
        args = [
            np.zeros([0 if d is empty else 3 for d in p.type.shape], np.float32)
            for p in load.body.params
        ]
        check(load, args, {"Z": 0, "N": 3})


@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_extreme_wins_and_nan_is_extreme(axis: int) -> None:
    x = np.round(floats(9, 280) * 2)
    x[4, 100], x[4, 200] = np.nan, np.nan
    for op in (ops.argmax, ops.argmin):
        check(workload(op, tensor(F32, N, M), axis=axis), [x], {"N": 9, "M": 280})


@pytest.mark.parametrize("sorted_", [True, False], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_topk_of_lines_of_any_length(axis: int, largest: bool, sorted_: bool) -> None:
    k = Symbol("K", 0)
    load = workload(ops.topk, tensor(F32, N, M, C), k=k, axis=axis, largest=largest, sorted=sorted_)
    for shape in ((5, 70, 3), (90, 2, 40)):
        x = np.round(floats(*shape) * 4)  # many are equal
        x[0, 1], x[3, 0], x[4] = np.nan, -np.inf, np.inf
        for count in {0, 1, min(7, shape[axis]), shape[axis]}:
            check(load, [x], {"N": shape[0], "M": shape[1], "C": shape[2], "K": count})


@pytest.mark.sweep
@pytest.mark.parametrize("largest", [True, False], ids=["largest", "smallest"])
@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_topk_of_every_dtype(dtype: str, largest: bool) -> None:
    with np.errstate(over="ignore"):  # of float16: infinities, which tie
        x = np.random.default_rng(0).integers(0, 2**64, (6, 30), np.uint64).astype(dtype)
    load = workload(ops.topk, tensor(dtype, N, M), k=5, axis=1, largest=largest)
    check(load, [x], {"N": 6, "M": 30})


def test_topk_of_more_than_there_are_is_reported() -> None:
    load = workload(ops.topk, tensor(F32, N, M), k=Symbol("K"), axis=1)
    likes = [np.empty((2, 5), np.float32), np.empty((2, 5), np.int64)]
    with pytest.raises(AssertionError, match="an index out of range"):
        run(TEMPLATES["topk"], load, {}, [floats(2, 4)], {"N": 2, "M": 4, "K": 5}, likes, 1)


def test_topk_launches_at_dims_that_are_not_known() -> None:
    k = Symbol("K")
    load = workload(ops.topk, tensor(F32, N, M, C), k=k, axis=1)
    shapes: Any = ((N, M, C), (N, k, C), (N, k, C))
    launch = TEMPLATES["topk"].launch(load, {}, shapes, host())
    assert launch.dims == (M, C, k)
    assert launch.extent == N * C


def test_the_key_of_a_workload_names_all_results() -> None:
    load = workload(ops.topk, tensor(F32, N, M), k=2, axis=1)
    assert load.key.endswith("return %1, %2")
    assert load.results == (tensor(F32, N, 2), tensor("int64", N, 2))
    one = workload(ops.add, tensor(F32, N), tensor(F32, N))
    assert one.key == "(float32[d0], float32[d0]) %2 = add(%0, %1); return %2"


@pytest.mark.parametrize(
    ("scale", "bias", "axis"),
    [((M,), (M,), 2), ((N, M), (M,), 1), ((N, 1), (1,), 1), ((), (ANY,), 2)],
    ids=lambda dims: "x".join(map(str, dims)) if isinstance(dims, tuple) else None,
)
def test_layer_norm_scales_over_any_part_of_the_tail(
    scale: tuple[Dim, ...], bias: tuple[Dim, ...], axis: int
) -> None:
    load = workload(
        ops.layer_norm, tensor(F32, 4, N, M), tensor(F32, *scale), tensor(F32, *bias), axis=axis
    )
    env = {"N": 3, "M": 70}
    shapes = [[70 if d == ANY else env.get(str(d), d) for d in t] for t in (scale, bias)]
    x = floats(4, 3, 70) * 5 + 100
    check(load, [x.astype(np.float32), *(floats(*s, seed=1) for s in shapes)], env)


EDGES = [(3, 270, 70), (1, 65, 257), (2, 31, 15), (2, 17, 5), (3, 5, 17), (1, 7, 300), (2, 3, 40)]
"""More than a part along both axes, just more, and what takes the smaller tiles, or none."""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("axes", "shapes"),
    [
        ((0, 2, 1), EDGES),
        ((3, 1, 0, 2), [(3, 4, 5, 70), (20, 2, 3, 9)]),
        ((1, 0, 3, 2), [(5, 3, 70, 17), (2, 4, 5, 6), (3, 2, 0, 7), (0, 2, 3, 4)]),
    ],
    ids=["inner", "outer", "between"],
)
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_transposes_by_tiles(
    axes: tuple[int, ...], shapes: list[tuple[int, ...]], dtype: str, lanes: int
) -> None:
    load = workload(ops.transpose, tensor(dtype, *map(Symbol, "ABCD"[: len(axes)])), axes=axes)
    target = replace(host(), lanes=lanes)
    source = TRANSPOSE.source(load, {}, target)
    template = replace(TRANSPOSE, source=lambda *_: source)
    for shape in shapes:
        x = np.arange(math.prod(shape)).astype(dtype).reshape(shape)
        check(load, [x], dict(zip("ABCD", shape, strict=False)), template=template)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
def test_rows_of_any_length_are_gathered(dtype: str) -> None:
    """Shorter than any vector, as long as some, longer than what is fetched; from the back, too."""
    load = workload(ops.gather, tensor(dtype, N, C), tensor("int64", M), axis=0)
    for length in (2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 300, 700):
        x = np.arange(5 * length).astype(dtype).reshape(5, length)
        at = np.arange(40) % 10 - 5
        check(load, [x, at], {"N": 5, "C": length, "M": 40})


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "int64"])
def test_rows_of_any_length_are_concatenated(dtype: str) -> None:
    load = workload(ops.concat, *[tensor(dtype, N, d) for d in (M, C, 3)], axis=1)
    for first, second in ((1, 2), (17, 40), (64, 129), (0, 5)):
        args = [(floats(7, n) * 9).astype(dtype) for n in (first, second, 3)]
        check(load, args, {"N": 7, "M": first, "C": second})


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("edge", [2, 4, 8, 16])
def test_columns_come_from_rows(edge: int, size: int) -> None:
    """Of the rows 0, 1, ..., whatever the writer is told to shuffle them by."""

    class Numbers(Writer):
        def shuffle(self, x: Any, y: Any, order: Sequence[int]) -> Any:
            return np.concatenate([x, y])[list(order)]

    rows = np.arange(edge * edge).reshape(edge, edge)
    found = columns(Numbers(ir.IRBuilder(), edge), list(rows), size)
    np.testing.assert_array_equal(found, rows.T)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("few", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("dims", "axes", "shape"),
    [
        ((N, 0, M), (0, 2, 1), (2, 0, 299)),  # a few in the result's rows
        ((N, M, 0), (0, 2, 1), (3, 70, 0)),  # in the argument's
        ((0, N, M), (2, 1, 0), (0, 5, 37)),
        ((M, N, 0), (2, 1, 0), (37, 5, 0)),
        ((N, 0, 0), (0, 2, 1), (2, 0, 0)),
    ],
    ids=["joined", "split", "joined, apart", "split, apart", "both"],
)
def test_transposes_of_few_elements(
    dims: tuple[Dim, ...], axes: tuple[int, ...], shape: tuple[int, ...], few: int, dtype: str
) -> None:
    """Zeros stand for the few."""
    known, sizes = (tuple(d or few for d in each) for each in (dims, shape))
    load = workload(ops.transpose, tensor(dtype, *known), axes=axes)
    env = {str(d): size for d, size in zip(dims, sizes, strict=True) if d in (N, M)}
    check(load, [(floats(*sizes) * 99).astype(dtype)], env)


def test_neighbours_that_belong_together_are_joined() -> None:
    assert joined([1, 2, 4, 5, 6], lambda a, b: b == a + 1) == [[1, 2], [4, 5, 6]]
    assert joined(iter(()), lambda a, b: True) == []


def test_axes_that_stay_neighbours_are_transposed_as_one() -> None:
    assert merged((0, 2, 3, 1)) == [[0], [2, 3], [1]]
    assert merged(()) == []
    assert collapsed_axes((2, 1, 3, 4), (12, 99, 4, 1)) == [(24, 1)]
    assert collapsed_axes((2, 3, 1), (3, 1, 1)) == [(6, 1), (1, 1)]


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap", "symmetric"])
def test_images_are_padded(mode: str) -> None:
    pads = ((0, 0), (1, 2), (2, 1), (0, 0))
    load = workload(ops.pad, tensor(F32, N, 9, M, C), pads=pads, mode=mode)
    for n, m, c in ((1, 5, 3), (2, 3, 64)):
        check(load, [floats(n, 9, m, c)], {"N": n, "M": m, "C": c})


def test_kernels_that_move_are_shared_by_dtypes_of_a_size() -> None:
    loads = [workload(ops.concat, tensor(d, N), tensor(d, M), axis=0) for d in ("float32", "int32")]
    sources = {TEMPLATES["concat"].source(load, {}, host()) for load in loads}
    assert len(sources) == 1
    check(
        loads[1], [np.arange(3, dtype=np.int32), np.arange(70, dtype=np.int32)], {"N": 3, "M": 70}
    )


def test_kernels_do_not_depend_on_sizes_that_attributes_hold() -> None:
    def source(**attrs: Any) -> str:
        load = workload(ops.pad, tensor(F32, N, M), **attrs)
        return TEMPLATES["pad"].source(load, {}, host())

    assert source(pads=((1, 1), (0, N))) == source(pads=((0, M), (2, 0)), value=7.0)


def test_a_lone_index_is_part_of_the_kernel() -> None:
    g = Group(tensor(F32, N, M))
    load = g.returns(g(ops.gather, g.params[0], Const(np.asarray(-1)), axis=1))
    check(load, [floats(4, 6)], {"N": 4, "M": 6})
    g = Group(tensor(F32, N, M), tensor("int64"))
    load = g.returns(g(ops.mask_tail, g.params[0], g.params[1], axis=1, value=-math.inf))
    for length in (0, 3, 100):
        check(load, [floats(4, 70), np.asarray(length)], {"N": 4, "M": 70})


def test_bits_of_numbers() -> None:
    assert bits_of(1.0, F32) == 0x3F800000
    assert bits_of(-1, np.dtype("int64")) == -1
    assert bits_of(True, np.dtype(bool)) == 1
    assert bits_of(math.inf, np.dtype("int64")) == 2**63 - 1
    assert bits_of(-math.inf, np.dtype("int32")) == 2**31  # the bits, not the number


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("value", [-math.inf, 0.0, 1.0, math.inf])
def test_masks_of_integers_hold_their_extremes(dtype: str, value: float) -> None:
    load = workload(ops.mask_tail, tensor(dtype, N), tensor("int64"), axis=0, value=value)
    x = np.ones(9, dtype)
    check(load, [x, np.asarray(4)], {"N": 9})
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    want = {-math.inf: low, math.inf: high}.get(value, value)
    assert ops.mask_tail.compute(x, np.asarray(4), axis=0, value=value)[4:].tolist() == [want] * 5


def test_runs_of_reduced_axes() -> None:
    assert runs(4, (1, 2)) == [(False, [0]), (True, [1, 2]), (False, [3])]
    assert runs(0, ()) == []


def test_only_the_dims_that_are_read_are_loaded() -> None:
    s = Source()
    with s.loops(t="begin, end"):
        s("y[t] = b")
    text = s.kernel("a title", ["y = pointer(block[0], int64)"], 2, ["a", "b"])
    assert text.startswith('"""a title"""\n')
    assert "b = block[5]" in text
    assert "a = block" not in text


POOLS: list[dict[str, Any]] = [
    {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)},
    {"kernel": (2, 3), "strides": (1, 2), "pads": (0, 2, 1, 0), "dilations": (2, 1)},
    {"kernel": (3, 2), "strides": (3, 2), "pads": (1, 0, 1, 1), "ceil_mode": True},
]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("op", [ops.max_pool2d, ops.avg_pool2d], ids=str)
def test_pools(op: Op, layout: str) -> None:
    for attrs in POOLS:
        for counts in ({}, {"count_include_pad": True})[: 2 if op is ops.avg_pool2d else 1]:
            load = workload(op, tensor(F32, N, 11, 11, 12), **attrs, **counts, layout=layout)
            check(load, [floats(2, 11, 11, 12)], {"N": 2})
