"""A linear-chain conditional random field over words' tags (Lafferty et al. 2001; Lample et al. 2016, section 2.2).

A path of tags scores the sum of its emissions, of the transitions between neighbors, and of its start and end; its
probability is the exponential of that, normalized over all paths.

Shapes: B sentences, W words of the longest, K words of all sentences, C classes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bert_core.errors import DataError

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
