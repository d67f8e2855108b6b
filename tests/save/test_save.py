"""Saved programs: the same results bit for bit, without compiler or cache; damage is named."""

from __future__ import annotations

import copy
import functools
import operator
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketize
from bucketize import ops, zoo
from bucketize.errors import (
    ArgumentError,
    BucketizeError,
    CompileError,
    NoBucketError,
    ProgramError,
    ShapeError,
)
from bucketize.ir import CALL, IF, Builder, Const, Function, Module, Var
from bucketize.link.image import core
from bucketize.machine.host import host
from bucketize.program.instruction import Segment
from bucketize.save import container as file_module
from bucketize.save import read as stored
from bucketize.save.container import HEAD, File, write
from bucketize.text import parse
from bucketize.types import ANY, Symbol, tensor
from dispatchers import log_dispatcher

N = Symbol("N", 1, 16)


def weight(*shape: int) -> Const:
    return Const(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def mlp() -> Module:
    x = Var("data", tensor("float32", N, 12))
    b = Builder()
    y = b.emit(ops.relu, b.emit(ops.add, b.emit(ops.matmul, x, weight(12, 20)), weight(20)))
    z = b.emit(ops.softmax, b.emit(ops.matmul, y, weight(20, 2)), axis=1)
    return Module({"main": b.function("main", [x], [z, y])}, names=["scores", "hidden"])


def values() -> Module:
    """Shapes that depend on values, a branch, a call, constants and inputs as results."""
    x = Var("x", tensor("float32", N, 4))
    m = Var("m", tensor("bool", N))
    flag = Var("flag", tensor("bool"))
    inner = Builder()
    p = Var("p", tensor("float32", ANY, 4))
    callee = inner.function("double", [p], [inner.emit(ops.add, p, p)])
    b = Builder()
    kept = b.emit(ops.compress, x, m, axis=0)
    type_ = tensor("float32", ANY, 4)
    (twice,) = b.emit_all(CALL, kept, callee="double", types=(type_,))
    then, orelse = Builder(), Builder()
    one = then.function("", (), [then.emit(ops.matmul, twice, weight(4, 4))])
    two = orelse.function("", (), [orelse.emit(ops.neg, twice)])
    (picked,) = b.emit_all(IF, flag, then=one, orelse=two)
    main = b.function("main", [x, m, flag], [picked, x, weight(3), weight(2)])
    return Module({"main": main, "double": callee})


def saved(exe: bucketize.Executable, path: Path) -> bucketize.Executable:
    exe.save(path)
    return bucketize.load(path)


def same(a: list[Any], b: list[Any]) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("policy", ["exact", "pad"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_loaded_program_gives_the_same_bits(tmp_path: Path, policy: str, threads: int) -> None:
    mod = bucketize.dispatch(mlp(), log_dispatcher, policy=policy)
    exe = bucketize.compile(mod, threads=threads)
    again = saved(exe, tmp_path / "mlp.bkt")
    assert again.inputs == ("data",)
    assert again.outputs == exe.outputs == ("scores", "hidden")
    assert again.program.threads == threads
    for n in (1, 2, 7, 16, 3):
        x = np.random.default_rng(n).standard_normal((n, 12)).astype(np.float32)
        same(again.run(data=x), exe.run(data=x))
        told = exe.explain(N=n)
        told.alternatives = told.expected = tuple  # what was loaded has neither IR nor models
        assert str(again.explain(N=n)) == f"{told}".replace(str(exe._many()), str(again._many()))
        assert str(again._many()) == "each as it is; it was loaded, and is not ragged"
    with pytest.raises(ShapeError, match=r"input 'data', axis 0: expected N in \[1, 16\], got 17"):
        again.run(np.zeros((17, 12), np.float32))
    assert again.run_clone("main[N=2..3]", np.zeros((3, 12), np.float32))[0].shape == (3, 2)
    expected = r"N in \[2, 3\]" if policy == "exact" else "3"
    with pytest.raises(ShapeError, match=f"expected {expected}, got 5"):
        again.run_clone("main[N=2..3]", np.zeros((5, 12), np.float32))


def test_control_flow_and_data_dependent_shapes(tmp_path: Path) -> None:
    exe = bucketize.compile(values())
    again = saved(exe, tmp_path / "values.bkt")
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    for mask in (np.array([1, 0, 1, 1, 0, 0], bool), np.zeros(6, bool)):
        for flag in (True, False):
            same(again.run(x, mask, np.array(flag)), exe.run(x, mask, np.array(flag)))


def test_shapes_that_are_known_in_part_when_an_op_is_computed(tmp_path: Path) -> None:
    """1 is known of (1, 2*count), which is not in the text; a count of 0 copies an extent."""
    x, b = Var("x", tensor("float32", N)), Builder()
    i = b.emit(ops.nonzero, x)
    twice = b.emit(ops.mul, b.emit(ops.shape_of, i), Const(np.array([1, 2])))
    y = b.emit(ops.dyn_reshape, b.emit(ops.concat, i, i, axis=0), twice)
    exe = bucketize.compile(Module({"main": b.function("main", [x], [y])}))
    again = saved(exe, tmp_path / "part.bkt")
    for values in ([1, 0, 3], [0, 0]):
        inputs = np.array(values, np.float32)
        same(again.run(inputs), exe.run(inputs))


@pytest.mark.parametrize("path", [3, None, b"m.bkt", "a\0b", "\ud800"])
def test_what_is_no_path_is_told(path: Any) -> None:
    exe = bucketize.compile(mlp())
    for use in (exe.save, exe.save_library, bucketize.load):
        with pytest.raises(ArgumentError, match="expected the path of "):
            use(path)


def test_a_pipe_stays_and_so_does_a_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    exe = bucketize.compile(mlp())
    for name, why in (("pipe", "it is a device or a pipe, no file"), ("", "Is a directory")):
        with pytest.raises(ProgramError, match=f"^cannot write .*: {why}$"):
            exe.save(tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_no_bucket_and_profiles(tmp_path: Path) -> None:
    profile = bucketize.Profile({"data": (2, 12)}, {"data": (4, 12)}, {"data": (8, 12)}, "mid")
    mod = bucketize.dispatch(mlp(), lambda _: [profile], fallback=False)
    again = saved(bucketize.compile(mod), tmp_path / "p.bkt")
    assert again.program.clones == mod.clones
    assert again.run_clone("mid", np.zeros((3, 12), np.float32))[0].shape == (3, 2)
    with pytest.raises(NoBucketError, match=r"no bucket covers N=9; buckets: main\[mid:N=2\.\.8\]"):
        again.run(np.zeros((9, 12), np.float32))


@pytest.mark.parametrize("make", [mlp, values])
def test_a_program_is_a_value(tmp_path: Path, make: Callable[[], Module]) -> None:
    """It prints, and is equal to itself compiled again or read back, and to no other."""
    mod = bucketize.dispatch(make(), log_dispatcher) if make is mlp else make()
    programs = [bucketize.compile(mod).program for _ in range(2)]
    bucketize.compile(mod).save(tmp_path / "m.bkt")
    read = bucketize.load(tmp_path / "m.bkt").program
    for name in read.routines:
        read.decide(name)
    assert programs[0] == programs[1] == read
    assert str(read) == str(programs[0])
    assert programs[0] != bucketize.compile(Module({"main": callee()})).program
    assert programs[0] != "a program"


def test_programs_differ_in_constants() -> None:
    def scaled(factor: float) -> bucketize.Executable:
        x = Var("x", tensor("float32", N, 9))
        b = Builder()
        scale = Const(np.full(9, factor, np.float32))
        return bucketize.compile(
            Module({"main": b.function("main", [x], [b.emit(ops.mul, x, scale)])})
        )

    one, same_, other = scaled(2), scaled(2), scaled(3)
    assert str(one.program) == str(other.program)
    assert one.program == same_.program
    assert one.program != other.program


def test_the_text_of_a_program() -> None:
    text = str(bucketize.compile(bucketize.dispatch(mlp(), log_dispatcher)).program)
    assert text.startswith(f"program for {host().name}, 1 thread: scores, hidden\n")
    assert "main(data: float32[N, 12]) on the vm executor" in text
    assert "decide by N: [0, " in text
    assert "call(callee=main[N=2..3]) on %data: float32[N, 12] -> %5: float32[N, 2]" in text
    assert "main[N=1](data: float32[1, 12]) on the graph executor\n  run segment 0 on" in text
    assert "matmul mr=" in text
    text = str(bucketize.compile(values()).program)
    assert "read any1 of %3: int64[] for dyn.nonzero_rows" in text
    assert "call(callee=double) on %4: float32[any1, 4] -> %5: float32[any2, 4]" in text
    assert "  if %flag: bool[] -> %6: float32[any2, 4]\n  then" in text
    assert "return %6: float32[any2, 4], %x: float32[N, 4], const: float32[3]" in text


def callee() -> Function:
    x = Var("x", tensor("float32", N))
    b = Builder()
    return b.function("main", [x], [b.emit(ops.relu, x)])


def test_results_by_name(tmp_path: Path) -> None:
    exe = bucketize.compile(mlp())
    x = np.zeros((2, 12), np.float32)
    assert list(exe.run_named(x)) == ["scores", "hidden"]
    assert saved(exe, tmp_path / "m.bkt").run_named(data=x)["hidden"].shape == (2, 20)


SCRIPT = """
import sys
import threading
import time
import numpy as np
import bucketize
exe = bucketize.load(sys.argv[1])
(y,) = exe.run(np.ones((3, 784), np.float32))
np.save(sys.argv[2], y)
print(sorted(m for m in ("numba", "onnx", "pandas", "skopt", "filelock") if m in sys.modules))
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_loading_needs_neither_compiler_nor_cache_nor_a_writable_disk(
    threads: int, tmp_path: Path
) -> None:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 4)})
    exe = bucketize.compile(mod, threads=threads)
    home = tmp_path / "read-only"
    home.mkdir()
    exe.save(home / "mlp.bkt")
    home.chmod(0o555)
    environment = {
        "HOME": str(home),
        "BUCKETIZE_CACHE": str(home / "no"),
        "BUCKETIZE_TARGET": os.environ.get("BUCKETIZE_TARGET", ""),
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(home / "mlp.bkt"), str(tmp_path / "y.npy")],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == "[]"
    same([np.load(tmp_path / "y.npy")], exe.run(np.ones((3, 784), np.float32)))


# --- what can be wrong with a file ---------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    bucketize.compile(mlp()).save(tmp_path / "m.bkt")
    return tmp_path / "m.bkt"


def use(path: Path) -> None:
    bucketize.load(path).run(np.zeros((2, 12), np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "is no program that `save` wrote"),
        (lambda data: b"PK" + data[2:], "is no program that `save` wrote"),
        (lambda data: data[:30], "header is torn"),
        (lambda data: data[: HEAD + 100], "header is torn"),
        (lambda data: data[:-1], "is torn: it has"),
        (lambda data: data[:HEAD] + b"?" + data[HEAD + 1 :], "header is torn or has changed"),
        (lambda data: data[:18] + b"\x07" + data[19:], "is of format 7, this .* reads format 5"),
        (lambda data: data[:18] + b"\x03" + data[19:], "format 3, this .* reads format 5: load it "
         "with the version that saved it, or save it again"),
    ],
    ids=["empty", "other", "head", "header", "tail", "byte", "newer", "older"],
)  # fmt: skip
def test_a_file_that_is_not_whole_is_refused(
    path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ProgramError, match=message):
        use(path)


def test_a_flipped_bit_is_noticed_wherever_something_is_read(path: Path) -> None:
    whole, read = path.read_bytes(), File(path)
    raw = {entry["blob"] for entry in read.header["constants"]}
    packed = {layout[2]["blob"] for layout in read.header["packed"]}
    used = [i for i in range(len(read.header["blobs"])) if i not in raw or i in packed]
    for i in used:
        start, length, _ = read.header["blobs"][i]
        if length:
            at = read._first + start + length // 2
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(ProgramError, match=f"is damaged: blob {i} is not what was saved"):
                use(path)


def test_words_that_change_places_are_noticed(path: Path) -> None:
    """Sums alone would be the same: single words, sectors, and pages."""
    words = np.random.default_rng(0).integers(0, 256, 1 << 14, np.uint8)
    write(path, {}, [words.tobytes()])
    whole, first = path.read_bytes(), path.stat().st_size - len(words)
    assert File(path).blob(0) == words.data
    for size in (1, 8, 64, 512, 2048, 4096):
        for one, other in ((0, 1), (1, 2), (0, 3)):
            moved = words.copy().reshape(-1, size)
            moved[[one, other]] = moved[[other, one]]
            path.write_bytes(whole[:first] + moved.tobytes())
            with pytest.raises(ProgramError, match="is damaged: blob 0 is not what was saved"):
                File(path).blob(0)


def test_bytes_that_are_not_there_are_not_made_up(path: Path) -> None:
    write(path, {}, [b""])
    assert File(path).array(0, "float32", (0, 64)).shape == (0, 64)
    with pytest.raises(ValueError, match="cannot reshape array of size 0 into shape"):
        File(path).array(0, "float32", (4, 64))


@pytest.mark.parametrize("rebuild", [False, True])
def test_weights_without_bytes_are_damage(path: Path, rebuild: bool) -> None:
    file = File(path)
    header, blobs = file.header, [bytes(file.blob(i)) for i in range(len(file.header["blobs"]))]
    for entry in (*header["constants"], *(entry for *_, entry in header["packed"])):
        blobs[entry["blob"]] = b""
    write(path, {k: v for k, v in header.items() if k != "blobs"}, blobs)
    with pytest.raises(ProgramError, match="cannot reshape array of size 0"):
        bucketize.load(path, rebuild=rebuild).run(np.zeros((2, 12), np.float32))


def places(entry: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each field of a header."""
    items = entry.items() if isinstance(entry, dict) else enumerate(entry[:2])
    for key, value in items:
        if isinstance(entry, dict):
            yield (*above, key)
        if isinstance(value, dict | list):
            yield from places(value, (*above, key))


@pytest.mark.filterwarnings("ignore:.* was compiled for 7 threads")
@pytest.mark.parametrize("wrong", ["missing", "another kind"])
def test_a_header_whose_fields_are_not_what_they_were_is_damaged(path: Path, wrong: str) -> None:
    """Or serves: its digest is right, and not every field is read here."""
    read = File(path)
    head, blobs = read.header, [bytes(read.blob(i)) for i in range(len(read.header["blobs"]))]
    del head["blobs"]  # they are written anew
    damaged = 0
    for *above, last in places(head):
        if wrong == "another kind" and above:
            continue
        changed = copy.deepcopy(head)
        holder = functools.reduce(operator.getitem, above, changed)
        holder[last] = 7
        if wrong == "missing":
            del holder[last]
        write(path, changed, blobs)
        try:
            use(path)
        except BucketizeError as e:
            damaged += "is damaged: its header does not hold together" in str(e)
    assert damaged > 5


def test_a_missing_file_and_a_place_that_cannot_hold_one(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"cannot read .*none.bkt: No such file"):
        bucketize.load(tmp_path / "none.bkt")
    with pytest.raises(ProgramError, match=r"cannot write .*: No such file or directory"):
        bucketize.compile(mlp()).save(tmp_path / "none" / "m.bkt")
    for no_file in (tmp_path, "", "."):
        with pytest.raises(ProgramError, match="cannot write"):
            bucketize.compile(mlp()).save(no_file)
    assert not list(tmp_path.glob("*.tmp"))


def test_threads_read_a_segment_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are those of the one function: variables are told apart by identity."""
    meet, read = threading.Barrier(2), stored.SavedProgram.function

    def slow(*args: Any) -> Function:
        time.sleep(0.02)
        return read(*args)

    def content(segment: Segment) -> tuple[Function, object]:
        meet.wait()
        return segment.fn, segment.every

    monkeypatch.setattr(stored.SavedProgram, "function", slow)
    for segment in bucketize.load(path).program.segments():
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(content, [segment, segment])
        assert one[0] is other[0]
        assert one[1] is other[1]


def test_a_full_disk_leaves_the_file_that_was_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_module.os, "replace", full)
    with pytest.raises(ProgramError, match="No space left on device"):
        bucketize.compile(mlp()).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("what", ["target", "version", "blocks"])
def test_another_machine_or_version_says_so_and_may_rebuild(
    path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = bucketize.compile(mlp()).run(np.ones((5, 12), np.float32))
    read = File(path)
    header = dict(read.header)
    if what == "target":
        its = header["target"]["processor"]
        other = {**its, "cpu": "z80", "features": f"{its['features']},+dotprod,+fma"}
        there = {**header["target"], "processor": other, "name": "z80", "lanes": 4}
        header["target"] = there
        message = "was compiled for z80, and does not run here: it needs .*dotprod.*; rebuild=True"
    elif what == "blocks":
        header["blocks"] = "0" * 16
        message = "is of another build of bucketize .*, whose files differ; rebuild=True"
    else:
        header["bucketize"] = "0.0.1"
        message = "is of bucketize 0.0.1, this is .*; rebuild=True"
    blobs = [bytes(read.blob(i)) for i in range(len(header.pop("blobs")))]
    write(path, header, blobs)
    with pytest.raises(ProgramError, match=message):
        bucketize.load(path)
    exe = bucketize.load(path, rebuild=True)
    assert exe.program.target == host()
    same(exe.run(np.ones((5, 12), np.float32)), want)
    again = saved(exe, path.with_name("again.bkt"))
    same(again.run(np.ones((5, 12), np.float32)), want)


def test_a_schedule_that_is_not_legal_here_gives_way_to_the_default(path: Path) -> None:
    read = File(path)
    header = dict(read.header)
    header["bucketize"] = "0.0.1"
    changed = 0
    for segment in header["segments"]:
        for call in segment["calls"]:
            if call["template"] == "matmul":
                call["schedule"]["mr"] = 1000
                changed += 1
    assert changed == 2
    blobs = [bytes(read.blob(i)) for i in range(len(header.pop("blobs")))]
    write(path, header, blobs)
    exe = bucketize.load(path, rebuild=True)
    same(
        exe.run(np.ones((5, 12), np.float32)),
        bucketize.compile(mlp()).run(np.ones((5, 12), np.float32)),
    )
    assert exe.counts.defaults == len(exe.explain(N=5).steps)


def test_what_is_read_is_only_what_is_asked_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    blob = File.blob
    monkeypatch.setattr(File, "blob", lambda f, i: asked.append(i) or blob(f, i))  # type: ignore[func-returns-value]
    exe = bucketize.load(path)
    assert len(asked) == len(core(1))
    exe.run(np.zeros((2, 12), np.float32))
    raw = {entry["blob"] for entry in File(path).header["constants"]}
    packed = {i for i, (_, layout, _) in enumerate(File(path).header["packed"]) if layout}
    assert packed
    assert not raw <= set(asked)


def test_a_run_reads_no_function(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exe, parse = bucketize.load(path), stored.parse_function
    asked: list[str] = []
    monkeypatch.setattr(
        stored, "parse_function", lambda text, table: asked.append(text) or parse(text, table)
    )
    exe.run(np.zeros((2, 12), np.float32))
    assert not asked
    assert str(exe.program) == str(bucketize.compile(mlp()).program)
    assert asked == [segment["text"] for segment in File(path).header["segments"]]


def test_functions_are_text_in_the_file(path: Path) -> None:
    texts = [segment["text"] for segment in File(path).header["segments"]]
    assert "matmul" in texts[0]
    assert isinstance(texts[0], str)


def test_a_program_for_more_threads_than_any_call_has_is_refused(path: Path) -> None:
    read = File(path)
    header = {**read.header, "threads": 2000}
    blobs = [bytes(read.blob(i)) for i in range(len(header.pop("blobs")))]
    write(path, header, blobs)
    with pytest.raises(CompileError, match="threads: expected 1 to 1024, got 2000"):
        bucketize.load(path)


def test_a_constant_that_is_a_result_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "values.bkt"
    bucketize.compile(values()).save(path)
    whole, read = path.read_bytes(), File(path)
    shapes = [entry["shape"] for entry in read.header["constants"]]
    start, _, _ = read.header["blobs"][read.header["constants"][shapes.index([3])]["blob"]]
    at = read._first + start
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(ProgramError, match="is damaged"):
        bucketize.load(path).run(np.zeros((2, 4), np.float32), np.ones(2, bool), np.array(True))


ORDERED = """
def @main(%x: float32[A, 5, B, B], %y: float32[A + 2*B*C, C]) {
  %0 = conv2d(%x, const[0])
  %1 = conv2d(%x, const[1])
  %2 = matmul(%0, %1)
  %3 = full(shape=(A - 1, B - 2, C - 3, A + C - 4), value=1.0, dtype="float32")
  %4 = relu(%y)
  return %2, %3, %4
}
"""
SAVING = """
import sys, bucketize, numpy as np
from bucketize.text import parse
weights = np.ones((2, 5, 5, 1, 1), np.float32)
bucketize.compile(parse(sys.argv[2], list(weights)), threads=1).save(sys.argv[1])
"""


def test_every_process_saves_the_same(tmp_path: Path) -> None:
    """Nothing comes in the order of a set, which hashes of text decide: they are seeded anew."""
    mine = tmp_path / "mine.bkt"
    weights = list(np.ones((2, 5, 5, 1, 1), np.float32))
    bucketize.compile(parse(ORDERED, weights), threads=1).save(mine)
    saved = [mine.read_bytes()]
    for seed in "12":
        path = tmp_path / f"{seed}.bkt"
        command = [sys.executable, "-c", SAVING, str(path), ORDERED]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": seed})
        saved.append(path.read_bytes())
    assert saved[0] == saved[1] == saved[2]


def test_a_processor_of_another_version_may_tell_more(path: Path) -> None:
    """Once it said whether it adds products of bytes, which its features tell."""
    read = File(path)
    header = dict(read.header)
    blobs = [bytes(read.blob(i)) for i in range(len(header.pop("blobs")))]
    its = {**header["target"]["processor"], "dots": True}
    write(path, {**header, "target": {**header["target"], "processor": its}}, blobs)
    assert bucketize.load(path).program.target.processor == host().processor
