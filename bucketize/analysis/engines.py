"""Other engines, each as it runs best: float32, all graph optimisations, dynamic shapes.

None is imported before it is asked for.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bucketize.errors import ArgumentError, EngineError, unknown_name
from bucketize.op import Array
from bucketize.program.program import threads_text
from bucketize.progress import Tell, progress_bar, shown, steps
from bucketize.table import legible

Run: TypeAlias = Callable[[Mapping[str, Array]], Sequence[Array]]
"""From the inputs by name to the outputs, in the order of the model."""


@dataclass(frozen=True)
class Session:
    """An engine that has read a model."""

    engine: str
    version: str
    settings: str
    run: Run
    others: Sequence[Run] = ()
    """For further callers, each beside the first in a thread of its own."""

    @property
    def callers(self) -> Sequence[Run]:
        """What each caller runs."""
        return (self.run, *self.others)


@dataclass(frozen=True)
class Engine:
    """How an engine is had and started."""

    module: str
    package: str
    """Its name for pip."""
    start: Callable[[Path, int], tuple[Run, str]]
    """From a model and a number of threads to what runs it, and the settings in words."""
    streams: Callable[[Path, int, int], tuple[Sequence[Run], str]] | None = None
    """What runs it for so many callers, each with these threads; without it each starts its own."""

    @property
    def is_installed(self) -> bool:
        """Whether it can be imported."""
        return importlib.util.find_spec(self.module) is not None

    @property
    def how(self) -> str:
        """How to install it."""
        return f"pip install {self.package}"


def session(
    name: str,
    model: str | Path,
    threads: int = 1,
    *,
    streams: int = 1,
    progress: Tell | bool | None = None,
    engines: Mapping[str, Engine] | None = None,
) -> Session:
    """An engine, ready to run a model.

    Args:
        name: of the engine.
        model: the path of an ONNX file.
        threads: that it may use, for each of its callers.
        streams: callers at the same time.
        progress: told what goes on; True shows a bar on stderr.
        engines: those to choose from, by default `ENGINES`.

    Returns:
        What runs the model, and which version and settings that is.

    Raises:
        ArgumentError: the model is no path, or the `progress` of another kind.
        EngineError: it is not installed, or does not take the model.
        UnknownNameError: there is no adapter for it.

    """
    engine, path = engine_of(name, engines), _path(model)
    with shown(progress, progress_bar("starting")) as tell:
        steps(tell, 1)(name)
        runs, settings = _started(name, engine, path, threads, streams)

    def guarded(run: Run, inputs: Mapping[str, Array]) -> Sequence[Array]:
        try:
            return run(inputs)
        except Exception as e:
            raise EngineError(f"{name} does not run {path.name}: {e}") from e

    first, *others = (partial(guarded, run) for run in runs)
    settings = f"{streams_text(streams, threads)}, {settings}"
    return Session(name, version(engine.package), settings, first, others)


def streams_text(streams: int, threads: int) -> str:
    """`4 streams of 1 thread`; of one, its threads."""
    text = threads_text(threads)
    return text if streams == 1 else f"{streams} streams of {text}"


def _path(model: str | Path) -> Path:
    if not isinstance(model, str | Path):
        how = 'give the path of an ONNX file, as in session("onnxruntime", "net.onnx")'
        raise ArgumentError(f"model: expected a path, got {type(model).__name__}; {how}")
    return Path(model)


def _started(
    name: str, engine: Engine, path: Path, threads: int, streams: int
) -> tuple[Sequence[Run], str]:
    try:
        with _quiet():
            if streams > 1 and engine.streams is not None:
                return engine.streams(path, threads, streams)
            started = [engine.start(path, threads) for _ in range(streams)]
            return [run for run, _ in started], started[0][1]
    except Exception as e:  # whatever the engine raises
        raise EngineError(f"{name} does not take {path.name}: {e}") from e


def engine_of(name: str, engines: Mapping[str, Engine] | None = None) -> Engine:
    """The engine of this name, of `ENGINES` unless others are given; it must be installed."""
    choices = ENGINES if engines is None else engines
    if name not in choices:
        raise unknown_name("adapter for an engine", name, choices)
    if not choices[name].is_installed:
        raise EngineError(f"{name} is not installed: {choices[name].how}")
    return choices[name]


@contextmanager
def _quiet() -> Iterator[None]:
    """What native code prints disturbs no JSON; where it fails, it is told on stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 1)
        try:
            yield
        except BaseException:
            ctypes.CDLL(None).fflush(None)
            said.seek(0)
            sys.stderr.write(legible(said.read().decode(errors="replace")))
            raise
        finally:
            ctypes.CDLL(None).fflush(None)  # what C still holds would come out later
            os.dup2(kept, 1)
            os.close(kept)


