"""What wants a schedule: the distinct workloads of each clone, and where they are judged."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bucketize.dispatch.bucket import show_bucket
from bucketize.errors import TuneError
from bucketize.inspect.predict import passed_bytes, predicted
from bucketize.ir import CALL, Function, Module, Var, all_bindings
from bucketize.kernel.cost import seconds
from bucketize.kernel.gemm.cost import ProductCost
from bucketize.kernel.schedule import Implementation, Schedule
from bucketize.kernel.select import Select
from bucketize.kernel.template import Cost, Shapes
from bucketize.kernel.templates import TEMPLATES
from bucketize.kernel.work import Work, work
from bucketize.kernel.workload import Workload
from bucketize.log.cell import shape_text
from bucketize.log.fingerprint import bounds_of, dispatcher_of, graph_of, source_of
from bucketize.log.trial import CloneAt, KernelAt, Owner
from bucketize.log.verdict import Digests
from bucketize.lower.cost import Weighted, is_known
from bucketize.machine.host import host
from bucketize.machine.target import Target
from bucketize.measure.job import SEARCHING, Job, Repeats
from bucketize.op import Array
from bucketize.program.configuration import defaults
from bucketize.program.decide import decide
from bucketize.program.instruction import KernelCall
from bucketize.program.program import Program, Routine
from bucketize.traffic.value import Traffic
from bucketize.tune.residual import Forest, forest
from bucketize.tune.search import Space, space_of
from bucketize.tune.sizes import WHOLE, SizesMet, judged_at, of_traffic
from bucketize.types import ANY, Dim, Points, Sizes, evaluate, symbols

GUESS_S = 2e-11  # of a float operation or a byte


@dataclass(frozen=True)
class Point:
    """Where a schedule is judged: the shapes of the parameters, and the sizes that give them."""

    shapes: Shapes
    sizes: Sizes
    weight: float

    @property
    def shape(self) -> str:
        """The shapes as the log has them."""
        return shape_text(self.shapes)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True, eq=False)
class Task(Owner):
    """A workload in a bucket, and the points at which its implementations are judged."""

    layer: str
    """What the workload computes first in the function: nodes of the model, else a binding."""
    workload: Workload
    select: Select
    """What runs without a log, by size."""
    part: int
    """Which of these the points are of."""
    points: tuple[Point, ...]
    weight_bytes: int
    """Bytes of the function's weights, which pass through the caches between runs of a kernel."""
    target: Target
    legal: Space
    """The implementations that may be tried; one for all tasks with this workload and default."""

    @cached_property
    def default(self) -> Implementation:
        """What runs at the points without a log."""
        return self.select.implementations[self.part]

    def runs_at(self, sizes: Sizes) -> bool:
        """Whether its default is what runs at sizes of the function."""
        select = self.select
        if not select.thresholds:
            return True
        return select.index(evaluate(self.workload.size, sizes)) == self.part

    @cached_property
    def space(self) -> Space:
        """The implementations that may be tried, with what is expected of them here."""
        return replace(self.legal, believed=believed(self, self.legal))

    @cached_property
    def work(self) -> Work:
        """What the workload takes at least."""
        return work(self.workload)

    @property
    def op(self) -> str:
        """The op that decides which template serves."""
        return self.workload.anchor.op.name

    def at(self, point: Point) -> KernelAt:
        """The task at a point, as columns of the log."""
        return KernelAt(
            **self.names,
            op=self.op,
            workload=self.workload.hash,
            layer=self.layer,
            shape=point.shape,
            weight=point.weight,
            flops=self.flops(point),
            bytes=self.bytes(point),
            graph_bytes=self.weight_bytes,
            baseline=str(self.default),
        )

    def job(
        self,
        point: Point,
        implementations: Sequence[Implementation],
        threads: int,
        rounds: Repeats = SEARCHING,
    ) -> Job:
        """To time implementations at a point beside the default, which comes first."""
        others = [one for one in implementations if one.key != self.default.key]
        return Job(
            workload=self.workload,
            shape=point.shape,
            implementations=(self.default, *others),
            sizes=point.sizes,
            threads=threads,
            weight_bytes=self.weight_bytes,
            rounds=rounds,
        )

    def flops(self, point: Point) -> int | None:
        """Floating-point operations at a point, two for each product of a sum; None without one."""
        multiplications = _size(self.work.multiplications, point)
        return 2 * multiplications if multiplications else None

    def bytes(self, point: Point) -> int | None:
        """Bytes that the kernel reads and writes at least; None where values decide."""
        return _size(self.work.moved, point)

    @cached_property
    def expected_s(self) -> dict[Shapes, float]:
        """Seconds of the default at each point by the model, or by the work where it has none."""
        return {point.shapes: self._modelled_s(point) for point in self.points}

    def _modelled_s(self, point: Point) -> float:
        has_model = TEMPLATES[self.default.template].cost is not None
        if has_model and is_known(self.workload, point.sizes):
            conditions = point.sizes, self.target, self.weight_bytes
            return seconds(self.workload, self.default, *conditions)
        return ((self.flops(point) or 0) + (self.bytes(point) or 0) + 1) * GUESS_S

    @cached_property
    def family(self) -> tuple[object, ...]:
        """What tasks have in common whose implementations are worth a try for each other."""
        body, constant = self.workload.body, self.workload.constant
        weights = tuple(str(p.type) for p, c in zip(body.params, constant, strict=True) if c)
        return (tuple(b.op.name for b in body.body), weights)


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject(Owner):
    """What is tuned as a whole: a function that does the work, for one bucket of sizes."""

    module: Module
    program: Program
    """The program of the module, on defaults."""
    judged: Weighted
    tasks: tuple[Task, ...]

    @property
    def params(self) -> tuple[Var, ...]:
        """The inputs of the clone."""
        return self.program.routines[self.function].params

    @property
    def weight(self) -> float:
        """The weight of all its sizes."""
        return sum(weight for _, weight in self.judged)

    def at(self, sizes: Sizes, weight: float) -> CloneAt:
        """The clone at sizes of this weight, as columns of the log."""
        source = source_of(self.module, self.function)
        return CloneAt(
            **self.names,
            graph=graph_of(source),
            bounds=bounds_of(source),
            shape=self.shape(sizes),
            weight=weight / self.weight,
        )

    def shape(self, sizes: Sizes) -> str:
        """The shapes of the inputs, as the log has them."""
        dims = (p.type.shape for p in self.params)
        return shape_text(tuple(evaluate(d, sizes) for d in shape) for shape in dims)


