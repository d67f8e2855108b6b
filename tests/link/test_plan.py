"""Plans: native code gives dims their values, memory its places, and notices what cannot be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketize
from bucketize import ops, zoo
from bucketize.errors import ShapeError, TypeRelError
from bucketize.interpret import run_function
from bucketize.ir import IF, Builder, Const, Function, Module, Var
from bucketize.kernel.build import build
from bucketize.kernel.template import Launch
from bucketize.kernel.work import work
from bucketize.link.block import CHECK, CODE, FILL, GATHER, PART, POINTER, TENSOR
from bucketize.link.dim_code import NUMBERS, DimCode
from bucketize.link.ffi import function_at
from bucketize.link.link import core_source
from bucketize.link.memory import address
from bucketize.link.plan import Plan
from bucketize.link.planner import Pitches, launch_of, plan_of
from bucketize.link.table import block as fill_words
from bucketize.link.table import table
from bucketize.machine.host import host
from bucketize.ops.dim import dim_less
from bucketize.program.decide import decide, defaults
from bucketize.program.instruction import KernelCall, RunSegment, Segment
from bucketize.runtime.state import SCRATCH
from bucketize.types import ANY, Dim, Symbol, broadcast, evaluate, maximum, minimum, tensor
from dispatchers import log_dispatcher

N, M = Symbol("N"), Symbol("M", 0)
LINE = 64


class Filled(NamedTuple):
    """What a fill leaves behind."""

    block: np.ndarray
    registers: np.ndarray
    offsets: np.ndarray
    """Of the tensors."""
    table: np.ndarray
    chunks: np.ndarray
    behind: np.ndarray


ROWS = {
    "code": (CODE, "result function a b"),
    "checks": (CHECK, "relation a b"),
    "words": (GATHER, "word register"),
    "parts": (PART, "word extent grain work runs"),
    "tensors": (TENSOR, "bytes first last copies group short"),
    "pointers": (POINTER, "word base tensor copy before"),
}
UNGROUPED = (-1, -1)


def filled(initial: Sequence[int], *, threads: int = 1, fork: int = 0, **rows: Any) -> Filled:
    """Fill a table of rows of 5 words for these registers, with these rows of instructions."""
    fill = function_at(build(core_source("fill"), name_hint="fill").address)
    if "tensors" in rows:
        rows["tensors"] = [(*row, *UNGROUPED) for row in rows["tensors"]]
    held = {name: table(*words, rows.get(name, ())) for name, words in ROWS.items()}
    count = len(held["tensors"])
    made = {name: np.zeros(count + 1, np.int64) for name in SCRATCH}
    made["registers"] = np.array(initial, np.int64)
    made["table"], made["behind"] = np.full(64, -1), np.full(8, -1)
    made["chunks"] = np.zeros(len(held["parts"]) + 1, np.int64)
    made["order"] = np.zeros(len(held["parts"]) + 1, np.int64)
    words = {name: address(array) for name, array in (held | made).items()}
    words |= {f"n_{name}": len(array) for name, array in held.items()}
    block = fill_words(FILL, threads=threads, width=5, fork=fork, **words)
    fill(address(block))
    made["offsets"] = made["offsets"][:count]
    return Filled(block, **{n: made[n] for n in Filled._fields[1:]})


dims = st.recursive(
    st.sampled_from([N, M]) | st.integers(-3, 9),
    lambda inner: st.builds(
        lambda f, a, b: f(a, b),
        st.sampled_from([
            lambda a, b: a + b,
            lambda a, b: a * b,
            lambda a, b: a - b,
            lambda a, _: a // 3,
            lambda a, _: a % 4,
            lambda a, _: a // (N + 1),
            minimum,
            maximum,
        ]),
        inner,
        inner,
    ),
    max_leaves=8,
)  # fmt: skip


@given(st.lists(dims, min_size=1, max_size=5), st.integers(1, 40), st.integers(0, 40))
def test_native_code_gives_dims_the_values_that_they_have(
    wanted: list[Dim], n: int, m: int
) -> None:
    code = DimCode(["M", "N"])
    places = [code.register(d) for d in wanted]
    initial, rows = code.arrays()
    initial[:2] = m, n
    made = filled(initial, code=rows)
    assert made.block[FILL.status] == 0
    assert [made.registers[p] for p in places] == [evaluate(d, {"N": n, "M": m}) for d in wanted]


def test_a_dim_is_evaluated_once() -> None:
    code = DimCode(["M", "N"])
    first = code.register((N + 1) // 2 * M)
    assert code.register((N + 1) // 2 * M) == first
    before = len(code.rows)
    code.register((N + 1) // 2 * M + 1)
    assert len(code.rows) == before + 1


@pytest.mark.parametrize(
    ("fn", "a", "b", "status"),
    [
        ("*", 3_000_000_000, 3_000_000_000, 2),
        ("+", 2**62, 2**62, 2),
        ("//", 3, 0, 3),
        ("%", 3, 0, 3),
        ("broadcast", 3, 2, 1),
        ("broadcast", 3, 1, 0),
        ("broadcast", 1, 4, 0),
        ("broadcast", 0, 1, 0),
    ],
)
def test_a_dim_without_a_value_is_noticed(fn: str, a: int, b: int, status: int) -> None:
    made = filled([a, b, -7], code=[(2, NUMBERS[fn], 0, 1)])
    assert made.block[FILL.status] == status
    if status:
        assert made.block[FILL.index] == -1
    else:
        assert made.registers[2] == broadcast(a, b)


@pytest.mark.parametrize(
    ("relation", "a", "b", "holds"),
    [
        *((0, 3, 3, True), (0, 3, 1, False)),
        *((1, 3, 1, True), (1, 3, 3, True), (1, 3, 2, False)),
        *((2, 0, 0, True), (2, -1, 0, False), (2, 7, 3, True)),
    ],
)
def test_relations_are_checked(relation: int, a: int, b: int, holds: bool) -> None:
    block = filled([a, b], checks=[(0, 0, 0), (relation, 0, 1)]).block
    assert (block[FILL.status], block[FILL.index]) == ((0, 0) if holds else (1, 1))


tensors = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 6), st.integers(1, 2)), max_size=24
)


@given(tensors)
def test_tensors_that_live_at_once_do_not_overlap(drawn: list[tuple[int, int, int]]) -> None:
    rows = [(i, i, i + more, copies) for i, (_, more, copies) in enumerate(drawn)]
    made = filled([size for size, _, _ in drawn] or [0], tensors=rows)
    block, offsets = made.block, made.offsets
    spans = [(o, -(-s // LINE) * LINE * c) for o, (s, _, c) in zip(offsets, drawn, strict=True)]
    for i, (start, size) in enumerate(spans):
        assert start % LINE == 0
        assert start + size <= block[FILL.arena_bytes]
        for j in range(i):
            other, extent = spans[j]
            if rows[j][2] >= i:
                assert start + size <= other or other + extent <= start or 0 in (size, extent)


def test_more_memory_than_there_are_addresses_is_noticed() -> None:
    small = (1, 0, 0, 1)
    for rows in ([small, (0, 0, 0, 8), small], [(0, i, 9, 1) for i in range(2)]):
        block = filled([2**61, 1], tensors=rows).block
        assert (block[FILL.status], block[FILL.index]) == (2, -1)


def test_a_chain_needs_two_buffers() -> None:
    chain = [(0, i, i + 1, 1) for i in range(50)]
    assert filled([640], tensors=chain).block[FILL.arena_bytes] == 2 * 640


def test_no_tensors_need_no_memory() -> None:
    assert filled([640]).block[FILL.arena_bytes] == 0


@pytest.mark.parametrize(
    ("holes", "size", "place"),
    [
        *(((4, 2, 3), 1, 5), ((4, 2, 3), 2, 5), ((4, 2, 3), 3, 8), ((4, 2, 3), 4, 0)),
        *(((4, 2, 3), 5, 12), ((2, 4), 2, 0), ((2, 4), 3, 3)),
    ],
)
def test_the_smallest_hole_that_is_large_enough_is_taken(
    holes: tuple[int, ...], size: int, place: int
) -> None:
    sizes = [LINE, size * LINE, *(hole * LINE for hole in holes)]
    rows = [row for i in range(len(holes)) for row in ((2 + i, 0, 0, 1), (0, 0, 9, 1))]
    made = filled(sizes, tensors=[*rows, (1, 1, 9, 1)])
    assert made.offsets[-1] == place * LINE


def test_dims_go_to_the_words_that_ask_for_them() -> None:
    made = filled([7, 9], words=[(0, 1), (3, 0), (4, 1)])
    assert made.table[:6].tolist() == [9, -1, -1, 7, 9, -1]


@given(st.integers(0, 1000), st.integers(1, 40), st.integers(1, 8), st.booleans())
def test_threads_share_out_an_extent(extent: int, grain: int, threads: int, worth: bool) -> None:
    made = filled(
        [extent, 100, 0], parts=[(2, 0, grain, 1, 2)], threads=threads, fork=100 if worth else 101
    )
    used = threads if worth else 1
    assert made.chunks[0] == used
    cuts = made.table[2 : 2 + 5 * threads].reshape(threads, 5)[:, :2].tolist()
    assert [i for begin, end in cuts[:used] for i in range(begin, end)] == list(range(extent))
    assert all(begin % grain == 0 or begin == extent for begin, _ in cuts[:used])
    assert cuts[used:] == [[-1, -1]] * (threads - used)


def test_each_kernel_is_cut_by_its_own_extent() -> None:
    parts = [(2, 0, 1, 2, 5), (12, 1, 2, 3, 6), (22, 1, 3, 4, 7)]
    made = filled([4, 7, 10, 9, 20, 0, 1, 2], parts=parts, threads=2, fork=10)
    assert made.chunks[:3].tolist() == [2, 1, 2]
    cuts = made.table[:30].reshape(6, 5)[:, 2:4].tolist()
    assert cuts == [[0, 2], [2, 4], [0, 7], [-1, -1], [0, 3], [3, 7]]


def test_pointers_into_the_arena_lie_behind_its_beginning() -> None:
    made = filled(
        [100, 70, 0, 12],
        tensors=[(0, 0, 1, 2), (1, 0, 1, 3)],
        pointers=[(0, 0, 0, 0, 2), (1, 0, 0, 1, 3), (2, 0, -1, 0, 3), (3, 0, 1, 2, 2)],
    )
    first, second = made.offsets
    assert made.behind[:5].tolist() == [first, first + 128 + 12, 12, second + 2 * 128, -1]


# --- plans of segments ---------------------------------------------------------------------------


def run(fn: Function, *arrays: np.ndarray) -> list[np.ndarray]:
    return bucketize.compile(Module({"main": fn})).run(*arrays)


def test_an_extent_below_zero_is_an_error_before_a_byte_is_touched() -> None:
    x = Var("x", tensor("float32", N))
    b = Builder()
    room = b.emit(ops.full, shape=(64 - N, 2), value=0.0, dtype="float32")
    fn = b.function("main", [x], [b.emit(ops.relu, room)])
    assert run(fn, np.zeros(60, np.float32))[0].shape == (4, 2)
    assert run(fn, np.zeros(64, np.float32))[0].shape == (0, 2)
    with pytest.raises(ShapeError, match=r"^a negative extent in \[-1, 2\]") as e:
        run(fn, np.zeros(65, np.float32))
    in_op, at = e.value.notes
    assert in_op.startswith("in full(")
    assert at == "at N=65: -N + 64 must be at least 0, got -1 and 0"
    assert isinstance(e.value.__cause__, TypeRelError)


def test_a_window_that_does_not_fit_stays_an_error_of_types() -> None:
    x = Var("x", tensor("float32", 1, 1, N, 8))
    b = Builder()
    fn = b.function("main", [x], [b.emit(ops.max_pool2d, x, kernel=(3, 1), strides=(1, 1))])
    with pytest.raises(TypeRelError, match="a window of 3") as e:
        run(fn, np.zeros((1, 1, 2, 8), np.float32))
    assert e.value.notes[-1] == "at N=2: N - 3 must be at least 0, got -1 and 0"


@pytest.mark.parametrize(
    ("emit", "note"),
    [
        (lambda b, x, y: b.emit(ops.concat, x, y, axis=1), "N and M must be equal, got 3 and 2"),
        (
            lambda b, x, y: b.emit(ops.add, b.emit(ops.pad, x, pads=((2, 0), (0, 0))), y),
            r"N \+ 2 and M must be equal, or the latter 1, got 5 and 2",
        ),
    ],
)
def test_extents_that_disagree_are_named(emit: Any, note: str) -> None:
    x, y = Var("x", tensor("float32", N, 4)), Var("y", tensor("float32", Symbol("M", 1), 4))
    b = Builder()
    fn = b.function("main", [x, y], [emit(b, x, y)])
    with pytest.raises(TypeRelError, match="extents differ") as e:
        run(fn, np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32))
    assert re.search(note, e.value.notes[-1])


def test_a_tensor_that_no_memory_holds_is_an_error() -> None:
    x = Var("x", tensor("float32", N))
    b = Builder()
    room = b.emit(ops.full, shape=(N * 10**9, N * 10**9, N), value=0.0, dtype="float32")
    fn = b.function("main", [x], [b.emit(ops.reduce_sum, room, axes=(0, 1, 2))])
    with pytest.raises(ShapeError, match=r"at N=3: .* the bytes of a tensor, comes near 2\^63"):
        run(fn, np.zeros(3, np.float32))


def test_a_value_of_sizes_that_no_word_holds_is_an_error() -> None:
    """It is exact where it stands for a value; as an extent it is too large for any memory."""
    x = Var("x", tensor("float32", N))
    b = Builder()
    value = b.emit(ops.from_dims, dims=(N * 2**61,), scalar=True)
    fn = b.function("main", [x], [b.emit(ops.mod, value, Const(np.asarray(1000003)))])
    (got,) = run(fn, np.zeros(1, np.float32))
    assert got == 2**61 % 1000003
    with pytest.raises(ShapeError, match=r"at N=3: a value computed .* comes near 2\^63"):
        run(fn, np.zeros(3, np.float32))


def test_broadcasting_that_types_leave_open_is_checked_at_run_time() -> None:
    x, y = Var("x", tensor("float32", N, 3)), Var("y", tensor("float32", Symbol("K"), 3))
    b = Builder()
    fn = b.function("main", [x, y], [b.emit(ops.relu, b.emit(ops.add, x, y))])
    exe = bucketize.compile(Module({"main": fn}))
    for n, k in ((4, 4), (4, 1), (1, 4), (1, 1)):
        a, c = np.ones((n, 3), np.float32), np.full((k, 3), 2, np.float32)
        np.testing.assert_array_equal(exe.run(a, c)[0], a + c)
    with pytest.raises(TypeRelError, match="extents differ: 4 and 3") as e:
        exe.run(np.ones((4, 3), np.float32), np.ones((3, 3), np.float32))
    assert "at K=3, N=4" in e.value.notes
    np.testing.assert_array_equal(
        exe.run(*[np.ones((2, 3), np.float32)] * 2)[0], np.full((2, 3), 2)
    )


def plan(fn: Function, threads: int = 1) -> tuple[Plan, Segment]:
    """The plan of a function that is one segment, and the segment."""
    module, target = Module({"main": fn}), host()
    program = decide(module, defaults, target=target, threads=threads, executor="vm")
    (step,) = program.decide("main").code.instructions
    assert isinstance(step, RunSegment)
    return plan_of(step.segment, threads, partial(launch_of, target=target)), step.segment


def test_where_results_are_found() -> None:
    x = Var("x", tensor("float32", N, 4))
    held = Const(np.ones(8, np.float32))
    b = Builder()
    y = b.emit(ops.relu, x)
    z = b.emit(ops.reshape, y, newshape=(N, 2, 2))
    flat = b.emit(ops.reshape, x, newshape=(N * 4,))
    view = b.emit(ops.reshape, held, newshape=(N, 4))
    n = b.emit(ops.from_dims, dims=(N + 1,), scalar=True)
    made, _ = plan(b.function("main", [x], [n, view, flat, z, y]))
    sources = ["own", "result", "input", "constant", "dims"]
    assert [r.source for r in made.results] == sources
    assert [r.index for r in made.results] == [0, 0, 0, 0, made.size - 1]
    assert [len(r.shape) for r in made.results] == [2, 3, 1, 2, 0]
    assert made.held == (held,)


def test_kernels_are_split_by_their_work() -> None:
    x = Var("x", tensor("float32", 4, 8))
    b = Builder()
    weight = Const(np.ones((8, 8), np.float32))
    y = b.emit(ops.softmax, b.emit(ops.matmul, x, weight), axis=1)
    fn = b.function("main", [x], [y])
    made, segment = plan(fn, threads=2)
    totals = [work(call.workload).total for call in segment.calls]
    assert len(totals) == 2
    assert made.initial[made.parts[:, 3]].tolist() == totals
    assert made.size == 2 * 2 * made.width


def test_without_a_workspace_there_are_pointers_to_arguments_alone() -> None:
    x = Var("x", tensor("float32", N, 8))
    b = Builder()
    made, _ = plan(b.function("main", [x], [b.emit(ops.relu, x)]))
    assert (len(made.pointers), len(made.tensors), len(made.reports)) == (2, 0, 0)


@pytest.mark.parametrize(("reports", "last"), [(False, 0), (True, 2)])
def test_a_workspace_lives_for_its_step_and_what_it_reports_to_the_end(
    reports: bool, last: int
) -> None:
    x = Var("x", tensor("float32", N, 8))
    b = Builder()
    y = x
    for axis in (1, 0, 1):
        y = b.emit(ops.softmax, y, axis=axis)
    fn, target = b.function("main", [x], [y]), host()
    _, segment = plan(fn)
    first = segment.calls[0]

    def launch(call: KernelCall, pitches: Pitches) -> Launch:
        made = launch_of(call, pitches, target)
        return replace(made, workspace=192, checked=reports) if call is first else made

    made = plan_of(segment, 2, launch)
    (row,) = [row for row in made.tensors.tolist() if made.initial[row[0]] == 192]
    assert row[1:4] == [0, last, 2]  # from, until, and one for each thread
    assert len(made.reports) == (2 if reports else 0)


def checked(fn: Function, *arrays: np.ndarray) -> None:
    for got, want in zip(run(fn, *arrays), run_function(fn, arrays), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("wanted", [(0, 1), (1, 0), (0,), (1,), (1, 1)])
def test_results_of_one_kernel_that_nobody_asks_for(wanted: tuple[int, ...]) -> None:
    x = Var("x", tensor("float32", N, 8))
    b = Builder()
    found = b.emit_all(ops.topk, b.emit(ops.neg, x), k=3, axis=1)
    fn = b.function("main", [x], [found[i] for i in wanted])
    checked(fn, np.random.default_rng(0).random((5, 8), np.float32))


def test_tensors_of_dims_lie_side_by_side() -> None:
    x = Var("x", tensor("float32", N, M))
    b = Builder()
    one = b.emit(ops.from_dims, dims=(N, M * 2), scalar=False)
    two = b.emit(ops.from_dims, dims=(M, N, N + 1), scalar=False)
    read = b.emit(ops.neg, b.emit(ops.cast, two, dtype="float32"))
    fn = b.function("main", [x], [b.emit(ops.concat, one, two, two, axis=0), two, read])
    checked(fn, np.zeros((3, 5), np.float32))


def test_a_kernel_reads_a_constant_through_a_view() -> None:
    x = Var("x", tensor("float32", N, 2))
    b = Builder()
    view = b.emit(ops.reshape, Const(np.arange(6, dtype=np.float32)), newshape=(N, 2))
    fn = b.function("main", [x], [b.emit(ops.sub, x, view), view])
    checked(fn, np.ones((3, 2), np.float32))


def test_extents_that_only_a_run_can_tell_get_names_of_their_own() -> None:
    n = Symbol("any1", 0)
    x, mask = Var("x", tensor("float32", n)), Var("mask", tensor("bool", n))
    b = Builder()
    kept = b.emit(ops.neg, b.emit(ops.compress, x, mask, axis=0))
    again = b.emit(ops.exp, b.emit(ops.compress, x, mask, axis=0))
    fn = b.function("main", [x, mask], [kept, again, b.emit(ops.relu, x)])
    checked(fn, np.zeros(5, np.float32), np.array([1, 0, 1, 1, 0], bool))


@pytest.mark.parametrize("by", ["value", "size"])
def test_extents_that_a_branch_decides_reach_what_follows(by: str) -> None:
    x, flag = Var("x", tensor("float32", N)), Var("flag", tensor("bool"))
    b, then = Builder(), Builder()
    test = flag if by == "value" else b.emit(dim_less, dim=N, than=4)
    twice = then.function("", (), [then.emit(ops.concat, x, x, axis=0)])
    (picked,) = b.emit_all(IF, test, then=twice, orelse=Builder().function("", (), [x]))
    assert picked.type == tensor("float32", ANY)
    fn = b.function("main", [x, flag], [b.emit(ops.neg, picked)])
    program = bucketize.compile(Module({"main": fn})).program
    assert isinstance(program.routines["main"].code.instructions[-1], RunSegment)
    for size in (3, 4):
        for value in (True, False):
            checked(fn, np.arange(size, dtype=np.float32), np.asarray(value))


def test_compiling_tells_of_what_it_plans_behind_the_last_kernel() -> None:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 4)})
    mod = bucketize.dispatch(mod, log_dispatcher)
    told: list[tuple[str, int, int]] = []
    exe = bucketize.compile(mod, progress=lambda *its: told.append(its))
    count = len([*exe.program.segments()])
    assert [its for its in told if its[0] == "planning"] == [
        ("planning", i, count) for i in range(count)
    ]
    assert told[0] == ("deciding main", 0, 1 + len(mod.clones))
    assert told[-1][0] == "planning"
