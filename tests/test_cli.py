"""The command line: what it prints, and how errors end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bucketize.cli import main
from bucketize.cli.dispatcher import find_dispatcher, parse_options
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
