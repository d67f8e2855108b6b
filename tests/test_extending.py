"""The code of docs/extending.md runs as it stands, and each of its parts is within a page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOC = ROOT / "docs" / "extending.md"
PARTS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", DOC.read_text(), re.DOTALL | re.MULTILINE))
PAGE = 66  # lines


def test_the_parts() -> None:
    assert list(PARTS) == ["An op", "A converter", "A transform", "A template", "A dispatcher"]


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_a_page_with_code_and_files_that_exist(name: str) -> None:
    assert len(PARTS[name].splitlines()) <= PAGE
    assert "```python\n" in PARTS[name]
    _, of_the_tree = PARTS[name].split("\nIn the tree: ")
    paths = re.findall(r"`([\w/]+/[\w.]*)`", of_the_tree)
    assert paths
    for path in paths:
        assert any((root / path).exists() for root in (ROOT, ROOT / "bucketize")), path


def test_the_code() -> None:
    """As one program, at the lines that it has in the text: a traceback shows the place."""
    inside, lines = False, []
    for line in DOC.read_text().splitlines():
        lines.append(line if inside and line != "```" else "")
        inside = line != "```" if inside else line == "```python"
    program = f"exec(compile({chr(10).join(lines)!r}, {str(DOC)!r}, 'exec'))"
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
