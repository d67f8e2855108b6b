"""The frames of a report: those of the functions that make them."""

from __future__ import annotations

import re
from pathlib import Path

import composites_control
import numpy as np
import onnx
import pandas as pd
import pytest
from composites import Composite
from composites_value import COMPOSITES as VALUES
from onnx_model import parse
from reported import HOSTILE, TRAFFIC, bare, executable, log, module, whole
from test_verdict import confirmed, other

import bucketize
from bucketize import analysis, zoo
from bucketize.errors import ArgumentError, BucketizeError, ShapeError, TypeRelError
from bucketize.inspect.predict import predictions
from bucketize.log.log import append
from bucketize.report import subject
from bucketize.report.against import matched
from bucketize.table import pairs
from bucketize.tune.task import tasks_of
from dispatchers import log_dispatcher

pytestmark = pytest.mark.filterwarnings("ignore::bucketize.errors.BusyWarning")


def sizes_of(text: str) -> dict[str, int]:
    """The sizes of `N=3`."""
    return {text[0]: int(text[2:])}


def test_what_clones_take_is_what_the_models_say() -> None:
    program, told = executable().program, whole().frames["clones"]
    assert set(told["clone"]) == {n for n in program.routines if n != "main"}
    for row in told.to_dict("records"):
        (taken,) = predictions(program, [sizes_of(row["sizes"])])
        assert (taken.clone, taken.seconds) == (row["clone"], row["predicted_s"])


def test_clones_come_by_what_they_are_asked_for() -> None:
    told = whole().frames["clones"].set_index("clone")["requests"]
    assert told.sum() == TRAFFIC.total
    assert told["main[N=2..3]"] == 20
    assert told["main[N=4..7]"] == 0
    leaves = whole().frames["decisions"]
    assert leaves["requests"].sum() == TRAFFIC.total


def test_kernels_are_those_of_explain() -> None:
    kernels, clones = whole().frames["kernels"], whole().frames["clones"]
    for listing, rows in kernels.groupby("listing"):
        sizes = clones.loc[clones["listing"] == listing, "sizes"].iloc[0]
        explained = executable().explain(**sizes_of(sizes))
        for name in ("name", "op", "kernel", "why", "strip"):
            assert list(rows[name]) == [step[name] for step in explained.steps]
        assert list(rows["predicted_s"]) == list(explained.seconds)


def test_the_graph_goes_from_kernel_to_kernel() -> None:
    edges = whole().frames["edges"]
    assert edges.to_numpy().tolist() == [[0, 1], [1, 2]]


def test_costs_over_sizes_are_predictions() -> None:
    costs = whole().frames["costs"]
    assert costs["size"].iloc[0] == 1
    assert costs["size"].iloc[-1] == 64
    points = [sizes_of(text) for text in costs["sizes"]]
    taken = predictions(executable().program, points)
    assert list(costs["predicted_s"]) == [t.seconds for t in taken]
    assert list(costs["clone"]) == [t.clone for t in taken]


def test_the_frontier_is_that_of_the_partition() -> None:
    every = bucketize.partition(module(), TRAFFIC, worth=0.0).frontier
    rows = whole().frames["frontier"].set_index("which")
    assert list(rows["seconds"].drop("here")) == [f.seconds for f in every]
    assert list(rows["weight_bytes"].drop("here")) == [f.weight_bytes for f in every]
    its = bucketize.partition(module(), TRAFFIC)
    assert rows.loc["chosen", "seconds"] == its.chosen.seconds
    assert whole().verdict == str(its)
    assert list(whole().frames["by_size"]["oracle_s"]) == list(its.by_size["oracle_s"])


def test_clones_that_there_are_stand_beside_the_frontier() -> None:
    here = whole().frames["frontier"].set_index("which").loc["here"]
    now = bucketize.drift(executable().module, TRAFFIC, TRAFFIC).now
    assert (here["clones"], here["seconds"]) == (6, now.seconds)


