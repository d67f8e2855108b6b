"""`python -m benchmarks [NAME ...]`: by default all but those that take long or write files."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import click

from bucketize.busy import watched
from bucketize.cli.group import CommandGroup

NAMES = (
    *("dispatch", "clones", "overhead", "newshape", "memory", "startup", "load"),
    *("threads", "contexts", "contention", "invariant", "padding", "replay", "predict", "scale"),
)
LONG = (
    *("bench", "grids", "payoff", "constants", "transfer"),
    *(
        "alone",
        "architectures",
        "decode",
        "conformance",
        "ladders",
        "many",
        "optimized",
        "published",
        "resident",
        "images",
        "serving",
        "soak",
    ),
)
"""What writes files, or takes long; only by name."""
EVERY = "all"


class Benchmarks(CommandGroup):
    """The benchmarks as commands, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's)
        """All names."""
        return [*NAMES, *LONG, EVERY]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name: what its module has, or one without options; its cell, too."""
        if cmd_name not in self.list_commands(ctx):
            return None
        if cmd_name == EVERY:
            return every
        module = importlib.import_module(f"benchmarks.{cmd_name}")
        if isinstance(module.main, click.Command):
            command = copy(module.main)
        else:
            about = " ".join((module.__doc__ or "").partition("\n\n")[0].split())
            command = click.Command(
                cmd_name, callback=partial(run, cmd_name, module.main), help=about
            )
        assert command.callback is not None, "it does something"
        command.callback = watched()(command.callback)  # a busy machine is told of
        return or_quick(cmd_name, command)


def run(name: str, main: Callable[[], None]) -> None:
    """Run one under its name."""
    click.echo(f"== {name}")
    main()


def or_quick(name: str, command: click.Command) -> click.Command:
    """The command with a `--quick` that measures its cell alone, unless it has one of its own."""
    if any(param.name == "quick" for param in command.params):
        return command
    plain, both = command.callback, copy(command)
    assert plain is not None, "a benchmark does something"

    def either(*, quick: bool, **options: Any) -> Any:
        return show(name) if quick else plain(**options)

    both.params = [*command.params, click.Option(["--quick"], is_flag=True, help="One cell.")]
    both.callback = either
    return both


def show(name: str) -> None:
    """Measure the cell of one."""
    from benchmarks import quick

    click.echo(f"== {name}")
    quick.show(name)


@click.command(EVERY)
@click.option("--quick", is_flag=True, help="One cell of each, in at most ten minutes.")
@click.option("--accept", is_flag=True, help="Take the figures of --quick for those to compare by.")
def every(quick: bool, accept: bool) -> None:
    """Run all of them; or one cell of each, beside the figures of the same processor.

    With --quick each benchmark measures one cell, in a process of its own with a time limit. The
    figures are held against those in benchmarks/quick.csv that were accepted on a machine with the
    same processor and as many cores: what moved by more than its noise comes first. What cannot be
    measured here is named with the reason.
    """
    if accept and not quick:
        raise click.UsageError("--accept is for --quick, which is not used")
    if quick:
        from benchmarks import quick as cells

        cells.run([*NAMES, *LONG], accepting=accept)
        return
    for name in (*NAMES, *LONG):
        invoke(name)


def invoke(name: str) -> None:
    """Run one on its defaults."""
    ctx = click.get_current_context()
    command = main.get_command(ctx, name)
    assert command is not None, "it is one of the names"
    ctx.invoke(command)


@click.group(cls=Benchmarks, chain=True, invoke_without_command=True)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def main(ctx: click.Context, debug: bool) -> None:  # noqa: ARG001  (the group's)
    """Run the named benchmarks one after the other; without names all but those from bench on."""
    if ctx.invoked_subcommand is None:
        for name in NAMES:
            invoke(name)


@main.result_callback()
def done(_results: object, debug: bool) -> None:
    """Nothing: what commands return is no exit code."""


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
