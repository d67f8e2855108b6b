"""Arrangements: all compute the same; they are priced, measured, confirmed, run and told."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketize
from bucketize.interpret import run_function
from bucketize.ir import FUSED, Binding, Builder, Const, Function, Module, Var, all_bindings
from bucketize.kernel.workload import Workload, workload_of
from bucketize.log.log import rows
from bucketize.log.outcome import Outcome
from bucketize.log.trial import CLONE, KERNEL, Trial
from bucketize.log.verdict import verdicts
from bucketize.lower.alternative import Alternative, Alternatives, arrangements
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.lower.cost import Predicted, Seconds, Weighted
from bucketize.lower.layout import anchors
from bucketize.lower.pipeline import laid_out, lower
from bucketize.machine.host import host
from bucketize.measure import runner as site
from bucketize.measure.job import Job
from bucketize.measure.race import Pair
from bucketize.op import Op
from bucketize.ops import add, avg_pool2d, conv2d, max_pool2d, mul, relu, sigmoid, tanh
from bucketize.program.configuration import Configuration
from bucketize.text import show
from bucketize.transform.simplify import simplify
from bucketize.tune.api import tune
from bucketize.types import Sizes, Symbol, tensor
from bucketize.verify import verify

DICE = np.random.default_rng(0)
POINTS = [({"N": 1}, 1.0), ({"N": 4}, 3.0)]


def weights(*shape: int) -> Const:
    return Const(DICE.standard_normal(shape).astype(np.float32))


def net() -> Function:
    """A residual block, a pool, and a second user of the block's result."""
    out = Builder()
    x = Var("x", tensor("float32", Symbol("N", 1, 4), 4, 8, 8))
    first = out.emit(relu, out.emit(conv2d, x, weights(8, 4, 3, 3), pads=(1, 1, 1, 1)))
    second = out.emit(conv2d, first, weights(8, 8, 1, 1))
    joined = out.emit(relu, out.emit(add, second, first))
    pooled = out.emit(max_pool2d, joined, kernel=(2, 2), strides=(2, 2))
    third = out.emit(sigmoid, out.emit(conv2d, pooled, weights(4, 8, 3, 3)))
    return out.function("main", [x], [third, out.emit(tanh, joined)])


def gated() -> Function:
    """A chain whose links may be cut, and a value that is read twice on the way."""
    out = Builder()
    x = Var("x", tensor("float32", Symbol("N", 1, 4), 4, 8, 8))
    y = out.emit(conv2d, x, weights(8, 4, 1, 1))
    gate = out.emit(mul, y, out.emit(sigmoid, y))
    last = out.emit(tanh, out.emit(relu, out.emit(add, gate, weights(1, 8, 1, 1))))
    return out.function("main", [x], [last])


def pool() -> Module:
    """Of two channels, which fill no vector: to change the layout for it is two transposes."""
    out = Builder()
    x = Var("x", tensor("float32", Symbol("N", 1, 4), 2, 16, 16))
    y = out.emit(avg_pool2d, x, kernel=(2, 2), strides=(1, 1))
    return Module({"main": out.function("main", [x], [y])})


# --- text -----------------------------------------------------------------------------------------

PLACES = st.frozensets(st.integers(0, 200), max_size=5)
ARRANGEMENTS = st.builds(Arrangement, PLACES, PLACES)


@given(ARRANGEMENTS)
def test_an_arrangement_is_read_back_from_its_text(made: Arrangement) -> None:
    assert Arrangement.parse(str(made)) == made


def test_the_text_of_an_arrangement() -> None:
    made = Arrangement(frozenset({7, 3}), frozenset({12}))
    assert str(made) == "planar=3,7 apart=12"
    assert str(USUAL) == "default"
    assert made.brief == str(made)
    many = Arrangement(frozenset(range(9)), frozenset(range(5)))
    assert many.brief == "planar=0,1,2,3,... apart=0,1,2,3,..."


