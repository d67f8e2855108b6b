"""Golden text, hypothesis profiles, and a kernel cache of the tests' own."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import hypothesis
import pytest

HERE = Path(__file__).parent

# Set before bucketize is imported. Shared by xdist's workers and kept between runs: kernels are
# named by content, so an old one is never a wrong one. The user's own cache is left alone.
os.environ["BUCKETIZE_CACHE"] = str(HERE.parent / "build" / "test-cache")

# Decisions are those of one machine, whatever these tests run on.
os.environ["BUCKETIZE_CALIBRATE"] = "0"

# So must this be: other threads of numpy's, and of scipy's, would spin on the cores of other tests.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

# Processes that tests start need not compile the package again, each for itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The collector goes over what lives too often where tests make objects by the million.
gc.set_threshold(50_000, 20, 20)

# Tests lend each other their cases, whatever folder they are in.
sys.path.extend(str(path) for path in sorted(HERE.iterdir()) if path.is_dir())

# Tests interrupt what they start. A shell that runs them in the background has that ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A slow machine fails no test: neither by a deadline nor by how long examples take to make.
SLOW = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("quick", max_examples=15, derandomize=True, **SLOW)
hypothesis.settings.register_profile("thorough", max_examples=1000, **SLOW)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


HANG_S = 900.0

SHARE_OF_SWEEP = 16


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is given up, and no line of progress written, because the machine is busy."""
    from bucketize.measure.process import Limits

    monkeypatch.setattr("bucketize.progress.FIRST_S", threading.TIMEOUT_MAX)
    monkeypatch.setattr(Limits.__init__, "__defaults__", (HANG_S, HANG_S, HANG_S))


@pytest.fixture(autouse=True)
def no_builders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled in the process that wants them, and measured by one other.

    xdist's workers fill the cores.
    """
    monkeypatch.setattr("bucketize.kernel.build.cores", lambda: 1)
    monkeypatch.setattr("bucketize.measure.runner.cores", lambda: 1)


@pytest.fixture
def few_registers(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """This machine has 16 at most: tiles are low, and kernels short, whose heights are all written.

    For what asks which kernels run and what they compute together, not how high a tile is. Where
    thousands of graphs are drawn, they see the machine as it is.
    """
    from bucketize.machine import host, target

    if request.config.getoption("--graphs"):
        yield
        return
    for name, (lanes, registers) in target.VECTORS.items():
        monkeypatch.setitem(target.VECTORS, name, (lanes, min(registers, 16)))
    host.host.cache_clear()
    yield
    host.host.cache_clear()


@pytest.fixture
def by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only a run tells of how an op works is told by numpy, never by kernels."""
    monkeypatch.setattr("bucketize.lower.by_kernel.RULES", {})


@dataclass(frozen=True)
class Golden:
    """The accepted text of a test, kept under tests/golden/<module>/<test>.txt."""

    path: Path
    update: bool

    def check(self, text: str) -> None:
        """Assert that `text` is the accepted one; with --update-golden, accept it."""
        if self.update:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(text)
        assert self.path.exists(), f"no golden file {self.path}; run pytest --update-golden"
        assert text == self.path.read_text(), "accept the change with: pytest --update-golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="accept the new golden text")
    told = "how many graphs, or models, each fuzz test draws, in place of its small share"
    parser.addoption("--graphs", type=int, help=told)
    told = f"every case of a sweep, not one of {SHARE_OF_SWEEP}"
    parser.addoption("--every-case", action="store_true", help=told)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the cases of sweeps out that are not of this run's share."""
    if any(map(config.getoption, ("--every-case", "--update-golden", "--graphs"))):
        return
    sweeps = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sweep"):
            sweeps[item.nodeid.partition("[")[0]].append(item)
    kept = {item for cases in sweeps.values() for item in share(cases)}
    left_out = [item for cases in sweeps.values() for item in cases if item not in kept]
    config.hook.pytest_deselected(items=left_out)
    dropped = set(left_out)
    items[:] = [item for item in items if item not in dropped]


def share(cases: list[pytest.Item]) -> list[pytest.Item]:
    """The cases of a sweep whose names' digests are least: the same ones in every run.

    So no width, dtype or size is left out as a whole, and two sweeps over the same cases, which
    compile the same kernels, take the same ones. One that is asked for by its name is run.
    """
    parameters = {case: case.name.partition("[")[2].encode() for case in cases}
    by_digest = sorted(cases, key=lambda case: sha256(parameters[case]).digest())
    return by_digest[: -(-len(cases) // SHARE_OF_SWEEP)]


class Failures:
    """Names what fails as it happens, by xdist's workers, too; why is told at the end."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.terminal.write_line(f"\nFAILED {report.nodeid} ({report.when})", red=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:  # a worker has none
        session.config.pluginmanager.register(Failures(terminal))


def pytest_collection_finish() -> None:
    """Modules and tests live to the end: the collector need not go over them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def nothing_else_runs() -> Iterator[None]:
    """What else the machine does is not looked at: it must not warn, or wait, in any test."""
    from bucketize import busy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(busy, "reading", lambda: None)
        patch.setattr(busy, "groups_of", lambda seconds: None)
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    path = HERE / "golden" / request.path.stem / f"{request.node.name}.txt"
    return Golden(path, request.config.getoption("--update-golden"))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a command line in an empty directory; unexpected exceptions fail the test."""
    from click.testing import CliRunner

    from bucketize.cli.group import main

    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Any:
        result = CliRunner().invoke(main, args)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
