"""Rounds that one native call runs: beside the interpreter, and beside rounds run one by one."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_model import parse

import bucketize
from bucketize.errors import ShapeError
from bucketize.interpret import evaluate_module
from bucketize.kernel.work import FORK
from bucketize.onnx import from_onnx
from bucketize.program.instruction import Loop, instructions
from bucketize.runtime.loop import ROUND_FORK, NativeLoop
from bucketize.text import parse as parse_text

LOOP = """(int64 n, float[N] x, float[N] z) => ({results}) {{
  go = Constant<value = bool {{1}}>()
  {made} = Loop(n, go, x, z)<body = b (int64 i, bool c, float[N] a, float[N] b)
    => ({outs}) {{
    c2 = Identity(c)
    {nodes}
  }}>
}}"""
TWO = "bool c2, float[N] p, float[N] q"
CASES = {
    "carried": ("p = Add(a, b) q = Tanh(p)", TWO, 0),
    "swapped": ("s = Sin(a) p = Add(s, b) q = Neg(a)", TWO, 0),
    "rows": ("p = Add(a, b) q = Tanh(p) r = Sub(p, b)", f"{TWO}, float[N] r, float[N] q", 2),
    "twice": ("p = Add(a, b) q = Tanh(p)", f"{TWO}, float[N] q, float[N] q", 2),
    "number": ("j = Cast<to = 1>(i) p = Add(a, j) q = Mul(b, p)", f"{TWO}, float[N] p", 1),
    "taken": ("k = Constant<value = int64 {2}>() m = Mod(i, k) w = Gather(z, m) p = Mul(a, w) "
              "q = Sub(b, w)", TWO, 0),
}  # fmt: skip


def module_of(name):
    nodes, outs, rows = CASES[name]
    stacked = [f"r{i}" for i in range(rows)]
    results = ["float[N] y", "float[N] v", *(f"float[K, N] {r}" for r in stacked)]
    made = ", ".join(["y", "v", *stacked])
    body = {"results": ", ".join(results), "made": made, "outs": outs, "nodes": nodes}
    return from_onnx(parse(LOOP.format(**body)))


def random(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def loops(exe):
    return [i for i in instructions(exe.routines["main"].code) if isinstance(i, Loop)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_all_rounds_are_one_call(name, threads, monkeypatch):
    module = module_of(name)
    exe = bucketize.compile(module, threads=threads)
    (loop,) = loops(exe)
    assert loop.alone is not None
    for rounds, n in ((0, 3), (1, 5), (2, 33), (7, 4), (3, 2)):
        inputs = {"n": np.array(rounds), "x": random(n), "z": random(n, 1)}
        kept = {k: v.copy() for k, v in inputs.items()}
        want, got = evaluate_module(module, **inputs), exe.run(**inputs)
        with monkeypatch.context() as patch:
            patch.setattr("bucketize.runtime.vm._at_once", lambda *_: None)
            slow = exe.run(**inputs)
        for a, b, c in zip(want, got, slow, strict=True):
            assert a.shape == b.shape == c.shape
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(b, c)
        for k, v in inputs.items():
            np.testing.assert_array_equal(v, kept[k])
        for a in got:
            a[...] = 0  # each is the caller's own
        for a, b in zip(want, exe.run(**inputs), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


def test_threads_share_only_rounds_of_much_work(monkeypatch):
    """Others are one call of one thread; whichever sizes came before."""
    module, asked = module_of("rows"), []
    exe = bucketize.compile(module, threads=2)
    run = NativeLoop.run
    monkeypatch.setattr(NativeLoop, "run", lambda loop: asked.append(loop.trips) or run(loop))
    few, many = FORK // 4, ROUND_FORK  # elements: the second ones are shared, the first would be
    for n, native in ((few, True), (many, False), (few, True), (5, True), (many, False)):
        inputs = {"n": np.array(3), "x": random(n), "z": random(n, 1)}
        for got, want in zip(exe.run(**inputs), evaluate_module(module, **inputs), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        assert bool(asked) is native
        asked.clear()


def test_strided_inputs():
    module = module_of("carried")
    x, z = random(10)[::2], random(10, 1)[::-2]
    want = evaluate_module(module, n=np.array(4), x=x, z=z)
    for a, b in zip(bucketize.compile(module).run(np.array(4), x, z), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_bad_index_ends_them():
    module = module_of("taken")
    exe = bucketize.compile(module)
    with pytest.raises(ShapeError, match="in gather: index 1 is out of range for extent 1"):
        exe.run(np.array(5), random(1), random(1, 1))
    assert len(exe.run(np.array(5), random(2), random(2, 1))) == 2


def test_what_grows_is_run_round_by_round():
    graph = """(int64 n, float[N] x) => (float[M] y) {
      go = Constant<value = bool {1}>()
      y = Loop(n, go, x)<body = b (int64 i, bool c, float[P] a) => (bool c2, float[Q] p) {
        c2 = Identity(c) p = Concat<axis = 0>(a, x) }>
    }"""
    module = from_onnx(parse(graph))
    exe = bucketize.compile(module)
    (y,) = exe.run(np.array(3), random(2))
    np.testing.assert_array_equal(y, np.tile(random(2), 4))


SCALARS = """(int64 n, {dtype} x) => ({results}) {{
  go = Constant<value = bool {{1}}>()
  {count}
  {made} = Loop({trips}, go, x)<body = b (int64 i, bool c, {dtype} a) => (bool c2, {outs}) {{
    c2 = Identity(c) j = {cast} p = Add(a, j) q = Mul(p, p) }}>
}}"""
RESULTS = {
    "sum": ("{0} y", "y", "{0} p"),
    "rows": ("{0}[K] r", "y, r", "{0} p, {0} q"),
    "both": ("{0} y, {0}[K] r, {0}[K] s", "y, r, s", "{0} p, {0} q, {0} p"),
}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("dtype", ["int64", "float", "double", "float16"])
@pytest.mark.parametrize("name", RESULTS)
def test_scalars_stay_arrays(name, dtype, known, monkeypatch):
    """However rounds are run: by the interpreter, in one call, again, and one by one."""
    results, made, outs = (text.format(dtype) for text in RESULTS[name])
    cast = {"int64": "Identity(i)", "float": "Cast<to = 1>(i)", "double": "Cast<to = 11>(i)"}
    graph = SCALARS.format(
        dtype=dtype,
        results=results,
        made=made,
        outs=outs,
        cast=cast.get(dtype, "Cast<to = 10>(i)"),
        count="m = Constant<value = int64 {3}>()" if known else "",
        trips="m" if known else "n",
    )
    module = from_onnx(parse(graph))
    exe = bucketize.compile(module)
    x = np.array(2, module.main.params[-1].type.dtype)
    inputs = {p.name: {"n": np.array(3), "x": x}[p.name] for p in module.main.params}
    want = evaluate_module(module, **inputs)
    calls = [want, *(exe.run(**inputs) for _ in range(3))]
    with monkeypatch.context() as patch:
        patch.setattr("bucketize.runtime.vm._at_once", lambda *_: None)
        calls.append(bucketize.compile(module).run(**inputs))
    for got in calls:
        for a, b in zip(got, want, strict=True):
            assert isinstance(a, np.ndarray)
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            np.testing.assert_array_equal(a, b)


WAYS = {
    "alone": ("", """
  %h, %r = loop %i to {trips} while {go} (%h0 = %x) {
    %k = cast(%i, dtype=float32)
    %p = add(%h0, %k)
    yield bool(True), %p, %p
  }"""),
    "nested": ("", """
  %h, %r = loop %i to {trips} while {go} (%h0 = %x) {
    %p = loop %j to {trips} while bool(True) (%g0 = %h0) {
      %k = cast(%i, dtype=float32)
      %l = cast(%j, dtype=float32)
      %m = mul(%g0, %k)
      %q = sub(%m, %l)
      yield bool(True), %q
    }
    yield bool(True), %p, %p
  }"""),
    "ends early": ("", """
  %h, %r = loop %i to {trips} while {go} (%h0 = %x) {
    %p = add(%h0, %x)
    %more = less(%i, int64(1))
    yield %more, %p, %p
  }"""),
    "nothing at first": ("optional", """
  %o = optional_none(type=float32[N])
  %h, %r = loop %i to {trips} while {go} (%h0 = %o) {
    %k = cast(%i, dtype=float32)
    %p = add(%x, %k)
    yield bool(True), %p, %p
  }"""),
}  # fmt: skip


@pytest.mark.parametrize("known", [None, 0, 4])
@pytest.mark.parametrize("name", WAYS)
def test_first_again_and_nested_are_what_the_interpreter_says(name, known):
    """With a count that a run tells, and with one that is known: then a call is captured."""
    kind, loop = WAYS[name]
    trips, go = ("%n", "%go") if known is None else (f"int64({known})", "bool(True)")
    took = "%n: int64, %go: bool, " if known is None else ""
    made = f"{kind}(float32[N])" if kind else "float32[N]"
    rows = "?" if known is None or name == "ends early" else known
    module = parse_text(
        f"def @main({took}%x: float32[N]) -> {made}, float32[{rows}, N] where N >= 1 {{"
        + loop.replace("{trips}", trips).replace("{go}", go)
        + "\n  return %h, %r\n}"
    )
    exe = bucketize.compile(module)
    asked = [(0, True), (1, True), (4, True), (3, False)] if known is None else [()]
    for told in asked:
        for n in (3, 3, 3, 1):
            inputs = [*map(np.array, told), random(n)]
            for a, b in zip(exe.run(*inputs), evaluate_module(module, *inputs), strict=True):
                if b is None:
                    assert a is None
                    continue
                assert a.shape == b.shape
                np.testing.assert_allclose(a, b, rtol=1e-6)
