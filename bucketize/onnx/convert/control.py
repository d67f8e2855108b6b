"""Converters of what holds graphs: these see the values around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bucketize.ir import IF, Atom, Builder, Const, Function, Var
from bucketize.onnx.node import Graph, Node, Unsupported, converts, cut, fitted, vector
from bucketize.ops import concat, dyn_pad, gather, reshape, shape_of, sub, transpose

TRUE = Const(np.array(True))
ENDLESS = Const(np.array(np.iinfo(np.int64).max))


@converts("If")
def _if(n: Node) -> tuple[Atom, ...]:
    then, orelse = n.attr("then_branch"), n.attr("else_branch")
    if not isinstance(then, Function) or not isinstance(orelse, Function):
        raise Unsupported("a branch has inputs")
    return n.builder.emit_all(IF, scalar_of(n.builder, n[0]), then=then, orelse=orelse)


def scalar_of(out: Builder, x: Atom) -> Atom:
    """The only element of a tensor."""
    is_scalar = x.type.is_tensor and not x.type.shape
    return x if is_scalar else out.emit(reshape, x, newshape=())


def _body(n: Node) -> Graph:
    body: Function | Graph = n.attr("body")
    if isinstance(body, Function):
        raise Unsupported("a body without inputs")
    return body


def _made(results: tuple[Atom, ...], least: int) -> tuple[Atom, ...]:
    """What a body made, at least what is carried on."""
    if len(results) < least:
        raise Unsupported(f"a body of {len(results)} outputs, expected {least} at least")
    return results


@converts("Loop")
def _loop(n: Node) -> tuple[Atom, ...]:
    ends = n.optional(0) or ENDLESS, n.optional(1) or TRUE
    carried = tuple(n[i] for i in range(2, len(n.inputs)))
    graph = _body(n)

    def make(params: tuple[Var, ...]) -> Function:
        out = Builder()
        # inside, the condition holds: that is why there is another round
        proceed, *outputs = _made(graph(out, (params[0], TRUE, *params[1:])), len(params))
        return out.function("body", params, (scalar_of(out, proceed), *outputs))

    trips, proceed = (scalar_of(n.builder, e) for e in ends)
    return n.builder.loop(trips, proceed, carried, make)


@converts("Scan", since=8)
def _scan_batch(n: Node) -> tuple[Atom, ...]:
    """Each item of the batch in turn, as many steps of it as it has; behind them are zeros."""
    lengths, count = n.optional(0), n.attr("num_scan_inputs")
    operands = tuple(n[i] for i in range(1, len(n.inputs)))
    if not 0 < count <= len(operands):
        raise Unsupported(f"num_scan_inputs is {count} of {len(operands)} inputs")
    backward, graph = _several(n, "directions", count), n.attr("body")
    if len(operands[-1].type.shape) < 2:
        raise Unsupported(f"rows of {operands[-1].type}, which must have rank 2 or more")
    operands = tuple(fitted(n, x, 0, operands[-1], 0) for x in operands)
    long = (fitted(n, x, 1, operands[-1], 1) for x in operands[-count:])
    operands = (*operands[:-count], *long)
    batch, most = (extent_of(n.builder, operands[-1], axis) for axis in (0, 1))

    def item(params: tuple[Var, ...]) -> Function:
        out, (b,) = Builder(origin=n.builder.origin), params
        each = [out.emit(gather, x, b, axis=0) for x in operands]
        states, rows = each[:-count], each[-count:]
        trips = most if lengths is None else out.emit(gather, lengths, b, axis=0)
        step = _step(n, rows, (0,) * count, backward, trips, graph)
        results = out.loop(trips, TRUE, states, step)
        last: Sequence[Atom] = results[: len(states)]
        stacked: Sequence[Atom] = results[len(states) :]
        if lengths is not None:
            stacked = [_filled(out, x, out.emit(sub, most, trips)) for x in stacked]
        return out.function("item", params, (TRUE, *last, *stacked))

    return n.builder.loop(batch, TRUE, (), item)


def _filled(out: Builder, x: Atom, count: Atom) -> Atom:
    """`x` with as many rows of zeros behind it."""
    pads = out.emit(concat, vector(0), out.emit(reshape, count, newshape=(1,)), axis=0)
    return out.emit(dyn_pad, x, pads, vector(0))


@converts("Scan", since=9)
def _scan(n: Node) -> tuple[Atom, ...]:
    count = n.attr("num_scan_inputs")
    if not 0 < count <= len(n.operands):
        raise Unsupported(f"num_scan_inputs is {count} of {len(n.operands)} inputs")
    states, rows = n.operands[:-count], n.operands[-count:]
    axes = _axes(n, "scan_input_axes", rows)
    backward = _several(n, "scan_input_directions", count)
    rows = tuple(fitted(n, x, axis, rows[0], axes[0]) for x, axis in zip(rows, axes, strict=True))
    trips = extent_of(n.builder, rows[0], axes[0])
    step = _step(n, rows, axes, backward, trips, _body(n))
    results = n.builder.loop(trips, TRUE, states, step)
    return (*results[: len(states)], *_laid_out(n, results[len(states) :]))


def _step(
    n: Node,
    rows: Sequence[Atom],
    axes: Sequence[int],
    backward: Sequence[int],
    trips: Atom,
    graph: Graph,
) -> Callable[[tuple[Var, ...]], Function]:
    """What makes the body of a scan: a graph on what is carried and a slice of each of `rows`."""

    def make(params: tuple[Var, ...]) -> Function:
        out = Builder(origin=n.builder.origin)
        places = params[0], from_the_back(out, params[0], trips) if any(backward) else params[0]
        taken = [
            out.emit(gather, x, places[back], axis=axis)
            for x, axis, back in zip(rows, axes, backward, strict=True)
        ]
        outputs = _made(graph(out, (*params[1:], *taken)), len(params) - 1)
        return out.function("body", params, (TRUE, *outputs))

    return make


def _laid_out(n: Node, stacked: Sequence[Atom]) -> list[Atom]:
    """What rounds made, in the directions and along the axes that are asked for."""
    axes = _axes(n, "scan_output_axes", stacked)
    backward = _several(n, "scan_output_directions", len(stacked))
    turned = [reverse(n.builder, x) if b else x for x, b in zip(stacked, backward, strict=True)]
    return [_moved(n, x, axis) for x, axis in zip(turned, axes, strict=True)]


def _moved(n: Node, x: Atom, axis: int) -> Atom:
    order = list(range(1, len(x.type.shape)))
    order.insert(axis, 0)
    return n.emit(transpose, x, axes=tuple(order)) if axis else x


def _axes(n: Node, name: str, atoms: Sequence[Atom]) -> list[int]:
    ranks = [len(a.type.shape) for a in atoms]
    pairs = zip(_several(n, name, len(atoms)), ranks, strict=True)
    return [n.front((axis,), rank)[0] for axis, rank in pairs]


def _several(n: Node, name: str, count: int) -> tuple[int, ...]:
    """An attribute of an integer for each of some tensors; zeros if it is not given."""
    given: tuple[int, ...] = n.attr(name, (0,) * count)
    if len(given) != count:
        raise Unsupported(f"{name} has {len(given)} elements, expected {count}")
    return given


# --- rows of a sequence --------------------------------------------------------------------------


def extent_of(out: Builder, x: Atom, axis: int) -> Atom:
    """An extent as a scalar."""
    extent = x.type.shape[axis]
    if isinstance(extent, int):
        return Const(np.array(extent, np.int64))
    return out.emit(gather, out.emit(shape_of, x), Const(np.array(axis, np.int64)), axis=0)


def from_the_back(out: Builder, i: Atom, count: Atom) -> Atom:
    """The place of row `i`, counted from the last of `count`."""
    last = out.emit(sub, count, Const(np.array(1, np.int64)))
    return out.emit(sub, last, i)


def reverse(out: Builder, x: Atom) -> Atom:
    """The rows of `x` in the other order."""
    return cut(out, x, 0, -1, -(2**63), -1)
