"""Token classification: a class for each token, or a path of tags over the words of a sentence.

The path is that of a linear-chain conditional random field (Lafferty et al. 2001; Lample et al. 2016, section 2.2). It
scores the sum of its emissions, of the transitions between neighbors, and of its start and end; its probability is the
exponential of that, normalized over all paths.

Shapes: B sequences, S length of a padded row, T tokens, K words of all sequences, W width of what the head reads, for
the random field words of the longest sequence, R width of the LSTM, C classes.
"""

from collections.abc import Sequence
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
from bert_core.errors import DataError
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


_FORBIDDEN = -1e9
"""Number added to the score of what BIO forbids: its exponential is 0, yet sums and gradients stay finite."""


class LinearChainCrf(nn.Module):
    """Scores of transitions between tags, constrained to BIO, in fp32 whatever its input is.

    Paths that BIO forbids are left out of decoding and of the normalization in training (Papay et al. 2022,
    "Constraining Linear-chain CRFs to Regular Languages"; AllenNLP's module constrains decoding alone). A gold path
    that breaks BIO, as in a window that begins within an entity, is normalized over all paths, so that its loss is
    finite as well.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        num_labels = len(labels)
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))  # from row to column
        self.start = nn.Parameter(torch.zeros(num_labels))  # like the end's, any equal values are a neutral beginning
        self.end = nn.Parameter(torch.zeros(num_labels))
        self.transition_penalties, self.start_penalties = bio_penalties(labels)

    def log_likelihood(self, emissions: Tensor, tags: Tensor, lengths: Tensor, max_length: int | None = None) -> Tensor:
        """Log probability of each sentence's tags, 0 where it has no word: (K, C), (K,), (B,) → (B,).

        Words lie end to end, sentence after sentence; rows behind the last sentence's are left alone. Raises: DataError
        when there is no row.

        Args:
            max_length: words of the longest sentence, or more. The device is asked, and waited for, where it is None.
        """
        with torch.autocast(emissions.device.type, enabled=False):
            places, mask = _pad(lengths, len(emissions), max_length)  # (B, W)
            padded, gold = emissions.float()[places], tags[places]  # (B, W, C), (B, W)
            penalties, start_penalties = self._penalties(emissions.device)
            free = torch.zeros_like(self.end)  # (C,)
            breaks = path_scores(free.expand_as(padded), gold, mask, penalties, start_penalties, free) < 0  # (B,)
            transitions = self.transitions + penalties.where(~breaks[:, None, None], 0.0)  # (B, C, C)
            start = self.start + start_penalties.where(~breaks[:, None], 0.0)  # (B, C)
            score = path_scores(padded, gold, mask, self.transitions, self.start, self.end)  # (B,)
            return (score - log_partitions(padded, mask, transitions, start, self.end)).where(mask[:, 0], 0.0)

    @torch.no_grad()
    def decode(self, emissions: Tensor, lengths: Tensor, max_length: int | None = None) -> Tensor:
        """Choose the tags of the best paths: (K, C), (B,) → (K,). Raises: DataError when a score is not finite.

        Args:
            max_length: as that of `log_likelihood`.
        """
        if not emissions.isfinite().all():
            raise DataError(
                "the logits hold values that are not finite; the model has diverged, lower its learning rate"
            )
        with torch.autocast(emissions.device.type, enabled=False):
            places, mask = _pad(lengths, len(emissions), max_length)  # (B, W)
            penalties, start_penalties = self._penalties(emissions.device)
            transitions, start = self.transitions + penalties, self.start + start_penalties
            paths = best_paths(emissions.float()[places], mask, transitions, start, self.end)  # (B, W)
            sentences = torch.arange(len(lengths), device=lengths.device)
            own = sentences.repeat_interleave(lengths, output_size=len(emissions))  # (K,) sentence of each word
            return paths[own, torch.arange(len(emissions), device=lengths.device) - places[own, 0]]

    def _penalties(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if self.start_penalties.device != device:  # not at each step: a copy from the host waits for the device
            self.transition_penalties = self.transition_penalties.to(device)
            self.start_penalties = self.start_penalties.to(device)
        return self.transition_penalties, self.start_penalties


def bio_penalties(labels: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Penalties of transitions and of starts: a large negative number for what BIO forbids, 0 for the rest.

    Forbidden is `I-x` at the start or after anything but `B-x` and `I-x`. The penalties are (C, C), from row to column,
    and (C,). A type without a `B-` tag is not BIO and stays free, as do other tags.
    """
    count = len(labels)
    transitions, start = torch.zeros(count, count, device="cpu"), torch.zeros(count, device="cpu")
    for column, label in enumerate(labels):
        kind = label.removeprefix("I-")
        if label != kind and f"B-{kind}" in labels:
            goes_on = [other in (f"B-{kind}", f"I-{kind}") for other in labels]
            transitions[~torch.tensor(goes_on, device="cpu"), column] = _FORBIDDEN
            start[column] = _FORBIDDEN
    return transitions, start


