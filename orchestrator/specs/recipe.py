"""Recipe of a fine-tuning."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from bert_core.checkpoints.sentence_transformers import Pooling
from bert_core.config_fields import PooledLayers, TokenDecoder
from bert_core.constants import AskedPrecision, OptimizerName
from orchestrator.specs import network
from orchestrator.specs.fields import Section, identity
from orchestrator.specs.network import AdamBetas, FamilyName, ScheduleName, Size

Context = Literal["sentence", "document"]
LongDocuments = Literal["cut", "mean", "max"]
LabelName = Annotated[
    str, BeforeValidator(lambda value: json.dumps(value) if isinstance(value, bool | int | float) else value)
]
ClassWeights = Literal["none", "balanced"] | dict[LabelName, Annotated[float, Field(gt=0.0)]]
LABEL_LOSS_FIELDS = frozenset({"class_weights", "label_smoothing", "loss", "focal_gamma"})
"""Fields of the loss of labels that are told apart."""
RANDOM_FIELDS = ("tokenizer", "size", "family", "initializer_range")
"""Fields of random weights; a model to start from has its own."""
SILENT_FIELDS: Mapping[tuple[str, object], tuple[str, ...]] = MappingProxyType(
    {
        ("freeze_encoder", True): ("unfreeze_every_epochs", "layer_learning_rate_decay", "head_learning_rate"),
        ("num_lstm_layers", 0): ("lstm_hidden_size",),
        ("loss", "cross_entropy"): ("focal_gamma",),
        ("loss", "focal"): ("label_smoothing",),
        ("long_documents", "cut"): ("window_stride",),
        ("token_decoder", "crf"): ("class_weights", "label_smoothing", "loss"),
        ("token_decoder", "softmax"): ("crf_learning_rate",),
        **{
            ("layer_pooling", kind): ("scalar_mix_learning_rate",)
            for kind in get_args(PooledLayers)
            if kind != "scalar_mix"
        },
    }
)
"""Fields that say nothing where another one has a value: they stay at their defaults there."""


class RecipeSpec(Section):
    """Recipe of one trial; any of its fields can be an axis of the search."""

    init_from: str = identity(
        "random",
        "A model to start from: a registered name, a run, a folder, a name on the hub; or `random` weights. In a sweep "
        "also several names, `A | B | C`, one for each of its seeds in order: what a pretraining's own seed changes "
        "counts then.",
    )
    tokenizer: str | None = identity(None, "Tokenizer for random weights; a model brings its own.")
    size: Size = identity("tiny", "Size of random weights: tiny to large, or layers × width as in 8x256.")
    family: FamilyName = identity("bert", "Family of random weights.")
    initializer_range: float = identity(0.02, "Standard deviation of random weights.", gt=0.0)
    learning_rate: float = identity(5e-5, "Peak learning rate.", gt=0.0)
    head_learning_rate: float | None = identity(
        None, "Peak learning rate of the head; `learning_rate` when left out.", is_new=True, gt=0.0
    )
    crf_learning_rate: float | None = identity(
        None, "Peak learning rate of the CRF's transitions; the head's when left out (ner).", is_new=True, gt=0.0
    )
    scalar_mix_learning_rate: float | None = identity(
        None,
        "Peak learning rate of the mixture's weights in `layer_pooling: scalar_mix`; the head's when left out.",
        is_new=True,
        gt=0.0,
    )
    batch_size: int = identity(32, "Examples of a step.", unit="examples", ge=1)
    micro_batch_size: int | None = identity(
        None,
        "Examples of one forward pass, whose gradients are added up over a step; the whole batch when left out. With "
        "objective in_batch_negatives texts are compared over the whole batch all the same (GradCache).",
        unit="examples",
        ge=1,
    )
    epochs: float = identity(3.0, "Passes over the training split.", unit="epochs", gt=0.0)
    warmup_ratio: float = network.warmup_ratio(0.1)
    learning_rate_schedule: ScheduleName = network.learning_rate_schedule()
    decay_ratio: float | None = network.decay_ratio()
    freeze_encoder: bool = identity(
        False, "Only the head learns, on the encoder's outputs, which are computed once for all trials."
    )
    layer_pooling: PooledLayers = identity(
        "last", "Input of the head: a layer's output, the last four's, or a learned mixture of all."
    )
    layer_learning_rate_decay: float = identity(
        1.0, "Each layer's learning rate is this times that of the layer above it; 1 for one rate.", gt=0.0, le=1.0
    )
    unfreeze_every_epochs: float | None = identity(
        None, "Only the head learns at first, then one more layer from the top each so often.", unit="epochs", gt=0.0
    )
    optimizer: OptimizerName = network.optimizer()
    weight_decay: float = network.weight_decay()
    adam_betas: AdamBetas = network.adam_betas(is_new=True)
    adam_epsilon: float = network.adam_epsilon(is_new=True)
    adam_bias_correction: bool = network.adam_bias_correction()
    max_grad_norm: float = network.max_grad_norm()
    dropout: float | None = identity(None, "Dropout everywhere; the model's own when left out.", ge=0.0, lt=1.0)
    attention_dropout: float | None = identity(
        None,
        "Dropout of attention weights; as elsewhere when left out.",
        ge=0.0,
        lt=1.0,
    )
    max_seq_length: int = identity(128, "Tokens of a sequence, special tokens included.", unit="tokens", ge=8)
    doc_stride: int = identity(128, "Tokens between the starts of two windows of a passage (qa).", unit="tokens", ge=1)
    max_query_length: int = identity(
        64, "Tokens at most of a question in front of the text that it asks about.", unit="tokens", ge=1
    )
    max_answer_length: int = identity(30, "Tokens of an answer at most (qa).", unit="tokens", ge=1)
    context: Context = identity(
        "sentence",
        "Text in a window: a sentence alone, or as much of its document around it as fits, where the file marks "
        "documents with `-DOCSTART-` (ner).",
    )
    token_decoder: TokenDecoder = identity(
        "softmax", "Each word's tag alone, or a sentence's path of tags: a linear-chain CRF."
    )
    num_lstm_layers: int = identity(
        0, "Layers of a bidirectional LSTM between what the head reads and the tags; 0 for none (ner).", ge=0
    )
    lstm_hidden_size: int | None = identity(
        None, "Width of those layers, both directions together; hidden_size when left out (ner).", ge=2
    )
    pooling: Pooling | None = identity(
        None,
        "Pooling of tokens into one vector; the model folder's own, else the mean, when left out (embedding).",
    )
    temperature: float = identity(
        0.05, "Cosines are divided by this before the softmax over a batch (embedding, in_batch_negatives).", gt=0.0
    )
    matryoshka_dims: tuple[Annotated[int, Field(ge=1)], ...] = identity(
        (),
        "Numbers of a vector that are learned to say enough alone, as in [384, 128, 64]: the losses of so many first "
        "numbers are added up; name the whole length too. For `embed` and `search --dimensions` (embedding).",
        is_new=True,
    )
    query_prompt: str | None = identity(
        None, "Text before each first text, kept for `search` and `embed --as query` (embedding).", is_new=True
    )
    document_prompt: str | None = identity(
        None, "Text before each other text, kept for `search` and `embed` (embedding).", is_new=True
    )
    class_weights: ClassWeights = identity(
        "none",
        "Weight of each label in the loss, whose mean is over the sum of weights: as if all were equally frequent, or "
        "by name, 1 for those left out; of multi_label that of a label's presence (classification, multi_label, ner).",
        is_new=True,
    )
    label_smoothing: float = identity(
        0.0,
        "Share of a label's probability that goes evenly to all classes (classification, multi_label, ner).",
        unit="share",
        is_new=True,
        ge=0.0,
        lt=1.0,
    )
    loss: Literal["cross_entropy", "focal"] = identity(
        "cross_entropy",
        "Loss of labels; `focal` weighs an example by its error, so that rare and hard ones count more "
        "(classification, multi_label, ner).",
        is_new=True,
    )
    focal_gamma: float = identity(
        2.0, "Power of the error that `loss: focal` weighs an example by; 0 is cross entropy.", is_new=True, ge=0.0
    )
    calibrate: bool = identity(
        False,
        "Divide logits by the temperature that fits probabilities best to the validation split, and keep it with the "
        "model (classification, multi_label).",
        is_new=True,
    )
    tune_thresholds: bool = identity(
        False,
        "Predict each label above the probability with its best F1 on the validation split, in place of one half, and "
        "keep it with the model; that split's scores are then too good, the test split's are honest (multi_label).",
        is_new=True,
    )
    long_documents: LongDocuments = identity(
        "cut",
        "Texts longer than max_seq_length: they lose their ends, or are read in windows, and the loss and the "
        "prediction are of the mean or the maximum of the windows' logits (classification, multi_label, regression).",
        is_new=True,
    )
    window_stride: int | None = identity(
        None,
        "Tokens between the starts of two windows of a long document, which do not overlap when it is left out.",
        unit="tokens",
        is_new=True,
        ge=1,
    )
    train_fraction: float = identity(
        1.0,
        "Share of the training examples, of each label alike, that is learned from; a smaller one lies within a larger "
        "one, for training-size curves.",
        unit="share",
        is_new=True,
        gt=0.0,
        le=1.0,
    )
    evaluations_per_epoch: int = identity(1, "Validation scores taken in each epoch.", ge=1)
    patience: int | None = identity(None, "Stop after so many evaluations without a better score.", ge=1)
    precision: AskedPrecision = network.precision()
    allow_tf32: bool = network.allow_tf32()
    seed: int = identity(0, "Decides head, order and dropout.", ge=0, lt=2**32)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for (field, value), silent in SILENT_FIELDS.items():
            for name in self.changed(silent) if getattr(self, field) == value else ():
                raise ValueError(f"{name} says nothing with {field} {json.dumps(value)}; leave out one of the two")
        network.check_decay(self.learning_rate_schedule, self.warmup_ratio, self.decay_ratio)
        if self.optimizer == "muon" and self.freeze_encoder:
            raise ValueError(
                "optimizer muon is for the matrices of layers, and freeze_encoder true keeps them as they are; "
                "take adamw, or set freeze_encoder to false"
            )
        if self.lstm_hidden_size is not None and self.lstm_hidden_size % 2:
            raise ValueError(f"lstm_hidden_size {self.lstm_hidden_size} is for two directions; make it an even number")
        return self
