"""Clients that mean no good, or know no better: all others are served meanwhile."""

from __future__ import annotations

import json
import random
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import numpy as np
import pytest
from test_grpc import asking, told
from test_server import POST, WAIT_S, Process, X, mlp, served_here, wait_until

import bucketize
from bucketize import ops
from bucketize.errors import ArgumentError
from bucketize.ir import Builder, Module, Var
from bucketize.serve import embeddings
from bucketize.serve.embeddings import EmbeddingRequest
from bucketize.serve.grpc import MESSAGES, asked_for, parsed
from bucketize.serve.model import ServedModel
from bucketize.serve.protocol import read
from bucketize.serve.queue import Queue
from bucketize.serve.refusal import text_of
from bucketize.serve.server import Server
from bucketize.types import Symbol, tensor

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GARBAGE = bytes(np.random.default_rng(0).integers(0, 256, 2000, np.uint8))


@pytest.fixture(scope="module")
def its(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("hostile")
    mlp().save(folder / "net.bkt")
    with Process(folder, "net.bkt", "--grpc-port", "0") as process:
        yield process
        process.end()


def connection(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), WAIT_S)


def served(its: Process) -> None:
    """Others are, by either protocol."""
    np.testing.assert_array_equal(its.client.infer(X), X)
    with grpc.insecure_channel(f"127.0.0.1:{its.grpc_port}") as channel:
        answer = asking(channel)("ModelInfer", raw_input_contents=[X.tobytes()], **told(X))
    assert answer.raw_output_contents == [X.tobytes()]


def test_a_body_of_ten_gigabytes_is_refused_before_it_is_sent(its: Process) -> None:
    with connection(its.client.port) as sends:
        sends.sendall(POST + b"Content-Length: %d\r\n\r\n" % (10 << 30))
        assert b" 413 " in sends.recv(100).splitlines()[0]
        served(its)


def test_a_body_that_never_ends_is_cut_off(its: Process) -> None:
    """Its length is not told: it comes in parts."""
    with connection(its.client.port) as sends:
        sends.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        part, sent = b"100000\r\n" + b" " * (1 << 20) + b"\r\n", 0
        with suppress(OSError):  # it hangs up
            for sent in range(10 << 10):  # noqa: B007
                sends.sendall(part)
        assert sent < 100, "MiB: of 64 and what sockets hold"
        assert b" 413 " in sends.recv(100).splitlines()[0]
    served(its)


@pytest.mark.parametrize("path", [b"/v2/models/nope/infer", b"/v3", b"/v2/models/net/infer"])
def test_what_is_refused_unread_is_not_read(its: Process, path: bytes) -> None:
    with connection(its.client.port) as sends:
        sends.sendall(
            b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (path, 10 << 30)
        )
        answer = b""
        while got := sends.recv(1 << 16):
            answer += got
        assert b"connection: close" in answer.lower()
    served(its)


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_idle_connections_keep_nobody_waiting(its: Process, count: int) -> None:
    """As many as the system lets a process have."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most[1], most[1]))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, most)
        for i in range(min(count, most[1] - 500)):
            port = its.grpc_port if i % 10 == 0 else its.client.port
            stack.enter_context(connection(port))
        served(its)
    served(its)


@pytest.mark.parametrize("text", [PREFACE, GARBAGE, b"\r\n" * 50, b"GET " + b"/" * 100_000])
def test_what_is_no_protocol_is_hung_up_on(its: Process, text: bytes) -> None:
    with connection(its.client.port) as http, connection(its.grpc_port) as rpc:
        for each in (http, rpc):
            with suppress(OSError):
                each.sendall(text)
        served(its)


def test_garbage_behind_a_preface_is_hung_up_on(its: Process) -> None:
    with connection(its.grpc_port) as rpc:
        rpc.sendall(PREFACE + GARBAGE)
        with suppress(ConnectionResetError):
            while rpc.recv(1 << 16):
                pass
    served(its)


def test_a_message_that_unpacks_to_more_than_may_be_is_refused(its: Process) -> None:
    """It is small as it comes: zeros, compressed."""
    options = [("grpc.max_send_message_length", -1)]
    address, how = f"127.0.0.1:{its.grpc_port}", grpc.Compression.Gzip
    with grpc.insecure_channel(address, options, how) as channel, pytest.raises(grpc.RpcError) as e:
        asking(channel)("ModelInfer", raw_input_contents=[bytes(65 << 20)], **told(X))
    assert e.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    served(its)


BEGINNINGS = {
    "nothing": b"",
    "a head": POST,
    "a second head": b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n" + POST,
    "a body": POST + b"Content-Length: 100000\r\n\r\n",
}


@pytest.mark.parametrize("what", BEGINNINGS)
def test_who_trickles_is_not_waited_for(what: str) -> None:
    """A byte at a time, and never all of them."""
    server = Server([ServedModel("net", "1", mlp())], Queue(1, 10), patience_s=0.3)
    with served_here(server) as client, connection(client.port) as trickles:
        trickles.sendall(BEGINNINGS[what])
        trickles.settimeout(0.02)
        answer, end = b"", time.monotonic() + WAIT_S
        while time.monotonic() < end:
            try:
                if what != "nothing":
                    trickles.sendall(b"a")
                got = trickles.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                break
            if not got:
                break
            answer += got
            np.testing.assert_array_equal(client.infer(X), X)
        assert time.monotonic() < end, "it is still there"
    assert (b" 408 " in answer, b" 200 " in answer) == (what == "a body", what == "a second head")


@pytest.mark.parametrize("count", [1, 3])
def test_who_does_not_take_its_answer_is_not_waited_for(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Answers that fit no buffer: who reads them in time has all of them.

    Of those that are asked for behind each other the second waits until the first is taken.
    """
    x, out = Var("x", tensor("float32", Symbol("N", 1, None), 4)), Builder()
    mod = Module({"main": out.function("main", [x], [out.emit(ops.relu, x)])})
    size = 1 << 20
    head = {**TENSOR, "shape": [size, 4], "parameters": {"binary_data_size": 16 * size}}
    text = json.dumps({"inputs": [head], "parameters": {"binary_data_output": True}}).encode()
    lengths = b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
    request = POST + lengths % (len(text), len(text) + 16 * size) + text + bytes(16 * size)
    model, every = ServedModel("net", "1", bucketize.compile(mod)), 16 * size * count
    for patience_s, rests_s, least, most in (
        (600.0, 0.0, every, every + size),
        (0.3, 3.0, 0, every),
    ):
        server = Server([model], Queue(1, 10), patience_s=patience_s)
        with served_here(server) as client, connection(client.port) as asks:
            asking = threading.Thread(target=_sends, args=[asks, request * count])
            asking.start()
            answer = len(asks.recv(1))
            time.sleep(rests_s)
            with suppress(OSError):
                while answer < every and (got := asks.recv(1 << 20)):
                    answer += len(got)
            assert least <= answer < most
            np.testing.assert_array_equal(client.infer(X), X)
        asking.join()
    assert [r.message for r in caplog.records if r.name == "bucketize"] == []


