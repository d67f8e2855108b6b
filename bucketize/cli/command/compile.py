"""`bucketize compile`: a model into a file that runs by itself."""

from __future__ import annotations

import json
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
from bucketize.table import pairs

if TYPE_CHECKING:
    from bucketize.executable import Executable
    from bucketize.ir import Module


@click.command(short_help="Write a program that runs without model, log or compiler.")
@parameter.model_options
@parameter.dispatch_options
@parameter.oracle_at_option
@parameter.ragged_options
@parameter.written_option("--output", "-o", help="Default: NAME.bkt.")
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
    model: str, bounds: list[parameter.Bound], output: Path | None, as_json: bool, **options: Any
) -> None:
    """Compile every clone of MODEL, and write a program that runs without model, log or compiler.

    \b
    Examples:
      bucketize compile zoo:mlp -o mlp.bkt
      bucketize compile net.onnx -d log --log trials.csv --threads 2 -o net.bkt
      bucketize compile net.onnx --target neoverse-v1 -o net.bkt
      bucketize compile encoder.onnx --ragged -o encoder.bkt
      bucketize compile net.onnx --weight-bytes 100000000 -o net.bkt
    """
    path = output or Path(f"{name_of(model)}.bkt")
    parameter.check_writable(path)
    loaded = load_model(model, bounds)
    tell_hints(loaded)
    behind = dispatched_at(loaded, options)
    how = {
        name: options[name] for name in ("log", "target", "threads", "weight_bytes", "invariant")
    }
    exe = compiled(behind, **how)
    with progress_bar(f"writing {path}"):
        exe.save(path)
    facts = summary(path, behind, exe)
    echo(json.dumps(facts, indent=2) if as_json else shown(facts))
    counts = str(exe.counts).replace("; ", "\n")
    echo(f"{counts}; {exe.counts.seconds:.1f} s", err=True)


def summary(path: Path, mod: Module, exe: Executable) -> dict[str, Any]:
    """What was written, for scripts."""
    return {
        "path": str(path),
        "clones": len(mod.clones),
        "kernels": len(exe.kernels),
        "bytes": path.stat().st_size,
        **interface(mod),
        "run": command(path, exe),
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
        ]
    )
