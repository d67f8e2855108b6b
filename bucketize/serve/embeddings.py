"""`/v1/embeddings`: vectors of texts, in the form that OpenAI's clients speak.

Source: https://platform.openai.com/docs/api-reference/embeddings
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bucketize.errors import ArgumentError
from bucketize.op import Array, Value
from bucketize.serve.protocol import listed, malformed

if TYPE_CHECKING:
    from bucketize.integrations.sentence_transformers import SentenceTransformer

LONGEST = 1 << 18  # characters of a text: what a tokenizer splits in some tenths of a second
FORMATS = ("float", "base64")


@dataclass(frozen=True)
class EmbeddingRequest:
    """What is asked for."""

    model: str
    texts: tuple[str, ...]
    format: str

    @classmethod
    def of(cls, asked: Mapping[str, Any], most: int) -> EmbeddingRequest:
        """A request; ArgumentError says what is wrong with it.

        Args:
            asked: as `parsed` gives it.
            most: texts.

        """
        if "input" not in asked:
            raise malformed("no request for embeddings", KeyError("input"))
        how = asked.get("encoding_format") or FORMATS[0]
        if how not in FORMATS:
            raise ArgumentError(f"encoding_format: expected {' or '.join(FORMATS)}, got {how!r}")
        if asked.get("dimensions") is not None:
            raise ArgumentError("dimensions are the model's: vectors cannot be cut")
        return cls(str(asked["model"]), _texts(asked["input"], most), how)


def parsed(body: bytes | bytearray) -> dict[str, Any]:
    """JSON that names a model; ArgumentError says what is wrong with it."""
    try:
        asked: dict[str, Any] = json.loads(body)
        str(asked["model"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise malformed("no request for embeddings", e) from e
    return asked


def _texts(given: Any, most: int) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ArgumentError("input: expected a text or a list of texts; tokens are not taken")
    if not 0 < len(texts) <= most:
        raise ArgumentError(f"input: expected 1 to {most} texts, got {len(texts)}")
    for i, text in enumerate(texts):
        if not 0 < len(text) <= LONGEST:
            wanted = f"expected 1 to {LONGEST} characters"
            raise ArgumentError(f"input, text {i}: {wanted}, got {len(text)}")
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise ArgumentError(f"input, text {i}: {e.reason}") from e
    return tuple(texts)


def written(
    request: EmbeddingRequest,
    encoder: SentenceTransformer,
    results: Sequence[Sequence[Value]],
    tokens: int,
) -> bytes:
    """The body of an answer, by what the model gave for each text."""
    rows = [
        {"object": "embedding", "index": i, "embedding": _encoded(vector, request.format)}
        for i, vector in enumerate(encoder.vectors(results))
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer = {"object": "list", "data": rows, "model": request.model, "usage": usage}
    return json.dumps(answer, allow_nan=False).encode()


def _encoded(vector: Array, how: str) -> Any:
    if how == "float":
        return listed("an embedding", vector, 'ask for "encoding_format": "base64"')
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
