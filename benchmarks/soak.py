"""A server under load for long, with good clients among hostile ones: every answer is checked.

`bucketize serve` is a process of its own, with two saved programs: an encoder, asked by gRPC at a
rate that comes and goes (each half minute there is more than it can do, for some seconds), and an
mlp, asked over HTTP. Files are put in the place of theirs again and again, some of them broken.
Each answer is compared with those of the programs that may serve. Clients of `hostile` come one
after the other, some of each kind at any time, and are to be told what is wrong with them. Each
second the server's memory, threads and files are written down.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import click
import grpc
import numpy as np
import pandas as pd

import bucketize
from benchmarks.figure import Figure
from benchmarks.hostile import CLIENTS, Bad, Ports, answered, infer, posted
from benchmarks.many import feeds, lengths
from benchmarks.serving import WAIT_S, channel, highest, message, probed
from bucketize import zoo
from bucketize.op import Array
from bucketize.serve.grpc import MESSAGES, SERVICE
from bucketize.table import several

MODELS = {"text": "bert-mini", "net": "mlp"}
AGREED = 1e-3
LATENCY_MS = 300.0
LOAD = 0.5  # of the highest rate: hostile clients and the checks have the rest of the machine
BURST, EACH_S, BURST_S = 4.0, 30.0, 5.0  # times the load, how often, and for how long
REPLACED_S = 7.0
BROKEN = 4  # of so many files that are put there one is broken
ROWS = 8
FLAT_MIB = 10.0
LEFT = 8  # files that may be open in the end beyond those of the start
SETTLED_S = 120.0
PROBED_S = 5.0
UNSERVED_S = 10.0  # that nobody is answered for
TOKENS = 8_000  # of the texts that are asked in turns
EXPECTED = ("is not served", "Invalid HTTP request received")
"""What the server may say of broken files, and of what is no HTTP."""
ENDED = (0, -signal.SIGTERM)
"""Codes that it ends with where it is asked to: uvicorn passes the signal on in the end."""
PATH = click.Path(path_type=Path, dir_okay=False)
Pair: TypeAlias = tuple[Array, Array]
"""What either program answers."""


@dataclass(frozen=True)
class Question:
    """A request, and its answers by either program."""

    request: bytes
    answers: Pair


@dataclass(frozen=True)
class Programs:
    """Two of each model, saved, and what is asked."""

    folder: Path
    questions: Mapping[str, Sequence[Question]]

    def put(self, model: str, which: int | None) -> None:
        """Have a program serve; None: one that is broken."""
        path, temporary = self.folder / f"{model}.bkt", self.folder / "next"
        if which is None:
            temporary.write_bytes(b"nothing" * 1000)
        else:
            shutil.copy(self.folder / f"{model}-{which}", temporary)
        temporary.replace(path)


@contextmanager
def programs() -> Iterator[Programs]:
    """Compiled and saved, in a folder of their own."""
    with tempfile.TemporaryDirectory() as name:
        texts = dict.fromkeys(lengths("chunks", TOKENS))
        fed = {
            "text": [feeds([n])[0] for n in texts],
            "net": [zoo.inputs("mlp", {"N": n}) for n in range(1, ROWS + 1)],
        }
        sent = {
            "text": [message("text", n) for n in texts],
            "net": [_posted(feed["data"]) for feed in fed["net"]],
        }
        either = {model: _either(Path(name), model, fed[model]) for model in fed}
        asked = {m: [Question(*q) for q in zip(sent[m], either[m], strict=True)] for m in fed}
        its = Programs(Path(name), asked)
        for model in fed:
            its.put(model, 0)
        yield its


def _either(folder: Path, model: str, fed: Sequence[Mapping[str, Array]]) -> list[Pair]:
    """Answers of both programs of a model, which are saved."""
    answers = []
    for seed in (0, 1):
        mod = bucketize.from_onnx(zoo.build(MODELS[model], seed=seed))
        exe = bucketize.compile(bucketize.ragged(mod) if model == "text" else mod, threads=1)
        exe.save(folder / f"{model}-{seed}")
        answers.append([exe.run(**feed)[0] for feed in fed])
    return list(zip(*answers, strict=True))


def _posted(data: Array) -> bytes:
    tensor = {"name": "data", "datatype": "FP32", "shape": data.shape, "data": data.tolist()}
    return posted(infer("net"), json.dumps({"inputs": [tensor]}).encode())


@dataclass
class Tally:
    """What came of requests."""

    answers: Counter[str] = field(default_factory=Counter)
    """By model and what came: right by the first or the second program, wrong, refused, failed."""
    hostile: Counter[str] = field(default_factory=Counter)
    """Clients that were told what they should, by kind."""
    faults: Counter[str] = field(default_factory=Counter)
    seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    """Of texts that were answered, outside of bursts and in them."""
    unserved_s: float = 0.0
    """The longest time without a right answer."""
    _last: float = field(default_factory=time.monotonic)

    def take(self, model: str, told: Array | str, answers: Pair) -> None:
        """Note an answer, or why there is none."""
        if isinstance(told, str):
            self.answers[f"{model} {told}"] += 1
            return
        which = [i for i, each in enumerate(answers) if agrees(told, each)]
        if not which:
            self.faults[f"{model}: a wrong answer"] += 1
            return
        self.answers[f"{model} {which[0]}"] += 1
        now = time.monotonic()
        self.unserved_s, self._last = max(self.unserved_s, now - self._last), now

    @property
    def right(self) -> int:
        """Requests that were answered."""
        return sum(n for name, n in self.answers.items() if name[-1] in "01")


def agrees(told: Array, wanted: Array) -> bool:
    """Whether an answer is that of a program."""
    return told.shape == wanted.shape and bool(np.abs(told - wanted).max() <= AGREED)


@dataclass(frozen=True)
class Second:
    """The server at a time."""

    second: int
    mib: float
    threads: int
    files: int
    right: int
    refused: int


@dataclass(frozen=True)
class Course:
    """All that was seen."""

    seconds: Sequence[Second]
    tally: Tally
    rate: float
    """Of texts, outside of bursts."""
    files: int
    """Open before the first client came."""
    left: int
    """Open after the last had gone."""
    said: Sequence[str]
    """By the server, on stderr."""
    code: int
    """That it ended with."""

    @property
    def growth(self) -> float:
        """MiB from the second third of the time to the last, of what three quarters had at least.

        Bodies of 64 MiB come and go, and so would a mean; what leaks is always there.
        """
        mib = [each.mib for each in self.seconds]
        third = max(len(mib) // 3, 1)
        before, last = mib[-2 * third : -third] or mib, mib[-third:]
        return float(np.quantile(last, 0.25) - np.quantile(before, 0.25))

    def faults(self) -> list[str]:
        """What is not as it should be."""
        tally = self.tally
        programs = [f"{model} {i}" for model in MODELS for i in (0, 1)]
        unserved = [each for each in programs if each not in tally.answers]
        missing = [kind for kind in CLIENTS if kind not in tally.hostile]
        odd = [line for line in self.said if not any(each in line for each in EXPECTED)]
        found: Mapping[str, bool] = {
            f"memory grew by {self.growth:.1f} MiB": self.growth > FLAT_MIB,
            f"{self.left} files are open, {self.files} at the start": self.left > self.files + LEFT,
            f"nobody was answered for {tally.unserved_s:.0f} s": tally.unserved_s > UNSERVED_S,
            f"never served: {unserved}": bool(unserved),
            f"never came: {missing}": bool(missing),
            "nothing was refused: there was no overload": "text refused" not in tally.answers,
            f"it ended with {self.code}": self.code not in ENDED,
            f"it said {odd[:3]}": bool(odd),
        }
        wrong = [f"{several(n, 'time')} {what}" for what, n in tally.faults.items()]
        return [*wrong, *(what for what, is_so in found.items() if is_so)]


@contextmanager
def server(folder: Path, latency_s: float) -> Iterator[tuple[subprocess.Popen[str], Ports]]:
    """The process that serves both models, and its ports; what it says goes to a file."""
    command = [sys.executable, "-m", "bucketize.cli", "serve", "text.bkt", "net.bkt"]
    told = ["--port", "0", "--grpc-port", "0", "--latency", f"{1000 * latency_s:g}ms"]
    with (folder / "stderr").open("w") as errors:
        its = subprocess.Popen(
            [*command, *told], cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            yield its, _ports(its)
        finally:
            its.send_signal(signal.SIGTERM)
            its.communicate(timeout=WAIT_S)


def _ports(its: subprocess.Popen[str]) -> Ports:
    assert its.stdout is not None, "it is a pipe"
    ports: dict[str, int] = {}
    while len(ports) < len(("http", "grpc")):
        if not (line := its.stdout.readline()):
            raise click.ClickException("the server did not start")
        where = urlsplit(line.strip())
        assert where.port is not None, "it says where it listens"
        ports[where.scheme] = where.port
    return Ports(ports["http"], ports["grpc"])


def observed(pid: int, second: int, tally: Tally) -> Second:
    """The server now."""
    folder = Path(f"/proc/{pid}")
    pages = int((folder / "statm").read_text().split()[1])
    mib = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    threads, files = len(os.listdir(folder / "task")), len(os.listdir(folder / "fd"))
    refused = sum(n for name, n in tally.answers.items() if name.endswith("refused"))
    return Second(second, round(mib, 1), threads, files, tally.right, refused)


@dataclass(frozen=True)
class Load:
    """All clients of a server."""

    ports: Ports
    programs: Programs
    rate: float
    """Texts a second outside of bursts."""
    tally: Tally

    async def for_seconds(self, seconds: float, pid: int) -> list[Second]:
        """Have them come, and look at the server meanwhile."""
        everybody = [self._texts(), self._rows(), self._operator()]
        everybody += [self._hostile(kind, bad) for kind, bad in CLIENTS.items()]
        tasks = [asyncio.create_task(each) for each in everybody]
        seen, start = list[Second](), time.monotonic()
        while (second := round(time.monotonic() - start)) < seconds:
            seen.append(observed(pid, second, self.tally))
            done, _ = await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # none ends by itself
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return seen

    async def _texts(self) -> None:
        dice, start = np.random.default_rng(0), time.monotonic()
        asked, due = self.programs.questions["text"], start
        async with channel(self.ports.rpc) as its, asyncio.TaskGroup() as group:
            respond = MESSAGES["ModelInferResponse"].FromString
            call = its.unary_unary(f"/{SERVICE}/ModelInfer", response_deserializer=respond)
            while True:
                is_burst = (due - start) % EACH_S > EACH_S - BURST_S
                due += dice.exponential(1 / (self.rate * (BURST if is_burst else 1)))
                await asyncio.sleep(max(due - time.monotonic(), 0))
                question = asked[int(dice.integers(len(asked)))]
                group.create_task(self._text(call, question, is_burst))

    async def _text(self, call: Any, question: Question, is_burst: bool) -> None:
        start = time.monotonic()
        try:
            told = await call(question.request)
        except grpc.aio.AioRpcError as e:
            if e.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                self.tally.take("text", "refused", question.answers)
            else:
                self.tally.faults[f"text: {e.code().name} {e.details()}"] += 1
            return
        self.tally.seconds[is_burst].append(time.monotonic() - start)
        (output,), (raw,) = told.outputs, told.raw_output_contents
        array = np.frombuffer(raw, np.float32).reshape(output.shape)
        self.tally.take("text", array, question.answers)

    async def _rows(self) -> None:
        asked = self.programs.questions["net"]
        for i in range(sys.maxsize):
            question = asked[i % len(asked)]
            status, body = await answered(self.ports.http, question.request)
            if status == "200":
                (output,) = json.loads(body)["outputs"]
                array = np.array(output["data"], np.float32).reshape(output["shape"])
                self.tally.take("net", array, question.answers)
            elif status == "429":
                self.tally.take("net", "refused", question.answers)
            else:
                self.tally.faults[f"net: {status} {body[:80]!r}"] += 1
            await asyncio.sleep(0.1)

    async def _operator(self) -> None:
        """Put files in place, and look at the metrics."""
        for i in range(sys.maxsize):
            status, body = await answered(
                self.ports.http, b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
            )
            if status != "200" or b"bucketize_requests_total" not in body:
                self.tally.faults[f"metrics: {status}"] += 1
            await asyncio.sleep(REPLACED_S)
            which = None if i % BROKEN == BROKEN - 1 else (i + i // BROKEN) % 2
            for model in self.programs.questions:
                self.programs.put(model, which)

    async def _hostile(self, kind: str, bad: Bad) -> None:
        while True:
            try:
                seen = await bad.does(self.ports)
            except OSError as e:  # a time-out is one
                seen = repr(e)
            self.tally.hostile[kind] += 1
            if not bad.is_told(seen):
                self.tally.faults[f"{kind}: {seen}, for {bad.told}"] += 1
            await asyncio.sleep(bad.pause_s)


def soaked(minutes: float, latency_s: float, rate: float | None) -> Course:
    """A server from its start to its end."""
    with programs() as its:
        with server(its.folder, latency_s) as (process, ports):
            for question in its.questions["text"]:
                asyncio.run(_warm(ports.rpc, question.request))
            files = observed(process.pid, 0, Tally()).files
            load = Load(ports, its, rate or LOAD * found(ports, its, latency_s), Tally())
            seen = asyncio.run(load.for_seconds(60 * minutes, process.pid))
            left = settled(process.pid, files)
        said = (its.folder / "stderr").read_text().splitlines()
    return Course(seen, load.tally, load.rate, files, left, said, process.returncode)


async def _warm(port: int, request: bytes) -> None:
    async with channel(port) as its:
        await its.unary_unary(f"/{SERVICE}/ModelInfer")(request)


def found(ports: Ports, its: Programs, latency_s: float) -> float:
    """Texts a second that are answered by the deadline while nobody else is there."""
    messages = [question.request for question in its.questions["text"]]
    return highest(partial(probed, ports.rpc, messages, PROBED_S), latency_s).rate


def settled(pid: int, files: int) -> int:
    """Files that are open once all clients are gone, and the server saw it."""
    end = time.monotonic() + SETTLED_S
    while (left := observed(pid, 0, Tally()).files) > files + LEFT and time.monotonic() < end:
        time.sleep(1)
    return left


def summary(course: Course, latency_s: float) -> str:
    """What came of it, line by line; the last is the verdict."""
    tally, last = course.tally, course.seconds[-1]
    answers = ", ".join(f"{name}: {n}" for name, n in sorted(tally.answers.items()))
    hostile = ", ".join(f"{name}: {n}" for name, n in tally.hostile.items())
    p99 = [np.quantile(each or [np.nan], 0.99) for each in tally.seconds.values()]
    mib = [each.mib for each in course.seconds]
    faults = course.faults()
    return "\n".join(
        [
            f"{last.second / 60:.1f} minutes, {course.rate:.1f} texts a second, in bursts "
            f"{BURST:g} times as many; p99 {p99[0]:.3f} s, in bursts {p99[1]:.3f}, of a deadline "
            f"of {latency_s:g}; nobody was answered for {tally.unserved_s:.1f} s at most",
            f"answers (by the first and the second program): {answers}",
            f"hostile clients that came: {hostile}",
            f"{mib[0]:.0f} MiB at first, {max(mib):.0f} at most, {mib[-1]:.0f} in the end, "
            f"{course.growth:+.1f} from the second third of the time to the last; "
            f"{last.threads} threads; {course.left} files open, {course.files} at the start",
            *(f"fault: {fault}" for fault in faults),
            f"FAILED: {several(len(faults), 'fault')}" if faults else "PASSED",
        ]
    )


def figure(frame: pd.DataFrame) -> Any:
    """Memory, files and answers over time."""
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(9, 6), layout="constrained")
    above, middle, below = drawing.subplots(3, 1, sharex=True)
    minutes = frame["second"] / 60
    above.plot(minutes, frame["mib"], linewidth=1)
    above.set_ylabel("MiB resident")
    middle.plot(minutes, frame["files"], linewidth=1, label="files")
    middle.plot(minutes, frame["threads"], linewidth=1, label="threads")
    middle.set_ylabel("open")
    for name in ("right", "refused"):
        below.plot(minutes, frame[name].diff(), linewidth=1, label=name)
    below.set_ylabel("requests a second")
    below.set_xlabel("minutes")
    for axes in (above, middle, below):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    for axes in (middle, below):
        axes.legend(fontsize="small")
    return drawing


@click.command()
@click.option("--minutes", type=click.FloatRange(0.1), default=30, show_default=True)
@click.option("--latency-ms", type=click.FloatRange(1), default=LATENCY_MS, show_default=True)
@click.option("--rate", type=click.FloatRange(0.1), help="Texts a second. Default: found first.")
@click.option("-o", "--output", type=PATH, default="soak.csv", show_default=True)
@click.option("--draw", type=PATH, help="A picture of the file, to write.")
def main(
    minutes: float, latency_ms: float, rate: float | None, output: Path, draw: Path | None
) -> None:
    """Print what came of it, and write the seconds to a file; exit with 1 for a fault."""
    course = soaked(minutes, latency_ms / 1000, rate)
    frame = pd.DataFrame(map(asdict, course.seconds))
    frame.to_csv(output, index=False)
    if draw is not None:
        figure(frame).savefig(draw, dpi=110)
    click.echo(summary(course, latency_ms / 1000))
    if course.faults():
        raise SystemExit(1)


def quick() -> list[Figure]:
    """Some seconds: clients that are waited for have no part yet."""
    course = soaked(0.3, LATENCY_MS / 1000, 4.0)
    most = max(each.mib for each in course.seconds)
    return [Figure.of("bert-mini and mlp among hostile clients, memory", "MiB", [most])]
