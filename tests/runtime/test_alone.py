"""What `bucketize-runtime` installs: it runs saved programs, asks for numpy alone, and says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from ast import literal_eval
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import bucketize
from bucketize import ops, zoo
from bucketize.ir import Builder, Module, Var
from bucketize.types import Symbol, tensor
from dispatchers import log_dispatcher

ROOT = Path(__file__).parents[2]
X = np.linspace(-1, 1, 3 * 784, dtype=np.float32).reshape(3, 784)

ALONE = """
import sys
from importlib.abc import MetaPathFinder

OTHERS = {"llvmlite", "numba", "onnx", "pandas", "ml_dtypes", "platformdirs", "click", "rich"}

class Nothing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OTHERS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nothing())
import numpy as np
import bucketize
from bucketize.errors import BucketizeError
assert bucketize.__file__.startswith(sys.argv[1])
"""


@cache
def runtime_files() -> frozenset[Path]:
    """As the build has it; what builds wheels need not be installed."""
    base = type("Base", (), {"__class_getitem__": classmethod(lambda cls, _: cls)})
    names = (
        ("hatchling.builders.hooks.plugin.interface", {"BuildHookInterface": base}),
        ("hatchling.metadata.plugin.interface", {"MetadataHookInterface": base}),
    )
    module = ModuleType("hatch_build")
    module.__dict__["__file__"] = str(ROOT / "hatch_build.py")
    fakes = {name: SimpleNamespace(**values) for name, values in names}
    with mock.patch.dict(sys.modules, fakes):
        exec((ROOT / "hatch_build.py").read_text(), module.__dict__)
    return frozenset(module.runtime_files(ROOT))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as the wheel of the runtime has it."""
    place = tmp_path_factory.mktemp("alone")
    for file in runtime_files():
        there = place / file.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.symlink_to(file)
    return place


def alone(package: Path, script: str, *arguments: object) -> str:
    """What a process prints that has the runtime and numpy."""
    numpy = Path(np.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (package, numpy)))}
    command = [sys.executable, "-P", "-S", "-c", ALONE + script, package, *arguments]
    done = subprocess.run(
        list(map(str, command)), check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "mlp.bkt"
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 8)})
    bucketize.compile(bucketize.dispatch(mod, log_dispatcher)).save(path)
    return path


LATER = {
    *("bucketize.inspect.explain", "bucketize.kernel.template", "bucketize.ops.linalg"),
    *("bucketize.save.write", "bucketize.traffic.value", "bucketize.warm_up"),
}
"""What no answer needs, and its first caller would wait for."""

RUN = """
exe = bucketize.load(sys.argv[2])
x = np.load(sys.argv[3])
exe.run(x)
print(sorted(name for name in sys.modules if name.startswith("bucketize.")))
exe.warm_up()
exe.limit(1 << 30)
np.save(sys.argv[4], exe.run(x)[0])
memory = exe.memory(N=3)
print(exe.explain(N=3).clone, memory.of_call > 0, exe.trim() >= memory.arena, exe.traffic.total)
print(sorted(OTHERS & {name.partition(".")[0] for name in sys.modules}))
"""


def test_a_dispatched_program_runs_on_numpy_alone(
    package: Path, program: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", X)
    said = alone(package, RUN, program, tmp_path / "x.npy", tmp_path / "y.npy")
    imported, *lines = said.splitlines()
    clone = bucketize.load(program).explain(N=3).clone
    assert lines == [f"{clone} True True 2", "[]"]
    assert LATER.isdisjoint(literal_eval(imported))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), bucketize.load(program).run(X)[0])


MANY = """
exe = bucketize.load(sys.argv[2])
x = np.load(sys.argv[3])
(first,), (second,) = exe.run_many([{"data": x}, {"data": x[:1]}])
np.savez(sys.argv[4], first=first, second=second)
"""


def test_requests_are_answered_together(package: Path, program: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    alone(package, MANY, program, tmp_path / "x.npy", tmp_path / "y.npz")
    exe, got = bucketize.load(program), np.load(tmp_path / "y.npz")
    np.testing.assert_array_equal(got["first"], exe.run(X)[0])
    np.testing.assert_array_equal(got["second"], exe.run(X[:1])[0])


def test_what_numpy_computes_it_computes_there(package: Path, tmp_path: Path) -> None:
    x, out = Var("x", tensor("float32", Symbol("N", 1, 9))), Builder()
    found = out.emit(ops.nonzero, x)
    mod = Module({"main": out.function("main", [x], [found])})
    bucketize.compile(mod).save(tmp_path / "m.bkt")
    script = "print(bucketize.load(sys.argv[2]).run(np.array([1, 0, 2], np.float32))[0].tolist())"
    assert alone(package, script, tmp_path / "m.bkt") == "[[0, 2]]\n"


ERRORS = """
def told(run):
    try:
        run()
    except (AttributeError, BucketizeError) as e:
        print(type(e).__name__, e)

exe = bucketize.load(sys.argv[2])
told(lambda: bucketize.compile)
told(lambda: exe.profile(np.ones((3, 784), np.float32)))
told(lambda: exe.report())
told(lambda: bucketize.load(sys.argv[2], rebuild=True))
"""


def test_what_compiles_or_models_says_where_it_is(package: Path, program: Path) -> None:
    what = ("compiler", "inspect.profile", "inspect.report", "compiler")
    kinds = ("AttributeError", *["BucketizeError"] * 3)
    assert alone(package, ERRORS, program).splitlines() == [
        f"{kind} bucketize.{name} is no part of bucketize-runtime: pip install bucketize"
        for kind, name in zip(kinds, what, strict=True)
    ]


def test_a_dtype_of_another_package_is_asked_for(package: Path, tmp_path: Path) -> None:
    x, out = Var("x", tensor("bfloat16", 3)), Builder()
    mod = Module({"main": out.function("main", [x], [out.emit(ops.relu, x)])})
    bucketize.compile(mod).save(tmp_path / "m.bkt")
    script = """
try:
    bucketize.load(sys.argv[2])
except BucketizeError as e:
    print(e)
"""
    told = alone(package, script, tmp_path / "m.bkt")
    assert "bfloat16 is a dtype of ml_dtypes: pip install ml_dtypes" in told


def test_the_runtime_is_small() -> None:
    assert sum(file.stat().st_size for file in runtime_files()) < 1.5e6


def test_sources_that_were_never_installed_say_so(package: Path, tmp_path: Path) -> None:
    """Who built them wrote down which release they are; these nobody did."""
    shutil.copytree(package, tmp_path / "p", symlinks=True)
    (tmp_path / "p" / "bucketize" / "_version.py").unlink()
    script = """
from bucketize.release import release
try:
    release()
except BucketizeError as e:
    print(e)
"""
    assert alone(tmp_path / "p", script) == (
        "bucketize is not installed: pip install -e ./runtime -e . where it lies\n"
    )
