"""Saved programs are code: whose file is run, and what `rebuild` never runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from click.testing import CliRunner, Result
from test_save import mlp, same, use

import bucketize
from bucketize import ops
from bucketize.cli.group import main
from bucketize.errors import KernelError, ProgramError
from bucketize.ir import Builder, Module, Var
from bucketize.machine import file as files
from bucketize.machine.file import open_to_others
from bucketize.save import read as stored
from bucketize.save.container import File, write
from bucketize.types import tensor

X = np.ones((5, 12), np.float32)


def run(*args: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, args)
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def path(tmp_path: Path) -> Path:
    bucketize.compile(mlp()).save(tmp_path / "m.bkt")
    return tmp_path / "m.bkt"


def contents(path: Path) -> tuple[dict[str, Any], list[bytes]]:
    """The header and the blobs of a program, to be written again."""
    file = File(path)
    header = dict(file.header)
    return header, [bytes(file.blob(i)) for i in range(len(header.pop("blobs")))]


# --- whose file is run ---------------------------------------------------------------------------


def test_who_may_write_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(mode: int, user: int = os.getuid(), group: int = os.getgid()) -> str | None:
        status = os.stat_result([mode, 0, 0, 0, user, group, 0, 0, 0, 0])
        return open_to_others(tmp_path, status)

    monkeypatch.setattr(files, "_is_private", lambda group: group == 4242)
    file, directory = 0o100000, 0o40000
    for mode in (file | 0o644, file | 0o600, directory | 0o755, directory | 0o1777):
        assert told(mode) is told(mode, user=0) is None
        assert told(mode, user=4242) == f"{tmp_path} belongs to user 4242"
    for mode in (file | 0o666, file | 0o646, file | 0o664, directory | 0o777, directory | 0o775):
        assert told(mode) == told(mode, user=0) == f"others may write to {tmp_path}"
    assert told(file | 0o664, group=4242) is told(directory | 0o775, group=4242) is None
    assert told(file | 0o666, group=4242) == f"others may write to {tmp_path}"


@pytest.mark.parametrize(
    ("user", "group", "is_private"),
    [("ann", "ann", True), ("ann", "staff", False), ("ann", None, False), (None, "ann", False)],
)
def test_a_group_of_the_users_own_name_is_private(
    user: str | None, group: str | None, is_private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def entry(name: str | None, field: str) -> object:
        if name is None:
            raise KeyError("not found")
        return type("entry", (), {field: name})

    monkeypatch.setattr(files.pwd, "getpwuid", lambda _: entry(user, "pw_name"))
    monkeypatch.setattr(files.grp, "getgrgid", lambda _: entry(group, "gr_name"))
    for number, expected in ((1000, is_private), (0, False)):
        monkeypatch.setattr(files.os, "getuid", lambda number=number: number)
        assert files._is_private(1000) is expected


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_program_that_others_may_write_is_refused_unless_trusted(path: Path, what: str) -> None:
    want = bucketize.load(path).run(X)
    place = path if what == "file" else path.parent
    place.chmod(0o777)
    link = path.with_name("link.bkt")
    link.symlink_to(path)
    for name in (path, link):
        message = rf"others may write to {place}, and a saved program is code: .*trusted=True"
        with pytest.raises(ProgramError, match=message):
            bucketize.load(name)
        same(bucketize.load(name, trusted=True).run(X), want)
        same(bucketize.load(name, rebuild=True).run(X), want)
    place.chmod(0o755)
    use(path)


def test_a_program_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    if path.stat().st_uid == 0:  # whose files everybody trusts
        use(path)
        os.chown(path, 4241, -1)
    with pytest.raises(ProgramError, match=rf"{path} belongs to user \d+, and a saved program is"):
        bucketize.load(path)
    use_trusted = bucketize.load(path, trusted=True)
    assert use_trusted.inputs == ("data",)


def test_the_command_line_refuses_and_trusts(path: Path) -> None:
    path.chmod(0o666)
    for command in ("run", "profile"):
        done = run(command, str(path), "--at", "N=2", code=2)
        assert done.stderr.startswith(f"error: others may write to {path}, and a saved program")
        assert "--trusted" in done.stderr
        for option in ("--trusted", "--rebuild"):
            assert run(command, str(path), "--at", "N=2", "--repeat", "1", option).stdout
        done = run(command, "zoo:mlp", "--at", "N=1", "--trusted", code=2)
        assert "no saved program: --trusted is for those" in done.stderr


@pytest.mark.parametrize("command", ["run", "profile"])
def test_help_says_that_a_program_is_code(command: str) -> None:
    text = " ".join(run(command, "--help").stdout.split())
    assert "is code: load only what you trust" in text


# --- what rebuild never runs ---------------------------------------------------------------------


def test_rebuild_never_touches_machine_code_of_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it where processor and version are the file's: here all of it is rubbish."""

    def load_object(name: str, _: bytes) -> NoReturn:
        raise KernelError(f"{name} of the file is loaded")

    want = bucketize.load(path).run(X)
    header, blobs = contents(path)
    code = [*header["kernels"].values(), *(blob for _, blob in header["core"].values())]
    for blob in code:
        blobs[blob] = b"\x7fELF, or so it says"
    write(path, header, blobs)
    monkeypatch.setattr(stored, "load_object", load_object)
    with pytest.raises(KernelError, match="of the file is loaded"):
        bucketize.load(path)
    exe = bucketize.load(path, rebuild=True)
    same(exe.run(X), want)
    assert all(kernel.path for kernel in exe.kernels.values())