@pytest.mark.parametrize(
    "text", ["", "planar=", "planar=3,", "planar=7,3", "apart=1 planar=2", "planar=03", "as usual"]
)
def test_what_is_no_arrangement_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no arrangement, which is 'planar=0,\.\.\. apart"):
        Arrangement.parse(text)


@given(ARRANGEMENTS)
def test_a_configuration_is_read_back_from_its_words(made: Arrangement) -> None:
    configuration = Configuration({}, made)
    assert Configuration.of(configuration.words) == configuration
    assert bool(configuration) is (made != USUAL)


# --- the law: every arrangement computes the same -------------------------------------------------


@pytest.mark.parametrize("model", [net, gated])
def test_every_arrangement_computes_the_same(model: Callable[[], Function]) -> None:
    fn = simplify(model())
    x = DICE.standard_normal((2, 4, 8, 8)).astype(np.float32)
    expected = run_function(fn, [x])
    able = sorted(anchors(fn))
    for count in range(len(able) + 1):
        for planar in itertools.combinations(able, count):
            size = len(laid_out(fn, Arrangement(frozenset(planar))).body)
            for step in (size + 1, 1, 2, 3):
                made = Arrangement(frozenset(planar), frozenset(range(0, size, step)))
                lowered = lower(fn, made)
                verify(Module({"main": lowered}))
                for a, b in zip(run_function(lowered, [x]), expected, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_is_planar_stays_and_the_usual_leaves_nothing_in_nchw() -> None:
    fn = simplify(net())
    able = anchors(fn)
    assert len(able) == 4
    layouts = [b.attrs["layout"] for b in laid_out(fn).body if "layout" in b.attrs]
    assert layouts == ["NHWC"] * 4
    planar = laid_out(fn, Arrangement(frozenset(able)))
    assert [b.attrs["layout"] for b in planar.body if "layout" in b.attrs] == ["NCHW"] * 4
    assert len(planar.body) == len(fn.body)


def first_ops(fn: Function) -> list[Op]:
    """Of each group."""
    return [b.attrs["body"].body[0].op for b in fn.body if b.op is FUSED]


def test_what_is_apart_joins_nothing_before_it() -> None:
    fn = simplify(gated())
    laid = laid_out(fn)
    relu_at = next(i for i, b in enumerate(laid.body) if b.op is relu)
    kernels = [b for b in lower(fn).body if b.op.name == "fused"]
    cut = [
        b for b in lower(fn, Arrangement(apart=frozenset({relu_at}))).body if b.op.name == "fused"
    ]
    assert len(kernels) == 1
    assert [b.attrs["body"].body[0].op for b in cut] == [conv2d, relu]


def kernels(lowered: Function) -> list[Workload]:
    return [workload_of(b)[0] for b in lowered.body]


def priced(
    fn: Function, sizes: Weighted, seconds: Seconds, *chosen: Arrangement
) -> list[Alternative]:
    """The alternatives, priced at these sizes."""
    return Alternatives(fn, host(), 1, *chosen).priced(sizes, seconds)


# --- what is priced ------------------------------------------------------------------------------


def drawn(seed: int) -> Callable[[Workload, Sizes], float]:
    """Prices out of nowhere, the same for the same workload; elementwise ops cost nothing."""

    def seconds(workload: Workload, sizes: Sizes) -> float:
        if workload.anchor.op.scalar is not None:
            return 0.0
        anchor = workload.anchor
        text = f"{seed} {anchor.op.name} {sorted(anchor.attrs)} {workload.key}"
        words = (
            f"{seed} {anchor.op.name} {anchor.attrs.get('layout')} {anchor.out.type.shape} {sizes}"
        )
        digest = hashlib.sha256((words if anchor.op.name != "fused" else text).encode()).digest()
        return 1 + digest[0]

    return seconds


def test_the_ways_are_the_layouts_of_the_whole_each_fused_and_not() -> None:
    fn = simplify(net())
    able = frozenset(anchors(fn))
    found = [a.arrangement for a in priced(fn, POINTS, drawn(0))]
    assert len(set(found)) == 4
    assert {a.planar for a in found} == {frozenset(), able}
    for way in found:
        lowered, laid = lower(fn, way), laid_out(fn, Arrangement(way.planar))
        alone = len(lowered.body) == len(laid.body)
        assert alone is bool(way.apart)
        assert {b.attrs["layout"] for b in anchored(lowered)} == {"NCHW" if way.planar else "NHWC"}


def anchored(fn: Function) -> list[Binding]:
    """All with a layout, in groups, too."""
    return [b for b in all_bindings(fn) if "layout" in b.attrs]


@pytest.mark.parametrize("seed", range(12))
def test_a_price_is_that_of_the_kernels(seed: int) -> None:
    fn, seconds = simplify(net()), drawn(seed)
    usual = kernels(lower(fn))
    for each in priced(fn, POINTS, seconds):
        made = kernels(lower(fn, each.arrangement))
        ratios = [
            sum(seconds(k, at) for k in made) / sum(seconds(k, at) for k in usual)
            for at, _ in POINTS
        ]
        mean = sum(r * w for r, (_, w) in zip(ratios, POINTS, strict=True)) / sum(
            w for _, w in POINTS
        )
        assert each.price == pytest.approx(mean)


def test_the_usual_one_is_among_them_at_the_price_of_one() -> None:
    found = {a.arrangement: a.price for a in priced(net(), POINTS, drawn(0))}
    assert found[USUAL] == pytest.approx(1)
    assert len(found) >= 3
    assert sorted(found.values()) == list(found.values())


def test_one_that_was_chosen_is_among_them() -> None:
    chosen = Arrangement(apart=frozenset({3}))
    found = priced(net(), POINTS, drawn(0), chosen)
    assert chosen in {a.arrangement for a in found}


def test_what_the_sizes_do_not_tell_is_no_reason() -> None:
    predicted = Predicted.of(net(), host(), 1)
    assert predicted.cold_bytes == 4 * (8 * 4 * 9 + 8 * 8 + 4 * 8 * 9)
    found = priced(net(), [({}, 1.0)], predicted)
    assert {a.price for a in found} == {0.0}


# --- tuning: measured, raced, written, run --------------------------------------------------------


@dataclass
class Clock:
    """A measurer by whom a pool takes so long in a layout, and all else a microsecond."""

    nchw: float
    nhwc: float
    source = None
    has_clock = True
    asked: list[str] = field(default_factory=list)

    def measure(self, jobs: Sequence[Job]) -> Iterator[list[Outcome]]:
        for job in jobs:
            body = show(job.workload.body)
            self.asked.append(body)
            pool = self.nhwc if "NHWC" in body else self.nchw
            one = pool if "avg_pool2d" in body else 1e-6
            yield [Outcome(seconds=(one,) * 9) for _ in job.implementations]


@dataclass
class Track:
    """A race that a configuration runs in the share of the default's time that `takes` says."""

    load = None

    takes: Callable[[Configuration], float]
    asked: list[Configuration] = field(default_factory=list)

    def __call__(self, _: Module, function: str, threads: int) -> Track:
        return self

    def whole(self, configuration: Configuration, judged: Weighted) -> list[Pair]:
        self.asked.append(configuration)
        return [([1e-3 * self.takes(configuration)] * 21, [1e-3] * 21) for _ in judged]


PLANAR = Configuration({}, Arrangement(frozenset({0})))


def tuned(
    log: Path, patch: pytest.MonkeyPatch, clock: Clock, takes: Callable[[Configuration], float]
) -> Track:
    track = Track(takes)
    patch.setattr(site, "Race", track)
    tune(pool(), log=log, trials=1, search="grid", measurer=clock)
    return track


def of_clones(log: Path) -> list[Trial]:
    return [row for row in rows(log) if row.level == CLONE]


def test_what_is_better_is_measured_raced_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.csv"
    track = tuned(log, monkeypatch, Clock(1e-6, 1e-6), lambda _: 0.5)
    assert track.asked == [PLANAR]
    (verdict,) = verdicts(rows(log), 1).values()
    assert verdict.configuration == PLANAR
    kernels = {row.op for row in rows(log) if row.level == KERNEL}
    assert kernels == {"avg_pool2d", "transpose"}
    exe = bucketize.compile(pool(), log=log)
    assert exe.routines["main"].arrangement == PLANAR.arrangement
    assert [step["op"] for step in exe.explain(N=2).steps] == ["avg_pool2d"]
    x = DICE.standard_normal((3, 2, 16, 16)).astype(np.float32)
    np.testing.assert_array_equal(exe.run(x), bucketize.compile(pool()).run(x))
    assert "on the vm executor, planar=0" in str(exe.program)


def test_what_measuring_shows_to_be_worse_is_not_raced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, clock = tmp_path / "log.csv", Clock(1.0, 1e-6)
    assert tuned(log, monkeypatch, clock, lambda _: 0.5).asked == []
    assert any("avg_pool2d" in body for body in clock.asked)
    assert not verdicts(rows(log), 1)[of_clones(log)[0].clone].configuration


@pytest.mark.parametrize("ratio", [0.999, 1.0, 1.2])
def test_what_loses_the_race_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio: float
) -> None:
    log = tmp_path / "log.csv"
    noise = iter(itertools.cycle([1.01, 0.99]))
    tuned(log, monkeypatch, Clock(1e-6, 1e-6), lambda _: ratio * next(noise))
    (verdict,) = verdicts(rows(log), 1).values()
    assert not verdict.configuration
    assert len(of_clones(log)) == 3
    assert bucketize.compile(pool(), log=log).routines["main"].arrangement == USUAL


