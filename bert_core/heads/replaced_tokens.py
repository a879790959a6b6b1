"""Replaced-token detection (Clark et al. 2020, ELECTRA): the discriminator, and the generator that is trained with it.

Shapes: B sequences, S length of a padded row, T tokens, P masked positions, R rows of a block, E embedding size,
H hidden, V vocabulary.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.encoder_layer import ACTIVATIONS
from bert_core.heads.pretraining import BertForPreTraining, LossSums, PretrainingLabels
from bert_core.heads.sequence_classification import ClassificationOutput
from bert_core.kernels.linear import Linear
from bert_core.kernels.linear_cross_entropy import linear_cross_entropy_sums, look_up, vocabulary_logits
from bert_core.losses import check_labels
from bert_core.model import BertModel
from bert_core.objectives.replaced_tokens import DRAW_BITS, GENERATOR_SIZE, Generator, ReplacedTokens
from bert_core.packed_sequences import PackedSequences

GENERATOR_FOLDER = "generator"
"""Folder of the generator, inside that of its discriminator."""
_SHARED = ("word", "position", "token_type", "norm")
"""Parts of the embeddings that the generator reads from its discriminator: tokens and positions in the paper, section
3.2, and all that stands beside them in its code."""
_SHARE_UNIT = 1 << 30
# Rows whose shares stay in a CPU's cache; enough to fill a GPU.
_CPU_BLOCK_ROWS, _GPU_BLOCK_ROWS = 128, 4096


class DetectionLayers(nn.Module):
    """A layer and one logit for each token: (T, H) → (T,)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dense_prediction = Linear(config.hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.dense_prediction(self.activation(self.dense(hidden))).squeeze(-1)  # type: ignore[no-any-return]


class BertForReplacedTokenDetection(PretrainedModel):
    """An encoder with a head that tells which tokens are replaced; in transformers ElectraForPreTraining."""

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=False)
        self.discriminator_predictions = DetectionLayers(config)  # the name in ELECTRA's files

    def token_logits(self, seqs: PackedSequences) -> Tensor:
        """Logit of each token, above 0 where it looks replaced: (T,) float32."""
        return self.discriminator_predictions(self.bert.encode(seqs)).float()  # type: ignore[no-any-return]

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> ClassificationOutput:
        """Mean loss over real tokens, and logits of padded rows (B, S), above 0 where a token looks replaced.

        Args:
            labels: (B, S) 1 where a token is replaced, else 0; those of padding count nowhere.
        """
        seqs = self.bert.pack(input_ids, attention_mask, token_type_ids)
        logits = self.token_logits(seqs)  # (T,)
        loss = None
        if labels is not None:
            check_labels(labels, input_ids.shape, 2)
            loss = F.binary_cross_entropy_with_logits(logits, seqs.pack(labels).float())
        return ClassificationOutput(loss, seqs.unpack(logits, input_ids.shape[1]))


def generator_config(config: BertConfig, share: float) -> BertConfig:
    """Configuration of a generator: as deep as the discriminator of `config`, its width times `share`, same embeddings.

    Heads have an even width that is about the discriminator's.
    """
    num_heads = max(1, round(share * config.num_attention_heads))
    hidden_size = num_heads * max(2, 2 * round(share * config.hidden_size / num_heads / 2))
    width = config.embedding_size or config.hidden_size
    return replace(
        config,
        hidden_size=hidden_size,
        num_attention_heads=num_heads,
        num_key_value_heads=None,
        intermediate_size=max(1, round(share * config.intermediate_size)),
        embedding_size=None if width == hidden_size else width,
        prediction_transform=config.prediction_transform or width != hidden_size,
        sentence_head=False,
        span_boundary_objective=False,
    )


