"""Several kernels of one call: which runs is told by the sizes, and nothing else hangs on it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_strip import Chain, check, data, fire, images

import bucketize
from bucketize import ops
from bucketize.compare import relative_error
from bucketize.errors import BucketizeWarning
from bucketize.executable import Executable
from bucketize.inspect.predict import predicted
from bucketize.interpret import evaluate_module
from bucketize.ir import Const, Module
from bucketize.kernel.schedule import Implementation
from bucketize.kernel.select import Select
from bucketize.kernel.templates import TEMPLATES, candidates
from bucketize.kernel.workload import Workload
from bucketize.link import strip
from bucketize.link.choice import chosen, runs
from bucketize.link.link import link
from bucketize.machine.host import host
from bucketize.program.configuration import Configuration
from bucketize.program.decide import decide, defaults, redecided
from bucketize.program.instruction import KernelCall, RunSegment
from bucketize.program.program import Program
from bucketize.types import Symbol, evaluate

pytestmark = pytest.mark.usefixtures("few_registers")

N, H, W = Symbol("N"), Symbol("H"), Symbol("W")
SHAPES = ((1, 8, 40, 31), (1, 8, 9, 7), (3, 8, 17, 9), (2, 8, 2, 64), (5, 8, 1, 33), (1, 8, 70, 66))


def module() -> Module:
    chain = Chain(data(N, 8, H, W)).conv(24).emit(bucketize.ops.relu).conv(24, 3).conv(16, 3)
    fire(chain.emit(bucketize.ops.relu))
    return Module({"main": chain.conv(16).fn()})


@cache
def meant(shape: tuple[int, ...]) -> np.ndarray:
    """What the module makes of images of this shape."""
    return np.asarray(evaluate_module(module(), images(*shape)))


def calls(program: Program) -> Sequence[KernelCall]:
    (step,) = program.decide("main").code.instructions
    assert isinstance(step, RunSegment)
    return step.segment.calls


def several(workload: Workload, thresholds: Sequence[int]) -> Select:
    """Its templates in turn, each on its default."""
    able = candidates(workload)
    each = [Implementation(t.name, t.default(workload, host())) for t in able]
    count = len(thresholds) + 1
    return Select(tuple(each[i % len(each)] for i in range(count)), tuple(thresholds))


@cache
def first_call() -> KernelCall:
    """The first of the module on defaults."""
    first, *_ = calls(decide(module(), defaults, target=host(), threads=1, executor="auto"))
    return first


def selecting(thresholds: Sequence[int], threads: int = 1, mod: Module | None = None) -> Program:
    asked = partial(decide, mod or module(), target=host(), threads=threads, executor="auto")
    loads = {c.workload.hash: c.workload for c in calls(asked(defaults))}
    selects = {name: several(load, thresholds) for name, load in loads.items()}
    return asked(lambda _: Configuration(selects))


def executable(program: Program) -> Executable:
    return Executable(link(program), module(), 0.0)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("stripped", [False, True])
def test_any_kernel_gives_what_the_model_means_at_any_size(
    threads: int, stripped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a whole or in strips, whichever kernel ran before."""
    monkeypatch.setattr(strip, "SHARE", (2048 if stripped else 1e9) / host().l2)
    monkeypatch.setattr(strip, "CONSTANT", 1e6)
    exe = executable(selecting((100, 700, 4000), threads))
    groups = set()
    for shape in (*SHAPES, *SHAPES[::-1]):
        x = images(*shape)
        groups |= set(check(exe, x))
        assert relative_error(np.asarray(exe.run(x=x)), meant(shape)) < 1e-4
    assert bool(groups) is stripped


def joined() -> Module:
    """Two convolutions without a bias, which loops are for, too: each is a part of an image."""
    chain, rng = Chain(data(N, 1, H, W)), np.random.default_rng(0)
    parts = []
    for _ in range(2):
        weights = Const(rng.standard_normal((4, 1, 1, 1), dtype=np.float32))
        parts.append(chain.b.emit(ops.conv2d, chain.x, weights))
    chain.made = chain.b.emit(ops.concat, *parts, axis=1)
    return Module({"main": chain.conv(1).fn()})


def test_tensors_lie_where_each_of_the_kernels_can_read_and_write_them() -> None:
    program, abilities = selecting((100, 700), mod=joined()), []
    exe = Executable(link(program), joined(), 0.0)
    for n, _, h, w in SHAPES:
        x = images(n, 1, h, w)
        want = evaluate_module(joined(), x)
        assert relative_error(np.asarray(exe.run(x=x)), np.asarray(want)) < 1e-5
    for call in calls(program):
        own = [TEMPLATES[c.implementation.template].pitched(c.workload) for c in call.each]
        assert {c.pitched for c in call.each} == {frozenset.intersection(*own)}
        abilities.append(len(set(own)))
    assert max(abilities) > 1


