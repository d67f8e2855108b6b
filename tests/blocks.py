"""Blocks of code in Markdown, run as they stand: sybil finds them, in the order of the page.

- `python` runs in the names of its page. What it prints is in the `text` block that follows it.
- `console`: a line behind `$ ` is a command, other lines are what it writes to its output; behind
  `&` it runs until the page ends. All commands of a page run in one folder, as `python` does.
- `...` in an output is any text, as doctest has it, and spaces are alike.
- `<!-- skip: next "reason" -->` above a block says why it is not run, and of what takes long
  `skip: next if(quick, reason="...")` why not by `make test`: sybil's directives.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from unittest import SkipTest

import click.testing
from sybil import Document, Example
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from bucketize.cli.group import main

ROOT = Path(__file__).parent.parent
FOLDERS = (".", "docs/**", "examples/**", "runtime", "tuning_logs")
PAGES = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/*.md"))
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PROMPT = "$ "


@dataclass
class Page:
    """A page under test, in a folder of its own."""

    path: Path
    quick: bool = False
    """Whether what takes long is left out."""
    python: PythonEvaluator = field(default_factory=PythonEvaluator)
    printed: str = ""
    """What no block has shown yet."""
    ran: int = 0
    """Where the last block of Python ends that was run."""
    beside: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self) -> None:
        """Run all blocks, and fail at the first that is not as it should be."""
        document = self.document()
        document.namespace |= {"quick": self.quick}
        try:
            for example in document:
                self.evaluate(example)
        finally:
            for process in self.beside:
                process.terminate()
                process.wait()
        assert not self.printed, f"no block shows what is printed: {self.printed}"

    def document(self) -> Document:
        """The blocks that run, those that show what was printed, and what says which do not."""
        parsers = (
            CodeBlockParser("python", self.run_python),
            CodeBlockParser("console", self.run_console),
            CodeBlockParser("text", self.show),
            SkipParser(),
        )
        return Document.parse(str(self.path), *parsers)

    def evaluate(self, example: Example) -> None:
        """Run a block, unless the page says why not; what another printed is then not compared."""
        try:
            example.evaluate()
        except SkipTest:
            self.printed = ""

    def run_python(self, example: Example) -> None:
        assert not self.printed, f"no block shows what is printed: {self.printed}"
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.python(example)
        self.printed, self.ran = out.getvalue(), example.end

    def show(self, example: Example) -> str | None:
        """Compare with what was printed; one that is right under no block that ran is to read."""
        printed, self.printed = self.printed, ""
        is_under = not example.document.text[self.ran : example.start].strip()
        return different(printed, example.parsed) if printed or is_under else None

    def run_console(self, example: Example) -> str | None:
        """Run the commands, one after the other; what differs."""
        for command, wanted in commands(example.parsed):
            if command.endswith("&"):
                words = shlex.split(command.removesuffix("&"))
                self.beside.append(subprocess.Popen(words, env=environment()))
                continue
            got = output(command)
            if wanted and (told := different(got, wanted)):
                return f"{command}\n{told}"
        return None


def commands(text: str) -> list[tuple[str, str]]:
    """Commands, and what each is said to print."""
    assert text.startswith(PROMPT), f"a console block begins with {PROMPT!r}"
    found: list[tuple[str, str]] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(PROMPT):
            command = line.removeprefix(PROMPT)
            while command.endswith("\\"):
                command = command.removesuffix("\\") + next(lines).strip()
            found.append((command, ""))
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def output(command: str) -> str:
    """What it writes, but for errors and progress; a command that fails is an error."""
    words = shlex.split(command, comments=True)
    if words[0] == "bucketize" and not set(words) & {"|", ">", "&&", "||"}:
        result = click.testing.CliRunner().invoke(main, words[1:], prog_name="bucketize")
        assert result.exit_code == 0, f"{command}\n{result.output}{result.exception or ''}"
        return result.stdout
    done = subprocess.run(
        command, shell=True, text=True, capture_output=True, env=environment(), check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def environment() -> dict[str, str]:
    """In which commands are those of this installation."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path}


def different(got: str, wanted: str) -> str:
    """How what was printed differs from what the page shows, if it does."""
    example = doctest.Example("", wanted)
    checker = doctest.OutputChecker()
    if checker.check_output(wanted, got, ALIKE):
        return ""
    return checker.output_difference(example, got, ALIKE)
