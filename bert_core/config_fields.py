"""Fields of a model's configuration: name, type, bounds, default and meaning of each, written down here and only here.

Checks follow from the annotations: type, `Bounds`, choices of a `Literal`, and whether None; fields of other types are
left to the class itself. A field that is added here is saved under the `model_type` bert_core; a family that has it as
well names it in `families/`. No torch.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from bert_core.errors import ConfigError


@dataclass(frozen=True)
class Bounds:
    """Marker for `Annotated`: the numbers that a field takes."""

    at_least: float = -math.inf
    above: float = -math.inf
    below: float = math.inf

    def __contains__(self, number: float) -> bool:
        return self.at_least <= number and self.above < number < self.below

    def __str__(self) -> str:
        """The bounds in words, as in "of at least 0 and below 1"."""
        words = {"of at least": self.at_least, "above": self.above, "below": self.below}
        return " and ".join(f"{word} {bound}" for word, bound in words.items() if math.isfinite(bound))


def check_fields(instance: Any) -> None:
    """Compare the values of a dataclass's fields with their annotations.

    Raises: ConfigError, naming the first field whose value is not allowed, the value and what it may be.
    """
    for name, annotation in _annotations(instance.__class__).items():
        complaint = _complaint(getattr(instance, name), annotation)
        if complaint is not None:
            raise ConfigError(f"{name} {complaint}")


@cache
def _annotations(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _complaint(value: object, annotation: Any) -> str | None:
    """The rest of a message that begins with the field's name; None where the value is allowed."""
    kind, *none = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if value is None and none:
        return None
    if get_origin(kind) is Literal:
        known = (*get_args(kind), None) if none else get_args(kind)
        return None if value in known else f"{value!r} is not known; use one of {', '.join(map(str, known))}"
    kind, bounds = get_args(kind) if get_origin(kind) is Annotated else (kind, Bounds())
    if kind is bool:
        return None if isinstance(value, bool) else f"is {value!r}; it must be true or false"
    numbers = {int: (int,), float: (int, float)}.get(kind)
    if numbers is None or (isinstance(value, numbers) and not isinstance(value, bool) and value in bounds):
        return None
    number = "a whole number" if kind is int else "a number"
    return f"is {value!r}; it must be {number} {bounds}".rstrip()


HiddenActivation = Literal["gelu", "gelu_new", "relu", "silu"]
ProblemType = Literal["regression", "single_label_classification", "multi_label_classification"]
PositionEmbedding = Literal["absolute", "rotary", "alibi", "disentangled"]
DistanceTerms = Literal["c2p", "c2p|p2c", "p2c"]
DistanceNorm = Literal["none", "layer_norm"]
FeedForward = Literal["mlp", "gated"]
NormPlacement = Literal["post", "pre"]
Norm = Literal["layer", "rms"]
PoolerActivation = Literal["tanh", "gelu", "gelu_new", "relu", "silu", "hidden_act"]
ConvActivation = Literal["tanh", "gelu", "gelu_new", "relu", "silu"]
ClassifierPooling = Literal["cls", "mean", "late"]
PooledLayers = Literal["last", "second_to_last", "sum_last_four", "concat_last_four", "scalar_mix", "embeddings"]
TokenDecoder = Literal["softmax", "crf"]

Count = Annotated[int, Bounds(at_least=1)]
CountFromZero = Annotated[int, Bounds(at_least=0)]
PositiveNumber = Annotated[float, Bounds(above=0)]
DropoutRate = Annotated[float, Bounds(at_least=0, below=1)]


