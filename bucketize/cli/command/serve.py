"""`bucketize serve`: models behind a port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bucketize.cli import parameter
from bucketize.cli.echo import echo
from bucketize.cli.served import served_models
from bucketize.errors import BucketizeError

HOW = "pip install 'bucketize[serve]'"


@click.command(short_help="Serve models over HTTP, by the Open Inference Protocol.")
@click.argument("models", nargs=-1, required=True, metavar="[NAME[:VERSION]=]MODEL...")
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
    metavar="20ms",
    help="An answer is late after so long: a request that would be is refused (429).",
)
@click.option(
    "--waiting",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="Requests of a model that may wait; others are refused (429).",
)
@click.option(
    "--body-bytes",
    type=click.IntRange(1),
    default=64 << 20,
    show_default=True,
    help="Of a request, at most (413).",
)
@click.option(
    "--limit-bytes",
    type=click.IntRange(1),
    help="Of a model: its weights and its calls. A call that takes more is cut, or refused (400).",
)
@click.option(
    "--cores",
    type=click.IntRange(1),
    help="That calls of all models use at once. Default: those of this process.",
)
@click.option(
    "--traffic",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder: at the end, the sizes of each model's requests are written to NAME.csv there.",
)
@click.option(
    "--warm-up",
    is_flag=True,
    help="Run every clone once, at the start and of what replaces it; a model is ready after that.",
)
@click.option(
    "--planned",
    multiple=True,
    metavar="[NAME=]FILE",
    help="Sizes that requests are expected to have, as of --traffic: what differs is an alarm.",
)
@click.option(
    "--tokenizer",
    "tokenizers",
    multiple=True,
    metavar="[NAME=]PATH",
    help="A tokenizer.json, or a folder that has one: texts are taken at /v1/embeddings.",
)
def serve(
    models: tuple[str, ...], bounds: list[parameter.Bound], host: str, port: int, **options: Any
) -> None:
    """Serve MODELs: ONNX files, zoo:NAMEs, programs that `compile` saved, or folders.

    They answer at /v2/models/NAME/infer, as of the Open Inference Protocol (KServe, Triton), and by
    gRPC; /metrics is for Prometheus. Requests that come while others run share the next call, as
    `run_many` has it. A saved program is replaced by another one that is put in its place, while
    requests are served. SIGTERM or Ctrl-C: what waits is answered, then it ends.

    A folder is one that sentence-transformers saved, which takes texts at /v1/embeddings, too; or
    it has a model at each NAME/VERSION/model.bkt. Of several versions the highest answers, unless a
    client asks for another. What is said of dispatchers, dims and logs is for ONNX files.

    \b
    Examples:
      bucketize serve encoder.bkt --latency 20ms
      bucketize serve small=zoo:bert-mini zoo:mlp -d log --port 9000 --grpc-port 9001
      bucketize serve net=old.bkt net:2=new.bkt --planned net=may.csv
      bucketize serve all-minilm/
      curl localhost:8000/v2/models/mlp/infer -d '{"inputs": [{"name": "data",
        "datatype": "FP32", "shape": [1, 784], "data": [...]}]}'
    """
    rpc_port = options["grpc_port"]
    try:
        from bucketize.machine.target import cores
        from bucketize.serve.listen import check_ports, run
        from bucketize.serve.queue import Queue, seconds
        from bucketize.serve.server import Server, check_writable

        if rpc_port is not None:
            import bucketize.serve.grpc  # noqa: F401  # what is missing is told first
    except ModuleNotFoundError as e:
        raise BucketizeError(f"the server needs {e.name}: {HOW}") from e

    check_ports(host, port, rpc_port)
    check_writable(options["traffic"])
    queue = Queue(options["cores"] or cores(), options["waiting"], seconds(options["latency"]))
    served = served_models(models, bounds, options)
    how = options["body_bytes"], options["traffic"]
    server = Server(served, queue, *how, warm_up=options["warm_up"])
    run(server, host, port, rpc_port, echo)
