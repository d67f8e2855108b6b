"""Random encoders: packed, a row comes to what it does alone, whatever is hidden; or is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count

import numpy as np
import pytest
from onnx_model import parse
from test_ragged import check

import bucketize
from bucketize.errors import RaggedError

SEEDS = range(int(os.environ.get("BUCKETIZE_ENCODERS", "40")))
BROKEN = 0.2  # of encoders have a step that mixes rows, or counts what is hidden
CONSTANTS = (
    "<float zero = {0}, float one = {1}, float two = {2}, float low = {-10000}, "
    "float lowest = {-3e38}, float eps = {0.001}, int64 i0 = {0}, int64 i1 = {1}, int64 i3 = {3}, "
    "int64[1] a0 = {0}, int64[1] a1 = {1}, int64[1] a2 = {2}, int64[1] n1 = {-1}, "
    "int64[1] most = {9223372036854775807}, int64[1] past = {-9223372036854775807}, "
    "int64[4] heads = {0, 0, 2, 2}, int64[3] whole = {0, 0, 4}, "
    "float[4] scale = {1, 2, -1, 0.5}, float[4, 4] w = "
    "{1, -1, 0.5, 0.25, 0.5, 1, -0.5, 0.75, -0.25, 0.5, 1, 0.125, 0.5, 0.25, -1, 1}> "
)
BEGIN = (
    "f = Cast<to = 1>(mask) truth = Cast<to = 9>(mask) f3 = Unsqueeze(f, a2) "
    "t3 = Cast<to = 9>(f3) hid = Sub(one, f) lows = Mul(hid, low) u = Unsqueeze(lows, a1) "
    "u4 = Unsqueeze(u, a1) c3 = Unsqueeze(truth, a1) c4 = Unsqueeze(c3, a1) sh = Shape(mask) "
    "n = Gather(sh, i1) r = Range(i0, n, i1) rf = Cast<to = 1>(r) q = Unsqueeze(r, a1) "
    "k = Unsqueeze(r, a0) later = Greater(k, q) gap = Sub(k, q) far = Abs(gap) "
    "dist = Cast<to = 1>(far) b = Gather(sh, i0) b1 = Unsqueeze(b, a0) "
    "bs = Concat<axis = 0>(b1, a1, a1) "
)
Step = Callable[[str, str], str]
"""Of h and the name of what comes of it."""


def up_to(ones: str, h: str, o: str) -> str:
    """Attention of the first tokens of each row, as many as these are together."""
    return (
        f"{o}c = ReduceSum<keepdims = 1>({ones}, a1) {o}b = Less(r, {o}c) "
        f"{o}l = Where({o}b, zero, low) {o}u = Unsqueeze({o}l, a1) "
        f"{o}t = Transpose<perm = [0, 2, 1]>({h}) {o}s = MatMul({h}, {o}t) "
        f"{o}z = Add({o}s, {o}u) {o}p = Softmax<axis = 2>({o}z) {o} = MatMul({o}p, {h}) "
    )


STEPS: list[Step] = [
    lambda h, o: f"{o} = Relu({h}) ",
    lambda h, o: f"{o} = MatMul({h}, w) ",
    lambda h, o: f"{o} = Mul({h}, f3) ",
    lambda h, o: f"{o} = LayerNormalization({h}, scale) ",
    lambda h, o: f"{o}p = Unsqueeze(rf, a1) {o} = Add({h}, {o}p) ",
    lambda h, o: (
        f"{o}a = Slice({h}, a0, a2, a2) {o}b = Slice({h}, a2, most, a2) "
        f"{o}n = Neg({o}b) {o} = Concat<axis = 2>({o}n, {o}a) "
    ),
    lambda h, o: (
        f"{o}t = Transpose<perm = [0, 2, 1]>({h}) {o}s = MatMul({h}, {o}t) "
        f"{o}z = Add({o}s, u) {o}p = Softmax<axis = 2>({o}z) {o} = MatMul({o}p, {h}) "
    ),
    lambda h, o: (
        f"{o}t = Transpose<perm = [0, 2, 1]>({h}) {o}s = MatMul({h}, {o}t) "
        f"{o}c = Where(later, lowest, {o}s) {o}z = Where(c3, {o}c, lowest) "
        f"{o}p = Softmax<axis = 2>({o}z) {o} = MatMul({o}p, {h}) "
    ),
    lambda h, o: up_to("mask", h, o),
    lambda h, o: (
        f"{o}r = Reshape({h}, heads) {o}k = Transpose<perm = [0, 2, 3, 1]>({o}r) "
        f"{o}v = Transpose<perm = [0, 2, 1, 3]>({o}r) {o}s = MatMul({o}v, {o}k) "
        f"{o}d = Sub({o}s, dist) {o}z = Add({o}d, u4) {o}p = Softmax<axis = 3>({o}z) "
        f"{o}m = MatMul({o}p, {o}v) {o}b = Transpose<perm = [0, 2, 1, 3]>({o}m) "
        f"{o} = Reshape({o}b, whole) "
    ),
    lambda h, o: (
        f"{o}m = Mul({h}, f3) {o}s = ReduceSum<keepdims = 1>({o}m, a1) "
        f"{o}c = ReduceSum<keepdims = 1>(f3, a1) {o}e = Div({o}s, {o}c) {o} = Sub({h}, {o}e) "
    ),
    lambda h, o: (
        f"{o}m = Where(t3, {h}, lowest) "
        f"{o}g = ReduceMax<axes = [1], keepdims = 1>({o}m) {o} = Min({h}, {o}g) "
    ),
    lambda h, o: f"{o}g = Gather<axis = 1>({h}, a0) {o} = Add({h}, {o}g) ",
    lambda h, o: (
        f"{o}i = CumSum(mask, i1) {o}f = Cast<to = 1>({o}i) {o}u = Unsqueeze({o}f, a2) "
        f"{o} = Div({h}, {o}u) "
    ),
]
WRONG: list[Step] = [
    lambda h, o: f"{o}m = ReduceMean<axes = [1], keepdims = 1>({h}) {o} = Sub({h}, {o}m) ",
    lambda h, o: (
        f"{o}a = Add({h}, one) {o}s = ReduceSum<keepdims = 1>({o}a, a1) {o} = Sub({h}, {o}s) "
    ),
    lambda h, o: f"{o}s = ReduceMean<axes = [0], keepdims = 1>({h}) {o} = Sub({h}, {o}s) ",
    lambda h, o: f"{o} = Slice({h}, n1, past, a1, n1) ",
    lambda h, o: (
        f"{o}b = Expand(scale, bs) {o}s = ReduceSum<keepdims = 1>({o}b, a0) {o} = Mul({h}, {o}s) "
    ),
    lambda h, o: f"{o} = Slice({h}, n1, past, a0, n1) ",
    lambda h, o: (
        f"{o}t = Transpose<perm = [0, 2, 1]>({h}) {o}s = MatMul({h}, {o}t) "
        f"{o}p = Softmax<axis = 2>({o}s) {o} = MatMul({o}p, {h}) "
    ),
    lambda h, o: (
        f"{o}t = Transpose<perm = [0, 2, 1]>({h}) {o}s = MatMul({h}, {o}t) "
        f"{o}z = Sub({o}s, u) {o}p = Softmax<axis = 2>({o}z) {o} = MatMul({o}p, {h}) "
    ),
    lambda h, o: f"{o}d = Add(mask, mask) {up_to(f'{o}d', h, o)}",
    lambda h, o: f"{o}g = Gather<axis = 0>({h}, a0) {o} = Add({h}, {o}g) ",
    lambda h, o: f"{o}n = Cast<to = 1>(n) {o} = Div({h}, {o}n) ",
    lambda h, o: f"{o}p = Softmax<axis = 1>({h}) {o} = Mul({h}, {o}p) ",
]
ENDS: list[Step] = [
    lambda h, o: f"{o} = Neg({h}) ",
    lambda h, o: f"{o} = Gather<axis = 1>({h}, i0) ",
    lambda h, o: (
        f"{o}m = Mul({h}, f3) {o}s = ReduceSum<keepdims = 0>({o}m, a1) "
        f"{o}c = ReduceSum<keepdims = 0>(f3, a1) {o} = Div({o}s, {o}c) "
    ),
]


def encoder(rng: np.random.Generator, broken: bool) -> str:
    steps = [STEPS[i] for i in rng.integers(len(STEPS), size=rng.integers(1, 6))]
    if broken:
        wrong = WRONG[rng.integers(len(WRONG))]
        steps.insert(int(rng.integers(len(steps) + 1)), wrong)
    steps.append(ENDS[rng.integers(len(ENDS))])
    h, names, text = "x", (f"h{i}_" for i in count()), ""
    for step in steps:
        out = next(names)
        text += step(h, out)
        h = out
    body = f"{{ {BEGIN} {text} y = Identity({h}) }}"
    return f"(float[B, S, 4] x, int64[B, S] mask) => (y) {CONSTANTS} {body}"


@pytest.mark.parametrize("seed", SEEDS)
def test_an_encoder(seed: int) -> None:
    rng = np.random.default_rng(seed)
    broken = bool(rng.random() < BROKEN)
    mod = bucketize.from_onnx(parse(encoder(rng, broken)))
    if broken:
        with pytest.raises(RaggedError):
            bucketize.ragged(mod, mask="mask")
        return
    length = int(rng.integers(1, 8))
    check(mod, rng.integers(1, length + 1, rng.integers(1, 5)).tolist(), length)
