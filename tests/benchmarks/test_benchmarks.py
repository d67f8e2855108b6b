"""The benchmarks run: each that can in seconds, on settings so small that its figures mean nothing.

`bench` and `replay` have tests of their own; the others start processes on whole models.
"""

from __future__ import annotations

import math
import os
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from onnx_model import parse

import bucketize
from benchmarks import (
    conformance,
    contention,
    contexts,
    dispatch,
    grids,
    newshape,
    overhead,
    payoff,
    predict,
    resident,
    scale,
    threads,
    transfer,
)
from bucketize import ops
from bucketize.ir import Builder, Module, Var
from bucketize.kernel.schedule import Implementation
from bucketize.log.log import rows
from bucketize.machine.named import KNOWN, named
from bucketize.tune.task import Point, Task
from bucketize.types import Symbol, tensor

pytestmark = pytest.mark.filterwarnings(
    "default:.*trials is confirmed|.* have no verdict"
)  # by the clock

Patch = pytest.MonkeyPatch
Output = pytest.CaptureFixture[str]


@pytest.fixture
def few(monkeypatch: Patch) -> None:
    """A grid of one product at two sizes."""
    monkeypatch.setattr(grids, "DENSE", ((8, 16),))
    monkeypatch.setattr(grids, "ROWS", (1, 2))
    monkeypatch.setattr(grids, "GRIDS", {"dense": grids.dense})
    monkeypatch.setattr(grids, "LEVELS", {})
    monkeypatch.setattr(grids, "TRIALS", 5)
    monkeypatch.setattr(grids, "ROUNDS", grids.Repeats(2, 2, 0.0))


def test_a_grid_is_recorded_and_its_best_are_timed_again(
    few: None, monkeypatch: Patch, tmp_path: Path, capsys: Output
) -> None:
    monkeypatch.setattr(grids, "LOGS", tmp_path)
    grids.main([], standalone_mode=False)
    (log,) = tmp_path.glob("*-dense.csv")
    written = rows(log)
    by_size = {t.shape: [u for u in written if u.shape == t.shape] for t in written}
    assert len(by_size) == 2
    for of in by_size.values():
        found = [t.schedule_hash for t in of if t.source != "confirm"]
        assert len(found) == len(set(found)) == 5
        assert {t.schedule_hash for t in of if t.source == "confirm"} >= set(found)
    assert all(t.error_kind == "none" for t in written)
    assert f"{log.name}: {len(written)} rows added" in capsys.readouterr().out


def test_the_other_grids_have_tasks() -> None:
    for made, least in ((grids.convolution, 15), (grids.attention, 2)):
        module, sizes = made()
        (main,) = module.functions.values()
        assert len(main.results) == least
        assert main.symbols().keys() == sizes[0].keys()


def test_payoff_prints_a_row_for_each_size(monkeypatch: Patch, capsys: Output) -> None:
    """A new process is handed what it calls; here each call is of this process."""
    assert payoff.apart(os.getpid) != os.getpid()
    monkeypatch.setattr(payoff, "apart", lambda *call: handed(*pickle.loads(pickle.dumps(call))))
    monkeypatch.setattr(payoff, "ENOUGH_S", 0.0)
    monkeypatch.setattr(payoff, "MODELS", {"mlp": ({"N": (1, 4)}, [{"N": 3}, {"N": 4}])})
    monkeypatch.setattr(payoff, "PROCESSES", 2)
    monkeypatch.setenv("BUCKETIZE_SECONDS", "2")
    monkeypatch.delenv("BUCKETIZE_LOG", raising=False)
    payoff.main()
    told = capsys.readouterr().out
    assert re.search(r"^mlp: \d+ trials, \d+ of them searched, in \d+ s$", told, re.M)
    assert re.findall(r"^ +(3|4|mean|worst) ", told, re.M) == ["3", "4", "mean", "worst"]