class GeneratorAndDiscriminator(BertForPreTraining):
    """A generator, which is a model with a masked-token head, and the discriminator that is trained with it.

    The embeddings are the discriminator's, which alone holds and trains them. `config` and `bert` are the generator's.
    """

    def __init__(self, config: BertConfig, seed: int | None = 0, generator: BertConfig | None = None) -> None:
        """Make both with weights drawn from `seed`.

        Args:
            config: configuration of the discriminator.
            generator: that of the generator, whose embeddings are as wide; by GENERATOR_SIZE when None.
        """
        self._discriminator_config = config
        super().__init__(generator or generator_config(config, GENERATOR_SIZE), seed)

    def build(self, config: BertConfig) -> None:
        super().build(config)
        self.discriminator = BertForReplacedTokenDetection(self._discriminator_config, seed=None)
        own, shared = self.bert.embeddings, self.discriminator.bert.embeddings
        for name in _SHARED:
            if own._modules.pop(name, None) is not None:
                own.__dict__[name] = getattr(shared, name)  # read here, but no part of this module

    def packed_loss_sums(
        self,
        seqs: PackedSequences,
        labels: PretrainingLabels,
        objectives: Collection[str],
        hidden: Tensor | None = None,
    ) -> dict[str, LossSums]:
        """Sums of both losses of a packed batch; no gradient goes through the drawn tokens.

        Args:
            objectives: `generator` and `replaced_tokens`, or one of them.
        """
        positions, truth, draws = labels.masked_positions, labels.masked_labels.long(), labels.draws
        assert hidden is None, "the generator runs here, for masked tokens alone"
        rows, word_embedding = look_up(self.bert.embeddings.word, seqs.input_ids)  # (T, E), (V, E)
        inner = self.prediction.inner(self.bert.encode(seqs, positions, rows))  # (P, E)
        words, bias = self.prediction.output_layer(word_embedding)  # (V, E), (V,)
        loss, _, num_masked = linear_cross_entropy_sums(inner, words, bias, truth)
        drawn = draw_tokens(inner, words, bias, draws)  # (P,)
        is_other = drawn != truth  # (P,)
        replaced = seqs.with_tensors({"input_ids": seqs.input_ids.index_copy(0, positions, drawn)})
        targets = torch.zeros_like(seqs.input_ids, dtype=torch.bool).index_copy(0, positions, is_other)  # (T,)
        logits = self.discriminator.token_logits(replaced)  # (T,)
        detection = F.binary_cross_entropy_with_logits(logits, targets.float(), reduction="sum")
        num_right = ((logits > 0) == targets).sum(dtype=torch.float32)
        sums = {
            Generator.name: LossSums(loss, num_masked - is_other.sum(dtype=torch.float32), num_masked),
            ReplacedTokens.name: LossSums(detection, num_right, torch.full_like(num_right, seqs.num_tokens)),
        }
        return {name: own for name, own in sums.items() if name in objectives}

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        config: BertConfig | None = None,
        seed: int | None = 0,
        encoder_only: bool = False,
        generator_size: float = GENERATOR_SIZE,
    ) -> Self:
        """Load a discriminator, or another encoder, and the generator inside its folder; a new one where none is there.

        Args:
            config: configuration of the discriminator in place of the folder's, for another dropout or more positions.
            generator_size: width of a new generator as a share of the discriminator's.

        Raises: CheckpointError, naming file and remedy.
        """
        found = BertForReplacedTokenDetection.from_pretrained(folder, config, seed, encoder_only)
        states = {f"discriminator.{name}": weight for name, weight in found.state_dict().items()}
        config = replace(found.config, causal_attention=False)  # whatever the folder's model was trained for
        generator, inside = generator_config(config, generator_size), Path(folder) / GENERATOR_FOLDER
        if inside.exists():
            own = BertForPreTraining.from_pretrained(inside, seed=seed)
            generator = own.config.with_dropout(config.hidden_dropout_prob, config.attention_probs_dropout_prob)
            generator = replace(generator, max_position_embeddings=config.max_position_embeddings)
            states |= own.state_dict()
        both = cls(config, seed, generator)
        both.load_state_dict(both.state_dict() | {name: states[name] for name in both.state_dict() if name in states})
        return both.eval()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the discriminator as `PretrainedModel` does, and the generator, whole, into a folder inside."""
        self.discriminator.save_pretrained(folder)
        shared = self.discriminator.bert.embeddings.state_dict(prefix="bert.embeddings.")
        weights = shared | self.state_dict()
        whole = BertForPreTraining(self.config, seed=None)
        whole.load_state_dict({name: weights[name] for name in whole.state_dict()}, assign=True)
        whole.save_pretrained(Path(folder) / GENERATOR_FOLDER)


@torch.no_grad()
def draw_tokens(inner: Tensor, words: Tensor, bias: Tensor, draws: Tensor) -> Tensor:
    """Draw a token for each position from the softmax over the vocabulary: (P, E), (V, E), (V,), (P,) → (P,) int64.

    A token is where the running total of the shares passes the position's number in `draws`, which is uniform from 0 to
    2³¹ − 1. Shares are whole numbers, so that their total does not depend on the order in which a device adds them.
    """
    # Detached, as autocast would keep their copies, which have no gradient here, for whatever comes after.
    words, bias, drawn = words.detach(), bias.detach(), []
    size = _CPU_BLOCK_ROWS if inner.device.type == "cpu" else _GPU_BLOCK_ROWS
    for rows, numbers in zip(torch.split(inner, size), torch.split(draws, size), strict=True):
        shares = vocabulary_logits(rows, words, bias).float().softmax(dim=-1)  # (R, V)
        totals = shares.mul_(_SHARE_UNIT).int().cumsum(dim=-1, dtype=torch.int32)  # (R, V)
        wanted = (numbers[:, None] * totals[:, -1:]) >> DRAW_BITS  # (R, 1) int64, below the last total
        drawn.append(torch.searchsorted(totals, wanted.int(), right=True).squeeze(1))  # (R,)
    return torch.cat(drawn).clamp(max=len(words) - 1)  # of states that are no numbers as well, for a loss to be seen
