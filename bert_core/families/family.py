"""What a family of models is: names for the fields of config.json and for the weights, and the choices it makes.

No torch in here: a plan looks at a folder without loading it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bert_core.errors import ConfigError

ENCODER = "bert."
"""How the encoder's parameters begin in a model with a head, here."""

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
"""Fields of BertConfig that every family writes unless it fixes them; others stand in `Family.fields`."""

_ONLY = {
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "quantization_config": None,
}


@dataclass(frozen=True)
class Family:
    """Data, but for what a subclass has to compute. Names are those of BertConfig and of the parameters here."""

    model_type: str
    class_prefix: str
    """How its classes begin in transformers."""
    prefix: str
    """How the encoder's weights begin in a file of a model with a head."""
    weights: Mapping[str, str | tuple[str, ...]]
    """Regular expression for the beginning of a parameter's name → its beginning in a file, three for a fused one."""
    head_weights: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Names that a head has for itself, by its class here; tried first. A name that begins with `/` gets no prefix."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Fields of BertConfig → their names in config.json, where not the same or not shared by all."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Fields of BertConfig that are the same for every member and stand in no config.json."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What a field left out of config.json means, by its name there."""
    only: Mapping[str, Any] = field(default_factory=dict)
    """Fields of config.json that would change the outputs: the only value that can be carried out."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Weights in a file that are copies of others: name → name of the original, which some files lack."""
    architectures: Mapping[str, str] = field(default_factory=dict)
    """Classes in transformers by the class here, where not `class_prefix` and the rest."""
    has_base_pooler: bool = True
    """Whether the encoder alone has a pooler."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of BertConfig from those of a config.json. Raises: ConfigError for what cannot be built here."""
        values = {**self.defaults, **values}
        for name, only in {**_ONLY, **self.only}.items():
            if values.get(name, only) != only:
                raise ConfigError(f"{name} is {values[name]!r}; only {only!r} can be built here")
        found = {here: values[there] for here, there in self._field_names() if there in values}
        return {**found, **self.derive(found, values), "model_type": self.model_type}

    def write(self, config: Any) -> dict[str, Any]:
        """Fields of a config.json from a BertConfig that the family can express."""
        return {there: getattr(config, here) for here, there in self._field_names()}

    def derive(self, found: Mapping[str, Any], values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Fields of BertConfig that follow from others, beside the family's choices."""
        return self.choices

    def says(self, config: Any, defaults: Any) -> bool:
        """Whether the family can say all of a configuration, so that transformers loads such a model exactly."""
        try:
            again = {**vars(defaults), **self.read(self.write(config))}
        except ConfigError:
            return False
        names = again.keys() - {"id2label", "model_type"}
        return all(getattr(config, name) == again[name] for name in names)

    def _field_names(self) -> Iterator[tuple[str, str]]:
        for here in dict.fromkeys((*SHARED_FIELDS, *self.fields)):
            if here not in self.choices:
                yield here, self.fields.get(here, here)

    def architecture(self, head: str) -> str:
        """A class of transformers by its class here."""
        return self.architectures.get(head, self.class_prefix + head.removeprefix("Bert"))

    def file_names(self, name: str, head: str) -> tuple[str, ...]:
        """How a parameter of a model of the class `head` is called in a file; three names for a fused one."""
        in_head = name.startswith(ENCODER)
        rest = name.removeprefix(ENCODER)
        for pattern, there in (*self.head_weights.get(head, {}).items(), *self.weights.items()):
            if match := re.match(pattern, rest):
                beginnings = (there,) if isinstance(there, str) else there
                names = (match.expand(beginning) + rest[match.end() :] for beginning in beginnings)
                return tuple(name[1:] if name[0] == "/" else self.prefix * in_head + name for name in names)
        return (self.prefix * in_head + rest,)
