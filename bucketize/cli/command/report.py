"""`bucketize report`: what is known of a model, on one page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.bucket.traffic import read_traffic
from bucketize.cli.command.bench import model_file
from bucketize.cli.command.run import NOT_OF_MODELS, NOT_OF_SAVED, how, opened
from bucketize.cli.echo import echo
from bucketize.cli.model import (
    Model,
    compiled,
    dispatched,
    is_saved,
    load_inputs,
    load_model,
    name_of,
    sizes_at,
    tell_hints,
)
from bucketize.progress import progress_bar

if TYPE_CHECKING:
    from bucketize.executable import Executable


@click.command(short_help="Write a page about MODEL: what runs, what it costs, why.")
@parameter.model_options
@parameter.dispatch_options
@parameter.at_option
@parameter.input_option
@parameter.log_option
@click.option(
    "--traffic",
    metavar="FILE",
    help="Sizes of requests, as `bucketize traffic` reads them; zoo:traffic/NAME.",
)
@click.option(
    "--partition", "planned", is_flag=True, help="Ask the models what 1, 2, ... clones come to."
)
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Another saved program, to compare layer by layer.",
)
@click.option(
    "--engine",
    type=click.Choice(["onnxruntime"]),
    help="An engine, to compare layer by layer; it reads MODEL.",
)
@parameter.threads_option
@parameter.saved_options
@parameter.written_option("--output", "-o", help="The page. Default: NAME.html.")
def report(
    model: str,
    bounds: list[parameter.Bound],
    output: Path | None,
    traffic: str | None,
    against: Path | None,
    **options: Any,
) -> None:
    """Write a page about MODEL: its clones, kernels, costs over sizes, profile and memory.

    It is one file that needs no network, to read, to print and to send. MODEL is compiled and run;
    a saved program is loaded: such a file is code, load only what you trust.

    \b
    Examples:
      bucketize report zoo:mlp -o mlp.html
      bucketize report net.onnx -d log --log trials.csv --traffic requests.csv --partition
      bucketize report net.bkt --at N=4,H=224,W=224 --against before.bkt
      bucketize report net.onnx --engine onnxruntime
    """
    from bucketize.report.report import report as reported

    check_rival(model, against, options)
    path = output or Path(f"{name_of(model)}.html")
    parameter.check_writable(path)
    requests = None if traffic is None else read_traffic(traffic)
    given = load_inputs(options["inputs"])
    loaded, exe = ready(model, bounds, options)
    points = sizes_at(loaded, options["points"]) if options["points"] else []
    what = {"sizes": points, "log": options["log"], "partition": options["planned"]}
    with rival(model, against, options) as other:
        its = reported(
            exe,
            name=name_of(model),
            inputs=lambda sizes: loaded.inputs(dict(sizes), given),
            progress=True,
            traffic=requests,
            **what,
            **other,
        )
    with progress_bar(f"writing {path}"):
        its.write(path)
    echo(f"wrote {path}, {path.stat().st_size / 1e6:.1f} MB")


def check_rival(model: str, against: Path | None, options: dict[str, Any]) -> None:
    """Raise a `UsageError` for options that make no sense with this MODEL."""
    if options["engine"] and against:
        raise click.UsageError("--against and --engine are two things to compare with: give one")
    if options["engine"] and is_saved(model):
        raise click.UsageError(f"{options['engine']} reads a model, and {model} is a program")
    if is_saved(model) and options["planned"]:
        raise click.UsageError("--partition asks models of a model, and MODEL is a program")
    if is_saved(model):
        others = {name: why for name, why in NOT_OF_SAVED.items() if name != "log"}
        parameter.refuse(f"{model} is a saved program", others)
    elif not against:
        parameter.refuse("no saved program is given", NOT_OF_MODELS)


@contextmanager
def rival(model: str, against: Path | None, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is compared with, as arguments of `report`."""
    if against is not None:
        yield {"against": opened(str(against), options)}
    elif options["engine"]:
        with model_file(model) as file:
            yield {"against": options["engine"], "model": file}
    else:
        yield {}


def ready(
    model: str, bounds: list[parameter.Bound], options: dict[str, Any]
) -> tuple[Model, Executable]:
    """MODEL, and what runs it, all of its clones compiled."""
    if is_saved(model):
        exe = opened(model, options)
        return Model(exe.program.routines["main"].params), exe
    loaded = load_model(model, bounds)
    tell_hints(loaded)
    return loaded, compiled(dispatched(loaded, options), **how(options))
