"""Buckets that share no size: a tree leads each size to its own, whatever their shapes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketize
from bucketize.dispatch.bucket import Bucket
from bucketize.dispatch.split import Below, Decision, Within, buckets_of, decided
from bucketize.dispatch.tree import dispatch
from bucketize.errors import DispatchError, UnknownNameError
from bucketize.ir import Builder, Module, Var
from bucketize.ops import relu
from bucketize.types import Interval, Symbol, tensor
from dispatchers import from_file

PINWHEEL = [
    {"H": (1, 3), "W": (1, 2)},
    {"H": (3, 4), "W": (1, 3)},
    {"H": (2, 4), "W": (3, 4)},
    {"H": (1, 2), "W": (2, 4)},
    {"H": (2, 3), "W": (2, 3)},
]


def module(most: int | None = 8) -> Module:
    x = Var("data", tensor("float32", Symbol("H", 1, most), Symbol("W", 1, most)))
    out = Builder()
    return Module({"main": out.function("main", [x], [out.emit(relu, x)])})


def answers(buckets: Sequence[Mapping[str, Any]]) -> Any:
    return lambda _shapes: list(buckets)


def cut(region: Bucket, random: np.random.Generator, depth: int) -> list[Bucket]:
    """Buckets by cuts through the whole of what is left."""
    name = str(random.choice(["H", "W"]))
    lo, hi = region[name]
    if depth == 0 or hi is None or hi - lo < 2:
        return [region]
    at = int(random.integers(lo + 1, hi))
    halves = ({**region, name: (lo, at)}, {**region, name: (at, hi)})
    return [b for half in halves for b in cut(half, random, depth - 1)]


def depth_of(decision: Decision) -> int:
    if isinstance(decision, Below):
        return 1 + max(depth_of(decision.then), depth_of(decision.orelse))
    return 1 + depth_of(decision.orelse) if isinstance(decision, Within) else 0


@pytest.mark.parametrize("seed", range(8))
def test_each_size_comes_to_its_bucket(seed: int) -> None:
    random = np.random.default_rng(seed)
    every = cut({"H": (1, 9), "W": (1, 9)}, random, 4)
    some = [every[k] for k in random.permutation(len(every))[: 1 + seed * len(every) // 8]]
    mod = dispatch(module(), answers(some))
    assert len(mod.clones) == len(some)
    exe = bucketize.compile(mod, lazy=True)
    for h, w in itertools.product(range(1, 9), repeat=2):
        mine = [n for n, c in mod.clones.items() if holds(c.bucket, h, w)]
        assert exe.explain(H=h, W=w).clone == (mine or ["main[fallback]"])[0]


def holds(bucket: Mapping[str, Interval], h: int, w: int) -> bool:
    ends = (bucket["H"], bucket["W"])
    return all(lo <= n and (hi is None or n < hi) for n, (lo, hi) in zip((h, w), ends, strict=True))


def test_buckets_without_a_cut_between_them_are_asked_for_one_by_one() -> None:
    mod = dispatch(module(3), answers(PINWHEEL))
    exe = bucketize.compile(mod, lazy=True)
    for h, w in itertools.product(range(1, 4), repeat=2):
        assert holds(mod.clones[exe.explain(H=h, W=w).clone].bucket, h, w)


def test_the_tree_is_balanced() -> None:
    symbol = Symbol("H", 1, 1024)
    buckets: list[Bucket] = [{"H": (n, n + 1)} for n in range(1, 1025)]
    assert depth_of(decided({symbol: (1, 1025)}, buckets)) == 10


def test_a_bucket_may_leave_symbols_out() -> None:
    fn = module(None).main
    assert buckets_of(fn, [{"H": (0, 4)}, {"H": (4, None), "W": (2, 9)}]) == [
        {"H": (1, 4), "W": (1, None)},
        {"H": (4, None), "W": (2, 9)},
    ]
    assert buckets_of(module(8).main, [{"W": (1, 20)}, {"W": (20, None)}]) == [{"W": (1, 9)}]
    assert list(dispatch(module(), answers([{"W": (1, 20)}])).clones) == ["main[W=1..8]"]


def test_a_file_holds_buckets(tmp_path: Path) -> None:
    path = tmp_path / "b.yaml"
    path.write_text("buckets: [{H: [1, 4]}, {H: [4, null], W: [1, 2]}, {H: [4, null], W: [2, 9]}]")
    names = ["main[H=1..3,W=1..8]", "main[H=4..8,W=1..1]", "main[H=4..8,W=2..8]"]
    assert sorted(dispatch(module(), from_file(path)).clones) == sorted(
        n.replace("W=1..1", "W=1") for n in names
    )


def test_what_no_buckets_are_is_refused() -> None:
    with pytest.raises(DispatchError, match=r"^buckets overlap: H=1\.\.3;W=1\.\.8 and H=2\.\.8;W="):
        dispatch(module(), answers([{"H": (1, 4)}, {"H": (2, 9), "W": (2, 3)}]))
    with pytest.raises(UnknownNameError, match="no symbol named 'N'"):
        dispatch(module(), answers([{"N": (1, 4)}]))
    with pytest.raises(DispatchError, match=r"^bucket of H: .* is empty"):
        dispatch(module(), answers([{"H": (4, 4)}]))
    with pytest.raises(DispatchError, match=r"^the buckets are all out of bounds, or there is no"):
        dispatch(module(), answers([{"H": (9, 12)}]))
    with pytest.raises(DispatchError, match=r"^4 buckets; the limit is 3: use fewer"):
        dispatch(module(), answers([{"H": (n, n + 1)} for n in range(1, 5)]), limit=3)
    with pytest.raises(DispatchError, match=r"^limit: expected how many buckets there may be, got"):
        dispatch(module(), answers([{"H": (1, 4)}]), limit=0)
    with pytest.raises(DispatchError, match=r"expected intervals, profiles or buckets, got \[1\]"):
        dispatch(module(), answers([1]))  # type: ignore[list-item]
