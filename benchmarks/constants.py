"""The constants of the models of cost, fitted to recorded grids: for the tables `PROCESSORS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache

from benchmarks.grids import GRIDS, LEVELS, LOGS
from benchmarks.replay import TARGETS, judged
from bucketize.kernel.gemm.sweep import Sweep
from bucketize.kernel.loops.cost import Steps
from bucketize.tune.fit import fitted, fitted_steps, fitted_sweep
from bucketize.tune.log import rows
from bucketize.tune.observation import C, Observation, observations
from bucketize.tune.task import tasks_of


def main() -> None:
    """Print them, model by model."""
    for processor, target in TARGETS.items():
        products = [r for r in judged() if r.host == processor]
        show("kernel/gemm/cost", asdict(fitted(products, target)))
        swept = observed("convolution", processor, Sweep)
        show("kernel/gemm/sweep", asdict(fitted_sweep(swept, target)))
        counted = observed("rest", processor, Steps)
        show("kernel/loops/cost", fitted_steps(counted, target))


@cache
def observed(grid: str, processor: str, kind: type[C]) -> list[Observation[C]]:
    """The kernels of a recorded grid whose cost is of this kind."""
    module, sizes = {**GRIDS, **LEVELS}[grid]()
    trials = rows(LOGS / f"{processor}-{grid}.csv")
    return observations(tasks_of(module, sizes, fixed=True), trials, kind)


def show(model: str, constants: Mapping[str, float]) -> None:
    """One line for each constant."""
    print(model)
    for name, value in constants.items():
        print(f"    {name}={value:.3g}")


if __name__ == "__main__":
    main()
