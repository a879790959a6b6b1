"""Parity in values and gradients: each attention backend, and each head of each family, with a reference in float64.

The reference of attention is its definition, on the same numbers. That of a model is the same model on the CPU, with
attention by its definition. Compiled layers are compared with the same model without them.

Errors are relative, ‖x − reference‖ / ‖reference‖ over all elements. Tolerances follow from the precision: rounding a
number to it is wrong by up to its unit roundoff u, and n roundings one behind another add up to about u·√n where their
errors are independent (Higham 2002, section 2.8); twice that is allowed. A sum of K fp32 numbers rounds K times, which
makes another √K; the sums of bf16 and tf32 products are in fp32.

Shapes: B sequences, S width of a row, C choices, T tokens, N heads, D head size.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks._attention_choice import forced_attention
from benchmarks._pretraining_batches import pack_batch
from benchmarks.gpu.own_step import compile_model
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value
from benchmarks.gpu.setting import (
    UNIT_ROUNDOFF,
    Budget,
    Setting,
    in_precision,
    precisions_on,
    product_precision,
)
from bert_core.attention import BACKENDS
from bert_core.attention.backend import AttentionBackend, AttentionCall, AttentionOptions
from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.families import FAMILY_NAMES
from bert_core.heads import (
    BertForMultipleChoice,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSentenceEmbedding,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert_core.heads.sentence_selection import BertForSentenceSelection
from bert_core.kernels.linear_cross_entropy import linear_cross_entropy_sums
from bert_core.objectives import SENTENCE_OBJECTIVES
from bert_core.packed_sequences import PackedSequences

LINEAR_BIASES = "linear biases"
CAUSAL = "causal"
LOCAL = "local window"
KINDS = ("plain", CAUSAL, LINEAR_BIASES, LOCAL)
"""Kinds of attention."""
FAILED = "failed"
_LONGEST_SUM = 512
_EXECUTED_HEAD = "BertForPreTraining"
"""Head of the model whose layers are compiled."""
_ROUNDINGS_OF_ATTENTION = (4, 12)
"""Values: scores, weights, their sum, contexts. Gradients: these, and four products with what stands between them."""
_ROUNDINGS_OF_VOCABULARY_LOSS = (4, 8)
"""Values: two factors, logits, their sum. Gradients: these, softmax, and a product with its two factors."""


CPU = torch.device("cpu")
ROUNDINGS_OF_MODEL = (48, 96)
"""Two layers with some twelve roundings each, in values; the same again in gradients; and the head's."""
_NUM_TABULAR_FEATURES = 3


