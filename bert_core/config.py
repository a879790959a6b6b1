"""The shape of a model, with Hugging Face's field names; no torch in here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from bert_core.config_checks import check_config
from bert_core.config_choices import (
    FeedForward,
    HeadStates,
    HiddenActivation,
    NormPlacement,
    PoolerActivation,
    PositionEmbedding,
    ProblemType,
    TokenDecoder,
)
from bert_core.errors import CheckpointError, ConfigError
from bert_core.families import FAMILIES, MODERN, NATIVE, Family
from bert_core.sizes import shape_of

CONFIG_FILE = "config.json"


@dataclass(frozen=True)
class BertConfig:
    """Everything that decides a model's shape and arithmetic: one encoder, and choices that do not depend on another.

    Raises: ConfigError, naming the field, when the numbers cannot be a model.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: HiddenActivation = "gelu"
    """Activation inside the feed-forward layer; "gelu" is the exact one, by erf."""
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    """Dropout in front of a classifier; `hidden_dropout_prob` when None."""
    answer_dropout: float = 0.0
    """Dropout in front of the head for answers."""
    max_position_embeddings: int = 512
    """Rows of the table of positions; without a table, the longest sequence."""
    type_vocab_size: int = 2
    """Kinds of segments; 0 for a model without token types."""
    initializer_range: float = 0.02
    """Standard deviation of the normal distribution that weights start from."""
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    """Its embedding starts at zero and gets no gradient as an input."""
    id2label: Mapping[int, str] = field(default_factory=lambda: {0: "LABEL_0", 1: "LABEL_1"})
    """Names of the classes of a classification head."""
    problem_type: ProblemType | None = None
    """What a classifier of sequences learns; None lets the labels decide, as in Hugging Face."""

    embedding_size: int | None = None
    """Width of the embeddings, which a matrix then widens to `hidden_size` (Lan et al. 2020, section 3.1)."""
    num_hidden_groups: int | None = None
    """Layers that have weights of their own, each used for a run of layers (same place); None: every layer."""
    position_embedding_type: PositionEmbedding = "absolute"
    """"absolute" (learned), "rotary" (Su et al. 2021) or "alibi" (Press et al. 2022)."""
    position_offset: int = 0
    """Row of the first position in the table of learned positions."""
    rotary_base: float = 10000.0
    """Base of the wavelengths of rotary positions (θ of section 3.2.2)."""
    feed_forward: FeedForward = "mlp"
    """"mlp", or "gated": act(x·W)·(x·V) (Shazeer 2020)."""
    norm_placement: NormPlacement = "post"
    """LayerNorm behind each addition, "post", or in front of each sub-layer, "pre" (Xiong et al. 2020)."""
    final_norm: bool = True
    """Whether an encoder with "pre" ends in a LayerNorm."""
    use_bias: bool = True
    """Whether the layers' matrices and norms have biases."""
    pooler_activation: PoolerActivation | None = "tanh"
    """Of the layer that summarizes a sequence from its first token; None: the first token's state is the summary."""
    prediction_transform: bool = True
    """Whether the masked-token head has a layer of its own before the output matrix."""
    sentence_head: bool = True
    """Whether pretraining has a head for pairs of segments: next sentence or sentence order."""
    span_boundary_objective: bool = False
    """Whether pretraining predicts the tokens of a masked span from its borders as well (Joshi et al. 2020)."""
    drops_before_summary: bool = False
    """Whether a classifier of sequences has dropout in front of its summary's layer too."""
    tokens_drop_as_hidden: bool = False
    """Whether a classifier of tokens has the hidden layers' dropout and not the classifier's."""
    zeroes_padding: bool = False
    """Whether padding is zero behind each layer, which the padded form of an answer's head sees."""
    layer_pooling: HeadStates = "last"
    """What a head for a task reads: a layer's output, or the last four's sum or concatenation, or a learnt mixture."""
    token_decoder: TokenDecoder = "softmax"
    """How a classifier of tokens chooses: each for itself, "softmax", or the best sequence, "crf"."""
    num_lstm_layers: int = 0
    """Layers of a bidirectional LSTM in front of a classifier of tokens (Devlin et al. 2018, section 5.3: two)."""
    lstm_hidden_size: int | None = None
    """Their width, both directions together; `hidden_size` when None."""
    choices_by_labels: bool = False
    """Whether the summary of a choice becomes `num_labels` numbers before these become its score."""
    num_tabular_features: int = 0
    """Numbers beside the summary of a sequence that a classifier of sequences reads."""
    model_type: str = "bert"
    """The family, which names the folder's weights; `bert_core` where no family of transformers has such a model."""

    def __post_init__(self) -> None:
        check_config(self)

    @classmethod
    def from_size(cls, size: str, family: str = "bert", **changes: Any) -> Self:
        """A published size by name, in the manner of a family or of "modern", with any field changed.

        Heads are 64 wide, the feed-forward layer four times as wide as the model; a gated one, with its third matrix,
        two thirds of that in multiples of 64, so that it has as many weights. The longest sequence has 512 tokens.

        >>> BertConfig.from_size("mini", vocab_size=8000).num_attention_heads
        4
        >>> BertConfig.from_size("10x256", family="roberta").position_offset
        2
        """
        num_hidden_layers, hidden_size = shape_of(size)
        shape = {"num_hidden_layers": num_hidden_layers, "hidden_size": hidden_size, **changes}
        return cls.from_shape(**shape, family=family)

    @classmethod
    def from_shape(cls, num_hidden_layers: int, hidden_size: int, family: str = "bert", **changes: Any) -> Self:
        """The same for any depth and width."""
        shape = {
            "num_hidden_layers": num_hidden_layers,
            "hidden_size": hidden_size,
            "num_attention_heads": max(1, hidden_size // 64),
            "intermediate_size": 4 * hidden_size,
        }
        if family == "modern":
            gated = {"intermediate_size": max(64, 64 * round(hidden_size / 24))}
            return cls(**{**shape, **gated, **MODERN, "model_type": NATIVE.model_type, **changes})
        if family not in FAMILIES:
            raise ConfigError(f"family {family!r} is not known; use one of {', '.join((*FAMILIES, 'modern'))}")
        names = FAMILIES[family].fields
        padding = {name: changes[name] for name in ("pad_token_id",) if name in changes}
        values = FAMILIES[family].read({names.get(name, name): value for name, value in (shape | padding).items()})
        longest = 512 + values.get("position_offset", 0)
        return cls(**{**values, "max_position_embeddings": longest, **changes})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From the fields of a `config.json`; what does not concern the model's arithmetic is passed over.

        Raises: ConfigError when a field asks for something that this model does not do.
        """
        model_type = values.get("model_type", "bert")
        if model_type not in FAMILIES or ("model_type" not in values and "hidden_size" not in values):
            raise ConfigError(f"model_type is {values.get('model_type')!r}; known are {', '.join(FAMILIES)}")
        chosen = FAMILIES[model_type].read(values)
        if values.get("id2label"):
            chosen["id2label"] = {int(index): str(label) for index, label in values["id2label"].items()}
        elif "num_labels" in values:
            chosen["id2label"] = {index: f"LABEL_{index}" for index in range(values["num_labels"])}
        return cls(**chosen)

    def to_dict(self) -> dict[str, Any]:
        """The fields of a `config.json` as Hugging Face reads it; `from_dict` gives the same configuration back."""
        id2label = {str(index): label for index, label in self.id2label.items()}
        family = self.family
        labels = {"id2label": id2label, "label2id": self.label2id}
        return {**family.write(self), **labels, "model_type": family.model_type}

    @property
    def family(self) -> Family:
        """The family that the model is saved as: its own where this can say all of it, else one that fails loudly."""
        own = FAMILIES[self.model_type]
        return own if own.says(self, BertConfig()) else NATIVE

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """From a folder's `config.json`. Raises: CheckpointError, naming the file."""
        path = Path(folder) / CONFIG_FILE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CheckpointError(
                f"{path} cannot be read ({error.strerror}); a model folder holds config.json and model.safetensors"
            ) from None
        except ValueError as error:
            raise CheckpointError(f"{path} is not JSON ({error}); fetch or save the folder anew") from None
        if not isinstance(values, dict):
            raise CheckpointError(f"{path} holds no JSON object; fetch or save the folder anew")
        try:
            return cls.from_dict(values)
        except ConfigError as error:
            raise CheckpointError(f"{path}: {error}") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path} has a value of the wrong kind ({error}); fetch or save it anew") from None

    @property
    def head_size(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def max_seq_length(self) -> int:
        """Tokens of the longest sequence that the model can read."""
        return self.max_position_embeddings - self.position_offset

    @property
    def head_width(self) -> int:
        """Width of what a head for a task reads."""
        return (4 if self.layer_pooling == "concat_last_four" else 1) * self.hidden_size

    @property
    def summary_width(self) -> int:
        """Width of a sequence's summary."""
        return self.head_width if self.pooler_activation is None else self.hidden_size

    @property
    def token_width(self) -> int:
        """Width of what a classifier of tokens reads."""
        return (self.lstm_hidden_size or self.hidden_size) if self.num_lstm_layers else self.head_width

    @property
    def head_dropout_prob(self) -> float:
        """Dropout in front of a classifier of sequences."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @property
    def token_dropout_prob(self) -> float:
        """Dropout in front of a classifier of tokens."""
        return self.hidden_dropout_prob if self.tokens_drop_as_hidden else self.head_dropout_prob

    @property
    def num_labels(self) -> int:
        """Classes of a classification head."""
        return len(self.id2label)

    @property
    def label2id(self) -> dict[str, int]:
        """The ids of the classes by name."""
        return {label: index for index, label in self.id2label.items()}

    def with_dropout(self, probability: float) -> Self:
        """The same model with one dropout everywhere."""
        return replace(
            self,
            hidden_dropout_prob=probability,
            attention_probs_dropout_prob=probability,
            classifier_dropout=None if self.classifier_dropout is None else probability,
            answer_dropout=probability if self.answer_dropout else 0.0,
        )

    def with_labels(self, labels: Sequence[str], problem_type: ProblemType | None = None) -> Self:
        """The same model with the classes of a task.

        >>> BertConfig().with_labels(["negative", "positive"]).label2id
        {'negative': 0, 'positive': 1}
        """
        return replace(self, id2label=dict(enumerate(labels)), problem_type=problem_type)
