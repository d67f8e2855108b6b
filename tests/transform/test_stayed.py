"""`show --explain-dynamic`: every extent that only a run can tell is named where it begins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from onnx_model import parse as parse_onnx
from test_dynamic import CASES as DYNAMIC
from test_gradual import CASES as GRADUAL
from test_rfc_examples import EXAMPLES

from bucketize import compile, zoo
from bucketize.cli.model import hints
from bucketize.errors import BucketizeError
from bucketize.interpret import evaluate_module
from bucketize.ir import Atom, Function, Module, all_bindings, blocks_of
from bucketize.onnx import from_onnx
from bucketize.text import parse
from bucketize.transform.simplify import simplify
from bucketize.transform.stayed import bounds_that_help, stayed_dynamic
from bucketize.types import AnyDim

TOLD = {
    "(float[N] x) => (y) { s = Shape(x) y = ConstantOfShape(s) }": [],
    "(float[N] x, int64[2] s) => (y) { [view] y = Reshape(x, s) z = Neg(y) }": [
        "dyn.reshape (node view): shape: input 's' of the model, int64[2]; "
        "unknown: axis 0 of float32[?, ?], axis 1 of float32[?, ?]"
    ],
    "(float[N, 3] x) => (y) { [at] i = NonZero(x) f = Cast<to = 1>(i) y = Neg(f) }": [
        "nonzero (node at): x: how many of its elements hold decides; "
        "unknown: axis 1 of int64[2, ?]"
    ],
    "(int64[N] x) => (y, i) { [few] y, i = Unique(x) }": [
        "unique (node few): x: how many of its elements hold decides; unknown: "
        "axis 0 of int64[?], axis 0 of int64[?], axis 0 of int64[?]"
    ],
    "(float[N, 3] x, bool[N] m) => (y) { [some] y = Compress<axis = 0>(x, m) }": [
        "compress (node some): mask: how many of its elements hold decides; "
        "unknown: axis 0 of float32[?, 3]"
    ],
    "(bool c, int64[1] s, float[N] x) => (y) { [one] y = If(c) <then_branch = t () => (a) "
    "{ [fill] a = ConstantOfShape(s) }, else_branch = e () => (b) { b = Exp(x) }> }": [
        "if (node one): condition: its branches give float32[?] and float32[N]; "
        "unknown: axis 0 of float32[?]",
        "dyn.full (node fill): shape: input 's' of the model, int64[1]; "
        "unknown: axis 0 of float32[?]",
    ],
    "(float f) => (y) <float a = {0}, float b = {1}> { [many] y = Range(a, f, b) }": [
        "dyn.arange (node many): start: float32[] is not followed as dims; "
        "unknown: axis 0 of float32[?]",
        "dyn.arange (node many): stop: input 'f' of the model, float32[]; "
        "unknown: axis 0 of float32[?]",
        "dyn.arange (node many): step: float32[] is not followed as dims; "
        "unknown: axis 0 of float32[?]",
    ],
    "(bool c, float[N] x, float[M] z) => (y) { [one] y = If(c) <then_branch = t () => (a) "
    "{ a = Neg(x) }, else_branch = e () => (b) { b = Exp(z) }> }": [
        "if (node one): condition: its branches give float32[N] and float32[M]; "
        "unknown: axis 0 of float32[?]"
    ],
    "(bool c, float[N] x, float[N] z) => (y) { y = If(c) <then_branch = t () => (a) "
    "{ a = Neg(x) }, else_branch = e () => (b) { b = Exp(z) }> }": [],
    "(float[N] x, int64 n, bool c) => (y, r) { [more] y, r = Loop(n, c, x) <body = g "
    "(int64 i, bool k, float[M] h) => (kk, w, s) { kk = Identity(k) w = Concat<axis = 0>(h, x) "
    "s = ReduceSum<keepdims = 0>(w) }> }": [
        "loop (node more): carried: begins as float32[N] and changes from round to round; "
        "unknown: axis 0 of float32[?]",
        "loop (node more): trips: how many rounds there are, and what each makes; "
        "unknown: axis 0 of float32[?]",
    ],
}

IR = {
    "def @main(%x: float32[?, 3]) -> float32[?, 3] { %0 = relu(%x) return %0 }": [
        "input: x: the axis has neither name nor size; unknown: axis 0 of float32[?, 3]"
    ],
    """
