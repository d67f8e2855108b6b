"""`python -m bucketize.serve`, on the packages that `bucketize-runtime[serve]` asks for."""

from __future__ import annotations

import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_alone import ALONE, runtime_files
from test_server import WAIT_S, Client, X, mlp, wait_until

from bucketize.serve.__main__ import main
from bucketize.traffic.value import Traffic

ROOT = Path(__file__).parents[2]
NEEDED = ALONE.replace(', "click"', "")  # which uvicorn asks for
BEGIN = "from bucketize.serve.__main__ import main; sys.exit(main(sys.argv[2:]))"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as the wheel of the runtime has it."""
    place = tmp_path_factory.mktemp("alone")
    for file in runtime_files():
        there = place / file.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.symlink_to(file)
    return place


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in a folder that everybody may write to, as a pod has it."""
    place = tmp_path_factory.mktemp("models")
    mlp().save(place / "net.bkt")
    place.chmod(0o777)
    return place / "net.bkt"


class Serving:
    """A process without the packages of the compiler."""

    def __init__(self, package: Path, *arguments: object) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        site = Path(np.__file__).parents[1]
        command = [sys.executable, "-P", "-S", "-c", NEEDED + BEGIN, package, "--port", port]
        self.process = subprocess.Popen(
            [*map(str, command), *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (package, site)))},
        )
        self.client = Client(port)

    def answers(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()[1]
        try:
            return self.client.ask("/v2/health/ready")[0] == 200
        except ConnectionError:
            return False

    def end(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=WAIT_S)[1]
        assert self.process.returncode in (0, -signal.SIGTERM)
        return said


@pytest.fixture
def serving(package: Path, program: Path, tmp_path: Path) -> Iterator[Serving]:
    its = Serving(
        package,
        "--trusted",
        "--warm-up",
        "--traffic",
        tmp_path,
        "--limit-bytes",
        1 << 28,
        f"a={program}",
    )
    wait_until(its.answers)
    yield its
    if its.process.poll() is None:
        its.end()


def test_it_serves_on_few_packages_and_ends_gracefully(serving: Serving, tmp_path: Path) -> None:
    np.testing.assert_array_equal(serving.client.infer(X, "a"), X)
    assert serving.client.ask("/metrics")[0] == 200
    assert serving.end() == ""
    assert Traffic.read(tmp_path / "a.csv").histogram("N") == {3: 1}


def test_files_that_others_may_write_are_asked_for(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(program)]) == 2
    assert "others may write to" in capsys.readouterr().err


def test_what_the_server_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "bucketize.serve.__main__")
    with pytest.raises(SystemExit, match=r"uvicorn: pip install 'bucketize-runtime\[serve\]'"):
        runpy.run_module("bucketize.serve")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--waiting", "0"], "expected a number from 1, got '0'"),
        (["--port", "99999"], "expected 0 to 65535, got '99999'"),
        (["--port", "-1"], "expected 0 to 65535, got '-1'"),
        ([], "the following arguments are required: [NAME=]PATH"),
    ],
)
def test_wrong_arguments_are_told(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("time", ["soon", "0ms", "20 ms", "1.s"])
def test_a_deadline_that_is_none_is_told_before_a_file_is_read(
    time: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["none.bkt", "--latency", time]) == 2
    assert f"expected a time, as in 20ms or 1.5s, got {time!r}" in capsys.readouterr().err


def test_models_of_one_name_are_told(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trusted", str(program), str(program)]) == 2
    assert "two models are called net: give names, as in NAME=" in capsys.readouterr().err
