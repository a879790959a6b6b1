"""Contract of an attention backend: what it can carry out, and what it computes.

Shapes: T tokens, N heads, D head size.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from bert_core.packed_sequences import PackedSequences


@dataclass(frozen=True)
class AttentionCall:
    """Properties of a call that decide which backends can carry it out."""

    device: str
    """Type of the device, as in `torch.device.type`."""
    dtype: torch.dtype
    """Type of the queries, keys and values."""
    dropout_p: float = 0.0
    """Dropout of the attention weights."""
    has_slopes: bool = False
    """Whether there are linear biases (ALiBi)."""
    includes_padding: bool = False
    """Whether padding is among the tokens."""
    is_causal: bool = False
    """Whether a token attends to itself and to the tokens before it only."""


class AttentionBackend(ABC):
    """A way to compute `attention`, which takes its tensors and gives the same result up to rounding."""

    name: str
    """Name in reports: of `orchestrator doctor`, and of benchmarks, where it can be forced."""

    @abstractmethod
    def refusal(self, call: AttentionCall) -> str | None:
        """Reason why the backend is not used for such a call; None where it is fit for it."""

    @abstractmethod
    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        seqs: PackedSequences,
        dropout_p: float,
        slopes: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        """Compute the context of each token: (T, N, D) each → (T, N, D)."""
