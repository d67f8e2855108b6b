"""`bucketize run`: a model on arrays."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

import click
import numpy as np
from numpy.typing import NDArray

from bucketize.busy import Machine, Watch, busiest
from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.model import (
    DAMAGED,
    Arrays,
    Model,
    NamedModel,
    compiled,
    dispatched,
    is_saved,
    load_inputs,
    load_model,
    sizes_at,
    tell_hints,
)
from bucketize.cli.table import fitting, milliseconds, table
from bucketize.compare import worst_error
from bucketize.errors import RequestsError, ShapeError
from bucketize.progress import progress_bar
from bucketize.table import Format, json_text, pairs
from bucketize.timing import interleaved

if TYPE_CHECKING:
    from bucketize.executable import Executable
    from bucketize.ir import Module


@click.command(short_help="Run MODEL at given sizes, and time it.")
@parameter.model_options
@parameter.dispatch_options
@parameter.at_option
@parameter.input_option
@parameter.ragged_options
@click.option(
    "--many",
    type=click.Path(path_type=Path, exists=True),
    help="Requests: an .npz of arrays called NUMBER/INPUT, or a folder of .npz files, one each.",
)
@click.option(
    "--bytes", type=click.IntRange(1), help="Of --many: what calls that run at once may take."
)
@parameter.written_option(
    "--output", "-o", callback=parameter.replaceable, help="Write results as .npz."
)
@parameter.log_option
@parameter.threads_option
@parameter.invariant_option
@click.option("--repeat", type=click.IntRange(1), default=10, show_default=True, help="Timed runs.")
@parameter.saved_options
@click.option("--check", is_flag=True, help="Compare with the reference evaluator (slow).")
@click.option(
    "--explain",
    is_flag=True,
    help="Say which kernels run, and why; of --many, which requests share a call.",
)
@parameter.json_option
def run(model: str, bounds: list[parameter.Bound], as_json: bool, **options: Any) -> None:
    """Run MODEL at given sizes on random arrays, or on arrays of yours, and time it.

    MODEL may be a program that `bucketize compile` saved: it is loaded, not compiled. Such a file
    is code: load only what you trust, or --rebuild it.

    \b
    Examples:
      bucketize run zoo:mlp --at N=1 --at N=17
      bucketize run net.onnx --dim N=1..32 -d log --log t.csv --at N=4 --explain
      bucketize run net.onnx --input data=image.npy -o result.npz
      bucketize run net.bkt --at N=4,H=224,W=224
      bucketize run encoder.onnx --ragged --many requests.npz -o results.npz
    """
    check_options(model)
    if options["many"] is not None:
        parameter.refuse("--many has its inputs in a file", NOT_OF_MANY)
        run_many(model, bounds, as_json, options)
        return
    parameter.refuse("there is no --many", {"bytes": "is a limit of many requests"})
    given = load_inputs(options["inputs"])
    loaded, exe, points = ready(model, bounds, given, options)
    rows = []
    for sizes in points:
        arrays = loaded.inputs(sizes, given)
        results, row = timed(exe, sizes, arrays, options["repeat"])
        if options["check"] and isinstance(loaded, NamedModel):
            row["max_rel_err"] = error(results, loaded.module, arrays)
        if options["explain"]:
            row["explanation"] = exe.explain(**sizes)
        rows.append(row)
        if options["output"]:
            save(options["output"], dict(zip(exe.outputs, results, strict=True)))
    report(exe, rows, as_json)


DECIDED = (
    *("bounds", "precision", "weights", "dispatcher", "policy", "fallback", "limit", "log"),
    *("ragged", "mask", "threads", "invariant"),
)
NOT_OF_SAVED = {
    **dict.fromkeys(DECIDED, "was decided when it was compiled"),
    "check": "needs the model, of which it holds the kernels only",
}
"""Why a saved program does not take an option, by the option's name."""
NOT_OF_MANY = dict.fromkeys(("inputs", "points", "check"), "is for one request")
NOT_OF_MODELS = dict.fromkeys(("rebuild", "trusted"), "is for those")


