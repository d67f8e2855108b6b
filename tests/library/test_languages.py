"""The examples of libraries: the same program in five languages, built here and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from c_library import saved_library

import bucketize
from bucketize import zoo
from bucketize.executable import Executable
from dispatchers import log_dispatcher

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF is Linux's")

EXAMPLES = Path(__file__).parents[2] / "examples" / "library"
X = np.random.default_rng(0).standard_normal((3, 784)).astype(np.float32)
LINKED = ["-L.", "-l:model.so", "-Wl,-rpath,."]
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
NODE = Path("/usr/include/node/node_api.h")

BUILDS: dict[str, list[str]] = {
    "c": ["cc", *STRICT, "-I.", "c/main.c", *LINKED, "-o", "main"],
    "cpp": ["c++", *STRICT, "-std=c++17", "-pthread", "-I.", "cpp/main.cpp", *LINKED, "-o", "main"],
    "rust": [
        *("rustc", "-O", "--edition", "2021", "-D", "warnings", "rust/main.rs", "-L."),
        *("-C", "link-arg=-l:model.so", "-C", "link-arg=-Wl,-rpath,.", "-o", "main"),
    ],
    "go": ["go", "build", "-o", "main", "go/main.go"],
    "node": [
        *("cc", "-shared", "-fPIC", "-Wall", f"-I{NODE.parent}", "-I.", "node/addon.c"),
        *(*LINKED, "-o", "model.node"),
    ],
}
RUNS = {"node": ["node", "node/main.js", "./model.node"]}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Executable, Path]:
    """A folder with the library, its header, an input, and the examples."""
    folder = tmp_path_factory.mktemp("languages")
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})
    exe = saved_library(bucketize.dispatch(mod, log_dispatcher), folder / "model.so")
    X.tofile(folder / "in.bin")
    return exe, folder


def run(folder: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    flags = {"CGO_CFLAGS": f"-I{folder}", "GOCACHE": str(folder / "cache"), "GO111MODULE": "off"}
    links = f"-L{folder} -l:model.so -Wl,-rpath,{folder}"
    environment = {**os.environ, **flags, "CGO_LDFLAGS": links}
    return subprocess.run(
        command, check=False, cwd=folder, capture_output=True, text=True, env=environment
    )


def is_there(tool: str) -> bool:
    """Whether a tool is installed; rustup's `rustc` may stand for a toolchain that is not."""
    if tool != "rustc" or not shutil.which(tool):
        return shutil.which(tool) is not None
    told = subprocess.run([tool, "--version"], check=False, capture_output=True)
    return told.returncode == 0


@pytest.mark.parametrize("language", BUILDS)
def test_an_example(language: str, written: tuple[Executable, Path]) -> None:
    exe, folder = written
    build, start = BUILDS[language], RUNS.get(language, ["./main"])
    missing = [tool for tool in {build[0], *start[:1]} - {"./main"} if not is_there(tool)]
    if missing or (language == "node" and not NODE.exists()):
        pytest.skip(f"{language} needs {', '.join(missing) or NODE}")
    built = run(folder, build)
    assert built.returncode == 0, built.stderr
    done = run(folder, [*start, "3", "in.bin", "out.bin"])
    assert done.returncode == 0, done.stderr
    assert (folder / "out.bin").read_bytes() == exe.run(X)[0].tobytes()
    none = run(folder, [*start, "0", "in.bin", "none.bin"])
    assert none.returncode == 1
    assert "input data: dim 0 must be N in [1, 64], got 0" in none.stderr


def test_threads_have_contexts_of_their_own(written: tuple[Executable, Path]) -> None:
    """16 threads, of which each runs all that the rows can be halved to, again and again."""
    exe, folder = written
    if not shutil.which("c++"):
        pytest.skip("c++ is missing")
    build = [*BUILDS["cpp"][:-1], "threads"]
    for sanitised in ([], ["-fsanitize=thread"]):
        built = run(folder, [*build, *sanitised])
        if sanitised and built.returncode:
            pytest.skip(f"no -fsanitize=thread: {built.stderr}")
        assert built.returncode == 0, built.stderr
        done = run(folder, ["./threads", "3", "in.bin", "threads.bin", "16"])
        if "unexpected memory mapping" in done.stderr:
            pytest.skip("the sanitiser cannot run under this kernel")
        assert done.returncode == 0, done.stderr
        assert (folder / "threads.bin").read_bytes() == exe.run(X)[0].tobytes()


def test_the_parts_are_linked_by_others(written: tuple[Executable, Path], tmp_path: Path) -> None:
    exe, folder = written
    if not (shutil.which("make") and shutil.which("cc")):
        pytest.skip("make or cc is missing")
    parts = tmp_path / "model"
    exe.save_library(parts, "c")
    built = run(parts, ["make"])
    assert built.returncode == 0, built.stderr
    shutil.copytree(EXAMPLES / "c", parts / "c")
    shutil.copy(folder / "in.bin", parts)
    assert run(parts, BUILDS["c"]).returncode == 0
    assert run(parts, ["./main", "3", "in.bin", "out.bin"]).returncode == 0
    assert (parts / "out.bin").read_bytes() == exe.run(X)[0].tobytes()
    assert (parts / "model.h").read_text() == (folder / "model.h").read_text().replace(".so:", ":")
    assert run(parts, ["make", "clean"]).returncode == 0
    assert not (parts / "model.so").exists()
