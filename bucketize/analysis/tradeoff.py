"""The trade-off of dispatchers, measured: how fast their clones are, and what each costs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from bucketize.analysis.cost import COSTS, clones, compiled_anew, cost, is_tuned, load_compiler
from bucketize.analysis.frame import ORACLE
from bucketize.analysis.piece import Piece, Pieces
from bucketize.busy import Machine, Watch, busiest
from bucketize.call import arrange_inputs, bind_shapes
from bucketize.compare import worst_error
from bucketize.compiler import compile
from bucketize.dispatch.tree import name_dims
from bucketize.errors import ArgumentError, warn
from bucketize.executable import Executable
from bucketize.interpret import evaluate_module
from bucketize.ir import Module
from bucketize.log.environment import here
from bucketize.op import Array
from bucketize.progress import Tell, TellMore, estimated
from bucketize.table import pairs
from bucketize.timing import turns

ROUNDS = 15  # of calls at least, at each case
ENOUGH_S, MOST = 3.0, 301  # more rounds until this time has passed, at most so many
SHARED = 0.25
"""The power of the number of clones that compiling them goes with: they share most kernels. Those
of the mlp took 1.5 times as long as one clone where they were 8, of bert-mini 1.3 where 64."""
FEWEST = 5  # rounds that are kept of a case that was stopped: of fewer there is no spread


@dataclass(frozen=True, eq=False)
class Case:
    """Sizes by symbol, arrays of these sizes by input, and how likely such a call is."""

    module: Module
    sizes: Mapping[str, int]
    arrays: Mapping[str, Array]
    weight: float = 1.0

    @classmethod
    def of(cls, mod: Module, weight: float = 1.0, /, **arrays: Array) -> Case:
        """The case of some inputs of a module.

        Args:
            mod: the module, not dispatched.
            weight: how likely such a call is, relative to other cases.
            **arrays: the inputs.

        Returns:
            The case at the sizes of the arrays.

        Raises:
            ArgumentError: a weight that is not above 0.
            ShapeError: an input is missing, or of another shape or dtype.

        """
        if not 0 < weight < math.inf:
            raise ArgumentError(f"weight: expected a finite number above 0, got {weight!r}")
        params = name_dims(mod.main).params
        given = arrange_inputs(params, (), arrays)
        return cls(mod, bind_shapes(params, [a.shape for a in given]), arrays, weight)

    @cached_property
    def wanted(self) -> Sequence[Array]:
        """What the ops mean by the arrays, computed one by one: slow."""
        return evaluate_module(self.module, **self.arrays)

    @property
    def shape(self) -> str:
        """`N=4,H=224,W=224`."""
        return pairs(self.sizes)


Logs: TypeAlias = str | Path | Mapping[str, str | Path] | None  # by dispatcher, or one for all


def measure_trade_off(
    modules: Mapping[str, Module],
    cases: Sequence[Case],
    *,
    log: Logs = None,
    threads: int = 1,
    model: str = "",
    seconds: float | None = None,
    progress: Tell | bool | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The latency of each module at each case, and its cost: `trade_off(*measure_trade_off(...))`.

    The modules are called in turn, round by round, so that whatever slows the machine slows all;
    that it was busy is warned of.

    Args:
        modules: by dispatcher; "oracle" has a static clone for exactly each case.
        cases: where latency is measured; see `Case.of`.
        log: the tuning log whose schedules serve, or one log for each dispatcher that has one; the
            rest run on defaults.
        threads: of the executables.
        model: its name, for the frames.
        seconds: when to stop; latencies come before all costs but the least, which tells what the
            others take, and what is not reached is warned of.
        progress: told what goes on, and how much of it is done, of how much; True shows a bar on
            stderr.

    Returns:
        A row per dispatcher, shape and round, with `latency_s`, the `clone` that served,
        `clone_tuned` (whether the log has a word on it), the largest relative error of its results,
        the case's `weight`, the processors that `others` took and the `load` average, and which
        model, on which machine, when. And a row per dispatcher but the oracle, with what it cost:
        `clones`, distinct `kernels`, `compile_s` from an empty cache, `weight_mib` of constants as
        kernels hold them, and of its `tasks` (the workloads of each clone that have knobs) how many
        the log knows, `searched`, and for how many it knows better than the default, `tuned`;
        missing of those that were not reached.

    """
    limit = math.inf if seconds is None else seconds
    with estimated(progress, "comparing") as tell:
        survey = Survey(modules, cases, log, threads, model, limit, tell)
        survey.work()
    survey.machine.warn()
    if survey.shortfall:
        warn(survey.shortfall)
    return survey.latency, survey.cost


