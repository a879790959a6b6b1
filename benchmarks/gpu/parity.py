"""Parity in values and gradients: each attention backend, and each head of each family, with a reference in float64.

The reference of attention is its definition, on the same numbers. That of a model is the same model on the CPU, with
attention by its definition. Errors are those of `relative_errors`. Compiled layers are compared with the same
model without them: `execution_parity`.

Shapes: B sequences, S width of a row, C choices, T tokens, N heads, D head size.
"""

import copy
from collections.abc import Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor

from benchmarks._attention_choice import forced_attention
from benchmarks.gpu.execution_parity import EXECUTED_HEAD, EXECUTIONS
from benchmarks.gpu.model_losses import (
    HEADS,
    ROUNDINGS_OF_MODEL,
    build_model,
    float64_everywhere,
    loss_and_gradient,
    random_inputs,
)
from benchmarks.gpu.relative_errors import FAILED, errors, with_verdict
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value
from benchmarks.gpu.setting import (
    Budget,
    Setting,
    in_precision,
    precisions_on,
    product_precision,
)
from bert_core.attention import BACKENDS
from bert_core.attention.backend import AttentionBackend, AttentionCall, AttentionOptions
from bert_core.constants import IGNORE_INDEX
from bert_core.families import FAMILY_NAMES
from bert_core.kernels.linear_cross_entropy import linear_cross_entropy_sums
from bert_core.packed_sequences import PackedSequences

