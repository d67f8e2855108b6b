"""What others rely on: the names, their signatures, and the examples of the README."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import runpy
import shlex
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import click
import numpy as np
import onnx
import pytest

import bucketize
import dispatchers
from bucketize import ops, zoo
from bucketize.analysis import Case
from bucketize.cli.group import main
from bucketize.errors import ArgumentError, BucketizeError, unknown_name
from bucketize.inspect.explain import COLUMNS
from bucketize.inspect.roofline import Roofline
from bucketize.interpret import evaluate_module
from bucketize.ir import Builder, Module, Var
from bucketize.kernel.templates import LOOP, TEMPLATES, VECTOR
from bucketize.release import release
from bucketize.tune.api import tune
from bucketize.types import Symbol, tensor
from dispatchers import exact_dispatcher, log_dispatcher

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PROMISED = {
    "ANY",
    "BucketizeError",
    "DriftWatch",
    "Executable",
    "ExecutionMode",
    "Function",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "Module",
    "NodeArg",
    "OrtValue",
    "Profile",
    "Traffic",
    "RunOptions",
    "SessionOptions",
    "analysis",
    "check_padding",
    "compile",
    "disable_telemetry_events",
    "dispatch",
    "drift",
    "enable_telemetry_events",
    "from_onnx",
    "get_available_providers",
    "get_device",
    "load",
    "merge",
    "optimize",
    "partition",
    "ragged",
    "report",
    "set_default_logger_severity",
    "set_seed",
    "show",
    "specialise",
    "to_onnx",
    "tune",
    "verify",
    "zoo",
}


def test_the_names() -> None:
    assert set(bucketize.__all__) == PROMISED
    for name in bucketize.__all__:
        assert getattr(bucketize, name) is not None


def test_the_version_is_that_of_the_release() -> None:
    assert bucketize.__version__ == release()


@pytest.mark.parametrize("package", [bucketize.ir, bucketize.text, bucketize.types])
def test_a_package_exports_what_it_gathers(package: ModuleType) -> None:
    """By `__all__`, or strict type checkers refuse the imports of those who extend it."""
    nodes = ast.parse(inspect.getsource(package)).body
    gathered = {a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
    assert sorted(package.__all__) == sorted(gathered)


def test_all_dispatchers_say_what_they_are() -> None:
    functions = {name: getattr(dispatchers, name) for name in dispatchers.__all__}
    del functions["Dispatcher"]  # a type
    assert all(function.__doc__ for function in functions.values())


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'bucketize' has no attribute 'compille'"):
        bucketize.compille  # type: ignore[attr-defined]  # noqa: B018


def test_a_name_in_error_is_told_the_one_that_is_meant() -> None:
    with pytest.raises(AttributeError, match="'compille'; did you mean 'compile'\\?"):
        bucketize.compille  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"^ShapeError is bucketize\.errors\.ShapeError$"):
        bucketize.ShapeError  # type: ignore[attr-defined]  # noqa: B018
    for meant, got in (("policy", "poliky"), ("N", "n")):
        expected = f"no name named {got!r}; known: N, policy; did you mean {meant!r}\\?$"
        with pytest.raises(BucketizeError, match=expected):
            raise unknown_name("name", got, ["policy", "N"])
    assert str(unknown_name("name", "zzz", ["policy"])) == "no name named 'zzz'; known: policy"


MODEL = onnx.ModelProto()
NO_MODULE = [
    lambda given: bucketize.dispatch(given, dispatchers.log_dispatcher),
    bucketize.compile,
    lambda given: tune(given, log="never.csv"),
    bucketize.show,
    bucketize.specialise,
    bucketize.to_onnx,
    bucketize.verify,
    lambda given: evaluate_module(given, 0),
]


@pytest.mark.parametrize("use", NO_MODULE)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            MODEL,
            r"expected a Module, got ModelProto: make one by bucketize.from_onnx\(model\) first",
        ),
        ("x.onnx", r"expected a Module, got str: bucketize.from_onnx\('x.onnx'\) first"),
        (Path("x.bkt"), r"got PosixPath: .* run by bucketize.load\('x.bkt'\)"),
        (None, "got NoneType: make one"),
    ],
)
def test_what_is_no_module_is_told_how_to_become_one(
    use: Callable[[object], object], given: object, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message) as caught:
        use(given)
    assert isinstance(caught.value, BucketizeError)
    assert isinstance(caught.value, TypeError)


def test_what_is_no_path_is_not_loaded() -> None:
    with pytest.raises(ArgumentError, match=r"expected the path of what .* wrote, got ModelProto"):
        bucketize.load(MODEL)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (bucketize.from_onnx, "model *bounds"),
        (bucketize.to_onnx, "mod"),
        (bucketize.dispatch, "mod dispatcher *function *policy *fallback *limit"),
        (tune, "mod *log *trials *search *seed *threads"),
        (bucketize.compile, "mod *log *threads *executor *lazy *strict"),
        (bucketize.Executable.run, "self arrays named"),
        (bucketize.InferenceSession, "path_or_bytes sess_options providers provider_options"),
        (bucketize.InferenceSession.run, "self output_names input_feed run_options"),
        (bucketize.Executable.warm_up, "self"),
        (bucketize.Executable.explain, "self unnamed shapes"),
    ],
)
def test_the_parameters(function: Callable[..., object], parameters: str) -> None:
    """Promised parameters, `*` before those given by name only; there may be more of these."""
    found = inspect.signature(function).parameters.values()
    names = [f"*{p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in found]
    assert set(parameters.split()) <= set(names)
    assert [n for n in names if n in parameters.split()] == parameters.split()
    assert all(p.default is not p.empty for p in found if p.name not in parameters)


def test_installed_dispatchers() -> None:
    names = {entry.name: entry.load() for entry in entry_points(group="bucketize.dispatchers")}
    assert names["log"] is dispatchers.log_dispatcher
    assert names["uniform"] is dispatchers.uniform_dispatcher


def test_the_readme_opens_with_the_two_commands() -> None:
    commands = re.findall(r"^\$ (make \w+)", README, re.MULTILINE)
    assert commands[:2] == ["make demo", "make test"]
    assert README.index("make test") < 500


def commands() -> list[str]:
    """Every command line in the text of the README; those in blocks are run."""
    return re.findall(r"`(bucketize [a-z]+ .*?)`", README)


@pytest.mark.parametrize("line", commands())
def test_the_commands_of_the_readme_have_these_options(line: str) -> None:
    _, name, *words = shlex.split(line)
    if name.isupper():  # COMMAND
        return
    command = main.commands[name]
    if isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    known = {option for p in command.params for option in p.opts}
    assert {word for word in words if word.startswith("-")} - {"--help"} <= known


def test_the_readme_counts_templates() -> None:
    told = f"numba compiles the loops, {len(LOOP)} of the {len(TEMPLATES)} templates"
    assert told in README
    assert f"The other {len(VECTOR)} are vector code that is written as LLVM text" in README
    loops, vectors = ({t.name for t in kind} for kind in (LOOP, VECTOR))
    assert loops | vectors == set(TEMPLATES)
    assert not loops & vectors


def test_the_readme_shows_the_columns_of_an_explanation() -> None:
    head = next(line for line in README.splitlines() if line.endswith(" why"))
    shown = [name for name in COLUMNS if name not in ("times", "strip")]  # empty in its example
    assert re.split(r"  +", head) == shown


def test_the_pictures_of_the_readme_are_there_and_small() -> None:
    for path in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert 0 < (ROOT / path).stat().st_size < 100_000


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_the_examples_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_running_pays_for_nothing_else(tmp_path: Path) -> None:
    """Neither importing the package nor the command line loads what only some commands need."""
    heavy = {"pandas", "skopt", "matplotlib", "numba", "onnx", "sklearn"}
    code = "import sys, bucketize, bucketize.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not heavy & set(loaded.stdout.split())


def test_notebooks_show_the_tree_and_the_clones() -> None:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 16)})
    assert "<table>" not in mod._repr_html_()
    cut = bucketize.dispatch(mod, log_dispatcher)
    html = cut._repr_html_()
    xml.etree.ElementTree.fromstring(f"<div>{html}</div>")  # well-formed
    assert "if N &lt; 4:" in html
    assert html.count("<tr>") == 1 + 4
    assert "N=2..3" in html
    exe = bucketize.compile(cut)
    shown = exe._repr_html_()
    xml.etree.ElementTree.fromstring(f"<div>{shown}</div>")
    assert shown.count("<tr>") == 1 + 5
    many = bucketize.dispatch(
        mod, exact_dispatcher.with_options(sizes=[*range(1, 17)])
    )._repr_html_()
    assert many.count("<tr>") == 1 + 16
    great = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 500)})
    abridged = bucketize.dispatch(great, exact_dispatcher)._repr_html_()
    assert "... 484 more" in abridged
    assert abridged.count("<tr>") == 1 + 8 + 1 + 8


def test_objects_show_what_they_are() -> None:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 16)})
    main = "<function main(%data: float32[N, 784]) -> float32[N, 10]>"
    assert repr(mod) == f"<module of {main}>"
    cut = bucketize.dispatch(mod, log_dispatcher)
    assert repr(cut) == f"<module of {main}, 4 clones>"
    exe = bucketize.compile(cut)
    assert repr(exe) == "<executable of (%data: float32[N, 784]) -> (output), 4 clones>"
    assert repr(exe.explain(N=3)) == str(exe.explain(N=3))
    assert repr(log_dispatcher.with_options(base=4)) == "<dispatcher log_dispatcher(base=4)>"


def test_what_is_inside_of_an_executable_is_short() -> None:
    """No text, no machine code, no weights; the program's whole text is its `str`."""
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 16)})
    exe = bucketize.compile(bucketize.dispatch(mod, log_dispatcher), lazy=True)
    exe.run(*zoo.inputs("mlp", {"N": 3}).values())
    program, image = exe.program, exe.image
    routine = program.routines["main[N=2..3]"]
    (segment,) = routine.segments()
    kernels = [image.supply.kernel(c.kernel) for c in segment.calls]
    routines = "<5 routines, 2 of them decided>"
    count = f"{len(program.sources)} kernels"  # which the target's schedules decide
    told = f"<program for {program.target.name}, 1 threads: {routines}, {count}>"
    assert repr(program.routines) == routines
    assert repr(program) == told
    assert repr(image) == f"<image of {told}, 1 segments linked>"
    assert repr(segment) == "<segment of 3 kernels>"
    assert repr(image.linked(segment)) == "<linked <plan of 3 kernels, 5 tensors>>"
    params = "(%data: float32[N, 784])"
    assert repr(routine) == f"<routine main[N=2..3]{params}, vm executor, <code: 1 RunSegment>>"
    (context,) = exe._serving.idle
    assert repr(context) == "<context with 1 segments, an arena of 0 bytes>"  # it gave it back
    assert all("code" not in repr(k) and k.name in repr(k) for k in kernels)
    assert max(len(repr(x)) for x in (program, image, routine, segment, *kernels)) < 300