# --- told -----------------------------------------------------------------------------------------


def test_an_explanation_tells_the_next_best() -> None:
    told = bucketize.compile(pool()).explain(N=2)
    first, second = sorted(arrangements(pool(), "main", {"N": 2}), key=lambda a: a.price)
    price = {first.arrangement: first.price, second.arrangement: second.price}
    assert told.second == Alternative(PLANAR.arrangement, price[PLANAR.arrangement] / price[USUAL])
    more = 100 * (told.second.price - 1)
    line = f"arrangement: default; the next best, planar=0, is expected to take {more:+.1f} %"
    assert line in str(told).splitlines()


def test_a_clone_tells_it_at_its_own_sizes() -> None:
    mod = bucketize.dispatch(pool(), lambda _: {"x": {0: [(1, 2), (2, 5)]}})
    exe = bucketize.compile(mod)
    for n in (1, 3):
        told = exe.explain(N=n)
        assert told.second is not None
        fn_sizes = {"N": n} if n > 1 else {}
        assert told.inside == fn_sizes
        found = {a.arrangement: a.price for a in arrangements(mod, told.clone, fn_sizes)}
        assert told.second.price == found[PLANAR.arrangement] / found[USUAL]


def test_a_program_that_was_loaded_tells_its_own_alone(tmp_path: Path) -> None:
    bucketize.compile(pool()).save(tmp_path / "pool.bkt")
    told = bucketize.load(tmp_path / "pool.bkt").explain(N=2)
    assert told.second is None
    assert "arrangement: default" in str(told).splitlines()


def test_a_branch_is_left_as_it_is() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N,1,4,4] x, bool c) => (float[N,1,4,4] y) <float[1,1,1,1] w = {2.0}>
        {
          h = Conv(x, w)
          y = If (c) <then_branch = t () => (float[N,1,4,4] a) { a = Conv(h, w) },
                      else_branch = e () => (float[N,1,4,4] b) { b = Relu(h) }>
        }
    """
    mod = bucketize.from_onnx(onnx.parser.parse_model(text), bounds={"N": (1, 4)})
    found = arrangements(mod, "main", {"N": 2})
    assert {a.arrangement for a in found} == {USUAL, Arrangement(frozenset({0}))}
