"""The public face of an image: calls by name or position, from any number of threads."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from bucketize.call import arrange_inputs, sizes_of
from bucketize.errors import ArgumentError, RequestsError, unknown_name
from bucketize.fork import ThreadLock
from bucketize.ir import Module, Var
from bucketize.kernel.object import Kernel
from bucketize.link.image import Image
from bucketize.machine.file import path_of
from bucketize.many.limits import CallLimits, check_count
from bucketize.op import Array, Value
from bucketize.program.instruction import AGREED, DEFAULT, LOGGED
from bucketize.program.program import Program, Routine
from bucketize.progress import Tell, progress_bar, shown
from bucketize.release import rest
from bucketize.runtime.memory import Memory
from bucketize.runtime.output import checked, filled
from bucketize.runtime.serving import Serving, owned
from bucketize.runtime.vm import Context
from bucketize.table import html_heading, html_table
from bucketize.traffic.counter import TrafficCounter

if TYPE_CHECKING:
    import pandas as pd

    from bucketize.background import WarmUp
    from bucketize.inspect.explain import Explanation
    from bucketize.inspect.report import ServingReport
    from bucketize.inspect.roofline import Roofline
    from bucketize.many.deliver import Done
    from bucketize.many.many import Many, Request
    from bucketize.many.plan import CallPlan
    from bucketize.traffic.value import Traffic

REPORTED = 64  # sizes: a few seconds on the largest models


@dataclass
class Counts:
    """What compiling came to."""

    found: int = 0
    """Kernel calls of clones with a verdict in the log."""
    kept: int = 0
    """Kernel calls on defaults, of clones with a verdict, which tuning kept."""
    defaults: int = 0
    """Kernel calls on defaults that no verdict speaks of."""
    kernels: int = 0
    built: int = 0
    seconds: float = 0.0
    """What compiling took, without what was put off until it is used; 0 if it was loaded."""
    host: dict[str, int] = field(default_factory=dict)
    """Ops without a template, which numpy computes, and how often they occur."""

    def __str__(self) -> str:
        slow = ", ".join(f"{n} x {op}" for op, n in self.host.items())
        kept = f"{self.kept} on defaults that it kept, " if self.kept else ""
        return (
            f"{self.found + self.defaults} kernel calls: {self.found - self.kept} with schedules "
            f"from the log, {kept}{self.defaults} on defaults; {self.kernels} kernels, "
            f"{self.built} of them compiled now, {self.kernels - self.built} from the cache"
            f"{slow and f'; on the host, for want of a template: {slow}'}"
        )


def _ends(params: Iterable[Var]) -> dict[str, tuple[int, int | None]]:
    """By symbol what its sizes are multiples of, and the largest."""
    return {s.name: (s.step, s.hi) for p in params for s in p.type.symbols()}


def _signature(params: Iterable[Var]) -> list[str]:
    """Names, dtypes and dims of inputs, whatever their bounds."""
    return [f"{p.name}: {p.type}" for p in params]


def _named(program: Program, clone: str) -> Routine:
    """The clone of a name, or of a profile's."""
    labelled = [name for name, c in program.clones.items() if c.label == clone and c.label]
    if clone in program.routines:
        return program.routines[clone]
    if not labelled:
        raise unknown_name("clone", clone, program.routines)
    return program.routines[labelled[0]]


def _facts(routine: Routine) -> list[object]:
    """How many kernels a routine runs, how many of them tuned, and what it computes on the host."""
    calls, host = list(routine.calls()), ", ".join(b.op.name for b in routine.on_host())
    return [len(calls), sum(call.why == LOGGED for call in calls), host]


