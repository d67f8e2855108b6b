"""Headers that lie, in files whose digests are right: a call is refused, and reads beyond nothing.

All are rebuilt, which runs nothing that a file brings, so that it may be anybody's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_save import mlp
from test_trust import contents

import bucketize
from bucketize import ops
from bucketize.errors import BucketizeError, ProgramError
from bucketize.ir import Builder, Module, Var
from bucketize.op import Value
from bucketize.save.container import write
from bucketize.text import parse
from bucketize.types import Symbol, tensor
from dispatchers import log_dispatcher

FLOW = """
def @main(%x: uint8[N], %flag: bool, %n: int64) -> uint8[?] where N in [8, 64] by 8 {
  %u, %at, %to, %counts = unique(%x, axis=0)
  %y = add(%u, %u)
  %z = call @double(%y) : uint8[?]
  %p = if %flag {
    %a = neg(%z)
    yield %a
  } else {
    %b = abs(%z)
    yield %b
  }
  %h = loop %i to %n while bool(True) (%h0 = %p) {
    %c = unique(%h0, axis=0)
    %d = add(%c0, uint8(1))
    yield bool(True), %d
  }
  %r = mul(%h, uint8(2))
  return %r
}
def @double(%p: uint8[?]) -> uint8[?] {
  %d = add(%p, %p)
  return %d
}
""".replace("%c = unique", "%c0, %c1, %c2, %c3 = unique")
X = np.arange(8, dtype=np.uint8) // 2


Header = dict[str, Any]


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("crafted") / "flow.bkt"
    with pytest.MonkeyPatch.context() as patch:  # numpy finds what differs
        patch.setattr("bucketize.lower.by_kernel.RULES", {})
        exe = bucketize.compile(parse(FLOW))
        exe.save(path)
    for inputs in ((X, True, 0), (X, True, 2)):
        np.testing.assert_array_equal(run(path, *inputs)[0], exe.run(*arrays(*inputs))[0])
    return path


def arrays(x: np.ndarray, flag: bool, n: int) -> list[Value]:
    return [x, np.array(flag), np.array(n)]


def run(path: Path, *inputs: Any) -> list[Value]:
    return bucketize.load(path, rebuild=True).run(*arrays(*inputs))


def main(header: Header) -> Any:
    return next(r for r in header["routines"] if r["name"] == "main")


def step(header: Header, kind: str) -> Any:
    return next(step for step in main(header)["code"]["steps"] if step["do"] == kind)


def lie(
    header: Header, old: str, new: str, *variables: int, segments: tuple[int, ...] = ()
) -> None:
    """Put another type for variables of `main`, and in segments whose types stand among them."""
    types = main(header)["types"]
    for v in variables:
        types[v] = types[v].replace(old, new)
    for entry in (header["segments"][i] for i in segments):
        entry["text"] = entry["text"].replace(old, new)
        entry["types"] = [[t.replace(old, new) for t in each] for each in entry["types"]]


def test_what_the_lies_are_about(flow: Path) -> None:
    """The numbers of variables and segments below."""
    header, _ = contents(flow)
    names = [f"{i}: {t}" for i, t in enumerate(main(header)["types"])]
    assert names[3:4] + names[7:14] == [
        "3: uint8[any1]", "7: uint8[any1]", "8: uint8[any4]", "9: uint8[any4]",
        "10: uint8[any4]", "11: uint8[any4]", "12: int64[]", "13: uint8[any6]",
    ]  # fmt: skip
    assert names[18:] == ["18: uint8[any7]", "19: uint8[any5]", "20: uint8[any5]"]
    heads = [s["text"].partition(") ->")[0] for s in header["segments"]]
    assert [re.findall(r"uint8\[\w+\]", head) for head in heads] == [
        ["uint8[any1]"], ["uint8[any4]"], ["uint8[any4]"], ["uint8[any7]"],
        ["uint8[any5]"], ["uint8[p_0]"],
    ]  # fmt: skip


def a_host_op_of_another_dtype(header: Header) -> None:
    lie(header, "uint8", "float64", *range(3, 21), segments=tuple(range(6)))
    double = header["routines"][1]
    double["types"] = [t.replace("uint8", "float64") for t in double["types"]]


def a_host_op_of_another_rank(header: Header) -> None:
    lie(header, "[any1]", "[any1, 4]", 3, 7, segments=(0,))


def a_host_op_of_another_extent(header: Header) -> None:
    main(header)["types"][3] = main(header)["types"][7] = "uint8[N]"
    lie(header, "any1", "N", segments=(0,))
    text = header["segments"][0]["text"]
    header["segments"][0]["text"] = text.replace(" {", " where N in [8, 64] by 8 {", 1)
    header["segments"][0]["bounds"] = {"N": [8, 64, 8]}


def a_host_op_with_fewer_results(header: Header) -> None:
    step(header, "compute")["outs"] = [3]


def a_callee_that_takes_another_dtype(header: Header) -> None:
    lie(header, "uint8", "float64", segments=(5,))
    double = header["routines"][1]
    double["types"] = [t.replace("uint8", "float64") for t in double["types"]]


def a_callee_that_returns_another_dtype(header: Header) -> None:
    lie(header, "uint8", "float64", *range(8, 21), segments=(1, 2, 3, 4))


def a_callee_that_takes_less(header: Header) -> None:
    step(header, "call")["args"] = [7, 7]


def a_callee_that_returns_less(header: Header) -> None:
    step(header, "call")["outs"] = [8, 7]


def a_callee_of_another_extent(header: Header) -> None:
    lie(header, "any4", "4096", 8, 9, 10, 11, segments=(1, 2))


def a_branch_of_another_dtype(header: Header) -> None:
    lie(header, "uint8", "float64", *range(11, 21), segments=(3, 4))


def a_branch_that_is_said_to_bring_no_sizes(header: Header) -> None:
    step(header, "branch")["brings_sizes"] = False
    main(header)["types"][11] = "uint8[N]"


def a_branch_with_more_results(header: Header) -> None:
    for block in ("then", "orelse"):
        step(header, "branch")[block]["results"] *= 2


def a_loop_that_carries_another_dtype(header: Header) -> None:
    lie(header, "uint8", "float64", 13)


def a_loop_whose_rounds_carry_another_dtype(header: Header) -> None:
    step(header, "loop")["body"]["results"][1] = 12


def a_loop_that_returns_another_dtype(header: Header) -> None:
    lie(header, "uint8", "float64", 19, 20, segments=(4,))


def a_loop_of_another_extent(header: Header) -> None:
    step(header, "loop")["brings_sizes"] = False
    main(header)["types"][19:21] = ["uint8[4096]"] * 2
    lie(header, "any5", "4096", segments=(4,))


def a_loop_that_returns_more(header: Header) -> None:
    step(header, "loop")["outs"] = [19, 20]


def calls_beyond_the_bounds_of_code(header: Header) -> None:
    main(header)["bounds"]["N"] = [1, 4096]


def a_segment_with_bounds_of_its_own(header: Header) -> None:
    entry = header["segments"][5]
    entry["bounds"]["p_0"] = [0, 2]
    entry["text"] = entry["text"].replace(" {", " where p_0 in [0, 2] {", 1)


def a_text_of_other_bounds(header: Header) -> None:
    entry = header["segments"][5]
    entry["text"] = entry["text"].replace(" {", " where p_0 in [0, 2] {", 1)


def a_segment_that_gives_itself_another_dtype(header: Header) -> None:
    entry = header["segments"][4]
    entry["text"] = (
        entry["text"].replace("-> uint8", "-> float64").replace(") : uint8", ") : float64")
    )
    entry["types"][1] = ["float64[any5]"]
    main(header)["types"][20] = "float64[any5]"


def a_sequence(header: Header) -> None:
    main(header)["types"][3] = "sequence(uint8[any1])"


@pytest.mark.parametrize(
    ("crafted", "message"),
    [
        (a_host_op_of_another_dtype, r"result '3': expected float64\[any1\], got uint8"),
        (a_host_op_of_another_rank, r"result '3': expected rank 2 uint8\[any1, 4\], got 1"),
        (a_host_op_of_another_extent, "result '3', axis 0: expected N=8, got 4"),
        (a_host_op_with_fewer_results, "result: expected 1 values, got 4"),
        (a_callee_that_takes_another_dtype, r"argument 'p': expected float64\[p_0\], got uint8"),
        (a_callee_that_returns_another_dtype, r"result '8': expected float64\[any4\], got uint8"),
        (a_callee_that_takes_less, "argument: expected 1 values, got 2"),
        (a_callee_that_returns_less, "result: expected 2 values, got 1"),
        (a_callee_of_another_extent, "result '8', axis 0: expected 4096, got 4"),
        (a_branch_of_another_dtype, r"result '11': expected float64\[any4\], got uint8"),
        (a_branch_that_is_said_to_bring_no_sizes, "result '11', axis 0: expected N=8, got 4"),
        (a_branch_with_more_results, "result: expected 1 values, got 2"),
        (a_loop_that_carries_another_dtype, r"carried '13': expected float64\[any6\], got uint8"),
        (a_loop_whose_rounds_carry_another_dtype, r"carried '13': expected .*, got int64"),
        (a_loop_that_returns_another_dtype, r"result '19': expected float64\[any5\], got uint8"),
        (a_loop_of_another_extent, "result '19', axis 0: expected 4096, got 4"),
        (a_loop_that_returns_more, "a loop carries 1 of 1 and returns 2 of 1"),
        (calls_beyond_the_bounds_of_code, "calls of N=1..4096 reach code of N=8..64:8"),
        (a_segment_with_bounds_of_its_own, r"a segment of .*p_0=0..2'\] stands among .*p_0=0..'\]"),
        (a_text_of_other_bounds, r"a segment of types .* is a function of types .*p_0=0..2'\]"),
        (a_segment_that_gives_itself_another_dtype, r"written float64\[any5\], inferred uint8"),
        (a_sequence, "stands among"),
    ],
)  # fmt: skip
def test_a_header_that_lies_is_refused(
    flow: Path, tmp_path: Path, crafted: Callable[[Header], None], message: str
) -> None:
    header, blobs = contents(flow)
    crafted(header)
    write(tmp_path / "crafted.bkt", header, blobs)
    with pytest.raises(BucketizeError, match=message):
        run(tmp_path / "crafted.bkt", X, True, 2)


@pytest.mark.parametrize(
    "nodes", [[], [0, 4, 0, -1], [0, 4, -1, 8], [0, 4, -1, -99], [1, 4, -1, -2], [0, 4, -1]]
)
def test_a_decision_leads_to_a_clone(tmp_path: Path, nodes: list[int]) -> None:
    path = tmp_path / "m.bkt"
    bucketize.compile(bucketize.dispatch(mlp(), log_dispatcher)).save(path)
    header, blobs = contents(path)
    decision = step(header, "decide")
    assert decision["nodes"]
    decision["nodes"] = nodes
    write(path, header, blobs)
    with pytest.raises(ProgramError, match=r"a decision leads to nowhere|cannot reshape"):
        bucketize.load(path, rebuild=True).run(np.zeros((2, 12), np.float32))


@pytest.mark.parametrize("lacks", ["outputs", "clones", "routines"])
def test_a_header_that_lacks_what_it_has_to_tell_is_damaged(
    flow: Path, tmp_path: Path, lacks: str
) -> None:
    header, blobs = contents(flow)
    del header[lacks]
    write(tmp_path / "crafted.bkt", header, blobs)
    with pytest.raises(ProgramError, match="its header does not hold together"):
        run(tmp_path / "crafted.bkt", X, True, 2)


def test_a_symbol_of_no_multiples_is_damage(flow: Path, tmp_path: Path) -> None:
    header, blobs = contents(flow)
    for ends in main(header)["symbols"].values():
        ends[2:] = [0]
    write(tmp_path / "crafted.bkt", header, blobs)
    with pytest.raises(ProgramError, match="does not hold together"):
        run(tmp_path / "crafted.bkt", X, True, 2)


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ([["N", 8, 64]], "nonzero_rows: expected N in .8, 64., got 4"),
        ([["N", 0, None]], "N=0.. is read where code is of N=8..64"),
        ([["any1", 0, 2]], "any1=0..2 is read where code is of any1=0.."),
        ([["any1", 0, None]] * 2, "2 sizes are read of int64"),
    ],
)
def test_sizes_are_read_once_and_within_bounds(
    tmp_path: Path, symbols: list[Any], message: str
) -> None:
    x, b = Var("x", tensor("float32", Symbol("N", 8, 64))), Builder()
    rows = b.emit(ops.nonzero, b.emit(ops.relu, x))
    path = tmp_path / "m.bkt"
    bucketize.compile(Module({"main": b.function("main", [x], [rows])})).save(path)
    header, blobs = contents(path)
    step(header, "read_sizes")["symbols"] = symbols
    write(path, header, blobs)
    with pytest.raises(BucketizeError, match=message):
        bucketize.load(path, rebuild=True).run(np.repeat(np.float32([1, 0]), 4))


def test_constants_are_those_that_kernels_read(tmp_path: Path) -> None:
    path = tmp_path / "m.bkt"
    bucketize.compile(mlp()).save(path)
    header, blobs = contents(path)
    call = header["segments"][0]["calls"][0]["constants"]
    call["1"], call["2"] = call["2"], call["1"]
    write(path, header, blobs)
    message = r"a constant of float32\[20\] stands where float32\[12, 20\] is read"
    with pytest.raises(ProgramError, match=message):
        bucketize.load(path, rebuild=True)


def test_a_native_loop_carries_what_its_rounds_take(tmp_path: Path) -> None:
    text = """
def @main(%x: float32[N, 4], %n: int64) -> float32[N, 4] where N in [1, 32] {
  %h = loop %i to int64(3) while bool(True) (%h0 = %x) {
    %a = mul(%h0, float32(0.5))
    yield bool(True), %a
  }
  return %h
}
"""
    path = tmp_path / "m.bkt"
    bucketize.compile(parse(text)).save(path)
    header, blobs = contents(path)
    (loop,) = main(header)["code"]["steps"]
    taken, made = loop["params"][1], loop["body"]["results"][1]
    assert loop["body"]["steps"][0]["do"] == "run"
    lie(header, "float32", "float64", taken, made, *loop["outs"], segments=(0,))
    header["segments"][0]["text"] = header["segments"][0]["text"].replace("float32", "float64")
    write(path, header, blobs)
    exe = bucketize.load(path, rebuild=True)
    with pytest.raises(BucketizeError, match=r"carried '.*': expected float64.*, got float32"):
        exe.run(np.ones((5, 4), np.float32), np.array(3))
