"""Models that are served, whatever protocol asks for them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import anyio

from bucketize.errors import ArgumentError, BucketizeError, ProgramError
from bucketize.loader import identity, load
from bucketize.machine.file import takes_files
from bucketize.op import Value
from bucketize.serve.metrics import Metrics
from bucketize.serve.model import ServedModel
from bucketize.serve.protocol import InferRequest
from bucketize.serve.queue import Feed, Queue
from bucketize.serve.refusal import STATUSES, BusyError, HungUpError, UnknownModelError, status_of
from bucketize.types import TensorType

LOGGER = logging.getLogger("bucketize")
LOOKED_S = 1.0  # between two looks at files that may be replaced
PATIENCE_S = 30.0
MOST_BODIES = 16  # of the greatest size, that are here at once
RETRY_S = 1.0  # where nobody knows how long others take to send theirs
AT_ONCE = 2  # requests that are read beside others: JSON takes many times its bytes meanwhile
OWN_THREAD = 1 << 16  # bytes of lists in a request or its results: more are handled beside others
T = TypeVar("T")


class Room:
    """Bytes of requests that are here: no more than may be."""

    def __init__(self, most: int) -> None:
        """Empty."""
        self.most, self.taken = most, 0

    @contextmanager
    def of_request(self) -> Iterator[Callable[[int], None]]:
        """What takes bytes of a request, which are given back at the end.

        It raises BusyError where there are too many.
        """
        own = 0

        def take(count: int) -> None:
            nonlocal own
            if self.taken + count > self.most:
                raise BusyError(f"requests of {self.taken} bytes are here already", RETRY_S)
            own += count
            self.taken += count

        try:
            yield take
        finally:
            self.taken -= own


class Server:
    """Models by their names and versions, and the queue of their requests."""

    def __init__(
        self,
        models: Iterable[ServedModel],
        queue: Queue,
        most_bytes: int = 64 << 20,
        traffic: Path | None = None,
        patience_s: float = PATIENCE_S,
        warm_up: bool = False,
    ) -> None:
        """Nothing listens yet.

        Args:
            models: of different names or versions.
            queue: of their requests.
            most_bytes: of a request.
            traffic: a folder where sizes of requests are written to, at the end.
            patience_s: that a client has to send a request, and after each before the next.
            warm_up: run every clone once; no model is ready before, and none replaces another.

        Raises ProgramError for a model of more than tensors, UnknownNameError or ShapeError for a
        plan of sizes that its model does not take.

        """
        self.versions: dict[str, dict[str, ServedModel]] = {}
        """By name and version, in the order of these."""
        for model in sorted(models, key=lambda each: (each.name, int(each.version))):
            _check(model)
            self.versions.setdefault(model.name, {})[model.version] = model
        self.queue, self.most_bytes, self.room = queue, most_bytes, Room(MOST_BODIES * most_bytes)
        self.metrics, self._beside = Metrics(queue, self.models), anyio.CapacityLimiter(AT_ONCE)
        self.patience_s, self._traffic, self._warms = patience_s, traffic, warm_up
        self.ends = False
        """Whether it takes no more clients, or will not for long."""
        self._cold = {*self.models()} if warm_up else set[ServedModel]()

    def models(self) -> list[ServedModel]:
        """All of them."""
        return [model for versions in self.versions.values() for model in versions.values()]

    def model(self, name: str, version: str | None = None) -> ServedModel:
        """A model; without a version its highest. Raises UnknownModelError if there is none."""
        versions = self.versions.get(name)
        if versions is None:
            raise UnknownModelError(f"no model {name}; there are {', '.join(self.versions)}")
        if not version:
            return versions[[*versions][-1]]
        if version not in versions:
            those = ", ".join(versions)
            raise UnknownModelError(f"no model {name}, version {version}; there are {those}")
        return versions[version]

    def is_ready(self, *models: ServedModel) -> bool:
        """Whether these models, or all, are warm, if they shall be, and the server does not end."""
        return not self.ends and self._cold.isdisjoint(models or self.models())

    async def results(self, model: ServedModel, request: InferRequest) -> dict[str, Value]:
        """What a model answers, by name; cancelled before its turn, it costs nothing."""
        for name in request.outputs:
            if name not in model.executable.outputs:
                raise ArgumentError(f"the model has no output {name!r}")
        (own,) = await self.every_result(model, [request.feed])
        return dict(zip(model.executable.outputs, own, strict=True))

    async def every_result(
        self, model: ServedModel, feeds: Sequence[Feed], what: str = "request"
    ) -> list[list[Value]]:
        """The results of several requests of one client; an error notes of which, called `what`."""
        futures = [asyncio.wrap_future(f) for f in self.queue.submit(model, feeds)]
        try:
            return [await _noting(f"in {what} {i}", future) for i, future in enumerate(futures)]
        finally:
            for future in futures:  # if one failed, nobody waits for the others
                if not future.cancel() and not future.cancelled():
                    future.exception()

    async def beside(self, does: Callable[..., T], *arguments: Any) -> T:
        """A result, by a thread that keeps nobody else waiting."""
        return await anyio.to_thread.run_sync(does, *arguments, limiter=self._beside)

    async def read(self, work: int, does: Callable[..., T], *arguments: Any) -> T:
        """What `does` gives of `work` bytes of lists, by another thread; if they are few, at once.

        To hand them to another thread takes 0.1 ms, and longer where all cores are busy.
        """
        return does(*arguments) if work < OWN_THREAD else await self.beside(does, *arguments)

    @contextmanager
    def counted(self, model: ServedModel) -> Iterator[Callable[[], None]]:
        """While an answer is made, which is counted by its status and timed.

        The time begins anew when what it gives is called: the request is here.
        """
        start, status = time.perf_counter(), STATUSES[HungUpError]
        labels = model.name, model.version

        def begin() -> None:
            nonlocal start
            start = time.perf_counter()

        try:
            yield begin
            status = 200
        except Exception as e:
            status = status_of(e)
            raise
        finally:
            self.metrics.requests.labels(*labels, str(status)).inc()
        self.metrics.seconds.labels(*labels).observe(time.perf_counter() - start)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While it lasts files are looked at; then what waits is answered, and it ends."""
        Thread(target=self._warm, daemon=True).start()  # the end does not wait for a compiler
        looking = asyncio.create_task(self._look())
        try:
            yield
        finally:  # also if gRPC does not start, or what ends before fails
            self.ends = True
            looking.cancel()
            await anyio.to_thread.run_sync(self.queue.close)
            if self._traffic is not None:
                self._write(self._traffic)

    def _warm(self) -> None:
        for model in self.models():
            if model in self._cold and not self.ends:
                try:
                    model.executable.warm_up()
                except Exception as e:  # it stays unready, which who watches services sees
                    LOGGER.error("%s is not warmed up: %r", model.name, e)
                else:
                    self._cold.remove(model)

    def _write(self, folder: Path) -> None:
        """Write what was asked for, for `bucketize partition`, `optimize` and `drift`.

        A file that cannot be written is told, and the others are.
        """
        for model in self.models():
            alone = len(self.versions[model.name]) == 1
            name = model.name if alone else f"{model.name}/{model.version}"
            path = folder / f"{name}.csv"
            try:
                if (traffic := model.executable.traffic) is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    traffic.write(path)
            except (BucketizeError, OSError) as e:
                LOGGER.error("the sizes of %s are lost: %s", name, e)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOKED_S)
            for model in self.models():
                await anyio.to_thread.run_sync(attend, model, self._warms)


