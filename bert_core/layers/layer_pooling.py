"""Pooling of the layers' outputs into what a task's head reads: the last one alone, or several (feature-based use).

Devlin et al. 2018, section 5.3; the learned weighted sum is that of Peters et al. 2018 (ELMo), equation 1.

Shapes: T tokens, H hidden, L layers, W width of what a head reads.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from bert_core.config import BertConfig

_LAST_FOUR = slice(-4, None)


class LayerPooling(nn.Module):
    """Choice and weighting of the layers' outputs.

    It has two steps: `select` has no weights, so that its result can be kept where the layers are frozen; `forward` has
    those of the learned sum.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.kind = config.layer_pooling
        if self.kind == "scalar_mix":
            self.weights = nn.Parameter(torch.ones(config.num_hidden_layers + 1))
            self.scale = nn.Parameter(torch.ones(1))

    def select(self, outputs: Iterable[Tensor]) -> Tensor:
        """Pick what is needed of the embeddings' and the layers' outputs, L + 1 times (T, H).

        The result is (T, W), or all of them, (T, L + 1, H), where the weighted sum is learned.
        """
        match self.kind:
            case "last":
                return last_output(outputs)
            case "embeddings":
                return next(iter(outputs))
            case "second_to_last":
                return list(outputs)[-2]
            case "sum_last_four":
                return torch.stack(list(outputs)[_LAST_FOUR]).sum(dim=0)
            case "concat_last_four":
                return torch.cat(list(outputs)[_LAST_FOUR], dim=-1)
        return torch.stack(list(outputs), dim=1)  # (T, L + 1, H)

    def forward(self, selected: Tensor) -> Tensor:
        """Turn what `select` gave into what the head reads: (T, W)."""
        if self.kind != "scalar_mix":
            return selected
        weights = self.weights.softmax(dim=0).to(selected.dtype)  # (L + 1,)
        return self.scale.to(selected.dtype) * torch.einsum("tlh,l->th", selected, weights)


def last_output(outputs: Iterable[Tensor]) -> Tensor:
    """Return the last of the layers' outputs, of which there is at least one; the others are not kept in memory."""
    for output in outputs:
        last = output
    return last
