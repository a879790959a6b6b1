"""Attention by variable-length flash attention, on CUDA.

Shapes: T tokens, N heads, D head size.
"""

import importlib.util

import torch
from torch import Tensor

from bert_core.attention.backend import AttentionBackend, AttentionCall
from bert_core.packed_sequences import PackedSequences

_VARLEN_EXISTS = importlib.util.find_spec("torch.nn.attention.varlen") is not None


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
