"""Requests a second that a server answers by a deadline; beside it, onnxruntime behind its queue.

Each side is a process of its own (`serving_side`), asked by this one over gRPC, tensors as bytes.
Requests come when they come, whether others are answered or not (Poisson), with lengths drawn from
a traffic; latency is from when a request was due. Found is the highest rate at which 99 of 100 are
answered by the deadline and at most one in 100 is refused, to 5 %. Then twice that rate comes: what
is the 99th percentile of the requests that were taken, and how many were refused? Both sides refuse
by the same rule. Client and server share the cores of the machine.
"""

from __future__ import annotations

import asyncio
import csv
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import grpc
import numpy as np

from benchmarks.figure import Figure, needs, ratios
from benchmarks.many import AGREED, MODELS, feeds, lengths
from benchmarks.serving_side import OURS, PEER
from bucketize.cli.table import table
from bucketize.op import Array
from bucketize.serve.grpc import MESSAGES, SERVICE

SIDES = (OURS, PEER)
LENGTHS = ("chunks", "equal")
REFUSED = 0.01  # of requests, at a rate that counts as served
FIRST_RATE, LEAST_RATE, STEP = 16.0, 1.0, 1.05
DRAWN = 100_000  # tokens of the lengths that requests take in turns
WARM = 0.2  # of a probe, whose requests are not counted
CHECKED = (1, 17, 128)
WARMING = 20  # requests
WAIT_S = 600.0


@dataclass(frozen=True)
class Probe:
    """What came of a rate of requests."""

    rate: float
    p50_s: float
    p99_s: float
    """Of requests that were answered."""
    refused: float
    """Share."""
    sent_late_s: float
    """99th percentile: if it is no small part of the deadline, the client was the limit."""

    def serves(self, latency_s: float) -> bool:
        """Whether requests were answered in time."""
        return self.p99_s <= latency_s and self.refused <= REFUSED


@dataclass(frozen=True)
class Case:
    """What is asked for, and how soon."""

    model: str
    lengths: str
    threads: int
    latency_s: float
    seconds: float
    """Of a rate."""

    def messages(self) -> list[bytes]:
        """Requests, which are sent in turns."""
        return [message(self.model, n) for n in lengths(self.lengths, DRAWN)]


@contextmanager
def server(side: str, case: Case) -> Iterator[int]:
    """The port of a side that listens."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.serving_side", side, case.model]
    numbers = str(case.threads), str(case.latency_s)
    its = subprocess.Popen([*command, *numbers], stdout=subprocess.PIPE, text=True)
    assert its.stdout is not None, "it is a pipe"
    try:
        line = its.stdout.readline()
        if not line:
            raise click.ClickException(f"{side} did not start")
        yield int(line)
    finally:
        its.send_signal(signal.SIGTERM)
        its.communicate(timeout=WAIT_S)


def message(model: str, length: int) -> bytes:
    """A request of so many tokens."""
    (feed,) = feeds([length])
    inputs = [{"name": n, "datatype": "INT64", "shape": a.shape} for n, a in feed.items()]
    raw = [a.tobytes() for a in feed.values()]
    request = MESSAGES["ModelInferRequest"](model_name=model, inputs=inputs, raw_input_contents=raw)
    return bytes(request.SerializeToString())


def channel(port: int) -> Any:
    """To a server, for answers of any length."""
    return grpc.aio.insecure_channel(
        f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)]
    )


async def probe(port: int, messages: Sequence[bytes], rate: float, seconds: float) -> Probe:
    """Have requests come at a rate."""
    dice = np.random.default_rng(0)
    due = np.cumsum(dice.exponential(1 / rate, max(int(rate * seconds), 2)))
    async with channel(port) as its:
        infer = its.unary_unary(f"/{SERVICE}/ModelInfer")
        await its.channel_ready()
        start = time.perf_counter()
        asked = []
        for i, at in enumerate(due.tolist()):
            await asyncio.sleep(max(start + at - time.perf_counter(), 0))
            asked.append(asyncio.create_task(_one(infer, messages[i % len(messages)], start + at)))
        outcomes = await asyncio.gather(*asked)
    counted = outcomes[int(WARM * len(outcomes)) :]
    answered = [took for took, _ in counted if took is not None]
    late = np.quantile([late for _, late in counted], 0.99)
    p50, p99 = np.quantile(answered, [0.5, 0.99]).tolist() if answered else (np.inf, np.inf)
    return Probe(rate, p50, p99, 1 - len(answered) / len(counted), float(late))


async def _one(infer: Any, request: bytes, due: float) -> tuple[float | None, float]:
    """Seconds of a request since it was due, None if it was refused; and how late it was sent."""
    late = time.perf_counter() - due
    try:
        await infer(request)
    except grpc.aio.AioRpcError as e:
        if e.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return None, late
    return time.perf_counter() - due, late


def highest(at: Callable[[float], Probe], latency_s: float) -> Probe:
    """The probe of the highest rate that is served: doubled until one is not, then halved between.

    A rate that is not served is asked for twice: something else may have had the machine.
    """

    def served(rate: float) -> Probe | None:
        probes = (at(rate) for _ in range(2))
        return next((each for each in probes if each.serves(latency_s)), None)

    low, best = FIRST_RATE, served(FIRST_RATE)
    while best is None:
        low /= 2
        if low < LEAST_RATE:
            raise click.ClickException(f"{2 * low:g} requests a second are not served in time")
        best = served(low)
    while (more := served(2 * low)) is not None:
        best, low = more, 2 * low
    high = 2 * low
    while high / low > STEP:
        middle = (low * high) ** 0.5
        more = served(middle)
        low, high, best = (middle, high, more) if more else (low, middle, best)
    return best


def measured(case: Case, side: str) -> dict[str, Any]:
    """A side's highest rate, and what it does at twice that: a row of the file."""
    messages = case.messages()
    with server(side, case) as port:
        warm(port, messages)
        at = partial(probed, port, messages, case.seconds)
        best = highest(at, case.latency_s)
        over = {f"overload_{name}": value for name, value in asdict(at(2 * best.rate)).items()}
    return {**asdict(case), "side": side, **asdict(best), **over}


