"""Which tokens belong to one word. Alone: pytest tests/bert_core/text/test_word_boundaries.py"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from bert_core.errors import TokenizerError
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_pipelines import BYTE_BPE_SPECIAL_TOKENS
from bert_core.text.tokenizer_training import TRAINERS
from bert_core.text.word_boundaries import find_word_boundaries

WORDS = ["boats", "keeperboats", "harbour", "walking", "home", "a", "shores"]
NOTHING: dict[str, Any] = {"model": {"type": "WordLevel"}, "pre_tokenizer": None, "decoder": None}
BYTES: dict[str, Any] = NOTHING | {"decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]}}


@pytest.mark.parametrize(
    ("vocabulary", "definition", "joined"),
    [
        (["[PAD]", "[MASK]", "play", "##ing", ".", "##s", "▁"], NOTHING, ["##ing", "##s"]),
        (["<pad>", "<mask>", "Ġplay", "ing", ".", "Ġthe", "##", "##a"], BYTES, ["ing", ".", "##", "##a"]),
        (["<pad>", "<mask>", "▁play", "ing", "▁", "s"], NOTHING, ["ing", "s"]),
        (["<pad>", "<mask>", "play@@", "ing", "▁", "s@@"], NOTHING, ["play@@", "s@@"]),
        (["<pad>", "<mask>", "play", "ing</w>", "▁", ".</w>"], NOTHING, ["play", "▁"]),
        (["<pad>", "<mask>", "play", "_ing", "##s"], {"model": {"continuing_subword_prefix": "_"}}, ["_ing"]),
        (["<pad>", "<mask>", "play", "ing|", "##s"], {"model": {"end_of_word_suffix": "|"}}, ["play", "##s"]),
    ],
    ids=["wordpiece", "byte-level", "unigram", "fastBPE", "end of word", "prefix of one's own", "suffix of one's own"],
)
def test_tokens_are_joined_by_their_vocabularys_mark(
    vocabulary: list[str], definition: dict[str, Any], joined: list[str]
) -> None:
    pieces = find_word_boundaries(definition, vocabulary, special_ids=(0, 1))
    assert [token for token, is_joined in zip(vocabulary, pieces.joined, strict=True) if is_joined] == joined


@pytest.mark.parametrize("stray", ["▁", "c@@", "Ġ"])
def test_a_vocabulary_without_marks_is_refused(stray: str) -> None:
    with pytest.raises(TokenizerError, match='mask in units of "token"'):
        find_word_boundaries(NOTHING, ["<pad>", stray, *(f"word {number}" for number in range(200))], special_ids=(0,))


def _ends_words() -> Tokenizer:
    """As the BPE of GPT, XLM and HerBERT."""
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.BPEDecoder(suffix="</w>")
    special_tokens = list(BYTE_BPE_SPECIAL_TOKENS.values())
    trainer = trainers.BpeTrainer(
        vocab_size=90, special_tokens=special_tokens, end_of_word_suffix="</w>", show_progress=False
    )
    backend.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    return Tokenizer(backend, BYTE_BPE_SPECIAL_TOKENS)


def _goes_on() -> Tokenizer:
    """The same pieces as fastBPE writes them: what does not end a word ends in @@."""
    definition = json.loads(_ends_words()._backend.to_str())
    model = definition["model"]
    renamed = {
        t: t if t[0] == "<" else t.removesuffix("</w>") + "@@" * (not t.endswith("</w>")) for t in model["vocab"]
    }
    definition["model"] = {"type": "WordLevel", "unk_token": "<unk>"}
    definition["model"]["vocab"] = {renamed[token]: number for token, number in model["vocab"].items()}
    definition |= {"decoder": None, "pre_tokenizer": {"type": "WhitespaceSplit"}}
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(definition)), BYTE_BPE_SPECIAL_TOKENS)


KINDS: dict[str, Callable[[], Tokenizer]] = {
    **{name: lambda train=train: train([" ".join(WORDS)] * 3, 330, True, 2) for name, train in TRAINERS.items()},
    "</w>": _ends_words,
}


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_a_text_are_those_that_it_was_written_with(kind: str) -> None:
    tokenizer = KINDS[kind]()

    @given(st.lists(st.sampled_from([*WORDS, "wak", "horn"]), min_size=1, max_size=8))
    @settings(max_examples=30, deadline=None)
    def check(words: list[str]) -> None:
        ids, first = tokenizer.encode_words(words)
        continues = tokenizer.word_boundaries.continue_word(np.array(ids))
        assert (np.flatnonzero(~continues[1:]) + 1).tolist() == first[1:]

    check()
    assert len(tokenizer.encode_words(["keeperboats", "wak"])[0]) > 2, "a word here has several tokens"


def test_pieces_of_fastbpe_are_the_same_words() -> None:
    ends, goes_on = _ends_words(), _goes_on()
    assert (ends.word_boundaries.joined == goes_on.word_boundaries.joined).all()
    assert goes_on.surface(goes_on.id("b@@")) == ends.surface(ends.id("b")) == ("b", False)
    assert ends.surface(ends.id("a</w>")) == ("a", False)
