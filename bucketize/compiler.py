"""`compile`: a module and the best schedules of a log become an executable."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bucketize.errors import ArgumentError, unknown_name, warn
from bucketize.executable import Executable
from bucketize.inspect.calibrate import calibrated
from bucketize.inspect.predict import constant_bytes
from bucketize.ir import Module, check_module
from bucketize.kernel.build import Building
from bucketize.kernel.templates import TEMPLATES
from bucketize.link.link import core_sources, link, linked, sources
from bucketize.log.fingerprint import bounds_of, graph_of, source_of
from bucketize.log.log import LogWarning, rows, select
from bucketize.log.trial import Trial
from bucketize.log.verdict import Digests, Verdict, verdicts
from bucketize.machine.named import named
from bucketize.many.limits import check_count
from bucketize.program.configuration import Configuration, Configurations, defaults
from bucketize.program.decide import decide, redecided
from bucketize.program.program import Program
from bucketize.program.weight_limit import limited
from bucketize.progress import Tell, progress_bar, shown
from bucketize.runtime.thread_pool import MOST_THREADS, check_threads

EXECUTORS = ("auto", "graph", "vm")
MUCH, LITTLE = 2, 8 << 20
"""Weights may be packed so many times as large, or so many bytes larger, without a word."""
LOGGER = logging.getLogger("bucketize")


def compile(  # noqa: PLR0913  options by name
    mod: Module,
    *,
    log: str | Path | None = None,
    target: str | None = None,
    threads: int = 1,
    executor: str = "auto",
    lazy: bool = False,
    strict: bool = False,
    weight_bytes: int | None = None,
    limit_bytes: int | None = None,
    invariant: bool = False,
    progress: Tell | bool | None = None,
) -> Executable:
    """Compile a module, each clone by what a log confirmed for it, or else on defaults.

    Defaults go by the machine's speed. The first one on a machine measures it, in two or three
    seconds and told on stderr, unless the environment has BUCKETIZE_CALIBRATE=0.

    Args:
        mod: the module, dispatched or not.
        log: the CSV file that `tune` wrote; None: defaults.
        target: another processor than this, by its name: "neoverse-v1". The executable can be
            saved, and run where it is loaded on a machine that has what that processor has.
        threads: that share each kernel.
        executor: "graph" (static functions only), "vm", or "auto": the graph executor for what is
            static.
        lazy: compile a clone at its first use.
        strict: make that first use of one that is not compiled an error.
        weight_bytes: at most, of the weights of all clones together, each in every layout that a
            kernel reads it in; kernels that gain least by a layout of their own make do with
            another's. None: what the kernels want.
        limit_bytes: at most, of weights and of what calls take that run at once: see
            `Executable.limit`. None: there is no limit.
        invariant: a row's bits depend on its own inputs alone: not on how many others there are, on
            their lengths, on its bucket, on threads, or whether it is padded or packed. Sums have
            one order, and convolutions one algorithm for all sizes; `log` is left out, whose
            schedules were chosen among others.
        progress: told what is being worked on, how many are done (functions, kernels, then
            plans), and of how many; True shows a bar on stderr.

    Returns:
        The executable; its `counts` say how many workloads the log served.

    Raises:
        ArgumentError: no module, a `progress` of another kind, `weight_bytes` of clones that
            compile at their first use, a log beside `invariant`, or `limit_bytes` below 1.
        UnknownNameError: there is no such executor or target.
        CompileError: no thread, or more than cores of this machine; the graph executor for what is
            not static; weights that cannot be packed in `weight_bytes`, or pass `limit_bytes`.
        KernelError: the cache of kernels cannot be written.
        LogError: the log cannot be read.
        TypeRelError: the module is not legal at any sizes.

    """
    check_module(mod)
    if executor not in EXECUTORS:
        raise unknown_name("executor", executor, EXECUTORS)
    if invariant and log is not None:
        raise ArgumentError(
            "invariant sums in one order, of which a log says nothing: leave it out"
        )
    if lazy and weight_bytes is not None:
        raise ArgumentError("weight_bytes is for all clones together: leave out lazy=True")
    check_count("limit_bytes", limit_bytes)
    check_threads(threads, None if target is None else MOST_THREADS)
    start = time.perf_counter()
    wanted = replace(calibrated() if target is None else named(target), in_order=invariant)
    configurations = defaults if log is None else logged(mod, log, threads)
    program = decide(
        mod, configurations, target=wanted, threads=threads, executor=executor, together=not lazy
    )
    names = ["main"] if lazy else list(mod.functions)
    with shown(progress, progress_bar("compiling")) as tell, Building(wanted.processor) as building:
        building.want(core_sources(threads))
        for i, name in enumerate(names):
            if tell is not None:
                tell(f"deciding {name}", i, len(names))
            routine = program.decide(name, whole=strict or not lazy)
            if weight_bytes is None:
                building.want(sources(program, routine.segments()))
        program = program if weight_bytes is None else limited(program, weight_bytes)
        program.routines.is_closed = strict
        image = linked(program, building, tell)
    executable = Executable(image, mod, time.perf_counter() - start)
    executable.limit(limit_bytes)
    LOGGER.info("%s", executable.counts)
    _warn_of_illegal(program)
    _warn_of_open(executable)
    return executable


def _warn_of_illegal(program: Program) -> None:
    """Name the clones, as far as they are decided, that refuse every run."""
    refusals = {n: r.refusal for n, r in program.routines.made().items() if r.refusal}
    if refusals:
        warn(
            f"{len(refusals)} of {len(program.clones)} clones refuse every run: "
            f"{next(iter(refusals.values()))}; bounds (bounds={{...}}, --dim SYMBOL=LO..HI) leave "
            f"such sizes out, and extents that have to be equal want one symbol"
        )


def _warn_of_open(executable: Executable) -> None:
    """Say what symbols without a top cost: kernels for sizes that may never come."""
    routines = executable.program.routines.made().values()
    symbols = (s for r in routines for p in r.params for s in p.type.symbols())
    unbounded = ", ".join(sorted({s.name for s in symbols if s.hi is None}))
    calls = dict.fromkeys(call for r in routines for call in r.calls())
    several, packed = sum(bool(c.larger) for c in calls), executable.constant_bytes()
    weights = constant_bytes(calls)
    if unbounded and several and packed > max(MUCH * weights, weights + LITTLE):
        warn(
            f"nothing bounds {unbounded} from above: small sizes and large ones have kernels of "
            f"their own in {several} of {len(calls)} calls, and weights of {weights / 2**20:.0f} "
            f"MiB are packed for all of them, {packed / 2**20:.0f} MiB; bounds (bounds={{...}}, "
            f"--dim SYMBOL=LO..HI, add_free_dimension_override_by_name of a session) leave out "
            f"what never comes, weight_bytes (--weight-bytes) is a limit to it"
        )


def rebuilt(program: Program) -> Executable:
    """The executable of a stored program of another processor or version, compiled for this one."""
    start = time.perf_counter()
    target = replace(calibrated(), in_order=program.target.in_order)
    here = redecided(program, target)
    for name in here.routines:
        here.decide(name)
    return Executable(link(here), seconds=time.perf_counter() - start)


def logged(mod: Module, log: str | Path, threads: int) -> Configurations:
    """What the log confirmed for each clone of a module."""
    trials = select(rows(log, TEMPLATES))
    _warn_of_threads(trials, log, threads)
    standing, digests = verdicts(trials, threads), Digests(mod)
    _warn_of_unconfirmed([t for t in trials if t.threads == threads], standing, log)
    _warn_of_bounds(mod, standing.values(), log)

    def configuration(name: str) -> Configuration | None:
        verdict = standing.get(digests[name])
        return None if verdict is None else verdict.configuration

    return configuration


def _warn_of_unconfirmed(
    trials: Sequence[Trial], standing: Mapping[str, Verdict], log: Path | str
) -> None:
    """Say so where there are trials with so many threads, and no verdict: none is used."""
    if trials and not standing:
        warn(
            f"{log}: none of its {len(trials)} trials is confirmed in a clone, so the defaults "
            f"stay; `tune` confirms what it finds",
            LogWarning,
        )


def _warn_of_bounds(mod: Module, standing: Iterable[Verdict], log: str | Path) -> None:
    """Say so where all verdicts on what the module computes are of other bounds: none is used."""
    names = mod.clones or mod.functions
    sources = {id(fn): fn for fn in (source_of(mod, name) for name in names)}.values()
    mine = {graph_of(fn): bounds_of(fn) for fn in sources}
    rows = [row for verdict in standing for row in verdict.rows if row.graph in mine]
    others = {row.bounds: mine[row.graph] for row in rows}
    if others and not any(row.bounds == mine[row.graph] for row in rows):
        theirs, ours = (
            " or ".join(sorted(bounds or "symbols without bounds" for bounds in each))
            for each in (others, {*others.values()})
        )
        warn(
            f"{log}: its verdicts on this model are for {theirs}, not for {ours}, so none is used; "
            f"give the same bounds (--dim) as to `tune`",
            LogWarning,
        )


def _warn_of_threads(trials: Sequence[Trial], log: str | Path, threads: int) -> None:
    """Count the trials of workloads that were never measured with so many threads."""
    served = {trial.workload for trial in trials if trial.threads == threads}
    others = Counter(trial.threads for trial in trials if trial.workload not in served)
    if others:
        counts = ", ".join(f"{n} with threads={t}" for t, n in sorted(others.items()))
        warn(
            f"{log}: left out {others.total()} of {len(trials)} trials, whose workloads were not "
            f"measured with threads={threads} ({counts}); tune with threads={threads}, too",
            LogWarning,
        )
