"""Attention by variable-length flash attention, on CUDA.

Shapes: T tokens, N heads, D head size.
"""

import warnings
from functools import cache

import torch
from torch import Tensor

from bert_core.attention.backend import AttentionBackend, AttentionCall, AttentionOptions
from bert_core.packed_sequences import PackedSequences

_OLDEST = (8, 0)  # compute capability of the first GPUs that flash attention 2 runs on: Ampere
_LARGEST_HEAD = 256
_LARGEST_HEAD_EVERYWHERE = 192  # wider ones go backward where a multiprocessor has the memory of an A100's or H100's
_LARGE_GPUS = ((8, 0), (9, 0))
_HEAD_STEP = 8


class VarlenAttention(AttentionBackend):
    """Flash attention 2 (Dao 2023) over sequences of various lengths, by PyTorch, which never sees padding.

    What it refuses is what the kernel refuses (flash_attn/flash_api.cpp in PyTorch 2.11 and 2.13). Autocast leaves it
    alone: its inputs have 16 bits because the layer in front of it computed them so.

    Called is the operator below `torch.nn.attention.varlen.varlen_attn`, whose gradient is C++ too and which takes a
    dropout probability. As it is private, it is tried once; where it fails, `varlen_attn` is called, without dropout.
    """

    name = "varlen"

    def refusal(self, call: AttentionCall) -> str | None:
        if call.device != "cuda":
            return "runs on CUDA only"
        major, minor = call.compute_capability or (0, 0)
        if (major, minor) < _OLDEST:
            return f"needs compute capability 8.0 or newer; this GPU has {major}.{minor}"
        if call.dtype not in (torch.bfloat16, torch.float16):
            return "computes in 16 bits only"
        largest = _LARGEST_HEAD if (major, minor) in _LARGE_GPUS else _LARGEST_HEAD_EVERYWHERE
        if call.head_size % _HEAD_STEP or call.head_size > largest:
            return f"needs heads whose width is a multiple of {_HEAD_STEP} and at most {largest}"
        if call.has_slopes:
            return "has no linear biases"
        if call.has_bias:
            return "has no learned biases or scores by distance"
        if call.includes_padding:
            return "cannot leave out padding that is among the tokens"
        if call.dropout_p and not _flash_attention_runs():
            return "has no attention dropout in this PyTorch"
        return None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, seqs: PackedSequences, options: AttentionOptions) -> Tensor:
        cu_seqlens, longest = seqs.cu_seqlens, seqs.max_seqlen
        if _flash_attention_runs():
            return _flash_attention(q, k, v, cu_seqlens, longest, options)
        from torch.nn.attention.varlen import varlen_attn

        sides = _window_sides(options)
        context = varlen_attn(q, k, v, cu_seqlens, cu_seqlens, longest, longest, window_size=sides)
        assert isinstance(context, Tensor)  # a pair only where auxiliary outputs are asked for
        return context


def _window_sides(options: AttentionOptions) -> tuple[int, int]:
    """Tokens that a token attends to on its left and on its right; −1: without limit."""
    window = -1 if options.window is None else options.window
    return window, 0 if options.is_causal else window


def _flash_attention(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, longest: int, options: AttentionOptions
) -> Tensor:
    """Context of each token, by the kernel itself: (T, N, D) each, (B+1,) → (T, N, D)."""
    kernel = torch.ops.aten._flash_attention_forward
    left, right = _window_sides(options)
    arguments = (q, k, v, cu_seqlens, cu_seqlens, longest, longest, options.dropout_p, options.is_causal, False)
    context: Tensor = kernel(*arguments, window_size_left=left, window_size_right=right)[0]
    return context


@cache
def _flash_attention_runs() -> bool:
    """Whether the operator computes a token's context and gradient here; no random number is used up."""
    if not torch.cuda.is_available():
        return True  # asked what a GPU would take
    device = torch.cuda.current_device()
    with torch.random.fork_rng([device]), torch.inference_mode(False), torch.enable_grad():
        token = torch.ones(1, 1, _HEAD_STEP, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        cu_seqlens = torch.tensor([0, 1], dtype=torch.int32, device="cuda")
        try:
            _flash_attention(token, token, token, cu_seqlens, 1, AttentionOptions(0.5)).sum().backward()  # type: ignore[no-untyped-call]
        except torch.OutOfMemoryError:
            raise
        except (AttributeError, TypeError, RuntimeError) as error:
            warnings.warn(
                f"attention without padding has no dropout in PyTorch {torch.__version__} ({error}); models with "
                "attention dropout compute padding too, which takes longer",
                stacklevel=2,
            )
            return False
    return True
