"""Who takes part in a benchmark: bucketize in up to three ways, and the engines beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import bucketize
from benchmarks.eager import TORCH
from bucketize.analysis import ENGINES, Session, session
from bucketize.analysis.benchmark import OURS
from bucketize.analysis.engines import Engine
from bucketize.cli.command import bench
from bucketize.cli.dispatcher import find_dispatcher
from bucketize.errors import EngineError
from bucketize.ir import Module

TUNED, DISPATCHED = f"{OURS} tuned", f"{OURS} dispatched"
PEERS: Mapping[str, Engine] = {**ENGINES, "torch": TORCH}


@dataclass(frozen=True)
class Ways:
    """The ways to run bucketize beside its defaults."""

    log: Path | None = None
    """Of tuning; without one nothing is tuned."""
    dispatcher: str | None = None
    """As the command line has it; without one nothing is dispatched."""
    tune_s: float | None = None
    """Seconds of tuning for each model, into the log, before it is used."""

    @property
    def names(self) -> list[str]:
        """Names of all, the defaults first."""
        told = {OURS: True, TUNED: self.log, DISPATCHED: self.dispatcher}
        return [name for name, wanted in told.items() if wanted]


@dataclass(frozen=True)
class Sides:
    """All that take part with a model and a number of threads."""

    sessions: dict[str, Session]
    """Those that run, bucketize on defaults first."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why others do not, by name."""

    @property
    def names(self) -> list[str]:
        """Names of all."""
        return [*self.sessions, *self.refused]


def opened(mod: Module, path: Path, threads: int, ways: Ways) -> Sides:
    """The model of a path in everything that takes it; `mod` is what bucketize reads there."""
    sides = Sides({})
    for name in (*ways.names, *PEERS):
        try:
            made = theirs(name, path, threads) if name in PEERS else ours(name, mod, threads, ways)
        except EngineError as e:
            sides.refused[name] = str(e)
        else:
            sides.sessions[name] = made
    return sides


def theirs(name: str, path: Path, threads: int) -> Session:
    """An engine; an EngineError says why it does not take the model, or is not there."""
    return session(name, path, threads, engines=PEERS)


def ours(name: str, mod: Module, threads: int, ways: Ways) -> Session:
    """One of the ways of bucketize."""
    options: dict[str, Any] = {"threads": threads, "log": None, "dispatcher": None}
    if name != OURS:
        options["log"] = ways.log
    if name == DISPATCHED:
        options["dispatcher"] = ways.dispatcher
        mod = dispatched(mod, ways)
    exe = bucketize.compile(mod, log=options["log"], threads=threads, lazy=True)
    return replace(bench.ours(exe, options), engine=name)


def dispatched(mod: Module, ways: Ways) -> Module:
    """The module behind the dispatcher, if there is one."""
    if ways.dispatcher is None:
        return mod
    return bucketize.dispatch(mod, find_dispatcher(ways.dispatcher))
