"""The command line: what it prints, and how errors end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner, Result

from bucketize.cli.dispatcher import find_dispatcher, parse_options
from bucketize.cli.group import main
from bucketize.errors import BucketizeError, DispatchError, UnknownNameError
from bucketize.types import Symbol

Run = Callable[..., Result]
N = Symbol("N", 1, 8)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in an empty directory; unexpected exceptions fail the test."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Result:
        result = CliRunner().invoke(main, args)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


COMMANDS = sorted(main.commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: main {command}")
    assert f"Examples:\n    bucketize {command}" in result.output, result.output


def test_zoo_lists_and_writes(run: Run, tmp_path: Path) -> None:
    assert json.loads(run("zoo", "--json").output)["mlp"] == {"N": [1, 1024]}
    assert run("zoo").output.startswith("mlp          N in [1, 1024]")
    assert run("zoo", "mlp", "-o", "m.onnx").output == "wrote m.onnx\n"
    assert (tmp_path / "m.onnx").stat().st_size > 1_000_000


def test_dispatchers_are_listed(run: Run) -> None:
    listed = {row["name"]: row for row in json.loads(run("dispatchers", "--json").output)}
    assert listed.keys() >= {"exact", "log", "uniform"}
    assert listed["log"]["options"] == {"base": 2, "low": 1, "high": None}
    text = run("dispatchers", "--dim", "N=1..").output
    assert "N in [1, inf]: [1, 2) [2, 4)" in text
    assert "exact_dispatcher needs sizes=..." in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["zoo", "nope"], "error: no zoo model named 'nope'; known: bert-base,"),
        (["zoo", "mlp", "-o", "no/where.onnx"], "error: [Errno 2] No such file or directory"),
        (["dispatchers", "--dim", "N"], "'N' is no bound; write N=1..32, N=1.. or N=8"),
        (["dispatchers", "--dim", "N=4..2"], "'N=4..2' is empty: 4 exceeds 2"),
    ],
)
def test_errors_exit_with_2(run: Run, args: list[str], message: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


def test_debug_shows_the_traceback(run: Run) -> None:
    with pytest.raises(BucketizeError, match="no zoo model"):
        run("--debug", "zoo", "nope")


# --- the commands that take a model ---


@pytest.fixture
def net(tmp_path: Path) -> str:
    """A small model in a file; its weights are seeded."""
    weights = np.random.default_rng(0).standard_normal((16, 8), np.float32)
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        net (float[N, 16] x) => (float[N, 8] y) { h = MatMul(x, w)  y = Relu(h) }
    """)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "net.onnx")
    return "net.onnx"


def test_show_prints_the_stages(run: Run, net: str) -> None:
    text = run("show", net, "--dim", "N=1..4", "-d", "log").output
    before, decisions, clones, after = text.split("\n# ")[:4]
    assert "%0 = matmul(%x, const[0]: float32[16, 8]) : float32[N, 8]" in before
    assert decisions == (
        "decisions\nif N < 2:\n  main[N=1..2]\nelse:\n"
        "  if N < 4:\n    main[N=2..4]\n  else:\n    main[N=4..5]\n"
    )
    assert clones == "clones\nmain[N=1..2]\nmain[N=2..4]\nmain[N=4..5]\n"
    assert "def @main[N=1..2](%x: float32[1, 16]) -> float32[1, 8]" in after
    assert "fused(" in after


def test_show_abridges_very_many_buckets(run: Run, net: str) -> None:
    options = ["show", net, "--dim", "N=1..10001", "-d", "exact"]
    text = run(*options, "--section", "decisions", "--section", "clones").output
    decisions, clones = text.split("\n\n")
    assert clones.splitlines() == [
        "# clones",
        *(f"main[N={i}..{i + 1}]" for i in (1, 2, 3)),
        "... (clones left out: 9,995)",
        *(f"main[N={i}..{i + 1}]" for i in (9999, 10000, 10001)),
    ]
    assert decisions.count("main[") == 6
    assert "    ... (leaves left out: 1,250)\n" in decisions
    assert len(json.loads(run(*options, "--json").output)["clones"]) == 10001


