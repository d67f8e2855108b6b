"""What loops and sequences become, as text: before and after, and equal results."""

from __future__ import annotations

import pytest
from conftest import Golden
from test_transforms import check

from bucketize.text import parse_function
from bucketize.transform.apply import Transform
from bucketize.transform.dead_code import dead_code
from bucketize.transform.fold_loop import fold_loop
from bucketize.transform.fold_sequence import fold_sequence
from bucketize.transform.hoist import hoist

CARRIED = """
def @main(%x: float32[N, 3], %w: float32[3, 3]) -> float32[N, 3], float32[3, 3], float32[2, 3]
where N in [1, 8] {
  %y, %same, %rows = loop %i to int64(2) while bool(True) (%a = %x, %b = %w) {
    %m = matmul(%a, %b)
    %row = reduce_max(%b, axes=(0,))
    yield bool(True), %m, %b, %row
  }
  return %y, %same, %rows
}"""
ONCE = """
def @main(%x: float32[N, 3], %w: float32[3, 3], %go: bool)
-> float32[N, 3], float32[?, N, 3], int64[?], float32[N, 3]
where N in [1, 8] {
  %y, %rows, %rounds = loop %i to int64(1) while bool(True) (%a = %x) {
    %m = matmul(%a, %w)
    %r = relu(%a)
    yield %go, %m, %r, %i
  }
  %z = loop %j to int64(1) while %go (%b = %x) {
    %n = matmul(%b, %w)
    yield bool(True), %n
  }
  return %y, %rows, %rounds, %z
}"""
ALIKE = """
def @main(%x: float32[N, 3], %w: float32[3, 3], %n: float32[M]) -> float32[N, 3]
where N in [1, 8] {
  %y = loop %i to int64(2) while bool(True) (%a = %x) {
    %t = transpose(%w, axes=(1, 0))
    %u = tanh(%t)
    %m = matmul(%a, %u)
    %first = gather(%n, int64(0), axis=0)
    %f = cast(%i, dtype='float32')
    %s = add(%f, %first)
    %p = add(%m, %s)
    yield bool(True), %p
  }
  return %y
}"""
APART = """
def @main(%x: float32[N, 6], %z: float32[M, 2]) -> float32[?, 2], float32[N, 2], int64 {
  %parts = split_to_sequence(%x, int64(2), axis=1)
  %one = sequence_at(%parts, int64(-1))
  %empty = sequence_empty(dtype='float32')
  %a = sequence_insert(%empty, %one)
  %b = sequence_insert(%a, %z, int64(0))
  %all = concat_from_sequence(%b, axis=0)
  %count = sequence_length(%b)
  %some = optional_some(%one)
  %there = optional_get_element(%some)
  return %all, %there, %count
}"""
PASSES: dict[str, tuple[Transform, str, tuple[tuple[int, ...], ...]]] = {
    "fold_loop": (fold_loop, CARRIED, ((2, 3), (3, 3))),
    "fold_loop once": (fold_loop, ONCE, ((2, 3), (3, 3), ())),
    "hoist": (hoist, ALIKE, ((2, 3), (3, 3), (1,))),
    "fold_sequence": (fold_sequence, APART, ((2, 6), (4, 2))),
}


@pytest.mark.parametrize("name", PASSES)
def test_pass(name: str, golden: Golden) -> None:
    transform, text, shapes = PASSES[name]
    before = parse_function(text)
    check(golden, before, dead_code(transform(before)), *shapes)