def test_a_partition_needs_the_module(tmp_path: Path) -> None:
    bucketize.compile(module()).save(tmp_path / "mlp.bkt")
    exe = bucketize.load(tmp_path / "mlp.bkt", trusted=True)
    with pytest.raises(ArgumentError, match="a program that was loaded has no module to ask"):
        bucketize.report(exe, partition=True)


def test_the_search_is_what_analysis_makes_of_the_log() -> None:
    trials = analysis.load(log())
    for name in ("progress", "failures", "confirmed"):
        expected = getattr(analysis, name)(trials)
        pd.testing.assert_frame_equal(whole().frames[name], expected)
    pd.testing.assert_frame_equal(whole().frames["best"], analysis.best_schedules(trials))


def test_memory_is_told_as_by_the_executable() -> None:
    for row in whole().frames["memory"].to_dict("records"):
        told = executable().memory(N=row["size"])
        assert (told.arena, told.results) == (row["arena"], row["results"])


def test_requests_are_those_of_the_traffic() -> None:
    frame = whole().frames["traffic"]
    assert frame[["size", "requests"]].to_numpy().tolist() == [[1, 50], [3, 20], [9, 5], [40, 1]]


def test_a_traffic_that_lacks_a_symbol_is_refused() -> None:
    other = bucketize.Traffic(("S",), np.array([[1]]), np.array([1]))
    with pytest.raises(ShapeError, match="it has no sizes of N, only of S"):
        bucketize.report(executable(), traffic=other)


def test_a_traffic_may_tell_of_symbols_that_are_held() -> None:
    both = bucketize.Traffic(("M", "N"), np.array([[1, 1], [2, 1], [1, 3]]), np.array([5, 6, 7]))
    frames = bucketize.report(executable(), sizes=[{"N": 1}], traffic=both).frames
    assert frames["sizes"].to_numpy().tolist() == [[1, 11], [3, 7]]
    assert frames["clones"]["requests"].sum() == 18


def test_of_many_clones_those_are_told_that_are_asked_for_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject, "CLONES", 2)
    its = bucketize.report(executable(), name="mlp", traffic=TRAFFIC)
    assert list(its.frames["clones"]["clone"]) == ["main[N=2..3]", "main[N=1]"]
    html = its.html()
    assert "It was compiled as 6 clones" in html
    assert "2 of 6 clones, those first that are asked for most." in html


def compiled(name: str) -> tuple[bucketize.Executable, Composite]:
    (its,) = (c for c in (*composites_control.COMPOSITES, *VALUES) if c.name == name)
    return bucketize.compile(bucketize.from_onnx(its.model, bounds=its.bounds())), its


def test_a_loop_has_its_kernels() -> None:
    """They count as often as they run, where sizes tell it."""
    exe, composite = compiled("loop_grows")
    its = bucketize.report(exe, name="loop", sizes=[{"N": 2, "M": 3}], inputs=composite.inputs)
    kernels = its.frames["kernels"]
    assert list(kernels["name"]) == [s["name"] for s in exe.explain(N=8, M=8).steps]
    assert kernels["segment"].nunique() == 3
    assert "<h4>segment 3</h4>" in its.html()


def test_profiles_are_at_the_sizes_that_were_given() -> None:
    frames = whole().frames
    assert set(frames["layers"]["sizes"]) == {"N=3"}
    assert frames["layers"]["share"].sum() == pytest.approx(1)
    assert list(frames["warm_up"]["clone"]) == list(frames["clones"]["clone"])


def test_two_executables_are_compared_layer_by_layer() -> None:
    frame, versus = whole().frames["against"], whole().frames["versus"]
    assert list(versus["engine"]) == ["bucketize", "the other"]
    matmuls = frame[frame["here"] == "matmul"]
    assert len(matmuls) == 3
    assert (matmuls["gained_s"] == matmuls["there_s"] - matmuls["here_s"]).all()


def layer(name: str, kernel: str, time_s: float, **more: object) -> dict[str, object]:
    schedule = {"schedule": "mr=6", "lines": None, "why": "default"}
    times = {"time_s": time_s, "iqr_s": 0.0}
    return {"name": name, "op": "add", "kernel": kernel, **times, **schedule, **more}


