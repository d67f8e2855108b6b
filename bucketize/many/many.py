"""`Executable.run_many`: rows of requests share calls; no request is lost with another.

Rows of a ragged module are packed, whatever their lengths, into calls of some hundred tokens: with
fewer, products read their weights for too little; with more, activations leave the caches.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from bucketize.call import arrange_inputs, bind_shapes, shapes_of
from bucketize.dispatch.bucket import fallback_name
from bucketize.errors import ArgumentError, BucketizeError, RaggedError, RequestsError, warn
from bucketize.ir import Function, Module, Var
from bucketize.many.batched import Batched
from bucketize.many.packed import Packed
from bucketize.many.plan import CallPlan, PlannedCall, Row
from bucketize.many.together import Run, Together
from bucketize.op import Value
from bucketize.program.program import Program
from bucketize.ragged.name import ragged_name
from bucketize.types import Sizes

Request: TypeAlias = Mapping[str, Value]
Count: TypeAlias = Callable[[Iterable[Sizes]], None]
ENOUGH = 512
"""Tokens of a call. Rows of 64 took least at 512, 1.10 times as long at 4,096 (beside other work);
at 512 short queries take 0.78 of the time alone of minilm, 0.97 of bert-mini (Zen 4)."""
SHOWN = 3  # failed requests that a message names


@dataclass(frozen=True, eq=False)
class Many:
    """Runs lists of requests, in as few calls as pay."""

    params: tuple[Var, ...]
    run: Run
    """One request as it is."""
    together: Together | None
    why: str
    """Why nothing shares a call, if nothing does."""
    count: Count
    """Told the sizes of requests that are served."""

    def plan(
        self, requests: Sequence[Request], tokens: int
    ) -> tuple[CallPlan, dict[int, list[Value]]]:
        """The calls that requests come to, and their inputs in order."""
        errors: dict[int, BucketizeError] = {}
        inputs: dict[int, list[Value]] = {}
        for i, request in enumerate(requests):
            try:
                inputs[i] = self._arranged(request)
            except BucketizeError as e:
                e.add_note(f"in request {i}")
                errors[i] = e
        return CallPlan(tuple(self._calls(inputs, tokens)), errors), inputs

    def _arranged(self, request: Request) -> list[Value]:
        if not isinstance(request, Mapping):
            got = type(request).__name__
            raise ArgumentError(f"a request is a mapping of arrays by input, got {got}")
        inputs = arrange_inputs(self.params, (), request)
        bind_shapes(self.params, shapes_of(inputs))
        return inputs

    def _calls(self, inputs: Mapping[int, list[Value]], tokens: int) -> Iterator[PlannedCall]:
        groups: dict[Hashable, list[Row]] = {}
        for i, arrays in inputs.items():
            rows = self.why if self.together is None else self.together.rows(i, arrays)
            if self.together is None or isinstance(rows, str):
                yield PlannedCall((), (i,), str(rows))
            else:
                groups.setdefault(self.together.key(arrays), []).extend(rows)
        for rows in groups.values():
            assert self.together is not None, "something told the rows"
            yield from self.together.calls(rows, inputs, tokens)

    def results(self, requests: Iterable[Request], tokens: int) -> list[list[Value]]:
        """The results of each request, in order; `RequestsError` if some failed."""
        every = listed(requests)
        plan, inputs = self.plan(every, tokens)
        self.count(bind_shapes(self.params, shapes_of(arrays)) for arrays in inputs.values())
        results: dict[int, list[Value]] = {}
        errors = dict(plan.errors)
        for call in plan.calls:
            self._serve(call, inputs, results, errors)
        ordered = [errors[i] if i in errors else results[i] for i in range(len(every))]
        if errors:
            raise RequestsError(_summary(errors, len(every)), ordered)
        return ordered  # type: ignore[return-value]  # none failed

    def _serve(
        self,
        call: PlannedCall,
        inputs: Mapping[int, list[Value]],
        results: dict[int, list[Value]],
        errors: dict[int, BucketizeError],
    ) -> None:
        """Run a call; where one that several share fails, each of them as it is.

        A failure that none of them has alone is ours, and a warning.
        """
        ours: BucketizeError | None = None
        if call.rows and self.together is not None and errors.keys().isdisjoint(call.requests):
            try:
                self.together.serve(call.rows, inputs, results)
            except BucketizeError as e:
                ours = e
            else:
                return
        for i in (i for i in call.requests if i not in errors):
            try:
                results[i] = self.run(inputs[i])
            except BucketizeError as e:
                e.add_note(f"in request {i}")
                errors[i] = e
        if ours is not None and errors.keys().isdisjoint(call.requests):
            warn(
                f"a call of {len(call.requests)} requests failed, none of which fails alone: {ours}"
            )


def many_of(
    program: Program,
    module: Module | None,
    params: tuple[Var, ...],
    run: Callable[..., list[Value]],
    count: Count,
) -> Many:
    """What requests of a program share: packed rows, or batches where rows keep apart.

    Args:
        program: what runs.
        module: that it was compiled from; None of one that was loaded.
        params: the inputs of a request.
        run: the results of a routine, by its name and inputs.
        count: told the sizes of requests.

    """
    name = ragged_name("main")
    alone = partial(run, "main")
    if name in program.routines:
        packed = Packed.of(program.routines[name], partial(run, name), params)
        return Many(params, alone, packed, "", count)
    if module is None:
        return Many(params, alone, None, "it was loaded, and is not ragged", count)
    # what proves and predicts loads all templates, which a loaded executable does without
    proof: Any = importlib.import_module("bucketize.ragged.rows")
    predict: Any = importlib.import_module("bucketize.inspect.predict")
    original = _original(module)
    try:
        batch = proof.batch_of(original)
    except RaggedError as e:
        why = f"its rows are not known to keep apart: {e.message}"
        return Many(params, alone, None, why, count)

    def price(sizes: Sizes) -> float:
        seconds: float = predict.predicted(program, sizes).seconds
        return seconds

    results = [r.type for r in original.results]
    return Many(params, alone, Batched.of(alone, params, results, batch, price), "", count)


def _original(module: Module) -> Function:
    """`main`, as it was before it was dispatched."""
    fallback = module.functions.get(fallback_name("main"))
    exact = (c.origin for c in module.clones.values() if c.policy == "exact")
    return fallback or next((fn for fn in exact if fn is not None), module.main)


def _summary(errors: Mapping[int, BucketizeError], count: int) -> str:
    each = [f"request {i}: {errors[i].message}" for i in sorted(errors)[:SHOWN]]
    more = ["..."] if len(errors) > SHOWN else []
    return f"{len(errors)} of {count} requests failed: {'; '.join([*each, *more])}"


def listed(requests: Iterable[Request]) -> list[Request]:
    """Requests in order; one that is not in a list is refused, not taken for its names."""
    if isinstance(requests, Mapping):
        raise ArgumentError("expected a list of requests, got a mapping; run(**inputs) is for one")
    return list(requests)


def check_tokens(tokens: object) -> int:
    """How many tokens a call may have, if it is a number that can be."""
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise ArgumentError(f"tokens: expected a number from 1, got {tokens!r}")
    return tokens
