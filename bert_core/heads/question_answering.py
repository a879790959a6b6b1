"""Question answering: first and last token of an answer.

Shapes: B sequences, S length of a padded row, T tokens, H hidden.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.kernels.dropout import Dropout
from bert_core.losses import span_loss
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences


@dataclass(frozen=True)
class QuestionAnsweringOutput:
    loss: Tensor | None
    """Mean loss; None without positions."""
    start_logits: Tensor
    """Logits of an answer's first token, (B, S)."""
    end_logits: Tensor
    """Logits of an answer's last token, (B, S)."""


class BertForQuestionAnswering(PretrainedModel):
    """BERT with logits for the first and the last token of an answer (Devlin et al. 2018, section 4.2)."""

    def build(self, config: BertConfig) -> None:
        self.config = config.with_labels(["LABEL_0", "LABEL_1"])  # the width that Hugging Face reads off the labels
        self.bert = BertModel(config, seed=None, with_pooler=config.heads.has_head_layer)
        self.dropout = Dropout(config.head_dropout_prob if config.heads.has_head_layer else config.qa_dropout)
        self.qa_outputs = nn.Linear(config.token_state_size, 2)

    def packed_logits(self, seqs: PackedSequences, selected: Tensor | None = None) -> Tensor:
        """Logits of each token as the first and as the last of the answer: (T, 2)."""
        logits: Tensor = self.qa_outputs(self.dropout(self.bert.token_states(seqs, selected)))
        return logits

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
    ) -> QuestionAnsweringOutput:
        """Compute the logits of padded rows, and with positions the mean loss.

        Padding has logits here and takes part in the softmax, as in the loss of Hugging Face; `packed_logits` leaves
        it out.
        """
        keep_padding = not self.config.heads.zero_padding
        seqs = self.bert.pack(input_ids, attention_mask, token_type_ids, keep_padding)
        hidden = seqs.unpack(self.bert.token_states(seqs), input_ids.shape[1])  # (B, S, H)
        start, end = self.qa_outputs(self.dropout(hidden)).unbind(-1)  # (B, S) each
        if start_positions is None or end_positions is None:
            return QuestionAnsweringOutput(None, start, end)
        return QuestionAnsweringOutput(span_loss(start, end, start_positions, end_positions), start, end)
