"""The one model of a kernel's work: what it multiplies and what it moves."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from bucketize.ir import Atom, Binding
from bucketize.kernel.workload import Workload
from bucketize.op import Movement
from bucketize.types import Dim, product

FORK = 50_000
"""Multiplications, or bytes, below which a kernel is not shared: what it would give is no
more than the time to fetch what another core made."""
FORK_S = 1e-6
"""Seconds to share a kernel: 0.2 us to tell of its parts; the rest, to fetch what another core
made, is an estimate."""


@dataclass(frozen=True)
class Work:
    """What a workload takes at least, over dims."""

    multiplications: Dim
    moved: Dim
    """Bytes read and written."""
    constant: Dim
    """Bytes of constants among those moved."""

    @property
    def total(self) -> Dim:
        """One number for both: what `FORK` is held against."""
        return self.multiplications + self.moved


def work(workload: Workload) -> Work:
    """The work of a workload; of ops that reduce nothing the multiplications do not count."""
    part = read_in_part(workload)
    atoms = (*workload.body.params, *workload.body.results)
    types = [workload.anchor.out.type if a is part else a.type for a in atoms]
    moved = [product(t.shape) * t.dtype.itemsize for t in types]
    fixed = itertools.compress(moved, workload.constant)
    done = sum(map(multiplications, workload.body.body), start=0)
    return Work(done, sum(moved, start=0), sum(fixed, start=0))


def read_in_part(workload: Workload) -> Atom | None:
    """The operand of which no more is read than the result holds, as of a table; None: of none."""
    alone = len(workload.body.body) == 1
    its = workload.anchor
    return its.args[0] if alone and its.op.movement is Movement.PART else None


def multiplications(b: Binding) -> Dim:
    """Multiplications of a product or a convolution, done directly; of other ops none count."""
    if b.op.work is None:
        return 0
    return b.op.work(*(a.type.shape for a in (b.out, *b.args)), **b.attrs)
