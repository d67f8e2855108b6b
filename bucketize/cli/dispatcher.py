"""Dispatchers by name: installed ones, a module's or a file's own, and those kept as data.

All are found alike, by entry point or by import: a user's own are equals of the built-in ones.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import yaml

from bucketize.dispatch.dispatcher import Dispatcher
from bucketize.errors import DispatchError, did_you_mean, unknown_name

GROUP = "bucketize.dispatchers"  # each entry is a dispatcher
FILES = "bucketize.dispatcher_files"  # each is named by a suffix and maps a path to a dispatcher


def installed() -> dict[str, EntryPoint]:
    """The entry points of installed dispatchers, by name."""
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP))}


def file_readers() -> dict[str, EntryPoint]:
    """The entry points of what reads dispatchers from files, by suffix."""
    return {entry.name: entry for entry in sorted(entry_points(group=FILES))}


def find_dispatcher(spec: str) -> Dispatcher:
    """The dispatcher that `spec` means.

    `log`, `module:name`, `path.py:name`, each with `:option=value,...` if wanted, or the path of a
    file whose suffix some package reads.
    """
    readers = file_readers()
    suffix = Path(spec).suffix.removeprefix(".")
    if suffix in readers and ":" not in spec:
        reader: Callable[[str], Dispatcher] = readers[suffix].load()
        return reader(spec)
    head, _, rest = spec.partition(":")
    if head in installed():
        return with_options(installed()[head].load(), rest)
    if suffix and not rest and not head.endswith(".py"):
        read = ", ".join(f".{name}" for name in readers)
        raise DispatchError(
            f"{spec}: a file that holds a dispatcher ends in {read}; see `bucketize dispatchers`"
        )
    if not rest:
        raise unknown_name("dispatcher", spec, [*installed(), "module:name", "path.py:name"])
    name, _, options = rest.partition(":")
    module = load_module(head)
    if not callable(getattr(module, name, None)):
        guess = did_you_mean(name, [n for n, value in vars(module).items() if callable(value)])
        raise DispatchError(f"{head} has no function named {name!r}{guess}")
    return with_options(getattr(module, name), options)


def with_options(dispatcher: Any, text: str) -> Dispatcher:
    """The dispatcher with the options of `base=4,high=64` set; a plain function takes keywords."""
    options = parse_options(text)
    if not options:
        return cast(Dispatcher, dispatcher)
    bind = getattr(dispatcher, "with_options", functools.partial(functools.partial, dispatcher))
    return cast(Dispatcher, bind(**options))


def parse_options(text: str) -> dict[str, Any]:
    """`sizes=1,2,4,high=8` as options: each value is YAML, and one with commas is a list."""
    if not text:
        return {}
    parts = [part.partition("=") for part in re.split(r",(?=\s*\w+=)", text)]
    if bad := [name for name, equals, _ in parts if not equals]:
        raise DispatchError(f"expected option=value, got {bad[0]!r}")
    return {
        name.strip(): _value(f"[{value}]" if "," in value else value) for name, _, value in parts
    }


def _value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        reason = " ".join(str(e).split()) or type(e).__name__
        raise DispatchError(f"expected a value as in YAML, got {text!r}: {reason}") from e


def load_module(target: str) -> ModuleType:
    """A module by its name, as seen from the working directory, or by its path."""
    try:
        return _from_path(Path(target)) if target.endswith(".py") else _from_name(target)
    except Exception as e:  # whatever a user's module does at import
        raise DispatchError(f"cannot import {target}: {type(e).__name__}: {e}") from e


def _from_name(name: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _from_path(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