def test_a_module_survives_a_pickle_and_an_executable_says_how_it_travels() -> None:
    mod = bucketize.dispatch(
        bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 4)}), log_dispatcher, policy="pad"
    )
    script = (
        "import pickle, sys, bucketize;"
        "mod = pickle.load(sys.stdin.buffer);"
        "print(bucketize.show(mod), end='')"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(mod), stdout=subprocess.PIPE, check=True
    )
    assert shown.stdout.decode() == bucketize.show(mod)
    with pytest.raises(TypeError, match=r"save\(path\) writes, and bucketize.load\(path\)"):
        pickle.dumps(bucketize.compile(mod))


WORDS = ("self", "progress", "repetitions", "roofline", "module", "mod", "cls", "clone", "arrays")


def test_an_input_may_be_called_as_anything_is(tmp_path: Path) -> None:
    """Everything that takes inputs by name takes these, but options of `profile` by position."""
    params = [Var(name, tensor("float32", Symbol(f"{name}_0", 1, 4))) for name in WORDS]
    body = Builder()
    made = [body.emit(ops.neg, p) for p in params]
    mod = Module({"main": body.function("main", params, made)})
    arrays = {name: np.ones(i % 4 + 1, np.float32) for i, name in enumerate(WORDS)}
    exe = bucketize.compile(mod)
    exe.save(tmp_path / "m.bkt")
    results = (
        exe.run(**arrays),
        list(exe.run_named(**arrays).values()),
        exe.run_clone("main", **arrays),
        exe.context()(**arrays),
        bucketize.load(tmp_path / "m.bkt").run(**arrays),
        evaluate_module(mod, **arrays),
        Case.of(mod, **arrays).wanted,
    )
    for each in results:
        assert [y.tolist() for y in each] == [(-x).tolist() for x in arrays.values()]
    shapes = {name: array.shape for name, array in arrays.items()}
    assert exe.explain(**shapes).clone == "main"
    roof = Roofline(1.0, 1.0)
    frame = exe.profile(*arrays.values(), repetitions=1, roofline=roof)
    assert frame.attrs["roofline"] == roof
    message = "input 'progress' is called as an option of `profile` is: give all inputs by position"
    with pytest.raises(ArgumentError, match=message):
        exe.profile(**arrays)


def test_a_symbol_may_be_called_self() -> None:
    x, body = Var("x", tensor("float32", Symbol("self", 1, 4))), Builder()
    mod = Module({"main": body.function("main", [x], [body.emit(ops.neg, x)])})
    assert bucketize.compile(mod).explain(self=3).sizes == {"self": 3}
    assert bucketize.specialise(mod, self=3).main.params[0].type.shape == (3,)


def test_the_package_goes_over_by_its_name() -> None:
    """As Ray and Dask have functions that name it, which are sent to workers."""
    assert pickle.loads(pickle.dumps(bucketize)) is bucketize
