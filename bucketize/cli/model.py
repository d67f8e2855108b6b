"""MODEL on the command line, dispatched and compiled or loaded, and arrays to run it on."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from bucketize.cli.echo import echo
from bucketize.cli.parameter import ORACLE, READING, UNDISPATCHED, Bound, Sizes
from bucketize.errors import DispatchError, ShapeError, UnsupportedModelError
from bucketize.progress import progress_bar
from bucketize.table import pairs
from bucketize.types import Profile, Range, evaluate, symbols

if TYPE_CHECKING:
    from bucketize.dispatch.dispatcher import Dispatcher
    from bucketize.executable import Executable
    from bucketize.ir import Function, Module, Var

Arrays = dict[str, NDArray[Any]]
ZOO = "zoo:"


@dataclass(frozen=True, eq=False)
class Model:
    """MODEL by its inputs, which are all that is known of a saved program."""

    params: Sequence[Var]
    """With a symbol for every dynamic axis, as dispatch would name it."""

    def sizes(self, given: Mapping[str, Any]) -> Sizes:
        """The size of every symbol, from sizes by symbol and shapes by input.

        Where one is missing, the error shows how to give it.
        """
        from bucketize.call import sizes_of

        try:
            return sizes_of(self.params, given)
        except ShapeError as e:
            own = {p.name: [s for d in p.type.dims for s in symbols(d)] for p in self.params}
            least = {s.name: max(s.lo, s.step) for of_input in own.values() for s in of_input}
            covered = {s.name for name in given.keys() & own.keys() for s in own[name]}
            if least.keys() - covered - given.keys():
                e.add_note(f"give all of them, as in --at {pairs(least)}")
            raise

    def inputs(self, sizes: Sizes, given: Arrays) -> Arrays:
        """What is given, and random arrays: normal floats, and integers of 0 and 1."""
        others = [p for p in self.params if p.name not in given]
        return {**{p.name: random_input(p, sizes) for p in others}, **given}


@dataclass(frozen=True, eq=False)
class NamedModel(Model):
    """MODEL as imported; `zoo` says that its name is one there."""

    module: Module
    bounds: Mapping[str, Range]
    name: str
    zoo: bool

    def sizes(self, given: Mapping[str, Any]) -> Sizes:
        """Sizes by symbol; one that `--dim` holds to one size may be named, too.

        It is none of the module's any more.
        """
        for symbol, size in self.held.items():
            if given.get(symbol, size) != size:
                raise ShapeError(f"{symbol} is held to {size}, but given as {given[symbol]}")
        return super().sizes({k: v for k, v in given.items() if k not in self.held})

    @property
    def held(self) -> Sizes:
        """The symbols that their bounds make integers."""
        from bucketize.onnx.front import bounded

        dims = {symbol: bounded(symbol, ends) for symbol, ends in self.bounds.items()}
        return {symbol: dim for symbol, dim in dims.items() if isinstance(dim, int)}

    def inputs(self, sizes: Sizes, given: Arrays | None = None) -> Arrays:
        """What is given, and random arrays: the zoo's where the model is from there."""
        if not self.zoo:
            return super().inputs(sizes, given or {})
        from bucketize.zoo import inputs

        return {**inputs(self.name, {**self.held, **sizes}), **(given or {})}

    def shapes(self, sizes: Sizes) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs."""
        return {p.name: tuple(evaluate(dim, sizes) for dim in p.type.shape) for p in self.params}


def sizes_at(
    model: Model, points: Sequence[Sizes], inputs: Mapping[str, Any] | None = None
) -> list[Sizes]:
    """All sizes at each --at, of which arrays may tell some; asked before anything is compiled."""
    shapes = {name: array.shape for name, array in (inputs or {}).items()}
    return [model.sizes({**shapes, **point}) for point in points or [{}]]


def is_saved(model: str) -> bool:
    """Whether MODEL is a file that `bucketize compile` wrote."""
    from bucketize.save.container import is_program

    return is_program(model)


def name_of(model: str) -> str:
    """What MODEL is called: by its file, or in the zoo."""
    return model.removeprefix(ZOO) if model.startswith(ZOO) else Path(model).stem


def load_model(model: str, bounds: Iterable[Bound]) -> NamedModel:
    """MODEL, a path or zoo:NAME; `--dim` goes before the bounds that the zoo gives."""
    if is_saved(model):
        raise UnsupportedModelError(
            f"{model} is a saved program; `bucketize run` and `profile` take it"
        )
    with progress_bar(f"reading {model}"):
        return _read(model, dict(bounds))


def _read(model: str, own: dict[str, Range]) -> NamedModel:
    from bucketize.dispatch.tree import name_dims
    from bucketize.onnx import from_onnx

    name, source = name_of(model), model
    if model.startswith(ZOO):
        from bucketize.zoo import BOUNDS, build

        source = build(name)
        own = {**BOUNDS[name], **own}
    module = from_onnx(source, bounds=own, **click.get_current_context().meta.get(READING, {}))
    return NamedModel(name_dims(module.main).params, module, own, name, model.startswith(ZOO))


def random_input(param: Var, sizes: Sizes) -> NDArray[Any]:
    """A random array of a parameter's type."""
    from bucketize.call import has_memory, no_memory

    if not param.type.is_tensor:
        fault = f"input {param.name!r} is {param.type}, of which no random array can be made"
        raise ShapeError(f"{fault}: `run` and `profile` take yours, --input {param.name}=FILE.npy")
    random = np.random.default_rng(0)
    shape = tuple(evaluate(dim, sizes) for dim in param.type.shape)
    dtype = param.type.dtype
    if not has_memory(math.prod(shape) * np.dtype(np.float64).itemsize):  # what is drawn first
        raise no_memory(shape, dtype)
    drawn = random.standard_normal(shape) if dtype.kind in "fc" else random.integers(0, 2, shape)
    return np.asarray(drawn).astype(dtype)


