"""Gradual shaping: what types leave open is checked by a run, and branches are joined.

Each case is run by the interpreter, compiled and behind buckets. Symbols begin at 0.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from agreement import agree

import bucketize
from bucketize.errors import ShapeError, TypeRelError, UnknownNameError
from bucketize.interpret import evaluate_module
from bucketize.ir import Module
from bucketize.text import parse, parse_function
from bucketize.verify import verify
from dispatchers import log_dispatcher

Arrays = tuple[Any, ...]
RNG = np.random.default_rng(0)
ERRORS = (ShapeError, TypeRelError)


def f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def n(value: int) -> np.ndarray:
    return np.array(value)


def yes(value: bool) -> np.ndarray:
    return np.array(value)


@dataclass(frozen=True)
class Case:
    text: str
    types: list[str]
    meaning: Callable[..., Any]
    right: list[Arrays]
    wrong: list[tuple[Arrays, str]] = field(default_factory=list)


def call(taken: str, given: str, told: str, bounds: str = "", more: str = "") -> str:
    """`main` hands an input to a function that takes another type."""
    where = f" where {bounds}" if bounds else ""
    outer = f" where {more}" if more else ""
    return f"""
def @f(%p: float32[{taken}]) -> float32[{taken}]{where} {{
  %0 = exp(%p)
  return %0
}}
def @main(%x: float32[{given}]) -> float32[{told}]{outer} {{
  %0 = call @f(%x) : float32[{told}]
  return %0
}}"""


def branches(given: str, then: str, orelse: str, result: str) -> str:
    """An `if` on an input, whose branches are given as bindings of %a and %b."""
    return f"""
def @main(%c: bool, {given}) -> {result} {{
  %z = if %c {{
    {then}
    yield %a
  }} else {{
    {orelse}
    yield %b
  }} : {result}
  return %z
}}"""


N0, NM0 = "N in [0, 99]", "N in [0, 99], M in [0, 99]"

CASES = {
    "a static function takes what is unknown": Case(
        call("2, 3", "?, ?", "2, 3"),
        ["float32[2, 3]"],
        np.exp,
        [(f(2, 3),)],
        [((f(2, 4),), r"axis 1: expected 3, got 4"), ((f(3, 3),), r"axis 0: expected 2, got 3")],
    ),
    "a static function takes what has a name": Case(
        call("2, 3", "N, M", "2, 3", more=NM0),
        ["float32[2, 3]"],
        np.exp,
        [(f(2, 3),)],
        [((f(2, 4),), r"axis 1: expected 3, got 4"), ((f(0, 3),), r"axis 0: expected 2, got 0")],
    ),
    "a square one takes what need be none": Case(
        call("K, K", "N, M", "?, ?", "K in [0, 99]", NM0),
        ["float32[?, ?]"],
        np.exp,
        [(f(3, 3),), (f(0, 0),)],
        [((f(2, 3),), "axis 1: expected K=2, got 3")],
    ),
    "a bounded one takes what has no bounds": Case(
        call("K, 3", "N, 3", "?, 3", "K in [2, 4]", N0),
        ["float32[?, 3]"],
        np.exp,
        [(f(2, 3),), (f(4, 3),)],
        [
            ((f(1, 3),), r"axis 0: expected K in \[2, 4\], got 1"),
            ((f(5, 3),), r"axis 0: expected K in \[2, 4\], got 5"),
            ((f(0, 3),), r"axis 0: expected K in \[2, 4\], got 0"),
        ],
    ),
    "a caller may be told less than is known": Case(
        call("K, 3", "N, 3", "?, ?", "K in [0, 99]", N0),
        ["float32[?, ?]"],
        np.exp,
        [(f(4, 3),), (f(0, 3),)],
        [((f(4, 2),), "input 'x', axis 1: expected 3, got 2")],
    ),
    "a caller may be told more than is known": Case(
        call("?, ?", "?, ?", "2, 3"),
        ["float32[2, 3]"],
        np.exp,
        [(f(2, 3),)],
        [((f(2, 4),), "axis 1: expected 3, got 4")],
    ),
    "a scalar goes through a function": Case(
        call("", "", ""),
        ["float32[]"],
        np.exp,
        [(f(),)],
        [((f(1),), r"expected rank 0 float32\[\], got 1")],
    ),
    "branches of equal extents keep them": Case(
        branches("%x: float32[N, 3]", "%a = exp(%x)", "%b = neg(%x)", "float32[N, 3]"),
        ["float32[N, 3]"],
        lambda c, x: np.exp(x) if c else -x,
        [(yes(True), f(2, 3)), (yes(False), f(5, 3))],
        [((yes(True), f(2, 4)), "input 'x', axis 1: expected 3, got 4")],
    ),
    "(?, 1) joined with (?, ?) is (?, ?)": Case(
        branches(
            "%x: float32[?, 1], %y: float32[?, ?]", "%a = exp(%x)", "%b = neg(%y)", "float32[?, ?]"
        ),
        ["float32[?, ?]"],
        lambda c, x, y: np.exp(x) if c else -y,
        [(yes(True), f(2, 1), f(3, 4)), (yes(False), f(2, 1), f(3, 4))],
        [((yes(True), f(2, 2), f(3, 4)), "input 'x', axis 1: expected 1, got 2")],
    ),
    "extents that differ are unknown after the branches": Case(
        branches(
            "%x: float32[N, 3], %y: float32[M, 4]", "%a = exp(%x)", "%b = neg(%y)", "float32[?, ?]"
        ),
        ["float32[?, ?]"],
        lambda c, x, y: np.exp(x) if c else -y,
        [(yes(True), f(2, 3), f(7, 4)), (yes(False), f(2, 3), f(7, 4))],
    ),
    "one branch makes a row more": Case(
        branches(
            "%x: float32[N, 3]", "%a = concat(%x, %x, axis=0)", "%b = neg(%x)", "float32[?, 3]"
        ),
        ["float32[?, 3]"],
        lambda c, x: np.concatenate([x, x]) if c else -x,
        [(yes(True), f(2, 3)), (yes(False), f(2, 3))],
    ),
    "scalars through branches": Case(
        branches("%x: float32, %y: float32", "%a = exp(%x)", "%b = neg(%y)", "float32[]"),
        ["float32[]"],
        lambda c, x, y: np.exp(x) if c else -y,
        [(yes(True), f(), f()), (yes(False), f(), f())],
        [((np.array([True]), f(), f()), r"input 'c': expected rank 0 bool\[\], got 1")],
    ),
    "two extents that may be 1": Case(
        f"""
