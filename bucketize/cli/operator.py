"""What is supported of each ONNX operator, read from the code that supports it.

The page docs/supported.md and `bucketize ops` show these rows.
"""

from __future__ import annotations

import dis
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from onnx import defs

from bucketize.dispatch.count import COUNTED
from bucketize.ir import LOOP, STRUCTURAL, Builder, Function, Var
from bucketize.kernel.emit.expression import DTYPES
from bucketize.kernel.templates import candidates
from bucketize.kernel.workload import Workload
from bucketize.lower.by_kernel import OF_ONE_AXIS, RULES
from bucketize.lower.upper_bound import bound_rows
from bucketize.onnx import contrib  # the package fills the table of converters
from bucketize.onnx.kind import type_name
from bucketize.onnx.load import OPSETS
from bucketize.onnx.node import CONVERTERS
from bucketize.onnx.standard import first_version
from bucketize.op import UNSAFE, Movement, Op, all_ops
from bucketize.ops.dim import from_dims
from bucketize.ops.sample import Sample, samples
from bucketize.ops.shape import shape_of, size_of
from bucketize.types import TensorType, UnrankedType
from bucketize.types.number import kind_of

OF_SHAPES = frozenset((from_dims, shape_of, size_of))
"""What tells sizes; padded clones are told the true ones."""
KINDS = {
    "float16, float32, float64": "floats",
    "int8, int16, int32, int64": "ints",
    "uint8, uint16, uint32, uint64": "uints",
}


@dataclass(frozen=True)
class Operator:
    """A row of the table."""

    operator: str
    since: int
    """The first opset in which it is read."""
    dtypes: str
    """The dtypes of the first operand in the newest opset, or of the result if it has none.

    Of an operator that is not the standard's those of the standard's that it is put together from.
    """
    runs: str
    """By kernels, or by numpy, and which operators of the IR by numpy."""
    extents: str
    """Whether sizes tell those of its results, so that clones know them, or values do."""
    pads: str
    """Whether the policy "pad" may take it: on every axis, on some, or not."""


def operators() -> list[Operator]:
    """Every operator that is read, by name."""
    return [_operator(*key) for key in sorted(CONVERTERS, key=lambda key: (key[1], key[0]))]


def _operator(domain: str, name: str) -> Operator:
    versions = CONVERTERS[domain, name]
    ops = frozenset(_used(versions[max(versions)], set()))  # older forms become the newest
    return Operator(
        operator=f"{domain}.{name}" if domain else name,
        since=max(min(versions), first_version(domain, name)),
        dtypes=_dtypes(domain, name),
        runs=_runs(ops),
        extents="values" if any(o.shape_from_values and not o.static for o in ops) else "sizes",
        pads=_pads(ops),
    )


# --- what a converter emits ----------------------------------------------------------------------


def _used(value: Any, seen: set[Any]) -> Iterator[Op]:
    """The operators of the IR that a converter names, itself or by the functions it calls."""
    if isinstance(value, Op):
        yield value
    elif isinstance(value, str) and ("", value) in CONVERTERS:  # taken by its name: `standard`
        versions = CONVERTERS["", value]
        yield from _used(versions[max(versions)], seen)
    elif isinstance(value, functools.partial):
        yield from _all_used((value.func, *value.args, *value.keywords.values()), seen)
    elif isinstance(value, tuple | list | set | frozenset):
        yield from _all_used(value, seen)
    elif isinstance(value, dict) and value is not CONVERTERS:
        yield from _all_used(value.values(), seen)
    elif isinstance(value, FunctionType) and value not in seen:
        seen.add(value)
        if value.__module__.startswith("bucketize.onnx"):
            yield from _all_used(_reached(value), seen)


def _reached(function: FunctionType) -> Iterator[Any]:
    """What a function holds, and what its code names."""
    yield from (cell.cell_contents for cell in function.__closure__ or ())
    yield from function.__defaults__ or ()
    yield from _named(function.__code__, function.__globals__)
    if function.__module__.startswith(contrib.__name__):
        yield from _words(function.__code__)


def _all_used(values: Iterable[Any], seen: set[Any]) -> Iterator[Op]:
    for value in values:
        yield from _used(value, seen)


