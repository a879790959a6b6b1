"""Weights between a model and a file: the family's names, and one matrix here where a file has three."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bert_core.families import ENCODER, Family

_OLD_ENDINGS = {r"LayerNorm\.gamma$": "LayerNorm.weight", r"LayerNorm\.beta$": "LayerNorm.bias"}
_CONSTANT = "position_ids"


@dataclass(frozen=True)
class WeightNames:
    """How the parameters of a class of models are called in a file.

    >>> from bert_core.families import FAMILIES
    >>> WeightNames(FAMILIES["bert"], "BertForPreTraining").of("bert.layers.0.qkv.bias")[2]
    'bert.encoder.layer.0.attention.self.value.bias'
    """

    family: Family
    head: str
    """Name of the class"""
    is_encoder_alone: bool = False
    """Whether its parameters are the encoder's; a file then may do without the family's prefix"""

    def of(self, name: str) -> tuple[str, ...]:
        """The name of a parameter in a file, with the family's prefix; three names for a fused one."""
        return self.family.file_names(ENCODER + name if self.is_encoder_alone else name, self.head)

    def to_file(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A model's weights under their names in a file; those of an encoder alone without the prefix."""
        prefix = self.family.prefix if self.is_encoder_alone else ""
        return {
            file_name.removeprefix(prefix): part.detach().cpu().contiguous()
            for name, tensor in state.items()
            for file_name, part in zip(self.of(name), tensor.chunk(len(self.of(name))), strict=True)
        }

    def from_file(self, name: str, weights: Mapping[str, Tensor]) -> Tensor:
        """One parameter out of a file's normalized weights."""
        names = self.of(name)
        return weights[names[0]] if len(names) == 1 else torch.cat([weights[part] for part in names])

    def normalized(self, weights: Mapping[str, Tensor], parameters: Collection[str]) -> dict[str, Tensor]:
        """A file's weights under one spelling, whatever tool and year wrote it, and without copies of others."""
        wanted = {file_name for name in parameters for file_name in self.of(name)}
        result = {}
        for name, tensor in weights.items():
            for old, new in _OLD_ENDINGS.items():
                name = re.sub(old, new, name)
            with_prefix = self.family.prefix + name
            result[with_prefix if with_prefix in wanted else name] = tensor
        for copy, original in self.family.tied_weights.items():
            if copy in result:
                result.setdefault(original, result.pop(copy))
        return {name: tensor for name, tensor in result.items() if not name.endswith(_CONSTANT)}

    def encoder_of(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The encoder's among a file's normalized weights."""
        return {name: tensor for name, tensor in weights.items() if name.startswith(self.family.prefix)}
