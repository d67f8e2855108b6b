"""Rotary embeddings as one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_model import agree, parse
from test_attention import kinds
from test_vector_templates import TARGETS, Case, check, run

import bucketize
from bucketize import ops
from bucketize.errors import UnsupportedModelError
from bucketize.interpret import evaluate_module
from bucketize.ir import Atom, Builder, Function, Module, Var
from bucketize.kernel.rotary.template import TEMPLATE, rotary_of
from bucketize.onnx import from_onnx
from bucketize.transform.simplify import simplify
from bucketize.types import ANY, Dim, Symbol, tensor

N, H, S, D = (Symbol(name) for name in "NHSD")
LARGE = 2**63 - 1


def half(b: Builder, x: Atom, begin: int, end: int, *, step: int = 1) -> Var:
    axis = len(x.type.shape) - 1
    ends = {"begin": (begin,), "end": (end,), "strides": (step,), "axes": (axis,)}
    return b.emit(ops.strided_slice, x, **ends)


def exchanged(b: Builder, x: Atom) -> Var:
    size = x.type.shape[-1] // 2
    pair = b.emit(ops.neg, half(b, x, size, LARGE)), half(b, x, 0, size)
    return b.emit(ops.concat, *pair, axis=len(x.type.shape) - 1)


def plain(b: Builder, x: Atom, cos: Atom, sin: Atom) -> Var:
    """As torch exports it."""
    first = b.emit(ops.mul, x, cos)
    return b.emit(ops.add, first, b.emit(ops.mul, exchanged(b, x), sin))


def swapped(b: Builder, sin: Atom, x: Atom, cos: Atom) -> Var:
    """Every operand in the other place."""
    second = b.emit(ops.mul, sin, exchanged(b, x))
    return b.emit(ops.add, second, b.emit(ops.mul, cos, x))


def turned(b: Builder, x: Atom, cos: Atom, sin: Atom) -> Var:
    return plain(b, b.emit(ops.transpose, x, axes=(0, 2, 1, 3)), cos, sin)


def sizes(**more: int) -> tuple[dict[str, int], ...]:
    found = [{"N": 2, "H": 3, "S": s, **more} for s in (1, 7)]
    return (*found, {"N": 1, "H": 1, "S": 5, **more})


CASES = {
    "plain": (plain, (N, H, S, 64), (N, 1, S, 64), (N, 1, S, 64)),
    "odd": (plain, (N, H, S, 38), (1, 1, S, 38), (S, 38)),
    "short": (plain, (N, S, 2), (S, 2), (2,)),
    "swapped": (swapped, (S, 16), (N, H, S, 16), (N, H, 1, 16)),
    "turned": (turned, (N, S, H, 64), (N, 1, S, 64), (N, 1, S, 64)),
    "rows alone": (plain, (S, 96), (S, 96), (1, 96)),
}


def case(name: str) -> Case:
    make, *types = CASES[name]
    return Case(TEMPLATE, make, tuple(types), sizes())


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_is_its_group(name: str, target: Any) -> None:
    check(case(name), {}, target)


def function(make: Any, *types: tuple[Dim, ...]) -> Function:
    params = [Var(f"p{i}", tensor("float32", *t)) for i, t in enumerate(types)]
    b = Builder()
    made = make(b, *params)
    return b.function("main", params, made if isinstance(made, list) else [made])


@pytest.mark.parametrize("name", CASES)
def test_fuse_takes_it_whole(name: str) -> None:
    make, *types = CASES[name]
    fn = function(make, *types)
    assert kinds(fn) == ["+".join(b.op.name for b in fn.body)]
    module, rng = Module({"main": fn}), np.random.default_rng(0)
    exe = bucketize.compile(module)
    for at in sizes():
        shapes = [p.type.substitute(at).shape for p in fn.params]
        args = [rng.standard_normal(s).astype(np.float32) for s in shapes]  # type: ignore[arg-type]
        (got,), (want,) = exe.run(*args), evaluate_module(module, *args)
        np.testing.assert_array_equal(got, want)  # every op rounds


def test_no_rows_are_no_work() -> None:
    none = Symbol("Z", 0)
    load = Case(TEMPLATE, plain, ((N, none, 64),) * 3, ()).workload()
    empty = [np.zeros((2, 0, 64), np.float32)] * 3
    assert run(TEMPLATE, load, {}, empty, TARGETS[0], {"N": 2, "Z": 0}).size == 0


def shared(b: Builder, x: Atom, cos: Atom, sin: Atom) -> list[Var]:
    """What is transposed is read elsewhere, too."""
    x = b.emit(ops.transpose, x, axes=(0, 2, 1, 3))
    return [plain(b, x, cos, sin), x]


def test_fuse_leaves_out_what_others_read() -> None:
    x, factors = (N, S, H, 64), (N, 1, S, 64)
    rest = "mul+strided_slice+neg+strided_slice+concat+mul+add"
    assert kinds(function(shared, x, factors, factors)) == ["transpose", rest]


def other_x(b: Builder, x: Atom, cos: Atom, sin: Atom, y: Atom) -> Var:
    return b.emit(ops.add, b.emit(ops.mul, y, cos), b.emit(ops.mul, exchanged(b, x), sin))


def positive(b: Builder, x: Atom, cos: Atom, sin: Atom) -> Var:
    """Halves exchanged, none negative."""
    pair = half(b, x, 32, 64), half(b, x, 0, 32)
    second = b.emit(ops.mul, b.emit(ops.concat, *pair, axis=3), sin)
    return b.emit(ops.add, b.emit(ops.mul, x, cos), second)


def unequal(b: Builder, x: Atom, cos: Atom, sin: Atom) -> Var:
    pair = b.emit(ops.neg, half(b, x, 16, 64)), half(b, x, 0, 16)
    second = b.emit(ops.mul, b.emit(ops.concat, *pair, axis=3), sin)
    return b.emit(ops.add, b.emit(ops.mul, x, cos), second)


def apart(b: Builder, x: Atom, cos: Atom, sin: Atom) -> Var:
    """The elements of a row are no neighbours."""
    return plain(b, b.emit(ops.transpose, x, axes=(0, 1, 3, 2)), cos, sin)


X = (N, H, S, 64)


@pytest.mark.parametrize(
    ("make", "types"),
    [
        (other_x, (X, X, X, X)),
        (positive, (X, X, X)),
        (unequal, (X, X, X)),
        (apart, ((N, H, 64, S), X, X)),
        (plain, (X, (N, 1, S, 1), X)),
        (plain, (X, (ANY, 1, S, 64), X)),
        (plain, ((H, S, 64), X, X)),
    ],
)
def test_other_groups_are_declined(make: Any, types: Any) -> None:
    load = Case(TEMPLATE, make, types, ()).workload()
    assert rotary_of(load) is None
    assert not TEMPLATE.accepts(load)


# --- the operator --------------------------------------------------------------------------------

CACHES = "float[9, 4] c, float[9, 4] s, int64[N, S] p"
OWN = "float[N, S, 4] c, float[N, S, 4] s"
HEADS = "float[N, 3, S, 8] x"
SIDE = "float[N, S, 24] x"
OPERATOR = {
    "by position": f"({HEADS}, {CACHES}) => (y) {{ y = RotaryEmbedding(x, c, s, p) }}",
    "each": f"({HEADS}, {OWN}) => (y) {{ y = RotaryEmbedding(x, c, s) }}",
    "side": f"({SIDE}, {OWN}) => (y) {{ y = RotaryEmbedding<num_heads = 3>(x, c, s) }}",
    "in part": "(float[N, 3, S, 12] x, float[N, S, 4] c, float[N, S, 4] s) => (y) "
    "{ y = RotaryEmbedding<rotary_embedding_dim = 8>(x, c, s) }",
    "interleaved": f"({HEADS}, {CACHES}) => (y) "
    "{ y = RotaryEmbedding<interleaved = 1>(x, c, s, p) }",
}


@pytest.mark.parametrize("name", OPERATOR)
def test_the_operator_is_that_of_onnxruntime(name: str) -> None:
    agree(parse(OPERATOR[name], 23))


@pytest.mark.parametrize("name", ["by position", "each", "side", "in part"])
def test_the_operator_is_one_kernel(name: str) -> None:
    module = from_onnx(parse(OPERATOR[name], 23))
    (found,) = (k for k in kinds(simplify(module.main)) if "neg+" in k)
    assert found == "strided_slice+strided_slice+neg+concat+mul+mul+add"


def test_heads_of_elements_that_a_run_tells() -> None:
    graph = "(float[N, 3, S, D] x, float[N, S, K] c, float[N, S, K] s) => (y) "
    model = parse(graph + "{ y = RotaryEmbedding(x, c, s) }", 23)
    agree(model, {"N": 2, "S": 5, "D": 8, "K": 4}, {"N": 1, "S": 1, "D": 2, "K": 1})


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (f"({SIDE}, {OWN}) => (y) {{ y = RotaryEmbedding(x, c, s) }}", "num_heads is 0"),
        (
            f"({HEADS}, {OWN}) => (y) {{ y = RotaryEmbedding<rotary_embedding_dim = 7>(x, c, s) }}",
            "7 of 8 elements are to be turned",
        ),
        (
            "(float[N, S] x, float[N, S, K] c, float[N, S, K] s) => (y) "
            "{ y = RotaryEmbedding(x, c, s) }",
            "x of rank 2, expected 3 or 4",
        ),
    ],
)
def test_an_operator_that_is_not_supported(graph: str, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        from_onnx(parse(graph, 23))
