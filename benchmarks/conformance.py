"""The tests of nodes that come with ONNX, compiled: as they are, by symbols, and without ranks."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import click
import numpy as np
from ml_dtypes import bfloat16
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    OptionalProto,
    SequenceProto,
    TensorProto,
    TypeProto,
    numpy_helper,
)
from onnx.backend.test.loader import load_model_tests

import bucketize
from benchmarks.figure import EXACT, Figure
from bucketize.errors import UnsupportedModelError
from bucketize.executable import Executable
from bucketize.ir import Module
from bucketize.onnx import from_onnx
from bucketize.progress import progress_bar
from bucketize.table import fields_of, whole

RANDOM = {"Bernoulli", "RandomNormalLike", "RandomUniformLike"}  # no two runs are alike
TRAINING = "training_dropout"  # nor those of tests with this in their names
VERDICTS = ("equal", "refused", "apart", "failed")
WRONG = ("apart", "failed")
SHOWN = 12
"""Reasons for a refusal, the most frequent first."""


@dataclass(frozen=True)
class Case:
    """A test: a model of few nodes, and its first inputs and outputs."""

    name: str
    model: ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


def cases() -> list[Case]:
    """All of them but those that draw random numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of infinities that are meant
        tests = load_model_tests(kind="node")
    found = []
    for t in tests:
        assert t.model is not None
        assert t.data_sets is not None
        inputs, outputs = ([*map(value, data)] for data in t.data_sets[0])
        if not RANDOM & {n.op_type for n in t.model.graph.node} and TRAINING not in t.name:
            rough = any(getattr(o, "dtype", None) == bfloat16 for o in outputs)
            rtol = max(t.rtol, 2**-6) if rough else t.rtol  # as ONNX's own runner has it
            found.append(Case(t.name, t.model, inputs, outputs, rtol, t.atol))
    return found


def value(given: Any) -> Any:
    """An array, a list of them or None."""
    match given:
        case TensorProto():
            return numpy_helper.to_array(given)
        case SequenceProto():
            return numpy_helper.to_list(given)
        case OptionalProto():
            return numpy_helper.to_optional(given)
    return given


# --- what is known of the shapes -----------------------------------------------------------------


def as_shipped(model: ModelProto) -> Module:
    """With all that the model declares."""
    return from_onnx(model)


def by_symbols(model: ModelProto) -> Module:
    """With a symbol for each extent of each input, from 0 on, and results of any rank."""
    copy = ModelProto.FromString(model.SerializeToString())
    for graph_input in copy.graph.input:
        for dim in graph_input.type.tensor_type.shape.dim:
            dim.Clear()
    for output in (*copy.graph.output, *copy.graph.value_info):
        unknown(output.type)
    symbols = from_onnx(copy).main.symbols()
    return from_onnx(copy, bounds=dict.fromkeys(symbols, (0, None)))


def without_ranks(model: ModelProto) -> Module:
    """With no shape at all."""
    copy = ModelProto.FromString(model.SerializeToString())
    forget(copy.graph)
    return from_onnx(copy)


def forget(graph: GraphProto) -> None:
    """Take out all shapes that a graph declares."""
    for known in (*graph.input, *graph.output, *graph.value_info):
        unknown(known.type)
    for node in graph.node:
        for a in node.attribute:
            if a.type == AttributeProto.GRAPH:
                forget(a.g)


def unknown(type_: TypeProto) -> None:
    """Take the shape out of a type, or out of that of the elements."""
    kind = type_.WhichOneof("value")
    if kind == "tensor_type":
        type_.tensor_type.ClearField("shape")
    elif kind is not None:
        unknown(getattr(type_, kind).elem_type)


MODES: dict[str, Callable[[ModelProto], Module]] = {
    "as shipped": as_shipped,
    "by symbols": by_symbols,
    "without ranks": without_ranks,
}


# --- what comes of them --------------------------------------------------------------------------