def load_inputs(files: Iterable[tuple[str, Path]]) -> Arrays:
    """Arrays from .npy files, by input."""
    return {name: load_array(path) for name, path in files}


DAMAGED = ValueError, EOFError, MemoryError, TokenError, zlib.error
"""Errors of numpy's where a file holds no arrays."""


def load_array(path: Path) -> NDArray[Any]:
    """The array of a .npy file, which may hold no code."""
    with path.open("rb") as file:
        try:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        except DAMAGED as e:
            raise ShapeError(f"{path} holds no array in .npy format: {e}") from e
    return array


def dispatched(model: NamedModel, options: Mapping[str, Any]) -> Module:
    """The module behind the dispatcher of the command's options; as it is without one.

    Their --at is checked first: what follows may take a while.
    """
    spec, points = options["dispatcher"], options.get("points", ())
    points = sizes_at(model, points) if points else []
    if options.get("ragged"):
        return packed(model, options)
    if options.get("mask"):
        raise click.UsageError("--mask is for --ragged, which is not given")
    if spec in (None, UNDISPATCHED):
        return model.module
    from bucketize.cli.dispatcher import find_dispatcher
    from bucketize.dispatch.dispatcher import ModuleDispatcher
    from bucketize.dispatch.tree import dispatch

    if spec == ORACLE:
        return dispatch(model.module, oracle(model, points), fallback=False)
    how = {n: options[n] for n in ("policy", "fallback", "limit") if options.get(n) is not None}
    dispatcher = find_dispatcher(spec)
    if isinstance(dispatcher, ModuleDispatcher):
        dispatcher = dispatcher.of_module(model.module, "main")
        echo(f"{spec}: {dispatcher}", err=True)
    return dispatch(model.module, dispatcher, **how)


def packed(model: NamedModel, options: Mapping[str, Any]) -> Module:
    """The module that packs rows: one for all lengths."""
    from bucketize.ragged.ragged import ragged

    if options["dispatcher"] not in (None, UNDISPATCHED):
        raise click.UsageError("--ragged is for all lengths at once: leave out -d")
    return ragged(model.module, mask=options["mask"])


def dispatched_at(model: NamedModel, options: Mapping[str, Any]) -> Module:
    """The dispatched module, where `--at` is for the oracle alone."""
    if options["points"] and options["dispatcher"] != ORACLE:
        raise DispatchError("--at is for -d oracle, which has a clone for each, but it is not used")
    return dispatched(model, options)


def oracle(model: NamedModel, points: Sequence[Sizes]) -> Dispatcher:
    """A static clone for exactly each of the points: the yardstick of all other dispatchers."""
    if not points:
        raise DispatchError("the oracle has a clone for each --at, but there is none; give sizes")
    shapes = [model.shapes(sizes) for sizes in points]
    boxes = [Profile(s, s, s, f"at{i}") for i, s in enumerate(shapes)]
    return lambda _: boxes


def interface(mod: Module) -> dict[str, Any]:
    """The facts of a module that was written: inputs, outputs and their symbols, for scripts."""
    main = mod.main
    return {
        "inputs": {p.name: str(p.type) for p in main.params},
        "outputs": {n: str(r.type) for n, r in zip(mod.outputs, main.results, strict=True)},
        "symbols": {s.name: list(s.bounds) for s in main.symbols().values()},
    }


def shown_interface(facts: Mapping[str, Any]) -> list[str]:
    """The inputs and outputs of `interface`, one a line."""
    inputs = [f"  input {name}: {type_}" for name, type_ in facts["inputs"].items()]
    return inputs + [f"  output {name}: {type_}" for name, type_ in facts["outputs"].items()]


def hints(main: Function) -> list[str]:
    """Which bounds of a model's symbols would make operators static, with the flag to give."""
    from bucketize.transform.simplify import simplify
    from bucketize.transform.stayed import bounds_that_help, stayed_dynamic

    if not any(True for _ in stayed_dynamic(main)):
        return []  # nor does any when it is simplified, which takes seconds of a large model
    return [
        f"with --dim {s.option} {n} fewer operators stay dynamic"
        for s, n in bounds_that_help(simplify(main))
    ]


def tell_hints(model: NamedModel) -> None:
    """Say on stderr which bounds would help what is about to be compiled."""
    for hint in hints(model.module.main):
        echo(f"hint: {hint}", err=True)


def compiled(mod: Module, **options: Any) -> Executable:
    """The executable of a module, with a bar while it compiles."""
    with progress_bar("compiling") as tell:
        from bucketize.compiler import compile

        return compile(mod, progress=tell, **options)
