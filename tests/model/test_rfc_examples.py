"""The examples of the RFCs that this project carries out, as they are written there.

Each comes as text or as ONNX, and is run by the interpreter, compiled, and behind buckets: right,
and wrong with the same error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from agreement import agree
from onnx_model import parse as parse_onnx

import bucketize
from bucketize.errors import DispatchError, ShapeError, TypeRelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Module
from bucketize.text import parse
from bucketize.transform.simplify import simplify
from bucketize.verify import verify
from dispatchers import log_dispatcher

Arrays = tuple[np.ndarray, ...]
RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values)


def scalar(value: int) -> np.ndarray:
    return np.array(value)


@dataclass(frozen=True)
class Example:
    """A model, the type of its result, what it means, and inputs.

    The error of each that is wrong: behind buckets it may name the symbol in place of its size.
    """

    module: Module
    result: str
    meaning: Callable[..., Any]
    right: list[Arrays]
    wrong: list[tuple[Arrays, str]]


def sliced(x: np.ndarray, n: np.ndarray) -> list[np.ndarray]:
    total = np.zeros(2, np.float32)
    for i in range(int(n)):
        total = total + x[i : i + 2].sum(0)
    return [total]


def grey_or_rgb(x: np.ndarray) -> np.ndarray:
    return np.broadcast_to(x, (*x.shape[:3], 3))


GREY = """
(float[N, H, W, D] x) => (y) <int64[1] last = {3}, int64[3] lead = {0, 1, 2}, int64 rgb = {3}> {
  s = Shape(x)
  depth = Gather(s, last)
  is = Equal(depth, rgb)
  c = Squeeze(is)
  y = If(c) <then_branch = t () => (a) { a = Identity(x) }, else_branch = e () => (b) {
    first = Gather(s, lead)
    whole = Concat<axis = 0>(first, last)
    b = Expand(x, whole)
  }>
}"""

EXAMPLES = {
    "the sum of arange(0, i, 1)": Example(
        parse("""
def @main(%i: int64) -> int64 {
  %seq = dyn.arange(int64(0), %i, int64(1))
  %sum = reduce_sum(%seq, axes=(0,), keepdims=False)
  return %sum
}"""),
        "int64[]",
        lambda i: np.arange(i).sum(),
        [(scalar(0),), (scalar(1),), (scalar(5),), (scalar(-3),)],
        [((ints(5),), "input 'i': expected rank 0 int64[], got 1")],
    ),
    "arange(shape_of(x)[0])": Example(
        bucketize.from_onnx(
            parse_onnx(
                "(float[L, N] data) => (x) <int64 o = {0}, int64 l = {1}> "
                "{ s = Shape(data) length = Gather(s, o) x = Range(o, length, l) }"
            )
        ),
        "int64[L]",
        lambda x: np.arange(len(x)),
        [(floats(1, 2),), (floats(7, 3),)],
        [((floats(7),), "input 'data': expected rank 2 float32[L, N], got 1")],
    ),
    "grey or RGB": Example(
        bucketize.from_onnx(parse_onnx(GREY)),
        "float32[N, H, W, ?]",
        grey_or_rgb,
        [(floats(2, 3, 4, 3),), (floats(1, 3, 2, 1),)],
        [((floats(1, 3, 2, 5),), r"(main\[.*\] is not legal: )?extents differ: (5|D) and 3")],
    ),
    "Broadcast((10, ?), (10, 10))": Example(
        parse("""
def @main(%x: float32[10, ?], %y: float32[10, 10]) -> float32[10, 10] {
  %z = add(%x, %y)
  return %z
}"""),
        "float32[10, 10]",
        np.add,
        [(floats(10, 10), floats(10, 10)), (floats(10, 1), floats(10, 10))],
        [
            (
                (floats(10, 3), floats(10, 10)),
                r"(no size of x_1=2\.\.3 is legal: )?extents differ: (3 and 10|10 and x_1)",
            ),
            ((floats(10, 10), floats(10, 9)), "input 'y', axis 1: expected 10, got 9"),
        ],
    ),
    "@f of (10, 10), called with (?, ?)": Example(
        parse("""
