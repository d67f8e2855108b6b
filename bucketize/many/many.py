"""`Executable.run_many`: rows of requests share calls; no request is lost with another.

Of several ways that requests could share calls, that is taken which the models of kernels expect to
end first: each as it is, as batches of equal shapes, or packed, whatever their lengths; and on
several threads one call after the other by all of them, or calls side by side, a thread each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from bucketize.call import arrange_inputs, bind_shapes, shapes_of
from bucketize.dispatch.tree import original_of
from bucketize.errors import (
    ArgumentError,
    BucketizeError,
    CompileError,
    RaggedError,
    RequestsError,
    message_of,
)
from bucketize.ir import Module, Var
from bucketize.machine.target import cores
from bucketize.many.batched import GAIN, Batched
from bucketize.many.costs import Costs
from bucketize.many.deliver import Delivery, Done, Run
from bucketize.many.fitting import Fitting
from bucketize.many.limits import CallLimits
from bucketize.many.packed import Packed
from bucketize.many.plan import IN_REQUEST, CallPlan, PlannedCall, Row
from bucketize.many.together import Together
from bucketize.op import Value
from bucketize.program.program import Program
from bucketize.ragged.name import ragged_name
from bucketize.release import rest
from bucketize.runtime.memory import Memory
from bucketize.traffic.counter import Shared
from bucketize.types import Sizes

Request: TypeAlias = Mapping[str, Value]
Inputs: TypeAlias = Mapping[int, list[Value]]
Count: TypeAlias = Callable[[Iterable[Shared]], None]
SHOWN = 3  # failed requests that a message names
SAMPLED = 32  # requests that models are asked about; what others take lies between these


@dataclass(frozen=True)
class Way:
    """How requests may share calls."""

    together: Together | None
    """None: each is run as it is."""
    why: str = ""
    """Why nothing shares a call, if nothing does."""


@dataclass(frozen=True, eq=False)
class Many:
    """Runs lists of requests, in as few calls as pay."""

    params: tuple[Var, ...]
    ways: Sequence[Way]
    """Ways to run requests: the first is taken, unless the models say that another takes less; the
    last is that of a request without others."""
    costs: Costs
    run: Run
    memory: Callable[[str, Sizes], Memory]
    """The memory of a call of a function, at sizes."""
    count: Count
    """Told of requests that shared calls."""

    def __str__(self) -> str:
        """How requests share calls, or why they do not."""
        kinds = {Packed: "packed, whatever their lengths", Batched: "as batches of equal shapes"}
        able = [kinds[type(w.together)] for w in self.ways if w.together is not None]
        why = [w.why for w in self.ways if w.why]
        return "; ".join([" or ".join(able) or "each as it is", *why])

    def results(self, requests: Iterable[Request], limits: CallLimits) -> list[list[Value]]:
        """The results of each request, in order; `RequestsError` if some failed."""
        every = listed(requests)
        done = dict(self.delivered(every, limits))
        ordered = [done[i] for i in range(len(every))]
        errors = {i: each for i, each in done.items() if isinstance(each, Exception)}
        if errors:
            raise RequestsError(_summary(errors, len(every)), ordered)
        return ordered  # type: ignore[return-value]  # none failed

    def delivered(
        self, requests: Iterable[Request], limits: CallLimits
    ) -> Iterator[tuple[int, Done]]:
        """What each request came to, or the error that it failed by, as soon as it is there."""
        end = None if limits.all_s is None else time.monotonic() + limits.all_s
        return self._delivered(listed(requests), limits, end)

    def _delivered(
        self, requests: Sequence[Request], limits: CallLimits, end: float | None
    ) -> Iterator[tuple[int, Done]]:
        way, plan, inputs = self._planned(requests, limits)
        delivery = Delivery(plan, way.together, inputs, self.run, end)
        served: list[int] = []
        try:
            yield from plan.errors.items()
            for i, done in delivery.each():
                if isinstance(done, list):
                    served.append(i)
                yield i, done
        finally:
            self.count(
                (bind_shapes(self.params, shapes_of(inputs[i])), *delivery.shared[i])
                for i in served
                if i in delivery.shared
            )

    def plan(self, requests: Iterable[Request], limits: CallLimits) -> CallPlan:
        """The calls that requests come to."""
        return self._planned(listed(requests), limits)[1]

    def _planned(
        self, requests: Sequence[Request], limits: CallLimits
    ) -> tuple[Way, CallPlan, Inputs]:
        """The way that is taken, the calls, and the inputs of requests in order."""
        errors: dict[int, BucketizeError] = {}
        inputs: dict[int, list[Value]] = {}
        for i, request in enumerate(requests):
            try:
                inputs[i] = self._arranged(request)
            except BucketizeError as e:
                e.add_note(f"{IN_REQUEST}{i}")
                errors[i] = e
        way, plan = self._cheapest(inputs, limits)
        return way, replace(plan, errors={**errors, **plan.errors}), inputs

    def _arranged(self, request: Request) -> list[Value]:
        if not isinstance(request, Mapping):
            got = type(request).__name__
            raise ArgumentError(f"a request is a mapping of arrays by input, got {got}")
        inputs = arrange_inputs(self.params, (), request)
        bind_shapes(self.params, shapes_of(inputs))
        return inputs

    # The way.

    def _cheapest(self, inputs: Inputs, limits: CallLimits) -> tuple[Way, CallPlan]:
        """The way and its calls that are expected to end first; the usual one in doubt."""
        threads, is_list = min(self.costs.program.threads, cores()), len(inputs) > 1
        lanes = (1, threads) if threads > 1 and is_list and self.costs.are_told else (1,)
        ways = self.ways if is_list else self.ways[-1:]
        plans = [(w, plan) for w in ways for plan in self._plans(w, inputs, limits, lanes)]
        if limits.bytes is not None:
            own = self.params, self.memory, inputs, limits.bytes
            plans = [(w, Fitting(w.together, *own).fitted(plan)) for w, plan in plans]
            fewest = min(len(plan.errors) for _, plan in plans)
            plans = [(w, plan) for w, plan in plans if len(plan.errors) == fewest]
        if not self.costs.are_told or (len(plans) == 1 and not limits.are_timed):
            return plans[0]
        expected = [(way, self._expected(plan, inputs)) for way, plan in plans]
        usual, best = expected[0], min(expected, key=lambda each: each[1].seconds or 0.0)
        gains = (best[1].seconds or 0.0) < (1 - GAIN) * (usual[1].seconds or 0.0)
        return best if gains else usual

    def _plans(
        self, way: Way, inputs: Inputs, limits: CallLimits, lanes: Iterable[int]
    ) -> Iterator[CallPlan]:
        """The calls that requests come to, for each number of calls side by side."""
        together, alone = way.together, list[PlannedCall]()
        groups: dict[Hashable, list[Row]] = {}
        for i, arrays in inputs.items():
            rows = way.why if together is None else together.rows(i, arrays)
            if together is None or isinstance(rows, str):
                alone.append(PlannedCall((), (i,), str(rows)))
            else:
                groups.setdefault(together.key(arrays), []).extend(rows)
        for count in lanes:
            calls = list(alone)
            for rows in groups.values():
                assert together is not None, "something told the rows"
                calls += together.calls(rows, inputs, limits, count)
            yield CallPlan(tuple(calls), {}, count)

    def _expected(self, plan: CallPlan, inputs: Inputs) -> CallPlan:
        """The plan with what each call is expected to take."""
        alone = [call.requests[0] for call in plan.calls if call.seconds is None]
        seconds = self._alone_s(alone, inputs, plan.lanes)
        calls = tuple(
            replace(c, seconds=seconds[c.requests[0]]) if c.seconds is None else c
            for c in plan.calls
        )
        return replace(plan, calls=calls)

    def _alone_s(self, requests: Sequence[int], inputs: Inputs, lanes: int) -> dict[int, float]:
        """What requests take as they are; of many, some are asked for, of all extents.

        Nothing is expected of what is refused: a run says why.
        """
        extents = {i: sum(map(_elements, inputs[i])) for i in requests}
        by_extent = {extent: i for i, extent in extents.items()}
        every = sorted(by_extent)
        steps = np.unique(np.linspace(0, len(every) - 1, SAMPLED).round().astype(int))
        asked = [every[k] for k in steps.tolist()] if every else []
        sizes = [bind_shapes(self.params, shapes_of(inputs[by_extent[x]])) for x in asked]
        taken = dict(zip(asked, self.costs.seconds("main", sizes, lanes), strict=True))
        served = [x for x in asked if math.isfinite(taken[x])]
        if not served:
            return dict.fromkeys(requests, 0.0)
        each = np.interp(list(extents.values()), served, [taken[x] for x in served]).tolist()
        return dict(zip(extents, each, strict=True))


def _elements(value: Value) -> int:
    """How many elements an array has, or all of a list."""
    if isinstance(value, list):
        return sum(map(_elements, value))
    return 0 if value is None else int(np.size(value))


def many_of(
    program: Program,
    module: Module | None,
    params: tuple[Var, ...],
    run: Run,
    memory: Callable[[str, Sizes], Memory],
    count: Count,
) -> Many:
    """What requests of a program share: packed rows, or batches where rows keep apart.

    Args:
        program: what runs.
        module: that it was compiled from; None of one that was loaded.
        params: the inputs of a request.
        run: the results of a routine, by its name and inputs, and whether by one thread.
        memory: what a call of a routine takes, by its name and sizes.
        count: told of requests that shared calls.

    """
    costs = Costs(program, module is not None)
    ways = _ways(program, module, params, costs)
    return Many(params, ways, costs, run, memory, count)


def _ways(
    program: Program, module: Module | None, params: tuple[Var, ...], costs: Costs
) -> list[Way]:
    name = ragged_name("main")
    if name in program.routines:
        return [Way(Packed.of(program.routines[name], params, costs, leaves_out=True))]
    if module is None:
        return [Way(None, "it was loaded, and is not ragged")]
    # what proves loads what a loaded executable does without
    rows = rest("bucketize.ragged.rows")
    tokens = rest("bucketize.ragged.ragged")
    original = original_of(module)
    try:
        results = [r.type for r in original.results]
        usual = Way(Batched.of(params, results, rows.batch_of(original), costs))
    except RaggedError as e:
        usual = Way(None, f"its rows are not known to keep apart: {e.message}")
    try:
        if program.routines.is_closed:
            raise CompileError("to compile what is packed is forbidden (strict)")
        packed = Packed.of(tokens.packed_of(module), params, costs, leaves_out=False)
    except BucketizeError as e:
        why = f"its rows are not packed: {e.message}"
        return [replace(usual, why="; ".join(filter(None, [usual.why, why])))]
    return [Way(packed), usual]


def _summary(errors: Mapping[int, Exception], count: int) -> str:
    each = [f"request {i}: {message_of(errors[i])}" for i in sorted(errors)[:SHOWN]]
    more = ["..."] if len(errors) > SHOWN else []
    return f"{len(errors)} of {count} requests failed: {'; '.join([*each, *more])}"


def listed(requests: Iterable[Request]) -> list[Request]:
    """Requests in order; one that is not in a list is refused, not taken for its names."""
    if isinstance(requests, Mapping):
        raise ArgumentError("expected a list of requests, got a mapping; run(**inputs) is for one")
    if not isinstance(requests, Iterable):
        raise ArgumentError(f"expected a list of requests, got {requests!r}")
    return list(requests)
