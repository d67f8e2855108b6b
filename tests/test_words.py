"""The words of the tree: a name has one home and says what it holds, a folder is short."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = sorted(p for part in ("bucketize", "dispatchers") for p in (ROOT / part).rglob("*.py"))


def test_a_class_has_one_home() -> None:
    homes = defaultdict(set)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(str(path.relative_to(ROOT)))
    assert {name: several for name, several in homes.items() if len(several) > 1} == {}


def test_a_local_name_says_what_it_holds() -> None:
    """`found = ...` says that something was; the noun says what."""
    words = {"found", "made", "known", "told", "held"}
    locals_ = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path in FILES
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        for name in [node.arg if isinstance(node, ast.arg) else getattr(node, "id", "")]
        if name in words and not isinstance(getattr(node, "ctx", None), ast.Load)
    }
    assert locals_ == set()


def test_a_folder_is_short() -> None:
    """But for converters, which are a table."""
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in FILES if path.stem[0] != "_")
    long = {folder for folder, count in counts.items() if count > 20}
    assert long <= {"bucketize/onnx/convert"}
