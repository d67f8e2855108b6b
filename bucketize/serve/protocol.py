"""Requests and answers of the Open Inference Protocol: JSON, and tensors as bytes behind it.

Source: https://github.com/kserve/open-inference-protocol, and Triton's extension of binary tensor
data, which its clients use.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from bucketize.errors import ArgumentError
from bucketize.op import Array, Value
from bucketize.table import finite
from bucketize.types import Symbol, TensorType
from bucketize.types.number import integer_limits, kind_of

LENGTH = "inference-header-content-length"
"""The header that tells where JSON ends and bytes begin."""
EXTENSIONS = ["binary_tensor_data"]
BINARY = 'ask for bytes, "parameters": {"binary_data_output": true}, or by gRPC'
DATATYPES: Mapping[str, str] = {
    "BOOL": "bool",
    **{f"{s}INT{n}": f"{s.lower()}int{n}" for s in ("", "U") for n in (8, 16, 32, 64)},
    **{f"FP{n}": f"float{n}" for n in (16, 32, 64)},
    "BF16": "bfloat16",
}
NAMES = {dtype: name for name, dtype in DATATYPES.items()}
MOST_DIMS = 64  # of an array of numpy
LARGEST = (1 << 63) - 1  # of a dim
COPIED = 16
"""Bytes that are copied sooner than one of a list is read or written. Of a list of floats as text
it is thousands, but small parts of messages take much less."""


KINDS: Mapping[str, str] = {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}
"""By the kind of a dtype those of numbers in a list that it takes: no fractions, texts or nulls."""


WORDS = {"b": "booleans", "f": "fractions", "O": "nulls, or numbers of over 64 bits"}


def array_of(numbers: Any, dtype: np.dtype[Any]) -> Array:
    """Lists of lists as an array, from which `converted` makes one of the dtype.

    Raises ValueError where they differ in length or hold texts: an array of texts would take the
    bytes of the longest for each of them.
    """
    pending = [numbers]
    every: set[type] = set()
    while pending:
        each = pending.pop()
        kinds = set(map(type, each)) if isinstance(each, list) else {type(each)}
        every |= kinds
        if str in kinds:
            raise ValueError("its elements are texts")
        if list in kinds:
            pending.extend(each)
    if bool in every and not every <= {list, bool}:
        raise ValueError("its elements are truth values and others")
    # what numpy makes of integers of both kinds, or of more than 64 bits, is no integers
    if every <= {list, int} and dtype == np.uint64:
        return np.asarray(numbers, np.uint64)
    if every <= {list, int, float} and kind_of(dtype) == "f":
        return np.asarray(numbers, np.float64)
    return np.asarray(numbers)


def converted(numbers: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers of a list in a dtype. Raises ValueError for what it does not hold."""
    kind = kind_of(dtype)
    if numbers.size and numbers.dtype.kind not in KINDS[kind]:
        other = WORDS.get(numbers.dtype.kind, numbers.dtype.name)
        raise ValueError(f"its elements are {other}")
    if numbers.size and kind in "iu":
        least, most = integer_limits(dtype)
        if int(numbers.min()) < least or int(numbers.max()) > most:
            raise ValueError(f"numbers are in [{least}, {most}]")
    try:
        with np.errstate(over="raise"):
            return numbers.astype(dtype)
    except FloatingPointError as e:
        raise ValueError(f"a number is beyond {dtype}") from e


@dataclass(frozen=True)
class InferRequest:
    """What is asked for."""

    feed: dict[str, Array]
    outputs: tuple[str, ...]
    """The outputs of the model that are wanted; none, all."""
    binary: frozenset[str] | None
    """Outputs that are wanted as bytes; None, all."""
    id: str | None


