"""Command lines of pages, parsed and not run: what they say that does not exist is an error."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import click.testing

from bucketize.cli.group import main

ROOT = Path(__file__).parent.parent
PROJECTS = {".": ".", "bucketize": ".", "./runtime": "runtime", "bucketize-runtime": "runtime"}
OPERATORS = ("|", ">", "&", "&&", "||")


def parse(command: str) -> bool:
    """Whether it is of a program whose command lines are known here; an error where it is wrong."""
    words = shlex.split(command, comments=True)
    name, *rest = itertools.takewhile(lambda word: word not in OPERATORS, words)
    if name not in PARSERS:
        return False
    PARSERS[name](rest)
    return True


def is_install(command: str) -> bool:
    """Whether pip would install something, which is not done where tests run: `make dist` does."""
    return command.startswith("pip install ")


def is_of_ci(command: str) -> bool:
    """Whether it makes what CI makes, these tests among it."""
    ci = (ROOT / ".ci" / "run").read_text().rpartition("exec make ")[2].split()
    name, *targets = shlex.split(command, comments=True)
    return name == "make" and bool(targets) and set(targets) <= set(ci)


def bucketize(words: Sequence[str]) -> None:
    """The options and arguments of a subcommand; of files, no matter whether they are there."""
    with (
        mock.patch.object(click.Command, "invoke", return_value=0),
        mock.patch.object(click.Path, "convert", path_of),
    ):
        result = click.testing.CliRunner().invoke(main, words, prog_name="bucketize")
    assert result.exit_code == 0, f"{shlex.join(words)}\n{result.output}"


def path_of(self: click.Path, value: Any, *_: Any) -> Any:
    return value if self.type is None else self.type(value)


def names(text: str) -> None:
    """The subcommand and the options of a span of a sentence, which may leave out the rest."""
    command: click.Command = main
    for word in text.split()[1:]:
        if isinstance(command, click.Group) and not word.startswith("-"):
            assert word in command.commands, f"{text}: no such command {word!r}"
            command = command.commands[word]
        elif word.startswith("-"):
            assert word.partition("=")[0] in options(command), f"{text}: no such option {word!r}"


def options(command: click.Command) -> set[str]:
    params = command.get_params(click.Context(command))
    return {name for param in params for name in (*param.opts, *param.secondary_opts)}


def pip(words: Sequence[str]) -> None:
    """Projects of the tree, by their paths or names, with extras that they have."""
    command, *projects = words
    assert command == "install", command
    for project in projects:
        name, extras = re.fullmatch(r"([./\w-]+)(?:\[(.+)\])?", project).groups()
        declared = tomllib.loads((ROOT / PROJECTS[name] / "pyproject.toml").read_text())["project"]
        assert not extras or extras in declared["optional-dependencies"], project


def make(words: Sequence[str]) -> None:
    """Targets and variables of the Makefile."""
    text = (ROOT / "Makefile").read_text()
    for name in (word.partition("=")[0] for word in words if "=" in word):
        assert re.search(rf"^{name} +[?:]?=", text, re.MULTILINE), f"{name} is no variable"
    dry = ["make", "--dry-run", *words]
    done = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def with_files(words: Sequence[str]) -> None:
    """Of programs that need what is not here: the files behind -f are of the tree."""
    for option, file in itertools.pairwise(words):
        assert option != "-f" or (ROOT / file).is_file(), f"no file {file}"


PARSERS: dict[str, Callable[[Sequence[str]], None]] = {
    "bucketize": bucketize,
    "pip": pip,
    "make": make,
    "kubectl": with_files,
    "podman": with_files,
}
