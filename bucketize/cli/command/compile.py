"""`bucketize compile`: a model into a file that runs by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.model import (
    compiled,
    dispatched_at,
    interface,
    load_model,
    name_of,
    shown_interface,
    tell_hints,
)
from bucketize.errors import ProgramError, ShapeError, TypeRelError
from bucketize.progress import progress_bar
from bucketize.table import json_text, pairs

if TYPE_CHECKING:
    from bucketize.executable import Executable
    from bucketize.ir import Module

BKT, SO, C = "bkt", "so", "c"
SUFFIXES = {BKT: ".bkt", SO: ".so", C: ""}


@click.command(short_help="Write a program that runs without model, log or compiler.")
@parameter.model_options
@parameter.dispatch_options
@parameter.oracle_at_option
@parameter.ragged_options
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, writable=True),
    help="Default: NAME.bkt, NAME.so, or a folder NAME.",
)
@click.option(
    "--format",
    "as_",
    type=click.Choice(tuple(SUFFIXES)),
    help="A program for bucketize; a shared object with an interface of C; or its parts, for a "
    "linker of your own. Default: by what -o ends with.",
)
@parameter.log_option
@click.option("--target", metavar="NAME", help="Another processor: neoverse-v1, ...")
@parameter.threads_option
@parameter.invariant_option
@click.option(
    "--weight-bytes",
    type=click.IntRange(0),
    metavar="BYTES",
    help="At most, of all weights as kernels have them packed.",
)
@parameter.json_option
def compile(
    model: str,
    bounds: list[parameter.Bound],
    output: Path | None,
    as_: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compile every clone of MODEL, and write a program that runs without model, log or compiler.

    A shared object, with a header beside it, needs neither Python: any language calls it.

    \b
    Examples:
      bucketize compile zoo:mlp -o mlp.bkt
      bucketize compile net.onnx -d log --log trials.csv --threads 2 -o net.bkt
      bucketize compile net.onnx --target neoverse-v1 -o net.bkt
      bucketize compile encoder.onnx --ragged -o encoder.bkt
      bucketize compile net.onnx --weight-bytes 100000000 -o net.bkt
      bucketize compile net.onnx -d log -o net.so
      bucketize compile net.onnx -d log --format c -o net/
    """
    as_ = as_ or (SO if output is not None and output.suffix == SUFFIXES[SO] else BKT)
    path = output or Path(f"{name_of(model)}{SUFFIXES[as_]}")
    if as_ != C:
        parameter.check_whole(path)
    parameter.check_writable(path)
    loaded = load_model(model, bounds)
    tell_hints(loaded)
    behind = dispatched_at(loaded, options)
    how = {
        name: options[name] for name in ("log", "target", "threads", "weight_bytes", "invariant")
    }
    exe = compiled(behind, **how)
    header = None
    with progress_bar(f"writing {path}"):
        if as_ == BKT:
            exe.save(path)
        else:
            header = exe.save_library(path, as_)
    facts = summary(path, header, behind, exe)
    echo(json_text(facts, indent=2) if as_json else shown(facts))
    counts = str(exe.counts).replace("; ", "\n")
    echo(f"{counts}; {exe.counts.seconds:.1f} s", err=True)


def summary(path: Path, header: Path | None, mod: Module, exe: Executable) -> dict[str, Any]:
    """What was written, for scripts."""
    files = path.iterdir() if path.is_dir() else [path]
    return {
        "path": str(path),
        "clones": len(mod.clones),
        "kernels": len(exe.kernels),
        "bytes": sum(file.stat().st_size for file in files),
        **interface(mod),
        "header": header and str(header),
        "run": None if header else command(path, exe),
    }


def command(path: Path, exe: Executable) -> str | None:
    """How to run it: at the first sizes of a clone that are legal; None if none are known."""
    for sizes in candidates(exe):
        try:
            exe.explain(**sizes)
        except (TypeRelError, ShapeError):
            continue  # these are not legal
        except ProgramError:
            return None  # of another processor: its code that tells is not run here
        at = [f"--at {pairs(sizes)}"] if sizes else []
        return " ".join(["bucketize run", str(path), *at])
    return None


def candidates(exe: Executable) -> Iterator[parameter.Sizes]:
    """Sizes of each clone, from the least on; of the model where there are no clones."""
    from bucketize.warm_up import rising_sizes

    routines, clones = exe.program.routines, exe.program.clones
    for name in clones or ["main"]:
        bucket = clones[name].bucket if clones else {}
        fixed = {symbol: lo for symbol, (lo, _) in bucket.items()}
        if not routines[name].refusal:
            yield from ({**fixed, **sizes} for sizes in rising_sizes(routines[name].params))


def shown(facts: dict[str, Any]) -> str:
    """What was written, as text."""
    mib, clones = facts["bytes"] / 2**20, f"{facts['clones']} clones, " if facts["clones"] else ""
    return "\n".join(
        [
            f"{facts['path']}: {clones}{facts['kernels']} kernels, {mib:.1f} MiB",
            *shown_interface(facts),
            *([f"run it: {facts['run']}"] if facts["run"] else []),
            *([f"call it: {facts['header']} says how"] if facts["header"] else []),
        ]
    )
