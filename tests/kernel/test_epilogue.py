"""Every elementwise op that has a vector form, in vector code, at every count of lanes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from llvmlite import ir
from onnx import numpy_helper
from onnx_model import agree, parse, run_ort
from test_vector_templates import TARGETS, Case, H, N, S, W, check

import bucketize
from bucketize import ops
from bucketize.ir import Atom, Builder, Const, Var
from bucketize.kernel.attention import template as attention
from bucketize.kernel.codegen import compiled
from bucketize.kernel.depthwise import template as depthwise
from bucketize.kernel.emit import expression
from bucketize.kernel.emit.module import vector_kernel
from bucketize.kernel.emit.vector import FLOAT, Writer, constant
from bucketize.kernel.gemm import conv, matmul
from bucketize.kernel.object import load
from bucketize.kernel.rows import template as row
from bucketize.lower.pipeline import lower
from bucketize.machine.host import processor
from bucketize.machine.target import Target
from bucketize.op import Array, Op, all_ops
from bucketize.ops.sample import samples
from bucketize.types import tensor

pytestmark = pytest.mark.usefixtures("few_registers")

FORMS = [op for op in all_ops().values() if op.scalar and expression.has_vector_form(op.scalar)]


# --- expressions ---------------------------------------------------------------------------------

EXTREMES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 0.5, -0.5, 1.5, -2.5, 87.0, -87.0]
WIDTHS = [16, 8, 4, 2, 1]


def kinds_of(op: Op) -> list[str]:
    """What its arguments are: bits or floats; none if it takes neither."""
    kinds = [[a.dtype.kind for a in s.args] for s in samples(op)]
    return next((k for k in kinds if set(k) <= {"f", "b"}), [])


def attributes(op: Op) -> dict[str, Any]:
    return samples(op)[-1].attrs({}) if op.defaults else {}


def pairs() -> tuple[Array, Array]:
    """Every number beside every other."""
    some = np.array([*EXTREMES, *np.random.default_rng(0).normal(0, 3, 19)], np.float32)
    x, y = np.meshgrid(some, some)
    return x.reshape(-1), y.reshape(-1)


CONSTANTS = [np.nan, np.inf, -np.inf]


class Form(NamedTuple):
    """An op on two rows of numbers, one of which, or its attributes, may be a constant."""

    op: Op
    constant: int = -1
    """The place of the argument that is; behind them all, the attributes."""
    number: float = 0.0

    def args(self, given: Sequence[Any], number: Any) -> list[Any]:
        return [number if i == self.constant else a for i, a in enumerate(given)]

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes, numbers that are constants among them."""
        own = attributes(self.op)
        if self.constant < len(kinds_of(self.op)):
            return own
        return {n: self.number if isinstance(v, float) else v for n, v in own.items()}


def forms(op: Op) -> list[Form]:
    """It on what is computed, and beside each constant in each place."""
    kinds = kinds_of(op)
    places = [i for i in range(len(kinds)) if kinds[i] == "f" and len(kinds) > 1]
    if op.defaults:
        places.append(len(kinds))
    return [Form(op), *(Form(op, i, n) for i in places for n in CONSTANTS)]


def emit_all(w: Writer, block: ir.Value, forms: Sequence[Form], width: int) -> None:
    """One row of the result for each form, of two rows of numbers."""
    b = w.builder
    out, numbers = w.load_pointer(block, 0), w.load_pointer(block, 1)
    count, kind = w.load_word(block, 2), ir.VectorType(FLOAT, width) if width > 1 else FLOAT

    def step(i: ir.Value, _: object) -> None:
        places = (w.item(numbers, w.add(i, w.mul(count, half))) for half in range(2))
        x, y = (b.load(at, typ=kind, align=4) for at in places)
        zero = constant(FLOAT, 0, width)
        truths = [b.fcmp_ordered(">", v, zero) for v in (x, y)]
        for number, form in enumerate(forms):
            floats, bits = iter([x, y]), iter(truths)
            args = [next(bits if k == "b" else floats) for k in kinds_of(form.op)]
            args = form.args(args, constant(FLOAT, form.number, width))
            value = expression.write(form.op.scalar or "", w, args, form.attrs, width)
            if value.type != kind:
                value = b.select(value, constant(FLOAT, 1, width), zero)
            b.store(value, w.item(out, w.add(i, w.mul(count, number))), align=4)

    w.loop(0, count, step, step=width)


