"""Loops: what they carry, what they stack, how they are typed; interpreted, compiled, saved."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from agreement import agree

import bucketize
from bucketize.dispatch.tree import dispatch
from bucketize.errors import BucketizeError, CompileError, PaddingError, ShapeError, TypeRelError
from bucketize.interpret import evaluate_module
from bucketize.ir import LOOP, Builder, Const, Module, all_bindings, specialise
from bucketize.link.ffi import is_too_deep
from bucketize.text import constants, parse, show
from bucketize.transform.simplify import simplify
from bucketize.verify import verify
from dispatchers import log_dispatcher

TOLERANCE = 1e-5
RNG = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def count(n: int) -> np.ndarray:
    return np.array(n, np.int64)


def checked(module: Module, tmp_path, *runs, want=None) -> bucketize.Executable:
    """The executable of a module that computes what its meaning is, and `want`; so when loaded."""
    text = show(verify(module))
    assert show(parse(text, constants(module))) == text
    exe = bucketize.compile(module)
    exe.save(tmp_path / "loop.bkt")
    loaded = bucketize.load(tmp_path / "loop.bkt")
    for program in (exe.program, loaded.program):
        for name in program.routines:
            program.decide(name)
    assert loaded.program == exe.program
    for inputs in runs:
        meant = evaluate_module(module, *inputs)
        if want is not None:
            agree(meant, want(*inputs), TOLERANCE)
        for each in (exe, exe, loaded):
            agree(each.run(*inputs), meant, TOLERANCE)
    return exe


DECAY = """
def @main(%x: float32[N, 4], %n: int64) -> float32[N, 4], float32[?, N, 4] where N in [1, 32] {
  %w = exp(%x)
  %h, %y = loop %i to %n while bool(True) (%h0 = %x) {
    %a = mul(%h0, float32(0.5))
    %b = add(%a, %w)
    %c = tanh(%b)
    yield bool(True), %b, %c
  }
  return %h, %y
}
"""


def decay(x, n):
    h, rows = x, []
    for _ in range(int(n)):
        h = np.float32(0.5) * h + np.exp(x)
        rows.append(np.tanh(h))
    return [h, np.stack(rows) if rows else np.zeros((0, *x.shape), np.float32)]


def test_a_carried_tensor_and_rows(tmp_path):
    runs = [(random(n, 4), count(trips)) for n, trips in ((3, 4), (3, 1), (5, 0), (1, 7), (2, -1))]
    exe = checked(parse(DECAY), tmp_path, *runs, want=decay)
    assert not exe.counts.host
    told = str(exe.explain(N=3))
    assert "a loop, of which a round is shown" in told
    assert "tanh" in told
    assert list(exe.profile(*runs[0], repetitions=1)["op"]).count("tanh") == 4


def test_the_body_is_compiled_once_for_all_rounds():
    exe = bucketize.compile(parse(DECAY))
    before = set(exe.kernels)
    exe.run(random(3, 4), count(9))
    assert set(exe.kernels) == before


def test_no_round_returns_what_nobody_else_has(tmp_path):
    text = """