def test_what_one_side_fuses_is_beside_all_of_it() -> None:
    here = pd.DataFrame([layer("a+b+c", "matmul", 2.0), layer("d", "conv2d", 1.0)])
    there = pd.DataFrame(
        [layer("a+b", "matmul", 2.0), layer("c", "copy", 1.0), layer("d", "winograd", 4.0)]
    )
    rows = matched(here, there).set_index("name")
    assert rows.loc["a+b+c", "there_s"] == 3.0
    assert rows.loc["a+b+c", "which"] == "faster"
    assert rows.loc["a+b+c", "why"].startswith("fused here: 2 kernels there")
    assert rows.loc["d", "ratio"] == 0.25
    assert "fewer products there (Winograd)" in rows.loc["d", "why"]
    assert "kernel: conv2d here, winograd there" in rows.loc["d", "why"]


def test_layers_of_an_engine_are_matched_by_the_nodes_that_it_made_them_of() -> None:
    here = pd.DataFrame([layer("x/MatMul+x/Add", "matmul", 1.0), layer("y", "copy", 1.0)])
    there = pd.DataFrame(
        {"name": ["x/MatMul/Fusion/", "ReorderOutput"], "op": ["Gemm", "Reorder"], "time_s": [1, 1]}
    ).assign(iqr_s=0.0)
    rows = matched(here, there).set_index("name")
    assert (rows.loc["x/MatMul+x/Add", "there"], rows.loc["x/MatMul+x/Add", "which"]) == (
        "Gemm",
        "same",
    )
    assert rows.loc["y", "which"] == "only here"
    assert rows.loc["ReorderOutput", "which"] == "only there"


@pytest.mark.parametrize(
    ("here_s", "iqr_s", "which"),
    [
        (1.04, 0.0, "same"),
        (1.06, 0.0, "slower"),
        (0.90, 0.04, "faster"),
        (0.90, 0.06, "same"),  # not beyond both spreads together
        (1.20, 0.2, "same"),
        (1.20, None, "same"),  # of what is between kernels no spread is known
    ],
)
def test_layers_differ_beyond_both_spreads(here_s: float, iqr_s: float | None, which: str) -> None:
    here, there = (pd.DataFrame([layer("a", "copy", s, iqr_s=iqr_s)]) for s in (here_s, 1.0))
    assert matched(here, there)["which"].tolist() == [which]


def test_what_takes_no_time_has_no_ratio() -> None:
    here = pd.DataFrame([layer("a", "copy", 0.0), layer("b", "copy", 1.0)])
    there = pd.DataFrame([layer("a", "copy", 0.0), layer("b", "copy", 0.0)])
    rows = matched(here, there).set_index("name")
    assert rows["which"].to_dict() == {"a": "same", "b": "slower"}
    assert rows["ratio"].isna().all()


def test_an_engine_is_compared_layer_by_layer(tmp_path: Path) -> None:
    onnx.save(zoo.build("mlp"), tmp_path / "mlp.onnx")
    its = bucketize.report(
        executable(), sizes=[{"N": 2}], against="onnxruntime", model=tmp_path / "mlp.onnx"
    )
    frame = its.frames["against"]
    assert list(frame["which"].iloc[:3].isin(["faster", "slower", "same"])) == [True] * 3
    assert list(frame["there"].iloc[:3]) == ["FusedGemm", "FusedGemm", "Gemm"]
    assert list(its.frames["versus"]["engine"]) == ["bucketize", "onnxruntime"]


def test_a_bare_report_has_the_frames_that_nothing_is_needed_for() -> None:
    frames = bare().frames
    assert list(frames["clones"]["clone"]) == ["main"]
    assert frames["decisions"].empty
    assert frames["frontier"].empty
    assert "progress" not in frames
    assert frames["layers"]["sizes"].iloc[0] == "N=8"  # in the middle of 1 to 64