def probed(port: int, messages: Sequence[bytes], seconds: float, rate: float) -> Probe:
    """A probe, in an event loop of its own."""
    return asyncio.run(probe(port, messages, rate, seconds))


def warm(port: int, messages: Sequence[bytes]) -> None:
    """Have kernels built and the queue learn what a request takes."""
    for each in messages[:WARMING]:
        asyncio.run(answer(port, each))


async def answer(port: int, request: bytes) -> Array:
    """What a request comes to."""
    async with channel(port) as its:
        response = MESSAGES["ModelInferResponse"].FromString
        infer = its.unary_unary(f"/{SERVICE}/ModelInfer", response_deserializer=response)
        told = await infer(request)
    (output,), (raw,) = told.outputs, told.raw_output_contents
    return np.frombuffer(raw, np.float32).reshape(output.shape)


def compare(case: Case) -> None:
    """Raise unless both sides come to the same."""
    patient = replace(case, latency_s=WAIT_S)
    with server(OURS, patient) as ours, server(PEER, patient) as peer:
        for length in CHECKED:
            request = message(case.model, length)
            one, other = (asyncio.run(answer(port, request)) for port in (ours, peer))
            if (off := float(np.abs(one - other).max())) > AGREED:
                what = f"{case.model}, {length} tokens"
                raise click.ClickException(f"{what}: the sides are {off:.1e} apart")


def turns(case: Case, rounds: int) -> list[dict[str, Any]]:
    """Rows of both sides, as often as wanted, in turns."""
    return [measured(case, side) for _ in range(rounds) for side in SIDES]


def by_peer(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Rates by those of the peer, round by round."""
    ours, theirs = ([row["rate"] for row in rows if row["side"] == side] for side in SIDES)
    return ratios(ours, theirs)


def append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows behind those of a file."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


@click.command()
@click.option("-m", "--model", default="bert-mini", type=click.Choice([*MODELS]), show_default=True)
@click.option("-l", "--lengths", "names", multiple=True, type=click.Choice(LENGTHS))
@click.option("-t", "--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--latency-ms", type=click.FloatRange(1), default=200, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.5), default=20, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A CSV file to write.")
def main(model: str, names: tuple[str, ...], output: Path | None, **options: Any) -> None:
    """Print what each side serves by the deadline, and append it to a file."""
    needs("onnxruntime")
    own = options["threads"], options["latency_ms"] / 1000, options["seconds"]
    cases = [Case(model, name, *own) for name in names or LENGTHS]
    compare(cases[0])
    for case in cases:
        rows = turns(case, options["rounds"])
        append(output or Path("serving.csv"), rows)
        click.echo(table(rows))
        shown = ", ".join(f"{ratio:.2f}" for ratio in by_peer(rows))
        click.echo(f"{model}, {case.lengths}: {shown} of the requests a second of {PEER}")


def quick() -> list[Figure]:
    """Chunks through bert-mini: requests a second by those of the peer."""
    needs("onnxruntime")
    rows = turns(Case("bert-mini", "chunks", 1, 0.3, 1.5), 1)
    return [Figure.of("bert-mini, chunks, rate by onnxruntime, padded", "", by_peer(rows))]
