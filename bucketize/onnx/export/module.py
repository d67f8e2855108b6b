"""The way out: a module as an ONNX model, its functions, clones above all, as functions of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, TensorProto, ValueInfoProto, helper

from bucketize.errors import ExportError, ShapeError, TypeRelError, UnknownRankError
from bucketize.ir import (
    CALL,
    FUSED,
    IF,
    ILLEGAL,
    LOOP,
    NO_BUCKET,
    Atom,
    Binding,
    Builder,
    Const,
    Function,
    Module,
    all_bindings,
    check_module,
    rank_only,
    refusing,
)
from bucketize.onnx.export.extent import extent, extents, scalar
from bucketize.onnx.export.rule import RULES, ExportSite
from bucketize.onnx.export.scope import OPSET, ExportScope, Frame
from bucketize.onnx.front import BOUNDS, OPEN, raw_name
from bucketize.onnx.kind import data_type, proto_of
from bucketize.onnx.node import Unsupported
from bucketize.ops.dim import dims_within
from bucketize.release import release
from bucketize.types import ANY, Dim, Range, Symbol, TensorType, Type, bounds
from bucketize.types.algebra import term

DOMAIN = "bucketize"  # of the functions
OURS = helper.make_opsetid(DOMAIN, 1)
MAX_DEPTH = 30  # of blocks: what reads files follows 100 messages into each other, three a block
IR_VERSION = 10  # of the file: the oldest that all who read the opset take


def to_onnx(mod: Module) -> ModelProto:
    """The ONNX model, of opset 24, that computes what `mod` does.

    Decisions become nested `If`s on the shapes of the inputs, and each clone a function of the
    model. Weights are there once: initializers of the main graph that functions take as further
    inputs. Inputs and outputs have their names and symbols; bounds are in the model's metadata,
    where `from_onnx` finds them, and ONNX does not check them: only what calls clones does. Sizes
    that it refuses, and those that no bucket covers, end in a `Gather` out of bounds, an error by
    the standard; its name says what is wrong.

    Args:
        mod: the module, dispatched or not.

    Returns:
        The model, with its weights.

    Raises:
        ArgumentError: no module.
        ExportError: all that ONNX has no form for.

    """
    check_module(mod)
    export = _Export(mod)
    graph = export.graph()
    export.check()
    model = helper.make_model(
        graph,
        functions=[c.proto for c in export.callees.values()],
        opset_imports=[helper.make_opsetid("", OPSET), *([OURS] if export.callees else [])],
        ir_version=IR_VERSION,
        producer_name="bucketize",
        producer_version=release(),
    )
    if ranges := _bounds(mod.main):
        helper.set_model_props(model, {BOUNDS: json.dumps(ranges)})
    return model


def _bounds(fn: Function) -> dict[str, Range]:
    """The bounds of what is dynamic, inclusive, unless they are those of any symbol."""
    dims = ((p.name, at, d) for p in fn.params for at, d in enumerate(p.type.axes))
    ranges = {
        raw_name((name, at) if d is ANY else str(d)): _range(d)
        for name, at, d in dims
        if not isinstance(d, int)
    }
    return {name: b for name, b in ranges.items() if b != OPEN}


def _range(dim: Dim) -> Range:
    return dim.bounds if isinstance(dim, Symbol) else bounds(dim)


class _Callee(NamedTuple):
    """A function of the model, and the constants that it takes behind its parameters."""

    proto: FunctionProto
    captured: tuple[Const, ...]


@dataclass
class _Export:
    """A module on its way out, and what was found that cannot go along."""

    module: Module
    initializers: list[TensorProto] = field(default_factory=list)
    derived: dict[tuple[Const, str], Const] = field(default_factory=dict)
    callees: dict[str, _Callee] = field(default_factory=dict)
    """By their names in the module, those first that others call."""
    identifiers: set[str] = field(default_factory=set)
    """The names of functions in the model."""
    entered: list[str] = field(default_factory=list)
    """The functions that are being written, each called by the one before."""
    faults: dict[str, dict[str, None]] = field(default_factory=dict)
    """By what is wrong: where, in order."""

    def check(self) -> None:
        """Raise the one error that lists what cannot be exported, if there is any."""
        if self.faults:
            lines = (f"  {fault} ({', '.join(where)})" for fault, where in self.faults.items())
            raise ExportError("\n".join(["the module cannot be exported:", *lines]))

    def graph(self) -> GraphProto:
        """The main graph."""
        main, names = self.module.main, self.module.outputs
        scope = self._scope(main, self.initializers)
        taken = set(scope.frame.taken)
        scope.frame.taken.update(names)
        for result, name in zip(self._function(scope, main), names, strict=True):
            if (inner := scope.value(result)) == name:
                continue
            if name in taken:
                raise ExportError(f"two values are named {name!r}, one of them a result")
            taken.add(name)
            scope.nodes.append(helper.make_node("Identity", [inner], [name]))
        inputs = [_info(p.name, p.type) for p in main.params]
        outputs = [_info(n, r.type) for n, r in zip(names, main.results, strict=True)]
        return helper.make_graph(scope.nodes, main.name, inputs, outputs, self.initializers)

    # Functions.

    def _callee(self, name: str) -> _Callee:
        if name in self.entered:
            raise ExportError(f"{name} calls itself, which a function of an ONNX model cannot")
        if name not in self.callees:
            self.callees[name] = self._local(self._legal(name))
        return self.callees[name]

    def _legal(self, name: str) -> Function:
        """The function of this name; a clone whose types do not fit as one that refuses."""
        try:
            return self.module.function(name)
        except (TypeRelError, ShapeError) as e:
            refused = refusing(self.module, name, e)
            if refused is None:
                raise
            return refused

    def _local(self, fn: Function) -> _Callee:
        scope = self._scope(fn, None)
        outputs = _returned(scope, self._function(scope, fn))
        captured = scope.frame.captured
        proto = helper.make_function(
            DOMAIN,
            self._identifier(fn.name),
            [*(p.name for p in fn.params), *captured.values()],
            outputs,
            scope.nodes,
            [helper.make_opsetid("", OPSET), OURS],
            doc_string=fn.name,
        )
        return _Callee(proto, tuple(captured))

    def _identifier(self, name: str) -> str:
        """`main_N_2_3` for `main[N=2..3]`: names in ONNX are those of C."""
        name = re.sub(r"\W+", "_", name).strip("_")
        while name in self.identifiers:
            name += "_"
        self.identifiers.add(name)
        return name

    def _scope(self, fn: Function, initializers: list[TensorProto] | None) -> ExportScope:
        """Where a function is written; its parameters are there already."""
        scope = ExportScope(Frame(fn.params, initializers, self.derived))
        for param in fn.params:
            scope.frame.taken.add(param.name)
            scope.bind(param, param.name)
        return scope

    def _function(self, scope: ExportScope, fn: Function) -> Sequence[Atom]:
        """Write a function; its results."""
        self.entered.append(fn.name)
        guarded = self._guarded(fn)
        self._block(scope, guarded)
        self.entered.pop()
        return guarded.results

    def _guarded(self, fn: Function) -> Function:
        """`fn`; if it calls clones it refuses sizes that are not within the symbols' bounds.

        Of these no clone need be right, and ONNX knows no bounds.
        """
        called = (b.attrs["callee"] for b in all_bindings(fn) if b.op is CALL)
        clones = self.module.clones
        bucket = next((clones[name].bucket for name in called if name in clones), {})
        narrow = [s for s in fn.symbols().values() if s.bounds != OPEN]
        dims = tuple(s for s in narrow if s.name in bucket)
        if not dims:
            return fn
        box = tuple((s.lo, None if s.hi is None else s.hi + 1) for s in dims)
        shown = "; ".join(s.option for s in dims)
        rests = tuple(term("%", s, s.step) for s in dims if s.step > 1)  # not known to be 0 here
        out, refusal = Builder(), Builder()
        types = tuple(r.type for r in fn.results)
        refused = refusal.emit_all(NO_BUCKET, sizes=dims, buckets=shown, types=types)
        branches = {
            "then": Function("", (), fn.body, fn.results),
            "orelse": refusal.function("", (), refused),
        }
        within = out.emit(dims_within, dims=(*dims, *rests), box=(*box, *[(0, 1)] * len(rests)))
        results = out.emit_all(IF, within, **branches)
        return out.function(fn.name, fn.params, results)

    # Bindings.

    def _block(self, scope: ExportScope, block: Function) -> None:
        for b in block.body:
            scope.title = b.origin[0] if b.origin else ""
            try:
                names = self._binding(scope, b)
            except (Unsupported, UnknownRankError) as e:
                where = b.origin[0] if b.origin else f"in {self.entered[-1]}"
                self.faults.setdefault(f"{b.op.name}: {e.args[0]}", {})[where] = None
                names = tuple(scope.frame.name("lost") for _ in b.outs)
            for out, name in zip(b.outs, names, strict=True):
                scope.bind(out, name)

    def _binding(self, scope: ExportScope, b: Binding) -> tuple[str, ...]:
        """Write what a binding computes; the names of its results."""
        if b.op in (NO_BUCKET, ILLEGAL):
            return _refusal(scope, b)
        if b.op is IF:
            return self._fork(scope, b)
        if b.op is LOOP:
            return self._loop(scope, b)
        if b.op is CALL:
            return self._call(scope, b)
        if b.op is FUSED:
            return self._group(scope, b)
        if b.op not in RULES:
            raise Unsupported("no rule for this operator")
        names = RULES[b.op](ExportSite(scope, b))
        return names if isinstance(names, tuple) else (names,)

    def _fork(self, scope: ExportScope, b: Binding) -> tuple[str, ...]:
        condition = scope.value(b.args[0])
        then, orelse = (self._branch(scope, b.attrs[name]) for name in ("then", "orelse"))
        branches = {"then_branch": then, "else_branch": orelse}
        return scope.node("If", condition, outputs=len(b.outs), **branches)

    def _loop(self, scope: ExportScope, b: Binding) -> tuple[str, ...]:
        body = self._branch(scope, b.attrs["body"])
        condition = _info(scope.frame.name("proceed"), TensorType(np.dtype(bool), ()))
        inputs = list(body.input)
        body.ClearField("input")
        body.input.extend([inputs[0], condition, *inputs[1:]])
        return scope.node("Loop", *map(scope.value, b.args), outputs=len(b.outs), body=body)

    def _branch(self, outer: ExportScope, block: Function) -> GraphProto:
        """The graph of a block; of its values only what every engine may rely on is said."""
        scope = ExportScope(outer.frame, outer)
        if scope.depth > MAX_DEPTH:
            raise ExportError(f"decisions nest more than {MAX_DEPTH} deep; a file of ONNX cannot")
        for param in block.params:
            scope.bind(param, scope.frame.name(param.name))
        self._block(scope, block)
        names = [*map(scope.value, block.params), *_returned(scope, block.results)]
        # symbols may mean other extents in a function than around its call
        types = [rank_only(a.type) for a in (*block.params, *block.results)]
        infos = list(map(_info, names, types))
        inputs, outputs = infos[: len(block.params)], infos[len(block.params) :]
        return helper.make_graph(scope.nodes, scope.frame.name("block"), inputs, outputs)

    def _call(self, scope: ExportScope, b: Binding) -> tuple[str, ...]:
        callee = self._callee(b.attrs["callee"])
        inputs = [*map(scope.value, b.args), *map(scope.constant, callee.captured)]
        return scope.node(callee.proto.name, *inputs, outputs=len(b.outs), domain=DOMAIN)

    def _group(self, scope: ExportScope, b: Binding) -> tuple[str, ...]:
        """A fused group as the ops that it is made of."""
        body = b.attrs["body"]
        for param, arg in zip(body.params, b.args, strict=True):
            scope.bind(param, scope.value(arg))
        self._block(scope, body)
        return tuple(map(scope.value, body.results))


def _refusal(scope: ExportScope, b: Binding) -> tuple[str, ...]:
    """What fails by the standard: a Gather out of bounds, of nothing; its name says why."""
    sizes = [*b.attrs.get("sizes", ()), *(s for p in scope.frame.params for s in p.type.axes)]
    size = next((s for s in sizes if isinstance(s, Symbol)), 0)  # constants may be folded: too soon
    index = extent(scope, size)
    if b.op is NO_BUCKET:
        shown = ", ".join(map(str, b.attrs["sizes"]))
        scope.title = f"no bucket covers {shown}; buckets: {b.attrs['buckets']}"
    else:
        scope.title = b.attrs["reason"]
    return tuple(_nothing(scope, t, index) for t in b.attrs["types"])


def _nothing(scope: ExportScope, type_: Type, index: str) -> str:
    """Nothing, of this type as far as its extents are known."""
    sizes = tuple(d if isinstance(d, int) else 1 for d in type_.axes)
    if not sizes:
        index = scalar(scope, index)
    none = scope.constant(Const(np.zeros(0, bool)))  # Gather and Expand take not every dtype
    (name,) = scope.node("Gather", none, index, axis=0)
    if sizes not in ((), (1,)):
        (name,) = scope.node("Expand", name, extents(scope, sizes))
    if type_.dtype != bool:
        (name,) = scope.node("Cast", name, to=data_type(type_.dtype))
    return name


def _returned(scope: ExportScope, results: Sequence[Atom]) -> list[str]:
    """The names of results: each is made inside, and different."""
    inside = {name for node in scope.nodes for name in node.output}
    names: list[str] = []
    scope.title = ""
    for result in results:
        name = scope.value(result)
        if name not in inside or name in names:
            (name,) = scope.node("Identity", name)
        names.append(name)
    return names


def _info(name: str, type_: Type) -> ValueInfoProto:
    return helper.make_value_info(name, proto_of(type_))
