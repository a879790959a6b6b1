"""Attention over packed sequences: the one place where sequences are told apart.

Shapes: B sequences, S slots of a padded row, T tokens, N heads, D head size.

The contract is `attention(q, k, v, seqs, dropout_p, slopes)`; how it is carried out depends on the device:

* CUDA, 16 bit, no attention dropout, no linear biases: variable-length flash attention, which never sees padding;
* CUDA otherwise: PyTorch's fused kernels on padded rows;
* CPU: matrix products and a softmax over groups of sequences of nearly equal length;
* the reference, `reference`: the definition on padded rows. It is what the others are held against, and it runs on
  CPUs where padding was kept.
"""

import importlib.util
import math

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
    """softmax(q·kᵀ / √D + bias)·v within each sequence: (T, N, D) each → (T, N, D).

    Vaswani et al. 2017, section 3.2.1. With `slopes` (N,) the bias is −slope · |i − j| (Press et al. 2022).
    """
    if q.is_cuda:
        backend = varlen if _varlen_can(q, seqs, dropout_p, slopes) else fused
        return backend(q, k, v, seqs, dropout_p, slopes)
    with torch.autocast("cpu", enabled=False):  # it would make the softmax's output full precision, twice the memory
        return (reference if seqs.includes_padding else grouped)(q, k, v, seqs, dropout_p, slopes)


def _varlen_can(q: Tensor, seqs: PackedSequences, dropout_p: float, slopes: Tensor | None) -> bool:
    half = q.dtype in (torch.bfloat16, torch.float16)
    return _VARLEN_EXISTS and half and dropout_p == 0.0 and slopes is None and not seqs.includes_padding


def varlen(q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, dropout_p: float, slopes: Tensor | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    context = varlen_attn(q, k, v, seqs.cu_seqlens, seqs.cu_seqlens, seqs.max_seqlen, seqs.max_seqlen)
    assert isinstance(context, Tensor)  # a pair only where auxiliary outputs are asked for
    return context


def fused(q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, dropout_p: float, slopes: Tensor | None) -> Tensor:
    q, k, v = (seqs.unpack(tensor).transpose(1, 2) for tensor in (q, k, v))  # (B, N, S, D) each
    mask = seqs.is_key[:, None, None, :] if slopes is None else _padded_bias(seqs, slopes, q.dtype)
    context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p)
    return seqs.pack(context.transpose(1, 2))  # (T, N, D)


def grouped(q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, dropout_p: float, slopes: Tensor | None) -> Tensor:
    num_heads = q.shape[1]
    if num_heads not in seqs.attention_cache:  # the same for all layers
        seqs.attention_cache[num_heads] = LengthGroups.build(seqs.cu_seqlens, num_heads)
    return grouped_attention(q, k, v, seqs.attention_cache[num_heads], dropout_p, slopes)


def reference(
    q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, dropout_p: float, slopes: Tensor | None
) -> Tensor:
    rows = seqs.unpack(torch.stack([q, k, v], dim=1))  # (B, S, 3, N, D)
    q, k, v = rows.permute(2, 0, 3, 1, 4).unbind(0)  # (B, N, S, D) each
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + _padded_bias(seqs, slopes, q.dtype)  # (B, N, S, S)
    context = F.dropout(scores.softmax(dim=-1), dropout_p) @ v
    return seqs.pack(context.transpose(1, 2))  # (T, N, D)


def _padded_bias(seqs: PackedSequences, slopes: Tensor | None, dtype: torch.dtype) -> Tensor:
    """What is added to the scores of padded rows: (B, 1 or N, 1 or S, S), −∞ at padding."""
    keys = seqs.is_key[:, None, None, :]  # (B, 1, 1, S)
    bias = torch.zeros(1, device=keys.device) if slopes is None else alibi_bias(slopes, seqs.max_seqlen)
    return torch.where(keys, bias.to(dtype), -math.inf)
