"""The constants of the models of cost, fitted to recorded grids: for the tables `FITTED`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from benchmarks.calibrate import fitted, fitted_detour, fitted_steps, fitted_sweep
from benchmarks.figure import EXACT, Figure
from benchmarks.replay import TARGETS, judged, observed
from bucketize.kernel.depthwise.cost import DepthwiseCost
from bucketize.kernel.loops.cost import Steps
from bucketize.kernel.winograd.cost import WinogradCost


def main() -> None:
    """Print them, model by model."""
    for processor, target in TARGETS.items():
        products = [r for r in judged() if r.host == processor]
        show("kernel/gemm/cost", asdict(fitted(products, target)))
        swept = observed("convolution", processor, DepthwiseCost)
        show("kernel/depthwise/cost", asdict(fitted_sweep(swept, target)))
        counted = observed("rest", processor, Steps)
        show("kernel/loops/cost", fitted_steps(counted, target))
    filtered = {t: observed("filters", name, WinogradCost) for name, t in TARGETS.items()}
    show("kernel/winograd/cost", asdict(fitted_detour(filtered)))


def show(model: str, constants: Mapping[str, float]) -> None:
    """One line for each constant."""
    print(model)
    for name, value in constants.items():
        print(f"    {name}={value:.3g}")


def quick() -> list[Figure]:
    """Constants of depthwise convolutions, which are few."""
    return [
        Figure.of(f"{processor}, {name}", EXACT, [float(f"{value:.3g}")])
        for processor, target in TARGETS.items()
        for name, value in asdict(
            fitted_sweep(observed("convolution", processor, DepthwiseCost), target)
        ).items()
    ]


if __name__ == "__main__":
    main()
