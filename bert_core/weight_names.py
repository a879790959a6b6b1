"""How the weights are called in Hugging Face's files.

Here a layer is flat and its query, key and value projections are one matrix; there they are three, under long names.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

_HERE_TO_FILE = {
    r"embeddings\.(word|position|token_type)\.": r"embeddings.\1_embeddings.",
    r"embeddings\.norm\.": r"embeddings.LayerNorm.",
    r"layers\.(\d+)\.qkv\.": r"encoder.layer.\1.attention.self.{}.",
    r"layers\.(\d+)\.attention_output\.": r"encoder.layer.\1.attention.output.dense.",
    r"layers\.(\d+)\.attention_norm\.": r"encoder.layer.\1.attention.output.LayerNorm.",
    r"layers\.(\d+)\.intermediate\.": r"encoder.layer.\1.intermediate.dense.",
    r"layers\.(\d+)\.output\.": r"encoder.layer.\1.output.dense.",
    r"layers\.(\d+)\.output_norm\.": r"encoder.layer.\1.output.LayerNorm.",
    r"pooler\.": r"pooler.dense.",
    r"prediction\.transform\.": r"cls.predictions.transform.dense.",
    r"prediction\.norm\.": r"cls.predictions.transform.LayerNorm.",
    r"prediction\.bias$": r"cls.predictions.bias",
    r"next_sentence\.": r"cls.seq_relationship.",
}

_OLD_TO_NEW = {r"LayerNorm\.gamma$": "LayerNorm.weight", r"LayerNorm\.beta$": "LayerNorm.bias"}

# Copies of other weights, or constants, that some files carry.
_COPIES = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "bert.embeddings.position_ids")


def file_names(name: str) -> tuple[str, ...]:
    """The name of a parameter in a file, or the three names of a fused one.

    >>> file_names("bert.layers.0.qkv.bias")[2]
    'bert.encoder.layer.0.attention.self.value.bias'
    """
    prefix = "bert." if name.startswith("bert.") else ""
    rest = name.removeprefix(prefix)
    for here, file_name in _HERE_TO_FILE.items():
        rest = re.sub(f"^{here}", file_name, rest)
    name = prefix + rest
    return tuple(name.format(part) for part in ("query", "key", "value")) if "{}" in name else (name,)


def canonical(name: str) -> str:
    """One spelling for a name in a file, whatever tool and year wrote it; the encoder's start with `bert.`.

    >>> canonical("embeddings.LayerNorm.gamma")
    'bert.embeddings.LayerNorm.weight'
    """
    for old, new in _OLD_TO_NEW.items():
        name = re.sub(old, new, name)
    return f"bert.{name}" if name.startswith(("embeddings.", "encoder.", "pooler.")) else name


def to_file(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A model's weights under their names in a file."""
    return {
        file_name: part.detach().cpu().contiguous()
        for name, tensor in state.items()
        for file_name, part in zip(file_names(name), tensor.chunk(len(file_names(name))), strict=True)
    }


def normalised(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A file's weights under canonical names, without copies."""
    result = {canonical(name): tensor for name, tensor in weights.items()}
    if "cls.predictions.decoder.bias" in result:
        result.setdefault("cls.predictions.bias", result["cls.predictions.decoder.bias"])
    return {name: tensor for name, tensor in result.items() if name not in _COPIES}


def from_file(names: tuple[str, ...], weights: Mapping[str, Tensor]) -> Tensor:
    """One parameter out of a file's normalised weights."""
    return weights[names[0]] if len(names) == 1 else torch.cat([weights[name] for name in names])
