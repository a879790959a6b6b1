"""Masked tokens and their units, and what stands in their place. Alone: pytest tests/bert_core/masking/test_masks.py"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tokenizers import decoders, models, pre_tokenizers, trainers

from bert_core.counter_random import random_bits
from bert_core.errors import DataError, TokenizerError
from bert_core.masking import SPAN_LENGTH_SHARES, choose_spans, choose_words, find_words, mask_tokens
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_pipelines import BYTE_BPE_SPECIAL_TOKENS
from bert_core.text.tokenizer_training import TRAINERS
from bert_core.text.word_boundaries import find_word_boundaries

VOCAB, MASK = 1000, 4


def rows(num_rows: int, length: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    ids = generator.integers(5, VOCAB, (num_rows, length))
    special = np.zeros_like(ids)
    special[:, 0] = 1
    for row, end in enumerate(generator.integers(1, length + 1, num_rows)):
        special[row, end:] = 1
    return ids, special


def words_of(ids: np.ndarray, special: np.ndarray, seed: int = 0, longest: int = 4) -> np.ndarray:
    """Words of 1 to `longest` tokens, numbered from 0 in each row; -1 where a token is special."""
    lengths = np.random.default_rng(seed).integers(1, longest + 1, ids.shape)
    words = np.stack([np.repeat(np.arange(len(row)), row)[: len(row)] for row in lengths])
    return np.where(special == 1, -1, words)


def mask(ids: np.ndarray, special: np.ndarray, **changes: object) -> tuple[np.ndarray, np.ndarray]:
    settings: dict = {"vocab_size": VOCAB, "mask_token_id": MASK, "seed": 1, "epoch": 0, "example": np.arange(len(ids))}
    return mask_tokens(ids, special, **(settings | changes))


@given(st.integers(1, 20), st.integers(2, 80), st.floats(0.01, 0.99), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_exactly_the_rounded_share_is_chosen_and_at_least_one(num_rows, length, probability, seed) -> None:
    ids, special = rows(num_rows, length, seed)
    inputs, labels = mask(ids, special, mlm_probability=probability)
    chosen = labels != -100
    assert not chosen[special == 1].any()
    assert (labels[chosen] == ids[chosen]).all()
    assert (inputs[~chosen] == ids[~chosen]).all()
    for row in range(num_rows):
        maskable = int((special[row] == 0).sum())
        assert chosen[row].sum() == min(max(round(probability * maskable), 1), maskable)


@pytest.mark.parametrize(
    ("num_rows", "length", "probability", "mix", "seed", "epoch", "expected"),
    [
        (1, 1, 0.15, (0.8, 0.1, 0.1), 0, 0, "00b9b3e917a6dd28"),
        (7, 33, 0.15, (0.8, 0.1, 0.1), 1, 0, "615fc1775a350343"),
        (300, 128, 0.15, (0.8, 0.1, 0.1), 2, 5, "dab6f901e9cae02c"),
        (64, 512, 0.3, (0.8, 0.0, 0.2), 3, 1, "34613adc4e5d7ec2"),
        (16, 20, 0.9, (0.0, 0.0, 1.0), 4, 2, "e037b36e200d8954"),
    ],
)
def test_masks_are_those_of_every_version_and_machine(
    num_rows: int, length: int, probability: float, mix: tuple, seed: int, epoch: int, expected: str
) -> None:
    generator = np.random.default_rng(num_rows)
    ids = generator.integers(5, VOCAB, (num_rows, length))
    special = generator.random((num_rows, length)) < 0.1
    numbers = {"seed": seed, "epoch": epoch, "example": np.arange(num_rows) * 7}
    masked = mask(ids, special, mlm_probability=probability, mix=mix, **numbers)
    assert hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in masked)).hexdigest()[:16] == expected


@pytest.mark.parametrize("change", [{"seed": 2}, {"epoch": 1}, {"example": np.arange(1, 9)}])
def test_masks_change_with_seed_epoch_and_example(change: dict) -> None:
    ids, special = rows(8, 60)
    assert (mask(ids, special)[1] != mask(ids, special, **change)[1]).any()


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize(
    "mix", [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.8, 0.2, 0.0), (0.8, 0.0, 0.2), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]
)
def test_any_mix_gives_its_shares_in_any_unit(mix: tuple[float, float, float], unit: str) -> None:
    inputs, labels = mask(np.full((3000, 60), 500), np.zeros((3000, 60)), mix=mix, unit=unit)
    chosen = inputs[labels != -100]
    shares = [(chosen == MASK).mean(), ((chosen != MASK) & (chosen != 500)).mean(), (chosen == 500).mean()]
    assert np.abs(np.subtract(shares, mix)).max() < (0.03 if unit == "span" else 0.01)


def test_positions_are_chosen_evenly() -> None:
    _, labels = mask(np.full((20_000, 20), 500), np.zeros((20_000, 20)))
    frequency = (labels != -100).mean(axis=0)
    assert np.abs(frequency - 0.15).max() < 0.015


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_a_row_without_maskable_tokens_is_left_alone(unit: str) -> None:
    inputs, labels = mask(np.full((1, 5), 7), np.ones((1, 5)), unit=unit)
    assert (inputs == 7).all()
    assert (labels == -100).all()


@pytest.mark.parametrize(
    "change",
    [
        {"example": np.arange(3)},
        {"mlm_probability": 0.0},
        {"mix": (0.9, 0.9, 0.1)},
        {"unit": "letter"},
        {"unit": "word", "word_ids": np.zeros((8, 9))},
    ],
)
def test_impossible_settings_are_refused(change: dict) -> None:
    ids, special = rows(8, 10)
    with pytest.raises(DataError):
        mask(ids, special, **change)


@given(
    st.sampled_from(["word", "span"]),
    st.integers(1, 20),
    st.integers(2, 80),
    st.integers(1, 6),
    st.floats(0.01, 0.99),
    st.integers(0, 2**31),
)
@settings(max_examples=100, deadline=None)
def test_whole_words_are_chosen_within_the_budget(unit, num_rows, length, longest, probability, seed) -> None:
    ids, special = rows(num_rows, length, seed)
    words = words_of(ids, special, seed, longest)
    inputs, labels = mask(ids, special, unit=unit, word_ids=words, mlm_probability=probability)
    hidden = labels != -100
    assert not hidden[special == 1].any()
    assert (inputs[~hidden] == ids[~hidden]).all()
    assert (labels[hidden] == ids[hidden]).all()
    for row in range(num_rows):
        chosen = {word for word in words[row] if hidden[row][words[row] == word].any()}
        assert all(hidden[row][words[row] == word].all() for word in chosen)
        maskable = int((special[row] == 0).sum())
        budget = min(max(round(probability * maskable), 1), maskable)
        assert hidden[row].sum() <= budget or len(chosen) == 1
        assert hidden[row].any() == (maskable > 0)
        if unit == "word":  # a word that is left would exceed the budget
            rest = np.bincount(words[row][(words[row] >= 0) & ~hidden[row]])
            assert len(rest) == 0 or min(rest[rest > 0], default=length) > budget - hidden[row].sum()


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_without_words_every_token_is_one_and_the_budget_is_met(unit: str) -> None:
    ids, special = rows(50, 60)
    _, labels = mask(ids, special, unit=unit)
    maskable = (special == 0).sum(axis=1)
    assert ((labels != -100).sum(axis=1) == np.minimum(np.maximum(np.rint(0.15 * maskable), 1), maskable)).all()


def test_words_of_one_token_are_masked_as_tokens() -> None:
    ids, special = rows(50, 60)
    for one, other in zip(mask(ids, special), mask(ids, special, unit="word"), strict=True):
        assert (one == other).all()


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_a_row_depends_on_its_own_example_alone(unit: str) -> None:
    ids, special = rows(8, 40)
    words = words_of(ids, special)
    together = mask(ids, special, unit=unit, word_ids=words, example=np.array([7, 3, 9, 1, 0, 2, 4, 5]))
    alone = mask(ids[2], special[2], unit=unit, word_ids=words[2], example=9)
    assert (together[0][2] == alone[0]).all()
    assert (together[1][2] == alone[1]).all()


def test_words_are_chosen_evenly() -> None:
    ids = np.full((20_000, 40), 500)
    words = np.tile(np.repeat(np.arange(20), 2), (len(ids), 1))
    _, labels = mask(ids, np.zeros_like(ids), unit="word", word_ids=words)
    assert np.abs((labels != -100).mean(axis=0) - 0.15).max() < 0.015


def test_a_word_begins_anew_after_a_special_token() -> None:
    ids, special = np.full((2000, 9), 500), np.zeros((2000, 9), int)
    special[:, [0, 4, 8]] = 1
    words = np.tile([-1, 0, 0, 1, -1, 1, 2, 2, -1], (2000, 1))  # as the two segments of a Hugging Face encoding
    _, labels = mask(ids, special, unit="word", word_ids=words, mlm_probability=0.17)
    hidden = labels != -100
    assert (hidden.sum(axis=1) == 1).all()
    assert set(np.flatnonzero(hidden.any(axis=0)).tolist()) == {3, 5}


OFFSETS = np.array([0, 4, 4, 9])
MASKABLE = np.array([0, 1, 1, 1, 0, 1, 1, 0, 1], bool)
CONTINUES = np.array([0, 1, 1, 0, 1, 1, 1, 1, 1], bool)


def long_rows(num_rows: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Borders, all tokens maskable, and a key per row."""
    return np.arange(num_rows + 1) * length, np.ones(num_rows * length, bool), random_bits(1, np.arange(num_rows))