def apart(got: Any, wanted: Any, rtol: float, atol: float) -> str | None:
    """Where a result is not what it should be, if it is not; lists are compared one by one."""
    if wanted is None or isinstance(wanted, list):
        if type(got) is not type(wanted) or len(got or []) != len(wanted or []):
            return "another kind or number"
        pairs = zip(got or [], wanted or [], strict=True)
        return next(filter(None, (apart(g, w, rtol, atol) for g, w in pairs)), None)
    want = np.asarray(wanted)
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype}{[*got.shape]}, expected {want.dtype}{[*want.shape]}"
    if want.dtype.kind not in "biuc":  # numpy does not compare the short ones
        got, want = got.astype(np.float64), want.astype(np.float64)
    return None if np.allclose(got, want, rtol, atol, equal_nan=True) else "other elements"


Supply: TypeAlias = Callable[[str, Case], Executable]
"""The executable of a test in a mode; raises UnsupportedModelError where there is none."""


def compiled(mode: str, case: Case) -> Executable:
    """It is compiled for this machine."""
    return bucketize.compile(MODES[mode](case.model))


def writes(place: Path, target: str) -> Supply:
    """It is compiled, once for this machine, and once for another one to be saved."""

    def supply(mode: str, case: Case) -> Executable:
        mod = MODES[mode](case.model)
        (place / mode).mkdir(parents=True, exist_ok=True)
        bucketize.compile(mod, target=target).save(_path(place, mode, case))
        return bucketize.compile(mod)

    return supply


def reads(place: Path) -> Supply:
    """It was saved, or else it was refused."""

    def supply(mode: str, case: Case) -> Executable:
        path = _path(place, mode, case)
        if not path.exists():
            raise UnsupportedModelError("no program was saved")
        return bucketize.load(path)

    return supply


def _path(place: Path, mode: str, case: Case) -> Path:
    return place / mode / f"{case.name}.bkt"


def judged(case: Case, mode: str, supply: Supply) -> tuple[str, str]:
    """Whether what an executable gives is equal, apart, refused or failed, and why."""
    try:
        results = supply(mode, case).run(*case.inputs)
    except UnsupportedModelError as e:
        reason = str(e).splitlines()[-1].partition(" x ")[2] or str(e)
        return "refused", reason.rpartition(" (")[0] or reason
    except Exception as e:  # whatever it is, it is counted and told
        return "failed", f"{type(e).__name__}: {e}"
    found = apart(results, case.outputs, case.rtol, case.atol)
    return ("equal", "") if found is None else ("apart", found)


@click.command()
@click.option("-m", "--mode", "modes", multiple=True, type=click.Choice([*MODES]), help="Only it.")
@click.option("--save", type=click.Path(path_type=Path), help="Programs for --target, too.")
@click.option("--target", default="neoverse-v1", show_default=True, help="Another processor.")
@click.option("--load", type=click.Path(path_type=Path), help="Run what was saved there.")
def main(modes: Sequence[str], save: Path | None, target: str, load: Path | None) -> None:
    """ONNX's own tests of nodes, compiled: how many are equal, refused or apart, or fail.

    What one machine saves another may load: results on both are held to what ONNX recorded.
    """
    supply = compiled if save is None else writes(save, target)
    supply = supply if load is None else reads(load)
    all_of = cases()
    rows, told = [], []
    for mode in modes or MODES:
        found = _all_judged(all_of, mode, supply)
        counts = Counter(verdict for _, verdict, _ in found)
        rows.append({"mode": mode} | {verdict: counts[verdict] for verdict in VERDICTS})
        told += [f"{v}, {mode}: {name}: {why}" for name, v, why in found if v in WRONG]
        told += _refused(mode, [why for _, verdict, why in found if verdict == "refused"])
    click.echo("\n".join([whole(fields_of(rows)), *told]))


def _all_judged(all_of: Sequence[Case], mode: str, supply: Supply) -> list[tuple[str, str, str]]:
    found = []
    with progress_bar(mode) as tell:
        for i, case in enumerate(all_of):
            tell(case.name, i, len(all_of))
            found.append((case.name, *judged(case, mode, supply)))
    return found


def _refused(mode: str, reasons: Sequence[str]) -> list[str]:
    """The most frequent ones."""
    return [f"refused {n}, {mode}: {why}" for why, n in Counter(reasons).most_common(SHOWN)]


def quick() -> list[Figure]:
    """One test in twenty, as shipped."""
    counts = Counter(
        verdict for _, verdict, _ in _all_judged(cases()[::20], "as shipped", compiled)
    )
    return [Figure.of(verdict, EXACT, [counts[verdict]]) for verdict in VERDICTS]
