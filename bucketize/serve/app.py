"""The server over HTTP: the routes of the Open Inference Protocol, version 2.

Source: https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bucketize.errors import ArgumentError, BucketizeError
from bucketize.op import Value
from bucketize.release import release
from bucketize.serve import embeddings
from bucketize.serve.embeddings import EmbeddingRequest
from bucketize.serve.model import ServedModel
from bucketize.serve.protocol import (
    EXTENSIONS,
    LENGTH,
    InferRequest,
    metadata,
    read,
    work_to_read,
    work_to_write,
    written,
)
from bucketize.serve.refusal import (
    BROKEN,
    BusyError,
    HungUpError,
    SlowClientError,
    TooLargeError,
    status_of,
    text_of,
)
from bucketize.serve.server import LOGGER, Server, T
from bucketize.serve.unread import ClosingUnread

if TYPE_CHECKING:
    from bucketize.serve.grpc import Rpc

Take: TypeAlias = Callable[[int], None]
PLAIN = "identity"
UNREADY = 503  # what sends requests sends none meanwhile


def application(server: Server, rpc: Rpc | None = None) -> Starlette:
    """The application, for a server of ASGI.

    Args:
        server: what answers.
        rpc: the same by gRPC: it begins and ends with the application.

    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(server.running())
            if rpc is not None:
                await stack.enter_async_context(rpc.running())
            yield

    paths = Paths(server)
    return Starlette(
        routes=[*paths.gets(), *paths.posts()],
        lifespan=lifespan,
        middleware=[Middleware(ClosingUnread)],
        exception_handlers={BucketizeError: _refused, HTTPException: _unknown, Exception: _broken},
    )


