"""One copy of the weights: the process with 81 clones of resnet50 beside the undispatched one."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.figure import Figure, needs, ratios

SCRIPT = """
import sys, psutil, bucketize
from bucketize import zoo
from dispatchers import log_dispatcher
module = bucketize.from_onnx(zoo.build("resnet50"))
if sys.argv[1] == "dispatched":
    by_size = lambda shapes: {{"data": {{a: log_dispatcher(shapes)["data"][a] for a in (2, 3)}}}}
    module = bucketize.dispatch(module, by_size)
    for name in module.functions if {materialise} else ():
        module.functions[name]
print(len(module.functions), psutil.Process().memory_info().rss / 2**20)
"""


def measured(kind: str, materialise: bool) -> tuple[int, float]:
    """Functions of the module, and MiB of the process that holds it."""
    script = SCRIPT.format(materialise=materialise)
    command = [sys.executable, "-c", script, kind]
    functions, size = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=300
    ).stdout.split()
    return int(functions), float(size)


def main() -> None:
    """Print the process sizes and their ratios."""
    _, plain = measured("plain", False)
    count, dispatched = measured("dispatched", False)
    _, typed = measured("dispatched", True)
    print(f"resnet50 undispatched: {plain:.0f} MiB")
    print(f"{count - 1} clones: {dispatched:.0f} MiB, {dispatched / plain:.2f}x")
    print(f"{count - 1} clones, each one's IR made: {typed:.0f} MiB, {typed / plain:.2f}x")


def quick() -> list[Figure]:
    """The process with clones beside the one without."""
    needs("psutil")
    alone = [measured("plain", False) for _ in range(2)]
    many = [measured("dispatched", False) for _ in range(2)]
    by = ratios([mib for _, mib in many], [mib for _, mib in alone])
    return [Figure.of(f"resnet50, {many[0][0] - 1} clones by none", "", by)]


if __name__ == "__main__":
    main()
