"""Placement: what is written where it is wanted, and read where it lies, is not copied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from agreement import agree
from hypothesis import given, note, settings
from hypothesis import strategies as st

import bucketize
from bucketize import ops
from bucketize.interpret import run_function
from bucketize.ir import Builder, Const, Function, Module, Var
from bucketize.link import memory as storage
from bucketize.link import strip
from bucketize.machine.host import host
from bucketize.program.decide import decide, defaults
from bucketize.program.instruction import RunSegment, Segment
from bucketize.types import Dim, Symbol, tensor

pytestmark = pytest.mark.usefixtures("few_registers")

N, H, W = Symbol("N", 1, 8), Symbol("H", 1, 40), Symbol("W", 1, 40)


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is allocated holds NaN."""
    allocated = storage._allocated

    def poisoned(size: int) -> np.ndarray:
        memory = allocated(size)
        memory[...] = 255
        return memory

    monkeypatch.setattr(storage, "_allocated", poisoned)


class Net:
    """A network that is being built, of NCHW images."""

    def __init__(self, channels: int = 20, sizes: tuple[Dim, Dim, Dim] = (N, H, W)) -> None:
        n, h, w = sizes
        self.b, self.random = Builder(), np.random.default_rng(0)
        self.x = Var("x", tensor("float32", n, channels, h, w))

    def weights(self, *shape: int) -> Const:
        return Const(self.random.standard_normal(shape).astype(np.float32))

    def conv(self, x: Var, out: int, kernel: int = 1, *, clipped: bool = True) -> Var:
        """Of its image's size, with a bias."""
        inner = int(x.type.shape[1])  # type: ignore[arg-type]
        pads = (kernel // 2,) * 4
        y = self.b.emit(ops.conv2d, x, self.weights(out, inner, kernel, kernel), pads=pads)
        y = self.b.emit(ops.add, y, self.weights(1, out, 1, 1))
        return self.b.emit(ops.relu, y) if clipped else y

    def norm(self, x: Var) -> Var:
        """What batch norm and relu come to."""
        c = int(x.type.shape[1])  # type: ignore[arg-type]
        y = self.b.emit(ops.mul, x, self.weights(1, c, 1, 1))
        return self.b.emit(ops.relu, self.b.emit(ops.add, y, self.weights(1, c, 1, 1)))

    def pool(self, x: Var) -> Var:
        return self.b.emit(ops.max_pool2d, x, kernel=(3, 3), pads=(1, 1, 1, 1))

    def concat(self, *xs: Var, axis: int = 1) -> Var:
        return self.b.emit(ops.concat, *xs, axis=axis)

    def cut(self, x: Var, begin: int, end: int, axis: int = 1) -> Var:
        attrs = {"begin": (begin,), "end": (end,), "strides": (1,), "axes": (axis,)}
        return self.b.emit(ops.strided_slice, x, **attrs)

    def function(self, *results: Var) -> Function:
        return self.b.function("main", [self.x], list(results))


def segment_of(fn: Function) -> Segment:
    program = decide(Module({"main": fn}), defaults, target=host(), threads=1, executor="vm")
    (step,) = program.routines["main"].code.instructions
    assert isinstance(step, RunSegment)
    return step.segment


def kernels(fn: Function) -> Counter[str]:
    """How many kernels each template has."""
    return Counter(c.implementation.template for c in segment_of(fn).calls)


def check(fn: Function, *sizes: tuple[int, int, int], saved: Path | None = None) -> None:
    """The results are those of the interpreter, on one thread and on two."""
    channels, random = fn.params[0].type.shape[1], np.random.default_rng(1)
    for threads in (1, 2):
        run = bucketize.compile(Module({"main": fn}), threads=threads)
        if saved is not None:
            run.save(saved)
            run = bucketize.load(saved)
        for n, h, w in sizes:
            x = random.standard_normal((n, channels, h, w)).astype(np.float32)
            agree(run.run(x), run_function(fn, [x]), 1e-4)


# --- what is placed ------------------------------------------------------------------------------


def fire(net: Net) -> Function:
    """A block of squeezenet, and what reads it."""
    y = net.conv(net.x, 40)
    y = net.concat(net.conv(y, 17), net.conv(y, 33, 3))
    return net.function(net.conv(net.pool(y), 9))


def dense(net: Net, *, layers: int = 4) -> Function:
    """A block of densenet."""
    parts = [net.pool(net.x)]
    for _ in range(layers):
        y = net.norm(net.concat(*parts) if len(parts) > 1 else parts[0])
        parts.append(net.conv(net.conv(y, 36), 7, 3, clipped=False))
    return net.function(net.conv(net.norm(net.concat(*parts)), 8))


def shuffle(net: Net) -> Function:
    """A block of shufflenet."""
    y = net.conv(net.x, 72)
    n, _, h, w = y.type.shape
    left, right = net.cut(y, 0, 36), net.cut(y, 36, 72)
    y = net.concat(left, net.conv(right, 36, 3))
    y = net.b.emit(ops.reshape, y, newshape=(n, 2, 36, h, w))
    y = net.b.emit(ops.transpose, y, axes=(0, 2, 1, 3, 4))
    return net.function(net.conv(net.b.emit(ops.reshape, y, newshape=(n, 72, h, w)), 8))


def inner_result(net: Net) -> Function:
    """Operands and a concat that are results, too."""
    y, z = net.conv(net.x, 17), net.conv(net.x, 5, 3)
    both = net.concat(y, z)
    return net.function(net.norm(both), z, both)


def whole_result(net: Net) -> Function:
    """A concat that is the result, in NHWC."""
    y = net.concat(net.conv(net.x, 17), net.conv(net.x, 5, 3))
    return net.function(net.b.emit(ops.transpose, y, axes=(0, 2, 3, 1)))


def twice(net: Net) -> Function:
    """The same tensor twice, and once more in another concat."""
    y, z = net.conv(net.x, 17), net.conv(net.x, 5)
    return net.function(net.conv(net.concat(y, z, y), 6), net.conv(net.concat(z, y), 7))


def nested(net: Net) -> Function:
    y, z, u = net.conv(net.x, 17), net.conv(net.x, 5, 3), net.pool(net.x)
    return net.function(net.conv(net.concat(u, net.concat(y, z)), 6, 3))


def behind(net: Net) -> Function:
    """Concats of what lies side by side in another, at its begin, in the middle, and not quite."""
    y, z, u, v = (net.conv(net.x, n) for n in (17, 5, 8, 3))
    parts = net.concat(y, z), net.concat(z, u), net.concat(z, v), net.concat(y, z, u, v)
    return net.function(*(net.conv(net.norm(p), 6) for p in parts))


def two_places(net: Net) -> Function:
    """A concat that would lie in one of two others: where its operands do, and as an operand."""
    y, z, u = (net.conv(net.x, n) for n in (17, 5, 8))
    inner = net.concat(y, z)
    outer, other = net.concat(inner, u), net.concat(y, z, net.conv(net.x, 3))
    return net.function(net.conv(net.norm(outer), 6), net.conv(net.norm(other), 6))


def deep(net: Net) -> Function:
    """A block of densenet whose concats have more operands than a kernel takes."""
    return dense(net, layers=20)


def along_lines(net: Net) -> Function:
    """Neither concat nor slice are of channels."""
    y = net.concat(net.conv(net.x, 17), net.conv(net.x, 17, 3), axis=2)
    return net.function(net.conv(net.cut(y, 1, 2, axis=2), 6))


def slices(net: Net) -> Function:
    """Slices of a slice, of an input of the segment, and of what is in a concat."""
    y, z = net.conv(net.x, 60), net.conv(net.x, 5)
    inner = net.cut(net.cut(y, 3, 58), 2, 39)
    both = net.concat(y, z)
    return net.function(
        net.conv(inner, 6, 3),
        net.conv(both, 7),
        net.conv(net.cut(both, 59, 63), 4),
        net.pool(inner),
    )


def summed(net: Net) -> Function:
    """An operand that a convolution adds to its own result, too."""
    y = net.conv(net.x, 36)
    z = net.b.emit(ops.add, net.conv(y, 36, 3, clipped=False), y)
    return net.function(net.conv(net.concat(y, z), 6), net.conv(y, 5))


def partly(net: Net) -> Function:
    """A concat in a concat; an input and a sum beside it are no part of it."""
    y, z = net.conv(net.x, 17), net.conv(net.x, 5, 3)
    both = net.concat(net.x, y, net.norm(z), z)
    return net.function(net.conv(net.concat(both, net.conv(y, 9)), 6), z)


def stacked(net: Net) -> Function:
    """Lines on lines of lines, some of them computed one by one; cut again, and beside others."""
    y, z = net.conv(net.x, 17), net.norm(net.conv(net.x, 17, 3))
    inner = net.concat(y, z, axis=2)
    lines = net.concat(inner, net.pool(inner), net.conv(net.x, 17), axis=2)
    wide = net.concat(net.pool(lines), net.conv(lines, 6), lines)
    top = net.pool(net.cut(wide, 0, 1, axis=2))
    return net.function(net.conv(wide, 6), net.conv(net.cut(lines, 1, 3, axis=2), 5), top)


def lines_of_rows(net: Net) -> Function:
    """Lines of what lies in rows that are apart, and what cannot read those."""
    wide = net.concat(net.conv(net.x, 17), net.conv(net.x, 5))
    left = net.cut(wide, 0, 17)
    few, other = net.cut(left, 0, 2, axis=2), net.cut(left, 1, 2, axis=2)
    return net.function(net.conv(wide, 4), net.conv(few, 6, 3), net.b.emit(ops.exp, other))


NETS: list[Callable[[Net], Function]] = [
    *(fire, dense, shuffle, inner_result, whole_result, twice, nested, behind, two_places),
    *(deep, along_lines, slices, summed, partly, stacked, lines_of_rows),
]


@pytest.mark.sweep
@pytest.mark.parametrize("build", NETS, ids=lambda f: f.__name__)
def test_placed_or_not_the_results_are_the_same(build: Callable[[Net], Function]) -> None:
    check(build(Net()), (2, 9, 7), (1, 1, 2), (1, 30, 31))


@pytest.mark.sweep
@pytest.mark.parametrize("build", NETS, ids=lambda f: f.__name__)
def test_so_they_are_of_one_image(build: Callable[[Net], Function]) -> None:
    """Its lines are whole pieces of memory."""
    check(build(Net(sizes=(1, H, W))), (1, 9, 7), (1, 1, 2), (1, 30, 31))


@pytest.mark.sweep
@pytest.mark.parametrize("build", NETS, ids=lambda f: f.__name__)
def test_in_strips_they_are_the_same(
    build: Callable[[Net], Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A strip moves 2 KiB, whatever it reads of constants."""
    monkeypatch.setattr(strip, "SHARE", 2048 / host().l2)
    monkeypatch.setattr(strip, "CONSTANT", 1e6)
    check(build(Net(sizes=(1, H, W))), (1, 30, 31))
    check(build(Net()), (2, 30, 31))


def test_rows_of_matrices_are_written_where_they_are_wanted() -> None:
    """Along the first axis, through views, by and for kernels that know of no rows apart."""
    b, c = Builder(), Const(np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32))
    x = Var("x", tensor("float32", N, 6))
    y = b.emit(ops.matmul, x, c)
    z = b.emit(ops.reshape, b.emit(ops.softmax, y, axis=1), newshape=(N * 2, 4))
    u = b.emit(ops.reshape, b.emit(ops.matmul, x, c), newshape=(N * 2, 4))
    both = b.emit(ops.concat, z, u, z, axis=0)
    rows = {"begin": (1,), "end": (-1,), "strides": (1,), "axes": (0,)}
    inner = b.emit(ops.softmax, b.emit(ops.strided_slice, both, **rows), axis=1)
    fn = b.function("main", [x], [inner, u])
    found = kernels(fn)
    assert (found["concat"], found["strided_slice"]) == (1, 0)
    run = bucketize.compile(Module({"main": fn}))
    for n in (1, 5):
        array = np.random.default_rng(1).standard_normal((n, 6)).astype(np.float32)
        agree(run.run(array), run_function(fn, [array]), 1e-4)


def test_a_block_of_a_known_size() -> None:
    """Winograd's kernels are among those that write apart."""
    net = Net(sizes=(1, 28, 29))
    y = net.conv(net.x, 64)
    fn = net.function(net.conv(net.concat(net.conv(y, 17), net.conv(y, 64, 3)), 9))
    assert kernels(fn)["winograd"] == 1
    assert kernels(fn)["concat"] == 0
    check(fn, (1, 28, 29))


@pytest.mark.parametrize("build", [dense, slices], ids=lambda f: f.__name__)
def test_a_saved_program_places_alike(build: Callable[[Net], Function], tmp_path: Path) -> None:
    check(build(Net()), (2, 9, 7), (1, 30, 31), saved=tmp_path / "saved.bkt")


@pytest.mark.parametrize(
    ("build", "concats", "slices"),
    [
        (fire, 0, 0),
        (dense, 0, 0),
        (shuffle, 1, 0),  # what is cut off has a place already
        (inner_result, 1, 0),
        (whole_result, 0, 0),
        (twice, 1, 0),
        (nested, 0, 0),
        (behind, 1, 0),
        (along_lines, 1, 1),
        (slices, 0, 0),
        (summed, 0, 0),
        (partly, 1, 0),
        (stacked, 3, 2),
        (lines_of_rows, 0, 2),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_what_need_not_be_copied_is_not(
    build: Callable[[Net], Function], concats: int, slices: int
) -> None:
    found = kernels(build(Net()))
    assert (found["concat"], found["strided_slice"]) == (concats, slices)


@pytest.mark.parametrize(
    ("build", "concats", "slices"),
    [(along_lines, 0, 0), (partly, 1, 0), (stacked, 1, 0), (lines_of_rows, 0, 0)],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_lines_of_one_image_are_not(
    build: Callable[[Net], Function], concats: int, slices: int
) -> None:
    found = kernels(build(Net(sizes=(1, H, W))))
    assert (found["concat"], found["strided_slice"]) == (concats, slices)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("outs", [1, 2, 5, 12])
def test_few_channels_are_read_and_written_where_they_lie(outs: int, kernel: int) -> None:
    """Image, result and operands of inner products, whose pixels lie apart."""
    net = Net(13)
    y = net.conv(net.x, 24)
    left, right = (net.conv(net.cut(y, *ends), outs, kernel) for ends in ((3, 16), (0, 7)))
    whole = net.concat(left, net.conv(y, 11), right)
    last = net.conv(net.cut(y, 5, 11), outs, kernel, clipped=False)
    both = net.b.emit(ops.add, last, net.cut(whole, outs + 11, 2 * outs + 11))
    fn = net.function(net.conv(whole, 4), net.norm(whole), both)
    found = kernels(fn)
    assert found["inner"] >= (4 if outs < 8 else 1)  # of 8 lanes some are left to others
    assert not found["strided_slice"] + found["concat"]
    check(fn, (2, 7, 9), (1, 2, 2), (1, 30, 11))


def test_a_concat_copies_what_is_not_there() -> None:
    """Of its operands those that could be written into it have no pitch: nothing is copied."""
    segment = segment_of(partly(Net()))
    (call,) = (c for c in segment.calls if c.implementation.template == "concat")
    assert [p == 0 for p in segment.pitches(call)] == [False, True, False, False, False]


def test_a_padded_image_is_copied_only_if_it_is_shallow() -> None:
    assert kernels(fire(Net()))["pad"] == 0
    net = Net(3)
    assert kernels(net.function(net.conv(net.x, 16, 3)))["pad"] == 1


def test_parts_live_as_long_as_the_whole() -> None:
    """The arena holds the block once, from its first part on, not its parts beside it."""
    fn = dense(Net(sizes=(1, 16, 16)), layers=6)
    segment = segment_of(fn)
    roots = {segment.root(o) for c in segment.calls for o in c.binding.outs}
    (block,) = [
        r
        for r in roots
        if r.type.shape[-1] == 20 + 6 * 7 and r not in {c.binding.out for c in segment.calls}
    ]
    inside = [c for c in segment.calls if segment.root(c.binding.out) is block]
    assert len(inside) == 7
    offsets = [segment.place(c.binding.out).offset for c in inside]
    assert offsets == [0, *range(20, 62, 7)]


# --- any network ---------------------------------------------------------------------------------


@st.composite
def nets(draw: st.DrawFn) -> Function:
    """Layers on what was made before, some of them joined or cut."""
    net = Net(draw(st.sampled_from([3, 16, 21])))
    made, plain = [net.x], st.integers(0, 5)

    def width(v: Var) -> int:
        return int(v.type.shape[1])  # type: ignore[arg-type]

    for _ in range(draw(st.integers(3, 9))):
        pick = partial(draw, st.sampled_from(made[-4:]))
        kind = draw(plain)
        if kind <= 1:
            made.append(net.conv(pick(), draw(st.integers(1, 40)), draw(st.sampled_from([1, 3]))))
        elif kind == 2:
            made.append(net.concat(*(pick() for _ in range(draw(st.integers(1, 3))))))
        elif kind == 3:
            x = pick()
            begin = draw(st.integers(0, width(x) - 1))
            made.append(net.cut(x, begin, draw(st.integers(begin + 1, width(x)))))
        else:
            made.append(net.norm(pick()) if kind == 4 else net.pool(pick()))
    others = draw(st.lists(st.sampled_from(made[1:]), max_size=2))
    return net.function(made[-1], *(o for o in dict.fromkeys(others) if o is not made[-1]))


@settings(max_examples=15)
@given(nets(), st.integers(1, 2), st.integers(1, 12), st.integers(1, 12))
def test_any_network_computes_what_its_ops_compute(fn: Function, n: int, h: int, w: int) -> None:
    note(bucketize.show(Module({"main": fn})))
    check(fn, (n, h, w))