def @main(%n: int64) -> float32[2], float32[2] {
  %h = loop %i to %n while bool(True) (%h0 = float32[2](1.0, 2.0)) {
    %c = neg(%h0)
    yield bool(True), %c
  }
  return %h, %h
}
"""
    exe = checked(parse(text), tmp_path, (count(0),), (count(3),))
    a, b = exe.run(count(0))
    a[...] = 7
    assert b[0] == 1
    assert exe.run(count(0))[0][0] == 1


GROWING = """
def @main(%x: float32[N, 2], %n: int64) -> float32[?, 2], float32[?] where N in [1, 8] {
  %h, %sum = loop %i to %n while bool(True) (%h0 = %x) {
    %c = concat(%h0, %x, axis=0)
    %s = reduce_sum(%c, axes=(0, 1), keepdims=False)
    yield bool(True), %c, %s
  }
  return %h, %sum
}
"""


def grown(x, n):
    whole = [np.concatenate([x] * (i + 2)) for i in range(int(n))]
    return [whole[-1] if whole else x, np.array([w.sum() for w in whole], np.float32)]


def test_an_extent_that_changes_becomes_unknown(tmp_path):
    runs = [(random(n, 2), count(trips)) for n, trips in ((3, 4), (1, 2), (2, 0))]
    module = parse(GROWING)
    exe = checked(module, tmp_path, *runs, want=grown)
    (loop,) = [b for b in all_bindings(module.main) if b.op is LOOP]
    assert [str(v.type) for v in loop.outs] == ["float32[?, 2]", "float32[?]"]
    assert "concat" in str(exe.explain(N=3))


UNTIL = """
def @main(%x: float32[], %go: bool) -> float32[], int64[?] {
  %h, %k = loop %i to int64(100) while %go (%h0 = %x) {
    %c = mul(%h0, float32(2.0))
    %more = less(%c, float32(50.0))
    yield %more, %c, %i
  }
  return %h, %k
}
"""


def doubled(x, go):
    rounds = 0
    while go and rounds < 100:
        x, rounds = x * np.float32(2), rounds + 1
        go = x < 50
    return [np.asarray(x, np.float32), np.arange(rounds)]


def test_a_condition_ends_it(tmp_path):
    starts = [(np.float32(1), True), (np.float32(60), True), (np.float32(1), False)]
    runs = [(np.asarray(x), np.asarray(go)) for x, go in starts]
    checked(parse(UNTIL), tmp_path, *runs, want=doubled)


NESTED = """
def @main(%x: float32[N, 3], %n: int64) -> float32[N, 3], float32[?, ?, 3] where N >= 1 {
  %w = neg(%x)
  %h, %rows = loop %i to %n while bool(True) (%h0 = %x) {
    %k = add(%i, int64(1))
    %g, %best = loop %j to int64(2) while bool(True) (%g0 = %h0) {
      %even = equal(%j, int64(0))
      %p = if %even {
        %p0 = add(%g0, %w)
        yield %p0
      } else {
        %p1 = mul(%g0, %h0)
        yield %p1
      }
      %top = reduce_max(%p, axes=(0,), keepdims=False)
      yield bool(True), %p, %top
    }
    yield bool(True), %g, %best
  }
  return %h, %rows
}
"""


def nested(x, n):
    h, rows = x, []
    for _ in range(int(n)):
        first = h - x
        second = first * h
        rows.append(np.stack([first.max(0), second.max(0)]))
        h = second
    return [h, np.stack(rows) if rows else np.zeros((0, 2, 3), np.float32)]


def test_nested_blocks_see_what_is_around_them(tmp_path):
    runs = [(random(n, 3), count(trips)) for n, trips in ((3, 2), (1, 3), (2, 0))]
    module = Module({"main": simplify(parse(NESTED.replace("?, ?, 3", "?, 2, 3")).main)})
    checked(module, tmp_path, *runs, want=nested)


def test_inside_a_dispatched_module(tmp_path):
    for text, want in ((DECAY, decay), (GROWING, grown)):
        module = dispatch(parse(text), log_dispatcher)
        width = 4 if want is decay else 2
        runs = [(random(n, width), count(3)) for n in (1, 2, 3, 5, 8)]
        checked(module, tmp_path, *runs, want=want)


def test_a_pinned_size_is_known_in_the_body():
    fn = specialise(parse(GROWING).main, {"N": 2})
    (loop,) = [b for b in fn.body if b.op is LOOP]
    assert [str(p.type) for p in loop.attrs["body"].params] == ["int64[]", "float32[?, 2]"]
    verify(Module({"main": fn}))


def test_the_count_is_the_extent_of_rows_if_nothing_else_ends_it():
    text = """
def @main(%x: float32[N, 2]) -> float32[N, 2] where N >= 1 {
  %n = from_dims(dims=(N,), scalar=True)
  %rows = loop %i to %n while bool(True) () {
    %row = gather(%x, %i, axis=0)
    yield bool(True), %row
  }
  return %rows
}
"""
    module = parse(text)
    x = random(5, 2)
    agree(bucketize.compile(module).run(x), [x], TOLERANCE)


def test_rows_that_differ_are_refused():
    text = """
