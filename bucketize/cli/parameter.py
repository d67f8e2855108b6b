"""Values that several subcommands read from the command line, and the options made of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
Bound: TypeAlias = tuple[str, tuple[int, int | None]]
Sizes: TypeAlias = dict[str, int]


def bound(text: str) -> Bound:
    """The symbol and the inclusive bounds of `N=1..32`, `N=1..` (no upper one) or `N=8`."""
    found = re.fullmatch(r"([^=]+)=(\d+)(?:(\.\.)(\d*))?", text)
    if not found:
        raise click.BadParameter(f"{text!r} is no bound; write N=1..32, N=1.. or N=8")
    symbol, lo, dots, hi = found.groups()
    top = int(lo) if not dots else int(hi) if hi else None
    if top is not None and top < int(lo):
        raise click.BadParameter(f"{text!r} is empty: {lo} exceeds {top}")
    return symbol, (int(lo), top)


def sizes(text: str) -> Sizes:
    """The size of each symbol of `N=4,H=224,W=224`."""
    pairs = [re.fullmatch(r"\s*([^=]+)=(\d+)\s*", part) for part in text.split(",")]
    if not all(pairs):
        raise click.BadParameter(f"{text!r} names no sizes; write N=4,H=224,W=224")
    return {pair[1]: int(pair[2]) for pair in pairs if pair}


def model_options(command: F) -> F:
    """MODEL, and the bounds of its symbols."""
    option = click.option(
        "--dim",
        "bounds",
        type=bound,
        metavar="SYMBOL=LO..HI",
        multiple=True,
        help="Inclusive bounds of a symbol; may be repeated.",
    )
    return click.argument("model")(option(command))


def dispatcher_option(command: F) -> F:
    """--dispatcher, in every form that `cli.dispatcher` can find."""
    return click.option(
        "--dispatcher",
        "-d",
        metavar="SPEC",
        help="NAME (see `bucketize dispatchers`), module:name or path.py:name, each with "
        ":option=value,... if wanted, as in log:base=4; or a .yaml or .json file.",
    )(command)


def json_option(command: F) -> F:
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")(command)
