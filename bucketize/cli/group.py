"""The group of all subcommands, and how errors reach the user."""

from __future__ import annotations

import errno
import importlib
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from bucketize.cli.echo import echo
from bucketize.cli.parameter import INTERRUPTED
from bucketize.errors import BucketizeError, UnboundedError

LINE = "bucketize.line"  # where a context holds what was typed
# What a wrong path on the command line raises; other OSErrors are no user's doing.
PATH_ERRORS = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)
# So does a disk that takes no more.
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS)


class CommandGroup(click.Group):
    """A group that tells every error of a user in one form: `error: ...`, and exit code 2."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command line, and exit as the shell expects it."""
        standalone = options.pop("standalone_mode", True)
        run = partial(super().main, *args, standalone_mode=False, **options)
        if not standalone:
            return run()
        try:
            sys.exit(run() or 0)
        except click.exceptions.NoArgsIsHelpError as e:
            e.show()
            sys.exit(2)
        except click.ClickException as e:
            tell(e.format_message() + (hint(e) if isinstance(e, click.UsageError) else ""))
            sys.exit(2)
        except click.Abort:
            echo("interrupted", err=True)
            sys.exit(INTERRUPTED)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what was typed, for errors that give the command to type."""
        ctx.meta[LINE] = [*args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; each warning is one line on stderr, and told once."""
        with warnings.catch_warnings():
            warnings.showwarning = once(lambda text: echo(f"warning: {text}", err=True))
            try:
                return super().invoke(ctx)
            except (BucketizeError, OSError) as e:
                if not is_of_user(e):
                    raise
                if isinstance(e, UnboundedError):
                    e.add_note(f"as in: {bounded_line(ctx.meta[LINE], e.symbols)}")
                if ctx.params["debug"]:
                    echo("".join(traceback.format_exception(e)), err=True)
                else:
                    tell(message(e))
                ctx.exit(2)


def tell(error: str) -> None:
    """Print an error."""
    echo(f"error: {error}", err=True)


def bounded_line(typed: Sequence[str], symbols: Sequence[str]) -> str:
    """The command that was typed, with symbols held to a size."""
    dims = [word for symbol in symbols for word in ("--dim", f"{symbol}=1..1")]
    return shlex.join(["bucketize", *typed, *dims])


def is_of_user(error: BucketizeError | OSError) -> bool:
    """Whether an error is told in a line: of others people want to see where they were raised."""
    if isinstance(error, (BucketizeError, *PATH_ERRORS)):
        return True
    return error.errno in NO_ROOM


def message(error: BaseException) -> str:
    """What an error says; the system's own with the path in front, if it has one."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def hint(error: click.UsageError) -> str:
    """A line that says where to read how the command is used."""
    return f"\n  see {error.ctx.command_path if error.ctx else 'bucketize'} --help"


def once(show: Callable[[str], None]) -> Any:
    """A `warnings.showwarning` that shows no text again, nor the place in the code."""
    seen: set[str] = set()

    def shown(message: Warning | str, *_where: object) -> None:
        if str(message) not in seen:
            seen.add(str(message))
            show(str(message))

    return shown


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="bucketize")
def main(debug: bool) -> None:
    """Dispatch ONNX models with dynamic shapes to clones tuned for buckets of sizes.

    MODEL is the path of an ONNX file, or zoo:NAME for a model of the zoo; `run` and
    `profile` also take a program that `compile` saved: code, of which to load only
    what you trust.

    \b
    Examples:
      bucketize demo
      bucketize show zoo:mlp -d log
      bucketize tune resnet50.onnx --dim N=1..32 -d log --log trials.csv
      bucketize run resnet50.onnx --at N=4,H=224,W=224 -d log --log trials.csv
      bucketize compile resnet50.onnx -d log --log trials.csv -o resnet50.bkt
    """


COMMANDS = {
    "bucket": ("optimize", "partition", "merge", "traffic", "drift", "check_padding"),
    "command": (
        *("demo", "zoo", "show", "tune", "top", "compile", "export", "run", "serve", "profile"),
        *("report", "bench", "compare", "analyze", "log", "dispatchers", "ops", "cache"),
        "calibrate",
    ),
}
for folder, names in COMMANDS.items():  # each in a module of its name
    for name in names:
        module = importlib.import_module(f"bucketize.cli.{folder}.{name}")
        main.add_command(getattr(module, name))
