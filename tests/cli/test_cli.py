"""The command line: what it prints, and how errors end."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pandas as pd
import pytest
from click.testing import Result
from onnx_model import parse

import bucketize
from bucketize import progress
from bucketize.analysis import ENGINES, load
from bucketize.analysis.engines import Engine
from bucketize.cli import table as tables
from bucketize.cli.command.bench import RATES, digits
from bucketize.cli.command.calibrate import UNITS
from bucketize.cli.command.profile import BEYOND, labels, shown
from bucketize.cli.command.run import save as save_results
from bucketize.cli.dispatcher import find_dispatcher, parse_options
from bucketize.cli.group import main
from bucketize.errors import DispatchError, UnknownNameError
from bucketize.inspect import profile as profile_module
from bucketize.inspect.profile import BETWEEN
from bucketize.inspect.roofline import Roofline
from bucketize.link.image import core
from bucketize.log.trial import Trial
from bucketize.machine.calibration import Calibration
from bucketize.machine.directory import kept
from bucketize.machine.energy import Energy
from bucketize.machine.host import machine_of
from bucketize.machine.speed import TYPICAL, Speed
from bucketize.progress import Meter, Tell
from bucketize.release import release
from bucketize.save.container import File, write
from bucketize.table import shortened
from bucketize.tune import api as entry
from bucketize.tune import recorder
from bucketize.types import Symbol
from dispatchers import log_dispatcher

Run = Callable[..., Result]
N = Symbol("N", 1, 8)


COMMANDS = sorted(main.commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: main {command}")
    assert f"Examples:\n    bucketize {command}" in result.output, result.output


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"analyze", "demo"}))
def test_the_list_of_commands_has_whole_sentences(command: str) -> None:
    assert re.fullmatch(r"[A-Z].*\w\.", main.commands[command].get_short_help_str(limit=61))


def test_zoo_lists_and_writes(run: Run, tmp_path: Path) -> None:
    assert json.loads(run("zoo", "--json").output)["mlp"] == {"N": [1, 1024]}
    assert run("zoo").output.startswith("mlp          N in [1, 1024]")
    assert run("zoo", "mlp", "-o", "m.onnx").output == "wrote m.onnx\n"
    assert (tmp_path / "m.onnx").stat().st_size > 1_000_000


def test_the_cache_is_shown_and_pruned(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path / "kernels"))
    assert run("cache").stdout == f"{tmp_path}/kernels: 0 kernels, 0.0 MiB\n"
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "k_add_0.o").write_bytes(bytes(2**20))
    kept("forest", lambda: bytes(2**21))
    shown = run("cache", "--prune", "1").stdout
    assert "1 kernels, 1.0 MiB, 2.0 MiB of other things" in shown
    facts = json.loads(run("cache", "--prune", "0", "--json").stdout)
    assert (facts["kernels"], facts["bytes"], facts["removed"]) == (0, 0, 1)
    assert facts["other_bytes"] == 0


def test_the_machine_is_measured_and_shown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path / "kernels"))
    monkeypatch.setattr(
        "bucketize.inspect.calibrate.calibrate", lambda its: speeds(machine_of(its))
    )
    result = run("calibrate", "--show")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no calibration of ")
    assert result.stderr.endswith("; run `bucketize calibrate`\n")
    lines = run("calibrate").stdout.splitlines()
    spread = "half of the rounds within 5% of the best"
    assert lines[1] == f"measured 2026-01-01T00:00:00+00:00; {spread}; cores like Intel's"
    assert lines[2].split() == ["alone", "all", "2"]
    assert lines[3] == "ghz          2.98        4  GHz"
    assert len(lines) == 3 + len(UNITS) == 3 + len(fields(Speed))
    assert run("calibrate", "--show").stdout.splitlines() == lines
    assert json.loads(run("calibrate", "--show", "--json").stdout)["alone"] == asdict(TYPICAL)


def speeds(machine: str) -> Calibration:
    when = "2026-01-01T00:00:00+00:00"
    return Calibration(machine, TYPICAL, replace(TYPICAL, ghz=4.0), "Intel", 2, 0.05, when)


def test_dispatchers_are_listed(run: Run) -> None:
    listed = {row["name"]: row for row in json.loads(run("dispatchers", "--json").output)}
    assert listed.keys() >= {"exact", "log", "uniform"}
    assert listed["log"]["options"] == {"base": 2, "low": 1, "high": None}
    text = run("dispatchers", "--dim", "N=1..").output
    assert "N in [1, ...]: 1 2..3 4..7" in text
    of_eights = run("dispatchers", "--dim", "S=8..30:8").output
    assert "S in [8, 24], a multiple of 8: 8..15 16..23 24" in of_eights
    assert "exact_dispatcher needs sizes=..." in text
    assert "FILE.csv, FILE.json, FILE.parquet, FILE.yaml, FILE.yml  " in text
    for key in ("`intervals: {", "`profiles: [{", "`traffic: {"):
        assert key in text
    assert "Raises" not in text


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["run", "-d", "lgo"], "no dispatcher named 'lgo'"),
        (["tune", "--log", "t.csv", "-d", "none", "-d", "lgo"], "no dispatcher named 'lgo'"),
        (["show", "-d", "r.txt"], "r.txt: a file that holds a dispatcher ends in .csv, .json, "),
        (["compile", "-d", "none.yaml"], "cannot read none.yaml: No such file"),
        (["tune", "--log", "full/t.csv"], "full is not writable"),
        (["tune", "--log", "full/new/t.csv"], "full is not writable"),
        (["tune", "--log", "old.csv"], "old.csv' is not writable"),
        (["compile", "-o", "full/net.bkt"], "full is not writable"),
        (["compile", "-o", "/proc/net.bkt"], "/proc is not writable"),
        (["tune", "--log", "/proc/t.csv"], "/proc is not writable"),
        (["tune", "--log", "/proc/version"], "/proc is not writable: locks stand beside a log"),
        (["run", "--log", "full"], "'full' is a directory"),
        (["run", "-o", "/dev/null"], "/dev/null: it is a device or a pipe, no file"),
        (["compile", "-o", "/dev/null"], "/dev/null: it is a device or a pipe, no file"),
        (["optimize", "--traffic", "zoo:traffic/chunks", "-o", "/dev/null"], "a device or a pipe"),
    ],
)
def test_paths_and_dispatchers_are_looked_at_before_the_model(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], message: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "old.csv").touch()
    can = os.access

    def access(path: str | Path, mode: int) -> bool:  # root may write anywhere
        denied = mode & os.W_OK and Path(path).name in ("full", "old.csv")
        return not denied and can(path, mode)

    monkeypatch.setattr(os, "access", access)
    name, *options = command
    result = run(name, "no.onnx", *options)  # of which nothing is said
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_file_that_is_compiled_into_the_directory_needs_a_directory_to_write(
    run: Run, net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "error: Invalid value: . is not writable" in run("compile", net).stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["zoo", "nope"], "error: no zoo model named 'nope'; known: bert-base,"),
        (
            ["zoo", "mlp", "-o", "no/where.onnx"],
            "error: Invalid value for '-o' / '--output': there is no directory no",
        ),
        (["dispatchers", "--dim", "N"], "'N' is no bound; write N=1..32, N=1.., N=8 or N=8..64:8"),
        (["dispatchers", "--dim", "N=4..2"], "'N=4..2' is empty: 4 exceeds 2"),
    ],
)
def test_errors_exit_with_2(run: Run, args: list[str], message: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


@pytest.mark.parametrize(
    ("args", "errors"),
    [
        (["zoo", "--nope"], ["error: No such option '--nope'.", "  see main zoo --help"]),
        (["tune", "m"], ["error: Missing option '--log'.", "  see main tune --help"]),
        (["nope"], ["error: No such command 'nope'.", "  see main --help"]),
        (["cache", "--prune", "x"], None),
        (["analyze", "t.csv", "--model", "m"], None),
        (["zoo", "nope"], None),
        (["run", "no.onnx"], None),
        (["run", "zoo:mlp", "--input", "data=no.npy", "--at", "N=1"], None),
    ],
)
def test_all_errors_have_one_form(run: Run, args: list[str], errors: list[str] | None) -> None:
    result = run(*args)
    assert result.exit_code == 2
    lines = result.stderr[result.stderr.index("error: ") :].splitlines()  # after progress
    assert lines[: len(errors or ())] == (errors or [])
    assert all(line.startswith("  ") for line in lines[1:])


def test_without_a_command_there_is_help(run: Run) -> None:
    result = run()
    assert result.exit_code == 2
    assert "Usage: main" in result.output
    assert "Examples:" in result.output


@pytest.mark.filterwarnings("always")
def test_a_warning_is_told_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object) -> None:
        for text in ("a log is torn", "a log is torn", "another"):
            warnings.warn(text, stacklevel=1)

    monkeypatch.setattr(main.commands["cache"], "callback", lambda **_: warn())
    assert run("cache").stderr == "warning: a log is torn\nwarning: another\n"


def test_an_interrupt_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main.commands["cache"], "callback", interrupt)
    result = run("cache")
    assert (result.exit_code, result.stderr.split()) == (130, ["interrupted"])


def test_an_interrupt_while_it_loads_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-m", "bucketize", "zoo"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_debug_shows_the_traceback(run: Run) -> None:
    done = run("--debug", "zoo", "nope\x1b[31m")
    assert done.exit_code == 2
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert "UnknownNameError: no zoo model named 'nope\\x1b[31m'" in done.stderr


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
    text = run("show", net, "--dim", "N=1..5", "-d", "log").output
    before, decisions, clones, after = text.split("\n# ")[:4]
    assert "%0 = matmul(%x, const[0]: float32[16, 8]) : float32[N, 8]" in before
    assert decisions == (
        "decisions\nif N < 2:\n  main[N=1]\nelse:\n"
        "  if N < 4:\n    main[N=2..3]\n  else:\n    main[N=4..5]\n"
    )
    assert clones == "clones\nmain[N=1]\nmain[N=2..3]\nmain[N=4..5]\n"
    assert "def @main[N=1](%x: float32[1, 16]) -> float32[1, 8]" in after
    assert "fused(" in after
    assert text.endswith("\n\nmain[N=1] is 1 of 3 clones; --function NAME shows another\n")


def test_show_has_no_empty_sections_and_no_hint_that_helps_nobody(run: Run, net: str) -> None:
    heads = re.findall("(?m)^# .*", run("show", net).output)
    assert heads == ["# before", "# after", "# arrangements"]
    split = ("show", net, "--dim", "N=1..5", "-d", "log")
    for told in (
        run("show", net),
        run(*split, "--section", "clones"),
        run(*split, "--function", "main[N=1]"),
        run(*split[:2], "-d", "oracle", "--at", "N=3", "--no-fallback"),
    ):
        assert told.exit_code == 0
        assert "--function NAME" not in told.output


def test_show_prints_a_function_after_a_pass(run: Run, net: str) -> None:
    shown = run("show", net, "--dim", "N=1..5", "-d", "log", "--after", "fuse").stdout
    assert re.findall("(?m)^# .*", shown) == ["# after fuse, run 1"]
    assert "def @main[N=1](%x: float32[1, 16]) -> float32[1, 8]" in shown
    assert "fused(" in shown
    folded = run("show", net, "--after", "dead_code").stdout  # of simplify, of lower, at its end
    assert re.findall("(?m)^# .*", folded) == [f"# after dead_code, run {i}" for i in (1, 2, 3)]
    assert "fused(" not in folded
    wrong = run("show", net, "--after", "fold_iff")
    assert wrong.exit_code == 2
    told = wrong.stderr.removeprefix("error: no pass named 'fold_iff'; known: ").split("; ")
    assert {"fold_if", "hoist", "sink_views", "layout", "fuse"} <= set(told[0].split(", "))
    assert told[1] == "did you mean 'fold_if'?\n"


def test_show_after_a_pass_says_why_a_clone_is_not_legal(run: Run) -> None:
    graph = "(float[1, 1, H, 8] x) => (y) <float[1, 1, 3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> "
    onnx.save(parse(graph + "{ y = Conv(x, w) }"), "net.onnx")
    Path("cuts.yaml").write_text("buckets: [{H: [1, 2]}, {H: [2, 3]}]")
    shown = run("show", "net.onnx", "--dim", "H=1..2", "-d", "cuts.yaml", "--after", "cse")
    assert shown.exit_code == 2
    assert shown.stderr.startswith("error: a window of 3")


@pytest.mark.parametrize("option", ["--json", "--explain-dynamic", "--section=after"])
def test_show_after_a_pass_prints_nothing_else(run: Run, net: str, option: str) -> None:
    told = run("show", net, "--after", "cse", option)
    name = option.partition("=")[0]
    assert told.exit_code == 2
    assert f"error: --after prints nothing else: {name} prints something else\n" in told.stderr


def test_show_prints_the_code_of_a_kernel(run: Run, net: str) -> None:
    explained = run("run", net, "--at", "N=3", "--explain").output.splitlines()
    name = explained[2].split("  ")[0]
    head = r"k_matmul_\w+: matmul mr=\d+ .*\[default\]\n"
    ir = run("show", net, "--kernel", name).output
    assert re.match(f"; {head}; ModuleID", ir)
    assert "define void @k_matmul_" in ir
    its = ir.split()[1].rstrip(":")
    assembly = run("show", net, "--kernel", its, "--as", "asm").output
    assert re.match(f"; {head}", assembly)
    assert f"\n{its}:" in assembly
    assert "\n        retq\n" in assembly or "\n        ret\n" in assembly
    source = run("show", net, "--kernel", name, "--as", "source").output
    assert re.match(f"# {head}", source)
    assert "\nkernel = vector_kernel(__name__, emit, parameters)\n" in source
    wrong = run("show", net, "--dim", "N=1..5", "-d", "log", "--kernel", "Gemm")
    assert wrong.exit_code == 2
    assert f"error: no kernel in main[N=1] named 'Gemm'; known: {name}" in wrong.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kernel", "x", "--after", "cse"], "--kernel prints nothing else: --after prints"),
        (["--kernel", "x", "--json"], "--kernel prints nothing else: --json prints"),
        (["--as", "asm"], "there is no --kernel: --as is for the code of a kernel"),
    ],
)
def test_show_of_a_kernel_is_asked_for_alone(
    run: Run, net: str, options: list[str], message: str
) -> None:
    told = run("show", net, *options)
    assert told.exit_code == 2
    assert f"error: {message}" in told.stderr


def test_convolutions_are_as_precise_as_was_asked(run: Run) -> None:
    graph = "(float[1, 16, 58, 58] x) => (y) <float[16, 16, 3, 3] w> { y = Conv(x, w) }"
    model = parse(graph)
    weights = np.ones((16, 16, 3, 3), np.float32)
    model.graph.ClearField("initializer")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, "conv.onnx")
    assert "precision" not in run("show", "conv.onnx").output
    exact = run("show", "conv.onnx", "--precision", "exact")
    assert "precision='exact'" in exact.output
    assert "'high' is not one of" in run("show", "conv.onnx", "--precision", "high").stderr


def test_weights_are_as_short_as_was_asked(run: Run, net: str) -> None:
    assert "weights=" not in run("show", net).output
    assert "weights='bfloat16'" in run("show", net, "--weights", "bfloat16").output
    assert "'int4' is not one of" in run("show", net, "--weights", "int4").stderr


def test_a_program_does_not_overwrite_the_log_of_its_trials(run: Run, net: str) -> None:
    Path("t.csv").write_text("N\n3\n")
    args = ["optimize", net, "--traffic", "t.csv", "--seconds", "1"]
    for more in (["-o", "fresh.csv"], ["-o", "f.bkt", "--log", "f.bkt"]):
        result = run(*args, *more)
        assert result.exit_code == 2
        assert f"the program and the log of its trials cannot both be {more[1]}" in result.stderr
        assert not Path(more[1]).exists()


def test_a_full_disk_is_told_in_a_line(run: Run, net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("bucketize.cli.command.run.save", full)
    result = run("run", net, "--at", "N=3", "-o", "y.npz")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == "error: [Errno 28] No space left on device"


def test_a_request_that_is_there_twice_is_refused(run: Run, net: str) -> None:
    x = np.zeros((1, 16), np.float32)
    np.savez("r.npz", **{"0/x": x, "00/x": x})
    result = run("run", net, "--many", "r.npz")
    assert result.exit_code == 2
    assert "r.npz: input 'x' of request 0 is there twice" in result.stderr


def test_a_number_is_the_size_of_a_symbol_that_is_called_as_an_input_is(run: Run) -> None:
    onnx.save(parse("(float[x, y] x) => (float[x, y] z) { z = Relu(x) }"), "x.onnx")
    result = run("run", "x.onnx", "--at", "x=2,y=3")
    assert result.exit_code == 0, result.stderr
    assert "[[2, 3]]" in result.stdout


def test_show_abridges_very_many_buckets(run: Run, net: str) -> None:
    options = ["show", net, "--dim", "N=1..10001", "-d", "exact", "--limit", "10001"]
    text = run(*options, "--section", "decisions", "--section", "clones").output
    decisions, clones = text.split("\n\n")
    assert clones.splitlines() == [
        "# clones",
        *(f"main[N={i}]" for i in (1, 2, 3)),
        "... (clones left out: 9,995)",
        *(f"main[N={i}]" for i in (9999, 10000, 10001)),
    ]
    assert decisions.count("main[") == 6
    assert "    ... (leaves left out: 1,250)\n" in decisions
    assert len(json.loads(run(*options, "--json").output)["clones"]) == 10001


def test_show_tells_scripts(run: Run, net: str) -> None:
    options = ["--dim", "N=1..", "-d", "log:high=2", "--no-fallback", "--json"]
    told = json.loads(run("show", net, *options).output)
    assert told == {
        "inputs": {"x": "float32[N, 16]"},
        "outputs": ["float32[N, 8]"],
        "symbols": {"N": [1, None]},
        "whole": [],
        "clones": ["main[N=1]", "main[N=2..]"],
        "decisions": ["if N < 2:", "  main[N=1]", "else:", "  main[N=2..]"],
    }


def test_show_explains_what_stays_dynamic(run: Run, net: str, tmp_path: Path) -> None:
    nodes = (
        "[sum] s = ReduceSum(x, a) [find] i = NonZero(s) [row] r = Gather<axis = 0>(i, z) "
        "[lay] y = Reshape(s, t) [cut] w = Slice(x, r, e, z1, z1) [part] v = Compress(c, c) "
        "[size] n = Shape(i) [fill] u = ConstantOfShape(n)"
    )
    constants = "<int64 z = {0}, int64[1] z1 = {1}, int64[1] e = {9}, int64[2] t = {-1, 3}>"
    path = str(tmp_path / "dynamic.onnx")
    graph = f"(float[N, 6] x, int64[1] a, bool[K] c) => (y, w, v, u) {constants} {{ {nodes} }}"
    onnx.save(parse(graph), path)
    assert run("show", path, "--explain-dynamic").output.splitlines() == [
        "dyn.reduce_sum (node sum): axes: input 'a' of the model, int64[1]; "
        "unknown: axis 0 of float32[?, ?], axis 1 of float32[?, ?]",
        "nonzero (node find): x: how many of its elements hold decides; "
        "unknown: axis 1 of int64[2, ?]",
        "dyn.reshape (node lay): x: it is float32[?, ?]; unknown: axis 0 of float32[?, 3]",
        "dyn.strided_slice (node cut): begin: made by gather (node row), whose elements are not "
        "followed as dims; unknown: axis 0 of float32[?, ?], axis 1 of float32[?, ?]",
        "compress (node part): mask: how many of its elements hold decides; "
        "unknown: axis 0 of bool[?]",
        "dyn.full (node fill): shape: made by shape_of (node size), known as [2, ?]; "
        "unknown: axis 1 of float32[2, ?]",
    ]
    told = json.loads(run("show", path, "--explain-dynamic", "--json").stdout)
    assert told[0] == {
        "op": "dyn.reduce_sum",
        "node": "sum",
        "operand": "axes",
        "reason": "input 'a' of the model, int64[1]",
        "extents": "axis 0 of float32[?, ?], axis 1 of float32[?, ?]",
    }
    told = run("show", net, "--explain-dynamic").output
    assert told == "every operator is static, every extent has a name or a size\n"


def test_show_takes_the_sizes_of_the_oracle(run: Run, net: str) -> None:
    told = json.loads(run("show", net, "-d", "oracle", "--at", "N=3", "--json").stdout)
    assert told["clones"] == ["main[at0:N=3]"]
    text = run("show", net, "-d", "oracle", "--at", "N=3", "--section", "after").stdout
    assert "float32[3, 16]" in text


def test_explained_extents_and_nodes_are_text(run: Run) -> None:
    nodes = "[find] f = NonZero(x) [cast] c = Cast<to = 1>(f) [e] y = Exp(c)"
    onnx.save(parse(f"(float[N] x) => (y) {{ {nodes} }}"), "net.onnx")
    (row,) = json.loads(run("run", "net.onnx", "--at", "N=3", "--explain", "--json").stdout)
    steps = [(step["name"], step["shape"]) for step in row["explanation"]["steps"]]
    assert {name for name, _ in steps[:-1]} == {"find"}
    assert steps[-1] == ("cast+e", [1, "any1"])


def test_a_limit_on_weights_is_told_in_bytes(run: Run) -> None:
    failed = run("compile", "zoo:mlp", "--weight-bytes", "1000", "-o", "net.bkt")
    assert failed.exit_code == 2
    assert "error: weight_bytes=1000 is too few: " in failed.stderr
    assert not Path("net.bkt").exists()
    least = failed.stderr.partition(" take ")[2].split()[0]
    assert run("compile", "zoo:mlp", "--weight-bytes", least, "-o", "net.bkt").exit_code == 0


@pytest.mark.filterwarnings("default")
def test_clones_that_are_not_legal_are_passed_by(run: Run) -> None:
    graph = "(float[N, 1, H, 8] x) => (y) <float[1, 1, 3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> "
    onnx.save(parse(graph + "{ y = Conv(x, w) }"), "net.onnx")  # legal from H=3 on
    Path("cuts.yaml").write_text("buckets: [{H: [1, 2]}, {H: [2, 4]}, {H: [4, 9]}]")
    options = ("net.onnx", "--dim", "H=1..8", "--dim", "N=1", "-d", "cuts.yaml")
    done = run("compile", *options, "-o", "net.bkt")
    assert (
        "warning: 1 of 3 clones refuse every run: main[H=1] is not legal: a window of 3 (dilated "
        "by 1) over 1+0+0, in node 'y'; bounds (bounds={...}, --dim SYMBOL=LO..HI) leave such sizes"
    ) in " ".join(done.stderr.split())
    assert done.stdout.endswith("run it: bucketize run net.bkt --at H=3\n")
    assert run("run", "net.bkt", "--at", "H=3").exit_code == 0
    bound = json.loads(run("compile", "net.onnx", "--dim", "H=1..2", "--json").stdout)
    assert bound["run"] is None
    assert (
        'illegal(reason="main[H=1] is not legal: a window of 3'
        in run("show", *options, "--section", "after").stdout
    )
    shown = run("show", "net.onnx", "--dim", "H=1", "--section", "after")
    assert shown.exit_code == 2
    assert shown.stderr.startswith("error: a window of 3")


@pytest.mark.parametrize("command", ["show", "compile"])
def test_sizes_that_nothing_asks_for_are_refused(run: Run, net: str, command: str) -> None:
    result = run(command, net, "-d", "log", "--at", "N=3")
    assert result.exit_code == 2
    assert "--at is for -d oracle" in result.stderr


def test_an_explanation_is_kept_for_scripts(run: Run, net: str) -> None:
    (row,) = json.loads(run("run", net, "-d", "log", "--at", "N=3", "--explain", "--json").stdout)
    told = row["explanation"]
    assert told["path"] == ["main", "main[N=2..3]"]
    (step,) = told["steps"]
    assert step["op"] == "matmul+relu"
    assert step["shape"] == [3, 8]
    assert step["schedule"]
    assert step["why"] == "default"


def test_an_explanation_names_nodes_and_tells_what_repeats_once(run: Run) -> None:
    layers = "".join(
        f"[mul{i}] m{i} = MatMul(x{i}, w) [soft{i}] s{i} = Softmax(m{i}) "
        f"[turn{i}] x{i + 1} = Transpose<perm = [1, 0]>(s{i}) "
        for i in range(4)
    )
    ones = ", ".join(["1"] * 64)
    nodes = f"(float[8, 8] x0) => (y) <float[8, 8] w = {{{ones}}}> {{ {layers} [end] y = Exp(x4) }}"
    onnx.save(parse(nodes), "net.onnx")
    told = bucketize.compile(bucketize.from_onnx("net.onnx")).explain()
    block = max(told.blocks, key=lambda each: each.saved)
    assert block.times >= 3
    assert len(told.rows) == len(told.steps) - block.saved
    shown = [row for row in told.rows if row["times"]]
    assert [row["name"] for row in shown] == [
        step["name"] for step in told.steps[block.first : block.first + block.length]
    ]
    taken = told.seconds[block.first :: block.length][: block.times]
    assert shown[0]["model us"] == pytest.approx(1e6 * sum(taken))
    note = f"{len(told.steps)} kernels; a block of rows with {block.times}x comes {block.times} "
    assert note in run("run", "net.onnx", "--explain").stdout
    (row,) = json.loads(run("run", "net.onnx", "--explain", "--json").stdout)
    assert [s["predicted_s"] for s in row["explanation"]["steps"]] == list(told.seconds)


def test_kernels_that_are_built_lazily_count(run: Run, net: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUCKETIZE_CACHE", str(tmp_path / "kernels"))
        said = run("run", net, "-d", "log", "--at", "N=3").stderr
    assert said.splitlines()[-1] == "1 kernels, 1 of them compiled now, 0 from the cache"


def test_run_checks_and_times(run: Run, net: str) -> None:
    result = run("run", net, "-d", "log", "--at", "N=1", "--at", "N=3", "--check", "--json")
    one, three = json.loads(result.stdout)
    assert one["executor"] == "graph"
    assert three["clone"] == "main[N=2..3]"
    assert three["outputs"] == [[3, 8]]
    assert three["max_rel_err"] < 1e-5
    text = run("run", net, "-d", "log", "--at", "N=3", "--explain")
    assert "main -> main[N=2..3] (vm executor)" in text.stdout
    mod = bucketize.dispatch(bucketize.from_onnx(net), log_dispatcher)
    told = str(bucketize.compile(mod, lazy=True).explain(N=3))
    assert text.stdout.startswith(f"{told}\n")
    assert re.search(
        r"(?m)^name +op +shape +kernel +model us +schedule +why$", told
    )  # no strip: there is none
    assert "on defaults" in text.stderr


def test_run_takes_arrays_and_gives_arrays(run: Run, net: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 16), np.float32))
    run("run", net, "--input", "x=x.npy", "-o", "y.npz", "--repeat", "1")
    assert np.load(tmp_path / "y.npz")["y"].shape == (2, 8)


def test_results_may_have_any_names(tmp_path: Path) -> None:
    results = {"file": np.ones(2), "/fc/add:0": np.asarray(3, np.int64)}
    save_results(tmp_path / "r.npz", results)
    found = np.load(tmp_path / "r.npz")
    assert list(found) == list(results)
    assert all((found[name] == value).all() for name, value in results.items())


# --- saved programs ---


@pytest.fixture
def program(run: Run, net: str) -> str:
    """The small model, compiled into a file."""
    assert run("compile", net, "--dim", "N=2..8", "-d", "log", "-o", "net.bkt").exit_code == 0
    return "net.bkt"


def test_compile_says_what_it_wrote_and_how_to_run_it(run: Run, net: str, tmp_path: Path) -> None:
    result = run("compile", net, "--dim", "N=2..8", "-d", "log")
    size = (tmp_path / "net.bkt").stat().st_size
    assert re.fullmatch(
        rf"net.bkt: 2 clones, \d kernels, {size / 2**20:.1f} MiB\n"
        r"  input x: float32\[N, 16\]\n"
        r"  output y: float32\[N, 8\]\n"
        r"run it: bucketize run net.bkt --at N=2\n",
        result.stdout,
    )
    assert "2 kernel calls" in result.stderr
    whole = run("compile", net, "-o", "whole.bkt").stdout
    assert re.match(r"whole.bkt: \d kernels, ", whole)  # and no clones
    assert run(*result.stdout.splitlines()[-1].split()[3:]).exit_code == 0


def test_compile_tells_scripts(run: Run, net: str, tmp_path: Path) -> None:
    told = json.loads(run("compile", net, "-d", "log:low=4,high=4", "-o", "a.bkt", "--json").stdout)
    assert told.pop("kernels") > 0
    assert told == {
        "path": "a.bkt",
        "clones": 2,
        "bytes": (tmp_path / "a.bkt").stat().st_size,
        "inputs": {"x": "float32[N, 16]"},
        "outputs": {"y": "float32[N, 8]"},
        "symbols": {"N": [0, None]},
        "header": None,
        "run": "bucketize run a.bkt --at N=1",
    }
    static = json.loads(run("compile", net, "--dim", "N=3", "-o", "b.bkt", "--json").stdout)
    assert static["run"] == "bucketize run b.bkt"
    lone = json.loads(run("compile", net, "-d", "oracle", "--at", "N=7", "--json").stdout)
    assert lone["run"] == "bucketize run net.bkt --at N=7"


def test_compile_writes_libraries(run: Run, net: str, tmp_path: Path) -> None:
    """By what -o ends with, or by --format."""
    told = json.loads(run("compile", net, "-d", "log:low=4,high=4", "-o", "a.so", "--json").stdout)
    assert (told["header"], told["run"]) == ("a.h", None)
    assert told["bytes"] == (tmp_path / "a.so").stat().st_size
    assert (
        run("compile", net, "--format", "so").stdout.splitlines()[-1] == "call it: net.h says how"
    )
    assert (tmp_path / "net.so").exists()
    parts = json.loads(run("compile", net, "--format", "c", "-o", "parts", "--json").stdout)
    assert parts["header"] == "parts/parts.h"
    assert parts["bytes"] == sum(f.stat().st_size for f in (tmp_path / "parts").iterdir())
    assert run("compile", net, "--format", "c", "-o", "parts").exit_code == 0  # written again
    refused = run("compile", net, "-o", "parts")
    assert refused.exit_code == 2
    assert "parts: Is a directory" in refused.stderr


def test_compiling_counts_functions_then_kernels(
    run: Run, net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int, int]] = []

    @contextmanager
    def bar(title: str) -> Iterator[Tell]:
        yield lambda *at: told.append(at)

    monkeypatch.setattr("bucketize.cli.model.progress_bar", bar)
    monkeypatch.setattr("bucketize.kernel.build.is_built", lambda *_: False)
    run("compile", net, "--dim", "N=2..3", "-d", "log")
    count = 1 + len(core(1))
    assert told[:2] == [("deciding main", 0, 2), ("deciding main[N=2..3]", 1, 2)]
    assert told[2] == ("packing weights", 0, 1)
    assert told[3][0] == "kernels"
    kernels = [at for at in told if at[0].startswith("kernel ")]
    assert [at[1:] for at in kernels] == [(i + 1, count) for i in range(told[3][1], count)]


def test_a_saved_program_runs(run: Run, program: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((5, 16), np.float32))
    files = ("--input", "x=x.npy", "-o")
    (row,) = json.loads(run("run", program, *files, "a.npz", "--rebuild", "--json").stdout)
    assert row["clone"] == "main[N=4..8]"
    assert row["outputs"] == [[5, 8]]
    run("run", "net.onnx", *files, "b.npz")
    np.testing.assert_array_equal(
        np.load(tmp_path / "a.npz")["y"], np.load(tmp_path / "b.npz")["y"]
    )
    shown = run("run", program, "--at", "N=3", "--explain")
    assert "main -> main[N=2..3] (vm executor)" in shown.stdout
    assert shown.stderr == ""  # nothing was compiled


def test_a_program_of_elsewhere_is_rebuilt_if_asked(run: Run, program: str, tmp_path: Path) -> None:
    file = File(tmp_path / program)
    header = {**file.header, "bucketize": "0.0.1"}
    blobs = [bytes(file.blob(i)) for i in range(len(header.pop("blobs")))]
    write(tmp_path / program, header, blobs)
    refused = run("run", program, "--at", "N=3")
    assert refused.exit_code == 2
    assert "net.bkt is of bucketize 0.0.1" in refused.stderr
    rebuilt = run("run", program, "--at", "N=3", "--rebuild")
    assert rebuilt.exit_code == 0
    assert "2 kernel calls" in rebuilt.stderr


def test_an_explanation_fits_the_terminal(
    run: Run, net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "terminal_width", lambda: 36)
    told = run("run", net, "-d", "log", "--dim", "N=1..4", "--at", "N=3", "--explain").stdout
    assert "N=3: main -> main[N=2..4] (vm\n  executor)\n" in told
    assert max(map(len, told.splitlines())) <= 36


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--dim", "N=3"], "net.bkt is a saved program: --dim was decided when it was compiled"),
        (["--weights", "int8"], "saved program: --weights was decided when it was compiled"),
        (["--precision", "exact"], "saved program: --precision was decided when it was compiled"),
        (["-d", "log"], "saved program: --dispatcher was decided when it was compiled"),
        (["--policy", "exact"], "saved program: --policy was decided when it was compiled"),
        (["--no-fallback"], "saved program: --fallback was decided when it was compiled"),
        (["--log", "net.bkt"], "saved program: --log was decided when it was compiled"),
        (["--threads", "2"], "saved program: --threads was decided when it was compiled"),
        (["--check"], "--check needs the model, of which it holds the kernels only"),
        ([], "the size of N is missing"),
        (["--at", "N=9"], "expected N in [2, 8], got 9"),
        (["--at", "M=9"], "no input or symbol named 'M'; known: N, x"),
    ],
)
def test_what_a_saved_program_does_not_take(
    run: Run, program: str, args: list[str], message: str
) -> None:
    result = run("run", program, *args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_not_every_command_takes_a_saved_program_and_only_that_is_rebuilt(
    run: Run, program: str
) -> None:
    assert (
        "net.bkt is a saved program; `bucketize run` and `profile` take it"
        in run("show", program).stderr
    )
    refused = run("run", "net.onnx", "--rebuild")
    assert refused.exit_code == 2
    assert "net.onnx is no saved program: --rebuild is for those" in refused.stderr
    assert run("compile", "net.onnx", "-o", "no/where.bkt").exit_code == 2


SCRIPT = """
import sys
from bucketize.cli.group import main
main(["run", "net.bkt", "--at", "N=3", "--explain", "-o", "y.npz"], standalone_mode=False)
print(sorted(m for m in ("numba", "onnx", "pandas", "skopt", "filelock") if m in sys.modules))
"""


def test_running_a_saved_program_pays_for_no_compiler(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_log_without_trials_is_told_of(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").touch()
    assert run("analyze", "t.csv").stdout == "t.csv holds no trials\n"


@pytest.mark.filterwarnings("default:.*its verdicts on this model are for")
def test_tune_then_analyze(run: Run, net: str, tmp_path: Path) -> None:
    args = ("tune", net, "-d", "exact", "--dim", "N=1..2", "--log", "t.csv")
    args = (*args, "--until", "0", "--trials", "2")  # whatever is expected
    told = json.loads(run(*args, "--json").stdout)
    assert told["trials"] == 4
    assert told["failed"] == 0
    assert [row["function"] for row in told["best"]] == ["main[N=1]", "main[N=2]"]
    again = run(*args)
    nothing = r"0 trials in \d+ s, 0 failed, 0 measurements to confirm; t.csv has 4 of this model"
    assert re.search(nothing, again.stderr)
    assert again.stdout.count("main[N=") == 4  # its tables again
    more = json.loads(run(*args[:-1], "3", "--json").stdout)
    assert (more["trials"], more["trials_in_log"]) == (2, 6)
    assert [row["tried"] for row in more["best"]] == [3, 3]  # the whole log's
    best = json.loads(run("analyze", "t.csv", "--json").output)
    assert [row["tried"] for row in best] == [3, 3]
    header, *_ = run("analyze", "t.csv").stdout.splitlines()
    shown = "function layer latency gflops relative schedule tried failed op workload"
    assert header.split() == shown.split()
    for line, row in zip(run("analyze", "t.csv").stdout.splitlines()[1:], best, strict=True):
        assert f"  {shortened(row['layer'])}  " in line
    course = run("analyze", "t.csv", "--frame", "progress", "--csv", "p.csv", "--plot", "p.png")
    assert course.output.startswith("host_cpu")
    assert (tmp_path / "p.csv").read_text().startswith("host_cpu")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    chosen = run("run", net, "-d", "exact", "--dim", "N=1..2", "--log", "t.csv", "--at", "N=2")
    assert ", 0 on defaults\n" in chosen.stderr  # the log speaks of the one, by the clock
    wider = run("run", net, "-d", "exact", "--dim", "N=1..3", "--log", "t.csv", "--at", "N=2")
    other = "t.csv: its verdicts on this model are for N=1..2, not for N=1..3, so none is used"
    assert wider.stderr.count(other) == 1
    assert other not in chosen.stderr


@pytest.mark.filterwarnings("default")
def test_tuning_counts_its_tasks_in_a_shared_log(
    run: Run, net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ("--log", "t.csv", "--until", "0", "--trials", "2")
    run("tune", net, "-d", "log", "--dim", "N=1..4", *log)
    shared = run("tune", net, "--dim", "N=2..4", *log)
    assert re.search(r"^0 trials in \d+ s, 0 failed, .*; t.csv has 6 of this", shared.stderr, re.M)
    assert shared.stdout.splitlines()[1].startswith("main ")  # of the clone N=2..4
    renamed = Path("net.onnx").rename("other.onnx")
    assert json.loads(run("tune", str(renamed), "--dim", "N=2..4", *log, "--json").stdout)["best"]
    before = searched("t.csv")
    append_ = recorder.append

    def beside(path: Path, trial: Trial) -> None:
        """Another session writes at the same time."""
        append_(path, trial)
        append_(path, replace(trial, run_id="other"))

    monkeypatch.setattr(recorder, "append", beside)
    more = run("tune", str(renamed), "--dim", "N=2..4", *log[:-1], "3", "--json")
    assert "another session is at work on t.csv" in more.stderr
    told = json.loads(more.stdout)
    assert (told["trials"], told["trials_in_log"]) == (3, 9)
    assert searched("t.csv") == before + 2 * 3


def searched(log: str) -> int:
    """How many rows of a log do not confirm others."""
    return int((load(log)["source"] != "confirm").sum())


@pytest.mark.filterwarnings("default")
def test_a_log_of_other_threads_is_told_of(run: Run, net: str) -> None:
    run("tune", net, "--dim", "N=1..2", "--log", "t.csv", "--trials", "2")
    for command in (["run", net, "--at", "N=2"], ["compile", net]):
        result = run(*command, "--dim", "N=1..2", "--log", "t.csv", "--threads", "2")
        assert result.exit_code == 0
        (warning,) = re.findall("warning: (.*)", result.stderr)
        n = len(load("t.csv"))
        assert warning == (
            f"t.csv: left out {n} of {n} trials, whose workloads were not measured with "
            f"threads=2 ({n} with threads=1); tune with threads=2, too"
        )
    run("tune", net, "--dim", "N=1..2", "--log", "t.csv", "--trials", "2", "--threads", "2")
    assert "warning" not in run(*command, "--dim", "N=1..2", "--log", "t.csv").stderr


@pytest.mark.slow
def test_who_interrupts_tuning_is_told_what_is_kept(net: str, tmp_path: Path) -> None:
    log = tmp_path / "t.csv"
    command = [sys.executable, "-m", "bucketize.cli", "tune", net, "-d", "log", "--log", str(log)]
    child = subprocess.Popen(
        [*command, "--dim", "N=1..4", "--until", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
    )
    while not log.exists() or log.read_bytes().count(b"\n") < 3:
        assert child.poll() is None, child.communicate()
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
    out, err = child.communicate()
    kept = log.read_bytes().count(b"\n") - 1
    assert child.returncode == 130, err
    assert re.match(r" *main\[N=(1|2\.\.4)\] ", out.splitlines()[1]), out
    told = rf"interrupted: (\d+) trials? in \d+ s, \d failed, (\d+) meas.*; {log} has (\d+) of"
    found = re.search(told, err)
    assert found is not None
    trials, confirmations, known = map(int, found.groups())
    assert kept - (trials + confirmations) in (0, 1)  # one that was written, but not yet counted
    assert trials - known in (0, 1)  # one that was counted, but not yet learnt
    assert err.endswith("the same command goes on from there\n")
    assert "Traceback" not in err


def test_the_trade_off_of_dispatchers(run: Run, net: str) -> None:
    bounds = ("--dim", "N=1..8")
    at = ("--at", "N=1", "--at", "N=5")
    run("tune", net, *bounds, "-d", "oracle", *at, "--log", "t.csv", "--trials", "1")
    args = ("t.csv", "--model", net, *bounds, "-d", "none", "-d", "log", *at)
    result = run("analyze", *args, "--json", "--plot", "p.svg", "--figure", "latency")
    assert "latency by that of oracle" in Path("p.svg").read_text()
    rows = {(row["dispatcher"], row["shape"]): row for row in json.loads(result.stdout)}
    names = ("untuned", "none", "log", "oracle")
    assert rows.keys() == {(name, shape) for name in names for shape in ("N=1", "N=5")}
    assert [rows[name, "N=1"]["clones"] for name in names] == [1, 1, 3, None]
    assert [rows[name, "N=1"]["searched"] for name in names[:3]] == [0, 0, 1]  # N=1 is a clone
    assert all(row["slowdown_q3"] >= row["slowdown"] > 0 for row in rows.values())


@pytest.mark.parametrize(
    ("command", "needs_none"),
    [
        ("run", False),
        ("profile", False),
        ("bench", False),
        ("analyze t.csv --model", False),
        ("tune --log t.csv", True),
        ("compile -d oracle", True),
        ("show -d oracle", True),
        ("export -o o.onnx -d oracle", True),
    ],
)
def test_sizes_are_asked_for_before_anything_is_compiled(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, needs_none: bool
) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        two (float[batch, seq] x, float[seq, 8] w) => (float[batch, 8] y) { y = MatMul(x, w) }
    """)
    onnx.save(model, tmp_path / "two.onnx")

    def never(*_: object, **__: object) -> None:
        pytest.fail("something is compiled")

    monkeypatch.setattr("bucketize.compiler.compile", never)
    for home in ("tradeoff", "cost"):
        monkeypatch.setattr(f"bucketize.analysis.{home}.compile", never)
    monkeypatch.setattr(entry, "opened", never)
    for given, got in (([], "none"), (["--at", "batch=2"], "{'batch': 2}"))[needs_none:]:
        result = run(*command.split(), "two.onnx", "--dim", "seq=4..8", *given)
        assert result.exit_code == 2
        assert f"is missing; got {got}\n" in result.stderr
        assert result.stderr.endswith("\n  give all of them, as in --at batch=1,seq=4\n")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run", "no.onnx"], "error: cannot read no.onnx: No such file or directory"),
        (["run", "net.onnx"], "the size of N is missing"),
        (["run", "net.onnx", "--at", "M=3"], "no input or symbol named 'M'; known: N, x"),
        (["run", "net.onnx", "--at", "3"], "'3' names no size; write N=4,H=224,W=224"),
        (["run", "net.onnx", "--at", "N=4,M=-3"], "'-3' is no size; write N=4,H=224,W=224"),
        (["run", "net.onnx", "--at", "N=3,N=5"], "'N=3,N=5' gives N two sizes"),
        (["run", "net.onnx", "--dim", "N=2", "--at", "N=3"], "N is held to 2, but given as 3"),
        (["run", "net.onnx", "--input", "x"], "'x' names no file; write INPUT=FILE.npy"),
        (["run", "net.onnx", "--input", "x=net.onnx"], "net.onnx holds no array in .npy format: "),
        (["run", "net.onnx", "--input", "x=nothing.npy"], "nothing.npy holds no array in .npy "),
        (["run", "net.onnx", "--input", "x=two.npz"], "two.npz holds no array in .npy format: "),
        (["run", "net.onnx", "--input", "x=huge.npy"], "huge.npy holds no array in .npy format: "),
        (["run", "net.onnx", "--at", f"N={10**20}"], f"no memory for a result of float32[{10**20}"),
        (["run", "net.onnx", "--input", "x=two.npy", "--at", "N=3"], "axis 0: expected N=3, got 2"),
        (["run", "net.onnx", "-d", "log:base=x", "--at", "N=3"], "base='x'"),
        (["run", "net.onnx", "-d", "lgo", "--at", "N=3"], "did you mean 'log'?"),
        (["run", "net.onnx", "-d", "log:base=1", "--at", "N=3"], "while log_dispatcher cuts axis"),
        (
            ["run", "net.onnx", "--log", "no.csv", "--at", "N=3"],
            "Invalid value for '--log': File 'no.csv' does not exist",
        ),
        (["show", "net.onnx", "--function", "main[N=7]"], "no function named 'main[N=7]'; known:"),
        (["show", "net.onnx", "-d", "oracle"], "the oracle has a clone for each --at"),
        (["tune", "net.onnx", "--log", "t.csv", "--trials", "0"], "expected at least 1, got 0"),
        (["analyze", "no.csv"], "cannot read the tuning log no.csv"),
        (["profile", "net.onnx"], "the size of N is missing"),
        (["profile", "net.onnx", "--rebuild"], "net.onnx is no saved program: --rebuild is"),
        (["bench", "net.onnx"], "the size of N is missing"),
        (["bench", "net.onnx", "--against", "tvm"], "no adapter for an engine named 'tvm'; known:"),
        (["bench", "net.onnx", "--against", "absent"], "absent is not installed: pip install it"),
        (["analyze", "net.onnx"], "net.onnx is no tuning log: its first line is no text, a log"),
        *(
            (["analyze", "t.csv", *given], f"nothing is measured: {given[0]} wants a model to mea")
            for given in (
                ["--dispatcher", "log"],
                ["--at", "N=3"],
                ["--policy", "exact"],
                ["--threads", "1"],
                ["--dim", "N=3"],
            )
        ),
        (
            ["analyze", "t.csv", "--model", "net.onnx", "--frame", "best"],
            "dispatchers are measured: --frame is for a log without --model",
        ),
        (
            ["analyze", "t.csv", "--figure", "progress"],
            "nothing is drawn: --figure wants a file to draw into: --plot",
        ),
        (["run", "net.onnx", "-o", "no/r.npz"], "there is no directory no"),
        (["run", "net.onnx", "-o", "."], "File '.' is a directory"),
        (["compile", "net.onnx", "-o", "no/p.bkt"], "there is no directory no"),
        (["profile", "net.onnx", "--csv", "no/p.csv"], "there is no directory no"),
        (["profile", "net.onnx", "--trace", "no/t.json"], "there is no directory no"),
        (["run", "net.onnx", "--input", "x=no.npy"], "error: no.npy: No such file or directory"),
        (["tune", "net.onnx", "--log", "t.csv", "--seconds", "0"], "0.0 is not in the range x>0"),
        (["tune", "net.onnx", "--log", "t.csv", "--seconds", "inf"], "expected a finite number"),
        (["bench", "net.onnx", "--at", "N=3", "--duration", "inf"], "expected a finite number"),
        (
            ["analyze", "t.csv", "--csv", "./t.csv"],
            "the frame would take the place of the log: --csv t.csv",
        ),
        (
            ["partition", "net.onnx", "--dim", "N=1..8", "-o", "p.csv"],
            "cannot write p.csv: buckets are YAML, and what ends in .csv is read as requests",
        ),
        (["compare", "net.onnx", "--at", "N=3", "--atol", "nan"], "finite number, got nan"),
        (["cache", "--prune", "nan"], "expected a finite number, got nan"),
        (
            ["analyze", "t.csv", "--frame", "worst"],
            "'worst' is not one of 'best', 'confirmed', 'failures'",
        ),
        (["analyze", "t.csv", "--plot", "p.xyz"], "p.xyz does not end in a picture's suffix: "),
        (["analyze", "t.csv", "--plot", "p"], "p does not end in a picture's suffix: "),
        (["analyze", "t.csv", "--plot", "no/p.png"], "there is no directory no"),
        (["analyze", "t.csv", "--csv", "no/p.csv"], "there is no directory no"),
        (
            ["analyze", "t.csv", "--plot", "p.svg", "--figure", "latency"],
            "without --model it is progress",
        ),
        (
            [
                *[
                    "analyze",
                    "t.csv",
                    "--plot",
                    "p.svg",
                    "--model",
                    "net.onnx",
                    "--figure",
                    "progress",
                ]
            ],
            "--figure progress: with --model it is trade-off or latency",
        ),
        (["analyze", "t.csv", "--model", "net.onnx"], "is missing; got none\n  give all of them"),
    ],
)
def test_errors_about_models_exit_with_2(
    run: Run, net: str, args: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = Engine("no_such_module", "it", lambda model, threads: pytest.fail("started"))
    monkeypatch.setitem(ENGINES, "absent", absent)
    Path("nothing.npy").touch()
    np.savez("two.npz", x=np.zeros(2))
    header = {"descr": "<f4", "fortran_order": False, "shape": (2**60,)}
    with Path("huge.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
    np.save("two.npy", np.ones((2, 16), np.float32))
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.stderr


# --- profiles ---


def test_a_profile_in_every_form(run: Run, net: str, roof: None, tmp_path: Path) -> None:
    at = ["--at", "N=3", "--at", "N=1", "--at", "N=3"]
    args = ["--dim", "N=1..8", "-d", "log", *at, "--repeat", "2"]
    result = run("profile", net, *args, "--csv", "p.csv", "--trace", "p.json")
    lines = result.stdout.splitlines()
    assert re.fullmatch(
        r"N=3: main\[N=2\.\.3\], \S+ ms a call \(\S+ ms by the model\), 1 kernels", lines[0]
    )
    assert re.fullmatch(r"name +time us +model +iqr +share +GFLOP/s +GB/s +roof", lines[1])
    *name, time, model, iqr, share, flops, moved, roof_ = lines[2].split()
    assert (name, time, iqr, share) == (["h", "+1"], "2.0", "0.0", "66.7%")
    assert (flops, moved, roof_) == ("0.4", "0.4", "4%")
    assert float(model) > 0
    assert lines[3].split() == ["(between", "kernels)", "1.0", "15.0", "-", "33.3%", "-", "-", "-"]
    assert sum(line.startswith("N=") for line in lines) == 2  # a point given twice is one
    assert lines[-1].startswith("roof with 1 thread, measured: 100.0 GFLOP/s, 10.0 GB/s, ridge")
    assert max(map(len, lines)) <= 80
    frame = pd.read_csv(tmp_path / "p.csv")
    assert list(frame["sizes"]) == ["N=3", "N=3", "N=1", "N=1"]
    assert list(frame["name"][:2]) == ["h+y", "(between kernels)"]
    events = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"N=3", "N=1"}


def test_a_profile_of_a_saved_program_tells_scripts(
    run: Run, program: str, roof: None, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 16), np.float32))
    args = ["--input", "x=x.npy", "--repeat", "1", "--json"]
    (told,) = json.loads(run("profile", program, *args).stdout)
    assert (told["sizes"], told["threads"], told["roofline"]["ridge"]) == ({"N": 3}, 1, 10.0)
    assert told["clone"].startswith("main[N=")
    kernel, between = told["kernels"]
    assert (kernel["name"], kernel["op"], kernel["shape"]) == ("h+y", "matmul+relu", [3, 8])
    assert kernel["share"] + between["share"] == pytest.approx(1)
    assert between["flops"] is None
    assert told["predicted_s"] == kernel["predicted_s"] + between["predicted_s"]


