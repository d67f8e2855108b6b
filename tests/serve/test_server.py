"""The server as clients see it: a process of its own, asked over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from onnx_model import parse

import bucketize
from bucketize import ops, zoo
from bucketize.errors import KernelError, ProgramError
from bucketize.ir import Builder, Const, Module, Var
from bucketize.loader import identity
from bucketize.serve import __main__ as own
from bucketize.serve.drift import DriftAlarm
from bucketize.serve.listen import _Web, address, listening
from bucketize.serve.model import ServedModel, named
from bucketize.serve.queue import Queue
from bucketize.serve.server import OWN_THREAD, Server, attend, renew, watch
from bucketize.types import Symbol, tensor
from dispatchers import log_dispatcher

WAIT_S = 600.0  # only what hangs takes as long


def mlp(scale: float = 1.0) -> bucketize.Executable:
    x, out = Var("x", tensor("float32", Symbol("N", 1, 64), 4)), Builder()
    y = out.emit(ops.mul, x, out.emit(ops.full, shape=(), value=scale, dtype="float32"))
    mod = Module({"main": out.function("main", [x], [y])})
    return bucketize.compile(bucketize.dispatch(mod, log_dispatcher))


class Client:
    """What asks a server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET" if body is None else "POST", path, body, named)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.headers, content

    def infer(self, x: np.ndarray, model: str = "net", name: str = "x") -> np.ndarray:
        told = {
            "name": name,
            "datatype": "FP32",
            "shape": list(x.shape),
            "data": x.ravel().tolist(),
        }
        status, _, content = self.ask(
            f"/v2/models/{model}/infer", json.dumps({"inputs": [told]}).encode()
        )
        assert status == 200, content
        (y,) = json.loads(content)["outputs"]
        return np.array(y["data"], np.float32).reshape(y["shape"])