def path_scores(
    emissions: Tensor, tags: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor
) -> Tensor:
    """Score of each sentence's path: (B, W, C), (B, W), (B, W), (C, C), (C,), (C,) → (B,)."""
    last = (mask.sum(1, keepdim=True) - 1).clamp(min=0)  # (B, 1)
    own = emissions.gather(2, tags[..., None]).squeeze(2)  # (B, W)
    steps = transitions[tags[:, :-1], tags[:, 1:]]  # (B, W-1)
    within = (own * mask).sum(1) + (steps * mask[:, 1:]).sum(1)  # (B,)
    return start[tags[:, 0]] + within + end[tags.gather(1, last).squeeze(1)]


def log_partitions(emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Logarithm of the sum over all paths of their scores' exponentials, by the forward algorithm.

    (B, W, C), (B, W), (C, C) or (B, C, C), (C,) or (B, C), (C,) → (B,). Its gradient by an emission is the probability
    of that tag at that word.
    """
    forwards = [start + emissions[:, 0]]  # (B, C) each
    for own in emissions.unbind(1)[1:]:
        forwards.append((forwards[-1][:, :, None] + transitions).logsumexp(1) + own)
    return (_of_last_word(forwards, mask) + end).logsumexp(1)


def best_paths(emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """Tags of the path with the highest score, by Viterbi's algorithm; padding repeats the last tag.

    (B, W, C), (B, W), (C, C), (C,), (C,) → (B, W).
    """
    itself = torch.arange(emissions.shape[2], device=emissions.device)
    bests = [start + emissions[:, 0]]  # (B, C) each
    origins = [itself.expand_as(bests[0])]
    for own in emissions.unbind(1)[1:]:
        onward, origin = (bests[-1][:, :, None] + transitions).max(1)  # (B, C)
        bests.append(onward + own)
        origins.append(origin)
    tags = [(_of_last_word(bests, mask) + end).argmax(1)]  # (B,)
    for origin in reversed(torch.stack(origins, dim=1).where(mask[..., None], itself).unbind(1)[1:]):
        tags.append(origin.gather(1, tags[-1][:, None]).squeeze(1))
    return torch.stack(tags[::-1], dim=1)


def _of_last_word(rows: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Each sentence's row at its last word, out of those of every word, padding included: W times (B, C) → (B, C).

    What the loops compute at padding is passed over here at once: to keep the row before it at each word would be one
    more launch of a kernel a word on a GPU.
    """
    stacked = torch.stack(list(rows), dim=1)  # (B, W, C)
    last = (mask.sum(1) - 1).clamp(min=0)  # (B,)
    return stacked.gather(1, last[:, None, None].expand(-1, 1, stacked.shape[2])).squeeze(1)


def _pad(lengths: Tensor, num_words: int, max_length: int | None) -> tuple[Tensor, Tensor]:
    """Index of the word at each place of padded sentences, and a mask of the real ones: (B,) → (B, W), (B, W)."""
    if num_words == 0:
        raise DataError("there is no word to tag; labels of -100 mark what is not the first sub-token of a word")
    width = int(lengths.max()) if max_length is None else max_length
    places = torch.arange(max(1, width), device=lengths.device)
    first = lengths.cumsum(0) - lengths  # (B,)
    return (first[:, None] + places).clamp(max=num_words - 1), places < lengths[:, None]


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
