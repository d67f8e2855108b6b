"""`bucketize export`: a dispatched model as an ONNX file for other engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.model import dispatched_at, interface, load_model, shown_interface
from bucketize.progress import progress_bar
from bucketize.table import json_text

if TYPE_CHECKING:
    from onnx import ModelProto, TypeProto

    from bucketize.ir import Module

LIMIT = 2**31 - 1  # bytes of one message; weights of more lie in a file of their own


@click.command(short_help="Write MODEL, dispatched, as ONNX for other engines.")
@parameter.model_options
@parameter.dispatch_options
@parameter.oracle_at_option
@parameter.written_option("--output", "-o", help="The ONNX file to write.", required=True)
@parameter.json_option
def export(
    model: str, bounds: list[parameter.Bound], output: Path, as_json: bool, **options: Any
) -> None:
    """Write MODEL behind a dispatcher as an ONNX file that other engines run.

    Decisions are nested Ifs, clones are functions of the model, weights are there once. Sizes that
    no clone serves end in an error of a node whose name says so. Of more than 2 GiB, weights are in
    FILE.data.

    \b
    Examples:
      bucketize export zoo:mlp -d log -o mlp.onnx
      bucketize export net.onnx --dim N=1..32 -d exact:sizes=1,8,32 --no-fallback -o net-8.onnx
    """
    from bucketize.onnx import to_onnx

    behind = dispatched_at(load_model(model, bounds), options)
    with progress_bar(f"writing {output}"):
        exported = to_onnx(behind)
        write(exported, output)
    facts = summary(output, behind, exported)
    echo(json_text(facts, indent=2) if as_json else shown(facts))


def write(model: ModelProto, path: Path) -> None:
    """Write a model, and check what was written: the checker takes no inputs without ranks."""
    import onnx

    data = path.with_name(f"{path.name}.data")
    apart = sum(len(t.raw_data) for t in model.graph.initializer) > LIMIT
    if apart:
        data.unlink(missing_ok=True)  # else it is appended to
    onnx.save_model(model, path, save_as_external_data=apart, location=data.name)
    if all(_is_ranked(v.type) for v in (*model.graph.input, *model.graph.output)):
        onnx.checker.check_model(path)


def _is_ranked(type_: TypeProto) -> bool:
    return not type_.HasField("tensor_type") or type_.tensor_type.HasField("shape")


def summary(path: Path, mod: Module, exported: ModelProto) -> dict[str, Any]:
    """What was written, for scripts."""
    return {
        "path": str(path),
        "opset": next(o.version for o in exported.opset_import if not o.domain),
        "functions": {f.doc_string: f.name for f in exported.functions},
        "bytes": path.stat().st_size,
        **interface(mod),
    }


def shown(facts: dict[str, Any]) -> str:
    """What was written, as text."""
    functions, mib = len(facts["functions"]), facts["bytes"] / 2**20
    head = f"{facts['path']}: opset {facts['opset']}, {functions} functions, {mib:.1f} MiB"
    return "\n".join([head, *shown_interface(facts)])
