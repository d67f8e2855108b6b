"""`bucketize serve`: models behind a port."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.model import compiled, dispatched, is_saved, load_model, name_of
from bucketize.errors import BucketizeError

if TYPE_CHECKING:
    from bucketize.executable import Executable
    from bucketize.serve.model import ServedModel

HOW = "pip install 'bucketize[serve]'"
GRACE_S = 30  # for answers that are on their way when it ends
UNITS = {"ms": 1e-3, "s": 1.0}


def duration(_: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Seconds of a text as in `20ms`."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", value)
    if match is None or not float(match[1]):
        raise click.BadParameter(f"expected a time, as in 20ms or 1.5s, got {value!r}", param=param)
    return float(match[1]) * UNITS[match[2]]


@click.command(short_help="Serve models over HTTP, by the Open Inference Protocol.")
@click.argument("models", nargs=-1, required=True, metavar="[NAME=]MODEL...")
@parameter.reading_options
@parameter.dispatch_options
@parameter.ragged_options
@parameter.log_option
@parameter.threads_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option("--grpc-port", type=click.IntRange(0, 65535), help="Serve by gRPC there, too.")
@click.option(
    "--latency",
    "latency_s",
    metavar="20ms",
    callback=duration,
    help="An answer is late after so long: a request that would be is refused (429).",
)
@click.option(
    "--waiting",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="Requests that may wait; others are refused (429).",
)
@click.option(
    "--body-bytes",
    type=click.IntRange(1),
    default=64 << 20,
    show_default=True,
    help="Of a request, at most (413).",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Threads that run calls. Default: cores by the threads of a model.",
)
@click.option(
    "--traffic",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder: at the end, the sizes of each model's requests are written to NAME.csv there.",
)
def serve(
    models: tuple[str, ...], bounds: list[parameter.Bound], host: str, port: int, **options: Any
) -> None:
    """Serve MODELs over HTTP: ONNX files, zoo:NAMEs, or programs that `compile` saved.

    They answer at /v2/models/NAME/infer, as of the Open Inference Protocol (KServe, Triton);
    /metrics is for Prometheus. Requests that come while others run share the next call, as
    `run_many` has it. A saved program is replaced by another one that is put in its place, while
    requests are served. SIGTERM or Ctrl-C: what waits is answered, then it ends.

    \b
    Examples:
      bucketize serve encoder.bkt --latency 20ms
      bucketize serve small=zoo:bert-mini zoo:mlp -d log --port 9000
      curl localhost:8000/v2/models/mlp/infer -d '{"inputs": [{"name": "data",
        "datatype": "FP32", "shape": [1, 784], "data": [...]}]}'
    """
    try:
        import uvicorn

        from bucketize.serve.app import application
        from bucketize.serve.grpc import Rpc
        from bucketize.serve.queue import Queue
        from bucketize.serve.server import Server
    except ModuleNotFoundError as e:
        raise BucketizeError(f"the server needs {e.name}: {HOW}") from e

    served = _served(models, bounds, options)
    queue = Queue(_workers(served, options["workers"]), options["waiting"], options["latency_s"])
    server = Server(served, queue, options["body_bytes"], options["traffic"])
    rpc = None
    if options["grpc_port"] is not None:
        rpc = Rpc(server, f"{host}:{options['grpc_port']}", lambda at: echo(f"grpc://{host}:{at}"))
    config = uvicorn.Config(
        application(server, rpc),
        host,
        port,
        log_level="warning",
        lifespan="on",
        timeout_graceful_shutdown=GRACE_S,
    )
    socket = config.bind_socket()
    socket.listen(config.backlog)  # who connects as soon as the address is told waits
    where = f"http://{host}:{socket.getsockname()[1]}"
    echo("\n".join(f"{where}/v2/models/{name}/infer" for name in server.versions))
    uvicorn.Server(config).run(sockets=[socket])


def _served(
    models: tuple[str, ...], bounds: list[parameter.Bound], options: Any
) -> list[ServedModel]:
    from bucketize.serve.model import ServedModel

    served: dict[tuple[str, str], ServedModel] = {}
    for text in models:
        called, _, source = text.rpartition("=")
        name, _, version = (called or name_of(source)).partition(":")
        key = name, version or "1"
        if key in served:
            raise click.UsageError(f"two models are called {name}: give names, as in NAME={source}")
        path = Path(source) if is_saved(source) else None
        served[key] = ServedModel(*key, _executable(source, bounds, options), path)
    return list(served.values())


def _workers(served: list[ServedModel], asked: int | None) -> int:
    from bucketize.machine.target import cores

    threads = max(model.executable.program.threads for model in served)
    return asked or max(1, cores() // threads)


def _executable(source: str, bounds: list[parameter.Bound], options: Any) -> Executable:
    from bucketize.loader import load

    if is_saved(source):
        return load(source)
    loaded = load_model(source, bounds)
    return compiled(dispatched(loaded, options), log=options["log"], threads=options["threads"])
