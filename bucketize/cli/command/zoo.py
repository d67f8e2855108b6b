"""`bucketize zoo`: write a model of the zoo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from bucketize.cli.echo import echo
from bucketize.cli.parameter import json_option, written_option
from bucketize.table import json_text


@click.command(short_help="List the built-in models, or write one as ONNX.")
@click.argument("name", required=False)
@written_option("-o", "--output", help="Default: NAME.onnx.")
@click.option("--seed", default=0, show_default=True, help="Of the random weights.")
@json_option
def zoo(name: str | None, output: Path | None, seed: int, as_json: bool) -> None:
    """Write the ONNX model NAME, with random weights; without NAME, list the models.

    Wherever a command takes a MODEL, zoo:NAME means the same model without a file.

    \b
    Examples:
      bucketize zoo
      bucketize zoo resnet18 -o resnet18.onnx
    """
    from bucketize.zoo import BOUNDS, build

    if name is None:
        echo(json_text(BOUNDS) if as_json else table(BOUNDS))
        return
    path = output or Path(f"{name}.onnx")
    path.write_bytes(build(name, seed=seed).SerializeToString())
    echo(json_text({"path": str(path)}) if as_json else f"wrote {path}")


def table(models: Mapping[str, Mapping[str, tuple[int, int]]]) -> str:
    """The models and the bounds of their symbols, one a line."""
    rows = (
        f"{name:12} " + ", ".join(f"{s} in [{lo}, {hi}]" for s, (lo, hi) in bounds.items())
        for name, bounds in models.items()
    )
    return "\n".join(rows)
