"""The dispatch transform itself: 6,561 buckets."""

from __future__ import annotations

import time

from bucketize import ANY, Module, dispatch, ops
from bucketize.ir import Builder, Var
from bucketize.types import tensor
from dispatchers import log_dispatcher


def main() -> None:
    """Print the seconds of dispatching four axes into nine buckets each."""
    x = Var("data", tensor("float32", ANY, ANY, ANY, ANY))
    b = Builder()
    module = Module({"main": b.function("main", [x], [b.emit(ops.relu, x)])})
    start = time.perf_counter()
    dispatched = dispatch(module, log_dispatcher)
    seconds = time.perf_counter() - start
    print(f"{len(dispatched.clones)} buckets in {seconds:.2f} s")


if __name__ == "__main__":
    main()