@dataclass(frozen=True)
class ConfigFields:
    """All that decides a model's shape and arithmetic, as choices that do not depend on one another.

    Raises: ConfigError, naming the field, when the values cannot be a model.
    """

    # The encoder: its size.
    vocab_size: Count = 30522
    """Rows of the word embedding."""
    hidden_size: Count = 768
    """Width of a token's vector between the layers."""
    num_hidden_layers: Count = 12
    """Layers that a token passes through."""
    num_attention_heads: Count = 12
    """Attention heads of a layer, which share `hidden_size` evenly."""
    num_key_value_heads: Count | None = None
    """Heads of keys and values, each shared by as many heads of queries (Ainslie et al. 2023); None: one for each."""
    intermediate_size: Count = 3072
    """Width inside the feed-forward network."""
    max_position_embeddings: Count = 512
    """Rows of the table of learned positions; with another kind of positions, tokens of the longest sequence."""
    type_vocab_size: CountFromZero = 2
    """Kinds of segments; 0 for a model without token types."""
    embedding_size: Count | None = None
    """Width of the embeddings, which a matrix then widens to `hidden_size` (Lan et al. 2020, section 3.1)."""
    num_hidden_groups: Count | None = None
    """Layers with weights of their own, each used for a run of layers (Lan et al. 2020); None: every layer."""
    local_window: Count | None = None
    """Width of local attention: a token attends to itself and to half as many tokens on each side; None: to all."""
    global_every: Count = 3
    """Layers of which the first attends to the whole sequence, and the others locally (Warner et al. 2024, 2.1.2)."""

    # The encoder: its arithmetic.
    hidden_act: HiddenActivation = "gelu"
    """Activation inside the feed-forward network; "gelu" is the exact one, by erf."""
    feed_forward: FeedForward = "mlp"
    """Feed-forward network: "mlp", or "gated": act(x·W)·(x·V) (Shazeer 2020), which with "silu" is SwiGLU."""
    norm: Norm = "layer"
    """Norms of the encoder: LayerNorm, "layer", or RMSNorm, "rms" (Zhang and Sennrich 2019), which has no biases."""
    norm_placement: NormPlacement = "post"
    """Norms behind each addition, "post", or in front of each sub-layer, "pre" (Xiong et al. 2020)."""
    final_norm: bool = True
    """Whether an encoder with the norms in front ("pre") ends in a norm."""
    embedding_norm: bool = True
    """Whether the embeddings are normalized."""
    first_norm: bool = True
    """Whether the first layer's attention has a norm in front, behind that of the embeddings, with "pre"."""
    use_bias: bool = True
    """Whether the layers' matrices and norms have biases."""
    norm_bias: bool | None = None
    """Whether the encoder's norms have biases; `use_bias` when None."""
    intermediate_bias: bool | None = None
    """Whether the first matrix of the feed-forward network has a bias; `use_bias` when None."""
    layer_norm_eps: PositiveNumber = 1e-12
    """Number added to the variance, or to the mean square, in a norm."""
    causal_attention: bool = False
    """Whether a token attends to itself and to the tokens before it only; the pooler then reads the last token."""
    position_embedding_type: PositionEmbedding = "absolute"
    """Positions: "absolute" (learned), "rotary" (Su et al. 2021), "alibi" (Press et al. 2022) or "disentangled":
    vectors of distances in the attention (He et al. 2021)."""
    position_offset: CountFromZero = 0
    """Row of the first position in the table of learned positions."""
    rotary_base: PositiveNumber = 10000.0
    """Base of the wavelengths of rotary positions (10000 in Su et al. 2021, section 3.2.2)."""
    rotary_scaling_factor: PositiveNumber = 1.0
    """Number that rotary positions are divided by, so that longer sequences have trained angles (Chen et al. 2023)."""
    local_rotary_base: PositiveNumber | None = None
    """Base in layers with local attention; `rotary_base` when None."""
    relative_attention_num_buckets: Annotated[int, Bounds(at_least=4, below=512)] | None = None
    """Buckets of distances, whose learned biases all layers' attention adds (Raffel et al. 2020, section 2.1)."""
    position_buckets: Annotated[int, Bounds(at_least=2)] | None = None
    """Buckets of distances to one side that have a vector with "disentangled", the farther the wider; None: each
    distance has one."""
    max_relative_positions: Count | None = None
    """Distance from which on all have one vector with "disentangled"; `max_position_embeddings` when None."""
    pos_att_type: DistanceTerms = "c2p|p2c"
    """Terms of "disentangled" scores: content to position, position to content, or both (He et al. 2021, 3.1)."""
    share_att_key: bool = True
    """Whether vectors of distances are projected by the matrices of queries and keys, or by matrices of their own."""
    norm_rel_ebd: DistanceNorm = "layer_norm"
    """Norm of the vectors of distances."""
    conv_kernel_size: CountFromZero = 0
    """Width, an odd number, of a convolution of the embeddings that is added to the first layer's output, as in
    DeBERTa-v2, whose positions it needs; 0 without one."""
    conv_act: ConvActivation = "tanh"
    """Activation of the convolution."""
    pad_token_id: int | None = 0
    """Id of the padding token, whose embedding starts at zero and gets no gradient as an input."""

    # The encoder: its training.
    hidden_dropout_prob: DropoutRate = 0.1
    """Dropout of the embeddings and of what each sub-layer adds."""
    attention_probs_dropout_prob: DropoutRate = 0.1
    """Dropout of the attention weights."""
    initializer_range: PositiveNumber = 0.02
    """Standard deviation of the normal distribution that weights start from."""
    depth_scaled_init: bool = False
    """Whether matrices that add to the residual stream start smaller by √(2L), L layers (Radford et al. 2019, 2.3)."""

    # Heads: what they read, and how they are trained.
    id2label: Mapping[int, str] = field(default_factory=lambda: {0: "LABEL_0", 1: "LABEL_1"})
    """Names of the classes by their ids: 0, 1, 2, … without a gap."""
    problem_type: ProblemType | None = None
    """Kind of labels that a sequence classifier learns; None lets the labels decide, as in Hugging Face."""
    classifier_dropout: DropoutRate | None = None
    """Dropout in front of a classifier; `hidden_dropout_prob` when None."""
    qa_dropout: DropoutRate = 0.0
    """Dropout in front of the question-answering head."""
    pooler_dropout: DropoutRate = 0.0
    """Dropout in front of the pooler."""
    classifier_pooling: ClassifierPooling = "cls"
    """Vector of a sequence that a classifier of sequences reads: its first token's, "cls", or the mean of all, taken in
    front of the pooler, "mean", or behind it, "late"."""
    layer_pooling: PooledLayers = "last"
    """Vectors that a task's head reads: one layer's output, the last four's sum or concatenation, or a learned weighted
    sum of all, "scalar_mix" (Peters et al. 2018)."""
    token_decoder: TokenDecoder = "softmax"
    """Choice of a token classifier's tags: each token for itself, "softmax", or the best sequence of tags, "crf"."""
    num_lstm_layers: CountFromZero = 0
    """Layers of a bidirectional LSTM in front of a token classifier (Devlin et al. 2018, section 5.3: two)."""
    lstm_hidden_size: Count | None = None
    """Width of the LSTM's output, both directions together; `hidden_size` when None."""
    num_tabular_features: CountFromZero = 0
    """Numbers beside a text that a sequence classifier reads."""
    sentence_head: bool = True
    """Whether pretraining has a head for pairs of segments: next sentence or sentence order."""
    span_boundary_objective: bool = False
    """Whether pretraining predicts a masked span's tokens from the span's borders as well (Joshi et al. 2020)."""

    # Families.
    pooler_activation: PoolerActivation | None = "tanh"
    """Activation of the pooler, "hidden_act": that of the layers; None: no pooler, the first token's state is the
    pooled output."""
    prediction_transform: bool = True
    """Whether the masked-token head has a layer of its own before the output matrix (not in FlauBERT)."""
    prediction_bias: bool = True
    """Whether the masked-token head's output matrix has a bias."""
    tie_word_embeddings: bool = True
    """Whether the masked-token head's output matrix is the word embedding."""
    model_type: str = "bert"
    """Family whose names the folder has; "bert_core" where no family of transformers has such a model."""
    head_family: str | None = None
    """Family whose heads a model of "bert_core" has, where those of families differ; None: that of `model_type`."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.num_key_value_heads == self.num_attention_heads:  # the same model is the same configuration
            object.__setattr__(self, "num_key_value_heads", None)
        self._check_layers()
        self._check_norms()
        self._check_vocabulary()

    def _check_layers(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size {self.hidden_size} cannot be split over {self.num_attention_heads} heads; "
                f"make it a multiple of num_attention_heads"
            )
        if self.num_key_value_heads is not None and self.num_attention_heads % self.num_key_value_heads:
            raise ConfigError(
                f"num_key_value_heads {self.num_key_value_heads} cannot be shared evenly by {self.num_attention_heads} "
                "heads; make it a divisor of num_attention_heads"
            )
        if self.position_embedding_type == "disentangled" and self.num_key_value_heads is not None:
            raise ConfigError(
                f"num_key_value_heads {self.num_key_value_heads} and disentangled positions: their scores take a key "
                "of each head; leave one of the two out"
            )
        if self.position_embedding_type == "rotary" and self.head_size % 2:
            raise ConfigError(
                f"a head is {self.head_size} wide; rotary positions rotate pairs of numbers: make "
                "hidden_size / num_attention_heads an even number"
            )
        num_single = (self.position_buckets or 0) // 2
        if num_single and (self.max_relative_positions or math.inf) < num_single + 2:
            raise ConfigError(
                f"max_relative_positions {self.max_relative_positions} leaves no distance to the wider ones of "
                f"{self.position_buckets} position_buckets; make it {num_single + 2} or more"
            )
        if self.conv_kernel_size and self.conv_kernel_size % 2 == 0:
            raise ConfigError(f"conv_kernel_size {self.conv_kernel_size} has no token in its middle; make it odd")
        beside = "causal attention, which sees no next token" if self.causal_attention else self.position_embedding_type
        if self.conv_kernel_size and beside != "disentangled":  # without these padding would reach its neighbors
            raise ConfigError(
                f"conv_kernel_size {self.conv_kernel_size} and {beside}: a convolution is for disentangled positions"
            )
        if self.num_hidden_groups is not None and self.num_hidden_groups > self.num_hidden_layers:
            raise ConfigError(
                f"num_hidden_groups {self.num_hidden_groups} is more than the {self.num_hidden_layers} layers; "
                "make it at most num_hidden_layers"
            )
        lstm_size = self.lstm_hidden_size or self.hidden_size
        if self.num_lstm_layers and lstm_size % 2:
            raise ConfigError(
                f"an LSTM {lstm_size} wide cannot be split over two directions; make lstm_hidden_size an even number"
            )
        if self.layer_pooling.endswith("four") and self.num_hidden_layers < 4:
            raise ConfigError(
                f"layer_pooling {self.layer_pooling!r} needs four layers; the model has {self.num_hidden_layers}"
            )

    def _check_norms(self) -> None:
        if self.norm == "rms" and self.norm_bias:
            raise ConfigError('norm_bias is True and norm "rms", which has no biases; leave out one of the two')
        if not self.first_norm and self.norm_placement != "pre":
            raise ConfigError(
                f"first_norm is False and norm_placement {self.norm_placement!r}; only a norm in front of the "
                'first layer can be left out: use norm_placement "pre", or first_norm True'
            )
        if not self.first_norm and self.num_hidden_groups not in (None, self.num_hidden_layers):
            raise ConfigError(
                "first_norm is False and the first layer shares its weights with others, which have that norm; "
                "leave out num_hidden_groups or use first_norm True"
            )

    def _check_vocabulary(self) -> None:
        if not self.prediction_transform and self.embedding_size not in (None, self.hidden_size):
            raise ConfigError(
                f"prediction_transform is False and embedding_size {self.embedding_size}; without that layer the "
                f"masked-token head reads vectors {self.hidden_size} wide: leave out one of the two"
            )
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ConfigError(f"pad_token_id {self.pad_token_id} lies outside a vocabulary of {self.vocab_size}")
        if self.max_seq_length < 1:
            raise ConfigError(
                f"max_position_embeddings {self.max_position_embeddings} leaves no position behind the first "
                f"{self.position_offset} rows"
            )
        if not self.id2label or sorted(self.id2label) != list(range(len(self.id2label))):
            raise ConfigError(f"id2label has the ids {sorted(self.id2label)}; they must be 0, 1, 2, … without a gap")
        ids: dict[str, list[int]] = {}
        for index, label in sorted(self.id2label.items()):
            ids.setdefault(label, []).append(index)
        for label, same in ids.items():
            if len(same) > 1:
                raise ConfigError(
                    f"id2label has {label!r} for the ids {', '.join(map(str, same))}; give each id a name of its own"
                )

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def qkv_heads(self) -> tuple[int, int, int]:
        """Heads of a layer's queries, of its keys and of its values."""
        num_shared = self.num_key_value_heads or self.num_attention_heads
        return self.num_attention_heads, num_shared, num_shared

    @property
    def norms_have_bias(self) -> bool:
        return self.use_bias if self.norm_bias is None else self.norm_bias

    @property
    def max_seq_length(self) -> int:
        """Tokens of the longest sequence that the model can read."""
        return self.max_position_embeddings - self.position_offset

    @property
    def head_input_size(self) -> int:
        """Width of what a task's head reads of each token."""
        return (4 if self.layer_pooling == "concat_last_four" else 1) * self.hidden_size

    @property
    def pooled_size(self) -> int:
        return self.head_input_size if self.pooler_activation is None else self.hidden_size

    @property
    def pools_one_token(self) -> bool:
        """Whether a classifier reads one token of each sequence, that of `BertModel.pooled_tokens`, and no mean."""
        return self.classifier_pooling == "cls"

    @property
    def head_dropout_prob(self) -> float:
        """Dropout in front of a sequence classifier."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout

    @property
    def num_labels(self) -> int:
        return len(self.id2label)

    @property
    def label2id(self) -> dict[str, int]:
        return {label: index for index, label in self.id2label.items()}
