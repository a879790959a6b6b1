"""Contract of an attention backend: what it can carry out, and what it computes. All of them take a window.

Shapes: T tokens, N heads, D head size.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from bert_core.attention.positions import DistanceVectors
from bert_core.packed_sequences import PackedSequences


class AttentionOptions(NamedTuple):
    """Arguments of `attention` beside the tokens and their sequences."""

    dropout_p: float = 0.0
    slopes: Tensor | None = None
    is_causal: bool = False
    window: int | None = None
    bias: Tensor | None = None
    distances: DistanceVectors | None = None


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
    has_bias: bool = False
    """Whether there are learned biases, or scores by distance."""
    includes_padding: bool = False
    """Whether padding is among the tokens."""
    is_causal: bool = False
    """Whether a token attends to itself and to the tokens before it only."""
    head_size: int = 64
    """D: width of a head; that of all published sizes when left out."""
    compute_capability: tuple[int, int] | None = None
    """Compute capability of the GPU, as NVIDIA counts its generations: (8, 0) is an A100; None off CUDA."""

    @classmethod
    def of(cls, q: Tensor, seqs: PackedSequences, options: AttentionOptions) -> Self:
        """Describe the call of `attention` with these arguments; the keys and values are as the queries (T, N, D)."""
        return cls(
            device=q.device.type,
            dtype=q.dtype,
            dropout_p=options.dropout_p,
            has_slopes=options.slopes is not None,
            has_bias=options.bias is not None or options.distances is not None,
            includes_padding=seqs.includes_padding,
            is_causal=options.is_causal,
            head_size=q.shape[2],
            compute_capability=torch.cuda.get_device_capability(q.device) if q.is_cuda else None,
        )


class AttentionBackend(ABC):
    """A way to compute `attention`, which takes its tensors and gives the same result up to rounding."""

    name: str
    """Name in reports: of `orchestrator doctor`, and of benchmarks, where it can be forced."""

    @abstractmethod
    def refusal(self, call: AttentionCall) -> str | None:
        """Reason why the backend is not used for such a call; None where it is fit for it."""

    @abstractmethod
    def __call__(self, q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, options: AttentionOptions) -> Tensor:
        """Compute the context of each token: (T, N, D) each → (T, N, D)."""
