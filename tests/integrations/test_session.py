"""`InferenceSession` beside onnxruntime's: the same programs, metadata and results."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx_model import parse

import bucketize
from bucketize import RunOptions, SessionOptions, zoo
from bucketize.errors import ArgumentError, BucketizeError, BucketizeWarning, UnknownNameError
from bucketize.integrations import model as model_
from bucketize.machine.target import cores
from dispatchers import log_dispatcher

pytestmark = pytest.mark.usefixtures("few_registers")

# The steps of three pages of onnxruntime's documentation: "Load and predict", "Metadata" with the
# options of "Thread management" and "Graph optimizations", and "Common errors".
LOAD_AND_PREDICT = """
import numpy
import {library} as rt
from onnxruntime.datasets import get_example

sess = rt.InferenceSession(get_example("sigmoid.onnx"), providers=rt.get_available_providers())
first, last = sess.get_inputs()[0], sess.get_outputs()[0]
print("input", first.name, first.shape, first.type)
print("output", last.name, last.shape, last.type)
x = numpy.random.default_rng(0).random((3, 4, 5)).astype(numpy.float32)
res = sess.run([last.name], {{first.name: x}})
print(len(res), numpy.round(res[0], 4))
"""
OPTIONS_AND_METADATA = """
import numpy
import {library} as rt

options = rt.SessionOptions()
options.intra_op_num_threads = 1
options.execution_mode = rt.ExecutionMode.ORT_SEQUENTIAL
options.graph_optimization_level = rt.GraphOptimizationLevel.ORT_ENABLE_ALL
options.log_severity_level = 3
sess = rt.InferenceSession(path, options, providers=["CPUExecutionProvider"])
meta = sess.get_modelmeta()
print(meta.custom_metadata_map, meta.description, meta.domain, meta.graph_name)
print(meta.graph_description, meta.producer_name, meta.version)
print([(i.name, i.shape, i.type) for i in sess.get_inputs()], sess.get_providers())
for batch in (1, 3):
    (y,) = sess.run(None, {{"x": numpy.ones((batch, 4), numpy.float32)}}, rt.RunOptions())
    print(y.shape, y.dtype, numpy.round(y, 4))
"""
COMMON_ERRORS = """
import numpy
import {library} as rt

with open(path, "rb") as file:
    sess = rt.InferenceSession(file.read(), providers=rt.get_available_providers())
(name,), (output,) = ([v.name for v in vs] for vs in (sess.get_inputs(), sess.get_outputs()))
x = numpy.ones((2, 4), numpy.float32)
for what, outputs, feed in (
    ("right", [output], {{name: x}}),
    ("all outputs", None, {{name: x}}),
    ("no outputs named", [], {{name: x}}),
    ("a list", None, {{name: x.tolist()}}),
    ("unexpected type", [output], {{name: x.astype(numpy.float64)}}),
    ("misspelled output", ["misspelled"], {{name: x}}),
    ("misspelled input", [output], {{"misspelled": x}}),
    ("one too many", [output], {{name: x, "other": x}}),
    ("missing", [output], {{}}),
    ("another size", [output], {{name: x[:, :3]}}),
    ("another rank", [output], {{name: x[0]}}),
):
    try:
        print(what, [numpy.round(r, 4) for r in sess.run(outputs, feed)])
    except Exception as e:
        print(what, "is an error")
