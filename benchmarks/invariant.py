"""What invariant sums cost: calls of one row and of many, by those of the same model without."""

from __future__ import annotations

import statistics
from functools import partial

import bucketize
from benchmarks.figure import Figure
from bucketize import zoo
from bucketize.timing import interleaved

BERT = [{"B": 1, "S": n} for n in (1, 2, 4, 8, 16, 32, 64, 128, 512)]
ROWS = [{"N": n} for n in (1, 2, 3, 4, 8, 64, 1024)]
IMAGE = [{"N": n, "H": 224, "W": 224} for n in (1, 3)]
MODELS = {
    "mlp": ROWS,
    "bert-mini": BERT,
    "bert-base": BERT[3:7],
    "mobilenetv2": IMAGE,
    "resnet18": IMAGE,
}
LEAST, ENOUGH_S = 7, 1.0  # rounds at a size, and seconds


def measured(name: str, points: list[dict[str, int]]) -> list[float]:
    """At each size the time of invariant sums by that without, the median of rounds in turns."""
    mod = bucketize.from_onnx(zoo.build(name))
    exes = {each: bucketize.compile(mod, invariant=each) for each in (False, True)}
    ratios = []
    for sizes in points:
        inputs = zoo.inputs(name, sizes)
        runs = {str(each): partial(exe.run, **inputs) for each, exe in exes.items()}
        taken = interleaved(runs, least=LEAST, enough_s=ENOUGH_S, before=runs)
        pairs = zip(taken["True"], taken["False"], strict=True)
        ratios.append(statistics.median(a / b for a, b in pairs))
    return ratios


def main() -> None:
    """Print a row for each model."""
    for name, points in MODELS.items():
        ratios = measured(name, points)
        shown = ", ".join(
            f"{list(at.values())[0 if 'N' in at else -1]}: {ratio:.2f}"
            for at, ratio in zip(points, ratios, strict=True)
        )
        print(f"  {name:<12} {statistics.geometric_mean(ratios):.3f}   {shown}", flush=True)


def quick() -> list[Figure]:
    """The perceptron, one row."""
    return [Figure.of("mlp, one row, invariant", "", measured("mlp", ROWS[:1]))]
