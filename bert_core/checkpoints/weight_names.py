"""Names of weights in files, by family; query, key and value are one matrix in a model and three in a file."""

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
    """Names in a file for the parameters of one class of models.

    >>> from bert_core.families import FAMILIES
    >>> WeightNames(FAMILIES["bert"], "BertForPreTraining").of("bert.layers.0.qkv.bias")[2]
    'bert.encoder.layer.0.attention.self.value.bias'
    """

    family: Family
    head: str
    """Name of the class."""
    is_encoder_alone: bool = False
    """Whether the class is the encoder without a head; a file may then leave out the family's prefix."""

    def of(self, name: str) -> tuple[str, ...]:
        """Name of a parameter in a file, with the family's prefix; three names for a fused one."""
        return self.family.file_names(ENCODER + name if self.is_encoder_alone else name, self.head)

    def to_file(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Give a model's weights their names in a file; those of an encoder alone get no prefix."""
        prefix = self.family.prefix if self.is_encoder_alone else ""
        return {
            file_name.removeprefix(prefix): part.detach().cpu().contiguous()
            for name, tensor in state.items()
            for file_name, part in zip(self.of(name), tensor.chunk(len(self.of(name))), strict=True)
        }

    def from_file(self, name: str, weights: Mapping[str, Tensor]) -> Tensor:
        """Take one parameter out of a file's normalized weights."""
        names = self.of(name)
        return weights[names[0]] if len(names) == 1 else torch.cat([weights[part] for part in names])

    def normalized(self, weights: Mapping[str, Tensor], parameters: Collection[str]) -> dict[str, Tensor]:
        """Give a file's weights one spelling, whichever tool and year wrote it, and leave out copies of others."""
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
        """Pick the encoder's weights among a file's normalized ones."""
        return {name: tensor for name, tensor in weights.items() if name.startswith(self.family.prefix)}
