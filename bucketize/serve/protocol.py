"""Requests and answers of the Open Inference Protocol: JSON, and tensors as bytes behind it.

Source: https://github.com/kserve/open-inference-protocol, and Triton's extension of binary tensor
data, which its clients use.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bucketize.errors import ArgumentError
from bucketize.op import Array, Value
from bucketize.types import Symbol, TensorType

LENGTH = "inference-header-content-length"
"""The header that tells where JSON ends and bytes begin."""
DATATYPES: Mapping[str, str] = {
    "BOOL": "bool",
    **{f"{s}INT{n}": f"{s.lower()}int{n}" for s in ("", "U") for n in (8, 16, 32, 64)},
    **{f"FP{n}": f"float{n}" for n in (16, 32, 64)},
    "BF16": "bfloat16",
}
NAMES = {dtype: name for name, dtype in DATATYPES.items()}


@dataclass(frozen=True)
class InferRequest:
    """What is asked for."""

    feed: dict[str, Array]
    outputs: tuple[str, ...]
    """Of the model, those that are wanted; none, all."""
    binary: frozenset[str] | None
    """Outputs that are wanted as bytes; None, all."""
    id: str | None


def metadata(name: str, version: str, params: Sequence[Any], outputs: Mapping[str, Any]) -> Any:
    """What a model takes and gives."""
    return {
        "name": name,
        "versions": [version],
        "platform": "bucketize",
        "inputs": [_told(p.name, p.type) for p in params],
        "outputs": [_told(n, t) for n, t in outputs.items()],
    }


def _told(name: str, type_: TensorType) -> dict[str, Any]:
    """Dims that are no numbers are -1; their names and bounds stand beside."""
    shape = [d if isinstance(d, int) else -1 for d in type_.shape]
    symbols = {s.name: [s.lo, s.hi] for s in type_.shape if isinstance(s, Symbol)}
    datatype = NAMES.get(type_.dtype.name, type_.dtype.name)
    parameters = {"dims": [str(d) for d in type_.shape], "symbols": symbols}
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": parameters}


def read(body: bytes, json_bytes: int | None, types: Mapping[str, TensorType]) -> InferRequest:
    """A request; ArgumentError says what is wrong with it.

    Args:
        body: JSON, and tensors behind it.
        json_bytes: of the JSON; None, all of it.
        types: of the inputs of the model, by name.

    """
    if json_bytes is not None and not 0 <= json_bytes <= len(body):
        raise ArgumentError(f"the header says {json_bytes} bytes of JSON, the body has {len(body)}")
    try:
        asked = json.loads(body[:json_bytes])
        inputs = [_Tensor.of(each) for each in asked["inputs"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise ArgumentError(f"no request of the protocol: {type(e).__name__}: {e}") from e
    at = len(body) if json_bytes is None else json_bytes
    feed: dict[str, Array] = {}
    for each in inputs:
        if each.name in feed:
            raise ArgumentError(f"input {each.name!r} is given twice")
        end = at + each.count
        if end > len(body):
            raise ArgumentError(f"input {each.name!r}: its {each.count} bytes are not in the body")
        feed[each.name] = each.array(body[at:end], types.get(each.name))
        at = end
    if json_bytes is not None and at != len(body):
        raise ArgumentError(f"{len(body) - at} bytes of the body belong to no input")
    try:
        outputs = [(o["name"], o.get("parameters") or {}) for o in asked.get("outputs") or ()]
        every = bool((asked.get("parameters") or {}).get("binary_data_output"))
        some = frozenset(name for name, more in outputs if more.get("binary_data"))
        names = tuple(name for name, _ in outputs)
    except (KeyError, TypeError, AttributeError) as e:
        raise ArgumentError(f"no request of the protocol: {type(e).__name__}: {e}") from e
    return InferRequest(feed, names, None if every else some, asked.get("id"))


@dataclass(frozen=True)
class _Tensor:
    """An input as it is told."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Any
    count: int
    """Bytes of it behind the JSON."""

    @classmethod
    def of(cls, tensor: Mapping[str, Any]) -> _Tensor:
        shape = tuple(tensor["shape"])
        if any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"a shape has whole numbers from 0, got {list(shape)}")
        count = (tensor.get("parameters") or {}).get("binary_data_size", 0)
        if type(count) is not int or count < 0:
            raise ValueError(f"binary_data_size is a whole number from 0, got {count!r}")
        return cls(str(tensor["name"]), str(tensor["datatype"]), shape, tensor.get("data"), count)

    def array(self, data: bytes, type_: TensorType | None) -> Array:
        """The tensor; its size is held against what is there before memory is taken."""
        where = f"input {self.name!r}"
        if self.datatype not in DATATYPES:
            names = ", ".join(DATATYPES)
            raise ArgumentError(f"{where}: no datatype {self.datatype!r}; known: {names}")
        name = DATATYPES[self.datatype]
        dtype = type_.dtype if type_ is not None and type_.dtype.name == name else None
        dtype = np.dtype(name) if dtype is None and name != "bfloat16" else dtype
        if dtype is None:
            raise ArgumentError(f"{where}: the model has no {name} there")
        count = math.prod(self.shape)
        if self.data is None:
            if len(data) != count * dtype.itemsize:
                wanted = f"{count * dtype.itemsize} bytes of {list(self.shape)}"
                raise ArgumentError(f"{where}: expected {wanted}, got {len(data)}")
            return np.frombuffer(data, dtype).reshape(self.shape)
        try:
            array = np.asarray(self.data, dtype)
            if array.size != count:
                raise ValueError(f"{array.size} numbers for {list(self.shape)}")
            return array.reshape(self.shape)
        except (ValueError, TypeError, OverflowError) as e:
            raise ArgumentError(f"{where}: no {self.datatype} of that shape: {e}") from e


def written(
    model: str, version: str, request: InferRequest, results: Mapping[str, Value]
) -> tuple[bytes, int | None]:
    """The body of an answer, and the bytes of its JSON, None if it is all JSON."""
    outputs, behind = [], []
    for name in request.outputs or results:
        array = results[name]
        if not isinstance(array, np.ndarray):
            raise ArgumentError(f"output {name!r} is no tensor: the protocol has no word for it")
        datatype = NAMES.get(array.dtype.name)
        if datatype is None:
            raise ArgumentError(f"output {name!r} is of {array.dtype}: the protocol has none")
        output: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if request.binary is None or name in request.binary:
            data = array.tobytes()
            behind.append(data)
            output["parameters"] = {"binary_data_size": len(data)}
        else:
            output["data"] = array.reshape(-1).tolist()
        outputs.append(output)
    answer = {"model_name": model, "model_version": version, "outputs": outputs}
    if request.id is not None:
        answer["id"] = request.id
    text = json.dumps(answer).encode()
    return text + b"".join(behind), len(text) if behind else None
