"""Mutation testing: faults are seeded into the core one by one, and tests ought to notice each.

`make mutate` runs it; CI tries one mutant. mutmut makes them and tries each in a fork of its own;
this says which modules, which tests ought to catch them, how many are tried, and what came of it.
What mutmut leaves alone is not counted: tables of modules, decorated functions (properties,
context managers) and f-strings, and `link/native`, whose text is compiled. Nothing that a test's
module does when it is read is mutated, so tests build what they test in the test.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import mutmut.__main__ as mutmut
from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.state import state
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import orig_function_and_class_names_from_key
from rich.console import Console
from rich.table import Table

DISPATCH = ("dispatch", "verify", "transforms", "text")
CUT = ("plan", "bounds", "transforms", "save", "runtime")
TESTS = {  # module: the tests that ought to catch its mutants, test_<name>.py in a folder of tests/
    "bucketize/types/dim.py": ("types", "multiple"),
    "bucketize/types/extent.py": ("types", "multiple", "ratio"),
    "bucketize/types/algebra.py": ("types", "multiple", "ratio"),
    "bucketize/types/function.py": ("types",),
    "bucketize/types/relation.py": ("types", "plan"),
    "bucketize/dispatch/bucket.py": ("dispatch",),
    "bucketize/dispatch/profile.py": ("dispatch",),
    "bucketize/program/decision_table.py": ("decision_table", "dispatch"),
    "bucketize/ir/tree.py": ("decision_table", "dispatch"),
    "bucketize/dispatch/pad.py": (*DISPATCH, "multiples", "pad_policy"),
    "bucketize/dispatch/tree.py": DISPATCH,
    "bucketize/lower/fuse.py": ("transforms", "fuse", "epilogue", "gates", "rotary", "attention"),
    "bucketize/lower/layout.py": ("transforms",),
    "bucketize/program/cut.py": (*CUT, "rounds", "profile"),
    "bucketize/link/planner.py": CUT,
    "bucketize/log/verdict.py": ("verdict", "analysis"),
    "bucketize/tune/confirm.py": ("confirm",),
    "bucketize/log/confidence.py": ("verdict",),
    "bucketize/log/log.py": ("log",),
    "bucketize/log/trial.py": ("log",),
}
EXPLAINED = Path("tests/equal_mutants.toml")
SLOW_S = 10.0  # tests that take longer try no mutant
CAUGHT = {"killed", "timeout", "segfault"}
SKIPPED = 34  # mutmut's exit code of a mutant that is not tried
STATS = Path("mutants/mutmut-stats.json")


@dataclass(frozen=True)
class Change:
    """What a mutant changes, whatever its number is."""

    module: str
    function: str
    was: str
    now: str

    @property
    def is_of_a_guard(self) -> bool:
        """Whether it weakens an assertion or a zip's `strict`, which our own faults alone break."""
        if self.was.startswith("assert "):
            return True
        guard = re.compile(r",\s*(strict=\w+)?(?=\s*\))")
        return "zip(" in self.was and guard.sub("", self.was) == guard.sub("", self.now)


@dataclass(frozen=True)
class Mutant:
    """A mutant and what became of it."""

    name: str
    module: str
    status: str

    def change(self) -> Change:
        """Its lines, without what surrounds them."""
        function, owner = orig_function_and_class_names_from_key(self.name)
        diff = get_diff_for_mutant(self.name, path=self.module).splitlines()[2:]
        was, now = ("\n".join(s[1:].strip() for s in diff if s[0] == sign) for sign in "-+")
        return Change(self.module, f"{owner}.{function}" if owner else function, was, now)


def _status(code: int | None) -> str:
    """What mutmut's exit code means; whatever signal ended a test, it ended."""
    return "segfault" if code is not None and code < 0 else status_by_exit_code[code]


def explained() -> dict[Change, str]:
    """The mutants that are equal to the original, and why."""
    rows = tomllib.loads(EXPLAINED.read_text()).get("mutant", [])
    return {
        Change(r["module"], r["function"], r["was"].strip(), r["now"].strip()): r["because"]
        for r in rows
    }


def _file(name: str) -> str:
    (path,) = Path("tests").glob(f"*/test_{name}.py")
    return str(path)


def _configure(modules: Iterable[str]) -> None:
    files = sorted({name for module in modules for name in TESTS[module]})
    settings = config()
    settings.only_mutate = list(modules)
    settings.pytest_add_cli_args_test_selection = [_file(name) for name in files]


def _keep_fast_tests() -> None:
    """Of each function's tests those of its module that are fast, the fastest first."""
    seconds, tests = state().duration_by_test, state().tests_by_mangled_function_name
    for function, names in tests.items():
        module = "/".join(function.split(".")[:-1]) + ".py"
        files = tuple(f"{_file(name)}::" for name in TESTS.get(module, ()))
        kept = [n for n in names if n.startswith(files) and seconds[n] < SLOW_S]
        tests[function] = sorted(kept, key=lambda n: (seconds[n], n))  # type: ignore[assignment]


