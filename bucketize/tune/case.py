"""A workload at one shape: inputs, the reference's result, and how far a kernel's is from it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from bucketize.interpret import run_function
from bucketize.ir import specialise
from bucketize.kernel.template import Shapes
from bucketize.kernel.workload import Workload
from bucketize.op import Array
from bucketize.runtime.storage import aligned, empty_bytes
from bucketize.tune.measure import Job
from bucketize.types import TensorType, evaluate

TOLERANCE = 1e-4  # of the largest magnitude in the reference
MOST_COPIES = 256  # of a constant: of small ones no more bytes than these pass by
RIM = 1024  # guarded bytes on either side of a result
PATTERN = 0xA5
KEPT_BYTES = 1 << 29  # of cases that are remembered, copies of weights included


@dataclass(frozen=True, eq=False)
class Case:
    """Random inputs of a workload at concrete sizes, and the reference's result."""

    workload: Workload
    concrete: Workload
    inputs: tuple[Array, ...]
    expected: Array
    copies: dict[tuple[int, str], list[Array]] = field(default_factory=dict)
    """Of constants as kernels want them laid out, by place and layout."""

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        held = (*self.inputs, self.expected, *(a for of in self.copies.values() for a in of))
        return sum(array.nbytes for array in held)

    def packed(
        self, place: int, key: str, pass_by: int, pack: Callable[[int], Array | None]
    ) -> list[Array]:
        """As many copies of a constant as hold `pass_by` bytes, at least one; `pack` makes it."""
        if (place, key) not in self.copies:
            if self.nbytes > KEPT_BYTES:
                self.copies.clear()
            packed = pack(place)
            one = aligned(self.inputs[place] if packed is None else packed)
            more = min(pass_by // max(one.nbytes, 1), MOST_COPIES)
            self.copies[place, key] = [one, *(_copy(one) for _ in range(more))]
        return self.copies[place, key]

    @property
    def shapes(self) -> Shapes:
        """Those of the inputs, then that of the result."""
        return tuple(array.shape for array in (*self.inputs, self.expected))


_cases: OrderedDict[tuple[object, ...], Case] = OrderedDict()


def case_of(job: Job) -> Case:
    """The case that a job is about; evaluated once for all its implementations."""
    key = (job.workload, job.body, job.shape, job.weight_bytes)
    if key in _cases:
        _cases.move_to_end(key)
    else:
        while _cases and sum(case.nbytes for case in _cases.values()) > KEPT_BYTES:
            _cases.popitem(last=False)
        _cases[key] = _new_case(job)
    return _cases[key]


def _new_case(job: Job) -> Case:
    workload = job.parsed()
    assert workload.hash == job.workload, f"{job.workload} came as {workload.key}"
    body = specialise(workload.body, job.sizes)
    dice = np.random.default_rng(0)
    inputs = tuple(random_array(dice, param.type, {}) for param in body.params)
    (expected,) = run_function(body, inputs)
    return Case(workload, Workload(body, job.constant), inputs, expected)


def random_array(dice: np.random.Generator, type_: TensorType, sizes: Mapping[str, int]) -> Array:
    """Normal floats; integers of 0 and 1, which are legal indices nearly everywhere."""
    shape = tuple(evaluate(dim, sizes) for dim in type_.shape)
    values = dice.standard_normal(shape) if type_.dtype.kind == "f" else dice.integers(0, 2, shape)
    return aligned(np.asarray(values).astype(type_.dtype))


def _copy(array: Array) -> Array:
    out = empty_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


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
