"""Strips: groups of kernels run some lines at a time give the bits of kernels run one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from choosing import configuration_of

import bucketize
from bucketize import ops
from bucketize.executable import Executable
from bucketize.ir import Atom, Builder, Const, Function, Module, Var
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.winograd import loops as patchwork
from bucketize.kernel.winograd.template import TEMPLATE as WINOGRAD
from bucketize.link import strip
from bucketize.link.block import GROUPED
from bucketize.link.image import Image
from bucketize.link.link import link
from bucketize.link.memory import Arena, address, empty_bytes
from bucketize.link.planner import launch_of
from bucketize.machine.host import host
from bucketize.program.decide import decide, defaults
from bucketize.program.instruction import RunSegment, Segment
from bucketize.runtime.state import State
from bucketize.runtime.vm import Context
from bucketize.types import Symbol, ceil_div, evaluate, tensor

pytestmark = pytest.mark.usefixtures("few_registers")

N, H, W = Symbol("N"), Symbol("H"), Symbol("W")
RIM = 1 << 12  # bytes
NAN = 0xFF  # four of them are a NaN


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A strip moves 2 KiB, whatever it reads of constants."""
    monkeypatch.setattr(strip, "SHARE", 2048 / host().l2)
    monkeypatch.setattr(strip, "CONSTANT", 1e6)


class Guarded(Arena):
    """An arena of NaNs, with a rim that nobody may write to."""

    def reserve(self, size: int) -> int:
        self.size = size
        self._bytes = empty_bytes(size + 2 * RIM)
        self._bytes[:] = NAN
        self.base, self.most = address(self._bytes) + RIM, size
        return self.base

    def check(self) -> None:
        assert (self._bytes[:RIM] == NAN).all()
        assert (self._bytes[RIM + self.size :] == NAN).all()


class Poisoned(Context):
    """A context whose arena is new whenever sizes are."""

    def __init__(self, image: Image) -> None:
        super().__init__(image)
        self.lent.arena = Guarded()


class Whole(Context):
    """A context without strips."""

    def new_state(self, segment: Segment) -> State:
        state = super().new_state(segment)
        state.forbid_strips()
        return state


def compiled(fn: Function, threads: int = 1) -> Executable:
    return bucketize.compile(Module({"main": fn}), threads=threads)


def stripped(context: Context) -> list[int]:
    """How many kernels each group has that the last run ran in strips."""
    return [
        group[GROUPED.last] - group[GROUPED.first] + 1
        for state in context._states.values()
        for group in state.plan.groups.tolist()
        if state.chunks[group[GROUPED.step]]
    ]


