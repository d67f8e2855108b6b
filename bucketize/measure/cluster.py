"""Measuring by the workers of a Dask distributed cluster, one measurement at a time on each.

The client says which worker does what: one task each, and the next when it is done. So a worker
that is lost is known by name with what it did, which is tried once more, by another worker.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from threading import Lock, Thread
from typing import Any, TypeAlias, TypeVar, cast

from bucketize.errors import TuneError, unknown_name, warn
from bucketize.ir import Module
from bucketize.log.environment import VERSIONS, Environment, here
from bucketize.log.outcome import Outcome
from bucketize.log.trial import Source
from bucketize.lower.cost import Weighted
from bucketize.machine.host import host
from bucketize.machine.target import Target
from bucketize.measure.dask import POLL_S, TRIES, Future, Loans, Start, distributed
from bucketize.measure.job import Job
from bucketize.measure.process import Limits, import_plugins
from bucketize.measure.race import Pair, Race
from bucketize.measure.runner import MOST_THREADS, LocalRunner, LostError, Worker, never
from bucketize.program.configuration import Configuration

PATIENCE_S = 20.0  # for a scheduler to answer, and for the first worker, or the next, to come

Plugins: TypeAlias = tuple[str, ...]
Found = TypeVar("Found", list[str], dict[str, int])


class GoneError(TuneError):
    """The cluster cannot measure any more."""


@contextmanager
def connected(address: str, patience_s: float = PATIENCE_S) -> Iterator[Any]:
    """A client of the scheduler at an address.

    Raises:
        TuneError: Dask distributed is not installed, or no scheduler answers.

    """
    dask = distributed()
    try:
        dask.comm.get_address_host_port(address)  # a client waits long before it finds it malformed
        start = partial(dask.Client, address, timeout=patience_s, set_as_default=False)
        client = _answered(start, 2 * patience_s)
    except (OSError, ValueError, TypeError) as e:  # TypeError: TLS that nobody configured
        why = str(e) or "what listens there does not greet as one"
        raise TuneError(f"no Dask scheduler answers at {address}: {why}") from e
    with client:
        yield client


def _answered(start: Callable[[], Any], patience_s: float) -> Any:
    """What `start` makes; a TimeoutError if that takes longer.

    A client waits without end for the greeting of what listens and is no scheduler.
    """
    answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            answer.set_result(start())
        except BaseException as e:  # it is raised where it is waited for
            answer.set_exception(e)

    Thread(target=run, daemon=True).start()
    return answer.result(patience_s)


# --- on the workers ------------------------------------------------------------------------------

_measuring = Lock()  # workers may share a process


@dataclass(frozen=True)
class WorkerMachine:
    """What a worker runs on."""

    environment: Environment
    target: Target
    threads: int

    def __str__(self) -> str:
        at = self.environment
        return (
            f"{at.host_cpu}, {at.host_cores} cores, features {at.target_features}, "
            f"Python {at.python_version}, numpy {at.numpy_version}"
        )


def _machine() -> WorkerMachine:
    return WorkerMachine(here(), host(), MOST_THREADS)


@cache
def _worker(limits: Limits, plugins: Plugins) -> Worker:
    """One for the life of the process, with which its children end."""
    return Worker(limits, plugins)


def _measured(limits: Limits, plugins: Plugins, job: Job) -> list[Outcome]:
    with _measuring:
        import_plugins(plugins)
        (outcomes,) = _worker(limits, plugins).measure([job])
    return outcomes


def _raced(
    race: Race, plugins: Plugins, what: str, configuration: Configuration, judged: Weighted
) -> Any:
    with _measuring:
        import_plugins(plugins)
        return getattr(race, what)(configuration, judged)


# --- at the client -------------------------------------------------------------------------------


@dataclass
class Cluster:
    """Measures on all workers of a cluster that have the same kind of processor.

    Raises:
        TuneError: there are no workers, or some that are of other versions, or have several
            threads, or several kinds of processor, of which `host` does not choose one.

    """

    client: Any
    """A `distributed.Client`."""
    host: str = ""
    """A part of the name of one kind of processor, where there are several."""
    limits: Limits = field(default_factory=Limits)
    plugins: Sequence[str] = ()
    patience_s: float = PATIENCE_S
    source: Source | None = None
    has_clock: bool = True
    _measures: dict[str, bool] = field(default_factory=dict, repr=False)
    """Whether a worker that was met measures, by address."""

    def __post_init__(self) -> None:
        present = self._awaited(self._present)
        if not present:
            raise TuneError(f"the cluster has no workers; start one: {self._starting}")
        machines, faults = self._met(present)
        if faults:
            raise TuneError("; ".join(faults.values()))
        machine = _of_one_kind(machines, self.host)
        self.environment, self.target = machine.environment, machine.target
        self.threads = machine.threads
        self._measures = {a: m.environment == self.environment for a, m in machines.items()}

    @property
    def lanes(self) -> int:
        """How many workers measure."""
        return len(self._workers())

    def measured(
        self, jobs: Sequence[Job], is_late: Callable[[], bool] = never
    ) -> Iterator[tuple[int, list[Outcome]]]:
        """The number of a job and its outcomes, as they come; no outcomes if it was lost.

        When it is late no job begins; those that have begun are finished.
        """
        starts = [partial(self.start_job, job) for job in jobs]
        for i, came in self.spread([] if is_late() else starts, is_late=is_late):
            yield i, came or []

    def start_job(self, job: Job, address: str) -> Future:
        """Have a worker measure."""
        return self.start(address, _measured, self.limits, tuple(self.plugins), job)

    def race(self, module: Module, function: str, threads: int) -> _Away:
        """On a worker."""
        return _Away(self, Race(module, function, threads))

    def start(self, address: str, function: Callable[..., Any], *args: Any) -> Future:
        """Have a worker, and no other, call a function."""
        return self.client.submit(
            function, *args, workers=[address], allow_other_workers=False, pure=False
        )

    def spread(
        self,
        starts: Sequence[Start],
        rather: Container[str] = (),
        is_late: Callable[[], bool] = never,
    ) -> Iterator[tuple[int, Any]]:
        """Numbers and results of what workers are to start, as they come; None of what was lost.

        Args:
            starts: what is to be started.
            rather: the addresses of workers that are asked first.
            is_late: whether it is too late to start anything.

        Raises:
            GoneError: the scheduler is gone, or all workers are, and none came in their place.

        """
        loans = Loans(starts, self.patience_s)
        try:
            while loans:
                workers = self._awaited(self._workers)
                if not workers:
                    raise GoneError(f"all Dask workers are gone; start one: {self._starting}")
                loans.lend(sorted(workers, key=lambda address: address not in rather))
                yield from loans.results(workers)
                if is_late():
                    loans.waiting.clear()
        finally:
            if self.client.status == "running":
                self.client.cancel(loans.futures)

    # --- who is there ----------------------------------------------------------------------------

    @property
    def _address(self) -> str:
        return str(self.client.scheduler.address) if self.client.scheduler else "its address"

    @property
    def _starting(self) -> str:
        return f"dask worker {self._address} --nworkers 1 --nthreads 1"

    def _present(self) -> dict[str, int]:
        """The threads of each worker, by address."""
        if self.client.status != "running":
            raise GoneError(f"the Dask scheduler at {self._address} is gone")
        try:
            present: dict[str, int] = self.client.nthreads()
        except OSError as e:
            raise GoneError(f"the Dask scheduler at {self._address} is gone: {e}") from e
        return present

    def _workers(self) -> list[str]:
        """The addresses of those that measure; who came since is asked what it is."""
        present = self._present()
        fresh = {a: threads for a, threads in present.items() if a not in self._measures}
        if fresh:
            machines, faults = self._met(fresh)
            if not self.host:
                others = {a: m for a, m in machines.items() if m.environment != self.environment}
                faults |= {a: f"the worker {a} is another machine: {m}" for a, m in others.items()}
            for fault in faults.values():
                warn(f"left out: {fault}")
            self._measures |= {
                a: a in machines and machines[a].environment == self.environment for a in fresh
            }
        return [a for a in present if self._measures[a]]

    def _awaited(self, look: Callable[[], Found]) -> Found:
        """What is found, as soon as it is anything; at last nothing."""
        end = time.monotonic() + self.patience_s
        while not (present := look()) and time.monotonic() < end:
            time.sleep(POLL_S)
        return present

    def _met(self, threads: Mapping[str, int]) -> tuple[dict[str, WorkerMachine], dict[str, str]]:
        """What some workers run on, and what is wrong with the others, by address."""
        answers = self.client.run(_machine, workers=list(threads), on_error="return")
        faults = {a: f for a, m in answers.items() if (f := _fault(a, m, threads[a]))}
        return {a: m for a, m in answers.items() if a not in faults}, faults


def _fault(address: str, machine: WorkerMachine | BaseException, threads: int) -> str:
    """Why a worker cannot measure; empty if it can."""
    if isinstance(machine, BaseException):
        return f"the worker {address} fails: {type(machine).__name__}: {machine}"
    for name in VERSIONS:
        theirs, ours = getattr(machine.environment, name), getattr(here(), name)
        if theirs != ours:
            what = name.removesuffix("_version")
            return f"the worker {address} has {what} {theirs}, the client {ours}"
    if threads > 1:
        return (
            f"the worker {address} has {threads} threads, but measures one by one: start it with "
            "--nthreads 1"
        )
    return ""


def _of_one_kind(machines: Mapping[str, WorkerMachine], host: str) -> WorkerMachine:
    """The only kind of machine whose name has this part."""
    kinds = Counter(str(machine) for machine in machines.values())
    named = [kind for kind in kinds if host in kind]
    if not named:
        raise unknown_name("kind of worker", host, kinds)
    if len(named) > 1:
        listed = "".join(f"\n  {kinds[kind]} x {kind}" for kind in named)
        raise TuneError(
            "the workers are of several kinds, and a session is for one: choose by a part of its "
            f"name (--host, Cluster(host=)){listed}"
        )
    return next(machine for machine in machines.values() if str(machine) == named[0])


@dataclass(eq=False)
class _Away:
    """What times a clone on whichever worker has time, first of all the one that did before."""

    cluster: Cluster
    clone: Race
    load = None  # nobody asked the worker
    held: dict[str, Future] = field(default_factory=dict)
    """By address, the clone on workers: it is large, and linked once."""

    def places(self, configuration: Configuration, judged: Weighted) -> list[dict[str, Pair]]:
        """At each size the seconds of its workloads between their neighbours."""
        return cast("list[dict[str, Pair]]", self.told("places", configuration, judged))

    def whole(self, configuration: Configuration, judged: Weighted) -> list[Pair]:
        """At each size the seconds of the whole clone."""
        return cast("list[Pair]", self.told("whole", configuration, judged))

    def told(self, *asked: Any) -> Any:
        """What a worker says; a LostError if two were lost."""
        ((_, came),) = self.cluster.spread([partial(self.start, *asked)], rather=self.held)
        if came is None:
            raise LostError(f"{TRIES} workers were lost while they timed {self.clone.function}")
        return came

    def start(
        self, what: str, configuration: Configuration, judged: Weighted, address: str
    ) -> Future:
        """Have a worker time the clone."""
        if address not in self.held:
            client = self.cluster.client
            self.held[address] = client.scatter(self.clone, workers=[address], hash=False)
        clone, plugins = self.held[address], tuple(self.cluster.plugins)
        return self.cluster.start(address, _raced, clone, plugins, what, configuration, judged)


Site: TypeAlias = LocalRunner | Cluster
"""The processors of one kind that measure for a session."""
