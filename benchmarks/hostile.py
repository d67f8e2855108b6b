"""Clients that a server has to live with: they know no better, or mean no good."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
import numpy as np

from bucketize.serve.grpc import MESSAGES, SERVICE
from bucketize.serve.server import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "127.0.0.1"
HUNG_UP = "hung up"
GARBAGE = bytes(np.random.default_rng(0).integers(0, 256, 4096, np.uint8))
GIB = 1 << 30
LARGEST = 64 << 20  # of a body
PART = b"%x\r\n" % (1 << 20) + bytes(1 << 20) + b"\r\n"
IDLE = 1000  # connections
UNREAD = 60  # requests whose answers nobody takes
SOON_S = 60.0  # what is refused at once is told sooner, however busy the server is


@dataclass(frozen=True)
class Ports:
    """Where a server listens."""

    http: int
    rpc: int


@dataclass(frozen=True)
class Bad:
    """A client, what it is to see, and how long until the next one comes."""

    does: Callable[[Ports], Coroutine[Any, Any, str]]
    told: str
    """A pattern, of all that it says."""
    pause_s: float = 1.0
    is_waited_for: bool = False
    """Whether it is the server's patience that ends it."""

    def is_told(self, seen: str) -> bool:
        """Whether it saw what it should."""
        return re.fullmatch(self.told, seen) is not None


Writing: TypeAlias = "tuple[asyncio.StreamReader, asyncio.StreamWriter]"


