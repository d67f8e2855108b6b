"""What optimum wants of a session, and optimum itself where it is installed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx_model import parse
from test_sentence_transformers import model

import bucketize

pytestmark = pytest.mark.usefixtures("few_registers")

PAGE = (Path(__file__).parents[2] / "docs" / "onnxruntime.md").read_text()
CPU = "CPUExecutionProvider"
# A step of a decoder: before the first there is no past.
STEP = (
    "(float[batch, past, 4] past_key, float[batch, seq, 4] x) => "
    "(present_key, float[batch, seq, 4] y) "
    "{ present_key = Concat<axis = 1>(past_key, x) y = Relu(x) }"
)
DTYPES = {"tensor(float)": np.float32}


def declared(proto: ModelProto, *shape: int | str) -> ModelProto:
    """The same with a shape of its first output, as exporters write it."""
    name = proto.graph.output[0].name
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    return proto


class Bound:
    """What optimum's `ORTSessionMixin` does with a session, in arrays in place of torch's."""

    def __init__(self, library: ModuleType, session: Any) -> None:
        self.session, self.path = session, Path(session._model_path)
        self.binding = library.IOBinding(session)
        (self.provider,) = session.get_providers()
        self.options = session.get_provider_options()[self.provider]
        self.inputs = {i.name: i for i in session.get_inputs()}
        self.outputs = {o.name: o for o in session.get_outputs()}

    def run(self, **feed: np.ndarray) -> dict[str, np.ndarray]:
        """Shapes of outputs follow from names of axes; memory is there before the call."""
        sizes = {
            name: n
            for i in self.inputs.values()
            for name, n in zip(i.shape, feed[i.name].shape, strict=True)
        }
        somewhere, results = np.zeros(1), {}
        for name, array in feed.items():
            its = DTYPES[self.inputs[name].type], array.shape
            self.binding.bind_input(
                name, "cpu", 0, *its, (array if array.size else somewhere).ctypes.data
            )
        for name, output in self.outputs.items():
            shape = [eval(str(d), {}, sizes) for d in output.shape]
            results[name] = np.empty(shape, DTYPES[output.type])
            its = results[name].dtype.type, shape, results[name].ctypes.data
            self.binding.bind_output(name, "cpu", 0, *its)
        self.session.run_with_iobinding(self.binding)
        return results


@pytest.mark.parametrize("library", [bucketize, onnxruntime])
def test_a_session_is_bound_as_optimum_does(library: ModuleType, tmp_path: Path) -> None:
    proto = declared(parse(STEP), "batch", "past + seq", 4)
    onnx.save(proto, tmp_path / "model.onnx")
    session = library.InferenceSession(
        tmp_path / "model.onnx", sess_options=None, providers=[CPU], provider_options=[{}]
    )
    its = Bound(library, session)
    assert (its.path, its.provider, its.options) == (tmp_path / "model.onnx", CPU, {})
    past = np.empty((2, 0, 4), np.float32)
    for length in (3, 1, 1):
        x = np.arange(-4, 8 * length - 4, dtype=np.float32).reshape(2, length, 4)
        got = its.run(past_key=past, x=x)
        np.testing.assert_array_equal(got["present_key"], np.concatenate([past, x], 1))
        np.testing.assert_array_equal(got["y"], np.maximum(x, 0))
        past = got["present_key"]
    session.set_providers([CPU], provider_options=[{}])
    assert library.InferenceSession(proto.SerializeToString(), providers=[CPU])._model_path is None


USED = """
import sys
import numpy as np
import torch

ids = torch.tensor([[4, 5, 6], [2, 7, 3]])
mask = torch.ones_like(ids)
for binds in (False, True):
    its = ORTModelForFeatureExtraction.from_pretrained(sys.argv[1], use_io_binding=binds)
    assert isinstance(its.session, bucketize.InferenceSession)
    got = its(input_ids=ids, attention_mask=mask).last_hidden_state
    np.save(f"{sys.argv[1]}/{binds}.npy", got.numpy())
    its.save_pretrained(f"{sys.argv[1]}/saved")
"""


@pytest.mark.skipif(find_spec("optimum") is None, reason="optimum is not installed")
def test_optimum_runs_our_sessions(tmp_path: Path) -> None:
    """By the lines of the page."""
    (lines,) = re.findall(r"```python\n(import onnxruntime\n.*?)```", PAGE, re.DOTALL)
    proto = declared(model(), "B", "S", 6)
    onnx.save(proto, tmp_path / "model.onnx")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    subprocess.run([sys.executable, "-W", "ignore", "-c", lines + USED, tmp_path], check=True)
    feed = {"input_ids": np.array([[4, 5, 6], [2, 7, 3]]), "attention_mask": np.ones((2, 3), int)}
    (want,) = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=[CPU]).run(None, feed)
    for binds in (False, True):
        np.testing.assert_allclose(np.load(tmp_path / f"{binds}.npy"), want, atol=1e-5)
    assert (tmp_path / "saved" / "model.onnx").read_bytes() == proto.SerializeToString()
