"""Extents that follow from others by more than can be written get names, and are short again."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import agree
from onnx_model import parse, run_ort

import bucketize
from bucketize import ops
from bucketize.errors import CompileError
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Module, Var, all_bindings
from bucketize.link.dim_code import DimCode
from bucketize.types import ANY, LONGEST, Symbol, followed, product, tensor
from dispatchers import log_dispatcher

H, W = Symbol("H"), Symbol("W")


def padded(layers: int):
    """Images padded by what their extents are beyond a multiple of 7, over and over.

    Each layer mentions both extents twice, as those do that pad for windows and crop again.
    """
    nodes = ""
    for i in range(layers):
        x = f"x{i}" if i else "x"
        nodes += f" s{i} = Shape<start = 1, end = 3>({x}) m{i} = Mod(s{i}, seven)"
        nodes += f" p{i} = Concat<axis = 0>(none, m{i}, last) q{i} = Pad({x}, p{i})"
        nodes += f" x{i + 1} = Relu(q{i})"
    known = "<int64[2] seven = {7, 7}, int64[5] none = {0, 0, 0, 0, 0}, int64[1] last = {0}>"
    graph = f"(float[N, H, W, 3] x, float[3, 2] w) => (y) {known}"
    return parse(f"{graph} {{ {nodes} y = MatMul(x{layers}, w) }}")


@pytest.mark.sweep
@pytest.mark.parametrize("layers", [7, 12, 22])
def test_extents_that_double_with_each_layer(layers: int) -> None:
    model = padded(layers)
    mod = bucketize.from_onnx(model)
    exe = bucketize.compile(mod)
    assert exe.counts.host == {}
    assert all(len(str(o.type)) < 100 * LONGEST for b in all_bindings(mod.main) for o in b.outs)
    for shape in ((1, 5, 9, 3), (2, 3, 7, 3), (1, 1, 1, 3)):
        rng = np.random.default_rng(0)
        given = {"x": rng.standard_normal(shape, "f4"), "w": rng.standard_normal((3, 2), "f4")}
        want = run_ort(model, given)
        agree(exe.run(**given), want, 1e-5)
        agree(evaluate_module(mod, **given), want, 1e-5)


def test_they_are_dispatched_and_saved(tmp_path) -> None:
    model = padded(12)
    bounds = {"N": (1, 2), "H": (1, 8), "W": (1, 8)}
    mod = bucketize.dispatch(bucketize.from_onnx(model, bounds=bounds), log_dispatcher)
    exe = bucketize.compile(mod, lazy=True)
    given = {"x": np.ones((1, 5, 6, 3), "f4"), "w": np.ones((3, 2), "f4")}
    agree(exe.run(**given), run_ort(model, given), 1e-5)
    whole = bucketize.compile(bucketize.from_onnx(model))
    whole.save(tmp_path / "net.bkt")
    agree(bucketize.load(tmp_path / "net.bkt").run(**given), run_ort(model, given), 1e-5)


def nested(times: int, dim=H):
    """An extent and its own remainder, so many times: as many atoms as 2 ** times, and more."""
    for _ in range(times):
        dim = dim + dim % 7
    return dim


def test_extents_are_followed_as_long_as_they_can_be_written() -> None:
    assert followed(nested(6)) == nested(6)
    assert followed(nested(8)) is ANY
    assert (followed(H), followed(3), followed(ANY)) == (H, 3, ANY)


def test_a_type_has_no_longer_extent() -> None:
    rows = tensor("float32", nested(6), 2)
    (made,) = ops.concat.infer(rows, tensor("float32", nested(8), 2), axis=0)
    assert made.shape == (ANY, 2)
    (made,) = ops.concat.infer(rows, rows, axis=0)
    assert made.shape == (2 * nested(6), 2)


def test_products_of_several_long_extents_have_registers() -> None:
    long = [nested(6), W + nested(6), nested(6) * 2, W]
    code = DimCode(["H", "W"])
    code.register(product(long))
    assert code.rows


@pytest.mark.parametrize("op", [ops.relu, ops.softmax], ids=lambda op: op.name)
def test_what_cannot_be_written_at_all_is_an_error(op) -> None:
    """More such extents in one tensor than a product of them all can be told of."""
    many = [Symbol(name) for name in "ABCDE"]
    x, out = Var("x", tensor("float32", *many, *(nested(6, s) for s in many))), Builder()
    attrs = {"axis": 9} if op is ops.softmax else {}
    y = out.emit(ops.transpose, out.emit(op, x, **attrs), axes=tuple(range(9, -1, -1)))
    with pytest.raises(CompileError, match=r"more than can be written: bound the .* --dim SYMBOL"):
        bucketize.compile(Module({"main": out.function("main", [x], [y])}))
