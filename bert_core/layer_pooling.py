"""What a head reads of the layers' outputs: the last one, or a mixture as in feature-based use.

Devlin et al. 2018, section 5.3; the learnt mixture is that of Peters et al. 2018 (ELMo), equation 1.

Shapes: T tokens, H hidden, L layers, W width of what a head reads.
"""

from collections import deque
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from bert_core.config import BertConfig

_LAST_FOUR = slice(-4, None)


class HeadInput(nn.Module):
    """Two steps, so that the first can be done once and kept where the layers do not learn."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.kind = config.layer_pooling
        if self.kind == "scalar_mix":
            self.weights = nn.Parameter(torch.ones(config.num_hidden_layers + 1))
            self.scale = nn.Parameter(torch.ones(1))

    def select(self, outputs: Iterable[Tensor]) -> Tensor:
        """What is needed of the embeddings' and the layers' outputs, (T, H) each: (T, W), or (T, L + 1, H)."""
        match self.kind:
            case "last":
                return deque(outputs, maxlen=1).pop()  # the others need not be kept
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
        """What the head reads: (T, W)."""
        if self.kind != "scalar_mix":
            return selected
        weights = self.weights.softmax(dim=0).to(selected.dtype)  # (L + 1,)
        return self.scale.to(selected.dtype) * torch.einsum("tlh,l->th", selected, weights)
