"""`python -m benchmarks [NAME ...]`: by default all but those that take long or write files."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

import click

from bucketize.cli.group import Group

NAMES = (
    *("dispatch", "clones", "overhead", "newshape", "memory", "startup", "load"),
    *("threads", "contexts", "replay", "predict", "scale"),
)
LONG = (
    *("bench", "grids", "payoff", "constants", "transfer"),
    *("architectures", "decode", "conformance"),
)
"""What writes files, or takes long; only by name."""


class Benchmarks(Group):
    """The benchmarks as commands, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's)
        """All names."""
        return [*NAMES, *LONG]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name: what its module has, or one without options."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"benchmarks.{cmd_name}")
        if isinstance(module.main, click.Command):
            return module.main
        about = " ".join((module.__doc__ or "").partition("\n\n")[0].split())
        return click.Command(cmd_name, callback=partial(run, cmd_name, module.main), help=about)


def run(name: str, main: Callable[[], None]) -> None:
    """Run one under its name."""
    click.echo(f"== {name}")
    main()


@click.group(cls=Benchmarks, chain=True, invoke_without_command=True)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def main(ctx: click.Context, debug: bool) -> None:  # noqa: ARG001  (the group's)
    """Run the named benchmarks one after the other; without names all but those from bench on."""
    if ctx.invoked_subcommand is None:
        for name in NAMES:
            command = main.get_command(ctx, name)
            assert command is not None, "it is one of the names"
            ctx.invoke(command)


@main.result_callback()
def done(_results: object, debug: bool) -> None:
    """Nothing: what commands return is no exit code."""


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
