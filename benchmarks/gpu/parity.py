"""Parity in values and gradients: each attention backend, and each head of each family, with a reference in float64.

The reference of attention is its definition, on the same numbers. That of a model is the same model on the CPU, with
attention by its definition. Errors are ‖x − reference‖ / ‖reference‖ over all elements.

Tolerances follow from the precision. Rounding a number to it is wrong by up to its unit roundoff u, and n roundings one
behind another add up to about u·√n where their errors are independent (Higham 2002, section 2.8); twice that is
allowed. A sum of K fp32 numbers rounds K times, which makes another √K; the sums of bf16 and tf32 products are in fp32.

Shapes: B sequences, S width of a row, C choices, T tokens, N heads, D head size.
"""

import copy
import math
from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor

from benchmarks._attention_choice import forced_attention
from benchmarks.gpu.model_losses import HEADS, build_model, head_loss, random_inputs
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value
from benchmarks.gpu.setting import UNIT_ROUNDOFF, Budget, Setting, in_precision, precisions_on
from bert_core.attention import BACKENDS
from bert_core.attention.backend import AttentionBackend, AttentionCall
from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.families import FAMILY_NAMES
from bert_core.packed_sequences import PackedSequences

KINDS = ("plain", "causal", "linear biases")
"""Kinds of attention."""
_LONGEST_SUM = 512
_ROUNDINGS_OF_ATTENTION = (4, 12)
"""Values: scores, weights, their sum, contexts. Gradients: these, and four products with what stands between them."""
_ROUNDINGS_OF_MODEL = (48, 96)
"""Two layers with some twelve roundings each, in values; the same again in gradients; and the head's."""


def tolerance(precision: str, num_roundings: int) -> float:
    """Largest relative error that rounding explains."""
    longest_sum = _LONGEST_SUM if precision == "fp32" else 1
    return 2 * UNIT_ROUNDOFF[precision] * math.sqrt(num_roundings * longest_sum)


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


def compare_backend(setting: Setting, backend: AttentionBackend, kind: str) -> dict[str, Value]:
    """Compare a backend with the definition on sequences of various lengths."""
    lengths, num_heads, head_size = setting.choose(([1, 128, 37, 300, 64, 5], 12, 64), ([1, 9, 33], 2, 16))
    seqs = packed(lengths).to(setting.device)
    slopes = torch.tensor([0.5, 0.25] * (num_heads // 2), device=setting.device) if kind == KINDS[2] else None
    row: dict[str, Value] = {}
    for precision in precisions_on(setting.device):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        call = attention_call(setting.device, dtype, kind)
        if reason := why_not(backend, call):
            row[precision] = f"not used: {reason}"
            continue
        generator = torch.Generator().manual_seed(0)
        qkv = torch.randn(sum(lengths), 3, num_heads, head_size, generator=generator).to(setting.device, dtype)

        def run(
            carried_out_by: AttentionBackend,
            numbers: Tensor,
            dtype: torch.dtype = dtype,
            causal: bool = call.is_causal,
        ) -> tuple[Tensor, Tensor]:
            leaf = numbers.detach().clone().requires_grad_()
            q, k, v = leaf.unbind(1)  # (T, N, D) each
            context = carried_out_by(q, k, v, seqs, 0.0, slopes, causal)
            weights = torch.linspace(0, 1, context.numel(), device=numbers.device).view_as(context).to(dtype)
            context.backward(weights.to(context.dtype))  # type: ignore[no-untyped-call]
            assert leaf.grad is not None
            return context.detach(), leaf.grad

        row |= errors(
            precision,
            lambda run=run, qkv=qkv: run(BACKENDS[-1], qkv.double()),  # type: ignore[misc]
            lambda run=run, qkv=qkv: run(backend, qkv),  # type: ignore[misc]
            _ROUNDINGS_OF_ATTENTION,
        )
    return with_verdict(row)


def compare_model(setting: Setting, family: str, head: str) -> dict[str, Value]:
    """Compare a model on the device with itself in float64 on the CPU."""
    model = build_model(family, head)
    inputs = random_inputs(model, head)
    row: dict[str, Value] = {}

    def reference() -> tuple[Tensor, Tensor]:
        with forced_attention("reference"):
            return loss_and_gradient(copy.deepcopy(model).double(), head, inputs)

    expected = reference()
    for precision in precisions_on(setting.device):

        def own(precision: str = precision) -> tuple[Tensor, Tensor]:
            moved = {name: tensor.to(setting.device) for name, tensor in inputs.items()}
            with in_precision(precision, setting.device):
                return loss_and_gradient(copy.deepcopy(model).to(setting.device), head, moved)

        row |= errors(precision, lambda: expected, own, _ROUNDINGS_OF_MODEL)
    return with_verdict(row)


def loss_and_gradient(model: PretrainedModel, head: str, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Loss of a model, and the gradients of all its parameters as one vector."""
    loss = head_loss(model, head, inputs)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.flatten() if p.grad is not None else p.new_zeros(p.numel()) for p in model.parameters()]
    return loss.detach(), torch.cat(gradients)


def errors(
    precision: str,
    reference: Callable[[], tuple[Tensor, Tensor]],
    own: Callable[[], tuple[Tensor, Tensor]],
    roundings: tuple[int, int],
) -> dict[str, Value]:
    """Relative errors of values and gradients, each with its share of the tolerance, or what went wrong."""
    try:
        pairs = list(zip(own(), reference(), strict=True))
    except Exception as error:  # of a kernel, which is what is looked for
        return {precision: f"failed: {type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"}
    found: dict[str, Value] = {}
    for name, (ours, expected), num_roundings in zip(("value", "gradient"), pairs, roundings, strict=True):
        found[f"{precision} {name}"] = relative_error(ours, expected)
        found[f"{precision} {name} allowed"] = tolerance(precision, num_roundings)
    return found


def relative_error(ours: Tensor, expected: Tensor) -> float:
    """Compute ‖ours − expected‖ / ‖expected‖ in float64."""
    ours, expected = ours.double().cpu(), expected.double().cpu()
    return float((ours - expected).norm() / expected.norm())


def with_verdict(row: dict[str, Value]) -> dict[str, Value]:
    """Add whether every error is allowed; a row without any error has no verdict unless something failed."""
    allowed = [
        error <= limit  # NaN is not
        for name, error in row.items()
        if isinstance(error, float) and isinstance(limit := row.get(f"{name} allowed"), float)
    ]
    has_failed = any(isinstance(value, str) and value.startswith("failed") for value in row.values())
    return row | ({"ok": all(allowed) and not has_failed} if allowed or has_failed else {})


def attention_call(device: torch.device, dtype: torch.dtype, kind: str) -> AttentionCall:
    """Describe a call, as `attention` does for itself."""
    return AttentionCall(device.type, dtype, has_slopes=kind == KINDS[2], is_causal=kind == KINDS[1])


def why_not(backend: AttentionBackend, call: AttentionCall) -> str | None:
    """Reason why a backend is not used for a call; None where it is to be compared."""
    if backend.name == "grouped" and call.device != "cpu":
        return "made for CPUs"
    if backend.name == "fused" and call.device == "cpu":
        return None  # it refuses for its speed alone
    return backend.refusal(call)


def packed(lengths: list[int]) -> PackedSequences:
    """Make sequences of these lengths; attention reads nothing else of them."""
    tokens = torch.zeros(sum(lengths), dtype=torch.int64)
    cu_seqlens = torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0))
    return PackedSequences.from_lengths(tokens, tokens, cu_seqlens)
