"""What a call costs beside its kernels: the decision, a graph of 100 tiny ops, counting."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import bucketize
from benchmarks.figure import Figure
from bucketize import ops
from bucketize.ir import Builder, Function, Module, Var
from bucketize.link.memory import Arena
from bucketize.program.instruction import Decide
from bucketize.timing import interleaved
from bucketize.types import Symbol, tensor
from dispatchers import log_dispatcher

OPS = 100
REPEATS = 25
WINDOW = 80  # calls: shorter than what the system interrupts by
WINDOWS = 3000


def chain(*dims: Any, length: int = OPS) -> Function:
    """Ops that fusion leaves alone, on tensors so small that only overhead is seen."""
    x = Var("data", tensor("float32", *dims))
    b = Builder()
    y = x
    for _ in range(length):
        y = b.emit(ops.transpose, y, axes=(1, 0))
    return b.function("main", [x], [y])


def microseconds(call: Callable[[], Any], number: int) -> float:
    """The median over `REPEATS` of the mean over `number` calls."""
    return statistics.median(means(call, number))


def means(call: Callable[[], Any], number: int) -> list[float]:
    """Microseconds of a call, each the mean over `number` of them."""

    def many() -> None:
        for _ in range(number):
            call()

    taken = interleaved({"many": many}, least=REPEATS)["many"]
    return [seconds / number * 1e6 for seconds in taken]


def counting(sizes: Sequence[int]) -> tuple[float, float]:
    """Microseconds of a call of one op at sizes by turns, not counted, and what counting adds.

    Each is the least of many short windows, by turns: what else the machine does is in the others.
    """
    fn = chain(Symbol("N", 1, 512), 3, length=1)
    exe = bucketize.compile(Module({"main": fn}))
    exe.run(np.zeros((1, 3), np.float32))
    (context,), routine = exe._serving.idle, exe.program.routines["main"]
    context.lent.arena = Arena()
    inputs = [[np.zeros((n, 3), np.float32)] for n in sizes] * (WINDOW // len(sizes))

    def calls(is_request: bool) -> None:
        for arrays in inputs:
            context.enter(routine, arrays, is_request)

    kinds = {"plain": partial(calls, False), "counted": partial(calls, True)}
    taken = interleaved(kinds, least=WINDOWS)
    plain, counted = (min(taken[kind]) / len(inputs) * 1e6 for kind in kinds)
    return plain, counted - plain


def main() -> None:
    """Print all."""
    x = np.zeros((4, 4), np.float32)
    symbol = Symbol("N", 1, 512)
    module = Module({"main": chain(symbol, 4)})
    exe = bucketize.compile(module)
    one = microseconds(lambda: exe.run(x), 500)
    print(f"a call of a {OPS}-op graph on a shape seen before: {one:.1f} us")
    exe = bucketize.compile(bucketize.dispatch(module, log_dispatcher), lazy=True)
    one = microseconds(lambda: exe.run(x), 500)
    print(f"the same behind {len(exe.program.routines) - 1} buckets: {one:.1f} us")
    two = Function("main", *_two_axes())
    exe = bucketize.compile(bucketize.dispatch(Module({"main": two}), log_dispatcher), lazy=True)
    (decide,) = (i for i in exe.routines["main"].code.instructions if isinstance(i, Decide))
    sizes = {"H": 200, "W": 3}
    cost = microseconds(lambda: decide.leaf(sizes), 20000)
    print(f"the decision among {len(exe.program.clones)} clones: {cost:.2f} us")
    for what, came in {"the same shape": (3,), "4 shapes by turns": (3, 5, 7, 9)}.items():
        plain, counted = counting(came)
        print(f"a call of one op at {what}: {plain:.1f} us, counting {counted:.2f}")


def _two_axes() -> tuple[Any, Any, Any]:
    x = Var("data", tensor("float32", 1, 3, Symbol("H"), Symbol("W")))
    b = Builder()
    y = b.emit(ops.relu, x)
    return (x,), tuple(b.body), (y,)


def quick() -> list[Figure]:
    """A call of the chain, known and dispatched."""
    x = np.zeros((4, 4), np.float32)
    module = Module({"main": chain(Symbol("N", 1, 512), 4)})
    made = {"": module, ", dispatched": bucketize.dispatch(module, log_dispatcher)}
    exes = {what: bucketize.compile(mod, lazy=True) for what, mod in made.items()}
    return [
        Figure.of(f"a call of {OPS} ops{what}", "us", means(partial(exe.run, x), 200))
        for what, exe in exes.items()
    ]


if __name__ == "__main__":
    main()
