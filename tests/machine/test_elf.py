"""Objects in memory: those of LLVM are run, what is no object of ours is refused."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable

import llvmlite.binding as llvm
import pytest

from bucketize.errors import KernelError
from bucketize.kernel.codegen import compiled
from bucketize.link.ffi import function_at
from bucketize.machine import elf
from bucketize.machine.host import processor
from bucketize.machine.named import KNOWN, named
from bucketize.machine.target import Processor

# A table in memory, a jump through another, constants, and calls of the C library.
IR = """
@squares = private constant [4 x i64] [i64 0, i64 1, i64 4, i64 9]
declare double @pow(double, double)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define i64 @other(i64 %n) noinline {
  %r = mul i64 %n, 3
  ret i64 %r
}
define void @it(ptr %block) {
  %n = load i64, ptr %block
  %place = getelementptr [4 x i64], ptr @squares, i64 0, i64 %n
  %square = load i64, ptr %place
  %out = getelementptr i64, ptr %block, i64 1
  store i64 %square, ptr %out
  %triple = call i64 @other(i64 %n)
  %out2 = getelementptr i64, ptr %block, i64 2
  store i64 %triple, ptr %out2
  %x = sitofp i64 %n to double
  %p = call double @pow(double %x, double 0x4004CCCCCCCCCCCD)
  %out3 = getelementptr i64, ptr %block, i64 3
  store double %p, ptr %out3
  %out4 = getelementptr i64, ptr %block, i64 5
  %many = mul i64 %n, 8
  call void @llvm.memset.p0.i64(ptr %out4, i8 7, i64 %many, i1 false)
  switch i64 %n, label %e [i64 0, label %a
                           i64 1, label %b
                           i64 2, label %c
                           i64 3, label %d
                           i64 4, label %f]
a:
  call void @llvm.memset.p0.i64(ptr %out, i8 1, i64 8, i1 false)
  ret void
b:
  %b1 = call i64 @other(i64 11)
  store i64 %b1, ptr %out2
  ret void
c:
  %c1 = call i64 @other(i64 %square)
  store i64 %c1, ptr %out3
  ret void
d:
  store i64 44, ptr %out2
  ret void
f:
  %f1 = call i64 @other(i64 55)
  store i64 %f1, ptr %out
  ret void
e:
  ret void
}
"""


def made(text: str, its: Processor | None = None) -> bytes:
    return compiled(llvm.parse_assembly(text), "it", "renamed", its or processor())


@pytest.mark.parametrize("n", range(4))
def test_an_object_runs(n: int) -> None:
    block = (ctypes.c_int64 * 16)(n)
    function_at(elf.load(made(IR), "renamed"))(ctypes.addressof(block))
    want = [n, n * n, 3 * n, *struct.unpack("<q", struct.pack("<d", float(n) ** 2.6))]
    sevens = [int.from_bytes(bytes([7] * 8), "little")] * n
    match n:
        case 0:
            want[1] = int.from_bytes(bytes([1] * 8), "little")
        case 1:
            want[2] = 33
        case 2:
            want[3] = 12
        case _:
            want[2] = 44
    assert list(block) == [*want, 0, *sevens, *[0] * (16 - 5 - n)]


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_asked_of_a_loader_is_known(name: str) -> None:
    its = elf.Object.read(made(IR, named(name).processor))
    kinds = {kind for _, kind, *_ in its.relocations()}
    assert kinds
    assert kinds <= elf.FILL[its.machine].keys()
    assert {"pow", "memset"} == {n for _, _, n, s, _ in its.relocations() if not s.section}


def test_an_object_of_another_processor_is_refused() -> None:
    other = "neoverse-n1" if elf._here() == elf.X86 else "x86-64-v3"
    with pytest.raises(KernelError, match="of renamed cannot be loaded: it is for "):
        elf.load(made(IR, named(other).processor), "renamed")


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(KernelError, match="of it cannot be loaded: it lacks its function it"):
        elf.load(made(IR), "it")


def test_a_function_of_no_library() -> None:
    text = """
declare void @unheard_of(ptr)
define void @it(ptr %p) {
  call void @unheard_of(ptr %p)
  ret void
}"""
    with pytest.raises(KernelError, match="asks for unheard_of, which the C library has not"):
        elf.load(made(text), "renamed")


def test_a_section_that_would_be_written_to() -> None:
    text = """
