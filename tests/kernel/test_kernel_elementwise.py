"""Fused elementwise groups as kernels: chains, casts, choices, broadcasts left to run time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from kernel_call import F32, C, Group, M, N, check, floats, number, workload

from bucketize import ops
from bucketize.ir import Const
from bucketize.kernel.loops.elementwise import OPEN, RUNS, STANDS, axes_of, collapsed
from bucketize.types import ANY, Dim, Symbol, tensor


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32"])
@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
def test_floats_beyond_an_integer_wrap_as_in_numpy(source: str, dtype: str) -> None:
    """The same in the vector code and in what is left over for the scalar code."""
    load = workload(ops.cast, tensor(source, N), dtype=dtype)
    with np.errstate(all="ignore"):
        values = np.array([300.7, -200.3, 7e4, -7e4, 1e10, -3e9, np.nan, np.inf, -np.inf])
        x = np.repeat(values.astype(source), 67)
        check(load, [x], {"N": x.size})


def test_a_chain_with_lone_numbers() -> None:
    """The gelu that exporters write, with a bias and a residual."""
    g = Group(tensor(F32, N, M), tensor(F32, M), tensor(F32, N, M))
    x, bias, other = g.params
    h = g(ops.add, x, bias)
    e = g(ops.erf, g(ops.div, h, number(math.sqrt(2))))
    half = g(ops.mul, g(ops.mul, h, g(ops.add, e, number(1.0))), number(0.5))
    load = g.returns(g(ops.add, half, other))
    for n, m in ((1, 1), (1, 100), (7, 33), (3, 1)):
        check(load, [floats(n, m), floats(m, seed=1), floats(n, m, seed=2)], {"N": n, "M": m})


def test_casts_comparisons_and_choices() -> None:
    g = Group(tensor(F32, N, M), tensor("int64", N, 1), tensor(bool, M))
    x, lengths, on = g.params
    late = g(ops.greater, g(ops.cast, x, dtype="int64"), lengths)
    both = g(ops.logical_and, late, g(ops.logical_not, on))
    kept = g(ops.where, both, number(-math.inf), x)
    load = g.returns(g(ops.cast, g(ops.less, kept, number(0.5)), dtype="int32"))
    rng = np.random.default_rng(3)
    for n, m in ((1, 1), (4, 37)):
        args = [4 * floats(n, m), rng.integers(-3, 3, (n, 1)), rng.random(m) < 0.5]
        check(load, args, {"N": n, "M": m})


def test_a_value_used_twice_and_a_number_of_higher_rank() -> None:
    g = Group(tensor(F32, N))
    (x,) = g.params
    y = g(ops.mul, x, x)
    load = g.returns(g(ops.sub, y, g(ops.add, y, Const(np.full((1, 1), 2, np.float32)))))
    check(load, [floats(9)], {"N": 9})


@pytest.mark.parametrize("along", ["1010", "0101", "0110", "1001", "1101", "0010"])
def test_rows_of_several_axes_begin_wherever_an_operand_does(along: str) -> None:
    """Runs that begin within a row, and go on over the ends of one axis, of two, of all."""
    whole = (Symbol("B", 2), Symbol("D", 2), N, M)
    part = tuple(d if a == "1" else 1 for d, a in zip(whole, along, strict=True))
    g = Group(tensor(F32, *whole), tensor(F32, *part))
    load = g.returns(g(ops.sub, *g.params))
    for sizes in ((2, 3, 5, 7), (3, 2, 1, 90), (2, 2, 37, 1)):
        env = dict(zip("BDNM", sizes, strict=True))
        shapes = [[env.get(str(d), d) for d in dims] for dims in (whole, part)]
        check(load, [floats(*s, seed=k) for k, s in enumerate(shapes)], env)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((N, M), (M, N)),  # either may be 1
        ((ANY, ANY), (ANY, ANY)),
        ((N, C, ANY), (1, ANY, M)),
        ((C, N), (M,)),
        ((ANY,), (N, 1, C)),
    ],
    ids=lambda dims: "x".join(map(str, dims)),
)
def test_what_broadcasts_may_be_a_run_time_question(
    left: tuple[Dim, ...], right: tuple[Dim, ...]
) -> None:
    load = workload(ops.sub, tensor(F32, *left), tensor(F32, *right))
    for sizes in itertools.product((1, 6), repeat=4):  # of N, of M, and of `?` on either side
        env = dict(zip("NM", sizes, strict=False)) | {"C": 6}
        shapes = [
            [at if d == ANY else env.get(str(d), d) for d in dims]
            for dims, at in zip((left, right), sizes[2:], strict=True)
        ]
        check(load, [floats(*shape, seed=i) for i, shape in enumerate(shapes)], env)


def test_axes_collapse_where_operands_do_the_same() -> None:
    axes = axes_of([(N, C, M, 1), (C, 1, 1), (1, 1, M, 1)], (N, C, M, 1))
    assert axes[0] == (RUNS, STANDS, STANDS)
    assert axes[1] == (RUNS, RUNS, STANDS)
    assert axes[2] == (RUNS, STANDS, RUNS)
    assert [members for members, _ in collapsed(axes)] == [[0], [1], [2]]
    assert collapsed(axes_of([(N, C, M), (N, C, M)], (N, C, M))) == [([0, 1, 2], (RUNS, RUNS))]
    assert axes_of([(N,), (M,)], (ANY,)) == [(OPEN, OPEN)]
    assert axes_of([(ANY,), (7,)], (7,)) == [(OPEN, RUNS)]


def test_small_integers_wrap_as_numpy_does() -> None:
    load = workload(ops.add, tensor("int8", N), tensor("int8", N))
    values = np.array([127, -128, 100, 5], np.int8)
    check(load, [values, values], {"N": 4})
