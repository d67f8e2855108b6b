"""The group of all subcommands, and how errors reach the user."""

from __future__ import annotations

import warnings
from typing import Any

import click

from bucketize.cli.analyze import analyze
from bucketize.cli.bench import bench
from bucketize.cli.cache import cache
from bucketize.cli.compile import compile
from bucketize.cli.demo import demo
from bucketize.cli.dispatchers import dispatchers
from bucketize.cli.profile import profile
from bucketize.cli.run import run
from bucketize.cli.show import show
from bucketize.cli.tune import tune
from bucketize.cli.zoo import zoo
from bucketize.errors import BucketizeError

# What a wrong path on the command line raises; other OSErrors are no user's doing.
PATH_ERRORS = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)


class Group(click.Group):
    """A group whose commands end a user's error with its message and notes, and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; warnings are one line each on stderr."""
        with warnings.catch_warnings():
            warnings.showwarning = show_warning  # type: ignore[assignment]
            try:
                return super().invoke(ctx)
            except (BucketizeError, *PATH_ERRORS) as e:
                if ctx.params["debug"]:
                    raise
                click.echo("\n".join([f"error: {e}", *("  " + n for n in notes(e))]), err=True)
                ctx.exit(2)


def notes(error: BaseException) -> list[str]:
    """What outer layers added to an error, inner first."""
    return list(getattr(error, "__notes__", ()))


def show_warning(message: Warning | str, *_where: object) -> None:
    """Print a warning without the place in the code that it comes from."""
    click.echo(f"warning: {message}", err=True)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="bucketize")
def main(debug: bool) -> None:
    """Dispatch ONNX models with dynamic shapes to clones tuned for buckets of sizes.

    MODEL is the path of an ONNX file, or zoo:NAME for a model of the zoo; `run` and
    `profile` also take a program that `compile` saved.

    \b
    Examples:
      bucketize demo
      bucketize show zoo:mlp --dispatcher log
      bucketize tune resnet50.onnx --dim N=1..32 --dispatcher log --log trials.csv
      bucketize run resnet50.onnx --at N=4,H=224,W=224 --dispatcher log --log trials.csv
      bucketize compile resnet50.onnx --dispatcher log --log trials.csv -o resnet50.bkt
    """


for command in (demo, zoo, show, tune, compile, run, profile, bench, analyze, dispatchers, cache):
    main.add_command(command)
