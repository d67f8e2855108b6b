"""A workload at one shape: inputs, the reference's result, and how far a kernel's is from it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np

from bucketize.interpret import run_function
from bucketize.ir import specialise
from bucketize.kernel.template import Shapes
from bucketize.kernel.workload import Workload
from bucketize.op import Array
from bucketize.runtime.storage import aligned, empty_bytes
from bucketize.text import parse_function
from bucketize.tune.measure import Job
from bucketize.types import TensorType, evaluate

TOLERANCE = 1e-4  # of the largest magnitude in the reference
RIM = 1024  # guarded bytes on either side of a result
PATTERN = 0xA5
KEPT = 8  # cases that are remembered


@dataclass(frozen=True, eq=False)
class Case:
    """Random inputs of a workload at concrete sizes, and the reference's result."""

    workload: Workload
    concrete: Workload
    inputs: tuple[Array, ...]
    expected: Array

    @property
    def shapes(self) -> Shapes:
        """Those of the inputs, then that of the result."""
        return tuple(array.shape for array in (*self.inputs, self.expected))


_cases: OrderedDict[str, Case] = OrderedDict()


def case_of(job: Job) -> Case:
    """The case that a job is about; evaluated once for all its schedules."""
    key = replace(job, schedule={}, template="", threads=1, weight_bytes=0).encode()
    if key not in _cases:
        _cases[key] = _new_case(job)
        if len(_cases) > KEPT:
            _cases.popitem(last=False)
    return _cases[key]


def _new_case(job: Job) -> Case:
    workload = Workload(parse_function(job.body, job.table), job.constant)
    assert workload.hash == job.workload, f"{job.workload} came as {workload.key}"
    body = specialise(workload.body, job.sizes)
    dice = np.random.default_rng(0)
    inputs = tuple(_random(dice, param.type) for param in body.params)
    (expected,) = run_function(body, inputs)
    return Case(workload, Workload(body, job.constant), inputs, expected)


def _random(dice: np.random.Generator, type_: TensorType) -> Array:
    """Normal floats; integers of 0 and 1, which are legal indices nearly everywhere."""
    shape = tuple(evaluate(dim, {}) for dim in type_.shape)
    values = dice.standard_normal(shape) if type_.dtype.kind == "f" else dice.integers(0, 2, shape)
    return aligned(np.asarray(values).astype(type_.dtype))


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
