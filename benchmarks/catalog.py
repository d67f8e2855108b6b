"""Architectures of torchvision and transformers, small and with random weights.

What is asked of them is which graphs the exporters make of real code, not how long a large product
takes. Nothing of torch is imported before a model is made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from bucketize.op import Array

Sizes: TypeAlias = Mapping[str, int]

WORDS = 1000  # of a vocabulary
BOUNDS = {
    "N": (1, 8),
    "H": (32, 512),
    "W": (32, 512),
    "B": (1, 8),
    "S": (1, 512),
    "P": (0, 512),
    "T": (400, 32000),
    "M": (1, 512),
}


@dataclass(frozen=True)
class Input:
    """An input of a model."""

    shape: tuple[int | str, ...]
    """A name is a dynamic axis."""
    kind: str = "floats"
    """Or "words", integers below `WORDS`; or "ones", a mask that hides nothing."""

    def array(self, sizes: Sizes) -> Array:
        """The same numbers whenever it is asked for."""
        shape = tuple(d if isinstance(d, int) else sizes[d] for d in self.shape)
        dice = np.random.default_rng(0)
        if self.kind == "floats":
            return dice.standard_normal(shape, np.float32)
        return dice.integers(0, WORDS, shape) if self.kind == "words" else np.ones(shape, np.int64)

    @property
    def axes(self) -> dict[int, str]:
        """The names of the dynamic axes."""
        return {axis: d for axis, d in enumerate(self.shape) if isinstance(d, str)}


def first(found: Any) -> Any:
    """The one tensor that a model returns, or the first of several."""
    return found if hasattr(found, "dtype") else found[0]


@dataclass(frozen=True)
class Architecture:
    """A model that can be made and exported."""

    make: Callable[[], Any]
    """A torch module, made anew."""
    inputs: Mapping[str, Input]
    points: Sequence[Sizes]
    """Where it is measured."""
    take: Callable[[Any], Any] = first
    """From what it returns to what is exported: a tensor, or several."""
    outputs: Sequence[str] = ("result",)

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """Bounds of its dynamic axes."""
        return {d: BOUNDS[d] for each in self.inputs.values() for d in each.axes.values()}

    def arrays(self, sizes: Sizes) -> dict[str, Array]:
        """Its inputs at some sizes."""
        return {name: each.array(sizes) for name, each in self.inputs.items()}


def vision(name: str, **config: Any) -> Any:
    """A model of torchvision."""
    return getattr(importlib.import_module("torchvision").models, name)(**config)


def untrained(home: str, name: str, **config: Any) -> Any:
    """A model of torchvision that stands on another one; neither fetches weights."""
    models = importlib.import_module(f"torchvision.models.{home}")
    return getattr(models, name)(weights=None, weights_backbone=None, **config)


def language(name: str, **config: Any) -> Any:
    """A model of transformers."""
    kind = getattr(importlib.import_module("transformers"), name)
    return kind(kind.config_class(**config))


def encoder(name: str, **config: Any) -> Any:
    """The encoder of a model of transformers."""
    return language(name, **config).get_encoder()


def decoder(name: str, **config: Any) -> Any:
    """A model of transformers that takes the keys and values of the past, and returns all."""
    torch: Any = importlib.import_module("torch")
    cache: Any = importlib.import_module("transformers.cache_utils").DynamicCache

    class Decoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = language(name, **config)

        def forward(self, input_ids: Any, **past: Any) -> Any:
            seen = cache()
            for i in range(len(past) // 2):
                seen.update(past[f"past_key_{i}"], past[f"past_value_{i}"], i)
            found = self.model(input_ids=input_ids, past_key_values=seen)
            kept = found.past_key_values.layers
            return found.logits, *(part for each in kept for part in (each.keys, each.values))

    return Decoder()


def reader(kind: str) -> Any:
    """Words or columns of pixels, read both ways by an LSTM or a GRU, and told at each step."""
    torch: Any = importlib.import_module("torch")
    nn = torch.nn

    class Reader(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, front: Any, width: int) -> None:
            super().__init__()
            self.front = front
            self.steps = getattr(nn, kind)(width, 128, bidirectional=True, batch_first=True)
            self.told = nn.Linear(256, 64)

        def forward(self, x: Any) -> Any:
            read = self.front(x)
            if read.dim() == 4:  # of an image: a step for each column
                read = read.mean(2).transpose(1, 2)
            return self.told(self.steps(read)[0])

    if kind == "GRU":
        return Reader(nn.Embedding(WORDS, 128), 128)
    shrink = (nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return Reader(nn.Sequential(*shrink, nn.Conv2d(64, 128, 3, padding=1), nn.ReLU()), 128)


IMAGE = Input(("N", 3, "H", "W"))
PICTURES: Sequence[Sizes] = [{"H": 320, "W": 320}, {"H": 240, "W": 400}]
DETECTED = ("boxes", "labels", "scores")
IMAGES: Sequence[Sizes] = [{"N": 1, "H": 96, "W": 96}, {"N": 1, "H": 224, "W": 224}]
WORD, SEEN = Input(("B", "S"), "words"), Input(("B", "S"), "ones")
TOKENS: Sequence[Sizes] = [{"B": 1, "S": 16}, {"B": 1, "S": 128}]
SOUNDS: Sequence[Sizes] = [{"B": 1, "T": 4000}, {"B": 1, "T": 16000}]
TEXT = {"input_ids": WORD, "attention_mask": SEEN}
SMALL = {"vocab_size": WORDS, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
HEADED = {**SMALL, "intermediate_size": 1024}


def image_model(name: str) -> Architecture:
    """A model of images of any extent."""
    return Architecture(partial(vision, name), {"x": IMAGE}, IMAGES)


def speech_model(name: str) -> Architecture:
    """A model of sound of any length."""
    return Architecture(
        partial(language, name, **HEADED), {"input_values": Input(("B", "T"))}, SOUNDS
    )


def text_model(name: str, **config: Any) -> Architecture:
    """A model of sequences of any length."""
    return Architecture(partial(language, name, **config), TEXT, TOKENS)


def found_boxes(found: Any) -> Any:
    """What a detector found in its only image: boxes, labels, scores."""
    return tuple(found[0][name] for name in DETECTED)


def detector(name: str) -> Architecture:
    """A model that finds boxes in an image."""
    make = partial(untrained, "detection", name)
    return Architecture(make, {"images": Input((1, 3, "H", "W"))}, PICTURES, found_boxes, DETECTED)


def segmenter(name: str, image: str) -> Architecture:
    """A model that tells each pixel's class."""
    make = partial(untrained, "segmentation", name)
    return Architecture(make, {image: IMAGE}, IMAGES, lambda found: found["out"])