def handed(call: Callable[..., Any], *given: Any) -> Any:
    return call(*given)


def test_levels_are_of_all_kernels(few: None, monkeypatch: Patch, tmp_path: Path) -> None:
    """Of those that leave no choice, too."""
    monkeypatch.setattr(grids, "LOGS", tmp_path)
    monkeypatch.setattr(grids, "GRIDS", {})
    monkeypatch.setattr(grids, "LEVELS", {"rest": tiny})
    monkeypatch.setattr(grids, "QUICK", grids.Repeats(1, 1, 0.0))
    grids.main(["-g", "rest"], standalone_mode=False)
    (log,) = tmp_path.glob("*-rest.csv")
    written = rows(log)
    assert {t.template for t in written} == {"elementwise", "transpose"}
    assert [t.shape for t in written if t.template == "elementwise"] == ["2x3", "4x3"]


def test_filters_are_timed_by_every_algorithm(
    few: None, monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setattr(grids, "LOGS", tmp_path)
    monkeypatch.setattr(grids, "LEVELS", {"filters": grids.filters})
    monkeypatch.setattr(grids, "FILTERS", ((4, 16, 16),))
    monkeypatch.setattr(grids, "IMAGES", ((1, 1), (1, 3)))
    monkeypatch.setattr(grids, "QUICK", grids.Repeats(1, 1, 0.0))
    monkeypatch.setitem(grids.WANTED, "filters", two_detours)  # type: ignore[misc]
    grids.main(["-g", "filters"], standalone_mode=False)
    (log,) = tmp_path.glob("*-filters.csv")
    made = {(t.shape, t.template) for t in rows(log) if t.op == "conv2d"}
    shapes = {shape for shape, _ in made}
    assert len(shapes) == 2
    assert made == {(shape, name) for shape in shapes for name in ("conv2d", "winograd")}


def two_detours(task: Task, point: Point) -> list[Implementation]:
    """Of all that are asked for: each is a kernel to compile."""
    direct, *others = grids.detours(task, point)
    of_winograd = [one for one in task.space.points if one.template == "winograd"]
    assert [one for one in others if one.template != "conv2d"] == of_winograd
    return [direct, *of_winograd[:2]]


def tiny() -> tuple[Module, list[Mapping[str, int]]]:
    x, b = Var("x", tensor("float32", Symbol("N"), 3)), Builder()
    results = [b.emit(ops.exp, x), b.emit(ops.transpose, x, axes=(1, 0))]
    return Module({"main": b.function("main", [x], results)}), [{"N": 2}, {"N": 4}]


def test_predictions_are_printed_beside_what_is_measured(
    monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.setattr(predict, "MODELS", {"mlp": [{"N": 2}, {"N": 3}]})
    monkeypatch.setattr(predict, "LEAST", 2)
    monkeypatch.setattr(predict, "PASSES", 1)
    monkeypatch.setattr(predict, "ENOUGH_S", 0.0)
    predict.main()
    told = capsys.readouterr().out
    assert re.findall(r"^mlp +(N=2|N=3|median) .* %$", told, re.M) == ["N=2", "N=3", "median"]
    assert predict.Compared(2.0, 1.0).error == pytest.approx(1)
    assert predict.Compared(1.0, 2.0).error == pytest.approx(1)


def test_transfer_counts_trials_of_both_and_of_the_second_alone(
    monkeypatch: Patch, capsys: Output
) -> None:
    jobs = [transfer.Job("mlp", {"N": (1, 4)}, [{"N": n}], ((1, 2), (2, 5))) for n in (1, 3)]
    monkeypatch.setattr(transfer, "PAIRS", {"mlp": jobs})
    monkeypatch.setattr(transfer, "UNTIL", 0.02)
    monkeypatch.delenv("BUCKETIZE_PAIRS", raising=False)
    tune, sessions = bucketize.tune, []

    def counted(mod: Module, log: Path, **options: Any) -> pd.DataFrame:
        before = len(rows(log)) if log.exists() else 0
        added = tune(mod, log=log, **options)
        sessions.append((log, before, transfer.trials(added)))
        return added

    monkeypatch.setattr(bucketize, "tune", counted)
    transfer.main()
    (first, empty, one), (second, filled, two), (third, alone, three) = sessions
    assert first == second != third
    assert empty == alone == 0 < filled
    assert min(one, three) > 0
    line = re.search(r"^mlp +(\d+) +(\d+) +(\d+)  (.*)$", capsys.readouterr().out, re.M)
    assert line is not None
    assert [int(line[i]) for i in (1, 2, 3)] == [one, two, three]
    assert line[4] == f"{two / one:.2f}, {two / three:.2f}"


SMALL = ("mlp", {"N": 2})


def test_threads(monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(threads, "CASES", [SMALL])
    monkeypatch.setattr(threads, "ROUNDS", 3)
    monkeypatch.setattr(threads, "BEGUN_S", 0.0)
    threads.main()
    told = capsys.readouterr().out
    assert re.search(r"^mlp, .*: 1 thread .*x; with a busy core 1 thread .*x$", told, re.M)


def test_contexts(monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(contexts, "CASES", [SMALL])
    monkeypatch.setattr(contexts, "SECONDS", 0.01)
    contexts.main()
    assert re.search(r"^mlp +two contexts over one: .*x", capsys.readouterr().out)


def test_contention(monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(contention, "PAIRS", [(SMALL, ("mlp", {"N": 3}))])
    monkeypatch.setattr(contention, "OURS", SMALL)
    monkeypatch.setattr(contexts, "SECONDS", 0.01)
    monkeypatch.setattr(contention, "ROUNDS", 2)
    monkeypatch.setattr(contention, "BESIDE", 2)
    monkeypatch.setattr(contention, "THREADS", (1,))
    monkeypatch.setitem(contention.OTHERS, "nowhere", contention.numpy_product)
    contention.main()
    told = capsys.readouterr().out
    assert re.search(
        r"^mlp N=2 in turns with mlp N=3, 1 threads: \d\.\d+ \(.* \.\. .*\)$", told, re.M
    )
    assert re.search(r"^mlp N=2 in turns with numpy, 1 threads each: \d", told, re.M)
    assert re.search(r"^mlp N=2 beside numpy, .*: it serves .*, the other .* of alone$", told, re.M)
    assert "nowhere: not installed" in told


def test_new_shapes(monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(newshape, "RANGES", {"mlp": {"N": (1, 16)}})
    monkeypatch.setattr(newshape, "SHAPES", 14)
    monkeypatch.setattr(newshape, "MANY", 300)
    newshape.main([], standalone_mode=False)
    told = capsys.readouterr().out
    assert re.search(r"^mlp .* us ", told, re.M)
    assert "MiB resident" in told


def test_overhead(monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(overhead, "OPS", 5)
    monkeypatch.setattr(overhead, "REPEATS", 2)
    monkeypatch.setattr(overhead, "WINDOWS", 2)
    overhead.main()
    assert re.search(r"^the decision among 81 clones: .* us$", capsys.readouterr().out, re.M)


def test_the_dispatch_of_four_axes(capsys: Output) -> None:
    dispatch.main()
    assert capsys.readouterr().out.startswith("6561 buckets in ")


def test_a_node_of_a_large_file_has_its_cost(capsys: Output) -> None:
    scale.main.main(["-n", "40", "-n", "20"], standalone_mode=False)
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["nodes", "import_s", "compile_s", "import_ms", "compile_ms", "growth"]
    assert [row.split()[0] for row in rows] == ["20", "40"]
    before, after = {"nodes": 10, "import_s": 1, "compile_s": 3}, {"nodes": 20, "import_s": 4}
    assert scale.growth(before, after | {"compile_s": 12}) == pytest.approx(2)


@pytest.fixture
def nodes(monkeypatch: Patch) -> None:
    """Five tests in place of ONNX's."""
    x = np.ones((2, 3), np.float32)
    graphs = {
        "right": ("(float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }", x),
        "wrong": ("(float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }", x + 1),
        "of another shape": ("(float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }", x[:1]),
        "unknown": ("(float[2, 3] x) => (float[2, 3] y) { y = ImageDecoder(x) }", x),
        "too far": ("(float[2, 3] x) => (float[2, 3] y) <int64 i = {7}> { y = Gather(x, i) }", x),
    }
    made = [
        conformance.Case(name, parse(graph, 20), [x], [want], 1e-3, 0.0)
        for name, (graph, want) in graphs.items()
    ]
    monkeypatch.setattr(conformance, "cases", lambda: made)


@pytest.mark.usefixtures("nodes")
def test_tests_of_onnx_are_counted(capsys: Output) -> None:
    conformance.main([], standalone_mode=False)
    told = capsys.readouterr().out
    assert re.findall(r"^(.*\w) +1 +1 +2 +1$", told, re.M) == [*conformance.MODES]
    assert "apart, by symbols: wrong: other elements" in told
    assert "apart, without ranks: of another shape: float32[2, 3], expected float32[1, 3]" in told
    assert "failed, as shipped: too far: ShapeError: " in told
    assert "refused 1, as shipped: ai.onnx 20 ImageDecoder: " in told


@pytest.mark.usefixtures("nodes")
def test_what_another_machine_saved_comes_to_the_same(tmp_path: Path, capsys: Output) -> None:
    here = [name for name in KNOWN if not named(name).processor.misfit]
    if not here:
        pytest.skip("no processor that has a name has no more than this one")
    mode = ["-m", "as shipped"]
    conformance.main([*mode, "--save", str(tmp_path), "--target", here[0]], standalone_mode=False)
    saved = capsys.readouterr().out
    assert len([*tmp_path.glob("as shipped/*.bkt")]) == 4
    conformance.main([*mode, "--load", str(tmp_path)], standalone_mode=False)
    loaded = capsys.readouterr().out
    told, again = (text.partition("refused 1")[0] for text in (saved, loaded))
    assert told == again
    assert "refused 1, as shipped: no program was saved" in loaded
    (tmp_path / "as shipped/right.bkt").write_bytes(b"")
    conformance.main([*mode, "--load", str(tmp_path)], standalone_mode=False)
    assert "failed, as shipped: right: ProgramError: " in capsys.readouterr().out


def test_curves_of_memory_keep_their_peak_and_are_drawn(tmp_path: Path) -> None:
    curve = [(i, 0.0, 7.0 if i == 777 else 1.0) for i in range(2000)]
    thin = resident.thinned([*curve, (2000, 0.5, 2.0)])
    assert len(thin) <= resident.POINTS
    assert max(mib for _, _, mib in thin) == 7.0
    path = tmp_path / "memory.csv"
    for predicted in (5.0, 9.0):
        resident.keep(path, "mlp", resident.OURS, {"predicted": predicted, "curve": thin})
        resident.keep(path, "mlp", resident.WITHOUT, {"predicted": 0.0, "curve": thin})
    frame = pd.read_csv(path)
    assert len(frame) == 2 * len(thin)
    assert frame.groupby("side")["predicted_mib"].max().to_dict() == {
        resident.OURS: 9.0,
        resident.WITHOUT: pytest.approx(math.nan, nan_ok=True),
    }
    picture = tmp_path / "memory.png"
    drawn = CliRunner().invoke(resident.main, ["--frame", str(path), "--draw", str(picture)])
    assert drawn.exit_code == 0, drawn.output
    assert picture.stat().st_size > 1000
    alone = CliRunner().invoke(resident.main, ["--draw", str(picture)])
    assert "--draw wants the curves: --frame PATH" in alone.output