class Process:
    """A server of the command line."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-P", "-m", "bucketize.cli", "serve", *arguments, "--port", "0"]
        path = os.pathsep.join(p for p in sys.path if p)
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert first, self.process.communicate()[1]
        self.client = Client(int(first.split("/")[2].split(":")[1]))
        self.grpc_port = 0
        if "--grpc-port" in arguments:
            while not first.startswith("grpc://"):
                first = self.process.stdout.readline()
            self.grpc_port = int(first.rpartition(":")[2])

    def end(self, how: int = signal.SIGTERM) -> str:
        self.process.send_signal(how)
        return self.process.communicate(timeout=WAIT_S)[1]

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@contextmanager
def served_here(server: Server) -> Iterator[Client]:
    """A server in this process."""
    config = listening(server, "127.0.0.1", 0)
    its, listens = uvicorn.Server(config), config.bind_socket()
    listens.listen()
    serving = threading.Thread(target=its.run, kwargs={"sockets": [listens]})
    serving.start()
    yield Client(listens.getsockname()[1])
    its.should_exit = True
    serving.join()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("serve")
    mlp().save(place / "net.bkt")
    return place


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with Process(folder, "net.bkt", "other=net.bkt", "--body-bytes", "100000") as its:
        yield its.client
        its.end()


X = np.arange(12, dtype=np.float32).reshape(3, 4)
POST = b"POST /v2/models/net/infer HTTP/1.1\r\nHost: a\r\n"


def test_what_the_server_says_of_itself(client: Client) -> None:
    status, _, content = client.ask("/v2")
    assert status == 200
    assert json.loads(content)["models"] == ["net", "other"]
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/net/ready"):
        assert client.ask(path)[0] == 200
    assert json.loads(client.ask("/v2/models/net/ready")[2]) == {"name": "net", "ready": True}
    told = json.loads(client.ask("/v2/models/net/versions/1")[2])
    assert told["inputs"][0]["parameters"]["symbols"] == {"N": [1, 64]}


def test_requests_are_answered(client: Client) -> None:
    for count in (1, 3, 64):
        x = np.full((count, 4), count, np.float32)
        np.testing.assert_array_equal(client.infer(x), x)
    np.testing.assert_array_equal(client.infer(X, "other"), X)


def test_tensors_are_answered_as_bytes(client: Client) -> None:
    told = {"name": "x", "datatype": "FP32", "shape": [3, 4]}
    told["parameters"] = {"binary_data_size": X.nbytes}
    text = json.dumps({"inputs": [told], "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference_Header_Content_Length": str(len(text))}
    status, got, content = client.ask("/v2/models/net/infer", text + X.tobytes(), **headers)
    length = int(got["Inference-Header-Content-Length"])
    assert (status, content[length:]) == (200, X.tobytes())


def test_clients_at_once_get_their_own_answers(client: Client) -> None:
    def ask(i: int) -> bool:
        x = np.full((1 + i % 64, 4), i, np.float32)
        return bool((client.infer(x) == x).all())

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(300)))


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v2/models/nope", None, 404, "no model nope; there are net, other"),
        ("/v2/nothing", None, 404, "GET /v2/nothing: Not Found"),
        ("/v2/models/net/infer", None, 405, "GET /v2/models/net/infer: Method Not Allowed"),
        ("/v2/models/net/versions/9", None, 404, "no model net, version 9"),
        ("/v2/models/net/infer", b"{", 400, "no request of the protocol"),
        ("/v2/models/net/infer", b"x" * 100_001, 413, "a body has at most 100000 bytes"),
        (
            "/v2/models/net/infer",
            b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}',
            400,
            "input 'x', axis 1: expected 4, got 3",
        ),
        (
            "/v2/models/net/infer",
            b'{"inputs": [{"name": "z", "datatype": "FP32", "shape": [0], "data": []}]}',
            400,
            "no input named 'z'",
        ),
        (
            "/v2/models/net/infer",
            b'{"inputs": [], "outputs": [{"name": "z"}]}',
            400,
            "the model has no output 'z'",
        ),
    ],
)
def test_what_is_wrong_is_told_and_others_are_served(
    client: Client, path: str, body: bytes | None, status: int, message: str
) -> None:
    got, _, content = client.ask(path, body)
    assert (got, message in json.loads(content)["error"]) == (status, True), content
    assert "in request" not in content.decode()
    np.testing.assert_array_equal(client.infer(X), X)


def test_a_body_is_not_unpacked(client: Client) -> None:
    status, _, content = client.ask("/v2/models/net/infer", b"x", content_encoding="gzip")
    assert (status, b"Content-Encoding gzip is not taken" in content) == (400, True)


def test_metrics_count_what_was_asked(client: Client) -> None:
    client.infer(X)
    text = client.ask("/metrics")[2].decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert float(lines['bucketize_requests_total{model="net",status="200",version="1"}']) >= 1
    assert float(lines['bucketize_weight_bytes{model="net",version="1"}']) >= 0
    assert float(lines["bucketize_arena_bytes"]) >= 0
    assert float(lines['bucketize_requests_waiting{model="net",version="1"}']) == 0


def test_another_program_in_its_place_serves_and_the_end_is_graceful(tmp_path: Path) -> None:
    """No request is lost; sizes are written when it ends."""
    path = tmp_path / "net.bkt"
    mlp().save(path)
    with Process(tmp_path, "net.bkt", "--traffic", "sizes") as its:
        answers: list[float] = []
        ends = threading.Event()

        def ask() -> None:
            while not ends.is_set():
                answers.append(float(its.client.infer(np.ones((2, 4), np.float32)).max()))

        asking = threading.Thread(target=ask)
        asking.start()
        mlp(3.0).save(path)
        end = time.monotonic() + WAIT_S
        while 3.0 not in answers and time.monotonic() < end:
            time.sleep(0.05)
        (tmp_path / "damaged").write_bytes(b"damage")
        (tmp_path / "damaged").replace(path)
        time.sleep(1.5)
        ends.set()
        asking.join()
        said = its.end()
        assert set(answers) == {1.0, 3.0}
        assert answers == sorted(answers)
        assert "net.bkt is not served: " in said
        written = bucketize.Traffic.read(tmp_path / "sizes" / "net.csv")
        assert written.total == len(answers)


def test_what_cannot_be_served_is_told_at_the_start(
    run: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    twice = "two models are called net, version 1: give names, as in NAME=net.bkt or NAME:2=net.bkt"
    bucketize.Traffic(("S",), np.array([[1]]), np.array([1])).write(tmp_path / "plan.csv")
    bucketize.Traffic(("N",), np.array([[99]]), np.array([1])).write(tmp_path / "far.csv")
    (tmp_path / "zero" / "net" / "0").mkdir(parents=True)
    shutil.copy("net.bkt", tmp_path / "zero" / "net" / "0" / "model.bkt")
    for arguments, message in (
        (["net.bkt", "net.bkt"], twice),
        (["none.onnx"], "none.onnx"),
        (["net.bkt", "--latency", "soon"], "expected a time, as in 20ms or 1.5s, got 'soon'"),
        (["net:latest=net.bkt"], "a version is a number from 1, got 'latest'"),
        ([str(tmp_path)], "holds no model: expected onnx/model.onnx, as"),
        ([f"net={tmp_path}"], "a folder of models has names of its own"),
        (["net.bkt", "--planned", "a=b.csv"], "--planned: no model a; there are net"),
        (["net.bkt", "--planned", f"{tmp_path}/plan.csv"], "no symbol of net named 'S'"),
        (["net.bkt", "--planned", f"{tmp_path}/far.csv"], "net: N=99 is out of its bounds [1, 64]"),
        (["net.bkt", "--traffic", "net.bkt/x"], "cannot write to net.bkt/x: Not a directory"),
        (["..=net.bkt"], "no model can be called '..': expected signs that can be printed"),
        (["a\nb=net.bkt"], r"no model can be called 'a\nb': expected signs that can be printed"),
        (["net:2=net.bkt", "net:02=net.bkt"], "two models are called net, version 2"),
        ([str(tmp_path / "zero")], "a version is a number from 1"),
        (["net.bkt", "--tokenizer", "t.json"], "there is no t.json: give a tokenizer"),
    ):
        done = run("serve", *arguments)
        assert done.exit_code == 2
        assert message in " ".join(done.stderr.split())


def test_a_port_that_others_have_is_told(run: Any, folder: Path) -> None:
    program = str(folder / "net.bkt")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for ports in (("--port", "0", "--grpc-port", port), ("--port", port)):
            told = run("serve", program, *ports)
            assert told.exit_code == 2
            assert f"cannot listen at 127.0.0.1:{port}: Address already in use" in told.stderr
    told = run("serve", program, "--port", port, "--grpc-port", port)
    assert told.exit_code == 2
    assert f"HTTP and gRPC need ports of their own, both have {port}" in told.stderr
    assert address("::1", 8000) == "[::1]:8000"


def versions(folder: Path, *scales: float) -> list[str]:
    for version, scale in enumerate(scales, 1):
        place = folder / "net" / str(version)
        place.mkdir(parents=True)
        mlp(scale).save(place / "model.bkt")
    return [str(folder)]


@pytest.mark.parametrize("as_folder", [True, False])
def test_of_several_versions_the_highest_answers(tmp_path: Path, as_folder: bool) -> None:
    """Each is replaced by itself."""
    arguments = versions(tmp_path, 1.0, 2.0)
    if not as_folder:
        files = {n: tmp_path / "net" / n / "model.bkt" for n in ("1", "2")}
        arguments = [f"net:2={files['2']}", f"net={files['1']}"]
    bucketize.Traffic(("N",), np.array([[1]]), np.array([9])).write(tmp_path / "plan.csv")
    with Process(tmp_path, *arguments, "--planned", "net=plan.csv") as its:
        one = np.ones((1, 4), np.float32)
        assert its.client.infer(one).max() == 2
        assert its.client.infer(one, "net/versions/1").max() == 1
        told = json.loads(its.client.ask("/v2/models/net/versions/2")[2])
        assert (told["versions"], told["parameters"]) == (["1", "2"], {"drift": []})
        status, _, content = its.client.ask("/v2/models/net/versions/3")
        assert (status, json.loads(content)["error"]) == (
            404,
            "no model net, version 3; there are 1, 2",
        )
        mlp(5.0).save(tmp_path / "net" / "1" / "model.bkt")
        wait_until(lambda: its.client.infer(one, "net/versions/1").max() == 5)
        assert its.client.infer(one).max() == 2
        text = its.client.ask("/metrics")[2].decode()
        assert 'bucketize_requests_total{model="net",status="200",version="2"} 2.0' in text
        its.end()


def test_requests_that_do_not_come_as_planned_are_told(caplog: pytest.LogCaptureFixture) -> None:
    planned = bucketize.Traffic(("N",), np.arange(1, 9)[:, None], np.full(8, 100))
    model = ServedModel("net", "1", mlp(), drift=DriftAlarm(planned))
    server = Server([model], Queue(1, 1))
    watch(model)
    for sizes, differs in (([64], 1.0), (range(1, 9), 0.0)):
        few, rest = 100, 1000
        for count in (few, rest):
            feeds = [{"x": np.zeros((size, 4), np.float32)} for size in (*sizes,) * count]
            model.executable.run_many(feeds[:count])
            watch(model)
            said = caplog.messages
            assert not differs or bool(said) == (count == rest), "a few are not looked at"
        line = f'bucketize_drifted{{model="net",version="1"}} {differs}'
        assert line in server.metrics.text().decode()
    assert said[0].startswith("net: requests do not come as planned: sizes of N differ by 1.00")
    assert said[1:] == ["net: requests come as planned again"]


def test_a_call_beyond_the_memory_of_its_model_is_refused(tmp_path: Path) -> None:
    """Rows of a module that was saved are not known to keep apart: it is not cut."""
    x, out = Var("x", tensor("float32", Symbol("N", 1, None), 4)), Builder()
    y = out.emit(ops.matmul, x, out.emit(ops.transpose, x, axes=(1, 0)))
    mod = Module({"main": out.function("main", [x], [out.emit(ops.reduce_sum, y, axes=(1,))])})
    bucketize.compile(mod).save(tmp_path / "net.bkt")
    with Process(tmp_path, "net.bkt", "--limit-bytes", "1000000") as its:
        assert its.client.infer(X).shape == (3,)
        told = {"name": "x", "datatype": "FP32", "shape": [20_000, 4]}
        told["parameters"] = {"binary_data_size": 320_000}
        text = json.dumps({"inputs": [told]}).encode()
        headers = {"Inference_Header_Content_Length": str(len(text))}
        status, _, content = its.client.ask(
            "/v2/models/net/infer", text + bytes(320_000), **headers
        )
        assert status == 400
        told = rb"the call takes 1,600,4\d\d,\d\d\d bytes, and 1,000,000 are left by a limit"
        assert re.search(told, content)  # with what a kernel works in, which hangs on its vectors
        assert its.client.infer(X).shape == (3,)


@pytest.mark.parametrize("length", ["-1", "\u00b2", "9" * 5_000])
def test_a_length_that_is_none_is_no_fault_of_ours(client: Client, length: str) -> None:
    headers = {"Inference_Header_Content_Length": length}
    status, _, content = client.ask("/v2/models/net/infer", b"{}", **headers)
    assert (status, b"expected a number, got " in content) == (400, True)


@pytest.mark.parametrize("is_binary", [False, True])
def test_a_long_answer_to_a_short_request_is_written_beside_others(
    monkeypatch: pytest.MonkeyPatch, is_binary: bool
) -> None:
    """But one that is copied is written at once: to hand it over takes longer."""
    x, out = Var("x", tensor("float32", Symbol("N", 1, 64), 1)), Builder()
    y = out.emit(ops.mul, x, Const(np.ones((1, OWN_THREAD // 4), np.float32)))
    exe = bucketize.compile(Module({"main": out.function("main", [x], [y])}))
    server, done = Server([ServedModel("net", "1", exe)], Queue(1, 10)), list[str]()
    beside = server.beside

    def seen(does: Callable[..., Any], *arguments: Any) -> Any:
        done.append(does.__name__)
        return beside(does, *arguments)

    monkeypatch.setattr(server, "beside", seen)
    with served_here(server) as client:
        x_told = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}
        asked = {"inputs": [x_told], "parameters": {"binary_data_output": is_binary}}
        status, headers, body = client.ask("/v2/models/net/infer", json.dumps(asked).encode())
        told = json.loads(body[: int(headers.get("inference-header-content-length", len(body)))])
        assert (status, told["outputs"][0]["shape"]) == (200, [1, OWN_THREAD // 4])
    assert done == ([] if is_binary else ["_answer"])


def test_who_hangs_up_before_its_turn_takes_its_request_along() -> None:
    """One request runs; of two that wait one client goes."""
    exe, calls, may_end = mlp(), list[int](), threading.Event()
    run = exe.run

    def slow(**named: Any) -> Any:
        calls.append(1)
        assert may_end.wait(WAIT_S)
        return run(**named)

    exe.run = slow  # type: ignore[method-assign,assignment]
    queue, model = Queue(1, 100), ServedModel("net", "1", exe)
    with served_here(Server([model], queue)) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.infer, X)
        wait_until(lambda: bool(calls))
        told = {"name": "x", "datatype": "FP32", "shape": [3, 4], "data": X.ravel().tolist()}
        body = json.dumps({"inputs": [told]}).encode()
        gone = socket.create_connection(("127.0.0.1", client.port), WAIT_S)
        gone.sendall(POST + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: queue.waiting(model) == 1)
        other = pool.submit(client.infer, X)
        wait_until(lambda: queue.waiting(model) == 2)
        gone.close()
        text = 'bucketize_requests_total{model="net",status="499",version="1"} 1.0'
        wait_until(lambda: text in client.ask("/metrics")[2].decode())
        may_end.set()
        for future in (first, other):
            np.testing.assert_array_equal(future.result(WAIT_S), X)
    assert calls == [1, 1]


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_model_of_more_than_tensors_is_refused_at_the_start() -> None:
    model = parse("(seq(float[N]) x) => (float[M] y) { y = ConcatFromSequence<axis = 0>(x) }")
    exe = bucketize.compile(bucketize.from_onnx(model))
    with pytest.raises(ProgramError, match=r"net: x is .*, no tensor: the protocol has none"):
        Server([ServedModel("net", "1", exe)], Queue(1, 1))


def test_a_fault_while_looking_at_a_model_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ServedModel("net", "1", mlp())
    monkeypatch.setattr("bucketize.serve.server.watch", lambda _: 1 / 0)
    attend(model)
    assert caplog.messages == ["net: ZeroDivisionError('division by zero')"]


def test_a_server_of_saved_programs_loads_no_compiler() -> None:
    """Which would take a second and tens of MiB."""
    modules = "bucketize.cli.command.serve", "bucketize.serve.listen", "bucketize.loader"
    heavy = {"bucketize.compiler", "llvmlite", "numba", "onnx", "pandas", "scipy", "tokenizers"}
    code = f"import sys, {', '.join(modules)}; print(sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("missing", "of", "options"),
    [("uvicorn", "listen", ()), ("grpc", "grpc", ("--grpc-port", "0"))],
)
def test_what_the_server_needs_is_named(
    run: Any, monkeypatch: pytest.MonkeyPatch, missing: str, of: str, options: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, f"bucketize.serve.{of}", raising=False)
    told = run("serve", "zoo:mlp", *options)
    assert told.exit_code == 2
    assert f"the server needs {missing}: pip install 'bucketize[serve]'" in told.stderr


def test_zoo_models_are_compiled_and_served(tmp_path: Path) -> None:
    with Process(tmp_path, "zoo:mlp", "-d", "log", "--latency", "60s") as its:
        sizes = {"N": 2}
        (x,) = zoo.inputs("mlp", sizes).values()
        told = {
            "name": "data",
            "datatype": "FP32",
            "shape": list(x.shape),
            "data": x.ravel().tolist(),
        }
        status, _, content = its.client.ask(
            "/v2/models/mlp/infer", json.dumps({"inputs": [told]}).encode()
        )
        assert status == 200
        (y,) = json.loads(content)["outputs"]
        want = bucketize.compile(
            bucketize.from_onnx(zoo.build("mlp"), bounds=zoo.BOUNDS["mlp"])
        ).run(x)
        np.testing.assert_allclose(np.reshape(y["data"], y["shape"]), want[0], rtol=1e-4, atol=1e-6)
        its.end(signal.SIGINT)


class WarmedLater:
    """A model that is warm when it is let, and one of the same that is warmed up at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **later: Any) -> None:
        self.may_end, cold, other = threading.Event(), mlp(), mlp()

        def warm_up() -> None:
            assert self.may_end.wait(WAIT_S)
            raise later["fault"] if later else StopIteration

        def slowly() -> None:
            with suppress(StopIteration):
                warm_up()

        monkeypatch.setattr(cold, "warm_up", slowly)
        self.models = ServedModel("other", "1", other), ServedModel("slow", "1", cold)
        self.server = Server(self.models, Queue(1, 10), warm_up=True)


