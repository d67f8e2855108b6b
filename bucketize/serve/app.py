"""The server's routes, of the Open Inference Protocol, version 2, over HTTP.

Source: https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bucketize.errors import ArgumentError, BucketizeError, ProgramError
from bucketize.executable import Executable
from bucketize.loader import load
from bucketize.op import Value
from bucketize.release import release
from bucketize.serve.metrics import Metrics
from bucketize.serve.protocol import LENGTH, InferRequest, metadata, read, written
from bucketize.serve.queue import BusyError, Queue, ServedModel
from bucketize.types import TensorType

LOGGER = logging.getLogger("bucketize")
LOOKED_S = 1.0  # between two looks at files that may be replaced
OWN_THREAD = 1 << 16  # bytes of a body: what is longer is read beside other requests
EXTENSIONS = ["binary_tensor_data"]


class TooLargeError(BucketizeError):
    """A body that is longer than any may be."""


class Server:
    """Models, and what answers for them."""

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        queue: Queue,
        most_bytes: int = 64 << 20,
        files: Mapping[str, Path] | None = None,
        traffic: Path | None = None,
    ) -> None:
        """Nothing listens yet: `app` does.

        Args:
            models: by their names.
            queue: of their requests.
            most_bytes: of a body.
            files: saved programs, by the names of their models: another one that is put there
                serves from then on.
            traffic: a folder where sizes of requests are written to, at the end.

        Raises ProgramError for a model of more than tensors of known rank.

        """
        for name, model in models.items():
            _check(name, model.executable)
        self.models, self.queue, self.most_bytes = dict(models), queue, most_bytes
        self.metrics = Metrics(queue, self.models.values)
        self._files = {name: (path, _identity(path)) for name, path in (files or {}).items()}
        self._traffic = traffic

    def app(self) -> Starlette:
        """The application, for a server of ASGI."""
        gets: Mapping[str, Callable[..., Any]] = {
            "/v2": self.about,
            "/v2/health/live": self.alive,
            "/v2/health/ready": self.alive,
            "/v2/models/{model}": self.described,
            "/v2/models/{model}/versions/{version}": self.described,
            "/v2/models/{model}/ready": self.ready,
            "/v2/models/{model}/versions/{version}/ready": self.ready,
            "/metrics": self.counted,
        }
        posts: Mapping[str, Callable[..., Any]] = {
            "/v2/models/{model}/infer": self.infer,
            "/v2/models/{model}/versions/{version}/infer": self.infer,
        }
        routes = [Route(path, does) for path, does in gets.items()]
        routes += [Route(path, does, methods=["POST"]) for path, does in posts.items()]
        return Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={BucketizeError: _refused, Exception: _broken},
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        looking = asyncio.create_task(self._look())
        yield
        looking.cancel()
        await anyio.to_thread.run_sync(self.queue.close)
        if self._traffic is not None:
            self._write(self._traffic)

    def _write(self, folder: Path) -> None:
        """Write what was asked for, for `bucketize partition`, `optimize` and `drift`."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, model in self.models.items():
            if (traffic := model.executable.traffic) is not None:
                traffic.write(folder / f"{name}.csv")

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOKED_S)
            for name in list(self._files):
                await anyio.to_thread.run_sync(self._renew, name)

    def _renew(self, name: str) -> None:
        """Serve by the file that is there now; what cannot be loaded is told, and the old stays."""
        path, before = self._files[name]
        now = _identity(path)
        if now in (before, None):
            return
        self._files[name] = path, now
        try:
            self.models[name].executable.replace(load(path))
        except BucketizeError as e:
            LOGGER.warning("%s is not served: %s", path, e)
        else:
            LOGGER.info("%s is served by what is in %s now", name, path)

    # Routes.

    async def about(self, _: Request) -> Response:
        """The server."""
        its = {"name": "bucketize", "version": release(), "extensions": EXTENSIONS}
        return JSONResponse({**its, "models": sorted(self.models)})

    async def alive(self, _: Request) -> Response:
        """That it answers."""
        return JSONResponse({"live": True, "ready": True})

    async def described(self, request: Request) -> Response:
        """What a model takes and gives."""
        model = self._model(request)
        main = model.executable.program.routines["main"]
        results = zip(model.executable.outputs, main.code.results, strict=True)
        outputs = {name: atom.type for name, atom in results}
        return JSONResponse(metadata(model.name, model.version, main.params, outputs))

    async def ready(self, request: Request) -> Response:
        """Whether a model answers: it does as soon as it is there."""
        return JSONResponse({"name": self._model(request).name, "ready": True})

    async def counted(self, _: Request) -> Response:
        """For Prometheus."""
        text = await anyio.to_thread.run_sync(self.metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def infer(self, request: Request) -> Response:
        """The results of a model."""
        model, start = self._model(request), time.perf_counter()
        try:
            answer = await self._inferred(model, request)
        except BucketizeError as e:
            answer = _refused(request, e)
        self.metrics.requests.labels(model.name, str(answer.status_code)).inc()
        if answer.status_code == 200:
            self.metrics.seconds.labels(model.name).observe(time.perf_counter() - start)
        return answer

    async def _inferred(self, model: ServedModel, request: Request) -> Response:
        body = await self._body(request)
        length = request.headers.get(LENGTH)
        if length is not None and not length.isdigit():
            raise ArgumentError(f"{LENGTH}: expected a number, got {length!r}")
        types = {p.name: p.type for p in model.executable.program.routines["main"].params}
        arguments = body, None if length is None else int(length), types
        asked = await _beside(len(body), read, *arguments)
        for name in asked.outputs:
            if name not in model.executable.outputs:
                raise ArgumentError(f"the model has no output {name!r}")
        future = self.queue.submit(model, asked.feed)
        results = await _unless_gone(asyncio.wrap_future(future), request)
        answer: Response = await _beside(len(body), _answer, model, asked, results)
        return answer

    async def _body(self, request: Request) -> bytes:
        """The body, if it is no longer than it may be: no more of it is taken in."""
        told = request.headers.get("content-length", "0")
        if told.isdigit() and int(told) > self.most_bytes:
            raise TooLargeError(f"a body has at most {self.most_bytes} bytes, not {told}")
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > self.most_bytes:
                raise TooLargeError(f"a body has at most {self.most_bytes} bytes")
            parts.append(part)
        return b"".join(parts)

    def _model(self, request: Request) -> ServedModel:
        name, version = request.path_params["model"], request.path_params.get("version")
        model = self.models.get(name)
        if model is None or version not in (None, model.version):
            what = name if version is None else f"{name}, version {version}"
            raise UnknownModelError(f"no model {what}; there are {', '.join(sorted(self.models))}")
        return model


class UnknownModelError(BucketizeError):
    """A model that is not served."""


class HungUpError(BucketizeError):
    """A client that does not wait any more."""


async def _unless_gone(results: asyncio.Future[list[Value]], request: Request) -> list[Value]:
    """The results; a client that hangs up before its turn takes its request with it."""
    gone: asyncio.Future[Any] = asyncio.ensure_future(request.receive())  # the body is read already
    first: set[asyncio.Future[Any]] = {results, gone}
    try:
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not results.done() and results.cancel():
            raise HungUpError("the client is gone")
        return await results
    finally:
        gone.cancel()


def _check(name: str, executable: Executable) -> None:
    """Raise ProgramError for a model that the protocol has no words for."""
    main = executable.program.routines["main"]
    results = zip(executable.outputs, main.code.results, strict=True)
    types = [*((p.name, p.type) for p in main.params), *((n, atom.type) for n, atom in results)]
    for what, type_ in types:
        if not isinstance(type_, TensorType):
            raise ProgramError(f"{name}: {what} is {type_}, no tensor: the protocol has none")


async def _beside(size: int, does: Callable[..., Any], *arguments: Any) -> Any:
    """A result: of what is large, by a thread that keeps nobody else waiting."""
    if size < OWN_THREAD:
        return does(*arguments)
    return await anyio.to_thread.run_sync(does, *arguments)


def _answer(model: ServedModel, asked: InferRequest, results: list[Value]) -> Response:
    named = dict(zip(model.executable.outputs, results, strict=True))
    body, length = written(model.name, model.version, asked, named)
    if length is None:
        return Response(body, media_type="application/json")
    headers = {LENGTH: str(length)}
    return Response(body, headers=headers, media_type="application/octet-stream")


def _refused(_: Request, error: Exception) -> Response:
    """The answer that says what was wrong: with the request, or that there is too much to do."""
    headers = {}
    status = 400
    if isinstance(error, BusyError):
        status, headers = 429, {"retry-after": str(math.ceil(error.retry_s))}
    if isinstance(error, TooLargeError):
        status = 413
    if isinstance(error, UnknownModelError):
        status = 404
    return JSONResponse({"error": _text(error)}, status_code=status, headers=headers)


def _text(error: Exception) -> str:
    """What an error says, without which of the requests that shared a call it was."""
    if not isinstance(error, BucketizeError):
        return str(error)
    notes = [note for note in error.notes if not note.startswith("in request ")]
    return "; ".join([error.message, *notes])


def _broken(request: Request, error: Exception) -> Response:
    """The answer to a fault of ours."""
    if not isinstance(error, ClientDisconnect):
        LOGGER.error("%s %s: %r", request.method, request.url.path, error)
    return JSONResponse({"error": f"{type(error).__name__}: {error}"}, status_code=500)


def _identity(path: Path) -> Any:
    """What tells a file from another in its place; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
