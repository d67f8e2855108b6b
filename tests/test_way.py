"""The ways of a model and of an array, as `docs/architecture.md` tells them: imported, and run.

A step is done when its function first returns, so that who calls stands behind what is called.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, reduce
from types import CodeType
from typing import Any

import numpy as np
import pytest
from test_layers import FILES, ROOT, edges, module_name

import bucketize
from bucketize import zoo
from bucketize.dispatch.tree import dispatch
from bucketize.ir import Module, specialise
from bucketize.lower.pipeline import lower
from bucketize.onnx import from_onnx
from bucketize.transform import simplify as simplifying
from bucketize.transform.simplify import SIMPLIFY, simplify

TEXT = (ROOT / "docs" / "architecture.md").read_text()
MOST = 12
BUCKETED = ["dispatch/tree.dispatch", "program/sharing.Family.member"]


def section(title: str) -> str:
    (text,) = re.findall(rf"\*\*{title}\.\*\*(.*?)(?=\n\*\*|\n## )", TEXT, re.DOTALL)
    return text


def steps(title: str) -> list[str]:
    """The functions that the steps of a way begin with: `link/planner.plan_of`."""
    lines = re.findall(r"^(\d+)\. (.*)", section(title), re.MULTILINE)
    assert [int(number) for number, _ in lines] == [*range(1, len(lines) + 1)]
    return [re.match(r"`([\w/.]+)`", line)[1] for _, line in lines]


def module_of(step: str) -> str:
    return "bucketize." + step.partition(".")[0].replace("/", ".")


def code_of(step: str) -> CodeType:
    names = step.split(".")[1:]
    found: Any = reduce(getattr, names, importlib.import_module(module_of(step)))
    return inspect.unwrap(found).__code__


MODEL, ARRAY = "The way of a model", "The way of an array"
WAYS = pytest.mark.parametrize("title", [MODEL, ARRAY])


@WAYS
def test_a_way_is_short_and_enters_no_room_twice(title: str) -> None:
    way = steps(title)
    assert 1 < len(way) <= MOST
    rooms = [re.split(r"[/.]", step)[0] for step in way]
    entered = [room for room, before in zip(rooms, ["", *rooms], strict=False) if room != before]
    assert len(entered) == len(set(entered))


PATHS = {
    module_name(p): p
    for p in FILES
    if p.parent != ROOT / "bucketize" or p.stem not in ("__init__", "__main__")
}


@cache
def imports(module: str) -> set[str]:
    return edges(PATHS[module], PATHS)


def reached(module: str) -> set[str]:
    """What a module imports, and what that imports, and so on."""
    seen, left = {module}, [module]
    while left:
        new = imports(left.pop()) - seen
        seen |= new
        left += new
    return seen


@WAYS
def test_no_step_imports_a_later_one(title: str) -> None:
    modules = list(map(module_of, steps(title)))
    for i, module in enumerate(modules[:-1]):
        later = set(modules[i + 1 :]) - {module}
        assert not reached(module) & later, module


def returns(way: list[str], run: Callable[[], object]) -> Iterator[str]:
    """The steps of a way in the order of all their returns."""
    codes = {code_of(step): step for step in way}
    seen: list[str] = []

    def note(frame: Any, event: str, _: object) -> None:
        if event == "return" and frame.f_code in codes:
            seen.append(codes[frame.f_code])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    yield from seen


def mlp() -> Module:
    return from_onnx(zoo.build("mlp"), bounds={"N": (2, 64)})


def buckets(_: object) -> Any:
    return {"data": {0: [(2, 4), (4, 8), (8, None)]}}


X = np.zeros((5, 784), np.float32)


def test_a_model_goes_this_way() -> None:
    way = steps(MODEL)
    assert set(BUCKETED) < set(way)
    alone = list(dict.fromkeys(returns(way, lambda: bucketize.compile(mlp()).run(X))))
    assert alone == [step for step in way if step not in BUCKETED]


def test_a_model_with_buckets_goes_this_way() -> None:
    """The tree of decisions is cut before the clones are lowered; these go in order."""
    way = steps(MODEL)
    done = returns(way, lambda: bucketize.compile(dispatch(mlp(), buckets)).run(X))
    assert all(step in done for step in way)  # each is looked for behind the one before it


def test_an_array_goes_this_way() -> None:
    way = steps(ARRAY)
    exe = bucketize.compile(dispatch(mlp(), buckets))
    assert list(dict.fromkeys(returns(way, lambda: exe.run(X)))) == way


@pytest.mark.parametrize(
    ("dispatcher", "names"),
    [
        (None, ["main"]),
        (buckets, ["main"]),
        (lambda _: {"data": {0: [(2, 3), (3, None)]}}, ["main", "main[N=2]"]),
        (lambda _: {"data": {0: [(4, 8)]}}, ["main"]),  # the rest falls back
    ],
    ids=["none", "buckets", "a bucket of one size", "a fallback"],
)
def test_simplify_runs_once(
    dispatcher: Any, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each function: what differs by bounds alone is its original, what is pinned is not."""
    simplified: list[str] = []

    def note(fn: Any) -> Any:
        simplified.append(fn.name)
        return fn

    monkeypatch.setattr(simplifying, "SIMPLIFY", (note, *SIMPLIFY))
    module = mlp()
    bucketize.compile(module if dispatcher is None else dispatch(module, dispatcher))
    assert simplified == names


def test_what_is_simple_says_so_until_its_types_change() -> None:
    main = mlp().main
    simple = simplify(main)
    assert simple.is_simple
    assert not main.is_simple
    assert simplify(simple) is simple
    again = specialise(simple, {}, "again")
    assert again.is_simple
    assert again.name == "again"
    assert not specialise(simple, {"N": 3}).is_simple
    assert not lower(simple).is_simple


@WAYS
def test_the_text_names_what_is_there(title: str) -> None:
    for path in re.findall(r"`([a-z_]+(?:/[a-z_]+)+)[.`]", section(title)):
        where = ROOT if path.startswith("tests") else ROOT / "bucketize"
        assert (where / f"{path}.py").exists(), path
