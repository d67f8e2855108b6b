"""Who shares a process: two models in turns, and a model in turns with or beside other libraries.

In turns: so many calls of both, one after the other, by what as many of each alone take. Beside:
both at once, each in a thread of its own, by what each serves alone. The median of the rounds, with
the least and the greatest; the ways take turns. Each has as many threads as it says.
"""

from __future__ import annotations

import importlib
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

import bucketize
from benchmarks.contexts import rates
from benchmarks.figure import Figure, needs_cores, ratios
from bucketize import zoo
from bucketize.machine.target import cores
from bucketize.timing import Call, interleaved

Case: TypeAlias = tuple[str, Mapping[str, int]]

PAIRS: Sequence[tuple[Case, Case]] = (
    (("bert-mini", {"B": 1, "S": 64}), ("mlp", {"N": 64})),
    (("bert-mini", {"B": 1, "S": 128}), ("mobilenetv2", {"N": 1, "H": 224, "W": 224})),
    (("resnet18", {"N": 1, "H": 224, "W": 224}), ("mobilenetv2", {"N": 1, "H": 224, "W": 224})),
)
OURS: Case = ("bert-mini", {"B": 1, "S": 64})
"""What runs in turns with other libraries, and beside them."""
THREADS = (1, 2)
CALLS, ROUNDS, BESIDE = 20, 15, 7
EXTENT = 512  # of the matrices that other libraries multiply


def main() -> None:
    """Print the ratios of all pairs."""
    for threads in (n for n in THREADS if n <= cores()):
        for a, b in PAIRS:
            told = spread(in_turns(ours(a, threads), ours(b, threads)))
            print(f"{named(a)} in turns with {named(b)}, {threads} threads: {told}", flush=True)
        for library, begun in OTHERS.items():
            with_other(library, begun, threads)


def with_other(library: str, begun: Callable[[int], Any], threads: int) -> None:
    """Print the ratios with one other library, or why there are none."""
    if find_spec(library.partition(",")[0]) is None:
        print(f"{library}: not installed", flush=True)
        return
    head = f"{named(OURS)} %s {library}, {threads} threads each"
    with begun(threads) as other:
        mine = ours(OURS, threads)
        print(f"{head % 'in turns with'}: {spread(in_turns(mine, other))}", flush=True)
        its, others = map(spread, beside(mine, other))
        print(f"{head % 'beside'}: it serves {its}, the other {others} of alone", flush=True)


def in_turns(a: Call, b: Call) -> list[float]:
    """What calls of both in turns take by the sum of each alone, round by round."""
    turn = [a, b]
    calls = {
        "one": partial(_calls, [a] * CALLS),
        "other": partial(_calls, [b] * CALLS),
        "turns": partial(_calls, turn * CALLS),
    }
    taken = interleaved(calls, least=ROUNDS, before=dict.fromkeys(calls, partial(_calls, turn)))
    alone = [x + y for x, y in zip(taken["one"], taken["other"], strict=True)]
    return ratios(taken["turns"], alone)


def _calls(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def beside(a: Call, b: Call) -> tuple[list[float], list[float]]:
    """What each serves while the other does, by what it serves alone, round by round."""
    one, other = list[float](), list[float]()
    for _ in range(BESIDE):
        (alone,), (its,), both = rates([a]), rates([b]), rates([a, b])
        one.append(both[0] / alone)
        other.append(both[1] / its)
    return one, other


def spread(samples: Sequence[float]) -> str:
    """The median, with the least and the greatest."""
    return f"{statistics.median(samples):.3f} ({min(samples):.2f} .. {max(samples):.2f})"


def named(case: Case) -> str:
    """A model at its sizes."""
    name, sizes = case
    return f"{name} {' '.join(f'{symbol}={size}' for symbol, size in sizes.items())}"


def ours(case: Case, threads: int) -> Call:
    """A call of an executable."""
    name, sizes = case
    module = bucketize.from_onnx(zoo.build(name), bounds=zoo.BOUNDS[name])
    call = partial(bucketize.compile(module, threads=threads).run, **zoo.inputs(name, sizes))
    call()
    return call


# --- other libraries -----------------------------------------------------------------------------


@contextmanager
def numpy_product(threads: int) -> Iterator[Call]:
    """A product by numpy's OpenBLAS."""
    limits: Any = importlib.import_module("threadpoolctl").threadpool_limits
    a, out = np.ones((EXTENT, EXTENT), np.float32), np.empty((EXTENT, EXTENT), np.float32)
    with limits(threads, "blas"):
        yield partial(np.matmul, a, a, out)


@contextmanager
def torch_product(threads: int) -> Iterator[Call]:
    """A product by torch."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(threads)
    a = torch.ones(EXTENT, EXTENT)
    yield partial(torch.mm, a, a)


@contextmanager
def onnxruntime_session(threads: int, settings: Mapping[str, str]) -> Iterator[Call]:
    """The same model in onnxruntime, whose threads look for work in a loop unless told not to."""
    ort: Any = importlib.import_module("onnxruntime")
    options, (name, sizes) = ort.SessionOptions(), OURS
    options.intra_op_num_threads = threads
    for key, value in settings.items():
        options.add_session_config_entry(key, value)
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model.onnx"
        onnx.save(zoo.build(name), path)
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        yield partial(session.run, None, zoo.inputs(name, sizes))


OTHERS: dict[str, Callable[[int], Any]] = {
    "numpy": numpy_product,
    "torch": torch_product,
    "onnxruntime": partial(onnxruntime_session, settings={}),
    "onnxruntime, spinning off": partial(
        onnxruntime_session, settings={"session.intra_op.allow_spinning": "0"}
    ),
}


def quick() -> list[Figure]:
    """The first pair, on two threads."""
    needs_cores(2)
    a, b = PAIRS[0]
    samples = in_turns(ours(a, 2), ours(b, 2))
    return [Figure.of(f"{a[0]} and {b[0]} in turns, 2 threads, by the sum of each", "", samples)]


if __name__ == "__main__":
    main()
