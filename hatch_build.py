"""Which files are of which wheel: what runs a saved program is of `bucketize-runtime`.

Both wheels put modules into one package, each those that the other has not, and `bucketize` asks
for the runtime of its own version.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).parent
ROOTS = (
    "bucketize.loader",
    "bucketize.many.many",
    "bucketize.serve.__main__",
    "bucketize._version",
    *("bucketize.inspect.explain", "bucketize.save.write", "bucketize.traffic.value"),
    "bucketize.warm_up",
)  # beside the first, imported when they are asked for
WHOLE = (
    "bucketize/ops",
    "bucketize/link/native",
)  # found by name; read, to tell one build from another
RUNTIME = "bucketize-runtime"
KINDS = (".py", ".typed", ".csv", ".binpb", ".proto", ".html", ".css", ".js")


def runtime_files(root: Path) -> set[Path]:
    """The files of all modules that load, run and serve programs, imported at once or by name."""
    whole = (file for folder in WHOLE for file in root.joinpath(folder).rglob("*.py"))
    left = [*ROOTS, *(".".join(f.relative_to(root).with_suffix("").parts) for f in whole)]
    files = {root / "bucketize" / "py.typed"}
    while left:
        parts = left.pop().split(".")
        for end in range(1, len(parts) + 1):
            file = _file(root, parts[:end])
            if file is not None and file not in files:
                files.add(file)
                left.extend(_imported(file))
    return files


def _file(root: Path, parts: list[str]) -> Path | None:
    place = root.joinpath(*parts)
    both = place / "__init__.py", place.with_suffix(".py")
    return next((file for file in both if file.exists()), None)


def _imported(file: Path) -> Iterator[str]:
    """What a module imports as it begins: not for types alone, and not inside functions."""
    for node in ast.parse(file.read_text()).body:
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names if alias.name.startswith("bucketize."))
            case ast.ImportFrom(str(module), names) if module.startswith("bucketize."):
                yield from (f"{module}.{alias.name}" for alias in names)


class CustomBuildHook(BuildHookInterface[Any]):
    """Chooses the files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # the whole tree is there
            return
        of_runtime = runtime_files(ROOT)
        package = {f for f in (ROOT / "bucketize").rglob("*") if f.suffix in KINDS}
        is_runtime = self.metadata.name == RUNTIME
        chosen = of_runtime if is_runtime else package - of_runtime
        build_data["force_include"] |= {str(f): str(f.relative_to(ROOT)) for f in sorted(chosen)}


class CustomMetadataHook(MetadataHookInterface):
    """Has `bucketize` ask for the runtime of its version."""

    def update(self, metadata: dict[str, Any]) -> None:
        own = self.config["dependencies"]
        metadata["dependencies"] = [*own, f"{RUNTIME}=={metadata['version']}"]
