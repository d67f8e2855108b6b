"""The words of blocks are named in one place: native code and Python read them there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from test_rounds import module_of, random
from test_strip import Chain, H, N, W, compiled, data, images, residual

import bucketize
from bucketize import ops
from bucketize.errors import KernelError, ShapeError
from bucketize.kernel.build import build
from bucketize.link import block, strip
from bucketize.link.block import FILL
from bucketize.link.image import CORE
from bucketize.link.link import core_source
from bucketize.link.table import row, table
from bucketize.machine.host import host
from bucketize.machine.target import cores

ROOT = Path(bucketize.__file__).parent
NATIVE = sorted((ROOT / "link" / "native").glob("*.py"))
OTHERS = {"RANGE", "FOUND", "COUNTER"}
"""Words that kernels of programs read and write."""
EITHER = {"SHARE", "WATCH"}
"""Blocks whose first word tells which of the two they are."""


def results() -> list[np.ndarray]:
    """What programs compute that use all native kernels: strips, threads, rounds, and an error."""
    found: list[np.ndarray] = []
    with (
        mock.patch.object(strip, "SHARE", 2048 / host().l2),
        mock.patch.object(strip, "CONSTANT", 1e6),
    ):
        for threads in (1, min(2, cores())):
            exe = compiled(residual(Chain(data(N, 8, H, W))).emit(ops.relu).fn(), threads)
            for shape in ((2, 8, 30, 20), (1, 8, 64, 33)):
                assert any(step["strip"] for step in exe.explain(x=shape).steps)
                found += exe.run(images(*shape))
    exe = bucketize.compile(module_of("taken"))
    found += exe.run(n=np.array(7), x=random(9), z=random(9, 1))
    with pytest.raises(ShapeError, match="in gather: index 1 is out of range for extent 1") as e:
        exe.run(n=np.array(3), x=random(1), z=random(1, 1))
    return [*found, np.array(str(e.value))]


def moved(text: str) -> str:
    """The same declarations, with a field more in each and the others in another order."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("IntEnum"), [ast.Constant(name), ast.Constant(names)]):
                fields = names.split()
                first = fields[: name in EITHER]
                if name not in OTHERS:
                    names = " ".join([*first, "spare", *reversed(fields[len(first) :])])
                node.args[1] = ast.Constant(names)
    return ast.unparse(tree)


def test_a_field_is_inserted_in_one_place(tmp_path: Path) -> None:
    """All else of the package is as it is: plans are filled and run to equal results."""
    package = tmp_path / "package" / "bucketize"
    for folder in (package, package / "link"):
        folder.mkdir(parents=True)
        for path in (ROOT / folder.relative_to(package)).iterdir():
            if path.name not in ("link", "block.py"):
                (folder / path.name).symlink_to(path)
    declared = moved((ROOT / "link" / "block.py").read_text())
    (package / "link" / "block.py").write_text(declared)
    assert declared.count("spare") == declared.count("IntEnum(") - len(OTHERS)
    script = f"""
import conftest, numpy, test_block
from bucketize.link import block
assert "spare" in block.FILL.__members__
numpy.savez({str(tmp_path / "results")!r}, *test_block.results())
"""
    tests = Path(__file__).parent.parent
    path = os.pathsep.join(map(str, (package.parent, tests, *sys.path)))
    command = [sys.executable, "-P", "-c", script]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
    with np.load(tmp_path / "results.npz") as there:
        for mine, other in zip(results(), there.values(), strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("path", NATIVE, ids=lambda p: p.stem)
def test_native_code_has_no_word_by_its_number(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Subscript):
            assert not isinstance(node.slice, ast.Constant), ast.unparse(node)


@pytest.mark.parametrize("name", CORE)
def test_a_native_kernel_is_another_where_words_are(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = core_source(name)
    monkeypatch.setattr("bucketize.link.link.agreed", lambda: "something else")
    assert core_source(name) != before


def test_a_name_that_is_not_known_is_an_error_that_tells_those_that_are() -> None:
    text = core_source("walk").replace("walk.extent", "walk.extend")
    with pytest.raises(KernelError, match=r"WALK has what, first, .*, extent, not 'extend'"):
        build(text, name_hint="walk")
    with pytest.raises(KeyError, match="CHECK has relation, a, b, not c, d"):
        row(block.CHECK, a=1, c=2, d=3)
    with pytest.raises(KeyError, match="CHECK has relation, a, b, not c"):
        table(block.CHECK, "relation c", [(1, 2)])


def test_what_is_not_told_is_zero() -> None:
    words = row(FILL, threads=3, width=5)
    assert len(words) == len(FILL)
    assert {name for name, word in zip(FILL.__members__, words, strict=True) if word} == {
        "threads",
        "width",
    }
    assert table(block.CHECK, "b relation", [(1, 2), (3, 4)]).tolist() == [[2, 0, 1], [4, 0, 3]]
    assert table(block.CHECK, "a b", []).shape == (0, 3)