@pytest.mark.parametrize(
    ("args", "titles"),
    [
        (["bench", "--rounds", "1"], ["starting", "timing N=3"]),
        (["profile", "--repeat", "1"], ["profiling N=3"]),
    ],
)
def test_what_measures_draws_a_bar(
    run: Run,
    net: str,
    roof: None,
    args: list[str],
    titles: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[Meter] = []

    @contextmanager
    def metered(title: str) -> Iterator[Meter]:
        drawn.append(Meter(title))
        yield drawn[-1]

    monkeypatch.setattr(progress, "metered", metered)
    run(*args[:1], net, "--at", "N=3", *args[1:])
    counted = [meter.title for meter in drawn if meter.total]
    assert counted == ["compiling", *titles]


@pytest.fixture
def roof(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that need not be measured, and a clock of microseconds: 1 around each kernel."""

    def ticks(call: Callable[[], object]) -> float:
        call()
        return 1e-6 if call.__name__ == "_nothing" else 3e-6

    monkeypatch.setattr(profile_module, "measured", lambda _: Roofline(100.0, 10.0))
    monkeypatch.setattr(profile_module, "stopwatch", lambda _: ticks)


@pytest.mark.parametrize(
    ("name", "kernel", "short"),
    [
        ("/layers.0/Gemm", "", "/layers.0/Gemm"),
        ("fc1+act+bias", "", "fc1 +2"),
        ("/encoder.layer.0/self/MatMul", "", "…coder.layer.0/self/MatMul"),
        ("/encoder.layer.0/self/MatMul+b", "", "…er.layer.0/self/MatMul +1"),
        ("/features.1/depthwise/Conv+a", "conv2d", "…epthwise/Conv [conv2d] +1"),
    ],
)
def test_names_are_shortened_in_front(name: str, kernel: str, short: str) -> None:
    assert shortened(name, 26, kernel) == short


def test_kernels_of_one_node_are_told_apart() -> None:
    rows = [("conv", "pad"), ("conv+act", "conv2d"), ("fc", "matmul"), (BETWEEN, "")]
    frame = pd.DataFrame(rows, columns=["name", "kernel"])
    assert labels(frame) == ["conv [pad]", "conv [conv2d] +1", "fc", BETWEEN]


def test_groups_have_a_column_where_there_are_any() -> None:
    names = ["/features.1/depthwise/Conv+a", "/features.1/project/Conv", BETWEEN]
    rates = dict.fromkeys(("gflops", "gbytes_s"), 123.45)
    times = dict.fromkeys(("time_s", "predicted_s", "iqr_s", "share"), 1e-4)
    frame = pd.DataFrame({"name": names, "kernel": "conv2d", "group": None, **times, **rates})
    frame["roofline"] = 1.5
    assert "group" not in shown(frame)
    frame["group"] = [12, 12, None]
    head, *lines = shown(frame).splitlines()
    assert head.split()[:2] == ["name", "group"]
    assert [line.split()[-8] for line in lines[:3]] == ["12", "12", "-"]
    assert max(map(len, (head, *lines))) <= 80


@pytest.mark.parametrize("most", [0.87, 1.0, 1.004, 1.8])
def test_what_goes_beyond_the_roof_is_marked_and_explained(most: float) -> None:
    rows = {"name": ["conv", "fc", BETWEEN], "kernel": "matmul", "group": None}
    times = dict.fromkeys(("time_s", "predicted_s", "iqr_s", "share", "gflops", "gbytes_s"), 1e-4)
    frame = pd.DataFrame({**rows, **times, "roofline": [most, 0.5, None]})
    _, *lines = shown(frame).splitlines()
    cells = [line.split()[-1] for line in lines[:3]]
    if most < 1.8:
        assert (cells, lines[3:]) == ([f"{most:.0%}", "50%", "-"], [])
    else:
        assert cells == ["180%*", "50%", "-"]
        assert lines[3:] == [BEYOND]
        assert lines[0].index("%*") == lines[1].rindex("%")
    assert max(map(len, lines)) <= 80


# --- benchmarks ---


def test_a_benchmark_beside_another_engine(run: Run, net: str) -> None:
    result = run("bench", net, "--dim", "N=1..8", "-d", "log", "--at", "N=3", "--rounds", "2")
    head, ours, theirs, calls, *rows, first, second = result.stdout.splitlines()
    settings = [first, second]
    assert re.fullmatch(r"N=3 +median \[ms\] +quartiles +ratio +its quartiles +error", head)
    times = r" +\d+\.\d{3} +\d+\.\d{3}\.\.\d+\.\d{3}"
    assert re.fullmatch(rf"bucketize{times} +- +- +\d\.\de[-+]\d\d", ours)
    assert re.fullmatch(rf"onnxruntime{times} +\S+ +\S+\.\.\S+ +\d\.\de[-+]\d\d", theirs)
    assert settings[0] == f"bucketize {release()}: 1 thread, default schedules, dispatcher log"
    assert settings[1].startswith("onnxruntime 1.")
    assert calls.split()[2:] == [
        "min",
        "mean",
        "p50",
        "p90",
        "p95",
        "p99",
        "calls",
        *list(RATES)[:2],
    ]
    for row in rows:
        _, *times, p90, p95, p99, count, _, _ = row.split()
        assert (p90, p95, p99, count) == ("-", "-", "-", "2")
        assert all(float(ms) > 0 for ms in times)
    assert "no J/call: " in result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_benchmark_tells_scripts(run: Run) -> None:
    args = ["--at", "N=1", "--at", "N=2", "--rounds", "1", "--threads", "2", "--json"]
    told = json.loads(run("bench", "zoo:mlp", *args).stdout)
    assert told["engines"].keys() == {"bucketize", "onnxruntime"}
    assert told["engines"]["onnxruntime"]["settings"].startswith("2 threads, ")
    assert [p["sizes"] for p in told["points"]] == [{"N": 1}, {"N": 2}]
    ours, theirs = told["points"][0]["engines"]
    assert ours["ratio"] is None
    assert theirs["ratio"] > 0
    assert theirs["error"] < 1e-4
    of = told["points"][1]["engines"][0]
    assert of["rows_s"] == pytest.approx(2 * of["calls_s"])
    assert (told["streams"], told["threads"], told["mode"]) == (1, 2, None)
    assert (told["energy"] is None) == (told["no_energy"] is not None)


@pytest.mark.parametrize(("mode", "streams", "threads"), [("latency", 1, 2), ("throughput", 2, 1)])
def test_a_mode_decides_streams_and_threads(
    run: Run, net: str, monkeypatch: pytest.MonkeyPatch, mode: str, streams: int, threads: int
) -> None:
    monkeypatch.setattr("bucketize.machine.target.cores", lambda: 2)
    monkeypatch.setattr("bucketize.analysis.stream.WINDOW_S", 0.001)
    args = ["bench", net, "--at", "N=3", "--mode", mode]
    told = json.loads(run(*args, "--rounds", "1", "--warmup", "0", "--json").stdout)
    assert (told["streams"], told["threads"], told["mode"]) == (streams, threads, mode)
    settings = {engine["settings"].split(", ")[0] for engine in told["engines"].values()}
    assert settings == {"2 threads" if streams == 1 else "2 streams of 1 thread"}
    assert all(of["calls"] >= streams for of in told["points"][0]["engines"])
    for option in ("--streams", "--threads"):
        refused = run(*args, option, "2")
        assert refused.exit_code == 2
        assert f"--mode {mode} decides: {option} is left out" in refused.stderr


def test_a_benchmark_tells_joules(run: Run, net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counters(Energy):
        def read(self) -> list[int]:
            return []

        def joules(self, begin: object, end: object) -> float:
            return 2.0

    monkeypatch.setattr("bucketize.machine.energy.energy", lambda: Counters([]))
    monkeypatch.setattr("bucketize.analysis.stream.WINDOW_S", 0.001)
    result = run("bench", net, "--at", "N=3", "--rounds", "1")
    assert result.stdout.splitlines()[3].split()[-1] == "J/call"
    assert "no J/call" not in result.stderr


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.123"), (1.5, "1.50"), (12.345, "12.3"), (6520.4, "6520"), (0, "0")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert digits(value) == text


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
        "log": [(1, 2), (2, 4), (4, 9)],
        "log:base=4": [(1, 4), (4, 9)],
        "own_dispatcher:halves": [(1, 4), (4, None)],
        "own_dispatcher.py:halves:at=3": [(1, 3), (3, None)],
        "dispatchers:uniform_dispatcher:count=2": [(1, 5), (5, 9)],
        "b.json": [(1, 5), (5, 9)],
    }


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (
            "lug",
            UnknownNameError,
            "no dispatcher named 'lug'; known: auto, exact, log, module:name",
        ),
        ("log:4", DispatchError, "expected option=value, got '4'"),
        (
            "log:base=]",
            DispatchError,
            "expected a value as in YAML, got ']': while parsing a block node",
        ),
        ("log:base=2024-13-01", DispatchError, "got '2024-13-01': month must be in 1..12"),
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
