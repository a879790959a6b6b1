"""Configuration of a model: published sizes by name, its FLOPs, `config.json` in every family's manner. No torch."""

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from bert_core.config_fields import ConfigFields, ProblemType
from bert_core.errors import CheckpointError, ConfigError
from bert_core.families import FAMILIES, FORMER_TYPES, MODERN, NATIVE, Family

_NAMES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}
_DEPTHS, _WIDTHS = (2, 4, 6, 8, 10, 12), (128, 256, 512, 768)

SIZES: dict[str, tuple[int, int]] = {
    **_NAMES,
    **{f"{depth}x{width}": (depth, width) for depth in _DEPTHS for width in _WIDTHS},
}
"""Number of layers and width of each size: tiny, mini, small, medium, base, large, or layers × width as in `8x256`."""


def shape_of(size: str) -> tuple[int, int]:
    """Look up the number of layers and the width of a size. Raises: ConfigError, with the nearest name.

    >>> shape_of("mini")
    (4, 256)
    """
    if size not in SIZES:
        near = difflib.get_close_matches(size, _NAMES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(
            f"size {size!r} is not known; {hint}there are {', '.join(_NAMES)}, and layers × width, as in 8x256, of "
            f"{', '.join(map(str, _DEPTHS))} layers and a width of {', '.join(map(str, _WIDTHS))}"
        )
    return SIZES[size]


CONFIG_FILE = "config.json"


@dataclass(frozen=True)
class BertConfig(ConfigFields):
    """Everything that decides a model's shape and arithmetic, under Hugging Face's names. Fields: `ConfigFields`.

    Raises: ConfigError, naming the field, when the values cannot be a model.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("model_type", "head_family"):
            family = getattr(self, name) or self.model_type
            if family not in FAMILIES:
                raise ConfigError(f"{name} is {family!r}; known are {', '.join(FAMILIES)}")

    @classmethod
    def from_size(cls, size: str, family: str = "bert", **changes: Any) -> Self:
        """Make a published size by name, in the manner of a family or of "modern", with any field changed.

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
        """Make a model of any depth and width, in the manner of a family or of "modern", with any field changed."""
        if family not in (*FAMILIES, "modern"):
            raise ConfigError(f"family {family!r} is not known; use one of {', '.join((*FAMILIES, 'modern'))}")
        choices = {**(MODERN if family == "modern" else FAMILIES[family].fixed_fields), **changes}
        is_gated = choices.get("feed_forward") == "gated"
        shape = {
            "num_hidden_layers": num_hidden_layers,
            "hidden_size": hidden_size,
            "num_attention_heads": max(1, hidden_size // 64),
            "intermediate_size": max(64, 64 * round(hidden_size / 24)) if is_gated else 4 * hidden_size,
        }
        if family == "modern":
            return cls(**{**shape, **MODERN, "model_type": NATIVE.model_type, **changes})
        names = FAMILIES[family].fields
        padding = {name: changes[name] for name in ("pad_token_id",) if name in changes}
        in_file = {names.get(name, name): value for name, value in (shape | padding).items()}
        values = FAMILIES[family].read({**FAMILIES[family].new_model, **in_file})
        if values.get("pad_token_id", 0) >= changes.get("vocab_size", math.inf):
            values["pad_token_id"] = 0  # the family's own stands in a larger vocabulary
        longest = 512 + values.get("position_offset", 0)
        inner = shape["intermediate_size"]  # whatever a file's number may mean
        return cls(**{**values, "intermediate_size": inner, "max_position_embeddings": longest, **changes})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read the fields of a `config.json`; those that do not concern the model's arithmetic are passed over.

        Raises: ConfigError when a field asks for something that this model does not do.
        """
        model_type = values.get("model_type", "bert")
        model_type = FORMER_TYPES.get(model_type, model_type)
        if model_type not in FAMILIES or ("model_type" not in values and "hidden_size" not in values):
            raise ConfigError(
                f"model_type is {values.get('model_type')!r}, a family that is not read; use a model of a family that "
                f"is: {', '.join(FAMILIES)}"
            )
        chosen = FAMILIES[model_type].read(values)
        labels = _read_labels(values)
        return cls(**chosen) if labels is None else cls(**chosen, id2label=labels)

    def to_dict(self) -> dict[str, Any]:
        """Make the fields of a `config.json` as Hugging Face reads it; `from_dict` gives the configuration back."""
        id2label = {str(index): label for index, label in self.id2label.items()}
        family = self.family
        labels = {"id2label": id2label, "label2id": self.label2id}
        return {**family.write(self), **labels, "model_type": family.model_type}

    @property
    def family(self) -> Family:
        """Family that the model is saved as: its own where that can express all of it, else bert_core's own type."""
        own = FAMILIES[self.model_type]
        return own if own.can_express(self) else NATIVE

    @property
    def heads(self) -> Family:
        return FAMILIES[self.head_family or self.model_type]

    @property
    def token_state_size(self) -> int:
        """Width of what is read of each token by a head over tokens."""
        return self.hidden_size if self.heads.has_head_layer else self.head_input_size

    @property
    def token_input_size(self) -> int:
        """Width of what a token classifier's output layer reads: the LSTM's output where there is one."""
        return (self.lstm_hidden_size or self.hidden_size) if self.num_lstm_layers else self.token_state_size

    @property
    def token_dropout_prob(self) -> float:
        return self.hidden_dropout_prob if self.heads.token_dropout_from_hidden else self.head_dropout_prob

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Read a folder's `config.json`. Raises: CheckpointError, naming the file."""
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
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise CheckpointError(f"{path} has a value of the wrong kind ({error}); fetch or save it anew") from None

    def with_dropout(self, probability: float | None, attention: float | None = None) -> Self:
        """Copy the configuration with other dropout probabilities.

        Args:
            probability: dropout everywhere; None keeps that of each part.
            attention: dropout of attention weights; as `probability` when None. 0 allows variable-length attention.
        """
        if probability is None:
            return self if attention is None else replace(self, attention_probs_dropout_prob=attention)
        return replace(
            self,
            hidden_dropout_prob=probability,
            attention_probs_dropout_prob=probability if attention is None else attention,
            classifier_dropout=None if self.classifier_dropout is None else probability,
            qa_dropout=probability if self.qa_dropout else 0.0,
            pooler_dropout=probability if self.pooler_dropout else 0.0,
        )

    def with_labels(self, labels: Sequence[str], problem_type: ProblemType | None = None) -> Self:
        """Copy the configuration, with the classes of a task.

        >>> BertConfig().with_labels(["negative", "positive"]).label2id
        {'negative': 0, 'positive': 1}
        """
        return replace(self, id2label=dict(enumerate(labels)), problem_type=problem_type)


def _read_labels(values: Mapping[str, Any]) -> dict[int, str] | None:
    """Read the names of the classes: `id2label`, an object or a list, `label2id` alone, or numbered by `num_labels`."""
    id2label, label2id = values.get("id2label"), values.get("label2id") or {}
    if id2label:
        are_pairs = isinstance(id2label, list) and isinstance(id2label[0], list)
        id2label = dict(id2label) if are_pairs else id2label
        pairs = enumerate(id2label) if isinstance(id2label, list) else id2label.items()
        return {int(index): str(label) for index, label in pairs}
    if label2id and values.get("num_labels", len(label2id)) == len(label2id):
        labels = {int(index): str(label) for label, index in label2id.items()}
        if len(labels) < len(label2id):
            raise ConfigError(f"label2id has the ids {sorted(label2id.values())}; give each label an id of its own")
        return labels
    return {index: f"LABEL_{index}" for index in range(values["num_labels"])} if "num_labels" in values else None


_PER_WEIGHT = 6


def count_flops_per_token(config: BertConfig) -> int:
    """FLOPs that the encoder's matrices take for a token, forward and backward.

    A matrix takes 2 for each weight and vector in the forward pass and 4 in the backward pass (Kaplan et al. 2020,
    section 2.1). Counted are the encoder's matrices and those of the head over the vocabulary, for the vectors that
    they are given: packed sequences have no padding, and logits are made for predicted positions alone. Left out is
    what is small: the products of queries with keys and of weights with values (a share of S / 6H, with sequences of S
    tokens and a hidden size of H: 3 % of BERT base at 128 tokens, 11 % at 512), heads over pairs and spans, norms,
    activations, a convolution.
    """
    hidden = config.hidden_size
    matrices = 3 if config.feed_forward == "gated" else 2
    attention = (sum(config.qkv_heads) * config.head_size + hidden) * hidden
    layer = attention + matrices * hidden * config.intermediate_size
    widening = (config.embedding_size or 0) * hidden
    return _PER_WEIGHT * (config.num_hidden_layers * layer + widening)


def count_pretraining_flops(
    config: BertConfig, num_tokens: float, num_predictions: float, num_pairs: float = 0.0
) -> float:
    """FLOPs of a pretraining's tokens and predictions, forward and backward: the numerator of its utilization (MFU).

    Behind its attention the last layer runs for tokens alone that a head reads, taken to be those predicted.
    `num_pairs` is Σ length² over the sequences, for the products of queries with keys and of weights with values; 0
    leaves them out.
    """
    matrices = 3 if config.feed_forward == "gated" else 2
    read = _PER_WEIGHT * config.hidden_size * (config.hidden_size + matrices * config.intermediate_size)
    of_tokens = (count_flops_per_token(config) - read) * num_tokens
    of_predictions = (count_flops_per_prediction(config) + read) * num_predictions
    return of_tokens + of_predictions + 2 * _PER_WEIGHT * config.num_hidden_layers * config.hidden_size * num_pairs


def count_flops_per_prediction(config: BertConfig) -> int:
    """FLOPs that the head over the vocabulary takes for a predicted position, forward and backward."""
    width = config.embedding_size or config.hidden_size
    transform = config.hidden_size * width if config.prediction_transform else 0
    return _PER_WEIGHT * (transform + width * config.vocab_size)
