"""`SentenceTransformer`: texts to vectors by packed rows, of a folder of sentence-transformers.

Of sentence-transformers' own only the layout of its folders and the face of `encode` are here: the
model runs by `Executable.run_many`, texts are split by the package `tokenizers`, nothing else is
imported, and nothing is downloaded. Source:
https://sbert.net/docs/sentence_transformer/usage/efficiency.html (backend="onnx").
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bucketize.compiler import compile
from bucketize.errors import ArgumentError, EngineError, RaggedError, ShapeError, unknown_name, warn
from bucketize.executable import Executable
from bucketize.ir import Module
from bucketize.onnx import from_onnx
from bucketize.op import Array, Value
from bucketize.ragged.ragged import ragged

Tokenizer: TypeAlias = Any
"""A `tokenizers.Tokenizer`, or a fast tokenizer of transformers, which has one inside."""

MODEL = "onnx/model.onnx"
MOST_TOKENS = (1 << 31) - 1  # of a text: tokenizers count them in so many
EMBEDDING = "sentence_embedding"
SPREAD = "pooling_mode_"


def _mean(tokens: Array) -> Array:
    return np.asarray(tokens.mean(axis=0))


POOLINGS: Mapping[str, Callable[[Array], Array]] = {
    "mean": _mean,
    "cls": lambda tokens: tokens[0],
    "max": lambda tokens: np.asarray(tokens.max(axis=0)),
    "mean_sqrt_len": lambda tokens: np.asarray(tokens.sum(axis=0) / np.sqrt(len(tokens))),
    "lasttoken": lambda tokens: tokens[-1],
}
"""From the vectors of a text's tokens to its own."""
MODES = {
    "mean_tokens": "mean",
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "lasttoken": "lasttoken",
}
"""Names of poolings in the files of sentence-transformers, and here."""


class SentenceTransformer:
    """An encoder of texts, whatever their lengths."""

    def __init__(
        self,
        model: str | os.PathLike[str] | Module | Executable,
        tokenizer: Tokenizer = None,
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_seq_length: int | None = None,
        threads: int = 1,
    ) -> None:
        """Read a folder, or take a model and its tokenizer.

        A model that rows of unequal lengths cannot be packed for is run text by text, of which a
        BucketizeWarning says why.

        Args:
            model: a folder as sentence-transformers saves it, with `onnx/model.onnx`; or a module
                of token ids, or what it was compiled to.
            tokenizer: a `tokenizers.Tokenizer` or a fast tokenizer of transformers; the path of its
                `tokenizer.json`, or of a folder, which says the rest, too; None: that of the model.
            pooling: "mean", "cls", "max", "mean_sqrt_len" or "lasttoken" of the vectors of tokens,
                where the model gives these; None: as the folder says, else "mean".
            normalize: whether vectors get the length 1; None: as the folder says, else no.
            max_seq_length: tokens of a text, of which others are cut off; None: as the folder says,
                else none is.
            threads: that share each kernel.

        Raises:
            ArgumentError: no folder, or no tokenizer.
            EngineError: the package tokenizers is not installed.
            ShapeError: a folder with a module that is not supported.
            UnknownNameError: no such pooling.

        """
        paths = [Path(each) for each in (model, tokenizer) if isinstance(each, str | os.PathLike)]
        if not isinstance(model, Module | Executable):
            _check(paths[0])
        settings = _settings(paths[0]) if paths else {}
        if tokenizer is None or isinstance(tokenizer, str | os.PathLike):
            tokenizer = _tokenizer(paths[-1]) if paths else None
        if not isinstance(model, Executable):
            mod = model if isinstance(model, Module) else from_onnx(Path(model) / MODEL)
            model = _compiled(mod, threads)
        self.executable = model
        self.pooling = pooling or settings.get("pooling", "mean")
        if self.pooling not in POOLINGS:
            raise unknown_name("pooling", self.pooling, POOLINGS)
        self.normalize = settings.get("normalize", False) if normalize is None else normalize
        self.max_seq_length = max_seq_length or settings.get("max_seq_length")
        self.do_lower_case = bool(settings.get("do_lower_case"))
        self._tokenizer = _own(tokenizer, self.max_seq_length)

    def encode(
        self, sentences: str | Sequence[str], *, normalize_embeddings: bool | None = None
    ) -> Array:
        """The vectors of texts.

        Args:
            sentences: a text, or several.
            normalize_embeddings: whether vectors get the length 1; None: as was said before.

        Returns:
            float32[texts, features], or float32[features] of one text.

        Raises:
            RequestsError: some texts cannot be run, as they have more tokens than the model takes.

        """
        alone = isinstance(sentences, str)
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        results = self.executable.run_many(self.requests(texts))
        all_ = self.vectors(results, normalize_embeddings)
        return np.asarray(all_[0] if alone else all_)

    def requests(self, texts: Sequence[str]) -> list[dict[str, Array]]:
        """The inputs of the model of each text: its tokens, from any thread.

        Space around a text is left out; capitals are small where the folder says `do_lower_case`.

        Args:
            texts: as of `encode`.

        Returns:
            Arrays by name, of one row each.

        Raises:
            ArgumentError: a text that the tokenizer cannot split.
            ShapeError: the model asks for what no tokenizer gives.

        """
        stripped = [text.strip() for text in texts]  # as sentence-transformers does
        if self.do_lower_case:
            stripped = [text.lower() for text in stripped]
        try:
            encoded = self._tokenizer.encode_batch(stripped)
        except Exception as e:  # it has no kind of its own
            raise ArgumentError(f"the tokenizer cannot split the texts: {e}") from e
        return [self._feed(each) for each in encoded]

    def vectors(
        self, results: Iterable[Sequence[Value]], normalize_embeddings: bool | None = None
    ) -> Array:
        """The vectors of texts, by what the model gave for `requests`.

        Args:
            results: of each text.
            normalize_embeddings: as of `encode`.

        Returns:
            float32[texts, features].

        """
        place = self._place()
        vectors = [self._pooled(np.asarray(result[place])) for result in results]
        all_ = np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)
        if self.normalize if normalize_embeddings is None else normalize_embeddings:
            lengths = np.linalg.norm(all_, axis=1, keepdims=True)
            all_ = all_ / np.maximum(lengths, np.finfo(np.float32).tiny)
        return np.asarray(all_, np.float32)

    def _feed(self, encoding: Any) -> dict[str, Array]:
        """The inputs that the model asks for, of one text."""
        given = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        names = self.executable.inputs
        if others := [n for n in names if n not in given]:
            raise ShapeError(f"the model asks for {', '.join(others)}, which no tokenizer gives")
        return {name: np.array([given[name]], np.int64) for name in names}

    def _place(self) -> int:
        outputs = self.executable.outputs
        return outputs.index(EMBEDDING) if EMBEDDING in outputs else 0

    def _pooled(self, result: Array) -> Array:
        """The vector of a text, from one of it or those of its tokens."""
        (first,) = result
        return POOLINGS[self.pooling](first) if first.ndim > 1 else first


