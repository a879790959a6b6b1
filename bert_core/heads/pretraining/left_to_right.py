"""The head of left-to-right language modeling: that of masked language modeling, on every token that has a next one.

Devlin et al. 2018, section 5.1. Weights have the same names, so that one objective goes on from a model of the other.

Shapes: B sequences, T tokens, H hidden.
"""

import torch
from torch import Tensor

from bert_core.heads.pretraining.base import LossSums, PretrainingLabels
from bert_core.heads.pretraining.masked_lm import MaskedLMHead, VocabularyHead
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences


class LeftToRightHead(MaskedLMHead):
    """Logits are made for T − B tokens: all but the last of each sequence."""

    def rows(self, bert: BertModel, seqs: PackedSequences, labels: PretrainingLabels) -> Tensor | None:
        """All tokens: a sequence's last one is not worth a choice."""
        return None

    def loss_sums(
        self, module: VocabularyHead, bert: BertModel, seqs: PackedSequences, hidden: Tensor, labels: PretrainingLabels
    ) -> LossSums:
        """Cross entropy of each token, given the output of the token before it."""
        num_followed = seqs.num_tokens - seqs.num_sequences  # T − B
        order = torch.arange(seqs.num_tokens, device=hidden.device)
        # The number is known beforehand, so that nothing waits for the device.
        sequence = order[: seqs.num_sequences].repeat_interleave(seqs.cu_seqlens.diff() - 1, output_size=num_followed)
        followed = order[:num_followed] + sequence  # (T − B,)
        next_tokens = seqs.input_ids.index_select(0, followed + 1)
        return module.loss_sums(hidden.index_select(0, followed), bert.embeddings.word.weight, next_tokens)