def @main(%x: float32[M, 3], %y: float32[N, 3]) -> float32[broadcast(M, N), 3] where {NM0} {{
  %0 = add(%x, %y)
  %1 = relu(%0)
  return %1
}}""",
        ["float32[broadcast(M, N), 3]"],
        lambda x, y: np.maximum(x + y, 0),
        [(f(2, 3), f(2, 3)), (f(1, 3), f(4, 3)), (f(4, 3), f(1, 3)), (f(0, 3), f(1, 3))],
        [((f(2, 3), f(3, 3)), "extents differ"), ((f(0, 3), f(2, 3)), "extents differ")],
    ),
    "a concat of nothing": Case(
        f"""
def @main(%x: float32[N, 2], %y: float32[M, 2]) -> float32[N + M, 2], float32[2] where {NM0} {{
  %0 = concat(%x, %y, axis=0)
  %1 = reduce_sum(%0, axes=(0,), keepdims=False)
  return %0, %1
}}""",
        ["float32[M + N, 2]", "float32[2]"],
        lambda x, y: (np.concatenate([x, y]), np.concatenate([x, y]).sum(0)),
        [(f(0, 2), f(3, 2)), (f(3, 2), f(0, 2)), (f(0, 2), f(0, 2)), (f(1, 2), f(1, 2))],
    ),
    "a product over nothing": Case(
        f"""
def @main(%x: float32[N, M], %y: float32[M, 3]) -> float32[N, 3], float32[N] where {NM0} {{
  %0 = matmul(%x, %y)
  %1 = reduce_max(%0, axes=(1,), keepdims=False)
  return %0, %1
}}""",
        ["float32[N, 3]", "float32[N]"],
        lambda x, y: (x @ y, (x @ y).max(1)),
        [(f(2, 0), f(0, 3)), (f(0, 2), f(2, 3)), (f(0, 0), f(0, 3)), (f(2, 5), f(5, 3))],
        [((f(2, 0), f(1, 3)), "axis 0: expected M=0, got 1")],
    ),
    "scalars beside tensors": Case(
        f"""
def @main(%x: float32[N], %s: float32) -> float32[], float32[N] where {N0} {{
  %0 = reduce_sum(%x, axes=(0,), keepdims=False)
  %1 = mul(%0, %s)
  %2 = add(%x, %1)
  return %1, %2
}}""",
        ["float32[]", "float32[N]"],
        lambda x, s: (x.sum() * s, x + x.sum() * s),
        [(f(4), f()), (f(0), f())],
        [((f(4), f(1)), r"input 's': expected rank 0 float32\[\], got 1")],
    ),
    "a function's N is not its caller's": Case(
        f"""
def @f(%p: float32[N], %q: float32[2*N]) -> float32[2*N] where {N0} {{
  %0 = exp(%q)
  return %0
}}
def @main(%x: float32[?], %y: float32[N]) -> float32[?] where {N0} {{
  %0 = call @f(%x, %y) : float32[?]
  return %0
}}""",
        ["float32[?]"],
        lambda _, y: np.exp(y),
        [(f(2), f(4)), (f(1), f(2))],
        [((f(2), f(5)), r"axis 0: expected 2\*N=4, got 5")],
    ),
    "a loop of no rounds and of nothing": Case(
        f"""
