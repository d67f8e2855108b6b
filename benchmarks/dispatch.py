"""The dispatch transform itself: 6,561 buckets."""

from __future__ import annotations

import time

from benchmarks.figure import Figure, seconds
from bucketize import ANY, Module, dispatch, ops
from bucketize.ir import Builder, Var
from bucketize.types import tensor
from dispatchers import log_dispatcher


def module_of_four() -> Module:
    """A module of four dynamic axes."""
    x = Var("data", tensor("float32", ANY, ANY, ANY, ANY))
    b = Builder()
    return Module({"main": b.function("main", [x], [b.emit(ops.relu, x)])})


def main() -> None:
    """Print the seconds of dispatching four axes into nine buckets each."""
    module = module_of_four()
    start = time.perf_counter()
    dispatched = dispatch(module, log_dispatcher)
    taken = time.perf_counter() - start
    print(f"{len(dispatched.clones)} buckets in {taken:.2f} s")


def quick() -> list[Figure]:
    """The same, several times."""
    module = module_of_four()
    return [Figure.of("6561 buckets", "s", [*seconds(lambda: dispatch(module, log_dispatcher), 5)])]


if __name__ == "__main__":
    main()
