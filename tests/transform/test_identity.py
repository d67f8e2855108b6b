"""Ops that give back what they take are dropped, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_model import agree, parse

import bucketize
from bucketize.errors import TypeRelError
from bucketize.transform.simplify import simplify

KNOWN = "<int64[1] z = {0}, int64[1] one = {1}, int64[1] all = {9223372036854775807}, "
KNOWN += "int64[1] back = {-1}, int64[1] low = {-9223372036854775807}, int64[1] three = {3}, "
KNOWN += "int64[2] ones = {1, 1}, int64[4] none = {0, 0, 0, 0}, int64[4] turn = {1, 0, -1, 0}>"

DROPPED = {
    "a reshape to its shape": "s = Shape(r) y = Reshape(r, s)",
    "a slice of all": "y = Slice(r, z, all, one)",
    "a slice as far as it goes": "n = Shape<start = 1>(r) y = Slice(r, z, n, one)",
    "a pad by nothing": 'y = Pad<mode = "reflect">(r, none)',
    "one copy": "y = Tile(r, ones)",
    "a broadcast to its shape": "y = Expand(r, ones)",
    "a transpose that moves nothing": "y = Transpose<perm = [0, 1]>(r)",
    "a concatenation of one": "y = Concat<axis = 1>(r)",
    "several of them": "s = Shape(r) a = Reshape(r, s) b = Slice(a, z, all) y = Pad(b, none)",
}
KEPT = {
    "backwards": ("y = Slice(r, back, low, z, back)", "strided_slice"),
    "a slice of some": ("y = Slice(r, one, all, z)", "strided_slice"),
    "a pad that moves": ("y = Pad(r, turn)", "pad"),
    "a transpose of a square": ("y = Transpose(r)", "transpose"),
}


@pytest.mark.parametrize("name", list(DROPPED))
def test_what_gives_back_its_argument_is_dropped(name: str) -> None:
    module = agree(parse(f"(float[N, M] x) => (y) {KNOWN} {{ r = Relu(x) {DROPPED[name]} }}"))
    assert [b.op.name for b in simplify(module.main).body] == ["relu"]


@pytest.mark.parametrize("name", list(KEPT))
def test_what_moves_elements_stays(name: str) -> None:
    nodes, op = KEPT[name]
    module = agree(parse(f"(float[N, N] x) => (y) {KNOWN} {{ r = Relu(x) {nodes} }}"))
    assert op in [b.op.name for b in simplify(module.main).body]


def test_a_result_may_be_an_argument() -> None:
    module = agree(parse(f"(float[N, M] x) => (y) {KNOWN} {{ y = Slice(x, z, all, one) }}"))
    assert not simplify(module.main).body


def test_what_relies_on_a_relation_stays_to_check_it() -> None:
    """Two rows can be expanded to N if N is 1 or 2."""
    model = parse("(float[2] x, float[N] n) => (y) { s = Shape(n) y = Expand(x, s) }")
    exe = bucketize.compile(agree(model, {"N": 1}, {"N": 2}))
    with pytest.raises(TypeRelError, match="extents differ: 2 and 3"):
        exe.run(np.ones(2, np.float32), np.ones(3, np.float32))
