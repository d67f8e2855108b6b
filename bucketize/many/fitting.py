"""Planned calls are cut until those that run at once take no more bytes than they may."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace

from bucketize.call import bind_shapes, shapes_of
from bucketize.errors import BucketizeError, ShapeError
from bucketize.ir import Var
from bucketize.many.plan import IN_REQUEST, CallPlan, PlannedCall, Row
from bucketize.many.together import Together
from bucketize.op import Value
from bucketize.runtime.memory import Memory
from bucketize.types import Sizes


@dataclass(frozen=True, eq=False)
class Fitting:
    """Calls of some requests, and what they may take."""

    together: Together | None
    """How requests share calls, if they do."""
    params: tuple[Var, ...]
    memory: Callable[[str, Sizes], Memory]
    """The memory of a call of a function, at sizes."""
    inputs: Mapping[int, list[Value]]
    most: int

    def fitted(self, plan: CallPlan) -> CallPlan:
        """The plan, its calls cut to fit, and an error for each request that nothing fits."""
        calls: list[PlannedCall] = []
        errors: dict[int, BucketizeError] = {}
        most = self.most // plan.lanes
        for call in plan.calls:
            for part in self._parts(call, most):
                if isinstance(part, PlannedCall):
                    calls.append(part)
                else:
                    errors |= part
        kept = [self._without(call, errors) for call in calls]
        return replace(plan, calls=tuple(c for c in kept if c is not None), errors=errors)

    def bytes_of(self, call: PlannedCall) -> int | None:
        """What a call takes beside what its requests have; None if it is refused."""
        first = self.inputs[call.requests[0]]
        try:
            if not call.rows or self.together is None:
                return self.memory("main", bind_shapes(self.params, shapes_of(first))).of_call
            sizes = self.together.sizes(call.rows, first)
            taken = self.memory(self.together.function, sizes).of_call
        except BucketizeError:
            return None
        return taken + self.together.argument_bytes(call.rows, self.inputs)

    def _parts(
        self, call: PlannedCall, most: int
    ) -> Iterator[PlannedCall | dict[int, BucketizeError]]:
        """A call if it fits, or requests apart, or halves, as often as it takes."""
        taken = self.bytes_of(call)
        if (taken is None and not call.rows) or (taken is not None and taken <= most):
            yield call  # one that is refused says why when it is run
            return
        whole = PlannedCall((), call.requests[:1], "not shared within these bytes")
        if len(call.requests) == 1:
            rows = self._rows(call.requests[0])
            if call.rows == rows and (self.bytes_of(whole) or most + 1) <= most:
                yield whole
                return
            call = replace(call, rows=call.rows or rows)
        if self.together is not None and len(call.rows) >= 2 * self.together.least:
            middle = len(call.rows) // 2
            for half in (call.rows[:middle], call.rows[middle:]):
                share = None if call.seconds is None else call.seconds * len(half) / len(call.rows)
                yield from self._parts(self.together.call(half, share), most)
        elif len(call.requests) > 1:
            for i in call.requests:
                yield from self._parts(replace(whole, requests=(i,)), most)
        else:
            yield {call.requests[0]: _too_large(call.requests[0], taken, most)}

    def _rows(self, request: int) -> tuple[Row, ...]:
        """All rows of a request; none if they share no calls."""
        if self.together is None:
            return ()
        rows = self.together.rows(request, self.inputs[request])
        return () if isinstance(rows, str) else tuple(rows)

    def _without(self, call: PlannedCall, refused: Container[int]) -> PlannedCall | None:
        """A call without the rows of requests that are refused; None if none is left."""
        if not any(i in refused for i in call.requests):
            return call
        rows = [row for row in call.rows if row.request not in refused]
        return (
            self.together.call(rows, call.seconds) if self.together is not None and rows else None
        )


def _too_large(request: int, taken: int | None, most: int) -> ShapeError:
    if taken is None:
        error = ShapeError(f"no part of it that nothing refuses takes {most:,} bytes at most")
    else:
        error = ShapeError(f"it takes {taken:,} bytes, and a call may take {most:,}")
    error.add_note(f"{IN_REQUEST}{request}")
    return error