def _tried(data: SourceFileMutationData, sample: int, seed: int) -> None:
    """Leave all but the sample of a seed out, and let those that survived be tried again."""
    names = sorted(data.exit_code_by_key)
    random.Random(f"{data.path}{seed or ''}").shuffle(names)
    chosen = set(names[: sample or None])
    for name, code in data.exit_code_by_key.items():
        stands = _status(code) in CAUGHT
        data.exit_code_by_key[name] = (code if stands else None) if name in chosen else SKIPPED
    data.save()


def _share_kernels() -> None:
    """Mutants use the tests' cache of kernels: what is in it is named by content."""
    build = Path("mutants/build")
    for folder in (Path("build"), build.parent):
        folder.mkdir(exist_ok=True)
    if not build.is_symlink():
        build.symlink_to("../build")


def _forget_plain(modules: Iterable[str]) -> None:
    """Copies of modules that were not mutated the last time, which mutmut takes for mutated."""
    for copy in (Path("mutants") / module for module in modules):
        if copy.exists() and "_mutmut_" not in copy.read_text():
            copy.unlink()


def run(modules: list[str], sample: int, seed: int) -> None:
    """Make mutants of the modules and try each against its tests, in one process at a time."""
    _configure(modules)
    STATS.unlink(missing_ok=True)  # which tests reach what may have changed
    _share_kernels()
    _forget_plain(modules)
    collect_stats, collect_mutants = (
        mutmut.collect_or_load_stats,
        mutmut.collect_source_file_mutation_data,
    )

    def stats(*args: Any, **options: Any) -> None:
        collect_stats(*args, **options)
        _keep_fast_tests()

    def mutants(**options: Any) -> Any:
        for data in collect_mutants(**options)[1].values():
            _tried(data, sample, seed)
        return collect_mutants(**options)

    mutmut.collect_or_load_stats = stats
    mutmut.collect_source_file_mutation_data = mutants
    mutmut._run((), 1)


def results(modules: Iterable[str]) -> Iterator[Mutant]:
    """All mutants of the modules, tried or not."""
    for module in modules:
        data = SourceFileMutationData(path=module)
        data.load()
        for name, code in data.exit_code_by_key.items():
            yield Mutant(name, module, _status(code))


def report(mutants: list[Mutant], known: Mapping[Change, str]) -> bool:
    """Print what survived and a table; whether 90 % were caught and no explanation is stale."""
    console = Console(width=100)
    changes = {m: m.change() for m in mutants if m.status not in CAUGHT | {"skipped"}}
    for mutant, change in changes.items():
        if not _is_equal(change, known):
            console.print(f"\n{change.module}: {change.function} ({mutant.status})", style="bold")
            console.print(f"- {change.was}\n+ {change.now}", markup=False, highlight=False)
    table = Table("module", "mutants", "tried", "caught", "equal", "left", "caught/tried", "%")
    good = True
    for module in dict.fromkeys(m.module for m in mutants):
        row = [m for m in mutants if m.module == module]
        survived = [changes[m] for m in row if m in changes]
        good &= _add_row(table, module, row, sum(_is_equal(c, known) for c in survived))
    console.print(table)
    modules = {m.module for m in mutants}
    stale = _stale(mutants, {c for c in known if c.module in modules})
    for change, reason in stale.items():
        console.print(f"{EXPLAINED}: {reason}: {change}", markup=False, style="red")
    return good and not stale


def _is_equal(change: Change, known: Mapping[Change, str]) -> bool:
    return change in known or change.is_of_a_guard


def _add_row(table: Table, module: str, mutants: list[Mutant], equal: int) -> bool:
    tried = sum(m.status != "skipped" for m in mutants)
    caught = sum(m.status in CAUGHT for m in mutants)
    counted = max(tried - equal, 1)
    numbers = (len(mutants), tried, caught, equal, tried - caught - equal)
    shares = f"{caught}/{tried}", f"{100 * caught / counted:.1f}"
    table.add_row(module.removeprefix("bucketize/"), *map(str, numbers), *shares)
    return caught >= 0.9 * counted


def _stale(mutants: Iterable[Mutant], known: set[Change]) -> dict[Change, str]:
    """Explanations of what no mutant does any more, or of mutants that were caught."""
    functions = {(c.module, c.function.rpartition(".")[2]) for c in known}
    found: dict[Change, set[str]] = {c: set() for c in known}
    for mutant in mutants:
        function, _ = orig_function_and_class_names_from_key(mutant.name)
        if (mutant.module, function) in functions and (change := mutant.change()) in found:
            found[change].add(mutant.status)
    unlike = {c: "no mutant does this" for c, statuses in found.items() if not statuses}
    caught = {
        c: "this is caught" for c, statuses in found.items() if statuses and statuses <= CAUGHT
    }
    return unlike | caught


@click.command()
@click.option("--sample", default=150, help="mutants tried per module; 0 tries all")
@click.option("--seed", default=0, help="of the sample")
@click.option("--only", default="", help="modules whose path contains this")
def main(sample: int, seed: int, only: str) -> None:
    """Seed faults into the core and count those that tests catch."""
    modules = [m for m in TESTS if only in m]
    if not modules:
        raise click.UsageError(f"no module's path contains {only!r}; there are {', '.join(TESTS)}")
    run(modules, sample, seed)
    if not report(list(results(modules)), explained()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