def metadata(
    name: str, versions: Sequence[str], inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> dict[str, Any]:
    """What a model takes and gives."""
    return {
        "name": name,
        "versions": list(versions),
        "platform": "bucketize",
        "inputs": [_told(n, t) for n, t in inputs.items()],
        "outputs": [_told(n, t) for n, t in outputs.items()],
    }


def _told(name: str, type_: TensorType) -> dict[str, Any]:
    """Dims that are no numbers are -1; their names and bounds stand beside."""
    shape = [d if isinstance(d, int) else -1 for d in type_.shape]
    symbols = {s.name: list(s.bounds) for s in type_.shape if isinstance(s, Symbol)}
    datatype = NAMES.get(type_.dtype.name, type_.dtype.name)
    parameters = {"dims": [str(d) for d in type_.shape], "symbols": symbols}
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": parameters}


def read(
    body: bytes | bytearray, json_bytes: int | None, types: Mapping[str, TensorType]
) -> InferRequest:
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
        inputs = [InputTensor.of(each) for each in asked["inputs"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise malformed("no request of the protocol", e) from e
    behind = b"" if json_bytes is None else memoryview(body)[json_bytes:]
    feed = fed(zip(inputs, _cut(behind, inputs), strict=True), types)
    try:
        outputs: dict[str, Any] = {}
        for output in asked.get("outputs") or ():
            outputs.setdefault(output["name"], output.get("parameters") or {})
        every = bool((asked.get("parameters") or {}).get("binary_data_output"))
        some = frozenset(name for name, more in outputs.items() if more.get("binary_data", every))
    except (KeyError, TypeError, AttributeError) as e:
        raise malformed("no request of the protocol", e) from e
    if isinstance(asked.get("id"), list | dict):
        raise ArgumentError("no request of the protocol: its id is no text")
    binary = None if every and not outputs else some
    return InferRequest(feed, tuple(outputs), binary, asked.get("id"))


def malformed(what: str, error: Exception) -> ArgumentError:
    """What is wrong with a body that was not understood, in words of whoever wrote it."""
    match error:
        case KeyError():
            why = f"it lacks {error}"
        case RecursionError():
            why = "it nests too deep"
        case ValueError() | ArgumentError():
            why = str(error)
        case _:
            why = "an object, a list or a text stands where another of them belongs"
    return ArgumentError(f"{what}: {why}")


def _cut(data: bytes | memoryview, inputs: Sequence[InputTensor]) -> list[bytes | memoryview]:
    """The bytes of each input, one behind the other."""
    ends = list(accumulate(each.count for each in inputs))
    for each, end in zip(inputs, ends, strict=True):
        if end > len(data):
            raise ArgumentError(f"input {each.name!r}: its {each.count} bytes are not in the body")
    if (over := len(data) - (ends or [0])[-1]) > 0:
        raise ArgumentError(f"{over} bytes of the body belong to no input")
    return [data[end - each.count : end] for each, end in zip(inputs, ends, strict=True)]


def fed(
    inputs: Iterable[tuple[InputTensor, bytes | memoryview]], types: Mapping[str, TensorType]
) -> dict[str, Array]:
    """Arrays by name, of inputs and the bytes of each; ArgumentError says what is wrong."""
    feed: dict[str, Array] = {}
    for each, data in inputs:
        if each.name in feed:
            raise ArgumentError(f"input {each.name!r} is given twice")
        feed[each.name] = each.array(data, types.get(each.name))
    return feed


def checked_shape(shape: Iterable[Any]) -> tuple[int, ...]:
    """A shape as it is told; ArgumentError if it is none."""
    dims = tuple(shape)
    if len(dims) > MOST_DIMS:
        raise ArgumentError(f"a shape has at most {MOST_DIMS} numbers, got {len(dims)}")
    if any(type(n) is not int or not 0 <= n <= LARGEST for n in dims):
        raise ArgumentError(f"a shape has whole numbers from 0 to {LARGEST}, got {list(dims)}")
    return dims


@dataclass(frozen=True)
class InputTensor:
    """An input as it is told."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Any
    count: int
    """Bytes of it behind the JSON."""

    @classmethod
    def of(cls, tensor: Mapping[str, Any]) -> InputTensor:
        shape = checked_shape(tensor["shape"])
        count = (tensor.get("parameters") or {}).get("binary_data_size", 0)
        if type(count) is not int or count < 0:
            raise ValueError(f"binary_data_size is a whole number from 0, got {count!r}")
        return cls(str(tensor["name"]), str(tensor["datatype"]), shape, tensor.get("data"), count)

    def array(self, data: bytes | memoryview, type_: TensorType | None) -> Array:
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
        if self.data is not None and len(data):
            raise ArgumentError(f"{where} has data and binary_data_size")
        if self.data is None and len(data) != count * dtype.itemsize:
            wanted = f"{count * dtype.itemsize} bytes of {list(self.shape)}"
            raise ArgumentError(f"{where}: expected {wanted}, got {len(data)}")
        try:
            if self.data is None:
                return _of_bytes(data, dtype).reshape(self.shape)
            array = converted(array_of(self.data, dtype), dtype)
            if array.size != count:
                raise ValueError(f"{array.size} numbers for {list(self.shape)}")
            return array.reshape(self.shape)
        except (ValueError, TypeError, OverflowError) as e:
            raise ArgumentError(f"{where}: no {self.datatype} of that shape: {e}") from e


def _of_bytes(data: bytes | memoryview, dtype: np.dtype[Any]) -> Array:
    """Elements as they lie in memory; a truth value of numpy is a byte of 0 or 1 alone."""
    if dtype == np.bool_:
        return np.frombuffer(data, np.uint8).astype(np.bool_)
    return np.frombuffer(data, dtype)


def work_to_read(size: int, listed: int | None) -> int:
    """Bytes of lists that take as long as so many of which these are of lists; None: all are."""
    return size if listed is None else listed + max(size - listed, 0) // COPIED


def work_to_write(results: Mapping[str, Value], binary: frozenset[str] | None) -> int:
    """Bytes of lists that take as long as an answer; outputs in `binary`, or all, are bytes."""
    sizes = {name: each.nbytes for name, each in results.items() if isinstance(each, np.ndarray)}
    listed = sum(n for name, n in sizes.items() if binary is not None and name not in binary)
    return work_to_read(sum(sizes.values()), listed)


def written(
    model: str, version: str, request: InferRequest, results: Mapping[str, Value]
) -> tuple[bytes, int | None]:
    """The body of an answer, and the bytes of its JSON, None if it is all JSON."""
    outputs, behind = [], []
    for name in request.outputs or results:
        datatype, array = tensor_of(name, results[name])
        output: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if request.binary is None or name in request.binary:
            data = array.tobytes()
            behind.append(data)
            output["parameters"] = {"binary_data_size": len(data)}
        else:
            output["data"] = listed(f"output {name!r}", array, BINARY)
        outputs.append(output)
    answer = {"model_name": model, "model_version": version, "outputs": outputs}
    if request.id is not None:
        answer["id"] = finite(request.id)
    text = json.dumps(answer, allow_nan=False).encode()
    return text + b"".join(behind), len(text) if behind else None


def listed(what: str, array: Array, otherwise: str) -> list[Any]:
    """All elements of an array; ArgumentError for those that JSON has no words for."""
    if not np.isfinite(array).all():
        raise ArgumentError(f"{what} has NaN or infinities, which JSON has not: {otherwise}")
    elements: list[Any] = array.reshape(-1).tolist()
    return elements


def tensor_of(name: str, result: Value) -> tuple[str, Array]:
    """A result, and its datatype; ArgumentError if the protocol has none."""
    if not isinstance(result, np.ndarray):
        raise ArgumentError(f"output {name!r} is no tensor: the protocol has no word for it")
    if result.dtype.name not in NAMES:
        raise ArgumentError(f"output {name!r} is of {result.dtype}: the protocol has none")
    return NAMES[result.dtype.name], result
