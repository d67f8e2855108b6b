"""An elementwise op is declared in one place: all that can be done with ops can be done with it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import test_op_laws as laws

import bucketize
from bucketize import ops
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Module, Var
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import workload_of
from bucketize.lower.pipeline import lower
from bucketize.op import Array, Op, all_ops, op
from bucketize.ops import every
from bucketize.ops.elementwise.arithmetic import unary
from bucketize.text import parse, show
from bucketize.types import Symbol, tensor

ROWS = Symbol("N", 1, 32)


@pytest.fixture
def softsign() -> Iterator[Op]:
    """An op that no other file knows of."""

    @unary("scale * x0 / (1 + abs(x0))", "float32[N]; float32[N, C] {scale=2.0}")
    def softsign2(x: Array, *, scale: float = 1.0) -> Array:
        """`x` over one more than its magnitude."""
        return np.asarray(scale * x / (1 + abs(x)))

    yield softsign2
    del all_ops()[softsign2.name]


def activated(op: Op) -> Module:
    """The op behind a product."""
    x, w = Var("x", tensor("float32", ROWS, 24)), Var("w", tensor("float32", 24, 40))
    out = Builder()
    result = out.emit(op, out.emit(ops.matmul, x, w), scale=3.0)
    return Module({"main": out.function("main", [x, w], [result])})


def test_a_new_op_keeps_the_laws(softsign: Op) -> None:
    for law in (
        laws.test_shape_and_dtype_are_those_of_compute,
        laws.test_the_type_relation_is_sound,
        laws.test_the_padding_rule_is_true,
        laws.test_the_scalar_says_what_compute_does,
        laws.test_what_is_total_takes_any_values,
    ):
        law(op=softsign)


def test_a_new_op_is_written_and_read(softsign: Op) -> None:
    text = show(activated(softsign))
    assert "softsign2(" in text
    assert show(parse(text)) == text


def test_a_new_op_is_stored_by_the_product_before_it(softsign: Op) -> None:
    (group,) = lower(activated(softsign).main).body
    names = [template.name for template in candidates(workload_of(group)[0])]
    assert [b.op for b in group.attrs["body"].body] == [ops.matmul, softsign]
    assert "matmul" in names, "vector code has it in its epilogue"


@pytest.mark.parametrize("rows", [1, 7, 32])
def test_a_new_op_is_compiled(softsign: Op, rows: int) -> None:
    mod = activated(softsign)
    rng = np.random.default_rng(rows)
    x, w = (rng.standard_normal(s, np.float32) for s in ((rows, 24), (24, 40)))
    (want,) = evaluate_module(mod, x, w)
    np.testing.assert_allclose(want, 3 * (x @ w) / (1 + abs(x @ w)), rtol=1e-4)
    (got,) = bucketize.compile(mod).run(x=x, w=w)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"totall": True}, "unexpected keyword argument 'totall'"),
        ({"example": ""}, "missing 2 required keyword-only arguments: 'shape' and 'padding'"),
    ],
)
def test_a_misspelt_or_missing_fact_is_an_error(facts: dict[str, object], match: str) -> None:
    with pytest.raises(TypeError, match=match):
        op(**facts)(np.negative)


def test_each_family_exports_what_it_declares() -> None:
    declared = {
        op for op in all_ops().values() if op.compute.__module__.startswith("bucketize.ops.")
    }
    exported = {value for value in vars(every).values() if isinstance(value, Op)}
    assert declared == exported


def test_operators_are_found_without_their_family() -> None:
    assert all_ops()["softmax"] is ops.softmax
    assert {"softmax", "matmul"} < set(dir(ops))
    with pytest.raises(AttributeError, match=r"module 'bucketize.ops' has no attribute 'softmux'"):
        ops.softmux  # noqa: B018
