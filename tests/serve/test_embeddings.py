"""`/v1/embeddings`, of a folder that sentence-transformers saved and of a saved program."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_sentence_transformers import TEXTS, folder, model
from test_server import Process

import bucketize
from bucketize.cli.served import _models
from bucketize.errors import ArgumentError
from bucketize.integrations.sentence_transformers import SentenceTransformer
from bucketize.serve.embeddings import LONGEST, EmbeddingRequest, written

_ = folder  # a fixture of theirs
PATH = "/v1/embeddings"


@pytest.fixture
def its(folder: Path) -> Iterator[Process]:
    exe = bucketize.compile(bucketize.ragged(bucketize.from_onnx(model())))
    exe.save(folder / "saved.bkt")
    zoo = ("zoo:mlp",)
    tokenizers = ("--tokenizer", f"saved={folder}")
    models = f"encoder={folder}", "saved.bkt", *zoo
    with Process(folder, *models, *tokenizers, "--waiting", "9") as process:
        yield process
        process.end()


def test_texts_are_answered_by_their_vectors(its: Process, folder: Path) -> None:
    want = SentenceTransformer(folder).encode(TEXTS)
    tokens = sum(r["input_ids"].size for r in SentenceTransformer(folder).requests(TEXTS))

    def ask(**asked: Any) -> tuple[int, Any]:
        status, _, content = its.client.ask(PATH, json.dumps(asked).encode())
        return status, json.loads(content)

    for name in ("encoder", "saved", "encoder:1"):
        status, told = ask(model=name, input=TEXTS)
        assert (status, told["object"], told["model"]) == (200, "list", name)
        assert told["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert [(d["object"], d["index"]) for d in told["data"]] == [
            ("embedding", i) for i in range(len(TEXTS))
        ]
        np.testing.assert_allclose([d["embedding"] for d in told["data"]], want, atol=1e-5)
    _, told = ask(model="encoder", input=TEXTS[2], encoding_format="base64")
    vector = np.frombuffer(base64.b64decode(told["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(vector, want[2], atol=1e-5)

    def own(i: int) -> bool:
        _, told = ask(model="saved", input=TEXTS[i % 4])
        return np.allclose(told["data"][0]["embedding"], want[i % 4], atol=1e-5)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(own, range(64)))
    wrong: list[tuple[dict[str, Any], int, str]] = [
        ({"input": "a"}, 400, "no request for embeddings: it lacks 'model'"),
        ({"model": "encoder", "input": [1, 2]}, 400, "expected a text or a list of texts; tokens"),
        ({"model": "encoder", "input": []}, 400, "expected 1 to 9 texts, got 0"),
        ({"model": "encoder", "input": ["a"] * 10}, 400, "expected 1 to 9 texts, got 10"),
        ({"model": "encoder", "input": ["a", ""]}, 400, "text 1: expected 1 to 262144 characters"),
        ({"model": "encoder", "input": "a" * (LONGEST + 1)}, 400, "got 262145"),
        ({"model": "encoder", "input": "a", "dimensions": 3}, 400, "vectors cannot be cut"),
        (
            {"model": "encoder", "input": "a", "encoding_format": "hex"},
            400,
            "encoding_format: expected float or base64, got 'hex'",
        ),
        ({"model": "encoder", "input": "\ud800"}, 400, "text 0: surrogates not allowed"),
        ({"model": "\ud800", "input": "a"}, 404, r"no model \ud800; there are encoder"),
        ({"model": "mlp", "input": "a"}, 400, "mlp has no tokenizer: it takes tensors alone"),
        ({"model": "nope", "input": "a"}, 404, "no model nope; there are encoder, mlp, saved"),
    ]
    for asked, code, message in wrong:
        status, told = ask(**asked)
        assert (status, told["error"]["type"]) == (code, "invalid_request_error")
        assert message in told["error"]["message"]
    status, _, content = its.client.ask(PATH, b"[" * 100_000)
    assert (status, b"nests too deep" in content) == (400, True)
    text = its.client.ask("/metrics")[2].decode()
    assert 'bucketize_requests_total{model="encoder",status="200",version="1"} 3.0' in text
    assert 'bucketize_requests_total{model="encoder",status="400",version="1"} 8.0' in text


def test_a_text_that_the_model_has_no_room_for_is_named(tmp_path: Path, folder: Path) -> None:
    bounded = bucketize.from_onnx(model(), bounds={"S": (1, 4)})
    bucketize.compile(bucketize.ragged(bounded)).save(tmp_path / "short.bkt")
    with Process(tmp_path, "short.bkt", "--tokenizer", str(folder / "tokenizer.json")) as its:
        asked = {"model": "short", "input": ["a", TEXTS[2], TEXTS[2], "one"]}
        status, _, content = its.client.ask(PATH, json.dumps(asked).encode())
        assert status == 400
        assert json.loads(content)["error"]["message"].endswith("got 14; in text 1")
        asked["input"] = ["a", "one"]
        assert its.client.ask(PATH, json.dumps(asked).encode())[0] == 200
        assert its.end() == ""


def test_a_vector_that_json_has_no_words_for_is_refused(folder: Path) -> None:
    encoder = SentenceTransformer(folder)
    results = [[np.full((1, 2, 6), np.nan, np.float32)]]
    told = EmbeddingRequest.of({"model": "m", "input": "a", "encoding_format": "base64"}, 9)
    (row,) = json.loads(written(told, encoder, results, 2))["data"]
    assert np.isnan(np.frombuffer(base64.b64decode(row["embedding"]), "<f4")).all()
    with pytest.raises(ArgumentError, match="an embedding has NaN or infinit"):
        written(replace(told, format="float"), encoder, results, 2)


def test_a_folder_is_called_as_it_is(tmp_path: Path) -> None:
    """A file's name ends before its suffix; a folder has none."""
    place = tmp_path / "small-v1.5"
    (place / "onnx").mkdir(parents=True)
    (place / "onnx" / "model.onnx").touch()
    assert [*_models(f"{place}/")] == [("small-v1.5", "1", f"{place}/")]
    assert [*_models("x:2=a/net-v1.5.bkt"), *_models("a/net-v1.5.bkt")] == [
        ("x", "2", "a/net-v1.5.bkt"),
        ("net-v1.5", "1", "a/net-v1.5.bkt"),
    ]


def test_a_model_that_takes_no_tokens_is_refused_at_the_start(run: Any, folder: Path) -> None:
    told = run("serve", "zoo:mlp", "--tokenizer", str(folder))
    assert told.exit_code == 2
    assert "the model asks for data, which no tokenizer gives" in told.stderr