def test_show_tells_scripts(run: Run, net: str) -> None:
    told = json.loads(run("show", net, "-d", "log:high=2", "--no-fallback", "--json").output)
    assert told == {
        "inputs": {"x": "float32[N, 16]"},
        "outputs": ["float32[N, 8]"],
        "symbols": {"N": [1, None]},
        "clones": ["main[N=1..2]", "main[N=2..]"],
        "decisions": ["if N < 2:", "  main[N=1..2]", "else:", "  main[N=2..]"],
    }


def test_run_checks_and_times(run: Run, net: str) -> None:
    result = run("run", net, "-d", "log", "--at", "N=1", "--at", "N=3", "--check", "--json")
    one, three = json.loads(result.stdout)
    assert one["executor"] == "graph"
    assert three["clone"] == "main[N=2..4]"
    assert three["outputs"] == [[3, 8]]
    assert three["max_rel_err"] < 1e-5
    text = run("run", net, "-d", "log", "--at", "N=3", "--explain")
    assert "main -> main[N=2..4] (vm executor)" in text.stdout
    assert "on defaults" in text.stderr


def test_run_takes_arrays_and_gives_arrays(run: Run, net: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 16), np.float32))
    run("run", net, "--input", "x=x.npy", "-o", "y.npz", "--repeat", "1")
    assert np.load(tmp_path / "y.npz")["output_0"].shape == (2, 8)


def test_tune_then_analyze(run: Run, net: str, tmp_path: Path) -> None:
    args = ("tune", net, "-d", "log", "--dim", "N=1..2", "--log", "t.csv", "--trials", "2")
    told = json.loads(run(*args, "--json").stdout)
    assert told["trials"] == 4
    assert told["failed"] == 0
    assert [row["function"] for row in told["best"]] == ["main[N=1..2]", "main[N=2..3]"]
    assert "0 trials" in run(*args).stderr
    best = json.loads(run("analyze", "t.csv", "--json").output)
    assert [row["tried"] for row in best] == [2, 2]
    progress = run("analyze", "t.csv", "--frame", "progress", "--csv", "p.csv", "--plot", "p.png")
    assert progress.output.startswith("host_cpu")
    assert (tmp_path / "p.csv").read_text().startswith("host_cpu")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    chosen = run("run", net, "-d", "log", "--dim", "N=1..2", "--log", "t.csv", "--at", "N=2")
    assert "1 with schedules from the log" in chosen.stderr


def test_the_trade_off_of_dispatchers(run: Run, net: str) -> None:
    bounds = ("--dim", "N=1..8")
    at = ("--at", "N=1", "--at", "N=5")
    run("tune", net, *bounds, "-d", "oracle", *at, "--log", "t.csv", "--trials", "1")
    result = run(
        "analyze", "t.csv", "--model", net, *bounds, "-d", "none", "-d", "log", *at, "--json"
    )
    none, log = json.loads(result.stdout)
    assert none["clones"] == 1
    assert log["clones"] == 4
    assert log["worst_slowdown"] > 0


