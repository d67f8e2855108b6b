"""Measuring by Dask workers: real ones, killed too, and pretended ones on other machines."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import distributed
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx_model import parse

from bucketize.cli.group import main
from bucketize.errors import BucketizeWarning, TuneError, UnknownNameError
from bucketize.ir import Builder, Const, Module, Var
from bucketize.kernel.templates import TEMPLATES
from bucketize.log.environment import here
from bucketize.log.log import LogWarning, rows, select
from bucketize.log.outcome import Outcome
from bucketize.machine.host import host
from bucketize.measure import cluster as cluster_module
from bucketize.measure import runner as measure
from bucketize.measure.cluster import Cluster, GoneError, WorkerMachine, connected
from bucketize.measure.race import LEAST, Race
from bucketize.measure.runner import LostError, Worker
from bucketize.ops import matmul, relu
from bucketize.program.configuration import Configuration
from bucketize.tune.api import tune
from bucketize.tune.task import Subject, subjects_of
from bucketize.types import Symbol, tensor

GRID: Mapping[str, Any] = {"search": "grid", "trials": 8, "sizes": "middle"}


def module() -> Module:
    x = Var("x", tensor("float32", Symbol("N", 1, 64), 128))
    out = Builder()
    y = out.emit(relu, out.emit(matmul, x, Const(np.ones((128, 256), np.float32))))
    return Module({"main": out.function("main", [x], [y])})


def clone_of(subject: Subject) -> tuple[Module, str, int]:
    return subject.module, subject.function, subject.program.threads


def measured(log: Path) -> list[tuple[str, ...]]:
    """What was measured by itself, apart from what confirmed it."""
    return sorted(
        (t.workload, t.template, t.schedule, t.shape) for t in rows(log) if t.source != "confirm"
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.csv"


# --- pretended clusters --------------------------------------------------------------------------


class Pretended:
    """As much of a client as `Cluster` asks for; its workers are threads, which may be lost."""

    status = "running"

    def __init__(self, *machines: object, threads: int = 1) -> None:
        self.scheduler = SimpleNamespace(address="tcp://s:1")
        self.machines = {f"tcp://w:{i}": machine for i, machine in enumerate(machines)}
        self.threads = threads
        self.pool = ThreadPoolExecutor()
        self.asked: list[str] = []
        self.fate: Callable[[str], str] = lambda address: "finished"

    def nthreads(self) -> dict[str, int]:
        return dict.fromkeys(self.machines, self.threads)

    def run(self, _: object, workers: list[str], on_error: str) -> dict[str, object]:
        return {address: self.machines[address] for address in workers}

    def submit(self, function: Any, *args: Any, workers: list[str], **_: object) -> Any:
        (address,) = workers
        self.asked.append(address)
        fate = self.fate(address)
        future: Any = SimpleNamespace(
            key=f"{len(self.asked)}",
            status=fate,
            add_done_callback=lambda tell: None if fate == "pending" else tell(future),
            cancel=lambda: None,
            result=lambda timeout: function(*args),
            exception=lambda: self.failure,
        )
        return future

    def cancel(self, _: object) -> None:
        return None


HERE = WorkerMachine(here(), host(), 2)


def machine(**more: Any) -> WorkerMachine:
    return replace(HERE, environment=replace(here(), **more))


@pytest.mark.parametrize(
    ("client", "options", "message"),
    [
        (Pretended(), {}, "no workers; start one: dask worker tcp://s:1 --nworkers 1 --nthreads 1"),
        (Pretended(machine(numba_version="0.1")), {}, r"w:0 has numba 0\.1, the client 0\.\d+"),
        (Pretended(machine(llvmlite_version="0.1")), {}, r"w:0 has llvmlite 0\.1, the client 0\."),
        (Pretended(machine(bucketize_version="9")), {}, r"w:0 has bucketize 9, the client 0\."),
        (Pretended(HERE, threads=4), {}, r"w:0 has 4 threads, but .* start it with --nthreads 1"),
        (Pretended(HERE, ModuleNotFoundError("No bucketize")), {}, "w:1 fails: ModuleNot.*: No bu"),
        (
            Pretended(HERE, machine(host_cpu="z80", host_cores=1), HERE),
            {},
            r"several kinds, .* \(--host, .*\n  2 x .*\n  1 x z80, 1 cores, features",
        ),
    ],
)
def test_workers_that_do_not_fit_are_refused(
    client: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TuneError, match=message):
        Cluster(client, patience_s=0.0, **options)


def test_a_part_of_its_name_chooses_a_kind() -> None:
    client = Pretended(HERE, machine(host_cpu="z80"), machine(host_cpu="z8000"), HERE)
    chosen = Cluster(client, host="z80,")
    assert (chosen.lanes, chosen.environment.host_cpu) == (1, "z80")
    with pytest.raises(UnknownNameError, match=r"no kind of worker named '6502'; known: .*z80,"):
        Cluster(client, host="6502")


def test_who_comes_later_measures_if_it_fits() -> None:
    client = Pretended(HERE)
    cluster = Cluster(client)
    client.machines["tcp://w:1"] = HERE
    assert cluster.lanes == 2
    client.machines |= {"tcp://w:2": machine(host_cpu="z80"), "tcp://w:3": OSError("it went")}
    with pytest.warns(BucketizeWarning) as warned:
        assert cluster.lanes == 2
    assert [str(w.message)[:40] for w in warned] == [
        "left out: the worker tcp://w:3 fails: OS",
        "left out: the worker tcp://w:2 is anothe",
    ]
    assert cluster.lanes == 2  # told once


def echo(client: Pretended, *said: object) -> list[tuple[int, object]]:
    """What comes of saying things on the workers."""
    cluster = Cluster(client, patience_s=0.0)
    starts = [partial(lambda what, address: cluster.start(address, str, what), s) for s in said]
    return list(cluster.spread(starts))


def test_what_workers_began_is_finished_when_it_is_late_and_nothing_else_begins() -> None:
    client = Pretended(HERE, HERE)
    cluster = Cluster(client, patience_s=0.0)
    starts = [partial(lambda i, address: cluster.start(address, str, i), i) for i in range(6)]
    came = list(cluster.spread(starts, is_late=lambda: len(client.asked) >= 2))
    assert sorted(came) == [(0, "0"), (1, "1")]
    assert len(client.asked) == 2
    assert not list(cluster.measured([None], lambda: True))  # type: ignore[list-item]
    assert len(client.asked) == 2


def test_what_was_lost_is_tried_by_another_once() -> None:
    client = Pretended(HERE, HERE)
    client.fate = lambda address: "finished" if address == "tcp://w:1" else "pending"

    def nthreads() -> dict[str, int]:
        if len(client.asked) > 1:
            client.machines.pop("tcp://w:0", None)
        return dict.fromkeys(client.machines, 1)

    client.nthreads = nthreads  # type: ignore[method-assign]
    assert echo(client, "a", "b") == [(1, "b"), (0, "a")]  # as they come
    assert client.asked == ["tcp://w:0", "tcp://w:1", "tcp://w:1"]


def test_what_was_lost_twice_is_given_up() -> None:
    client = Pretended(HERE)
    client.fate = lambda _: "cancelled" if len(client.asked) in (1, 2) else "finished"
    assert echo(client, "a", "b") == [(0, None), (1, "b")]
    client = Pretended(HERE)
    client.fate, client.failure = lambda _: "error", distributed.KilledWorker("t", "w", 3)
    assert echo(client, "a") == [(0, None)]


def test_what_fails_on_a_worker_is_an_error_that_names_it() -> None:
    client = Pretended(HERE)
    client.fate, client.failure = lambda _: "error", OSError("No space left")
    with pytest.raises(TuneError, match="worker tcp://w:0 fails: OSError: No space left"):
        echo(client, "a")
    client.failure = TuneError("refused")
    with pytest.raises(TuneError, match="refused") as e:
        echo(client, "a")
    assert e.value.notes == ("on the worker tcp://w:0",)


def test_who_is_asked_first() -> None:
    client = Pretended(HERE, HERE)
    cluster = Cluster(client)
    starts = [lambda address: cluster.start(address, str, "a")]
    for address in client.machines:
        assert list(cluster.spread(starts, rather=[address])) == [(0, "a")]
    assert client.asked == ["tcp://w:0", "tcp://w:1"]


def test_all_workers_gone_is_an_error() -> None:
    client = Pretended(HERE)
    cluster = Cluster(client, patience_s=0.0)
    client.machines.clear()
    with pytest.raises(GoneError, match="all Dask workers are gone; start one: dask worker tcp"):
        list(cluster.spread([lambda address: None]))


def test_a_plugin_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TuneError, match="cannot import the plugin no_such_plugin: No module"):
        cluster_module._measured(Worker().limits, ("no_such_plugin",), None)  # type: ignore[arg-type]


def test_a_measurer_or_a_client(log: Path) -> None:
    with pytest.raises(TuneError, match="a measurer or a client, not both"):
        tune(module(), log=log, measurer=Worker(), client=Pretended(HERE))


def test_without_distributed_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(TuneError, match=r"pip install 'bucketize\[cluster\]'"), connected("tcp:"):
        pass


def test_what_listens_and_is_no_scheduler_is_not_waited_for() -> None:
    """As a dashboard, which takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        message = f"no Dask scheduler answers at {address}: what listens there does not greet as"
        with pytest.raises(TuneError, match=message), connected(address, 0.5):
            pass