def test_words_end_at_rows_and_special_tokens() -> None:
    words = find_words(OFFSETS, MASKABLE, CONTINUES, 0.5)
    assert words.starts.tolist() == [1, 3, 5, 8]
    assert words.lengths.tolist() == [2, 1, 2, 1]
    assert words.rows.tolist() == [0, 0, 2, 2]
    assert words.within.tolist() == [1, 3, 1, 4]
    assert words.bounds.tolist() == [0, 2, 2, 4]
    assert words.budgets.tolist() == [2, 0, 2]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=30), st.floats(0.05, 0.95), st.integers(0, 2**31))
@settings(max_examples=100, deadline=None)
def test_words_are_taken_as_a_loop_would_take_them(lengths: list[int], probability: float, seed: int) -> None:
    continues = np.concatenate([[False, *[True] * (length - 1)] for length in lengths])
    words = find_words(np.array([0, len(continues)]), np.ones(len(continues), bool), continues, probability)
    key = random_bits(seed, np.arange(1))
    order = np.argsort(random_bits(key[0], words.starts), kind="stable")
    taken: list[int] = []
    for word in order.tolist():
        if sum(lengths[other] for other in taken) + lengths[word] <= words.budgets[0]:
            taken.append(word)
    expected = np.concatenate([words.starts[word] + np.arange(lengths[word]) for word in taken or order[:1]])
    assert choose_words(words, key).positions.tolist() == sorted(expected.tolist())