@n = internal global i64 5
define void @it(ptr %p) {
  %a = load i64, ptr @n
  store i64 %a, ptr %p
  %b = add i64 %a, 1
  store i64 %b, ptr @n
  ret void
}"""
    with pytest.raises(KernelError, match=r"its section \.data is not known"):
        elf.load(made(text), "renamed")


def with_kind(code: bytes, kind: int) -> bytes:
    """The object, with a relocation of another kind."""
    its = elf.Object.read(code)
    (table, *_) = (s for s in its.sections if s.type == elf.RELOCATIONS and s.info in its.placed)
    offset, info, addend = elf.RELOCATION.unpack_from(code, table.offset)
    changed = bytearray(code)
    elf.RELOCATION.pack_into(changed, table.offset, offset, info >> 32 << 32 | kind, addend)
    return bytes(changed)


def test_a_relocation_that_is_not_known() -> None:
    with pytest.raises(KernelError, match="its relocation 99 is not known"):
        elf.load(with_kind(made(IR), 99), "renamed")


@pytest.mark.parametrize(
    "torn",
    [
        lambda code: b"",
        lambda code: b"no object at all, but of some length" * 9,
        lambda code: code[:40],
        lambda code: code[: len(code) // 2],
        lambda code: code[:16] + b"\3" + code[17:],
        lambda code: code[:4] + b"\1" + code[5:],
    ],
)
def test_what_is_no_object_is_refused(torn: Callable[[bytes], bytes]) -> None:
    with pytest.raises(KernelError, match="the machine code of renamed cannot be loaded: "):
        elf.load(torn(made(IR)), "renamed")


@pytest.mark.parametrize(
    ("call", "answer", "message"),
    [
        ("mprotect", -1, "its pages cannot be made executable"),
        ("mmap", elf.FAILED, "no memory for its pages"),
    ],
)
def test_a_system_that_gives_no_pages(
    call: str, answer: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = elf.LIBRARY

    class Strict:
        def __getattr__(self, name: str) -> object:
            return refused if name == call else getattr(system, name)

    def refused(*_: object) -> int:
        return answer

    monkeypatch.setattr(elf, "LIBRARY", Strict())
    with pytest.raises(KernelError, match=message):
        elf.load(made(IR), "renamed")


@pytest.mark.parametrize(
    ("kind", "before", "to", "here", "want"),
    [
        (277, 0x91000000, 0x12345678, 0x1000, 0x91000000 | 0x678 << 10),  # add x0, x0, 0
        (286, 0xF9400000, 0x12345678, 0x1000, 0xF9400000 | (0x678 >> 3) << 10),  # ldr x0, [x0]
        (299, 0x3DC00000, 0x12345670, 0x1000, 0x3DC00000 | (0x670 >> 4) << 10),  # ldr q0, [x0]
        (283, 0x94000000, 0x2000, 0x1000, 0x94000400),  # bl .
        (282, 0x14000000, 0x1000, 0x2000, 0x17FFFC00),  # b .
    ],
)
def test_instructions_of_arm_are_filled_in(
    kind: int, before: int, to: int, here: int, want: int
) -> None:
    memory = bytearray(struct.pack("<I", before))
    elf.FILL[elf.ARM][kind](memory, 0, to, here)
    assert struct.unpack("<I", memory) == (want,)


@pytest.mark.parametrize("pages", [0, 1, 2, 3, 4, 5, (1 << 20) - 1, -1, -2, -5, -(1 << 20)])
def test_a_page_of_arm_is_told_by_its_distance(pages: int) -> None:
    memory, here = bytearray(struct.pack("<I", 0x90000000)), 1 << 21  # adrp x0, .
    elf.FILL[elf.ARM][275](memory, 0, (here + pages) << 12, here << 12)
    (word,) = struct.unpack("<I", memory)
    told = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
    assert (told - (1 << 21) if told >> 20 else told) == pages
    assert word & 0x9F00001F == 0x90000000


def test_what_is_out_of_reach_is_an_error() -> None:
    memory = bytearray(4)
    with pytest.raises(ValueError, match="a section is too far away"):
        elf.FILL[elf.ARM][275](memory, 0, 1 << 40, 0)
    with pytest.raises(ValueError, match="a function is too far away"):
        elf.FILL[elf.ARM][283](memory, 0, 1 << 30, 0)


FOR_EVER = """
define void @it(ptr %p) {
begin:
  br label %again
again:
  store volatile i64 1, ptr %p
  br label %again
}"""


def test_code_stays_until_the_process_has_ended() -> None:
    """Threads run in it while the interpreter goes."""
    script = """
import ctypes, threading
from test_elf import FOR_EVER, elf, function_at, made
block = (ctypes.c_int64 * 1)()
run = function_at(elf.load(made(FOR_EVER), "renamed"))
threading.Thread(target=run, args=[ctypes.addressof(block)], daemon=True).start()
while not block[0]:
    pass
"""
    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-P", "-c", script], check=True, env=environment, timeout=900)
