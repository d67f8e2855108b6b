"""Values that several subcommands read from the command line, and the options made of them."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.core import ParameterSource

from bucketize.machine.file import check_replaceable, takes_files
from bucketize.tune.options import Options

if TYPE_CHECKING:
    from bucketize.types import Range

F = TypeVar("F", bound=Callable[..., Any])
Bound: TypeAlias = "tuple[str, Range]"
Sizes: TypeAlias = dict[str, int]
READING = "bucketize.reading"  # where a context holds how the model is read
UNDISPATCHED = "none"  # for -d: the dynamic original
ORACLE = "oracle"  # for -d: a static clone for each --at
INTERRUPTED = 128 + 2  # the exit code that shells expect of who was ended by SIGINT


class FiniteRange(click.FloatRange):
    """Numbers within bounds; NaN, which is within any, and infinity are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a number, or raise `BadParameter`."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a finite number, got {value}", param, ctx)
        return number


def bound(text: str) -> Bound:
    """The symbol and the inclusive bounds of `N=1..32`, `N=1..` (no upper one) or `N=8`.

    `N=8..512:8` are the multiples of 8 between them.
    """
    match = re.fullmatch(r"([^=]+)=(\d+)(?:(\.\.)(\d*)(?::(\d+))?)?", text)
    if not match:
        raise click.BadParameter(f"{text!r} is no bound; write N=1..32, N=1.., N=8 or N=8..64:8")
    symbol, lo, dots, hi, step = match.groups()
    top = int(lo) if not dots else int(hi) if hi else None
    if top is not None and top < int(lo):
        raise click.BadParameter(f"{text!r} is empty: {lo} exceeds {top}")
    if step and (not int(step) or (top is not None and top // int(step) * int(step) < int(lo))):
        raise click.BadParameter(f"{text!r} is empty: it holds no multiple of {step}")
    return symbol, ((int(lo), top, int(step)) if step else (int(lo), top))


def sizes(text: str) -> Sizes:
    """The size of each symbol of `N=4,H=224,W=224`."""
    parts = text.split(",")
    pairs = [re.fullmatch(r"\s*([^=]+)=(\d+)\s*", part) for part in parts]
    wrong = next((part for part, pair in zip(parts, pairs, strict=True) if pair is None), None)
    if wrong is not None:
        size = wrong.partition("=")[2].strip()
        reason = f"{size!r} is no size" if size else f"{wrong!r} names no size"
        raise click.BadParameter(f"{reason}; write N=4,H=224,W=224")
    given: Sizes = {}
    for symbol, size in (pair.groups() for pair in pairs if pair):
        if given.setdefault(symbol, int(size)) != int(size):
            raise click.BadParameter(f"{text!r} gives {symbol} two sizes")
    return given


def weighted_sizes(text: str) -> tuple[Sizes, float]:
    """The sizes of `N=4,H=224*0.3`, and how likely they are; as all others, if that is not said."""
    given, star, weight = text.partition("*")
    try:
        likely = float(weight) if star else 1.0
    except ValueError:
        likely = math.nan
    if not 0 < likely < math.inf:
        raise click.BadParameter(f"{text!r}: {weight!r} is no weight; write N=4,H=224*0.3")
    return sizes(given), likely


def input_file(text: str) -> tuple[str, Path]:
    """The input and the path of `data=image.npy`."""
    name, equals, path = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} names no file; write INPUT=FILE.npy")
    return name, Path(path)


def refuse(because: str, options: Mapping[str, str]) -> None:
    """Raise a `UsageError` if one of these options is given, by name with what to say of it."""
    context = click.get_current_context()
    for option in context.command.params:
        name = option.name or ""
        if name in options and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{because}: {option.opts[0]} {options[name]}")


def writable(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """The path of a file to write; refused at once, not after minutes of work."""
    if path is not None:
        check_writable(path)
    return path


def replaceable(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """The path of a file to write whole: neither a device nor a pipe."""
    if path is not None:
        check_whole(path)
    return writable(ctx, param, path)


def check_whole(path: Path) -> None:
    """Raise a `BadParameter` where a file that is written whole can take no place."""
    try:
        check_replaceable(path)
    except OSError as e:
        raise click.BadParameter(f"{path}: {e.strerror}") from e


def appendable(_ctx: click.Context, _param: click.Parameter, path: Path) -> Path:
    """The path of a log to add to; its directories are made with it, as far as they are missing."""
    directory = next(parent for parent in path.absolute().parents if parent.exists())
    check_writable(path if directory == path.absolute().parent else directory / path.name)
    if not takes_files(directory):
        raise click.BadParameter(f"{directory} is not writable: locks stand beside a log")
    return path


def check_writable(path: Path) -> None:
    """Raise a `BadParameter` if no file can be written there."""
    place = path if path.exists() else path.parent
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {path.parent}")
    if not os.access(place, os.W_OK) or not (path.exists() or takes_files(path.parent)):
        raise click.BadParameter(f"{place} is not writable")


def dispatcher(
    _ctx: click.Context, _param: click.Parameter, specs: tuple[str, ...] | str | None
) -> tuple[str, ...] | str | None:
    """What -d gives; one that there is not is refused before a model is read."""
    from bucketize.cli.dispatcher import find_dispatcher

    for spec in (specs,) if isinstance(specs, str) else specs or ():
        if spec not in (UNDISPATCHED, ORACLE):
            find_dispatcher(spec)
    return specs


def reading(ctx: click.Context, param: click.Parameter, value: str) -> None:
    """Keep how the model is to be read for `load_model`."""
    ctx.meta.setdefault(READING, {})[param.name] = value


def all_of(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one, in the order of the help."""
    return lambda command: functools.reduce(lambda c, option: option(c), reversed(options), command)


def written_option(
    *names: str, help: str, callback: Callable[..., Path | None] = writable, required: bool = False
) -> Callable[[F], F]:
    """An option that names a file to write."""
    kind = click.Path(path_type=Path, dir_okay=False, writable=True)
    return click.option(*names, type=kind, callback=callback, help=help, required=required)


reading_options = all_of(
    click.option(
        "--dim",
        "bounds",
        type=bound,
        metavar="SYMBOL=LO..HI[:STEP]",
        multiple=True,
        help="Inclusive bounds of a symbol, whose sizes are multiples of STEP; may be repeated.",
    ),
    click.option(
        "--precision",
        type=click.Choice(["default", "exact"]),
        default="default",
        expose_value=False,
        callback=reading,
        help="Of convolutions; exact: no kernel that finds their sums by fewer products.",
    ),
    click.option(
        "--weights",
        type=click.Choice(["float32", "bfloat16", "int8"]),
        default="float32",
        expose_value=False,
        callback=reading,
        help="Of matrix products, rounded to this: less exact, faster for small batches.",
    ),
)
"""--dim, the bounds of symbols, and what `load_model` asks the context for."""

model_options = all_of(click.argument("model"), reading_options)
"""MODEL, and how it is read."""

SPEC = """NAME (see `bucketize dispatchers`), module:name or path.py:name, each with
:option=value,... if wanted, as in log:base=4; a .yaml or .json file; none; or oracle, a static
clone for each --at."""


policy_option = click.option(
    "--policy",
    type=click.Choice(["exact", "pad"]),
    default="exact",
    show_default=True,
    help="Run at the true size, or pad to the bucket's top and crop.",
)
fallback_option = click.option(
    "--fallback/--no-fallback",
    default=True,
    help="Serve sizes outside all buckets by a dynamic clone (default), or refuse them.",
)
limit_option = click.option(
    "--limit",
    type=click.IntRange(1),
    help="The most buckets (10,000); symbols that would make more are left whole.",
)
specs_option = click.option(
    "--dispatcher",
    "-d",
    "specs",
    metavar="SPEC",
    multiple=True,
    callback=dispatcher,
    help=f"{SPEC} May be repeated.",
)
dispatch_options = all_of(
    click.option("--dispatcher", "-d", metavar="SPEC", callback=dispatcher, help=SPEC),
    policy_option,
    fallback_option,
    limit_option,
)
"""--dispatcher, in every form that `cli.dispatcher` can find, and how it is followed."""

dispatchers_options = all_of(specs_option, policy_option, fallback_option, limit_option)
"""--dispatcher, as often as wanted, and how each is followed."""


def sizes_option(what: str) -> Callable[[F], F]:
    """--at, the sizes that something is done at."""
    return click.option(
        "--at",
        "points",
        type=sizes,
        metavar="SYMBOL=SIZE,...",
        multiple=True,
        help=f"{what}, as in N=4,H=224,W=224; may be repeated.",
    )


ragged_options = all_of(
    click.option(
        "--ragged",
        is_flag=True,
        help="Pack rows of unequal lengths behind each other: no padding is computed.",
    ),
    click.option(
        "--mask",
        metavar="INPUT",
        help="With --ragged: what hides tokens, if it is not the one input that is called a mask.",
    ),
)
"""--ragged, and by which input."""
invariant_option = click.option(
    "--invariant",
    is_flag=True,
    help="The bits of a row depend on its own inputs alone, whatever is computed beside it.",
)
at_option = sizes_option("Sizes")
oracle_at_option = sizes_option("With -d oracle: the sizes of its clones")
weighted_at_option = click.option(
    "--at",
    "points",
    type=weighted_sizes,
    metavar="SYMBOL=SIZE,...[*WEIGHT]",
    multiple=True,
    help="Sizes, as in N=4,H=224,W=224, and how likely they are, as in N=4*0.3; repeat it.",
)
threads_option = click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Of each kernel."
)
trials_option = click.option(
    "--trials", default=Options.trials, show_default=True, help="To try per workload at most."
)
input_option = click.option(
    "--input",
    "inputs",
    type=input_file,
    metavar="INPUT=FILE.npy",
    multiple=True,
    help="An array of yours; inputs without one are random.",
)
log_option = click.option(
    "--log",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, readable=True),
    help="Take schedules from this tuning log.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")

saved_options = all_of(
    click.option(
        "--rebuild",
        is_flag=True,
        help="Compile a saved program anew, and run no code that it brings.",
    ),
    click.option(
        "--trusted",
        is_flag=True,
        help="Run a saved program though others may write the file: it is code.",
    ),
)
"""--rebuild and --trusted, of saved programs."""
