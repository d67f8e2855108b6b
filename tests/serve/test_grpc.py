"""The server as clients of gRPC see it: by a stub of our own, and by tritonclient."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from test_queue import Slow
from test_server import Process, WarmedLater, X, mlp, wait_until

from bucketize.errors import ArgumentError
from bucketize.serve.grpc import MESSAGES, POOL, RETRY, SERVICE, Rpc, asked_for, filled
from bucketize.serve.model import ServedModel
from bucketize.serve.protocol import DATATYPES, InferRequest
from bucketize.serve.queue import Queue
from bucketize.serve.server import Server
from bucketize.text import parse_type
from bucketize.types import tensor

MOST = 100_000


@pytest.fixture(scope="module")
def its(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("grpc")
    mlp().save(folder / "net.bkt")
    with Process(folder, "net.bkt", "--body-bytes", str(MOST), "--grpc-port", "0") as process:
        yield process
        assert process.end() == ""


@pytest.fixture(scope="module")
def ask(its: Process) -> Iterator[Callable[..., Any]]:
    """Call a method by its name, with the fields of its request."""
    with grpc.insecure_channel(f"127.0.0.1:{its.grpc_port}") as channel:
        yield asking(channel)


def asking(channel: grpc.Channel) -> Callable[..., Any]:
    def call(method: str, **fields: Any) -> Any:
        request, response = (MESSAGES[f"{method}{kind}"] for kind in ("Request", "Response"))
        asks = channel.unary_unary(
            f"/{SERVICE}/{method}", request.SerializeToString, response.FromString
        )
        return asks(request(**fields), timeout=600)

    return call


def told(x: np.ndarray, **more: Any) -> dict[str, Any]:
    tensor = {"name": "x", "datatype": "FP32", "shape": x.shape}
    return {"model_name": "net", "inputs": [{**tensor, **more}]}


def test_what_the_server_and_models_say(ask: Callable[..., Any]) -> None:
    assert ask("ServerLive").live
    assert ask("ServerReady").ready
    assert ask("ModelReady", name="net", version="1").ready
    assert ask("ServerMetadata").extensions == ["binary_tensor_data"]
    its = ask("ModelMetadata", name="net")
    assert (its.versions, its.platform) == (["1"], "bucketize")
    (x,) = its.inputs
    assert (x.name, x.datatype, x.shape) == ("x", "FP32", [-1, 4])


def test_contents_are_answered_by_contents_and_bytes_by_bytes(ask: Callable[..., Any]) -> None:
    answer = ask("ModelInfer", id="a", **told(X, contents={"fp32_contents": X.ravel()}))
    assert (answer.id, answer.model_version) == ("a", "1")
    assert list(answer.outputs[0].contents.fp32_contents) == X.ravel().tolist()
    assert answer.raw_output_contents == []
    answer = ask("ModelInfer", raw_input_contents=[X.tobytes()], **told(X))
    assert answer.raw_output_contents == [X.tobytes()]
    assert (answer.outputs[0].shape, answer.outputs[0].HasField("contents")) == ([3, 4], False)


def status_of(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as e:
        call()
    return e.value.code(), e.value.details()


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"model_name": "nope"}, "NOT_FOUND", "no model nope; there are net"),
        ({"model_version": "9"}, "NOT_FOUND", "no model net, version 9; there are 1"),
        ({"outputs": [{"name": "z"}]}, "INVALID_ARGUMENT", "the model has no output 'z'"),
        (told(X[:, :3], contents={"fp32_contents": [0] * 9}), "INVALID_ARGUMENT", "expected 4"),
        ({"raw_input_contents": [b"a", b"b"]}, "INVALID_ARGUMENT", "of 1 inputs, got 2"),
        ({"model_name": "y" * 30_000}, "NOT_FOUND", f"no model {'y' * 200}"),
        ({"model_name": "é" * 3_000}, "NOT_FOUND", f"no model {'é' * 200}"),
        ({"raw_input_contents": [bytes(MOST)]}, "RESOURCE_EXHAUSTED", f"vs. {MOST}"),
    ],
)
def test_what_is_wrong_is_told(
    ask: Callable[..., Any], fields: dict[str, Any], code: str, message: str
) -> None:
    whole = {**told(X, contents={"fp32_contents": X.ravel()}), **fields}
    got, said = status_of(lambda: ask("ModelInfer", **whole))
    assert (got.name, message in said, "in request" in said) == (code, True, False), said


def test_what_is_no_message_is_told_and_counted(its: Process, ask: Callable[..., Any]) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{its.grpc_port}") as channel:
        raw = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        code, said = status_of(lambda: raw(b"\xff" * 100, timeout=600))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert said.startswith("no inference.ModelInferRequest: ")
        code, _ = status_of(lambda: channel.unary_unary(f"/{SERVICE}/Nope")(b"", timeout=600))
        assert code is grpc.StatusCode.UNIMPLEMENTED
    ask("ModelInfer", **told(X, contents={"fp32_contents": X.ravel()}))
    text = its.client.ask("/metrics")[2].decode()
    assert re.search(
        r'bucketize_requests_total\{model="net",status="200",version="1"\} [1-9]', text
    )


def test_health_and_reflection(its: Process) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
        ProtoReflectionDescriptorDatabase,
    )

    with grpc.insecure_channel(f"127.0.0.1:{its.grpc_port}") as channel:
        its_health = health_pb2_grpc.HealthStub(channel)
        for service in ("", SERVICE):
            answer = its_health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        database = ProtoReflectionDescriptorDatabase(channel)
        assert SERVICE in database.get_services()
        file = database.FindFileContainingSymbol(SERVICE)
        assert [m.name for m in file.service[0].method][-1] == "ModelInfer"


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_by_bytes_and_by_contents(datatype: str) -> None:
    dtype = parse_type(f"{DATATYPES[datatype]}[1]").dtype
    array, types = np.array([[0, 1, 1]]).astype(dtype), {"x": tensor(dtype, 1, 3)}
    raw = {"name": "x", "datatype": datatype, "shape": [1, 3]}
    request = MESSAGES["ModelInferRequest"](inputs=[raw], raw_input_contents=[array.tobytes()])
    asked = asked_for(request, types)
    assert (asked.feed["x"].dtype, asked.feed["x"].tobytes()) == (dtype, array.tobytes())
    answer = filled(MESSAGES["ModelInferResponse"](), asked, asked.feed)
    assert answer.raw_output_contents == [array.tobytes()]
    # an answer has the fields of a request: what is filled in can be asked for
    answer = filled(
        MESSAGES["ModelInferResponse"](), InferRequest({}, (), frozenset(), ""), asked.feed
    )
    request = MESSAGES["ModelInferRequest"](
        inputs=[{**raw, "contents": answer.outputs[0].contents}],
        raw_input_contents=answer.raw_output_contents,
    )
    assert bool(answer.raw_output_contents) == (datatype in ("FP16", "BF16"))
    assert asked_for(request, types).feed["x"].tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("fields", "raw", "message"),
    [
        ({"shape": [-1, 4]}, [], r"whole numbers from 0 to \d+, got \[-1, 4\]"),
        ({"datatype": "FP16"}, [], "input 'x': FP16 goes in raw_input_contents"),
        ({"datatype": "BYTES"}, [], "input 'x': no datatype 'BYTES'"),
        ({}, [], r"no FP32 of that shape: 0 numbers for \[3, 4\]"),
        ({"contents": {"fp32_contents": [1]}}, [b"abcd"], "has contents and raw_input_contents"),
        ({}, [b"abcd"], r"expected 48 bytes of \[3, 4\], got 4"),
        ({"shape": [1 << 40, 1 << 40]}, [b"abcd"], r"expected \d+ bytes of .*, got 4"),
        (
            {"datatype": "INT8", "shape": [1], "contents": {"int_contents": [200]}},
            [],
            "input 'x': no INT8 of that shape",
        ),
    ],
)
def test_tensors_that_are_none(fields: dict[str, Any], raw: list[bytes], message: str) -> None:
    request = MESSAGES["ModelInferRequest"](raw_input_contents=raw, **told(X, **fields))
    with pytest.raises(ArgumentError, match=message):
        asked_for(request, {"x": tensor("float32", 3, 4)})


def test_the_compiled_messages_are_those_of_the_text(tmp_path: Path) -> None:
    """`inference.binpb` is `inference.proto`, compiled."""
    import bucketize.serve

    folder = Path(bucketize.serve.__file__).parent
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(folder)]
    made = tmp_path / "made"
    subprocess.run([*command, f"--descriptor_set_out={made}", "inference.proto"], check=True)
    files = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    mine = descriptor_pb2.FileDescriptorProto()
    POOL.FindFileByName("inference.proto").CopyToProto(mine)
    assert mine == files.file[0]


def test_tritonclient_by_grpc(its: Process) -> None:
    import tritonclient.grpc as triton

    with triton.InferenceServerClient(f"127.0.0.1:{its.grpc_port}") as client:
        assert client.is_server_live()
        assert client.is_model_ready("net")
        assert client.get_model_metadata("net").inputs[0].shape == [-1, 4]
        x = triton.InferInput("x", X.shape, "FP32")
        x.set_data_from_numpy(X)
        answer = client.infer("net", [x], request_id="7")
        np.testing.assert_array_equal(answer.as_numpy(answer.get_response().outputs[0].name), X)
        assert answer.get_response().id == "7"
        with pytest.raises(triton.InferenceServerException, match="no model nope"):
            client.infer("nope", [x])


def test_tritonclient_by_http(its: Process) -> None:
    import tritonclient.http as triton

    with triton.InferenceServerClient(f"127.0.0.1:{its.client.port}") as client:
        assert client.is_server_ready()
        assert client.is_model_ready("net", "1")
        assert client.get_model_metadata("net")["inputs"][0]["shape"] == [-1, 4]
        for binary in (True, False):
            x = triton.InferInput("x", X.shape, "FP32")
            x.set_data_from_numpy(X, binary_data=binary)
            (name,) = (o["name"] for o in client.get_model_metadata("net")["outputs"])
            wanted = [triton.InferRequestedOutput(name, binary_data=binary)]
            answer = client.infer("net", [x], outputs=wanted)
            np.testing.assert_array_equal(answer.as_numpy(name), X)
        np.testing.assert_array_equal(client.infer("net", [x]).as_numpy(name), X)


def test_a_busy_server_tells_when_to_ask_again() -> None:
    """One request runs and one waits, as many as may; a client that goes makes room."""
    slow = Slow()
    model: Any = ServedModel("net", "1", mlp())
    model.executable.run = slow.run
    queue = Queue(1, 1)
    server = Server([model], queue)

    async def through() -> None:
        ports: list[int] = []
        async with Rpc(server, "127.0.0.1:0", ports.append).running():
            await asyncio.to_thread(asked, ports[0])

    def asked(port: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            kinds = (MESSAGES[f"ModelInfer{kind}"] for kind in ("Request", "Response"))
            request, response = kinds
            infer = channel.unary_unary(
                f"/{SERVICE}/ModelInfer", request.SerializeToString, response.FromString
            )
            message = request(**told(X, contents={"fp32_contents": X.ravel()}))
            runs = infer.future(message)
            wait_until(lambda: bool(slow.calls))
            waits = infer.future(message)
            wait_until(lambda: queue.waiting(model) == 1)
            with pytest.raises(grpc.RpcError) as e:
                infer(message)
            assert e.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert e.value.details() == "1 requests wait already"
            assert int(dict(e.value.trailing_metadata())[RETRY]) >= 1
            waits.cancel()
            wait_until(lambda: 'status="499",version="1"} 1.0' in server.metrics.text().decode())
            slow.may_end.set()
            assert runs.result().outputs[0].shape == [3, 4]

    asyncio.run(through())
    queue.close()
    assert slow.calls == [1]


def test_a_model_is_ready_when_it_is_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the protocol and by health, which clusters ask."""
    its = WarmedLater(monkeypatch)
    monkeypatch.setattr("bucketize.serve.grpc.LOOKED_S", 0.01)

    async def through() -> None:
        ports: list[int] = []
        rpc = Rpc(its.server, "127.0.0.1:0", ports.append)
        async with its.server.running(), rpc.running():
            await asyncio.to_thread(asked, ports[0])

    def asked(port: int) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            ask, healthy = asking(channel), health_pb2_grpc.HealthStub(channel)

            def serves(service: str) -> bool:
                request = health_pb2.HealthCheckRequest(service=service)
                status: int = healthy.Check(request, timeout=600).status
                assert (status == 1) == (status != 2)  # SERVING, NOT_SERVING
                return status == 1

            def each() -> list[bool]:
                models = [ask("ModelReady", name=m.name, version="1").ready for m in its.models]
                return [*models, ask("ServerReady").ready, serves(""), serves(SERVICE)]

            wait_until(lambda: each() == [True, False, False, False, False])
            its.may_end.set()
            wait_until(lambda: each() == [True] * 5)
            its.server.ends = True
            wait_until(lambda: each() == [False] * 5)
            assert ask("ServerLive").live

    asyncio.run(through())
