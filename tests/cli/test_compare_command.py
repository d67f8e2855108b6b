"""`bucketize compare`: faults in another engine, in kernels, in a program are named."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner, Result

from bucketize.analysis import ENGINES
from bucketize.analysis.engines import Engine
from bucketize.cli.group import main
from bucketize.kernel.object import Kernel
from bucketize.link.link import Linker

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(main, list(map(str, args)))


@pytest.fixture
def net(tmp_path: Path) -> str:
    """Nodes h, r, t and y, of which r is fused with h."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        net (float[N, 16] x) => (float[N, 8] y) {
            h = MatMul(x, w)  r = Relu(h)  t = CumSum(r, one)  y = Exp(t)
        }
    """)
    for name, value in {
        "w": random.standard_normal((16, 8), np.float32) / 16,
        "one": np.array(1),
    }.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    for node in model.graph.node:
        node.name = f"/{node.output[0]}"
    onnx.save(model, tmp_path / "net.onnx")
    return "net.onnx"


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch) -> str:
    """An engine that reads the model with another node in the place of `r`."""

    def start(path: Path, threads: int) -> Any:
        model = onnx.load(path)
        for node in model.graph.node:
            if node.output[0] == "r":
                node.op_type = "Abs"
        onnx.save(model, path)
        return ENGINES["onnxruntime"].start(path, threads)

    monkeypatch.setitem(ENGINES, "altered", Engine("onnxruntime", "onnxruntime", start))
    return "altered"


@pytest.mark.parametrize("way", [[], ["--bisect"]])
def test_engines_that_agree(run: Run, net: str, way: list[str]) -> None:
    result = run("compare", net, "--at", "N=3", "--at", "N=5", "-d", "log", *way)
    assert result.exit_code == 0, result.output
    count = 1 if way else 4
    tensors = "tensor" if way else "tensors"
    assert result.stdout.splitlines() == [
        f"N=3: {count} of {count} {tensors} agree within 0.0001 + 0.001 x magnitude",
        "",
        f"N=5: {count} of {count} {tensors} agree within 0.0001 + 0.001 x magnitude",
    ]


@pytest.mark.parametrize("way", [[], ["--bisect"]])
def test_a_node_that_was_altered_is_named(run: Run, net: str, altered: str, way: list[str]) -> None:
    result = run("compare", net, "--at", "N=3", "--against", altered, *way)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[1] == "first to differ, on inputs that agree: /r (Relu); by itself it differs, too"
    assert lines[2].split()[:3] == ["node", "op", "output"]
    rows = [line.split() for line in lines[3:]]
    assert [row[0] for row in rows] == (["/r", "/y"] if way else ["/r", "/t", "/y"])
    assert rows[0][-1] == "yes"
    told = run("compare", net, "--at", "N=3", "--against", altered, "--json", *way)
    (facts,) = json.loads(told.stdout)
    assert (facts["first"], facts["agrees"], facts["sizes"]) == ("/r", False, {"N": 3})
    assert (facts["atol"], facts["rtol"]) == (1e-4, 1e-3)


def test_tolerances_decide(run: Run, net: str, altered: str) -> None:
    args = ["compare", net, "--at", "N=3", "--against", altered]
    assert run(*args, "--atol", "1e6").exit_code == 0
    assert run(*args, "--rtol", "0.5", "--atol", "0").exit_code == 1


def test_two_sets_of_options(run: Run, net: str) -> None:
    args = ["compare", net, "--at", "N=3", "--against", "plain"]
    assert run(*args, "-d", "log", "--threads", "2").exit_code == 0
    result = run(*args, "--weights", "int8", "--rtol", "0", "--atol", "1e-6")
    assert result.exit_code == 1
    assert "on inputs that agree: /h (MatMul); by itself it differs, too" in result.stdout


def test_an_array_of_ones_own_may_be_compared(run: Run, net: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 16), np.nan, np.float32))
    result = run("compare", net, "--input", "x=x.npy")
    assert result.exit_code == 0, result.output  # NaN agrees with NaN


def test_an_infinite_difference_is_null_in_json(
    run: Run, net: str, altered: str, tmp_path: Path
) -> None:
    x = np.zeros((2, 16), np.float32)
    x[:, 0] = -np.inf
    np.save(tmp_path / "x.npy", x)
    args = ["compare", net, "--input", "x=x.npy", "--against", altered, "--json"]
    (facts,) = json.loads(run(*args).stdout, parse_constant=pytest.fail)
    assert None in [tensor["absolute"] for tensor in facts["tensors"]]


def test_kernels_are_compared_as_they_run(
    run: Run, net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ["compare", net, "--dim", "N=1..8", "-d", "log", "--at", "N=3"]
    assert run(*args, "--against", "reference").stdout.splitlines() == [
        "N=3: 3 of 3 tensors agree within 0.0001 + 0.001 x magnitude",
        "3 of 3 kernels compared",
    ]
    break_kernels(monkeypatch, "cumsum")
    result = run(*args, "--against", "reference")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[2] == "first to differ: /t (cumsum), by kernel cumsum 1"
    assert [line.split()[0] for line in lines[4:]] == ["/t"]  # /y is right, given what it got


def break_kernels(monkeypatch: pytest.MonkeyPatch, template: str) -> None:
    """Have what a template computes computed by an exponential."""
    right = Linker.kernel

    def kernel(self: Any, name: str) -> Kernel:
        others = {call.kernel for r in self.program.routines.values() for call in r.calls()}
        exp = next(other for other in others if "elementwise" in other)
        return right(self, exp if template in name else name)

    monkeypatch.setattr(Linker, "kernel", kernel)


def test_saved_programs_are_compared_kernel_by_kernel(run: Run, net: str) -> None:
    for name, *options in (("one.bkt",), ("two.bkt",), ("short.bkt", "--weights", "int8")):
        assert run("compile", net, "--dim", "N=1..8", "-o", name, *options).exit_code == 0
    assert run("compare", "one.bkt", "--at", "N=3").exit_code == 0
    assert run("compare", "one.bkt", "--at", "N=3", "--against", "two.bkt").exit_code == 0
    tight = ["--rtol", "0", "--atol", "1e-6"]
    result = run("compare", "one.bkt", "--at", "N=3", "--against", "short.bkt", *tight)
    assert result.exit_code == 1
    assert re.search(r"first to differ: .*\(matmul\+relu\), by kernel matmul 0", result.stdout)
    for more in ([], ["--trusted"]):
        assert run("compare", net, "--at", "N=3", "--against", "one.bkt", *more).exit_code == 0


def test_programs_of_other_inputs_are_no_pair(run: Run, net: str) -> None:
    run("compile", net, "--dim", "N=1..8", "-o", "net.bkt")
    result = run("compare", "zoo:mlp", "--at", "N=3", "--against", "net.bkt")
    assert result.exit_code == 2
    assert "error: the inputs differ: data, and x\n" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["net.onnx", "--against", "tvm"], "no adapter for an engine named 'tvm'; known:"),
        (["net.onnx", "--against", "plane"], "onnxruntime, openvino, plain, reference"),
        (["net.onnx", "--against", "old.bkt"], "--against: old.bkt is not there"),
        (["net.onnx", "--against", "net.onnx"], "--against: net.onnx is no saved program"),
        (["net.onnx"], "the size of N is missing"),
        (["net.bkt", "--against", "openvino"], "is a saved program, which other engines do not"),
        (["net.bkt", "--bisect"], "kernels are compared as they run: --bisect is for engines"),
        (["net.bkt", "--weights", "int8"], "--weights was decided when it was compiled"),
        (["net.onnx", "--rebuild"], "net.onnx is no saved program: --rebuild is for those"),
    ],
)
def test_what_cannot_be_compared_is_said(run: Run, net: str, args: list[str], message: str) -> None:
    if args[0] == "net.bkt":
        run("compile", net, "--dim", "N=1..8", "-o", "net.bkt")
    result = run("compare", *args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_node_that_cannot_be_run_by_itself_is_named_all_the_same(
    run: Run, net: str, altered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = importlib.import_module("bucketize.analysis.nodes")
    monkeypatch.setattr(nodes, "single_node", lambda model, *_: onnx.ModelProto())
    result = run("compare", net, "--at", "N=3", "--against", altered)
    assert "/r (Relu); by itself it cannot be run: " in result.stdout
