"""Training vocabularies.

Alone: pytest tests/bert_core/text/test_tokenizer_training.py
"""

import gzip
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from bert_core.errors import TokenizerError
from bert_core.text import tokenizer_training
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_pipelines import BYTE_BPE_SPECIAL_TOKENS, SPECIAL_TOKENS, UNIGRAM_SPECIAL_TOKENS
from bert_core.text.tokenizer_training import (
    TRAINERS,
    _find_pieces,
    _Lattice,
    _Words,
    learn_pieces,
    train_byte_bpe,
    train_unigram,
    train_wordpiece,
)
from tests.shared_data import shared_file

TEXTS = [
    "The lighthouse keeper walked along the northern shore, counting boats.",
    "Señor Núñez keeps 27 boats in the harbour; the lighthouse guides them home!",
    "Walking home, the keeper counted: one boat, two boats, three boats.",
] * 5


@pytest.fixture(scope="module")
def uncased() -> Tokenizer:
    return train_wordpiece(TEXTS, vocab_size=160)


@pytest.mark.parametrize(
    ("algorithm", "special_tokens"),
    [("wordpiece", SPECIAL_TOKENS), ("byte_bpe", BYTE_BPE_SPECIAL_TOKENS), ("unigram", UNIGRAM_SPECIAL_TOKENS)],
)
def test_special_tokens_come_first(algorithm: str, special_tokens: dict[str, str]) -> None:
    learned = TRAINERS[algorithm](TEXTS, 300, True, 2)
    assert [learned.token(i) for i in range(5)] == list(special_tokens.values())
    by_role = {role: getattr(learned, f"{role}_id") for role in special_tokens}
    assert by_role == {role: i for i, role in enumerate(special_tokens)}


def test_frequent_words_are_whole_and_others_are_pieces(uncased: Tokenizer) -> None:
    (ids,) = uncased.encode_ids(["boats keeperboats"])
    tokens = [uncased.token(i) for i in ids]
    assert tokens[0] == "boats"
    assert all(token.startswith("##") for token in tokens[2:])
    assert uncased.decode(ids) == "boats keeperboats"


@pytest.mark.parametrize("algorithm", TRAINERS)
@pytest.mark.heavy
def test_training_gives_the_same_vocabulary_in_every_process(algorithm: str) -> None:
    """Of the library's trainers only that of byte-level BPE does: the others go by randomly seeded hash maps."""
    program = (
        "from bert_core.text.tokenizer_training import TRAINERS\n"
        "texts = [f'{a}{b} {b}{c}a {c}{a}b' for a in 'abcdefgh' for b in 'ijklmnop' for c in 'qrst']\n"
        f"print(TRAINERS['{algorithm}'](iter(texts), 300 if '{algorithm}' == 'byte_bpe' else 90, True, 2).fingerprint)"
    )
    prints = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert len(prints) == 1


def test_wordpiece_learns_nothing_from_words_that_it_never_cuts(caplog: pytest.LogCaptureFixture) -> None:
    endless = "boat" * 26
    learned = train_wordpiece([*TEXTS, f"{endless} {endless}"], vocab_size=160)
    assert learned.fingerprint == train_wordpiece(TEXTS, vocab_size=160).fingerprint
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with pytest.raises(TokenizerError):
        train_wordpiece([endless], vocab_size=160)


@pytest.mark.parametrize(("run", "pieces"), [("ab" * 200, ("ab" * 128, "ab" * 72)), ("-" * 257, ("-" * 256, "-"))])
def test_byte_pairs_are_learned_from_a_long_run_in_parts(run: str, pieces: tuple[str, ...]) -> None:
    assert train_byte_bpe([*TEXTS, run], 400).fingerprint == train_byte_bpe([*TEXTS, *pieces], 400).fingerprint


@pytest.mark.parametrize("algorithm", TRAINERS)
def test_what_the_texts_raise_ends_a_training(algorithm: str) -> None:
    def broken() -> Iterator[str]:
        yield from TEXTS
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TRAINERS[algorithm](broken(), 400, True, 2)


def test_an_alphabet_of_many_characters_covers_the_text() -> None:
    text = " ".join(chr(0x4E00 + i) for i in range(300))
    learned = train_wordpiece([text] * 3, vocab_size=1000)
    assert learned.unk_id not in learned.encode_ids([text])[0]


def test_training_counts_words_as_often_as_they_occur() -> None:
    texts = ["aab " * 10, "abb " * 9]
    learned = train_wordpiece(texts, vocab_size=100, min_frequency=10)
    assert learned.id("aab") != learned.unk_id
    assert learned.id("abb") == learned.unk_id


