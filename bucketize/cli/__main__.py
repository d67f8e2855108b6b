"""`bucketize` and `python -m bucketize.cli`: what loads the commands, and runs one."""

from __future__ import annotations

import signal
import sys


def main(name: str | None = None) -> None:
    """Run the command line; who interrupts what it loads sees no traceback either."""
    try:
        from bucketize.cli.group import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(128 + signal.SIGINT)
    run(prog_name=name)


if __name__ == "__main__":
    main()
