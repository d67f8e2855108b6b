"""Models that are almost right: each loads and runs, or is refused by a BucketizeError, in time.

A mutant is a small model with a few fields changed: attributes, dims, dtypes, names, constants,
or bytes of the file. A child process takes a batch of them under a limit of memory and time. All
are loaded; those without large tensors are then run, one in ten compiled, the others interpreted.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import Message
from onnx import numpy_helper
from onnx_model import parse

import bucketize
from bucketize.errors import BucketizeError
from bucketize.interpret import evaluate_module
from bucketize.ir import Module, Var
from bucketize.types import AnyDim, evaluate

SHARE = 200  # of the mutants, in every run of the tests
BATCH = 100
SECONDS = 20  # of the processor, to load a mutant, and again to interpret it: most take 0.01
MEMORY = 1 << 30  # beyond what an import takes
HANG = 600  # seconds of the clock for everything, compiling included
MOST = 1 << 16  # elements of a tensor that is worth computing

MODELS = (
    "(float[N, 4] x) => (y) <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, float[3] b "
    "= {1, 2, 3}> { h = Gemm<alpha = 0.5, transB = 0>(x, w, b) r = Relu(h) "
    "y = Softmax<axis = 1>(r) }",
    "(float[N, 2, H, 5] x) => (y, z) <float[2, 2, 1, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}> "
    "{ y = Conv<pads = [0, 1, 0, 1], strides = [1, 2], group = 1>(x, w) "
    "z = MaxPool<kernel_shape = [1, 2], dilations = [1, 1], ceil_mode = 1>(y) }",
    "(float[N, 2, 6] x) => (y) <int64[1] i = {0}, int64[1] t = {12}> "
    "{ s = Shape(x) n = Gather<axis = 0>(s, i) c = Concat<axis = 0>(n, t) y = Reshape(x, c) }",
    "(float[N, M] x, int64[K] at) => (y, z) <int64[1] b = {0}, int64[1] e = {3}, int64[1] a = {1}> "
    "{ p = Slice(x, b, e, a, a) y = Gather<axis = 1>(x, at) z = ReduceMax<keepdims = 0>(p) }",
    "(float[N, 3] x) => (y, z) <int64[4] p = {1, 0, 0, 1}, int64[1] k = {2}> "
    "{ w = Pad<mode = \"constant\">(x, p) y, z = TopK<axis = 1, largest = 1>(w, k) }",
    "(float[N] x) => (y, z) <int64 s = {0}, int64 e = {9}, int64 d = {2}, int64[2] r = {2, 3}> "
    "{ y = Range(s, e, d) t = Expand(s, r) z = Tile(t, r) }",
    "(float[N, 4] x, bool c) => (y) { y = If(c) <then_branch = g () => (a) { a = Neg(x) }, "
    "else_branch = g () => (b) { b = Transpose<perm = [0, 1]>(x) }> }",
    "(float[N, 2, 3] x, float[3] w) => (y) <int64[2] f = {0, -1}, int64[1] a = {1}> "
    "{ l = LayerNormalization<axis = -1, epsilon = 0.1>(x, w) u = Unsqueeze(l, a) "
    "q = Squeeze(u, a) v = Reshape<allowzero = 0>(q, f) y = Cast<to = 7>(v) }",
    "(float[N, 4] x, float[N, 1] z) => (y) <float lo = {-1}, int64[3] s = {1, 2, 1}, "
    "int64[1, 1] g = {0}, float[1, 2] u = {5, 6}> { c = Clip(x, lo) "
    "n = Less(x, z) m = Where(n, c, z) a, b, d = Split<axis = 1>(m, s) "
    "t = ScatterND(b, g, u) y = Concat<axis = -1>(a, t, d) }",
    "(float[2, N] x) => (y, z, w) <int64[1] s = {4}, int64 t = {1}> "
    "{ v = ConstantOfShape<value = float[1] {2}>(s) y = CumSum<exclusive = 1>(x, t) "
    "z = Flatten<axis = 1>(y) w = Trilu<upper = 0>(y, t) }",
    "(float[N, 8, 2, 2] x, int64[M, 1] i) => (y, z) "
    "{ d = DepthToSpace<blocksize = 2, mode = \"CRD\">(x) y = AveragePool<kernel_shape = [2, 2], "
    "auto_pad = \"SAME_UPPER\">(d) z = GatherND<batch_dims = 0>(x, i) }",
)  # fmt: skip
NUMBERS = (-(2**63), -(2**31), -7, -2, -1, 0, 1, 2, 3, 5, 64, 2**31, 2**40, 2**63 - 1)
FLOATS = (float("nan"), float("inf"), -1.0, 0.0, 0.5, 1e30)
OP_TYPES = ("Add", "Concat", "Expand", "Gather", "GatherND", "IsInf", "MatMul", "Pow", "Range")


# --- mutating ------------------------------------------------------------------------------------


def messages(message: Message) -> Iterator[Message]:
    """All messages inside one, itself first."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from messages(inner)


def mutate(rng: random.Random, model: onnx.ModelProto) -> None:
    """Change one thing, where anything may be changed."""
    rng.choice((field, field, field, operand, constant, node))(rng, model)


def field(rng: random.Random, model: onnx.ModelProto) -> None:
    """A number, a text or a repeated entry of any message."""
    message = rng.choice(list(messages(model.graph)))
    for descriptor, value in rng.sample(fields := message.ListFields(), len(fields)):
        name = descriptor.name
        if descriptor.is_repeated and rng.random() < 0.5:
            del value[rng.randrange(len(value))]
            return
        if descriptor.message_type is not None:
            continue
        if descriptor.is_repeated:
            value[rng.randrange(len(value))] = other(rng, value[0])
        elif rng.random() < 0.2:
            message.ClearField(name)
        else:
            setattr(message, name, other(rng, value))
        return