def test_a_model_is_ready_when_it_is_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    its = WarmedLater(monkeypatch)

    def is_ready(client: Client, path: str) -> bool:
        status, _, content = client.ask(path)
        assert (status == 200) == json.loads(content)["ready"] == (status != 503)
        return status == 200

    with served_here(its.server) as client:
        wait_until(lambda: is_ready(client, "/v2/models/other/ready"))
        assert not is_ready(client, "/v2/models/slow/versions/1/ready")
        assert not is_ready(client, "/v2/health/ready")
        assert client.ask("/v2/health/live")[0] == 200
        assert set(its.models[0].executable.routines) > {"main"}
        np.testing.assert_array_equal(client.infer(X, "slow"), X)  # who asks is answered
        its.may_end.set()
        wait_until(lambda: is_ready(client, "/v2/health/ready"))
        assert is_ready(client, "/v2/models/slow/ready")
        its.server.ends = True
        assert not is_ready(client, "/v2/health/ready")
        assert not is_ready(client, "/v2/models/other/ready")


def test_what_cannot_be_warmed_up_is_told_and_not_ready(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    its = WarmedLater(monkeypatch, fault=KernelError("no room in the cache"))
    its.may_end.set()
    with served_here(its.server):
        wait_until(lambda: "slow is not warmed up: KernelError('no room in" in caplog.text)
        assert its.server.is_ready(its.models[0])
        assert not its.server.is_ready(its.models[1])


def test_a_signal_ends_readiness() -> None:
    server = Server([ServedModel("net", "1", mlp())], Queue(1, 10))
    web = _Web(listening(server, "127.0.0.1", 0), server)
    assert server.is_ready()
    web.handle_exit(signal.SIGTERM, None)
    assert web.should_exit
    assert not server.is_ready()
    server.queue.close()


def test_sizes_of_each_version_have_a_file_and_one_that_is_lost_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = {("net", "1"): 1, ("net", "2"): 2, ("net-2", "1"): 3, ("other", "1"): 4}
    queue = Queue(1, 9)
    models = [ServedModel(*key, mlp()) for key in names]
    server = Server(models, queue, traffic=tmp_path)
    for model, size in zip(models, names.values(), strict=True):
        model.executable.run(np.zeros((size, 4), np.float32))
    (tmp_path / "other.csv").mkdir()
    with served_here(server):
        pass
    for (name, version), size in names.items():
        file = f"{name}/{version}.csv" if name == "net" else f"{name}.csv"
        if name != "other":
            assert bucketize.Traffic.read(tmp_path / file).histogram("N") == {size: 1}
    (line,) = caplog.messages
    assert line.startswith("the sizes of other are lost: ")


def test_a_file_that_is_gone_is_told_once(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(shutil.copy(folder / "net.bkt", tmp_path))
    model = ServedModel("net", "1", bucketize.load(path), path)
    before = model.executable.image
    path.unlink()
    for _ in range(2):
        renew(model)
    (line,) = caplog.messages
    assert line.endswith("net.bkt is gone: what was in it is served until it is there again")
    shutil.copy(folder / "net.bkt", tmp_path)
    renew(model)
    assert model.executable.image is not before


def test_a_path_may_have_the_sign_that_names_end_with(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "lr=0.1"
    place.mkdir()
    path = shutil.copy(folder / "net.bkt", place)
    assert named(str(path)) == ("", str(path))
    assert named(f"a={path}") == ("a", str(path))
    with Process(tmp_path, str(path), f"a b={path}") as its:
        assert its.client.infer(X).shape == X.shape
        assert its.process.stdout is not None
        assert its.process.stdout.readline().endswith("/v2/models/net/infer\n")
        assert its.client.infer(X, "a%20b").shape == X.shape
        assert its.end() == ""


def test_what_replaces_a_model_that_shall_be_warm_is(folder: Path) -> None:
    model = ServedModel("net", "1", bucketize.load(folder / "net.bkt"), folder / "net.bkt")
    for warm_up in (False, True):
        model.identity = None  # as of another file
        renew(model, warm_up=warm_up)
        assert (len(model.executable.routines) > 1) == warm_up


def test_a_file_that_takes_the_place_of_one_while_it_is_loaded_is_served(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "net.bkt", folder / "net.bkt"
    shutil.copy(other, path)

    def slow(its: Path, **how: bool) -> bucketize.Executable:
        executable = bucketize.load(its, **how)
        mlp().save(path)
        return executable

    monkeypatch.setattr(own, "load", slow)
    server = own._server(own.parser().parse_args([f"net={path}"]))
    (model,) = server.models()
    first = model.executable.image
    assert model.identity != identity(path)
    renew(model)
    assert model.executable.image is not first
    server.queue.close()
