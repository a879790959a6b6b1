"""What the numbers of a model must be to be a model."""

from typing import TYPE_CHECKING, get_args

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
from bert_core.errors import ConfigError
from bert_core.families import FAMILIES

if TYPE_CHECKING:
    from bert_core.config import BertConfig

_CHOICES: dict[str, tuple[str | None, ...]] = {
    "hidden_act": get_args(HiddenActivation),
    "problem_type": (None, *get_args(ProblemType)),
    "position_embedding_type": get_args(PositionEmbedding),
    "feed_forward": get_args(FeedForward),
    "norm_placement": get_args(NormPlacement),
    "pooler_activation": (*get_args(PoolerActivation), None),
    "layer_pooling": get_args(HeadStates),
    "token_decoder": get_args(TokenDecoder),
}

_COUNTS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "embedding_size",
    "num_hidden_groups",
    "lstm_hidden_size",
)

_COUNTS_OR_NONE = ("embedding_size", "num_hidden_groups", "lstm_hidden_size")

_COUNTS_FROM_ZERO = ("type_vocab_size", "position_offset", "num_lstm_layers", "num_tabular_features")

_POSITIVE = ("initializer_range", "layer_norm_eps", "rotary_base")

_SWITCHES = (
    "final_norm",
    "use_bias",
    "prediction_transform",
    "sentence_head",
    "span_boundary_objective",
    "drops_before_summary",
    "tokens_drop_as_hidden",
    "zeroes_padding",
)

_SHARES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "answer_dropout")


def check_config(config: "BertConfig") -> None:
    """Raises: ConfigError, naming the field, its value and what it may be."""
    for name in (*_COUNTS, *_COUNTS_FROM_ZERO):
        value, least = getattr(config, name), int(name in _COUNTS)
        if value is None and name in _COUNTS_OR_NONE:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    for name in _SHARES:
        value = getattr(config, name)
        if value is not None and not (_is_number(value) and 0 <= value < 1):
            raise ConfigError(f"{name} is {value!r}; a dropout must be at least 0 and below 1")
    for name in _POSITIVE:
        value = getattr(config, name)
        if not (_is_number(value) and value > 0):
            raise ConfigError(f"{name} is {value!r}; it must be a number above 0")
    for name in _SWITCHES:
        if not isinstance(getattr(config, name), bool):
            raise ConfigError(f"{name} is {getattr(config, name)!r}; it must be true or false")
    for name, known in _CHOICES.items():
        if getattr(config, name) not in known:
            names = ", ".join(str(value) for value in known)
            raise ConfigError(f"{name} {getattr(config, name)!r} is not known; use one of {names}")
    if config.model_type not in FAMILIES:
        raise ConfigError(f"model_type is {config.model_type!r}; known are {', '.join(FAMILIES)}")
    _check_layers(config)
    _check_vocabulary(config)


def _check_layers(config: "BertConfig") -> None:
    if config.hidden_size % config.num_attention_heads:
        raise ConfigError(
            f"hidden_size {config.hidden_size} cannot be split over {config.num_attention_heads} heads; "
            f"make it a multiple of num_attention_heads"
        )
    if config.position_embedding_type == "rotary" and config.head_size % 2:
        raise ConfigError(f"a head is {config.head_size} wide; rotary positions turn pairs: choose an even number")
    num_layers = config.num_hidden_layers
    if config.num_hidden_groups is not None and config.num_hidden_groups > num_layers:
        raise ConfigError(f"num_hidden_groups {config.num_hidden_groups} is more than the {num_layers} layers")
    if config.num_lstm_layers and config.token_width % 2:
        raise ConfigError(
            f"recurrent layers {config.token_width} wide cannot be split over two directions; "
            "make lstm_hidden_size an even number"
        )
    if config.layer_pooling.endswith("four") and num_layers < 4:
        raise ConfigError(f"layer_pooling {config.layer_pooling!r} needs four layers; the model has {num_layers}")


def _check_vocabulary(config: "BertConfig") -> None:
    if config.pad_token_id is not None and not 0 <= config.pad_token_id < config.vocab_size:
        raise ConfigError(f"pad_token_id {config.pad_token_id} lies outside a vocabulary of {config.vocab_size}")
    if config.max_seq_length < 1:
        raise ConfigError(
            f"max_position_embeddings {config.max_position_embeddings} leaves no position behind the first "
            f"{config.position_offset} rows"
        )
    if not config.id2label or sorted(config.id2label) != list(range(len(config.id2label))):
        raise ConfigError(f"id2label has the ids {sorted(config.id2label)}; they must be 0, 1, 2, … without a gap")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