def believed(task: Task, space: Space, learnt: Forest | None = None) -> Belief | None:
    """What is expected of each point: the logarithm of its latency by the default's.

    By the templates' own models, and by what recorded logs say beside them of products, those that
    come with the project where nothing is `learnt`; None where a template of the workload has no
    model.
    """
    names = dict.fromkeys(one.template for one in space.points)
    costs = {name: cost for name in names if (cost := TEMPLATES[name].cost) is not None}
    return Belief(task, space, costs, learnt) if len(costs) == len(names) else None


@dataclass(frozen=True, eq=False)
class Belief(Sequence[float]):
    """What is expected of each point, computed when it is asked for: logs are read for it."""

    task: Task
    space: Space
    costs: Mapping[str, Callable[[Workload], Cost]]
    learnt: Forest | None

    def __len__(self) -> int:
        return len(self.space.points)

    def __getitem__(self, at: Any) -> Any:
        return self._logs[at]

    @cached_property
    def _logs(self) -> list[float]:
        log_of: dict[object, float] = {}
        for name, cost in self.costs.items():
            mine = [one for one in self.space.points if one.template == name]
            logs = self._expected(cost(self.task.workload), [one.schedule for one in mine])
            log_of |= {one.key: float(log) for one, log in zip(mine, logs, strict=True)}
        return [log_of[one.key] - log_of[self.space.default.key] for one in self.space.points]

    def _expected(self, cost: Cost, schedules: Sequence[Schedule]) -> Array:
        """Logarithms of seconds, the weighted mean over the points of the task."""
        task = self.task
        if isinstance(cost, ProductCost):
            products = [cost.product([point.sizes], task.weight_bytes) for point in task.points]
            logs = (self.learnt or forest(task.target)).expected(products, schedules)
        else:
            points = Points([point.sizes for point in task.points])
            logs = np.log(cost.seconds(schedules, points, task.target, task.weight_bytes))
        return np.average(logs, axis=0, weights=[point.weight for point in task.points])


def _size(dim: Dim, point: Point) -> int | None:
    """A dim at a point; None where its sizes do not tell it."""
    is_told = dim != ANY and all(s.name in point.sizes for s in symbols(dim))
    return evaluate(dim, point.sizes) if is_told else None


