"""What `/metrics` tells, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from bucketize.link.memory import ARENAS
from bucketize.serve.model import ServedModel
from bucketize.serve.queue import Queue

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class Metrics:
    """Counters of a server."""

    def __init__(self, queue: Queue, models: Callable[[], Iterable[ServedModel]]) -> None:
        """Nothing was counted yet."""
        self._registry = CollectorRegistry()
        self._models = models
        by = ["model", "version"]
        self.requests = Counter(
            "bucketize_requests",
            "Requests, by their answer's status",
            [*by, "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "bucketize_request_seconds",
            "From when a request was read until its answer was there",
            by,
            buckets=SECONDS,
            registry=self._registry,
        )
        self._queue = queue
        self._waiting = self._gauge("requests_waiting", "Requests that wait", by)
        self._weights = self._gauge("weight_bytes", "Constants, as kernels hold them", by)
        self._drifted = self._gauge("drifted", "1 while requests do not come as planned", by)
        arenas = self._gauge("arena_bytes", "Memory between kernels that no call uses now")
        arenas.set_function(lambda: ARENAS.nbytes)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(f"bucketize_{name}", text, labels, registry=self._registry)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        for model in self._models():
            labels = model.name, model.version
            self._weights.labels(*labels).set(model.executable.constant_bytes())
            if model.drift is not None:
                self._drifted.labels(*labels).set(bool(model.drift.changes))
            self._waiting.labels(*labels).set(self._queue.waiting(model))
        return generate_latest(self._registry)
