"""Blocks of code in Markdown, run as they stand: sybil finds them, in the order of the page.

- `python` runs in the names of its page. What it prints is in the `text` block that follows it.
- `console`: a line behind `$ ` is a command, other lines are what it writes to its output; behind
  `&` it runs until the page ends. All commands of a page run in one folder, as `python` does.
- `...` in an output is any text, as doctest has it, and spaces are alike.
- `<!-- substitute: this -> that -->`: everywhere below it on the page, a test has that for this;
  `a free port` is a number. What is in the background is waited for until its free ports answer.
- `<!-- skip: next "reason" -->` above a block, sybil's directive, says why it is not run. Its
  commands are parsed all the same, as those are of `pip install`, which is never run.

`python tests/blocks.py` counts.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import SkipTest

import click
import click.testing
from command_lines import is_install, is_of_ci, parse
from sybil import Document, Example
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

from bucketize.cli.group import main as cli

ROOT = Path(__file__).parent.parent
FOLDERS = (".", "docs/**", "examples/**", "runtime", "tuning_logs")
PAGES = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/*.md"))
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PROMPT = "$ "
SUBSTITUTE = re.compile("^<!-- substitute: (.+?) -> (.+?) -->$", re.MULTILINE)
START_S = 120.0
BY_DIST = "make dist runs it"
DIST = f'<!-- skip: next "{BY_DIST}" -->'


@dataclass
class Page:
    """A page under test, in a folder of its own."""

    path: Path
    python: PythonEvaluator = field(default_factory=PythonEvaluator)
    printed: str = ""
    """What no block has shown yet."""
    ran: int = 0
    """Where the last block of Python ends that was run."""
    beside: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    """That its text has, and nobody else."""
    is_whole: bool = False
    """Whether blocks are run that are skipped since `make dist` does."""

    def run(self) -> None:
        """Run all blocks, and fail at the first that is not as it should be."""
        document = self.document()
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
        text, self.ports = substituted(self.path.read_text())
        text = text.replace(DIST, "") if self.is_whole else text
        evaluators = {"python": self.run_python, "console": self.run_console, "text": self.show}
        return parsed(self.path, text, evaluators)

    def evaluate(self, example: Example) -> None:
        """Run a block, unless the page says why not; what another printed is then not compared."""
        try:
            example.evaluate()
        except SkipTest:
            self.printed = ""
            is_parsed(example)

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
            if is_install(command) or is_of_ci(command):
                parse(command)
                continue
            if command.endswith("&"):
                self.start(shlex.split(command.removesuffix("&")))
                continue
            got = output(command)
            if wanted and (told := different(got, wanted)):
                return f"{command}\n{told}"
        return None

    def start(self, words: list[str]) -> None:
        """Run a command until the page ends; it is there when the ports that it names answer."""
        process = subprocess.Popen(words, env=environment())
        self.beside.append(process)
        for port in self.ports:
            if str(port) in " ".join(words):
                wait_for(port, process)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing answers at port {port}: {shlex.join(map(str, process.args))}")


def parsed(path: Path, text: str, evaluators: dict[str, Callable[[Example], object]]) -> Document:
    """The blocks of these languages, and the directives that leave some out."""
    document = Document(text, str(path))
    blocks = [CodeBlockParser(language, each) for language, each in evaluators.items()]
    for parser in (*blocks, SkipParser()):
        for region in parser(document):
            document.add(region)
    return document


def substituted(text: str) -> tuple[str, list[int]]:
    """The text as it is tested, and the free ports in it."""
    at, ports = 0, []
    while found := SUBSTITUTE.search(text, at):
        at, (old, new) = found.end(), found.groups()
        assert old in text[at:], f"nothing to substitute: {found[0]}"
        if new == "a free port":
            ports.append(free_port())
            new = str(ports[-1])
        text = text[:at] + text[at:].replace(old, new)
    return text, ports


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


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
        result = click.testing.CliRunner().invoke(cli, words[1:], prog_name="bucketize")
        assert result.exit_code == 0, f"{command}\n{result.output}{result.exception or ''}"
        return result.stdout
    of_tree = ROOT if words[0] == "make" else None
    done = subprocess.run(
        command,
        shell=True,
        text=True,
        capture_output=True,
        env=environment(),
        cwd=of_tree,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def environment(place: Path = Path(sys.executable).parent) -> dict[str, str]:
    """In which commands are those of this installation, or of another one's folder."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return {**others, "PATH": f"{place}{os.pathsep}{os.environ['PATH']}"}


