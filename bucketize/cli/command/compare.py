"""`bucketize compare`: a model beside another engine, node by node."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.model import (
    ZOO,
    NamedModel,
    dispatched,
    load_inputs,
    load_model,
    name_of,
    sizes_at,
)
from bucketize.cli.table import fitting, records, table
from bucketize.progress import progress_bar
from bucketize.table import pairs, several, shortened

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

    from bucketize.analysis.nodes import Difference, NodeComparison, Side
    from bucketize.op import Array

PLAIN, REFERENCE = "plain", "reference"
SHOWN = 20  # nodes that differ


@click.command(short_help="Compare MODEL with another engine, node by node.")
@parameter.model_options
@parameter.dispatch_options
@parameter.at_option
@parameter.input_option
@click.option(
    "--against",
    default="onnxruntime",
    show_default=True,
    metavar="ENGINE",
    help="onnxruntime, openvino or mnn; plain: bucketize without -d, --log and --weights, sums by "
    "their definition; reference: what the ops mean, computed one by one (slow).",
)
@parameter.log_option
@parameter.threads_option
@click.option(
    "--atol", type=click.FloatRange(min=0), default=1e-4, show_default=True, help="See above."
)
@click.option(
    "--rtol", type=click.FloatRange(min=0), default=1e-3, show_default=True, help="See above."
)
@click.option(
    "--bisect",
    is_flag=True,
    help="Ask for one tensor at a time, by halving: the rest stays fused as it is.",
)
@parameter.json_option
def compare(
    model: str, bounds: list[parameter.Bound], as_json: bool, bisect: bool, **options: Any
) -> None:
    """Find the first node of MODEL whose output differs from another engine's.

    Every tensor between two nodes becomes an output, in either engine, and they are compared on the
    same arrays. Two numbers agree if they are at most ATOL + RTOL x the other's magnitude apart,
    integers ATOL; NaN agrees with NaN alone, an infinity with the same one. The node that is told
    differs while all of its inputs agree; it is then run by itself, on the other engine's inputs.
    Exit code 1 where something differs.

    A clone of a model with more outputs is another one: what --log has confirmed of a clone does
    not apply to it.

    \b
    Examples:
      bucketize compare zoo:mlp --at N=3
      bucketize compare net.onnx --at N=3 --against openvino --atol 1e-5 --rtol 1e-4
      bucketize compare net.onnx --at N=3 --weights int8 --against plain
      bucketize compare net.onnx -d log --at N=3 --bisect
    """
    from bucketize.analysis.engines import engine_of

    if options["against"] not in (PLAIN, REFERENCE):
        engine_of(options["against"])  # what is not there is said before anything is compiled
    given = load_inputs(options["inputs"])
    loaded = load_model(model, bounds)
    points = sizes_at(loaded, options["points"], given)
    proto = proto_of(model)
    findings = []
    for sizes in points:
        with progress_bar(f"comparing {pairs(sizes)}".strip()):
            comparison = comparison_of(loaded, proto, {**options, "points": points}, sizes, given)
            first = comparison.bisect() if bisect else comparison.all_at_once()
            alone = [] if first is None else comparison.alone(first)
        findings.append(Finding(sizes, comparison, first, alone))
    echo(
        json.dumps([f.facts for f in findings], indent=2)
        if as_json
        else "\n\n".join(map(str, findings))
    )
    if any(f.differs for f in findings):
        click.get_current_context().exit(1)


def proto_of(model: str) -> ModelProto:
    """MODEL as ONNX has it."""
    if model.startswith(ZOO):
        from bucketize.zoo import build

        return build(name_of(model))
    from bucketize.onnx.load import load

    return load(model)


def comparison_of(
    loaded: NamedModel,
    proto: ModelProto,
    options: Mapping[str, Any],
    sizes: parameter.Sizes,
    given: Mapping[str, Array],
) -> NodeComparison:
    """MODEL at some sizes beside what it is compared with."""
    from bucketize.analysis.nodes import NodeComparison, Tolerance

    inputs = loaded.inputs(sizes, dict(given))
    tolerance = Tolerance(options["atol"], options["rtol"])
    other = other_side(loaded, options["against"], options["threads"])
    return NodeComparison(proto, inputs, our_side(loaded, options), other, tolerance)


def our_side(loaded: NamedModel, options: Mapping[str, Any]) -> Side:
    """What compiles a model as the options say; a part of it, whose sizes are known, as it is."""
    reading = click.get_current_context().meta.get(parameter.READING, {})

    def run(proto: ModelProto, inputs: Mapping[str, Array]) -> Sequence[Any]:
        from bucketize.compiler import compile

        model = read(loaded, proto, reading)
        behind = dispatched(model, options) if model.module.main.symbols() else model.module
        exe = compile(behind, log=options["log"], threads=options["threads"], lazy=True)
        return exe.run(**inputs)

    return run


def other_side(loaded: NamedModel, against: str, threads: int) -> Side:
    """What it is compared with."""

    def plain(proto: ModelProto, inputs: Mapping[str, Array]) -> Sequence[Any]:
        from bucketize.compiler import compile

        return compile(read(loaded, proto, EXACT).module, threads=threads, lazy=True).run(**inputs)

    def reference(proto: ModelProto, inputs: Mapping[str, Array]) -> Sequence[Any]:
        from bucketize.interpret import evaluate_module

        return evaluate_module(read(loaded, proto, EXACT).module, **inputs)

    def engine(proto: ModelProto, inputs: Mapping[str, Array]) -> Sequence[Any]:
        import onnx

        from bucketize.analysis import session

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{loaded.name}.onnx"
            onnx.save(proto, path)
            return session(against, path, threads).run(inputs)

    return {PLAIN: plain, REFERENCE: reference}.get(against, engine)


EXACT = {"precision": "exact"}


def read(loaded: NamedModel, proto: ModelProto, reading: Mapping[str, Any]) -> NamedModel:
    """MODEL with other outputs, and the same bounds; or a part of it, whose sizes are known."""
    from bucketize.dispatch.tree import name_dims
    from bucketize.onnx import from_onnx

    extents = [d for i in proto.graph.input for d in i.type.tensor_type.shape.dim]
    is_part = all(d.HasField("dim_value") for d in extents)
    bounds = {} if is_part else loaded.bounds
    module = from_onnx(proto, bounds=bounds, **reading)
    return NamedModel(name_dims(module.main).params, module, bounds, loaded.name, loaded.zoo)


@dataclass(frozen=True)
class Finding:
    """What a comparison has come to."""

    sizes: parameter.Sizes
    comparison: NodeComparison
    first: NodeProto | None
    """The first node that differs, if one does."""
    alone: Sequence[Difference | None]
    """How its outputs differ where it is a model of its own."""

    @property
    def differs(self) -> bool:
        """Whether anything does."""
        return any(d is not None and not d.agrees for d in self.comparison.differences.values())

    @property
    def facts(self) -> dict[str, Any]:
        """The same for scripts."""
        from bucketize.analysis.nodes import title

        return {
            "sizes": self.sizes,
            **asdict(self.comparison.tolerance),
            "agrees": not self.differs,
            "first": None if self.first is None else title(self.first),
            "alone": [None if d is None else asdict(d) for d in self.alone],
            "nodes": records(self.comparison.frame),
        }

    def __str__(self) -> str:
        frame = self.comparison.frame
        tolerance = self.comparison.tolerance
        bad = frame[frame["agrees"] == False]  # noqa: E712  missing is neither
        within = f"within {tolerance.atol:g} + {tolerance.rtol:g} x magnitude"
        agree = f"{len(frame) - len(bad)} of {several(len(frame), 'tensor')} agree {within}"
        lines = [f"{pairs(self.sizes)}: {agree}".removeprefix(": "), *self.told()]
        if len(bad):
            lines.append(table([shown(row) for row in records(bad[:SHOWN])]))
        if len(bad) > SHOWN:
            lines.append(f"and {len(bad) - SHOWN} more")
        return "\n".join(map(fitting, lines))

    def told(self) -> list[str]:
        """The node, and what it does by itself."""
        from bucketize.analysis.nodes import title

        if self.first is None:
            lost = "an output differs, but not where every tensor is one: try --bisect"
            return [lost] if self.differs else []
        name = f"{title(self.first)} ({self.first.op_type})"
        agrees = all(d is None or d.agrees for d in self.alone)
        alone = "agrees, so what is around it plays a part" if agrees else "differs, too"
        return [f"first to differ, on inputs that agree: {name}; by itself it {alone}"]


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor that differs."""
    return {
        "node": shortened(row["node"]),
        "op": row["op"],
        "output": shortened(row["output"]),
        "absolute": row["reason"] or f"{row['absolute']:.2e}",
        "relative": f"{row['relative']:.2e}",
        "inputs agree": {True: "yes", False: "no", None: None}[row["inputs_agree"]],
    }
