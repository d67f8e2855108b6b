"""The notebooks of examples/ run, and show what is kept in them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))
MOST_BYTES = 100_000


@pytest.fixture
def notebooks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "notebooks", raising=False)
    import notebooks

    return notebooks


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_what_is_kept(notebooks: ModuleType, name: str) -> None:
    path = EXAMPLES / name
    wanted = notebooks.texts(nbformat.read(path, as_version=4))
    assert notebooks.texts(notebooks.executed(path)) == wanted
    assert wanted


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_kept_is_small_and_of_no_machine(notebooks: ModuleType, name: str) -> None:
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    assert notebooks.kept(nbformat.from_dict(notebook)) == notebook
    assert all(cell.execution_count for cell in notebooks.code_cells(notebook))
    assert (EXAMPLES / name).stat().st_size < MOST_BYTES
    assert str(Path.home()) not in (EXAMPLES / name).read_text()


def test_what_a_machine_shows_is_not_kept(notebooks: ModuleType) -> None:
    shown = nbformat.v4.new_output("stream", name="stdout", text="1 ms\n")
    told = nbformat.v4.new_output("stream", name="stderr", text="warning: busy\n")
    cells = [
        nbformat.v4.new_code_cell("a", outputs=[shown, told]),
        nbformat.v4.new_code_cell("b", outputs=[shown], metadata={"tags": ["machine"]}),
    ]
    cells[0].metadata["execution"] = {"iopub.status.busy": "2026-11-26"}
    notebook = nbformat.v4.new_notebook(cells=cells)
    kept = notebooks.kept(notebook)
    assert [cell.outputs for cell in kept.cells] == [[shown], []]
    assert [cell.metadata for cell in kept.cells] == [{}, {"tags": ["machine"]}]
    assert notebooks.texts(notebook) == notebooks.texts(kept) == ["1 ms\n"]