def test_spans_have_the_papers_lengths() -> None:
    assert SPAN_LENGTH_SHARES @ np.arange(1, 11) == pytest.approx(3.8, abs=0.02)
    offsets, maskable, keys = long_rows(40, 4000)
    chosen = choose_spans(find_words(offsets, maskable, None, 0.15), keys)
    _, lengths = np.unique(chosen.action_positions, return_counts=True)
    counts = np.bincount(lengths, minlength=11)[1:]
    assert stats.chisquare(counts, SPAN_LENGTH_SHARES * counts.sum()).pvalue > 0.001


def test_spans_are_runs_of_whole_words_that_do_not_overlap() -> None:
    offsets, maskable, keys = long_rows(50, 200)
    continues = np.random.default_rng(0).random(len(maskable)) < 0.3
    words = find_words(offsets, maskable, continues, 0.3)
    chosen = choose_spans(words, keys)
    assert (np.diff(chosen.positions) > 0).all()
    begins, lengths = np.unique(chosen.action_positions, return_counts=True)
    assert np.isin(begins, words.starts).all()
    assert np.isin(begins + lengths, [*words.starts, len(maskable)]).all()
    runs = np.concatenate([np.arange(begin, begin + length) for begin, length in zip(begins, lengths, strict=True)])
    assert runs.tolist() == chosen.positions.tolist()


def test_spans_stand_anywhere_alike() -> None:
    offsets, maskable, keys = long_rows(20_000, 40)
    chosen = choose_spans(find_words(offsets, maskable, None, 0.15), keys)
    frequency = np.bincount(chosen.positions % 40, minlength=40) / 20_000
    assert np.abs(frequency[8:-8] - frequency[8:-8].mean()).max() < 0.012
    assert frequency.min() > 0.05  # fewer spans fit around the outermost words


def test_what_becomes_of_a_span_is_decided_once() -> None:
    numbers = {"vocab_size": 1000, "mask_token_id": 4, "seed": 0, "epoch": 0, "example": np.arange(2000)}
    ids = np.full((2000, 64), 500)
    inputs, labels = mask_tokens(ids, np.zeros_like(ids), unit="span", mix=(0.5, 0.0, 0.5), **numbers)
    both = (labels[:, 1:] != -100) & (labels[:, :-1] != -100)
    assert (inputs[:, 1:] == inputs[:, :-1])[both].mean() > 0.9  # neighbors differ where two spans touch


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
    """Tokenizer whose pieces end words, as the BPE of GPT, XLM and HerBERT has them."""
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
