"""Texts to vectors: a folder as sentence-transformers saves it, read without that package."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import tokenizers
from onnx_model import parse

import bucketize
from bucketize.errors import ArgumentError, EngineError, RequestsError, ShapeError, UnknownNameError
from bucketize.integrations.sentence_transformers import SentenceTransformer

pytestmark = pytest.mark.usefixtures("few_registers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "short", "text", "or", "long", "##er", "one"]
TEXTS = ["a short text", "one", "a longer text or a short one or a long one", "unknown"]
BODY = (
    "<float one = {1}, float low = {-10000}, int64[1] a1 = {1}> "
    "{ e = Gather(table, input_ids) t = Transpose<perm = [0, 2, 1]>(e) s = MatMul(e, t) "
    "f = Cast<to = 1>(attention_mask) h = Sub(one, f) v = Mul(h, low) u = Unsqueeze(v, a1) "
    "z = Add(s, u) p = Softmax<axis = 2>(z) last_hidden_state = MatMul(p, e) }"
)
ENCODER = "(int64[B, S] input_ids, int64[B, S] attention_mask) => (last_hidden_state) "
TABLE = np.random.default_rng(0).standard_normal((len(WORDS), 6)).astype(np.float32)


def model(graph: str = ENCODER + BODY) -> onnx.ModelProto:
    proto = parse(graph)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(TABLE, "table"))
    return proto


def tokenizer() -> tokenizers.Tokenizer:
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(tmp_path)


def saved(folder: Path) -> Path:
    (folder / "onnx").mkdir(parents=True)
    onnx.save(model(), folder / "onnx" / "model.onnx")
    tokenizer().save(str(folder / "tokenizer.json"))
    kinds = {"0_T": "Transformer", "1_P": "Pooling", "2_N": "Normalize"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 8}')
    pooled(folder, mean_tokens=True, cls_token=False)
    return folder


def pooled(folder: Path, **modes: bool) -> None:
    (folder / "1_P").mkdir(exist_ok=True)
    config = {f"pooling_mode_{name}": on for name, on in modes.items()}
    (folder / "1_P" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 6, **config})
    )


def vectors(text: str, most: int) -> np.ndarray:
    """The vectors of a text's tokens."""
    encoding = tokenizer()
    encoding.enable_truncation(most)
    x = TABLE[encoding.encode(text).ids]
    scores = np.exp(x @ x.T)
    return scores / scores.sum(axis=1, keepdims=True) @ x


def test_a_folder_says_how_texts_are_encoded(folder: Path) -> None:
    encoder = SentenceTransformer(folder)
    got = encoder.encode(TEXTS)
    want = np.stack([vectors(text, 8).mean(axis=0) for text in TEXTS])
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(TEXTS[0]), want[0], atol=1e-5)
    raw = encoder.encode(TEXTS, normalize_embeddings=False)
    assert not np.allclose(np.linalg.norm(raw, axis=1), 1)
    assert encoder.encode([]).shape == (0, 0)
    calls = encoder.executable.plan_many(encoder.requests(TEXTS)).calls
    assert len(calls) == 1


def test_texts_are_stripped_and_in_small_letters_where_a_folder_says_so(folder: Path) -> None:
    own = tokenizer()
    own.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "isolated")
    own.save(str(folder / "tokenizer.json"))
    texts = ["a short text", " a short text\n", "a Short text", "a SHORT text\t"]
    for lower, count in ((False, 2), (True, 1)):
        config = {"max_seq_length": 8, "do_lower_case": lower}
        (folder / "sentence_bert_config.json").write_text(json.dumps(config))
        ids = [r["input_ids"].tolist() for r in SentenceTransformer(folder).requests(texts)]
        assert len({str(i) for i in ids}) == count
        assert ids[0] == ids[1]


POOLED = {
    "mean": lambda x: x.mean(axis=0),
    "cls": lambda x: x[0],
    "max": lambda x: x.max(axis=0),
    "mean_sqrt_len": lambda x: x.sum(axis=0) / np.sqrt(len(x)),
    "lasttoken": lambda x: x[-1],
}


@pytest.mark.parametrize("pooling", POOLED)
def test_how_tokens_are_pooled(pooling: str) -> None:
    mod = bucketize.from_onnx(model())
    wrapped = SimpleNamespace(backend_tokenizer=tokenizer())  # as a tokenizer of transformers
    encoder = SentenceTransformer(mod, wrapped, pooling=pooling)
    want = [POOLED[pooling](vectors(text, 99)) for text in TEXTS]
    np.testing.assert_allclose(encoder.encode(TEXTS), want, atol=1e-5)


def test_the_first_token_by_a_folder(folder: Path) -> None:
    pooled(folder, mean_tokens=False, cls_token=True)
    got = SentenceTransformer(folder, max_seq_length=4, normalize=False).encode(TEXTS)
    np.testing.assert_allclose(got, [vectors(text, 4)[0] for text in TEXTS], atol=1e-5)


def test_a_compiled_model_and_the_folder_of_its_tokenizer(folder: Path) -> None:
    exe = bucketize.compile(bucketize.ragged(bucketize.from_onnx(model())))
    want = SentenceTransformer(folder).encode(TEXTS)
    np.testing.assert_allclose(SentenceTransformer(exe, folder).encode(TEXTS), want, atol=1e-5)
    alone = SentenceTransformer(exe, folder / "tokenizer.json", max_seq_length=8)
    raw = [vectors(text, 8).mean(axis=0) for text in TEXTS]
    np.testing.assert_allclose(alone.encode(TEXTS), raw, atol=1e-5)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ArgumentError, match=r"tokenizer.json is no tokenizer: "):
        SentenceTransformer(exe, folder)
    with pytest.raises(ArgumentError, match=r"tokenizer: expected a tokenizers.Tokenizer"):
        SentenceTransformer(exe)


