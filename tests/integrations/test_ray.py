"""A deployment of Ray Serve and rows of Ray Data, on a cluster of this machine: `make test-ray`."""

from __future__ import annotations

import http.client
import json
import os
import runpy
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bucketize
from bucketize import ops
from bucketize.errors import ShapeError
from bucketize.integrations.ray import Predictor, deployment
from bucketize.ir import Builder, Module, Var
from bucketize.serve.refusal import BusyError
from bucketize.types import Symbol, tensor
from dispatchers import log_dispatcher

ray = pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: make test-ray")

pytestmark = pytest.mark.filterwarnings("default")  # of packages of others

ROOT = Path(__file__).parents[2]
WAIT_S = 300.0  # only what hangs takes as long
HELD = 4  # requests that a replica has at once
X = np.arange(12, dtype=np.float32).reshape(3, 4) / 7


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The softmax of rows."""
    x, out = Var("x", tensor("float32", Symbol("N", 1, 64), Symbol("S", 1, 64))), Builder()
    mod = Module({"main": out.function("main", [x], [out.emit(ops.softmax, x, axis=1)])})
    path = tmp_path_factory.mktemp("ray") / "net.bkt"
    bucketize.compile(bucketize.dispatch(mod, log_dispatcher)).save(path)
    return path


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else one is kept in the home
        for what in ("READY", "HEALTH"):  # a busy machine fails no test
            patch.setenv(f"RAY_SERVE_PROXY_{what}_CHECK_TIMEOUT_S", str(WAIT_S))
        patch.setattr("ray.serve._private.api.HTTP_PROXY_TIMEOUT", WAIT_S)
        ray.init(num_cpus=4, include_dashboard=False, logging_level="error", log_to_driver=False)
        yield
        serve.shutdown()
        ray.shutdown()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def asked(x: np.ndarray) -> tuple[int, Any]:
    """Status and answer over HTTP; 0 if the connection was cut."""
    told = {"name": "x", "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}
    connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=WAIT_S)
    try:
        connection.request("POST", "/v2/models/net/infer", json.dumps({"inputs": [told]}).encode())
        answer = connection.getresponse()
        content = answer.read()
    except (http.client.HTTPException, ConnectionError):
        return 0, None
    finally:
        connection.close()
    return answer.status, json.loads(content) if answer.status == 200 else content.decode()


@pytest.fixture(scope="module")
def handle(cluster: None, program: Path) -> Any:
    return serve.run(deployment(program, num_replicas=2, ray_actor_options={"num_cpus": 0.5}))


def test_replicas_serve_the_same_bits(handle: Any, program: Path) -> None:
    exe = bucketize.load(program)
    (want,) = exe.run(X)
    results = handle.broadcast("infer", {"x": X}).results()
    assert len(results) == 2
    for each in results:
        np.testing.assert_array_equal(each[exe.outputs[0]], want, strict=True)
    counted = handle.broadcast("traffic").results()
    assert [t.total for t in counted] == [1, 1]
    assert counted[0].merged(counted[1]).histogram("N") == {3: 2}


def test_over_http_they_speak_the_protocol(handle: Any, program: Path) -> None:
    (want,) = bucketize.load(program).run(X)
    status, answer = asked(X)
    assert status == 200
    (y,) = answer["outputs"]
    np.testing.assert_array_equal(np.array(y["data"], np.float32).reshape(y["shape"]), want)
    assert asked(np.zeros((65, 1), np.float32))[0] == 400


def test_each_replica_maps_the_file_once(handle: Any, program: Path) -> None:
    """Pages of weights and code are those of the file, so replicas share them."""
    replicas = [p for p in Path("/proc").iterdir() if p.name.isdigit() and is_replica(p)]
    maps = [(p / "maps").read_text().splitlines() for p in replicas]
    mapped = [[line for line in lines if line.endswith(str(program))] for lines in maps]
    starts = [{line.split()[2] for line in lines} for lines in mapped]
    assert len(starts) == 2
    assert all(len(lines) == len(at) > 0 for lines, at in zip(mapped, starts, strict=True))


def is_replica(process: Path) -> bool:
    try:
        return b"ServeReplica:default:net" in (process / "cmdline").read_bytes()
    except OSError:  # it ended
        return False


def test_an_error_is_of_who_asked(handle: Any) -> None:
    with pytest.raises(ShapeError, match="input 'x': expected rank 2") as e:
        handle.infer.remote({"x": X[0]}).result()
    assert "in request" not in str(e.value)


# --- what dies -----------------------------------------------------------------------------------


def slow(program: Path, place: Path) -> Callable[[], bucketize.Executable]:
    """Makes an executable whose calls take a while, and end once `go` is there.

    Beside it processes have files: once they are there, and once calls run.
    """

    def opened() -> bucketize.Executable:
        exe = bucketize.load(program)

        def slowly(call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*requests: Any, **feed: Any) -> Any:
                (place / f"{os.getpid()}.runs").touch()
                time.sleep(0.2)
                while not (place / "go").exists():
                    time.sleep(0.01)
                return call(*requests, **feed)

            return run

        # of one request, and of several: what the queue asks for
        exe.run, exe.stream_many = slowly(exe.run), slowly(exe.stream_many)  # type: ignore[method-assign]
        (place / f"{os.getpid()}.is").touch()
        return exe

    return opened


def living(place: Path, what: str) -> list[int]:
    return [int(p.stem) for p in place.glob(f"*.{what}") if Path("/proc", p.stem).exists()]


def answers_of_all(handle: Any) -> int:
    """How many replicas answer; 0 while the handle knows one that is dead."""
    try:
        return len(handle.broadcast("infer", {"x": X}).results())
    except ray.exceptions.RayActorError:
        return 0


def inputs(count: int) -> list[np.ndarray]:
    return [np.full((1 + i % 8, 3), i, np.float32) * X[0, 1:] for i in range(count)]


def test_a_killed_replica_loses_what_it_had_and_no_more(
    cluster: None, program: Path, tmp_path: Path
) -> None:
    """Handles and HTTP: each request ends, by its own results or by an error."""
    made = deployment(
        slow(program, tmp_path),
        name="net",
        num_replicas=2,
        max_ongoing_requests=HELD,
        ray_actor_options={"num_cpus": 0.5},
    )
    handle = serve.run(made)
    exe, every = bucketize.load(program), inputs(60)
    with ThreadPoolExecutor(20) as pool:
        over_http = [pool.submit(asked, x) for x in every[:20]]
        futures = [handle.infer.remote({"x": x}) for x in every]
        wait_until(lambda: len(living(tmp_path, "runs")) == 2)
        victim = living(tmp_path, "runs")[0]
        os.kill(victim, signal.SIGKILL)
        (tmp_path / "go").touch()
        lost = 0
        for x, future in zip(every, futures, strict=True):
            try:
                (y,) = future.result(timeout_s=WAIT_S).values()
            except ray.exceptions.RayActorError:
                lost += 1
            else:
                np.testing.assert_array_equal(y, exe.run(x)[0], strict=True)
        answers = [future.result() for future in over_http]
    cut = [status for status, _ in answers if status != 200]
    assert 0 < lost + len(cut) <= HELD
    assert set(cut) <= {0, 500, 503}
    wait_until(lambda: len(living(tmp_path, "is")) == 2)
    assert victim not in living(tmp_path, "is")
    wait_until(lambda: answers_of_all(handle) == 2)


def test_what_would_be_late_is_refused_by_replicas(
    cluster: None, program: Path, tmp_path: Path
) -> None:
    (tmp_path / "go").touch()
    made = deployment(slow(program, tmp_path), name="net", latency_s=0.01)
    handle = serve.run(made)
    handle.infer.remote({"x": X}).result()  # it knows now what a request takes
    with ThreadPoolExecutor(8) as pool:
        over_http = [pool.submit(asked, X) for _ in range(8)]
        futures = [handle.infer.remote({"x": X}) for _ in range(8)]
        refused = [e for e in map(failure, futures) if e is not None]
        statuses = {future.result()[0] for future in over_http}
    assert refused
    assert all(isinstance(e, BusyError) for e in refused)
    assert all(e.cause.retry_s > 0 for e in refused)
    assert 429 in statuses <= {200, 429}


def test_no_more_wait_with_ray_than_may(cluster: None, program: Path, tmp_path: Path) -> None:
    made = deployment(
        slow(program, tmp_path), name="net", max_ongoing_requests=1, max_queued_requests=1
    )
    handle = serve.run(made)
    futures = [handle.infer.remote({"x": X}) for _ in range(8)]
    (tmp_path / "go").touch()
    refused = 0
    for future in futures:
        try:
            future.result(timeout_s=WAIT_S)
        except serve.exceptions.BackPressureError:
            refused += 1
    assert 0 < refused < 8


def failure(future: Any) -> Any:
    try:
        future.result(timeout_s=WAIT_S)
    except bucketize.BucketizeError as e:
        return e


# --- rows ----------------------------------------------------------------------------------------


def ragged(i: int) -> dict[str, Any]:
    return {"id": i, "x": np.full(1 + i * 7 % 5, i, np.float32)}


def predicted(rows: list[dict[str, Any]], program: Path) -> Any:
    data = ray.data.from_items(rows, override_num_blocks=4)
    return data.map_batches(
        Predictor,
        fn_constructor_args=(program,),
        fn_constructor_kwargs={"key": "id"},
        batch_size=8,
        num_cpus=0.5,
        compute=ray.data.ActorPoolStrategy(size=2),
    )


def test_rows_of_ray_data_keep_their_order(cluster: None, program: Path) -> None:
    exe = bucketize.load(program)
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    done = predicted([ragged(i) for i in range(40)], program).take_all()
    assert [row["id"] for row in done] == list(range(40))
    for row in done:
        np.testing.assert_array_equal(row["x"], ragged(row["id"])["x"], strict=True)
        want = exe.run(row["x"][None])[0][0]
        np.testing.assert_array_equal(row[exe.outputs[0]], want, strict=True)


def test_an_error_of_ray_data_names_its_row(cluster: None, program: Path) -> None:
    rows = [ragged(i) for i in range(8)]
    rows[5]["x"] = np.ones(65, np.float32)
    with pytest.raises(ray.exceptions.RayTaskError, match=r"in row \d of the batch, id 5"):
        predicted(rows, program).take_all()


@pytest.mark.parametrize(
    ("name", "end"),
    [("serve", "replicas counted 11\n"), ("rows", "'last_hidden_state': (52, 256)}\n")],
)
def test_the_examples_run(
    cluster: None, name: str, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runpy.run_path(str(ROOT / "examples" / "ray" / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.endswith(end)
