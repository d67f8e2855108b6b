"""MODEL on the command line, dispatched and compiled as asked, and arrays to run it on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bucketize.cli.parameter import Bound, Sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bucketize.ir import Function, Module, Var
    from bucketize.runtime.executable import Executable

    Arrays = dict[str, NDArray[Any]]

ZOO = "zoo:"
UNDISPATCHED = "none"


def load_model(model: str, bounds: Iterable[Bound]) -> Module:
    """The module of MODEL; `--dim` goes before the bounds that the zoo gives."""
    from bucketize.onnx import from_onnx

    if not model.startswith(ZOO):
        return from_onnx(model, bounds=dict(bounds))
    from bucketize.zoo import BOUNDS, build

    name = model.removeprefix(ZOO)
    return from_onnx(build(name), bounds={**BOUNDS[name], **dict(bounds)})


def dispatched(mod: Module, options: Mapping[str, Any]) -> Module:
    """The module behind the dispatcher of the command's options; as it is without one."""
    spec, policy, fallback = (options[name] for name in ("dispatcher", "policy", "fallback"))
    if spec in (None, UNDISPATCHED):
        return mod
    from bucketize.cli.dispatcher import find_dispatcher
    from bucketize.transform.dispatch import dispatch

    return dispatch(mod, find_dispatcher(spec), policy=policy, fallback=fallback)


def compiled(mod: Module, title: str, **options: Any) -> Executable:
    """The executable of a module, with a bar while it compiles."""
    from bucketize.cli.progress import compiling_bar
    from bucketize.compiler import compile

    with compiling_bar(title) as progress:
        return compile(mod, progress=progress, **options)


def main_of(mod: Module) -> Function:
    """The entry, with a symbol for every dynamic axis, as dispatch would name it."""
    from bucketize.transform.dispatch import name_dims

    return name_dims(mod.main)


def all_sizes(mod: Module, given: Mapping[str, Any]) -> Sizes:
    """The size of every symbol, from sizes by symbol and shapes by input."""
    from bucketize.runtime.explain import sizes_of

    return sizes_of(main_of(mod), given)


def random_inputs(model: str, mod: Module, sizes: Sizes) -> Arrays:
    """Inputs at these sizes: the zoo's own, else normal floats, and integers of 0 and 1."""
    if model.startswith(ZOO):
        from bucketize.zoo import inputs

        return inputs(model.removeprefix(ZOO), sizes)
    return {param.name: random_input(param, sizes) for param in main_of(mod).params}


def random_input(param: Var, sizes: Sizes) -> NDArray[Any]:
    """A random array of a parameter's type."""
    import numpy as np

    from bucketize.types import evaluate

    random = np.random.default_rng(0)
    shape = tuple(evaluate(dim, sizes) for dim in param.type.shape)
    dtype = param.type.dtype
    drawn = random.standard_normal(shape) if dtype.kind in "fc" else random.integers(0, 2, shape)
    return np.asarray(drawn).astype(dtype)


def load_inputs(files: Iterable[tuple[str, Path]]) -> Arrays:
    """Arrays from .npy files, by input."""
    import numpy as np

    from bucketize.errors import ShapeError

    try:
        return {name: np.load(path) for name, path in files}
    except ValueError as e:
        raise ShapeError(f"not an array in .npy format: {e}") from e