@pytest.mark.slow
def test_demo(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketize.cli.demo.MODEL", "zoo:mlp")  # the demo, with less to compile
    monkeypatch.setattr("bucketize.cli.demo.BOUNDS", {"N": (1, 8)})
    monkeypatch.setattr("bucketize.cli.demo.POINTS", ({"N": 1}, {"N": 3}))
    result = run("demo", "--seconds", "10", "-o", "out")
    assert "mean_slowdown" in result.stdout
    assert "within" in result.stderr
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {
        "trials.csv",
        "tradeoff.csv",
        "tradeoff.png",
    }


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "no.onnx"], "error: cannot read no.onnx: No such file or directory"),
        (["run", "net.onnx"], "the size of N is missing"),
        (["run", "net.onnx", "--at", "M=3"], "no input or symbol named 'M'; known: N, x"),
        (["run", "net.onnx", "--at", "3"], "'3' names no sizes; write N=4,H=224,W=224"),
        (["run", "net.onnx", "--dim", "N=2", "--at", "N=3"], "N is held to 2, but given as 3"),
        (["run", "net.onnx", "--input", "x"], "'x' names no file; write INPUT=FILE.npy"),
        (["run", "net.onnx", "--input", "x=net.onnx"], "not an array in .npy format"),
        (["run", "net.onnx", "-d", "log:base=1", "--at", "N=3"], "while log_dispatcher cuts axis"),
        (
            ["run", "net.onnx", "--log", "no.csv", "--at", "N=3"],
            "cannot read the tuning log no.csv",
        ),
        (["show", "net.onnx", "--function", "main[N=7]"], "no function named 'main[N=7]'; known:"),
        (["show", "net.onnx", "-d", "oracle"], "the oracle has a clone for each --at"),
        (["tune", "net.onnx", "--log", "t.csv", "--trials", "0"], "expected at least 1, got 0"),
        (["analyze", "no.csv"], "cannot read the tuning log no.csv"),
        (["analyze", "t.csv", "--model", "net.onnx"], "--model wants sizes to measure at"),
    ],
)
def test_errors_about_models_exit_with_2(run: Run, net: str, args: list[str], message: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.stderr


# --- dispatchers by name ---


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("base=4", {"base": 4}),
        ("sizes=1,2,4,high=8", {"sizes": [1, 2, 4], "high": 8}),
        ("base=1.5, name=x", {"base": 1.5, "name": "x"}),
    ],
)
def test_options(text: str, options: dict[str, object]) -> None:
    assert parse_options(text) == options


OWN = """
def halves(shapes, *, at=4):
    return {"x": {0: [(1, at), (at, None)]}}

number = 7
"""


def test_dispatchers_are_found_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_dispatcher.py").write_text(OWN)
    (tmp_path / "b.json").write_text('{"intervals": {"N": [[1, 5], [5, 9]]}}')
    found = {
        spec: find_dispatcher(spec)({"x": (N,)})
        for spec in (
            "log",
            "log:base=4",
            "own_dispatcher:halves",
            "own_dispatcher.py:halves:at=3",
            "dispatchers:uniform_dispatcher:count=2",
            "b.json",
        )
    }
    assert {spec: answer["x"][0] for spec, answer in found.items()} == {  # type: ignore[call-overload]
        "log": [(1, 2), (2, 4), (4, 8), (8, 9)],
        "log:base=4": [(1, 4), (4, 9)],
        "own_dispatcher:halves": [(1, 4), (4, None)],
        "own_dispatcher.py:halves:at=3": [(1, 3), (3, None)],
        "dispatchers:uniform_dispatcher:count=2": [(1, 5), (5, 9)],
        "b.json": [(1, 5), (5, 9)],
    }


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("lug", UnknownNameError, "no dispatcher named 'lug'; known: exact, log, module:name"),
        ("log:4", DispatchError, "expected option=value, got '4'"),
        ("log:bose=4", DispatchError, "has no option 'bose'; it has: base, low, high"),
        ("nowhere:f", DispatchError, "cannot import nowhere: ModuleNotFoundError: No module"),
        ("own.py:f", DispatchError, "cannot import own.py: FileNotFoundError"),
        ("broken.py:f", DispatchError, "cannot import broken.py: ZeroDivisionError: division by"),
        ("json:nothing", DispatchError, "json has no function named 'nothing'"),
        ("none.yaml", DispatchError, "cannot read none.yaml: No such file"),
    ],
)
def test_dispatchers_that_cannot_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, error: type, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(error) as e:
        find_dispatcher(spec)
    assert message in str(e.value)