def _compiled(mod: Module, threads: int) -> Executable:
    try:
        packed = ragged(mod)
    except (RaggedError, ArgumentError) as e:  # an op, or no input that is called a mask
        warn(f"texts are run one by one, their tokens cannot be packed: {e}")
        packed = mod
    return compile(packed, threads=threads)


def _own(tokenizer: Tokenizer, most: int | None) -> Any:
    """A tokenizer that nobody else changes: it cuts texts, and pads none."""
    own: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(own, "encode_batch"):
        wanted = "a tokenizers.Tokenizer, or a fast tokenizer of transformers"
        raise ArgumentError(f"tokenizer: expected {wanted}, got {tokenizer!r}")
    own = type(own).from_str(own.to_str())
    own.no_padding()
    if most is None:
        own.no_truncation()
    else:
        own.enable_truncation(most)
    return own


def _tokenizer(place: Path) -> Tokenizer:
    path = place / "tokenizer.json" if place.is_dir() else place
    if not path.exists():
        raise ArgumentError(f"there is no {path}: give a tokenizer")
    try:
        tokenizers: Any = importlib.import_module("tokenizers")
    except ImportError as e:
        raise EngineError("tokenizers is not installed: pip install tokenizers") from e
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as e:  # it has no kind of its own
        raise ArgumentError(f"{path} is no tokenizer: {e}") from e


def _check(folder: Path) -> None:
    if not (folder / MODEL).exists():
        how = "as sentence-transformers saves a model with backend='onnx'; nothing is downloaded"
        raise ArgumentError(f"there is no {folder / MODEL}: expected a folder {how}")


def _settings(folder: Path) -> dict[str, Any]:
    """How a folder has its vectors pooled, normalised, and its texts split; a file says nothing."""
    settings: dict[str, Any] = {}
    for kind, path in _modules(folder / "modules.json"):
        if kind == "Pooling":
            settings["pooling"] = _pooling(_json(folder / path / "config.json") or {})
        elif kind == "Normalize":
            settings["normalize"] = True
        elif kind != "Transformer":
            raise ShapeError(f"{folder}: modules of kind {kind} are not supported")
    file = folder / "sentence_bert_config.json"
    own = _json(file) or {}
    most = own.get("max_seq_length")
    if most is not None and (type(most) is not int or not 1 <= most <= MOST_TOKENS):
        wanted = f"expected a number from 1 to {MOST_TOKENS}"
        raise ShapeError(f"{file}: max_seq_length: {wanted}, got {most!r}")
    return settings | {
        name: own[name] for name in ("max_seq_length", "do_lower_case") if name in own
    }


def _modules(file: Path) -> list[tuple[str, str]]:
    """Kinds and folders of modules, in their order."""
    modules = _json(file) or []
    try:
        return [(each["type"].rpartition(".")[2], str(each["path"])) for each in modules]
    except (KeyError, TypeError, AttributeError) as e:
        raise ShapeError(f"{file}: expected a list of objects with type and path") from e


def _pooling(config: Mapping[str, Any]) -> str:
    chosen = [n.removeprefix(SPREAD) for n, on in config.items() if n.startswith(SPREAD) and on]
    if len(chosen) != 1 or chosen[0] not in MODES:
        shown = ", ".join(chosen) or "none"
        raise ShapeError(f"one pooling of {', '.join(MODES)} is supported, the folder has {shown}")
    return MODES[chosen[0]]


def _json(path: Path) -> Any:
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text())
    except ValueError as e:
        raise ShapeError(f"{path} is no JSON: {e}") from e