def test_a_saved_program_has_a_report(tmp_path: Path) -> None:
    bucketize.compile(module()).save(tmp_path / "mlp.bkt")
    its = bucketize.report(bucketize.load(tmp_path / "mlp.bkt", trusted=True), name="mlp")
    assert its.sources == {}
    assert list(its.frames["kernels"]["kernel"]) == ["matmul"] * 3
    assert "A program that was loaded has no text of its kernels." in its.html()


@pytest.mark.usefixtures("by_numpy")
def test_what_numpy_computes_is_a_kernel_of_no_segment() -> None:
    node = onnx.helper.make_node("Unique", ["x"], ["y"], name="each")
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N"])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["M"])
    graph = onnx.helper.make_graph([node], "net", [x], [y])
    opset = [onnx.helper.make_opsetid("", 17)]
    mod = bucketize.from_onnx(onnx.helper.make_model(graph, opset_imports=opset))
    its = bucketize.report(bucketize.compile(mod), inputs=lambda s: {"x": np.ones(s["N"], "f4")})
    (row,) = its.frames["kernels"].to_dict("records")
    assert (row["kernel"], row["name"]) == ("numpy", "each")
    assert pd.isna(row["segment"])
    assert "numpy" in its.html()


def test_what_is_no_executable_is_refused() -> None:
    with pytest.raises(ArgumentError, match="report takes an executable, of compile or load"):
        bucketize.report(module())  # type: ignore[arg-type]


def test_a_rival_is_an_executable_or_an_engine() -> None:
    with pytest.raises(ArgumentError, match="expected an executable or an engine, got 3"):
        bucketize.report(executable(), against=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="onnxruntime reads the model from a file: give its"):
        bucketize.report(executable(), against="onnxruntime")
    other, _ = compiled("loop_grows")
    with pytest.raises(ArgumentError, match="against: the inputs differ: data, and "):
        bucketize.report(executable(), against=other)
    with pytest.raises(BucketizeError, match="no adapter for an engine named 'tvm'"):
        bucketize.report(executable(), against="tvm", model="mlp.onnx")


def test_an_engine_that_tells_no_layers_is_refused_by_name() -> None:
    message = "no engine that tells times of layers named 'mnn'; known: onnxruntime"
    with pytest.raises(BucketizeError, match=message):
        analysis.engine_layers("mnn", "mlp.onnx", {})


def test_sizes_that_are_not_legal_are_refused() -> None:
    with pytest.raises(ShapeError, match="N"):
        bucketize.report(executable(), sizes=[{"N": 65}])


def test_the_name_of_the_model_is_that_of_the_log() -> None:
    its = bucketize.report(executable(), name="other", log=log())
    assert its.frames["progress"].empty
    assert its.frames["trials"].to_numpy().tolist() == [[HOSTILE, 3]]


