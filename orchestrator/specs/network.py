"""Networks and optimizers in specs: the fields that pretraining and fine-tuning have alike."""

from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from bert_core.config import BertConfig, shape_of
from bert_core.config_fields import FeedForward, HiddenActivation, Norm, NormPlacement, PositionEmbedding
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
_ANY_VOCAB_SIZE = 30522
_CONFIG_FIELDS = {field.name for field in fields(BertConfig)} - {
    "num_hidden_layers",
    "hidden_size",
    "max_position_embeddings",
}
"""Fields of BertConfig that a spec's model has as they are, where it has them."""
DROPOUT_FIELDS = frozenset(("hidden_dropout_prob", "attention_probs_dropout_prob"))
"""Fields of a spec's model that count for a model to continue from, too."""


class ModelSpec(Section):
    """A network's size, by name or by its numbers, and its family."""

    size: Size = identity(
        "tiny",
        "A published size: tiny 2×128, mini 4×256, small 4×512, medium 8×512, base 12×768, large 24×1024, or layers × "
        "width as in 8x256.",
    )
    family: FamilyName = identity(
        "bert",
        "Whose choices the network makes, which fields below may change; `modern`: rotary positions, pre-norm, gated, "
        "without biases, token types and dropout; `modernbert`: these and local attention, as transformers has them.",
    )
    hidden_size: int | None = identity(None, "Width; the size's own when left out.", ge=8)
    num_hidden_layers: int | None = identity(None, "Layers; the size's own when left out.", ge=1)
    num_attention_heads: int | None = identity(None, "Attention heads; hidden_size / 64 when left out.", ge=1)
    num_key_value_heads: int | None = identity(
        None,
        "Heads of keys and values, each shared by as many heads of queries (grouped-query attention); as many as "
        "num_attention_heads when left out.",
        is_new=True,
        ge=1,
    )
    intermediate_size: int | None = identity(
        None, "Width inside the feed-forward layer; 4 × hidden_size when left out, 8/3 × if gated.", ge=8
    )
    position_embedding: PositionEmbedding | None = identity(
        None, "Positions: learned, rotary, ALiBi, disentangled (DeBERTa); the family's own when left out.", is_new=True
    )
    norm_placement: NormPlacement | None = identity(
        None, "Norms behind each addition or in front of each sub-layer; the family's own when left out.", is_new=True
    )
    norm: Norm | None = identity(
        None, "Norms of the encoder: LayerNorm or RMSNorm; the family's own when left out.", is_new=True
    )
    feed_forward: FeedForward | None = identity(
        None,
        "Feed-forward network: two matrices, or gated by a third, with `hidden_act: silu` SwiGLU, with gelu GeGLU; the "
        "family's own when left out.",
        is_new=True,
    )
    hidden_act: HiddenActivation | None = identity(
        None, "Activation of the feed-forward network; the family's own when left out.", is_new=True
    )
    use_bias: bool | None = identity(
        None, "Biases in the layers' matrices and LayerNorms; the family's own when left out.", is_new=True
    )
    tie_layers: bool | None = identity(
        None,
        "All layers have the same weights (ALBERT); the family's own when left out (albert: true, others: false).",
        is_new=True,
    )
    local_window: int | None = identity(
        None,
        "Local attention, in all layers but every `global_every`-th: tokens that a token attends to, half of them on "
        "each side; the family's own when left out (modernbert: 128, others: all).",
        unit="tokens",
        is_new=True,
        ge=2,
    )
    global_every: int | None = identity(
        None,
        "With local attention: one of so many layers, the first among them, attends to the whole sequence; 3 when left "
        "out.",
        unit="layers",
        is_new=True,
        ge=1,
    )
    rotary_base: float | None = identity(
        None,
        "Base of rotary positions, also in local layers but where the family has another one for them (modernbert); "
        "the family's own when left out (modern: 10000, modernbert: 160000).",
        is_new=True,
        gt=1.0,
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
    depth_scaled_init: bool | None = identity(
        None,
        "Start matrices that add to the residual stream smaller, by √(2 · layers); the family's own when left out "
        "(modernbert: true, others: false).",
        is_new=True,
    )

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        config = build_config(self, _ANY_VOCAB_SIZE)
        if self.rotary_base is not None and config.position_embedding_type != "rotary":
            raise ValueError(
                f"rotary_base {self.rotary_base:g} is for rotary positions, and the model has "
                f"{config.position_embedding_type} ones; leave it out, or set position_embedding to rotary"
            )
        if self.global_every is not None and config.local_window is None:
            raise ValueError(
                f"global_every {self.global_every} is for local attention, which {self.family} has not; leave it out, "
                "or set local_window too"
            )
        return self


_Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
AdamBetas = tuple[_Beta, _Beta]

warmup_ratio = partial(identity, doc="Share of the steps that warm up linearly.", unit="share", ge=0.0, lt=1.0)
learning_rate_schedule = partial(
    identity,
    "linear",
    "Learning rate after the warm-up: a line, half a cosine or 1 − √ down to 0, the peak to the end, or one_cycle "
    "(PyTorch's OneCycleLR, whose warm-up is a cosine too).",
    is_new=True,
)
decay_ratio = partial(
    identity,
    None,
    "Share of the steps, the last ones, in which the learning rate falls; before them it stays at its peak "
    "(warmup-stable-decay, WSD). All after the warm-up when left out.",
    unit="share",
    is_new=True,
    gt=0.0,
    le=1.0,
)
optimizer = partial(
    identity,
    "adamw",
    "Rule of the update: AdamW; StableAdamW, which clips updates; LAMB, for large batches; Muon for the matrices of "
    "layers, with AdamW for all else at the same learning rate.",
    is_new=True,
)
weight_decay = partial(identity, 0.01, "Decoupled weight decay; none on biases and LayerNorm.", ge=0.0)
adam_betas = partial(identity, (0.9, 0.999), "Decay rates of Adam's first and second moments, β1 and β2.")
adam_epsilon = partial(
    identity, 1e-6, "Term added to the root of Adam's second moment; PyTorch's default is 1e-8.", gt=0.0
)
adam_bias_correction = partial(
    identity, True, "Divide Adam's moments by 1 − β^t, which BERT's own optimizer does not do.", is_new=True
)
max_grad_norm = partial(identity, 1.0, "Gradients are clipped to this norm.", gt=0.0)
precision = partial(
    identity,
    "auto",
    "Arithmetic of the model's products. `auto`: bf16 where all devices of the run have units for it (GPUs from Ampere "
    "on, CPUs with AMX or AVX-512 BF16, there from a width of 256 on), else fp32; the run records what it came to.",
)
allow_tf32 = partial(
    identity,
    True,
    "With fp32 on a GPU: multiply matrices as TF32, with 10 bits behind the point, several times faster.",
)


def check_decay(schedule: str, warmup_ratio: float, decay_ratio: float | None, done: float = 0.0) -> None:
    """Check that a schedule has a decay, and that it fits into what is left. Raises: ValueError.

    Args:
        done: share of the steps that another run has done.
    """
    left, begun_by = 1.0 - max(warmup_ratio, done), "warmup_ratio" if warmup_ratio >= done else "init_step"
    if decay_ratio is not None and not SCHEDULES[schedule].has_peak:
        raise ValueError(f"decay_ratio says nothing with learning_rate_schedule {schedule}; leave out one of the two")
    if decay_ratio is not None and decay_ratio > left + 1e-9:
        raise ValueError(
            f"decay_ratio {decay_ratio:g} is longer than the share of the steps, {left:g}, that {begun_by} leaves; "
            f"lower it, or leave it out to take all of that"
        )


def build_config(model: ModelSpec, vocab_size: int, pad_token_id: int = 0) -> BertConfig:
    """Configuration of a spec's model for a vocabulary. Raises: ConfigError when its numbers cannot be a model."""
    num_hidden_layers, hidden_size = shape_of(model.size)
    depth, width = model.num_hidden_layers or num_hidden_layers, model.hidden_size or hidden_size
    changes = {name: value for name, value in model if name in _CONFIG_FIELDS and value is not None}
    if model.position_embedding is not None:
        changes["position_embedding_type"] = model.position_embedding
    if model.tie_layers or model.norm_placement == "post":
        changes["first_norm"] = True  # which modernbert alone leaves out
    if model.norm == "rms":
        changes["norm_bias"] = None  # which nomic_bert's LayerNorms have
    sizes = {"vocab_size": vocab_size, "pad_token_id": pad_token_id}
    config = BertConfig.from_shape(depth, width, model.family, **sizes, **changes)
    num_groups = config.num_hidden_groups
    if model.tie_layers is not None:
        num_groups = 1 if model.tie_layers else num_groups and depth  # albert has no other word for all layers
    longest = model.max_position_embeddings + config.position_offset
    return replace(config, max_position_embeddings=longest, num_hidden_groups=num_groups)