class Paths:
    """What answers at which path."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def gets(self) -> list[Route]:
        """What is told."""
        does: Mapping[str, Callable[..., Any]] = {
            "/v2": self.about,
            "/v2/health/live": self.alive,
            "/v2/health/ready": self.all_ready,
            "/v2/models/{model}": self.described,
            "/v2/models/{model}/versions/{version}": self.described,
            "/v2/models/{model}/ready": self.ready,
            "/v2/models/{model}/versions/{version}/ready": self.ready,
            "/metrics": self.metrics,
        }
        return [Route(path, each) for path, each in does.items()]

    def posts(self) -> list[Route]:
        """What is computed."""
        does: Mapping[str, Callable[..., Any]] = {
            "/v2/models/{model}/infer": self.infer,
            "/v2/models/{model}/versions/{version}/infer": self.infer,
            "/v1/embeddings": self.embed,
        }
        return [Route(path, each, methods=["POST"]) for path, each in does.items()]

    async def about(self, _: Request) -> Response:
        """The server."""
        its = {"name": "bucketize", "version": release(), "extensions": EXTENSIONS}
        return JSONResponse({**its, "models": list(self.server.versions)})

    async def alive(self, _: Request) -> Response:
        """Answer that the server is alive."""
        return JSONResponse({"live": True})

    async def all_ready(self, _: Request) -> Response:
        """Whether every model is."""
        return _readiness({}, self.server.is_ready())

    async def described(self, request: Request) -> Response:
        """What a model takes and gives."""
        model = self._model(request)
        versions = list(self.server.versions[model.name])
        its = metadata(model.name, versions, model.inputs, model.outputs)
        if model.drift is not None:
            its["parameters"] = {"drift": [str(change) for change in model.drift.changes]}
        return JSONResponse(its)

    async def ready(self, request: Request) -> Response:
        """Whether requests of a model shall come."""
        model = self._model(request)
        return _readiness({"name": model.name}, self.server.is_ready(model))

    async def metrics(self, _: Request) -> Response:
        """For Prometheus."""
        text = await anyio.to_thread.run_sync(self.server.metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def infer(self, request: Request) -> Response:
        """The results of a model."""
        model = self._model(request)
        with self.server.room.of_request() as take, self.server.counted(model) as begin:
            body = await self._body(request, take)
            begin()
            return await self._inferred(model, request, body)

    async def _inferred(self, model: ServedModel, request: Request, body: bytearray) -> Response:
        length = request.headers.get(LENGTH)
        if length is not None and not re.fullmatch("[0-9]{1,18}", length):  # fits 64 bits
            raise ArgumentError(f"{LENGTH}: expected a number, got {length!r}")
        json_bytes = None if length is None else int(length)
        work = work_to_read(len(body), json_bytes)
        asked = await self.server.read(work, read, body, json_bytes, model.inputs)
        results = await _unless_gone(self.server.results(model, asked), request)
        work = work_to_write(results, asked.binary)
        return await self.server.read(work, _answer, model, asked, results)

    async def embed(self, request: Request) -> Response:
        """The vectors of texts."""
        with self.server.room.of_request() as take:
            body = await self._body(request, take)
            json = await self.server.read(len(body), embeddings.parsed, body)
            name, _, version = str(json["model"]).partition(":")
            model = self.server.model(name, version)
            with self.server.counted(model):
                asked = EmbeddingRequest.of(json, self.server.queue.most)
                return await self._embedded(model, asked, request)

    async def _embedded(
        self, model: ServedModel, asked: EmbeddingRequest, request: Request
    ) -> Response:
        if (encoder := model.encoder) is None:
            raise ArgumentError(f"{model.name} has no tokenizer: it takes tensors alone")
        feeds = await self.server.beside(encoder.requests, asked.texts)
        results = await _unless_gone(self.server.every_result(model, feeds, "text"), request)
        tokens = sum(feed[encoder.executable.inputs[0]].size for feed in feeds)
        body = await self.server.beside(embeddings.written, asked, encoder, results, tokens)
        return Response(body, media_type="application/json")

    async def _body(self, request: Request, take: Take) -> bytearray:
        """The body, if it is no longer than it may be: no more of it is taken in.

        It lies in one place, which goes back to the system; small parts would leave holes.
        """
        most, told = self.server.most_bytes, request.headers.get("content-length", "0")
        if (coding := request.headers.get("content-encoding", PLAIN)) != PLAIN:
            raise ArgumentError(f"a body of Content-Encoding {coding} is not taken")
        if told.isdigit() and int(told) > most:
            raise TooLargeError(f"a body has at most {most} bytes, not {told}")
        body, patience_s = bytearray(), self.server.patience_s
        try:
            async with asyncio.timeout(patience_s):
                async for part in request.stream():
                    if len(body) + len(part) > most:
                        raise TooLargeError(f"a body has at most {most} bytes")
                    take(len(part))
                    body += part
        except TimeoutError as e:
            raise SlowClientError(f"after {patience_s:g} s the body is not there") from e
        except ClientDisconnect as e:
            raise HungUpError("the client is gone") from e
        return body

    def _model(self, request: Request) -> ServedModel:
        params = request.path_params
        return self.server.model(params["model"], params.get("version"))


def _readiness(named: Mapping[str, str], is_ready: bool) -> Response:
    return JSONResponse({**named, "ready": is_ready}, status_code=200 if is_ready else UNREADY)


async def _unless_gone(results: Coroutine[Any, Any, T], request: Request) -> T:
    """The results; a client that hangs up before its turn takes its request with it."""
    asked = asyncio.create_task(results)
    gone = asyncio.ensure_future(request.receive())  # the body is read already
    first: set[asyncio.Future[Any]] = {asked, gone}
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise HungUpError("the client is gone")
        return await asked
    finally:
        asked.cancel()
        gone.cancel()


def _answer(model: ServedModel, asked: InferRequest, results: Mapping[str, Value]) -> Response:
    body, length = written(model.name, model.version, asked, results)
    if length is None:
        return Response(body, media_type="application/json")
    headers = {LENGTH: str(length)}
    return Response(body, headers=headers, media_type="application/octet-stream")


def _refused(request: Request, error: Exception) -> Response:
    """The answer that says what was wrong: with the request, or that there is too much to do."""
    retry = math.ceil(error.retry_s) if isinstance(error, BusyError) else None
    headers = {} if retry is None else {"retry-after": str(retry)}
    return JSONResponse(_told(request, error), status_code=status_of(error), headers=headers)


def _unknown(request: Request, error: Exception) -> Response:
    """The answer where there is no such path, or none that takes this method."""
    assert isinstance(error, HTTPException)
    what = ArgumentError(f"{request.method} {request.url.path}: {error.detail}")
    return JSONResponse(_told(request, what), error.status_code, headers=error.headers)


def _broken(request: Request, error: Exception) -> Response:
    """The answer to a fault of ours."""
    LOGGER.error("%s %s: %r", request.method, request.url.path, error)
    return JSONResponse(_told(request, error), status_code=status_of(error))


def _told(request: Request, error: Exception) -> dict[str, Any]:
    """An error as clients of the path expect it: OpenAI's have an object there."""
    if not request.url.path.startswith("/v1/"):
        return {"error": text_of(error)}
    kind = "server_error" if status_of(error) >= BROKEN else "invalid_request_error"
    return {"error": {"message": text_of(error), "type": kind, "param": None, "code": None}}
