"""Zoo models on defaults: what they take by the models of their kernels, beside what they take."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import bucketize
from benchmarks.figure import Figure
from bucketize import zoo
from bucketize.inspect.predict import predicted
from bucketize.timing import interleaved, processor_seconds

_IMAGES: list[Mapping[str, int]] = [{"N": 1, "H": e, "W": e} for e in (96, 160, 224)]
_TOKENS: list[Mapping[str, int]] = [{"B": 1, "S": s} for s in (16, 64, 128)]
MODELS: Mapping[str, list[Mapping[str, int]]] = {
    "mlp": [{"N": n} for n in (1, 32, 256)],
    "bert-mini": _TOKENS,
    "bert-base": _TOKENS,
    "mobilenetv2": _IMAGES,
    "resnet18": _IMAGES,
    "resnet50": _IMAGES,
}
LEAST, ENOUGH_S = 9, 0.6
PASSES = 3  # of which the best counts, as of the jobs that constants are fitted to
QUIET = 0.25  # the quantile of a call's times that tells a quiet machine's


@dataclass(frozen=True)
class Compared:
    """A call of a model at some sizes: seconds by the model, and by the clock."""

    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """By how much the one is above or below the other."""
        return float(np.exp(abs(np.log(self.predicted / self.measured)))) - 1


def main() -> None:
    """Print a line for each model at each of its sizes, and the median error of each model."""
    passes = [everything() for _ in range(PASSES)]
    for name, every in MODELS.items():
        errors = []
        for i, sizes in enumerate(every):
            one = min((found[name][i] for found in passes), key=lambda c: c.measured)
            errors.append(one.error)
            at = " ".join(f"{k}={v}" for k, v in sizes.items())
            times = f"{1e3 * one.predicted:8.3f} {1e3 * one.measured:8.3f} ms"
            print(f"{name:12} {at:16} {times} {100 * one.error:5.1f} %", flush=True)
        print(f"{name:12} {'median':16} {'':20} {100 * statistics.median(errors):5.1f} %")


def everything() -> dict[str, list[Compared]]:
    """Each model at each of its sizes."""
    found = {}
    for name, every in MODELS.items():
        exe = bucketize.compile(bucketize.from_onnx(zoo.build(name)))
        found[name] = [compared(exe, name, sizes) for sizes in every]
    return found


def compared(exe: bucketize.Executable, name: str, sizes: Mapping[str, int]) -> Compared:
    """A model at some sizes, in a stream of calls of that shape, on one thread."""
    inputs = zoo.inputs(name, sizes)
    exe.run(**inputs)
    taken = interleaved(
        {"run": lambda: exe.run(**inputs)},
        least=LEAST,
        enough_s=ENOUGH_S,
        stopwatch=processor_seconds,
    )
    seconds = predicted(exe.program, sizes).seconds
    return Compared(seconds, float(np.quantile(taken["run"], QUIET)))


def quick() -> list[Figure]:
    """A product and a convolution at one size each: measured by expected."""
    asked = [("mlp", {"N": 32}), ("resnet18", _IMAGES[0])]
    exes = {name: bucketize.compile(bucketize.from_onnx(zoo.build(name))) for name, _ in asked}
    found = {name: [compared(exes[name], name, at) for _ in range(PASSES)] for name, at in asked}
    return [
        Figure.of(f"{name}, measured by expected", "", [c.measured / c.predicted for c in passes])
        for name, passes in found.items()
    ]


if __name__ == "__main__":
    main()
