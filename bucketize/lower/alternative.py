"""The arrangements of a function worth a look, priced: NHWC or NCHW, and fused or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bucketize.dispatch.tree import name_dims
from bucketize.ir import Function, Module
from bucketize.kernel.workload import Workload, workload_of
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.lower.cost import Predicted, Prices, Seconds, Weighted
from bucketize.lower.fuse import groups_of
from bucketize.lower.layout import anchors
from bucketize.lower.pipeline import fused, laid_out, simplified
from bucketize.machine.host import host
from bucketize.machine.target import Target


@dataclass(frozen=True)
class Alternative:
    """An arrangement, and what the function takes in it, relative to the usual one."""

    arrangement: Arrangement
    price: float


def arrangements(
    module: Module,
    clone: str,
    sizes: Mapping[str, int],
    chosen: Arrangement = USUAL,
    threads: int = 1,
) -> list[Alternative]:
    """The arrangements of a clone at sizes, the cheapest first, `chosen` among them."""
    fn = name_dims(module.functions[clone])
    alternatives = Alternatives(fn, host(), threads, chosen)
    return alternatives.priced([(sizes, 1.0)], alternatives.predicted)


class Alternatives:
    """The arrangements of a function, each lowered once, to be priced often."""

    def __init__(
        self, fn: Function, target: Target, threads: int, chosen: Arrangement = USUAL
    ) -> None:
        """Lower the whole of `fn` in each layout, fused and not, and as `chosen`."""
        self.predicted = Predicted.of(fn, target, threads)
        """The models' seconds of a kernel."""
        self.simple = simplified(fn, target=target)
        ways = dict.fromkeys((USUAL, chosen, *_ways(self.simple)))
        self.kernels = {way: _workloads(self.simple, way) for way in ways}

    def priced(self, sizes: Weighted, seconds: Seconds) -> list[Alternative]:
        """The cheapest first; each of the sizes counts by its weight, relative to the usual one."""
        prices = Prices(self.kernels[USUAL], sizes, seconds)
        alternatives = [Alternative(a, sum(map(prices.of, ws))) for a, ws in self.kernels.items()]
        return sorted(
            alternatives, key=lambda a: (a.price, a.arrangement != USUAL, str(a.arrangement))
        )


def _ways(simple: Function) -> Iterator[Arrangement]:
    """All in NHWC and all in NCHW; each fused, and with nothing joined to what is before it."""
    for planar in (frozenset[int](), frozenset(anchors(simple))):
        laid = laid_out(simple, Arrangement(planar))
        joined = {b for _, *more in groups_of(laid).values() for b in more}
        yield Arrangement(planar)
        yield Arrangement(planar, frozenset(i for i, b in enumerate(laid.body) if b in joined))


def _workloads(simple: Function, way: Arrangement) -> list[Workload]:
    lowered = fused(laid_out(simple, way), way)
    return [workload_of(b)[0] for b in lowered.body if b.is_ranked]
