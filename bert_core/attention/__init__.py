"""Attention over packed sequences: the one place where sequences are told apart.

Shapes: T tokens, N heads, D head size.

`attention` is the contract. A backend carries it out: `BACKENDS` lists them by preference, and a call goes to the first
one that does not refuse it. `choose_backend` tells which one that is, `AttentionBackend.refusal` why another is not.

On the CPU all backends give the same bits at each repetition. On CUDA the backward pass does not: flash attention adds
up a query's gradient from several blocks of keys, in whichever order they come. PyTorch's own switch puts these sums in
order, `torch.use_deterministic_algorithms(True)`, for varlen attention as well as for scaled_dot_product_attention,
where it rules out cuDNN's kernel too. With `warn_only=True` PyTorch warns and keeps the kernels that are not
deterministic (attention_backward.cu and sdp_utils.cpp in aten/native/transformers/cuda, PyTorch 2.11 and 2.13). The
order costs a layer of base a tenth to a quarter of its attention on an H200 (docs/lab_log.md).
"""

import torch
from torch import Tensor

from bert_core.attention.backend import AttentionBackend, AttentionCall, AttentionOptions
from bert_core.attention.grouped import GroupedAttention
from bert_core.attention.padded import FusedAttention, ReferenceAttention
from bert_core.attention.varlen import VarlenAttention
from bert_core.packed_sequences import PackedSequences

BACKENDS: tuple[AttentionBackend, ...] = (
    VarlenAttention(),
    FusedAttention(),
    GroupedAttention(),
    ReferenceAttention(),
)
"""All backends, the one to prefer first; the last one refuses nothing."""


def attention(q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, options: AttentionOptions) -> Tensor:
    """Compute softmax(q·kᵀ / √D + bias)·v within each sequence: (T, N, D) each → (T, N, D).

    Vaswani et al. 2017, section 3.2.1. The sequences lie end to end; `seqs` says where each begins and ends, and which
    tokens are padding. With probability `dropout_p` an attention weight becomes zero, and the others are scaled by
    1 / (1 − dropout_p). With `slopes` (N,) the bias is −slope · |i − j| (Press et al. 2022).
    With `is_causal` a token attends to itself and to the tokens before it only, with a `window` to those at most so
    many tokens away (Beltagy et al. 2020, section 3.1). A `bias` (N, S, S) is added by a token's place and another's,
    scores of `distances` by both places and what stands there (He et al. 2021, section 3.1).
    """
    if options.window is not None and seqs.max_seqlen <= options.window + 1:
        options = options._replace(window=None)  # all of a sequence is near
    dropout_p, slopes, is_causal, _, bias, distances = options
    key = ("backend", q.dtype, q.shape[2], dropout_p, slopes is None, is_causal, bias is None, distances is None)
    backend = seqs.cached(key, lambda: choose_backend(AttentionCall.of(q, seqs, options)))
    if q.is_cuda:
        return backend(q, k, v, seqs, options)
    with torch.autocast("cpu", enabled=False):  # it would make the softmax's output full precision, twice the memory
        return backend(q, k, v, seqs, options)


def choose_backend(call: AttentionCall) -> AttentionBackend:
    """Find the first of BACKENDS that does not refuse a call."""
    return next(backend for backend in BACKENDS if backend.refusal(call) is None)