def check_options(model: str) -> None:
    """Raise a `UsageError` for an option that makes no sense with this MODEL."""
    if is_saved(model):
        parameter.refuse(f"{model} is a saved program", NOT_OF_SAVED)
    else:
        parameter.refuse(f"{model} is no saved program", NOT_OF_MODELS)


def ready(
    model: str, bounds: list[parameter.Bound], inputs: Arrays, options: dict[str, Any]
) -> tuple[Model, Executable, list[parameter.Sizes]]:
    """MODEL, what runs it, and the sizes at each --at.

    It is loaded if it is a saved program, else compiled as far as it runs.
    """
    if is_saved(model):
        exe = opened(model, options)
        saved = Model(exe.program.routines["main"].params)
        return saved, exe, sizes_at(saved, options["points"], inputs)
    loaded = load_model(model, bounds)
    tell_hints(loaded)
    points = sizes_at(loaded, options["points"], inputs)
    behind = dispatched(loaded, {**options, "points": points})
    return loaded, compiled(behind, lazy=True, **how(options)), points


def how(options: dict[str, Any]) -> dict[str, Any]:
    """How a model is compiled."""
    return {name: options[name] for name in ("log", "threads", "invariant") if name in options}


def opened(model: str, options: dict[str, Any]) -> Executable:
    """The executable of a saved program."""
    from bucketize.loader import load

    with progress_bar(f"loading {model}"):
        return load(model, rebuild=options["rebuild"], trusted=options["trusted"])


def run_many(
    model: str, bounds: list[parameter.Bound], as_json: bool, options: dict[str, Any]
) -> None:
    """Run MODEL on many requests, and say in how many calls, and how long that took."""
    numbered = load_requests(options["many"])
    names, requests = list(numbered), list(numbered.values())
    if is_saved(model):
        exe = opened(model, options)
    else:
        loaded = load_model(model, bounds)
        behind = dispatched(loaded, {**options, "points": []})
        exe = compiled(behind, lazy=True, **how(options))
    limits = {"bytes": options["bytes"]}
    plan = exe.plan_many(requests, **limits)
    serve = partial(served, exe, numbered, limits)
    results, failed = serve()
    with Watch() as watch:
        times = interleaved({"all": serve}, least=options["repeat"])["all"]
    watch.machine.warn()
    if options["output"]:
        named = {
            f"{request}/{name}": array
            for request, arrays in zip(names, results, strict=True)
            if isinstance(arrays, list)
            for name, array in zip(exe.outputs, arrays, strict=True)
        }
        save(options["output"], named)
    seconds = statistics.median(times)
    row = {
        "requests": len(requests),
        "calls": len(plan.calls),
        "seconds": seconds,
        "requests_s": len(requests) / seconds,
        "failed": len(failed),
    }
    if as_json:
        echo(json_text({**row, "calls": [str(call) for call in plan.calls]}, indent=2))
    else:
        echo(table([row], {"seconds": "{:.3f}".format, "requests_s": "{:.1f}".format}))
        if options["explain"]:
            echo(str(plan))
    for line in failed:
        echo(line, err=True)
    if failed:
        raise click.exceptions.Exit(1)


def served(
    exe: Executable, requests: Mapping[str, Arrays], limits: dict[str, Any]
) -> tuple[Sequence[object], list[str]]:
    """The results of requests, and what was wrong with those that have none."""
    try:
        return exe.run_many(list(requests.values()), **limits), []
    except RequestsError as e:
        each = zip(requests, e.results, strict=True)
        return e.results, [f"request {n}: {r}" for n, r in each if not isinstance(r, list)]


def load_requests(path: Path) -> dict[str, Arrays]:
    """Requests by their numbers in an archive, or by the names of files in a folder, in order."""
    if path.is_dir():
        files = sorted(path.glob("*.npz"), key=_in_order)
        if not files:
            raise ShapeError(f"{path} has no .npz file")
        return {file.stem: load_arrays(file) for file in files}
    requests: dict[int, Arrays] = {}
    for name, array in load_arrays(path).items():
        number, _, given = name.partition("/")
        if not number.isdecimal() or not given:
            raise ShapeError(f"{path}: an array is called {name!r}, not NUMBER/INPUT")
        request = requests.setdefault(int(number), {})
        if given in request:
            raise ShapeError(f"{path}: input {given!r} of request {int(number)} is there twice")
        request[given] = array
    return {str(number): requests[number] for number in sorted(requests)}


