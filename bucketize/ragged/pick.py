"""Rules of packing, of ops that pick elements: slices and gathers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from bucketize.ir import Atom, Binding, Const
from bucketize.op import Attrs
from bucketize.ops import gather, reshape, strided_slice
from bucketize.ragged.fact import OF_ROW, OF_TOKEN, Form, Index, are_neighbours, axis_of, moved
from bucketize.ragged.packer import Packer
from bucketize.types import Shape


def sliced(p: Packer, b: Binding) -> None:
    """What is cut along other axes; a table as long as a row; the first token of each row."""
    (x,) = b.args
    shape, new = x.type.shape, b.out.type.shape
    rank, rows = len(shape), p.axes.rows(shape)
    cuts = {axis - rank: cut for axis, *cut in _cuts(b.attrs)}
    counted, kept = p.axes.tokens(shape), p.axes.tokens(new)
    if any(shape[k] != new[k] for k in rows if k in cuts):
        p.refuse(b, "it cuts rows")
    if any(cuts[k][-1] < 0 for k in (*rows, *counted) if k in cuts):
        p.refuse(b, "it turns rows or tokens around")
    if counted == kept and all(shape[k] == new[k] for k in counted):
        _cut(p, b, [k + rank for k in counted])
    elif not counted and len(kept) == 1 and cuts[kept[0]][::2] == [0, 1]:
        x = _cut_atom(p, b, [kept[0] + rank])
        p.put(b, p.out.emit(gather, x, p.position, axis=kept[0] + rank))
    elif len(counted) == len(cuts) == 1 and cuts[counted[0]][0] == 0 and new[counted[0]] == 1:
        _first_tokens(p, b, counted[0] + rank)
    else:
        p.refuse(b, f"it cuts tokens: {shown(shape)} to {shown(new)}")


def _cuts(attrs: Attrs) -> Iterator[tuple[Any, ...]]:
    """Axis, begin, end and step of each cut."""
    return zip(*(attrs[name] for name in ("axes", "begin", "end", "strides")), strict=True)


def _cut(p: Packer, b: Binding, but: Sequence[int]) -> None:
    p.put(b, _cut_atom(p, b, but), replace(p.fact(b.args[0]), index=()))


def _cut_atom(p: Packer, b: Binding, but: Sequence[int]) -> Atom:
    """The argument, cut along all axes but these."""
    left = [i for i, a in enumerate(b.attrs["axes"]) if a not in but]
    attrs = {name: tuple(values[i] for i in left) for name, values in b.attrs.items()}
    x = p.atom(b.args[0])
    return p.out.emit(strided_slice, x, **p.attrs(attrs, p.form(b.args[0]))) if left else x


def shown(shape: Shape) -> str:
    """A shape as people read it."""
    return f"[{', '.join(map(str, shape))}]"


def _first_tokens(p: Packer, b: Binding, axis: int) -> None:
    """The first token of each row."""
    x = b.args[0]
    rank = len(x.type.shape)
    at = p.axes.rows(x.type.shape)
    if not at or not are_neighbours(x.type.shape, at[0] + rank, axis):
        p.refuse(b, f"of {x.type} rows and tokens are not neighbours")
    first = p.out.emit(gather, p.atom(x), p.begins(), axis=axis)
    p.put(b, p.out.emit(reshape, first, newshape=p.shape(b.out.type)))


def gathered(p: Packer, b: Binding) -> None:
    """Entries of a table, of other axes, the first token of each row, or each token itself."""
    x, index = b.args
    axis, rank = b.attrs["axis"], len(x.type.shape)
    axis += rank if axis < 0 else 0
    if axis - rank in p.axes.tokens(x.type.shape):
        own = Index(p.axes.sequence, 1, 0)
        if p.fact(index).index == (own,) and x.type.shape[0] == p.axes.batch * p.axes.sequence:
            _own(p, b)
            return
        first = isinstance(index, Const) and index.value.size == 1 and not index.value.any()
        crowded = axis - rank in p.axes.rows(x.type.shape)
        if not first or crowded or p.form(x) is not Form.TOKEN:
            p.refuse(b, f"of {x.type} it picks tokens by their places, others than the first")
        _first_tokens(p, b, axis)
        return
    if axis - rank in p.axes.rows(x.type.shape):
        p.refuse(b, "it picks rows")
    p.check_lost(b)
    if p.form(x) is not Form.SHARED and p.form(index) is not Form.SHARED:
        p.refuse(b, f"of {x.type} it picks by {index.type}")
    p.put(b, p.emit(b, [p.atom(x), p.atom(index)]))


def _own(p: Packer, b: Binding) -> None:
    """What an index that says of each token where it is picks: all tokens, in another shape."""
    x, index = b.args
    places = p.axes.strides(index.type.shape if b.op is gather else index.type.shape[:-1])
    if (places[p.axes.batch], places[p.axes.sequence]) != ([p.axes.sequence], [1]):
        p.refuse(b, f"{index.type} has tokens in an order of its own")
    old, new = p.axes.tokens(x.type.shape), p.axes.tokens(b.out.type.shape)
    atom = p.out.emit(reshape, p.atom(x), newshape=p.shape(b.out.type))
    p.put(b, atom, replace(moved(p.fact(x), dict(zip(old, new, strict=True))), index=()))


def gathered_at(p: Packer, b: Binding) -> None:
    """Each token itself, picked by row and place."""
    x, index = b.args
    fact = p.fact(index)
    ends = x.type.shape[:2] == (p.axes.batch, p.axes.sequence)
    if b.attrs["batch_dims"] or not ends or fact.index != (OF_ROW, OF_TOKEN):
        p.refuse(b, f"of {x.type} it picks by {index.type}")
    _own(p, b)


def gathered_along(p: Packer, b: Binding) -> None:
    """Entries along an axis that counts neither rows nor tokens, for each element of the others."""
    x, index = b.args
    shape, rank = x.type.shape, len(x.type.shape)
    axis = axis_of(b)
    ours = [{*p.axes.rows(s), *p.axes.tokens(s)} for s in (shape, index.type.shape)]
    if axis in ours[0] or any(k in ours[0] ^ ours[1] for k in range(-rank, 0) if k != axis):
        p.refuse(b, f"of {x.type} it picks by {index.type}")
    if Form.ROW in (p.form(x), p.form(index)):
        p.refuse(b, f"of {x.type} it picks by {index.type}, of rows")
    p.put(b, p.emit(b, [p.atom(x), p.atom(index)]))