@asynccontextmanager
async def connected(port: int, buffer: int | None = None) -> AsyncIterator[Writing]:
    """A connection, which is reset in the end, whatever is on its way."""
    sock = socket.socket()
    sock.setblocking(False)
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    try:
        await asyncio.get_running_loop().sock_connect(sock, (HOST, port))
    except BaseException:
        sock.close()
        raise
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def posted(path: str, body: bytes, *headers: str) -> bytes:
    """A request over HTTP."""
    length = f"Content-Length: {len(body)}"
    lines = [f"POST {path} HTTP/1.1", "Host: a", "Connection: close", length, *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def infer(model: str) -> str:
    """The path of its requests."""
    return f"/v2/models/{model}/infer"


async def answered(port: int, request: bytes, patience_s: float = SOON_S) -> tuple[str, bytes]:
    """The status and the body of an answer; the status is "hung up" if there is none."""
    async with connected(port) as (reader, writer):
        writer.write(request)
        told = b""
        with suppress(ConnectionError):  # what was told before is told
            async with asyncio.timeout(patience_s):
                while part := await reader.read(1 << 16):
                    told += part
    head, _, body = told.partition(b"\r\n\r\n")
    return head.split()[1].decode() if head.startswith(b"HTTP/") else HUNG_UP, body


def says(request: bytes, patience_s: float = SOON_S) -> Callable[[Ports], Any]:
    """A client that sends this over HTTP."""

    async def does(ports: Ports) -> str:
        status, _ = await answered(ports.http, request, patience_s)
        return status

    return does


async def without_end(ports: Ports) -> str:
    """A body in parts, for as long as somebody takes them."""
    head = posted(infer("net"), b"", "Transfer-Encoding: chunked")
    async with connected(ports.http) as (reader, writer):
        writer.write(head.replace(b"Content-Length: 0\r\n", b""))
        with suppress(ConnectionError):
            for sent in range(10 * GIB // len(PART)):
                writer.write(PART)
                await writer.drain()
                if sent * len(PART) > 4 * LARGEST:
                    return "it takes more than may be"
        with suppress(ConnectionError):
            return (await reader.read(100)).split()[1].decode()
    return HUNG_UP


async def trickles(ports: Ports) -> str:
    """A head, a byte a second."""
    async with connected(ports.http) as (reader, writer):
        for byte in posted(infer("net"), b"") * 4:
            if reader.at_eof():
                return HUNG_UP
            writer.write(bytes([byte]))
            try:
                await asyncio.wait_for(reader.read(100), 1)
            except TimeoutError:
                continue
            except ConnectionError:
                return HUNG_UP
    return "it is waited for"


async def reads_nothing(ports: Ports) -> str:
    """Many requests behind each other, whose answers lie there until the server has enough."""
    array = np.ones((1, 512), np.int64)
    inputs = [
        {"name": n, "datatype": "INT64", "shape": [1, 512], "data": array.ravel().tolist()}
        for n in ("input_ids", "attention_mask")
    ]
    asked = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    request = posted(infer("text"), json.dumps(asked).encode()).replace(b"close", b"keep-alive")
    async with connected(ports.http, buffer=4096) as (reader, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a socket's
        writer.write(UNREAD * request)
        await asyncio.sleep(3 * PATIENCE_S)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        size = 0
        with suppress(ConnectionError):
            while part := await reader.read(1 << 20):
                size += len(part)
    return HUNG_UP if size < UNREAD * array.size * 256 * 4 else "all was kept"


async def hangs_up(ports: Ports) -> str:
    """What asks, and is gone, over HTTP and gRPC."""
    data = {"name": "data", "datatype": "FP32", "shape": [1, 784], "data": [0.0] * 784}
    async with connected(ports.http) as (_, writer):
        writer.write(posted(infer("net"), json.dumps({"inputs": [data]}).encode()))
        await writer.drain()
    raw = [np.ones((1, 128), np.int64).tobytes()] * 2
    asked = asyncio.create_task(
        _called(
            ports,
            "ModelInfer",
            model_name="text",
            raw_input_contents=raw,
            inputs=[
                {"name": n, "datatype": "INT64", "shape": [1, 128]}
                for n in ("input_ids", "attention_mask")
            ],
        )
    )
    await asyncio.sleep(0.02)
    asked.cancel()
    with suppress(asyncio.CancelledError):
        await asked
    return "gone"


async def _called(ports: Ports, method: str, **fields: Any) -> str:
    return await _sent(ports, method, MESSAGES[f"{method}Request"](**fields).SerializeToString())


async def _sent(ports: Ports, method: str, message: bytes) -> str:
    """The status of a call."""
    how = {"options": [("grpc.max_send_message_length", -1)], "compression": grpc.Compression.Gzip}
    async with grpc.aio.insecure_channel(f"{HOST}:{ports.rpc}", **how) as channel:
        try:
            await channel.unary_unary(f"/{SERVICE}/{method}")(message)
        except grpc.aio.AioRpcError as e:
            return str(e.code().name)
    return "OK"


async def large_message(ports: Ports) -> str:
    """A message that is small as it comes, and larger than any may be."""
    raw = [bytes(LARGEST + 1)]
    return await _called(ports, "ModelInfer", model_name="net", raw_input_contents=raw)


async def no_message(ports: Ports) -> str:
    """Bytes that are none."""
    return await _sent(ports, "ModelInfer", GARBAGE)


async def no_http2(ports: Ports) -> str:
    """Garbage behind a preface."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    return (await answered(ports.rpc, preface + GARBAGE))[0]


async def idle(ports: Ports) -> str:
    """Connections that ask for nothing, until the server hangs up on one of them."""
    async with AsyncExitStack() as stack:
        for _ in range(IDLE):
            reader, _ = await stack.enter_async_context(connected(ports.http))
        with suppress(ConnectionError):
            async with asyncio.timeout(3 * PATIENCE_S):
                if await reader.read(1):
                    return "told something"
    return HUNG_UP


NO_BODY = posted(infer("net"), b"").replace(b"Content-Length: 0", b"Content-Length: 1000")
TEN_GB = posted(infer("net"), b"").replace(b"Content-Length: 0", b"Content-Length: 10000000000")
ODD = {"name": "data", "datatype": "FP32", "shape": [1 << 40, 784], "data": [1]}
CLIENTS: Mapping[str, Bad] = {
    "a body of 10 GB": Bad(says(TEN_GB), "413"),
    "a body without end": Bad(without_end, f"413|{HUNG_UP}", 5.0),
    "a message of 64 MiB": Bad(large_message, "RESOURCE_EXHAUSTED", 10.0),
    "no JSON": Bad(says(posted(infer("net"), GARBAGE)), "400"),
    "deep JSON": Bad(says(posted(infer("net"), b"[" * 100_000)), "400"),
    "a shape of terabytes": Bad(
        says(posted(infer("net"), json.dumps({"inputs": [ODD]}).encode())), "400"
    ),
    "no such model": Bad(says(posted(infer("nope"), b"{}")), "404"),
    "no HTTP/2": Bad(no_http2, HUNG_UP),
    "no message": Bad(no_message, "INVALID_ARGUMENT"),
    "a client that hangs up": Bad(hangs_up, "gone", 0.3),
    "no HTTP": Bad(says(GARBAGE), f"400|{HUNG_UP}", is_waited_for=True),
    "a head that trickles": Bad(trickles, HUNG_UP, is_waited_for=True),
    "a body that does not come": Bad(says(NO_BODY, 3 * PATIENCE_S), "408", is_waited_for=True),
    "answers that nobody takes": Bad(reads_nothing, HUNG_UP, is_waited_for=True),
    f"{IDLE} idle connections": Bad(idle, HUNG_UP, is_waited_for=True),
}
"""By what they are called."""