def test_tls_that_nobody_configured_is_an_error() -> None:
    message = "no Dask scheduler answers at tls://127.0.0.1:9: TLS expects"
    with pytest.raises(TuneError, match=message), connected("tls://127.0.0.1:9", 0.5):
        pass


def test_an_address_where_no_scheduler_answers() -> None:
    message = "no Dask scheduler answers at tcp://127.0.0.1:9: "
    with pytest.raises(TuneError, match=message), connected("tcp://127.0.0.1:9", 0.5):
        pass


@pytest.mark.parametrize("address", ["nowhere", "foo://a:3"])
def test_a_malformed_address_makes_no_client(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One would wait for 40 seconds at its end."""
    monkeypatch.setattr(distributed, "Client", None)
    with pytest.raises(TuneError, match=f"answers at {address}: "), connected(address):
        pass


# --- a cluster on this machine -------------------------------------------------------------------


WORKERS = 2
LONG_S = 900.0  # only what hangs takes as long


@contextmanager
def forked_after(*imports: str) -> Iterator[None]:
    """Dask's workers begin with these modules."""
    context = distributed.utils.get_mp_context()  # it tells what else to import, the first time
    context.set_forkserver_preload([*imports])
    yield


@pytest.fixture(scope="module")
def local() -> Iterator[Any]:
    """Its workers are forked by a process that has imported what they need: many are killed."""
    waits = dict.fromkeys(["connect", "tcp"], f"{LONG_S:g}s")
    options = {f"distributed.comm.timeouts.{name}": of for name, of in waits.items()}
    with (
        dask.config.set({**options, "distributed.worker.multiprocessing-method": "forkserver"}),
        forked_after(distributed.__name__, cluster_module.__name__),
        distributed.LocalCluster(
            processes=True, n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def client(local: Any) -> Any:
    """With all of its workers, those among them that come in place of killed ones."""
    local.wait_for_workers(WORKERS, timeout=LONG_S)
    return local


class Watched(Cluster):
    """Tells which worker did what, and kills those that it is told to."""

    patience_s: float = LONG_S

    def __post_init__(self) -> None:
        self.did: list[str] = []
        self.kill: Callable[[int], bool] = lambda _: False
        super().__post_init__()

    def start(self, address: str, function: Callable[..., Any], *args: Any) -> Any:
        pid = self.client.run(os.getpid, workers=[address])[address]
        while not self.is_watched(address):
            time.sleep(0.01)
        future = super().start(address, function, *args)
        self.did.append(address)
        if self.kill(len(self.did)):
            os.kill(pid, signal.SIGKILL)
        return future

    def is_watched(self, address: str) -> bool:
        """Whether its nanny knows it, and has another worker come if it is killed."""
        nannies = self.client.cluster.workers.values()
        running = (n for n in nannies if n.status is distributed.Status.running)
        return address in (n.worker_address for n in running)


def test_a_cluster_tries_what_one_machine_tries(client: Any, log: Path) -> None:
    frame = tune(module(), log=log, client=client, **GRID)
    direct = log.with_name("direct.csv")
    tune(module(), log=direct, **GRID)
    assert measured(log) == measured(direct)
    assert len(measured(log)) == 8
    assert frame["error_kind"].unique().tolist() == ["none"]
    assert tune(module(), log=log, client=client, **GRID).query("source != 'confirm'").empty


def test_workers_share_the_jobs(client: Any, log: Path) -> None:
    watched = Watched(client)
    tune(module(), log=log, measurer=watched, **GRID)
    assert len(set(watched.did)) == watched.lanes == WORKERS


@pytest.fixture
def faulty() -> Iterator[None]:
    before, child = dict(TEMPLATES), measure.Child
    __import__("faulty")
    yield
    measure.Child = child  # type: ignore[misc]
    TEMPLATES.clear()
    TEMPLATES.update(before)
    del sys.modules["faulty"]


@pytest.mark.slow
def test_kernels_that_go_wrong_are_rows(client: Any, log: Path, faulty: None) -> None:
    x = Var("x", tensor("float32", 256, 512))
    out = Builder()
    mod = Module({"main": out.function("main", [x], [out.emit(relu, x)])})
    measurer = Cluster(client, plugins=["faulty"])
    tune(mod, log=log, measurer=measurer, **{**GRID, "trials": 99})
    kinds = {json.loads(t.schedule).get("fault"): t.error_kind for t in rows(log)}
    known = {"none": "none", "crash": "crash", "broken": "compile", "endless": "compile_timeout"}
    assert kinds | known == kinds
    assert set(client.nthreads()) == set(measurer._measures)  # no worker died of it


def disguised() -> None:
    real = here()
    cluster_module.here = lambda: replace(real, host_cpu="z80", host_cores=1)  # type: ignore[attr-defined]


def undisguised() -> None:
    cluster_module.here = here  # type: ignore[attr-defined]


@pytest.fixture
def disguise(client: Any) -> Iterator[Callable[..., None]]:
    yield partial(client.run, disguised)
    client.run(undisguised)


def test_rows_are_of_the_workers_machine(
    client: Any, log: Path, disguise: Callable[..., None]
) -> None:
    direct = tune(module(), log=log, **GRID)
    disguise()
    with pytest.warns(LogWarning, match="measured elsewhere: .* with host_cpu"):
        frame = tune(module(), log=log, client=client, **GRID)
    assert set(zip(frame["host_cpu"], frame["host_cores"], strict=True)) == {("z80", 1)}
    assert len(measured(log)) == 16  # what one machine knows is nothing to another
    with pytest.warns(LogWarning, match="with host_cpu z80"):
        assert len(select(rows(log))) == len(direct)


def test_one_kind_of_several(client: Any, log: Path, disguise: Callable[..., None]) -> None:
    first, second = client.nthreads()
    disguise(workers=[second])
    with pytest.raises(TuneError, match="1 x z80, 1 cores"):
        Cluster(client)
    watched = Watched(client, host="z80")
    frame = tune(module(), log=log, measurer=watched, **GRID)
    assert set(watched.did) == {second} != {first}
    assert set(frame["host_cpu"]) == {"z80"}


def test_two_threads_are_what_the_workers_have(client: Any, log: Path) -> None:
    tune(module(), log=log, client=client, threads=2, **{**GRID, "trials": 1})
    assert {t.threads for t in rows(log)} == {2}
    with pytest.raises(TuneError, match=r"threads: expected 1 to \d+, got 999"):
        tune(module(), log=log, client=client, threads=999)


class Faster(Watched):
    """All but the default seem fast; clones are truly timed."""

    def measured(self, jobs: Any, *_: object, **__: object) -> Iterator[tuple[int, list[Outcome]]]:
        for i, job in enumerate(jobs):
            fast = [Outcome(seconds=(1e-6,) * 9)] * (len(job.implementations) - 1)
            yield i, [Outcome(seconds=(2e-6,) * 9), *fast]


def test_clones_are_timed_on_a_worker(client: Any, log: Path) -> None:
    """As here: in place, and as a whole."""
    watched = Faster(client)
    tune(module(), log=log, measurer=watched, **GRID)
    levels = Counter(t.level for t in rows(log))
    assert levels["place"] == 1
    assert levels["clone"] >= 1
    assert watched.did
    (place,) = (t for t in rows(log) if t.level == "place")
    assert place.repeats >= LEAST
    assert place.latency_median_s is not None


@pytest.mark.slow
def test_a_clone_whose_worker_is_lost_is_timed_by_another(client: Any) -> None:
    watched = Watched(client)
    watched.kill = lambda count: count == 1
    (subject,) = subjects_of(module())
    ((ours, theirs),) = watched.race(*clone_of(subject)).whole(Configuration(), [({"N": 3}, 1.0)])
    assert len(ours) == len(theirs) >= LEAST
    assert len(set(watched.did)) == len(watched.did) == 2
    watched.kill = lambda _: True
    with pytest.raises(LostError, match="2 workers were lost while they timed main"):
        watched.race(*clone_of(subject)).places(Configuration(), [({"N": 3}, 1.0)])


@pytest.mark.slow
def test_a_killed_worker_costs_its_trials_another_try(client: Any, log: Path) -> None:
    watched = Watched(client)
    watched.kill = lambda count: count == 2
    frame = tune(module(), log=log, measurer=watched, **GRID)
    assert len(measured(log)) == 8
    assert len(watched.did) >= 3
    assert set(frame["error_kind"]) == {"none"}


@pytest.mark.slow
def test_trials_that_are_lost_twice_are_left_to_the_next_session(client: Any, log: Path) -> None:
    watched = Watched(client)
    watched.kill = lambda count: count in (1, 2)
    one = {**GRID, "trials": 4}
    with pytest.warns(BucketizeWarning, match="4 trials of .* at 8x128,128x256 were lost"):
        tune(module(), log=log, measurer=watched, **one)
    assert not measured(log)
    tune(module(), log=log, client=client, **one)
    assert len(measured(log)) == 4


@pytest.mark.slow
def test_what_is_lost_while_it_is_confirmed_is_no_verdict(client: Any, log: Path) -> None:
    watched = Faster(client)
    watched.kill = lambda _: True
    with pytest.warns(BucketizeWarning, match="nothing is confirmed for main: 2 workers were lost"):
        tune(module(), log=log, measurer=watched, **GRID)
    assert {t.level for t in rows(log)} == {"kernel"}


def test_a_race_travels_without_what_it_linked() -> None:
    (subject,) = subjects_of(module())
    race = Race(*clone_of(subject))
    before = pickle.dumps(race)
    race.whole(Configuration(), [({"N": 3}, 1.0)])
    assert len(pickle.dumps(race)) <= len(before) + 100
    assert pickle.loads(before).function == "main"


# --- a cluster of processes ----------------------------------------------------------------------


class Processes:
    """A scheduler and a worker, as the documentation starts them."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        quiet = {"cwd": folder, "stderr": subprocess.DEVNULL}
        dask = [sys.executable, "-m", "dask"]
        where = ("--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        self.scheduler = subprocess.Popen([*dask, "scheduler", *where], **quiet)
        one = ("--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--no-nanny")
        self.worker = subprocess.Popen([*dask, "worker", self.address, *one], **quiet)

    def close(self) -> None:
        for process in (self.worker, self.scheduler):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def started() -> Iterator[list[Processes]]:
    started = list[Processes]()
    yield started
    for processes in started:
        processes.close()


@pytest.fixture
def processes(started: list[Processes], tmp_path_factory: pytest.TempPathFactory) -> Processes:
    """Those that another test left, if it left them alive."""
    if not started or started[-1].scheduler.poll() is not None:
        started.append(Processes(tmp_path_factory.mktemp("dask")))
        with connected(started[-1].address, LONG_S) as client:
            client.wait_for_workers(1, timeout=LONG_S)
    return started[-1]


@pytest.mark.slow
def test_the_command_line_tunes_on_a_cluster(processes: Processes, tmp_path: Path) -> None:
    onnx.save(parse("(float[N, 9] x) => (float[N, 9] y) { y = Softmax(x) }"), tmp_path / "net.onnx")
    log = str(tmp_path / "t.csv")
    args = ["tune", str(tmp_path / "net.onnx"), "--dim", "N=1..4", "--log", log, "--trials", "2"]
    done = CliRunner().invoke(main, [*args, "--scheduler", processes.address])
    assert done.exit_code == 0, done.output
    assert rows(log)
    wrong = CliRunner().invoke(main, [*args, "--scheduler", processes.address, "--host", "z80"])
    assert "error: no kind of worker named 'z80'; known: " in wrong.output
    alone = CliRunner().invoke(main, [*args, "--host", "z80"])
    assert "--host is for --scheduler, but it is not used" in alone.output
    assert (wrong.exit_code, alone.exit_code) == (2, 2)


SCRIPT = """
import pickle, sys
from bucketize.measure.cluster import connected
from bucketize.tune.api import tune
def progress(told):
    if told.done >= 2:
        print("so many", flush=True)
        sys.stdin.read()
with connected(sys.argv[1]) as client:
    module, options = pickle.loads(bytes.fromhex(sys.stdin.readline()))
    tune(module, log=sys.argv[2], client=client, progress=progress, **options)
"""


@pytest.mark.slow
def test_a_killed_client_and_a_killed_scheduler_keep_the_rows(
    processes: Processes, log: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SCRIPT, processes.address, str(log)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    first = subprocess.Popen(command, env=paths, **pipes)
    assert first.stdin is not None
    assert first.stdout is not None
    options = {**GRID, "trials": 30}
    first.stdin.write(pickle.dumps((module(), options)).hex().encode() + b"\n")
    first.stdin.flush()
    assert first.stdout.readline() == b"so many\n"
    first.kill()
    first.communicate()
    kept = rows(log)
    assert 2 <= len(kept) < 30

    def kill(progress: Any) -> None:
        if len(rows(log)) > len(kept) + 3:
            processes.scheduler.kill()

    with connected(processes.address) as client, pytest.raises(GoneError) as e:
        tune(module(), log=log, client=client, progress=kill, **options)
    assert "the Dask scheduler at tcp://127.0.0.1" in str(e.value)
    (note,) = e.value.notes
    added = len(rows(log)) - len(kept)
    assert added > 3
    assert (
        note == f"{log} keeps the {added} trials of this session; the same call goes on from there"
    )
    assert rows(log)[: len(kept)] == kept
    assert max(Counter(measured(log)).values()) == 1
