"""Networks and optimizers in specs: the fields that pretraining and fine-tuning have alike."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator

from bert_core.config import BertConfig, shape_of
from bert_core.errors import ConfigError
from bert_core.families import FAMILIES, FAMILY_NAMES, MODERN
from bert_core.learning_rates import SCHEDULES
from orchestrator.specs.fields import Section, identity

if TYPE_CHECKING:
    FamilyName = str
    ScheduleName = str
else:  # mypy knows no literals that are made from a list
    FamilyName = Literal[FAMILY_NAMES]
    ScheduleName = Literal[tuple(SCHEDULES)]


def _check_size(size: str) -> str:
    """Return the name of a size. Raises: ValueError for an unknown one."""
    try:
        shape_of(size)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("size ")) from None
    return size


def has_sentence_head(family: str) -> bool:
    """Whether a family's models are pretrained with pairs of segments."""
    choices = MODERN if family == "modern" else FAMILIES[family].fixed_fields
    return bool(choices.get("sentence_head", True))


Size = Annotated[str, AfterValidator(_check_size)]


class ModelSpec(Section):
    """A network's size, by name or by its numbers, and its family."""

    size: Size = identity(
        "tiny",
        "A published size: tiny 2×128, mini 4×256, small 4×512, medium 8×512, base 12×768, large 24×1024, or layers × "
        "width as in 8x256.",
    )
    family: FamilyName = identity(
        "bert", "Whose choices the network makes; `modern`: rotary positions, pre-norm, gated, without biases."
    )
    hidden_size: int | None = identity(None, "Width; the size's own when left out.", ge=8)
    num_hidden_layers: int | None = identity(None, "Layers; the size's own when left out.", ge=1)
    num_attention_heads: int | None = identity(None, "Attention heads; hidden_size / 64 when left out.", ge=1)
    intermediate_size: int | None = identity(
        None, "Width inside the feed-forward layer; 4 × hidden_size when left out, 8/3 × if gated.", ge=8
    )
    max_position_embeddings: int = identity(512, "Longest sequence the model can read.", unit="tokens", ge=8)
    hidden_dropout_prob: float | None = identity(
        None, "Dropout on embeddings and sub-layers; the family's own when left out (bert: 0.1).", ge=0.0, lt=1.0
    )
    attention_probs_dropout_prob: float | None = identity(
        None, "Dropout on attention weights; the family's own when left out (bert: 0.1).", ge=0.0, lt=1.0
    )
    span_boundary_objective: bool = identity(
        False, "Predict a masked span's tokens from its borders as well (SpanBERT); goes with mask_unit: span."
    )
    initializer_range: float = identity(0.02, "Standard deviation of the initial weights.", gt=0.0)


def _check_betas(betas: tuple[float, float]) -> tuple[float, float]:
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"has {betas[0]:g} and {betas[1]:g}; both must be at least 0 and below 1")
    return betas


AdamBetas = Annotated[tuple[float, float], AfterValidator(_check_betas)]

warmup_ratio = partial(identity, doc="Share of the steps that warm up linearly.", unit="share", ge=0.0, lt=1.0)
learning_rate_schedule = partial(
    identity,
    "linear",
    "Learning rate after the warm-up: a line or half a cosine down to 0, or the peak to the end.",
    is_new=True,
)
weight_decay = partial(identity, 0.01, "AdamW's decay; none on biases and LayerNorm.", ge=0.0)
adam_betas = partial(identity, (0.9, 0.999), "AdamW's moment decays.")
adam_epsilon = partial(identity, 1e-6, "AdamW's epsilon.", gt=0.0)
max_grad_norm = partial(identity, 1.0, "Gradients are clipped to this norm.", gt=0.0)
allow_tf32 = partial(
    identity,
    True,
    "With fp32 on a GPU: multiply matrices as TF32, with 10 bits behind the point, several times faster.",
)


def build_config(model: ModelSpec, vocab_size: int, pad_token_id: int = 0) -> BertConfig:
    """Configuration of a spec's model for a vocabulary. Raises: ConfigError when its numbers cannot be a model."""
    num_hidden_layers, hidden_size = shape_of(model.size)
    asked = {
        "num_attention_heads": model.num_attention_heads,
        "intermediate_size": model.intermediate_size,
        "hidden_dropout_prob": model.hidden_dropout_prob,
        "attention_probs_dropout_prob": model.attention_probs_dropout_prob,
        "initializer_range": model.initializer_range,
        "span_boundary_objective": model.span_boundary_objective,
        "pad_token_id": pad_token_id,
        "vocab_size": vocab_size,
    }
    changes = {name: value for name, value in asked.items() if value is not None}
    depth, width = model.num_hidden_layers or num_hidden_layers, model.hidden_size or hidden_size
    offset = BertConfig.from_shape(depth, width, model.family, **changes).position_offset
    longest = model.max_position_embeddings + offset
    return BertConfig.from_shape(depth, width, model.family, max_position_embeddings=longest, **changes)
