"""Token classification: a class for each token, or a path of tags over the words of a sentence.

Shapes: B sequences, S length of a padded row, T tokens, K words, W width of what the head reads, R width of the LSTM,
C classes.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.constants import IGNORE_INDEX
from bert_core.counter_random import derive_key
from bert_core.heads.crf import LinearChainCrf
from bert_core.heads.sequence_classification import ClassificationOutput
from bert_core.kernels.dropout import Dropout
from bert_core.losses import ClassLoss, check_labels
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences


class BidirectionalLstm(nn.Module):
    """A bidirectional LSTM that reads each sequence by itself, in fp32 whatever its input is.

    Hochreiter and Schmidhuber 1997; Graves and Schmidhuber 2005.
    """

    def __init__(self, width: int, size: int, num_layers: int, dropout: float) -> None:
        """Make layers from `width` W to `size` R; dropout acts between layers."""
        super().__init__()
        between = dropout if num_layers > 1 else 0.0
        self.lstm = nn.LSTM(width, size // 2, num_layers, bidirectional=True, dropout=between)

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Draw all weights anew, uniform within ±1/√(R/2): what PyTorch's own layers start from."""
        generator = torch.Generator().manual_seed(derive_key(seed, "recurrent"))
        bound = self.lstm.hidden_size**-0.5
        for parameter in self.lstm.parameters():
            parameter.uniform_(-bound, bound, generator=generator)

    def forward(self, hidden: Tensor, seqs: PackedSequences) -> Tensor:
        """States of both directions for each token: (T, W) → (T, R)."""
        lengths = seqs.host_lengths
        if lengths is None:
            lengths = seqs.cu_seqlens.diff().cpu().numpy()
        places, num_running = time_order(lengths)
        order = torch.from_numpy(places).to(hidden.device, non_blocking=True)
        with torch.autocast(hidden.device.type, enabled=False):
            steps = PackedSequence(hidden.float().index_select(0, order), torch.from_numpy(num_running))
            states = self.lstm(steps)[0].data  # (T, R)
        return torch.empty_like(states).index_copy(0, order, states)


def time_order(lengths: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order tokens by time, as an LSTM reads them: all first ones, then all second ones, … of longer sequences first.

    (B,) → places of the tokens in that order (T,), and how many sequences are as long as each step (S,).

    >>> [values.tolist() for values in time_order(np.array([2, 3]))]
    [[2, 0, 3, 1, 4], [2, 2, 1]]
    """
    rank = np.argsort(np.argsort(-lengths, kind="stable"))  # (B,)
    starts = np.cumsum(lengths) - lengths  # (B,)
    step = np.arange(lengths.sum()) - np.repeat(starts, lengths)  # (T,)
    order = np.argsort(step * len(lengths) + np.repeat(rank, lengths))
    return order, np.bincount(step)


class BertForTokenClassification(PretrainedModel):
    """BERT with a class for each token; with `token_decoder` "crf", a path of tags by a conditional random field.

    The field is over the words' first sub-tokens. With `num_lstm_layers` a bidirectional LSTM goes over a sequence's
    tokens in front of the classifier, as in the feature-based approach of Devlin et al. 2018, section 5.3.
    """

    class_loss = ClassLoss()
    """Loss of tags without a CRF."""

    def build(self, config: BertConfig) -> None:
        self.bert = BertModel(config, seed=None, with_pooler=config.heads.has_head_layer)
        self.dropout = Dropout(config.token_dropout_prob)
        self.lstm = None
        if config.num_lstm_layers:
            widths = (config.token_state_size, config.token_input_size)
            self.lstm = BidirectionalLstm(*widths, config.num_lstm_layers, config.token_dropout_prob)
        self.classifier = nn.Linear(config.token_input_size, config.num_labels)
        labels = [config.id2label[number] for number in range(config.num_labels)]
        self.crf = LinearChainCrf(labels) if config.token_decoder == "crf" else None

    def initialize(self, seed: int) -> None:
        """Draw all weights anew; the LSTM's as `BidirectionalLstm.initialize` does."""
        super().initialize(seed)
        if self.lstm is not None:
            self.lstm.initialize(seed)

    def packed_logits(self, seqs: PackedSequences, selected: Tensor | None = None) -> Tensor:
        """Logits of each token: (T, C)."""
        states = self.dropout(self.bert.token_states(seqs, selected))  # (T, W)
        if self.lstm is not None:
            states = self.dropout(self.lstm(states, seqs))  # (T, R)
        logits: Tensor = self.classifier(states)
        return logits

    def compute_loss(
        self, logits: Tensor, labels: Tensor, seqs: PackedSequences, max_words: int | None = None
    ) -> Tensor:
        """Mean loss over the tokens whose label is not -100: (T, C), (T,) → scalar.

        It is the cross entropy, or with a CRF the negative log-likelihood of the sequences' paths. Both are divided by
        the number of such tokens, so that one learning rate serves both; without one a CRF loses nothing.

        Args:
            max_words: such tokens in a sequence at most: a CRF goes from word to word, and each costs launches of
                kernels on a GPU. None stands for the longest sequence's tokens.
        """
        if self.crf is None:
            return self.class_loss.of_classes(logits.float(), labels)
        is_word = labels != IGNORE_INDEX  # (T,)
        ends = is_word.cumsum(0)[seqs.cu_seqlens[1:].long() - 1]  # (B,)
        lengths = ends.diff(prepend=ends.new_zeros(1))  # (B,)
        # Words move to the front and the rest stays behind them: their number, K, is known to the device alone.
        order = is_word.int().argsort(descending=True, stable=True)  # (T,)
        tags = labels[order].clamp(min=0)  # (T,)
        max_length = seqs.max_seqlen if max_words is None else max_words
        likelihoods: Tensor = self.crf.log_likelihood(logits[order], tags, lengths, max_length)  # (B,)
        return -likelihoods.sum() / ends[-1].clamp(min=1)

    def decode(self, logits: Tensor, lengths: Tensor, max_length: int | None = None) -> Tensor:
        """Choose the tags of words whose logits lie end to end, `lengths` to a sentence: (K, C), (B,) → (K,).

        Args:
            max_length: words of the longest sentence; None asks the device.

        Raises: DataError when a CRF's logits are not finite.
        """
        return logits.argmax(dim=1) if self.crf is None else self.crf.decode(logits, lengths, max_length)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> ClassificationOutput:
        """Classify the tokens of padded rows; padding takes no part in the loss, whatever its label."""
        seqs = self.bert.pack(input_ids, attention_mask, token_type_ids)
        if labels is not None:
            check_labels(labels, input_ids.shape, self.config.num_labels)
        logits = self.packed_logits(seqs)  # (T, C)
        loss = None
        if labels is not None:
            max_words = int((labels != IGNORE_INDEX).sum(dim=1).max())
            loss = self.compute_loss(logits, seqs.pack(labels), seqs, max_words)
        return ClassificationOutput(loss, seqs.unpack(logits, input_ids.shape[1]))
