"""Kernels as files: compiled once for all processes, noticed when torn, refused when unwritable."""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib.util
import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import llvmlite.binding as llvm
import numpy as np
import pytest
from filelock import FileLock, Timeout

from bucketize.errors import BucketizeWarning, KernelError
from bucketize.kernel import build as module
from bucketize.kernel import cache as files
from bucketize.kernel.build import Builders, Building, Kernel, build
from bucketize.kernel.codegen import compiled
from bucketize.kernel.object import load, unsealed
from bucketize.lock import locked
from bucketize.machine import directory
from bucketize.machine import file as owners
from bucketize.machine.host import processor

SOURCE = '''"""Adds a number to every element."""

from numba import float32

from bucketize.kernel.emit.entry import entry
from bucketize.kernel.emit.native import pointer


@entry
def kernel(block):
    out, x = pointer(block[0], float32), pointer(block[1], float32)
    for i in range(block[3], block[4]):
        out[i] = x[i] + float32({number})
'''
CHILD = """
import sys, time
from bucketize.kernel.build import build
kernel = build(sys.stdin.read(), name_hint="add")
print(kernel.cached, kernel.name)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(files.VARIABLE, str(tmp_path))
    monkeypatch.setattr(module, "_built", {})
    return tmp_path


def source(number: float) -> str:
    return SOURCE.format(number=number)


def run(kernel: Kernel, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    out = np.full_like(x, np.nan)
    block = np.array([out.ctypes.data, x.ctypes.data, 0, 0, x.size], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kernel.address)(block.ctypes.data)
    return out


def check(kernel: Kernel, number: float) -> None:
    x = np.arange(37, dtype=np.float32)
    np.testing.assert_array_equal(run(kernel, x), x + np.float32(number))


def flipped(file: bytes) -> bytes:
    return file[:-9] + bytes([file[-9] ^ 4]) + file[-8:]


def start_child(text: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None
    child.stdin.write(text)
    child.stdin.close()
    return child


def answer(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    with child.stdout as out:
        said = out.read().split()
    assert child.wait() == 0
    return said


def test_a_kernel_is_a_readable_file_that_runs(cache: Path) -> None:
    kernel = build(source(1), name_hint="add")
    check(kernel, 1)
    assert kernel.path == cache / f"{kernel.name}.py"
    assert kernel.path.read_text() == source(1)
    assert kernel.name.startswith("k_add_")
    assert not kernel.cached
    assert kernel.compile_s > 0


def test_the_same_source_is_the_same_kernel_and_another_is_not(cache: Path) -> None:
    one, again, other = (build(source(n), name_hint="add") for n in (1, 1, 2))
    assert again is one
    assert other.name != one.name
    check(other, 2)


CALLER = """
from bucketize.kernel.emit.integer import entry
from bucketize.kernel.emit.word import call_address

@entry
def kernel(block):
    for i in range(block[0]):
        call_address(block[1][i], block[2][i])
"""


def test_a_table_of_addresses_is_called_from_compiled_code(cache: Path) -> None:
    caller = build(CALLER, name_hint="caller")
    kernels = [build(source(n), name_hint="add") for n in (1, 2)]
    x, out = np.ones(3, np.float32), np.zeros((2, 3), np.float32)
    blocks = np.array([[o.ctypes.data, x.ctypes.data, 0, 0, 3] for o in out], np.int64)
    addresses = np.array([k.address for k in kernels], np.int64)
    places = np.array([b.ctypes.data for b in blocks], np.int64)
    table = np.array([len(kernels), addresses.ctypes.data, places.ctypes.data], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(caller.address)(table.ctypes.data)
    np.testing.assert_array_equal(out, [[2] * 3, [3] * 3])


def test_a_second_process_compiles_nothing(cache: Path) -> None:
    kernel = build(source(3), name_hint="add")
    assert answer(start_child(source(3))) == ["True", kernel.name]


def test_two_processes_at_once_compile_once(cache: Path) -> None:
    children = [start_child(source(4)) for _ in range(2)]
    assert sorted(answer(c)[0] for c in children) == ["False", "True"]
    assert not list(cache.glob("*.tmp"))
    assert not list(cache.glob("*.lock"))


@pytest.mark.parametrize(
    "tear", [lambda _: b"", lambda f: f[:-1], flipped], ids=["empty", "cut", "bit"]
)
def test_torn_machine_code_is_compiled_anew(
    cache: Path, tear: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = build(source(6), name_hint="add").path.with_suffix(".o")
    file.write_bytes(tear(file.read_bytes()))
    monkeypatch.setattr(module, "_built", {})
    again = build(source(6), name_hint="add")
    check(again, 6)
    assert not again.cached
    assert unsealed(file.read_bytes(), file.stem) == again.code


def test_machine_code_under_anothers_name_is_compiled_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that swapped their names are whole, and each would answer for the other."""
    one, other = (build(source(n), "add").path.with_suffix(".o") for n in (61, 62))
    between = one.with_suffix(".swap")
    one.rename(between)
    other.rename(one)
    between.rename(other)
    monkeypatch.setattr(module, "_built", {})
    monkeypatch.setattr("bucketize.kernel.object._addresses", {})
    for n, file in ((61, one), (62, other)):
        again = build(source(n), "add")
        check(again, n)
        assert not again.cached
        assert f"{file} is torn or another kernel's; compiling it anew" in caplog.text
        assert unsealed(file.read_bytes(), file.stem) == again.code


