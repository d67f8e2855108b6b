"""What of a workload is attention: which parameters are Q, K, V, and how they are read.

Two products with a softmax between them; elementwise ops and tails of padding before the softmax,
what puts 0 in the place of weights behind it, and around it all what says how rows are read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bucketize.ir import Atom, Binding, Const
from bucketize.kernel.gemm import epilogue
from bucketize.kernel.gemm.epilogue import FLOAT32, Epilogue
from bucketize.kernel.workload import Workload
from bucketize.ops import (
    broadcast_to,
    div,
    isnan,
    mask_segments,
    mask_tail,
    matmul,
    mul,
    reshape,
    softmax,
    transpose,
    unsqueeze,
    where,
)
from bucketize.types import Dim


@dataclass(frozen=True)
class Read:
    """A parameter, the order in which its axes are read, and what it is multiplied by.

    It is read `count` times along an axis, each element so often before the next: shared heads.
    """

    place: int
    axes: tuple[int, ...]
    factor: float = 1.0
    count: int = 1
    along: int = 0
    """The axis, in the order of `axes`, that its elements are repeated along."""

    def seen(self, extents: Sequence[Dim]) -> tuple[Dim, ...]:
        """What is told for each axis, in that order."""
        return tuple(extents[a] for a in self.axes)


@dataclass(frozen=True)
class Attention:
    """A workload as attention."""

    query: Read
    key: Read
    """The second factor of the scores: its last axis counts the keys."""
    value: Read
    out: tuple[int, ...]
    """The axes of the result by those of the product."""
    clean: bool
    """Whether rows of weights that are no numbers count as 0."""
    limit: int | None
    """The place of how many keys there are, where others are padding."""
    segments: int | None
    """The place of where segments end, whose rows see their own keys alone."""
    epilogue: Epilogue
    scores: Binding


def attention_of(workload: Workload) -> Attention | None:
    """The workload as attention; None if it is none, or one that the kernel cannot compute."""
    body = workload.body.body
    first, *more = [i for i, b in enumerate(body) if b.op is matmul] or [0]
    if len(more) != 1 or any(body[i].attrs["weights"] != "float32" for i in (first, *more)):
        return None
    before: dict[Atom, Binding] = {b.out: b for b in body[:first]}
    behind = [b for b in body[-1:] if b.op is transpose]
    chain = list(body[first : len(body) - len(behind)])
    cleaning = _cleaning(chain)
    kept = [b for b in chain if b not in cleaning]
    if len(kept) < 3 or [b.op for b in kept[-2:]] != [softmax, matmul]:
        return None
    scores, *steps, weights, last = kept
    limit = _limit(workload, steps, cleaning)
    if limit is not None:
        steps.pop()
    segments = _segments(workload, steps)
    if segments is not None:
        steps.pop()
    tail = epilogue.of_steps(workload, scores, steps, truths=True)
    reads = [_read(workload, a, before) for a in (*scores.args, last.args[1])]
    if tail is None or None in reads or before or not _is_chain(chain, behind, workload):
        return None
    if limit is None and any(b.op is mask_tail for b in cleaning):
        return None
    query, key, value = (r for r in reads if r is not None)
    rank = len(scores.out.type.shape)
    out = behind[0].attrs["axes"] if behind else tuple(range(rank))
    tail = tail.scaled(float(np.float32(query.factor * key.factor)))
    clean = bool(cleaning) and limit is None
    attention = Attention(query, key, value, out, clean, limit, segments, tail, scores)
    return attention if weights.attrs["axis"] == rank - 1 and _fits(attention, last) else None


def _cleaning(chain: Sequence[Binding]) -> Sequence[Binding]:
    """What puts 0 in the place of weights before the last of a chain."""
    if [b.op for b in chain[-3:-1]] == [softmax, mask_tail]:
        return chain[-2:-1]
    if [b.op for b in chain[-4:-1]] != [softmax, isnan, where]:
        return ()
    weights, test, put = chain[-4:-1]
    zero = isinstance(put.args[1], Const) and put.args[1].value.size == 1
    zero = zero and not put.args[1].value.any()  # type: ignore[union-attr]
    fits = test.args[0] is weights.out and put.args[::2] == (test.out, weights.out)
    return (test, put) if zero and fits else ()


def _limit(workload: Workload, steps: Sequence[Binding], cleaning: Sequence[Binding]) -> int | None:
    """The parameter that tells how many keys are no padding, on both sides of the softmax."""
    if not steps or len(cleaning) != 1:
        return None
    before, behind = steps[-1], cleaning[0]
    count, last = before.args[-1], len(before.out.type.shape) - 1
    if (before.op, count) != (behind.op, behind.args[-1]) or count not in workload.body.params:
        return None
    tails = [(b.attrs["axis"], b.attrs["value"]) for b in (before, behind)]
    return workload.body.params.index(count) if tails == [(last, -math.inf), (last, 0)] else None


def _segments(workload: Workload, steps: Sequence[Binding]) -> int | None:
    """The parameter that tells where segments end, of what is masked last before the softmax."""
    if not steps or steps[-1].op is not mask_segments or steps[-1].attrs["value"] != -math.inf:
        return None
    ends = steps[-1].args[1]
    return workload.body.params.index(ends) if ends in workload.body.params else None


def _read(workload: Workload, atom: Atom, before: dict[Atom, Binding]) -> Read | None:
    """What an op reads of the parameters, through transposes, repetition, products by numbers.

    They are taken out of what comes `before`.
    """
    axes, factor, repeat = tuple(range(len(atom.type.shape))), 1.0, (1, 0)
    while b := before.pop(atom, None):
        if b.op is transpose:
            atom, axes = b.args[0], tuple(b.attrs["axes"][a] for a in axes)
        elif b.op is reshape and (repetition := _repeated(b, before)) and repeat == (1, 0):
            atom, count, along = repetition
            repeat = count, axes.index(along)
        elif number := _number(b):
            atom, factor = number[0], factor * number[1]
        else:
            return None
    if atom not in workload.body.params or atom.type.dtype != FLOAT32:
        return None
    return Read(workload.body.params.index(atom), axes, factor, *repeat)


def _repeated(b: Binding, before: dict[Atom, Binding]) -> tuple[Atom, int, int] | None:
    """What is repeated as exporters write it, how often, and along which axis."""
    spread_ = before.pop(b.args[0], None)
    new = before.pop(spread_.args[0], None) if spread_ else None
    if spread_ is None or new is None or (spread_.op, new.op) != (broadcast_to, unsqueeze):
        return None
    x, (axis, *more) = new.args[0], new.attrs["axes"]
    shape = x.type.shape
    count = spread_.out.type.shape[axis] if not more and 0 < axis < len(shape) + 1 else None
    if not isinstance(count, int):
        return None
    along = axis - 1
    apart = (*shape[:axis], count, *shape[axis:])
    joined = (*shape[:along], shape[along] * count, *shape[axis:])
    fits = spread_.out.type.shape == apart and b.out.type.shape == joined
    return (x, count, along) if fits else None


def _number(b: Binding) -> tuple[Atom, float] | None:
    """What a binding multiplies by a number or divides by one, and the number."""
    if b.op not in (mul, div):
        return None
    x, y = b.args if isinstance(b.args[1], Const) or b.op is div else b.args[::-1]
    if not isinstance(y, Const) or y.value.size != 1 or len(x.type.shape) < len(y.type.shape):
        return None
    number = float(y.value.reshape(-1)[0])
    return (x, number if b.op is mul else 1 / number) if number else None


def _is_chain(chain: Sequence[Binding], behind: Sequence[Binding], workload: Workload) -> bool:
    """Whether each reads the one before it, where attention has it, and the last is the result."""
    soft = next(i for i, b in enumerate(chain) if b.op is softmax)
    pairs = [(chain[soft - 1], chain[soft]), (chain[-2], chain[-1])]
    pairs += [(chain[-1], b) for b in behind]
    direct = all(later.args[0] is earlier.out for earlier, later in pairs)
    return direct and workload.body.results == [*chain, *behind][-1].outs


def _fits(attention: Attention, last: Binding) -> bool:
    """Whether rows lie as the kernel reads and writes them, and the batch is that of the scores."""
    rank = len(attention.scores.out.type.shape)
    reads = attention.query, attention.key, attention.value
    rows = attention.query.axes, attention.value.axes, attention.out
    repeats = {(r.count, r.along) for r in reads if r.count > 1}
    return (
        attention.value.factor == 1
        and attention.query.count == 1
        and len(repeats) <= 1
        and all(along < rank - 2 for _, along in repeats)
        and all(len(r.axes) == rank for r in reads)
        and all(axes[-1] == rank - 1 for axes in rows)
        and rank - 1 in attention.key.axes[-2:]
        and attention.scores.out.type.shape[:-1] == last.out.type.shape[:-1]
    )
