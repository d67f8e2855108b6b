"""Where the buckets of all symbols would be too many, some symbols are left whole, out loud."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from test_dispatch import clones

from bucketize import compile, ops
from bucketize.cli.group import main
from bucketize.dispatch.limit import undecided
from bucketize.dispatch.tree import dispatch
from bucketize.errors import BucketizeWarning, DispatchError, NoBucketError
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Module, Var
from bucketize.text import parse, show
from bucketize.types import Dim, Symbol, tensor
from bucketize.verify import verify
from dispatchers import log_dispatcher

SIZES = (1, 2, 3, 9)


def many(*names: str, hi: int | None = None) -> Module:
    """The sum over a chain of products of matrices: A x B by B x C by ..., all symbols of it."""
    dims = [Symbol(n, 1, hi) for n in names]
    params = [
        Var(f"x{i}", tensor("float32", m, n)) for i, (m, n) in enumerate(itertools.pairwise(dims))
    ]
    b = Builder()
    out = params[0]
    for p in params[1:]:
        out = b.emit(ops.matmul, out, p)
    return Module({"main": b.function("main", params, [b.emit(ops.relu, out)])})


def warned(mod: Module, dispatcher: Any, **options: Any) -> tuple[Module, str]:
    with pytest.warns(BucketizeWarning) as caught:
        out = dispatch(mod, dispatcher, **options)
    (said,) = caught
    assert said.filename == __file__, "the line that asked is the one shown"
    return verify(out), str(said.message)


def inputs(mod: Module, sizes: dict[str, int]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    return [
        rng.integers(-3, 4, [sizes[str(d)] for d in p.type.shape]).astype(np.float32)
        for p in mod.main.params
    ]


def all_sizes(mod: Module, values: tuple[int, ...] = SIZES) -> Iterator[dict[str, int]]:
    names = list(mod.main.symbols())
    return (dict(zip(names, v, strict=True)) for v in itertools.product(values, repeat=len(names)))


def inside(bucket: Any, sizes: dict[str, int]) -> bool:
    return all(lo <= sizes[n] and (hi is None or sizes[n] < hi) for n, (lo, hi) in bucket.items())


@pytest.mark.parametrize("limit", [9, 80, 81, 728, 729])
def test_the_limit_holds_and_every_size_has_one_clone(limit: int) -> None:
    mod = many("A", "B", "C", "D")
    out, _ = warned(mod, log_dispatcher, limit=limit)
    assert len(clones(out)) == len(out.clones) == 9 ** {9: 1, 80: 1, 81: 2, 728: 2, 729: 3}[limit]
    for sizes in all_sizes(out):
        assert sum(inside(c.bucket, sizes) for c in out.clones.values()) == 1


def test_the_results_are_those_of_the_module_that_is_not_dispatched() -> None:
    mod = many("A", "B", "C")
    out, _ = warned(mod, log_dispatcher, limit=20)
    exe = compile(out, lazy=True)
    for sizes in all_sizes(mod, (1, 3, 8)):
        arrays = inputs(mod, sizes)
        (expected,) = evaluate_module(mod, *arrays)
        np.testing.assert_array_equal(evaluate_module(out, *arrays)[0], expected)
        np.testing.assert_array_equal(exe.run(*arrays)[0], expected)


def test_the_symbols_that_most_operators_see_are_decided() -> None:
    # 0: x0 @ x1 sees A, B, C, the next one A, C, D, relu A, D; so A is first, of C and D C is
    mod, said = warned(many("A", "B", "C", "D"), log_dispatcher, limit=100)
    assert said == (
        "9 x 9 x 9 x 9 = 6,561 buckets of A, B, C, D; the limit is 100, left whole: B, D "
        "(per_symbol chooses)"
    )
    assert [s.name for s in undecided(mod)] == ["B", "D"]
    assert clones(mod)[0] == "main[A=1,C=1]"
    assert undecided(parse(show(mod))) == undecided(mod), "the text tells, too"


def test_ten_symbols_behind_the_log_dispatcher_are_dispatched() -> None:
    mod, said = warned(many(*"ABCDEFGHIJ"), log_dispatcher)
    assert len(clones(mod)) == 6561
    assert said.startswith("9 x 9 x 9 x 9 x 9 x 9 x 9 x 9 x 9 x 9 = 3,486,784,401 buckets of A, B,")
    assert [s.name for s in undecided(mod)] == ["B", "F", "G", "H", "I", "J"]


def by_axis(axes: dict[str, list[tuple[int, int | None]]]) -> Callable[..., Any]:
    """Intervals by symbol."""

    def dispatcher(shapes: dict[str, tuple[Dim, ...]]) -> Any:
        return {
            name: {i: axes[str(d)] for i, d in enumerate(shape) if str(d) in axes}
            for name, shape in shapes.items()
        }

    return dispatcher


@pytest.mark.parametrize("fallback", [True, False])
def test_a_size_outside_all_intervals_of_a_whole_symbol_stays_outside(fallback: bool) -> None:
    cuts = by_axis({"A": [(1, 2), (2, 9)], "B": [(2, 3), (3, 4), (4, 9)]})
    mod, said = warned(many("A", "B"), cuts, limit=3, fallback=fallback)
    assert "left whole: A " in said or "left whole: B " in said
    for sizes in all_sizes(mod, (1, 2, 8, 9)):
        arrays = inputs(mod, sizes)
        covered = sizes["A"] < 9 and 2 <= sizes["B"] < 9
        assert any(inside(c.bucket, sizes) for c in mod.clones.values()) == covered
        if fallback or covered:
            np.testing.assert_array_equal(evaluate_module(mod, *arrays)[0], arrays[0].clip(0))
        else:
            with pytest.raises(NoBucketError, match="B=2"):
                evaluate_module(mod, *arrays)


def test_a_symbol_that_does_not_fit_leaves_room_for_the_next() -> None:
    cuts = by_axis({"A": [(i, i + 1) for i in range(1, 51)], "B": [(1, 2), (2, None)]})
    mod, said = warned(many("A", "B"), cuts, limit=49)
    assert said.startswith("50 x 2 = 100 buckets of A, B; the limit is 49, left whole: A ")
    assert list(mod.clones) == ["main[A=1..50,B=1]", "main[A=1..50,B=2..]"]


def test_as_many_buckets_as_the_limit_are_all_made() -> None:
    mod = dispatch(many("A", "B", hi=8), log_dispatcher, limit=9)
    assert len(clones(mod)) == 9
    assert undecided(mod) == []


MANY = [(i, i + 1) for i in range(1, 10_002)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"dispatcher": by_axis({"A": MANY}), "hi": None},
            "10,001 buckets of A; the limit is 10,000: use fewer intervals (exact makes one for "
            "each size), or fewer symbols (per_symbol)",
        ),
        (
            {"limit": 63, "policy": "pad"},
            "4 x 4 x 4 = 64 buckets of A, B, C; the limit is 63: use fewer intervals",
        ),
        ({"limit": 3}, "4 x 4 x 4 = 64 buckets of A, B, C; the limit is 3: use fewer intervals"),
        ({"limit": 0}, "limit: expected how many buckets there may be, got 0"),
        ({"limit": "9"}, "limit: expected how many buckets there may be, got '9'"),
    ],
)
def test_what_cannot_be_left_whole_is_refused(options: dict[str, Any], message: str) -> None:
    options = {"dispatcher": log_dispatcher, **options}
    with pytest.raises(DispatchError, match=re.escape(message)):
        dispatch(many("A", "B", "C", hi=options.pop("hi", 9)), **options)


def test_show_says_which_symbols_are_left_whole(tmp_path: Any) -> None:
    file = tmp_path / "cuts.yaml"
    file.write_text("intervals: {N: [[1, 8], [8, null]]}")
    model = tmp_path / "model.onnx"
    onnx_model(model)
    args = ["show", str(model), "-d", str(file), "--section", "decisions"]
    assert CliRunner().invoke(main, args).output.splitlines()[-1] == "left whole: M"
    told = CliRunner().invoke(main, ["show", str(model), "-d", str(file), "--json"])
    assert json.loads(told.output)["whole"] == ["M"]
    told = CliRunner().invoke(main, ["show", str(model), "--json"])
    assert json.loads(told.output)["whole"] == []


@pytest.mark.filterwarnings("default")
def test_the_limit_on_the_command_line(tmp_path: Any) -> None:
    model = tmp_path / "model.onnx"
    onnx_model(model)
    args = ["show", str(model), "-d", "log", "--limit", "9", "--section", "decisions"]
    told = CliRunner().invoke(main, args)
    assert told.output.splitlines()[-1] == "left whole: M"
    assert "the limit is 9, left whole: M" in told.output + told.stderr


def onnx_model(path: Any) -> None:
    import onnx

    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[N, M] x) => (float[N, M] y) '
    onnx.save(onnx.parser.parse_model(text + "{ y = Relu(x) }"), path)