def _in_order(file: Path) -> tuple[float, str]:
    """By numbers, then by names."""
    return int(file.stem) if file.stem.isdecimal() else math.inf, file.stem


def load_arrays(path: Path) -> Arrays:
    """The arrays of an .npz file, which may hold no code."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (*DAMAGED, OSError, BadZipFile, AttributeError, TypeError) as e:
        raise ShapeError(f"{path} holds no arrays in .npz format: {e}") from e


def timed(
    exe: Executable, sizes: parameter.Sizes, arrays: Arrays, repeat: int
) -> tuple[list[NDArray[Any]], dict[str, Any]]:
    """The results, and what to tell of the run; the first call, which may compile, is not timed."""
    done = count(1)
    with progress_bar(f"running {pairs(sizes)}".strip()) as tell:
        tell("first run", 0, repeat + 1)
        results = exe.run(**arrays)
        again = {"run": partial(exe.run, **arrays)}
        told_of = {"run": lambda: tell("timed runs", next(done), repeat + 1)}
        with Watch() as watch:
            times = interleaved(again, least=repeat, before=told_of)["run"]
            watch.rounds({pairs(sizes) or "the run": times})
    explanation = exe.explain(**sizes)
    return results, {
        "sizes": sizes,
        "clone": explanation.clone,
        "executor": explanation.executor,
        "latency_s": statistics.median(times),
        "outputs": [list(result.shape) for result in results],
        "machine": watch.machine,
    }


def error(results: list[NDArray[Any]], mod: Module, arrays: Arrays) -> float:
    """How far the results are from what the ops mean, computed one by one."""
    from bucketize.interpret import evaluate_module

    with progress_bar("computing the reference"):
        return worst_error(results, evaluate_module(mod, **arrays))


def save(path: Path, results: Arrays) -> None:
    """Write the results as `np.savez` does, under any names: "file" is one that it takes itself."""
    from numpy.lib.format import write_array

    with ZipFile(path, "w") as archive:
        for name, result in results.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_array(member, result, allow_pickle=False)


WEIGHED = ("weight_bytes", "packed_bytes", "all_packed_bytes")
TOLD = ("sizes", "clone", "executor", "path", "arena_bytes", *WEIGHED)
"""What scripts are told of an explanation as it is."""


def plain(value: object) -> Any:
    """What the machine did and an explanation by their fields; unknown extents as text."""
    from bucketize.inspect.explain import Explanation

    if isinstance(value, Machine):
        return asdict(value)
    if not isinstance(value, Explanation):
        return str(value)
    second, taken = value.second, zip(value.steps, value.seconds, strict=True)
    facts = {name: getattr(value, name) for name in TOLD}
    facts["steps"] = [{**step, "predicted_s": seconds} for step, seconds in taken]
    facts["arrangement"] = str(value.arrangement)
    if second is not None:
        facts["next_best"] = {"arrangement": str(second.arrangement), "relative": second.price}
    return facts


def report(exe: Executable, rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print what ran, and whether the machine did something else, too."""
    busiest(row["machine"] for row in rows).warn()
    if as_json:
        echo(json_text(rows, indent=2, default=plain))
        return
    for row in rows:
        if "explanation" in row:
            lines = row["explanation"].text(table).splitlines()
            echo("\n".join(map(fitting, lines)))
    formats: dict[str, Format] = {
        "sizes": pairs,
        "latency": milliseconds,
        "max_rel_err": "{:.1e}".format,
    }
    heads = {name: name for name in rows[0] if name not in ("explanation", "machine")}
    heads |= {"latency_s": "latency"}  # the cells have a unit of their own
    echo(table([{heads[n]: row[n] for n in heads} for row in rows], formats))
    if exe.counts.seconds:  # else it was loaded
        echo(str(exe.counts).replace("; ", "\n"), err=True)
