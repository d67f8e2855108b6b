"""Files that are broken, or mean harm: an error that says why, or a result, in bounded memory.

Whatever a file holds, `from_onnx`, `compile` and a run raise `BucketizeError` alone. Memory is
bounded by a limit on addresses: what asks for a terabyte must be refused, not tried.
"""

from __future__ import annotations

import random
import resource
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from composites import Composite
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import TensorProto, helper, numpy_helper
from onnx_model import draw, parse
from test_composites import ALL

import bucketize
from bucketize.cli.group import main
from bucketize.errors import BucketizeError
from bucketize.interpret import evaluate_module
from bucketize.onnx import from_onnx
from bucketize.types import evaluate

SHARE = 1000  # of mutants of each kind, in every run of the tests
MOST = 10**5  # elements of an input that a mutant is run on
LIMIT = 1 << 33  # bytes of addresses: a good deal more than any test needs
HUGE = 2**40
NUMBERS = (0, 1, -1, 2, 7, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63), 10**9, 2**40)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def refused(source: Any, *inputs: np.ndarray, told: str = ".") -> None:
    """By the import, or by the interpreter and by `compile` or its run, which says why."""
    with pytest.raises(BucketizeError):
        evaluate_module(from_onnx(source), *inputs)
    with pytest.raises(BucketizeError, match=told):
        bucketize.compile(from_onnx(source)).run(*inputs)


def graph_model(*nodes: onnx.NodeProto, tensors: Any = (), functions: Any = ()) -> onnx.ModelProto:
    """A model of float32[N, M] x, and y."""
    x, y = (helper.make_tensor_value_info(n, 1, s) for n, s in (("x", ["N", "M"]), ("y", None)))
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, opset_imports=sets, functions=functions, ir_version=10)


node = helper.make_node


# --- mutants -------------------------------------------------------------------------------------


def small(rng: random.Random) -> Composite:
    return ALL[rng.choice(sorted(ALL))]


def flipped(rng: random.Random, data: bytes) -> bytes:
    """Bytes changed, left out, put in or repeated, or the rest cut off."""
    if rng.random() < 0.2:
        return data[: rng.randrange(len(data))]
    new = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, other = rng.randrange(len(new)), rng.randrange(len(new))
        some = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
        again = new[other : other + 9]
        end, put = rng.choice(((at + 1, some[:1]), (at + 3, b""), (at, some), (at + 9, again)))
        new[at:end] = put
    return bytes(new)


def changed(rng: random.Random, data: bytes) -> bytes:
    """A model that parses, with some of its fields changed."""
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2))):
        names = sorted({n for v in model.graph.node for n in (*v.input, *v.output, v.op_type)})
        message, field = rng.choice([*fields(model)])
        change(rng, message, field, [*names, "", "no such"])
    return model.SerializeToString()


