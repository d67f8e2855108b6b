"""Ray: a deployment of Ray Serve whose replicas serve a model, and rows of Ray Data.

Ray starts replicas, balances between them and has another come where one dies. In each, requests
share calls by the queue of `bucketize serve`: what came while a call ran goes together in the next
one. https://docs.ray.io/en/latest/serve
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bucketize.errors import ArgumentError, BucketizeError, EngineError
from bucketize.integrations.predictor import Predictor, Source, alone, opened
from bucketize.many.limits import check_count, check_seconds
from bucketize.op import Array, Value
from bucketize.release import rest
from bucketize.traffic.value import Traffic

__all__ = ["Predictor", "Replica", "deployment"]

BOUNDS = {"max_ongoing_requests": 64, "max_queued_requests": 1024}
"""Requests that a replica has at once, and that wait with each caller, unless told otherwise."""


@dataclass(frozen=True)
class Terms:
    """How a replica serves."""

    name: str
    """The name of the model."""
    trusted: bool
    limit_bytes: int | None
    latency_s: float | None
    body_bytes: int
    most: int
    """Requests at once."""
    cores: float


class Replica:
    """A model and its server in a process of Ray's. Not made directly: see `deployment`."""

    def __init__(self, model: Source, terms: Terms) -> None:
        """Open the model."""
        exe = opened(model, terms.trusted)
        exe.limit(terms.limit_bytes)
        # a client that has rows or handles alone needs no server
        self._model = rest("bucketize.serve.model").ServedModel(terms.name, "1", exe)
        queue = rest("bucketize.serve.queue").Queue
        self._queue = queue(max(1, int(terms.cores)), terms.most, terms.latency_s)
        server = rest("bucketize.serve.server").Server
        self._server = server([self._model], self._queue, terms.body_bytes)

    def __serve_build_asgi_app__(self) -> Any:  # Ray calls it
        """What answers over HTTP."""
        return rest("bucketize.serve.app").application(self._server)

    async def infer(self, feed: Mapping[str, Array]) -> dict[str, Value]:
        """The results by name, for handles.

        Args:
            feed: the inputs by name.

        Returns:
            The results by name.

        Raises:
            ArgumentError: no mapping, or lists of unequal lengths.
            BucketizeError: as of `run`, and BusyError, as of `bucketize serve`.

        """
        if not isinstance(feed, Mapping):
            raise ArgumentError(f"expected a mapping of arrays by input, got {type(feed).__name__}")
        try:
            for value in feed.values():
                np.asarray(value)
        except ValueError as e:
            raise ArgumentError(f"expected arrays by input: {e}") from e
        try:
            (answer,) = self._queue.submit(self._model, [{str(n): v for n, v in feed.items()}])
            results = await asyncio.wrap_future(answer)
        except BucketizeError as e:
            raise alone(e) from None
        return dict(zip(self._model.executable.outputs, results, strict=True))

    async def traffic(self) -> Traffic | None:
        """The sizes of requests that this replica answered: `handle.broadcast("traffic")`.

        Returns:
            As `Executable.traffic`.

        """
        its: Traffic | None = self._model.executable.traffic
        return its


def deployment(
    model: Source,
    *,
    name: str | None = None,
    latency_s: float | None = None,
    limit_bytes: int | None = None,
    body_bytes: int = 64 << 20,
    trusted: bool = False,
    **options: Any,
) -> Any:
    """An application of Ray Serve, for `serve.run`.

    Each replica opens the model once; replicas on one machine share the pages of a saved program.
    Over HTTP they speak the Open Inference Protocol; handles have `infer.remote(feed)` and
    `broadcast("traffic")`.

    Args:
        model: the path of a saved program, on each machine where replicas may be; or a function
            without arguments that makes an executable there.
        name: of the model and of the deployment; None: that of the file, or `model`.
        latency_s: what would be answered later is refused: BusyError, or 429.
        limit_bytes: of a replica's weights and calls: `Executable.limit`.
        body_bytes: of a request over HTTP, at most.
        trusted: as that of `load`.
        **options: of `serve.deployment`: `num_replicas`, `ray_actor_options`, ... A replica takes
            `max_ongoing_requests` at once, 64 unless told: so many are lost where one is killed;
            `max_queued_requests`, 1024, wait with each handle or proxy.

    Returns:
        The bound application.

    Raises:
        ArgumentError: no such deadline or bytes.
        EngineError: Ray Serve is not installed.

    """
    check_count("limit_bytes", limit_bytes)
    check_count("body_bytes", body_bytes)
    check_seconds("latency_s", latency_s)
    serve = ray_serve()
    name = name or ("model" if callable(model) else Path(model).stem)
    options = {**BOUNDS, **options}
    cores = (options.get("ray_actor_options") or {}).get("num_cpus") or 1
    most = options["max_ongoing_requests"]
    terms = Terms(name, trusted, limit_bytes, latency_s, body_bytes, most, cores)
    replica = serve.ingress()(Replica)
    return serve.deployment(name=name, **options)(replica).bind(model, terms)


def ray_serve() -> Any:
    """Ray Serve, which an extra brings."""
    try:
        return importlib.import_module("ray.serve")
    except ModuleNotFoundError as e:
        raise EngineError("Ray Serve is not installed: pip install 'bucketize[ray]'") from e