@dataclass(frozen=True)
class Head:
    """A model with a head, in one of the head's forms."""

    model_class: type[PretrainedModel]
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the configuration that make the form."""
    objectives: tuple[str, ...] = ()
    """Objectives of a pretraining."""


HEADS: Mapping[str, Head] = {
    "BertForPreTraining": Head(BertForPreTraining, objectives=("masked_lm", "next_sentence")),
    "BertForPreTraining, sentence order": Head(
        BertForPreTraining, {"sentence_head": True}, ("masked_lm", "sentence_order")
    ),
    "BertForPreTraining, span boundary": Head(
        BertForPreTraining, {"span_boundary_objective": True}, ("masked_lm", "span_boundary")
    ),
    "BertForPreTraining, left to right": Head(BertForPreTraining, {"causal_attention": True}, ("left_to_right",)),
    "BertForMultipleChoice": Head(BertForMultipleChoice),
    "BertForQuestionAnswering": Head(BertForQuestionAnswering),
    "BertForSentenceEmbedding": Head(BertForSentenceEmbedding),
    "BertForSentenceSelection": Head(BertForSentenceSelection),
    "BertForSequenceClassification": Head(BertForSequenceClassification),
    "BertForSequenceClassification, tabular columns": Head(
        BertForSequenceClassification, {"num_tabular_features": _NUM_TABULAR_FEATURES}
    ),
    "BertForTokenClassification": Head(BertForTokenClassification),
    "BertForTokenClassification, CRF": Head(BertForTokenClassification, {"token_decoder": "crf"}),
    "BertForTokenClassification, LSTM": Head(BertForTokenClassification, {"num_lstm_layers": 1}),
    "BertForTokenClassification, scalar mix": Head(BertForTokenClassification, {"layer_pooling": "scalar_mix"}),
}
"""All heads of `bert_core` by name, and those of their forms that have weights or a loss of their own."""

_LENGTHS = (12, 32, 5, 23)
_NUM_CHOICES = 2
_VOCABULARY = 5000
"""More columns than a kernel of the cross entropy holds at a time."""


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
    yield {"what": "compiled layers against eager ones", "of": _EXECUTED_HEAD} | (
        {"outcome": NOT_REACHED} if budget.is_spent else compare_compiled(setting)
    )


def compare_backend(setting: Setting, backend: AttentionBackend, kind: str) -> dict[str, Value]:
    """Compare a backend with the definition on sequences of various lengths."""
    lengths, num_heads, head_size = setting.choose(([1, 128, 37, 300, 64, 5], 12, 64), ([1, 9, 33], 2, 16))
    seqs = packed(lengths).to(setting.device)
    slopes = torch.tensor([0.5, 0.25] * (num_heads // 2), device=setting.device) if kind == LINEAR_BIASES else None
    window = setting.choose(64, 4) if kind == LOCAL else None
    options = AttentionOptions(0.0, slopes, kind == CAUSAL, window)
    row: dict[str, Value] = {}
    for precision in precisions_on(setting.device):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        generator = torch.Generator().manual_seed(0)
        qkv = torch.randn(sum(lengths), 3, num_heads, head_size, generator=generator).to(setting.device, dtype)
        call = AttentionCall.of(qkv[:, 0], seqs, options)
        if reason := find_gpu_problem(backend, call):
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


def compare_compiled(setting: Setting) -> dict[str, Value]:
    """Compare a model with compiled layers with itself without, both in bf16, the residual stream too.

    Both round, so that their difference has the roundings of two.
    """
    model = build_model("bert", _EXECUTED_HEAD)
    assert isinstance(model, BertForPreTraining)
    model.bert.residual_dtype = torch.bfloat16
    inputs = random_inputs(model, _EXECUTED_HEAD)

    def compiled() -> tuple[Tensor, Tensor]:
        own = copy.deepcopy(model).to(setting.device)
        compile_model(setting, own)
        return loss_and_gradient(own, _EXECUTED_HEAD, inputs, setting.device, "bf16")

    eager = partial(loss_and_gradient, copy.deepcopy(model), _EXECUTED_HEAD, inputs, setting.device, "bf16")
    values, gradients = ROUNDINGS_OF_MODEL
    return with_verdict(errors("bf16", eager, compiled, (2 * values, 2 * gradients)))


def with_gradients(loss: Tensor, leaves: list[Tensor]) -> tuple[Tensor, Tensor]:
    return loss.detach(), torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, leaves)])


def find_gpu_problem(backend: AttentionBackend, call: AttentionCall) -> str | None:
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


def tolerance(precision: str, num_roundings: int) -> float:
    """Largest relative error that rounding explains."""
    longest_sum = _LONGEST_SUM if precision == "fp32" else 1
    return 2 * UNIT_ROUNDOFF[precision] * math.sqrt(num_roundings * longest_sum)


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
        return {precision: f"{FAILED}: {type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"}
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
    """Add whether every error is allowed; a row that is refused in every precision has no verdict."""
    allowed = [
        error <= limit  # NaN is not
        for name, error in row.items()
        if isinstance(error, float) and isinstance(limit := row.get(f"{name} allowed"), float)
    ]
    has_failed = any(isinstance(value, str) and value.startswith(FAILED) for value in row.values())
    return row | ({"ok": all(allowed) and not has_failed} if allowed or has_failed else {})


def build_model(family: str, head: str) -> PretrainedModel:
    """Build a model of two layers without dropout, whose weights are large enough for a mistake in any to show."""
    sizes = {"vocab_size": _VOCABULARY, "initializer_range": 0.05}
    config = BertConfig.from_shape(2, 64, family, **{**sizes, **HEADS[head].changes}).with_dropout(0.0)
    return HEADS[head].model_class.from_config(config).train()


@contextmanager
def float64_everywhere() -> Iterator[None]:
    """Let what a model computes in fp32 in any case, as LSTM, CRF and losses, be in float64 during the block."""
    with patch.object(Tensor, "float", Tensor.double):
        yield


def random_inputs(model: PretrainedModel, head: str) -> dict[str, Tensor]:
    """Draw padded rows (B, S) and the labels of a head; (B, C, S) for multiple choice."""
    generator = torch.Generator().manual_seed(0)
    num_rows, width, config = len(_LENGTHS), max(_LENGTHS), model.config
    mask = (torch.arange(width) < torch.tensor(_LENGTHS)[:, None]).long()
    ids = torch.randint(6, config.vocab_size, mask.shape, generator=generator)
    inputs = {"input_ids": torch.where(mask.bool(), ids, config.pad_token_id or 0), "attention_mask": mask}
    inputs["token_type_ids"] = torch.zeros_like(mask)
    tags = torch.randint(2, mask.shape, generator=generator)
    classes = torch.randint(2, (num_rows,), generator=generator)
    is_predicted = (torch.rand(mask.shape, generator=generator) < 0.3) & mask.bool()
    is_predicted[:, 1] = True
    is_predicted[:, 0] = is_predicted[torch.arange(num_rows), mask.sum(dim=1) - 1] = False  # as [CLS] and [SEP] are
    labels: dict[str, dict[str, Tensor]] = {
        "BertForPreTraining": {
            "labels": torch.where(is_predicted, ids, IGNORE_INDEX),
            "next_sentence_label": classes,
        },
        "BertForMultipleChoice": {"labels": classes[: num_rows // _NUM_CHOICES]},
        "BertForQuestionAnswering": {"start_positions": classes, "end_positions": classes + 2},
        "BertForSentenceEmbedding": {},
        "BertForSentenceSelection": {"labels": torch.where(mask.bool() & (ids % 3 == 0), tags, IGNORE_INDEX)},
        "BertForSequenceClassification": {"labels": classes},
        "BertForTokenClassification": {"labels": torch.where(mask.bool(), tags, IGNORE_INDEX)},
    }
    if isinstance(model, BertForMultipleChoice):
        inputs = {name: value.view(-1, _NUM_CHOICES, width) for name, value in inputs.items()}
    if config.num_tabular_features:
        inputs["tabular_features"] = torch.rand(num_rows, config.num_tabular_features, generator=generator)
    return inputs | labels[HEADS[head].model_class.__name__]


def head_loss(model: PretrainedModel, head: str, inputs: dict[str, Tensor]) -> Tensor:
    """Compute the loss of a head; pretraining goes by packed sequences, as in training."""
    if isinstance(model, BertForPreTraining):
        left_out = () if model.config.sentence_head else SENTENCE_OBJECTIVES
        objectives = [name for name in HEADS[head].objectives if name not in left_out]
        sums = model.packed_loss_sums(*pack_batch(inputs), objectives)
        return torch.stack([each.loss / each.num_predictions for each in sums.values()]).sum()
    if isinstance(model, BertForSentenceEmbedding):
        embeddings: Tensor = model(**inputs).sentence_embedding  # (B, H)
        target = torch.linspace(-1, 1, embeddings.shape[1], device=embeddings.device)  # any: the head has no labels
        return (embeddings - target).square().sum()
    loss: Tensor = model(**inputs).loss
    return loss


def loss_and_gradient(
    model: PretrainedModel,
    head: str,
    inputs: dict[str, Tensor],
    device: torch.device = CPU,
    precision: str = "fp32",
) -> tuple[Tensor, Tensor]:
    """Loss of a model, and the gradients of all its parameters as one vector."""
    model.to(device)
    with product_precision(precision):
        with in_precision(precision, device):
            loss = head_loss(model, head, {name: tensor.to(device) for name, tensor in inputs.items()})
        loss.backward()  # type: ignore[no-untyped-call]  # outside of autocast, as in a training run
    return loss.detach(), gradient_vector(model)


def gradient_vector(model: PretrainedModel) -> Tensor:
    gradients = [p.grad.flatten() if p.grad is not None else p.new_zeros(p.numel()) for p in model.parameters()]
    return torch.cat(gradients)