def _sends(asks: socket.socket, requests: bytes) -> None:
    with suppress(OSError):  # it hangs up
        asks.sendall(requests)


def test_requests_that_come_at_once_have_only_so_much_room() -> None:
    """Sixteen of the longest: when they send no more, and are gone, there is room again."""
    server = Server([ServedModel("net", "1", mlp())], Queue(1, 10), most_bytes=100_000)
    with served_here(server) as client, ExitStack() as stack:
        for _ in range(16):
            sends = stack.enter_context(connection(client.port))
            sends.sendall(POST + b"Content-Length: 100000\r\n\r\n" + b" " * 99_990)
        wait_until(lambda: server.room.taken == 16 * 99_990)
        status, headers, content = client.ask("/v2/models/net/infer", b" " * 1_000)
        assert (status, headers["retry-after"]) == (429, "1")
        assert b"requests of 1599840 bytes are here already" in content
        stack.close()
        wait_until(lambda: server.room.taken == 0)
        np.testing.assert_array_equal(client.infer(X), X)


ODD = [None, True, -1, 1e308, 10**30, float("nan"), "x", "INT8", [], {}, [[1], [2, 3]], "\ud800"]
TENSOR = {"name": "x", "datatype": "FP32", "shape": [2, 2]}
INFER = {
    "id": "a",
    "inputs": [{**TENSOR, "data": [1, 2, 3, 4], "parameters": {"binary_data_size": 0}}],
    "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    "parameters": {"binary_data_output": False},
}
EMBED = {"model": "m", "input": ["a", "b"], "encoding_format": "float", "dimensions": None}


def mutated(value: Any, dice: random.Random) -> Any:
    """Some parts are others, or left out."""
    if dice.random() < 0.15:
        return dice.choice(ODD)
    if isinstance(value, dict):
        return {k: mutated(v, dice) for k, v in value.items() if dice.random() > 0.03}
    return [mutated(v, dice) for v in value] if isinstance(value, list) else value


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_whatever_a_request_holds_is_no_fault_of_ours() -> None:
    """What is wrong is an ArgumentError, whose text can be sent."""
    dice, types = random.Random(0), {"x": tensor("float32", Symbol("N", 1, 9), 2)}
    request = MESSAGES["ModelInferRequest"](inputs=[TENSOR], raw_input_contents=[bytes(16)])
    message = request.SerializeToString()
    wrong = 0
    for _ in range(2000):
        infer, embed = (json.dumps(mutated(each, dice)).encode() for each in (INFER, EMBED))
        odd = bytearray(message)
        odd[dice.randrange(len(odd))] = dice.randrange(256)
        for reads in (
            lambda: read(infer, dice.choice([None, len(infer)]), types),  # noqa: B023
            lambda: EmbeddingRequest.of(embeddings.parsed(embed), 9),  # noqa: B023
            lambda: asked_for(parsed(type(request), bytes(odd)), types),  # noqa: B023
        ):
            try:
                reads()
            except ArgumentError as e:
                text_of(e).encode()
                wrong += 1
    assert 3000 < wrong < 6000
