"""The models that `bucketize serve` is given: files, folders, what is said of each by its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bucketize.cli.model import compiled, dispatched, is_saved, load_model, name_of
from bucketize.cli.parameter import Bound

if TYPE_CHECKING:
    from bucketize.executable import Executable
    from bucketize.integrations.sentence_transformers import SentenceTransformer
    from bucketize.serve.drift import DriftAlarm
    from bucketize.serve.model import ServedModel

FILES = ("model.bkt", "model.onnx")
"""In a folder of versions, as Triton has them; the first that is there."""
FIRST = "1"


def served_models(
    texts: Sequence[str], bounds: list[Bound], options: Mapping[str, Any]
) -> list[ServedModel]:
    """Each MODEL, loaded or compiled, by the options of the command."""
    sources: dict[tuple[str, str], str] = {}
    for name, version, source in (each for text in texts for each in _models(text)):
        if (name, version) in sources:
            what = f"two models are called {name}, version {version}"
            raise click.UsageError(f"{what}: give names, as in NAME={source} or NAME:2={source}")
        sources[name, version] = source
    names = {name for name, _ in sources}
    tokenizers = _by_name("--tokenizer", options["tokenizers"], names)
    plans = _by_name("--planned", options["planned"], names)
    return [
        _served(*key, source, bounds, {**options, "tokenizer": tokenizers, "plan": plans})
        for key, source in sources.items()
    ]


def _models(text: str) -> Iterator[tuple[str, str, str]]:
    """Name, version and source of [NAME[:VERSION]=]MODEL, or of each that a folder holds."""
    from bucketize.serve.model import named

    called, source = named(text)
    folder = Path(source)
    if folder.is_dir() and not _is_encoder(source):
        if called:
            raise click.UsageError(f"{text}: a folder of models has names of its own")
        yield from _in_folder(folder)
        return
    own = folder.resolve().name if folder.is_dir() else name_of(source)
    name, _, version = (called or own).partition(":")
    version = version or FIRST
    if not version.isdecimal() or int(version) < 1:
        raise click.UsageError(f"{text}: a version is a number from 1, got {version!r}")
    yield name, str(int(version)), source


def _in_folder(folder: Path) -> Iterator[tuple[str, str, str]]:
    """What stands at NAME/VERSION/model.bkt."""
    places = [p for p in sorted(folder.glob("*/*")) if p.is_dir() and p.name.isdecimal()]
    files = [next((p / f for f in FILES if (p / f).exists()), None) for p in places]
    if not any(files):
        wanted = "onnx/model.onnx, as sentence-transformers saves it, or NAME/VERSION/model.bkt"
        raise click.UsageError(f"{folder} holds no model: expected {wanted}")
    for place, file in zip(places, files, strict=True):
        if file is not None and not int(place.name):
            raise click.UsageError(f"{place}: a version is a number from 1")
        if file is not None:
            yield place.parent.name, str(int(place.name)), str(file)


def _is_encoder(source: str) -> bool:
    return (Path(source) / "onnx" / "model.onnx").exists()


def _by_name(option: str, values: Iterable[str], names: set[str]) -> dict[str, str]:
    """What an option has for each model, from [NAME=]VALUE; without a name it is for all."""
    from bucketize.serve.model import named

    pairs = [named(value) for value in values]
    for name, _ in pairs:
        if name and name not in names:
            those = ", ".join(sorted(names))
            raise click.UsageError(f"{option}: no model {name}; there are {those}")
    everywhere = {name: value for own, value in pairs if not own for name in names}
    return {**everywhere, **{name: value for name, value in pairs if name}}


def _served(
    name: str, version: str, source: str, bounds: list[Bound], options: Mapping[str, Any]
) -> ServedModel:
    from bucketize.loader import identity
    from bucketize.serve.model import ServedModel

    tokenizer = options["tokenizer"].get(name)
    encoder, loaded = None, identity(source)
    if _is_encoder(source):
        encoder = _encoder(source, tokenizer, options["threads"])
    executable = encoder.executable if encoder else _executable(source, bounds, options)
    if encoder is None and tokenizer is not None:
        encoder = _encoder(executable, tokenizer)
    executable.limit(options["limit_bytes"])
    path = Path(source) if is_saved(source) else None
    drift = _drift(options["plan"].get(name))
    model = ServedModel(name, version, executable, path, encoder, drift)
    model.identity = path and loaded  # not of what took its place since
    return model


def _encoder(
    model: str | Executable, tokenizer: str | None, threads: int = 1
) -> SentenceTransformer:
    from bucketize.integrations.sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(model, tokenizer, threads=threads)
    encoder.requests(["one"])  # what the model asks for is looked at now
    return encoder


def _drift(plan: str | None) -> DriftAlarm | None:
    if plan is None:
        return None
    from bucketize.cli.bucket.traffic import read_traffic
    from bucketize.serve.drift import DriftAlarm

    return DriftAlarm(read_traffic(plan))


def _executable(source: str, bounds: list[Bound], options: Mapping[str, Any]) -> Executable:
    from bucketize.loader import load

    if is_saved(source):
        return load(source)
    loaded = load_model(source, bounds)
    return compiled(dispatched(loaded, options), log=options["log"], threads=options["threads"])
