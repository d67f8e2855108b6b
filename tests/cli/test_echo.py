"""What is printed: control characters of names and texts never reach a terminal."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

import bucketize
from bucketize.analysis import engines
from bucketize.cli.echo import echo
from bucketize.cli.group import main
from bucketize.progress import Meter
from bucketize.table import legible

COMMANDS = sorted(Path(bucketize.__file__).parent.glob("cli/**/*.py"))
ESCAPES = "\x1b]0;owned\x07\x1b[31m"
RED = f"a{ESCAPES}\r\b\x9bz\u202e"
ESCAPED = "a\\x1b]0;owned\\x07\\x1b[31m\\r\\x08\\x9bz\\u202e"


def test_lines_stay_and_what_a_terminal_obeys_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert legible(f"{RED}\n行列 é") == f"{ESCAPED}\n行列 é"
    for err in (False, True):
        echo(f"{RED}\nplain", err=err)
        told = capsys.readouterr()
        assert (told.err if err else told.out) == f"{ESCAPED}\nplain\n"


@pytest.mark.parametrize("path", COMMANDS, ids=lambda p: p.stem)
def test_commands_print_by_echo_alone(path: Path) -> None:
    if path.stem == "echo":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("click", "echo"), ("click", "secho")}
        assert not (isinstance(node, ast.Name) and node.id == "print")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A model all of whose names hold escape sequences, as do the names of the file."""
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), f"w{RED}")
    nodes = [
        helper.make_node("MatMul", [f"x{RED}", f"w{RED}"], [f"h{RED}"], name=f"node{RED}"),
        helper.make_node("Relu", [f"h{RED}"], [f"y{RED}"], name=f"relu{RED}"),
    ]
    graph = helper.make_graph(
        nodes,
        f"graph{RED}",
        [helper.make_tensor_value_info(f"x{RED}", onnx.TensorProto.FLOAT, [f"n{RED}", 4])],
        [helper.make_tensor_value_info(f"y{RED}", onnx.TensorProto.FLOAT, [f"n{RED}", 4])],
        [weight],
    )
    path = tmp_path / f"net{ESCAPES}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def symbol(path: Path) -> str:
    ((dim, _),) = bucketize.from_onnx(path).main.symbols().items()
    return dim


def commands(path: Path) -> Iterator[list[str]]:
    net, log, saved = str(path), str(path.with_suffix(".csv")), str(path.with_suffix(".bkt"))
    at = ["--at", f"{symbol(path)}=2"]
    yield ["show", net, "-d", "log:high=4"]
    yield ["show", net, "--explain-dynamic"]
    yield ["run", net, *at, "--explain", "--check", "--repeat", "1"]
    yield ["profile", net, *at, "--repeat", "1", "--csv", str(path.with_suffix(".p.csv"))]
    yield ["compile", net, "-o", saved]
    yield ["run", saved, *at, "--explain", "--repeat", "1"]
    yield ["run", saved, "--at", f"{RED}=3"]
    yield ["export", net, "-d", "log:high=4", "-o", str(path.with_suffix(".out.onnx"))]
    yield ["tune", net, "-d", "none", *at, "--log", log, "--trials", "1"]
    yield ["log", "stats", log]
    yield ["analyze", log]
    yield ["analyze", net]
    yield ["run", net, "--at", f"{RED}=3"]
    yield ["run", net, *at, "-d", RED]
    yield ["run", f"{net}.not.there"]
    yield ["run", net, f"--{RED}"]
    yield ["dispatchers", RED]


@pytest.mark.slow
def test_no_command_prints_them(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(net.parent)
    seen = ""
    for args in commands(net):
        done = CliRunner().invoke(main, args)
        text = done.stdout + done.stderr
        assert done.exit_code in (0, 2), (args, done.exception)
        assert "".join(text.split("\n")).isprintable(), (args, text)
        seen += text
    assert seen.count("\\x1b[31m") > 20


def test_progress_shows_them() -> None:
    meter = Meter(f"title {RED}")
    meter.tell(f"clone {RED}", 1, 2)
    assert meter.line().endswith(f"clone {ESCAPED}")
    assert meter.line().startswith(f"title {ESCAPED}:")


def test_what_an_engine_says_when_it_fails_is_shown_so(capfd: pytest.CaptureFixture[str]) -> None:
    @engines._quiet()
    def failing() -> None:
        os.write(1, f"{RED}\nsecond line\n".encode())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert capfd.readouterr().err == f"{ESCAPED}\nsecond line\n"
