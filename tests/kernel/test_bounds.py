"""Indices that are out of range are errors, and no kernel follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bucketize
from bucketize import ops
from bucketize.errors import ShapeError, TypeRelError
from bucketize.ir import Builder, Module, Var
from bucketize.op import Array, Op
from bucketize.types import Symbol, tensor

N = Symbol("N", 1, 1 << 20)
ROWS = np.arange(32, dtype=np.float32).reshape(4, 8)

Dims = tuple[Any, ...]


def built(op: Op, x: Dims, indices: Dims, *updates: Dims, threads: int = 1, **attrs: Any) -> Any:
    """An executable of one op between two others, whose results share the arena with it."""
    params = [Var("x", tensor("float32", *x)), Var("i", tensor("int64", *indices))]
    params += [Var("u", tensor("float32", *u)) for u in updates]
    b = Builder()
    negated, *rest = b.emit(ops.neg, params[0]), *params[1:]
    taken = b.emit(ops.relu, b.emit(op, negated, *rest, **attrs))
    after = b.emit(ops.reduce_sum, b.emit(ops.exp, taken), axes=(0,))
    fn = b.function("main", params, [taken, after])
    return bucketize.compile(Module({"main": fn}), threads=threads)


def ints(values: Any) -> Array:
    return np.asarray(values, np.int64)


def reject(exe: Any, op: Op, index: int, extent: int, *args: Array) -> None:
    want = f"in {op.name}: index {index} is out of range for extent {extent}"
    with pytest.raises(ShapeError, match=want):
        exe.run(*args)


def accept(exe: Any, op: Op, *args: Array, **attrs: Any) -> None:
    want = np.maximum(op.compute(-args[0], *args[1:], **op.complete(attrs)), 0)
    np.testing.assert_array_equal(exe.run(*args)[0], want)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_gather(threads: int, axis: int) -> None:
    exe = built(ops.gather, (4, 8), (N,), threads=threads, axis=axis)
    extent = ROWS.shape[axis]
    for bad in (100, extent, -extent - 1, 2**62, -(2**63)):
        reject(exe, ops.gather, bad, extent, ROWS, ints([0, bad, 1]))
        accept(exe, ops.gather, ROWS, ints([-extent, extent - 1, -1, 0]), axis=axis)


@pytest.mark.parametrize("place", [0, 39_999])
def test_every_thread_checks_its_part(place: int) -> None:
    exe = built(ops.gather, (4, 8), (N,), threads=2, axis=0)
    indices = np.tile(ints([-4, 3, 0, 1]), 10_000)
    accept(exe, ops.gather, ROWS, indices, axis=0)
    reject(exe, ops.gather, -9, 4, ROWS, np.where(np.arange(indices.size) == place, -9, indices))
    accept(exe, ops.gather, ROWS, indices[:3], axis=0)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_gather_elements(threads: int, axis: int) -> None:
    exe = built(ops.gather_elements, (4, 8), (4, 2), threads=threads, axis=axis)
    good, extent = ints([[0, -1], [1, -4], [2, 0], [3, 3]]), ROWS.shape[axis]
    for bad in (100, -9):
        reject(exe, ops.gather_elements, bad, extent, ROWS, np.where(good == 2, bad, good))
        accept(exe, ops.gather_elements, ROWS, good, axis=axis)


@pytest.mark.parametrize("threads", [1, 2])
def test_gather_nd(threads: int) -> None:
    exe = built(ops.gather_nd, (4, 8), (N, 2), threads=threads)
    for bad, extent in (([4, 0], 4), ([0, 100], 8), ([-9, 100], 4)):
        wrong = next(i for i, n in zip(bad, (4, 8), strict=True) if not -n <= i < n)
        reject(exe, ops.gather_nd, wrong, extent, ROWS, ints([[1, 1], bad]))
        accept(exe, ops.gather_nd, ROWS, ints([[1, 1], [-4, -8], [3, 7]]))


@pytest.mark.parametrize("threads", [1, 2])
def test_scatter_elements(threads: int) -> None:
    exe = built(ops.scatter_elements, (4, 8), (4, 1), (4, 1), threads=threads, axis=1)
    updates = -np.ones((4, 1), np.float32)
    for bad in (100, -9):
        indices = ints([[0], [bad], [2], [3]])
        reject(exe, ops.scatter_elements, bad, 8, ROWS, indices, updates)
        accept(exe, ops.scatter_elements, ROWS, ints([[-8], [7], [-1], [0]]), updates, axis=1)


@pytest.mark.parametrize("threads", [1, 2])
def test_scatter_nd(threads: int) -> None:
    exe = built(ops.scatter_nd, (4, 8), (N, 1), (N, 8), threads=threads)
    updates = -np.ones((2, 8), np.float32)
    for bad in (100, -9):
        reject(exe, ops.scatter_nd, bad, 4, ROWS, ints([[1], [bad]]), updates)
        accept(exe, ops.scatter_nd, ROWS, ints([[-4], [3]]), updates)


def test_nothing_is_read_of_an_empty_axis() -> None:
    exe = built(ops.gather, (Symbol("M", 0, 4), 8), (N,), axis=0)
    reject(exe, ops.gather, 0, 0, ROWS[:0], ints([0]))
    accept(exe, ops.gather, ROWS, ints([0]), axis=0)
    accept(exe, ops.gather, ROWS[:2], ints([-2]), axis=0)


def test_the_first_wrong_step_is_named() -> None:
    x, i = Var("x", tensor("int64", 4)), Var("i", tensor("int64", N))
    b = Builder()
    places = b.emit(ops.gather, x, i, axis=0)
    fn = b.function("main", [x, i], [b.emit(ops.gather_elements, x, places, axis=0)])
    exe = bucketize.compile(Module({"main": fn}))
    reject(exe, ops.gather, 7, 4, ints([0, 1, 2, 3]), ints([7, 1]))
    reject(exe, ops.gather_elements, 5, 4, ints([0, 5, 2, 3]), ints([0, 1]))
    np.testing.assert_array_equal(exe.run(ints([3, 1, 2, 0]), ints([0, -1]))[0], [0, 3])


M = Symbol("M", 0)


@pytest.mark.parametrize("op", [ops.gather_elements, ops.scatter_elements])
@pytest.mark.parametrize("axis", [0, 1])
def test_indices_stand_at_places_of_the_array(op: Op, axis: int) -> None:
    """Beside more of them than it has, a kernel would go beyond the array; fewer are served."""
    dims: Dims = (M, 2) if axis else (2, M)
    exe = built(
        op, (N, 8) if axis else (4, N), dims, *[dims] * (op is ops.scatter_elements), axis=axis
    )
    for count in (0, 3, 4):
        shape = (count, 2) if axis else (2, count)
        rest = [np.ones(shape, np.float32)] * (op is ops.scatter_elements)
        accept(exe, op, ROWS[:, : 8 if axis else 4], ints(np.zeros(shape)), *rest, axis=axis)
    shape = (5, 2) if axis else (2, 5)
    rest = [np.ones(shape, np.float32)] * (op is ops.scatter_elements)
    with pytest.raises(
        TypeRelError, match=f"axis {1 - axis} has 5 indices, more than its extent 4"
    ):
        exe.run(ROWS[:, : 8 if axis else 4], ints(np.zeros(shape)), *rest)
