"""A process that compiles kernels into the cache: `python -m bucketize.kernel.builder`.

A line of JSON, [source, hint, processor], is a job; the answer is a line, too: null, or what went
wrong.
"""

from __future__ import annotations

import json
import os
import sys
import warnings

from bucketize.kernel.build import build
from bucketize.machine.target import Processor


def main() -> None:
    """Serve jobs until stdin ends."""
    said = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what numba prints is no answer
    warnings.formatwarning = _line
    for line in sys.stdin:
        source, hint, wanted = json.loads(line)
        try:
            build(source, hint, Processor(**wanted))
            error = None
        except Exception as e:  # whatever numba raises is told to who asked
            error = f"{type(e).__name__}: {e}"
        try:
            said.write(json.dumps(error) + "\n")
        except BrokenPipeError:  # who asked has gone
            return


def _line(message: Warning | str, *_where: object, **_line: object) -> str:
    """A warning as the command line prints it."""
    return f"warning: {message}\n"


if __name__ == "__main__":
    main()
    sys.stderr.flush()
    os._exit(0)  # to take down what numba and LLVM have built up takes a third of a second
