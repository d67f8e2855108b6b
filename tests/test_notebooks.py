"""The notebooks of examples/ run, and show what is kept in them."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from notebooks import NOTEBOOKS, code_cells, executed, kept, texts

MOST_BYTES = 100_000
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.mark.slow
@each
def test_a_notebook_runs_and_shows_what_is_kept(path: Path) -> None:
    wanted = texts(nbformat.read(path, as_version=4))
    assert texts(executed(path, quick=True)) == wanted
    assert wanted


@each
def test_what_is_kept_is_small_and_of_no_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert kept(nbformat.from_dict(notebook)) == notebook
    assert all(cell.execution_count for cell in code_cells(notebook))
    assert path.stat().st_size < MOST_BYTES
    assert str(Path.home()) not in path.read_text()


def test_what_a_machine_shows_is_not_kept() -> None:
    shown = nbformat.v4.new_output("stream", name="stdout", text="1 ms\n")
    told = nbformat.v4.new_output("stream", name="stderr", text="warning: busy\n")
    cells = [
        nbformat.v4.new_code_cell("a", outputs=[shown, told]),
        nbformat.v4.new_code_cell("b", outputs=[shown], metadata={"tags": ["machine"]}),
    ]
    cells[0].metadata["execution"] = {"iopub.status.busy": "2026-11-26"}
    notebook = nbformat.v4.new_notebook(cells=cells)
    assert texts(notebook) == ["1 ms\n"]
    clean = kept(notebook)
    assert [cell.outputs for cell in clean.cells] == [[shown], []]
    assert [cell.metadata for cell in clean.cells] == [{}, {"tags": ["machine"]}]
    assert texts(clean) == ["1 ms\n"]
