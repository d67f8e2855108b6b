"""Architectures of torchvision and transformers, written as ONNX files with random weights.

Their configurations are small: what is asked of them is which graphs the exporters make of real
code, not how long a large product takes. An exporter runs in a process of its own, so that what it
imports, prints and breaks is nobody else's.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bucketize.errors import EngineError
from bucketize.op import Array

Sizes: TypeAlias = Mapping[str, int]

EXPORTERS = ("dynamo", "torchscript")
LIMIT_S = 300  # for one file
OPSET = 20
NOISE = 0.02  # added to what a weight begins with
WORDS = 1000  # of a vocabulary
BOUNDS = {
    "N": (1, 8),
    "H": (32, 512),
    "W": (32, 512),
    "B": (1, 8),
    "S": (1, 512),
    "T": (400, 32000),
}
RAISED = "raised "  # before what an export says of its end


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


@dataclass(frozen=True)
class Architecture:
    """A model that can be made and exported."""

    make: Callable[[], Any]
    """A torch module, made anew."""
    inputs: Mapping[str, Input]
    points: Sequence[Sizes]
    """Where it is measured."""

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """Those of its dynamic axes."""
        return {d: BOUNDS[d] for each in self.inputs.values() for d in each.axes.values()}

    def arrays(self, sizes: Sizes) -> dict[str, Array]:
        """Its inputs at some sizes."""
        return {name: each.array(sizes) for name, each in self.inputs.items()}


# --- the table -----------------------------------------------------------------------------------


def vision(name: str, **config: Any) -> Any:
    """A model of torchvision."""
    return getattr(importlib.import_module("torchvision").models, name)(**config)


def language(name: str, **config: Any) -> Any:
    """A model of transformers."""
    kind = getattr(importlib.import_module("transformers"), name)
    return kind(kind.config_class(**config))


def encoder(name: str, **config: Any) -> Any:
    """The encoder of a model of transformers."""
    return language(name, **config).get_encoder()


IMAGE = Input(("N", 3, "H", "W"))
IMAGES: Sequence[Sizes] = [{"N": 1, "H": 96, "W": 96}, {"N": 1, "H": 224, "W": 224}]
WORD, SEEN = Input(("B", "S"), "words"), Input(("B", "S"), "ones")
TOKENS: Sequence[Sizes] = [{"B": 1, "S": 16}, {"B": 1, "S": 128}]
TEXT = {"input_ids": WORD, "attention_mask": SEEN}
SMALL = {"vocab_size": WORDS, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
HEADED = {**SMALL, "intermediate_size": 1024}


def image_model(name: str) -> Architecture:
    """A model of images of any extent."""
    return Architecture(partial(vision, name), {"x": IMAGE}, IMAGES)


def text_model(name: str, **config: Any) -> Architecture:
    """A model of sequences of any length."""
    return Architecture(partial(language, name, **config), TEXT, TOKENS)


ARCHITECTURES: Mapping[str, Architecture] = {
    **{
        name: image_model(name)
        for name in (
            *("efficientnet_b0", "shufflenet_v2_x1_0", "densenet121", "squeezenet1_1"),
            *("mobilenet_v3_small", "regnet_y_400mf", "convnext_tiny"),
        )
    },
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
    "wav2vec2": Architecture(
        partial(language, "Wav2Vec2Model", **HEADED),
        {"input_values": Input(("B", "T"))},
        [{"B": 1, "T": 4000}, {"B": 1, "T": 16000}],
    ),
}


# --- exporting -----------------------------------------------------------------------------------


def file_name(name: str, exporter: str) -> str:
    """How the file of an architecture is called, without a suffix."""
    return f"{name}-{exporter}"


def exported(name: str, exporter: str, folder: Path) -> Path:
    """The file of an architecture, exported unless it is there.

    Raises:
        EngineError: the exporter does not take it; with the last that it said.

    """
    path = folder / f"{file_name(name, exporter)}.onnx"
    if path.exists():
        return path
    unfinished = path.with_suffix(".part")
    command = [sys.executable, "-P", "-m", "benchmarks.export", name, exporter, str(unfinished)]
    paths = os.pathsep.join(p or os.getcwd() for p in sys.path)
    env = {**os.environ, "PYTHONPATH": paths}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LIMIT_S, env=env
        )
    except subprocess.TimeoutExpired as e:
        raise EngineError(f"{exporter} takes longer than {LIMIT_S} s to export {name}") from e
    if done.returncode:
        raise EngineError(f"{exporter} does not export {name}: {reason(done.stderr)}")
    os.replace(unfinished, path)
    return path


def reason(said: str) -> str:
    """What an export raised, or else the last that it said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["nothing"]
    raised = [line.removeprefix(RAISED) for line in lines if line.startswith(RAISED)]
    return (raised or lines)[-1]


def export(made: Architecture, exporter: str, path: Path) -> None:
    """Write the file of an architecture, its weights inside."""
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(0)
    names = list(made.inputs)
    model = bare(torch, made.make(), names).eval()
    with torch.no_grad():
        for weights in model.parameters():  # some begin as zeros, and hide what is before them
            weights.add_(torch.randn_like(weights), alpha=NOISE)
    # 1 would be a constant to the exporter: an extent that it may not call dynamic
    sizes = {symbol: max(2, size) for symbol, size in made.points[0].items()}
    given = tuple(torch.from_numpy(array) for array in made.arrays(sizes).values())
    axes = {name: each.axes for name, each in made.inputs.items()}
    dynamic: dict[str, Any] = {"dynamic_axes": axes}
    if exporter == "dynamo":
        dynamic = {"dynamic_shapes": (tuple(axes.values()),), "external_data": False}
    torch.onnx.export(
        model,
        given,
        path,
        **dynamic,
        input_names=names,
        output_names=["result"],
        dynamo=exporter == "dynamo",
        opset_version=OPSET,
    )


def bare(torch: Any, model: Any, names: Sequence[str]) -> Any:
    """A module from tensors, in this order, to the first result."""

    class Bare(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any) -> Any:
            found = self.model(**dict(zip(names, given, strict=True)))
            return found if isinstance(found, torch.Tensor) else found[0]

    return Bare()


def main() -> None:
    """Export in this process what the arguments name: architecture, exporter, path."""
    name, exporter, path = sys.argv[1:]
    try:
        export(ARCHITECTURES[name], exporter, Path(path))
    except Exception as e:  # whatever an exporter raises
        first: BaseException = e
        while first.__cause__ is not None:
            first = first.__cause__
        told = next(line for line in [*str(first).splitlines(), "nothing"] if line.strip())
        sys.exit(f"{RAISED}{type(first).__name__}: {told}")


if __name__ == "__main__":
    main()
