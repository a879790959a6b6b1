"""Attention by variable-length flash attention, on CUDA.

Shapes: T tokens, N heads, D head size.
"""

import importlib.util

import torch
from torch import Tensor

from bert_core.attention.backend import AttentionBackend, AttentionCall
from bert_core.packed_sequences import PackedSequences

_VARLEN_EXISTS = importlib.util.find_spec("torch.nn.attention.varlen") is not None
_OLDEST = (8, 0)  # compute capability of the first cards that flash attention 2 runs on: Ampere
_LARGEST_HEAD = 256
_HEAD_STEP = 8


class VarlenAttention(AttentionBackend):
    """Flash attention 2 (Dao 2023) over sequences of various lengths, by PyTorch, which never sees padding.

    What it refuses is what the kernel refuses (flash_attn/flash_api.cpp in PyTorch 2.11 and 2.13). Autocast leaves it
    alone: its inputs have 16 bits because the layer in front of it computed them so. It is a custom operator with a
    gradient and a shape rule of its own, so that torch.compile takes it into a graph as it is.
    """

    name = "varlen"

    def refusal(self, call: AttentionCall) -> str | None:
        """Reason not to use it: an old card, 32 bits, a head of an unfit width, dropout, biases, padding."""
        capability = call.compute_capability or (0, 0)
        fits = call.head_size % _HEAD_STEP == 0 and call.head_size <= _LARGEST_HEAD
        reasons = {
            "runs on CUDA only": call.device != "cuda",
            "this PyTorch has no torch.nn.attention.varlen": not _VARLEN_EXISTS,
            "needs compute capability 8.0 or newer; this card has {}.{}".format(*capability): capability < _OLDEST,
            "computes in 16 bits only": call.dtype not in (torch.bfloat16, torch.float16),
            f"needs heads whose width is a multiple of {_HEAD_STEP} and at most {_LARGEST_HEAD}": not fits,
            "has no attention dropout": call.dropout_p != 0.0,
            "has no linear biases": call.has_slopes,
            "cannot leave out padding that is among the tokens": call.includes_padding,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

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
        from torch.nn.attention.varlen import varlen_attn

        borders, longest = seqs.cu_seqlens, seqs.max_seqlen
        window = (-1, 0 if is_causal else -1)  # how far a token looks to the left and to the right; −1: without limit
        context = varlen_attn(q, k, v, borders, borders, longest, longest, window_size=window)
        assert isinstance(context, Tensor)  # a pair only where auxiliary outputs are asked for
        return context