def @f(%x: float32[10, 10]) -> float32[10, 10] {
  %0 = exp(%x)
  return %0
}
def @main(%x: float32[?, ?]) -> float32[10, 10] {
  %0 = call @f(%x) : float32[10, 10]
  return %0
}"""),
        "float32[10, 10]",
        np.exp,
        [(floats(10, 10),)],
        [
            ((floats(10, 9),), "input 'x', axis 1: expected 10, got 9"),
            ((floats(9, 10),), "input 'x', axis 0: expected 10, got 9"),
        ],
    ),
    "strided_slice in the body of a loop": Example(
        parse("""
def @main(%x: float32[N, 2], %n: int64) -> float32[2] {
  %total = loop %i to %n while bool(True) (%t = float32[2](0.0, 0.0)) {
    %begin = reshape(%i, newshape=(1,))
    %end = add(%begin, int64(2))
    %part = dyn.strided_slice(%x, %begin, %end, int64[1](1), int64[1](0))
    %sum = reduce_sum(%part, axes=(0,), keepdims=False)
    %next = add(%t, %sum)
    yield bool(True), %next
  }
  return %total
}"""),
        "float32[2]",
        lambda x, n: sliced(x, n)[0],
        [(floats(5, 2), scalar(3)), (floats(3, 2), scalar(4)), (floats(1, 2), scalar(0))],
        [((floats(5, 3), scalar(1)), "input 'x', axis 1: expected 2, got 3")],
    ),
    "unique": Example(
        bucketize.from_onnx(parse_onnx("(int64[N] x) => (y) { u = Unique(x) y = Neg(u) }")),
        "int64[?]",
        lambda x: -np.unique(x),
        [(ints(3, 1, 3, 3),), (ints(1),), (ints(*range(20)),)],
        [((np.ones((2, 2), np.int64),), "input 'x': expected rank 1 int64[N], got 2")],
    ),
    "boolean mask": Example(
        bucketize.from_onnx(
            parse_onnx(
                "(float[N, 2] x, bool[M] mask) => (y) "
                "{ k = Compress<axis = 0>(x, mask) y = Exp(k) }"
            )
        ),
        "float32[?, 2]",
        lambda x, mask: np.exp(np.compress(mask, x, 0)),
        [
            (floats(4, 2), ints(0, 1, 1, 0).astype(bool)),
            (floats(4, 2), ints(0, 0, 0).astype(bool)),
            (floats(1, 2), ints(1).astype(bool)),
        ],
        [((floats(4, 3), ints(1).astype(bool)), "input 'x', axis 1: expected 2, got 3")],
    ),
    "Tensor<n>, Tensor<m> -> Tensor<n + 1, m>": Example(
        parse("""
def @main(%x: float32[n], %y: float32[m]) -> float32[n + 1, m] {
  %0 = concat(%x, float32[1](1.0), axis=0)
  %1 = reshape(%0, newshape=(n + 1, 1))
  %2 = mul(%1, %y)
  return %2
}"""),
        "float32[n + 1, m]",
        lambda x, y: np.outer(np.append(x, np.float32(1)), y),
        [(floats(1), floats(1)), (floats(7), floats(3)), (floats(300), floats(5))],
        [((floats(1, 1), floats(1)), "input 'x': expected rank 1 float32[n], got 2")],
    ),
}


def runs(module: Module) -> dict[str, Callable[..., Any]]:
    """The ways to run a module."""
    made = {
        "interpreted": lambda *args: evaluate_module(module, *args),
        "compiled": bucketize.compile(module).run,
    }
    if all(p.type.is_static for p in module.main.params):
        with pytest.raises(DispatchError, match="the dispatcher named no axis"):
            bucketize.dispatch(module, log_dispatcher)
        return made
    dispatched = verify(bucketize.dispatch(module, log_dispatcher))
    made["dispatched"] = lambda *args: evaluate_module(dispatched, *args)
    made["dispatched and compiled"] = bucketize.compile(dispatched, lazy=True).run
    return made


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example(name: str) -> None:
    example = EXAMPLES[name]
    module = verify(example.module)
    assert str(simplify(module.main).results[0].type) == example.result
    for how, run in runs(module).items():
        for inputs in example.right:
            want = np.asarray(example.meaning(*inputs))
            agree([np.asarray(a) for a in run(*inputs)], [want], 1e-5)
        for inputs, message in example.wrong:
            with pytest.raises((ShapeError, TypeRelError)) as caught:
                run(*inputs)
            said = caught.value.message.partition(", in ")[0]  # a refusing clone has notes behind
            assert said == message or re.fullmatch(message, said), how
