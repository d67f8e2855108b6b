"""The zoo: names, bounds, reproducible weights, and activations that stay near 1."""

import numpy as np
import onnx
import pytest
from onnx_model import ort_session, shallow

from bucketize import zoo
from bucketize.errors import BucketizeError, UnknownNameError

SMALL = {
    "mlp": ({"N": 1}, {"N": 17}),
    "resnet18": ({"N": 1, "H": 32, "W": 40}, {"N": 2, "H": 65, "W": 33}),
    "resnet34": ({"N": 1, "H": 32, "W": 32}, {"N": 2, "H": 33, "W": 64}),
    "resnet50": ({"N": 1, "H": 32, "W": 32}, {"N": 2, "H": 33, "W": 64}),
    "mobilenetv2": ({"N": 1, "H": 32, "W": 40}, {"N": 2, "H": 65, "W": 33}),
    "bert-mini": ({"B": 1, "S": 1}, {"B": 2, "S": 17}),
    "bert-base": ({"B": 1, "S": 1}, {"B": 2, "S": 7}),
}


@pytest.mark.parametrize("name", zoo.NAMES)
def test_runs_with_outputs_near_one(name, request):
    model = (zoo.build if request.config.getoption("--every-case") else shallow)(name)
    written = model.SerializeToString()
    onnx.checker.check_model(written, full_check=True)
    session = ort_session(written)
    for sizes in SMALL[name]:
        (out,) = session.run(None, zoo.inputs(name, sizes))
        assert out.dtype == np.float32
        assert np.isfinite(out).all()
        assert 0.1 < out.std() < 10
        if len(out) > 1:
            assert np.abs(out[0] - out[-1]).mean() > 0.02
    dims = [d for i in model.graph.input for d in i.type.tensor_type.shape.dim]
    assert {d.dim_param for d in dims} - {""} == zoo.BOUNDS[name].keys() == sizes.keys()


def test_bounds_are_sensible():
    assert zoo.BOUNDS.keys() == set(zoo.NAMES)
    assert all(1 <= lo < hi for bounds in zoo.BOUNDS.values() for lo, hi in bounds.values())


def test_the_seed_decides_the_weights():
    assert zoo.build("mlp", seed=3) == zoo.build("mlp", seed=3)
    assert zoo.build("mlp", seed=3) != zoo.build("mlp", seed=4)


def test_inputs_follow_the_sizes_and_the_seed():
    sizes = {"B": 5, "S": 9}
    x = zoo.inputs("bert-mini", sizes, seed=1)
    assert {k: (v.dtype.name, v.shape) for k, v in x.items()} == {
        "input_ids": ("int64", (5, 9)),
        "attention_mask": ("int64", (5, 9)),
    }
    assert x["attention_mask"][:, 0].all()
    assert (np.diff(x["attention_mask"], axis=1) <= 0).all()
    assert set(np.unique(x["attention_mask"])) == {0, 1}
    again, other = (zoo.inputs("bert-mini", sizes, seed=s) for s in (1, 2))
    assert (again["input_ids"] == x["input_ids"]).all()
    assert (other["input_ids"] != x["input_ids"]).any()


def test_bert_is_written_with_shape_arithmetic():
    ops = {node.op_type for node in zoo.build("bert-mini").graph.node}
    assert {"Shape", "Gather", "Unsqueeze", "Concat", "Reshape", "Slice", "Expand", "Erf"} <= ops


def test_unknown_name():
    known = "bert-base, bert-mini, mlp, mobilenetv2, resnet18, resnet34, resnet50"
    with pytest.raises(UnknownNameError, match=f"no zoo model named 'vgg'; known: {known}"):
        zoo.build("vgg")


def test_sizes_must_name_the_symbols():
    with pytest.raises(BucketizeError, match="mlp has the symbols N, but sizes are given for M"):
        zoo.inputs("mlp", {"M": 2})
    with pytest.raises(BucketizeError, match="symbols N, H, W, but sizes are given for none"):
        zoo.inputs("resnet18", {})


def test_sizes_are_positive():
    with pytest.raises(BucketizeError, match="the size of N must be at least 1, but it is 0"):
        zoo.inputs("mlp", {"N": 0})