def test_a_tokenizer_of_several_encoders_stays_as_it_is() -> None:
    exe, own = bucketize.compile(bucketize.from_onnx(model())), tokenizer()
    short, long = (SentenceTransformer(exe, own, max_seq_length=n) for n in (4, None))
    assert own.truncation is None
    assert [len(e.requests(TEXTS[2:3])[0]["input_ids"][0]) for e in (short, long)] == [4, 14]


def test_a_model_that_pools_by_itself() -> None:
    graph = ENCODER.replace("(last_hidden_state)", "(last_hidden_state, sentence_embedding)")
    ends = (
        BODY[:-1]
        + "first = Gather<axis = 1>(last_hidden_state, i0) sentence_embedding = Neg(first) }"
    )
    mod = bucketize.from_onnx(model(graph + ends.replace("<float", "<int64 i0 = {0}, float")))
    got = SentenceTransformer(mod, tokenizer()).encode(TEXTS)
    np.testing.assert_allclose(got, [-vectors(text, 99)[0] for text in TEXTS], atol=1e-5)


def test_a_model_that_cannot_be_packed_says_so() -> None:
    graph = ENCODER + BODY[:-1] + "m = ReduceMean<axes = [1]>(last_hidden_state) "
    mod = bucketize.from_onnx(model(graph.replace("=> (last_hidden_state)", "=> (m)") + "}"))
    with pytest.warns(bucketize.errors.BucketizeWarning, match=r"run one by one.*reduce_mean"):
        encoder = SentenceTransformer(mod, tokenizer())
    want = [vectors(text, 99).mean(axis=0) for text in TEXTS]
    np.testing.assert_allclose(encoder.encode(TEXTS), want, atol=1e-5)
    again = SentenceTransformer(bucketize.compile(mod), tokenizer())  # what is compiled stays
    np.testing.assert_array_equal(again.encode(TEXTS[:1]), encoder.encode(TEXTS[:1]))


def test_what_is_wrong_with_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="nothing is downloaded"):
        SentenceTransformer("sentence-transformers/all-MiniLM-L6-v2")
    pooled(folder, mean_tokens=True, cls_token=True)
    with pytest.raises(
        ShapeError, match=r"one pooling of .* the folder has mean_tokens, cls_token"
    ):
        SentenceTransformer(folder)
    pooled(folder, weightedmean_tokens=True)
    with pytest.raises(ShapeError, match="the folder has weightedmean_tokens"):
        SentenceTransformer(folder)
    pooled(folder, mean_tokens=True)
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(EngineError, match="pip install tokenizers"):
        SentenceTransformer(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ArgumentError, match=r"there is no .*tokenizer.json: give a tokenizer"):
        SentenceTransformer(folder)
    (folder / "modules.json").write_text('[{"path": "1", "type": "a.Dense"}]')
    with pytest.raises(ShapeError, match="modules of kind Dense are not supported"):
        SentenceTransformer(folder)
    (folder / "modules.json").write_text("[")
    with pytest.raises(ShapeError, match=r"modules.json is no JSON"):
        SentenceTransformer(folder)
    for odd in ('{"a": 1}', '[{"path": "x"}]', "3"):
        (folder / "modules.json").write_text(odd)
        with pytest.raises(ShapeError, match=r"modules.json: expected a list of objects with type"):
            SentenceTransformer(folder)


@pytest.mark.parametrize("most", ["-5", '"8"', "8.0", "99999999999999999999", "true"])
def test_a_length_is_a_number_of_tokens(folder: Path, most: str) -> None:
    (folder / "sentence_bert_config.json").write_text(f'{{"max_seq_length": {most}}}')
    with pytest.raises(ShapeError, match=r"config.json: max_seq_length: expected a number from 1"):
        SentenceTransformer(folder)


def test_a_text_that_the_tokenizer_cannot_split_is_an_error_of_it(folder: Path) -> None:
    own = tokenizers.Tokenizer(tokenizers.models.WordPiece({"a": 0}, unk_token="[UNK]"))
    own.save(str(folder / "tokenizer.json"))
    with pytest.raises(ArgumentError, match=r"the tokenizer cannot split the texts: .*UNK"):
        SentenceTransformer(folder).requests(["zzz"])


def test_what_is_no_encoder() -> None:
    mod = bucketize.from_onnx(model())
    with pytest.raises(UnknownNameError, match="pooling named 'sum'"):
        SentenceTransformer(mod, tokenizer(), pooling="sum")
    with pytest.raises(ArgumentError, match=r"tokenizer: expected a tokenizers.Tokenizer"):
        SentenceTransformer(mod, len)
    other = bucketize.from_onnx(
        model(ENCODER.replace("attention_mask)", "attention_mask, float[4] c)") + BODY)
    )
    with pytest.raises(ShapeError, match="the model asks for c, which no tokenizer gives"):
        SentenceTransformer(other, tokenizer()).encode("a text")
    bounded = bucketize.from_onnx(model(), bounds={"S": (1, 4)})
    with pytest.raises(RequestsError, match=r"1 of 4 requests failed: request 2: .* S in "):
        SentenceTransformer(bounded, tokenizer()).encode(["a", "or", TEXTS[2], "one"])