def other(rng: random.Random, value: Any) -> Any:
    """Another value of this kind; ValueError where the field is too narrow for it."""
    if isinstance(value, str):
        return rng.choice(("", "x", "y", value + "_", *OP_TYPES))
    if isinstance(value, bytes):
        return rng.choice((b"", b"\xff", value[:-1], value + value))
    return rng.choice(FLOATS) if isinstance(value, float) else rng.choice(NUMBERS)


def operand(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another value read, or one more, or one less."""
    graph = model.graph
    chosen = rng.choice(graph.node)
    made = [o for n in graph.node for o in n.output]
    names = ["", *made, *(i.name for i in graph.input), *(t.name for t in graph.initializer)]
    if chosen.input and rng.random() < 0.7:
        chosen.input[rng.randrange(len(chosen.input))] = rng.choice(names)
    else:
        chosen.input.append(rng.choice(names))


def constant(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another dtype, rank or element of an initializer."""
    if not model.graph.initializer:
        return
    tensor = rng.choice(model.graph.initializer)
    array = numpy_helper.to_array(tensor)
    kind = rng.choice(("float32", "float16", "int64", "int32", "bool", "uint8", "float64"))
    changed = rng.choice(
        (
            lambda: array.astype(kind),
            lambda: array.reshape(-1),
            lambda: array.reshape((1, *array.shape)),
            lambda: array.reshape(-1)[:1].reshape(()),
            lambda: array[:0],
            lambda: np.where(array == array.max(), rng.choice(NUMBERS), array).astype(array.dtype),
        )
    )()
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(changed), tensor.name))


def node(rng: random.Random, model: onnx.ModelProto) -> None:
    """A node of another operator, twice, or left out."""
    nodes = model.graph.node
    chosen = rng.randrange(len(nodes))
    what = rng.randrange(3)
    if what == 0:
        nodes[chosen].op_type = rng.choice((*OP_TYPES, *(n.op_type for n in nodes)))
    elif what == 1:
        nodes.add().CopyFrom(nodes[chosen])
    else:
        del nodes[chosen]


def mutant(seed: int) -> bytes:
    """The file of a mutant."""
    rng = random.Random(seed)
    model = parse(rng.choice(MODELS), opset=rng.choice((17, 18, 21)))
    for _ in range(rng.randint(1, 3)):
        try:
            mutate(rng, model)
        except (ValueError, TypeError, LookupError, OverflowError):
            continue  # the message itself does not take it
    data = bytearray(model.SerializeToString())
    for _ in range(rng.randint(1, 3) if rng.random() < 0.25 else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


# --- running -------------------------------------------------------------------------------------


def use(module: Module, *, compiled: bool) -> None:
    """Run a model on small inputs, interpreted or compiled."""
    sizes = dict.fromkeys(module.main.symbols(), 3)

    def shape(var: Var) -> tuple[int, ...]:
        return tuple(3 if isinstance(d, AnyDim) else evaluate(d, sizes) for d in var.type.shape)

    made = [o for b in module.main.body for o in b.outs]
    if any(np.prod(shape(v), dtype=float) > MOST for v in (*module.main.params, *made)):
        return  # legal as it may be, it takes its time
    inputs = [np.ones(np.maximum(shape(p), 0), p.type.dtype) for p in module.main.params]
    if compiled:
        bucketize.compile(module).run(*inputs)
    else:
        evaluate_module(module, *inputs)


def fault(seed: int) -> str | None:
    """What is wrong with how a mutant is taken; None if nothing is."""
    compiled = seed % 10 == 0  # most faults are found before there is a kernel
    data = mutant(seed)
    try:
        with limited("load"):
            module = bucketize.from_onnx(data)
        with limited("run") if not compiled else nullcontext():
            use(module, compiled=compiled)
    except BucketizeError:
        return None
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    return None


@contextmanager
def limited(what: str) -> Iterator[None]:
    """Raise TimeoutError if the block, whichever way it ends, takes too long."""
    began = time.process_time()
    try:
        yield
    finally:
        taken = time.process_time() - began
        if taken >= SECONDS:
            raise TimeoutError(f"takes {taken:.1f} s to {what}")


def serve(seeds: range, say: Callable[[Any], None]) -> None:
    """In a child: say each seed before it is tried, and the faults."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a hang ends the child
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    np.seterr(all="ignore")
    for seed in seeds:
        signal.alarm(HANG)
        say((seed, None))
        found = fault(seed)
        if found is not None:
            say((seed, found))
    say(None)


def faults(seeds: range) -> list[str]:
    """Those of a batch, which a child takes; if it dies, it is of the seed that it said last."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=serve, args=(seeds, send.send))
    child.start()
    send.close()
    found, last = [], None
    try:
        while (told := receive.recv()) is not None:
            last, reason = told
            found += [f"seed {last}: {reason}"] if reason else []
    except EOFError:
        found.append(f"seed {last}: the child died")
    child.join()
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    count = metafunc.config.getoption("--graphs")
    total = 4 * count if count else SHARE  # they are the cheapest of all
    metafunc.parametrize("begin", range(0, total, BATCH))


@pytest.mark.filterwarnings("ignore")
def test_mutants_load_or_are_refused(begin: int) -> None:
    assert faults(range(begin, begin + BATCH)) == []
