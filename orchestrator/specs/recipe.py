"""Recipe of a fine-tuning."""

from typing import Literal, Self

from pydantic import model_validator

from bert_core.checkpoints.sentence_transformers import Pooling
from bert_core.config_fields import PooledLayers, TokenDecoder
from orchestrator.specs.fields import Section, identity
from orchestrator.specs.network import FamilyName, Precision, Size

Context = Literal["sentence", "document"]


UNFROZEN_FIELDS = ("unfreeze_every_epochs", "layer_learning_rate_decay")
"""Fields that only mean something where the encoder learns."""


class RecipeSpec(Section):
    """Recipe of one trial; any of its fields can be an axis of the search."""

    init_from: str = identity(
        "random", "A model to start from: a registered name, a run, a folder, a name on the hub; or `random` weights."
    )
    tokenizer: str | None = identity(None, "Tokenizer for random weights; a model brings its own.")
    size: Size = identity("tiny", "Size of random weights: tiny to large, or layers × width as in 8x256.")
    family: FamilyName = identity("bert", "Family of random weights.")
    initializer_range: float = identity(0.02, "Standard deviation of random weights.", gt=0.0)
    learning_rate: float = identity(5e-5, "Peak learning rate.", gt=0.0)
    batch_size: int = identity(32, "Examples of a step.", unit="examples", ge=1)
    micro_batch_size: int | None = identity(
        None,
        "Examples of one forward pass, whose gradients are added up over a step; the whole batch when left out.",
        unit="examples",
        ge=1,
    )
    epochs: float = identity(3.0, "Passes over the training split.", unit="epochs", gt=0.0)
    warmup_ratio: float = identity(0.1, "Share of the steps that warm up linearly.", unit="share", ge=0.0, lt=1.0)
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
    weight_decay: float = identity(0.01, "AdamW's decay; none on biases and LayerNorm.", ge=0.0)
    max_grad_norm: float = identity(1.0, "Gradients are clipped to this norm.", gt=0.0)
    dropout: float | None = identity(None, "Dropout everywhere; the model's own when left out.", ge=0.0, lt=1.0)
    attention_dropout: float | None = identity(
        None,
        "Dropout of attention weights; as elsewhere when left out. With 0, bf16 on a GPU takes flash attention.",
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
        "softmax", "Each word's tag alone, or a sentence's path of tags: a linear-chain CRF within BIO (ner)."
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
    evaluations_per_epoch: int = identity(1, "Validation scores taken in each epoch.", ge=1)
    patience: int | None = identity(None, "Stop after so many evaluations without a better score.", ge=1)
    precision: Precision = identity("fp32", "Arithmetic of forward and backward.")
    allow_tf32: bool = identity(
        True,
        "With fp32 on a GPU: multiply matrices as TF32, with 10 bits behind the point, several times faster.",
    )
    seed: int = identity(0, "Decides head, order and dropout.", ge=0, lt=2**32)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in UNFROZEN_FIELDS if self.freeze_encoder else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"freeze_encoder and {name} contradict one another; leave one out")
        if self.lstm_hidden_size is not None and self.lstm_hidden_size % 2:
            raise ValueError(f"lstm_hidden_size {self.lstm_hidden_size} is for two directions; make it an even number")
        if self.lstm_hidden_size is not None and self.num_lstm_layers == 0:
            raise ValueError("lstm_hidden_size says nothing without num_lstm_layers; raise that, or leave it out")
        return self
