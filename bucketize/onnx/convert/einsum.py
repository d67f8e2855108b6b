"""The converter of sums of products by index: to transposes, reductions and matrix products."""

from __future__ import annotations

import re
from typing import NamedTuple

from bucketize.ir import Atom
from bucketize.onnx.convert.shape import places, reshaped
from bucketize.onnx.node import Node, Unsupported, converts, fitted
from bucketize.ops import shape as s
from bucketize.ops.elementwise import arithmetic as e
from bucketize.ops.linalg import matmul
from bucketize.ops.reduce import reduce_sum
from bucketize.types import Shape, product

ANY_AXES = "9876543210"  # what the axes that an ellipsis stands for are called, from the back
TERM = re.compile(r"[a-zA-Z]*(\.\.\.)?[a-zA-Z]*")


class Labelled(NamedTuple):
    """A tensor, and a letter for each of its axes."""

    x: Atom
    letters: str

    def dims(self, letters: str) -> Shape:
        """The extents of some of its axes."""
        return tuple(self.x.type.shape[self.letters.index(c)] for c in letters)


@converts("Einsum")
def _einsum(n: Node) -> Atom:
    """Two operands at a time, from the left; what no one asks for any more is summed at once."""
    operands, out = _parsed(n, n.attr("equation").replace(" ", ""))
    terms = [_diagonal(n, t) for t in operands]
    total = terms[0]
    for i, term in enumerate(terms[1:], 2):
        total = _joined(n, total, term, set(out).union(*(t.letters for t in terms[i:])))
    return _ordered(n, _summed(n, total, set(out)), out)


def _parsed(n: Node, equation: str) -> tuple[list[Labelled], str]:
    """The operands with their letters, and the letters of the result."""
    left, arrow, out = equation.partition("->")
    names = left.split(",")
    if len(names) != len(n.inputs) or not all(map(TERM.fullmatch, (*names, out))):
        raise Unsupported(f"the equation {equation!r} of {len(n.inputs)} operands")
    terms = [_labelled(x, name) for x, name in zip(n.operands, names, strict=True)]
    widest = max(("".join(c for c in t.letters if c in ANY_AXES) for t in terms), key=len)
    if not arrow:
        letters = "".join(names).replace(".", "")
        out = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    out = out.replace("...", widest)
    if len(set(out)) < len(out) or not set(out) <= set("".join(t.letters for t in terms)):
        raise Unsupported(f"the equation {equation!r} has no such result")
    return terms, out


def _labelled(x: Atom, name: str) -> Labelled:
    rank = len(x.type.shape)
    more = rank - len(name.replace("...", ""))
    if not 0 <= more <= (len(ANY_AXES) if "..." in name else 0):
        raise Unsupported(f"{name!r} for {x.type}")
    return Labelled(x, name.replace("...", ANY_AXES[len(ANY_AXES) - more :]))


def _joined(n: Node, a: Labelled, b: Labelled, asked: set[str]) -> Labelled:
    """The product of two terms, with what only they have, and nobody asks for, summed."""
    a, b = _summed(n, a, asked | set(b.letters)), _summed(n, b, asked | set(a.letters))
    both = [c for c in a.letters if c in b.letters]
    batch = "".join(c for c in both if c in asked)
    inner = "".join(c for c in both if c not in asked)
    left = "".join(c for c in a.letters if c not in both)
    right = "".join(c for c in b.letters if c not in both)
    if not inner:
        x, y = _ordered(n, a, batch + left), _ordered(n, b, batch + right)
        behind = tuple(range(len(batch + left), len(batch + left + right)))
        between = tuple(range(len(batch), len(batch + left)))
        x, y = (_spread(n, v, axes) for v, axes in ((x, behind), (y, between)))
        return Labelled(n.emit(e.mul, x, y), batch + left + right)
    x = _merged(n, a, batch, left, inner)
    y = _merged(n, b, batch, inner, right)
    out: Atom = n.emit(matmul, x, y)
    if len(left) != 1 or len(right) != 1:
        out = reshaped(n, out, (*out.type.shape[:-2], *a.dims(left), *b.dims(right)))
    return Labelled(out, batch + left + right)


def _merged(n: Node, t: Labelled, batch: str, rows: str, columns: str) -> Atom:
    """A stack of matrices: several axes, or none, become one."""
    x = _ordered(n, t, batch + rows + columns)
    if len(rows) == len(columns) == 1:
        return x
    return reshaped(n, x, (*t.dims(batch), product(t.dims(rows)), product(t.dims(columns))))


def _ordered(n: Node, t: Labelled, letters: str) -> Atom:
    axes = tuple(t.letters.index(c) for c in letters)
    return t.x if axes == tuple(range(len(axes))) else n.emit(s.transpose, t.x, axes=axes)


def _summed(n: Node, t: Labelled, kept: set[str]) -> Labelled:
    axes = tuple(i for i, c in enumerate(t.letters) if c not in kept)
    if not axes:
        return t
    return Labelled(n.emit(reduce_sum, t.x, axes=axes), "".join(c for c in t.letters if c in kept))


def _spread(n: Node, x: Atom, axes: tuple[int, ...]) -> Atom:
    return n.emit(s.unsqueeze, x, axes=axes) if axes else x


def _diagonal(n: Node, t: Labelled) -> Labelled:
    """The term with each letter once: of two axes of one name, the elements on the diagonal."""
    for c in t.letters:
        if t.letters.count(c) > 1:
            i, j = t.letters.index(c), t.letters.rindex(c)
            rest = tuple(k for k in range(len(t.letters)) if k not in (i, j))
            x = fitted(n, t.x, j, t.x, i)
            x = n.emit(s.transpose, x, axes=(*rest, i, j))
            row, column = (places(n, x, len(rest) + k) for k in (0, 1))
            here = n.emit(e.equal, row, column)
            x = n.emit(e.where, here, x, n.like(x, 0))
            x = n.emit(reduce_sum, x, axes=(len(rest) + 1,))
            return _diagonal(n, Labelled(x, "".join(t.letters[k] for k in (*rest, i))))
    return t