def subjects_of(
    mod: Module,
    sizes: str | SizesMet | Traffic = "middle",
    threads: int = 1,
    target: Target | None = None,
    *,
    fixed: bool = False,
) -> list[Subject]:
    """The functions that do the work, clone by clone, and what each has to tune.

    Args:
        mod: a module, dispatched or not.
        sizes: where schedules are judged. "middle": at the geometric middle of the bucket, or at
            the sizes that its profile names; "bounds": at its low end, middle and top; or a list of
            sizes met in practice, `[{"N": 1}, {"N": 8}]` or, weighted, `[({"N": 1}, 0.9), ...]`:
            each counts in the first clone whose bucket holds it, and a clone that gets none has no
            tasks. Sizes at which the model is not legal are not chosen. Or a `Traffic`: at three of
            its quantiles in each bucket, weighed by requests times expected seconds.
        threads: that the clones run on.
        target: the machine that they are tuned for; by default this one.
        fixed: whether workloads that leave no choice are tasks, too.

    Raises:
        TuneError: no bucket holds any of the sizes, they lack a symbol, or are of a clone that is
            not legal, as all may be.

    """
    target = target or host()
    program = decide(mod, defaults, target=target, threads=threads, executor="auto", together=True)
    routines = [program.decide(name, whole=False) for name in mod.functions]
    working = [program.decide(r.name) for r in routines if not _delegates(r.fn)]
    if all(r.refusal for r in working):
        raise TuneError("no clone is legal at any of its sizes: bound the symbols of the model")
    leaves = [(routine, mod.clones.get(routine.name, WHOLE)) for routine in working]
    if isinstance(sizes, Traffic):
        judged = of_traffic(leaves, sizes, lambda name, at: predicted(program, at, name).seconds)
    else:
        judged = judged_at(leaves, sizes)
    digests, spaces, dispatcher = Digests(mod), Spaces(target), dispatcher_of(mod)
    subjects = []
    for routine, clone in leaves:
        if at := judged[routine.name]:
            owner = Owner(
                function=routine.name,
                bucket=show_bucket(clone.bucket),
                clone=digests[routine.name],
                dispatcher=dispatcher,
            )
            tasks = tasks_in(routine, owner, at, spaces)
            able = tuple(task for task in tasks if fixed or len(task.legal.points) > 1)
            whole = Subject(**owner.names, module=mod, program=program, judged=at, tasks=able)
            subjects.append(whole)
    return subjects


def tasks_of(
    mod: Module, sizes: str | SizesMet | Traffic = "middle", *, fixed: bool = False
) -> list[Task]:
    """The tasks of all functions that do the work; as `subjects_of`."""
    return [task for subject in subjects_of(mod, sizes, fixed=fixed) for task in subject.tasks]


def _delegates(fn: Function) -> bool:
    return any(b.op is CALL for b in all_bindings(fn))


class Spaces:
    """What may be tried of each workload: clones share most of theirs, and it takes a while."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._made: dict[tuple[str, object], Space] = {}

    def __getitem__(self, asked: tuple[Workload, Implementation]) -> Space:
        workload, default = asked
        key = workload.hash, default.key
        if key not in self._made:
            self._made[key] = space_of(workload, default, self.target)
        return self._made[key]


# --- the tasks of one function -------------------------------------------------------------------


def tasks_in(routine: Routine, owner: Owner, judged: Weighted, spaces: Spaces) -> Iterator[Task]:
    """The distinct workloads of a routine, in order of appearance."""
    calls = list(routine.calls())
    weight_bytes = passed_bytes(calls)
    alike: dict[str, list[KernelCall]] = {}
    for call in calls:
        alike.setdefault(call.workload.hash, []).append(call)
    for same in alike.values():
        first = same[0]
        for part, points in _parts(same, judged).items():
            yield Task(
                **owner.names,
                layer="+".join(first.binding.origin) or f"%{first.binding.outs[0].name}",
                workload=first.workload,
                select=first.select,
                part=part,
                points=tuple(points.values()),
                weight_bytes=weight_bytes,
                target=spaces.target,
                legal=spaces[first.workload, first.select.implementations[part]],
            )


def _parts(calls: Sequence[KernelCall], judged: Weighted) -> dict[int, dict[Shapes, Point]]:
    """Points of calls that are alike, by which of their implementations runs there."""
    first, parts = calls[0], defaultdict[int, dict[Shapes, Point]](dict)
    names = _names(first.workload)
    for call in calls:
        for point in _points(call.workload, names, judged):
            points = parts[first.part(point.sizes)]
            before = points.get(point.shapes)
            weight = point.weight + (before.weight if before else 0.0)
            points[point.shapes] = replace(point, weight=weight)
    return dict(sorted(parts.items()))


def _names(workload: Workload) -> list[str]:
    """The symbols of the parameters in the order in which a workload's key meets them."""
    dims = [d for p in workload.body.params for d in p.type.shape]
    return list(dict.fromkeys(name for d in dims for name in sorted(s.name for s in symbols(d))))


def _points(workload: Workload, names: Sequence[str], judged: Weighted) -> Iterator[Point]:
    """The points at which shapes are known, as those of data-dependent ops are not.

    Sizes go by the names that the first call of the workload has for its symbols.
    """
    shapes = [p.type.shape for p in workload.body.params]
    own = _names(workload)
    for sizes, weight in judged:
        if ANY in itertools.chain(*shapes) or not sizes.keys() >= set(own):
            continue
        extents = tuple(tuple(evaluate(d, sizes) for d in shape) for shape in shapes)
        renamed = {name: sizes[mine] for name, mine in zip(names, own, strict=True)}
        yield Point(extents, renamed, weight)
