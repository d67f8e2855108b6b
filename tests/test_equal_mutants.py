"""The explanations of mutants that nothing can tell from the original are of code that exists."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
MUTANTS = tomllib.loads((ROOT / "tests" / "equal_mutants.toml").read_text())["mutant"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m["function"])
def test_an_explained_mutant_changes_code_that_exists(mutant: dict[str, Any]) -> None:
    assert mutant.keys() == {"module", "function", "was", "now", "because"}
    lines = {line.strip() for line in (ROOT / mutant["module"]).read_text().splitlines()}
    assert set(mutant["was"].strip().splitlines()) <= lines
    assert mutant["now"].strip() != mutant["was"].strip()
    assert mutant["because"]