LINEAR_BIASES = "linear biases"
CAUSAL = "causal"
KINDS = ("plain", CAUSAL, LINEAR_BIASES)
"""Kinds of attention."""
_ROUNDINGS_OF_ATTENTION = (4, 12)
"""Values: scores, weights, their sum, contexts. Gradients: these, and four products with what stands between them."""
_ROUNDINGS_OF_VOCABULARY_LOSS = (4, 8)
"""Values: two factors, logits, their sum. Gradients: these, softmax, and a product with its two factors."""


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Compare each backend and each model: one row for each, with the errors of all precisions."""
    for kind, backend in product(KINDS, BACKENDS):
        yield {"what": f"attention, {kind}", "of": backend.name} | (
            {"outcome": NOT_REACHED} if budget.is_spent else compare_backend(setting, backend, kind)
        )
    for family, head in product(FAMILY_NAMES, HEADS):
        yield {"what": family, "of": head} | (
            {"outcome": NOT_REACHED} if budget.is_spent else compare_model(setting, family, head)
        )
    yield {"what": "cross entropy of a vocabulary", "of": "linear_cross_entropy_sums"} | (
        {"outcome": NOT_REACHED} if budget.is_spent else compare_vocabulary_loss(setting)
    )
    for what, compare in EXECUTIONS.items():
        yield {"what": what, "of": EXECUTED_HEAD} | ({"outcome": NOT_REACHED} if budget.is_spent else compare(setting))


def compare_backend(setting: Setting, backend: AttentionBackend, kind: str) -> dict[str, Value]:
    """Compare a backend with the definition on sequences of various lengths."""
    lengths, num_heads, head_size = setting.choose(([1, 128, 37, 300, 64, 5], 12, 64), ([1, 9, 33], 2, 16))
    seqs = packed(lengths).to(setting.device)
    slopes = torch.tensor([0.5, 0.25] * (num_heads // 2), device=setting.device) if kind == LINEAR_BIASES else None
    options = AttentionOptions(0.0, slopes, kind == CAUSAL)
    row: dict[str, Value] = {}
    for precision in precisions_on(setting.device):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        generator = torch.Generator().manual_seed(0)
        qkv = torch.randn(sum(lengths), 3, num_heads, head_size, generator=generator).to(setting.device, dtype)
        call = AttentionCall.of(qkv[:, 0], seqs, options)
        if reason := find_refusal(backend, call):
            row[precision] = f"{FAILED if is_expected(backend, call) else 'not used'}: {reason}"
            continue
        reference = partial(context_and_gradient, BACKENDS[-1], qkv.double(), seqs, options)
        own = partial(context_and_gradient, backend, qkv, seqs, options)
        with product_precision(precision):
            row |= errors(precision, reference, own, _ROUNDINGS_OF_ATTENTION)
    return with_verdict(row)


def context_and_gradient(
    backend: AttentionBackend, qkv: Tensor, seqs: PackedSequences, options: AttentionOptions
) -> tuple[Tensor, Tensor]:
    """Context of each token, and the gradient of queries, keys and values: (T, 3, N, D) → (T, N, D), (T, 3, N, D)."""
    leaf = qkv.detach().clone().requires_grad_()
    q, k, v = leaf.unbind(1)  # (T, N, D) each
    context = backend(q, k, v, seqs, options)
    d_context = torch.linspace(0, 1, context.numel(), device=qkv.device, dtype=context.dtype).view_as(context)
    (gradient,) = torch.autograd.grad(context, leaf, d_context)
    return context.detach(), gradient


def compare_model(setting: Setting, family: str, head: str) -> dict[str, Value]:
    """Compare a model on the device with itself in float64 on the CPU."""
    model = build_model(family, head)
    inputs = random_inputs(model, head)
    with forced_attention("reference"), float64_everywhere():
        expected = loss_and_gradient(copy.deepcopy(model).double(), head, inputs)
    row: dict[str, Value] = {}
    for precision in precisions_on(setting.device):
        own = partial(loss_and_gradient, copy.deepcopy(model), head, inputs, setting.device, precision)
        row |= errors(precision, lambda: expected, own, ROUNDINGS_OF_MODEL)
    return with_verdict(row)


def compare_vocabulary_loss(setting: Setting) -> dict[str, Value]:
    """Compare the loss of a real vocabulary, over more predictions than a block has, with its definition in float64."""
    rows, size, hidden_size = setting.choose((9000, 30_522, 64), (600, 300, 16))
    generator = torch.Generator().manual_seed(0)
    shapes = (rows, hidden_size), (size, hidden_size), (size,)
    hidden, weight, bias = (torch.randn(shape, generator=generator) for shape in shapes)
    operands = [each.to(setting.device) for each in (hidden, weight / hidden_size**0.5, bias)]
    labels = torch.randint(size, (rows,), generator=generator)
    labels[::8] = IGNORE_INDEX
    labels = labels.to(setting.device)

    def own(precision: str) -> tuple[Tensor, Tensor]:
        leaves = [each.clone().requires_grad_() for each in operands]
        with in_precision(precision, setting.device):
            loss, _, num_labels = linear_cross_entropy_sums(leaves[0], leaves[1], leaves[2], labels)
        return with_gradients(loss / num_labels, leaves)

    def reference() -> tuple[Tensor, Tensor]:
        leaves = [each.double().requires_grad_() for each in operands]
        return with_gradients(torch.nn.functional.cross_entropy(torch.nn.functional.linear(*leaves), labels), leaves)

    expected, row = reference(), dict[str, Value]()
    for precision in precisions_on(setting.device):
        with product_precision(precision):
            row |= errors(precision, lambda: expected, partial(own, precision), _ROUNDINGS_OF_VOCABULARY_LOSS)
    return with_verdict(row)


def with_gradients(loss: Tensor, leaves: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Loss, and its gradients of some tensors as one vector."""
    return loss.detach(), torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, leaves)])


def find_refusal(backend: AttentionBackend, call: AttentionCall) -> str | None:
    """Find the reason why a backend is not used for a call; None where it is to be compared."""
    if backend.name == "grouped" and call.device != "cpu":
        return "made for CPUs"
    if backend.name == "fused" and call.device == "cpu":
        return None  # it refuses for its speed alone
    return backend.refusal(call)


def is_expected(backend: AttentionBackend, call: AttentionCall) -> bool:
    """Whether a backend has to take a call: varlen the plain one in bf16, on Ampere and newer cards."""
    is_plain = call.dtype == torch.bfloat16 and not call.has_slopes and not call.is_causal
    return backend.name == "varlen" and is_plain and (call.compute_capability or (0, 0)) >= (8, 0)


def packed(lengths: list[int]) -> PackedSequences:
    """Make sequences of these lengths; attention reads nothing else of them."""
    tokens = torch.zeros(sum(lengths), dtype=torch.int64)
    cu_seqlens = torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0))
    return PackedSequences.from_lengths(tokens, tokens, cu_seqlens)
