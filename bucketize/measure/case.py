"""A workload at one shape: inputs, the reference's result, and how far a kernel's is from it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bucketize.interpret import run_function
from bucketize.ir import Var, specialise
from bucketize.kernel.template import Shapes
from bucketize.kernel.workload import Workload
from bucketize.link.memory import Pool, aligned, empty_bytes
from bucketize.measure.job import Job
from bucketize.op import Array
from bucketize.text import show
from bucketize.types import Type, evaluate

TOLERANCE = 1e-4  # of the largest magnitude in the reference
RIM = 1024  # guarded bytes on either side of a result
PATTERN = 0xA5
KEPT_BYTES = 1 << 29  # of cases that are remembered, the memory of their rings included


@dataclass(frozen=True, eq=False)
class KernelCase:
    """Random inputs of a workload at concrete sizes, and the reference's result."""

    workload: Workload
    concrete: Workload
    inputs: tuple[Array, ...]
    expected: Array
    layouts: dict[tuple[int, str], Array] = field(default_factory=dict)
    """Constants as kernels want them laid out, by place and layout."""
    rings: dict[tuple[int, str], list[Array]] = field(default_factory=dict)
    """By the place of a constant and the kind of its numbers, memory that holds such, in any
    layout."""
    pool: Pool = field(default_factory=Pool)
    """Where these lie, as in an executable."""
    fresh_bytes: int = 0
    """Bytes of its own arrays; the others it has from cases of the same workload."""

    def laid_out(self, place: int, key: str, pack: Callable[[], Array | None]) -> Array:
        """A constant in a layout that `pack` makes."""
        if (place, key) not in self.layouts:
            packed = pack()
            given = self.inputs[place]
            self.layouts[place, key] = given if packed is None else self.pool.copy(packed)
        return self.layouts[place, key]

    def ring(self, place: int, like: Array, turns: int) -> Sequence[Array]:
        """Arrays in place of a constant in some layout, `turns` of them, each in memory of its own.

        Which floats they hold changes no timing; all layouts share them. Integers that nobody laid
        out may be indices, and stay what they are.
        """
        kind = like.dtype.kind
        if kind != "f" and like is self.inputs[place]:
            return [like]
        ring = self.rings.get((place, kind), [])
        if len(ring) < turns or ring[0].nbytes < like.nbytes:
            ring = [_filled(like, self.pool) for _ in range(turns)]
            self.rings[place, kind] = ring
        return [a[: like.nbytes].view(like.dtype).reshape(like.shape) for a in ring[:turns]]

    @property
    def shapes(self) -> Shapes:
        """Shapes of the inputs, then that of the result."""
        return tuple(array.shape for array in (*self.inputs, self.expected))


_cases: OrderedDict[tuple[object, ...], KernelCase] = OrderedDict()


def case_of(job: Job) -> KernelCase:
    """The case that a job is about; evaluated once for all its implementations."""
    group = (job.workload.hash, show(job.workload.body), job.weight_bytes)
    key = (*group, job.shape)
    if key in _cases:
        _cases.move_to_end(key)
    else:
        while _cases and _kept() > KEPT_BYTES:
            _cases.popitem(last=False)
        kin = next((case for other, case in _cases.items() if other[:-1] == group), None)
        _cases[key] = _new_case(job, kin)
    return _cases[key]


def _kept() -> int:
    """The bytes of all cases, what they share counted once."""
    pools = {id(case.pool): case.pool for case in _cases.values()}
    return sum(c.fresh_bytes for c in _cases.values()) + sum(p.nbytes for p in pools.values())


def _new_case(job: Job, kin: KernelCase | None) -> KernelCase:
    """One with the constants of another size's, their layouts and their rings, if there is any."""
    workload = job.workload
    body = specialise(workload.body, job.sizes)
    dice = np.random.default_rng(0)
    shared = {i: kin.inputs[i] for i, constant in enumerate(workload.constant) if kin and constant}
    inputs = tuple(
        shared[i] if i in shared else random_array(dice, param.type, {})
        for i, param in enumerate(body.params)
    )
    (expected,) = run_function(body, inputs)
    fresh = [expected, *(a for i, a in enumerate(inputs) if i not in shared)]
    case = KernelCase(
        workload=workload,
        concrete=Workload(body, workload.constant),
        inputs=inputs,
        expected=expected,
        fresh_bytes=sum(array.nbytes for array in fresh),
    )
    if kin is None:
        return case
    return replace(case, layouts=kin.layouts, rings=kin.rings, pool=kin.pool)


def random_inputs(params: Iterable[Var], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Arrays for parameters, by name; the same each time."""
    dice = np.random.default_rng(0)
    return {p.name: random_array(dice, p.type, sizes) for p in params}


def random_array(dice: np.random.Generator, type_: Type, sizes: Mapping[str, int]) -> Array:
    """Normal floats; integers of 0 and 1, which are legal indices nearly everywhere."""
    shape = tuple(evaluate(dim, sizes) for dim in type_.shape)
    if type_.dtype.kind == "f":
        wide = np.float64 if type_.dtype.itemsize > 4 else np.float32
        return aligned(np.asarray(dice.standard_normal(shape, wide)).astype(type_.dtype))
    return aligned(np.asarray(dice.integers(0, 2, shape)).astype(type_.dtype))


def _filled(like: Array, pool: Pool) -> Array:
    """Bytes with the numbers of an array, and some more: layouts differ in what they fill up."""
    size = like.nbytes + like.nbytes // 4
    raw = pool.empty_bytes(size)
    raw[:] = np.resize(like.reshape(-1).view(np.uint8), size)
    return raw


class Output:
    """A result buffer, poisoned, within a guarded rim."""

    def __init__(self, like: Array) -> None:
        self._bytes = empty_bytes(like.nbytes + 2 * RIM)
        self._bytes[:] = PATTERN
        inside = self._bytes[RIM : RIM + like.nbytes]
        self.array: Array = inside.view(like.dtype).reshape(like.shape)
        if like.dtype.kind == "f":
            self.array[...] = np.nan

    def rim_is_whole(self) -> bool:
        """Whether nothing was written around the result."""
        before, after = self._bytes[:RIM], self._bytes[RIM + self.array.nbytes :]
        return bool((before == PATTERN).all() and (after == PATTERN).all())


def fault(error: float, output: Output) -> str:
    """What is wrong with a result; nothing, if it is right."""
    if not output.rim_is_whole():
        return "wrote outside of its output"
    if error > TOLERANCE:
        return f"relative error {error:.3g} is above {TOLERANCE:g}"
    return ""