@pytest.mark.parametrize(("algorithm", "vocab_size"), [("wordpiece", 100), ("byte_bpe", 280), ("unigram", 50)])
def test_min_frequency_and_vocab_size_bound_the_vocabulary(algorithm: str, vocab_size: int) -> None:
    train = TRAINERS[algorithm]
    large, small = train(TEXTS, 2000, True, 2), train(TEXTS, vocab_size, True, 2)
    assert small.vocab_size <= vocab_size
    assert small.vocab_size < large.vocab_size < 2000
    assert train(TEXTS, 2000, True, 30).vocab_size < large.vocab_size


@pytest.mark.parametrize("train", [train_wordpiece, train_unigram])
def test_rare_characters_leave_room_for_pieces(train: Callable[..., Tokenizer]) -> None:
    rare = ["".join(chr(0x4E00 + i) + " " for i in range(3000))]
    learned = train(TEXTS + rare, vocab_size=300)
    assert len(learned.encode_ids(["boats"])[0]) == 1
    assert sum(learned.id(chr(0x4E00 + i)) != learned.unk_id for i in range(3000)) < 100


@pytest.mark.parametrize("algorithm", TRAINERS)
def test_special_tokens_written_in_a_text_are_no_pieces(algorithm: str) -> None:
    learned = TRAINERS[algorithm](["a<unk> b<pad> <s> [MASK] c[CLS]"] * 50, 300, False, 2)
    assert len({learned.token(i) for i in range(learned.vocab_size)}) == learned.vocab_size
    assert not {learned.unk_id, learned.pad_id, learned.cls_id, learned.mask_id} & set(
        learned.encode_ids(["a<unk> b<pad> <s> [MASK] c[CLS]"])[0]
    )


def test_no_byte_is_unknown_to_byte_level_bpe() -> None:
    learned = train_byte_bpe(TEXTS, 300)
    (ids,) = learned.encode_ids(["漢字 \x07 \U0001f600"])
    assert learned.unk_id not in ids
    assert learned.decode(ids).strip() == "漢字 \x07 \U0001f600"


@pytest.mark.parametrize("algorithm", TRAINERS)
def test_capitals_and_accents_count_unless_uncased(algorithm: str) -> None:
    uncased, cased = (TRAINERS[algorithm](TEXTS, 400, lowercase, 2) for lowercase in (True, False))
    assert (uncased.lowercase, cased.lowercase) == (True, False)
    assert uncased.encode_ids(["SEÑOR"]) == uncased.encode_ids(["senor"])
    assert cased.encode_ids(["The"]) != cased.encode_ids(["the"])


@pytest.mark.parametrize("algorithm", TRAINERS)
def test_accents_are_kept_apart_from_capitals(algorithm: str) -> None:
    kept, stripped = (TRAINERS[algorithm](TEXTS, 400, not strips, 2, strips) for strips in (False, True))
    assert kept.encode_ids(["SEÑOR"]) == kept.encode_ids(["señor"]) != kept.encode_ids(["senor"])
    assert stripped.encode_ids(["señor"]) == stripped.encode_ids(["senor"])


@pytest.mark.parametrize("algorithm", TRAINERS)
@pytest.mark.parametrize("texts", [[], ["", " \n "]])
def test_training_on_nothing_is_refused(algorithm: str, texts: list[str]) -> None:
    with pytest.raises(TokenizerError, match=r"holds no word|no two bytes"):
        TRAINERS[algorithm](texts, 300, True, 2)


@pytest.mark.parametrize(("algorithm", "vocab_size"), [("wordpiece", 6), ("byte_bpe", 261), ("unigram", 6)])
def test_training_without_room_is_refused(algorithm: str, vocab_size: int) -> None:
    with pytest.raises(TokenizerError, match=f"vocab_size {vocab_size} has no room"):
        TRAINERS[algorithm](TEXTS, vocab_size, True, 2)


@pytest.mark.parametrize("algorithm", TRAINERS)
@pytest.mark.heavy
def test_real_text_has_few_unknowns(algorithm: str) -> None:
    text = gzip.decompress(shared_file("pretrain/wikitext-2/valid.txt.gz").read_bytes()).decode()
    lines = text.replace("<unk>", "").split("\n")
    tokenizer = TRAINERS[algorithm](lines[1000:], 4000, True, 2)
    ids = [token for line in tokenizer.encode_ids(lines[:1000]) for token in line]
    assert ids.count(tokenizer.unk_id) / len(ids) < 0.001
    assert len(ids) < len("".join(lines[:1000])) / 3


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
    monkeypatch.setattr(tokenizer_training, "_LONGEST_WORD", 4)
    learned = learn_pieces({"abababababab": 1}, 10, 1)
    assert max(map(len, learned)) == 4


def test_of_too_many_words_the_most_frequent_are_learnt_from(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"rare": 2, "often": 9, "also": 9}
    monkeypatch.setattr(tokenizer_training, "_MOST_CHARACTERS", 9)
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
