"""Listening by uvicorn: who connects, and sends nothing, is not waited for without end."""

from __future__ import annotations

import asyncio
import math
import resource
import socket
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from bucketize.errors import BucketizeError
from bucketize.release import rest
from bucketize.serve.app import application
from bucketize.serve.server import Server

if TYPE_CHECKING:
    from bucketize.serve.grpc import Rpc

GRACE_S = 30  # for answers that are on their way when it ends
Protocol: Any = AutoHTTPProtocol


class ImpatientProtocol(Protocol):  # type: ignore[misc]  # one of two classes of uvicorn's
    """Hangs up on a client that does not send the head of a request in time, or take its answer.

    uvicorn waits for ever for the first head, for any that trickles, and for who reads nothing.
    """

    patience_s: float

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to look for requests."""
        super().connection_made(transport)
        self._looks_again(None, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        self._looking.cancel()
        super().connection_lost(exc)

    def _looks_again(self, request: Any, left: int) -> None:
        self._looking = self.loop.call_later(self.patience_s, self._look, request, left)

    def _look(self, before: Any, left_before: int) -> None:
        """Hang up if no request came since the last look and none is on its way.

        An answer of which nothing was taken meanwhile is thrown away: more may wait behind it.
        """
        request, left = self.cycle, self.transport.get_write_buffer_size()
        if left and left == left_before:
            self.transport.abort()
            return
        is_idle = request is before and (request is None or request.response_complete)
        if is_idle and not left:
            self.transport.close()
        self._looks_again(request, left)


def listening(server: Server, host: str, port: int, rpc: Rpc | None = None) -> uvicorn.Config:
    """How a server is served over HTTP.

    Args:
        server: what answers.
        host: where it shall listen.
        port: the same; 0, any.
        rpc: the same server by gRPC.

    """
    impatient = type("OfServer", (ImpatientProtocol,), {"patience_s": server.patience_s})
    return uvicorn.Config(
        application(server, rpc),
        host,
        port,
        http=impatient,
        loop="asyncio",  # with uvloop an answer to who is gone is a fault: uvicorn does not tell
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=math.ceil(server.patience_s),
    )


def run(
    server: Server, host: str, port: int, rpc_port: int | None, tell: Callable[[str], None]
) -> None:
    """Serve until a signal ends it.

    Args:
        server: what answers.
        host: where it shall listen.
        port: the same; 0, any.
        rpc_port: the same by gRPC; None: it is not served by that.
        tell: is called with each address.

    Raises BucketizeError where it cannot start.

    """
    rpc = None
    if rpc_port is not None:
        at = address(host, rpc_port)
        rpc = rest("bucketize.serve.grpc").Rpc(
            server, at, lambda port: tell(f"grpc://{address(host, port)}")
        )
    config = listening(server, host, port, rpc)
    allow_connections()
    listens = config.bind_socket()
    listens.listen(config.backlog)  # who connects as soon as the address is told waits
    for name in server.versions:
        tell(f"http://{address(host, listens.getsockname()[1])}/v2/models/{quote(name)}/infer")
    web = _Web(config, server)
    web.run(sockets=[listens])
    if not web.started:
        raise BucketizeError("the server did not start: see above")


class _Web(uvicorn.Server):
    """Not ready from the signal that ends it on: gRPC answers for as long as HTTP does."""

    def __init__(self, config: uvicorn.Config, server: Server) -> None:
        super().__init__(config)
        self._server = server

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End, when what was begun is answered."""
        self._server.ends = True
        super().handle_exit(sig, frame)


def check_ports(host: str, port: int, rpc_port: int | None = None) -> None:
    """Raise BucketizeError for a port that others have, before models are compiled."""
    if port and port == rpc_port:
        raise BucketizeError(f"HTTP and gRPC need ports of their own, both have {port}")
    for its in (port,) if rpc_port is None else (port, rpc_port):
        try:
            family, *_ = socket.getaddrinfo(host, its, type=socket.SOCK_STREAM)[0]
            socket.create_server((host, its), family=family).close()
        except OSError as e:
            raise BucketizeError(f"cannot listen at {address(host, its)}: {e.strerror}") from e


def address(host: str, port: int) -> str:
    """The host and the port in the form of URLs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def allow_connections() -> None:
    """Let this process have as many as the system lets it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
