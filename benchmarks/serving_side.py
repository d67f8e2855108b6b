"""A server of one encoder, a process of its own: `run_many` behind the queue, or onnxruntime.

    python -m benchmarks.serving_side SIDE MODEL THREADS LATENCY_S

Queue, protocol, deadline and limits are the same code; what differs is how requests share a call.
It prints its port, serves by gRPC, and ends by SIGTERM.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import bucketize
from benchmarks.many import MODELS
from bucketize.machine.target import cores
from bucketize.op import Array
from bucketize.serve.grpc import Rpc
from bucketize.serve.model import ServedModel
from bucketize.serve.queue import AT_ONCE, Queue
from bucketize.serve.server import Server

OURS, PEER = "bucketize", "onnxruntime, padded"
BATCH = 8
WAITING = 100_000  # the deadline alone refuses


class Padded:
    """onnxruntime in place of an executable: padded batches of requests in order of arrival."""

    def __init__(self, model: str, threads: int) -> None:
        """Read the model; what it takes and gives is told by bucketize."""
        onnxruntime: Any = importlib.import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        proto = MODELS[model]()
        whole, providers = proto.SerializeToString(), ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(whole, options, providers=providers)
        exe = bucketize.compile(bucketize.from_onnx(proto), threads=threads, lazy=True)
        self.program, self.outputs, self.traffic = exe.program, exe.outputs, None

    def constant_bytes(self) -> int:
        """Not known."""
        return 0

    def run(self, **feed: Array) -> Any:
        """The results of one."""
        return dict(self.stream_many([feed]))[0]

    def stream_many(self, requests: Sequence[Mapping[str, Array]]) -> Iterator[tuple[int, Any]]:
        """The results of each, as soon as its batch is done."""
        for begin in range(0, len(requests), BATCH):
            group = requests[begin : begin + BATCH]
            lengths = [request["input_ids"].shape[1] for request in group]
            batch = {
                name: np.concatenate([_padded(r[name], max(lengths)) for r in group])
                for name in group[0]
            }
            (rows,) = self._session.run(None, batch)
            for i, length in enumerate(lengths):
                yield begin + i, [rows[i : i + 1, :length]]


def _padded(array: Array, length: int) -> Array:
    return np.pad(array, ((0, 0), (0, length - array.shape[1])))


def served(side: str, model: str, threads: int) -> tuple[Any, int]:
    """What runs requests, and how many of them a call takes."""
    if side == PEER:
        return Padded(model, threads), BATCH
    ragged = bucketize.ragged(bucketize.from_onnx(MODELS[model]()))
    return bucketize.compile(ragged, threads=threads), AT_ONCE


async def serve(side: str, model: str, threads: int, latency_s: float) -> None:
    """Serve until somebody ends it."""
    executable, at_once = served(side, model, threads)
    queue = Queue(cores(), WAITING, latency_s, at_once)
    server, ends = Server([ServedModel(model, "1", executable)], queue), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    rpc = Rpc(server, "127.0.0.1:0", lambda port: print(port, flush=True))
    async with server.running(), rpc.running():
        await ends.wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