def fields(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    for field, value in message.ListFields():
        yield message, field
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from fields(inner)


def change(rng: random.Random, message: Message, field: Any, names: list[str]) -> None:
    values = getattr(message, field.name)
    if field.type == field.TYPE_MESSAGE or rng.random() < 0.1:
        if field.is_repeated and rng.random() < 0.5:
            values.extend([rng.choice(values)])
        elif field.is_repeated:
            del values[rng.randrange(len(values))]
        else:
            message.ClearField(field.name)
        return
    made = {
        field.TYPE_STRING: lambda: rng.choice(names),
        field.TYPE_BYTES: lambda: bytes(rng.randrange(256) for _ in range(rng.randrange(9))),
        field.TYPE_FLOAT: lambda: rng.choice((0.0, -1.0, float("nan"), float("inf"))),
        field.TYPE_ENUM: lambda: rng.choice([*field.enum_type.values_by_number]),
    }.get(field.type, lambda: rng.choice(NUMBERS))()
    if isinstance(made, int) and field.type == field.TYPE_INT32:
        made = (made + 2**31) % 2**32 - 2**31
    if field.is_repeated:
        values[rng.randrange(len(values))] = made
    else:
        setattr(message, field.name, made)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "share" in metafunc.fixturenames:
        metafunc.parametrize("share", [metafunc.config.getoption("--graphs") or SHARE])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutate", [flipped, changed])
def test_mutants(mutate: Callable[[random.Random, bytes], bytes], share: int) -> None:
    """What is left of a model runs, or is refused."""
    for seed in range(share):
        rng = random.Random(seed)
        data = mutate(rng, small(rng).model.SerializeToString())
        try:
            module = from_onnx(data)
            sizes = {n: max(s.lo, 2) for n, s in module.main.symbols().items()}
            shapes = [[evaluate(d, sizes) for d in p.type.shape] for p in module.main.params]
            if all(np.prod(shape, dtype=float) <= MOST for shape in shapes):
                numbers = np.random.default_rng(seed)
                evaluate_module(module, *(draw(numbers, p, sizes) for p in module.main.params))
        except BucketizeError:
            pass
        except Exception as e:
            raise AssertionError(f"mutant {seed}") from e


@pytest.mark.parametrize("name", ["loop_in_a_loop", "functions_in_functions", "residual_block"])
def test_what_is_cut_off(name: str) -> None:
    data = ALL[name].model.SerializeToString()
    for end in range(0, len(data), max(1, len(data) // 100)):
        try:
            from_onnx(data[:end])
        except BucketizeError:
            continue


# --- graphs that are none ------------------------------------------------------------------------

NEG = node("Neg", ["x"], ["y"])
WEIGHTS = numpy_helper.from_array(np.ones(3, np.float32), "w")
ONE = helper.make_tensor_value_info("r", 1, None)
NO_GRAPH = helper.make_graph([], "t", [], [])
WITH_INPUT = helper.make_graph([node("Neg", ["q"], ["r"])], "t", [ONE], [ONE])
LEAF = helper.make_graph([node("Neg", ["x"], ["r"])], "t", [], [ONE])


def referring() -> onnx.NodeProto:
    made = node("Softmax", ["x"], ["y"], axis=1)
    made.attribute[0].ref_attr_name = "nobody's"
    return made


def branched(**branches: Any) -> onnx.ModelProto:
    model = graph_model(node("If", ["c"], ["y"], **branches))
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    return model


def looped(body: onnx.GraphProto) -> onnx.ModelProto:
    return graph_model(node("Loop", ["", "", "x"], ["y"], body=body))


FUNCTION = helper.make_function(
    "my", "f", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 18)]
)
TWICE = helper.make_function(
    "my",
    "f",
    ["a"],
    ["b"],
    [node("Neg", ["a"], ["b"]), node("Exp", ["a"], ["b"])],
    [helper.make_opsetid("", 18)],
)
CALL = node("f", ["x"], ["y"], domain="my")


def unnamed() -> onnx.ModelProto:
    model = graph_model(NEG)
    model.graph.output.append(onnx.ValueInfoProto())
    return model


GRAPHS = {
    "a circle": (
        graph_model(
            node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]), node("Abs", ["a"], ["y"])
        ),
        "'a' reads 'b', which nothing before it makes",
    ),
    "itself": (graph_model(node("Neg", ["y"], ["y"])), "reads 'y', which nothing"),
    "an input made": (graph_model(node("Neg", ["x"], ["x"]), NEG), "2 values are named 'x'"),
    "a weight made": (
        graph_model(node("Neg", ["x"], ["w"]), NEG, tensors=[WEIGHTS]),
        "2 values are named 'w'",
    ),
    "a weight twice": (
        graph_model(NEG, tensors=[WEIGHTS, WEIGHTS]),
        "2 initializers are named 'w'",
    ),
    "a function twice": (
        graph_model(CALL, functions=[FUNCTION, FUNCTION]),
        "2 functions are named 'my.f'",
    ),
    "twice in a function": (graph_model(CALL, functions=[TWICE]), "2 values are named 'b'"),
    "a result without a name": (
        unnamed(),
        "an output of main has no name",
    ),
    "no graph": (helper.make_model(NO_GRAPH), "holds no ONNX graph"),
    "an attribute of another kind": (
        graph_model(node("Softmax", ["x"], ["y"], axis=[1])),
        "the attribute axis has another type than INT",
    ),
    "an attribute of nobody": (graph_model(referring()), "the attribute axis has no value"),
    "a branch of another kind": (
        branched(then_branch=3, else_branch=LEAF),
        "the attribute then_branch has another type than GRAPH",
    ),
    "a branch with inputs": (
        branched(then_branch=WITH_INPUT, else_branch=LEAF),
        "a branch has inputs",
    ),
    "branches without results": (
        branched(then_branch=NO_GRAPH, else_branch=NO_GRAPH),
        "output 0 is used",
    ),
    "a branch without results": (
        branched(then_branch=LEAF, else_branch=NO_GRAPH),
        "branches return 1 and 0 results",
    ),
    "no condition": (
        graph_model(node("If", [], ["y"], then_branch=LEAF, else_branch=LEAF)),
        "If: not valid: 0 inputs",
    ),
    "a body without inputs": (looped(LEAF), "Loop: a body without inputs"),
    "a body without outputs": (
        looped(helper.make_graph([], "b", [ONE, *LEAF.output, ONE], [])),
        "Loop: a body of 0 outputs, expected 2 at least",
    ),
    "no body": (
        graph_model(node("Loop", ["", "", "x"], ["y"])),
        "body",
    ),
    "groups of nothing": (
        parse("(float[N] x) => (y) { y = GroupNormalization<num_groups = 1>(x, x, x) }", 21),
        r"groups of channels of float32\[N\], which must have rank 2 or more",
    ),
    "a slice of more axes": (
        parse(f"(float[N, M] x, int64[{HUGE}] s) => (y) {{ y = Slice(x, s, s) }}"),
        f"{HUGE} axes of rank 2",
    ),
    "a window too large": (
        parse(f"(float[N, 1, H, W] x) => (y) {{ y = MaxPool<kernel_shape = [{HUGE}, 1]>(x) }}"),
        "no axis is that long",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_that_are_none(name: str) -> None:
    model, told = GRAPHS[name]
    with pytest.raises(BucketizeError, match=told):
        from_onnx(model)


def test_what_is_odd_and_legal() -> None:
    """An input that is an output, too, and a weight; a function that returns what it takes."""
    model = graph_model(NEG, tensors=[WEIGHTS])
    model.graph.output.extend([model.graph.input[0], helper.make_tensor_value_info("w", 1, [3])])
    module = from_onnx(model)
    for run in (bucketize.compile(module).run, lambda x: evaluate_module(module, x)):
        for got, want in zip(run(X), (-X, X, np.ones(3)), strict=True):
            np.testing.assert_array_equal(got, want)
    back = helper.make_function("my", "f", ["a"], ["a"], [], [helper.make_opsetid("", 18)])
    (got,) = evaluate_module(from_onnx(graph_model(CALL, functions=[back])), X)
    np.testing.assert_array_equal(got, X)


@pytest.mark.parametrize("version", [-1, 0, 99, 2**40])
def test_versions(version: int) -> None:
    model = graph_model(NEG)
    model.opset_import[0].version = version
    with pytest.raises(BucketizeError, match=f"the model has (opset|version) {version}"):
        from_onnx(model)


# --- numbers that are absurd ---------------------------------------------------------------------

TENSORS: dict[str, dict[str, Any]] = {
    "too few bytes": {"dims": [3], "raw_data": bytes(8)},
    "too many bytes": {"dims": [3], "raw_data": bytes(16)},
    "odd bytes": {"dims": [3], "raw_data": bytes(11)},
    "nothing": {"dims": [3]},
    "too few": {"dims": [3], "float_data": [1.0]},
    "another field": {"dims": [3], "int32_data": [1, 2, 3]},
    "negative": {"dims": [-3], "raw_data": bytes(12)},
    "two negative": {"dims": [-3, -1], "raw_data": bytes(12)},
    "large": {"dims": [2**62], "raw_data": bytes(12)},
    "overflow": {"dims": [2**62, 4], "raw_data": b""},
    "zero of much": {"dims": [0, 2**62, 2**62], "raw_data": b""},
    "rank": {"dims": [1] * 70, "float_data": [1.0]},
    "no type": {"dims": [3], "data_type": 0, "raw_data": bytes(12)},
    "unknown type": {"dims": [3], "data_type": 99, "raw_data": bytes(12)},
}


@pytest.mark.parametrize("name", TENSORS)
def test_weights(name: str) -> None:
    tensor = TensorProto(**{"name": "w", "data_type": 1, **TENSORS[name]})
    add = node("Add", ["x", "w"], ["y"])
    for model in (
        graph_model(add, tensors=[tensor]),
        graph_model(node("Constant", [], ["w"], value=tensor), add),
    ):
        with pytest.raises(BucketizeError, match=r"corrupt|not valid|not supported"):
            from_onnx(model)


def test_extents_of_inputs() -> None:
    refused(parse("(float[N, 2] x) => (y) { y = Relu(x) }").SerializeToString()[:-9])
    model = graph_model(NEG)
    dim = model.graph.input[0].type.tensor_type.shape.dim
    dim[1].dim_value = -5
    refused(model, told="input 'x', axis 1: -5 elements")
    for d in dim:
        d.dim_value = 2**62
    refused(model, X, told=r"a value computed from sizes, .* comes near 2\^63: ")


HEAD = "<int64 zero = {0}, int64 one = {1}, float[2] ends = {0, 1}"
TERABYTES = {
    "Expand": ("y = Expand(x, s)", [2**62, 2, 3]),
    "Tile": ("y = Tile(x, s)", [HUGE, 1]),
    "Tiles": ("y = Tile(x, s)", [2**62, 2**62]),
    "ConstantOfShape": ("y = ConstantOfShape(s)", [HUGE, 2, 3]),
    "Constants": ("y = ConstantOfShape(s)", [2**62, 2**62]),
    "Reshape": ("y = Reshape(x, s)", [2**62, 2**62, 2**62]),
    "Rows": ("y = Reshape(x, s)", [2**33, 2**33, -1]),
    "Pad": ("y = Pad(x, s)", [0, 0, HUGE, 0]),
    "Cut": ("y = Pad(x, s)", [-(2**62), 0, 0, 0]),
    "Range": ("l = Gather(s, zero) y = Range(zero, l, one)", [HUGE]),
    "Ranges": ("l = Gather(s, zero) y = Range(zero, l, one)", [2**63 - 1]),
    "OneHot": ("i = Cast<to = 7>(x) d = Gather(s, zero) y = OneHot(i, d, ends)", [HUGE]),
    "TopK": ("y, i = TopK(x, s)", [HUGE]),
    "Split": ("y, z = Split(x, s)", [2**62, 2**62]),
    "Unsqueeze": ("y = Unsqueeze(x, s)", [HUGE]),
    "ReduceSum": ("y = ReduceSum(x, s)", [-HUGE]),
    "Gather": ("y = Gather(x, s)", [HUGE]),
}


@pytest.mark.parametrize("name", TERABYTES)
def test_terabytes(name: str) -> None:
    """Asked for by a constant, or by an operand."""
    nodes, numbers = TERABYTES[name]
    declared = f"int64[{len(numbers)}] s"
    given = f"{declared} = {{{', '.join(map(str, numbers))}}}"
    refused(parse(f"(float[N, M] x) => (y) {HEAD}, {given}> {{ {nodes} }}", 18), X)
    model = parse(f"(float[N, M] x, {declared}) => (y) {HEAD}> {{ {nodes} }}", 18)
    refused(model, X, np.array(numbers, np.int64))


def test_numbers_that_grow() -> None:
    """Extents are followed until they are too long to write; the arithmetic goes on."""
    squares = [node("Mul", [f"v{i}", f"v{i}"], [f"v{i + 1}"]) for i in range(60)]
    ends = node("Shape", ["x"], ["v0"]), node("Sub", ["v60", "v60"], ["z"])
    model = graph_model(*ends[:1], *squares, ends[1], node("Cast", ["z"], ["y"], to=1))
    (got,) = evaluate_module(from_onnx(model), X)
    np.testing.assert_array_equal(got, [0, 0])
    doubled = [
        node("Concat", [f"v{i}" if i else "x"] * 2, [f"v{i + 1}"], axis=0) for i in range(70)
    ]
    with pytest.raises(BucketizeError, match=r"comes near 2\^63"):
        bucketize.compile(from_onnx(graph_model(*doubled, node("Neg", ["v70"], ["y"]))))


DOUBLED = {
    "known": [node("Identity", ["x"], ["v0"])],
    "only a run can tell": [node("Compress", ["x", "k"], ["v0"], axis=0)],
}


@pytest.mark.parametrize("name", DOUBLED)
def test_what_doubles_is_refused_before_it_is_made(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held together counts, whoever runs it."""
    most, kept = 1 << 20, numpy_helper.from_array(np.ones(2, bool), "k")
    concats = [node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], axis=0) for i in range(40)]
    model = graph_model(*DOUBLED[name], *concats, node("Neg", ["v40"], ["y"]), tensors=[kept])
    module = from_onnx(model)
    runs = [bucketize.compile(module).run, lambda x: evaluate_module(module, x)]
    monkeypatch.setattr("bucketize.call.MEMORY", most)
    for run in runs:
        tracemalloc.start()
        with pytest.raises(BucketizeError, match="no memory for"):
            run(X)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2 * most


def test_memory_that_is_just_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter keeps all results to the end, a compiled function what lives at once."""
    module = from_onnx(
        graph_model(node("Neg", ["x"], ["a"]), node("Concat", ["a"] * 2, ["y"], axis=0))
    )
    run, taken = bucketize.compile(module).run, 3 * X.nbytes
    monkeypatch.setattr("bucketize.call.MEMORY", taken)
    (got,) = evaluate_module(module, X)
    np.testing.assert_array_equal(got, np.concatenate([-X, -X]))
    monkeypatch.setattr("bucketize.call.MEMORY", taken - 1)
    with pytest.raises(
        BucketizeError, match=r"in concat: no memory for a result of float32\[4, 3\]"
    ):
        evaluate_module(module, X)
    monkeypatch.setattr("bucketize.call.MEMORY", X.nbytes)
    with pytest.raises(BucketizeError, match=r"no memory for a result of float32\[4, 3\]"):
        run(X)


@pytest.mark.parametrize("trips", [2**63 - 1, -(2**63)])
def test_rounds_without_end(trips: int) -> None:
    """A loop ends when it says so, and holds no more than its rounds made."""
    model = parse("""(int64 n, float[N] x) => (float[N] y, int64[K] at) {
      go = Constant<value = bool {1}>()
      three = Constant<value = int64 {3}>()
      y, at = Loop(n, go, x) <body = b (int64 i, bool c, float[N] h)
        => (bool d, float[N] g, int64 r) {
        d = Less(i, three) g = Neg(h) r = Identity(i) }> }""")  # fmt: skip
    module = from_onnx(model)
    rounds = 4 if trips > 0 else 0
    for run in (bucketize.compile(module).run, lambda *a: evaluate_module(module, *a)):
        y, at = run(np.array(trips), X[0])
        np.testing.assert_array_equal(at, np.arange(rounds))
        np.testing.assert_array_equal(y, X[0])


@pytest.mark.parametrize("opset", [11, 18])
def test_a_split_of_another_size(opset: int) -> None:
    """The parts are the axis, also where only a run knows how long it is."""
    sizes = "split = [1, 2]" if opset < 13 else "axis = 0"
    operand = "" if opset < 13 else ", s"
    head = "(float[N] x, bool[N] k, bool[K] l) => (y, z) <int64[2] s = {1, 2}> {"
    several = "a = Unsqueeze<axes = [1]>(x)" if opset < 13 else "a = Unsqueeze(x, o)"
    one = "<int64[2] s = {1, 2}, int64[1] o = {1}>"
    for chosen in ("e = Identity(x)", "e = Compress<axis = 0>(x, k)"):
        model = parse(f"{head} {chosen} y, z = Split<{sizes}>(e{operand}) }}", opset)
        _parts(model, 3)
        for n in (2, 5):
            refused(model, X.ravel()[:n], np.ones(n, bool), np.ones(1, bool), told="3")
    text = head.replace("<int64[2] s = {1, 2}>", one)
    chosen = f"{several} b = Compress<axis = 0>(a, k) e = Compress<axis = 1>(b, l)"
    model = parse(f"{text} {chosen} y, z = Split<{sizes}>(e{operand}) }}", opset)
    _parts(model, 3)
    refused(
        model,
        X.ravel()[:5],
        np.ones(5, bool),
        np.ones(1, bool),
        told="parts that do not add up to axis 0 of",
    )


def _parts(model: onnx.ModelProto, n: int) -> None:
    module, inputs = from_onnx(model), (X.ravel()[:n], np.ones(n, bool), np.ones(1, bool))
    for run in (bucketize.compile(module).run, lambda *a: evaluate_module(module, *a)):
        np.testing.assert_array_equal(np.concatenate(run(*inputs)).ravel(), inputs[0])


# --- depth and length ----------------------------------------------------------------------------


def key(number: int, data: bytes) -> bytes:
    """A field of a message that holds bytes, as protobuf writes it."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(n: int) -> bytes:
    return bytes([n & 127 | 128]) + _varint(n >> 7) if n > 127 else bytes([n])


def nested(depth: int) -> bytes:
    """Branches in branches, deeper than protobuf writes."""
    graph, leaf = LEAF.SerializeToString(), LEAF.SerializeToString()
    for _ in range(depth):
        branches = ((b"then_branch", graph), (b"else_branch", leaf))
        attributes = b"".join(key(5, key(1, n) + key(6, g) + b"\xa0\x01\x05") for n, g in branches)
        made = key(1, b"c") + key(2, b"r") + key(4, b"If") + attributes
        graph = key(1, made) + key(12, ONE.SerializeToString())
    inputs = graph_model(NEG).graph.input[0], helper.make_tensor_value_info("c", 9, [])
    graph += b"".join(key(11, i.SerializeToString()) for i in inputs)
    return b"\x08\x0a" + key(7, graph) + key(8, helper.make_opsetid("", 18).SerializeToString())


def test_depth() -> None:
    (got,) = evaluate_module(from_onnx(nested(20)), X, np.array(True))
    np.testing.assert_array_equal(got, -X)
    refused(nested(1000), told="are no ONNX model: .*MaxDepth")


def test_length() -> None:
    """Thousands of nodes, each with a weight of its own."""
    count = 2_000
    weights = [numpy_helper.from_array(np.full(3, i, np.float32), f"w{i}") for i in range(count)]
    made = [f"v{i}" for i in range(1, count)]
    pairs = zip(["x", *made], [*made, "y"], strict=True)
    nodes = [node("Add", [a, f"w{i}"], [b]) for i, (a, b) in enumerate(pairs)]
    module = from_onnx(graph_model(*nodes, tensors=weights))
    want = X
    for i in range(count):
        want = want + np.float32(i)
    for run in (bucketize.compile(module).run, lambda x: evaluate_module(module, x)):
        np.testing.assert_array_equal(run(X)[0], want)


# --- files ---------------------------------------------------------------------------------------

PLACES: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"location": "none.bin"}, "not regular file"),
    "outside": ({"location": "../secret"}, "outside the directory"),
    "absolute": ({"location": "/dev/zero"}, "absolute path"),
    "a link": ({"location": "link"}, "symbolic link"),
    "a directory": ({"location": "."}, "not regular file|outside"),
    "nowhere": ({}, "should not be empty"),
    "a long name": ({"location": "a" * 5000}, "too long"),
    "beyond": ({"location": "w.bin", "offset": 2**62}, "exceeds file size"),
    "before": ({"location": "w.bin", "offset": -4}, "non-negative"),
    "no number": ({"location": "w.bin", "offset": "abc"}, "invalid literal"),
    "short": ({"location": "w.bin", "length": 4}, "corrupt"),
    "long": ({"location": "w.bin", "length": 2**62}, "exceeds available"),
}


@pytest.mark.parametrize("name", PLACES)
def test_weights_elsewhere(name: str, tmp_path: Path) -> None:
    place, told = PLACES[name]
    (tmp_path / "m").mkdir()
    (tmp_path / "secret").write_bytes(bytes(12))
    (tmp_path / "m" / "w.bin").write_bytes(bytes(12))
    (tmp_path / "m" / "link").symlink_to(tmp_path / "secret")
    tensor = TensorProto(name="w", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    for k, v in place.items():
        tensor.external_data.add(key=k, value=str(v))
    path = tmp_path / "m" / "model.onnx"
    model = graph_model(node("Add", ["x", "w"], ["y"]), tensors=[tensor])
    path.write_bytes(model.SerializeToString())
    with pytest.raises(BucketizeError, match=told):
        from_onnx(path)


@pytest.mark.parametrize("command", ["compile", "run", "show"])
@pytest.mark.parametrize("name", ["nothing", "text", "cut", "circle", "deep", "terabytes"])
def test_the_command_line(command: str, name: str, tmp_path: Path) -> None:
    """One message on stderr, no traceback, and the exit code 2."""
    data = {
        "nothing": b"",
        "text": b"hello world" * 99,
        "cut": ALL["residual_block"].model.SerializeToString()[:-200],
        "circle": GRAPHS["a circle"][0].SerializeToString(),
        "deep": nested(1000),
        "terabytes": parse(
            "(float[N, 2] x) => (y) <int64[2] s = {4611686018427387904, 1}> { y = Tile(x, s) }"
        ).SerializeToString(),
    }[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    result = CliRunner().invoke(main, [command, str(path)])
    if (command, name) == ("show", "terabytes"):
        assert result.exit_code == 0
        return
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    assert result.stderr.strip()
