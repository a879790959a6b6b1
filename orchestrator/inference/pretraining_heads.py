"""A pretrained model asked directly: the likeliest tokens for each [MASK], and whether a sentence follows another."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch

from bert_core.constants import AskedPrecision
from bert_core.errors import CheckpointError
from bert_core.heads import BertForPreTraining
from bert_core.heads.replaced_tokens import GENERATOR_FOLDER
from bert_core.packed_sequences import PackedSequences
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import InputError
from orchestrator.cluster.torch_devices import autocast, choose_device
from orchestrator.inference.embedder import text_values
from orchestrator.inference.line_blocks import Abilities, ModelInput
from orchestrator.storage import join, local_copy


@dataclass(frozen=True)
class FilledMask:
    """One guess for one [MASK]."""

    mask: int
    """Number of the [MASK] within the text, from 1."""
    rank: int
    token: str
    probability: float
    text: str
    """The text with this guess in its place; other masks as they were."""


@dataclass(frozen=True)
class NextSentenceAnswer:
    """Judgment on two texts: the probability that B follows A, and whether it is likelier than not."""

    probability: float
    follows: bool


class MaskFiller:
    """A pretrained model that guesses the tokens behind [MASK]."""

    def __init__(self, model: BertForPreTraining, tokenizer: Tokenizer, precision: AskedPrecision = "fp32") -> None:
        self.model, self.tokenizer, self.precision = model, tokenizer, precision
        self.mask = tokenizer.token(tokenizer.mask_id)
        self.abilities = Abilities("fill_mask", ("text",), (), True, {"text": f"It was a {self.mask} day."})

    @classmethod
    def load(cls, folder: str, device: str = "cpu", precision: AskedPrecision = "fp32") -> Self:
        """Load a model's folder. Raises: CheckpointError when it has no head for masked tokens."""
        model, tokenizer = _load_pretraining(folder, "prediction", "masked tokens", GENERATOR_FOLDER)
        return cls(model.to(choose_device(device, precision=precision)), tokenizer, precision)

    def answer(self, inputs: Sequence[ModelInput]) -> list[dict[str, Any]]:
        answers = []
        for number, given in enumerate(inputs, start=1):
            values = text_values(given, number)
            try:
                answers.append({**values, "guesses": [asdict(guess) for guess in self.fill(values["text"])]})
            except InputError as error:
                raise InputError(f"line {number}: {error}") from None
        return answers

    def fill(self, text: str, top_k: int = 5) -> list[FilledMask]:
        """The likeliest tokens for each [MASK] of a text. Raises: InputError."""
        tokenizer, mask = self.tokenizer, self.mask
        ids = [tokenizer.cls_id, *tokenizer.encode_masked(text), tokenizer.sep_id]
        places = [place for place, token in enumerate(ids) if token == tokenizer.mask_id]
        if not places:
            raise InputError(f"the text has no {mask} to fill; write it where a word is missing")
        _check_length(len(ids), self.model.config.max_seq_length)
        device = next(self.model.parameters()).device
        seqs = PackedSequences.from_lengths(
            torch.tensor(ids, device=device),
            torch.zeros(len(ids), dtype=torch.long, device=device),
            torch.tensor([0, len(ids)], device=device),
        )
        with torch.inference_mode(), autocast(device, self.precision):
            hidden = self.model.bert.encode(seqs, torch.tensor(places, device=device))  # (P, H)
            probabilities = self.model.predict(hidden).float().softmax(dim=-1)  # (P, V)
        best = probabilities[:, : tokenizer.vocab_size].topk(min(top_k, tokenizer.vocab_size))
        pieces = text.split(mask)
        filled = []
        for number, (values, tokens) in enumerate(
            zip(best.values.tolist(), best.indices.tolist(), strict=True), start=1
        ):
            before, after = mask.join(pieces[:number]), mask.join(pieces[number:])
            for rank, (probability, token_id) in enumerate(zip(values, tokens, strict=True), start=1):
                word, goes_on = tokenizer.surface(token_id)
                whole = (before.rstrip() if goes_on else before) + word + after
                filled.append(FilledMask(number, rank, tokenizer.token(token_id), probability, whole))
        return filled


def fill_mask(folder: str, text: str, top_k: int = 5) -> list[FilledMask]:
    """The likeliest tokens for each [MASK] of a text. Raises: InputError, CheckpointError."""
    return MaskFiller.load(folder).fill(text, top_k)


def next_sentence(folder: str, first: str, second: str) -> NextSentenceAnswer:
    """Predict how likely the second text follows the first. Raises: InputError, CheckpointError."""
    model, tokenizer = _load_pretraining(folder, "next_sentence", "next sentences")
    assert model.next_sentence is not None, "a model without this head has been refused"
    if not model.next_sentence.bias.any():  # zeros to begin with, which the first step of a training moves
        raise CheckpointError(
            f"the head for next sentences of {folder} was never trained, as with sentence_objective: none; use a model "
            "pretrained with sentence_objective: next_sentence"
        )
    a, b = tokenizer.encode_ids([first, second])
    if not a or not b:
        raise InputError("next-sentence needs two texts with at least one word each")
    layout = tokenizer.segment_layout
    ids = [layout.prefix, *a, *layout.between, *b, layout.suffix]
    _check_length(len(ids), model.config.max_seq_length)
    types = [0] * (len(ids) - len(b) - 1) + [layout.type_of_second] * (len(b) + 1)
    seqs = PackedSequences.from_lengths(torch.tensor(ids), torch.tensor(types), torch.tensor([0, len(ids)]))
    with torch.inference_mode():
        state = model.bert.encode(seqs, model.bert.pooled_tokens(seqs))  # (1, H)
        logits = model.next_sentence(model.bert.pool(state))  # (1, 2)
        probability = float(logits.float().softmax(dim=-1)[0, 0])
    return NextSentenceAnswer(probability, probability >= 0.5)


def _load_pretraining(
    folder: str, head: str, what: str, inner: str | None = None
) -> tuple[BertForPreTraining, Tokenizer]:
    """A model with its pretraining heads, and its tokenizer.

    Args:
        inner: folder inside the model's in which another model may have the head.

    Raises: CheckpointError when the model lacks that head.
    """
    local = local_copy(folder)
    model = BertForPreTraining.from_pretrained(local)
    if model.config.causal_attention:
        raise CheckpointError(
            f"{folder} reads from left to right: it was pretrained to predict the next token, not {what}; use a model "
            "pretrained with masks, as BERT is"
        )
    tokenizer = Tokenizer.load(local)
    tokenizer.check_fits(model.config.vocab_size)
    if getattr(model, head) is None:
        raise CheckpointError(
            f"{folder} has no head for {what}: a model of its family ({model.config.model_type}) is pretrained without "
            "one; use one pretrained with sentence pairs, as BERT is"
        )
    if model.was_without(head):
        has_inner = inner is not None and (local / inner).exists()
        other = join(folder, str(inner)) if has_inner else "a pretrained model, not a fine-tuned one"
        raise CheckpointError(f"{folder} has no head for {what}; use {other}")
    return model, tokenizer


def _check_length(length: int, longest: int) -> None:
    if length > longest:
        raise InputError(f"the text has {length} tokens, the model reads {longest} at most; shorten it")