"""


def small() -> ModelProto:
    model = parse(
        """
        (float[N, 4] x) => (float[N, 2] y)
        <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
            h = MatMul(x, w)
            y = Tanh(h)
        }
        """
    )
    model.producer_name, model.domain, model.doc_string = "us", "com.example", "a small net"
    model.model_version, model.graph.doc_string = 7, "its graph"
    helper.set_model_props(model, {"who": "us"})
    return model


@pytest.mark.parametrize(
    "program",
    [LOAD_AND_PREDICT, OPTIONS_AND_METADATA, COMMON_ERRORS],
    ids=["load-and-predict", "options-and-metadata", "common-errors"],
)
def test_programs_of_onnxruntime_switch_by_their_import_line(tmp_path: Path, program: str) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(small(), path)
    said = []
    for library in ("onnxruntime", "bucketize"):
        with redirect_stdout(io.StringIO()) as out:
            exec(program.format(library=library), {"path": str(path)})
        said.append(out.getvalue())
    assert said[0] == said[1]
    assert said[0].count("\n") > 4


# --- metadata ------------------------------------------------------------------------------------


def described(session: Any) -> list[Any]:
    args = [*session.get_inputs(), "->", *session.get_outputs()]
    return [a if a == "->" else (a.name, a.type, a.shape, str(a)) for a in args]


def both(model: ModelProto, options: Callable[[ModuleType], Any] = lambda _: None) -> list[Any]:
    """The sessions of the two libraries."""
    data = model.SerializeToString()
    providers = ["CPUExecutionProvider"]
    return [
        library.InferenceSession(data, options(library), providers=providers)
        for library in (onnxruntime, bucketize)
    ]


def one_node(node: str, x: Any, y: Any, dtype: int = TensorProto.FLOAT, **weights: Any) -> Any:
    """`y = node(x, ...)`, where x and y have these dims, or None for no shape at all."""
    inputs = [helper.make_tensor_value_info("x", dtype, x)]
    outputs = [helper.make_tensor_value_info("y", dtype, y)]
    held = [onnx.numpy_helper.from_array(np.array(w), name) for name, w in weights.items()]
    nodes = [helper.make_node(node, ["x", *weights], ["y"])]
    opsets = [helper.make_opsetid("", 20)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    return helper.make_model(graph, ir_version=9, opset_imports=opsets)


@pytest.mark.parametrize(
    "model",
    [
        one_node("Relu", ["N", None, 3], ["N", None, 3]),
        one_node("Relu", ["N", None, 3], None),
        one_node("Relu", ["N", 4, 3], ["M", "C", None]),
        one_node("Relu", ["batch size", "2*N", ""], ["batch size", None, None]),
        one_node("Relu", [-1, 3], [-1, 3]),
        one_node("Relu", [], []),
        one_node("Relu", None, None),
        one_node("MatMul", ["N", 64], None, w=np.ones((64, 32), np.float32)),  # a weight left out
        one_node("Reshape", ["N", 4], None, s=[-1, 2]),
        one_node("Reshape", ["N", 4], ["rows", None], s=[-1, 2]),
        *(
            one_node("Identity", ["N"], ["N"], dtype)
            for dtype in (
                *(TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16, TensorProto.BOOL),
                *(TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16),
                *(TensorProto.INT32, TensorProto.UINT32, TensorProto.INT64, TensorProto.UINT64),
                *(TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2),
            )
        ),
        "mlp",
        "bert-mini",
        "mobilenetv2",
    ],
    ids=lambda m: m if isinstance(m, str) else "-".join([m.graph.name, m.graph.node[0].op_type]),
)
def test_names_types_and_shapes_are_written_alike(model: ModelProto | str) -> None:
    theirs, ours = both(zoo.build(model) if isinstance(model, str) else model)
    assert described(ours) == described(theirs)


def test_sequences_optional_values_and_initializers_among_inputs() -> None:
    models = (
        """
        (float[N, 3] x, seq(float[M]) s) => (seq(float[N, 3]) y, int64 n) {
            y = SequenceConstruct(x, x)
            n = SequenceLength(s)
        }
        """,
        """
        (optional(float[N]) x) => (bool y) {
            y = OptionalHasElement(x)
        }
        """,
    )
    for text in models:
        theirs, ours = both(parse(text, 18))
        assert described(ours) == described(theirs)
    model = one_node("Add", ["N", 2], None, w=np.ones(2, np.float32))
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    theirs, ours = both(model)
    assert described(ours) == described(theirs)
    assert ours.get_overridable_initializers() == []  # theirs may be replaced
    with pytest.raises(UnknownNameError, match="no input named 'w'; known: x"):
        ours.run(None, {"x": np.ones((1, 2), np.float32), "w": np.ones(2, np.float32)})


def test_free_dimensions_are_held_to_a_size() -> None:
    def options(library: ModuleType) -> Any:
        made = library.SessionOptions()
        made.add_free_dimension_override_by_name("batch size", 5)
        return made

    theirs, ours = both(one_node("Relu", ["batch size", 3], ["batch size", 3]), options)
    assert described(ours) == described(theirs)
    assert ours.get_inputs()[0].shape == [5, 3]
    with pytest.raises(BucketizeError, match="expected 5, got 4"):
        ours.run(None, {"x": np.ones((4, 3), np.float32)})
    wrong = SessionOptions()
    wrong.add_free_dimension_override_by_name("M", 5)
    model = small()
    with pytest.raises(UnknownNameError, match="no free dimension named 'M'; known: N"):
        bucketize.InferenceSession(model, wrong)
    wrong.sizes = {"N": 5}
    bucketize.InferenceSession(model, wrong)
    assert model == small()  # the caller's is left as it was


def test_a_session_keeps_no_weights_beside_the_program() -> None:
    w = np.random.default_rng(0).random((64, 32), np.float32)
    session = bucketize.InferenceSession(one_node("MatMul", ["N", 64], None, w=w))
    assert session._model.outline.model.ByteSize() < w.nbytes / 10
    assert session.get_outputs()[0].shape == ["N", 32]


def test_the_oldest_models_name_no_opset() -> None:
    model = one_node("Relu", ["N", 3], ["N", 3])
    model.ir_version = 2
    model.ClearField("opset_import")
    session = bucketize.InferenceSession(model)
    assert session.get_outputs()[0].shape == ["N", 3]


def test_shapes_that_onnx_does_not_infer_are_an_error_of_the_model() -> None:
    session = bucketize.InferenceSession(one_node("Relu", ["N", 3], None))
    session._model.outline.model.ClearField("opset_import")
    with pytest.raises(BucketizeError, match=r"no shapes follow from the model: .*No opset import"):
        session.get_outputs()


# --- what is run ---------------------------------------------------------------------------------


def two_outputs() -> ModelProto:
    return parse(
        """
        (float[N] a, float[N] b) => (float[N] total, float[N] apart, int64[1] n) {
            total = Add(a, b)
            apart = Sub(a, b)
            n = Shape(a)
        }
        """
    )


def test_some_outputs_in_any_order() -> None:
    feed = {"b": np.ones(3, np.float32), "a": np.arange(3, dtype=np.float32)}
    theirs, ours = both(two_outputs())
    for names in (None, [], ["apart"], ("n", "total"), ["total", "total"]):
        found, wanted = ours.run(names, feed), theirs.run(names, feed)
        assert [f.dtype for f in found] == [w.dtype for w in wanted]
        for f, w in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(f, w)
    with pytest.raises(ArgumentError, match=r"expected a list of outputs, as in \['n'\], got 'n'"):
        ours.run("n", feed)
    with pytest.raises(UnknownNameError, match="no output named 'm'; known: apart, n, total"):
        ours.run(["m"], feed)
    with pytest.raises(ArgumentError, match=r'expected inputs by name, as in {"data": x}, got li'):
        ours.run(None, [feed["a"], feed["b"]])


def test_what_is_optional_may_be_missing() -> None:
    model = parse("(optional(float[N]) x) => (bool y) { y = OptionalHasElement(x) }", 18)
    session = bucketize.InferenceSession(model)
    assert not session.run(None, {})[0]
    assert session.run(None, {"x": np.ones(2, np.float32)})[0]


def test_an_executable_is_called_like_a_function() -> None:
    exe = bucketize.compile(bucketize.from_onnx(two_outputs()))
    a, b = np.ones(2, np.float32), np.zeros(2, np.float32)
    for results in (exe(a, b), exe(b=b, a=a)):
        np.testing.assert_array_equal(results[0], a)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    mod = bucketize.from_onnx(small(), bounds={"N": (1, 8)})
    bucketize.compile(bucketize.dispatch(mod, log_dispatcher)).save(tmp_path / "net.bkt")
    return tmp_path / "net.bkt"


def test_every_source_of_a_model(tmp_path: Path, saved: Path) -> None:
    model = small()
    onnx.save(model, tmp_path / "net.onnx")
    sources = (tmp_path / "net.onnx", str(tmp_path / "net.onnx"), model, model.SerializeToString())
    x = np.ones((3, 4), np.float32)
    (wanted,) = bucketize.InferenceSession(model).run(None, {"x": x})
    for source in (*sources, saved, str(saved)):
        session = bucketize.InferenceSession(source)
        np.testing.assert_array_equal(session.run(["y"], {"x": x})[0], wanted)
        assert session.get_inputs()[0] == bucketize.NodeArg("x", "tensor(float)", ["N", 4])
        assert session.get_outputs()[0] == bucketize.NodeArg("y", "tensor(float)", ["N", 2])
    with pytest.raises(BucketizeError, match=r"cannot read .*missing.onnx: No such file"):
        bucketize.InferenceSession(tmp_path / "missing.onnx")


def test_a_saved_program_brings_sizes_and_threads_of_its_own(saved: Path) -> None:
    options = SessionOptions(intra_op_num_threads=3)
    with pytest.warns(BucketizeWarning, match=r"=3, but .*net.bkt was compiled for 1, which work"):
        session = bucketize.InferenceSession(saved, options)
    assert session.executable.program.threads == 1
    with pytest.raises(BucketizeError, match="a saved program does not keep what its model said"):
        session.get_modelmeta()
    with pytest.raises(BucketizeError, match=r"was compiled for its own sizes, not for N=2"):
        bucketize.InferenceSession(saved, SessionOptions(sizes={"N": 2}))


def test_a_saved_program_is_run_without_onnx_or_numba(saved: Path) -> None:
    code = (
        "import sys, bucketize, numpy;"
        "session = bucketize.InferenceSession(sys.argv[1]);"
        "session.run(None, {'x': numpy.ones((3, 4), numpy.float32)});"
        "session.get_inputs(); session.get_outputs(); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(saved)], capture_output=True, text=True, check=True
    )
    assert not {"onnx", "numba", "pandas", "skopt"} & set(done.stdout.split())


# --- options -------------------------------------------------------------------------------------


def test_threads_are_honoured() -> None:
    for asked in (0, 1, cores()):
        session = bucketize.InferenceSession(small(), SessionOptions(intra_op_num_threads=asked))
        assert session.executable.program.threads == (asked or cores())
    assert session.get_session_options().intra_op_num_threads == cores()
    many = SessionOptions(intra_op_num_threads=cores() + 1)
    with pytest.warns(BucketizeWarning, match=f"may use {cores()} cores, which work"):
        session = bucketize.InferenceSession(small(), many)
    assert session.executable.program.threads == cores()
    for wrong in (-1, 1.5, None):
        with pytest.raises(
            ArgumentError, match="threads: expected a whole number of 0 or more, got"
        ):
            bucketize.InferenceSession(small(), SessionOptions(intra_op_num_threads=wrong))  # type: ignore[arg-type]


def test_options_that_mean_nothing_are_named() -> None:
    options = SessionOptions(enable_profiling=True, enable_mem_pattern=False, logid="quiet")
    options.execution_mode = bucketize.ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    told = (
        r"^options without a meaning here: execution_mode, enable_mem_pattern, enable_profiling "
        r"\(session.executable.profile\(...\) times each kernel\), session.intra_op.allow_spinning$"
    )
    with pytest.warns(BucketizeWarning, match=told) as caught:
        session = bucketize.InferenceSession(small(), options)
    assert caught[0].filename == __file__
    x = np.ones((1, 4), np.float32)
    runs = RunOptions(only_execute_path_to_fetches=True, log_severity_level=3)
    with pytest.warns(BucketizeWarning, match="here: only_execute_path_to_fetches$") as all_:
        session.run(None, {"x": x}, runs)
    assert all_[0].filename == __file__
    runs = RunOptions()
    runs.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    assert runs.get_run_config_entry("memory.enable_memory_arena_shrinkage") == "cpu:0"
    with pytest.warns(BucketizeWarning, match="here: memory.enable_memory_arena_shrinkage$"):
        session.run(None, {"x": x}, runs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.run(None, {"x": x}, RunOptions())
        bucketize.InferenceSession(small(), SessionOptions(use_deterministic_compute=True))
        bucketize.InferenceSession(small(), as_onnxruntime_has_them())
        bucketize.InferenceSession(small(), disabled_optimizers=["A"], enable_fallback=False)


def as_onnxruntime_has_them() -> SessionOptions:
    """Its own defaults, by its own names, and nodes one after the other."""
    levels, modes = onnxruntime.GraphOptimizationLevel, onnxruntime.ExecutionMode
    return SessionOptions(
        graph_optimization_level=levels.ORT_ENABLE_ALL,
        execution_mode=modes.ORT_SEQUENTIAL,
        inter_op_num_threads=1,
        intra_op_num_threads=np.int64(1),  # type: ignore[arg-type]
    )


def test_what_would_change_results_is_refused() -> None:
    options = SessionOptions()
    for change in (
        lambda: options.register_custom_ops_library("custom.so"),
        lambda: options.add_initializer("w", np.ones(2)),
        lambda: options.add_external_initializers(["w", "v"], []),
        lambda: RunOptions().add_active_adapter(None),
    ):
        with pytest.raises(BucketizeError, match="would change the results, which is not supp"):
            change()
    for key, value in (("session.set_denormal_as_zero", "1"), ("session.load_model_format", "ORT")):
        options = SessionOptions()
        options.add_session_config_entry(key, value)
        with pytest.raises(BucketizeError, match=f"{key}={value} would change the results"):
            bucketize.InferenceSession(small(), options)
    session = bucketize.InferenceSession(small())
    x = np.ones((1, 4), np.float32)
    with pytest.raises(BucketizeError, match=r"told to end before it began: RunOptions.terminate"):
        session.run(None, {"x": x}, RunOptions(terminate=True))


def test_options_of_another_kind_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"expected bucketize.SessionOptions, got onnxruntime"):
        bucketize.InferenceSession(small(), onnxruntime.SessionOptions())
    with pytest.raises(ArgumentError, match=r"expected bucketize.RunOptions, got builtins.dict"):
        bucketize.InferenceSession(small()).run(None, {}, {})  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="intra_op_threads"):
        SessionOptions().intra_op_threads = 1  # type: ignore[attr-defined]
    with pytest.raises(UnknownNameError, match="no entry named 'a'; known: none"):
        SessionOptions().get_session_config_entry("a")
    with pytest.raises(UnknownNameError, match="no entry named 'a'; known: none"):
        RunOptions().get_run_config_entry("a")


def test_what_the_module_is_told_is_answered_by_a_warning() -> None:
    with pytest.warns(BucketizeWarning, match=r"set_default_logger_severity\(1\): logging") as one:
        bucketize.set_default_logger_severity(1)
    with pytest.warns(BucketizeWarning, match=r"set_seed\(7\): ops draw by the seed") as other:
        bucketize.set_seed(7)
    assert {w.filename for w in (*one, *other)} == {__file__}


def test_what_asks_for_quiet_is_granted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bucketize.set_default_logger_severity(3)
        bucketize.disable_telemetry_events()
        bucketize.enable_telemetry_events()


@pytest.mark.parametrize("seen", [True, False])
def test_who_waits_at_a_terminal_sees_what_is_compiled(
    seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    compiled = model_.compile
    monkeypatch.setattr(model_, "compile", lambda *a, **k: asked.append(k) or compiled(*a))
    monkeypatch.setattr("sys.stderr.isatty", lambda: seen)
    bucketize.InferenceSession(small())
    assert [k["progress"] for k in asked] == [seen]


def test_everything_runs_on_the_processor() -> None:
    wanted = ["CUDAExecutionProvider", ("CPUExecutionProvider", {"use_arena": "0"})]
    with pytest.warns(BucketizeWarning) as caught:
        session = bucketize.InferenceSession(small(), providers=wanted)
    assert [str(w.message) for w in caught] == [
        "no provider named CUDAExecutionProvider here: all runs in CPUExecutionProvider",
        "settings of providers without a meaning here: use_arena",
    ]
    assert {w.filename for w in caught} == {__file__}
    assert session.get_providers() == bucketize.get_available_providers()
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    assert bucketize.get_device() == "CPU"
    with pytest.warns(BucketizeWarning, match="without a meaning here: threads"):
        bucketize.InferenceSession(
            small(), None, ["CPUExecutionProvider"], provider_options=[{"threads": 1}]
        )
    for wrong in ("CPUExecutionProvider", 3):
        with pytest.raises(ArgumentError, match=r'providers: expected a list, as in \["CPU'):
            bucketize.InferenceSession(small(), providers=wrong)  # type: ignore[arg-type]
