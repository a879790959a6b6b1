"""Attention over packed sequences: the one place where sequences are told apart.

Shapes: B sequences, S slots of a padded row, T tokens, N heads, D head size.

The contract is `attention(q, k, v, seqs, dropout_p)`; how it is carried out depends on the device:

* CUDA, 16 bit, no attention dropout: variable-length flash attention, which never sees padding;
* CUDA otherwise: PyTorch's fused kernels on padded rows;
* CPU: matrix products and a softmax on padded rows, which train faster there than the fused kernels.
"""

import importlib.util
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.packed_sequences import PackedSequences

_VARLEN_EXISTS = importlib.util.find_spec("torch.nn.attention.varlen") is not None


def attention(q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, dropout_p: float = 0.0) -> Tensor:
    """softmax(q·kᵀ / √D)·v within each sequence (Vaswani et al. 2017, section 3.2.1): (T, N, D) each → (T, N, D)."""
    if q.is_cuda and _varlen_can(q, seqs, dropout_p):
        return _varlen(q, k, v, seqs)
    q, k, v = (seqs.unpack(tensor).transpose(1, 2) for tensor in (q, k, v))  # (B, N, S, D) each
    mask = seqs.is_key[:, None, None, :]  # (B, 1, 1, S)
    if q.is_cuda:
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p)
    else:
        context = _explicit(q, k, v, mask, dropout_p)
    return seqs.pack(context.transpose(1, 2))  # (T, N, D)


def _varlen_can(q: Tensor, seqs: PackedSequences, dropout_p: float) -> bool:
    half = q.dtype in (torch.bfloat16, torch.float16)
    return _VARLEN_EXISTS and half and dropout_p == 0.0 and not seqs.padding_kept


def _varlen(q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    context = varlen_attn(q, k, v, seqs.cu_seqlens, seqs.cu_seqlens, seqs.max_seqlen, seqs.max_seqlen)
    assert isinstance(context, Tensor)  # a pair only where auxiliary outputs are asked for
    return context


def _explicit(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout_p: float) -> Tensor:
    """(B, N, S, D) each → (B, N, S, D)."""
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(2, 3)  # (B, N, S, S)
    scores = scores.masked_fill(~mask, -math.inf)
    weights = F.dropout(scores.softmax(dim=-1), dropout_p, training=dropout_p > 0)
    return weights @ v