def _named(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """What the code of a function names: in its own module, in one that it imports, a loop."""
    owner: Any = None
    for its in dis.get_instructions(code):
        if its.opname == "LOAD_GLOBAL":
            owner = names.get(its.argval)
            yield owner
        elif its.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if isinstance(owner, ModuleType) and owner.__name__.startswith("bucketize."):
                yield vars(owner).get(its.argval)
            elif its.argval == Builder.loop.__name__:
                yield LOOP
            owner = None
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _named(inner, names)


def _words(code: CodeType) -> Iterator[str]:
    """The strings of a function: by their names converters of others take those of the standard."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _words(constant)
        elif isinstance(constant, str):
            yield constant


# --- what is known of these ----------------------------------------------------------------------


def _dtypes(domain: str, name: str) -> str:
    """Dtypes that the standard allows, and those that there are kernels for."""
    if not defs.has(name, domain=domain):
        return "of its parts"
    schema = defs.get_schema(name, OPSETS[-1], domain)
    formal = (*schema.inputs, *schema.outputs)[0]
    able = sorted(DTYPES, key=lambda d: (kind_of(d), d.itemsize, d.name))
    allowed = " ".join(formal.types)  # tensors, or sequences and optional ones of them
    names = ", ".join(dict.fromkeys(d.name for d in able if type_name(UnrankedType(d)) in allowed))
    for kind, short in KINDS.items():
        names = re.sub(rf"\b{kind}\b", short, names)
    return names


def _runs(ops: Set[Op]) -> str:
    by_kernels = {op for op in ops if op.static is None and (op in STRUCTURAL or _is_native(op))}
    by_operands = {op for op in ops - RULES.keys() if op.static is not None and op.extents is None}
    by_numpy = {op for op in ops - by_kernels if op.static is None}
    if by_numpy:
        names = ", ".join(sorted(op.name for op in by_numpy))
        return f"kernels, but {names}" if not all(map(_needs_none, by_kernels)) else "numpy"
    if by_operands:
        return "kernels; operands of a run: numpy"
    return "kernels; several axes of a run: numpy" if ops & OF_ONE_AXIS.keys() else "kernels"


@functools.cache
def _is_native(op: Op) -> bool:
    """Whether a template takes a sample of the operator, or none is needed.

    Some take operands behind the first that are known alone: no converter makes others of them.
    """
    if op.relation is not None:  # of sequences and optional values, which are lists on the host
        return False
    if op in RULES:
        return True
    ways = itertools.product(samples(op), (False, True))
    return _needs_none(op) or any(candidates(_workload(*way)) for way in ways)


def _needs_none(op: Op) -> bool:
    return op.movement is Movement.VIEW or op in OF_SHAPES


def _workload(sample: Sample, is_constant: bool) -> Workload:
    names = sample.symbols()
    types = [TensorType(a.dtype, a.shape(names)) for a in sample.args]
    params = [Var(f"x{i}", t) for i, t in enumerate(types)]
    body = Builder()
    outs = body.emit_all(sample.op, *params, **sample.attrs(names))
    b, *_ = bound_rows(body.function("", params, outs)).body
    args = tuple(a for a in b.args if isinstance(a, Var))
    constant = tuple(is_constant and i > 0 for i in range(len(args)))
    return Workload(Function("", args, (b,), b.outs), constant)


def _pads(ops: Set[Op]) -> str:
    if not ops.isdisjoint(STRUCTURAL):
        return "no"
    twins = {all_ops().get(op.name.removeprefix("dyn."), op) for op in ops}
    verdicts = [_pads_alone(op) for op in twins - OF_SHAPES - COUNTED.keys()]
    return min(verdicts, key=("no", "some axes", "yes").index, default="yes")


@functools.cache
def _pads_alone(op: Op) -> str:
    """Whether padding may do no harm on the axes of the samples."""
    if op.relation is not None:
        return "no"
    if op.scalar is not None:
        return "yes"  # but where it is not known whether an axis is repeated
    rules = [
        op.padding(i, axis, *shapes, **sample.attrs(names))
        for sample in samples(op)
        for names in [sample.symbols()]
        for shapes in [[a.shape(names) for a in sample.args]]
        for i, shape in enumerate(shapes)
        for axis in range(len(shape))
    ]
    safe = [rule is not UNSAFE for rule in rules]
    return "yes" if all(safe) else "some axes" if any(safe) else "no"