def cached(name: str, layers: int, heads: int, width: int, **config: Any) -> Architecture:
    """A decoder of new words, that is given and returns keys and values of this width."""
    parts = [f"{part}_{i}" for i in range(layers) for part in ("key", "value")]
    past = {f"past_{part}": Input(("B", heads, "P", width)) for part in parts}
    return Architecture(
        partial(decoder, name, **config),
        {"input_ids": WORD, **past},
        [{"B": 1, "S": 1, "P": 64}, {"B": 1, "S": 16, "P": 0}],
        tuple,
        ("logits", *parts),
    )


ARCHITECTURES: Mapping[str, Architecture] = {
    **{
        name: image_model(name)
        for name in (
            *("efficientnet_b0", "shufflenet_v2_x1_0", "densenet121", "squeezenet1_1"),
            *("mobilenet_v3_small", "mnasnet0_5", "regnet_y_400mf", "convnext_tiny"),
        )
    },
    "swin": image_model("swin_t"),
    "swin_v2": image_model("swin_v2_t"),
    "vit": Architecture(
        partial(
            vision,
            "VisionTransformer",
            image_size=224,
            patch_size=16,
            num_layers=4,
            num_heads=6,
            hidden_dim=384,
            mlp_dim=1536,
        ),
        {"x": Input(("N", 3, 224, 224))},  # its positions are those of this extent
        [{"N": 1}, {"N": 2}],
    ),
    "resnet": Architecture(
        partial(language, "ResNetModel", depths=[2, 2, 2, 2], hidden_sizes=[128, 256, 512, 1024]),
        {"pixel_values": IMAGE},
        IMAGES,
    ),
    "googlenet": Architecture(
        partial(vision, "googlenet", aux_logits=False, init_weights=False), {"x": IMAGE}, IMAGES
    ),
    "lraspp": segmenter("lraspp_mobilenet_v3_large", "input"),
    "deeplabv3": segmenter("deeplabv3_mobilenet_v3_large", "x"),
    "segformer": Architecture(
        partial(
            language,
            "SegformerForSemanticSegmentation",
            hidden_sizes=[32, 64, 96, 128],
            decoder_hidden_size=128,
            num_attention_heads=[1, 2, 4, 8],
        ),
        {"pixel_values": IMAGE},
        IMAGES,
    ),
    "dinov2": Architecture(
        partial(
            language,
            "Dinov2Model",
            hidden_size=192,
            num_hidden_layers=4,
            num_attention_heads=3,
            image_size=224,
            patch_size=16,
        ),
        {"pixel_values": IMAGE},
        IMAGES,
    ),
    "mobilevit": Architecture(
        partial(
            language,
            "MobileViTModel",
            image_size=256,
            hidden_sizes=[64, 80, 96],
            neck_hidden_sizes=[16, 16, 24, 48, 64, 80, 320],
        ),
        {"pixel_values": IMAGE},
        IMAGES,
    ),
    "poolformer": Architecture(
        partial(language, "PoolFormerModel", depths=[1, 1, 2, 1], hidden_sizes=[64, 128, 192, 256]),
        {"pixel_values": IMAGE},
        IMAGES,
    ),
    "ssdlite": detector("ssdlite320_mobilenet_v3_large"),
    "fasterrcnn": detector("fasterrcnn_mobilenet_v3_large_320_fpn"),
    "retinanet": detector("retinanet_resnet50_fpn"),
    "crnn": Architecture(
        partial(reader, "LSTM"),
        {"x": Input(("N", 1, 32, "W"))},
        [{"N": 1, "W": w} for w in (64, 256)],
    ),
    "tagger": Architecture(partial(reader, "GRU"), {"x": WORD}, TOKENS),
    "bert": text_model("BertModel", **HEADED),
    "distilbert": text_model(
        "DistilBertModel", vocab_size=WORDS, dim=256, n_layers=4, n_heads=4, hidden_dim=1024
    ),
    "deberta": text_model(
        "DebertaV2Model",
        **HEADED,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=32,
    ),
    "gpt2": text_model(
        "GPT2Model", vocab_size=WORDS, n_embd=256, n_layer=4, n_head=4, use_cache=False
    ),
    "llama": text_model("LlamaModel", **HEADED, num_key_value_heads=2, use_cache=False),
    "gpt2-cache": cached(
        "GPT2LMHeadModel", 4, 4, 64, vocab_size=WORDS, n_embd=256, n_layer=4, n_head=4
    ),
    "llama-cache": cached("LlamaForCausalLM", 4, 2, 64, **HEADED, num_key_value_heads=2),
    "t5-encoder": text_model(
        "T5EncoderModel", vocab_size=WORDS, d_model=256, d_kv=64, d_ff=1024, num_layers=4
    ),
    "whisper-encoder": Architecture(
        partial(
            encoder,
            "WhisperModel",
            vocab_size=WORDS,
            d_model=256,
            encoder_layers=4,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=1024,
            max_source_positions=200,
            pad_token_id=0,
        ),
        {"input_features": Input(("B", 80, 400))},  # it takes no other length
        [{"B": 1}, {"B": 2}],
    ),
    "wav2vec2": speech_model("Wav2Vec2Model"),
    "hubert": speech_model("HubertModel"),
    "wavlm": speech_model("WavLMModel"),
    "encodec": Architecture(
        partial(language, "EncodecModel", num_filters=16, hidden_size=64, codebook_dim=64),
        {"input_values": Input(("B", 1, "T"))},
        SOUNDS,
        lambda found: found.audio_values,
    ),
    "hifigan": Architecture(
        partial(language, "SpeechT5HifiGan", upsample_initial_channel=128),
        {"spectrogram": Input(("B", "M", 80))},
        [{"B": 1, "M": m} for m in (32, 128)],
    ),
}
