"""Run the notebooks of examples/ and keep what they show: `make notebooks`.

Cells with the tag "machine" time something, or go by how fast the machine is: what they show is not
kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
MACHINE = "machine"
ROUNDS = re.compile(r"\brounds=\d+")
SECONDS = 600  # for one cell


def executed(path: Path, *, quick: bool = False) -> nbformat.NotebookNode:
    """The notebook after a run from an empty kernel; a CellExecutionError where a cell fails.

    With `quick` what is timed, of which nothing is kept, is timed in two rounds.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in filter(is_of_machine, code_cells(notebook) if quick else ()):
        cell.source = ROUNDS.sub("rounds=2", cell.source)
    where = {"metadata": {"path": str(path.parent)}}
    with TemporaryDirectory() as folder:  # sockets are files: no port is opened
        sockets = Config(KernelManager={"transport": "ipc", "ip": f"{folder}/kernel"})
        NotebookClient(notebook, timeout=SECONDS, resources=where, config=sockets).execute()
    return notebook


def kept(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The same without what differs from machine to machine."""
    for cell in code_cells(notebook):
        cell.metadata = {"tags": [MACHINE]} if is_of_machine(cell) else {}
        cell.outputs = [] if is_of_machine(cell) else [*filter(is_shown, cell.outputs)]
    return notebook


def code_cells(notebook: nbformat.NotebookNode) -> Iterator[nbformat.NotebookNode]:
    """The cells that are run."""
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def is_of_machine(cell: nbformat.NotebookNode) -> bool:
    """Whether what the cell shows depends on the machine."""
    return MACHINE in cell.metadata.get("tags", ())


def is_shown(output: nbformat.NotebookNode) -> bool:
    """Whether an output is more than progress or a warning."""
    return output.get("name") != "stderr"


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """What the cells show as text, but for those of the machine; of pictures nothing."""
    outputs = [o for c in code_cells(notebook) if not is_of_machine(c) for o in c.outputs]
    return [text for o in outputs if is_shown(o) and (text := _text(o))]


def _text(output: nbformat.NotebookNode) -> str:
    if "image/png" in output.get("data", ()):
        return ""
    return str(output.get("text") or output.get("data", {}).get("text/plain", ""))


def main(names: list[str]) -> None:
    """Run the named notebooks, or all, and write them anew."""
    for path in [EXAMPLES / name for name in names] or NOTEBOOKS:
        print(f"running {path.name} ...", flush=True)
        nbformat.write(kept(executed(path)), path)


if __name__ == "__main__":
    main(sys.argv[1:])
