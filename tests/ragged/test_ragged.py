"""Which models run packed rows, to what they come alone; and what is said of those that do not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import agree
from onnx_model import draw, parse

import bucketize
from bucketize import zoo
from bucketize.errors import ArgumentError, DispatchError, RaggedError, UnknownNameError
from bucketize.interpret import evaluate_module
from bucketize.ir import Module
from bucketize.op import Array
from bucketize.text import parse as read
from bucketize.text import show
from bucketize.transform.simplify import simplify
from bucketize.verify import verify
from dispatchers import log_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

X = "(float[B, S, 4] x, int64[B, S] mask"
ROWS = f"{X}) => (y) "
WEIGHED = f"{X}, float[4, 4] w) => (y) "
HIDES = "f = Cast<to = 1>(mask) h = Sub(one, f) low = Mul(h, least) "
ADDED = HIDES + "u = Unsqueeze(low, a1) "
CONSTANTS = (
    "<float one = {1}, float least = {-10000}, float zero = {0}, float lowest = {-3e38}, "
    "int64 i0 = {0}, int64 i1 = {1}, int64[1] a0 = {0}, int64[1] a1 = {1}, int64[1] a2 = {2}, "
    "int64[1] n1 = {-1}, int64[1] n2 = {-2}, int64[2] a01 = {0, 1}, int64[2] a12 = {1, 2}, "
    "int64[1] most = {9223372036854775807}, int64[1] past = {-9223372036854775807}, "
    "int64[4] heads = {0, 0, 2, 2}, "
    "int64[3] whole = {0, 0, 4}> "
)
SELF = "t = Transpose<perm = [0, 2, 1]>(x) s = MatMul(x, t) "
SOFT = "p = Softmax<axis = 2>(z) y = MatMul(p, x) "
MASKED = ADDED + SELF + "z = Add(s, u) "
FLOATS = "f = Cast<to = 1>(mask) g = Unsqueeze(f, a2) "
LENGTH = "sh = Shape(mask) n = Gather(sh, i1) b = Gather(sh, i0) "
PLACES = LENGTH + "r = Range(i0, n, i1) "

UP_TO = "low = Where(before, zero, least) u = Unsqueeze(low, a1) "

TAKEN = {
    "each by itself": WEIGHED + CONSTANTS + "{ v = Relu(x) m = MatMul(v, w) y = Softmax(m) }",
    "attention up to the end that a mask counts": (
        ROWS + CONSTANTS + f"{{ {PLACES} c = ReduceSum<keepdims = 1>(mask, a1) "
        f"before = Less(r, c) {UP_TO} {SELF} z = Add(s, u) {SOFT} }}"
    ),
    "attention up to an end in another dtype": (
        ROWS + CONSTANTS + f"{{ {PLACES} m = Cast<to = 6>(mask) e = ReduceSum<keepdims = 0>(m, a1) "
        "c = Cast<to = 7>(e) v = Unsqueeze(c, a1) "
        f"before = Greater(v, r) {UP_TO} {SELF} z = Add(s, u) {SOFT} }}"
    ),
    "a norm": f"{X}, float[4] s) => (y) {{ y = LayerNormalization(x, s) }}",
    "patches of images of unequal sizes": (
        f"{X}, int64[B, S] down, int64[B, S] across, float[4, 4] w) => (y) " + CONSTANTS
    )
    + "{ table = Constant<value = float[3, 4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}>() "
    "i2 = Add(i1, i1) d = Clip(down, i0, i2) a = Clip(across, i0, i2) e = MatMul(x, w) "
    "pd = Gather(table, d) pa = Gather(table, a) ed = Add(e, pd) v = Add(ed, pa) "
    f"{ADDED} t = Transpose<perm = [0, 2, 1]>(v) s = MatMul(v, t) z = Add(s, u) "
    "p = Softmax<axis = 2>(z) o = MatMul(p, v) g = Unsqueeze(f, a2) seen = Mul(o, g) "
    "total = ReduceSum<keepdims = 0>(seen, a1) count = ReduceSum<keepdims = 1>(f, a1) "
    "y = Div(total, count) }",
    "attention behind what is added": ROWS + CONSTANTS + f"{{ {MASKED} {SOFT} }}",
    "attention behind a choice": ROWS
    + CONSTANTS
    + f"{{ {SELF} c = Cast<to = 9>(mask) d = Unsqueeze(c, a1) z = Where(d, s, lowest) {SOFT} }}",
    "attention of heads": ROWS
    + CONSTANTS
    + f"{{ {ADDED} q = Reshape(x, heads) k = Transpose<perm = [0, 2, 3, 1]>(q) "
    "v = Transpose<perm = [0, 2, 1, 3]>(q) s = MatMul(v, k) u4 = Unsqueeze(u, a1) z = Add(s, u4) "
    "p = Softmax<axis = 3>(z) o = MatMul(p, v) t = Transpose<perm = [0, 2, 1, 3]>(o) "
    "y = Reshape(t, whole) }",
    "heads and rows as one axis": ROWS
    + CONSTANTS
    + f"{{ {ADDED} {LENGTH} q = Reshape(x, heads) v = Transpose<perm = [0, 2, 1, 3]>(q) "
    "n1d = Unsqueeze(n, a0) two = Add(a1, a1) flat = Concat<axis = 0>(n1, n1d, two) "
    "v3 = Reshape(v, flat) k = Transpose<perm = [0, 2, 1]>(v3) s = MatMul(v3, k) "
    "b1 = Unsqueeze(b, a0) four = Concat<axis = 0>(b1, two, n1d, n1d) s4 = Reshape(s, four) "
    "u4 = Unsqueeze(u, a1) z = Add(s4, u4) p = Softmax<axis = 3>(z) o = MatMul(p, v) "
    "t = Transpose<perm = [0, 2, 1, 3]>(o) y = Reshape(t, whole) }",
    "attention in order of time": ROWS
    + CONSTANTS
    + f"{{ {MASKED} {PLACES} q = Unsqueeze(r, a1) k = Unsqueeze(r, a0) "
    f"later = Greater(k, q) zz = Where(later, lowest, z) p = Softmax<axis = 2>(zz) "
    "y = MatMul(p, x) }",
    "biases by the distance": ROWS
    + CONSTANTS
    + f"{{ {MASKED} {PLACES} q = Unsqueeze(r, a1) k = Unsqueeze(r, a0) d = Sub(k, q) "
    "far = Abs(d) e = Cast<to = 1>(far) zz = Sub(z, e) p = Softmax<axis = 2>(zz) "
    "y = MatMul(p, x) }",
    "weights of no number are 0": ROWS
    + CONSTANTS
    + f"{{ {MASKED} p = Softmax<axis = 2>(z) no = IsNaN(p) c = Where(no, zero, p) "
    "y = MatMul(c, x) }",
    "the mean of a row": ROWS
    + CONSTANTS
    + f"{{ {FLOATS} m = Mul(x, g) s = ReduceSum<keepdims = 0>(m, a1) "
    "c = ReduceSum<keepdims = 0>(g, a1) y = Div(s, c) }",
    "what is greatest of a row": ROWS
    + CONSTANTS
    + f"{{ {FLOATS} c = Cast<to = 9>(g) m = Where(c, x, lowest) "
    "y = ReduceMax<axes = [1], keepdims = 0>(m) }",
    "the first of a row": ROWS + CONSTANTS + "{ y = Gather<axis = 1>(x, i0) }",
    "a slice of the first of a row": ROWS + CONSTANTS + "{ y = Slice(x, a0, a1, a1) }",
    "tokens by the mean of their row": ROWS
    + CONSTANTS
    + f"{{ {FLOATS} m = Mul(x, g) s = ReduceSum<keepdims = 1>(m, a1) "
    "c = ReduceSum<keepdims = 1>(g, a1) e = Div(s, c) y = Sub(x, e) }",
    "positions counted": ROWS
    + CONSTANTS
    + f"{{ {PLACES} f = Cast<to = 1>(r) g = Unsqueeze(f, a1) y = Add(x, g) }}",
    "positions of a table": f"{X}, float[9, 4] table) => (y) "
    + CONSTANTS
    + f"{{ {PLACES} e = Gather(table, r) y = Add(x, e) }}",
    "a table as long as a row": f"{X}, float[1, 9, 4] table) => (y) "
    + CONSTANTS
    + f"{{ {LENGTH} n1d = Unsqueeze(n, a0) e = Slice(table, a0, n1d, a1) y = Add(x, e) }}",
    "positions summed up": f"{X}, int64[B, S] ids, float[9, 4] table) => (y) "
    + CONSTANTS
    + "{ p = CumSum(ids, i1) q = Mul(p, i0) i = Add(q, i1) e = Gather(table, i) "
    "f = Cast<to = 1>(p) g = Unsqueeze(f, a2) d = Mul(e, g) y = Add(x, d) }",
    "positions before each": f"{X}, int64[B, S] ids) => (y) "
    + CONSTANTS
    + "{ p = CumSum<exclusive = 1>(ids, i1) f = Cast<to = 1>(p) g = Unsqueeze(f, a2) "
    "y = Add(x, g) }",
    "a mask picked by row and place": ROWS
    + CONSTANTS
    + f"{{ {PLACES} {SELF} rows = Range(i0, b, i1) b3 = Unsqueeze(rows, a12) "
    "s3 = Unsqueeze(r, a01) shape = Max(a1, a1) e = Add(b3, s3) zs = Mul(e, i0) "
    "bb = Add(zs, b3) ss = Add(zs, s3) bu = Unsqueeze(bb, n1) su = Unsqueeze(ss, n1) "
    "at = Concat<axis = -1>(bu, su) m = GatherND(mask, at) c = Cast<to = 9>(m) "
    f"z = Where(c, s, lowest) {SOFT} }}",
    "a mask picked out of all": ROWS
    + CONSTANTS
    + f"{{ {PLACES} {SELF} rows = Range(i0, b, i1) b3 = Unsqueeze(rows, a12) "
    "s3 = Unsqueeze(r, a01) flat = Reshape(mask, n1) o = Mul(b3, n) at = Add(s3, o) "
    f"m = Gather(flat, at) c = Cast<to = 9>(m) z = Where(c, s, lowest) {SOFT} }}",
    "features joined and parted": ROWS
    + CONSTANTS
    + "{ j = Concat<axis = 2>(x, x) y = Slice(j, a1, most, a2) }",
    "what all rows share": ROWS
    + CONSTANTS
    + f"{{ {LENGTH} b1 = Unsqueeze(b, a0) shape = Concat<axis = 0>(b1, a1, a1) "
    "o = Expand(one, shape) e = Exp(o) y = Mul(x, e) }",
    "a norm of what all rows share": f"{X}, float[4] v) => (y) "
    + CONSTANTS
    + f"{{ {LENGTH} b1 = Unsqueeze(b, a0) shape = Concat<axis = 0>(b1, a1, a1) "
    "o = Expand(v, shape) m = ReduceMean<axes = [2]>(o) d = Sub(o, m) y = Add(x, d) }",
    "a result that all rows share": ROWS
    + CONSTANTS
    + f"{{ {LENGTH} b1 = Unsqueeze(b, a0) y = Expand(one, b1) }}",
    "tokens and rows as one axis": ROWS
    + CONSTANTS
    + f"{{ {LENGTH} two = Add(a2, a2) flat = Concat<axis = 0>(n1, two) m = Reshape(x, flat) "
    "q = Mul(m, m) b1 = Unsqueeze(b, a0) n1d = Unsqueeze(n, a0) "
    "back = Concat<axis = 0>(b1, n1d, two) y = Reshape(q, back) }",
    "a sum with a row of its own": f"{X}, float[B, 4] row) => (y) "
    + CONSTANTS
    + "{ r = Unsqueeze(row, a1) y = Add(x, r) }",
}

REFUSED = {
    "sums over rows and tokens as one axis": (
        ROWS + CONSTANTS + f"{{ {FLOATS} m = Mul(x, g) two = Add(a2, a2) "
        "flat = Concat<axis = 0>(n1, two) r = Reshape(m, flat) s = ReduceSum<keepdims = 1>(r, a0) "
        "c = Unsqueeze(s, a0) y = Add(x, c) }",
        "reduce_sum: it brings together rows or tokens of float32[B*S, 4]",
    ),
    "sums up to each of all": (
        f"{X}, int64[B, S] ids) => (y) "
        + CONSTANTS
        + "{ f = Reshape(ids, n1) c = CumSum(f, i0) h = Shape(ids) y = Reshape(c, h) }",
        "cumsum: it brings together rows or tokens of int64[B*S]",
    ),
    "the first of all tokens": (
        ROWS + CONSTANTS + "{ two = Add(a2, a2) flat = Concat<axis = 0>(n1, two) "
        "r = Reshape(x, flat) g = Gather<axis = 0>(r, a0) u = Unsqueeze(g, a0) y = Add(x, u) }",
        "gather: of float32[B*S, 4] it picks tokens by their places, others than the first",
    ),
    "tokens beside what has four": (
        f"{X}, float[4, 1] v) => (y) {{ y = Add(x, v) }}",
        "add: rows or tokens of float32[B, S, 4] vanish in float32[B, 4, 4]",
    ),
    "queries beside what has four": (
        f"{X}, float[4, 1] v) => (y) {{ {SELF} z = Add(s, v) y = MatMul(z, x) }}",
        "add: rows or tokens of float32[B, S, S] vanish in float32[B, 4, S]",
    ),
    "rows beside what has four": (
        ROWS
        + CONSTANTS
        + "{ g = Gather<axis = 1>(x, i0) t = Transpose(g) m = Max(t, g) y = Add(x, m) }",
        "maximum: rows or tokens of float32[4, B] vanish in float32[4, 4]",
    ),
    "a product of tokens by tokens": (
        ROWS + "{ t = Transpose<perm = [0, 2, 1]>(x) y = MatMul(t, x) }",
        "matmul: it sums over tokens: float32[B, 4, S] by float32[B, S, 4]",
    ),
    "a sum over rows of what they share": (
        f"{X}, float[4] v) => (y) "
        + CONSTANTS
        + f"{{ {LENGTH} b1 = Unsqueeze(b, a0) shape = Concat<axis = 0>(b1, a1) "
        "o = Expand(v, shape) s = ReduceSum<keepdims = 0>(o, a0) y = Mul(x, s) }",
        "reduce_sum: it brings together rows or tokens of float32[B, 4]",
    ),
    "the mean of all": (
        ROWS + "<int64[1] a = {1}> { y = ReduceMean<axes = [1]>(x) }",
        "reduce_mean: it counts hidden tokens, too, whatever 'mask' makes of them",
    ),
    "a sum of all": (
        ROWS + CONSTANTS + "{ y = ReduceSum(x, a1) }",
        "reduce_sum: it sums hidden tokens, too: 'mask' makes none of them 0",
    ),
    "the greatest of all": (
        ROWS + "{ y = ReduceMax<axes = [1]>(x) }",
        "reduce_max: it sees hidden tokens, too: 'mask' makes none of them low",
    ),
    "a norm over tokens": (
        f"{X}, float[4] s, float[4] c) => (y) "
        "{ t = Transpose<perm = [0, 2, 1]>(x) n = InstanceNormalization(t, s, c) "
        "y = Transpose<perm = [0, 2, 1]>(n) }",
        "layer_norm: it brings together rows or tokens of float32[B, 4, S]",
    ),
    "attention without a mask": (
        ROWS + f"{{ {SELF} p = Softmax<axis = 2>(s) y = MatMul(p, x) }}",
        "softmax: 'mask' does not hide tokens from it: a sum over all of a row",
    ),
    "attention behind another mask": (
        f"{X}, int64[B, S] other) => (y) "
        + CONSTANTS
        + "{ f = Cast<to = 1>(other) h = Sub(one, f) low = Mul(h, least) u = Unsqueeze(low, a1) "
        + f"{SELF} z = Add(s, u) {SOFT} }}",
        "softmax: 'mask' does not hide tokens from it: a sum over all of a row",
    ),
    "attention up to the end of another mask": (
        f"{X}, int64[B, S] other) => (y) " + CONSTANTS + f"{{ {PLACES} f = Mul(other, mask) "
        f"c = ReduceSum<keepdims = 1>(f, a1) before = Less(r, c) {UP_TO} {SELF} z = Add(s, u) "
        f"{SOFT} }}",
        "softmax: 'mask' does not hide tokens from it: a sum over all of a row",
    ),
    "attention of the rows before the end": (
        ROWS + CONSTANTS + f"{{ {PLACES} m = ReduceSum<keepdims = 1>(mask, a1) "
        "c = Unsqueeze(m, a2) row = Unsqueeze(r, a1) none = Mul(row, i0) flat = Unsqueeze(r, a0) "
        "nothing = Mul(flat, i0) place = Add(row, nothing) before = Less(place, c) "
        f"u = Where(before, zero, least) {SELF} z = Add(s, u) {SOFT} }}",
        "less: int64[B, 1, 1] is of rows, bool[B, S, S] of tokens, in an order of its own",
    ),
    "attention up to an end that wraps": (
        ROWS + CONSTANTS + f"{{ {PLACES} m = ReduceSum<keepdims = 1>(mask, a1) "
        "c = Cast<to = 3>(m) place = Cast<to = 3>(r) "
        f"before = Less(place, c) {UP_TO} {SELF} z = Add(s, u) {SOFT} }}",
        "softmax: 'mask' does not hide tokens from it: a sum over all of a row",
    ),
    "attention up to one behind the end": (
        ROWS + CONSTANTS + f"{{ {PLACES} n1_ = ReduceSum<keepdims = 1>(mask, a1) "
        f"c = Add(n1_, i1) before = Less(r, c) {UP_TO} {SELF} z = Add(s, u) {SOFT} }}",
        "softmax: 'mask' does not hide tokens from it: a sum over all of a row",
    ),
    "weights that no softmax made": (
        ROWS + f"{{ {SELF} y = MatMul(s, x) }}",
        "matmul: weights between tokens of two rows are not 0: no softmax made them",
    ),
    "a mask that hides too little": (
        ROWS + CONSTANTS.replace("-10000", "-10") + f"{{ {MASKED} {SOFT} }}",
        "softmax: 'mask' does not hide tokens from it: a sum over all of a row",
    ),
    "a sequence turned around": (
        ROWS + CONSTANTS + "{ y = Slice(x, n1, past, a1, n1) }",
        "strided_slice: it turns rows or tokens around",
    ),
    "sums from the last on": (
        f"{X}, int64[B, S] ids) => (y) " + CONSTANTS + "{ y = CumSum<reverse = 1>(ids, i1) }",
        "cumsum: it sums from the last token on",
    ),
    "sums of floats up to each": (
        ROWS + CONSTANTS + "{ y = CumSum(x, i1) }",
        "cumsum: sums of float32 that go on over rows are not exact",
    ),
    "the last of a row": (
        ROWS + CONSTANTS + "{ y = Gather<axis = 1>(x, n1) }",
        "gather: of float32[B, S, 4] it picks tokens by their places, others than the first",
    ),
    "tokens picked for pairs": (
        ROWS
        + CONSTANTS
        + f"{{ {PLACES} rows = Range(i0, b, i1) b3 = Unsqueeze(rows, a12) s3 = Unsqueeze(r, a01) "
        "flat = Reshape(mask, n1) o = Mul(b3, n) at = Add(s3, o) n1d = Unsqueeze(n, a0) "
        "b1 = Unsqueeze(b, a0) pair = Concat<axis = 0>(b1, n1d, n1d) all = Expand(at, pair) "
        "m = Gather(flat, all) f = Cast<to = 1>(m) y = MatMul(f, x) }",
        "gather: int64[B, S, S] has tokens in an order of its own",
    ),
    "the first row": (
        ROWS + CONSTANTS + "{ y = Gather<axis = 0>(x, i0) }",
        "gather: it picks rows",
    ),
    "rows without the first": (
        ROWS + CONSTANTS + "{ y = Slice(x, a1, most, a0) }",
        "strided_slice: an extent is B - 1",
    ),
    "tokens without the first": (
        ROWS + CONSTANTS + "{ y = Slice(x, a1, most, a1) }",
        "strided_slice: an extent is S - 1",
    ),
    "tokens one behind the other": (
        ROWS + "{ y = Concat<axis = 1>(x, x) }",
        "concat: it puts rows or tokens behind each other",
    ),
    "the mean of all rows": (
        ROWS + "{ y = ReduceMean<axes = [0]>(x) }",
        "reduce_mean: it brings together rows or tokens of float32[B, S, 4]",
    ),
    "products over rows": (
        ROWS + CONSTANTS + "{ c = Gather<axis = 1>(x, i0) t = Transpose(c) y = MatMul(t, c) }",
        "matmul: it sums over rows: float32[4, B] by float32[B, 4]",
    ),
    "by the length of a row": (
        ROWS + CONSTANTS + f"{{ {LENGTH} f = Cast<to = 1>(n) y = Div(x, f) }}",
        "cast: it computes with the extent S, which is lost where rows are packed",
    ),
    "rows and tokens changed": (
        ROWS + CONSTANTS + f"{{ {LENGTH} b1 = Unsqueeze(b, a0) n1d = Unsqueeze(n, a0) "
        "four = Add(a2, a2) to = Concat<axis = 0>(n1d, b1, four) y = Reshape(x, to) }",
        "reshape: [B, S, 4] as [S, B, 4] takes rows or tokens apart",
    ),
    "windows over tokens": (
        f"{X}, float[4, 4, 3] w) => (y) {{ t = Transpose<perm = [0, 2, 1]>(x) "
        "y = Conv<pads = [1, 1]>(t, w) }",
        "conv2d: nobody has proved that it keeps rows and tokens apart",
    ),
    "a branch that counts tokens": (
        f"{X}, bool often) => (y) "
        + CONSTANTS
        + "{ c = If(often) <then_branch = t () => (float p) "
        f"{{ {LENGTH} p = Cast<to = 1>(n) }}, else_branch = e () => (float q) "
        "{ q = Identity(one) }> y = Mul(x, c) }",
        "if: nobody has proved that it keeps rows and tokens apart",
    ),
    "a recurrent layer": (
        f"{X}, float[1, 8, 4] w, float[1, 8, 2] r) => (y, h, c) "
        "{ t = Transpose<perm = [1, 0, 2]>(x) y, h, c = LSTM<hidden_size = 2>(t, w, r) }",
        "loop",
    ),
}


def imported(graph: str) -> Module:
    return bucketize.from_onnx(parse(graph))


def padded(mod: Module, lengths: Sequence[int], length: int) -> dict[str, Array]:
    """Inputs, of which what is hidden is poison."""
    rng = np.random.default_rng(len(lengths))
    sizes = {"B": len(lengths), "S": length}
    inputs = {p.name: draw(rng, p, sizes) for p in mod.main.params}
    mask = np.arange(length) < np.array(lengths)[:, None]
    inputs["mask"] = mask.astype(inputs["mask"].dtype)
    inputs["x"][~mask] = [np.nan, np.inf, -np.inf, 3e38]
    return inputs


def alone(mod: Module, inputs: Mapping[str, Array], row: int, length: int) -> list[Array]:
    """What one row comes to, without what is hidden."""
    shapes = {p.name: [str(d) for d in p.type.shape] for p in mod.main.params}
    own = {}
    for name, array in inputs.items():
        first = array[row : row + 1] if shapes[name][0] == "B" else array
        own[name] = first[:, :length] if shapes[name][:2] == ["B", "S"] else first
    return evaluate_module(mod, **own)


def check(mod: Module, lengths: Sequence[int], length: int) -> None:
    inputs = padded(mod, lengths, length)
    packed = verify(bucketize.ragged(mod, mask="mask"))
    got = evaluate_module(packed, **inputs)
    for row, n in enumerate(lengths):
        for result, want, each in zip(
            mod.main.results, alone(mod, inputs, row, n), got, strict=True
        ):
            has_tokens = [str(d) for d in result.type.shape][:2] == ["B", "S"]
            agree([each[row : row + 1, :n] if has_tokens else each[row : row + 1]], [want], 1e-5)
            if has_tokens:
                assert not each[row, n:].any()


@pytest.mark.parametrize("name", TAKEN)
def test_a_row_comes_to_what_it_does_alone(name: str) -> None:
    mod = imported(TAKEN[name])
    check(mod, [3, 1, 5, 2], 5)
    check(mod, [2], 4)


@pytest.mark.sweep
@pytest.mark.parametrize("name", TAKEN)
def test_kernels_compute_the_same_of_many_requests(name: str) -> None:
    mod = imported(TAKEN[name])
    exe = bucketize.compile(bucketize.ragged(mod, mask="mask"), lazy=True)
    rng = np.random.default_rng(0)
    common = {p.name: draw(rng, p, {}) for p in mod.main.params if not p.type.symbols()}
    requests = []
    for length in (3, 1, 8, 5):
        own = {p.name: draw(rng, p, {"B": 2, "S": length}) for p in mod.main.params}
        own["mask"] = np.arange(length) < np.array([[length], [max(1, length - 2)]])
        requests.append({**own, **common, "mask": own["mask"].astype(np.int64)})
    plan = exe.plan_many(requests)
    assert [len(call.rows) for call in plan.calls] == [8]
    for request, got in zip(requests, exe.run_many(requests), strict=True):
        want = evaluate_module(bucketize.ragged(mod, mask="mask"), **request)
        agree(got, want, 1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named(name: str) -> None:
    graph, message = REFUSED[name]
    with pytest.raises(RaggedError, match=f"^{re.escape(message)}"):
        bucketize.ragged(imported(graph), mask="mask")


SHOWN = ("attention of heads", "the mean of a row", "a mask picked out of all")


@pytest.mark.parametrize("name", SHOWN, ids=["heads", "mean", "picked"])
def test_the_text_of_a_packed_function(name: str, golden: Any) -> None:
    mod = imported(TAKEN[name])
    before, after = mod.replace(simplify(mod.main)), bucketize.ragged(mod, mask="mask")
    golden.check(f"{show(before.main)}\n\n{show(after)}\n")


def bert() -> Module:
    return bucketize.from_onnx(zoo.build("bert-mini"))


def test_a_call_that_hides_others_goes_to_the_original() -> None:
    mod = imported(TAKEN["attention behind what is added"])
    packed = bucketize.ragged(mod)
    inputs = padded(mod, [3, 2], 4)
    inputs["x"] = np.nan_to_num(inputs["x"], nan=1, posinf=1, neginf=1)
    for mask in ([[0, 1, 1, 1], [1, 1, 1, 1]], [[1, 0, 1, 0], [1, 1, 0, 0]], [[0] * 4, [1] * 4]):
        inputs["mask"] = np.array(mask)
        agree(evaluate_module(packed, **inputs), shown(mod, inputs), 1e-5)
    inputs["mask"] = np.array([[2, 2, 2, 0]] * 2)  # half of what a 1 hides
    agree(evaluate_module(packed, **inputs), shown(mod, inputs), 1e-5)


def shown(mod: Module, inputs: dict[str, Array]) -> list[Array]:
    """What the original gives, with zeros at tokens that are hidden."""
    hidden = inputs["mask"] == 0
    return [np.where(hidden[..., None], 0, r) for r in evaluate_module(mod, **inputs)]


def test_zeros_at_hidden_tokens_are_there_whatever_the_neighbours_hide() -> None:
    exe = bucketize.compile(bucketize.ragged(imported(TAKEN["attention behind what is added"])))
    x = np.random.default_rng(0).standard_normal((2, 4, 4)).astype(np.float32)
    x[0, 3] = np.inf
    for other in ([1, 1, 1, 1], [0, 1, 1, 1], [1, 0, 1, 0], [2, 1, 1, 1], [0, 0, 0, 0]):
        (got,) = exe.run(x, np.array([[1, 1, 1, 0], other]))
        assert (got[0, 3] == 0).all()
        assert (got[0, :3] != 0).any()


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
@pytest.mark.parametrize("name", ["attention behind what is added", "the mean of a row"])
def test_no_rows_and_no_tokens_are_what_they_are_to_the_original(
    name: str, shape: tuple[int, int]
) -> None:
    mod = imported(TAKEN[name])
    inputs = {"x": np.ones((*shape, 4), np.float32), "mask": np.ones(shape, np.int64)}
    exe = bucketize.compile(bucketize.ragged(mod))
    with np.errstate(all="ignore"):
        want = evaluate_module(mod, **inputs)
    agree(exe.run_named(**inputs).values(), want, 1e-5)


@pytest.mark.parametrize("kind", ["int32", "bool", "float"])
def test_masks_of_other_dtypes(kind: str) -> None:
    graph = TAKEN["attention behind what is added"].replace(
        "int64[B, S] mask", f"{kind}[B, S] mask"
    )
    check(imported(graph), [3, 1, 5], 5)


def test_without_a_mask_all_tokens_are_seen() -> None:
    mod = imported(
        "(float[B, S, 4] x) => (y, m) { t = Transpose<perm = [0, 2, 1]>(x) s = MatMul(x, t) "
        "p = Softmax<axis = 2>(s) y = MatMul(p, x) m = ReduceMean<axes = [1], keepdims = 0>(y) }"
    )
    exe = bucketize.compile(bucketize.ragged(mod, axis="S"), lazy=True)
    rng = np.random.default_rng(0)
    requests = [{"x": rng.standard_normal((2, n, 4)).astype(np.float32)} for n in (3, 1, 7)]
    assert len(exe.plan_many(requests).calls) == 1
    for request, got in zip(requests, exe.run_many(requests), strict=True):
        agree(got, evaluate_module(mod, **request), 1e-5)
        agree(exe.run(**request), evaluate_module(mod, **request), 1e-5)
    agree(
        exe.run(np.ones((0, 3, 4), np.float32)), [np.ones((0, 3, 4), "f"), np.ones((0, 4), "f")], 0
    )


def test_a_row_has_no_more_tokens_than_a_table_has_entries() -> None:
    packed = bucketize.ragged(bert())
    assert packed.main.symbols()["S"].hi == 512
    longer = imported(TAKEN["a table as long as a row"])
    assert bucketize.ragged(longer, mask="mask").main.symbols()["S"].hi == 9


def test_the_text_of_a_ragged_module_is_read_back() -> None:
    packed = bucketize.ragged(imported(TAKEN["the mean of a row"]))
    assert show(verify(read(show(packed)))) == show(packed)


def test_a_ragged_program_is_saved(tmp_path: Path) -> None:
    mod = imported(TAKEN["attention of heads"])
    exe = bucketize.compile(bucketize.ragged(mod, mask="mask"))
    exe.save(tmp_path / "net.bkt")
    loaded = bucketize.load(tmp_path / "net.bkt")
    inputs = padded(mod, [2, 4, 1], 5)
    for got, want in zip(loaded.run(**inputs), exe.run(**inputs), strict=True):
        np.testing.assert_array_equal(got, want)
    for got, want in zip(loaded.run_many([inputs])[0], exe.run_many([inputs])[0], strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_is_no_mask_and_no_module() -> None:
    with pytest.raises(ArgumentError, match="one input should be called a mask, got none"):
        bucketize.ragged(bucketize.from_onnx(zoo.build("mlp")))
    with pytest.raises(UnknownNameError, match=r"input named 'maks'.*did you mean 'mask'"):
        bucketize.ragged(imported(TAKEN["a norm"]), mask="maks")
    with pytest.raises(UnknownNameError, match="symbol named 'T'"):
        bucketize.ragged(imported(TAKEN["a norm"]), axis="T")
    with pytest.raises(RaggedError, match=r"mask 's' is float32\[4\], not batch by tokens"):
        bucketize.ragged(imported(TAKEN["a norm"]), mask="s")
    with pytest.raises(RaggedError, match="axis B, but the tokens of 'mask' are S"):
        bucketize.ragged(imported(TAKEN["a norm"]), axis="B", mask="mask")
    with pytest.raises(ArgumentError, match="expected a Module"):
        bucketize.ragged("encoder.onnx")  # type: ignore[arg-type]
    with pytest.raises(DispatchError, match="main is dispatched; make the original ragged"):
        bucketize.ragged(bucketize.dispatch(bert(), log_dispatcher))


ODD = {
    "(float[B, S, S] x, int64[B, S] mask) => (y) { y = Neg(x) }": "input 'x' is float32[B, S, S], "
    "of pairs of tokens",
    "(float[S, 4] x, int64[B, S] mask) => (y) { y = Neg(x) }": "input 'x' is float32[S, 4], "
    "of tokens of no row",
    "(float[B, S, 4] ends, int64[B, S] mask) => (y) { y = Neg(ends) }": "packing adds 'ends', "
    "which the model has: rename it there",
    "(float[S, B, 4] x, int64[B, S] mask) => (y) { y = Neg(x) }": "'x' is float32[S, B, 4]: "
    "tokens are asked for behind the batch",
    "(float[B, S, 4] x, int64[3, S] mask) => (y) { y = Neg(x) }": "mask 'mask' is int64[3, S]: "
    "two symbols are asked for",
    "(float[B, S, 4] x, int64[B, S] mask) => (y) { t = Transpose<perm = [0, 2, 1]>(x) "
    "y = MatMul(x, t) }": "a result is float32[B, S, S], of pairs of tokens",
    "(float[B, S, 4] x, int64[B, S] mask) => (y) { y = Shape(x) }": "a result is int64[3], "
    "the extent B, S, 4, which is lost where rows are packed",
    "(float[B, 2] x, int64[B, S] mask) => (y) { y = Reshape(x, n1) }".replace(
        "=> (y) ", "=> (y) <int64[1] n1 = {-1}> "
    ): "a result is float32[2*B]: an axis of its own is asked for, not 2*B",
    "(float[B, S, 4] x, int64[B, S] mask) => (y) { [n] y = NonZero(x) }": "nonzero: "
    "nobody has proved that it keeps rows and tokens apart",
}


@pytest.mark.parametrize("graph", ODD)
def test_inputs_and_results_that_cannot_be_packed(graph: str) -> None:
    with pytest.raises(RaggedError, match=f"^{re.escape(ODD[graph])}"):
        bucketize.ragged(imported(graph), mask="mask")


def test_what_is_refused_names_the_node() -> None:
    graph = "(float[B, S, 4] x, int64[B, S] mask) => (y) { [pool] y = ReduceMean<axes = [1]>(x) }"
    with pytest.raises(RaggedError, match="from pool"):
        bucketize.ragged(imported(graph))
    both = "(float[B, S, 4] x, float[B, S, 4] z, float[C, S] w) => (y) { y = Add(x, z) }"
    with pytest.raises(
        RaggedError, match="inputs with S have one other symbol, the batch; got B, C"
    ):
        bucketize.ragged(imported(both), axis="S")
