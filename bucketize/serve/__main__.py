"""`python -m bucketize.serve`: `bucketize serve` for saved programs, on `bucketize-runtime[serve]`.

What a container needs: no compiler and no command line beside the standard library's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

if find_spec("uvicorn") is None:
    raise SystemExit("the server needs uvicorn: pip install 'bucketize-runtime[serve]'")

from bucketize.errors import ArgumentError, BucketizeError
from bucketize.loader import identity, load
from bucketize.machine.target import cores
from bucketize.serve.listen import check_ports, run
from bucketize.serve.model import ServedModel, named
from bucketize.serve.queue import Queue, seconds
from bucketize.serve.server import Server, check_writable

MOST_PORT = 65535


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM.

    Args:
        arguments: of the command line; None: those of the process.

    Returns:
        The exit code: 2 where a model cannot be served.

    """
    options = parser().parse_args(arguments)
    try:
        check_ports(options.host, options.port)
        check_writable(options.traffic)
        server = _server(options)
        run(server, options.host, options.port, None, print)
    except BucketizeError as e:
        print(e, file=sys.stderr)
        return 2
    return 0


def _server(options: argparse.Namespace) -> Server:
    queue = Queue(options.cores or cores(), options.waiting, seconds(options.latency))
    models = []
    for name, path in _named(options.models).items():
        loaded, executable = identity(path), load(path, trusted=options.trusted)
        executable.limit(options.limit_bytes)
        model = ServedModel(name, "1", executable, path, trusted=options.trusted)
        model.identity = loaded  # not of what took its place since
        models.append(model)
    return Server(models, queue, options.body_bytes, options.traffic, warm_up=options.warm_up)


def parser() -> argparse.ArgumentParser:
    """What the command line takes."""
    its = argparse.ArgumentParser("python -m bucketize.serve", description=__doc__)
    its.add_argument("models", nargs="+", metavar="[NAME=]PATH", help="saved programs")
    its.add_argument("--host", default="127.0.0.1", help="the address to listen at")
    its.add_argument("--port", type=_port, default=8000)
    its.add_argument("--latency", metavar="20ms", help="later is refused (429)")
    its.add_argument("--waiting", type=_count, default=1024, help="requests; others get 429")
    its.add_argument("--body-bytes", type=_count, default=64 << 20, help="of a request (413)")
    its.add_argument("--limit-bytes", type=_count, help="of each model's weights and calls")
    its.add_argument("--cores", type=_count, help="that calls of all models use at once")
    its.add_argument("--traffic", type=Path, help="a folder for the sizes of requests")
    its.add_argument("--warm-up", action="store_true", help="run every clone before it is ready")
    its.add_argument("--trusted", action="store_true", help="take files that others may write")
    return its


def _named(models: Sequence[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for text in models:
        name, path = named(text)
        name = name or Path(path).stem
        if name in files:
            raise ArgumentError(f"two models are called {name}: give names, as in NAME={path}")
        files[name] = Path(path)
    return files


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > MOST_PORT:
        raise argparse.ArgumentTypeError(f"expected 0 to {MOST_PORT}, got {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a number from 1, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