def test_a_cache_that_is_whole_needs_no_lock_and_no_writing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(source(5), name_hint="add")
    monkeypatch.setattr(module, "_built", {})
    monkeypatch.setattr(files, "locked", None)
    monkeypatch.setattr(files, "put", None)
    assert build(source(5), name_hint="add").cached


def test_who_waits_for_the_lock_of_a_kernel_says_so_and_for_whom(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketize.lock.PATIENCE_S", 0.1)
    monkeypatch.setattr(files, "LOCK_TIMEOUT_S", 0.3)
    cache.mkdir(exist_ok=True)
    holder = rf"the lock .*k_1\.lock, which process {os.getpid()} holds"
    with (
        FileLock(cache / "k_1.lock"),
        pytest.warns(BucketizeWarning, match=rf"^waiting for {holder}; up to 0.3 s$"),
        pytest.raises(KernelError, match=rf"cannot keep a kernel in .*: waited 0.3 s for {holder}"),
    ):
        files.made(cache / "k_1.py", "", lambda _: b"")


def test_what_is_waited_in_silence_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").touch()
    waits: list[float] = []

    def acquire(_lock: FileLock, timeout: float) -> None:
        waits.append(timeout)
        raise Timeout("a")

    monkeypatch.setattr("bucketize.lock.FileLock.acquire", acquire)
    for timeout in (60.0, 0.5):
        with pytest.raises(TimeoutError), locked(tmp_path / "a", timeout, lambda _: None):
            pass
    assert waits == [1.0, 59.0, 0.5, 0.0]


def test_an_object_without_the_function_is_refused() -> None:
    module = llvm.parse_assembly("define void @f() { ret void }")
    code = compiled(module, "f", "one", processor())
    with pytest.raises(KernelError, match="lacks its function two"):
        load("two", code)


def test_a_kernel_that_does_not_compile_says_why(cache: Path) -> None:
    with pytest.raises(NameError, match="entri"):
        build(source(7).replace("@entry", "@entri"), name_hint="add")
    assert not list(cache.glob("*.o"))


def test_a_place_that_cannot_hold_the_cache_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("")
    monkeypatch.setenv(files.VARIABLE, str(occupied / "cache"))
    with pytest.raises(KernelError, match=rf"{occupied}/cache .set BUCKETIZE_CACHE.*directory"):
        build(source(8), name_hint="add")


def test_a_full_disk_is_named_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(KernelError, match=r"BUCKETIZE_CACHE.*No space left"):
        build(source(8), name_hint="add")
    assert not list(cache.glob("*.py*")) + list(cache.glob("*.tmp"))


def test_the_cache_is_the_users_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(files.VARIABLE)
    assert directory.cache_directory().name == "bucketize"


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_that_others_may_write_to_is_refused(
    cache: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(source(9), "add")
    monkeypatch.setattr(module, "_built", {})
    monkeypatch.setattr(owners, "_is_private", lambda _: False)
    cache.chmod(mode)
    for text in (source(9), source(10)):  # to read, to write
        with pytest.raises(KernelError, match=f"others may write to {cache}, .*chmod go-w"):
            build(text, "add")


def test_machine_code_that_others_may_write_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = build(source(11), "add").path.with_suffix(".o")
    monkeypatch.setattr(module, "_built", {})
    file.chmod(0o666)
    with pytest.raises(KernelError, match=f"others may write to {file}"):
        build(source(11), "add")


def test_what_belongs_to_others_is_refused_but_to_root_is_not(tmp_path: Path) -> None:
    told = list(tmp_path.stat())
    for user in (os.getuid(), 0):
        files._check_owner(tmp_path, os.stat_result([0o40755, *told[1:4], user, *told[5:]]))
    with pytest.raises(KernelError, match=r"belongs to user 4242.*set BUCKETIZE_CACHE"):
        files._check_owner(tmp_path, os.stat_result([0o40755, *told[1:4], 4242, *told[5:]]))


def test_compiled_python_files_are_not_believed(cache: Path) -> None:
    """A planted __pycache__ would run before any digest is looked at."""
    name = module.kernel_name(source(12), "add", processor())
    planted = Path(importlib.util.cache_from_source(str(cache / f"{name}.py")))
    planted.parent.mkdir()
    (cache / "evil.py").write_text("raise SystemExit('planted code has run')")
    py_compile.compile(
        str(cache / "evil.py"),
        str(planted),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    check(build(source(12), "add"), 12)


def test_kernels_out_of_use_are_removed(cache: Path) -> None:
    old, new = (build(source(n), "add") for n in (13, 14))
    os.utime(old.path.with_suffix(".o"), (0, 0))
    assert [k.source for k in files.kernels()] == [old.path, new.path]
    assert all(k.size > len(k.source.read_bytes()) for k in files.kernels())
    assert [k.source for k in files.prune(30)] == [old.path]
    assert sorted(p.suffix for p in cache.iterdir()) == [".o", ".py"]


def test_what_another_process_removes_meanwhile_is_not_told(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, gone = (build(source(n), "add") for n in (15, 16))
    for kernel in (kept, gone):
        os.utime(kernel.path.with_suffix(".o"), (0, 0))
    listed = list(cache.glob("k_*.o"))
    gone.path.with_suffix(".o").unlink()
    monkeypatch.setattr(Path, "glob", lambda *_: iter(listed))
    assert [k.source for k in files.kernels()] == [kept.path]
    assert files.other_bytes() == kept.path.with_suffix(".o").stat().st_size  # the other is gone
    kept.path.unlink()
    assert [k.source for k in files.prune(30)] == [kept.path]
    assert files.kernels() == []


# --- several at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_kernels_are_built_beside_other_work(
    cache: Path, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "cores", lambda: cores)
    old = build(source(20), "add")
    texts = {source(n): "add" for n in range(20, 28)}
    told: list[tuple[str, int, int]] = []
    with Building() as building:
        building.want(dict(list(texts.items())[:5]))
        building.want(texts)
        building.finish(lambda *at: told.append(at))
        building.finish()
    kernels = [build(text, "add") for text in texts]
    assert not any(k.cached for k in kernels)
    assert kernels[0].address == old.address
    for number, kernel in enumerate(kernels, 20):
        check(kernel, number)
    first = told[0][1]
    assert [at[1:] for at in told[1:]] == [(i, 7) for i in range(first + 1, 8)]
    assert told[0] == ("kernels", first, 7)


@pytest.mark.parametrize("cores", [1, 2])
def test_what_is_wrong_with_one_of_many_is_raised(
    cache: Path, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "cores", lambda: cores)
    wrong = source(30).replace("@entry", "@entri")
    with Building() as building:
        building.want({wrong: "add", **{source(n): "add" for n in range(31, 34)}})
        with pytest.raises((NameError, KernelError), match="entri"):
            building.finish()


def test_a_process_that_dies_of_a_kernel_is_told_of(cache: Path) -> None:
    with Builders(processor()) as builders:
        with pytest.raises(KernelError, match=r"cannot compile add: NameError.*entri"):
            builders.build(source(34).replace("@entry", "@entri"), "add")
        with pytest.raises(KernelError, match=r"process that compiles kernels died \(exit 3\)"):
            builders.build("import os; os._exit(3)", "add")


def test_what_is_not_finished_is_not_waited_for(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "cores", lambda: 2)
    texts = {source(n): "add" for n in range(40, 60)}
    with Building() as building:
        building.want(texts)
    assert len(list(cache.glob("*.o"))) < len(texts)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_left_as_it_was(cache: Path, is_on: bool) -> None:
    try:
        (gc.enable if is_on else gc.disable)()
        build(source(60 + is_on), "add")
        assert gc.isenabled() == is_on
    finally:
        gc.enable()


def test_a_builder_whose_parent_has_gone_ends_without_a_word() -> None:
    command = [sys.executable, "-m", "bucketize.kernel.builder"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        process.stdout.close()
        process.stdin.write(json.dumps(["no source", "none", asdict(processor())]) + "\n")
        process.stdin.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (0, "")