@pytest.mark.parametrize("width", WIDTHS)
def test_an_expression_is_its_op_at_any_width(width: int) -> None:
    able = [op for op in FORMS if kinds_of(op)]
    assert {"sign", "clip", "where", "logical_not", "gelu"} <= {op.name for op in able}
    name, (x, y) = f"expressions{width}", pairs()
    every = [form for op in able for form in forms(op)]
    generated = vector_kernel(name, emit_all, {"lanes": width, "width": width, "forms": every})
    code = compiled(*generated(processor()), name, processor())
    out = np.full((len(every), x.size), 7, np.float32)
    numbers = np.stack([x, y])
    block = np.array([out.ctypes.data, numbers.ctypes.data, x.size], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(load(name, code))(block.ctypes.data)
    for form, got in zip(every, out, strict=True):
        floats, bits = iter([x, y]), iter([x > 0, y > 0])
        args = [next(bits if k == "b" else floats) for k in kinds_of(form.op)]
        args = form.args(args, np.float32(form.number))
        with np.errstate(all="ignore"):
            want = np.asarray(form.op.compute(*args, **form.attrs)).astype(np.float32)
        want = np.broadcast_to(want, got.shape)
        np.testing.assert_allclose(got, want, rtol=3e-6, atol=1e-6, err_msg=str(form))


# --- kernels -------------------------------------------------------------------------------------

POSITIVE = (ops.log, ops.sqrt, ops.rsqrt, ops.reciprocal)


def takes_floats(op: Op) -> bool:
    return set(kinds_of(op)) == {"f"} and op.infer(
        *(tensor("float32", 2) for _ in kinds_of(op)), **attributes(op)
    ) == (tensor("float32", 2),)


FUSED = [op for op in FORMS if takes_floats(op)]


def everything(b: Builder, x: Atom, other: Atom) -> Var:
    """The sum of what every op makes of moderate numbers, so that a wrong one shows."""
    positive = b.emit(ops.add, b.emit(ops.abs_, x), Const(np.float32(0.5)))
    total: Atom = Const(np.float32(0))
    for op in FUSED:
        first = positive if op in POSITIVE else x
        by = positive if op is ops.div else other
        args = (first, by)[: len(kinds_of(op))]
        total = b.emit(ops.add, total, b.emit(op, *args, **attributes(op)))
    assert isinstance(total, Var)
    return total


def product(b: Builder, x: Var, y: Var, bias: Var) -> Var:
    return everything(b, b.emit(ops.matmul, x, y), bias)


def image(b: Builder, x: Var, w: Var, bias: Var, **attrs: Any) -> Var:
    return everything(b, b.emit(ops.conv2d, x, w, layout="NHWC", **attrs), bias)


def chosen(b: Builder, x: Var, w: Var, bias: Var, op: Op = ops.matmul, **attrs: Any) -> Var:
    """By what is true of values on the way: truths of several steps."""
    x, half = b.emit(op, x, w, **attrs), Const(np.float32(0.5))
    below, above = b.emit(ops.less, x, bias), b.emit(ops.greater_equal, x, half)
    between = b.emit(ops.logical_not, b.emit(ops.logical_or, below, above))
    kept = b.emit(ops.where, between, b.emit(ops.mul, x, half), x)
    either = b.emit(ops.logical_and, below, b.emit(ops.logical_xor, between, above))
    return b.emit(ops.where, either, b.emit(ops.neg, kept), kept)


def rows(b: Builder, x: Var, bias: Var) -> Var:
    """Of vectors, and of one number a row."""
    mean = b.emit(ops.reduce_mean, x, axes=(1,), keepdims=True)
    wide = everything(b, b.emit(ops.sub, x, mean), bias)
    return b.emit(ops.add, wide, everything(b, mean, Const(np.float32(0.25))))


def heads(b: Builder, q: Var, k: Var, v: Var, mask: Var) -> Var:
    """Weights of heads, small ones, so that the rounding of a sum does not show in the exponent."""
    scores = everything(b, b.emit(ops.matmul, q, k), mask)
    small = b.emit(ops.mul, scores, Const(np.float32(1 / 64)))
    return b.emit(ops.matmul, b.emit(ops.softmax, small, axis=3), v)


KERNELS = {
    "product": Case(matmul.TEMPLATE, product, ((N, 9), (9, 37), (37,)), ({"N": 5},), (1, 2)),
    "rows": Case(row.TEMPLATE, rows, ((N, S), (S,)), ({"N": 3, "S": 37},)),
    "conv": Case(
        conv.TEMPLATE,
        image,
        ((N, H, W, 3), (21, 3, 2, 2), (21,)),
        ({"N": 2, "H": 4, "W": 5},),
        (1, 2),
    ),
    "depthwise": Case(
        depthwise.TEMPLATE,
        partial(image, groups=21),
        ((N, H, W, 21), (21, 1, 2, 2), (21,)),
        ({"N": 2, "H": 4, "W": 5},),
        (1, 2),
    ),
    "truths of a product": Case(
        matmul.TEMPLATE, chosen, ((N, 9), (9, 37), (37,)), ({"N": 5},), (1, 2)
    ),
    "truths of a convolution": Case(
        conv.TEMPLATE,
        partial(chosen, op=ops.conv2d, layout="NHWC"),
        ((N, H, W, 3), (21, 3, 2, 2), (21,)),
        ({"N": 2, "H": 4, "W": 5},),
        (1, 2),
    ),
    "truths by depth": Case(
        depthwise.TEMPLATE,
        partial(chosen, op=ops.conv2d, layout="NHWC", groups=21),
        ((N, H, W, 21), (21, 1, 2, 2), (21,)),
        ({"N": 2, "H": 4, "W": 5},),
        (1, 2),
    ),
    "attention": Case(
        attention.TEMPLATE,
        heads,
        ((2, 2, S, 8), (2, 2, 8, N), (2, 2, N, 8), (S, N)),
        ({"S": 3, "N": 37},),
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"lanes{t.lanes}")
@pytest.mark.parametrize("name", KERNELS)
def test_every_op_in_a_kernel_of_another(name: str, target: Target) -> None:
    case = KERNELS[name]
    check(case, case.template.default(case.workload(), target), target)


# --- groups --------------------------------------------------------------------------------------

PIECEWISE = {
    "Elu": "y = Elu<alpha = 0.7>(p)",
    "Celu": "y = Celu<alpha = 0.7>(p)",
    "Selu": "y = Selu(p)",
    "PRelu": "y = PRelu(p, slope)",
    "PRelu of channels": "y = PRelu(p, slopes)",
    "ThresholdedRelu": "y = ThresholdedRelu<alpha = 0.5>(p)",
    "Shrink": "y = Shrink<lambd = 0.5, bias = 0.1>(p)",
    "Where": "n = Neg(p) t = Less(p, slope) y = Where(t, n, p)",
    "Where of two": "t = Less(p, slope) u = Greater(p, half) tu = Or(t, u) n = Neg(p) "
    "y = Where(tu, n, p)",
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PIECEWISE)
def test_what_depends_on_the_sign_joins_a_convolution(name: str) -> None:
    model = parse(
        "(float[N, 3, H, W] x) => (y) <float[5, 3, 3, 3] w, float slope = {0.25}, float half = "
        "{0.5}, float[5, 1, 1] slopes = {-1.0, 0.0, 0.5, 1.0, 2.0}> "
        f"{{ p = Conv(x, w) {PIECEWISE[name]} }}"
    )
    weights = np.random.default_rng(0).standard_normal((5, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    module = agree(model, {"N": 2, "H": 5, "W": 6}, bounds={"H": (3, None), "W": (3, None)})
    names = [b.op.name for b in lower(module.main).body]
    assert names == ["transpose", "fused", "transpose"]
    exe = bucketize.compile(module)
    for h, w in ((3, 3), (8, 21)):
        x = np.random.default_rng(1).standard_normal((2, 3, h, w)).astype(np.float32)
        (got,), (want,) = exe.run(x), run_ort(model, {"x": x})
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_truths_of_a_kernel_are_not_stored_by_it() -> None:
    """They have no place in a result of floats: an elementwise kernel makes them."""
    model = parse(
        "(float[N, 4] x) => (y) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float zero = {0.0}> "
        "{ p = MatMul(x, w) y = Less(p, zero) }"
    )
    module = agree(model)
    assert [b.op.name for b in lower(module.main).body] == ["matmul", "less"]
