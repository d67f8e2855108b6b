"""The words of the tree: a name has one home and says what it holds, a folder is short."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = sorted(p for part in ("bucketize", "dispatchers") for p in (ROOT / part).rglob("*.py"))


def test_a_name_has_one_home_and_says_what_it_holds() -> None:
    """`found = ...` says that something was; the noun says what. So does a class's name, once."""
    words = {"found", "made", "known", "told", "held"}
    homes, locals_ = defaultdict(set), set()
    for path in FILES:
        where = str(path.relative_to(ROOT))
        todo: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text()), False)]
        while todo:
            node, inside = todo.pop()
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(where)
            inside |= isinstance(node, ast.FunctionDef)
            if inside and isinstance(node, ast.arg | ast.Name):
                name = node.arg if isinstance(node, ast.arg) else node.id
                if name in words and not isinstance(getattr(node, "ctx", None), ast.Load):
                    locals_.add(f"{where}:{node.lineno}: {name}")
            todo += [(child, inside) for child in ast.iter_child_nodes(node)]
    doubled = {name: several for name, several in homes.items() if len(several) > 1}
    assert (doubled, locals_) == ({}, set())


def test_a_folder_is_short() -> None:
    """But for converters, which are a table."""
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in FILES if path.stem[0] != "_")
    long = {folder for folder, count in counts.items() if count > 20}
    assert long <= {"bucketize/onnx/convert"}