def test_the_example_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And its table names all frames."""
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "report.md", "exec"), {})
    assert (tmp_path / "report.html").stat().st_size > 900_000
    named = set(re.findall(r"`(\w+)`", text.partition("| frame | of |")[2]))
    assert whole().frames.keys() - {"trials"} <= named


def test_sizes_that_are_looked_at_are_multiples() -> None:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (8, 64, 8)})
    exe = bucketize.compile(bucketize.dispatch(mod, log_dispatcher))
    its = bucketize.report(exe, name="mlp")
    assert list(its.frames["costs"]["size"]) == list(range(8, 65, 8))
    assert list(its.frames["clones"]["sizes"]) == ["N=8", "N=16", "N=48"]
    assert "N from 8 to 64 in steps of 8" in its.html()


def test_implementations_that_run_are_those_of_the_clone_that_serves(tmp_path: Path) -> None:
    """On any machine the last clone has another than the rest, by its verdict."""
    its_log = tmp_path / "log.csv"
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 256)})
    mod = bucketize.dispatch(mod, log_dispatcher)
    task = tasks_of(mod)[-3]  # the first of its three kernels
    for row in confirmed(task, other(task)):
        append(its_log, row)
    exe = bucketize.compile(mod, log=its_log)
    frame = bucketize.report(exe, name="mlp").frames["implementations"]
    told = frame[frame["runs"]].set_index(["name", "size"])["implementation"]
    assert len(told) == len(frame.drop_duplicates(["name", "size"]))
    for (name, size), implementation in told.items():
        (step,) = (s for s in exe.explain(N=size).steps if s["name"] == name)
        assert implementation == f"{step['kernel']} {pairs(step['schedule'], ' ')}"
    assert told.nunique() > 1


def test_where_no_size_has_a_choice_a_frame_without_rows_has_its_columns() -> None:
    mod = bucketize.from_onnx(parse("(float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }"))
    frame = bucketize.report(bucketize.compile(mod), sizes=[{"N": 3}]).frames["implementations"]
    assert frame[frame["runs"]].empty
    assert "size" in frame[frame["runs"]]


def test_a_traffic_of_sizes_out_of_bounds_is_refused() -> None:
    other = bucketize.Traffic(("N",), np.array([[1], [65]]), np.array([1, 1]))
    with pytest.raises(ShapeError, match=r"traffic: N=65 is out of its bounds \[1, 64\]"):
        bucketize.report(executable(), traffic=other)


def test_nodes_that_an_engine_makes_of_several_are_named_by_the_last(tmp_path: Path) -> None:
    """onnxruntime calls them Gelu, BiasGelu_token_3 and the like."""
    nodes = [
        onnx.helper.make_node(op, inputs, [out], name=f"/{out}")
        for op, inputs, out in (
            ("MatMul", ["x", "w"], "a"),
            ("Add", ["a", "b"], "c"),
            ("Div", ["c", "root"], "d"),
            ("Erf", ["d"], "e"),
            ("Add", ["e", "one"], "f"),
            ("Mul", ["c", "f"], "g"),
            ("Mul", ["g", "half"], "y"),
        )
    ]
    arrays = {"w": np.ones((8, 8)), "b": np.ones(8), "root": 2**0.5, "one": 1, "half": 0.5}
    constants = [onnx.numpy_helper.from_array(np.float32(a), n) for n, a in arrays.items()]
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (4, 8)) for name in "xy"
    )
    graph = onnx.helper.make_graph(nodes, "gelu", [x], [y], constants)
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "g.onnx"
    )
    inputs = {"x": np.ones((4, 8), np.float32)}
    layers = analysis.engine_layers("onnxruntime", tmp_path / "g.onnx", inputs, repetitions=2)
    assert set(layers["name"]) <= {node.name for node in nodes}
    assert layers["name"].iloc[-1] == "/y"
    assert len(layers) < len(nodes)


def of_multiples(k: int) -> bucketize.Executable:
    """Of images, from 3 to 27, that are joined with their own means, k by k: else refused."""
    model = parse(f"""(float[1, 1, H, H] x) => (float[1, 1, H, H] y) {{
        mean = AveragePool <kernel_shape = [{k}, {k}], strides = [{k}, {k}]> (x)
        one = Constant <value = float[1] {{1}}> ()
        shape = Constant <value = int64[4] {{1, 1, {k}, {k}}}> ()
        w = Expand (one, shape)
        whole = ConvTranspose <strides = [{k}, {k}]> (mean, w)
        y = Add (x, whole)
    }}""")
    return bucketize.compile(bucketize.from_onnx(model, bounds={"H": (3, 27)}))


def test_a_size_is_chosen_that_the_model_takes() -> None:
    exe = of_multiples(2)
    with pytest.raises(TypeRelError, match="extents differ"):
        exe.explain(H=9)  # the middle
    frames = bucketize.report(exe, name="even").frames
    assert set(frames["layers"]["sizes"]) == {"H=12"}  # of 6, 12 and 24
    assert all(size % 2 == 0 for size in frames["costs"]["size"])


@pytest.mark.filterwarnings("ignore:main stays cold")
def test_where_no_legal_size_is_found_it_is_told_how_to_give_one() -> None:
    with pytest.raises(TypeRelError, match=r"the report chose these sizes: give others, by sizes="):
        bucketize.report(of_multiples(7))
    assert bucketize.report(of_multiples(7), sizes=[{"H": 14}]).frames["layers"].shape[0] > 1
