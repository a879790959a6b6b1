"""A family of models as data: names for the fields of config.json and for the weights, and what its members fix.

No torch in here: a plan looks at a folder without loading it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert_core.config_fields import ConfigFields
from bert_core.errors import ConfigError

ENCODER = "bert."
"""Beginning of the names of the encoder's parameters in a model with a head, in `bert_core`."""

SHARED_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "problem_type",
    "span_boundary_objective",  # a head that transformers passes over
)
"""Fields of BertConfig that every family writes unless it fixes them; further ones stand in `Family.fields`."""

_REQUIRED = {
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "quantization_config": None,
}


@dataclass(frozen=True)
class Family:
    """A family is data, but for what a subclass has to compute.

    Names are those of BertConfig's fields and of the parameters in `bert_core`, unless it says "in config.json" or
    "in a file".
    """

    model_type: str
    """`model_type` in config.json."""
    class_prefix: str
    """Beginning of the names of its classes in transformers."""
    prefix: str
    """Beginning of the names of the encoder's weights in a file of a model with a head."""
    weights: Mapping[str, str | tuple[str, ...]]
    """Regular expression for the beginning of a parameter's name → its beginning in a file, several for a fused one."""
    head_weights: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Class of a model → names in a file that this class has for itself, tried before `weights`; a name that begins
    with `/` gets no prefix."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Fields of BertConfig → their names in config.json, where these differ or not every family has the field."""
    fixed_fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of BertConfig that are the same for every member and stand in no config.json."""
    former_fields: Mapping[str, str] = field(default_factory=dict)
    """Names in config.json of the code that models were published with → those of today."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Names in config.json → the value that is meant where config.json leaves the field out."""
    required: Mapping[str, Any] = field(default_factory=dict)
    """Names in config.json of fields that would change the outputs → the only value that `bert_core` can carry out."""
    tied_weights: Mapping[str, str] = field(default_factory=dict)
    """Weights in a file that are copies of others: name → name of the original, which some files lack."""
    architectures: Mapping[str, str] = field(default_factory=dict)
    """Class of a model → its class in transformers, where that is not `class_prefix` and the rest of the name."""
    new_model: Mapping[str, Any] = field(default_factory=dict)
    """Names in config.json → the value in a model with random weights, where that is not the one of `defaults`."""
    for_new_models: bool = True
    """Whether a spec may name the family for a model with random weights."""
    has_base_pooler: bool = True
    """Whether the encoder alone has a pooler."""
    dropout_before_pooler: bool = False
    """Whether a sequence classifier has dropout in front of its pooler as well as behind it."""
    token_dropout_from_hidden: bool = False
    """Whether a token classifier has the hidden layers' dropout and not the classifier's."""
    choice_projection: bool = False
    """Whether multiple choice turns the pooled output into `num_labels` numbers before the score."""
    has_head_layer: bool = False
    """Whether each head begins with the masked-token head's layer, without biases: in place of the pooler, and of each
    token in front of a classifier of tokens. A new head starts from that of the folder."""
    gate_comes_second: bool = False
    """Whether a file has the activated half of a gated network's first matrix behind the other; here it is in front."""
    former_prefix: str = ""
    """`prefix` in files of the code that models were published with, before transformers had the class."""
    absent_biases: Mapping[str, str] = field(default_factory=dict)
    """Biases in a file of a head that the code of publication had without them: name → a weight of as many rows."""
    zero_padding: bool = False
    """Whether padding is zero behind each layer: it matters to question answering's padded logits alone."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Turn the fields of a config.json into BertConfig's. Raises: ConfigError for what cannot be built here."""
        former = {name: values[old] for old, name in self.former_fields.items() if old in values}
        values = {**self.defaults, **former, **values}
        always = {name: value for name, value in _REQUIRED.items() if name not in self.fixed_fields}
        for name, required in {**always, **self.required}.items():
            if name not in self.fields.values() and values.get(name, required) != required:
                raise ConfigError(f"{name} is {values[name]!r}; only {required!r} can be built here")
        found = {here: values[there] for here, there in self._field_names() if there in values}
        return {**found, **self.derived_fields(found, values), "model_type": self.model_type}

    def write(self, config: ConfigFields) -> dict[str, Any]:
        """Turn a configuration that the family can express into the fields of a config.json."""
        return {there: getattr(config, here) for here, there in self._field_names()}

    def derived_fields(self, found: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Compute the fields of BertConfig that stand in no config.json: the fixed ones, and what follows from others.

        `found` are the fields of BertConfig that were read, `values` those of config.json.
        """
        return self.fixed_fields

    def can_express(self, config: ConfigFields) -> bool:
        """Whether the family's config.json can say all of a configuration: transformers then loads it exactly."""
        try:
            again = {**vars(ConfigFields()), **self.read(self.write(config))}
        except ConfigError:
            return False
        names = again.keys() - {"id2label", "model_type", "depth_scaled_init"}
        return all(getattr(config, name) == again[name] for name in names)

    def _field_names(self) -> Iterator[tuple[str, str]]:
        for here in dict.fromkeys((*SHARED_FIELDS, *self.fields)):
            if here not in self.fixed_fields:
                yield here, self.fields.get(here, here)

    def qkv_order(self, num_heads: int, num_rows: int) -> Sequence[int] | None:
        """Order of the rows of queries, keys and values in a file that has them as one weight; None: one behind the
        other, each head's together, as in `bert_core`."""
        return None

    def architecture(self, head: str) -> str:
        """Name the class in transformers that corresponds to the class `head`."""
        if head == "BertForPreTraining" and not self.fixed_fields.get("sentence_head", True):
            head = "BertForMaskedLM"
        return self.architectures.get(head, self.class_prefix + head.removeprefix("Bert"))

    def file_names(self, name: str, head: str) -> tuple[str, ...]:
        """Return the names of one parameter in a weights file, for a model of the class `head`.

        There is one name, or several where `bert_core` keeps so many weights in one parameter.
        """
        in_head = name.startswith(ENCODER)
        rest = name.removeprefix(ENCODER)
        for pattern, there in (*self.head_weights.get(head, {}).items(), *self.weights.items()):
            if match := re.match(pattern, rest):
                beginnings = (there,) if isinstance(there, str) else there
                names = (match.expand(beginning) + rest[match.end() :] for beginning in beginnings)
                return tuple(name[1:] if name[0] == "/" else self.prefix * in_head + name for name in names)
        return (self.prefix * in_head + rest,)


GATED_LAYERS = {"position_embedding_type": "rotary", "feed_forward": "gated", "sentence_head": False}
"""Fields of BertConfig that all of them fix."""


@dataclass(frozen=True)
class RotaryFamily(Family):
    """A family whose config.json has `rope_parameters`, or before transformers 5 `rope_theta` and `rope_scaling`."""

    def derived_fields(self, found: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add base and divisor of the positions; "ntk" is that of https://kexue.fm/archives/9706, equation 6.

        Raises: ConfigError for a scaling that follows the length of a sequence.
        """
        scaling, parameters = (values.get(name) or {} for name in ("rope_scaling", "rope_parameters"))
        rope = {"rope_theta": values["rope_theta"], **scaling, **parameters}
        kind, base, factor = rope.get("rope_type", rope.get("type", "default")), rope["rope_theta"], 1.0
        if kind == "linear":
            factor = rope["factor"]
        elif kind == "ntk" and rope.get("mixed_b") is None:
            shape = ("hidden_size", "num_attention_heads")
            width, num_heads = (found.get(name, getattr(ConfigFields, name)) for name in shape)
            base, factor = base * rope["factor"], rope["factor"] ** (2 * num_heads / width)
        elif kind != "default":
            raise ConfigError(
                f"rope_scaling is {rope!r}; only default, linear and ntk without mixed_b can be built here"
            )
        return {**self.fixed_fields, "rotary_base": base, "rotary_scaling_factor": factor}

    def write(self, config: ConfigFields) -> dict[str, Any]:
        rope = {"rope_type": "default", "rope_theta": config.rotary_base}
        if config.rotary_scaling_factor != 1.0:
            rope |= {"rope_type": "linear", "factor": config.rotary_scaling_factor}
        return {**super().write(config), "rope_parameters": rope}
