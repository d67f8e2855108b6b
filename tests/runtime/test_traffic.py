"""Traffic: laws of the value, files, and the counter under threads, many sizes and forks."""

from __future__ import annotations

import json
import os
import sys
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import bucketize
from bucketize import ops, zoo
from bucketize.cli.group import main
from bucketize.errors import (
    ArgumentError,
    BucketizeError,
    BucketizeWarning,
    TrafficError,
    UnknownNameError,
)
from bucketize.ir import CALL, Builder, Module, Var
from bucketize.runtime.vm import REMEMBERED
from bucketize.serve.drift import DriftAlarm
from bucketize.traffic.counter import MOST_SIZES, MOST_TIMES, TrafficCounter
from bucketize.traffic.drift import changes
from bucketize.traffic.latency import Latencies
from bucketize.traffic.value import Traffic
from bucketize.types import AnyDim, Symbol, tensor
from dispatchers import from_file, from_traffic


def executable(most: int = 64) -> bucketize.Executable:
    x = Var("data", tensor("float32", Symbol("N", 1, most), 4))
    b = Builder()
    y = b.emit(ops.relu, x)
    return bucketize.compile(Module({"main": b.function("main", [x], [y])}))


@pytest.mark.parametrize("name", zoo.TRAFFICS)
def test_halves_make_the_whole(name: str) -> None:
    whole = zoo.traffic(name)
    first, second = whole.halves(3)
    assert first.total == whole.total // 2
    assert first.merged(second) == whole
    assert whole.halves(3)[0] == first


def test_a_split_by_time_makes_the_whole() -> None:
    whole = zoo.traffic("prompts")
    first, second = whole.split(time=1800)
    assert first.merged(second) == whole
    assert first.without_times() == zoo.traffic("prompts-first")
    assert (first.quantiles("S", [0.9]), second.quantiles("S", [0.9])) == ([4075], [2427])
    part, rest = whole.split(share=0.25)
    assert part.merged(rest) == whole
    with pytest.raises(TrafficError, match="no time stamps"):
        zoo.traffic("images").split(share=0.5)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["prompts", "images"])
