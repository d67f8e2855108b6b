"""Large files: seconds of the processor to import and to compile a node, at several sizes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click
import numpy as np
import pandas as pd
from onnx import ModelProto, TensorProto, helper, numpy_helper

import bucketize
from benchmarks.figure import Figure
from bucketize.cli.table import records, table

SIZES = (5_000, 10_000, 20_000, 40_000)  # of nodes
QUICK = 5_000
WIDTH = 8
LAYER = ("MatMul", "Add", "Relu", "Softmax", "Sigmoid")


@click.command()
@click.option("--nodes", "-n", "sizes", type=click.IntRange(len(LAYER)), multiple=True)
def main(sizes: Sequence[int]) -> None:
    """Import and compile chains of layers of five nodes, kernels cached.

    Times are those of this process alone, so other work on the machine counts for little. "growth"
    is the exponent by which a time grows from the size before: 1 is linear.
    """
    bucketize.compile(bucketize.from_onnx(chain(20 * len(LAYER))))  # imports, and the kernels
    rows: list[dict[str, Any]] = []
    for size in sorted(sizes or SIZES):
        rows.append(measured(size) | {"growth": float("nan")})
        if len(rows) > 1:
            rows[-1]["growth"] = growth(*rows[-2:])
    click.echo(table(records(pd.DataFrame(rows).round(3))))


def measured(size: int) -> dict[str, Any]:
    """Seconds to import and to compile a chain of `size` nodes, and milliseconds a node."""
    model = chain(size).SerializeToString()
    start = time.process_time()
    module = bucketize.from_onnx(model)
    read = time.process_time()
    bucketize.compile(module)
    done = time.process_time()
    each = {"import_ms": 1e3 * (read - start) / size, "compile_ms": 1e3 * (done - read) / size}
    return {"nodes": size, "import_s": read - start, "compile_s": done - read, **each}


def growth(before: dict[str, Any], after: dict[str, Any]) -> float:
    """The exponent by which the time of both grows with the nodes."""
    times, sizes = (
        [sum(row[name] for name in names) for row in (before, after)]
        for names in (("import_s", "compile_s"), ("nodes",))
    )
    return float(np.log(times[1] / times[0]) / np.log(sizes[1] / sizes[0]))


def chain(size: int) -> ModelProto:
    """Layers of five nodes, one after the other, all with a name and of one weight."""
    weight = numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32), "w")
    nodes, last = [], "x"
    for at in range(size):
        op = LAYER[at % len(LAYER)]
        other = {"MatMul": ["w"], "Add": ["x"]}.get(op, [])
        nodes.append(helper.make_node(op, [last, *other], [f"v{at}"], name=f"{op}_{at}"))
        last = f"v{at}"
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in ("x", last)
    )
    graph = helper.make_graph(nodes, "chain", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def quick() -> list[Figure]:
    """A chain, imported and compiled a few times."""
    rows = [measured(QUICK) for _ in range(3)]
    return [
        Figure.of(
            f"{name.removesuffix('_ms')} of {QUICK:,} nodes", "ms/node", [r[name] for r in rows]
        )
        for name in ("import_ms", "compile_ms")
    ]


if __name__ == "__main__":
    main()
