"""`python -m benchmarks [NAME ...]`: all of them by default."""

from __future__ import annotations

import argparse
import importlib

NAMES = (
    *("dispatch", "clones", "overhead", "newshape", "memory", "startup", "load"),
    *("threads", "contexts", "peers", "replay", "predict"),
)
RECORDERS = ("grids", "payoff", "constants", "transfer")
"""What writes into the project, or takes long; only by name."""


def main() -> None:
    """Run the named benchmarks one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", default=[], metavar="NAME", help=", ".join((*NAMES, *RECORDERS))
    )
    names = parser.parse_args().names or NAMES
    for name in names:
        if name not in (*NAMES, *RECORDERS):
            known = ", ".join((*NAMES, *RECORDERS))
            parser.error(f"no benchmark named {name!r}; known: {known}")
        print(f"== {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
