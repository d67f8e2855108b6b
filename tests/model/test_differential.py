"""The models of the zoo, dispatched, against onnxruntime: at the edges of every bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx_model import ort_session, shallow

import bucketize
from bucketize import zoo
from bucketize.ir import Const
from dispatchers import log_dispatcher, uniform_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

Cuts = dict[str, list[tuple[int, int]]]  # symbol -> its intervals

IMAGES: Cuts = {"N": [(1, 2), (2, 3)], "H": [(33, 40), (40, 48)]}
TEXTS: Cuts = {"B": [(1, 2), (2, 3)], "S": [(2, 5), (5, 17)]}
CASES: dict[str, tuple[Cuts, dict[str, tuple[int, int]]]] = {
    "mlp": ({"N": [(2, 3), (3, 8), (8, 32)]}, {"N": (1, 40)}),
    "resnet18": (IMAGES, {"N": (1, 3), "H": (32, 64), "W": (32, 64)}),
    "resnet34": (IMAGES, {"N": (1, 3), "H": (32, 64), "W": (32, 64)}),
    "resnet50": (IMAGES, {"N": (1, 3), "H": (32, 64), "W": (32, 64)}),
    "mobilenetv2": (IMAGES, {"N": (1, 3), "H": (32, 64), "W": (32, 64)}),
    "bert-mini": (TEXTS, {"B": (1, 3), "S": (1, 32)}),
    "bert-base": (TEXTS, {"B": (1, 3), "S": (1, 32)}),
}


def by_symbol(cuts: Cuts) -> Any:
    """A dispatcher that cuts the symbols of these names."""

    def dispatcher(shapes: dict[str, tuple[Any, ...]]) -> Any:
        return {
            name: {a: cuts[str(d)] for a, d in enumerate(shape) if str(d) in cuts}
            for name, shape in shapes.items()
        }

    return dispatcher


def edges(cuts: Cuts, bounds: dict[str, tuple[int, int]]) -> Iterator[dict[str, int]]:
    """lo, lo + 1 and hi - 1 of each interval of each symbol, and sizes outside them all."""
    still = dict.fromkeys(bounds, 37) | {n: i[0][0] for n, i in cuts.items()}
    for name, intervals in cuts.items():
        sizes = {s for lo, hi in intervals for s in (lo, lo + 1, hi - 1)}
        outside = {bounds[name][0], intervals[-1][1], bounds[name][1]}
        for size in sorted(sizes | outside):
            yield {**still, name: size}


LARGER = ("resnet34", "resnet50", "bert-base")  # of the layers of smaller ones, but more and wider
EACH = [pytest.param(n, marks=pytest.mark.sweep) if n in LARGER else n for n in CASES]


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_equals_onnxruntime(name: str) -> None:
    cuts, bounds = CASES[name]
    model = shallow(name)
    session = ort_session(model)
    module = bucketize.from_onnx(model, bounds=bounds)
    exe = bucketize.compile(bucketize.dispatch(module, by_symbol(cuts)), lazy=True)
    clones = set()
    for sizes in edges(cuts, bounds):
        inputs = zoo.inputs(name, sizes)
        got, want = exe.run(**inputs), session.run(None, inputs)
        told = exe.explain(**sizes)
        clones.add(told.clone)
        assert all(step["kernel"] != "numpy" for step in told.steps)
        for g, w in zip(got, want, strict=True):
            assert g.shape == w.shape
            assert np.abs(g - w).max() <= 1e-4 * np.abs(w).max(), sizes
    assert "main[fallback]" in clones
    assert len(clones) > 3


@pytest.mark.parametrize("dispatcher", [log_dispatcher, uniform_dispatcher])
@pytest.mark.parametrize("policy", ["exact", "pad"])
def test_installed_dispatchers_at_the_edges_of_their_buckets(dispatcher: Any, policy: str) -> None:
    model = zoo.build("mlp")
    session = ort_session(model)
    module = bucketize.from_onnx(model, bounds={"N": (1, 33)})
    dispatched = bucketize.dispatch(module, dispatcher, policy=policy)
    exe = bucketize.compile(dispatched)
    intervals = [clone.bucket["N"] for clone in dispatched.clones.values()]
    sizes = {s for lo, hi in intervals if hi for s in (lo, lo + 1, hi - 1)} & set(range(1, 34))
    for size in sorted(sizes):
        inputs = zoo.inputs("mlp", {"N": size})
        (got,), (want,) = exe.run(**inputs), session.run(None, inputs)
        assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max(), size


def test_81_clones_of_a_network_share_its_weights() -> None:
    """Whatever the clones' graphs look like, the arrays behind them are the original's."""
    module = bucketize.from_onnx(zoo.build("resnet18"))
    module = bucketize.dispatch(
        module, lambda shapes: {"data": {a: log_dispatcher(shapes)["data"][a] for a in (2, 3)}}
    )
    names = [n for n in module.functions if n != "main"]
    assert len(names) == 81

    def arrays(name: str) -> set[int]:
        atoms = [a for b in module.functions[name].body for a in b.args]
        return {id(a.value) for a in atoms if isinstance(a, Const)}

    first, middle, last = (arrays(names[i]) for i in (0, 40, 80))
    assert first == middle == last