class Executable:
    """A compiled module. Not made directly: see `bucketize.compile` and `bucketize.load`."""

    def __init__(self, image: Image, module: Module | None = None, seconds: float = 0.0) -> None:
        """The face of an image.

        Args:
            image: what was linked.
            module: what was compiled; None of an executable that was loaded.
            seconds: what making it took.

        """
        self.module = module
        self._params = image.program.routines.params("main")
        ends = _ends(self._params)
        self._counter = TrafficCounter(tuple(ends), ends)
        self._serving, self._changing = Serving(image, self._counter), ThreadLock()
        self._sharing: tuple[Serving, Many] | None = None
        """How requests share calls of what serves them; None: nobody asked yet."""
        self._warm_up: WarmUp | None = None
        self._warming = ThreadLock()
        self._seconds = seconds

    def __repr__(self) -> str:
        program = self.program
        inputs = ", ".join(map(repr, self._params))
        buckets = f", {len(program.routines) - 1} clones" if len(program.routines) > 1 else ""
        return f"<executable of ({inputs}) -> ({', '.join(self.outputs)}){buckets}>"

    def _repr_html_(self) -> str:
        """For notebooks: what it takes and gives, and the functions that were decided so far."""
        rows = [[r.name, r.executor, *_facts(r)] for r in self.routines.values()]
        table = html_table(["function", "executor", "kernels", "tuned", "on the host"], rows)
        return html_heading("executable", repr(self)) + table

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an executable is tied to this process: send the file that save(path) writes, and "
            "bucketize.load(path) it there"
        )

    @property
    def image(self) -> Image:
        """What was linked."""
        return self._serving.image

    @property
    def program(self) -> Program:
        """What was decided."""
        return self.image.program

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in the order of positional arguments."""
        return tuple(p.name for p in self._params)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the results, in their order."""
        return self.program.outputs

    # Running.

    def run(self, /, *arrays: Value, **named: Value) -> list[Value]:
        """Compute the results of `main`.

        Threads may call at once: each call has a context of its own, and as many are kept as were
        ever in use together.

        Args:
            *arrays: the inputs, in the order of `inputs`, of the shapes and dtypes of `main`; a
                list of arrays for a sequence, None for what is optional and absent.
            **named: the inputs that are not given by position.

        Returns:
            An array for each of `outputs`, owned by the caller.

        Raises:
            ArgumentError: a mapping where an array is expected.
            ShapeError: an input is missing, or of another shape or dtype; a size that the model is
                not legal at; no memory for a result.
            UnknownNameError: there is no such input.
            NoBucketError: no bucket covers the sizes, and there is no fallback.
            TypeRelError: the clone of these sizes is not legal.

        """
        inputs = arrange_inputs(self._params, arrays, named)
        serving = self._serving  # read once: another may come meanwhile
        if serving.gate is None:
            return serving.run("main", inputs, True)
        return self._limited(serving, inputs)

    __call__ = run

    def run_into(
        self, outputs: Sequence[Array | None], /, *arrays: Value, **named: Value
    ) -> list[Value]:
        """Compute the results of `main` into arrays of the caller.

        Kernels write there, where nothing but one segment of native code is on the way and an array
        has no gaps and shares no memory with an input; else results are copied there.

        Args:
            outputs: for each of `outputs` an array of its shape and dtype, or None for a new one;
                no two share memory.
            *arrays: as of `run`.
            **named: as of `run`.

        Returns:
            The arrays, in the order of `outputs`.

        Raises:
            ArgumentError: no list of arrays, one that may not be written to, or two that share
                memory.
            ShapeError: an array of another shape or dtype than its result, or as of `run`.

        """
        into = checked(self.outputs, outputs)
        inputs = arrange_inputs(self._params, arrays, named)
        serving = self._serving
        if serving.gate is None:
            results = serving.run("main", inputs, True, into=into)
        else:
            results = self._limited(serving, inputs)
        return filled(self.outputs, into, results)

    def run_named(self, /, *arrays: Value, **named: Value) -> dict[str, Value]:
        """Compute the results of `main`, by name.

        Args:
            *arrays: as of `run`.
            **named: as of `run`.

        Returns:
            An array by each of `outputs`.

        """
        return dict(zip(self.outputs, self.run(*arrays, **named), strict=True))

    def run_clone(self, clone: str, /, *arrays: Value, **named: Value) -> list[Value]:
        """Compute the results by one clone, whatever the sizes would choose.

        Args:
            clone: its name, or that of its profile.
            *arrays: as of `run`.
            **named: as of `run`.

        Returns:
            An array for each of `outputs`, owned by the caller.

        Raises:
            ShapeError: sizes that are not of the clone's bucket, or as of `run`.
            UnknownNameError: there is no such clone.

        """
        serving = self._serving
        routine = _named(serving.image.program, clone)
        return serving.gated(routine.name, arrange_inputs(routine.params, arrays, named))

    def run_many(
        self,
        requests: Iterable[Request],
        /,
        *,
        tokens: int | None = None,
        bytes: int | None = None,
        first_s: float | None = None,
        all_s: float | None = None,
    ) -> list[list[Value]]:
        """The results of many requests, each of shapes of its own.

        Requests share calls where that is expected to take less, by the models of kernels: those
        of equal shapes as a batch, where rows are proved to keep apart; those of unequal lengths
        packed behind each other, without padding, if the module is `bucketize.ragged`, or can be
        made so. That is tried at the first list, and what is packed is compiled when it first
        gains. With several threads calls run one after the other, each by all threads, or side by
        side, a thread each. What a request comes to is what it would alone, within the rounding of
        products of another size; tokens that a mask hides are not looked at. `plan_many` tells who
        shares what, and why others do not.

        Args:
            requests: of each its inputs by name, as those of `run`.
            tokens: that share a packed call; a row that has more has one to itself. None: the
                fewest that cost next to nothing more than the best.
            bytes: of the calls that run at once, beside weights, requests and results. A call that
                would take more is cut; a row that takes more alone is refused.
            first_s: of a call that requests share, by the models: the first results come after so
                many seconds.
            all_s: for all of them; a call that is expected to end later is not begun.

        Returns:
            The results of each, in order; of a ragged module they are 0 at tokens that are hidden.

        Raises:
            ArgumentError: one request in place of a list, or a limit that is no number above 0.
            RequestsError: some requests failed; its `results` are those of the others, and the
                error of each that did: a LateError of those that `all_s` left out.

        """
        limits = self._within(CallLimits(tokens, bytes, first_s, all_s))
        return self._many().results(requests, limits)

    def stream_many(
        self,
        requests: Iterable[Request],
        /,
        *,
        tokens: int | None = None,
        bytes: int | None = None,
        first_s: float | None = None,
        all_s: float | None = None,
    ) -> Iterator[tuple[int, Done]]:
        """The results of many requests, those of each as soon as they are there.

        Args:
            requests: as of `run_many`.
            tokens: as of `run_many`.
            bytes: as of `run_many`.
            first_s: as of `run_many`.
            all_s: as of `run_many`.

        Returns:
            The place of a request, and its results or the error that it failed by, in the order in
            which calls end. What is not asked for is not run.

        Raises:
            ArgumentError: as of `run_many`.

        """
        limits = self._within(CallLimits(tokens, bytes, first_s, all_s))
        return self._many().delivered(requests, limits)

    def plan_many(
        self,
        requests: Iterable[Request],
        /,
        *,
        tokens: int | None = None,
        bytes: int | None = None,
        first_s: float | None = None,
        all_s: float | None = None,
    ) -> CallPlan:
        """The calls that `run_many` would come to; nothing is run.

        Args:
            requests: as of `run_many`.
            tokens: as of `run_many`.
            bytes: as of `run_many`.
            first_s: as of `run_many`.
            all_s: as of `run_many`.

        Returns:
            The calls, and the errors of requests that cannot be run; `str` of it is a line each.

        Raises:
            ArgumentError: as of `run_many`.

        """
        limits = self._within(CallLimits(tokens, bytes, first_s, all_s))
        return self._many().plan(requests, limits)

    def _many(self) -> Many:
        with self._changing:  # of one executable, though another may come meanwhile
            serving, sharing, own = self._serving, self._sharing, (self.module, self._params)
        if sharing is not None and sharing[0] is serving:
            return sharing[1]
        if sharing is not None and sharing[0].image is serving.image:  # so is what was proved of it
            its = sharing[1]
            many = replace(its, run=serving.gated, memory=serving.memory, count=serving.count)
        else:
            # who asks for no list of requests pays nothing for it
            module = rest("bucketize.many.many")
            ways = serving.gated, serving.memory, serving.count
            many = module.many_of(serving.image.program, *own, *ways)
        with self._changing:
            if self._serving is serving:
                self._sharing = serving, many
        return many

    def _within(self, limits: CallLimits) -> CallLimits:
        """The limits of calls, with the memory limit of the executable among them."""
        gate = self._serving.gate
        if gate is None:
            return limits
        left = max(gate.most - self.constant_bytes(), 1)
        return replace(limits, bytes=min(limits.bytes or left, left))

    def context(self) -> Callable[..., list[Value]]:
        """A `run` with memory of its own that no other call shares: one call at a time.

        It stays with what the executable was when it was made, also after `replace`.
        """
        serving = self._serving
        context = serving.context()

        def run(*arrays: Value, **named: Value) -> list[Value]:
            inputs = arrange_inputs(self._params, arrays, named)
            routine = serving.image.program.routines["main"]
            return owned(context.enter(routine, inputs, True), inputs)

        return run

    def _limited(self, serving: Serving, inputs: list[Value]) -> list[Value]:
        """Run a request within the limit: rows that keep apart in several calls, if they must."""
        taken, weights = serving.bytes_of("main", inputs)
        gate = serving.gate
        if gate is None or taken <= gate.most - weights:
            return serving.gated("main", inputs, True)
        many, limits = self._many(), CallLimits(bytes=max(gate.most - weights, 1))
        request = dict(zip(self.inputs, inputs, strict=True))
        if many.plan([request], limits).errors:
            gate.check(taken, weights)
        try:
            return many.results([request], limits)[0]
        except RequestsError as e:
            raise e.results[0] from None  # type: ignore[misc]  # the error of the one there is

    # Memory.

    def memory(self, /, **shapes: Any) -> Memory:
        """What a call takes of memory, told before any is taken but for weights.

        Args:
            **shapes: of the inputs or of the symbols, as of `explain`.

        Returns:
            Bytes of weights, between kernels, between native segments and host ops, of results.

        Raises:
            NoBucketError, TypeRelError: as of `run`.
            ShapeError: the size of a symbol is missing, or out of its bounds.
            UnknownNameError: there is no such input or symbol.

        """
        return self._serving.memory("main", sizes_of(self._params, shapes))

    def limit(self, bytes: int | None) -> None:
        """Have weights and the calls that run at once take no more than so many bytes together.

        A call that would pass that waits for others; one that would alone is cut, where its rows
        are proved to keep apart, or refused. What callers hold, inputs and results that were
        returned, is not counted; nor is a `context` of one's own, nor what contexts keep between
        calls of the same shapes, which `trim` gives back. Shapes that are made from values are not
        known before: what they need is refused on the way, each part of a call by itself, but for
        rows that loops stack. To look costs 10 to 40 us a call.

        Args:
            bytes: None: there is no limit.

        Raises:
            ArgumentError: no number from 1.
            CompileError: the weights alone take more.

        """
        check_count("bytes", bytes)
        with self._changing:
            self._serving.limit(bytes)

    def trim(self) -> int:
        """Give back memory that no call uses: arenas of this process, contexts of this executable.

        What calls need is taken anew. Without it, memory that no call needed for ten to twenty
        seconds is given back as calls go on.

        Returns:
            Bytes of the arenas.

        """
        return self._serving.trim()

    # Warming up, and another in its place.

    def warm_up(
        self,
        progress: Tell | bool | None = None,
        *,
        traffic: Traffic | None = None,
        seconds: float = math.inf,
    ) -> list[str]:
        """Link and run every clone once at its smallest legal sizes, on zeros.

        A clone that is not legal at all is passed by. Of one that refuses all sizes that are tried
        (the least, doubled and doubled again) a BucketizeWarning says so.

        Args:
            progress: as that of `compile`.
            traffic: those clones first that are asked for most: by requests times their sizes,
                multiplied; None: in the order of the program.
            seconds: after these no other clone is begun.

        Returns:
            The clones that no time was left for.

        Raises:
            ArgumentError: a `progress` that is no function, True or None; no traffic, or seconds
                below 0.

        """
        serving = self._serving  # to its end, though another may come meanwhile
        routines = serving.image.program.routines
        module = rest("bucketize.warm_up")
        names: list[str] = module.in_order(serving.image.program, traffic, seconds)
        end = time.monotonic() + seconds
        with shown(progress, progress_bar("warming up")) as tell:
            for i, name in enumerate(names):
                if time.monotonic() >= end:
                    return names[i:]
                if tell is not None:
                    tell(name, i, len(names))
                module.warm(routines[name], lambda r, inputs: serving.gated(r.name, inputs))
        return []

    def warm_up_in_background(
        self, *, traffic: Traffic | None = None, seconds: float = math.inf
    ) -> WarmUp:
        """Warm clones up while requests are served: of `compile(mod, lazy=True)`.

        A clone that is not compiled yet is stood in for by the dynamic original, `main[fallback]`,
        which is compiled before this returns; kernels are compiled by a process of their own. Each
        clone serves from when it is ready on, in a context of one's own and after `replace` from
        when another shape comes. A clone that is padded, or was parsed and not made by `dispatch`,
        has no original, and compiles at its first use. One warm-up that is on its way gives way to
        another; a child of a fork has none, and what stood in stands in until one begins there.

        Args:
            traffic: as that of `warm_up`.
            seconds: after these no other clone is begun. What is cold then compiles at its first
                use, or, of `compile(mod, lazy=True, strict=True)`, never: the original stays.

        Returns:
            What is on its way, to be looked at, waited for, or stopped.

        Raises:
            ArgumentError: no traffic, or seconds below 0.
            KernelError: the original cannot be compiled.

        """
        # a compiler is loaded by who asks for it
        module = rest("bucketize.background")
        image = self.image
        names = rest("bucketize.warm_up").in_order(image.program, traffic, seconds)
        with self._warming:
            if self._warm_up is not None:
                self._warm_up.give_way()
            its: WarmUp = module.WarmUp(image, names, seconds, partial(self._refresh, image))
            self._warm_up = its
        return its

    def _refresh(self, image: Image) -> bool:
        """Have calls ask again what serves them; False if they are served by another image."""
        with self._changing:
            serving = self._serving
            if serving.image is not image:
                return False
            renewed = serving.renewed(image)
            renewed.clones = serving.clones
            with suppress(IndexError):
                while True:
                    context = serving.idle.pop()
                    context.forget_routes()
                    renewed.idle.append(context)
            self._serving = renewed
        return True

    def replace(self, new: Executable) -> None:
        """Serve by another executable of the same inputs and outputs from the next call on.

        Calls that run end on what they began with, and no call waits. `traffic` goes on counting.
        What both have in common was compiled once: kernels are shared by all of a process. Bounds
        are those of the new one: sizes that it does not take are refused from then on. The limit
        stays: what was set for the new one goes for calls of that alone.

        Args:
            new: as compiled for other buckets of the same model.

        Raises:
            ArgumentError: no executable, or one of other inputs or outputs.
            CompileError: its weights alone take more than the limit.

        """
        if not isinstance(new, Executable):
            raise ArgumentError(f"replace takes an executable, got {new!r}")
        mine, its = ((_signature(e._params), e.outputs) for e in (self, new))
        if mine != its:
            raise ArgumentError(f"{new!r} cannot stand for {self!r}: inputs or outputs differ")
        with self._changing:
            self._serving = self._serving.renewed(new.image)
            self._sharing = self._warm_up = None  # they have what was served, weights and all
            self._params, self.module, self._seconds = new._params, new.module, new._seconds
            self._counter.widen(_ends(new._params))

    def save(self, path: str | Path) -> None:
        """Write a file that `bucketize.load` runs without model, log, compiler or cache.

        It takes the place of another by being renamed: who has loaded that one keeps it.
        Constants stand in it twice where kernels want them packed, so that kernels can be built
        anew on another processor.

        Args:
            path: of the file.

        Raises:
            ArgumentError: no path.
            ProgramError: the file cannot be written.

        """
        place = path_of(path, "the path of a file to write")
        rest("bucketize.save.write").save(self.image, place)

    def save_library(self, path: str | Path, format: str = "so") -> Path:
        """Write a library of C: every clone, the weights and what chooses, for any language.

        It needs the C library and its mathematics alone, and runs on the thread that calls.

        Args:
            path: of the library, as in `model.so`, whose functions are `bucketize_model_run` and
                the like; of a folder, for "c".
            format: "so", a shared object of ELF, as Linux loads it; or "c": objects, header and
                Makefile, for a linker of one's own.

        Returns:
            The path of the header, which says what is called how.

        Raises:
            ArgumentError: another format, no path, or that of the header.
            ProgramError: an operator that no kernel computes, an input that is no tensor; the files
                cannot be written.

        """
        header: Path = rest("bucketize.library.write").save_library(self, path, format)
        return header

    # What it came to.

    @property
    def counts(self) -> Counts:
        """What was decided and built so far."""
        counts = Counts(kernels=len(self.kernels), seconds=self._seconds)
        counts.built = sum(not k.cached for k in self.kernels.values())
        for routine in self.routines.values():
            why = Counter(call.why for call in routine.calls())
            counts.found += why.total() - why[DEFAULT]
            counts.kept += why[AGREED]
            counts.defaults += why[DEFAULT]
            for b in routine.on_host():
                counts.host[b.op.name] = counts.host.get(b.op.name, 0) + 1
        return counts

    @property
    def traffic(self) -> Traffic | None:
        """The requests of `run` and `run_many` by their sizes, in this process, from any thread.

        None of no request, or if no size is free. Its times are those at which bins begin, a second
        wide at first; beyond 256 bins, or 65,536 rows, neighbours are joined and all are twice as
        wide. Distinct sizes beyond 65,536 are rounded up, and a BucketizeWarning says to what;
        requests are counted exactly. A child of a fork begins anew.
        """
        return self._counter.snapshot()

    def as_counted(self, traffic: Traffic) -> Traffic:
        """A traffic as `traffic` tells it by now: with its sizes rounded, where those are.

        What was expected, or was told earlier, compares with what came only so.

        Args:
            traffic: of symbols of the model, not all of them perhaps.

        Returns:
            The traffic.

        Raises:
            ArgumentError: no traffic.
            UnknownNameError: the model has not such a symbol.

        """
        return self._counter.as_counted(traffic)

    def report(self, *, sizes: int = REPORTED) -> ServingReport:
        """What the clones did for the requests that `traffic` counts, of those since `replace`.

        Requests are counted exactly. Times are from when the inputs are in order until the results
        are there, known to 1 / 64; a request after one of more than 1 ms is timed, of others one of
        61, which stands for the rest. Of those that share a call of `run_many` each has an equal
        part of its time, and counts for the clone that served the call; regrets are of each alone.

        Args:
            sizes: of how many sizes, those with most requests, the regret is told; each takes a few
                milliseconds for each ten kernels, and 0 leaves it out.

        Returns:
            A row for each clone that had requests; `str` of it is a table, `dataclasses.asdict` is
            for JSON.

        Raises:
            ArgumentError: sizes below 0.

        """
        # the models load all templates, which a loaded executable does without
        module = rest("bucketize.inspect.report")
        serving, traffic = self._serving, self._counter.snapshot()
        clones = self._counter.by_clone(serving.clones)
        its: ServingReport = module.report(serving.image.program, clones, traffic, sizes)
        return its

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The distinct kernels that were linked so far, by name."""
        return self.image.supply.kernels()

    @property
    def routines(self) -> dict[str, Routine]:
        """The functions decided so far, by name."""
        return self.program.routines.begun()

    def constant_bytes(self) -> int:
        """Bytes of the constants as the kernels hold them; one copy serves all clones."""
        return self.image.supply.constant_bytes()

    def explain(self, /, *unnamed: Any, **shapes: Any) -> Explanation:
        """What runs for these input shapes or symbol sizes, and why; decides what it names.

        Args:
            *unnamed: none: sizes go by name.
            **shapes: of the inputs or of the symbols: `exe.explain(data=(3, 3, 224, 224))` or
                `exe.explain(N=3, H=224, W=224)`.

        Returns:
            The clone and a row for each kernel; `str` of it is a table, `rows` are its data.

        Raises:
            ArgumentError: a size that has no name.
            ShapeError: the size of a symbol is missing, or out of its bounds.
            UnknownNameError: there is no such input or symbol.

        """
        if unnamed:
            how = "explain(data=(3, 224)) or explain(N=3)"
            raise ArgumentError(f"sizes are given by name, as in {how}, got {unnamed[0]!r}")
        with self._changing:
            image, mine = self._serving.image, self.module
        sizes = sizes_of(image.program.routines["main"].params, shapes)
        report: Explanation = rest("bucketize.inspect.explain").explain(sizes, Context(image))
        report.shared = lambda: str(self._many())
        if mine is not None and report.clone in mine.functions:
            # these load all templates, which a loaded executable does without
            report.expected = partial(_expected, image.program, sizes)
            module = rest("bucketize.lower.alternative")
            where = report.clone, report.inside, report.arrangement, image.program.threads
            report.alternatives = partial(module.arrangements, mine, *where)
        return report

    def profile(
        self,
        /,
        *arrays: Array,
        repetitions: int = 20,
        roofline: Roofline | None = None,
        progress: Tell | bool | None = None,
        **named: Array,
    ) -> pd.DataFrame:
        """Where the time of `run` goes for these inputs.

        Operations are those of matrix products and convolutions, done directly; bytes are those of
        operands and results, each once. What is attained by what the roofline model allows
        (Williams, Waterman, Patterson 2009) may exceed 1: what lies in a cache comes faster than
        from memory, and the roof is that of float32.

        Args:
            *arrays: as of `run`; all inputs, where one is called as an option of this is.
            repetitions: calls that are timed.
            roofline: the machine's; None: it is measured, in a second, once in a process, by two
                small kernels that have to be compiled.
            progress: told of each run; True shows a bar on stderr.
            **named: as of `run`.

        Returns:
            A row for each kernel, in order, with name (the nodes of the model, joined by "+"), op,
            kernel (its template), shape (of the result), time_s (the median), iqr_s (the distance
            between the quartiles), share, predicted_s (what the model of the template says), flops,
            bytes, gflops, gbytes_s, intensity (FLOP per byte), roofline (attained by attainable),
            bound ("compute" or "memory"), schedule, why ("log" or "default"), group and lines (as
            `explain` tells them, of kernels that run in strips). A group is timed as a whole, as it
            runs; its kernels have parts of that, in proportion to what each takes alone, over its
            whole extent. The last row, "(between kernels)", is what the whole call takes beyond
            them, so that the shares add up to 1; of it, and of ops that numpy computes, work and
            rates are missing. `attrs` has "whole_s", "whole_iqr_s", "predicted_s", "machine" (what
            else it did, a `bucketize.busy.Machine`) and "roofline".

        Raises:
            ArgumentError: no repetition, an input by the name of an option, or as of `run`.
            ShapeError: as of `run`.

        """
        taken = {"repetitions", "roofline", "progress"}.intersection(self.inputs)
        if taken and len(arrays) < len(self.inputs):
            fault = f"input {min(taken)!r} is called as an option of `profile` is"
            raise ArgumentError(f"{fault}: give all inputs by position, in the order of `inputs`")
        # pandas and what measures the machine are loaded by who asks for them
        module = rest("bucketize.inspect.profile")
        inputs = arrange_inputs(self._params, arrays, named)
        serving = self._serving
        frame: pd.DataFrame = module.profile(
            serving.image,
            inputs,
            lambda: serving.gated("main", inputs),
            repetitions,
            roofline,
            progress,
        )
        return frame


def _expected(program: Program, sizes: Mapping[str, int]) -> list[float | None]:
    """The seconds of each kernel of a call, in order, by the models of the kernels."""
    module = rest("bucketize.inspect.predict")
    kernels = module.predicted(program, sizes).kernels
    return [None if k.seconds is None else k.times * k.seconds for k in kernels]