def @f(%p: float32[K, 3]) -> float32[K, 3] where K in [1, 9] { %0 = exp(%p) return %0 }
def @main(%x: float32[N, 3]) -> float32[?, 3] where N in [1, 9] {
  %0 = call @f(%x) : float32[?, 3]
  %1 = relu(%0)
  return %1
}""": ["call: callee: what @f returns is known no better; unknown: axis 0 of float32[?, 3]"],
}


def told(module: Module) -> list[str]:
    return list(map(str, stayed_dynamic(simplify(module.main))))


@pytest.mark.parametrize("graph", TOLD)
def test_what_is_told_of_a_model(graph: str) -> None:
    assert told(from_onnx(parse_onnx(graph))) == TOLD[graph]


@pytest.mark.parametrize("text", IR)
def test_what_is_told_of_a_module(text: str) -> None:
    assert told(parse(text)) == IR[text]


def modules() -> Iterator[tuple[str, Module]]:
    yield from ((name, e.module) for name, e in EXAMPLES.items())
    yield from ((name, parse(c.text)) for name, c in GRADUAL.items())
    yield from ((name, from_onnx(parse_onnx(c[0], 18))) for name, c in DYNAMIC.items())
    yield from ((g, from_onnx(parse_onnx(g))) for g in TOLD)
    yield from ((t, parse(t)) for t in IR)


def is_unknown(atom: Atom) -> bool:
    return any(isinstance(d, AnyDim) for d in atom.type.shape)


def begin(fn: Function) -> list[str]:
    """The operators of unknown extents that no operand has: these bring them in."""
    return [
        b.op.name
        for b in all_bindings(fn)
        if any(map(is_unknown, b.outs))
        and not any(map(is_unknown, b.args))
        and not any(is_unknown(r) for block in blocks_of(b).values() for r in block.results)
    ]


MODULES = dict(modules())


@pytest.mark.parametrize("name", MODULES)
def test_nothing_unknown_is_left_out(name: str) -> None:
    module = MODULES[name]
    fn = simplify(module.main)
    named = [s for s in stayed_dynamic(fn) if s.extents]
    assert set(begin(fn)) <= {s.op for s in named}
    assert [s.operand for s in named if s.op == "input"] == [
        p.name for p in fn.params if is_unknown(p)
    ]


def test_the_zoo_has_nothing_unknown() -> None:
    for name in ("mlp", "resnet18", "mobilenetv2", "bert-mini"):
        assert told(from_onnx(zoo.build(name))) == []


CUT = """(float[B, S, 16] x) => (z) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] most = {512},
int64[2] heads = {4, -1}, int64[4] swap = {0, 1, 3, 2}, int64[2] flat = {-1, 4}> {
  a = Shape<start = 0, end = 2>(x)
  c = Slice(x, zero, most, one)
  s = Concat<axis = 0>(a, heads)
  y = Reshape(c, s)
  t = Shape(y)
  u = Gather(t, swap)
  f = Reshape(y, flat)
  e = Exp(f)
  z = Reshape(e, u)
}"""
"""What is cut at 512, and split by a size that is not: how often that goes depends on the bound."""


def test_a_bound_that_would_help_is_named() -> None:
    fn = simplify(from_onnx(parse_onnx(CUT, 18)).main)
    stayed = list(stayed_dynamic(fn))
    assert {s.op for s in stayed} == {"dyn.reshape"}
    ((symbol, fewer),) = bounds_that_help(fn)
    assert (symbol.name, symbol.lo, symbol.hi, fewer) == ("S", 0, 512, len(stayed))
    bounded = simplify(from_onnx(parse_onnx(CUT, 18), bounds={"S": (1, 512)}).main)
    assert not list(stayed_dynamic(bounded))


def test_a_model_without_dynamic_operators_is_not_simplified_for_hints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    still = from_onnx(parse_onnx("(float[N] x) => (y) { y = Neg(x) }")).main
    told = hints(from_onnx(parse_onnx(CUT, 18)).main)
    assert told == ["with --dim S=0..512 3 fewer operators stay dynamic"]
    monkeypatch.setattr("bucketize.transform.simplify.simplify", None)  # nobody calls it
    assert hints(still) == []


def test_no_bound_is_named_where_none_helps() -> None:
    nodes = "{ y = Reshape(x, s) a = Slice(x, zero, most, zero) z = Neg(a) }"
    known = "<int64[1] zero = {0}, int64[1] most = {512}>"
    fn = simplify(from_onnx(parse_onnx(f"(float[N] x, int64[2] s) => (y, z) {known} {nodes}")).main)
    assert [s.op for s in stayed_dynamic(fn)] == ["dyn.reshape"]
    assert not list(bounds_that_help(fn))
    bounded = simplify(from_onnx(parse_onnx(CUT, 18), bounds={"S": (0, 600)}).main)
    assert list(stayed_dynamic(bounded))
    assert not list(bounds_that_help(bounded))  # the user has chosen


def test_positions_out_of_a_table_leave_nothing_dynamic() -> None:
    """As exporters write them: so many of a table's rows as there are tokens, added to these."""
    nodes = "n = Shape<start = 1, end = 2>(x) p = Slice(t, zero, n, zero) a = Add(x, p) "
    nodes += "s = Shape(x) f = Reshape(a, flat) e = Exp(f) z = Reshape(e, s)"
    table = "<float[4, 2] t = {1, 2, 3, 4, 5, 6, 7, 8}, int64[1] zero = {0}, int64[1] flat = {-1}>"
    mod = from_onnx(parse_onnx(f"(float[B, S, 2] x) => (z) {table} {{ {nodes} }}", 18))
    assert not list(stayed_dynamic(simplify(mod.main)))
    exe = compile(mod)
    x = np.ones((2, 3, 2), np.float32)
    np.testing.assert_allclose(exe.run(x=x)[0], evaluate_module(mod, x=x)[0], rtol=1e-6)
    with pytest.raises(BucketizeError, match="4 must be at least S, got 4 and 5"):
        exe.run(x=np.ones((2, 5, 2), np.float32))