def check_writable(folder: Path | None) -> None:
    """Raise BucketizeError for a folder of traffic that could not be written to at the end."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BucketizeError(f"cannot write to {folder}: {e.strerror}") from e
    if not takes_files(folder):
        raise BucketizeError(f"cannot write to {folder}")


async def _noting(note: str, result: Awaitable[T]) -> T:
    try:
        return await result
    except BucketizeError as e:
        own = copy(e)  # others that shared the call have the same one
        own.add_note(note)
        raise own from e.__cause__


def attend(model: ServedModel, warm_up: bool = False) -> None:
    """Look at a model; whatever goes wrong is told, and is looked at again."""
    for look in (partial(renew, warm_up=warm_up), watch):
        try:
            look(model)
        except Exception as e:
            LOGGER.error("%s: %r", model.name, e)


def watch(model: ServedModel) -> None:
    """Tell when requests do not come as planned, and when they do so again."""
    if model.drift is None:
        return
    differed = bool(model.drift.changes)
    looked = model.drift.look(model.executable.traffic, model.executable.as_counted)
    if looked and model.drift.changes:
        changes = "; ".join(map(str, model.drift.changes))
        LOGGER.warning("%s: requests do not come as planned: %s", model.name, changes)
    elif looked and differed:
        LOGGER.warning("%s: requests come as planned again", model.name)


def renew(model: ServedModel, warm_up: bool = False) -> None:
    """Serve by the file that is there now; what cannot be loaded is told, and the old stays."""
    if model.path is None or (now := identity(model.path)) == model.identity:
        return
    model.identity = now
    if now is None:
        LOGGER.warning("%s is gone: what was in it is served until it is there again", model.path)
        return
    try:
        new = load(model.path, trusted=model.trusted)
        if warm_up:
            new.warm_up()
        model.executable.replace(new)
    except BucketizeError as e:
        LOGGER.warning("%s is not served: %s", model.path, e)
    else:
        LOGGER.info("%s is served by what is in %s now", model.name, model.path)


def _check(model: ServedModel) -> None:
    """Raise what is wrong with a model: no words of the protocol's, or a plan of another model."""
    for name, type_ in {**model.inputs, **model.outputs}.items():
        if not isinstance(type_, TensorType):
            what = f"{model.name}: {name} is {type_}"
            raise ProgramError(f"{what}, no tensor: the protocol has none")
    if model.drift is not None:
        model.drift.check(model.name, model.symbols)
