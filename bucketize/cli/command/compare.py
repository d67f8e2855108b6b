"""`bucketize compare`: a model beside another engine, node by node, or kernel by kernel."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.command.run import check_options, opened, ready
from bucketize.cli.echo import echo
from bucketize.cli.model import (
    ZOO,
    NamedModel,
    dispatched,
    is_saved,
    load_inputs,
    load_model,
    name_of,
    sizes_at,
)
from bucketize.cli.table import fitting, records, table
from bucketize.errors import BucketizeError, ProgramError, unknown_name
from bucketize.progress import progress_bar
from bucketize.table import json_text, pairs, several, shortened

if TYPE_CHECKING:
    import pandas as pd
    from onnx import ModelProto, NodeProto

    from bucketize.analysis.nodes import NodeComparison, Side, Tolerance
    from bucketize.executable import Executable
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
    metavar="ENGINE|FILE.bkt",
    help="onnxruntime (default), openvino or mnn; plain: bucketize without -d, --log and "
    "--weights, sums by their definition; reference: what the ops of each kernel mean (slow; the "
    "default of a saved program); or a saved program.",
)
@parameter.log_option
@parameter.threads_option
@click.option("--atol", type=parameter.FiniteRange(min=0), default=1e-4, show_default=True)
@click.option("--rtol", type=parameter.FiniteRange(min=0), default=1e-3, show_default=True)
@click.option(
    "--bisect",
    is_flag=True,
    help="Of engines: ask for one tensor at a time, by halving; the rest stays fused as it is.",
)
@parameter.saved_options
@parameter.json_option
def compare(model: str, bounds: list[parameter.Bound], as_json: bool, **options: Any) -> None:
    """Find the first node of MODEL whose output differs from another engine's.

    Two numbers agree if they are at most ATOL + RTOL x the other's magnitude apart, integers ATOL;
    NaN agrees with NaN alone, an infinity with the same one. Exit code 1 where something differs.

    Beside an engine every tensor between two nodes becomes an output, in either of them. The node
    that is told differs while all of its inputs agree; it is then run by itself, on the other
    engine's inputs. A clone with more outputs is another one, of which no --log speaks.

    Beside the reference, or another program, kernels are looked at as they run, with -d and --log:
    each beside what its ops mean on the operands that it had, or beside the kernel of the same ops
    and shapes. MODEL may be a saved program then.

    \b
    Examples:
      bucketize compare zoo:mlp --at N=3
      bucketize compare net.onnx --at N=3 --against openvino --atol 1e-5 --rtol 1e-4
      bucketize compare net.onnx --at N=3 --weights int8 --against plain --bisect
      bucketize compare net.onnx -d log --log t.csv --at N=3 --against reference
      bucketize compare new.bkt --at N=3 --against old.bkt
    """
    against = options["against"] or (REFERENCE if is_saved(model) else "onnxruntime")
    if is_saved(model) or not is_saved(against):  # else --trusted is for what it is held against
        check_options(model)
    compared = of_kernels if against == REFERENCE or is_saved(against) else of_nodes
    reports = list(compared(model, bounds, {**options, "against": against}))
    facts = [report.facts for report in reports]
    echo(json_text(facts, indent=2) if as_json else "\n\n".join(map(str, reports)))
    if any(report.differs for report in reports):
        click.get_current_context().exit(1)


@dataclass(frozen=True)
class ComparisonReport:
    """What a comparison at some sizes has come to."""

    sizes: parameter.Sizes
    tolerance: Tolerance
    frame: pd.DataFrame
    """The tensors, those that differ among them."""
    first: str | None
    """The first node that differs, if one is known."""
    notes: Sequence[str]
    """What is to be said of it."""

    @property
    def bad(self) -> pd.DataFrame:
        """The tensors that differ."""
        return self.frame[self.frame["agrees"].map(lambda agrees: agrees is False)]

    @property
    def differs(self) -> bool:
        """Whether there are any."""
        return len(self.bad) > 0

    @property
    def facts(self) -> dict[str, Any]:
        """The report for scripts, as a JSON object."""
        return {
            "sizes": self.sizes,
            **asdict(self.tolerance),
            "agrees": not self.differs,
            "first": self.first,
            "notes": list(self.notes),
            "tensors": records(self.frame),
        }

    def __str__(self) -> str:
        tolerance, bad = self.tolerance, self.bad
        within = f"within {tolerance.atol:g} + {tolerance.rtol:g} x magnitude"
        of = several(len(self.frame), "tensor")
        agree = f"{len(self.frame) - len(bad)} of {of} agree {within}"
        head = f"{pairs(self.sizes)}: {agree}".removeprefix(": ")
        lines = list(map(fitting, [head, *self.notes]))
        lines += [table([shown(row) for row in records(bad[:SHOWN])])] if len(bad) else []
        lines += [f"and {len(bad) - SHOWN} more"] if len(bad) > SHOWN else []
        return "\n".join(lines)


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


# --- kernels as they run -------------------------------------------------------------------------


def of_kernels(
    model: str, bounds: list[parameter.Bound], options: dict[str, Any]
) -> Iterator[ComparisonReport]:
    """What kernels come to, at each --at."""
    from bucketize.analysis.kernels import beside_another, beside_meaning
    from bucketize.analysis.nodes import Tolerance
    from bucketize.inspect.observe import observe

    parameter.refuse("kernels are compared as they run", {"bisect": "is for engines"})
    tolerance = Tolerance(options["atol"], options["rtol"])
    given = load_inputs(options["inputs"])
    loaded, exe, points = ready(model, bounds, given, options)
    against = [] if options["against"] == REFERENCE else [opened(options["against"], options)]
    for other in against:
        check_inputs(other, exe)
    for sizes in points:
        with progress_bar(f"comparing {pairs(sizes)}".strip()):
            arrays = loaded.inputs(sizes, given)
            kernels, *others = (
                observe(its.image, [arrays[name] for name in its.inputs]) for its in (exe, *against)
            )
            if others:
                frame = beside_another(kernels, others[0], tolerance)
            else:
                frame = beside_meaning(kernels, tolerance)
        yield report_of_kernels(sizes, tolerance, frame, len(kernels))


def check_inputs(one: Executable, other: Executable) -> None:
    """Raise an error of programs that take other inputs."""
    if set(one.inputs) != set(other.inputs):
        theirs = ", ".join(one.inputs)
        raise ProgramError(f"the inputs differ: {', '.join(other.inputs)}, and {theirs}")


def report_of_kernels(
    sizes: parameter.Sizes, tolerance: Tolerance, frame: pd.DataFrame, count: int
) -> ComparisonReport:
    """What is told of kernels: those of a saved program have no names of nodes, but numbers."""
    report = ComparisonReport(sizes, tolerance, frame, None, [])
    told_of = frame["output"].nunique()
    notes = [f"{told_of} of {several(count, 'kernel')} compared"]
    if not report.differs:
        return replace(report, notes=notes)
    row = report.bad.iloc[0]
    name = f"{row['node']} ({row['op']}), by kernel {row['output']}"
    return replace(report, first=row["node"], notes=[*notes, f"first to differ: {name}"])


# --- nodes beside another engine -----------------------------------------------------------------


def of_nodes(
    model: str, bounds: list[parameter.Bound], options: dict[str, Any]
) -> Iterator[ComparisonReport]:
    """What nodes come to beside another engine, at each --at."""
    if is_saved(model):
        raise click.UsageError(
            f"{model} is a saved program, which other engines do not take: --against reference, "
            "or another one"
        )
    check_side(options["against"])  # what is not there is said before anything is compiled
    given = load_inputs(options["inputs"])
    loaded = load_model(model, bounds)
    points, proto = sizes_at(loaded, options["points"], given), proto_of(model)
    for sizes in points:
        with progress_bar(f"comparing {pairs(sizes)}".strip()):
            its = comparison_of(loaded, proto, {**options, "points": points}, sizes, given)
            first = its.bisect() if options["bisect"] else its.all_at_once()
            yield report_of_nodes(sizes, its, first)


def check_side(against: str) -> None:
    """Raise an error for what nodes cannot be compared with."""
    from bucketize.analysis.engines import ENGINES, engine_of

    if against == PLAIN:
        return
    if against in ENGINES:
        engine_of(against)  # which says how to install it
    elif Path(against).suffix or Path(against).exists():
        what = "is no saved program" if Path(against).exists() else "is not there"
        raise click.UsageError(f"--against: {against} {what}")
    else:
        raise unknown_name("adapter for an engine", against, [*ENGINES, PLAIN, REFERENCE])


def report_of_nodes(
    sizes: parameter.Sizes, its: NodeComparison, first: NodeProto | None
) -> ComparisonReport:
    """What is told of nodes: the first that differs is run by itself."""
    from bucketize.analysis.nodes import title

    report = ComparisonReport(sizes, its.tolerance, its.frame, None, [])
    if first is None:
        return report
    name = f"{title(first)} ({first.op_type})"
    note = f"first to differ, on inputs that agree: {name}; by itself it {alone(its, first)}"
    return replace(report, first=title(first), notes=[note])


def alone(its: NodeComparison, node: NodeProto) -> str:
    """What a node does where it is a model of its own."""
    try:
        agrees = all(d is None or d.agrees for d in its.alone(node))
    except BucketizeError as e:
        return f"cannot be run: {e.message}"
    return "agrees, so what is around it plays a part" if agrees else "differs, too"


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
    """The side that a model is compared with: the model compiled plainly, or an engine."""

    def plain(proto: ModelProto, inputs: Mapping[str, Array]) -> Sequence[Any]:
        from bucketize.compiler import compile

        return compile(read(loaded, proto, EXACT).module, threads=threads, lazy=True).run(**inputs)

    def engine(proto: ModelProto, inputs: Mapping[str, Array]) -> Sequence[Any]:
        import onnx

        from bucketize.analysis import session

        copy = onnx.ModelProto()
        copy.CopyFrom(proto)  # of what is saved so the weights are gone
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{loaded.name}.onnx"
            onnx.save(copy, path, save_as_external_data=True, location="weights")
            return session(against, path, threads).run(inputs)

    return plain if against == PLAIN else engine


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
