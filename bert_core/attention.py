"""Attention over packed sequences: the one place where sequences are told apart.

Shapes: B sequences, S length of a padded row, T tokens, N heads, D head size.

`attention` is the contract. A backend carries it out: `BACKENDS` lists them by preference, and a call goes to the first
one that does not refuse it. `choose_backend` tells which one that is, `AttentionBackend.refusal` why another is not.
"""

import importlib.util
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.kernels.grouped_attention import LengthGroups, grouped_attention
from bert_core.packed_sequences import PackedSequences
from bert_core.positions import alibi_bias

_VARLEN_EXISTS = importlib.util.find_spec("torch.nn.attention.varlen") is not None


def attention(
    q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, dropout_p: float = 0.0, slopes: Tensor | None = None
) -> Tensor:
    """Compute softmax(q·kᵀ / √D + bias)·v within each sequence: (T, N, D) each → (T, N, D).

    Vaswani et al. 2017, section 3.2.1. With `slopes` (N,) the bias is −slope · |i − j| (Press et al. 2022).
    """
    call = AttentionCall(q.device.type, q.dtype, dropout_p, slopes is not None, seqs.includes_padding)
    backend = choose_backend(call)
    if q.is_cuda:
        return backend(q, k, v, seqs, dropout_p, slopes)
    with torch.autocast("cpu", enabled=False):  # it would make the softmax's output full precision, twice the memory
        return backend(q, k, v, seqs, dropout_p, slopes)


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


class AttentionBackend(ABC):
    """A way to compute `attention`, which takes its tensors and gives the same result up to rounding."""

    name: str
    """Name in reports."""

    @abstractmethod
    def refusal(self, call: AttentionCall) -> str | None:
        """Reason why the backend is not used for such a call; None where it is fit for it."""

    @abstractmethod
    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, dropout_p: float, slopes: Tensor | None
    ) -> Tensor:
        """Compute the context of each token: (T, N, D) each → (T, N, D)."""


class VarlenAttention(AttentionBackend):
    """Flash attention over sequences of various lengths, by PyTorch, which never sees padding."""

    name = "varlen"

    def refusal(self, call: AttentionCall) -> str | None:
        """Reason not to use it: it needs CUDA and 16 bits, and knows neither dropout nor biases nor padding."""
        reasons = {
            "runs on CUDA only": call.device != "cuda",
            "this PyTorch has no torch.nn.attention.varlen": not _VARLEN_EXISTS,
            "computes in 16 bits only": call.dtype not in (torch.bfloat16, torch.float16),
            "has no attention dropout": call.dropout_p != 0.0,
            "has no linear biases": call.has_slopes,
            "cannot leave out padding that is among the tokens": call.includes_padding,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, dropout_p: float, slopes: Tensor | None
    ) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        context = varlen_attn(q, k, v, seqs.cu_seqlens, seqs.cu_seqlens, seqs.max_seqlen, seqs.max_seqlen)
        assert isinstance(context, Tensor)  # a pair only where auxiliary outputs are asked for
        return context


class FusedAttention(AttentionBackend):
    """PyTorch's fused kernels on padded rows."""

    name = "fused"

    def refusal(self, call: AttentionCall) -> str | None:
        """Reason not to use it: off CUDA others take less time."""
        return None if call.device == "cuda" else "computes padding too, which pays on CUDA only"

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, dropout_p: float, slopes: Tensor | None
    ) -> Tensor:
        q, k, v = (seqs.unpack(tensor).transpose(1, 2) for tensor in (q, k, v))  # (B, N, S, D) each
        mask = seqs.attention_mask[:, None, None, :] if slopes is None else _padded_bias(seqs, slopes, q.dtype)
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p)
        return seqs.pack(context.transpose(1, 2))  # (T, N, D)


class GroupedAttention(AttentionBackend):
    """Matrix products and a softmax over groups of sequences of nearly equal length, for CPUs."""

    name = "grouped"

    def refusal(self, call: AttentionCall) -> str | None:
        """Reason not to use it: it takes every token for one to attend to."""
        return "cannot leave out padding that is among the tokens" if call.includes_padding else None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, dropout_p: float, slopes: Tensor | None
    ) -> Tensor:
        num_heads = q.shape[1]
        if num_heads not in seqs.attention_cache:  # the same for all layers
            seqs.attention_cache[num_heads] = LengthGroups.build(seqs.cu_seqlens, num_heads)
        return grouped_attention(q, k, v, seqs.attention_cache[num_heads], dropout_p, slopes)


class ReferenceAttention(AttentionBackend):
    """The definition, on padded rows: what the others are held against. It refuses nothing."""

    name = "reference"

    def refusal(self, call: AttentionCall) -> str | None:
        """None: it is fit for every call."""
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, dropout_p: float, slopes: Tensor | None
    ) -> Tensor:
        rows = seqs.unpack(torch.stack([q, k, v], dim=1))  # (B, S, 3, N, D)
        q, k, v = rows.permute(2, 0, 3, 1, 4).unbind(0)  # (B, N, S, D) each
        bias = _padded_bias(seqs, slopes, q.dtype)  # (B, 1 or N, 1 or S, S)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias  # (B, N, S, S)
        context = F.dropout(scores.softmax(dim=-1), dropout_p) @ v
        return seqs.pack(context.transpose(1, 2))  # (T, N, D)


BACKENDS: tuple[AttentionBackend, ...] = (
    VarlenAttention(),
    FusedAttention(),
    GroupedAttention(),
    ReferenceAttention(),
)
"""All backends, the one to prefer first; the last one refuses nothing."""


def choose_backend(call: AttentionCall) -> AttentionBackend:
    """Find the first of BACKENDS that does not refuse a call."""
    return next(backend for backend in BACKENDS if backend.refusal(call) is None)


def _padded_bias(seqs: PackedSequences, slopes: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Bias to add to the scores of padded rows, −∞ at padding: (B, 1 or N, 1 or S, S)."""
    keys = seqs.attention_mask[:, None, None, :]  # (B, 1, 1, S)
    bias = torch.zeros(1, device=keys.device) if slopes is None else alibi_bias(slopes, seqs.max_seqlen)
    return torch.where(keys, bias.to(dtype), -math.inf)
