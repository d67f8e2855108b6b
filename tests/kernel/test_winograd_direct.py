"""Kernels by minimal filtering beside the direct template's: on what is not finite, or extreme."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from test_vector_templates import TARGETS, Case, H, N, W, run
from test_winograd import NUMBERS, bare, bound_of, grouped, long, residual

from bucketize.kernel.gemm import conv
from bucketize.kernel.winograd import template as winograd
from bucketize.machine.target import Target
from bucketize.op import Array

pytestmark = pytest.mark.usefixtures("few_registers")

Arrays = list[Array]

PAIRS = [
    pytest.param(m, target, id=f"m{m}-lanes{target.lanes}") for m in NUMBERS for target in TARGETS
]
OTHERS = [
    pytest.param(window, m, target, id=f"{window}-m{m}-lanes{target.lanes}")
    for window, numbers in (((5, 5, 1), (2, 4)), ((3, 3, 2), (3, 5, 7)), ((7, 1, 1), (2,)))
    for m, target in zip(numbers, TARGETS, strict=False)
]
"""Windows of other taps, or another stride."""
SMALLEST = np.finfo("f").tiny  # of normal numbers


@dataclass(frozen=True)
class Both:
    """A group at some sizes: what each of the two templates makes of it."""

    case: Case
    m: int
    target: Target

    def direct(self, args: Arrays, sizes: dict[str, int]) -> Array:
        schedule = {"mr": 4, "nr": 2 * self.target.lanes, "kc": 0}
        return run(conv.TEMPLATE, self.case.workload(), schedule, args, self.target, sizes)

    def winograd(self, args: Arrays, sizes: dict[str, int], parts: int = 3) -> Array:
        load, schedule = self.case.workload(), {"m": self.m, "nr": 2 * self.target.lanes}
        assert winograd.TEMPLATE.accepts(load)
        return run(winograd.TEMPLATE, load, schedule, args, self.target, sizes, parts)

    @property
    def bound(self) -> float:
        return bound_of(self.case.workload(), self.m)

    def agree(self, args: Arrays, sizes: dict[str, int], parts: int = 3) -> None:
        alike(self.winograd(args, sizes, parts), self.direct(args, sizes), self.bound)


def alike(got: Array, want: Array, bound: float) -> None:
    """The same classes of values, and finite ones near by the greatest of them."""
    for name, is_so in (("NaN", np.isnan), ("inf", np.isposinf), ("-inf", np.isneginf)):
        np.testing.assert_array_equal(is_so(got), is_so(want), name)
    finite = np.isfinite(want)
    scale = np.abs(want[finite]).max(initial=SMALLEST)
    error = np.abs(got[finite].astype(np.float64) - want[finite]) / scale
    assert error.max(initial=0) <= bound


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def beside(m: int, target: Target, image: tuple[int, ...], out: int, **made: Any) -> Both:
    """A convolution of images of such a shape, whose batch and extents are left open."""
    types = ((N, H, W, image[3]), (out, image[3], 3, 3))
    return Both(Case(winograd.TEMPLATE, made.get("make", bare), types, (), (1,)), m, target)


def sizes_of(image: Array) -> dict[str, int]:
    return dict(zip("NHW", image.shape, strict=False))


# --- what is planted ---------------------------------------------------------------------------

VALUES = (np.nan, np.inf, -np.inf, 1e38, -1e38, 3.4e38, -3.4e38, 1e25, -1e19, 1e-40, -1e-45)


@dataclass(frozen=True)
class Draw:
    """A convolution, and where its image and weights hold what is not usual."""

    image: tuple[int, int, int, int]
    weights: tuple[int, int, int, int]
    groups: int
    scale: float
    plants: list[tuple[int, float, float]]  # image or weights, how far behind, what
    pads: tuple[int, int, int, int]

    def arrays(self, seed: int) -> Arrays:
        made = [normal(seed, *self.image), normal(seed + 1, *self.weights)]
        made[0] *= np.float32(self.scale)
        for which, share, value in self.plants:
            made[which].flat[int(share * made[which].size)] = value
        return made


@st.composite
def draws(draw: st.DrawFn) -> Draw:
    groups, inner = draw(st.sampled_from((1, 1, 2, 3))), draw(st.integers(2, 20))
    image = (draw(st.integers(1, 2)), draw(st.integers(3, 16)), draw(st.integers(3, 16)))
    out = groups * draw(st.integers(1, 36))
    share = st.floats(0, 1, exclude_max=True)
    images = st.tuples(st.just(0), share, st.sampled_from(VALUES))
    weights = st.tuples(st.just(1), share, st.sampled_from(VALUES))
    plants = draw(st.lists(images, max_size=4)) + draw(st.lists(weights, max_size=1))
    scale = draw(st.sampled_from((1.0, 1.0, 1e-30, 1e37)))
    kernel = draw(st.sampled_from(((3, 3), (3, 3), (1, 3), (3, 1))))
    pads = draw(st.just((0,) * 4) | st.tuples(*[st.integers(0, 3)] * 4))
    return Draw((*image, groups * inner), (out, inner, *kernel), groups, scale, plants, pads)


@pytest.mark.sweep
@pytest.mark.parametrize(("m", "target"), PAIRS)
@given(drawn=draws(), seed=st.integers(0, 999), parts=st.integers(1, 4))
def test_any_values_are_as_the_direct_kernel_has_them(
    m: int, target: Target, drawn: Draw, seed: int, parts: int
) -> None:
    image, weights = drawn.arrays(seed)
    note(f"{drawn} {seed=}")
    both = beside(m, target, image.shape, len(weights), make=grouped(drawn.groups, drawn.pads))
    types = (both.case.types[0], weights.shape)
    both = Both(Case(winograd.TEMPLATE, both.case.make, types, (), (1,)), m, target)
    both.agree([image, weights], sizes_of(image), parts)


@pytest.mark.sweep
@pytest.mark.parametrize(("window", "m", "target"), OTHERS)
@given(drawn=draws(), seed=st.integers(0, 999))
def test_any_values_under_other_windows_are_as_the_direct_kernel_has_them(
    window: tuple[int, int, int], m: int, target: Target, drawn: Draw, seed: int
) -> None:
    high, wide, stride = window
    inner = 16 if stride > 1 else drawn.weights[1]
    image = (drawn.image[0], *(n + 4 for n in drawn.image[1:3]), inner)
    out = drawn.weights[0]
    drawn = replace(drawn, image=image, weights=(out, inner, high, wide), groups=1)
    args = drawn.arrays(seed)
    note(f"{drawn} {seed=}")
    under(window, m, target, image, out, drawn.pads).agree(args, sizes_of(args[0]))


def under(
    window: tuple[int, int, int],
    m: int,
    target: Target,
    image: tuple[int, ...],
    out: int,
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> Both:
    """A convolution by a window of these extents and stride."""
    high, wide, stride = window
    types = ((N, H, W, image[3]), (out, image[3], high, wide))
    make = grouped(1, pads, (stride, stride))
    return Both(Case(winograd.TEMPLATE, make, types, (), (1,)), m, target)


@pytest.mark.parametrize(("window", "m", "target"), OTHERS)
def test_extremes_under_other_windows_are_the_direct_kernels_bit_for_bit(
    window: tuple[int, int, int], m: int, target: Target
) -> None:
    """What is large and what is denormal; what is usual is filtered."""
    image, weights = normal(0, 2, 14, 15, 32), normal(1, 37, 32, *window[:2])
    both = under(window, m, target, image.shape, 37)
    for factor in (1e25, 1e37, 1e-40):
        args = [np.float32(factor) * image, weights]
        want = both.direct(args, sizes_of(image))
        np.testing.assert_array_equal(both.winograd(args, sizes_of(image)), want)
    got, want = (f([image, weights], sizes_of(image)) for f in (both.winograd, both.direct))
    assert np.mean(got != want) > 0.5


# --- one by one --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("m", NUMBERS)
def test_what_is_not_finite_is_seen_by_its_own_windows_alone(m: int, value: float) -> None:
    """At every place that a pixel can have in a patch, and where patches are cut."""
    image, weights = np.tile(normal(0, 1, 11, 9, 3), (99, 1, 1, 1)), normal(1, 5, 3, 3, 3)
    for i in range(99):
        image[i, i // 9, i % 9, i % 3] = value
    both = beside(m, TARGETS[i % 3], image.shape, 5)
    got = both.winograd([image, weights], sizes_of(image))
    for i, result in enumerate(got):
        y, x = np.divmod(np.flatnonzero(~np.isfinite(result[..., 0])), 7)
        assert set(zip(y, x, strict=True)) == {
            (i // 9 - a, i % 9 - b)
            for a in range(3)
            for b in range(3)
            if 0 <= i // 9 - a < 9 and 0 <= i % 9 - b < 7
        }
    both.agree([image, weights], sizes_of(image))


@pytest.mark.parametrize(("m", "target"), PAIRS)
def test_what_is_large_is_the_direct_kernels_bit_for_bit(m: int, target: Target) -> None:
    """And so is all else in a patch with a value that is not finite."""
    image, weights = normal(0, 2, 12, 15, 17), normal(1, 37, 17, 3, 3)
    both = beside(m, target, image.shape, 37)
    for factor in (1e25, 1e37):
        args = [np.float32(factor) * image, weights]
        want = both.direct(args, sizes_of(image))
        np.testing.assert_array_equal(both.winograd(args, sizes_of(image)), want)
    image[0, 1, 1, 3], image[1, 10, 13, 0] = np.nan, np.inf
    got, want = (f([image, weights], sizes_of(image)) for f in (both.winograd, both.direct))
    np.testing.assert_array_equal(got[0, :m, :m], want[0, :m, :m])
    np.testing.assert_array_equal(
        got[1, 10 // m * m :, 12 // m * m :], want[1, 10 // m * m :, 12 // m * m :]
    )
    assert (got != want).any(), "others are computed by minimal filtering"


def test_what_zeros_of_the_weights_hide_is_hidden() -> None:
    """The next patch overflows; here, terms that cancel are large, and the results are small."""
    image, weights = normal(0, 1, 10, 10, 2), np.zeros((3, 2, 3, 3), np.float32)
    weights[:, :, 0, 0] = 10
    image[0, 4, 4, 1] = 1e38
    both = beside(4, TARGETS[0], image.shape, 3)
    got, want = (f([image, weights], sizes_of(image)) for f in (both.winograd, both.direct))
    assert np.isposinf(want[0, 4, 4]).all()
    assert np.abs(want[0, :4, :4]).max() < 100
    alike(got, want, both.bound)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("m", NUMBERS)
def test_weights_that_are_not_finite_spoil_their_own_channel(m: int, value: float) -> None:
    image, weights = normal(0, 1, 9, 9, 4), normal(1, 40, 4, 3, 3)
    weights[33, 2, 1, 1] = value
    beside(m, TARGETS[1], image.shape, 40).agree([image, weights], sizes_of(image))


@pytest.mark.sweep
@pytest.mark.parametrize("make", [residual, long])
@pytest.mark.parametrize("m", NUMBERS)
def test_what_follows_is_done_once(m: int, make: Any) -> None:
    """The other operands of a patch that is computed again are as they were."""
    image, weights = normal(0, 2, 9, 12, 5), normal(1, 37, 5, 3, 3)
    image[0, 4, 4, 0], image[1, 8, 11, 3] = np.nan, np.inf
    types: tuple[Any, ...] = ((N, H, W, 5), (37, 5, 3, 3), (N, H - 2, W - 2, 1))
    args, constant = [image, weights, normal(2, 2, 7, 10, 1)], (1,)
    if make is residual:
        types = ((N, H - 2, W - 2, 37), *types[:2], (37,))
        args, constant = [normal(2, 2, 7, 10, 37), image, weights, normal(3, 37)], (2, 3)
    case = Case(winograd.TEMPLATE, make, types, (), constant)
    Both(case, m, TARGETS[m // 2 % 3]).agree(args, sizes_of(image))


@pytest.mark.parametrize(("m", "target"), PAIRS)
@pytest.mark.parametrize("which", [0, 1])
def test_what_is_denormal_is_the_direct_kernels_bit_for_bit(
    m: int, target: Target, which: int
) -> None:
    args = [normal(0, 1, 14, 14, 32), normal(1, 37, 32, 3, 3)]
    args[which] *= np.float32(1e-40)
    both = beside(m, target, args[0].shape, 37)
    want = both.direct(args, sizes_of(args[0]))
    assert 0 < np.abs(want).max() < SMALLEST
    np.testing.assert_array_equal(both.winograd(args, sizes_of(args[0])), want)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_is_usual_is_filtered(sign: int) -> None:
    """Rounding tells: the direct sums round otherwise."""
    image, weights = np.abs(normal(0, 1, 14, 14, 32)), sign * np.abs(normal(1, 16, 32, 3, 3))
    both = beside(4, TARGETS[0], image.shape, 16)
    got, want = (f([image, weights], sizes_of(image)) for f in (both.winograd, both.direct))
    assert np.mean(got != want) > 0.5


def test_a_channel_of_denormal_weights_does_not_slow_the_others() -> None:
    """Training leaves such; they are nothing beside the others, which are filtered as ever."""
    image, weights = normal(0, 1, 14, 14, 32), normal(1, 16, 32, 3, 3)
    weights[1:3] *= np.array([1e-40, 0], np.float32).reshape(2, 1, 1, 1)
    both = beside(4, TARGETS[0], image.shape, 16)
    got, want = (f([image, weights], sizes_of(image)) for f in (both.winograd, both.direct))
    assert (got[..., 0] != want[..., 0]).any()
    assert (got[..., 1] != want[..., 1]).any()
    np.testing.assert_allclose(got[..., 1], want[..., 1], rtol=0, atol=1e-2 * SMALLEST)
    assert not got[..., 2].any()


# --- how much rounding adds ----------------------------------------------------------------------


def he(weights: Array) -> Array:
    return weights * np.float32(np.sqrt(2 / weights[0].size))


WEIGHTS = {
    "normal": lambda w: w,
    "He": he,
    "positive": np.abs,
    "of a large mean": lambda w: 10 + w,
    "sparse": lambda w: np.where(w > 1.2, w, 0),
    "of channels of all magnitudes": lambda w: w * np.exp(3 * w[:, :1, :1, :1]),
}
IMAGES = {
    "normal": lambda x: x,
    "positive": np.abs,
    "after ReLU": lambda x: np.maximum(x, 0),
    "of a large mean": lambda x: 10 + x,
}


@pytest.mark.parametrize("m", NUMBERS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("image", IMAGES)
def test_rounding_is_a_small_share_of_the_greatest_result(m: int, weights: str, image: str) -> None:
    for seed, (size, channels) in enumerate(((21, 3), (9, 64), (14, 128))):
        args = [normal(seed, 1, size, 13, channels), normal(seed + 9, 16, channels, 3, 3)]
        args = [IMAGES[image](args[0]), WEIGHTS[weights](args[1])]
        both = beside(m, TARGETS[1], args[0].shape, 16)
        got, want = (f(args, sizes_of(args[0])) for f in (both.winograd, both.direct))
        alike(got, want, 1e-4)


@pytest.mark.sweep
@pytest.mark.parametrize(("window", "m", "target"), OTHERS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("image", IMAGES)
def test_rounding_under_other_windows_is_as_small(
    window: tuple[int, int, int], m: int, target: Target, weights: str, image: str
) -> None:
    for seed, (size, channels) in enumerate(((21, 16), (14, 128))):
        args = [normal(seed, 1, size, 13, channels), normal(seed + 9, 16, channels, *window[:2])]
        args = [IMAGES[image](args[0]), WEIGHTS[weights](args[1])]
        both = under(window, m, target, args[0].shape, 16)
        got, want = (f(args, sizes_of(args[0])) for f in (both.winograd, both.direct))
        alike(got, want, 1e-4)
