"""Attention on padded rows: PyTorch's fused kernels, and the definition.

Shapes: B sequences, S length of a padded row, T tokens, N heads, D head size.
"""

import math
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bert_core.attention.backend import AttentionBackend, AttentionCall, AttentionOptions
from bert_core.attention.positions import alibi_bias, is_near
from bert_core.packed_sequences import PackedSequences

_KERNELS_ON_CUDA = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Kernels for rows of any length. PyTorch would prefer cuDNN's on Hopper, which are planned anew for each new shape
(`priority_order` in aten/native/transformers/cuda/sdp_utils.cpp, PyTorch 2.11): the longest row differs by batch."""


class FusedAttention(AttentionBackend):
    """PyTorch's fused kernels on padded rows."""

    name = "fused"

    def refusal(self, call: AttentionCall) -> str | None:
        return None if call.device == "cuda" else "computes padding too, which pays on CUDA only"

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, options: AttentionOptions) -> Tensor:
        q, k, v = (seqs.unpack(tensor).transpose(1, 2) for tensor in (q, k, v))  # (B, N, S, D) each
        bias = _padded_bias(seqs, options, q, k)  # (B, 1 or N, 1 or S, S)
        with sdpa_kernel(_KERNELS_ON_CUDA) if q.is_cuda else nullcontext():
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=options.dropout_p)
        return seqs.pack(context.transpose(1, 2))  # (T, N, D)


class ReferenceAttention(AttentionBackend):
    """The definition, on padded rows: what the others are held against. It refuses nothing."""

    name = "reference"

    def refusal(self, call: AttentionCall) -> str | None:
        return None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, options: AttentionOptions) -> Tensor:
        rows = seqs.unpack(torch.stack([q, k, v], dim=1))  # (B, S, 3, N, D)
        q, k, v = rows.permute(2, 0, 3, 1, 4).unbind(0)  # (B, N, S, D) each
        bias = _padded_bias(seqs, options, q, k)  # (B, 1 or N, 1 or S, S)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias  # (B, N, S, S)
        if options.window is None:
            weights = scores.softmax(dim=-1)
        else:  # padding far from all tokens attends to nothing, as in PyTorch's kernels
            is_alone = bias.isneginf().all(dim=-1, keepdim=True)
            weights = scores.masked_fill(is_alone, 0.0).softmax(dim=-1).masked_fill(is_alone, 0.0)
        context = F.dropout(weights, options.dropout_p) @ v
        return seqs.pack(context.transpose(1, 2))  # (T, N, D)


def _padded_bias(seqs: PackedSequences, options: AttentionOptions, q: Tensor, k: Tensor) -> Tensor:
    """Bias to add to the scores of padded rows, −∞ where there is nothing to attend to: (B, 1 or N, 1 or S, S).

    All but a learned bias and scores by distance, for which queries and keys (B, N, S, D) are needed, is built once for
    all layers.
    """
    _, slopes, is_causal, window, learned, distances = options
    dtype = q.dtype

    def build() -> Tensor:
        keys = seqs.attention_mask[:, None, None, :]  # (B, 1, 1, S)
        places = torch.arange(keys.shape[-1], device=keys.device)
        if is_causal:
            keys = keys & (places <= places[:, None])  # (B, 1, S, S)
        if window is not None:
            keys = keys & is_near(places, window)  # (B, 1, S, S)
        bias = torch.zeros(1, device=keys.device) if slopes is None else alibi_bias(slopes, seqs.max_seqlen)
        return torch.where(keys, bias.to(dtype), -math.inf)

    bias = seqs.cached(("padded bias", slopes, dtype, is_causal, window), build)
    if learned is not None:
        bias = bias + learned.to(dtype)  # (B, N, S, S)
    if distances is not None:
        bias = bias + distances.scores(q, k)  # (B, N, S, S)
        if seqs.includes_padding:  # it attends to all of its row alike, as in transformers
            bias = bias.where(seqs.attention_mask[:, None, :, None], 0.0)
    return bias