@dataclass(eq=False)
class Survey:
    """Dispatchers side by side; what is known of them can be had whenever the work is stopped."""

    modules: Mapping[str, Module]
    cases: Sequence[Case]
    log: Logs
    threads: int
    model: str
    seconds: float
    tell: TellMore
    executables: dict[str, Executable] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    costs: dict[str, dict[str, Any]] = field(default_factory=dict)
    machines: list[Machine] = field(default_factory=list)
    served: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By dispatcher, what the case at hand is served by, and how far it is off."""

    def __post_init__(self) -> None:
        """The time runs from now on."""
        self.pieces = Pieces(list(self._pieces()), self.tell, self.seconds)

    def work(self) -> None:
        """Do one piece after the other, until all are done or time is up."""
        load_compiler()
        self.pieces.work()

    def _pieces(self) -> Iterator[Piece]:
        """First one that tells what costs take; then latencies, which matter most."""
        asked = sorted((n for n in self.modules if n != ORACLE), key=self._clones)
        costs = [
            Piece("cost", f"cost of {n}", partial(self._cost, n), self._clones(n) ** SHARED)
            for n in asked
        ]
        yield from costs[:1]
        for case in self.cases:
            at = case.shape
            yield Piece(
                "meaning", f"the ops' own results at {at}", partial(getattr, case, "wanted")
            )
            for name in self.modules:
                prepare = partial(self._prepare, name, case)
                yield Piece("compile", f"compiling {name} for {at}", prepare)
            yield Piece("measure", f"measuring {at}", partial(self._measure, case))
        yield from costs[1:]

    def _clones(self, name: str) -> int:
        return clones(self.modules[name])

    def _log(self, name: str) -> str | Path | None:
        return self.log.get(name) if isinstance(self.log, Mapping) else self.log

    def _cost(self, name: str) -> None:
        """Compile a module as a first start does; it then serves, if it is the first."""

        def tell(what: str, done: int, total: int) -> None:
            self.pieces.say(f"cost of {name}: {what}, {done} of {total}")

        with self._watched():
            exe = compiled_anew(self.modules[name], self._log(name), self.threads, tell)
        self.costs[name] = cost(exe)
        if not self.executables:
            self.executables[name] = exe

    @contextmanager
    def _watched(self) -> Iterator[Watch]:
        watch = Watch()
        try:
            with watch:
                yield watch
        finally:
            self.machines.append(watch.machine)

    def _prepare(self, name: str, case: Case) -> None:
        """Have a module ready for a case: compiled as far as it is called, and checked."""
        if name not in self.executables:
            own = self._log(name)
            exe = compile(self.modules[name], log=own, threads=self.threads, lazy=True)
            self.executables[name] = exe
        exe = self.executables[name]
        error = worst_error(exe.run(**case.arrays), case.wanted)
        clone = exe.explain(**{n: array.shape for n, array in case.arrays.items()}).clone
        tuned = is_tuned(exe.routines[clone])
        self.served[name] = {"clone": clone, "clone_tuned": tuned, "max_rel_err": error}

    def _measure(self, case: Case) -> None:
        """Time a case; where that is stopped, the rounds so far are kept."""
        rounds: list[dict[str, float]] = []
        try:
            with self._watched() as watch:
                self._fill(rounds, case)
                watch.rounds(by_name(rounds, f" at {case.shape}"))
        finally:
            if len(rounds) >= FEWEST:
                self.calls += self._rows(rounds, case)

    def _fill(self, rounds: list[dict[str, float]], case: Case) -> None:
        """Add rounds until there are enough."""
        calls = {name: partial(self.executables[name].run, **case.arrays) for name in self.modules}
        end = time.perf_counter() + ENOUGH_S
        for taken in turns(calls, before=calls):  # each after one of its own: its weights are warm
            rounds.append(taken)
            is_late = len(rounds) >= FEWEST and self.pieces.left_s <= 0
            is_enough = len(rounds) >= MOST or time.perf_counter() >= end
            if is_late or (len(rounds) >= ROUNDS and is_enough):
                return

    def _rows(self, rounds: Sequence[Mapping[str, float]], case: Case) -> Iterator[dict[str, Any]]:
        machine = self.machines[-1]
        beside = {"weight": case.weight, "others": machine.others, "load": machine.load}
        for name in self.modules:
            for i, taken in enumerate(rounds):
                call = {"dispatcher": name, "shape": case.shape, "round": i}
                yield call | {"latency_s": taken[name]} | self.served[name] | beside

    # What came of it.

    @property
    def latency(self) -> pd.DataFrame:
        """A row per dispatcher, shape and round, as far as shapes were measured."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        where = {"model": self.model, "host_cpu": here().host_cpu, "date": now}
        return pd.DataFrame(self.calls).assign(**where, threads=self.threads)

    @property
    def cost(self) -> pd.DataFrame:
        """A row per dispatcher but the oracle; what was not reached is missing."""
        names = [name for name in self.modules if name != ORACLE]
        rows = [
            {"dispatcher": n, "clones": self._clones(n), **self.costs.get(n, {})} for n in names
        ]
        return pd.DataFrame(rows, columns=["dispatcher", "clones", *COSTS])

    @property
    def machine(self) -> Machine:
        """What else it did, when it did most."""
        return busiest(self.machines)

    @property
    def shortfall(self) -> str:
        """What was not reached; empty if all was."""
        shapes = {call["shape"] for call in self.calls}
        lacking = [case.shape for case in self.cases if case.shape not in shapes]
        costs = [n for n in self.modules if n != ORACLE and n not in self.costs]
        lists = [("measured", "; ".join(lacking)), ("compiled for its cost", ", ".join(costs))]
        return "; ".join(f"not {done}: {names}" for done, names in lists if names)


def by_name(rounds: Sequence[Mapping[str, float]], of: str) -> dict[str, list[float]]:
    """The seconds of rounds by name."""
    names = rounds[0] if rounds else ()
    return {f"{name}{of}": [taken[name] for taken in rounds] for name in names}