def @main(%x: float32[N], %n: int64) -> float32[N], float32[?] where {N0} {{
  %h, %rows = loop %i to %n while bool(True) (%h0 = %x) {{
    %a = add(%h0, %x)
    %s = reduce_sum(%a, axes=(0,), keepdims=False)
    yield bool(True), %a, %s
  }}
  return %h, %rows
}}""",
        ["float32[N]", "float32[?]"],
        lambda x, k: (
            x * np.float32(k + 1),
            np.array([x.sum() * (i + 2) for i in range(k)], np.float32),
        ),
        [(f(3), n(0)), (f(0), n(2)), (f(0), n(0)), (f(2), n(3))],
    ),
}


def ways(module: Module) -> dict[str, Callable[..., Any]]:
    """The ways to run a module."""
    made = {
        "interpreted": lambda *args: evaluate_module(module, *args),
        "compiled": bucketize.compile(module).run,
    }
    if not all(p.type.is_static for p in module.main.params):
        dispatched = verify(bucketize.dispatch(module, log_dispatcher))
        made["dispatched"] = lambda *args: evaluate_module(dispatched, *args)
        made["dispatched and compiled"] = bucketize.compile(dispatched, lazy=True).run
    return made


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_a_case(name: str) -> None:
    case = CASES[name]
    module = verify(parse(case.text))
    assert [str(r.type) for r in module.main.results] == case.types
    for how, run in ways(module).items():
        for inputs in case.right:
            want = case.meaning(*inputs)
            wanted = [np.asarray(a) for a in (want if isinstance(want, tuple) else (want,))]
            agree([np.asarray(a) for a in run(*inputs)], wanted, 1e-5)
        for inputs, message in case.wrong:
            with pytest.raises(ERRORS, match=message):
                pytest.fail(f"{how}: {run(*inputs)}")


# --- what no sizes make right --------------------------------------------------------------------

NEVER = {
    "another extent": (
        call("10, 10", "N, 11", "N, 11", more=N0),
        "@f takes (float32[10, 10]), but the call has (float32[N, 11]): extents differ: 10 and 11",
    ),
    "a size out of its bounds": (
        call("K, 3", "9, 3", "?, ?", "K in [2, 4]"),
        "@f takes (float32[K, 3]), but the call has (float32[9, 3]): extents differ: f.K and 9",
    ),
    "bounds apart": (
        call("K, 3", "N, 3", "?, ?", "K in [2, 4]", "N >= 5"),
        "@f takes (float32[K, 3]), but the call has (float32[N, 3]): extents differ: f.K and N",
    ),
    "no square": (
        call("K, K", "2, 3", "?, ?", "K >= 0"),
        "@f takes (float32[K, K]), but the call has (float32[2, 3]): extents differ: 2 and 3",
    ),
    "another rank": (
        call("?, ?", "2", "?, ?"),
        "@f takes (float32[?, ?]), but the call has (float32[2]): ranks differ: "
        "float32[?, ?] and float32[2]",
    ),
    "another dtype": (
        call("2", "2", "2").replace("%x: float32", "%x: int64"),
        "@f takes (float32[2]), but the call has (int64[2]): dtypes differ: float32[2] and "
        "int64[2]",
    ),
    "another result": (
        call("K", "5", "6", "K >= 0"),
        "@f returns (float32[K]), but the call has (float32[6]): extents differ: 5 and 6",
    ),
    "too many": (
        call("2", "2", "2").replace("@f(%x)", "@f(%x, %x)"),
        "@f takes (float32[2]), but the call has (float32[2], float32[2])",
    ),
    "in a branch": (
        branches("%x: float32[3]", "%a = call @f(%x) : float32[?]", "%b = exp(%x)", "float32[?]")
        + "def @f(%p: float32[2]) { return %p }",
        "@f takes (float32[2]), but the call has (float32[3]): extents differ: 2 and 3",
    ),
    "nobody": (
        call("2", "2", "2").replace("call @f", "call @g"),
        "no function named 'g'; known: f, main",
    ),
}


@pytest.mark.parametrize("name", NEVER)
def test_a_call_that_no_sizes_make_right_is_refused(name: str) -> None:
    text, message = NEVER[name]
    with pytest.raises((TypeRelError, UnknownNameError)) as caught:
        parse(text)
    assert caught.value.message == message
    assert caught.value.notes == ("in a call in @main",)


def test_a_module_that_is_built_by_hand_is_looked_into_too() -> None:
    """What is a recipe yet is taken at its word, and a pickle holds what was made."""
    head, main = call("10", "10", "10").split("def @main")
    fits = parse_function(head)
    caller = parse("def @main" + main + head).main
    wrong = parse_function(head.replace("10", "11"))
    with pytest.raises(TypeRelError, match=r"@f takes \(float32\[11\]\), but the call has"):
        Module({"main": caller, "f": wrong})
    assert Module({"main": caller, "f": lambda _: wrong}).main is caller
    verify(pickle.loads(pickle.dumps(Module({"main": caller, "f": fits}))))
