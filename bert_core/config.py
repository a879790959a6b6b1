"""The shape of a BERT model, with Hugging Face's field names; no torch in here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from bert_core.errors import CheckpointError, ConfigError

CONFIG_FILE = "config.json"

ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")

PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")

# Layers and width of the published sizes (Turc et al. 2019, "Well-Read Students Learn Better"; Devlin et al. 2018).
SIZES: dict[str, tuple[int, int]] = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}

# Fields of other BERT-like models that would change the outputs here: the only value that can be carried out.
_FIXED: dict[str, Any] = {
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
}


@dataclass(frozen=True)
class BertConfig:
    """Everything that decides a model's shape and arithmetic.

    Raises: ConfigError, naming the field, when the numbers cannot be a model.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    """Activation inside the MLP: one of ACTIVATIONS; "gelu" is the exact one, by erf."""
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    """Dropout in front of a classifier; `hidden_dropout_prob` when None."""
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    """Standard deviation of the normal distribution that weights start from."""
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    """Its embedding starts at zero and gets no gradient as an input."""
    id2label: Mapping[int, str] = field(default_factory=lambda: {0: "LABEL_0", 1: "LABEL_1"})
    """Names of the classes of a classification head."""
    problem_type: str | None = None
    """One of PROBLEM_TYPES; None lets the labels decide, as in Hugging Face."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} is {value!r}; it must be a whole number of at least 1")
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size {self.hidden_size} cannot be split over {self.num_attention_heads} heads; "
                f"make it a multiple of num_attention_heads"
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ConfigError(f"{name} is {value!r}; a dropout must be at least 0 and below 1")
        if self.hidden_act not in ACTIVATIONS:
            raise ConfigError(f"hidden_act {self.hidden_act!r} is not known; use one of {', '.join(ACTIVATIONS)}")
        if self.problem_type is not None and self.problem_type not in PROBLEM_TYPES:
            raise ConfigError(f"problem_type {self.problem_type!r} is not known; use one of {', '.join(PROBLEM_TYPES)}")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ConfigError(f"pad_token_id {self.pad_token_id} lies outside a vocabulary of {self.vocab_size}")
        if not self.id2label or sorted(self.id2label) != list(range(len(self.id2label))):
            raise ConfigError(f"id2label has the ids {sorted(self.id2label)}; they must be 0, 1, 2, … without a gap")

    @classmethod
    def from_size(cls, size: str, **changes: Any) -> Self:
        """A published size by name, with any field changed; heads are 64 wide, the MLP four times the width.

        >>> BertConfig.from_size("mini", vocab_size=8000).num_attention_heads
        4
        """
        if size not in SIZES:
            raise ConfigError(f"size {size!r} is not known; use one of {', '.join(SIZES)}")
        num_hidden_layers, hidden_size = SIZES[size]
        shape = {
            "num_hidden_layers": num_hidden_layers,
            "hidden_size": hidden_size,
            "num_attention_heads": hidden_size // 64,
            "intermediate_size": 4 * hidden_size,
        }
        return cls(**(shape | changes))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """From the fields of a `config.json`; what does not concern the model's arithmetic is passed over.

        Raises: ConfigError when a field asks for something that this model does not do.
        """
        model_type = values.get("model_type", "bert")
        if model_type != "bert" or ("model_type" not in values and "hidden_size" not in values):
            raise ConfigError(f"model_type is {values.get('model_type')!r}; only 'bert' can be built here")
        for name, only in _FIXED.items():
            if values.get(name, only) != only:
                raise ConfigError(f"{name} is {values[name]!r}; only {only!r} can be built here")
        known = {item.name for item in fields(cls)}
        chosen = {name: value for name, value in values.items() if name in known}
        if chosen.get("id2label"):
            chosen["id2label"] = {int(index): str(label) for index, label in chosen["id2label"].items()}
        elif "num_labels" in values:
            chosen["id2label"] = {index: f"LABEL_{index}" for index in range(values["num_labels"])}
        else:
            chosen.pop("id2label", None)
        return cls(**chosen)

    def to_dict(self) -> dict[str, Any]:
        """The fields of a `config.json` as Hugging Face reads it; `from_dict` gives the same configuration back."""
        values = asdict(self)
        values["id2label"] = {str(index): label for index, label in self.id2label.items()}
        return values | {"label2id": self.label2id, "model_type": "bert"}

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
        except (ConfigError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{path}: {error}") from None

    @property
    def head_dropout_prob(self) -> float:
        """Dropout in front of a classifier."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

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
            classifier_dropout=None,
        )

    def with_labels(self, labels: Sequence[str], problem_type: str | None = None) -> Self:
        """The same model with the classes of a task.

        >>> BertConfig().with_labels(["negative", "positive"]).label2id
        {'negative': 0, 'positive': 1}
        """
        return replace(self, id2label=dict(enumerate(labels)), problem_type=problem_type)


_COUNTS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
