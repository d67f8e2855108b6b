"""The size of the house: lines per file, its longest function, and how long functions are."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("bucketize", "dispatchers")


@dataclass(frozen=True)
class Length:
    """A function and its lines, without the docstring."""

    lines: int
    name: str


def lengths(tree: ast.AST) -> Iterator[Length]:
    """The length of every function of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            whole = (node.end_lineno or 0) - node.lineno + 1
            docstring = node.body[0] if ast.get_docstring(node) else None
            said = (docstring.end_lineno or 0) - docstring.lineno + 1 if docstring else 0
            yield Length(whole - said, node.name)


def main() -> None:
    """Print the table."""
    paths = sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))
    texts = {path: path.read_text() for path in paths}
    functions = {path: list(lengths(ast.parse(text))) for path, text in texts.items()}
    print(f"\n{'lines':>6}  {'longest function':<40} file")
    for path in sorted(paths, key=lambda p: -len(texts[p].splitlines())):
        longest = max(functions[path], key=lambda f: f.lines, default=Length(0, "-"))
        size = len(texts[path].splitlines())
        print(f"{size:6}  {longest.lines:3} {longest.name:<36} {path.relative_to(ROOT)}")
    every = sorted(f.lines for fs in functions.values() for f in fs)
    total = sum(len(text.splitlines()) for text in texts.values())
    p90 = every[int(0.9 * (len(every) - 1))]
    print(
        f"{total:6}  lines in {len(paths)} files; {len(every)} functions: "
        f"median {statistics.median(every):.0f}, p90 {p90}, longest {every[-1]}"
    )


if __name__ == "__main__":
    main()
