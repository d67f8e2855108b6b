"""Golden text, hypothesis profiles, and a kernel cache of the tests' own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest

HERE = Path(__file__).parent

# Set before bucketize is imported. Shared by xdist's workers and kept between runs: kernels are
# named by content, so an old one is never a wrong one. The user's own cache is left alone.
os.environ["BUCKETIZE_CACHE"] = str(HERE.parent / "build" / "test-cache")

# Tests interrupt what they start. A shell that runs them in the background has that ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("quick", max_examples=25, deadline=None, derandomize=True)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


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
