"""The report of an executable: requests, latencies and regret of each clone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import bucketize
from bucketize import zoo
from bucketize.dispatch.tree import dispatch
from bucketize.errors import ArgumentError
from bucketize.executable import Executable
from bucketize.inspect import report as home
from bucketize.runtime import vm
from bucketize.traffic.latency import SAMPLED


def mlp(**how: str) -> Executable:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})
    buckets = [{"N": (1, 9)}, {"N": (9, 65)}]
    return bucketize.compile(dispatch(mod, lambda _: buckets, **how))  # type: ignore[arg-type]


def call(exe: Executable, *sizes: int) -> None:
    for n in sizes:
        exe(np.zeros((n, 784), np.float32))


def test_each_clone_has_its_requests(tmp_path: Path) -> None:
    exe = mlp()
    assert exe.report().buckets == ()
    call(exe, *[3] * 40, *[64] * 20, 5)
    its = {b.clone: b for b in exe.report().buckets}
    assert {name: b.requests for name, b in its.items()} == {
        "main[N=1..8]": 41,
        "main[N=9..64]": 20,
    }
    assert sum(b.share or 0 for b in its.values()) == pytest.approx(1)
    assert all(b.regret is not None and b.regret >= 0 for b in its.values())
    assert all(b.regret is None for b in exe.report(sizes=0).buckets)
    assert (
        json.loads(json.dumps(asdict(exe.report())))["buckets"][0].keys()
        == asdict(its["main[N=1..8]"]).keys()
    )
    exe.save(tmp_path / "mlp.bkt")
    loaded = bucketize.load(tmp_path / "mlp.bkt")
    call(loaded, 3)
    assert loaded.report().buckets[0].regret == pytest.approx(0, abs=1)


def test_long_requests_are_all_timed_and_others_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    taken = [0.5] * 5 + [2.0**-12] * (1 + 4 * SAMPLED) + [0.25]

    def invoke(self: vm.Context, *args: object) -> object:
        now[0] += taken.pop(0)
        return real(self, *args)  # type: ignore[arg-type]

    exe = mlp()
    call(exe, 3)
    real: Callable[..., object] = vm.Context.invoke
    (context,) = exe._serving.idle
    context._left, context._stands_for = 0, 1
    context._tally.end = 1e9
    before = exe._counter.by_clone(exe._serving.clones)["main[N=1..8]"].weights
    monkeypatch.setattr(vm, "perf_counter", lambda: now[0])
    monkeypatch.setattr(vm.Context, "invoke", invoke)
    call(exe, *[3] * len(taken))
    after = exe._counter.by_clone(exe._serving.clones)["main[N=1..8]"].weights
    assert {s: n - before.get(s, 0) for s, n in after.items() if n != before.get(s, 0)} == {
        0.5: 5,
        2.0**-12: 1 + 4 * SAMPLED,
    }


def test_what_replaces_it_begins_anew() -> None:
    exe = mlp()
    call(exe, 3)
    old = exe.context()
    exe.replace(mlp())
    old(np.zeros((3, 784), np.float32))
    call(exe, 20, 20)
    assert [(b.clone, b.requests) for b in exe.report().buckets] == [("main[N=9..64]", 2)]
    assert exe.traffic is not None
    assert exe.traffic.total == 4


def test_padded_clones_have_no_regret() -> None:
    exe = mlp(policy="pad")
    call(exe, 3)
    assert exe.report().buckets[0].regret is None


def test_the_text() -> None:
    row = home.BucketReport("main[N=1..8]", 3, 0.001, 0.0025, 1.0, None)
    assert str(home.ServingReport((row,))) == GOLDEN
    assert str(home.ServingReport(())) == "0 requests in 0 buckets"


def test_sizes_are_counted_from_0() -> None:
    with pytest.raises(ArgumentError, match=r"^sizes: expected a number from 0, got -1$"):
        mlp().report(sizes=-1)


GOLDEN = """\
3 requests in 1 bucket
clone         requests  mean     p99   share  regret
main[N=1..8]         3  1 ms  2.5 ms  100.0%  -"""
