"""Buckets cut where the requests are: a histogram of batch sizes in, few clones out.

Run it with: python examples/traffic.py
"""

from __future__ import annotations

import time

import numpy as np

import bucketize
from bucketize import zoo
from dispatchers import from_traffic

# Most requests come alone; the rest come in small batches, and now and then a big one.
REQUESTS = {"N": {1: 900, 2: 60, 4: 30, 16: 9, 64: 1}}


def main() -> None:
    """Dispatch on the traffic, then answer requests of several sizes."""
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})
    mod = bucketize.dispatch(mod, from_traffic(REQUESTS, count=3))
    print("clones:", ", ".join(name for name in mod.functions if name != "main"))

    exe = bucketize.compile(mod)
    random = np.random.default_rng(0)
    for size in REQUESTS["N"]:
        data = random.standard_normal((size, 784), np.float32)
        exe.run(data=data)  # the first call on a shape plans its memory
        start = time.perf_counter()
        (y,) = exe.run(data=data)
        print(f"N={size:2}: {y.shape} in {1e3 * (time.perf_counter() - start):.2f} ms")


if __name__ == "__main__":
    main()
