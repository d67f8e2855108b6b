"""Requests and answers of the Open Inference Protocol, read and written."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest

from bucketize.errors import ArgumentError
from bucketize.serve.protocol import (
    COPIED,
    DATATYPES,
    InferRequest,
    metadata,
    read,
    work_to_read,
    work_to_write,
    written,
)
from bucketize.types import Symbol, tensor

TYPES = {"x": tensor("float32", Symbol("N", 1, 9), 2)}


def body(**more: Any) -> dict[str, Any]:
    x = {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}
    return {"inputs": [{**x, **more}]}


def test_numbers_flat_or_nested() -> None:
    for data in ([1, 2, 3, 4], [[1, 2], [3, 4]]):
        asked = read(json.dumps(body(data=data)).encode(), None, TYPES)
        assert asked.feed["x"].tolist() == [[1, 2], [3, 4]]
        assert asked.feed["x"].dtype == np.float32
        assert (asked.outputs, asked.binary, asked.id) == ((), frozenset(), None)


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("UINT64", [2**64 - 1, 1, 2**63, 0]),
        ("UINT64", [[2**63], [0], [1], [2]]),
        ("FP32", [2**64, 1, 2, 3]),
        ("FP64", [20000000000000000000, 1.5, -(2**70), 3]),
        ("INT64", [2**63 - 1, -(2**63), 0, 1]),
    ],
)
def test_whole_numbers_of_any_size_that_the_datatype_holds(datatype: str, data: list[Any]) -> None:
    types = {"x": tensor(DATATYPES[datatype], 2, 2)}
    asked = read(json.dumps(body(datatype=datatype, data=data)).encode(), None, types)
    wanted = np.array(data, DATATYPES[datatype]).reshape(2, 2)
    np.testing.assert_array_equal(asked.feed["x"], wanted)


@pytest.mark.parametrize("id_", [["a"], {"a": {}}])
def test_an_id_is_a_text(id_: object) -> None:
    with pytest.raises(ArgumentError, match=r"^no request of the protocol: its id is no text$"):
        read(json.dumps({**body(), "id": id_}).encode(), None, TYPES)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_bytes_behind_the_json(datatype: str) -> None:
    array = np.array([[0, 1, 1]]).astype(
        tensor(DATATYPES[datatype], 1, 3).dtype if datatype != "BF16" else "f4"
    )
    if datatype == "BF16":
        array = array.astype(tensor_dtype("bfloat16"))
    types = {"x": tensor(array.dtype, 1, 3)}
    told = {"name": "x", "datatype": datatype, "shape": [1, 3]}
    told["parameters"] = {"binary_data_size": array.nbytes}
    text = json.dumps({"id": "a", "inputs": [told], "parameters": {"binary_data_output": True}})
    asked = read(text.encode() + array.tobytes(), len(text), types)
    assert asked.feed["x"].tobytes() == array.tobytes()
    assert asked.feed["x"].dtype == array.dtype
    answer, length = written("m", "1", asked, {"y": array})
    assert length is not None
    head = json.loads(answer[:length])
    assert head["outputs"][0]["parameters"] == {"binary_data_size": array.nbytes}
    assert (head["id"], answer[length:]) == ("a", array.tobytes())


def test_a_byte_of_truth_that_is_not_0_is_true() -> None:
    told = {"name": "x", "datatype": "BOOL", "shape": [4], "parameters": {"binary_data_size": 4}}
    text = json.dumps({"inputs": [told]}).encode()
    asked = read(text + bytes([0, 1, 2, 255]), len(text), {"x": tensor("bool", 4)})
    assert asked.feed["x"].tobytes() == bytes([0, 1, 1, 1])


def tensor_dtype(name: str) -> np.dtype[Any]:
    from bucketize.text import parse_type

    return parse_type(f"{name}[1]").dtype


def test_what_is_asked_for_is_answered_as_it_is_asked_for() -> None:
    outputs = [{"name": "b", "parameters": {"binary_data": True}}, {"name": "a"}]
    asked = read(json.dumps({**body(), "outputs": outputs}).encode(), None, TYPES)
    results = {"a": np.array([1, 2]), "b": np.array([True]), "c": np.zeros(3)}
    answer, length = written("m", "2", asked, results)
    told = json.loads(answer[:length])
    assert told["model_version"] == "2"
    assert [o["name"] for o in told["outputs"]] == ["b", "a"]
    assert told["outputs"][1] == {"name": "a", "datatype": "INT64", "shape": [2], "data": [1, 2]}
    assert answer[length:] == b"\1"


def test_a_tensor_is_listed_or_behind_the_json() -> None:
    told = json.dumps(body(parameters={"binary_data_size": 16})).encode()
    with pytest.raises(ArgumentError, match="input 'x' has data and binary_data_size"):
        read(told + bytes(16), len(told), TYPES)


def test_an_output_says_for_itself_whether_it_is_bytes() -> None:
    """As Triton has it; one that is asked for twice is answered once."""
    outputs = [{"name": "a", "parameters": {"binary_data": False}}, {"name": "b"}, {"name": "a"}]
    more = {"outputs": outputs, "parameters": {"binary_data_output": True}}
    asked = read(json.dumps({**body(), **more}).encode(), None, TYPES)
    answer, length = written("m", "1", asked, {"a": np.array([1]), "b": np.array([True])})
    told = json.loads(answer[:length])["outputs"]
    assert [(o["name"], o.get("data")) for o in told] == [("a", [1]), ("b", None)]
    assert answer[length:] == b"\1"


@pytest.mark.parametrize(
    ("text", "length", "message"),
    [
        (b"{", None, "no request of the protocol: Expecting property name"),
        (b"[]", None, "no request of the protocol: an object, a list or a text stands where"),
        (b"{}", None, "no request of the protocol: it lacks 'inputs'"),
        (b"[" * 100_000, None, "no request of the protocol: it nests too deep"),
        (b"{}", 3, "the header says 3 bytes of JSON, the body has 2"),
        (body(shape=[2, -2]), None, r"a shape has whole numbers from 0 to \d+, got \[2, -2\]"),
        (body(shape=[2, True]), None, "a shape has whole numbers"),
        (body(shape=[2, 1 << 63]), None, r"to 9223372036854775807, got \[2, 9223372036854775808\]"),
        (body(shape=[1] * 65), None, "a shape has at most 64 numbers, got 65"),
        (body(shape=[0, 1 << 62], data=None), None, "input 'x': no FP32 of that shape: "),
        (body(datatype="BYTES"), None, "input 'x': no datatype 'BYTES'; known: BOOL"),
        (body(datatype="BF16"), None, "input 'x': the model has no bfloat16 there"),
        (body(data=[1, 2]), None, r"no FP32 of that shape: 2 numbers for \[2, 2\]"),
        (body(data=[[1, 2], [3]]), None, "input 'x': no FP32 of that shape"),
        (body(data="four"), None, "input 'x': no FP32 of that shape"),
        (body(data=["1", "2", "3", "4"]), None, "its elements are texts"),
        (body(data=[[1, 2], [3, "4"]]), None, "its elements are texts"),
        (body(data=[1, 2, None, 4]), None, "its elements are nulls, or numbers of over 64 bits"),
        (body(datatype="INT64", data=[1.7, 2, 3, 4]), None, "its elements are fractions"),
        (body(datatype="BOOL", data=["no", "", "", ""]), None, "its elements are texts"),
        (body(datatype="UINT8", data=[1, 2, 3, 256]), None, r"numbers are in \[0, 255\]"),
        (body(data=[True, 2.5, 3, 4]), None, "its elements are truth values and others"),
        (body(datatype="INT64", data=[[True, 2], [3, 4]]), None, "truth values and others"),
        (body(data=[1e300, 2, 3, 4]), None, "a number is beyond float32"),
        (body(datatype="FP16", data=[7e4, 2, 3, 4]), None, "a number is beyond float16"),
        (body(data=None), None, r"expected 16 bytes of \[2, 2\], got 0"),
        (body(shape=[1 << 40, 1 << 40], data=None), None, r"expected \d+ bytes of .*, got 0"),
        (body(parameters={"binary_data_size": 9}), None, "its 9 bytes are not in the body"),
        (body(parameters={"binary_data_size": -9}), None, "whole number from 0, got -9"),
        ({"inputs": [*body()["inputs"] * 2]}, None, "input 'x' is given twice"),
        ({"inputs": ["x"]}, None, "another of them belongs"),
        ({**body(), "outputs": ["y"]}, None, "another of them belongs"),
        ({**body(), "outputs": [{}]}, None, "no request of the protocol: it lacks 'name'"),
        ({**body(), "parameters": 3}, None, "another of them belongs"),
    ],
)
def test_what_is_no_request_is_told(text: Any, length: int | None, message: str) -> None:
    raw = text if isinstance(text, bytes) else json.dumps(text).encode()
    with pytest.raises(ArgumentError, match=message):
        read(raw, length, TYPES)


def test_a_long_text_among_short_ones_takes_no_memory_for_each() -> None:
    raw = json.dumps(body(data=["x" * 15_000, *[""] * 7_000])).encode()
    tracemalloc.start()
    with pytest.raises(ArgumentError, match="its elements are texts"):
        read(raw, None, TYPES)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * len(raw)


def test_bytes_that_nobody_asked_for_are_told() -> None:
    text = json.dumps(body()).encode()
    with pytest.raises(ArgumentError, match="3 bytes of the body belong to no input"):
        read(text + b"abc", len(text), TYPES)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([np.zeros(3)], "output 'y' is no tensor: the protocol has no word for it"),
        (np.zeros(3, np.complex64), "output 'y' is of complex64: the protocol has none"),
    ],
)
def test_results_that_the_protocol_has_not(result: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        written("m", "1", InferRequest({}, (), frozenset(), None), {"y": result})


def test_lists_are_more_work_than_bytes_that_are_copied() -> None:
    assert (work_to_read(1000, None), work_to_read(1000, 200), work_to_read(9, 10**9)) == (
        1000,
        200 + 800 // COPIED,
        10**9,
    )
    results = {"a": np.zeros(100, np.float32), "b": np.zeros(10, np.float64), "c": [1]}
    works = [work_to_write(results, each) for each in (None, frozenset(), frozenset("a"))]
    assert works == [480 // COPIED, 480, 80 + 400 // COPIED]


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_numbers_that_json_has_no_words_for(odd: float) -> None:
    """They are refused in a list, with what to do; bytes and lists of other outputs have them."""
    results = {"y": np.array([1, odd], np.float32), "z": np.array([2.5])}
    with pytest.raises(ArgumentError, match="output 'y' has NaN or infinit"):
        written("m", "1", InferRequest({}, (), frozenset(), None), results)
    answer, length = written("m", "1", InferRequest({}, (), frozenset({"y"}), None), results)
    assert json.loads(answer[:length])["outputs"][1]["data"] == [2.5]
    np.testing.assert_array_equal(np.frombuffer(answer[length:], np.float32), results["y"])


def test_an_id_is_answered_in_json() -> None:
    asked = read(json.dumps({**body(), "id": np.nan}).encode(), None, TYPES)
    answer, _ = written("m", "1", asked, {})
    assert json.loads(answer) == {
        "model_name": "m",
        "model_version": "1",
        "outputs": [],
        "id": None,
    }


def test_metadata_has_symbols_and_bounds() -> None:
    told = metadata("m", ["1"], TYPES, {"y": tensor("bool", 3)})
    assert told["inputs"][0]["shape"] == [-1, 2]
    assert told["inputs"][0]["parameters"] == {"dims": ["N", "2"], "symbols": {"N": [1, 9]}}
    assert told["outputs"][0]["datatype"] == "BOOL"
    of_eights = metadata("m", ["1"], {"x": tensor("float32", Symbol("S", 8, 64, 8))}, {})
    assert of_eights["inputs"][0]["parameters"]["symbols"] == {"S": [8, 64, 8]}
