"""The table of templates: what the folders of families declare, all of it, by its own name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from bucketize.kernel.template import Template
from bucketize.kernel.templates import LOOP, TEMPLATES, VECTOR

KERNEL = Path(__file__).parents[2] / "bucketize" / "kernel"
PATHS = sorted(p for p in KERNEL.glob("*/*.py") if p.parent.name != "emit")


def declared(*, loops: bool) -> list[str]:
    """The names of the templates in the folder of loops, or in all others."""
    paths = [p for p in PATHS if (p.parent.name == "loops") is loops]
    modules = [import_module(f"bucketize.kernel.{p.parent.name}.{p.stem}") for p in paths]
    values = [value for module in modules for value in vars(module).values()]
    return [value.name for value in values if isinstance(value, Template)]


def test_every_template_of_a_folder_is_in_the_table_once() -> None:
    loops, vectors = declared(loops=True), declared(loops=False)
    assert sorted(loops) == sorted(t.name for t in LOOP)
    assert sorted(vectors) == sorted(t.name for t in VECTOR)
    assert sorted(TEMPLATES) == sorted(loops + vectors)


def test_vector_code_is_asked_before_loops() -> None:
    assert list(TEMPLATES.values()) == [*VECTOR, *LOOP]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_family_does_not_know_the_table(path: Path) -> None:
    """The table imports them by their names, which no test of layers sees."""
    assert "kernel.templates" not in path.read_text()
