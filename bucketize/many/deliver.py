"""Planned calls are run, side by side if they shall be, and each request's results handed out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TypeAlias

from bucketize.errors import LateError, ShapeError, message_of, warn
from bucketize.many.plan import IN_REQUEST, CallPlan, PlannedCall
from bucketize.many.together import Together
from bucketize.op import Value

Run: TypeAlias = Callable[[str, list[Value], bool, bool], list[Value]]
"""The results of a routine for inputs in order, whether they are counted as a request's, and
whether one thread alone computes them."""
Done: TypeAlias = "list[Value] | Exception"
"""What a request came to; one that fails, whatever by, takes no other along."""


@dataclass(frozen=True)
class _Outcome:
    """What a call came to."""

    call: PlannedCall
    outs: list[Value] | None
    """Results of its rows; None: its requests were run each as it is."""
    clone: str = ""
    """What served it."""
    seconds: float = 0.0
    alone: Mapping[int, Done] = field(default_factory=dict)


class Delivery:
    """One list of requests on its way."""

    def __init__(
        self,
        plan: CallPlan,
        together: Together | None,
        inputs: Mapping[int, list[Value]],
        run: Run,
        end: float | None,
    ) -> None:
        """Nothing is run yet; no call begins that would end after `end`, of the monotonic clock."""
        self._plan, self._together, self._inputs, self._run = plan, together, inputs, run
        self._end = end
        self.shared: dict[int, tuple[str, float]] = {}
        """What served requests that shared calls, and their part of the seconds: who runs others
        counts them."""
        self._apart: set[int] = set()
        """Requests that were run as they are, since a call that they shared failed."""
        self._results: dict[int, list[Value]] = {}
        self._errors: dict[int, Exception] = {}

    def each(self) -> Iterator[tuple[int, Done]]:
        """Each request when the last of its calls is done."""
        left = Counter(i for call in self._plan.calls for i in call.requests)
        for outcome in self._outcomes():
            self._take(outcome)
            for i in outcome.call.requests:
                left[i] -= 1
                if not left[i]:
                    results = self._results.pop(i, None)
                    yield i, self._errors[i] if results is None or i in self._errors else results

    def _outcomes(self) -> Iterator[_Outcome]:
        """Calls as they end; no more are begun than run side by side."""
        if self._plan.lanes == 1:
            yield from map(self._outcome, self._plan.calls)
            return
        running: set[Future[_Outcome]] = set()
        with ThreadPoolExecutor(self._plan.lanes, "bucketize requests") as pool:
            for call in self._plan.calls:
                running.add(pool.submit(self._outcome, call))
                if len(running) == self._plan.lanes:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            yield from (future.result() for future in running)

    def _outcome(self, call: PlannedCall) -> _Outcome:
        """Run a call; where one that several share fails, each of them as it is.

        A failure that none of them has alone is ours, and a warning.
        """
        late = self._late(call)
        if late is not None:
            return _Outcome(call, None, alone=dict.fromkeys(call.requests, late))
        ours: Exception | None = None
        if call.rows and self._together is not None:
            try:
                arguments = self._together.arguments(call.rows, self._inputs)
                begin = time.perf_counter()
                outs = self._run(self._together.function, arguments, False, self._plan.lanes > 1)
                taken = time.perf_counter() - begin
                return _Outcome(call, outs, self._together.clone(arguments), taken)
            except MemoryError:
                ours = ShapeError(f"no memory to put {len(call.rows)} rows together")
            except Exception as e:
                ours = e
        alone = {i: self._alone(i) for i in call.requests}
        if ours is not None and not any(isinstance(a, Exception) for a in alone.values()):
            warn(
                f"a call of {len(call.requests)} requests failed, none of which fails alone: "
                f"{message_of(ours)}"
            )
        return _Outcome(call, None, alone=alone)

    def _late(self, call: PlannedCall) -> LateError | None:
        """Why a call is not begun, if it would end too late."""
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left >= (call.seconds or 0.0):
            return None
        expected = (
            "" if call.seconds is None else f", and it is expected to take {call.seconds:.3g}"
        )
        return LateError(f"not begun: {max(left, 0.0):.3g} s are left{expected}")

    def _alone(self, request: int) -> Done:
        try:
            return self._run("main", self._inputs[request], True, self._plan.lanes > 1)
        except Exception as e:
            e.add_note(f"{IN_REQUEST}{request}")
            return e

    def _take(self, outcome: _Outcome) -> None:
        if outcome.outs is not None and self._together is not None:
            apart = self._apart.intersection(outcome.call.requests)
            whole = {i: self._results.pop(i) for i in apart & self._results.keys()}
            try:
                self._together.deal(outcome.call.rows, outcome.outs, self._inputs, self._results)
            except Exception as e:
                no_memory = ShapeError("no memory for the results of requests that share a call")
                error = no_memory if isinstance(e, MemoryError) else e
                self._errors |= dict.fromkeys(outcome.call.requests, error)
            self._results |= whole
            for i in {*outcome.call.requests} - apart:
                part = outcome.seconds / len(outcome.call.requests)
                self.shared[i] = outcome.clone, self.shared.get(i, ("", 0.0))[1] + part
        self._apart |= outcome.alone.keys()
        for i, done in outcome.alone.items():
            self.shared.pop(i, None)
            if isinstance(done, Exception):
                self._errors[i] = done
            else:
                self._results[i] = done