def @main(%x: float32[2]) -> float32[?, ?] {
  %h, %rows = loop %i to int64(2) while bool(True) (%h0 = %x) {
    %c = concat(%h0, %x, axis=0)
    yield bool(True), %c, %c
  }
  return %rows
}
"""
    module = parse(text.replace("float32[?, ?]", "float32[2, ?]"))
    with pytest.raises(ShapeError, match=r"in loop: rows of .* differ: \(4,\) and \(6,\)"):
        evaluate_module(module, random(2))
    with pytest.raises(ShapeError, match="differ"):
        bucketize.compile(module).run(random(2))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("to %n", "to %x", "a loop runs int64 times while bool"),
        ("while bool(True)", "while int64(1)", "a loop runs int64 times while bool"),
        ("yield bool(True), %b, %c", "yield bool(True)", "a loop carries what its body takes"),
        ("yield bool(True), %b, %c", "yield bool(True), %i, %c", "dtypes differ"),
    ],
)
def test_what_is_no_loop(old, new, told):
    with pytest.raises(BucketizeError, match=told):
        parse(DECAY.replace(old, new))


def test_a_loop_must_carry_what_its_body_returns():
    (loop,) = [b for b in parse(DECAY).main.body if b.op is LOOP]
    args = (*loop.args[:2], Const(np.zeros((2, 4), np.float32)))
    with pytest.raises(TypeRelError, match=r"a loop carries float32\[N, 4\], which float32\[2, "):
        Builder().emit_all(LOOP, *args, body=loop.attrs["body"])


def test_a_loop_cannot_be_padded():
    with pytest.raises(PaddingError, match="loop has no padding rule"):
        dispatch(parse(DECAY), log_dispatcher, policy="pad", fallback=True)


KEPT = """
def @main(%x: float32[N, 4], %n: int64) -> float32[?, 4], float32[N, 4], int64[2] where N >= 1 {
  %shape = from_dims(dims=(4, N), scalar=False)
  %h, %w, %s = loop %i to %n while bool(True) (%h0 = %x, %w0 = %x, %s0 = %shape) {
    %row = dyn.reshape(%h0, %s0)
    %back = dyn.reshape(%row, int64[2](-1, 4))
    %c = add(%back, %w0)
    yield bool(True), %c, %w0, %s0
  }
  return %h, %w, %s
}
"""


def kept(x, n):
    return [x * np.float32(1 + n), x, np.array([4, len(x)])]


def test_what_no_round_changes_is_not_carried(tmp_path):
    module = parse(KEPT)
    (loop,) = [b for b in module.main.body if b.op is LOOP]
    assert str(loop.outs[0].type) == "float32[?, 4]"
    simple = Module({"main": simplify(module.main)})
    (loop,) = [b for b in verify(simple).main.body if b.op is LOOP]
    assert [str(v.type) for v in loop.outs] == ["float32[N, 4]"]
    assert not any(b.op.name.startswith("dyn.") for b in all_bindings(simple.main))
    runs = [(random(n, 4), count(trips)) for n, trips in ((3, 2), (1, 0))]
    checked(module, tmp_path, *runs, want=kept)


RECURSIVE = """
def @main(%x: float32[N], %n: int64) -> float32[N] where N >= 1 {
  %y = call @again(%x, %n) : float32[N]
  return %y
}
def @again(%x: float32[N], %n: int64) -> float32[N] where N >= 1 {
  %more = greater(%n, int64(0))
  %y = if %more {
    %twice = add(%x, %x)
    %less = sub(%n, int64(1))
    %z = call @again(%twice, %less) : float32[N]
    %w = neg(%z)
    yield %w
  } else {
    yield %x
  }
  return %y
}
"""


def test_functions_may_call_themselves():
    module, x = parse(RECURSIVE), random(3)
    exe = bucketize.compile(module)
    for n in (0, 1, 7):
        want = [(x * np.float32(-2) ** n).astype(np.float32)]
        agree(evaluate_module(module, x, count(n)), want, TOLERANCE)
        agree(exe.run(x, count(n)), want, TOLERANCE)


def test_calls_without_an_end_are_refused():
    module = parse(RECURSIVE.replace("sub(%n", "add(%n"))
    exe = bucketize.compile(module)
    for run in (exe.run, exe.context(), lambda *args: evaluate_module(module, *args)):
        with pytest.raises(CompileError, match="functions call each other without an end"):
            run(random(2), count(1))


def test_wherever_the_stack_ends_calls_without_an_end_are_refused():
    exe = bucketize.compile(parse(RECURSIVE.replace("sub(%n", "add(%n")))

    def below(frames):
        return below(frames - 1) if frames else exe.run(random(2), count(1))

    for frames in range(12):
        with pytest.raises(CompileError, match="functions call each other without an end"):
            below(frames)


def test_only_what_a_full_stack_raises_is_too_deep():
    assert is_too_deep(RecursionError())
    assert is_too_deep(ctypes.ArgumentError("argument 1: <class 'RecursionError'>: too deep"))
    assert not is_too_deep(ctypes.ArgumentError("argument 1: <class 'TypeError'>: wrong type"))