def test_an_object_that_lacks_its_function_names_the_file(path: Path) -> None:
    header, blobs = contents(path)
    (_, first), (_, second), *_ = header["core"].values()
    blobs[first], blobs[second] = blobs[second], blobs[first]
    header["core"] = {n: [f"renamed_{k}", b] for n, (k, b) in header["core"].items()}
    write(path, header, blobs)
    with pytest.raises(
        KernelError, match="cannot be loaded: it lacks its function renamed_"
    ) as caught:
        bucketize.load(path)
    assert caught.value.notes == (f"in {path}",)


def test_text_of_a_file_does_not_get_into_the_source_of_a_kernel(tmp_path: Path) -> None:
    x, b = Var("x", tensor("float32", 1, 4, 4, 2)), Builder()
    y = b.emit(ops.resize, x, axes=(1, 2), sizes=(8, 8), mode="linear")
    path = tmp_path / "resize.bkt"
    bucketize.compile(Module({"main": b.function("main", [x], [y])})).save(path)
    header, blobs = contents(path)
    planted = tmp_path / "planted"
    evil = f'"""; open(\'{planted}\', \'w\')\n"""'
    (segment,) = header["segments"]
    before = segment["text"]
    segment["text"] = before.replace("mode='linear'", f"mode='linear', cubic={evil!r}")
    assert segment["text"] != before
    write(path, header, blobs)
    with pytest.raises(KernelError, match="resize: expected a word as cubic, got"):
        bucketize.load(path, rebuild=True)
    assert not planted.exists()


@pytest.mark.parametrize("rebuild", [False, True])
def test_types_around_a_segment_are_its_own(path: Path, rebuild: bool) -> None:
    """A kernel would read and write beyond arrays that are smaller than its types say."""
    header, blobs = contents(path)
    (routine,) = header["routines"]
    assert routine["types"][0] == "float32[N, 12]"
    routine["types"][0] = "float32[N, 2]"
    write(path, header, blobs)
    with pytest.raises(ProgramError, match=r"a segment of \['float32\[N, 12\]', .* stands among"):
        bucketize.load(path, rebuild=rebuild).run(np.ones((5, 2), np.float32))


def test_sizes_are_read_of_as_many_words(tmp_path: Path) -> None:
    """A library would read beyond a tensor that is smaller."""
    x, k, b = Var("x", tensor("float32", 1, 4)), Var("k", tensor("int64", 2)), Builder()
    path = tmp_path / "tile.bkt"
    mod = Module({"main": b.function("main", [x, k], [b.emit(ops.dyn_tile, x, k)])})
    bucketize.compile(mod).save(path)
    header, blobs = contents(path)
    (routine,) = header["routines"]
    assert routine["types"][1] == "int64[2]"
    routine["types"][1] = "int32[2]"
    write(path, header, blobs)
    with pytest.raises(ProgramError, match=r"2 sizes are read of int32\[2\]"):
        bucketize.load(path).run(np.ones((1, 4), np.float32), np.ones(2, np.int32))


def test_a_segment_is_a_function_of_the_types_beside_its_text(path: Path) -> None:
    """A run believes these and reads no text; who asks what it computes is told."""
    header, blobs = contents(path)
    for entry, key in ((header["segments"][0]["types"], 0), (header["routines"][0], "types")):
        types = entry[key]
        assert types[0] == "float32[N, 12]"
        entry[key] = ["float32[M, 12]", *types[1:]]
    write(path, header, blobs)
    with pytest.raises(ProgramError, match=r"a segment of types .*M, 12.* is a function of types"):
        str(bucketize.load(path).program)


# --- a file that is replaced while it is used ----------------------------------------------------


def test_a_program_that_is_saved_over_is_kept_by_who_uses_it(path: Path) -> None:
    exe, inode = bucketize.load(path), path.stat().st_ino
    (scores, hidden), x = bucketize.load(path).run(X), Var("x", tensor("float32", 3))
    b = Builder()
    other = Module({"main": b.function("main", [x], [b.emit(ops.relu, x)])})
    bucketize.compile(other).save(path)
    assert path.stat().st_ino != inode
    same(exe.run(X), [scores, hidden])  # read only now
    assert bucketize.load(path).inputs == ("x",)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.bkt")
    with pytest.raises(ProgramError, match=r"p\.bkt is no file that `save` wrote$"):
        bucketize.load(tmp_path / "p.bkt")