def check(exe: Executable, *arrays: np.ndarray) -> list[int]:
    """Strips change no bit; how many kernels the groups have."""
    routine = exe.program.routines["main"]
    whole, guarded = Whole(exe.image), Poisoned(exe.image)
    want, got = (c.enter(routine, arrays) for c in (whole, guarded))
    again = guarded.enter(routine, arrays)  # on what the first run left
    assert stripped(whole) == []
    for a, b, c in zip(want, got, again, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    guarded.lent.arena.check()  # type: ignore[attr-defined]
    return stripped(guarded)


def images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


class Chain:
    """A function that grows by ops on NCHW images."""

    def __init__(self, x: Var, seed: int = 0) -> None:
        self.b, self.x, self.made = Builder(), x, x
        self.rng = np.random.default_rng(seed)

    @property
    def channels(self) -> int:
        return int(self.made.type.shape[1])  # type: ignore[arg-type]

    def conv(self, out: int, kernel: int = 1, *, groups: int = 1, **attrs: Any) -> Chain:
        shape = (out, self.channels // groups, kernel, kernel)
        weights = Const(self.rng.standard_normal(shape, dtype=np.float32) / kernel)
        attrs = {"strides": (1, 1), "pads": (kernel // 2,) * 4, **attrs}
        self.emit(ops.conv2d, weights, groups=groups, **attrs)
        bias = Const(self.rng.standard_normal((1, out, 1, 1), dtype=np.float32))
        return self.emit(ops.add, bias)

    def depthwise(self, kernel: int = 3, stride: int = 1) -> Chain:
        return self.conv(self.channels, kernel, groups=self.channels, strides=(stride, stride))

    def emit(self, op: Any, *args: Atom, **attrs: Any) -> Chain:
        self.made = self.b.emit(op, self.made, *args, **attrs)  # type: ignore[assignment]
        return self

    def fn(self, *more: Atom) -> Function:
        return self.b.function("main", [self.x], [self.made, *more])


def data(*shape: Any) -> Var:
    return Var("x", tensor("float32", *shape))


def test_a_block_is_a_group() -> None:
    chain = Chain(data(1, 8, 24, 24)).conv(32).emit(ops.relu).depthwise().emit(ops.relu).conv(16)
    assert check(compiled(chain.emit(ops.relu).conv(32).fn()), images(1, 8, 24, 24)) == [3]


def test_buffers_of_a_group_share_no_memory() -> None:
    chain = Chain(data(1, 8, 24, 24)).conv(32).depthwise().depthwise().depthwise().conv(8)
    assert check(compiled(chain.fn()), images(1, 8, 24, 24)) == [5]


def residual(chain: Chain, stride: int = 1, kernel: int = 3) -> Chain:
    before, width = chain.made, chain.channels
    chain.conv(3 * width).emit(ops.relu).depthwise(kernel, stride).emit(ops.relu).conv(width)
    return chain.emit(ops.add, before) if stride == 1 else chain


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_any_size(threads: int) -> None:
    chain = residual(residual(residual(Chain(data(N, 8, H, W)))), stride=2)
    exe = compiled(residual(chain, kernel=5).fn(), threads)
    found = set()
    for shape in ((1, 40, 31), (3, 17, 9), (2, 2, 64), (5, 1, 33), (1, 7, 7), (2, 64, 3)):
        found |= set(check(exe, images(shape[0], 8, *shape[1:])))
    assert found


def fire(chain: Chain) -> None:
    """Two that are written into what they are joined to, and a part that is read where it lies."""
    before = chain.conv(8).emit(ops.relu).made
    one = chain.conv(16).emit(ops.relu).made
    chain.made = before
    chain.conv(24, 3).emit(ops.relu)
    chain.made = chain.b.emit(ops.concat, one, chain.made, axis=1)
    chain.emit(ops.strided_slice, begin=(8,), end=(24,), strides=(1,), axes=(1,)).conv(8, 3)


def wide(chain: Chain, stride: int) -> None:
    apart = int(chain.rng.choice([1, 2]))
    strides, dilations = (stride, stride), (apart, apart)
    chain.conv(16, 3, strides=strides, dilations=dilations, pads=(2,) * 4)


def pool(chain: Chain, stride: int) -> None:
    op = ops.max_pool2d if chain.rng.integers(2) else ops.avg_pool2d
    chain.emit(op, kernel=(3, 2), strides=(stride, 1), pads=(1, 1, 1, 0))


KINDS: Mapping[str, Callable[[Chain, int], object]] = {
    "conv": lambda chain, s: chain.conv(int(chain.rng.choice([8, 16, 40])), strides=(s, s)),
    "wide": wide,
    "depthwise": lambda chain, s: chain.depthwise(int(chain.rng.choice([3, 5])), s),
    "pool": pool,
    "unary": lambda chain, _: chain.emit(ops.sigmoid if chain.rng.integers(2) else ops.relu),
    "grouped": lambda chain, _: chain.conv(16, 3, groups=2),
    "fire": lambda chain, _: fire(chain),
}


def random_chain(seed: int) -> Function:
    """Ops of all kinds that run down lines, with residuals across some of them."""
    chain = Chain(data(N, 8, H, W), seed)
    rng, earlier = chain.rng, [chain.made]
    for _ in range(int(rng.integers(3, 9))):
        kind = rng.choice([*KINDS, "add"])
        if kind == "add":
            fits = [a for a in earlier if a.type == chain.made.type]
            chain.emit(ops.add, fits[int(rng.integers(len(fits)))] if fits else chain.made)
        else:
            KINDS[kind](chain, int(rng.choice([1, 1, 2])))
        earlier.append(chain.made)
    kept = earlier[int(rng.integers(len(earlier)))]
    return chain.fn(*[kept] * int(rng.integers(2)))


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(20))
def test_any_chain(seed: int) -> None:
    fn, found = random_chain(seed), set()
    for threads in (1, 2):
        exe = compiled(fn, threads)
        for shape in ((1, 33, 20), (3, 9, 40), (2, 3, 70), (4, 1, 1), (1, 70, 5)):
            found |= set(check(exe, images(shape[0], 8, *shape[1:])))
    assert found


@pytest.mark.parametrize("seed", range(12))
def test_tiles_are_the_whole_extent(seed: int) -> None:
    target, sizes = host(), {"N": 2, "H": 37, "W": 21}
    module = Module({"main": random_chain(seed)})
    program = decide(module, defaults, target=target, threads=1, executor="auto")
    program.decide("main")
    for segment, call in ((s, c) for s in program.segments() for c in s.calls):
        launch = launch_of(call, segment.pitches(call), target)
        if launch.lines is not None:
            n = launch.lines
            assert evaluate(n.spans * n.tiles * n.step - launch.extent, sizes) == 0
            images, height, *_ = call.binding.outs[0].type.shape
            places = n.low * n.tiles + n.tall
            assert evaluate(places - images * n.down * n.across, sizes) == 0
            assert evaluate(ceil_div(height, n.high) - n.down, sizes) == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_patches_of_several_lines(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Winograd's kernels make several lines at once, in blocks that end within them."""
    monkeypatch.setattr(patchwork, "LEAST", 5)
    target = replace(host(), l2=1 << 10)
    chain = Chain(data(N, 8, H, W)).conv(16).conv(16, 3).emit(ops.relu).conv(16, 3).conv(8)
    module = Module({"main": chain.fn()})
    asked = partial(decide, module, target=target, threads=threads, executor="auto")
    (step,) = asked(defaults).decide("main").code.instructions
    assert isinstance(step, RunSegment)
    able = [c.workload for c in step.segment.calls if WINOGRAD.accepts(c.workload)]
    made = {w.hash: Implementation("winograd", WINOGRAD.default(w, target)) for w in able}
    exe = Executable(link(asked(lambda _: configuration_of(made))), module, 0.0)
    for n, h, w in ((1, 37, 20), (1, 38, 33), (2, 23, 17), (1, 71, 12), (2, 5, 31), (5, 1, 8)):
        assert check(exe, images(n, 8, h, w)) == [3, 3]


def test_a_small_tensor_is_not_cut() -> None:
    chain = residual(Chain(data(1, 8, H, 4)))
    assert check(compiled(chain.fn()), images(1, 8, 2, 4)) == []


def test_empty_images_have_no_strips() -> None:
    exe = compiled(residual(Chain(data(Symbol("N", 0), 8, H, 16))).fn())
    assert check(exe, images(0, 8, 64, 16)) == []


def test_what_others_read_is_no_buffer() -> None:
    """Neither a result, nor what a later kernel reads, lives inside a group."""
    chain = Chain(data(1, 8, 24, 24)).conv(32).emit(ops.relu)
    inner = chain.made
    chain.depthwise().emit(ops.relu).conv(16)
    assert check(compiled(chain.fn(inner)), images(1, 8, 24, 24)) == [2]


def test_memory_shrinks_to_buffers() -> None:
    exe = compiled(residual(residual(Chain(data(1, 8, H, 16)))).fn())
    tall, taller = (_arena_bytes(exe, h) for h in (256, 512))
    assert taller - tall == 2 * 256 * 8 * 16 * 4  # what a block reads and what it makes, no more


def _arena_bytes(exe: Executable, height: int) -> int:
    context = Context(exe.image)
    context.invoke(exe.program.routines["main"], [images(1, 8, height, 16)])
    return max(s.needed for s in context._states.values())


def test_a_saved_program_runs_in_strips(tmp_path: Path) -> None:
    exe, x = compiled(residual(Chain(data(N, 8, H, W))).fn()), images(2, 8, 30, 20)
    exe.save(tmp_path / "program")
    assert check(bucketize.load(tmp_path / "program"), x) == check(exe, x) == [3]


@pytest.mark.parametrize(("share", "lines"), [(1, "1 line"), (8, "2 lines")])
def test_explain_tells_the_groups(share: int, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strip, "SHARE", share * strip.SHARE)
    exe = compiled(residual(Chain(data(N, 8, H, W)), stride=2).fn())
    told, words = exe.explain(x=(2, 8, 30, 20)), f"group 1, {lines} at a time"
    assert [step["strip"] for step in told.steps] == ["", words, words, words, ""]
    _, _, *rows = str(told).splitlines()
    assert [row.endswith(words) for row in rows] == [False, True, True, True, *[False] * 4]
    assert {step["strip"] for step in exe.explain(x=(1, 8, 2, 2)).steps} == {""}


@pytest.fixture
def profiled() -> Any:
    exe = compiled(residual(Chain(data(N, 8, H, W))).fn())
    return exe.profile(images(2, 8, 30, 20), repetitions=2)


def test_a_profile_has_a_row_for_each_kernel(profiled: Any) -> None:
    assert profiled["kernel"].tolist().count("depthwise") == 1
    assert (profiled["kernel"] == "conv2d").sum() == 2
