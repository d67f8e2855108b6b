"""How a clone's kernels could be arranged, and what the model expects of that."""

from __future__ import annotations

from collections.abc import Mapping

from bucketize.dispatch.tree import name_dims
from bucketize.ir import Module
from bucketize.kernel.target import host
from bucketize.lower.alternative import Alternative, Alternatives
from bucketize.lower.arrangement import USUAL, Arrangement
from bucketize.lower.price import Predicted


def arrangements(
    module: Module,
    clone: str,
    sizes: Mapping[str, int],
    chosen: Arrangement = USUAL,
    threads: int = 1,
) -> list[Alternative]:
    """Those of a clone that may be best at sizes, the cheapest first, `chosen` among them."""
    fn = name_dims(module.functions[clone])
    asked, predicted = [(sizes, 1.0)], Predicted.of(fn, host(), threads)
    return Alternatives(fn, [asked], predicted, chosen).priced(asked, predicted)