def test_explain_and_profile_name_the_kernel_that_runs() -> None:
    program = selecting((100, 700))
    exe = executable(program)
    for n, _, h, w in SHAPES:
        want = [
            call.select.at(evaluate(call.workload.size, {"N": n, "H": h, "W": w}))
            for call in calls(program)
        ]
        steps = exe.explain(x=(n, 8, h, w)).steps
        assert [step["kernel"] for step in steps] == [one.template for one in want]
        profile = exe.profile(images(n, 8, h, w), repetitions=1)
        assert profile["kernel"].tolist()[:-1] == [one.template for one in want]
        expected = predicted(program, {"N": n, "H": h, "W": w}).kernels
        assert [e.what.implementation for e in expected] == want  # type: ignore[union-attr]


def test_the_text_tells_all_of_them() -> None:
    program = selecting((100,))
    assert len(calls(program)) == str(program).count("\n    from 100: k_")


def test_a_saved_program_holds_all_of_them(tmp_path: Path) -> None:
    exe = executable(selecting((100, 700)))
    exe.save(tmp_path / "program")
    loaded = bucketize.load(tmp_path / "program")
    for shape in SHAPES:
        x = images(*shape)
        np.testing.assert_array_equal(loaded.run(x=x), exe.run(x=x))
    assert str(loaded.program) == str(exe.program)


def test_another_target_keeps_them_all_or_takes_its_default() -> None:
    program, elsewhere = selecting((100, 700)), replace(host(), name="other")
    kept = redecided(program, elsewhere)
    assert [c.select for c in calls(kept)] == [c.select for c in calls(program)]
    narrow = replace(host(), lanes=4, registers=16)
    other = redecided(program, narrow)
    for call in calls(other):
        for one in call.each:
            template = next(
                t for t in candidates(call.workload) if t.name == one.implementation.template
            )
            assert template.valid(call.workload, one.implementation.schedule, narrow) is None


thresholds = st.lists(st.integers(1, 5000), min_size=1, max_size=3, unique=True).map(sorted)


@given(thresholds, st.integers(1, 9), st.integers(1, 99), st.lists(st.integers(0, 9), min_size=4))
def test_a_choice_over_dims_is_that_of_the_sizes(
    least: list[int], n: int, h: int, values: list[int]
) -> None:
    first = first_call()
    call = replace(first, larger=tuple((k, first) for k in least))
    sizes = {"N": n, "H": h, "W": 7}
    index = call.part(sizes)
    assert index == sum(n * h * 7 >= k for k in least)
    each = [v * N for v in values[: len(least) + 1]]
    assert evaluate(chosen(call, each), sizes) == values[index] * n
    assert [evaluate(one, sizes) for one in runs(call)] == [
        int(i == index) for i in range(len(each))
    ]
    assert call.at(sizes) is call.each[index]


@pytest.mark.parametrize(
    "text", ["conv2d mr=6", "conv2d mr=6; from 7: winograd m=2; from 90: conv2d mr=2"]
)
def test_text_round_trips(text: str) -> None:
    assert str(Select.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "conv2d mr=6; from x: conv2d mr=2",
        "conv2d; from 7: winograd; from 7: conv2d",
        "a; from 3",
    ],
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no implementation|from SIZE|invalid literal"):
        Select.parse(text)


def picture(top: int | None) -> Module:
    chain = Chain(data(1, 3, Symbol("H", 1, top), Symbol("W", 1, top)))
    for _ in range(3):
        chain.conv(8, 3, strides=(2, 2))
    return Module({"main": chain.conv(256).conv(256, 3).fn()})


def test_what_nothing_bounds_is_told_with_what_it_costs() -> None:
    """Weights that are filtered first are 1.8 or 4 times as large."""
    text = r"nothing bounds H, W from above: .* in 1 of 7 calls, .* weights of 2 MiB .*, \d+ MiB"
    with pytest.warns(BucketizeWarning, match=text):
        bucketize.compile(picture(None))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bucketize.compile(picture(400))


def test_weights_are_told_as_the_model_has_them_and_as_kernels_want_them() -> None:
    program = selecting((100,))
    exe = executable(program)
    shown = exe.explain(x=(1, 8, 20, 20))
    shapes = ((24, 8, 1, 1), (24, 24, 3, 3), (16, 24, 3, 3), (8, 16, 1, 1), (16, 8, 1, 1))
    shapes += ((24, 8, 3, 3), (8, 16, 3, 3), (16, 8, 1, 1))
    biases = (24, 24, 16, 8, 16, 24, 8, 16)
    weights = 4 * (sum(math.prod(shape) for shape in shapes) + sum(biases))
    layouts = {
        (id(call.args[i].value), layout): exe.image.supply.constant(call.args[i].value, call, i)
        for call in (one for several in calls(program) for one in several.each)
        for i, layout in call.packs.items()
    }
    packed = sum(array.nbytes for array in layouts.values())
    assert (shown.weight_bytes, shown.packed_bytes) == (weights, packed)
    assert shown.all_packed_bytes == exe.constant_bytes() == packed > 2 * weights
    mib = [f"{size / 2**20:.1f} MiB" for size in (weights, packed, packed)]
    assert "; weights: {}, packed {}, in all clones {}".format(*mib) in str(shown)