# --- adapters ------------------------------------------------------------------------------------


def ort_options(threads: int) -> Any:
    """How onnxruntime runs best, as its own `SessionOptions`."""
    ort: Any = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3  # errors
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    # its threads would go on spinning while the next engine has its turn
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def _onnxruntime(model: Path, threads: int) -> tuple[Run, str]:
    ort: Any = importlib.import_module("onnxruntime")
    session = ort.InferenceSession(model, ort_options(threads), providers=["CPUExecutionProvider"])
    return (
        lambda inputs: session.run(None, dict(inputs)),
        "all graph optimisations, no spinning after runs",
    )


def _onnxruntime_streams(model: Path, threads: int, streams: int) -> tuple[Sequence[Run], str]:
    """One session for all callers where each runs alone in its thread; else one each."""
    if threads == 1:
        run, settings = _onnxruntime(model, threads)
        return [run] * streams, f"{settings}, one session"
    started = [_onnxruntime(model, threads) for _ in range(streams)]
    return [run for run, _ in started], f"{started[0][1]}, a session each"


def _openvino(model: Path, threads: int) -> tuple[Run, str]:
    (run,), settings = _openvino_streams(model, threads, 1)
    return run, settings


def _openvino_streams(model: Path, threads: int, streams: int) -> tuple[Sequence[Run], str]:
    ov: Any = importlib.import_module("openvino")
    core = ov.Core()
    hint = "LATENCY" if streams == 1 else "THROUGHPUT"
    settings = {
        "PERFORMANCE_HINT": hint,
        "NUM_STREAMS": streams,
        "INFERENCE_NUM_THREADS": threads * streams,
        "INFERENCE_PRECISION_HINT": "f32",  # where the processor has bfloat16, that is its default
    }
    compiled = core.compile_model(core.read_model(model), "CPU", settings)

    def infer(request: Any, inputs: Mapping[str, Array]) -> list[Array]:
        return list(request.infer(dict(inputs), share_inputs=True).values())

    runs = [partial(infer, compiled.create_infer_request()) for _ in range(streams)]
    count = "one stream" if streams == 1 else f"{streams} streams"
    return runs, f"f32, {hint.lower()} hint, {count}, inputs not copied"


def _mnn(model: Path, threads: int) -> tuple[Run, str]:
    expr: Any = importlib.import_module("MNN.expr")
    nn: Any = importlib.import_module("MNN.nn")
    with tempfile.TemporaryDirectory() as folder:
        path = _as_mnn(model, Path(folder))
        settings = {"backend": "CPU", "precision": "high", "numThread": threads}
        runtime = nn.create_runtime_manager((settings,))
        onnx: Any = importlib.import_module("onnx")
        graph = onnx.load(model, load_external_data=False).graph
        constant = {t.name for t in graph.initializer}
        names = [i.name for i in graph.input if i.name not in constant]
        outputs = [o.name for o in graph.output]
        module = nn.load_module_from_file(
            path, names, outputs, runtime_manager=runtime, shape_mutable=True
        )

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        results = module.forward([_mnn_variable(expr, inputs[name]) for name in names])
        return [_mnn_array(expr, r) for r in results]

    return run, "precision high, shapes mutable; integers are int32"


def _as_mnn(model: Path, folder: Path) -> str:
    """The path of the model in MNN's own format."""
    # the native half of MNN.tools.mnnconvert, whose other half installs packages when imported
    tools: Any = importlib.import_module("_tools")
    path = str(folder / "model.mnn")
    arguments = ["-f", "ONNX", "--modelFile", str(model), "--MNNModel", path]
    tools.mnnconvert(["mnnconvert", *arguments, "--bizCode", "bucketize"])
    if not Path(path).exists():
        raise EngineError("its converter failed")
    return path


def _mnn_variable(expr: Any, array: Array) -> Any:
    if array.dtype.kind in "iub":  # it has no int64
        array = array.astype(np.int32)
    kind = {"float32": expr.float, "int32": expr.int}.get(array.dtype.name)
    if kind is None:
        raise EngineError(f"it has no {array.dtype}")
    variable = expr.placeholder(list(array.shape), expr.NCHW, kind)
    variable.write(np.ascontiguousarray(array))
    return variable


def _mnn_array(expr: Any, variable: Any) -> Array:
    if variable.data_format == expr.NC4HW4:
        variable = expr.convert(variable, expr.NCHW)
    return np.array(variable.read())


ENGINES: dict[str, Engine] = {
    "onnxruntime": Engine("onnxruntime", "onnxruntime", _onnxruntime, _onnxruntime_streams),
    "openvino": Engine("openvino", "openvino", _openvino, _openvino_streams),
    "mnn": Engine("MNN", "MNN", _mnn),
}
