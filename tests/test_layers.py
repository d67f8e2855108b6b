"""The import direction between layers: a module imports only from rows above its own."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = [
    ["errors"],
    ["timing", "compare", "fork", "lock", "table", "release"],
    ["quota"],
    ["progress"],
    ["busy"],
    ["traffic"],
    ["types"],
    ["op"],
    ["ops"],
    ["ir"],
    ["call"],
    ["interpret"],
    ["text"],
    ["verify"],
    ["onnx"],
    ["transform"],
    ["dispatch"],
    ["ragged"],
    ["machine"],
    ["kernel"],
    ["lower"],
    ["program"],
    ["link"],
    ["runtime"],
    ["save"],
    ["inspect"],
    ["warm_up"],
    ["background"],
    ["many"],
    ["executable"],
    ["library"],
    ["log"],
    ["compiler"],
    ["poison"],
    ["loader"],
    ["measure"],
    ["tune"],
    ["partition"],
    ["integrations"],
    ["analysis"],
    ["optimize"],
    ["report"],
    ["serve"],
    ["zoo"],
    ["cli"],
]
RANK = {name: rank for rank, row in enumerate(LAYERS) for name in row}
PACKAGES = ("bucketize", "dispatchers")
FILES = sorted(ROOT.glob("bucketize/**/*.py"))
DISPATCHERS = sorted(ROOT.glob("dispatchers/**/*.py"))


class Imports(NamedTuple):
    ours: tuple[tuple[str, ...], ...]
    """Every name imported from the two packages, as its parts: ("bucketize", "types", "Symbol")."""
    late: tuple[int, ...]
    """The lines of imports inside functions."""


@cache
def imports(path: Path) -> Imports:
    """What a file imports; its tree is not kept, which every collection would go over."""
    names: list[str] = []
    late: list[int] = []
    todo: list[tuple[ast.AST, bool]] = [(ast.parse(path.read_text()), False)]
    while todo:
        node, inside = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom) and inside:
            late.append(node.lineno)
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            assert node.module != "bucketize", f"line {node.lineno}: not through the package root"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        inside |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        todo += [(child, inside) for child in ast.iter_child_nodes(node)]
    split = (tuple(name.split(".")) for name in names)
    return Imports(tuple(parts for parts in split if parts[0] in PACKAGES), tuple(late))


def layer(path: Path) -> str:
    return path.relative_to(ROOT / "bucketize").with_suffix("").parts[0]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_imports_point_up_the_table(path: Path) -> None:
    if path.parent == ROOT / "bucketize" and path.stem in ("__init__", "__main__"):
        return
    me = layer(path)
    for package, *rest in imports(path).ours:
        assert package == "bucketize", "bucketize does not import dispatchers"
        assert rest, "the package root is not imported from inside"
        assert rest[0] == me or RANK[rest[0]] < RANK[me], f"{me} imports {rest[0]}"


LATE = {  # names; rich; matplotlib; pandas; scikit-learn, scipy and scikit-optimize
    "bucketize/__init__.py",
    "bucketize/progress.py",
    "bucketize/analysis/importance.py",
    "bucketize/analysis/plot.py",
    "bucketize/inspect/profile.py",
    "bucketize/log/frame.py",
    "bucketize/tune/refine.py",
    "bucketize/tune/residual.py",
    "bucketize/log/confidence.py",
    "bucketize/tune/surrogate.py",
}


@pytest.mark.parametrize("path", FILES + DISPATCHERS, ids=relative)
def test_no_imports_inside_functions(path: Path) -> None:
    if path.is_relative_to(ROOT / "bucketize/cli") or relative(path) in LATE:
        return
    late = imports(path).late
    assert not late, f"line {min(late)} imports inside a function"


@pytest.mark.parametrize("path", DISPATCHERS, ids=relative)
def test_dispatchers_know_only_types_traffic_and_errors(path: Path) -> None:
    allowed = {"types", "errors", "traffic"}
    if path.stem == "auto":  # it goes by the model
        allowed |= {"ir", "partition"}
    for package, *rest in imports(path).ours:
        if package == "bucketize":
            assert rest[0] in allowed
            assert not any(name.startswith("_") for name in rest)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_module_imports_itself_by_a_detour() -> None:
    """Inside a package, too, the imports make no circle."""
    paths = {
        module_name(p): p
        for p in FILES + DISPATCHERS
        if p.parent != ROOT / "bucketize" or p.stem != "__init__"
    }
    graph = {name: edges(path, paths) - {name} for name, path in paths.items()}
    while leaves := {name for name, targets in graph.items() if not targets & graph.keys()}:
        graph = {name: targets for name, targets in graph.items() if name not in leaves}
    assert not graph, f"a circle, or above one: {', '.join(graph)}"


def edges(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules that `path` imports from; a name from a package, even a module, means both."""
    found = set()
    for parts in imports(path).ours:
        whole = ".".join(parts)
        found |= {whole, whole.rpartition(".")[0]}
    return found & known.keys()


def test_the_table_holds_every_layer() -> None:
    present = {layer(path) for path in FILES} - {"__init__", "__main__", "_version"}
    assert present <= RANK.keys()