def different(got: str, wanted: str) -> str:
    """How what was printed differs from what the page shows, if it does."""
    example = doctest.Example("", wanted)
    checker = doctest.OutputChecker()
    if checker.check_output(wanted, got, ALIKE):
        return ""
    return checker.output_difference(example, got, ALIKE)


RUN, PARSED, NEITHER = "run", "parsed", "neither run nor parsed"
CODE = PYTHON, CONSOLE = "```python", "```console"


def kinds(path: Path) -> dict[int, str]:
    """What tests do with the blocks of code of a page, by their lines."""
    return {
        example.line: (why if why in (RUN, BY_DIST) else PARSED if is_parsed(example) else NEITHER)
        for example, why in visible(path)
    }


def visible(path: Path) -> Iterator[tuple[Example, str]]:
    """The blocks of code that a reader sees, and RUN, or why they are not."""
    languages = ("python", "console", "text")
    document = parsed(path, path.read_text(), dict.fromkeys(languages, lambda _: None))
    for example in document:
        why = RUN
        try:
            example.evaluate()
        except SkipTest as e:
            why = str(e)
        if opening(example) in CODE:
            yield example, BY_DIST if only_installs(example) else why


def only_installs(example: Example) -> bool:
    return is_console(example) and all(
        is_install(command) for command, _ in commands(example.parsed)
    )


def opening(example: Example) -> str:
    """The first line of a block, or of what says which are left out."""
    return example.document.text[example.start :].partition("\n")[0]


def is_parsed(example: Example) -> bool:
    """Whether all of a block can be parsed; an error where that says that it is wrong."""
    if is_console(example):
        are_parsed = [parse(command) for command, _ in commands(example.parsed)]
        return all(are_parsed)
    if opening(example) == PYTHON:
        compile(example.parsed, example.path, "exec")
    return True


def installs() -> list[str]:
    """Each `pip install` of the pages, once; those that ask for least come first."""
    texts = [
        example.parsed for path in PAGES for example, _ in visible(path) if is_console(example)
    ]
    found = {command for text in texts for command, _ in commands(text) if is_install(command)}
    return sorted(found, key=lambda command: (len(command.split()), "[" in command, command))


def is_console(example: Example) -> bool:
    return opening(example) == CONSOLE


@click.group(invoke_without_command=True)
@click.pass_context
def main(context: click.Context) -> None:
    """Count the blocks of all pages by what is done with them, and name those that are not run."""
    if context.invoked_subcommand:
        return
    every = {(path, line): kind for path in PAGES for line, kind in kinds(path).items()}
    for kind, count in Counter(every.values()).items():
        print(f"{count:4} {kind}")
        if kind != RUN:
            where = [f"{path.relative_to(ROOT)}:{n}" for (path, n), k in every.items() if k == kind]
            print("    ", *where)


@main.command()
@click.argument("place", type=click.Path(path_type=Path))
@click.option("--extras", is_flag=True, help="Those with extras, not those without.")
def install(place: Path, extras: bool) -> None:
    """Run each `pip install` of the pages in the tree, in the environment at PLACE."""
    for command in installs():
        if ("[" in command) == extras:
            print(command, flush=True)
            quiet = {"PIP_QUIET": "2", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
            env = {**environment(place.absolute() / "bin"), **quiet}
            subprocess.run(command, shell=True, cwd=ROOT, env=env, check=True)


@main.command()
@click.argument("page", type=click.Path(exists=True, path_type=Path))
def run(page: Path) -> None:
    """Run the blocks of PAGE in this folder, those that are skipped since `make dist` does, too."""
    Page(page.absolute(), is_whole=True).run()
    print(f"{page.name}: every block of code ran")


if __name__ == "__main__":
    main()