def test_what_is_written_is_read(name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{suffix}"
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    zoo.traffic(name).write(path)
    assert Traffic.read(path) == zoo.traffic(name)


def test_requests_one_by_one_with_dates(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("TIMESTAMP,User,Tokens\n2023-11-16T18:15:46,a,7\n2023-11-16T18:15:47,b,7\n")
    traffic = Traffic.read(path, {"S": "Tokens", "time": "TIMESTAMP"})
    assert traffic.histogram("S") == {7: 2}
    assert traffic.times is not None
    assert np.diff(traffic.times) == 1
    with pytest.raises(UnknownNameError, match="no column named 'Token'"):
        Traffic.read(path, {"S": "Token"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("S,requests\n", "there is no request"),
        ("S\n-3\n", "row 1, column S: expected a number from 0, got '-3'"),
        ("S,user\n3,bob\n", "column user: expected a whole number, got 'bob'"),
        ("S,S\n3,3\n", "two columns have one name"),
        ("S,B\n3\n", "row 1 has 1 cells of 2"),
        ("S,time\n3,noon\n", "expected seconds"),
        ("S,count,requests\n3,1,1\n", "both count and requests"),
        ("requests\n3\n", "a traffic is of symbols of different names, got none"),
        ("time\n3\n", "a traffic is of symbols of different names, got none"),
    ],
)
def test_what_is_no_traffic_says_why(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(BucketizeError, match=message):
        Traffic.read(path)


@pytest.mark.parametrize(
    ("sizes", "requests", "message"),
    [
        ([[1.7], [8]], [1, 1], r"^sizes of a traffic are whole numbers, got 1\.7$"),
        ([[1], [8]], [0.9, 0.1], r"^requests of a traffic are whole numbers, got 0\.9$"),
        ([[1], [8]], [1, np.nan], r"^requests of a traffic are whole numbers, got nan$"),
    ],
)
def test_no_fraction_is_cut(sizes: Any, requests: Any, message: str) -> None:
    with pytest.raises(TrafficError, match=message):
        Traffic(("S",), sizes, requests)
    assert Traffic(("S",), [[2.0]], [3.0]).histogram("S") == {2: 3}  # type: ignore[arg-type]


def test_scaled_sizes_are_rounded_up() -> None:
    traffic = Traffic(("S",), np.array([[1], [8], [9]]), np.array([1, 2, 3]))
    assert traffic.scaled(S=1 / 8).histogram("S") == {1: 3, 2: 3}
    assert zoo.traffic("images").scaled(H=0.8, W=0.8).bounds["W"][1] == 512


def test_the_dispatcher_reads_the_same(tmp_path: Path) -> None:
    traffic = zoo.traffic("queries")
    traffic.write(tmp_path / "q.csv")
    shapes = {"x": (Symbol("S", 1, 512),)}
    expected = from_traffic({"S": traffic.histogram("S")})(shapes)
    assert from_traffic(traffic)(shapes) == expected
    assert from_file(tmp_path / "q.csv")(shapes) == expected


def test_requests_are_counted_and_nothing_else() -> None:
    exe = executable()
    exe.warm_up()
    exe.profile(np.zeros((5, 4), np.float32), repetitions=1, roofline=None)
    exe.run_clone("main", np.zeros((5, 4), np.float32))
    assert exe.traffic is None
    exe.run(np.zeros((3, 4), np.float32))
    run = exe.context()
    run(np.zeros((3, 4), np.float32))
    del run
    exe.context()
    assert exe.traffic is not None
    assert exe.traffic.histogram("N") == {3: 2}
    assert repr(exe.traffic) == "<2 requests of 1 sizes of N>"


def test_sizes_that_come_by_many_shapes_are_one() -> None:
    """The second axis is known at a run only, and no symbol's."""
    x = Var("data", tensor("float32", Symbol("N", 1, 64), AnyDim()))
    b = Builder()
    exe = bucketize.compile(Module({"main": b.function("main", [x], [b.emit(ops.relu, x)])}))
    run = exe.context()
    for width in range(1, REMEMBERED + 9):
        run(np.zeros((2 + width % 2, width), np.float32))
    found = exe.traffic
    assert found is not None
    half = REMEMBERED // 2 + 4
    assert found.histogram("N") == {2: half, 3: half}


def test_memory_of_shapes_is_bounded_at_any_depth() -> None:
    """A callee of new shapes has its context forget all, the call that it is part of, too."""
    exe = of_nonzeros()
    run = exe.context()
    for k in range(2 * REMEMBERED):
        x = np.zeros(2 * REMEMBERED, np.float32)
        x[:k] = 1
        assert run(x)[0].shape == (1, k)
    (reference, _) = exe._counter._tallies[0]
    assert len(reference()._routes) <= REMEMBERED  # type: ignore[attr-defined]
    assert exe.traffic is not None
    assert exe.traffic.histogram("N") == {2 * REMEMBERED: 2 * REMEMBERED}


def of_nonzeros() -> bucketize.Executable:
    """A function calls another by what only the run tells."""
    x, p = Var("x", tensor("float32", Symbol("N"))), Var("p", tensor("int64", 1, AnyDim()))
    inner, b = Builder(), Builder()
    callee = inner.function("inner", [p], [inner.emit(ops.neg, p)])
    where = b.emit(ops.nonzero, x)
    (y,) = b.emit_all(CALL, where, callee="inner", types=(tensor("int64", 1, AnyDim()),))
    return bucketize.compile(Module({"main": b.function("main", [x], [y]), "inner": callee}))


def test_what_serves_calls_may_change_between_two_of_one_shape() -> None:
    exe = of_nonzeros()
    for ones in (1, 2):
        exe.run(np.array([1] * ones + [0] * (3 - ones), np.float32))
        exe.program.routines.take_over(())
    assert exe.traffic is not None
    assert exe.traffic.histogram("N") == {3: 2}


def test_threads_count_exactly() -> None:
    exe = executable()

    def requests(thread: int) -> None:
        for i in range(1000):
            exe.run(np.zeros((1 + (i + thread) % 50, 4), np.float32))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(requests, range(8)))
    assert exe.traffic is not None
    assert exe.traffic.histogram("N") == dict.fromkeys(range(1, 51), 160)
    assert [b.requests for b in exe.report(sizes=0).buckets] == [8_000]


class Owner:
    """What stands for a context."""


def test_a_context_that_dies_while_another_is_made_loses_nothing() -> None:
    counter, owner = TrafficCounter(("N",)), Owner()
    counter.tally(owner, {}).cell({"N": 3}, "main").requests += 2
    lives = iter([owner, None, None])
    ((_, tally),) = counter._tallies
    counter._tallies = [(lambda: next(lives), tally)]  # type: ignore[list-item]
    for _ in range(2):
        counter.tally(Owner(), {})
        traffic = counter.snapshot()
        assert traffic is not None
        assert traffic.histogram("N") == {3: 2}


def test_memory_is_bounded_and_requests_are_exact() -> None:
    counter, owner = TrafficCounter(("N",)), Owner()
    tally = counter.tally(owner, {})
    for size in range(200_000):
        tally.cell({"N": size}, "main").requests += 1
        if size % REMEMBERED == 0:
            tally.forget_cells()
    with pytest.warns(BucketizeWarning, match="rounded up, 4 of them to one"):
        traffic = counter.snapshot()
    assert traffic is not None
    assert traffic.total == 200_000
    assert len(traffic.sizes) <= MOST_SIZES + REMEMBERED


def test_rounded_sizes_are_sizes_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """No larger than its bounds, and multiples of what its sizes are."""
    monkeypatch.setattr("bucketize.traffic.counter.MOST_SIZES", 8)
    counter = TrafficCounter(("N", "S"), {"N": (3, 99), "S": (1, None)})
    came = [({"N": 3 * n, "S": 5}, "main", 1e-3) for n in range(1, 34)]
    counter.count(came, {})
    with pytest.warns(BucketizeWarning, match="rounded up, 8 of them to one"):
        traffic = counter.snapshot()
    assert traffic is not None
    assert traffic.histogram("N") == {24: 8, 48: 8, 72: 8, 96: 8, 99: 1}
    assert traffic.histogram("S") == {8: 33}
    planned = Traffic(("N",), np.array([[3], [24], [27], [99]]), np.ones(4, int))
    assert counter.as_counted(planned).histogram("N") == {24: 2, 48: 1, 99: 1}
    assert counter.as_counted(traffic) == traffic
    with pytest.raises(UnknownNameError, match="no symbol named 'M'"):
        executable().as_counted(planned.renamed(N="M"))
    with pytest.raises(ArgumentError, match=r"traffic: expected a bucketize.Traffic, got 5"):
        executable().as_counted(5)  # type: ignore[arg-type]


def test_what_replaces_an_executable_may_take_larger_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketize.traffic.counter.MOST_SIZES", 8)
    exe = executable()
    exe.replace(executable(200))
    exe._counter.count([({"N": n}, "main", 1e-3) for n in (*range(1, 17), 150, 200)], {})
    with pytest.warns(BucketizeWarning, match="rounded up"):
        traffic = exe.traffic
    assert traffic is not None
    assert max(traffic.histogram("N")) == 200


@pytest.mark.filterwarnings("ignore:.*rounded up:bucketize.errors.BucketizeWarning")
def test_rounded_sizes_are_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what was planned exactly nor what was counted before counts as a change."""
    monkeypatch.setattr("bucketize.traffic.counter.MOST_SIZES", 80)
    random, sizes = np.random.default_rng(0), np.arange(3, 303)
    shares = np.r_[np.full(60, 1.0), np.full(240, 0.004)]
    shares = 0.5 * shares / shares.sum() + 0.5 * (sizes == 127)
    planned = Traffic(("N",), random.choice(sizes, 50_000, p=shares)[:, None], np.ones(50_000, int))
    counter, alarm = TrafficCounter(("N",)), DriftAlarm(planned)
    for _ in range(8):
        drawn = random.choice(sizes, 1_200, p=shares).tolist()
        counter.count([({"N": size}, "main", 1e-3) for size in drawn], {})
        assert alarm.look(counter.snapshot(), counter.as_counted)
        assert alarm.changes == []
    assert counter._step > 1
    counter.count([({"N": 290}, "main", 1e-3)] * 1_200, {})
    alarm.look(counter.snapshot(), counter.as_counted)
    assert alarm.changes != []


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 9)), min_size=1, max_size=40))
def test_bins_are_joined_and_no_request_is_lost(came: list[tuple[int, int]]) -> None:
    """Each request is in the bin of its second, however wide bins have become."""
    counter, owner = TrafficCounter(("N",)), Owner()
    tally, clones = counter.tally(owner, {}), Counter[int]()
    for second, size in sorted(came):
        tally.turn(counter._origin + second + 0.5)
        tally.cell({"N": size}, "main").requests += 1
        clones[size] += 1
    traffic = counter.snapshot()
    assert traffic is not None
    assert traffic.times is not None
    assert traffic.histogram("N") == dict(sorted(clones.items()))
    span = counter._span
    assert max(second for second, _ in came) < span * MOST_TIMES
    wanted = Counter((second // span * span, size) for second, size in came)
    rows = zip(traffic.times - counter._began, traffic.sizes[:, 0], strict=True)
    counted = dict(zip(rows, traffic.requests, strict=True))
    assert counted == dict(wanted)
    assert counter.by_clone(tally.clones)["main"].requests == len(came)


@pytest.mark.filterwarnings("ignore:.*rounded up:bucketize.errors.BucketizeWarning")
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 50)), min_size=1, max_size=60))
def test_what_is_settled_is_as_coarse_as_what_comes(came: list[tuple[int, int]]) -> None:
    """However often rows move from the dict to arrays, and in whatever order they came."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bucketize.traffic.counter.MOST_SIZES", 6)
        counter = TrafficCounter(("N", "S"), {"N": (1, 50)})
        for second, size in came:
            with counter._lock:
                counter._add((second, size, 7), 2)
        traffic = counter.snapshot()
    assert traffic is not None
    assert traffic.times is not None
    step, span = counter._step, counter._span
    wanted = Counter[tuple[int, int, int]]()
    for second, size in came:
        row = second // span * span, min(-(-size // step) * step, 50), -(-7 // step) * step
        wanted[row] += 2
    times = (traffic.times - counter._began).astype(int)
    rows = zip(times.tolist(), *traffic.sizes.T.tolist(), strict=True)
    assert dict(zip(rows, traffic.requests.tolist(), strict=True)) == dict(wanted)
    assert len(wanted) <= 6


def test_what_is_counted_takes_few_bytes() -> None:
    counter = TrafficCounter(("B", "S"))
    tracemalloc.start()
    for second in range(200):
        for k in range(500):
            counter._add((second, k % 3, 1000 + k), 1)
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (counter._span, len(counter._settled[0])) == (2, 49_328)
    assert held < 3 << 20
    assert most < 10 << 20


@pytest.mark.parametrize(("seconds", "most"), [(3, 1_500), (100, MOST_SIZES)])
def test_bins_are_joined_before_sizes_are_rounded(
    seconds: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketize.traffic.counter.MOST_SIZES", most)
    counter, owner = TrafficCounter(("N",)), Owner()
    tally = counter.tally(owner, {})
    for second in range(seconds):
        tally.turn(counter._origin + second + 0.5)
        for size in range(1_000):
            tally.cell({"N": size}, "main").requests += 1
    traffic = counter.snapshot()
    assert traffic is not None
    assert (traffic.total, counter._step, counter._span) == (1_000 * seconds, 1, 2)
    first, second = traffic.split(share=0.5)
    assert first.merged(second) == traffic


def test_the_traffic_of_calls_is_split_by_time(tmp_path: Path) -> None:
    exe = executable()
    exe.run(np.zeros((3, 4), np.float32))
    (context,) = exe._serving.idle
    context._tally.turn(exe._counter._origin + 7)
    exe.run(np.zeros((5, 4), np.float32))
    assert exe.traffic is not None
    exe.traffic.write(tmp_path / "t.csv")
    first, second = Traffic.read(tmp_path / "t.csv").split(share=0.5)
    assert [t.histogram("N") for t in (first, second)] == [{3: 1}, {5: 1}]
    assert changes(first, second)[0].distance == 1


@given(st.lists(st.floats(1e-7, 1e4), min_size=1, max_size=200))
def test_latencies_are_those_of_numpy_to_six_bits(seconds: list[float]) -> None:
    halves = Latencies(), Latencies()
    for i, s in enumerate(seconds):
        halves[i % 2].note(s, 1)
    halves[0].add(halves[1])
    assert sum(halves[0].weights.values()) == len(seconds)
    p99 = np.quantile(seconds, 0.99, method="inverted_cdf")
    assert halves[0].quantile_s(0.99) == pytest.approx(p99, rel=1 / 64)
    assert halves[0].mean_s == pytest.approx(np.mean(seconds), rel=1 / 64)


def test_a_child_counts_from_nothing() -> None:
    counter, owner = TrafficCounter(("N",)), Owner()
    tally = counter.tally(owner, {})
    one = tally.cell({"N": 1}, "main")
    one.requests += 1
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        one.requests += 2  # calls go on with the cell that they have
        os.write(writing, repr(tally.taken()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"{(0, 1): 2}"
    assert tally.taken() == {(0, 1): 1}


def test_a_sample_has_the_sizes_that_come() -> None:
    whole = zoo.traffic("queries")
    drawn = whole.sample(2000, seed=3)
    assert drawn.shape == (2000, 1)
    assert set(drawn[:, 0].tolist()) <= whole.histogram("S").keys()
    assert abs(np.mean(drawn) / np.average(whole.sizes[:, 0], weights=whole.requests) - 1) < 0.05


def test_what_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(TrafficError, match=r"^cannot write .*: No such file or directory$"):
        zoo.traffic("queries").write(tmp_path / "no" / "t.csv")


def test_what_passes_the_numbers_there_are_says_so() -> None:
    many = Traffic(("S",), np.array([[1], [2]]), np.array([10**9, 1]))
    with pytest.raises(TrafficError, match=r"^halves are drawn of less than 1,000,000,000 "):
        many.halves()
    with pytest.raises(TrafficError, match=r"^requests of a traffic are less than 4,6.*, got 8,0"):
        Traffic(("S",), np.array([[1], [2]]), np.array([4 * 10**18] * 2))
    assert many.scaled(S=9.3).histogram("S") == {10: 10**9, 19: 1}
    large = Traffic(("S",), np.array([[10**18]]), np.array([1]))
    assert large.scaled(S=1.5).histogram("S") == {15 * 10**17: 1}
    with pytest.raises(TrafficError, match=r"^sizes of S are below 4,6.*, times 9\.3 not$"):
        large.scaled(S=9.3)
    with pytest.raises(TrafficError, match=r"^sizes of S are scaled by a finite .* got inf$"):
        large.scaled(S=float("inf"))


@pytest.mark.parametrize("name", ["time", "requests", "count", "size:time"])
@pytest.mark.parametrize("times", [None, np.array([7.0])])
def test_a_symbol_may_be_called_as_another_column(name: str, times: Any, tmp_path: Path) -> None:
    traffic = Traffic(("B", name), np.array([[1, 2]]), np.array([3]), times)
    traffic.write(tmp_path / "t.csv")
    assert Traffic.read(tmp_path / "t.csv") == traffic
    (tmp_path / "u.csv").write_text("T,when\n5,3\n")
    found = Traffic.read(tmp_path / "u.csv", {"size:time": "T", "time": "when"})
    assert (found.histogram("time"), found.times is not None) == ({5: 1}, True)
    (tmp_path / "v.csv").write_text("S,size:S\n5,3\n")
    with pytest.raises(TrafficError, match=r"of symbols of different names, got \['S', 'S'\]"):
        Traffic.read(tmp_path / "v.csv")


def test_no_fraction_of_a_decimal_is_cut(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for cells in ([Decimal("1.5"), Decimal("2.0")], [Decimal("3.0"), Decimal("2.0")]):
        parquet.write_table(arrow.table({"S": cells}), tmp_path / "t.parquet")
        if cells[0] == 3:
            assert Traffic.read(tmp_path / "t.parquet").histogram("S") == {2: 1, 3: 1}
        else:
            with pytest.raises(TrafficError, match="a whole number"):
                Traffic.read(tmp_path / "t.parquet")


def test_symbols_are_renamed() -> None:
    assert zoo.traffic("queries").renamed(S="N").symbols == ("N",)
    with pytest.raises(UnknownNameError, match="no symbol named 'Q'"):
        zoo.traffic("queries").renamed(Q="N")


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(TrafficError, match=r"bucketize\[parquet\]"):
        zoo.traffic("queries").write(tmp_path / "t.parquet")


def test_the_command_scales_and_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("S,requests\n8,3\n17,1\n")
    args = ["traffic", "t.csv", "--scale", "S=1/8", "--halves", "1", "-o", "o.csv", "--json"]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["written"] == {"o-first.csv": 2, "o-second.csv": 2}
    both = Traffic.read("o-first.csv").merged(Traffic.read("o-second.csv"))
    assert both.histogram("S") == {1: 3, 3: 1}


def test_the_command_shows_and_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("S,time\n3,0\n3,1\n9,2\n")
    result = CliRunner().invoke(main, ["traffic", "t.csv", "--split", "1", "-o", "o.csv"])
    assert result.exit_code == 0, result.output
    assert result.output == GOLDEN
    assert Path("o-second.csv").read_text() == "time,S,requests\n1.0,3,1\n2.0,9,1\n"


GOLDEN = """\
3 requests of 2 sizes, from 0 to 2 s

symbol  least  p1  p5  p10  p25  p50  p75  p90  p95  p99  most
S           3   3   3    3    3    3    9    9    9    9     9

S  requests  share
3         2  66.7%
9         1  33.3%

S
sizes  requests
3..3          2  ########################################
4..4          0
5..5          0
6..6          0
7..7          0
8..8          0
9..9          1  ####################
wrote o-first.csv: 1 request
wrote o-second.csv: 2 requests
"""
