"""A decoder token by token: keys and values are handed on, and the past grows from nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import click
import numpy as np

import bucketize
from benchmarks.catalog import ARCHITECTURES, Architecture
from benchmarks.export import EXPORTERS, FILES, exported, file_name
from benchmarks.figure import Figure, needs, ratios
from benchmarks.side import Ways, ours, theirs
from bucketize.analysis.benchmark import OURS, pause
from bucketize.analysis.engines import Run, Session
from bucketize.cli.table import table
from bucketize.compare import worst_error
from bucketize.errors import EngineError
from bucketize.op import Array
from bucketize.progress import Tell, progress_bar

Inputs: TypeAlias = Mapping[str, Array]

PEER = "onnxruntime"
DECODERS = [name for name in ARCHITECTURES if name.endswith("-cache")]
PROMPT = 16  # words that are read at once, before any are made


@dataclass
class Talk:
    """An engine in the midst of a sequence."""

    run: Run
    made: Architecture
    past: dict[str, Array] = field(init=False)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing was said before."""
        empty = self.made.arrays({"B": 1, "S": 1, "P": 0})
        self.past = {name: array for name, array in empty.items() if name.startswith("past_")}

    def step(self, words: Array) -> Array:
        """The logits behind these words, which are of the past from now on."""
        inputs = {"input_ids": words, **self.past}
        start = time.perf_counter()
        logits, *kept = self.run(inputs)
        self.seconds.append(time.perf_counter() - start)
        self.past = dict(zip(self.past, kept, strict=True))
        return logits


@click.command()
@click.option("--model", "-m", "models", type=click.Choice(DECODERS), multiple=True)
@click.option("--exporter", "-e", "exporters", type=click.Choice(EXPORTERS), multiple=True)
@click.option("--tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option("--threads", "-t", type=click.IntRange(1), default=1, show_default=True)
@click.option("--dispatcher", "-d", metavar="SPEC", default="log", show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default="bench-output/architectures",
    show_default=True,
    help="The folder for exported files.",
)
def main(
    models: tuple[str, ...],
    exporters: tuple[str, ...],
    tokens: int,
    threads: int,
    dispatcher: str,
    out: Path,
) -> None:
    """Time a decoder token by token beside onnxruntime, its past growing from nothing.

    Decoders of transformers with keys and values as inputs and outputs are exported, random
    weights, lengths of words and past dynamic (pip install 'bucketize[architectures]'). A prompt
    of 16 words is read, then each engine makes --tokens, one a call, handing its own results on;
    they take turns in each step, and all go on with the word that onnxruntime finds likeliest.
    bucketize runs as it is, and behind --dispatcher on both lengths. A ratio is the time by
    onnxruntime's in the same step; "error" the worst of the logits, beside onnxruntime's.

    \b
    Examples:
      python -m benchmarks decode -m gpt2-cache -e torchscript
      python -m benchmarks decode --tokens 256 -d log:base=4
    """
    out.mkdir(parents=True, exist_ok=True)
    ways = Ways(dispatcher=dispatcher)
    rows: list[dict[str, Any]] = []
    for name in models or DECODERS:
        for exporter in exporters or EXPORTERS:
            told = file_name(name, exporter)
            try:
                with progress_bar(told) as tell:
                    tell("exporting", 0, 1)
                    path = exported(name, exporter, out)
                    sessions = opened(path, ARCHITECTURES[name], threads, ways)
                    for _ in range(2):  # clones are compiled when they are first met
                        talks = {k: Talk(s.run, ARCHITECTURES[name]) for k, s in sessions.items()}
                        errors = spoken(talks, tokens, pause(threads), tell)
            except EngineError as e:
                click.echo(f"{told}: {e}", err=True)
                continue
            rows += [row(told, key, talks, errors) for key in talks]
    if rows:
        click.echo(table(rows))


def opened(path: Path, made: Architecture, threads: int, ways: Ways) -> dict[str, Session]:
    """Bucketize as it is and behind a dispatcher, and onnxruntime."""
    mod = bucketize.from_onnx(path, bounds=made.bounds)
    sessions = {name: ours(name, mod, threads, ways) for name in ways.names}
    return {**sessions, PEER: theirs(PEER, path, threads)}


def spoken(talks: Mapping[str, Talk], tokens: int, pause_s: float, tell: Tell) -> dict[str, float]:
    """Go through a prompt and so many tokens; the worst error of each one's logits."""
    order, dice = list(talks), random.Random(0)
    errors = dict.fromkeys(talks, 0.0)
    words = np.random.default_rng(0).integers(0, 1000, (1, PROMPT))
    for i in range(tokens + 1):
        tell(f"token {i}", i, tokens + 1)
        dice.shuffle(order)
        logits = {}
        for name in order:
            time.sleep(pause_s)
            logits[name] = talks[name].step(words)
        for name, found in logits.items():
            errors[name] = max(errors[name], worst_error([found], [logits[PEER]]))
        words = logits[PEER][:, -1:].argmax(-1)
    return errors


def row(
    model: str, name: str, talks: Mapping[str, Talk], errors: Mapping[str, float]
) -> dict[str, Any]:
    """What is known of an engine; the prompt is a time of its own."""
    mine, other = (np.array(talks[key].seconds) for key in (name, PEER))
    low, middle, high = np.quantile(mine[1:] / other[1:], [0.25, 0.5, 0.75])
    return {
        "model": model,
        "engine": name,
        "prompt ms": f"{mine[0] * 1e3:.2f}",
        "token ms": f"{median(mine[1:]) * 1e3:.3f}",
        "ratio": f"{middle:.2f}",
        "its quartiles": f"{low:.2f}..{high:.2f}",
        "error": f"{errors[name]:.0e}",
    }


def quick() -> list[Figure]:
    """Sixteen tokens of gpt2, as TorchScript exports it."""
    needs("torch", "transformers", PEER)
    made = ARCHITECTURES[DECODERS[0]]
    FILES.mkdir(parents=True, exist_ok=True)
    path = exported(DECODERS[0], "torchscript", FILES)
    sessions = opened(path, made, 1, Ways())
    for _ in range(2):  # kernels are compiled when they are first met
        talks = {name: Talk(session.run, made) for name, session in sessions.items()}
        spoken(talks, 16, pause(1), lambda *_: None)
    mine, other = (talks[name].seconds[1:] for name in (OURS, PEER))
    return [
        Figure.of(f"{DECODERS[0]}, a token", "s", mine),
        Figure.of(f"{DECODERS[0]}, a token by {PEER}", "", ratios(mine, other)),
    ]
