"""Random graphs: whatever is packed or batched comes to what each row does alone.

Most are refused. When the rules were young these found sums that lose an axis, pads that move rows,
and tables as long as a batch.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from agreement import agree
from test_fuzz import SMOOTH, Graph

import bucketize
from bucketize.errors import BucketizeError
from bucketize.interpret import evaluate_module, run_function
from bucketize.ir import Builder, Module, Var
from bucketize.many.costs import Costs
from bucketize.many.packed import Packed
from bucketize.op import Array
from bucketize.ragged.rows import batch_of
from bucketize.types import Symbol, evaluate, tensor
from bucketize.verify import verify

N, M = Symbol("N", 1, 9), Symbol("M", 1, 9)
SEEDS = int(os.environ.get("BUCKETIZE_ROWS", "600"))
PARTS = 6
REFUSED = (BucketizeError, ValueError, IndexError, ZeroDivisionError)
"""What the reference raises at sizes that a graph is not legal at."""


class Rows(Graph):
    """A graph over rows of tokens."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.n, self.m, self.out = N, M, Builder()
        last = self.rng.choice((2, 3, 4))
        self.params = [Var("p0", tensor("float32", N, M, last))]
        shapes = [(N, M, last), (N, M), (N, last), (last,), (last, last), (N, 1, last), (N, M, 1)]
        for i in range(self.rng.randrange(4)):
            dtype = self.rng.choice(("float32", "float32", "int64", "bool"))
            self.params.append(Var(f"p{i + 1}", tensor(dtype, *self.rng.choice(shapes))))
        self.pool = list(self.params)
        self.exact = set(self.pool)


def row(mod: Module, inputs: list[Array], i: int, length: int) -> list[Array]:
    """The inputs of a row by itself, with so many tokens."""
    own = []
    for p, array in zip(mod.main.params, inputs, strict=True):
        dims = p.type.shape
        one = array[i : i + 1] if dims[0] == N else array
        own.append(one[:, :length] if dims[1:2] == (M,) else one)
    return own


def is_packed(mod: Module, inputs: list[Array], lengths: list[int]) -> bool:
    """Whether rows are packed, and then come to what they do alone."""
    try:
        packed = verify(bucketize.ragged(mod, axis="M"))
    except BucketizeError:
        return False
    fn = packed.functions["main[ragged]"]
    together = Packed.of(fn, mod.main.params, Costs(None, False), leaves_out=True)
    requests = {i: row(mod, inputs, i, n) for i, n in enumerate(lengths)}
    try:
        wanted = {i: evaluate_module(mod, *own) for i, own in requests.items()}
        whole = evaluate_module(mod, *inputs)
    except REFUSED:
        return False
    results: dict[int, list[Array]] = {}
    rows = [r for i, own in requests.items() for r in together.rows(i, own)]
    outs = run_function(fn, together.arguments(rows, requests))
    together.deal(rows, outs, requests, results)
    for i, want in wanted.items():
        agree(results[i], want, tolerance(mod))
    agree(evaluate_module(packed, *inputs), whole, tolerance(mod))
    return True


def is_batched(mod: Module, inputs: list[Array], lengths: list[int]) -> bool:
    """Whether rows of a batch are told to keep apart, and then do."""
    try:
        batch = batch_of(mod.main)
        whole = evaluate_module(mod, *inputs)
        alone = [
            evaluate_module(mod, *row(mod, inputs, i, max(lengths))) for i in range(len(lengths))
        ]
    except REFUSED:
        return False
    if batch != N:  # M may come first in all that is left
        return False
    for i, want in enumerate(alone):
        agree([r[i : i + 1] for r in whole], want, tolerance(mod))
    return True


def tolerance(mod: Module) -> float:
    dtypes = {o.type.dtype.name for b in mod.main.body for o in b.outs} | {"float32"}
    return max(SMOOTH.get(dtype, 0) for dtype in dtypes)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_rows_keep_apart_where_that_was_proved(part: int) -> None:
    packed = batched = 0
    for seed in range(part, SEEDS, PARTS):
        try:
            mod = Rows(seed).module()
        except (BucketizeError, ZeroDivisionError):  # a step that its shapes do not allow
            continue
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, 7, rng.integers(1, 4)).tolist()
        sizes = {"N": len(lengths), "M": max(lengths)}
        shapes = [[evaluate(d, sizes) for d in p.type.shape] for p in mod.main.params]
        drawn = [np.asarray(rng.integers(-6, 7, shape) / 4) for shape in shapes]
        pairs = zip(drawn, mod.main.params, strict=True)
        inputs = [array.astype(p.type.dtype) for array, p in pairs]
        try:
            packed += is_packed(mod, inputs, lengths)
            batched += is_batched(mod, inputs, lengths)
        except Exception as e:
            e.add_note(f"seed {seed}")
            raise
    assert packed > SEEDS // PARTS // 50
    assert batched > SEEDS // PARTS // 50
