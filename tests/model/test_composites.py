"""Composite models in every way to run them, beside onnxruntime or the reference evaluator.

Interpreted, compiled, behind log buckets at the true sizes, and padded to the tops of buckets of
as many symbols as may be padded; `golden` says for each other symbol which operator forbids it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from agreement import agree
from composites import Arrays, Composite
from composites_attention import COMPOSITES as ATTENTION
from composites_control import COMPOSITES as CONTROL
from composites_net import COMPOSITES as NET
from composites_shape import COMPOSITES as SHAPE
from composites_value import COMPOSITES as VALUE
from conftest import Golden
from onnx.reference import ReferenceEvaluator
from onnx_model import ort_session

import bucketize
from bucketize.errors import PaddingError
from bucketize.interpret import evaluate_module
from bucketize.ir import Module
from bucketize.onnx import from_onnx
from dispatchers import log_dispatcher, per_symbol

pytestmark = pytest.mark.usefixtures("few_registers")

ALL = {c.name: c for c in (*SHAPE, *VALUE, *CONTROL, *ATTENTION, *NET)}
TOP = 16  # to which symbols are bounded where they are padded: no size is larger
TOLERANCE = {"float16": 1e-2}  # onnxruntime rounds where it likes; others 1e-4

Run = Callable[..., list[np.ndarray]]


def padded(composite: Composite) -> tuple[Module | None, dict[str, str]]:
    """The module behind buckets that pad as many symbols as may be; why others may not."""
    module = from_onnx(composite.model, bounds=composite.bounds(TOP))
    found, rules, refused = None, {}, {}
    for name in module.main.symbols():
        tried = per_symbol({**rules, name: log_dispatcher})
        try:
            found = bucketize.dispatch(module, tried, policy="pad")
        except PaddingError as e:
            refused[name] = str(e)
        else:
            rules[name] = log_dispatcher
    return found, refused


def ways(composite: Composite) -> Iterator[Run]:
    module = from_onnx(composite.model, bounds=composite.bounds())
    yield lambda **inputs: evaluate_module(module, **inputs)
    yield bucketize.compile(module).run
    yield bucketize.compile(bucketize.dispatch(module, log_dispatcher), lazy=True).run
    if (found := padded(composite)[0]) is not None:
        yield bucketize.compile(found, lazy=True).run


def cases(composite: Composite) -> list[tuple[Arrays, list[np.ndarray]]]:
    if composite.oracle == "ort":
        oracle = ort_session(composite.model)
    else:
        oracle = ReferenceEvaluator(composite.model)
    drawn = [composite.inputs(sizes) for sizes in composite.sizes]
    return [(i, [np.asarray(r) for r in oracle.run(None, i)]) for i in drawn]


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALL)
def test_composites(name: str) -> None:
    composite = ALL[name]
    wanted = cases(composite)
    kinds = {r.dtype.name for _, results in wanted for r in results}
    tolerance = max(TOLERANCE.get(k, 1e-4) for k in kinds)
    for run in ways(composite):
        for inputs, want in wanted:
            agree(run(**inputs), want, tolerance)


def test_what_pads(golden: Golden) -> None:
    """Each composite has a symbol that may be padded, or an operator that is the reason."""
    lines, count = [], 0
    for name, composite in ALL.items():
        found, refused = padded(composite)
        count += found is not None
        lines += [f"{name}: {'pads' if found is not None else 'does not pad'}"]
        lines += [f"  not {symbol}: {reason}" for symbol, reason in refused.items()]
    golden.check("\n".join([f"{count} of {len(ALL)} pad", *lines, ""]))
