"""Unigram's pieces: expectations against every segmentation written out, pruning, and what is kept.

Run alone: pytest tests/bert_core/text/test_unigram_pieces.py
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from bert_core.text import unigram_pieces
from bert_core.text.unigram_pieces import _find_pieces, _Lattice, _Words, learn_pieces

COUNTED = st.dictionaries(st.text("abc", min_size=1, max_size=6), st.integers(1, 5), min_size=1, max_size=6)


def segmentations(word: str) -> Iterator[tuple[str, ...]]:
    if not word:
        yield ()
    for end in range(1, len(word) + 1):
        yield from ((word[:end], *rest) for rest in segmentations(word[end:]))


def probability(pieces: tuple[str, ...], probabilities: Mapping[str, float]) -> float:
    return float(np.prod([probabilities.get(piece, 0.0) for piece in pieces]))


@settings(deadline=None, max_examples=30)
@given(COUNTED, st.integers(0, 2**32 - 1))
def test_expectations_agree_with_all_segmentations(words: dict[str, int], seed: int) -> None:
    pieces, _, _ = _find_pieces(_Words.join(words), 100, 1)
    num_characters = sum(len(piece) == 1 for piece in pieces)
    lattice_words = _Words.join(words, pieces[num_characters:])
    _, _, arcs = _find_pieces(lattice_words, 100, 1)
    scores = np.log(np.random.default_rng(seed).dirichlet(np.ones(len(pieces))))
    expected, others = _Lattice.build(lattice_words, arcs, num_characters).expect(scores)

    probabilities = dict(zip(pieces, np.exp(scores), strict=True))
    reference: Counter[str] = Counter()
    for word, count in words.items():
        total = sum(probability(parts, probabilities) for parts in segmentations(word))
        for parts in segmentations(word):
            for piece in parts:
                reference[piece] += count * probability(parts, probabilities) / total  # type: ignore[assignment]
    np.testing.assert_allclose(expected, [reference[piece] for piece in pieces], rtol=1e-9)
    for number in range(num_characters, len(pieces)):
        worth = sum(probability(parts, probabilities) for parts in segmentations(pieces[number]) if len(parts) > 1)
        assert np.exp(others[number]) == pytest.approx(worth, rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(COUNTED, st.integers(1, 4))
def test_substrings_are_counted(words: dict[str, int], min_frequency: int) -> None:
    pieces, counts, _ = _find_pieces(_Words.join(words), 1000, min_frequency)
    reference: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 1, len(word) + 1):
                reference[word[start:end]] += count
    wanted = {piece: count for piece, count in reference.items() if len(piece) == 1 or count >= min_frequency}
    assert dict(zip(pieces, counts, strict=True)) == wanted


def test_all_characters_stay_and_the_best_pieces_with_them() -> None:
    words = {"▁the": 100, "▁then": 20, "▁hen": 30, "▁qx": 1}
    learned = learn_pieces(words, 3, 2)
    assert set("▁thenqx") <= set(learned)
    assert {"▁the", "▁hen"} <= set(learned)
    assert len(learned) == len(set("▁thenqx")) + 3
    assert sum(np.exp(list(learned.values()))) == pytest.approx(1)


def test_a_text_of_single_characters_has_no_longer_pieces() -> None:
    assert set(learn_pieces({"a": 3, "b": 2}, 10, 1)) == {"a", "b"}


def test_a_word_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unigram_pieces, "_LONGEST_WORD", 4)
    learned = learn_pieces({"abababababab": 1}, 10, 1)
    assert max(map(len, learned)) == 4


def test_of_too_many_words_the_most_frequent_are_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"rare": 2, "often": 9, "also": 9}
    monkeypatch.setattr(unigram_pieces, "_MOST_CHARACTERS", 9)
    assert learn_pieces(words, 20, 1) == learn_pieces({"often": 9, "also": 9}, 20, 1)


def test_a_text_needs_no_more_tokens_than_with_the_library_s_trainer() -> None:
    generator = np.random.default_rng(3)
    stems = ["".join(generator.choice(list("abcdefghij"), 4)) for _ in range(60)]
    endings = ["", "s", "ing", "ed", "ation"]
    drawn = ["".join((generator.choice(stems), generator.choice(endings))) for _ in range(4000)]
    library = tokenizers.Tokenizer(models.Unigram())
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.train_from_iterator(drawn, trainers.UnigramTrainer(vocab_size=100, show_progress=False, unk_token="?"))
    num_pieces = library.get_vocab_size() - 1 - len(set("".join(drawn)))
    learned = learn_pieces(Counter(drawn), num_pieces, 2)
    ours = tokenizers.Tokenizer(models.Unigram([("?", 0.0), *learned.items()], unk_id=0))
    ours.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    assert ours.get_vocab_size() == library.get_vocab_size()
    text = " ".join(drawn)
    assert len(ours.encode(text)) <= len(library.encode(text))
