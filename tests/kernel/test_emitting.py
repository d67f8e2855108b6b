"""What goes into emitted code is in the names of kernels: who adds an import is told here."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType, ModuleType

import pytest
from test_kernel_sources import MACHINE, WORKLOADS

from bucketize.kernel import build, emit
from bucketize.kernel.template import Template
from bucketize.kernel.templates import VECTOR
from bucketize.link import block
from bucketize.link import native as core
from bucketize.machine.host import processor
from bucketize.op import Op

ROOT = Path(build.__file__).parents[1]
NAMED = {*build.emitting(), Path(block.__file__)}  # the second is in the sources of `core`
REFUSALS = "bucketize.errors"


@cache
def imports(path: Path) -> dict[str, tuple[str, str]]:
    """By the names of a file: the module and the name that each is imported from."""
    froms = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
    ours = [n for n in froms if (n.module or "").startswith("bucketize")]
    return {a.asname or a.name: (str(n.module), a.name) for n in ours for a in n.names}


def is_named(module: str, name: str) -> bool:
    """Whether the file that an import reads is in the names of kernels, or matters to none."""
    inner = find_spec(f"{module}.{name}") if name.islower() and _is_package(module) else None
    spec = inner or find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    is_op = isinstance(getattr(import_module(module), name, None), Op)  # told apart by its name
    return Path(spec.origin) in NAMED or module == REFUSALS or is_op


def _is_package(module: str) -> bool:
    return hasattr(import_module(module), "__path__")


def read_while_written(module: ModuleType) -> Iterator[tuple[str, str]]:
    """The imports that functions of the package use while a kernel is written."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            codes.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        module.kernel(processor())
    finally:
        sys.setprofile(before)
    for code in codes:
        own = imports(Path(code.co_filename))
        yield from (own[name] for name in code.co_names if name in own)


@pytest.mark.parametrize("template", VECTOR, ids=lambda template: template.name)
def test_what_is_read_while_a_kernel_is_written_is_in_its_name(template: Template) -> None:
    load, module = WORKLOADS[template.name], ModuleType("k_emitting")
    few = replace(MACHINE, registers=13)  # tiles are low, and written by the same functions
    source = template.source(load, template.default(load, few), few)
    exec(compile(source, "k_emitting", "exec"), module.__dict__)
    assert [i for i in read_while_written(module) if not is_named(*i)] == []


FILES = [p for m in (emit, core) for p in sorted(Path(m.__file__ or "").parent.glob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_numba_compiles_imports_what_is_in_its_name(path: Path) -> None:
    assert [i for i in imports(path).values() if not is_named(*i)] == []


def test_the_table_of_dim_functions_is_in_the_name_of_what_evaluates_them() -> None:
    """Code has their numbers: where one is put before others, `fill` is another kernel."""
    assert ROOT / "types" / "function.py" in NAMED
