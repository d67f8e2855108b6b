"""The tests' own conftest: what fails is named as it happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FAILING = """
import pytest

@pytest.fixture
def broken():
    raise ValueError

def test_good(): pass
def test_bad(): assert 1 == 2
def test_without_its_fixture(broken): pass
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_failure_is_named_before_the_last_test_has_run(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_made.py").write_text(FAILING)
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-n", workers]
    done = subprocess.run(
        [*command, "test_made.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    running, _, _ = done.stdout.partition("= ERRORS =")
    named = re.findall(r"^FAILED test_made\.py::(.*)$", running, re.M)
    assert sorted(named) == ["test_bad (call)", "test_without_its_fixture (setup)"], done.stdout
